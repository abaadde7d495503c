//! Runs in a few words a line, for golden transcripts of what happens in which order,
//! and what always holds of a process's events and of its session file.

use std::path::Path;

use serde_json::{Value, json};
use wharf_tests::llm::{Api, LlmServer};
use wharf_tests::{Env, SessionFile, Wharf};

pub(crate) use crate::lab::{session_path as session_file, state};
use crate::order::{assert_documented_order, text_of};

/// One line an event. Left out: responses, updates, and the starts of messages that end
/// at once (a reply's `message_start` is there: what was begun may be void).
pub(crate) fn story(lines: &[Value]) -> String {
    lines.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

fn line(line: &Value) -> Option<String> {
    let text = |field: &str| line[field].as_str().unwrap_or("-").to_owned();
    let kind = text("type");
    Some(match kind.as_str() {
        "response" | "message_update" | "tool_execution_update" => return None,
        "agent_start" => format!("agent_start {}", text("thinkingLevel")),
        "agent_end" => {
            let messages = line["messages"].as_array().unwrap();
            let roles: Vec<&str> =
                messages.iter().map(|one| one["role"].as_str().unwrap()).collect();
            format!("agent_end [{}]", roles.join(" "))
        }
        "message_start" if line["message"]["role"] != "assistant" => return None,
        "message_start" => "message_start assistant".to_owned(),
        "message_end" => format!("message_end {}", message(&line["message"])),
        "turn_end" => {
            let results = line["toolResults"].as_array().unwrap();
            let ids: Vec<&str> =
                results.iter().map(|one| one["toolCallId"].as_str().unwrap()).collect();
            format!(
                "turn_end {} [{}]",
                line["message"]["stopReason"].as_str().unwrap(),
                ids.join(" ")
            )
        }
        "tool_execution_start" => format!("{kind} {} {}", text("toolCallId"), text("toolName")),
        "tool_execution_end" => {
            let outcome = if line["isError"] == true { "error" } else { "ok" };
            format!("{kind} {} {outcome}", text("toolCallId"))
        }
        // Waits have a random part.
        "auto_retry_start" => {
            format!(
                "{kind} {} of {}: {}",
                line["attempt"],
                line["maxAttempts"],
                text("errorMessage")
            )
        }
        "stream_retry" => {
            format!(
                "{kind} {} of {}: {}",
                line["attempt"],
                line["maxAttempts"],
                text("errorMessage")
            )
        }
        "auto_retry_end" => {
            let error =
                line.get("finalError").map_or_else(String::new, |error| format!(": {error}"));
            format!("{kind} {} success={}{error}", line["attempt"], line["success"])
        }
        "auto_compaction_start" => format!("{kind} {}", text("reason")),
        "auto_compaction_end" => {
            let result = if line["result"].is_null() { "null" } else { "a summary" };
            let error =
                line.get("errorMessage").map_or_else(String::new, |error| format!(" {error}"));
            format!(
                "{kind} {result} aborted={} willRetry={}{error}",
                line["aborted"], line["willRetry"]
            )
        }
        "session_name_changed" => format!("{kind} {}", text("name")),
        "extension_ui_request" => format!("{kind} {}", text("method")),
        _ => kind,
    })
}

fn message(message: &Value) -> String {
    let role = message["role"].as_str().unwrap();
    match role {
        "assistant" => {
            let mut parts = vec![format!("assistant {}", message["stopReason"].as_str().unwrap())];
            for block in message["content"].as_array().unwrap() {
                parts.push(match block["type"].as_str().unwrap() {
                    "toolCall" => {
                        format!(
                            "<{} {}>",
                            block["id"].as_str().unwrap(),
                            block["name"].as_str().unwrap()
                        )
                    }
                    "text" => format!("{}", block["text"]),
                    other => other.to_owned(),
                });
            }
            if let Some(error) = message.get("errorMessage") {
                parts.push(format!("({})", error.as_str().unwrap()));
            }
            parts.join(" ")
        }
        "toolResult" => format!("toolResult {}", message["toolCallId"].as_str().unwrap()),
        _ => format!("{role} {:?}", text_of(message)),
    }
}

/// The events without what a retry made void, and without those of retries and
/// compactions themselves.
fn without_void(lines: &[Value]) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for line in lines {
        match line["type"].as_str().unwrap() {
            "stream_retry" | "length_retry" => {
                let begun = kept.iter().rposition(|one| one["type"] == "message_start");
                let ended = kept.iter().rposition(|one| one["type"] == "message_end");
                if begun > ended {
                    kept.truncate(begun.unwrap());
                }
            }
            "auto_retry_start"
            | "auto_retry_end"
            | "auto_compaction_start"
            | "auto_compaction_end"
            | "tasks_update"
            | "suggest_next" => {}
            _ => kept.push(line.clone()),
        }
    }
    kept
}

/// Holds a process's lines to the documented order and to each other: `turn_end` and
/// `agent_end` carry exactly the messages that were announced. Gives the number of runs.
#[track_caller]
pub(crate) fn assert_consistent(lines: &[Value]) -> usize {
    let (mut of_run, mut of_turn): (Vec<&Value>, Vec<&Value>) = (Vec::new(), Vec::new());
    for line in lines {
        match line["type"].as_str().unwrap() {
            "agent_start" => of_run.clear(),
            "turn_start" => of_turn.clear(),
            "message_end" => {
                of_run.push(&line["message"]);
                of_turn.push(&line["message"]);
            }
            "turn_end" => {
                let of_role = |role: &str| -> Vec<&Value> {
                    of_turn.iter().copied().filter(|one| one["role"] == role).collect()
                };
                assert_eq!(of_role("assistant"), [&line["message"]], "a turn has one reply");
                let results: Vec<&Value> = line["toolResults"].as_array().unwrap().iter().collect();
                assert_eq!(of_role("toolResult"), results, "the results of a turn");
                let calls = line["message"]["content"].as_array().unwrap().iter();
                let calls: Vec<&Value> = calls
                    .filter(|block| block["type"] == "toolCall")
                    .map(|block| &block["id"])
                    .collect();
                if line["message"]["stopReason"] == "toolUse" {
                    let ids: Vec<&Value> = results.iter().map(|one| &one["toolCallId"]).collect();
                    assert_eq!(ids, calls, "results in source order");
                }
            }
            "agent_end" => {
                let told: Vec<&Value> = line["messages"].as_array().unwrap().iter().collect();
                assert_eq!(told, of_run, "the messages of the run");
            }
            _ => {}
        }
    }
    assert_documented_order(&without_void(lines))
}

/// All messages that were announced, in order.
pub(crate) fn announced(lines: &[Value]) -> Vec<Value> {
    let ends = lines.iter().filter(|line| line["type"] == "message_end");
    ends.map(|line| line["message"].clone()).collect()
}

/// The session file is sound, linear, and has exactly the messages that were announced.
#[track_caller]
pub(crate) fn assert_stored(file: &Path, lines: &[Value]) -> SessionFile {
    let session = SessionFile::read(file);
    session.assert_linear();
    let mut told = announced(lines);
    for message in told.iter_mut().filter(|message| message["role"] == "custom") {
        message.as_object_mut().unwrap().remove("timestamp");
    }
    assert_eq!(session.messages(), told, "{}", file.display());
    session
}

pub(crate) fn get_messages(wharf: &mut Wharf) -> Vec<Value> {
    let data = wharf.data(json!({"type": "get_messages"}));
    data["messages"].as_array().unwrap().clone()
}

/// Settings that no test waits with; `extra` comes on top.
pub(crate) fn settings(env: &Env, extra: Value) {
    let mut settings = json!({
        "autoSessionName": false,
        "retry": {"baseDelayMs": 1, "maxDelayMs": 1000},
        "compaction": {"reserveTokens": 1000, "keepRecentTokens": 10},
    });
    for (key, value) in extra.as_object().unwrap() {
        match (&mut settings[key], value) {
            (Value::Object(old), Value::Object(new)) => old.extend(new.clone()),
            (old, new) => *old = new.clone(),
        }
    }
    env.write_agent("settings.json", settings.to_string());
}

/// RPC with the model of a fake server, whose window has 10,000 tokens.
pub(crate) fn rpc_over(env: &Env, server: &LlmServer, args: &[&str]) -> Wharf {
    let model = json!({"contextWindow": 10_000, "maxTokens": 2000});
    env.write_agent("models.json", server.models_json(Api::AnthropicMessages, &model));
    env.rpc(&[&["--model", "fake/fake-1"], args].concat())
}

/// Waits until so many messages are queued: the way through `input` handlers takes
/// its time.
pub(crate) fn wait_queued(wharf: &mut Wharf, count: usize) {
    while state(wharf)["pendingMessageCount"] != count {}
}

#[track_caller]
pub(crate) fn accept(wharf: &mut Wharf, command: Value) {
    let response = wharf.request(command);
    assert_eq!(response["success"], true, "{response}");
}
