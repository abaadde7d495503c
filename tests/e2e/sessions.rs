//! Session files: what is in them, when they appear, and how they are reopened.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wharf_tests::script::{bash, call, says};
use wharf_tests::{Env, PIXELS, SessionFile, Wharf};

fn any_reply(env: &Env) -> String {
    let mut reply = says("ok");
    reply["repeat"] = json!(true);
    env.script(&[reply])
}

fn session_file(wharf: &mut Wharf) -> PathBuf {
    let state = wharf.data(json!({"type": "get_state"}));
    PathBuf::from(state["sessionFile"].as_str().unwrap())
}

fn messages(wharf: &mut Wharf) -> Vec<Value> {
    let data = wharf.data(json!({"type": "get_messages"}));
    data["messages"].as_array().unwrap().clone()
}

/// All files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(listing) = fs::read_dir(dir) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in listing {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// A session of one prompt and its answer.
fn short_session(env: &Env) -> PathBuf {
    let model = any_reply(env);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.run("first");
    let file = session_file(&mut wharf);
    assert_eq!(wharf.finish().code, Some(0));
    file
}

fn open(env: &Env, file: &Path) -> Wharf {
    let model = any_reply(env);
    env.rpc(&["--model", &model, "--session", file.to_str().unwrap()])
}

/// Starts a run that must fail; gives what it says.
fn refused(env: &Env, args: &[&str]) -> String {
    let mut command = env.command();
    command.args(["--mode", "rpc"]).args(args);
    let exit = Wharf::start(command, env.names()).finish();
    assert_ne!(exit.code, Some(0), "{}", exit.transcript);
    assert!(exit.rest.is_empty(), "{}", exit.transcript);
    exit.stderr
}

#[test]
fn every_line_is_as_documented() {
    let env = Env::new();
    env.write("note.txt", "a note\n");
    let thinking = json!({"content": [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "quotes \" and \u{2028} lines\n"},
        {"type": "toolCall", "name": "read", "arguments": {"path": "note.txt"}},
    ], "usage": {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 15,
        "cost": {"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0, "total": 0.0}}});
    let model = env.script(&[
        thinking,
        bash("exit 3"),
        call("no-such-tool", &json!({})),
        says("done"),
        json!({"content": [{"type": "text", "text": "half"}], "error": {"status": 400, "body": "bad"}}),
        says("more"),
    ]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    wharf.run("first INJECT");
    wharf.data(json!({"type": "set_session_name", "name": "A name"}));
    wharf.prompt("/session-append-entry mark {\"n\":1}");
    let id: Value = serde_json::from_str(&wharf.wait_notify()).unwrap();
    wharf.prompt(&format!("/session-set-label {} here", id["result"].as_str().unwrap()));
    wharf.wait_notify();
    wharf.run("this fails");
    let image = json!({"type": "image", "data": PIXELS[0], "mimeType": "image/png"});
    wharf.data(json!({"type": "prompt", "message": "look", "images": [image]}));
    wharf.until("agent_end", |line| line["type"] == "agent_end");
    let messages = messages(&mut wharf);
    let state = wharf.data(json!({"type": "get_state"}));
    let path = session_file(&mut wharf);
    assert_eq!(wharf.finish().code, Some(0));

    let file = SessionFile::read(&path);
    file.assert_linear();
    assert_eq!(file.header["id"], state["sessionId"]);
    assert_eq!(file.header["cwd"], env.project().to_str().unwrap());
    for (kind, count) in [
        ("model_change", 1),
        ("thinking_level_change", 1),
        ("custom_message", 1),
        ("session_info", 1),
        ("custom", 1),
        ("label", 1),
    ] {
        assert_eq!(file.of_type(kind).len(), count, "{kind}");
    }
    // The file tells the conversation that the client sees, word for word.
    let stored = file.messages();
    assert_eq!(stored.len(), messages.len());
    for (mut told, stored) in messages.into_iter().zip(stored) {
        if told["role"] == "custom" {
            // Its time is that of the entry.
            told.as_object_mut().unwrap().remove("timestamp");
        }
        assert_eq!(told, stored);
    }
    let stop_reasons: Vec<&Value> = file
        .of_type("message")
        .iter()
        .filter(|entry| entry["message"]["role"] == "assistant")
        .map(|entry| &entry["message"]["stopReason"])
        .collect();
    assert_eq!(stop_reasons, ["toolUse", "toolUse", "toolUse", "stop", "error", "stop"]);
}

#[test]
fn the_default_place_is_a_folder_for_each_directory() {
    let env = Env::new();
    let file = short_session(&env);
    let project = env.project().display().to_string();
    let folder = format!("--{}--", project.trim_start_matches('/').replace('/', "-"));
    assert_eq!(file.parent().unwrap(), env.agent_dir().join("sessions").join(folder));
    let id = SessionFile::read(&file).header["id"].as_str().unwrap().to_owned();
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let (time, rest) = name.split_once('_').unwrap();
    assert_eq!(rest, format!("{id}.jsonl"));
    assert!(time.starts_with("20") && !time.contains(':'), "{name}");
}

#[test]
fn no_file_exists_before_the_first_message() {
    let env = Env::new();
    let model = any_reply(&env);
    let mut wharf = env.rpc_with(&["probe"], &model);
    let file = session_file(&mut wharf);
    wharf.data(json!({"type": "set_session_name", "name": "Early"}));
    wharf.prompt("/session-append-entry mark {\"n\":1}");
    wharf.wait_notify();
    assert!(files(&env.agent_dir().join("sessions")).is_empty());
    wharf.data(json!({"type": "new_session"}));
    let second = session_file(&mut wharf);
    assert_ne!(file, second);
    wharf.data(json!({"type": "set_session_name", "name": "Later"}));
    wharf.run("now");
    // While it is open, its lock lies beside it.
    let lock = PathBuf::from(format!("{}.lock", second.display()));
    assert_eq!(files(&env.agent_dir().join("sessions")), [second.clone(), lock]);
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(files(&env.agent_dir().join("sessions")), std::slice::from_ref(&second));
    // What came before the message is before it in the file.
    let file = SessionFile::read(&second);
    file.assert_linear();
    assert_eq!(file.of_type("session_info")[0]["name"], "Later");
    assert_eq!(file.entries.last().unwrap()["message"]["role"], "assistant");
}

#[test]
fn a_run_without_anything_said_leaves_nothing() {
    let env = Env::new();
    let mut wharf = env.rpc(&[]);
    wharf.data(json!({"type": "get_state"}));
    let response = wharf.request(json!({"type": "prompt", "message": "no model"}));
    assert_eq!(response["success"], false);
    assert_eq!(wharf.finish().code, Some(0));
    assert!(files(&env.agent_dir().join("sessions")).is_empty());
}

#[test]
fn a_session_is_reopened_and_goes_on() {
    let env = Env::new();
    let file = short_session(&env);
    let before = fs::read_to_string(&file).unwrap();
    let mut wharf = open(&env, &file);
    assert_eq!(session_file(&mut wharf), file);
    assert_eq!(messages(&mut wharf), SessionFile::read(&file).messages());
    // Looking changes nothing.
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    wharf.run("second");
    assert_eq!(wharf.finish().code, Some(0));
    let after = fs::read_to_string(&file).unwrap();
    assert!(after.starts_with(&before));
    let session = SessionFile::read(&file);
    session.assert_linear();
    assert_eq!(session.messages().len(), 4);
    assert_eq!(files(&env.agent_dir().join("sessions")), [file]);
}

#[test]
fn continue_takes_the_last_session_of_this_directory() {
    let env = Env::new();
    let model = any_reply(&env);
    let elsewhere = env.home().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();

    // None yet: a new one.
    let mut wharf = env.rpc(&["--model", &model, "--continue"]);
    wharf.run("first");
    let first = session_file(&mut wharf);
    assert_eq!(wharf.finish().code, Some(0));

    let second = short_session(&env);
    assert_ne!(first, second);
    let mut command = env.command();
    command.current_dir(&elsewhere).args(["--mode", "rpc", "--model", &model]);
    let mut wharf = Wharf::start(command, env.names());
    wharf.run("elsewhere");
    assert_eq!(wharf.finish().code, Some(0));

    let mut wharf = env.rpc(&["--model", &model, "-c"]);
    assert_eq!(session_file(&mut wharf), second);
    assert_eq!(messages(&mut wharf).len(), 2);
    wharf.run("go on");
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(SessionFile::read(&second).messages().len(), 4);

    // Written last counts, not created last.
    let mut wharf = open(&env, &first);
    wharf.run("again");
    assert_eq!(wharf.finish().code, Some(0));
    let mut wharf = env.rpc(&["--model", &model, "--continue"]);
    assert_eq!(session_file(&mut wharf), first);
}

#[test]
fn no_session_keeps_no_file() {
    let env = Env::new();
    let model = any_reply(&env);
    let mut wharf = env.rpc(&["--model", &model, "--no-session"]);
    let state = wharf.data(json!({"type": "get_state"}));
    assert!(state["sessionFile"].is_null(), "{state}");
    wharf.run("first");
    wharf.data(json!({"type": "new_session"}));
    wharf.run("second");
    assert_eq!(messages(&mut wharf).len(), 2);
    assert_eq!(wharf.finish().code, Some(0));
    assert!(!env.agent_dir().join("sessions").exists());
}

#[test]
fn a_session_dir_is_flat() {
    let env = Env::new();
    let model = any_reply(&env);
    let mut wharf = env.rpc(&["--model", &model, "--session-dir", "kept/here"]);
    wharf.run("first");
    let first = session_file(&mut wharf);
    wharf.data(json!({"type": "new_session"}));
    wharf.run("second");
    let second = session_file(&mut wharf);
    assert_eq!(wharf.finish().code, Some(0));
    let dir = env.project().join("kept/here");
    for file in [&first, &second] {
        assert_eq!(file.parent().unwrap(), dir);
        SessionFile::read(file);
    }
    assert!(!env.agent_dir().join("sessions").exists());
    // The flag comes before settings; both are flat.
    let settings = json!({"sessionDir": env.home().join("set")});
    env.write_agent("settings.json", settings.to_string());
    let mut wharf = env.rpc(&["--model", &model]);
    assert_eq!(session_file(&mut wharf).parent().unwrap(), env.home().join("set"));
    let mut wharf = env.rpc(&["--model", &model, "--session-dir", "kept/here", "-c"]);
    assert_eq!(session_file(&mut wharf), second);
}

#[test]
fn one_shot_runs_keep_a_session_too() {
    let env = Env::new();
    let model = any_reply(&env);
    let output = env.command().args(["-p", "--model", &model, "first"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let output = env.command().args(["-p", "--model", &model, "-c", "second"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let found = files(&env.agent_dir().join("sessions"));
    let [file] = &found[..] else { panic!("{found:?}") };
    let session = SessionFile::read(file);
    session.assert_linear();
    assert_eq!(session.messages().len(), 4);
}

#[test]
fn switch_session_changes_to_the_file_and_its_model() {
    let env = Env::new();
    let first = short_session(&env);
    let model = any_reply(&env);
    let mut wharf = env.rpc(&["--model", &model, "--thinking", "high"]);
    wharf.run("other");
    wharf.run("other");
    let second = session_file(&mut wharf);
    let response =
        wharf.request(json!({"type": "switch_session", "sessionPath": first.to_str().unwrap()}));
    assert_eq!(response["data"], json!({"cancelled": false}));
    assert_eq!(session_file(&mut wharf), first);
    assert_eq!(messages(&mut wharf).len(), 2);
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(state["thinkingLevel"], "off", "that of the branch's last entry");
    wharf.run("goes here");
    wharf.data(json!({"type": "switch_session", "sessionPath": second.to_str().unwrap()}));
    assert_eq!(wharf.data(json!({"type": "get_state"}))["thinkingLevel"], "high");
    assert_eq!(messages(&mut wharf).len(), 4);
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(SessionFile::read(&first).messages().len(), 4);
    SessionFile::read(&first).assert_linear();
    assert_eq!(SessionFile::read(&second).messages().len(), 4);
}

#[test]
fn switching_to_what_is_no_session_changes_nothing() {
    let env = Env::new();
    let model = any_reply(&env);
    env.write("notes.txt", "These are\nmy notes.\n");
    env.write("newer.jsonl", "{\"type\":\"session\",\"version\":99,\"id\":\"x\",\"timestamp\":\"2030-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n");
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.run("first");
    let file = session_file(&mut wharf);
    for (path, words) in [
        ("missing.jsonl", &["missing.jsonl"][..]),
        ("no/folder/missing.jsonl", &["no/folder/missing.jsonl"]),
        ("notes.txt", &["notes.txt"]),
        ("newer.jsonl", &["newer.jsonl", "99"]),
        (".", &["project"]),
    ] {
        let path = env.project().join(path);
        let command = json!({"type": "switch_session", "sessionPath": path});
        let response = wharf.request(command);
        assert_eq!(response["success"], false, "{response}");
        for word in words {
            assert!(response["error"].as_str().unwrap().contains(word), "{response}");
        }
        assert_eq!(session_file(&mut wharf), file);
    }
    assert!(!env.project().join("missing.jsonl").exists());
    assert!(!env.project().join("no").exists());
    assert_eq!(
        fs::read_to_string(env.project().join("notes.txt")).unwrap(),
        "These are\nmy notes.\n"
    );
    wharf.run("still here");
    assert_eq!(messages(&mut wharf).len(), 4);
}

#[test]
fn a_session_flag_that_names_nothing_is_an_error_that_names_it() {
    let env = Env::new();
    env.write("notes.txt", "These are\nmy notes.\n");
    for path in ["missing.jsonl", "no/folder/missing.jsonl", "notes.txt"] {
        let stderr = refused(&env, &["--session", path]);
        assert!(stderr.contains(path), "{stderr}");
    }
    assert_eq!(files(&env.project()), [env.project().join("notes.txt")]);
    assert!(!env.agent_dir().join("sessions").exists());
    let stderr = refused(&env, &["--session", "x.jsonl", "--no-session"]);
    assert!(stderr.contains("--session"), "{stderr}");
}

/// Cuts a session file, reopens it, and goes on. The file must then be one that
/// everybody can read.
fn cut_and_go_on(env: &Env, file: &Path, whole: &[u8], cut: usize) -> SessionFile {
    let kept = &whole[..cut];
    fs::write(file, kept).unwrap();
    // A line that lacks nothing but its line feed is complete.
    let mut lines: Vec<&[u8]> = kept.split(|byte| *byte == b'\n').collect();
    if serde_json::from_slice::<Value>(lines[lines.len() - 1]).is_err() {
        lines.pop();
    }
    let expected: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_slice::<Value>(line).unwrap())
        .filter(|entry| entry["type"] == "message")
        .map(|entry| entry["message"].clone())
        .collect();
    let mut wharf = open(env, file);
    assert_eq!(messages(&mut wharf), expected, "cut at {cut}");
    wharf.run("go on");
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0));
    let is_torn = cut > 0 && whole[cut - 1] != b'\n' && whole.get(cut) != Some(&b'\n');
    assert!(!is_torn || exit.stderr.contains(file.to_str().unwrap()), "cut at {cut}, not told");
    let session = SessionFile::read(file);
    session.assert_linear();
    let stored = session.messages();
    assert_eq!(stored.len(), expected.len() + 2, "cut at {cut}");
    assert_eq!(stored[..expected.len()], expected);
    session
}

/// A line that a crash has cut off: it is told, all others are there, and what is
/// written next can be read by everybody.
#[test]
fn a_file_cut_at_any_byte_is_reopened_and_goes_on() {
    let env = Env::new();
    let file = short_session(&env);
    let whole = fs::read(&file).unwrap();
    let header = whole.iter().position(|byte| *byte == b'\n').unwrap();
    // All over the file, and closely around the line ends.
    let ends = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
    let mut cuts: Vec<usize> = ends.flat_map(|end| [end.saturating_sub(1), end, end + 1]).collect();
    cuts.extend((0..whole.len()).step_by(97));
    cuts.retain(|cut| *cut >= header);
    cuts.sort_unstable();
    cuts.dedup();
    for cut in cuts {
        let session = cut_and_go_on(&env, &file, &whole, cut);
        assert_eq!(session.header["cwd"], env.project().to_str().unwrap());
    }
}

/// A crash at the moment of a file's birth leaves it empty or with half a header. It
/// becomes a session of the directory in which it is reopened, and `--continue` finds it.
#[test]
fn a_file_without_a_whole_header_is_reopened_and_goes_on() {
    let env = Env::new();
    let file = short_session(&env);
    let whole = fs::read(&file).unwrap();
    let header = whole.iter().position(|byte| *byte == b'\n').unwrap();
    for cut in [0, 1, header / 2, header - 1] {
        let session = cut_and_go_on(&env, &file, &whole, cut);
        assert_eq!(session.header["cwd"], env.project().to_str().unwrap(), "cut at {cut}");
        let model = any_reply(&env);
        let mut wharf = env.rpc(&["--model", &model, "--continue"]);
        assert_eq!(session_file(&mut wharf), file, "cut at {cut}");
    }
}

/// The event tells that the entry is kept.
#[test]
fn an_entry_is_in_the_file_before_its_event_leaves() {
    let env = Env::new();
    let mut replies: Vec<Value> = (0..60).map(|number| bash(&format!("echo {number}"))).collect();
    replies.push(says("done"));
    let model = env.script(&replies);
    let mut wharf = env.rpc(&["--model", &model]);
    let file = session_file(&mut wharf);
    wharf.prompt("go");
    let mut seen = 0;
    loop {
        let line = wharf.next().unwrap();
        if line["type"] == "agent_end" {
            break;
        }
        if line["type"] != "message_end" {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let stored = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let is_stored = stored.into_iter().any(|entry| entry["message"] == line["message"]);
        assert!(is_stored, "announced and not written: {line}");
        seen += 1;
    }
    assert_eq!(seen, 122);
}

#[test]
fn model_and_thinking_level_of_a_reopened_session_are_its_own() {
    let env = Env::new();
    let mut wharf = env.rpc(&["--model", "scripted/demo", "--thinking", "medium"]);
    wharf.run("hello");
    let file = session_file(&mut wharf);
    assert_eq!(wharf.finish().code, Some(0));
    let mut wharf = env.rpc(&["--session", file.to_str().unwrap()]);
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(
        (&state["model"]["id"], &state["thinkingLevel"]),
        (&json!("demo"), &json!("medium"))
    );
    assert_eq!(wharf.finish().code, Some(0));
    let before = SessionFile::read(&file).entries.len();
    // Another level is recorded where it begins.
    let mut wharf = env.rpc(&["--session", file.to_str().unwrap(), "--thinking", "low"]);
    wharf.run("hello");
    assert_eq!(wharf.finish().code, Some(0));
    let session = SessionFile::read(&file);
    assert_eq!(session.entries[before]["type"], "thinking_level_change");
    assert_eq!(session.entries[before]["thinkingLevel"], "low");
    session.assert_linear();
}

#[test]
fn the_header_names_where_a_session_came_from() {
    let env = Env::new();
    let model = any_reply(&env);
    let args = ["--model", &model, "--parent-session", "/p/a.jsonl", "--agent-type", "reviewer"];
    let mut wharf = env.rpc(&args);
    wharf.run("first");
    let first = session_file(&mut wharf);
    wharf.data(json!({"type": "new_session", "parentSession": "/p/b.jsonl"}));
    wharf.run("second");
    let second = session_file(&mut wharf);
    assert_eq!(wharf.finish().code, Some(0));
    let header = SessionFile::read(&first).header;
    assert_eq!(
        (&header["parentSession"], &header["agentType"]),
        (&json!("/p/a.jsonl"), &json!("reviewer"))
    );
    let header = SessionFile::read(&second).header;
    assert_eq!(header["parentSession"], "/p/b.jsonl");
    assert!(header.get("agentType").is_none(), "{header}");
}

/// A file of the first version: no ids, no version.
#[test]
fn a_file_of_an_old_version_is_migrated_when_it_goes_on() {
    let env = Env::new();
    let cwd = env.project().display().to_string();
    let usage = json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}});
    let lines = [
        json!({"type": "session", "id": "0f8fad5b-d9cb-469f-a165-70867728950e",
            "timestamp": "2024-12-03T14:00:00.000Z", "cwd": cwd}),
        json!({"type": "message", "timestamp": "2024-12-03T14:00:01.000Z",
            "message": {"role": "user", "content": "Hello", "timestamp": 1_733_234_401_000_u64}}),
        json!({"type": "message", "timestamp": "2024-12-03T14:00:02.000Z",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "Hi!"}],
                "api": "x", "provider": "p", "model": "m", "usage": usage, "stopReason": "stop",
                "timestamp": 1_733_234_402_000_u64}}),
    ];
    let old = lines.map(|line| format!("{line}\n")).concat();
    let file = env.write("old.jsonl", old);
    let mut wharf = open(&env, &file);
    assert_eq!(messages(&mut wharf).len(), 2);
    wharf.run("go on");
    assert_eq!(wharf.finish().code, Some(0));
    let session = SessionFile::read(&file);
    session.assert_linear();
    assert_eq!(session.header["id"], "0f8fad5b-d9cb-469f-a165-70867728950e");
    assert_eq!(session.messages().len(), 4);
}

#[test]
fn what_is_no_regular_file_is_refused_and_left_as_it_is() {
    let env = Env::new();
    let fifo = env.project().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let named = fifo.display().to_string();
    let output = env
        .command()
        .args(["-p", "hi", "--model", "scripted/demo", "--session", &named])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("fifo is not a regular file"), "{stderr}");

    let mut wharf = env.rpc(&["--model", "scripted/demo"]);
    let response = wharf.request(json!({"type": "switch_session", "sessionPath": named}));
    assert_eq!(response["success"], false);
    assert!(response["error"].as_str().unwrap().contains("is not a regular file"), "{response}");
    assert_eq!(wharf.finish().code, Some(0));
    assert!(!fifo.metadata().unwrap().is_file(), "nothing was put in its place");
}

#[test]
fn a_session_that_cannot_be_written_is_told_to_the_client_and_by_the_exit_code() {
    let env = Env::new();
    let file = env.write("not-a-folder", "x");
    let dir = file.display().to_string();
    let mut wharf = env.rpc(&["--model", "scripted/demo", "--session-dir", &dir]);
    wharf.prompt("hi");
    let error = wharf.wait_for("the problem", |line| line["event"] == "session");
    assert_eq!(error["type"], "extension_error");
    assert!(error["extensionPath"].as_str().unwrap().contains("not-a-folder"), "{error}");
    wharf.wait_event("agent_end");
    assert_eq!(wharf.finish().code, Some(1));
}

#[test]
fn a_script_of_its_own_is_taken_up_again_and_a_lost_one_is_told() {
    let env = Env::new();
    let model = env.script(&[json!({"repeat": true, "content": [{"type": "text", "text": "a"}]})]);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.prompt("hi");
    wharf.wait_event("agent_end");
    let file = wharf.data(json!({"type": "get_state"}))["sessionFile"].clone();
    wharf.finish();
    let file = file.as_str().unwrap();
    let mut again = env.rpc(&["--session", file]);
    let state = again.data(json!({"type": "get_state"}));
    assert_eq!(format!("scripted/{}", state["model"]["id"].as_str().unwrap()), model);
    again.finish();
    std::fs::remove_file(model.strip_prefix("scripted/").unwrap()).unwrap();
    let mut lost = env.rpc(&["--session", file]);
    let told = lost.wait_for("the problem", |line| line["event"] == "session");
    assert!(told["error"].as_str().unwrap().contains("model cannot be used again"), "{told}");
    assert_eq!(lost.data(json!({"type": "get_state"}))["model"], Value::Null);
}
