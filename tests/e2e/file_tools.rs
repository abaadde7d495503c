//! The tools that work on files and run commands, as a model calls them.

use std::fs;

use base64::Engine as _;
use serde_json::{Value, json};
use wharf_tests::llm::{Answer, LlmServer};
use wharf_tests::script::{bash, call, says};
use wharf_tests::{Env, PIXELS, Wharf};

use crate::lab::{done, serving};
use crate::order::text_of;

/// What became of a call.
#[derive(Debug)]
struct End {
    text: String,
    is_error: bool,
    result: Value,
}

/// Plays these calls one after the other.
fn play(env: &Env, calls: &[Value]) -> Vec<End> {
    let mut replies = calls.to_vec();
    replies.push(says("done"));
    let model = env.script(&replies);
    let mut wharf = env.rpc(&["--model", &model]);
    let run = wharf.run("go");
    let ends = run.iter().filter(|line| line["type"] == "tool_execution_end");
    ends.map(|end| End {
        text: text_of(&end["result"]),
        is_error: end["isError"] == true,
        result: end["result"].clone(),
    })
    .collect()
}

#[track_caller]
fn one(env: &Env, tool: &str, arguments: &Value) -> End {
    let [end] = <[End; 1]>::try_from(play(env, &[call(tool, arguments)])).unwrap();
    end
}

#[track_caller]
fn ok(env: &Env, tool: &str, arguments: &Value) -> String {
    let end = one(env, tool, arguments);
    assert!(!end.is_error, "{arguments}: {}", end.text);
    end.text
}

#[track_caller]
fn fails(env: &Env, tool: &str, arguments: &Value) -> String {
    let end = one(env, tool, arguments);
    assert!(end.is_error, "{arguments}: {}", end.text);
    end.text
}

#[test]
fn read_gives_pages() {
    let env = Env::new();
    let all: String = (1..=5000).map(|n| format!("line {n}\n")).collect();
    env.write("long.txt", &all);
    let text = ok(&env, "read", &json!({"path": "long.txt"}));
    assert!(text.starts_with("line 1\nline 2\n") && text.contains("line 2000\n"), "{text}");
    assert!(
        !text.contains("line 2001\n") && text.contains("offset") && text.contains("2001"),
        "{}",
        &text[text.len() - 200..]
    );
    let text = ok(&env, "read", &json!({"path": "long.txt", "offset": 4998}));
    assert_eq!(text, "line 4998\nline 4999\nline 5000\n");
    let text = ok(&env, "read", &json!({"path": "long.txt", "offset": 10, "limit": 2}));
    assert!(
        text.starts_with("line 10\nline 11\n")
            && !text.contains("line 12\n")
            && text.contains("12"),
        "{text}"
    );
    let text = fails(&env, "read", &json!({"path": "long.txt", "offset": 6000}));
    assert!(text.contains("5000"), "{text}");
    for wrong in [json!(0), json!(-1), json!(1.5), json!("1")] {
        let end = one(&env, "read", &json!({"path": "long.txt", "offset": wrong}));
        assert!(end.is_error && end.text.contains("offset"), "{wrong}: {}", end.text);
    }
    // The cap in bytes falls between characters.
    env.write("wide.txt", "ü".repeat(40_000));
    let end = one(&env, "read", &json!({"path": "wide.txt"}));
    assert!(
        !end.is_error && end.text.starts_with("üü") && !end.text.contains('\u{fffd}'),
        "{}",
        end.is_error
    );
    assert!(end.text.len() < 51_000);
    env.write("empty.txt", "");
    let text = ok(&env, "read", &json!({"path": "empty.txt"}));
    assert!(text.contains("empty"), "{text:?}");
}

#[test]
fn read_knows_images_by_their_content() {
    let env = Env::new();
    let png = pixel();
    let gif =
        b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
    for (content, mime) in [(png.as_slice(), "image/png"), (gif, "image/gif")] {
        // Whatever the name says.
        env.write("picture.txt", content);
        let end = one(&env, "read", &json!({"path": "picture.txt"}));
        let blocks = end.result["content"].as_array().unwrap();
        let image = blocks.iter().find(|block| block["type"] == "image").unwrap();
        assert_eq!(image["mimeType"], mime);
        assert!(image["data"].as_str().is_some_and(|data| !data.is_empty()));
    }
    env.write("text.png", "just text\n");
    assert_eq!(ok(&env, "read", &json!({"path": "text.png"})), "just text\n");
}

/// A picture of one pixel.
fn pixel() -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(PIXELS[0]).unwrap()
}

#[test]
fn read_refuses_with_a_reason() {
    let env = Env::new();
    env.write("binary", b"abc\0def");
    env.write("utf16.txt", b"\xff\xfea\0b\0");
    fs::create_dir(env.project().join("dir")).unwrap();
    for (path, reason) in [
        ("binary", "binary"),
        ("utf16.txt", "UTF-16"),
        ("dir", "directory"),
        ("missing", "missing"),
    ] {
        let text = fails(&env, "read", &json!({ "path": path }));
        assert!(text.contains(reason), "{path}: {text}");
    }
    assert!(
        std::process::Command::new("mkfifo")
            .arg(env.project().join("pipe"))
            .status()
            .unwrap()
            .success()
    );
    assert!(fails(&env, "read", &json!({"path": "pipe"})).contains("pipe"));
    assert!(fails(&env, "read", &json!({"path": "/dev/zero"})).contains("/dev/zero"));
}

#[test]
fn paths_are_taken_from_home_the_directory_and_the_root() {
    let env = Env::new();
    fs::write(env.home().join("mine.txt"), "of home\n").unwrap();
    env.write("grüße 文 \u{1f600}/o'brien $HOME.txt", "odd\n");
    env.write("sub/../sub/f.txt", "sub\n");
    for (path, expect) in [
        ("~/mine.txt".to_owned(), "of home\n"),
        ("grüße 文 \u{1f600}/o'brien $HOME.txt".to_owned(), "odd\n"),
        ("./sub/../sub/f.txt".to_owned(), "sub\n"),
        (env.project().join("sub/f.txt").display().to_string(), "sub\n"),
    ] {
        assert_eq!(ok(&env, "read", &json!({ "path": path })), expect, "{path}");
    }
    ok(&env, "write", &json!({"path": "~/new/dir/f.txt", "content": "w\n"}));
    assert_eq!(fs::read_to_string(env.home().join("new/dir/f.txt")).unwrap(), "w\n");
    ok(&env, "edit", &json!({"path": "~/mine.txt", "oldText": "of home", "newText": "edited"}));
    assert_eq!(fs::read_to_string(env.home().join("mine.txt")).unwrap(), "edited\n");
    for tool in ["ls", "find", "grep"] {
        let text = ok(
            &env,
            tool,
            &json!({"path": "~", "pattern": "mine*"})
                .as_object()
                .map(|all| {
                    let mut all = all.clone();
                    if tool == "ls" {
                        all.remove("pattern");
                    } else if tool == "grep" {
                        all.insert("pattern".to_owned(), json!("edited"));
                    }
                    Value::Object(all)
                })
                .unwrap(),
        );
        assert!(text.contains("mine.txt"), "{tool}: {text}");
    }
}

#[test]
fn write_replaces_the_content_and_makes_folders() {
    let env = Env::new();
    let text = "a\r\nb\u{feff}\0c ü";
    let end = one(&env, "write", &json!({"path": "a/b/c.txt", "content": text}));
    assert!(!end.is_error, "{}", end.text);
    assert_eq!(fs::read_to_string(env.project().join("a/b/c.txt")).unwrap(), text);
    ok(&env, "write", &json!({"path": "a/b/c.txt", "content": ""}));
    assert_eq!(fs::read(env.project().join("a/b/c.txt")).unwrap(), b"");
    assert!(fails(&env, "write", &json!({"path": "a/b", "content": "x"})).contains("a/b"));
    assert!(
        fails(&env, "write", &json!({"path": "a/b/c.txt/d", "content": "x"})).contains("a/b/c.txt")
    );
    fails(&env, "write", &json!({"path": "x.txt"}));
    assert!(!env.project().join("x.txt").exists());
}

#[test]
fn what_was_written_keeps_its_mode_and_its_link() {
    use std::os::unix::fs::PermissionsExt as _;
    let env = Env::new();
    let script = env.write("run.sh", "echo one\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("run.sh", env.project().join("link")).unwrap();
    ok(&env, "edit", &json!({"path": "link", "oldText": "one", "newText": "two"}));
    ok(&env, "write", &json!({"path": "run.sh", "content": "echo three\n"}));
    assert!(fs::symlink_metadata(env.project().join("link")).unwrap().is_symlink());
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::read_to_string(&script).unwrap(), "echo three\n");
}

#[test]
fn edit_changes_exactly_what_matches() {
    let env = Env::new();
    let bom = "\u{feff}one\r\ntwo\r\nthree\n\tfour  \r\n";
    env.write("f.txt", bom);
    let end =
        one(&env, "edit", &json!({"path": "f.txt", "oldText": "two\nthree", "newText": "2\n3"}));
    assert!(!end.is_error, "{}", end.text);
    let now = fs::read_to_string(env.project().join("f.txt")).unwrap();
    assert!(now.starts_with("\u{feff}one\r\n2\r\n3") && now.ends_with("\n\tfour  \r\n"), "{now:?}");
    let diff = end.result["details"]["diff"].as_str().unwrap();
    assert!(diff.contains("two") && diff.contains('2'), "{diff}");
    // Exact: blanks count.
    let text =
        fails(&env, "edit", &json!({"path": "f.txt", "oldText": "four\r\n", "newText": "x"}));
    assert!(text.contains("f.txt"), "{text}");
    assert_eq!(fs::read_to_string(env.project().join("f.txt")).unwrap(), now);
}

#[test]
fn edit_wants_one_match_and_says_how_many_there_are() {
    let env = Env::new();
    let path = env.write("f.txt", "a b a b a\n");
    for (old, told) in [("a", "3"), ("b", "2"), ("z", "f.txt"), ("", "oldText")] {
        let text = fails(&env, "edit", &json!({"path": "f.txt", "oldText": old, "newText": "x"}));
        assert!(text.contains(told), "{old:?}: {text}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a b a b a\n");
    }
    // Matches that overlap are several too.
    env.write("g.txt", "aaa\n");
    assert!(
        fails(&env, "edit", &json!({"path": "g.txt", "oldText": "aa", "newText": "x"}))
            .contains('2')
    );
}

#[test]
fn several_edits_apply_all_or_none() {
    let env = Env::new();
    let path = env.write("f.txt", "one two three\n");
    let edit = |old: &str, new: &str| json!({"oldText": old, "newText": new});
    let text = fails(
        &env,
        "edit",
        &json!({"path": "f.txt", "edits": [edit("one", "1"), edit("four", "4")]}),
    );
    assert!(text.contains("edits[1]"), "which one is not told: {text}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "one two three\n");
    // Each is meant for the file as it was, also where they change places.
    ok(
        &env,
        "edit",
        &json!({"path": "f.txt", "edits": [edit("one", "two!"), edit("three", "3"), edit(" two ", " one ")]}),
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "two! one 3\n");
    let text = fails(
        &env,
        "edit",
        &json!({"path": "f.txt", "edits": [edit("two! one", "x"), edit("one 3", "y")]}),
    );
    assert!(text.contains("overlap"), "{text}");
    for wrong in [
        json!({"path": "f.txt"}),
        json!({"path": "f.txt", "edits": []}),
        json!({"path": "f.txt", "oldText": "one"}),
    ] {
        fails(&env, "edit", &wrong);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "two! one 3\n");
}

#[test]
fn edit_refuses_what_it_would_damage() {
    let env = Env::new();
    let bytes = b"caf\xe9 one\n";
    let path = env.write("latin1.txt", bytes);
    let text =
        fails(&env, "edit", &json!({"path": "latin1.txt", "oldText": "one", "newText": "two"}));
    assert!(text.contains("UTF-8"), "{text}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert!(
        fails(&env, "edit", &json!({"path": "none.txt", "oldText": "a", "newText": "b"}))
            .contains("none.txt")
    );
    assert!(
        fails(&env, "edit", &json!({"path": ".", "oldText": "a", "newText": "b"}))
            .contains("regular file")
    );
}

#[test]
fn parallel_edits_of_one_file_all_stay() {
    let env = Env::new();
    let all: String = (0..30).map(|n| format!("<{n}>\n")).collect();
    let path = env.write("f.txt", &all);
    // By two names of one file.
    std::os::unix::fs::symlink("f.txt", env.project().join("link.txt")).unwrap();
    let calls: Vec<Value> = (0..30)
        .map(|n| {
            let name = if n % 2 == 0 { "f.txt" } else { "link.txt" };
            json!({"type": "toolCall", "id": format!("c{n}"), "name": "edit",
                "arguments": {"path": name, "oldText": format!("<{n}>"), "newText": format!("[{n}]")}})
        })
        .collect();
    let ends = play(&env, &[json!({"content": calls})]);
    assert!(ends.iter().all(|end| !end.is_error), "{ends:?}");
    let expect: String = (0..30).map(|n| format!("[{n}]\n")).collect();
    assert_eq!(fs::read_to_string(path).unwrap(), expect);
}

#[test]
fn searches_leave_out_what_is_ignored() {
    let env = Env::new();
    env.write(".gitignore", "ignored/\n*.log\n");
    env.write("src/a.rs", "needle one\n");
    env.write("src/b.txt", "Needle two\n");
    env.write("ignored/c.rs", "needle three\n");
    env.write("d.log", "needle four\n");
    env.write(".hidden/e.rs", "needle five\n");
    env.write(".git/config", "needle six\n");
    env.write("bin.rs", b"needle\0seven");
    fs::create_dir_all(env.project().join(".git/refs")).unwrap();
    let text = ok(&env, "grep", &json!({"pattern": "needle"}));
    assert!(text.contains("src/a.rs:1: needle one"), "{text}");
    for part in ["three", "four", "six", "two"] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    assert!(ok(&env, "grep", &json!({"pattern": "needle", "ignoreCase": true})).contains("two"));
    let text = ok(&env, "grep", &json!({"pattern": "NEEDLE", "ignoreCase": true, "glob": "*.txt"}));
    assert!(text.contains("two") && !text.contains("one"), "{text}");
    let text = ok(&env, "find", &json!({"pattern": "*.rs"}));
    assert!(text.contains("src/a.rs") && !text.contains("ignored"), "{text}");
    let text = ok(&env, "find", &json!({"pattern": "**/*"}));
    assert!(!text.contains("d.log") && !text.contains(".git/"), "{text}");
    // A listing shows what is there.
    let text = ok(&env, "ls", &json!({}));
    assert!(text.contains("ignored/") && text.contains("d.log") && text.contains("src/"), "{text}");
}

#[test]
fn grep_takes_expressions_literals_and_context() {
    let env = Env::new();
    env.write("f.txt", "zero\nfn a(x) {\none\ntwo\nfn b() {\n");
    assert!(ok(&env, "grep", &json!({"pattern": r"fn \w\(\w\)"})).contains("f.txt:2: fn a(x) {"));
    let text = ok(&env, "grep", &json!({"pattern": "a(x)", "literal": true, "context": 1}));
    assert!(text.contains("zero") && text.contains("one") && !text.contains("two"), "{text}");
    let text = fails(&env, "grep", &json!({"pattern": "a(x"}));
    assert!(text.contains("literal"), "{text}");
    let end = one(&env, "grep", &json!({"pattern": "nowhere-to-be-found"}));
    assert!(!end.is_error && end.text.to_lowercase().contains("no"), "{}", end.text);
    // A pattern that looks like an option, and a path that is a file.
    env.write("g.txt", "--help me\n");
    assert!(ok(&env, "grep", &json!({"pattern": "--help", "path": "g.txt"})).contains("--help me"));
    assert!(fails(&env, "grep", &json!({"pattern": "x", "path": "none"})).contains("none"));
}

#[test]
fn lists_end_at_their_caps_and_say_so() {
    let env = Env::new();
    for n in 0..1100 {
        env.write(&format!("many/{n:04}.txt"), "hit\n");
    }
    let hits = |text: &str, part: &str| text.lines().filter(|line| line.contains(part)).count();
    let text = ok(&env, "grep", &json!({"pattern": "hit"}));
    assert_eq!(hits(&text, ": hit"), 100);
    assert!(text.contains("100"), "{text}");
    let text = ok(&env, "grep", &json!({"pattern": "hit", "limit": 3}));
    assert_eq!(hits(&text, ": hit"), 3);
    let text = ok(&env, "find", &json!({"pattern": "*.txt"}));
    assert_eq!(hits(&text, ".txt"), 1000);
    assert!(text.contains("1000") || text.contains("1,000"), "{}", &text[text.len() - 200..]);
    assert_eq!(hits(&ok(&env, "find", &json!({"pattern": "*.txt", "limit": 5})), ".txt"), 5);
    let text = ok(&env, "ls", &json!({"path": "many"}));
    assert_eq!(hits(&text, ".txt"), 500);
    assert!(text.contains("500"), "{}", &text[text.len() - 200..]);
    assert_eq!(hits(&ok(&env, "ls", &json!({"path": "many", "limit": 2})), ".txt"), 2);
}

#[test]
fn bash_keeps_the_end_of_long_output() {
    let env = Env::new();
    let ends = play(
        &env,
        &[
            bash("seq 1 5000"),
            bash("yes ü | tr -d '\\n' | head -c 200000; echo END"),
            bash("seq 1 3000; exit 7"),
        ],
    );
    for (end, last) in ends.iter().zip(["5000", "END", "3000"]) {
        let path = end.result["details"]["fullOutputPath"].as_str().unwrap();
        assert!(end.text.contains(path), "the file is not named: {}", end.text);
        assert!(end.text.contains(last) && !end.text.contains('\u{fffd}'));
        assert!(end.text.len() < 51_500, "{}", end.text.len());
        let cut = &end.result["details"]["truncation"];
        assert_eq!(cut["truncated"], true, "{cut}");
        let full = fs::read_to_string(path).unwrap();
        assert!(full.trim_end().ends_with(last) && full.len() > 13_000);
    }
    assert!(
        ends[2].is_error && ends[2].text.contains("code 7"),
        "{}",
        &ends[2].text[ends[2].text.len() - 200..]
    );
}

#[test]
fn bash_output_is_text() {
    let env = Env::new();
    let ends = play(
        &env,
        &[
            bash(r"printf '\033[31mred\033[0m\n10%%\r100%%\n'"),
            bash("printf 'a\\0b'; head -c 200 /dev/urandom"),
            bash("true"),
            bash("cat"),
        ],
    );
    assert_eq!(ends[0].text, "red\n100%\n");
    assert!(ends[1].text.contains("binary"), "{}", ends[1].text);
    assert_eq!(ends[2].text, "(no output)");
    assert_eq!(ends[3].text, "(no output)");
}

#[test]
fn bash_ends_with_its_shell_though_a_child_keeps_the_pipe() {
    let env = Env::new();
    let command = "(while [ ! -e stop ]; do sleep 0.01; done; touch stopped) & echo started";
    let ends = play(
        &env,
        &[
            bash(command),
            bash("touch stop; while [ ! -e stopped ]; do sleep 0.01; done; echo seen"),
        ],
    );
    assert_eq!((ends[0].text.as_str(), ends[1].text.as_str()), ("started\n", "seen\n"));
}

/// Waits in a shell until there is no such process any more.
fn gone(pid_file: &str) -> String {
    format!(
        "p=$(cat {pid_file}); for i in $(seq 1000); do kill -0 $p 2>/dev/null || exit 0; grep -q ') Z ' /proc/$p/stat && exit 0; sleep 0.01; done; exit 1"
    )
}

#[test]
fn a_timeout_takes_the_whole_group() {
    let env = Env::new();
    let command = "trap 'echo asked to end' TERM; (trap '' TERM; exec sleep 1000) & echo $! > child; echo begun; while :; do sleep 0.05; done";
    let ends = play(
        &env,
        &[call("bash", &json!({"command": command, "timeout": 0.3})), bash(&gone("child"))],
    );
    assert!(ends[0].is_error, "{}", ends[0].text);
    // Everything up to the end is there, and how it ended.
    assert!(ends[0].text.starts_with("begun\n"), "{}", ends[0].text);
    assert!(
        ends[0].text.contains("asked to end") && ends[0].text.contains("timed out"),
        "{}",
        ends[0].text
    );
    assert!(!ends[1].is_error, "the child is still there: {}", ends[1].text);
}

#[test]
fn an_abort_takes_the_whole_group() {
    let env = Env::new();
    let command = "echo begun; sleep 1000 & echo $! > child; wait";
    let model = env.script(&[bash(command), bash(&gone("child")), says("done")]);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.prompt("go");
    let wait = "while [ ! -s child ]; do sleep 0.01; done";
    wharf.data(json!({"type": "bash", "command": wait, "excludeFromContext": true}));
    done(&mut wharf, &json!({"type": "abort"}));
    let run = wharf.take_until("agent_end");
    let end = run.iter().find(|line| line["type"] == "tool_execution_end").unwrap();
    assert_eq!(end["isError"], true);
    assert!(text_of(&end["result"]).starts_with("begun\n"), "{end}");
    let run = wharf.run("look");
    let end = run.iter().find(|line| line["type"] == "tool_execution_end").unwrap();
    assert_eq!(end["isError"], false, "the child is still there");
}

#[test]
fn a_command_has_a_group_of_its_own() {
    let env = Env::new();
    let ends = play(
        &env,
        &[
            bash("ps -o pgid= -p $$; echo $$"),
            bash("cat /proc/$PPID/comm; kill -TERM 0"),
            bash("echo alive"),
        ],
    );
    let numbers: Vec<&str> = ends[0].text.split_whitespace().collect();
    assert_eq!(numbers[0], numbers[1], "{}", ends[0].text);
    assert!(ends[1].is_error && ends[1].text.contains("143"), "{}", ends[1].text);
    assert_eq!(ends[2].text, "alive\n");
}

/// The model reads of a result what the client sees.
#[test]
fn images_and_errors_reach_the_model() {
    let server = LlmServer::start();
    server.reply(Answer::default().call("a", "read", &json!({"path": "p.png"})).call(
        "b",
        "read",
        &json!({"path": "none"}),
    ));
    server.default_reply(Answer::says("ok"));
    let env = serving(&server, &json!([{"id": "m", "input": ["text", "image"]}, {"id": "blind"}]));
    env.write("p.png", pixel());
    let mut wharf: Wharf = env.rpc(&["--model", "fake/m"]);
    wharf.run("hi");
    let body = server.requests()[1].body.to_string();
    assert!(body.contains("data:image/png;base64,iVBORw0KGgo"), "{body}");
    assert!(body.contains("there is no file"), "{body}");
    // A model that takes no images gets none, also of what was before.
    wharf.data(json!({"type": "set_model", "provider": "fake", "modelId": "blind"}));
    wharf.run("again");
    let body = server.requests()[2].body.to_string();
    assert!(!body.contains("data:image"), "{body}");
}
