//! The events that have no answer: one run in which each happens, and who was told what.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Close, Reply, Stop};

use super::lab::{Lab, Seen};

/// How often they come depends on time: updates are thinned.
pub(super) const THINNED: [&str; 2] = ["message_update", "tool_execution_update"];

/// What front ends are told too, in the same order.
pub(super) const ON_THE_WIRE: [&str; 12] = [
    "agent_start",
    "agent_end",
    "turn_start",
    "turn_end",
    "message_start",
    "message_update",
    "message_end",
    "tool_execution_start",
    "tool_execution_update",
    "tool_execution_end",
    "stream_retry",
    "length_retry",
];

/// What the session does in that run, in this order. A move, and a switch back, are to where
/// another model was in use.
pub(super) const OF_THE_SESSION: [&str; 10] = [
    "session_start",
    "model_select",
    "session_compact",
    "session_tree",
    "model_select",
    "session_fork",
    "session_switch",
    "model_select",
    "session_switch",
    "session_shutdown",
];

fn pad(text: &str) -> String {
    format!("{text:.<60}")
}

fn accept(lab: &mut Lab, command: Value) -> Value {
    let response = lab.ask(command);
    assert_eq!(response["success"], true, "{response}");
    assert!(response["data"]["cancelled"].as_bool() != Some(true), "{response}");
    response["data"].clone()
}

/// Extensions are told of a message under way at most this often.
const UPDATE_INTERVAL: Duration = Duration::from_millis(50);

/// A run with at least one update of a message, and one of a tool call.
fn slow_run(lab: &mut Lab) {
    let gate = lab.server.gate();
    let command = json!({"command": "echo begun; until [ -e go ]; do sleep 0.01; done"});
    let reply = Answer::says("it calls toolu_1").in_pieces(4).call("toolu_1", "bash", &command);
    lab.server.reply(Reply::from(reply).hold_after(3, &gate));
    lab.server.reply(Answer::says(&pad("answer one")));
    lab.begin(&pad("first"));
    gate.wait_reached();
    // The beginning of the text, which is counted as an update, has been seen to.
    lab.wait("message_update");
    // The next piece is too late to be thinned out.
    thread::sleep(UPDATE_INTERVAL);
    gate.open();
    lab.wait("tool_execution_update");
    lab.env.write("go", "");
    lab.end();
}

/// Two turns with tools, one of them after a torn reply and one that was cut off, another
/// model, a compaction, a move, a fork, a switch back and a new session. What the program
/// wrote.
pub(super) fn story(lab: &mut Lab) -> Vec<Value> {
    lab.start();
    slow_run(lab);
    let echo = |id: &str| {
        let command = json!({"command": format!("echo {id}")});
        Answer::says(&format!("it calls {id}")).call(id, "bash", &command)
    };
    lab.server.reply(Reply::from(echo("toolu_2")).drop_after(3, Close::Reset));
    lab.server.reply(Answer::says("cut").stop(Stop::Length));
    lab.server.reply(echo("toolu_2").call("toolu_3", "bash", &json!({"command": "echo 3"})));
    lab.server.reply(Answer::says(&pad("answer two")));
    lab.run(&pad("second"));

    accept(lab, json!({"type": "set_model", "provider": "fake", "modelId": "fake-2"}));
    lab.server.default_summary(Answer::says("summary"));
    accept(lab, json!({"type": "compact"}));
    let file = lab.idle()["sessionFile"].clone();
    let messages = accept(lab, json!({"type": "get_fork_messages"}))["messages"].clone();
    let entry = |at: usize| messages[at]["entryId"].clone();
    accept(lab, json!({"type": "navigate_tree", "targetId": entry(1)}));
    accept(lab, json!({"type": "fork", "entryId": entry(0)}));
    accept(lab, json!({"type": "switch_session", "sessionPath": file}));
    accept(lab, json!({"type": "new_session"}));
    lab.finish()
}

/// An event as it is compared: its name, and what is certain of it.
pub(super) fn on_the_wire(lines: &[Value]) -> Vec<(String, Value)> {
    let told = lines.iter().filter_map(|line| {
        let name = line["type"].as_str().unwrap();
        let what = match name {
            "agent_start" | "turn_start" => json!(""),
            "agent_end" => line["messages"].clone(),
            "turn_end" | "message_start" | "message_end" => line["message"].clone(),
            "tool_execution_start" | "tool_execution_end" => line["toolCallId"].clone(),
            "stream_retry" | "length_retry" => line["attempt"].clone(),
            _ => return None,
        };
        Some((name.to_owned(), what))
    });
    told.collect()
}

/// The same of what an extension has seen; what front ends do not see is left out.
pub(super) fn as_on_the_wire(seen: &[Seen]) -> Vec<(String, Value)> {
    let told = seen.iter().filter_map(|one| {
        let json = || serde_json::from_str::<Value>(&one.what).unwrap();
        let what = match one.event.as_str() {
            "agent_start" | "turn_start" => json!(""),
            "agent_end" | "turn_end" | "message_start" | "message_end" => json(),
            "tool_execution_start" | "tool_execution_end" => json!(one.what),
            "stream_retry" | "length_retry" => json()["attempt"].clone(),
            _ => return None,
        };
        Some((one.event.clone(), what))
    });
    told.collect()
}
