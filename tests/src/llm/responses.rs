//! OpenAI's Responses API, used without its store: what it refuses, and how its streams
//! look.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::answer::{Answer, Block, Stop};
use super::api::{Asked, Refusal, duplicate, is_identifier, items, named, text, unknown_field};
use super::connection::Recorded;

const FIELDS: [&str; 28] = [
    "background",
    "context_management",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
];

const MAX_ID: usize = 64;

pub(super) fn check(request: &Recorded) -> Result<(), Refusal> {
    if request.header("authorization").is_none() && request.header("api-key").is_none() {
        return Err(Refusal {
            status: 401,
            message: "Missing bearer or basic authentication in header".to_owned(),
        });
    }
    let body = &request.body;
    if let Some(field) = unknown_field(body, &FIELDS) {
        return Err(format!("Unknown parameter: '{field}'.").into());
    }
    if text(&body["model"]).is_empty() {
        return Err("Missing required parameter: 'model'.".into());
    }
    if body["stream"] != true {
        return Err("stream: this server only streams".into());
    }
    if body["store"] != false {
        return Err("store must be false: nothing of a conversation may stay on a server".into());
    }
    if body.get("max_output_tokens").is_some_and(|value| value.as_u64().is_none_or(|n| n < 16)) {
        return Err(
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16."
                .into(),
        );
    }
    let tools = items(&body["tools"]);
    for (index, tool) in tools.iter().enumerate() {
        if tool["type"] == "function" && !is_identifier(text(&tool["name"]), 64) {
            return Err(format!("Missing required parameter: 'tools[{index}].name'.").into());
        }
    }
    if let Some(name) = duplicate(tools.iter().map(|tool| text(&tool["name"]))) {
        return Err(format!("Duplicate function name: {name}").into());
    }
    match &body["input"] {
        Value::String(text) if !text.is_empty() => Ok(()),
        Value::Array(list) if !list.is_empty() => check_items(list),
        _ => Err("Missing required parameter: 'input'.".into()),
    }
}

fn kind(item: &Value) -> &str {
    match item.get("type") {
        None if item.get("role").is_some() => "message",
        found => found.and_then(Value::as_str).unwrap_or_default(),
    }
}

fn check_items(list: &[Value]) -> Result<(), Refusal> {
    for (index, item) in list.iter().enumerate() {
        let place = format!("input[{index}]");
        let prefix = match kind(item) {
            "message" => {
                check_message(&place, item)?;
                "msg"
            }
            "function_call" => {
                check_call(&place, item)?;
                "fc"
            }
            "function_call_output" => {
                check_call_id(&place, item)?;
                if !item["output"].is_string() && items(&item["output"]).is_empty() {
                    return Err(format!("Missing required parameter: '{place}.output'.").into());
                }
                "fc"
            }
            "reasoning" => {
                check_reasoning(&place, item, list.get(index + 1))?;
                "rs"
            }
            other => return Err(format!("Invalid value: '{other}' for '{place}.type'.").into()),
        };
        if let Some(id) = item.get("id").filter(|id| !id.is_null()) {
            check_id(&place, text(id), prefix)?;
        }
    }
    let ids = list.iter().filter_map(|item| item["id"].as_str());
    if let Some(id) = duplicate(ids) {
        return Err(format!("Duplicate item found with id {id}. Remove duplicate items from your input and try again.").into());
    }
    check_pairs(list)
}

fn check_id(place: &str, id: &str, prefix: &str) -> Result<(), Refusal> {
    if id.len() > MAX_ID {
        return Err(format!("Invalid '{place}.id': string too long. Expected a string with maximum length {MAX_ID}, but got a string with length {} instead.", id.len()).into());
    }
    if !id.starts_with(prefix) || !is_identifier(id, MAX_ID) {
        return Err(format!(
            "Invalid '{place}.id': '{id}'. Expected an ID that begins with '{prefix}'."
        )
        .into());
    }
    Ok(())
}

fn check_message(place: &str, item: &Value) -> Result<(), Refusal> {
    let kinds: &[&str] = match text(&item["role"]) {
        "user" | "system" | "developer" => &["input_text", "input_image", "input_file"],
        "assistant" => &["output_text", "refusal"],
        other => return Err(format!("Invalid value: '{other}' for '{place}.role'.").into()),
    };
    match &item["content"] {
        Value::String(text) if !text.is_empty() => Ok(()),
        Value::Array(parts) if !parts.is_empty() => {
            for (at, part) in parts.iter().enumerate() {
                let found = text(&part["type"]);
                if !kinds.contains(&found) {
                    return Err(format!("Invalid value: '{found}' for '{place}.content[{at}].type'. Supported values are: {kinds:?}.").into());
                }
                if found.ends_with("_text") && text(&part["text"]).is_empty() {
                    return Err(format!("Empty '{place}.content[{at}].text'.").into());
                }
            }
            Ok(())
        }
        _ => Err(format!("Missing required parameter: '{place}.content'.").into()),
    }
}

fn check_call_id(place: &str, item: &Value) -> Result<(), Refusal> {
    match text(&item["call_id"]).len() {
        0 => Err(format!("Missing required parameter: '{place}.call_id'.").into()),
        1..=MAX_ID => Ok(()),
        length => Err(format!("Invalid '{place}.call_id': string too long. Expected a string with maximum length {MAX_ID}, but got a string with length {length} instead.").into()),
    }
}

fn check_call(place: &str, item: &Value) -> Result<(), Refusal> {
    check_call_id(place, item)?;
    if !is_identifier(text(&item["name"]), 64) {
        return Err(format!("Invalid '{place}.name'.").into());
    }
    if !item["arguments"].is_string() {
        return Err(format!("Invalid type for '{place}.arguments': expected a string.").into());
    }
    Ok(())
}

fn check_reasoning(place: &str, item: &Value, next: Option<&Value>) -> Result<(), Refusal> {
    let id = text(&item["id"]);
    if !item["summary"].is_array() {
        return Err(format!("Missing required parameter: '{place}.summary'.").into());
    }
    if text(&item["encrypted_content"]).is_empty() {
        return Err(Refusal {
            status: 404,
            message: format!(
                "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."
            ),
        });
    }
    let is_of_reply = next.is_some_and(|next| match kind(next) {
        "message" => next["role"] == "assistant",
        other => other == "function_call" || other == "reasoning",
    });
    if !is_of_reply {
        return Err(format!(
            "Item '{id}' of type 'reasoning' was provided without its required following item."
        )
        .into());
    }
    Ok(())
}

/// Each call has one output behind it, each output its call before it.
fn check_pairs(list: &[Value]) -> Result<(), Refusal> {
    let mut open: HashSet<&str> = HashSet::new();
    let mut seen: HashSet<&str> = HashSet::new();
    for item in list {
        let id = text(&item["call_id"]);
        match kind(item) {
            "function_call" => {
                if !seen.insert(id) {
                    return Err(format!("Duplicate function call with call_id {id}.").into());
                }
                open.insert(id);
            }
            "function_call_output" if !open.remove(id) => {
                return Err(format!(
                    "No tool call found for function call output with call_id {id}."
                )
                .into());
            }
            _ => {}
        }
    }
    match list.iter().map(|item| text(&item["call_id"])).find(|id| open.contains(id)) {
        Some(id) => Err(format!("No tool output found for function call {id}.").into()),
        None => Ok(()),
    }
}

/// The events so far; numbers them.
#[derive(Default)]
struct Events(Vec<Vec<u8>>);

impl Events {
    fn push(&mut self, kind: &str, mut data: Value) {
        data["type"] = kind.into();
        data["sequence_number"] = self.0.len().into();
        self.0.push(named(kind, &data));
    }
}

pub(super) fn events(answer: &Answer, asked: &Asked<'_>) -> Vec<Vec<u8>> {
    let response = |status: &str, output: &[Value]| {
        json!({
            "id": format!("resp_{}", asked.number), "object": "response",
            "created_at": 1_700_000_000, "status": status, "model": asked.model,
            "output": output, "error": null, "incomplete_details": null, "usage": null,
            "store": false,
        })
    };
    let mut events = Events::default();
    events.push("response.created", json!({"response": response("in_progress", &[])}));
    events.push("response.in_progress", json!({"response": response("in_progress", &[])}));
    let mut output = Vec::new();
    for (index, (block, pieces)) in answer.blocks.iter().enumerate() {
        let id = format!("{}_{index}", asked.number);
        output.push(item(&mut events, index, &id, block, pieces));
    }
    let usage = answer.usage;
    let input = usage.input + usage.cache_read + usage.cache_write;
    let mut done = response("completed", &output);
    done["usage"] = json!({
        "input_tokens": input, "output_tokens": usage.output,
        "total_tokens": input + usage.output,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
    });
    let kind = match answer.stops_for() {
        Stop::End | Stop::ToolUse => "response.completed",
        stop => {
            let reason = if stop == Stop::Length { "max_output_tokens" } else { "content_filter" };
            done["status"] = "incomplete".into();
            done["incomplete_details"] = json!({"reason": reason});
            "response.incomplete"
        }
    };
    events.push(kind, json!({"response": done}));
    events.0
}

/// The events of one output item, and the item when it is complete.
fn item(events: &mut Events, index: usize, id: &str, block: &Block, pieces: &[String]) -> Value {
    let whole = pieces.concat();
    let (item_id, start, done) = match block {
        Block::Text => {
            let id = format!("msg_{id}");
            let item = |status: &str, content: Value| json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content});
            let part = json!([{"type": "output_text", "annotations": [], "text": whole}]);
            (id.clone(), item("in_progress", json!([])), item("completed", part))
        }
        Block::Thinking { signature } => {
            let id = format!("rs_{id}");
            let summary = if whole.is_empty() {
                json!([])
            } else {
                json!([{"type": "summary_text", "text": whole}])
            };
            let start = json!({"id": id, "type": "reasoning", "summary": []});
            let done = json!({"id": id, "type": "reasoning", "summary": summary, "encrypted_content": signature});
            (id, start, done)
        }
        Block::Redacted { data } => {
            let id = format!("rs_{id}");
            let start = json!({"id": id, "type": "reasoning", "summary": []});
            let done =
                json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": data});
            (id, start, done)
        }
        Block::Call { id: call_id, name } => {
            let id = format!("fc_{id}");
            let item = |status: &str, arguments: &str| {
                json!({
                    "id": id, "type": "function_call", "status": status,
                    "call_id": call_id, "name": name, "arguments": arguments,
                })
            };
            (id.clone(), item("in_progress", ""), item("completed", &whole))
        }
    };
    let at = |mut data: Value| {
        data["item_id"] = item_id.as_str().into();
        data["output_index"] = index.into();
        data
    };
    events.push("response.output_item.added", json!({"output_index": index, "item": start}));
    match block {
        Block::Text => {
            let part = |text: &str| {
                let part = json!({"type": "output_text", "annotations": [], "text": text});
                at(json!({"content_index": 0, "part": part}))
            };
            events.push("response.content_part.added", part(""));
            for piece in pieces {
                let data = at(json!({"content_index": 0, "delta": piece, "logprobs": []}));
                events.push("response.output_text.delta", data);
            }
            let data = at(json!({"content_index": 0, "text": whole}));
            events.push("response.output_text.done", data);
            events.push("response.content_part.done", part(&whole));
        }
        Block::Thinking { .. } if !whole.is_empty() => {
            let part = |text: &str| {
                at(json!({"summary_index": 0, "part": {"type": "summary_text", "text": text}}))
            };
            events.push("response.reasoning_summary_part.added", part(""));
            for piece in pieces {
                let data = at(json!({"summary_index": 0, "delta": piece}));
                events.push("response.reasoning_summary_text.delta", data);
            }
            let data = at(json!({"summary_index": 0, "text": whole}));
            events.push("response.reasoning_summary_text.done", data);
            events.push("response.reasoning_summary_part.done", part(&whole));
        }
        Block::Thinking { .. } | Block::Redacted { .. } => {}
        Block::Call { .. } => {
            for piece in pieces {
                let data = at(json!({"delta": piece}));
                events.push("response.function_call_arguments.delta", data);
            }
            let data = at(json!({"arguments": whole}));
            events.push("response.function_call_arguments.done", data);
        }
    }
    events.push("response.output_item.done", json!({"output_index": index, "item": done}));
    done
}
