//! Compaction that a client asks for, and what stays of a conversation: the request for
//! the summary, the entry, what is sent afterwards. Automatic compaction is in
//! `auto_compaction`.

use std::fs;

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Failure, LlmServer, Outcome, Reply, Stop};
use wharf_tests::{Env, SessionFile, Wharf, guest};

use crate::order::{count, texts};
use crate::story::{
    accept, assert_consistent, get_messages, rpc_over, session_file, settings, state,
};

/// A text of ten tokens, as the agent estimates them.
fn pad(text: &str) -> String {
    format!("{text:.<40}")
}

fn compacting_env() -> Env {
    let env = Env::new();
    settings(&env, json!({"compaction": {"keepRecentTokens": 20}}));
    env
}

/// Two runs, of which a compaction keeps the second.
fn two_runs(env: &Env, server: &LlmServer, args: &[&str]) -> Wharf {
    server.reply(Answer::says(&pad("answer one")));
    server.reply(Answer::says(&pad("answer two")));
    let mut wharf = rpc_over(env, server, args);
    wharf.run(&pad("first"));
    wharf.run(&pad("second"));
    wharf
}

fn compact(wharf: &mut Wharf) -> Value {
    wharf.request(json!({"type": "compact"}))
}

#[track_caller]
fn assert_refused(response: &Value, error: &str) {
    let expected = json!({
        "id": response["id"], "type": "response", "command": "compact", "success": false, "error": error,
    });
    assert_eq!(*response, expected);
}

fn compactions(file: &std::path::Path) -> Vec<Value> {
    SessionFile::read(file).of_type("compaction").into_iter().cloned().collect()
}

#[test]
fn what_a_compaction_asks_gives_stores_and_sends() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server, &[]);
    assert!(state(&mut wharf)["contextUsage"]["tokens"].as_u64().unwrap() > 0);
    server.on_summary(Answer::says("THE SUMMARY"));
    let response =
        wharf.request(json!({"type": "compact", "customInstructions": "Focus on the boat"}));
    assert_eq!(response["success"], true, "{response}");
    let data = &response["data"];
    let keys: Vec<&String> = data.as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), 4, "{data}");
    assert_eq!(data["summary"], "THE SUMMARY");
    assert!(data["tokensBefore"].as_u64().unwrap() > 0, "{data}");
    assert_eq!(data["details"], json!({"readFiles": [], "modifiedFiles": []}));

    // The request: what goes, the person's words, no tools.
    let asked = server.requests()[2].body.clone();
    let text = asked["messages"].to_string();
    for part in ["first.", "answer one.", "Focus on the boat", "Critical context"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("second."), "what is kept was summarised: {text}");
    assert!(asked["tools"].as_array().is_none_or(Vec::is_empty), "{asked}");

    // The entry.
    let file = session_file(&mut wharf);
    let session = SessionFile::read(&file);
    session.assert_linear();
    let [entry] = session.of_type("compaction")[..] else { panic!("not one entry") };
    for field in ["summary", "firstKeptEntryId", "tokensBefore", "details"] {
        assert_eq!(entry[field], data[field], "{field}");
    }
    assert!(entry.get("fromHook").is_none_or(|from_hook| from_hook == false), "{entry}");
    let kept = session.entries.iter().find(|one| one["id"] == data["firstKeptEntryId"]).unwrap();
    assert_eq!(kept["message"]["content"][0]["text"], pad("second"));

    // Unknown until the next reply reports.
    for command in ["get_state", "get_session_stats"] {
        let usage = wharf.data(json!({"type": command}))["contextUsage"].clone();
        assert_eq!(usage, json!({"tokens": null, "contextWindow": 10_000, "percent": null}));
    }
    let messages = get_messages(&mut wharf);
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[0]["role"], "compactionSummary");
    assert_eq!(messages[0]["summary"], "THE SUMMARY");
    assert_eq!(messages[0]["tokensBefore"], data["tokensBefore"]);

    server.reply(Answer::says("answer three"));
    let run = wharf.run("third");
    let sent = server.requests()[3].body["messages"].to_string();
    for part in ["THE SUMMARY", "second.", "answer two.", "third"] {
        assert!(sent.contains(part), "{part} is not in {sent}");
    }
    assert!(!sent.contains("first.") && !sent.contains("answer one."), "{sent}");
    // A run's end carries what the run made, no more.
    assert_eq!(run.last().unwrap()["messages"].as_array().unwrap().len(), 2);
    let usage = state(&mut wharf)["contextUsage"].clone();
    assert_eq!(usage["tokens"], 15, "{usage}");
    assert_eq!(usage["percent"], 0.15);
    assert_eq!(assert_consistent(&wharf.finish().all), 3);
}

#[test]
fn when_there_is_nothing_to_compact() {
    let env = compacting_env();
    let server = LlmServer::start();
    server.reply(Answer::says("small"));
    let mut wharf = rpc_over(&env, &server, &[]);
    assert_refused(&compact(&mut wharf), "Nothing to compact (session too small)");
    wharf.run("tiny");
    assert_refused(&compact(&mut wharf), "Nothing to compact (session too small)");
    server.reply(Answer::says(&pad("a")));
    wharf.run(&pad("b"));
    server.on_summary(Answer::says("S"));
    assert_eq!(compact(&mut wharf)["success"], true);
    let requests = server.requests().len();
    assert_refused(&compact(&mut wharf), "Already compacted");
    // A name is nothing that there would be a summary of.
    accept(&mut wharf, json!({"type": "set_session_name", "name": "boat"}));
    assert_refused(&compact(&mut wharf), "Already compacted");
    assert_eq!(server.requests().len(), requests);
    assert_eq!(state(&mut wharf)["isCompacting"], false);
    let file = session_file(&mut wharf);
    assert_eq!(compactions(&file).len(), 1);
}

#[test]
fn wrong_types_are_refused() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = rpc_over(&env, &server, &[]);
    for command in [
        json!({"type": "compact", "customInstructions": 5}),
        json!({"type": "compact", "customInstructions": ["a"]}),
        json!({"type": "set_auto_compaction"}),
        json!({"type": "set_auto_compaction", "enabled": "yes"}),
        json!({"type": "set_auto_retry", "enabled": 1}),
    ] {
        let response = wharf.request(command);
        assert_eq!(response["success"], false, "{response}");
    }
    for command in ["abort_compaction", "abort_retry"] {
        accept(&mut wharf, json!({"type": command}));
    }
}

#[test]
fn a_compaction_that_is_aborted_changes_nothing() {
    for command in ["abort_compaction", "abort"] {
        let env = compacting_env();
        let server = LlmServer::start();
        let mut wharf = two_runs(&env, &server, &[]);
        let gate = server.gate();
        server.on_summary(Reply::from(Answer::says("never")).hold(&gate));
        wharf.send(&json!({"id": "c", "type": "compact"}));
        gate.wait_reached();
        let during = state(&mut wharf);
        assert_eq!((&during["isCompacting"], &during["messageCount"]), (&json!(true), &json!(4)));
        accept(&mut wharf, json!({"type": command}));
        let response = wharf.wait_for("the answer", |line| line["id"] == "c");
        assert_refused(&response, "Compaction cancelled");
        assert_eq!(server.wait_outcome(2), Outcome::ClientClosed, "the request goes on");
        let after = state(&mut wharf);
        assert_eq!((&after["isCompacting"], &after["messageCount"]), (&json!(false), &json!(4)));
        assert!(after["contextUsage"]["tokens"].is_u64(), "{after}");
        let file = session_file(&mut wharf);
        assert!(compactions(&file).is_empty());
        // What was tried before works now.
        server.on_summary(Answer::says("S"));
        assert_eq!(compact(&mut wharf)["success"], true);
        let exit = wharf.finish();
        assert_eq!(count(&exit.all, "agent_end"), 2, "an abort of a compaction ends no run");
    }
}

/// The abort was written after the compaction: it is meant for it.
#[test]
fn an_abort_in_the_same_write_as_its_compaction() {
    for command in ["abort_compaction", "abort"] {
        for _ in 0..5 {
            let env = compacting_env();
            let server = LlmServer::start();
            let mut wharf = two_runs(&env, &server, &[]);
            // Without the abort it would never end.
            let gate = server.gate();
            server.default_summary(Reply::from(Answer::says("never")).hold(&gate));
            let lines = format!(
                "{{\"id\":\"c\",\"type\":\"compact\"}}\n{{\"id\":\"a\",\"type\":\"{command}\"}}\n"
            );
            wharf.send_raw(lines.as_bytes());
            let response = wharf.wait_for("the answer", |line| line["id"] == "c");
            assert_refused(&response, "Compaction cancelled");
            assert_eq!(wharf.wait_for("the answer", |line| line["id"] == "a")["success"], true);
            assert_eq!(state(&mut wharf)["isCompacting"], false);
        }
    }
}

/// So it is for one that waits behind another command.
#[test]
fn an_abort_of_a_compaction_that_has_not_begun() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server, &[]);
    let gate = server.gate();
    server.default_summary(Reply::from(Answer::says("never")).hold(&gate));
    wharf.send_raw(
        b"{\"id\":\"s\",\"type\":\"set_auto_retry\",\"enabled\":true}\n{\"id\":\"c\",\"type\":\"compact\"}\n{\"id\":\"a\",\"type\":\"abort_compaction\"}\n",
    );
    let response = wharf.wait_for("the answer", |line| line["id"] == "c");
    assert_refused(&response, "Compaction cancelled");
    for id in ["s", "a"] {
        assert_eq!(wharf.wait_for("the answer", |line| line["id"] == id)["success"], true);
    }
    assert_eq!(state(&mut wharf)["isCompacting"], false);
}

#[test]
fn a_summary_that_fails_is_told_and_changes_nothing() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server, &[]);
    for (reply, expect) in [
        (Reply::from(Failure::Authentication), "invalid x-api-key"),
        (Reply::from(Failure::Quota), "credit balance"),
        (Answer::says("").into(), "no text"),
        (Answer::says("half of a summ").stop(Stop::Length).into(), "cut off"),
    ] {
        server.on_summary(reply);
        let response = compact(&mut wharf);
        assert_eq!(response["success"], false, "{response}");
        let error = response["error"].as_str().unwrap();
        assert!(error.starts_with("Compaction failed: ") && error.contains(expect), "{error}");
    }
    let file = session_file(&mut wharf);
    assert!(compactions(&file).is_empty());
    assert_eq!(get_messages(&mut wharf).len(), 4);
    // What passes by itself is tried again.
    server.on_summary(Failure::Overloaded);
    server.on_summary(Failure::Internal);
    server.on_summary(Answer::says("S"));
    assert_eq!(compact(&mut wharf)["data"]["summary"], "S");
    assert_eq!(assert_consistent(&wharf.finish().all), 2);
}

#[test]
fn files_and_the_summary_before_are_carried_on() {
    let env = compacting_env();
    for name in ["read.txt", "edited.txt", "later.txt"] {
        env.write(name, "old\n");
    }
    let server = LlmServer::start();
    server.reply(
        Answer::default()
            .call("toolu_1", "read", &json!({"path": "read.txt"}))
            .call("toolu_2", "read", &json!({"path": "edited.txt"}))
            .call("toolu_3", "write", &json!({"path": "written.txt", "content": "new\n"}))
            .call(
                "toolu_4",
                "edit",
                &json!({"path": "edited.txt", "oldText": "old", "newText": "new"}),
            ),
    );
    server.reply(Answer::says(&pad("answer one")));
    server.reply(Answer::says(&pad("answer two")));
    let mut wharf = rpc_over(&env, &server, &[]);
    wharf.run(&pad("first"));
    wharf.run(&pad("second"));
    // The model copies the list into its summary; it must not be there twice.
    server.on_summary(Answer::says("S1"));
    let first = compact(&mut wharf)["data"].clone();
    let details =
        json!({"readFiles": ["read.txt"], "modifiedFiles": ["edited.txt", "written.txt"]});
    assert_eq!(first["details"], details);
    let summary = first["summary"].as_str().unwrap();
    assert!(summary.starts_with("S1") && summary.contains("written.txt"), "{summary}");

    server.reply(Answer::default().call("toolu_5", "read", &json!({"path": "later.txt"})).call(
        "toolu_6",
        "edit",
        &json!({"path": "read.txt", "oldText": "old", "newText": "new"}),
    ));
    server.reply(Answer::says(&pad("answer three")));
    wharf.run(&pad("third"));
    server.reply(Answer::says(&pad("answer four")));
    wharf.run(&pad("fourth"));
    let before = server.requests().len();
    server.on_summary(Answer::says(&format!("S2 after {summary}")));
    let second = compact(&mut wharf)["data"].clone();
    let asked = server.requests()[before].body["messages"].to_string();
    for part in ["S1", "second.", "answer two.", "third.", "answer three."] {
        assert!(asked.contains(part), "{part} is not in {asked}");
    }
    assert!(!asked.contains("first."), "summarised twice: {asked}");
    let details = json!({
        "readFiles": ["later.txt"], "modifiedFiles": ["edited.txt", "read.txt", "written.txt"],
    });
    assert_eq!(second["details"], details);
    let summary = second["summary"].as_str().unwrap();
    assert_eq!(summary.matches("written.txt").count(), 1, "{summary}");
    let file = session_file(&mut wharf);
    let entries = compactions(&file);
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[1]["details"], details);

    // Only the last one counts.
    server.reply(Answer::says("answer five"));
    wharf.run("fifth");
    let sent = server.requests().last().unwrap().body["messages"].to_string();
    assert!(sent.contains("S2 after") && sent.contains("fourth."), "{sent}");
    assert!(!sent.contains("third.") && !sent.contains("second."), "{sent}");
    let messages = get_messages(&mut wharf);
    let summaries = messages.iter().filter(|one| one["role"] == "compactionSummary").count();
    assert_eq!(summaries, 1);
    assert_eq!(assert_consistent(&wharf.finish().all), 5);
}

#[test]
fn a_reopened_session_gives_the_same_context() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server, &[]);
    server.on_summary(Answer::says("THE SUMMARY"));
    assert_eq!(compact(&mut wharf)["success"], true);
    let file = session_file(&mut wharf);
    let messages = get_messages(&mut wharf);
    let copy = env.project().join("copy.jsonl");
    fs::copy(&file, &copy).unwrap();
    server.reply(Answer::says("three"));
    wharf.run("third");
    drop(wharf);
    let mut reopened = env.rpc(&["--session", copy.to_str().unwrap()]);
    assert_eq!(get_messages(&mut reopened), messages);
    let usage = state(&mut reopened)["contextUsage"].clone();
    assert_eq!(usage["tokens"], Value::Null, "{usage}");
    assert_refused(&compact(&mut reopened), "Already compacted");
    server.reply(Answer::says("three"));
    reopened.run("third");
    let requests = server.requests();
    let [.., before, after] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(before.body["messages"], after.body["messages"]);
    assert_eq!(reopened.finish().code, Some(0));
}

#[test]
fn a_compaction_during_a_run_aborts_the_run_first() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server, &[]);
    let gate = server.gate();
    server.reply(Reply::from(Answer::says("never to be whole").in_pieces(4)).hold_after(4, &gate));
    server.default_summary(Answer::says("S"));
    wharf.prompt(&pad("third"));
    gate.wait_reached();
    wharf.wait_for("a delta", |line| line["assistantMessageEvent"]["type"] == "text_delta");
    wharf.send(&json!({"id": "c", "type": "compact"}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "c");
    assert_eq!(response["success"], true, "{response}");
    // The run's end came before.
    assert_eq!(wharf.passed().filter(|line| line["type"] == "agent_end").count(), 1);
    wharf.take_until("agent_end");
    let file = session_file(&mut wharf);
    assert_eq!(compactions(&file).len(), 1);
    SessionFile::read(&file).assert_linear();
    server.reply(Answer::says("again"));
    assert_eq!(texts(&wharf.run("go on"), "assistant"), ["again"]);
    assert_eq!(assert_consistent(&wharf.finish().all), 4);
}

#[test]
fn what_is_written_right_after_a_compaction_finds_it_done() {
    for second in ["prompt", "steer", "follow_up"] {
        let env = compacting_env();
        let server = LlmServer::start();
        let mut wharf = two_runs(&env, &server, &[]);
        server.on_summary(Answer::says("THE SUMMARY"));
        server.reply(Answer::says("three"));
        let lines = format!(
            "{{\"id\":\"c\",\"type\":\"compact\"}}\n{{\"id\":\"p\",\"type\":\"{second}\",\"message\":\"third\"}}\n"
        );
        wharf.send_raw(lines.as_bytes());
        let run = wharf.take_until("agent_end");
        let responses: Vec<(&Value, &Value)> = run
            .iter()
            .filter(|line| line["type"] == "response")
            .map(|line| (&line["id"], &line["success"]))
            .collect();
        // The message is taken in at once; its run waits for the compaction.
        assert_eq!(responses, [(&json!("p"), &json!(true)), (&json!("c"), &json!(true))]);
        assert_eq!(texts(&run, "user"), ["third"]);
        let sent = server.requests()[3].body["messages"].to_string();
        assert!(sent.contains("THE SUMMARY") && !sent.contains("first."), "{sent}");
        assert_eq!(wharf.finish().code, Some(0));
    }
}

#[test]
fn a_prompt_during_a_compaction_waits_for_it() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server, &[]);
    let gate = server.gate();
    server.on_summary(Reply::from(Answer::says("THE SUMMARY")).hold(&gate));
    server.reply(Answer::says("three"));
    wharf.send(&json!({"id": "c", "type": "compact"}));
    gate.wait_reached();
    wharf.send(&json!({"id": "p", "type": "prompt", "message": "third"}));
    // Answered though the prompt is not: it was read.
    assert_eq!(state(&mut wharf)["isCompacting"], true);
    gate.open();
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "assistant"), ["three"]);
    let sent = server.requests()[3].body["messages"].to_string();
    assert!(sent.contains("THE SUMMARY"), "{sent}");
}

#[test]
fn a_compaction_holds_back_no_other_command() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = two_runs(&env, &server, &[]);
    let gate = server.gate();
    server.on_summary(Reply::from(Answer::says("THE SUMMARY")).hold(&gate));
    server.reply(Answer::says("three"));
    wharf.send(&json!({"id": "c", "type": "compact"}));
    gate.wait_reached();
    for command in [
        json!({"type": "bash", "command": "echo meanwhile"}),
        json!({"type": "set_thinking_level", "level": "high"}),
        json!({"type": "set_session_name", "name": "busy"}),
        json!({"type": "set_auto_retry", "enabled": false}),
        json!({"type": "set_steering_mode", "mode": "all"}),
        json!({"type": "set_model", "provider": "fake", "modelId": "fake-1"}),
        json!({"type": "prompt", "message": "third"}),
    ] {
        let response = wharf.request(command.clone());
        assert_eq!(response["success"], true, "{command}: {response}");
        assert_eq!(state(&mut wharf)["isCompacting"], true, "{command}");
    }
    gate.open();
    wharf.take_until("agent_end");
    let sent = server.requests()[3].body["messages"].to_string();
    assert!(sent.contains("THE SUMMARY") && sent.contains("meanwhile"), "{sent}");
    assert!(sent.find("meanwhile") < sent.find("third"), "{sent}");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn a_switch_during_a_compaction_takes_nothing_along() {
    for switch in ["new_session", "switch_session"] {
        let env = compacting_env();
        let server = LlmServer::start();
        let mut wharf = two_runs(&env, &server, &[]);
        let old = session_file(&mut wharf);
        let other = env.project().join("other.jsonl");
        fs::copy(&old, &other).unwrap();
        let gate = server.gate();
        server.on_summary(Reply::from(Answer::says("S")).hold(&gate));
        wharf.send(&json!({"id": "c", "type": "compact"}));
        gate.wait_reached();
        wharf.send(&json!({"id": "s", "type": switch, "sessionPath": other}));
        // Either it waits for the compaction, or it ends it.
        assert!(state(&mut wharf)["isStreaming"] == false);
        gate.open();
        let compacted = wharf.wait_for("the answer", |line| line["id"] == "c");
        let switched = wharf.wait_for("the answer", |line| line["id"] == "s");
        assert_eq!(switched["data"], json!({"cancelled": false}), "{switched}");
        let now = state(&mut wharf);
        assert_eq!(now["isCompacting"], false);
        assert_ne!(now["sessionFile"], json!(old));
        let count = if switch == "new_session" { 0 } else { 4 };
        assert_eq!(get_messages(&mut wharf).len(), count);
        server.reply(Answer::says("three"));
        let run = wharf.run("third");
        let sent = server.requests().last().unwrap().body["messages"].to_string();
        assert!(!sent.contains("compacted"), "{sent}");
        assert_eq!(run.last().unwrap()["type"], "agent_end");
        let new = session_file(&mut wharf);
        assert_eq!(wharf.finish().code, Some(0));
        assert!(compactions(&new).is_empty());
        assert_eq!(compactions(&old).len(), usize::from(compacted["success"] == true));
        SessionFile::read(&old).assert_linear();
    }
}

fn with_custom_compaction(env: &Env, server: &LlmServer) -> Wharf {
    let path = guest("custom-compaction").display().to_string();
    two_runs(env, server, &["-e", &path])
}

#[test]
fn an_extension_writes_the_summary() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = with_custom_compaction(&env, &server);
    let data = compact(&mut wharf)["data"].clone();
    let summary = format!("The person asked for this, in order:\n- {}", pad("first"));
    assert_eq!(data["summary"], summary);
    assert_eq!(data["details"], json!({"readFiles": [], "modifiedFiles": []}));
    assert_eq!(server.requests().len(), 2, "the model was asked");
    let file = session_file(&mut wharf);
    let entries = compactions(&file);
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0]["fromHook"], true);
    assert_eq!(entries[0]["summary"], summary);
    server.reply(Answer::says(&pad("answer three")));
    wharf.run(&pad("third"));
    let sent = server.requests()[2].body["messages"].to_string();
    assert!(sent.contains("in order:") && !sent.contains("answer one."), "{sent}");
    // The one before is carried on.
    let data = compact(&mut wharf)["data"].clone();
    assert_eq!(data["summary"], format!("{summary}\n- {}", pad("second")));
    assert_eq!(assert_consistent(&wharf.finish().all), 3);
}

#[test]
fn an_extension_cancels_compactions() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = with_custom_compaction(&env, &server);
    wharf.prompt("/no-compact");
    assert_eq!(wharf.wait_notify(), "Compaction is off");
    assert_refused(&compact(&mut wharf), "Compaction cancelled");
    let file = session_file(&mut wharf);
    assert!(compactions(&file).is_empty());
    // One that is automatic, too: the run goes on without it.
    let full = wharf_tests::llm::Usage { input: 9500, ..Default::default() };
    server.reply(Answer::calls("toolu_1", "bash", &json!({"command": "echo 1"})).usage(full));
    server.reply(Answer::says("done"));
    let run = wharf.run(&pad("third"));
    let end = run.iter().find(|line| line["type"] == "auto_compaction_end").unwrap();
    let expected = json!({
        "type": "auto_compaction_end", "result": null, "aborted": true, "willRetry": true,
    });
    assert_eq!(*end, expected);
    assert_eq!(texts(&run, "assistant").last().unwrap(), "done");
    wharf.prompt("/no-compact");
    assert_eq!(wharf.wait_notify(), "Compaction is on");
    assert_eq!(compact(&mut wharf)["success"], true);
    assert_eq!(compactions(&file).len(), 1);
}
