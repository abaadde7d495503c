//! `export_html`: the page in a real browser, where one is installed.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use wharf_tests::script::says;
use wharf_tests::{Env, note};

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
