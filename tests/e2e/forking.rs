//! `fork` and `get_fork_messages`: a new session of the branch before a message. What
//! extensions have to say is in `session_events`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, LlmServer, Reply};
use wharf_tests::{Env, PIXELS, SessionFile, Wharf};

use crate::lab::{error, serving};
use crate::navigation::{go, to};
use crate::session_tree::{
    entries, entry, every_entry, id_of, leaf, nodes, reopen, talked, told, tree,
};
use crate::story::{accept, rpc_over, session_file, settings, state};

fn fork(id: &str) -> Value {
    json!({"type": "fork", "entryId": id})
}

/// Forks; the answer is the text and no more.
#[track_caller]
fn forked(wharf: &mut Wharf, id: &str, text: &str) {
    let response = wharf.request(fork(id));
    let expected = json!({"id": response["id"], "type": "response", "command": "fork",
        "success": true, "data": {"text": text, "cancelled": false}});
    assert_eq!(response, expected);
}

fn fork_messages(wharf: &mut Wharf) -> Vec<(String, String)> {
    let data = wharf.data(json!({"type": "get_fork_messages"}));
    assert_eq!(data.as_object().unwrap().len(), 1);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let messages = data["messages"].as_array().unwrap();
    messages
        .iter()
        .map(|message| {
            assert_eq!(message.as_object().unwrap().len(), 2, "{message}");
            (text(&message["entryId"]), text(&message["text"]))
        })
        .collect()
}

/// The session files of a directory, without what else is there.
fn session_files(dir: &Path) -> Vec<PathBuf> {
    let Ok(listing) = fs::read_dir(dir) else { return Vec::new() };
    let paths = listing.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "jsonl")).collect();
    files.sort();
    files
}

fn header(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap();
    serde_json::from_str(text.lines().next().unwrap()).unwrap()
}

#[test]
fn from_a_message_in_the_middle() {
    let env = Env::new();
    let mut wharf = talked(&env, &["--thinking", "off"], &["first", "second", "third"]);
    let old = session_file(&mut wharf);
    let old_state = state(&mut wharf);
    accept(&mut wharf, json!({"type": "set_session_name", "name": "A \"name\""}));
    let (kept, lost) = (id_of(&mut wharf, "re: first"), id_of(&mut wharf, "re: second"));
    let first = id_of(&mut wharf, "first");
    for (id, label) in [(&kept, "kept"), (&lost, "lost"), (&first, "cleared"), (&first, "")] {
        accept(&mut wharf, json!({"type": "set_label", "entryId": id, "label": label}));
    }
    let second = id_of(&mut wharf, "second");
    let before = fs::read(&old).unwrap();
    let old_entries = entries(&old);
    forked(&mut wharf, &second, "second");

    let new = session_file(&mut wharf);
    assert_ne!(new, old);
    assert_eq!(new.parent(), old.parent());
    assert_eq!(fs::read(&old).unwrap(), before, "the old file stays byte for byte");
    assert_eq!(told(&mut wharf), ["user: first", "assistant: re: first"]);
    let new_state = state(&mut wharf);
    for field in ["model", "thinkingLevel"] {
        assert_eq!(new_state[field], old_state[field], "{field}");
    }
    assert_eq!(new_state["sessionName"], "A \"name\"");
    assert_ne!(new_state["sessionId"], old_state["sessionId"]);

    // On the disk already: the branch as it stood, then the name and the label.
    let session = SessionFile::read(&new);
    session.assert_linear();
    let cut = old_entries.iter().position(|entry| entry["id"] == *second).unwrap();
    assert_eq!(session.entries[..cut], old_entries[..cut]);
    let more: Vec<&Value> = session.entries[cut..].iter().collect();
    assert_eq!(more.len(), 2, "{more:?}");
    assert_eq!(
        (&more[0]["type"], &more[0]["name"]),
        (&json!("session_info"), &json!("A \"name\""))
    );
    let label = (&more[1]["type"], &more[1]["targetId"], &more[1]["label"]);
    assert_eq!(label, (&json!("label"), &json!(kept), &json!("kept")));
    let header = &session.header;
    assert_eq!(header["parentSession"], old.to_str().unwrap());
    assert_eq!(header["cwd"], env.project().to_str().unwrap());
    assert_eq!(header["id"], new_state["sessionId"]);
    assert!(header.get("agentType").is_none(), "{header}");
    assert!(new.to_str().unwrap().contains(header["id"].as_str().unwrap()));
    let node = nodes(&tree(&mut wharf));
    assert_eq!(entry(&node, &kept)["label"], "kept");
    assert_eq!(fork_messages(&mut wharf), [(first, "first".to_owned())]);

    // It goes on by itself.
    wharf.run("instead");
    assert_eq!(fs::read(&old).unwrap(), before);
    let conversation = ["user: first", "assistant: re: first", "user: instead", "assistant: ok"];
    assert_eq!(told(&mut wharf), conversation);
    let listed = wharf.data(json!({"type": "list_sessions"}));
    let listed = listed["sessions"].as_array().unwrap();
    // Which of them is the later one is a matter of milliseconds.
    let mut paths: Vec<&str> =
        listed.iter().filter_map(|session| session["path"].as_str()).collect();
    paths.sort_unstable();
    let mut expected = [new.to_str().unwrap(), old.to_str().unwrap()];
    expected.sort_unstable();
    assert_eq!(paths, expected);
    assert!(listed.iter().all(|session| session["name"] == "A \"name\""), "{listed:?}");
    let tree_before = tree(&mut wharf);
    let mut wharf = reopen(&env, wharf, &new);
    assert_eq!(tree(&mut wharf), tree_before);
    assert_eq!(told(&mut wharf), conversation);
    SessionFile::read(&new).assert_linear();
    // Nobody holds the old one.
    accept(&mut wharf, json!({"type": "switch_session", "sessionPath": old}));
    assert_eq!(told(&mut wharf).len(), 6);
}

/// Nothing was said before it, so there is no file until something is.
#[test]
fn from_the_first_message() {
    let env = Env::new();
    let mut wharf = talked(&env, &[], &["first", "second"]);
    accept(&mut wharf, json!({"type": "set_session_name", "name": "Named"}));
    let old = session_file(&mut wharf);
    let (before, model) = (fs::read(&old).unwrap(), state(&mut wharf)["model"].clone());
    let first = id_of(&mut wharf, "first");
    forked(&mut wharf, &first, "first");
    let new = session_file(&mut wharf);
    assert_eq!(session_files(new.parent().unwrap()), std::slice::from_ref(&old));
    assert_eq!(told(&mut wharf), <[&str; 0]>::default());
    let now = state(&mut wharf);
    assert_eq!((&now["model"], &now["sessionName"]), (&model, &json!("Named")));
    assert_eq!(fork_messages(&mut wharf), []);
    wharf.run("anew");
    assert_eq!(told(&mut wharf), ["user: anew", "assistant: ok"]);
    let session = SessionFile::read(&new);
    session.assert_linear();
    assert_eq!(session.header["parentSession"], old.to_str().unwrap());
    for (kind, count) in [("model_change", 1), ("thinking_level_change", 1), ("session_info", 1)] {
        assert_eq!(session.of_type(kind).len(), count, "{kind}");
    }
    assert_eq!(fs::read(&old).unwrap(), before);
    let mut wharf = reopen(&env, wharf, &new);
    assert_eq!(told(&mut wharf), ["user: anew", "assistant: ok"]);
    assert_eq!(state(&mut wharf)["sessionName"], "Named");
}

#[test]
fn what_is_no_message_of_a_person() {
    let env = Env::new();
    let file = every_entry(&env).write(&env);
    let before = fs::read(&file).unwrap();
    let mut wharf = env.rpc(&["--model", "scripted/demo", "--session", file.to_str().unwrap()]);
    let all = nodes(&tree(&mut wharf));
    let tree_before = tree(&mut wharf);
    let mut ids: Vec<Value> =
        all.iter().filter(|node| node["role"] != "user").map(|node| node["id"].clone()).collect();
    ids.extend([json!("zzz"), json!(""), json!("A0000001")]);
    assert_eq!(ids.len(), 20);
    for id in ids {
        let problem = error(&mut wharf, &json!({"type": "fork", "entryId": id}));
        assert!(problem.contains(id.as_str().unwrap()), "{problem}");
    }
    for command in [
        json!({"type": "fork"}),
        json!({"type": "fork", "entryId": null}),
        json!({"type": "fork", "entryId": 5}),
        json!({"type": "fork", "entryId": ["a0000001"]}),
    ] {
        error(&mut wharf, &command);
    }
    assert_eq!(session_file(&mut wharf), file);
    assert_eq!(tree(&mut wharf), tree_before);
    assert_eq!(fs::read(&file).unwrap(), before);
    assert!(!env.agent_dir().join("sessions").exists(), "nothing was created");
    assert_eq!(session_files(&env.project()), [file]);
}

/// Its parent is not there; what the model saw before it is copied.
#[test]
fn from_a_message_whose_parent_was_lost() {
    let env = Env::new();
    let file = every_entry(&env).write(&env);
    let mut wharf = env.rpc(&["--model", "scripted/demo", "--session", file.to_str().unwrap()]);
    let messages = fork_messages(&mut wharf);
    assert!(messages.contains(&("c0000001".to_owned(), "lost".to_owned())), "{messages:?}");
    go(&mut wharf, to("b0000003"), &json!({"cancelled": false}));
    let before = told(&mut wharf);
    forked(&mut wharf, "c0000001", "lost");
    assert_eq!(told(&mut wharf), before);
    assert_eq!(tree(&mut wharf)["roots"].as_array().unwrap().len(), 1);
    entries(&session_file(&mut wharf));
}

/// Those of all branches, as they were written.
#[test]
fn messages_that_a_fork_may_begin_from() {
    let env = Env::new();
    let mut wharf = talked(&env, &[], &["first", "second"]);
    let second = id_of(&mut wharf, "second");
    go(&mut wharf, to(&second), &json!({"cancelled": false, "editorText": "second"}));
    let image = json!({"type": "image", "data": PIXELS[0], "mimeType": "image/png"});
    wharf.data(json!({"type": "prompt", "message": " with\n  lines ", "images": [image]}));
    wharf.take_until("agent_end");
    let messages = fork_messages(&mut wharf);
    let texts: Vec<&str> = messages.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["first", "second", " with\n  lines "]);
    let nodes = nodes(&tree(&mut wharf));
    for (id, _) in &messages {
        assert_eq!(entry(&nodes, id)["role"], "user");
    }
    // From the branch that is not the current one, too.
    forked(&mut wharf, &messages[1].0, "second");
    assert_eq!(told(&mut wharf), ["user: first", "assistant: re: first"]);
    assert_eq!(fork_messages(&mut wharf).len(), 1);
}

#[test]
fn a_branch_with_every_type_of_entry() {
    let env = Env::new();
    let mut draft = every_entry(&env);
    draft.message("d0000001", "a000000a", json!({"role": "user", "content": "after it all"}));
    let file = draft.write(&env);
    let before = fs::read(&file).unwrap();
    let mut wharf = env.rpc(&["--model", "scripted/demo", "--session", file.to_str().unwrap()]);
    go(&mut wharf, to("a000000a"), &json!({"cancelled": false}));
    let conversation = told(&mut wharf);
    let old_entries: Vec<Value> = fs::read_to_string(&file)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    forked(&mut wharf, "d0000001", "after it all");
    assert_eq!(told(&mut wharf), conversation);
    let new = session_file(&mut wharf);
    let stored = entries(&new);
    let copied = stored.iter().filter(|entry| entry["id"].as_str().unwrap().starts_with("a00000"));
    let copied: Vec<&Value> = copied.collect();
    let originals = old_entries.iter().filter(|entry| {
        entry["id"].as_str().unwrap().starts_with("a00000") && entry["type"] != "session"
    });
    assert_eq!(copied, originals.collect::<Vec<_>>(), "as they stood");
    assert_eq!(copied.len(), 11);
    // The name and the label of the first message.
    let rest: Vec<&Value> = stored[11..].iter().map(|entry| &entry["type"]).collect();
    assert_eq!(rest, ["session_info", "label"]);
    assert_eq!(state(&mut wharf)["sessionName"], "Auth");
    assert_eq!(state(&mut wharf)["thinkingLevel"], "high");
    assert_eq!(header(&new)["parentSession"], file.to_str().unwrap());
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn during_a_run() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    server.reply(Answer::says("one"));
    let gate = server.gate();
    server.reply(Reply::from(Answer::says("two")).hold_after(3, &gate));
    let mut wharf = rpc_over(&env, &server, &[]);
    wharf.run("first");
    let old = session_file(&mut wharf);
    wharf.prompt("second");
    gate.wait_reached();
    accept(&mut wharf, json!({"type": "follow_up", "message": "never"}));
    let second = id_of(&mut wharf, "second");
    forked(&mut wharf, &second, "second");
    wharf.wait_event("agent_end");
    assert_ne!(session_file(&mut wharf), old);
    assert_eq!(told(&mut wharf), ["user: first", "assistant: one"]);
    let now = state(&mut wharf);
    assert_eq!((&now["isStreaming"], &now["pendingMessageCount"]), (&json!(false), &json!(0)));
    // What was said until then is where it was said.
    let stored = entries(&old);
    assert_eq!(stored.last().unwrap()["message"]["stopReason"], "aborted");
    assert_eq!(stored.last().unwrap()["parentId"], *second);
    let before = fs::read(&old).unwrap();
    server.reply(Answer::says("three"));
    wharf.run("third");
    let sent = server.requests().last().unwrap().body["messages"].to_string();
    assert!(sent.contains("third") && !sent.contains("second"), "{sent}");
    assert_eq!(fs::read(&old).unwrap(), before);
}

#[test]
fn in_memory() {
    let env = Env::new();
    let mut wharf = talked(&env, &["--no-session"], &["first", "second", "third"]);
    accept(&mut wharf, json!({"type": "set_session_name", "name": "Named"}));
    let (before, kept) = (state(&mut wharf), id_of(&mut wharf, "re: first"));
    accept(&mut wharf, json!({"type": "set_label", "entryId": kept, "label": "kept"}));
    let (second, first) = (id_of(&mut wharf, "second"), id_of(&mut wharf, "first"));
    forked(&mut wharf, &second, "second");
    let now = state(&mut wharf);
    assert!(now["sessionFile"].is_null(), "{now}");
    assert_ne!(now["sessionId"], before["sessionId"]);
    assert_eq!((&now["model"], &now["sessionName"]), (&before["model"], &json!("Named")));
    let nodes = nodes(&tree(&mut wharf));
    assert_eq!(entry(&nodes, &kept)["label"], "kept");
    wharf.run("instead");
    let conversation = ["user: first", "assistant: re: first", "user: instead", "assistant: ok"];
    assert_eq!(told(&mut wharf), conversation);
    forked(&mut wharf, &first, "first");
    assert_eq!(told(&mut wharf), <[&str; 0]>::default());
    assert!(state(&mut wharf)["sessionFile"].is_null());
    assert_eq!(wharf.finish().code, Some(0));
    assert!(!env.agent_dir().join("sessions").exists());
}

#[test]
fn the_model_of_the_branch_stays() {
    let server = LlmServer::start();
    let models = json!([{"id": "one", "reasoning": true}, {"id": "two", "reasoning": true}]);
    let env = serving(&server, &models);
    server.default_reply(Answer::says("answer"));
    let mut wharf = env.rpc(&["--model", "fake/one", "--thinking", "low"]);
    wharf.run("first");
    accept(&mut wharf, json!({"type": "set_model", "provider": "fake", "modelId": "two"}));
    accept(&mut wharf, json!({"type": "set_thinking_level", "level": "high"}));
    wharf.run("second");
    wharf.run("third");
    let old = session_file(&mut wharf);
    let current = |wharf: &mut Wharf| {
        let now = state(wharf);
        (now["model"]["id"].clone(), now["thinkingLevel"].clone())
    };
    let third = id_of(&mut wharf, "third");
    forked(&mut wharf, &third, "third");
    assert_eq!(current(&mut wharf), (json!("two"), json!("high")));
    wharf.run("instead");
    assert_eq!(server.requests().last().unwrap().body["model"], "two");
    let new = session_file(&mut wharf);
    let session = SessionFile::read(&new);
    session.assert_linear();
    assert_eq!(session.of_type("model_change").len(), 2, "nothing is recorded twice");
    accept(&mut wharf, json!({"type": "switch_session", "sessionPath": old}));
    let first = id_of(&mut wharf, "first");
    forked(&mut wharf, &first, "first");
    assert_eq!(current(&mut wharf), (json!("one"), json!("low")));
    wharf.run("anew");
    assert_eq!(server.requests().last().unwrap().body["model"], "one");
}

/// Each command means the session that the one before it has made.
#[test]
fn forks_and_a_prompt_in_one_write() {
    let env = Env::new();
    let mut wharf = talked(&env, &[], &["first", "second", "third"]);
    let old = session_file(&mut wharf);
    let before = fs::read(&old).unwrap();
    let (second, third) = (id_of(&mut wharf, "second"), id_of(&mut wharf, "third"));
    let lines = [
        json!({"id": 1, "type": "fork", "entryId": third}),
        json!({"id": 2, "type": "fork", "entryId": second}),
        // Not in that one any more.
        json!({"id": 3, "type": "fork", "entryId": third}),
        json!({"id": 4, "type": "prompt", "message": "fourth"}),
    ];
    let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    wharf.send_raw(lines.concat().as_bytes());
    for (id, success) in [(1, true), (2, true), (3, false), (4, true)] {
        let response = wharf.wait_for("an answer", |line| line["id"] == id);
        assert_eq!(response["success"], success, "{response}");
    }
    wharf.wait_event("agent_end");
    let conversation = ["user: first", "assistant: re: first", "user: fourth", "assistant: ok"];
    assert_eq!(told(&mut wharf), conversation);
    assert_eq!(fs::read(&old).unwrap(), before);
    let files = session_files(old.parent().unwrap());
    assert_eq!(files.len(), 3);
    let new = session_file(&mut wharf);
    let middle = files.iter().find(|file| **file != old && **file != new).unwrap();
    assert_eq!(header(&new)["parentSession"], middle.to_str().unwrap());
    assert_eq!(header(middle)["parentSession"], old.to_str().unwrap());
    SessionFile::read(middle).assert_linear();
    assert_eq!(SessionFile::read(middle).messages().len(), 4);
}

/// A fork goes where the session's new files go, wherever its own file is.
#[test]
fn into_a_flat_directory() {
    let env = Env::new();
    let mut wharf = talked(&env, &["--session-dir", "kept"], &["first", "second"]);
    let old = session_file(&mut wharf);
    let second = id_of(&mut wharf, "second");
    forked(&mut wharf, &second, "second");
    let new = session_file(&mut wharf);
    let mut expected = [old, new];
    expected.sort();
    assert_eq!(session_files(&env.project().join("kept")), expected);
    assert!(!env.agent_dir().join("sessions").exists());
}

/// Where no file can be made, the session stays the current one.
#[test]
fn a_fork_that_cannot_be_written() {
    let env = Env::new();
    let mut wharf = talked(&env, &[], &["first", "second"]);
    let file = session_file(&mut wharf);
    assert_eq!(wharf.finish().code, Some(0));
    let outside = env.write("outside.jsonl", fs::read(&file).unwrap());
    let dir = env.write("not-a-folder", "x").display().to_string();
    let args = ["--model", "scripted/demo", "--session-dir", &dir, "--session"];
    let mut wharf = env.rpc(&[&args[..], &[outside.to_str().unwrap()]].concat());
    let second = id_of(&mut wharf, "second");
    let before = tree(&mut wharf);
    let problem = error(&mut wharf, &fork(&second));
    assert!(problem.contains("not-a-folder"), "{problem}");
    assert_eq!(session_file(&mut wharf), outside);
    assert_eq!(tree(&mut wharf), before);
    assert_eq!(leaf(&mut wharf), before["leafId"]);
    wharf.run("goes on");
    assert_eq!(told(&mut wharf).len(), 6);
}
