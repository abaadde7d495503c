//! An abort in each phase of a run, as golden transcripts: the run ends once, what was
//! complete is kept, and the session goes on, here and after a reopening.

use insta::assert_snapshot;
use serde_json::{Value, json};
use wharf_tests::llm::{Answer, LlmServer, Outcome, Reply};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, Wharf};

use crate::order::{count, text_of, texts};
use crate::processes::{read_pid, wait_gone};
use crate::story::{
    accept, assert_consistent, assert_stored, get_messages, rpc_over, session_file, settings,
    state, story, wait_queued,
};

fn abort(wharf: &mut Wharf) {
    accept(wharf, json!({"type": "abort"}));
}

/// A reply to the prompt after the abort, whatever of the script was left.
fn again() -> Value {
    let mut reply = says("again");
    reply["when"] = json!("^still there");
    reply
}

/// Takes the aborted run, prompts once more, and reopens the session; gives the story of
/// both runs.
#[track_caller]
fn rest_of(env: &Env, mut wharf: Wharf, reopened_with: &[&str]) -> String {
    wharf.take_until("agent_end");
    let idle = state(&mut wharf);
    for (field, expect) in [
        ("isStreaming", json!(false)),
        ("isRetrying", json!(false)),
        ("retryAttempt", json!(0)),
        ("isCompacting", json!(false)),
    ] {
        assert_eq!(idle[field], expect, "{field}: {idle}");
    }
    let run = wharf.run("still there?");
    assert_eq!(texts(&run, "assistant"), ["again"], "{}", wharf.transcript());
    let messages = get_messages(&mut wharf);
    let file = session_file(&mut wharf);
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(assert_consistent(&exit.all), 2);
    assert_eq!(count(&exit.all, "agent_end"), 2, "{}", exit.transcript);
    if count(&exit.all, "auto_compaction_start") == 0 {
        assert_stored(&file, &exit.all);
    }
    let mut reopened = env.rpc(&[&["--session", file.to_str().unwrap()], reopened_with].concat());
    assert_eq!(get_messages(&mut reopened), messages, "the reopened session differs");
    story(&exit.all)
}

#[test]
fn in_the_stream() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    let gate = server.gate();
    // The first of two deltas of the text, and never the rest.
    let answer = Answer::says("half and half").in_pieces(2);
    server.reply(Reply::from(answer).hold_after(4, &gate));
    server.reply(Answer::says("again"));
    let mut wharf = rpc_over(&env, &server, &[]);
    wharf.prompt("hi");
    gate.wait_reached();
    let delta =
        wharf.wait_for("a delta", |line| line["assistantMessageEvent"]["type"] == "text_delta");
    assert_eq!(delta["assistantMessageEvent"]["delta"], "half an");
    abort(&mut wharf);
    assert_eq!(server.wait_outcome(0), Outcome::ClientClosed, "the request goes on");
    assert_snapshot!("abort_in_the_stream", rest_of(&env, wharf, &["--model", "fake/fake-1"]));
}

#[test]
fn in_a_tool_whose_child_ignores_the_signal_to_end() {
    let env = Env::new();
    let command = "trap '' TERM INT HUP; (trap '' TERM INT HUP; exec sleep 1000) & \
        echo $! > child.tmp; mv child.tmp child; echo $$ > shell.tmp; mv shell.tmp shell; \
        echo before; while true; do sleep 1; done";
    let first = json!({"type": "toolCall", "id": "quick", "name": "bash", "arguments": {"command": "echo kept"}});
    let second = json!({"type": "toolCall", "id": "stuck", "name": "bash", "arguments": {"command": command}});
    let model = env.script(&[json!({"content": [first, second]}), again()]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    let shell = read_pid(&env.project().join("shell"));
    let child = read_pid(&env.project().join("child"));
    wharf.wait_for("the quick one's result", |line| {
        line["toolCallId"] == "quick" && line["type"] == "tool_execution_end"
    });
    abort(&mut wharf);
    wait_gone(&shell);
    wait_gone(&child);
    let end = wharf.wait_for("the stuck one's end", |line| {
        line["type"] == "tool_execution_end" && line["toolCallId"] == "stuck"
    });
    assert!(end["result"]["content"][0]["text"].as_str().unwrap().contains("before"), "{end}");
    assert_snapshot!("abort_in_a_tool", rest_of(&env, wharf, &[]));
}

#[test]
fn in_the_dialog_of_an_extension() {
    let env = Env::new();
    let model = env.script(&[bash("touch ran; echo ASK"), again()]);
    let mut wharf = env.rpc_with(&["waiter"], &model);
    wharf.prompt("hi");
    let dialog = wharf.wait_ui("select");
    abort(&mut wharf);
    assert_eq!(wharf.wait_event("extension_ui_response_handled")["id"], dialog["id"]);
    // Too late, and for nothing.
    wharf.answer(&dialog, json!({"value": "Yes"}));
    let told = rest_of(&env, wharf, &[]);
    assert!(!std::fs::exists(env.project().join("ran")).unwrap(), "an aborted call ran");
    assert_snapshot!("abort_in_a_dialog", told);
}

#[test]
fn in_the_dialog_of_ask_user() {
    let env = Env::new();
    let part = |id: &str, tool: &str, arguments: Value| json!({"type": "toolCall", "id": id, "name": tool, "arguments": arguments});
    let model = env.script(&[
        json!({"content": [
            part("first", "bash", json!({"command": "echo kept"})),
            part("ask", "ask_user", json!({"question": "Why?"})),
            part("last", "bash", json!({"command": "touch ran"})),
        ]}),
        again(),
    ]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    let dialog = wharf.wait_ui("ask");
    abort(&mut wharf);
    assert_eq!(wharf.wait_event("extension_ui_response_handled")["id"], dialog["id"]);
    wharf.answer(&dialog, json!({"selected": [], "customText": "late"}));
    let told = rest_of(&env, wharf, &[]);
    assert!(!std::fs::exists(env.project().join("ran")).unwrap(), "an aborted call ran");
    assert_snapshot!("abort_in_ask_user", told);
}

#[test]
fn in_the_wait_for_a_retry() {
    let env = Env::new();
    settings(&env, json!({"retry": {"baseDelayMs": 600_000, "maxDelayMs": 600_000}}));
    let overloaded = json!({"status": 529, "body": "overloaded"});
    let model = env.script(&[
        json!({"content": [{"type": "text", "text": "half"}], "error": overloaded, "when": "^hi"}),
        again(),
    ]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    wharf.wait_event("auto_retry_start");
    let waiting = state(&mut wharf);
    assert_eq!((&waiting["isRetrying"], &waiting["retryAttempt"]), (&json!(true), &json!(1)));
    abort(&mut wharf);
    assert_snapshot!("abort_in_a_retry", rest_of(&env, wharf, &[]));
}

#[test]
fn in_the_wait_after_torn_streams() {
    let env = Env::new();
    settings(&env, json!({"retry": {"baseDelayMs": 600_000, "maxDelayMs": 600_000}}));
    let torn = json!({"drop": true, "when": "^hi", "content": [{"type": "text", "text": "half"}]});
    let model = env.script(&[torn.clone(), torn, again()]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    wharf
        .wait_for("the second tear", |line| line["type"] == "stream_retry" && line["attempt"] == 2);
    abort(&mut wharf);
    assert_snapshot!("abort_after_torn_streams", rest_of(&env, wharf, &[]));
}

#[test]
fn in_an_automatic_compaction() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    let gate = server.gate();
    let full = wharf_tests::llm::Usage { input: 9500, ..Default::default() };
    server.reply(Answer::calls("toolu_1", "bash", &json!({"command": "echo kept"})).usage(full));
    server.on_summary(Reply::from(Answer::says("never")).hold(&gate));
    server.reply(Answer::says("again"));
    let mut wharf = rpc_over(&env, &server, &[]);
    wharf.prompt("hi");
    gate.wait_reached();
    wharf.wait_event("auto_compaction_start");
    assert_eq!(state(&mut wharf)["isCompacting"], true);
    abort(&mut wharf);
    assert_eq!(server.wait_outcome(1), Outcome::ClientClosed, "the summary goes on");
    // The next run compacts first, for the context is as full as before.
    server.on_summary(Answer::says("a summary"));
    let told = rest_of(&env, wharf, &["--model", "fake/fake-1"]);
    assert_snapshot!("abort_in_a_compaction", told);
}

#[test]
fn between_turns_with_messages_queued() {
    let env = Env::new();
    let repeat = json!({"repeat": true, "content": [{"type": "text", "text": "again"}]});
    let model = env.script(&[bash("sleep 1000"), repeat]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    wharf.wait_event("tool_execution_start");
    accept(&mut wharf, json!({"type": "steer", "message": "s1"}));
    accept(&mut wharf, json!({"type": "steer", "message": "s2"}));
    accept(&mut wharf, json!({"type": "follow_up", "message": "f"}));
    wait_queued(&mut wharf, 3);
    abort(&mut wharf);
    wharf.take_until("agent_end");
    assert_eq!(state(&mut wharf)["pendingMessageCount"], 3);
    // They are given back to who asks, and are then gone.
    let cleared = wharf.data(json!({"type": "clear_pending_messages"}));
    assert_eq!((&cleared["steering"], &cleared["followUp"]), (&json!(["s1", "s2"]), &json!(["f"])));
    let run = wharf.run("on");
    assert_eq!(texts(&run, "user"), ["on"]);
    let file = session_file(&mut wharf);
    let exit = wharf.finish();
    assert_eq!(assert_consistent(&exit.all), 2);
    assert_stored(&file, &exit.all);
    assert_snapshot!("abort_with_queued_messages", story(&exit.all));
}

/// What the model is sent after an abort has no half call and no call without a result.
#[test]
fn what_is_sent_after_an_abort_is_taken_by_a_strict_server() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    let gate = server.gate();
    let sleep = json!({"command": "sleep 1000"});
    let both = |gate| {
        let answer = Answer::says("look")
            .call("toolu_1", "bash", &json!({"command": "echo 1"}))
            .call("toolu_2", "bash", &sleep);
        // In the stream: after the first whole call and the start of the second.
        Reply::from(answer).hold_after(10, gate)
    };
    server.reply(both(&gate));
    let mut wharf = rpc_over(&env, &server, &[]);
    wharf.prompt("in the stream");
    gate.wait_reached();
    wharf.wait_for("the second call's start", |line| {
        let event = &line["assistantMessageEvent"];
        event["type"] == "toolcall_start" && event["contentIndex"] == 2
    });
    abort(&mut wharf);
    let run = wharf.take_until("agent_end");
    assert_eq!(count(&run, "tool_execution_start"), 0);
    // In the tool.
    let open = server.gate();
    open.open();
    server.reply(both(&open));
    wharf.prompt("in the tool");
    wharf.wait_for("the second call", |line| {
        line["type"] == "tool_execution_start" && line["toolCallId"] == "toolu_2"
    });
    abort(&mut wharf);
    wharf.take_until("agent_end");
    server.reply(Answer::says("again"));
    let run = wharf.run("go on");
    assert_eq!(texts(&run, "assistant"), ["again"]);
    let sent = server.requests().last().unwrap().body["messages"].clone();
    let said = sent.to_string();
    for text in ["in the stream", "in the tool", "go on"] {
        assert!(said.contains(text), "{text} is missing: {said}");
    }
    let exit = wharf.finish();
    assert_eq!(assert_consistent(&exit.all), 3);
    let last = exit.all.iter().rfind(|line| line["type"] == "message_end").unwrap();
    assert_eq!(text_of(&last["message"]), "again");
    server.verify();
}
