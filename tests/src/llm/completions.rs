//! OpenAI's chat completions, and what servers like it differ in.

use serde_json::{Value, json};

use super::answer::{Answer, Block, Stop};
use super::api::{
    Asked, Refusal, Strictness, duplicate, is_identifier, items, text, unknown_field, unnamed,
};
use super::connection::Recorded;

const FIELDS: [&str; 36] = [
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "modalities",
    "model",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
    "moderation",
];

/// OpenAI's own limit.
const MAX_CALL_ID: usize = 40;

pub(super) fn check(request: &Recorded, strictness: Strictness) -> Result<(), Refusal> {
    let body = &request.body;
    if strictness.known_fields_only
        && let Some(field) = unknown_field(body, &FIELDS)
    {
        return Err(format!("Unrecognized request argument supplied: {field}").into());
    }
    if strictness.no_store && body.get("store").is_some() {
        return Err("Extra inputs are not permitted: store".into());
    }
    if text(&body["model"]).is_empty() {
        return Err("you must provide a model parameter".into());
    }
    if body["stream"] != true {
        return Err(if body.get("stream_options").is_some() {
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.".into()
        } else {
            "stream: this server only streams".into()
        });
    }
    if body.get("max_tokens").is_some() && body.get("max_completion_tokens").is_some() {
        return Err(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
                .into(),
        );
    }
    check_tools(body)?;
    let messages = items(&body["messages"]);
    if messages.is_empty() {
        return Err("Invalid 'messages': empty array.".into());
    }
    check_messages(messages, strictness)?;
    if strictness.alternating_roles {
        check_alternation(messages)?;
    }
    Ok(())
}

fn check_tools(body: &Value) -> Result<(), Refusal> {
    let tools = items(&body["tools"]);
    if body.get("tools").is_some() && tools.is_empty() {
        return Err("Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.".into());
    }
    for (index, tool) in tools.iter().enumerate() {
        if tool["type"] != "function" {
            return Err(format!("Invalid value for 'tools[{index}].type'").into());
        }
        if !is_identifier(text(&tool["function"]["name"]), 64) {
            return Err(format!(
                "Invalid 'tools[{index}].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            )
            .into());
        }
    }
    match duplicate(tools.iter().map(|tool| text(&tool["function"]["name"]))) {
        Some(name) => Err(format!("Duplicate function name: {name}").into()),
        None => Ok(()),
    }
}

fn check_messages(messages: &[Value], strictness: Strictness) -> Result<(), Refusal> {
    let mut unanswered: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = text(&message["role"]);
        if role == "tool" {
            let id = text(&message["tool_call_id"]);
            let Some(at) = unanswered.iter().position(|open| *open == id) else {
                return Err(format!(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls' (messages[{index}], {id:?})."
                )
                .into());
            };
            unanswered.remove(at);
            if message["content"].is_null() {
                return Err(format!(
                    "Invalid value for 'messages[{index}].content': expected a string, got null."
                )
                .into());
            }
            continue;
        }
        all_answered(&unanswered)?;
        match role {
            "developer" if strictness.no_developer_role => {
                return Err("Unexpected message role: developer".into());
            }
            "system" | "developer" | "user" => {
                if is_empty(&message["content"]) {
                    return Err(format!(
                        "Invalid value for 'messages[{index}].content': expected a string or an array of parts that is not empty."
                    )
                    .into());
                }
            }
            "assistant" => unanswered = check_assistant(index, message)?,
            other => {
                return Err(format!("Invalid value: '{other}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.").into());
            }
        }
    }
    all_answered(&unanswered)
}

fn all_answered(unanswered: &[&str]) -> Result<(), Refusal> {
    if unanswered.is_empty() {
        return Ok(());
    }
    Err(format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        unanswered.join(", ")
    )
    .into())
}

/// The ids of its calls.
fn check_assistant(index: usize, message: &Value) -> Result<Vec<&str>, Refusal> {
    let calls = items(&message["tool_calls"]);
    if message.get("tool_calls").is_some() && calls.is_empty() {
        return Err(format!("Invalid 'messages[{index}].tool_calls': empty array.").into());
    }
    if calls.is_empty() && is_empty(&message["content"]) {
        return Err(format!(
            "Invalid value for 'messages[{index}].content': expected a string, got null."
        )
        .into());
    }
    for (at, call) in calls.iter().enumerate() {
        let place = format!("messages[{index}].tool_calls[{at}]");
        let id = text(&call["id"]);
        if call["type"] != "function" || id.is_empty() || text(&call["function"]["name"]).is_empty()
        {
            return Err(format!("Missing required parameter in '{place}'.").into());
        }
        if id.len() > MAX_CALL_ID {
            return Err(format!("Invalid '{place}.id': string too long. Expected a string with maximum length {MAX_CALL_ID}, but got a string with length {} instead.", id.len()).into());
        }
        let Some(arguments) = call["function"]["arguments"].as_str() else {
            return Err(format!(
                "Invalid type for '{place}.function.arguments': expected a string."
            )
            .into());
        };
        // OpenAI itself takes any string; servers with chat templates parse it.
        if !serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()) {
            return Err(format!("'{place}.function.arguments' is no JSON object").into());
        }
    }
    let ids: Vec<&str> = calls.iter().map(|call| text(&call["id"])).collect();
    match duplicate(ids.iter().copied()) {
        Some(id) => Err(format!("messages[{index}] has two calls with the id {id:?}").into()),
        None => Ok(ids),
    }
}

fn is_empty(content: &Value) -> bool {
    match content {
        Value::String(text) => text.is_empty(),
        Value::Array(parts) => {
            parts.is_empty()
                || parts.iter().any(|p| p["type"] == "text" && text(&p["text"]).is_empty())
        }
        _ => true,
    }
}

fn check_alternation(messages: &[Value]) -> Result<(), Refusal> {
    let turns = messages.iter().filter(|message| {
        message["role"] == "user"
            || (message["role"] == "assistant" && items(&message["tool_calls"]).is_empty())
    });
    for (turn, message) in turns.enumerate() {
        if (message["role"] == "user") != (turn % 2 == 0) {
            return Err("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...".into());
        }
    }
    Ok(())
}

pub(super) fn events(answer: &Answer, asked: &Asked<'_>) -> Vec<Vec<u8>> {
    let chunk = |choices: Value, usage: Value| {
        let mut data = json!({
            "id": format!("chatcmpl-{}", asked.number), "object": "chat.completion.chunk",
            "created": 1_700_000_000, "model": asked.model, "choices": choices,
        });
        if asked.wants_usage {
            data["usage"] = usage;
        }
        unnamed(&data, "\n")
    };
    let choice = |delta: Value, finish: Option<&str>| {
        chunk(json!([{"index": 0, "delta": delta, "finish_reason": finish}]), Value::Null)
    };
    let mut events = vec![choice(json!({"role": "assistant", "content": ""}), None)];
    let mut calls = 0;
    for (block, pieces) in &answer.blocks {
        match block {
            Block::Text => {
                events.extend(pieces.iter().map(|piece| choice(json!({"content": piece}), None)));
            }
            Block::Thinking { .. } => events.extend(
                pieces.iter().map(|piece| choice(json!({"reasoning_content": piece}), None)),
            ),
            Block::Redacted { .. } => {}
            Block::Call { id, name } => {
                let call = |call: Value| choice(json!({"tool_calls": [call]}), None);
                events.push(call(json!({
                    "index": calls, "id": id, "type": "function",
                    "function": {"name": name, "arguments": ""},
                })));
                events.extend(
                    pieces.iter().map(|piece| {
                        call(json!({"index": calls, "function": {"arguments": piece}}))
                    }),
                );
                calls += 1;
            }
        }
    }
    let finish = match answer.stops_for() {
        Stop::End => "stop",
        Stop::ToolUse => "tool_calls",
        Stop::Length => "length",
        Stop::Refusal => "content_filter",
    };
    events.push(choice(json!({}), Some(finish)));
    if asked.wants_usage {
        let usage = answer.usage;
        let prompt = usage.input + usage.cache_read + usage.cache_write;
        events.push(chunk(
            json!([]),
            json!({
                "prompt_tokens": prompt, "completion_tokens": usage.output,
                "total_tokens": prompt + usage.output,
                "prompt_tokens_details": {"cached_tokens": usage.cache_read},
                "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
            }),
        ));
    }
    events.push(b"data: [DONE]\n\n".to_vec());
    events
}
