//! `export_html`: the page in a real browser, where one is installed.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use wharf_tests::script::{bash, call, says};
use wharf_tests::{Env, PIXELS, Wharf, note};

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "headless_shell"];
/// A browser that hangs is a failure, not a wait.
const TIME_LIMIT: Duration = Duration::from_secs(90);

/// Each of them would leave its mark on the page if it ran.
const ATTACKS: [&str; 7] = [
    "</script><script>document.documentElement.dataset.owned = 1</script>",
    "</style></title></textarea><script>document.documentElement.dataset.owned = 1</script>",
    "<!-- <script>document.documentElement.dataset.owned = 1</script>",
    "<img src=x onerror=\"document.documentElement.dataset.owned = 1\">",
    "\" autofocus onfocus=\"document.documentElement.dataset.owned = 1\" x=\"",
    "<svg onload='document.documentElement.dataset.owned = 1'>",
    "[a](javascript:document.documentElement.dataset.owned=1) <style>* { display: none }</style>",
];

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    BROWSERS
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
}

/// What a browser made of a page.
struct Loaded {
    /// The document after its scripts ran, as HTML.
    document: String,
    /// What the page wrote to the console, violations of its policy among it.
    console: Vec<String>,
}

fn load(browser: &Path, page: &Path, work: &Path) -> Loaded {
    let (out, err) = (work.join("document.html"), work.join("browser.log"));
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-extensions"])
        .args(["--enable-logging=stderr", "--v=0", "--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", work.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .env("HOME", work)
        .stdin(Stdio::null())
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&err).unwrap())
        // The browser's own children must end with it.
        .process_group(0)
        .spawn()
        .unwrap();
    let deadline = Instant::now() + TIME_LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > deadline {
            break None;
        }
        thread::sleep(Duration::from_millis(20));
    };
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let log = String::from_utf8_lossy(&fs::read(&err).unwrap()).into_owned();
    match status {
        Some(status) => assert!(status.success(), "{}: {status}: {log}", browser.display()),
        None => {
            child.wait().unwrap();
            panic!("{} took longer than {TIME_LIMIT:?}: {log}", browser.display());
        }
    }
    let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Loaded { document: fs::read_to_string(&out).unwrap(), console }
}

/// The start tag of the document's root, where scripts leave their marks.
fn root_tag(document: &str) -> &str {
    let start = document.find("<html").unwrap_or_else(|| panic!("no document: {document}"));
    let end = document[start..].find('>').unwrap();
    &document[start..=start + end]
}

/// The page's own script ran, and nothing else did.
fn check(browser: &Path, page: &Path) -> String {
    let work = tempfile::tempdir().unwrap();
    let loaded = load(browser, page, work.path());
    let root = root_tag(&loaded.document);
    assert!(root.contains("data-ready=\"true\""), "the page's script did not run: {root}");
    assert!(!root.contains("data-owned"), "a script of the session ran: {root}");
    assert_eq!(loaded.console, Vec::<String>::new());
    loaded.document
}

fn entry(number: usize, parent: Option<usize>, rest: Value) -> Value {
    let id = |number: usize| format!("{number:08x}");
    let mut entry = json!({
        "type": "message",
        "id": id(number),
        "parentId": parent.map(id),
        "timestamp": format!("2024-12-03T14:00:{number:02}.000Z"),
    });
    for (name, value) in rest.as_object().unwrap() {
        entry[name] = value.clone();
    }
    entry
}

/// A session with a branch, a tool call, and an attack in every text.
fn hostile_session(env: &Env) -> PathBuf {
    let mut lines = vec![
        json!({"type": "session", "version": 3, "id": "2f1b3c4d-0000-4000-8000-000000000000", "timestamp": "2024-12-03T14:00:00.000Z", "cwd": env.project(), "parentSession": ATTACKS[0]}),
    ];
    let mut number = 0;
    let mut add = |parent: Option<usize>, rest: Value| {
        number += 1;
        lines.push(entry(number, parent, rest));
        number
    };
    let mut parent = None;
    for attack in ATTACKS {
        let text = json!([{"type": "text", "text": attack}]);
        let image =
            json!({"type": "image", "data": "AAAA", "mimeType": format!("image/png{attack}")});
        let asked = add(parent, json!({"message": {"role": "user", "content": [text[0], image]}}));
        add(Some(asked), json!({"message": {"role": "user", "content": "another way"}}));
        let answered = add(
            Some(asked),
            json!({"message": {
                "role": "assistant", "provider": "p", "model": attack, "stopReason": "error", "errorMessage": attack,
                "content": [
                    text[0],
                    {"type": "thinking", "thinking": attack},
                    {"type": "toolCall", "id": attack, "name": "bash", "arguments": {"command": attack}},
                ],
            }}),
        );
        let result = add(
            Some(answered),
            json!({"message": {"role": "toolResult", "toolCallId": attack, "toolName": "bash", "content": text}}),
        );
        let label = format!("{:08x}", answered);
        let labelled =
            add(Some(result), json!({"type": "label", "targetId": label, "label": attack}));
        parent = Some(add(Some(labelled), json!({"type": attack, "data": attack})));
    }
    add(parent, json!({"type": "session_info", "name": ATTACKS[1]}));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    env.write("hostile.jsonl", text)
}

#[test]
fn a_hostile_session_stays_text_in_a_browser() {
    let Some(browser) = browser() else {
        note(format_args!("skipped: none of {BROWSERS:?} is installed"));
        return;
    };
    let env = Env::new();
    let session = hostile_session(&env);
    let model = env.script(&[says("ok")]);
    let mut wharf = env.rpc(&["--model", &model, "--session", session.to_str().unwrap()]);
    let page = env.project().join("page.html");
    let data = wharf.data(json!({"type": "export_html", "outputPath": page}));
    assert_eq!(data["path"], json!(page));
    assert_eq!(wharf.finish().code, Some(0));

    let document = check(&browser, &page);
    // Attacks that the browser still sees as text.
    for attack in &ATTACKS[..4] {
        let text = attack.replace('<', "&lt;").replace('>', "&gt;");
        let code = format!("<code>{text}</code>");
        assert!(document.contains(&code), "{attack} is not in the page as text");
    }
    // The current branch is shown, and the others are not.
    assert!(document.contains("class=\"seg on\""));
    assert!(document.contains("class=\"seg\""));
}

fn scripts_and_links(html: &str) -> Vec<&str> {
    ["src=\"", "href=\"", "url(", "@import"]
        .iter()
        .flat_map(|start| html.match_indices(start).map(move |(at, _)| &html[at + start.len()..]))
        .map(|rest| &rest[..rest.len().min(8)])
        .collect()
}

fn leftovers(dir: &Path) -> Vec<PathBuf> {
    let listing = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    listing.filter(|path| path.to_str().unwrap().contains(".wharf-export")).collect()
}

/// Without `outputPath` it lies in the working directory; with one, where that says.
#[test]
fn the_page_lies_where_the_client_wants_it() {
    let env = Env::new();
    let model = env.script(&[says("ok")]);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.run("a question");
    let state = wharf.data(json!({"type": "get_state"}));
    let session = PathBuf::from(state["sessionFile"].as_str().unwrap());
    let before = fs::read(&session).unwrap();
    let stem = session.file_stem().unwrap().to_str().unwrap();
    let default = env.project().join(format!("wharf-session-{stem}.html"));
    fs::create_dir(env.project().join("out")).unwrap();
    for (path, page) in [
        (Value::Null, default),
        (json!("page.html"), env.project().join("page.html")),
        (json!("out/../out/./page.html"), env.project().join("out/page.html")),
        (json!("~/page"), env.home().join("page")),
        (json!(env.home().join("other.html")), env.home().join("other.html")),
        // Once more: the new page takes the old one's place.
        (json!("page.html"), env.project().join("page.html")),
    ] {
        let data = wharf.data(json!({"type": "export_html", "outputPath": path}));
        assert_eq!(data, json!({"path": page}));
        let html = fs::read_to_string(&page).unwrap();
        assert!(html.contains("a question") && html.trim_end().ends_with("</html>"));
    }
    for odd in [json!(5), json!(["x"])] {
        let response = wharf.request(json!({"type": "export_html", "outputPath": odd}));
        assert_eq!(response["success"], false, "{response}");
    }
    let response = wharf.request(json!({"type": "export_html", "outputPath": "no/page.html"}));
    assert_eq!(response["success"], false);
    let folder = env.project().join("no").display().to_string();
    assert!(response["error"].as_str().unwrap().contains(&folder), "{response}");
    // Two at once, to one place.
    let two = "{\"id\":\"a\",\"type\":\"export_html\",\"outputPath\":\"both\"}\n\
               {\"id\":\"b\",\"type\":\"export_html\",\"outputPath\":\"both\"}\n";
    wharf.send_raw(two.as_bytes());
    for id in ["a", "b"] {
        let response = wharf.wait_for(id, |line| line["id"] == id);
        assert_eq!(response["success"], true, "{response}");
    }
    assert_eq!(
        fs::read(env.project().join("both")).unwrap(),
        fs::read(env.project().join("page.html")).unwrap()
    );
    assert_eq!(wharf.finish().code, Some(0));
    assert!(leftovers(&env.project()).is_empty());
    assert_eq!(fs::read(&session).unwrap(), before);
}

/// The page must not lie where the session's first message is going to.
#[test]
fn a_session_that_has_no_file_yet_has_a_page() {
    let env = Env::new();
    let model = env.script(&[says("ok"), says("ok")]);
    for extra in [&["--session-dir", "."][..], &["--no-session"]] {
        let mut args = vec!["--model", model.as_str()];
        args.extend(extra);
        let mut wharf = env.rpc(&args);
        let state = wharf.data(json!({"type": "get_state"}));
        let data = wharf.data(json!({"type": "export_html"}));
        let page = PathBuf::from(data["path"].as_str().unwrap());
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(name.contains(state["sessionId"].as_str().unwrap()), "{name}");
        assert_eq!(page.parent().unwrap(), env.project());
        assert!(fs::read_to_string(&page).unwrap().contains("no entries"));
        if let Some(file) = state["sessionFile"].as_str() {
            let command = json!({"type": "export_html", "outputPath": file});
            let response = wharf.request(command);
            assert_eq!(response["success"], false, "{response}");
            assert!(!Path::new(file).exists());
        }
        wharf.run("a question");
        let data = wharf.data(json!({"type": "export_html"}));
        assert_eq!(data["path"], json!(page));
        assert!(fs::read_to_string(&page).unwrap().contains("a question"));
        let after = wharf.data(json!({"type": "get_state"}));
        assert_eq!(after["sessionFile"], state["sessionFile"]);
        assert_eq!(wharf.finish().code, Some(0));
    }
}

/// What has been said by then is in it, and the run goes on.
#[test]
fn a_run_can_be_exported_while_it_goes_on() {
    let env = Env::new();
    let model = env.script(&[bash("until [ -e go ]; do sleep 0.01; done"), says("the end")]);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.prompt("a question");
    wharf.wait_event("tool_execution_start");
    let html = |wharf: &mut Wharf| {
        let data = wharf.data(json!({"type": "export_html", "outputPath": "page.html"}));
        fs::read_to_string(data["path"].as_str().unwrap()).unwrap()
    };
    let during = html(&mut wharf);
    assert!(during.contains("a question") && during.contains("until [ -e go ]"));
    assert!(during.contains("no result") && !during.contains("the end"));
    env.write("go", "");
    wharf.wait_event("agent_end");
    let after = html(&mut wharf);
    assert!(after.contains("the end") && !after.contains("no result"));
    assert_eq!(wharf.finish().code, Some(0));
}

/// A session that the binary itself has written: branches, tools, images, code.
#[test]
fn a_real_session_is_shown_with_all_that_it_has() {
    let env = Env::new();
    env.write("note.txt", "a note of the tool\n");
    let model = env.script(&[
        call("read", &json!({"path": "note.txt"})),
        says("```rust\nfn answer() -> u32 { 42 }\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"),
        says("first branch"),
        says("second branch"),
    ]);
    let mut wharf = env.rpc(&["--model", &model]);
    let image = json!({"type": "image", "data": PIXELS[0], "mimeType": "image/png"});
    wharf.data(json!({"type": "prompt", "message": "look", "images": [image]}));
    wharf.wait_event("agent_end");
    wharf.run("one way");
    let messages = wharf.data(json!({"type": "get_fork_messages"}));
    let entry = &messages["messages"][1]["entryId"];
    wharf.data(json!({"type": "navigate_tree", "targetId": entry}));
    wharf.run("another way");
    wharf.data(json!({"type": "set_session_name", "name": "A <name>"}));
    let data = wharf.data(json!({"type": "export_html", "outputPath": "page.html"}));
    assert_eq!(wharf.finish().code, Some(0));
    let page = PathBuf::from(data["path"].as_str().unwrap());
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("<title>A &lt;name&gt;"), "the name is the title");
    assert!(html.contains(&format!("src=\"data:image/png;base64,{}\"", PIXELS[0])));
    assert!(html.contains("color-scheme: light dark"), "dark and light");
    assert!(html.contains("<details class=\"tool\">"), "folded");
    assert!(html.contains("a note of the tool"));
    for said in ["first branch", "second branch", "one way", "another way"] {
        assert!(html.contains(said), "{said}");
    }
    // One file, and no network.
    assert!(
        html.contains("Content-Security-Policy") && html.contains("default-src &#39;none&#39;")
    );
    for start in scripts_and_links(&html) {
        assert!(start.starts_with("data:") || start.starts_with('#'), "{start}");
    }
    let Some(browser) = browser() else {
        note(format_args!("skipped: none of {BROWSERS:?} is installed"));
        return;
    };
    let document = check(&browser, &page);
    assert!(document.contains("class=\"seg on\"") && document.contains("class=\"seg\""));
    assert!(document.contains("<table>"));
    // Code is made of parts that have colours.
    let code = document
        .split("<pre class=\"code\">")
        .filter_map(|part| part.split("</pre>").next())
        .find(|code| code.contains("answer"));
    assert!(code.is_some_and(|code| code.contains("<span")), "{code:?}");
}
