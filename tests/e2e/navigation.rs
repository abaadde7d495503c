//! `navigate_tree` without a summary: where the leaf is afterwards, what the client sees
//! then, and where what is prompted next hangs. Summaries are in `branch_summaries`,
//! what else happens at the same time in `navigation_order`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, LlmServer};
use wharf_tests::script::says;
use wharf_tests::{Env, Wharf};

use crate::lab::{error, serving};
use crate::session_tree::{
    Draft, assistant, entries, entry, every_entry, id_of, leaf, nodes, reopen, talked, text, told,
    tree, user,
};
use crate::story::{accept, session_file, state};

pub(crate) fn to(target: &str) -> Value {
    json!({"type": "navigate_tree", "targetId": target})
}

/// Moves the leaf; the answer is that and no more.
#[track_caller]
pub(crate) fn go(wharf: &mut Wharf, command: Value, data: &Value) {
    let response = wharf.request(command);
    let expected = json!({"id": response["id"], "type": "response", "command": "navigate_tree",
        "success": true, "data": data});
    assert_eq!(response, expected);
}

pub(crate) fn moved() -> Value {
    json!({"cancelled": false})
}

pub(crate) fn written_again(text: &str) -> Value {
    json!({"cancelled": false, "editorText": text})
}

/// A drafted session, open.
fn open(env: &Env, file: &Path) -> Wharf {
    let mut reply = says("ok");
    reply["repeat"] = json!(true);
    let model = env.script(&[reply]);
    env.rpc(&["--model", &model, "--session", file.to_str().unwrap()])
}

#[test]
fn to_a_user_message_and_on_from_there() {
    let env = Env::new();
    let mut wharf = talked(&env, &[], &["first", "second", "third"]);
    let file = session_file(&mut wharf);
    let before = fs::read(&file).unwrap();
    let (target, parent) = (id_of(&mut wharf, "second"), id_of(&mut wharf, "re: first"));
    go(&mut wharf, to(&target), &written_again("second"));
    assert_eq!(leaf(&mut wharf), *parent);
    assert_eq!(told(&mut wharf), ["user: first", "assistant: re: first"]);
    let last = wharf.data(json!({"type": "get_last_assistant_text"}));
    assert_eq!(last, json!({"text": "re: first"}));
    let stats = wharf.data(json!({"type": "get_session_stats"}));
    assert_eq!((&stats["userMessages"], &stats["assistantMessages"]), (&json!(1), &json!(1)));
    assert_eq!(fs::read(&file).unwrap(), before, "a move alone writes nothing");

    wharf.run("instead");
    let conversation = ["user: first", "assistant: re: first", "user: instead", "assistant: ok"];
    assert_eq!(told(&mut wharf), conversation);
    let after = fs::read(&file).unwrap();
    assert!(after.starts_with(&before), "what was written is never changed");
    let stored = entries(&file);
    let instead = id_of(&mut wharf, "instead");
    assert_eq!(entry(&stored, &instead)["parentId"], *parent);
    assert_eq!(entry(&stored, &target)["parentId"], *parent, "the old branch stays");
    assert_eq!(stored.last().unwrap()["parentId"], *instead);
    // Model and level are those of the branch already.
    let of_type = |kind: &str| stored.iter().filter(|entry| entry["type"] == kind).count();
    assert_eq!((of_type("model_change"), of_type("thinking_level_change")), (1, 1));
    assert_eq!(session_file(&mut wharf), file);

    let before = tree(&mut wharf);
    let mut wharf = reopen(&env, wharf, &file);
    assert_eq!(tree(&mut wharf), before);
    assert_eq!(told(&mut wharf), conversation);
    // And back again.
    let third = id_of(&mut wharf, "re: third");
    go(&mut wharf, to(&third), &moved());
    assert_eq!(leaf(&mut wharf), *third);
    assert_eq!(told(&mut wharf).len(), 6);
    wharf.run("fourth");
    let fourth = id_of(&mut wharf, "fourth");
    let stored = entries(&file);
    let mut above = entry(&stored, &fourth)["parentId"].clone();
    // Another script is another model, which is recorded first.
    while above != *third {
        let between = entry(&stored, above.as_str().unwrap());
        assert_eq!(between["type"], "model_change", "{between}");
        above = between["parentId"].clone();
    }
}

/// Every entry that is no message of a person: the leaf is on it, and there is no text.
#[test]
fn to_any_other_entry() {
    let env = Env::new();
    let file = every_entry(&env).write(&env);
    let mut wharf = open(&env, &file);
    let all = nodes(&tree(&mut wharf));
    let mut seen = 0;
    for node in &all {
        if node["role"] == "user" || node["type"] == "custom_message" {
            continue;
        }
        let id = node["id"].as_str().unwrap();
        go(&mut wharf, to(id), &moved());
        assert_eq!(leaf(&mut wharf), *id);
        told(&mut wharf);
        // Where it is already, nothing happens.
        go(&mut wharf, to(id), &moved());
        assert_eq!(leaf(&mut wharf), *id);
        seen += 1;
    }
    assert_eq!(seen, 16);
    for (id, last, count) in [
        ("a0000002", "assistant: ", 2),
        ("a0000013", "toolResult: ", 4),
        ("a0000004", "assistant: Sure \u{2014} let's look\nat the\u{a0}middleware first.", 5),
        ("a0000005", "bashExecution: npm  test", 6),
        ("a0000007", "bashExecution: npm  test", 6),
        ("b0000001", "branchSummary: Tried\napproach A.", 6),
        ("b0000003", "user: another \"way\"", 7),
    ] {
        go(&mut wharf, to(id), &moved());
        let told = told(&mut wharf);
        assert_eq!((told.last().unwrap().as_str(), told.len()), (last, count), "{id}");
    }
    // A compaction's branch: the summary, and what was kept.
    go(&mut wharf, to("a000000a"), &moved());
    assert_eq!(
        told(&mut wharf),
        [
            "compactionSummary: Talked.",
            "assistant: Sure \u{2014} let's look\nat the\u{a0}middleware first.",
            "bashExecution: npm  test",
            "custom: Remember\nthe milk",
        ]
    );
    // The entry before it has the whole conversation.
    go(&mut wharf, to("a0000008"), &moved());
    assert_eq!(told(&mut wharf).len(), 6);
    // The name is the session's, wherever the leaf is.
    assert_eq!(state(&mut wharf)["sessionName"], "Auth");
}

#[test]
fn to_messages_that_are_written_again() {
    let env = Env::new();
    let file = every_entry(&env).write(&env);
    let mut wharf = open(&env, &file);
    for (id, text, parent) in [
        ("b0000002", "another \"way\"", json!("b0000001")),
        ("a0000001", "Help me\n\n\trefactor   the auth module ", Value::Null),
        // The image is no text.
        ("a0000009", "Remember\nthe milk", json!("a0000008")),
    ] {
        let response = wharf.request(to(id));
        assert_eq!(response["success"], true, "{response}");
        assert_eq!(response["data"]["editorText"], text);
        assert_eq!(leaf(&mut wharf), parent, "{id}");
    }
}

/// Its parent is not there; what the model saw before it is.
#[test]
fn to_a_message_whose_parent_was_lost() {
    let env = Env::new();
    let file = every_entry(&env).write(&env);
    let mut wharf = open(&env, &file);
    go(&mut wharf, to("b0000003"), &moved());
    let before = told(&mut wharf);
    go(&mut wharf, to("b0000008"), &moved());
    go(&mut wharf, to("c0000001"), &written_again("lost"));
    assert_eq!(told(&mut wharf), before);
    wharf.run("found");
    let conversation = told(&mut wharf);
    assert_eq!(conversation[..before.len()], before);
    assert_eq!(conversation[before.len()], "user: found");
    assert_eq!(conversation.len(), before.len() + 2);
    let mut wharf = reopen(&env, wharf, &file);
    assert_eq!(told(&mut wharf), conversation);
}

/// A message that is its own ancestor has none before it that is not below it.
#[test]
fn to_a_message_in_a_cycle() {
    let env = Env::new();
    let mut draft = Draft::new(&env);
    draft.message("00000001", "", user("first"));
    draft.message("00000002", "00000004", user("round"));
    draft.message("00000003", "00000002", assistant(json!([text("and round")])));
    draft.message("00000004", "00000003", assistant(json!([text("and round again")])));
    let mut wharf = open(&env, &draft.write(&env));
    let whole = told(&mut wharf);
    assert_eq!(whole.iter().filter(|line| *line == "user: round").count(), 1, "{whole:?}");
    go(&mut wharf, to("00000002"), &written_again("round"));
    assert_eq!(told(&mut wharf), ["user: first"]);
}

/// The leaf is a message without an answer: moving to it is a move to before it.
#[test]
fn to_a_user_message_that_is_the_leaf() {
    let env = Env::new();
    let mut draft = Draft::new(&env);
    draft.message("00000001", "", user("first"));
    draft.message("00000002", "00000001", assistant(json!([text("answer")])));
    draft.message("00000003", "00000002", user("second"));
    let mut wharf = open(&env, &draft.write(&env));
    go(&mut wharf, to("00000003"), &written_again("second"));
    assert_eq!(leaf(&mut wharf), "00000002");
    assert_eq!(told(&mut wharf), ["user: first", "assistant: answer"]);
    go(&mut wharf, to("00000003"), &written_again("second"));
    assert_eq!(leaf(&mut wharf), "00000002", "a second time too");
}

#[test]
fn to_the_root_message_and_on_from_there() {
    let env = Env::new();
    let mut draft = Draft::new(&env);
    draft.message("00000001", "", user("first"));
    draft.message("00000002", "00000001", assistant(json!([text("answer")])));
    let file = draft.write(&env);
    let mut wharf = open(&env, &file);
    go(&mut wharf, to("00000001"), &written_again("first"));
    assert_eq!(leaf(&mut wharf), Value::Null);
    assert_eq!(told(&mut wharf), <[&str; 0]>::default());
    assert_eq!(state(&mut wharf)["messageCount"], 0);
    let last = wharf.data(json!({"type": "get_last_assistant_text"}));
    assert_eq!(last, json!({"text": null}));
    wharf.run("anew");
    assert_eq!(told(&mut wharf), ["user: anew", "assistant: ok"]);
    let anew = id_of(&mut wharf, "anew");
    let stored = entries(&file);
    // Up to the first entry, it is a branch of its own.
    let mut id = anew;
    while let Some(parent) = entry(&stored, &id)["parentId"].as_str() {
        parent.clone_into(&mut id);
    }
    assert_eq!(id, *stored[2]["id"].as_str().unwrap());
    assert_eq!(tree(&mut wharf)["roots"].as_array().unwrap().len(), 2);
    let before = tree(&mut wharf);
    let mut wharf = reopen(&env, wharf, &file);
    assert_eq!(tree(&mut wharf), before);
    assert_eq!(told(&mut wharf), ["user: anew", "assistant: ok"]);
}

#[test]
fn targets_that_there_are_not() {
    let env = Env::new();
    let mut wharf = talked(&env, &[], &["first", "second"]);
    let file = session_file(&mut wharf);
    let (before, tree_before) = (fs::read(&file).unwrap(), tree(&mut wharf));
    let first = id_of(&mut wharf, "first");
    for id in ["zzz", "", "00000000", &first.to_uppercase().replace('A', "\u{c4}"), "deadbeef\n"] {
        assert_eq!(error(&mut wharf, &to(id)), format!("Entry {id} not found"));
    }
    for mut command in [
        json!({}),
        json!({"targetId": null}),
        json!({"targetId": 5}),
        json!({"targetId": [first]}),
        json!({"targetId": {"id": first}}),
        json!({"targetId": first, "summarize": "yes"}),
        json!({"targetId": first, "label": 5}),
        json!({"targetId": first, "customInstructions": ["a"]}),
        json!({"targetId": first, "replaceInstructions": 1}),
    ] {
        command["type"] = json!("navigate_tree");
        error(&mut wharf, &command);
    }
    assert_eq!(tree(&mut wharf), tree_before);
    assert_eq!(told(&mut wharf).len(), 4);
    assert_eq!(fs::read(&file).unwrap(), before);
    // Fields that nobody knows, and options that are null, are none.
    let command = json!({"type": "navigate_tree", "targetId": first, "summarize": null,
        "customInstructions": null, "replaceInstructions": null, "label": null, "beam": 1});
    go(&mut wharf, command, &written_again("first"));
}

#[test]
fn a_label_for_the_target() {
    let env = Env::new();
    let mut wharf = talked(&env, &[], &["first", "second"]);
    let file = session_file(&mut wharf);
    let count = entries(&file).len();
    let (first, re_first) = (id_of(&mut wharf, "first"), id_of(&mut wharf, "re: first"));
    let second = id_of(&mut wharf, "second");
    let labelled =
        |id: &str, label: &str| json!({"type": "navigate_tree", "targetId": id, "label": label});
    // Written again or not, it is the target's. A blank one is none.
    for (at, (id, label, data)) in [
        (&re_first, "here", moved()),
        (&second, " there ", written_again("second")),
        (&first, "\n", written_again("first")),
        (&re_first, "", moved()),
    ]
    .into_iter()
    .enumerate()
    {
        go(&mut wharf, labelled(id, label), &data);
        let stored = entries(&file);
        assert_eq!(stored.len(), count + (at + 1).min(2), "one label entry each");
        let last = stored.last().unwrap();
        if at < 2 {
            let parts = (&last["type"], &last["targetId"], &last["label"]);
            assert_eq!(parts, (&json!("label"), &json!(id), &json!(label.trim())));
            assert_eq!(last["parentId"], *re_first, "it is below the leaf");
        }
    }
    let nodes = nodes(&tree(&mut wharf));
    let labels: Vec<(&Value, &Value)> = nodes
        .iter()
        .filter(|node| node.get("label").is_some())
        .map(|node| (&node["id"], &node["label"]))
        .collect();
    assert_eq!(labels, [(&json!(re_first), &json!("here")), (&json!(second), &json!("there"))]);
    // The current leaf can be labelled by a move too.
    go(&mut wharf, labelled(&re_first, "moved"), &moved());
    assert_eq!(entries(&file).last().unwrap()["label"], "moved");
    assert_eq!(told(&mut wharf), ["user: first", "assistant: re: first"]);
    // What was written last is where a reopened session goes on.
    let before = tree(&mut wharf);
    let mut wharf = reopen(&env, wharf, &file);
    assert_eq!(tree(&mut wharf), before);
    assert_eq!(told(&mut wharf), ["user: first", "assistant: re: first"]);
}

/// Model and level, and what the next prompt is sent with, are those of the branch.
#[test]
fn model_and_thinking_level_are_those_of_the_branch() {
    let server = LlmServer::start();
    let models = json!([{"id": "one", "reasoning": true}, {"id": "two", "reasoning": true}]);
    let env = serving(&server, &models);
    server.default_reply(Answer::says("answer"));
    let mut wharf = env.rpc(&["--model", "fake/one", "--thinking", "low"]);
    let current = |wharf: &mut Wharf| {
        let state = state(wharf);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&state["model"]["id"]), text(&state["thinkingLevel"]))
    };
    let is = |model: &str, level: &str| (model.to_owned(), level.to_owned());
    wharf.run("first");
    accept(&mut wharf, json!({"type": "set_model", "provider": "fake", "modelId": "two"}));
    accept(&mut wharf, json!({"type": "set_thinking_level", "level": "high"}));
    wharf.run("second");
    assert_eq!(current(&mut wharf), is("two", "high"));
    let file = session_file(&mut wharf);
    let defaults = fs::read(env.agent_dir().join("settings.json")).unwrap();

    let stored = entries(&file);
    let reply = stored.iter().find(|entry| entry["message"]["role"] == "assistant").unwrap();
    let reply = reply["id"].as_str().unwrap();
    go(&mut wharf, to(reply), &moved());
    assert_eq!(current(&mut wharf), is("one", "low"));
    wharf.run("third");
    assert_eq!(server.requests().last().unwrap().body["model"], "one");
    assert_eq!(entries(&file).len(), stored.len() + 2, "nothing is recorded that is so already");
    // Between the two changes.
    let level = stored.iter().rfind(|entry| entry["type"] == "thinking_level_change").unwrap();
    let between = level["parentId"].as_str().unwrap().to_owned();
    go(&mut wharf, to(&between), &moved());
    assert_eq!(current(&mut wharf), is("two", "low"));
    let second = id_of(&mut wharf, "second");
    go(&mut wharf, to(&second), &written_again("second"));
    assert_eq!(current(&mut wharf), is("two", "high"));
    // A move is no choice of a default.
    assert_eq!(fs::read(env.agent_dir().join("settings.json")).unwrap(), defaults);
    // A change after a move is the new branch's alone.
    go(&mut wharf, to(reply), &moved());
    accept(&mut wharf, json!({"type": "set_model", "provider": "fake", "modelId": "two"}));
    wharf.run("fourth");
    go(&mut wharf, to(reply), &moved());
    assert_eq!(current(&mut wharf), is("one", "low"));
    assert_eq!(wharf.finish().code, Some(0));
    // Reopened: those of the entries that were written last.
    let mut wharf = env.rpc(&["--session", file.to_str().unwrap()]);
    assert_eq!(current(&mut wharf), is("two", "low"));
    assert_eq!(told(&mut wharf)[2..], ["user: fourth", "assistant: answer"]);
}

/// The model of a branch may be gone: that is told, and the move is made.
#[test]
fn a_branch_whose_model_is_gone() {
    let env = Env::new();
    let mut draft = Draft::new(&env);
    draft.add("00000001", "", "model_change", json!({"provider": "gone", "modelId": "m"}));
    draft.message("00000002", "00000001", user("first"));
    draft.message("00000003", "00000002", user("second"));
    draft.add(
        "00000004",
        "00000003",
        "model_change",
        json!({"provider": "scripted", "modelId": "demo"}),
    );
    let file = draft.write(&env);
    let mut wharf = env.rpc(&["--session", file.to_str().unwrap()]);
    assert_eq!(state(&mut wharf)["model"]["id"], "demo");
    wharf.send(&json!({"id": "n", "type": "navigate_tree", "targetId": "00000003"}));
    let event = wharf.wait_event("extension_error");
    assert_eq!(event["event"], "session");
    assert!(event["error"].as_str().unwrap().contains("gone/m"), "{event}");
    let response = wharf.wait_for("the answer", |line| line["id"] == "n");
    assert_eq!(response["data"], written_again("second"));
    assert_eq!(leaf(&mut wharf), "00000002");
}

/// What a person runs meanwhile belongs to where the leaf is when it is done.
#[test]
fn a_session_in_memory_has_a_tree_too() {
    let env = Env::new();
    let mut wharf = talked(&env, &["--no-session"], &["first", "second"]);
    let (second, parent) = (id_of(&mut wharf, "second"), id_of(&mut wharf, "re: first"));
    go(&mut wharf, to(&second), &written_again("second"));
    assert_eq!(leaf(&mut wharf), *parent);
    wharf.run("third");
    let nodes = nodes(&tree(&mut wharf));
    let third = nodes.iter().find(|node| node["preview"] == "third").unwrap();
    assert_eq!(third["parentId"], *parent);
    assert_eq!(wharf.finish().code, Some(0));
    assert!(!env.agent_dir().join("sessions").exists());
}
