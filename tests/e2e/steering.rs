//! Steering and follow-up messages whose mode is set while a run is under way, with
//! retries and compactions between the turns. The queues' basics are in `queueing`.

use insta::assert_snapshot;
use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Failure, LlmServer, Reply, Usage};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, Wharf};

use crate::order::{count, texts};
use crate::story::{
    accept, assert_consistent, assert_stored, rpc_over, session_file, settings, state, story,
    wait_queued,
};

/// A shell command that waits until the test writes the file `go`.
const HOLD: &str = "while [ ! -e go ]; do sleep 0.01; done; rm go";

/// The user messages that came before each reply, turn by turn.
fn by_turn(run: &[Value]) -> Vec<Vec<String>> {
    let mut turns = vec![Vec::new()];
    for line in run.iter().filter(|line| line["type"] == "message_end") {
        match line["message"]["role"].as_str().unwrap() {
            "user" => turns.last_mut().unwrap().extend(texts(std::slice::from_ref(line), "user")),
            "assistant" => turns.push(Vec::new()),
            _ => {}
        }
    }
    assert_eq!(turns.pop(), Some(Vec::new()), "messages that nobody answers");
    turns
}

fn queue(wharf: &mut Wharf, messages: &[(&str, &str)]) {
    for (kind, message) in messages {
        accept(wharf, json!({"type": kind, "message": message}));
    }
    wait_queued(wharf, messages.len());
}

#[test]
fn modes_that_are_set_during_a_run() {
    let four = [("steer", "s1"), ("steer", "s2"), ("follow_up", "f1"), ("follow_up", "f2")];
    for (steering, follow_up, expect) in [
        (
            "one-at-a-time",
            "one-at-a-time",
            vec![vec!["hi"], vec!["s1"], vec!["s2"], vec!["f1"], vec!["f2"]],
        ),
        ("all", "one-at-a-time", vec![vec!["hi"], vec!["s1", "s2"], vec!["f1"], vec!["f2"]]),
        ("one-at-a-time", "all", vec![vec!["hi"], vec!["s1"], vec!["s2"], vec!["f1", "f2"]]),
        ("all", "all", vec![vec!["hi"], vec!["s1", "s2"], vec!["f1", "f2"]]),
    ] {
        let env = Env::new();
        let repeat = json!({"repeat": true, "content": [{"type": "text", "text": "ok"}]});
        let model = env.script(&[bash(HOLD), repeat]);
        let mut wharf = env.rpc_with(&[], &model);
        // The opposite before, so that what counts is what is set during the run.
        let other = |mode| if mode == "all" { "one-at-a-time" } else { "all" };
        accept(&mut wharf, json!({"type": "set_steering_mode", "mode": other(steering)}));
        accept(&mut wharf, json!({"type": "set_follow_up_mode", "mode": other(follow_up)}));
        wharf.prompt("hi");
        wharf.wait_event("tool_execution_start");
        queue(&mut wharf, &four);
        accept(&mut wharf, json!({"type": "set_steering_mode", "mode": steering}));
        accept(&mut wharf, json!({"type": "set_follow_up_mode", "mode": follow_up}));
        let now = state(&mut wharf);
        assert_eq!(
            (&now["steeringMode"], &now["followUpMode"]),
            (&json!(steering), &json!(follow_up))
        );
        env.write("go", "");
        let run = wharf.take_until("agent_end");
        assert_eq!(by_turn(&run), expect, "{steering}, {follow_up}");
        assert_eq!(state(&mut wharf)["pendingMessageCount"], 0);
        let file = session_file(&mut wharf);
        let exit = wharf.finish();
        assert_eq!(assert_consistent(&exit.all), 1);
        assert_stored(&file, &exit.all);
        let written = std::fs::read_to_string(env.agent_dir().join("settings.json")).unwrap();
        let written: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(
            (&written["steeringMode"], &written["followUpMode"]),
            (&json!(steering), &json!(follow_up))
        );
    }
}

#[test]
fn a_mode_that_is_none_changes_nothing() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&[], "scripted/demo");
    for mode in [json!("ALL"), json!(""), json!(null), json!(1), json!(["all"])] {
        for command in ["set_steering_mode", "set_follow_up_mode"] {
            let response = wharf.request(json!({"type": command, "mode": mode}));
            assert_eq!(response["success"], false, "{response}");
        }
    }
    let now = state(&mut wharf);
    assert_eq!(
        (&now["steeringMode"], &now["followUpMode"]),
        (&json!("one-at-a-time"), &json!("one-at-a-time"))
    );
}

/// What is queued in the wait for a retry enters after the turn that is retried, in
/// whichever mode; the retried request does not have it.
#[test]
fn messages_that_come_while_a_reply_is_retried() {
    let env = Env::new();
    settings(&env, json!({"steeringMode": "all"}));
    let server = LlmServer::start();
    let gate = server.gate();
    server.reply(Failure::Overloaded);
    let call = Answer::calls("toolu_1", "bash", &json!({"command": "echo 1"}));
    server.reply(Reply::from(call).hold(&gate));
    server.reply(Failure::Internal);
    server.reply(Answer::says("steered"));
    server.reply(Failure::RateLimit);
    server.reply(Answer::says("followed"));
    let mut wharf = rpc_over(&env, &server, &[]);
    wharf.prompt("hi");
    gate.wait_reached();
    queue(&mut wharf, &[("steer", "s1"), ("follow_up", "f1"), ("steer", "s2")]);
    gate.open();
    let run = wharf.take_until("agent_end");
    assert_eq!(by_turn(&run), [vec!["hi"], vec!["s1", "s2"], vec!["f1"]]);
    let requests = server.requests();
    assert_eq!(requests[0].body["messages"], requests[1].body["messages"]);
    // Each retry sends what the attempt before it sent.
    assert_eq!(requests[2].body["messages"], requests[3].body["messages"]);
    assert_eq!(requests[4].body["messages"], requests[5].body["messages"]);
    assert_snapshot!("queued_and_retried", story(&run));
    assert_eq!(assert_consistent(&wharf.finish().all), 1);
}

#[test]
fn messages_that_come_during_a_compaction() {
    // Long enough that there is something to compact.
    let hi = "hi".repeat(30);
    for (mode, expect) in [
        ("all", vec![vec![hi.as_str()], vec!["s1", "s2"], vec!["f1"]]),
        ("one-at-a-time", vec![vec![hi.as_str()], vec!["s1"], vec!["s2"], vec!["f1"]]),
    ] {
        let env = Env::new();
        settings(&env, json!({}));
        let server = LlmServer::start();
        let gate = server.gate();
        let full = Usage { input: 9500, ..Usage::default() };
        server.reply(Answer::calls("toolu_1", "bash", &json!({"command": "echo 1"})).usage(full));
        server.on_summary(Reply::from(Answer::says("S")).hold(&gate));
        server.default_reply(Answer::says("ok"));
        let mut wharf = rpc_over(&env, &server, &[]);
        wharf.prompt(&hi);
        gate.wait_reached();
        queue(&mut wharf, &[("steer", "s1"), ("steer", "s2"), ("follow_up", "f1")]);
        accept(&mut wharf, json!({"type": "set_steering_mode", "mode": mode}));
        gate.open();
        let run = wharf.take_until("agent_end");
        assert_eq!(by_turn(&run), expect, "{mode}");
        assert_eq!(count(&run, "auto_compaction_end"), 1);
        assert_eq!(assert_consistent(&wharf.finish().all), 1);
    }
}

/// A run that fails leaves what waits where it is, for the next one.
#[test]
fn a_run_that_fails_for_good_loses_no_queued_message() {
    let env = Env::new();
    settings(&env, json!({"retry": {"maxRetries": 1}, "steeringMode": "all"}));
    let server = LlmServer::start();
    let gate = server.gate();
    server.reply(Failure::Overloaded);
    server.reply(Reply::from(Failure::Overloaded).hold(&gate));
    let mut wharf = rpc_over(&env, &server, &[]);
    wharf.prompt("hi");
    gate.wait_reached();
    queue(&mut wharf, &[("steer", "s1"), ("follow_up", "f1")]);
    gate.open();
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "user"), ["hi"]);
    assert_eq!(state(&mut wharf)["pendingMessageCount"], 2);
    server.default_reply(Answer::says("ok"));
    let run = wharf.run("on");
    let mut delivered = texts(&run, "user");
    delivered.sort();
    assert_eq!(delivered, ["f1", "on", "s1"]);
    assert_eq!(assert_consistent(&wharf.finish().all), 2);
}

/// The mode changes between two deliveries.
#[test]
fn a_mode_that_changes_between_two_turns() {
    let env = Env::new();
    let model = env.script(&[bash(HOLD), bash(HOLD), says("a"), says("b")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    wharf.wait_event("tool_execution_start");
    queue(&mut wharf, &[("steer", "s1"), ("steer", "s2"), ("steer", "s3")]);
    env.write("go", "");
    // One was delivered; the second call waits.
    wharf.wait_for("the second call", |line| {
        line["type"] == "tool_execution_start" && line["toolCallId"] == "call_2"
    });
    assert_eq!(state(&mut wharf)["pendingMessageCount"], 2);
    accept(&mut wharf, json!({"type": "set_steering_mode", "mode": "all"}));
    env.write("go", "");
    wharf.wait_event("agent_end");
    let all = wharf.finish().all;
    assert_eq!(by_turn(&all), [vec!["hi"], vec!["s1"], vec!["s2", "s3"]]);
    assert_eq!(assert_consistent(&all), 1);
}
