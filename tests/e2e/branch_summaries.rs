//! `navigate_tree` with a summary of the branch that is left: what is asked, what is
//! stored, and that a summary which fails or is aborted changes nothing.

use std::fs;

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Failure, LlmServer, Outcome, Reply};
use wharf_tests::{Env, Wharf};

use crate::lab::{error, serving};
use crate::navigation::{go, to};
use crate::navigation_order::SUMMARIZING;
use crate::session_tree::{
    Draft, assistant, entries, entry, id_of, leaf, nodes, reopen, text, told, tree, user,
};
use crate::story::{accept, rpc_over, session_file, settings, state};

fn summarized(target: &str) -> Value {
    json!({"type": "navigate_tree", "targetId": target, "summarize": true})
}

fn quiet_env() -> Env {
    let env = Env::new();
    settings(&env, json!({}));
    env
}

/// Two runs; the second one reads a file and writes two.
fn two_runs(env: &Env, server: &LlmServer) -> Wharf {
    env.write("seen.txt", "seen\n");
    env.write("changed.txt", "old\n");
    server.reply(Answer::says("answer one"));
    let calls = Answer::calls("c1", "read", &json!({"path": "seen.txt"}))
        .call("c2", "read", &json!({"path": "changed.txt"}))
        .call("c3", "write", &json!({"path": "made.txt", "content": "new"}));
    server.reply(calls);
    server.reply(Answer::calls(
        "c4",
        "edit",
        &json!({"path": "changed.txt", "oldText": "old", "newText": "new"}),
    ));
    server.reply(Answer::says("answer two"));
    let mut wharf = rpc_over(env, server, &[]);
    wharf.run("first");
    wharf.run("second");
    wharf
}

/// Everything that a client or another program can see of where the session is.
fn everything(wharf: &mut Wharf) -> (Value, Vec<String>, Vec<u8>) {
    let file = session_file(wharf);
    (tree(wharf), told(wharf), fs::read(file).unwrap())
}

#[test]
fn what_a_summary_asks_stores_and_sends() {
    let env = quiet_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server);
    let (first, second) = (id_of(&mut wharf, "answer one"), id_of(&mut wharf, "second"));
    let old_leaf = leaf(&mut wharf);
    let file = session_file(&mut wharf);
    let before = entries(&file);
    server.on_summary(Answer::says("THE SUMMARY"));
    let mut command = summarized(&second);
    command["label"] = json!(" left ");
    go(&mut wharf, command, &json!({"cancelled": false, "editorText": "second"}));

    // The request: the branch that is left and no more, no tools.
    let requests = server.requests();
    assert_eq!(requests.len(), 5);
    let asked = &requests[4].body;
    let sent = asked["messages"].to_string();
    // The message that is written again is on the branch that is left: what the rest
    // answers would not be known without it.
    for part in ["[User]: second", "answer two", "seen.txt", "made.txt"] {
        assert!(sent.contains(part), "{part} is not in {sent}");
    }
    for part in ["first", "answer one"] {
        assert!(!sent.contains(part), "{part} stays, and was summarised: {sent}");
    }
    assert!(asked["tools"].as_array().is_none_or(Vec::is_empty), "{asked}");

    // Two entries more: the summary at the target, and its label.
    let stored = entries(&file);
    assert_eq!(stored.len(), before.len() + 2);
    let (summary, label) = (&stored[before.len()], &stored[before.len() + 1]);
    assert_eq!(summary["type"], "branch_summary");
    assert_eq!(summary["parentId"], *first);
    assert_eq!(summary["fromId"], old_leaf);
    assert!(summary["summary"].as_str().unwrap().starts_with("THE SUMMARY"), "{summary}");
    assert!(summary.get("fromHook").is_none_or(|hook| hook == false), "{summary}");
    assert_eq!(
        summary["details"],
        json!({"readFiles": ["seen.txt"], "modifiedFiles": ["changed.txt", "made.txt"]})
    );
    let parts = (&label["type"], &label["targetId"], &label["label"], &label["parentId"]);
    assert_eq!(parts, (&json!("label"), &summary["id"], &json!("left"), &summary["id"]));

    // The client sees it, and the model reads it.
    let conversation = told(&mut wharf);
    assert_eq!(conversation[..2], ["user: first", "assistant: answer one"]);
    assert!(conversation[2].starts_with("branchSummary: THE SUMMARY"), "{conversation:?}");
    assert_eq!(conversation.len(), 3);
    let nodes = nodes(&tree(&mut wharf));
    let node = entry(&nodes, summary["id"].as_str().unwrap());
    assert_eq!((&node["type"], &node["label"]), (&json!("branch_summary"), &json!("left")));
    assert!(node["preview"].as_str().unwrap().starts_with("[branch summary]: THE SUMMARY"));
    assert!(node.get("role").is_none());
    server.reply(Answer::says("answer three"));
    wharf.run("third");
    let requests = server.requests();
    let sent = requests[5].body["messages"].to_string();
    for part in ["first", "answer one", "THE SUMMARY", "third"] {
        assert!(sent.contains(part), "{part} is not in {sent}");
    }
    assert!(!sent.contains("answer two"), "{sent}");
    let third = id_of(&mut wharf, "third");
    assert_eq!(entry(&entries(&file), &third)["parentId"], label["id"]);

    let (tree_before, told_before) = (tree(&mut wharf), told(&mut wharf));
    let mut wharf = reopen(&env, wharf, &file);
    assert_eq!(tree(&mut wharf), tree_before);
    assert_eq!(told(&mut wharf), told_before);
}

/// The text of the one message of a request for a summary.
fn question(server: &LlmServer) -> String {
    let requests = server.requests();
    let message = &requests.last().unwrap().body["messages"][0];
    let content = &message["content"];
    content.as_str().or_else(|| content[0]["text"].as_str()).unwrap().to_owned()
}

#[test]
fn instructions_reach_the_request() {
    let env = quiet_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server);
    let second = id_of(&mut wharf, "second");
    let back = leaf(&mut wharf);
    server.default_summary(Answer::says("S"));
    let mut ask = |fields: Value| {
        let mut command = summarized(&second);
        command.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        go(&mut wharf, command, &json!({"cancelled": false, "editorText": "second"}));
        go(&mut wharf, to(back.as_str().unwrap()), &json!({"cancelled": false}));
        question(&server)
    };
    let plain = ask(json!({}));
    let same = ask(json!({"customInstructions": "  ", "replaceInstructions": true}));
    assert_eq!(same, plain, "blank instructions are none");
    assert_eq!(ask(json!({"replaceInstructions": true})), plain, "by nothing, nothing is replaced");
    let with = ask(json!({"customInstructions": "Focus on the boat"}));
    assert!(with.starts_with(plain.as_str()) && with.contains("Focus on the boat"), "{with}");
    let explicit =
        ask(json!({"customInstructions": "Focus on the boat", "replaceInstructions": false}));
    assert_eq!(explicit, with);
    let own = ask(json!({"customInstructions": "Only the boat", "replaceInstructions": true}));
    assert!(own.contains("Only the boat") && own.contains("answer two"), "{own}");
    let common = plain.bytes().zip(own.bytes()).take_while(|(a, b)| a == b).count();
    let default = &plain[common..];
    assert!(default.len() > 100 && !own.contains(default.lines().last().unwrap()), "{own}");
}

#[test]
fn a_summary_that_fails_changes_nothing() {
    let env = quiet_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server);
    let first = id_of(&mut wharf, "first");
    let before = everything(&mut wharf);
    let mut command = summarized(&first);
    command["label"] = json!("never");
    server.on_summary(Reply::status(400, r#"{"type":"error","error":{"type":"invalid_request_error","message":"the summary is bad"}}"#));
    let problem = error(&mut wharf, &command);
    assert!(problem.contains("the summary is bad"), "{problem}");
    assert_eq!(everything(&mut wharf), before);
    assert_eq!(state(&mut wharf)["isCompacting"], false);
    // Neither does an answer that says nothing.
    server.on_summary(Answer::default());
    let problem = error(&mut wharf, &command);
    assert!(!problem.is_empty());
    assert_eq!(everything(&mut wharf), before);
    // What passes is tried again.
    server.on_summary(Failure::Overloaded);
    server.on_summary(Answer::says("THE SUMMARY"));
    let response = wharf.request(command);
    assert_eq!(response["data"]["cancelled"], false, "{response}");
    assert!(told(&mut wharf)[0].starts_with("branchSummary: THE SUMMARY"));
}

#[test]
fn an_abort_during_the_summary_changes_nothing() {
    for command in ["abort", "abort_compaction"] {
        let env = quiet_env();
        let server = LlmServer::start();
        let mut wharf = two_runs(&env, &server);
        let first = id_of(&mut wharf, "first");
        let before = everything(&mut wharf);
        let gate = server.gate();
        server.on_summary(Reply::from(Answer::says("never")).hold_after(3, &gate));
        let mut navigate = summarized(&first);
        navigate["id"] = json!("n");
        navigate["label"] = json!("never");
        wharf.send(&navigate);
        gate.wait_reached();
        accept(&mut wharf, json!({"type": command}));
        let response = wharf.wait_for("the answer", |line| line["id"] == "n");
        let expected = json!({"id": "n", "type": "response", "command": "navigate_tree",
            "success": true, "data": {"cancelled": true}});
        assert_eq!(response, expected);
        assert_eq!(server.wait_outcome(4), Outcome::ClientClosed, "the request goes on");
        assert_eq!(everything(&mut wharf), before);
        assert_eq!(state(&mut wharf)["isCompacting"], false);
        // Afterwards everything goes on as if nothing had been.
        server.reply(Answer::says("answer three"));
        wharf.run("third");
        assert_eq!(told(&mut wharf).len(), before.1.len() + 2);
        assert_eq!(wharf.finish().code, Some(0));
    }
}

/// The abort was written after the move: it is meant for it.
#[test]
fn an_abort_in_the_same_write() {
    for command in ["abort", "abort_compaction"] {
        for _ in 0..3 {
            let env = quiet_env();
            let server = LlmServer::start();
            let mut wharf = two_runs(&env, &server);
            let first = id_of(&mut wharf, "first");
            let before = everything(&mut wharf);
            let gate = server.gate();
            server.default_summary(Reply::from(Answer::says("never")).hold(&gate));
            let mut navigate = summarized(&first);
            navigate["id"] = json!("n");
            let abort = json!({"id": "a", "type": command});
            wharf.send_raw(format!("{navigate}\n{abort}\n").as_bytes());
            let response = wharf.wait_for("the answer", |line| line["id"] == "n");
            assert_eq!(response["data"], json!({"cancelled": true}), "{response}");
            wharf.wait_for("the abort", |line| line["id"] == "a");
            assert_eq!(everything(&mut wharf), before);
        }
    }
}

#[test]
fn one_summary_at_a_time() {
    let env = quiet_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server);
    let (first, second) = (id_of(&mut wharf, "first"), id_of(&mut wharf, "second"));
    let before = everything(&mut wharf);
    let gate = server.gate();
    server.on_summary(Reply::from(Answer::says("THE SUMMARY")).hold(&gate));
    let mut navigate = summarized(&second);
    navigate["id"] = json!("n");
    wharf.send(&navigate);
    gate.wait_reached();
    for command in [to(&first), summarized(&first), to(before.0["leafId"].as_str().unwrap())] {
        assert_eq!(error(&mut wharf, &command), SUMMARIZING);
    }
    assert_eq!(everything(&mut wharf), before, "nothing has changed yet");
    gate.open();
    let response = wharf.wait_for("the answer", |line| line["id"] == "n");
    assert_eq!(response["data"], json!({"cancelled": false, "editorText": "second"}));
    assert_eq!(server.requests().len(), 5);
    assert_eq!(told(&mut wharf).len(), 3);
}

/// It waits for the summary, and the model reads that.
#[test]
fn a_prompt_in_the_same_write_lands_below_the_summary() {
    let env = quiet_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server);
    let file = session_file(&mut wharf);
    let second = id_of(&mut wharf, "second");
    let gate = server.gate();
    server.on_summary(Reply::from(Answer::says("THE SUMMARY")).hold(&gate));
    server.reply(Answer::says("answer three"));
    let prompt = json!({"id": "p", "type": "prompt", "message": "third"});
    let mut navigate = summarized(&second);
    navigate["id"] = json!("n");
    wharf.send_raw(format!("{navigate}\n{prompt}\n").as_bytes());
    gate.wait_reached();
    // Another command's answer: what was written before it has been read.
    state(&mut wharf);
    gate.open();
    let response = wharf.wait_for("the answer", |line| line["id"] == "n");
    assert_eq!(response["data"], json!({"cancelled": false, "editorText": "second"}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "p");
    assert_eq!(response["success"], true, "{response}");
    wharf.wait_event("agent_end");
    let conversation = told(&mut wharf);
    assert!(conversation[2].starts_with("branchSummary: THE SUMMARY"), "{conversation:?}");
    assert_eq!(conversation[3..], ["user: third", "assistant: answer three"]);
    let requests = server.requests();
    let sent = requests[5].body["messages"].to_string();
    assert!(sent.contains("THE SUMMARY") && !sent.contains("answer two"), "{sent}");
    let stored = entries(&file);
    let summary = stored.iter().find(|entry| entry["type"] == "branch_summary").unwrap();
    let third = id_of(&mut wharf, "third");
    assert_eq!(entry(&stored, &third)["parentId"], summary["id"]);
}

/// What a person does while the model sums up: none of it is lost, and what belongs to the
/// conversation belongs to the new branch.
#[test]
fn commands_during_a_summary() {
    let env = quiet_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server);
    let file = session_file(&mut wharf);
    let second = id_of(&mut wharf, "second");
    let gate = server.gate();
    server.on_summary(Reply::from(Answer::says("THE SUMMARY")).hold(&gate));
    let mut navigate = summarized(&second);
    navigate["id"] = json!("n");
    wharf.send(&navigate);
    gate.wait_reached();
    assert_eq!(state(&mut wharf)["isCompacting"], true);
    accept(&mut wharf, json!({"type": "set_session_name", "name": "Named"}));
    accept(&mut wharf, json!({"type": "set_label", "entryId": second, "label": "marked"}));
    let ran = wharf.data(json!({"type": "bash", "command": "echo during"}));
    assert_eq!(ran["output"].as_str().unwrap().trim(), "during");
    gate.open();
    let response = wharf.wait_for("the answer", |line| line["id"] == "n");
    assert_eq!(response["data"]["cancelled"], false, "{response}");
    let conversation = told(&mut wharf);
    assert!(conversation[2].starts_with("branchSummary: "), "{conversation:?}");
    assert_eq!(conversation[3..], ["bashExecution: echo during"]);
    assert_eq!(state(&mut wharf)["sessionName"], "Named");
    let stored = entries(&file);
    let summary = stored.iter().find(|entry| entry["type"] == "branch_summary").unwrap();
    let shell = stored.iter().find(|entry| entry["message"]["role"] == "bashExecution").unwrap();
    assert_eq!(shell["parentId"], summary["id"]);
    let nodes = nodes(&tree(&mut wharf));
    assert_eq!(entry(&nodes, &second)["label"], "marked");
    let (tree_before, told_before) = (tree(&mut wharf), told(&mut wharf));
    let mut wharf = reopen(&env, wharf, &file);
    assert_eq!((tree(&mut wharf), told(&mut wharf)), (tree_before, told_before));
    assert_eq!(state(&mut wharf)["sessionName"], "Named");
}

/// It was chosen after the move was asked for, and holds on the branch that it leads to.
#[test]
fn a_model_that_is_chosen_during_a_summary() {
    let server = LlmServer::start();
    let models = json!([{"id": "one", "reasoning": true}, {"id": "two", "reasoning": true}]);
    let env = serving(&server, &models);
    server.default_reply(Answer::says("answer"));
    let mut wharf = env.rpc(&["--model", "fake/one", "--thinking", "low"]);
    wharf.run("first");
    wharf.run("second");
    let file = session_file(&mut wharf);
    let second = id_of(&mut wharf, "second");
    let gate = server.gate();
    server.on_summary(Reply::from(Answer::says("THE SUMMARY")).hold(&gate));
    let mut navigate = summarized(&second);
    navigate["id"] = json!("n");
    wharf.send(&navigate);
    gate.wait_reached();
    accept(&mut wharf, json!({"type": "set_model", "provider": "fake", "modelId": "two"}));
    accept(&mut wharf, json!({"type": "set_thinking_level", "level": "high"}));
    gate.open();
    let response = wharf.wait_for("the answer", |line| line["id"] == "n");
    assert_eq!(response["data"]["cancelled"], false, "{response}");
    let current = |wharf: &mut Wharf| {
        let now = state(wharf);
        (now["model"]["id"].clone(), now["thinkingLevel"].clone())
    };
    assert_eq!(current(&mut wharf), (json!("two"), json!("high")));
    wharf.run("third");
    assert_eq!(server.requests().last().unwrap().body["model"], "two");
    assert_eq!(wharf.finish().code, Some(0));
    let mut wharf = env.rpc(&["--session", file.to_str().unwrap()]);
    assert_eq!(current(&mut wharf), (json!("two"), json!("high")));
}

/// Another session ends the move of this one.
#[test]
fn a_switch_during_a_summary() {
    for kind in ["new_session", "fork"] {
        let env = quiet_env();
        let server = LlmServer::start();
        let mut wharf = two_runs(&env, &server);
        let file = session_file(&mut wharf);
        let (first, second) = (id_of(&mut wharf, "first"), id_of(&mut wharf, "second"));
        let before = fs::read(&file).unwrap();
        let gate = server.gate();
        server.on_summary(Reply::from(Answer::says("never")).hold(&gate));
        let mut navigate = summarized(&first);
        navigate["id"] = json!("n");
        wharf.send(&navigate);
        gate.wait_reached();
        let data = wharf.data(json!({"type": kind, "entryId": second}));
        assert_eq!(data["cancelled"], false, "{data}");
        let response = wharf.wait_for("the answer", |line| line["id"] == "n");
        assert_eq!(response["data"], json!({"cancelled": true}), "{response}");
        assert_ne!(session_file(&mut wharf), file);
        assert_eq!(fs::read(&file).unwrap(), before, "the old session stays as it was");
        assert_eq!(told(&mut wharf).len(), if kind == "fork" { 2 } else { 0 });
    }
}

#[test]
fn a_process_that_ends_during_a_summary() {
    let env = quiet_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server);
    let file = session_file(&mut wharf);
    let first = id_of(&mut wharf, "first");
    let (tree_before, _, bytes) = everything(&mut wharf);
    let gate = server.gate();
    server.on_summary(Reply::from(Answer::says("never")).hold(&gate));
    wharf.send(&summarized(&first));
    gate.wait_reached();
    wharf.kill();
    wharf.wait_exit();
    assert_eq!(fs::read(&file).unwrap(), bytes);
    let mut wharf = rpc_over(&env, &server, &["--session", file.to_str().unwrap()]);
    assert_eq!(tree(&mut wharf), tree_before);
}

/// Only what is left is summed up; where nothing is, no model is asked.
#[test]
fn where_there_is_nothing_to_sum_up() {
    let env = quiet_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server);
    let requests = server.requests().len();
    let (top, end) = (id_of(&mut wharf, "answer one"), leaf(&mut wharf));
    let end = end.as_str().unwrap();
    let moved = json!({"cancelled": false});
    // Where it is already.
    go(&mut wharf, summarized(end), &moved);
    go(&mut wharf, to(&top), &moved);
    let before = entries(&session_file(&mut wharf)).len();
    // Down the same branch nothing is left behind.
    go(&mut wharf, summarized(end), &moved);
    assert_eq!(leaf(&mut wharf), end);
    // From a place without messages in between.
    go(&mut wharf, to(&top), &moved);
    accept(&mut wharf, json!({"type": "set_session_name", "name": "only a name"}));
    go(&mut wharf, summarized(&top), &moved);
    assert_eq!(leaf(&mut wharf), *top);
    let stored = entries(&session_file(&mut wharf));
    assert_eq!(stored.len(), before + 1);
    assert_eq!(server.requests().len(), requests);
    // A label is the target's then.
    let mut command = summarized(&top);
    command["label"] = json!("top");
    go(&mut wharf, command, &moved);
    let nodes = nodes(&tree(&mut wharf));
    assert_eq!(entry(&nodes, &top)["label"], "top");
}

#[test]
fn without_a_model_there_is_no_summary() {
    let env = quiet_env();
    let mut draft = Draft::new(&env);
    draft.message("00000001", "", user("first"));
    draft.message("00000002", "00000001", user("second"));
    let mut wharf = env.rpc(&["--session", draft.write(&env).to_str().unwrap()]);
    assert_eq!(state(&mut wharf)["model"], Value::Null);
    let before = everything(&mut wharf);
    let problem = error(&mut wharf, &summarized("00000001"));
    assert_eq!(problem, "No model available for summarization");
    assert_eq!(error(&mut wharf, &summarized("zzz")), "Entry zzz not found");
    assert_eq!(everything(&mut wharf), before);
    go(&mut wharf, to("00000001"), &json!({"cancelled": false, "editorText": "first"}));
    assert_eq!(leaf(&mut wharf), Value::Null);
}

/// A summary's files are those of the summaries that it sums up, too.
#[test]
fn a_summary_of_a_branch_with_a_summary() {
    let env = quiet_env();
    let server = LlmServer::start();
    let mut draft = Draft::new(&env);
    let call =
        json!({"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "own.rs"}});
    draft.message("00000001", "", user("first"));
    draft.message("00000002", "00000001", assistant(json!([text("one")])));
    let details = json!({"readFiles": ["a.rs", "b.rs"], "modifiedFiles": ["m.rs"]});
    draft.add(
        "00000003",
        "00000002",
        "branch_summary",
        json!({"fromId": "00000002",
        "summary": "EARLIER", "details": details}),
    );
    let details = json!({"readFiles": ["hook.rs"], "modifiedFiles": []});
    draft.add(
        "00000004",
        "00000003",
        "branch_summary",
        json!({"fromId": "00000002",
        "summary": "HOOKED", "details": details, "fromHook": true}),
    );
    draft.message("00000005", "00000004", user("second"));
    draft.message("00000006", "00000005", assistant(json!([call])));
    let result = json!({"role": "toolResult", "toolCallId": "c", "toolName": "read",
        "content": [text("text of own.rs")], "isError": false});
    draft.message("00000007", "00000006", result);
    let file = draft.write(&env);
    let mut wharf = rpc_over(&env, &server, &["--session", file.to_str().unwrap()]);
    server.on_summary(Answer::says("LATER"));
    // To before the first message: the summary is a root.
    go(&mut wharf, summarized("00000001"), &json!({"cancelled": false, "editorText": "first"}));
    let asked = question(&server);
    for part in ["one", "EARLIER", "HOOKED", "second", "text of own.rs"] {
        assert!(asked.contains(part), "{part} is not in {asked}");
    }
    let stored = entries(&file);
    let summary = stored.last().unwrap();
    assert_eq!((&summary["parentId"], &summary["fromId"]), (&Value::Null, &json!("00000007")));
    assert_eq!(
        summary["details"],
        json!({"readFiles": ["a.rs", "b.rs", "own.rs"], "modifiedFiles": ["m.rs"]})
    );
    assert_eq!(leaf(&mut wharf), summary["id"]);
    assert_eq!(told(&mut wharf).len(), 1);
    server.reply(Answer::says("answer"));
    wharf.run("anew");
    assert_eq!(told(&mut wharf).len(), 3);
    let told_before = told(&mut wharf);
    let mut wharf = reopen(&env, wharf, &file);
    assert_eq!(told(&mut wharf), told_before);
}
