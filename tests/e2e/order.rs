//! The documented order of events, for tests that look at whole runs.

use serde_json::Value;

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Idle,
    Run,
    Turn,
    /// Between `message_start` and `message_end` inside a turn or a run.
    Message {
        in_turn: bool,
    },
}

/// Holds every run in `lines` to the documented order; gives the number of runs.
///
/// Updates are of the message under way; every tool call that starts ends, before
/// its result message; user messages may come between two turns.
#[track_caller]
pub(crate) fn assert_documented_order(lines: &[Value]) -> usize {
    let mut at = At::Idle;
    let mut runs = 0;
    let mut running: Vec<&Value> = Vec::new();
    let mut ended: Vec<&Value> = Vec::new();
    for line in lines {
        let kind = line["type"].as_str().unwrap();
        at = match (at, kind) {
            (At::Idle, "agent_start") => At::Run,
            (At::Run, "turn_start") => At::Turn,
            (At::Run, "message_start") => {
                let role = &line["message"]["role"];
                assert!(role == "user" || role == "custom", "between turns: {line}");
                At::Message { in_turn: false }
            }
            (At::Turn, "message_start") => {
                if line["message"]["role"] == "toolResult" {
                    let id = &line["message"]["toolCallId"];
                    assert_eq!(ended.pop(), Some(id), "a result before its call's end: {line}");
                }
                At::Message { in_turn: true }
            }
            (At::Message { .. }, "message_update") => at,
            // The reply is void; its next try begins anew.
            (At::Turn | At::Message { in_turn: true }, "stream_retry" | "length_retry") => At::Turn,
            (At::Turn, "auto_retry_start" | "auto_retry_end") => at,
            (At::Message { in_turn: true }, "message_end") => At::Turn,
            (At::Message { in_turn: false }, "message_end") => At::Run,
            (At::Turn, "tool_execution_start") => {
                running.push(&line["toolCallId"]);
                at
            }
            (At::Turn | At::Message { in_turn: true }, "tool_execution_update") => {
                assert!(running.contains(&&line["toolCallId"]), "no such call runs: {line}");
                at
            }
            (At::Turn, "tool_execution_end") => {
                assert_eq!(
                    running.first(),
                    Some(&&line["toolCallId"]),
                    "not in source order: {line}"
                );
                ended.push(running.remove(0));
                at
            }
            (At::Turn, "turn_end") => {
                assert!(
                    running.is_empty() && ended.is_empty(),
                    "calls without a result: {running:?}"
                );
                At::Run
            }
            (At::Run, "agent_end") => {
                runs += 1;
                At::Idle
            }
            (
                at,
                "response"
                | "session"
                | "session_name_changed"
                | "extension_error"
                | "extension_ui_request"
                | "extension_ui_response_handled",
            ) => at,
            (at, kind) => panic!("{kind} while {at:?}: {line}"),
        };
    }
    assert_eq!(at, At::Idle, "a run without an end");
    runs
}

/// What happened, in short: `message_end user: text`, `tool_execution_start c1`.
/// Updates are left out: how many there are is not fixed.
pub(crate) fn outline(lines: &[Value]) -> Vec<String> {
    lines
        .iter()
        .filter_map(|line| {
            let kind = line["type"].as_str().unwrap();
            let message = &line["message"];
            match kind {
                "message_update" | "tool_execution_update" | "message_start" => None,
                "message_end" => {
                    let role = message["role"].as_str().unwrap();
                    Some(format!("{role}: {}", text_of(message)))
                }
                "tool_execution_start" | "tool_execution_end" => {
                    Some(format!("{kind} {}", line["toolCallId"].as_str().unwrap()))
                }
                _ => Some(kind.to_owned()),
            }
        })
        .collect()
}

/// The text of a message, whatever form its content has.
pub(crate) fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts: Vec<&str> =
                blocks.iter().filter_map(|block| block["text"].as_str()).collect();
            texts.join("\n")
        }
        other => panic!("no content: {other}"),
    }
}

/// The texts of all messages of this role that were announced, in order.
pub(crate) fn texts(lines: &[Value], role: &str) -> Vec<String> {
    lines
        .iter()
        .filter(|line| line["type"] == "message_end" && line["message"]["role"] == role)
        .map(|line| text_of(&line["message"]))
        .collect()
}

/// How many lines have this type.
pub(crate) fn count(lines: &[Value], kind: &str) -> usize {
    lines.iter().filter(|line| line["type"] == kind).count()
}
