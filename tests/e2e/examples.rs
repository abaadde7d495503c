//! The example extensions, each through the binary.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::{Value, json};
use wharf_tests::script::{bash, call, says};
use wharf_tests::{Env, Wharf, guest};

/// Text and `isError` of the tool results of a run.
fn results(run: &[Value]) -> Vec<(String, bool)> {
    run.iter()
        .filter(|line| line["type"] == "message_end" && line["message"]["role"] == "toolResult")
        .map(|line| {
            let message = &line["message"];
            let text = message["content"][0]["text"].as_str().unwrap().to_owned();
            (text, message["isError"].as_bool().unwrap())
        })
        .collect()
}

/// The rest of a run.
fn rest_of_run(wharf: &mut Wharf) -> Vec<Value> {
    wharf.until("agent_end", |line| line["type"] == "agent_end")
}

#[test]
fn hello_has_a_command_and_a_tool() {
    let env = Env::new();
    let model = env.script(&[
        call("greet", &json!({"name": "Ada"})),
        call("greet", &json!({"nam": "Ada"})),
        says("done"),
    ]);
    let mut wharf = env.rpc_with(&["hello"], &model);
    let commands = wharf.data(json!({"type": "get_commands"}));
    let path = guest("hello").canonicalize().unwrap();
    assert_eq!(
        commands["commands"],
        json!([{
            "name": "hello", "description": "Says hello", "argumentHint": "[name]",
            "source": "extension", "path": path,
        }])
    );
    wharf.prompt("/hello");
    assert_eq!(wharf.wait_notify(), "Hello, world!");
    wharf.prompt("/hello   Ada Lovelace ");
    assert_eq!(wharf.wait_notify(), "Hello, Ada Lovelace!");
    let results = results(&wharf.run("greet her"));
    assert_eq!(results[0], ("Hello, Ada!".to_owned(), false));
    // Arguments are checked before the extension sees them.
    assert!(results[1].1 && results[1].0.contains("name"), "{results:?}");
    assert_eq!(wharf.finish().code, Some(0));
}

/// Dangerous commands in several spellings, none of which may run by itself.
const DANGEROUS: [&str; 12] = [
    "rm -rf target",
    "rm -fr target",
    "rm -r -f target",
    "rm --recursive --force target",
    "cd . && rm -rf target",
    "find . -name target | xargs rm -rf",
    "sudo id",
    "/usr/bin/sudo id",
    "echo $(sudo id)",
    "chmod 777 target",
    "chmod -R 0777 .",
    "chmod a+rwx target",
];

#[test]
fn permission_gate_asks_before_every_spelling_and_no_blocks() {
    let env = Env::new();
    env.write("target/kept.txt", "kept");
    let mode = || std::fs::metadata(env.project().join("target")).unwrap().permissions().mode();
    let before = mode();
    let mut replies: Vec<Value> = DANGEROUS.iter().map(|command| bash(command)).collect();
    replies.push(says("done"));
    let mut wharf = env.rpc_with(&["permission-gate"], &env.script(&replies));
    wharf.prompt("go");
    for command in DANGEROUS {
        let dialog = wharf.wait_ui("select");
        let title = dialog["title"].as_str().unwrap();
        assert_eq!(title, format!("⚠️ Dangerous command:\n\n  {command}\n\nAllow?"));
        assert_eq!(dialog["options"], json!(["Yes", "No"]));
        wharf.answer(&dialog, json!({"value": "No"}));
    }
    let results = results(&rest_of_run(&mut wharf));
    assert_eq!(results.len(), DANGEROUS.len());
    for result in results {
        assert_eq!(result, ("Blocked by user".to_owned(), true));
    }
    assert!(env.project().join("target/kept.txt").exists());
    assert_eq!(mode(), before);
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn permission_gate_lets_yes_run_and_blocks_a_cancelled_dialog() {
    let env = Env::new();
    env.write("target/gone.txt", "x");
    env.write("second/kept.txt", "x");
    let model = env.script(&[bash("rm -rf target"), bash("rm -rf second"), says("done")]);
    let mut wharf = env.rpc_with(&["permission-gate"], &model);
    wharf.prompt("go");
    let dialog = wharf.wait_ui("select");
    assert!(env.project().join("target").exists(), "it ran before anybody had answered");
    wharf.answer(&dialog, json!({"value": "Yes"}));
    let dialog = wharf.wait_ui("select");
    assert!(!env.project().join("target").exists(), "it did not run after Yes");
    wharf.answer(&dialog, json!({"cancelled": true}));
    let results = results(&rest_of_run(&mut wharf));
    assert!(!results[0].1, "{results:?}");
    assert_eq!(results[1], ("Dangerous command blocked (confirmation cancelled)".to_owned(), true));
    assert!(env.project().join("second/kept.txt").exists());
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn permission_gate_does_not_ask_about_harmless_commands() {
    let env = Env::new();
    let harmless = [
        "ls",
        "echo sudoku",
        "sudoku() { echo ok; }; sudoku",
        "touch a b && rm a && rm -f b",
        "chmod 755 .",
        "grep -rf /dev/null . || true",
    ];
    let mut replies: Vec<Value> = harmless.iter().map(|command| bash(command)).collect();
    replies.push(says("done"));
    let mut wharf = env.rpc_with(&["permission-gate"], &env.script(&replies));
    let run = wharf.run("go");
    assert!(run.iter().all(|line| line["type"] != "extension_ui_request"), "{run:?}");
    let results = results(&run);
    assert_eq!(results.len(), harmless.len());
    assert!(results.iter().all(|(_, is_error)| !is_error), "{results:?}");
}

/// Nobody could be asked: that is not "no", and the reason says which it was.
#[test]
fn permission_gate_blocks_where_nobody_can_be_asked() {
    for mode in [&["--mode", "json"][..], &["-p"]] {
        let env = Env::new();
        env.write("target/kept.txt", "kept");
        let model = env.script(&[bash("rm -rf target"), says("finished")]);
        let mut command = env.command();
        command.args(mode).args(["--model", &model, "go", "-e"]).arg(guest("permission-gate"));
        if mode == ["-p"] {
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert_eq!(String::from_utf8(output.stdout).unwrap(), "finished\n");
        } else {
            let exit = Wharf::start(command, env.names()).finish();
            assert_eq!(exit.code, Some(0), "{}", exit.stderr);
            assert_eq!(
                results(&exit.rest),
                [("Dangerous command blocked (no UI for confirmation)".to_owned(), true)]
            );
            assert!(exit.rest.iter().all(|line| line["type"] != "extension_ui_request"));
        }
        assert!(env.project().join("target/kept.txt").exists());
    }
}

/// Files that `protected-paths` guards, by several ways to them.
fn guarded(env: &Env) -> Vec<String> {
    for file in [".env", ".git/config", "node_modules/x/index.js", "sub/note.txt", "ok.txt"] {
        env.write(file, "old");
    }
    symlink(".env", env.project().join("link")).unwrap();
    symlink(".git", env.project().join("gitlink")).unwrap();
    let absolute = env.project().join(".env").display().to_string();
    let relative = [
        ".env",
        "./.env",
        "sub/../.env",
        "link",
        ".git/config",
        "gitlink/config",
        "node_modules/x/index.js",
        "sub/../node_modules/x/index.js",
    ];
    relative.map(str::to_owned).into_iter().chain([absolute]).collect()
}

#[test]
fn protected_paths_guard_write_and_edit_by_their_resolved_paths() {
    for tool in ["write", "edit"] {
        let env = Env::new();
        let paths = guarded(&env);
        let reply = |path: &str| match tool {
            "write" => call("write", &json!({"path": path, "content": "new"})),
            _ => call("edit", &json!({"path": path, "oldText": "old", "newText": "new"})),
        };
        let mut replies: Vec<Value> = paths.iter().map(|path| reply(path)).collect();
        replies.extend([reply("ok.txt"), reply("sub/note.txt"), says("done")]);
        let mut wharf = env.rpc_with(&["protected-paths"], &env.script(&replies));
        let run = wharf.run("go");
        let results = results(&run);
        for (path, result) in paths.iter().zip(&results) {
            assert_eq!(*result, (format!("Path \"{path}\" is protected"), true), "{tool}");
        }
        for result in &results[paths.len()..] {
            assert!(!result.1, "{tool} {result:?}");
        }
        let notices: Vec<&Value> =
            run.iter().filter(|line| line["type"] == "extension_ui_request").collect();
        assert_eq!(notices.len(), paths.len());
        assert!(notices.iter().all(|n| n["method"] == "notify" && n["notifyType"] == "warning"));
        let content = |path: &str| std::fs::read_to_string(env.project().join(path)).unwrap();
        for path in [".env", ".git/config", "node_modules/x/index.js"] {
            assert_eq!(content(path), "old", "{tool} {path}");
        }
        assert_eq!((content("ok.txt"), content("sub/note.txt")), ("new".into(), "new".into()));
        assert_eq!(wharf.finish().code, Some(0));
    }
}

/// Neither a file that does not exist yet, nor a link to one, is a way around.
#[test]
fn protected_paths_guard_files_that_do_not_exist_yet() {
    let env = Env::new();
    symlink(".env.local", env.project().join("dangling")).unwrap();
    let paths = [".env", "new/.env", "dangling", ".git/hooks/pre-commit"];
    let mut replies: Vec<Value> =
        paths.iter().map(|path| call("write", &json!({"path": path, "content": "x"}))).collect();
    replies.push(says("done"));
    let mut wharf = env.rpc_with(&["protected-paths"], &env.script(&replies));
    let results = results(&wharf.run("go"));
    for (path, result) in paths.iter().zip(results) {
        assert_eq!(result, (format!("Path \"{path}\" is protected"), true));
        assert!(!env.project().join(path).exists(), "{path}");
    }
    assert!(!env.project().join(".env.local").exists());
}

#[test]
fn confirm_switch_keeps_the_session_unless_somebody_agrees() {
    let env = Env::new();
    let model = env.script(&[says("one"), says("two")]);
    let mut wharf = env.rpc_with(&["confirm-switch"], &model);
    wharf.run("first");
    let first = wharf.data(json!({"type": "get_state"}));
    let file = first["sessionFile"].clone();

    for answer in [json!({"confirmed": false}), json!({"cancelled": true})] {
        wharf.send(&json!({"id": "new", "type": "new_session"}));
        let dialog = wharf.wait_ui("confirm");
        assert_eq!(dialog["title"], "Clear session?");
        wharf.answer(&dialog, answer);
        let response = wharf.wait_event("response");
        assert_eq!(
            response,
            json!({"id": "new", "type": "response", "command": "new_session", "success": true,
                "data": {"cancelled": true}})
        );
        assert_eq!(wharf.wait_notify(), "Clear cancelled");
        let state = wharf.data(json!({"type": "get_state"}));
        assert_eq!(state["sessionId"], first["sessionId"]);
        assert_eq!(state["messageCount"], 2);
    }

    wharf.send(&json!({"id": "new", "type": "new_session"}));
    let dialog = wharf.wait_ui("confirm");
    wharf.answer(&dialog, json!({"confirmed": true}));
    assert_eq!(wharf.wait_event("response")["data"], json!({"cancelled": false}));
    let second = wharf.data(json!({"type": "get_state"}));
    assert_ne!(second["sessionId"], first["sessionId"]);
    assert_eq!(second["messageCount"], 0);

    for (answer, cancelled) in [("No", true), ("Yes", false)] {
        wharf.send(&json!({"id": "s", "type": "switch_session", "sessionPath": file}));
        let dialog = wharf.wait_ui("select");
        assert_eq!(dialog["title"], "Switch session?");
        let state = wharf.data(json!({"type": "get_state"}));
        assert_eq!(state["sessionId"], second["sessionId"], "it switched before the answer");
        wharf.answer(&dialog, json!({"value": answer}));
        assert_eq!(wharf.wait_event("response")["data"], json!({"cancelled": cancelled}));
        let state = wharf.data(json!({"type": "get_state"}));
        let expected = if cancelled { &second } else { &first };
        assert_eq!(state["sessionId"], expected["sessionId"]);
    }
    let messages = wharf.data(json!({"type": "get_messages"}));
    assert_eq!(messages["messages"].as_array().unwrap().len(), 2);
    wharf.run("second");
    assert_eq!(wharf.data(json!({"type": "get_last_assistant_text"}))["text"], "two");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn rpc_demo_shows_every_method() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["rpc-demo"], "scripted/demo");
    for (command, method, answer, outcome) in [
        ("/rpc-input", "input", json!({"value": "x"}), "input: answered x"),
        ("/rpc-editor", "editor", json!({"value": "a\nb"}), "editor: answered a\nb"),
        ("/rpc-select", "select", json!({"value": "Beta"}), "select: answered Beta"),
        ("/rpc-confirm", "confirm", json!({"confirmed": false}), "confirm: answered false"),
        ("/rpc-confirm", "confirm", json!({"cancelled": true}), "confirm: cancelled"),
        ("/rpc-ask", "ask", json!({"selected": ["SQLite"]}), "ask: answered [SQLite]"),
    ] {
        wharf.prompt(command);
        let dialog = wharf.wait_ui(method);
        wharf.answer(&dialog, answer);
        let handled = wharf.wait_event("extension_ui_response_handled");
        assert_eq!(handled["id"], dialog["id"]);
        assert_eq!(wharf.wait_notify(), outcome);
    }
    wharf.prompt("/rpc-confirm timeout=20");
    let dialog = wharf.wait_ui("confirm");
    assert_eq!(dialog["timeout"], 20);
    assert_eq!(wharf.wait_notify(), "confirm: timed out");
    for (command, method, field, value) in [
        ("/rpc-prefill some text", "set_editor_text", "text", json!("some text")),
        ("/rpc-title T", "setTitle", "title", json!("T")),
        ("/rpc-status S", "setStatus", "statusText", json!("S")),
        ("/rpc-widget below a | b", "setWidget", "widgetLines", json!(["a", "b"])),
        ("/rpc-notify error E", "notify", "message", json!("E")),
    ] {
        wharf.prompt(command);
        let shown = wharf.wait_ui(method);
        assert_eq!(shown[field], value, "{shown}");
    }
    assert_eq!(wharf.finish().code, Some(0));
}

fn todos(wharf: &mut Wharf) -> String {
    wharf.prompt("/todos");
    wharf.wait_notify()
}

#[test]
fn todo_state_follows_the_session() {
    let env = Env::new();
    let todo = |arguments: Value| call("todo", &arguments);
    let model = env.script(&[
        todo(json!({"action": "add", "text": "caulk"})),
        todo(json!({"action": "add", "text": "rig"})),
        todo(json!({"action": "toggle", "id": 1})),
        todo(json!({"action": "toggle", "id": 9})),
        todo(json!({"action": "list"})),
        says("done"),
    ]);
    let mut wharf = env.rpc_with(&["todo"], &model);
    assert_eq!(todos(&mut wharf), "No to-dos");
    let results = results(&wharf.run("go"));
    let expected = [
        ("Added to-do #1: caulk", false),
        ("Added to-do #2: rig", false),
        ("To-do #1 is done", false),
        ("there is no to-do #9", true),
        ("[x] #1 caulk\n[ ] #2 rig", false),
    ];
    assert_eq!(results, expected.map(|(text, is_error)| (text.to_owned(), is_error)));
    let list = "[x] #1 caulk\n[ ] #2 rig";
    assert_eq!(todos(&mut wharf), list);
    let file = wharf.data(json!({"type": "get_state"}))["sessionFile"].as_str().unwrap().to_owned();
    assert_eq!(wharf.finish().code, Some(0));

    // Another process, the same session.
    let model = env.script(&[
        todo(json!({"action": "add", "text": "sail"})),
        says("more"),
        todo(json!({"action": "add", "text": "fresh"})),
        says("fresh"),
    ]);
    let path = guest("todo");
    let args = ["--model", &model, "--session", &file, "-e", path.to_str().unwrap()];
    let mut wharf = env.rpc(&args);
    assert_eq!(todos(&mut wharf), list);
    wharf.run("more");
    let list = format!("{list}\n[ ] #3 sail");
    assert_eq!(todos(&mut wharf), list);

    let response = wharf.request(json!({"type": "new_session"}));
    assert_eq!(response["data"], json!({"cancelled": false}));
    assert_eq!(todos(&mut wharf), "No to-dos");
    wharf.run("fresh");
    assert_eq!(todos(&mut wharf), "[ ] #1 fresh");

    wharf.request(json!({"type": "switch_session", "sessionPath": file}));
    assert_eq!(todos(&mut wharf), list);
    assert_eq!(wharf.finish().code, Some(0));
}

/// Calls of one message run one after the other, and none is lost.
#[test]
fn todo_calls_of_one_message_keep_their_order() {
    let env = Env::new();
    let add = |number: usize| {
        json!({"type": "toolCall", "name": "todo",
            "arguments": {"action": "add", "text": format!("item {number}")}})
    };
    let content: Vec<Value> = (1..=20).map(add).collect();
    let model = env.script(&[json!({"content": content}), says("done")]);
    let mut wharf = env.rpc_with(&["todo"], &model);
    let results = results(&wharf.run("go"));
    for (index, (text, _)) in results.iter().enumerate() {
        let number = index + 1;
        assert_eq!(*text, format!("Added to-do #{number}: item {number}"));
    }
    assert_eq!(todos(&mut wharf).lines().count(), 20);
}
