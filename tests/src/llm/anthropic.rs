//! Anthropic's Messages API: what it refuses, and how its streams look.

use serde_json::{Value, json};

use super::answer::{Answer, Block, Stop};
use super::api::{Asked, Refusal, duplicate, is_identifier, items, named, text, unknown_field};
use super::connection::Recorded;

const FIELDS: [&str; 18] = [
    "cache_control",
    "container",
    "inference_geo",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "output_config",
    "service_tier",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

/// Further ones where an `anthropic-beta` header asks for a beta feature.
const BETA_FIELDS: [&str; 4] = ["context_management", "mcp_servers", "output_format", "speed"];

const MAX_CACHE_MARKS: usize = 4;

pub(super) fn check(request: &Recorded) -> Result<(), Refusal> {
    let key = request.header("x-api-key").filter(|key| !key.is_empty());
    match (key, request.header("authorization")) {
        (None, None) => {
            return Err(Refusal {
                status: 401,
                message: "x-api-key header is required".to_owned(),
            });
        }
        (Some(_), Some(_)) => {
            return Err("both x-api-key and authorization were sent".into());
        }
        _ => {}
    }
    if request.header("anthropic-version").is_none() {
        return Err("anthropic-version: header is required".into());
    }
    let body = &request.body;
    if let Some(field) = unknown_field(body, &FIELDS)
        && !(request.header("anthropic-beta").is_some() && BETA_FIELDS.contains(&field))
    {
        return Err(format!("{field}: Extra inputs are not permitted").into());
    }
    if text(&body["model"]).is_empty() {
        return Err("model: Field required".into());
    }
    if body["stream"] != true {
        return Err("stream: this server only streams".into());
    }
    let max_tokens = body["max_tokens"].as_u64().unwrap_or(0);
    if max_tokens == 0 {
        return Err("max_tokens: Input should be greater than or equal to 1".into());
    }
    check_thinking(body, max_tokens)?;
    check_tools(&body["tools"])?;
    check_system(&body["system"])?;
    check_messages(items(&body["messages"]))?;
    let marks = cache_marks(body);
    if marks > MAX_CACHE_MARKS {
        return Err(format!(
            "A maximum of {MAX_CACHE_MARKS} blocks with cache_control may be provided. Found {marks}."
        )
        .into());
    }
    Ok(())
}

fn check_thinking(body: &Value, max_tokens: u64) -> Result<(), Refusal> {
    let thinking = &body["thinking"];
    match thinking["type"].as_str() {
        None if thinking.is_null() => return Ok(()),
        Some("disabled") => return Ok(()),
        Some("adaptive") => {}
        Some("enabled") => {
            let budget = thinking["budget_tokens"].as_u64().unwrap_or(0);
            if budget < 1024 {
                return Err("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024".into());
            }
            if budget >= max_tokens {
                return Err("`max_tokens` must be greater than `thinking.budget_tokens`.".into());
            }
        }
        _ => return Err("thinking: Input tag does not match any of the expected tags: 'adaptive', 'disabled', 'enabled'".into()),
    }
    if body.get("temperature").is_some_and(|value| value.as_f64() != Some(1.0)) {
        return Err("`temperature` may only be set to 1 when thinking is enabled.".into());
    }
    if matches!(body["tool_choice"]["type"].as_str(), Some("any" | "tool")) {
        return Err("Thinking may not be enabled when tool_choice forces tool use.".into());
    }
    Ok(())
}

fn check_tools(tools: &Value) -> Result<(), Refusal> {
    for (index, tool) in items(tools).iter().enumerate() {
        if !is_identifier(text(&tool["name"]), 128) {
            return Err(format!(
                "tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            )
            .into());
        }
        if tool["input_schema"]["type"] != "object" {
            return Err(format!(
                "tools.{index}.custom.input_schema.type: Input should be 'object'"
            )
            .into());
        }
    }
    match duplicate(items(tools).iter().map(|tool| text(&tool["name"]))) {
        Some(_) => Err("tools: Tool names must be unique.".into()),
        None => Ok(()),
    }
}

fn check_system(system: &Value) -> Result<(), Refusal> {
    match system {
        Value::Null | Value::String(_) => Ok(()),
        Value::Array(blocks)
            if blocks.iter().all(|b| b["type"] == "text" && !text(&b["text"]).is_empty()) =>
        {
            Ok(())
        }
        _ => Err("system: text content blocks must be non-empty".into()),
    }
}

fn check_messages(messages: &[Value]) -> Result<(), Refusal> {
    if messages.is_empty() {
        return Err("messages: at least one message is required".into());
    }
    for (index, message) in messages.iter().enumerate() {
        let expected = if index % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != expected {
            return Err(if index == 0 {
                "messages: first message must use the \"user\" role".into()
            } else {
                format!("messages: roles must alternate between \"user\" and \"assistant\", but found {} at messages.{index}", message["role"]).into()
            });
        }
        check_content(index, message)?;
    }
    if messages.len().is_multiple_of(2) {
        return Err("This model does not support assistant message prefill. The conversation must end with a user message.".into());
    }
    let uses = messages.iter().flat_map(|message| ids(message, "tool_use", "id"));
    if let Some(id) = duplicate(uses) {
        return Err(format!("messages: `tool_use` ids must be unique: {id}").into());
    }
    for index in 0..messages.len() {
        check_pairs(messages, index)?;
    }
    Ok(())
}

fn check_content(index: usize, message: &Value) -> Result<(), Refusal> {
    let blocks = match &message["content"] {
        Value::String(text) if !text.is_empty() => return Ok(()),
        Value::Array(blocks) if !blocks.is_empty() => blocks,
        _ => return Err(format!("messages.{index}: all messages must have non-empty content except for the optional final assistant message").into()),
    };
    let is_user = message["role"] == "user";
    for (at, block) in blocks.iter().enumerate() {
        let place = format!("messages.{index}.content.{at}");
        match (text(&block["type"]), is_user) {
            ("text", _) => check_text(&place, block)?,
            ("image", true) => check_image(&place, block)?,
            ("tool_result", true) => check_result(&place, block)?,
            ("tool_use", false) => {
                if !is_identifier(text(&block["id"]), 64) {
                    return Err(format!(
                        "{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
                    )
                    .into());
                }
                if !is_identifier(text(&block["name"]), 128) {
                    return Err(format!(
                        "{place}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
                    )
                    .into());
                }
                if !block["input"].is_object() {
                    return Err(format!(
                        "{place}.tool_use.input: Input should be a valid dictionary"
                    )
                    .into());
                }
            }
            ("thinking", false) => {
                if text(&block["signature"]).is_empty() || !block["thinking"].is_string() {
                    return Err(format!("{place}.thinking.signature: Field required").into());
                }
            }
            ("redacted_thinking", false) => {
                if text(&block["data"]).is_empty() {
                    return Err(format!("{place}.redacted_thinking.data: Field required").into());
                }
            }
            (other, _) => {
                return Err(format!(
                    "{place}: Input tag '{other}' does not match any of the expected tags of a {} message",
                    text(&message["role"])
                )
                .into());
            }
        }
        if text(&block["type"]).contains("thinking") && block.get("cache_control").is_some() {
            return Err(
                format!("{place}.thinking.cache_control: Extra inputs are not permitted").into()
            );
        }
    }
    Ok(())
}

fn check_text(place: &str, block: &Value) -> Result<(), Refusal> {
    let text = text(&block["text"]);
    if text.is_empty() {
        return Err(format!("{place}: text content blocks must be non-empty").into());
    }
    if text.trim().is_empty() {
        return Err(format!("{place}: text content blocks must contain non-whitespace text").into());
    }
    Ok(())
}

fn check_image(place: &str, block: &Value) -> Result<(), Refusal> {
    let source = &block["source"];
    let known = ["image/jpeg", "image/png", "image/gif", "image/webp"];
    if source["type"] == "base64"
        && (!known.contains(&text(&source["media_type"])) || text(&source["data"]).is_empty())
    {
        return Err(format!("{place}.image.source.base64: no image of a known type").into());
    }
    Ok(())
}

fn check_result(place: &str, block: &Value) -> Result<(), Refusal> {
    for (at, inner) in items(&block["content"]).iter().enumerate() {
        let place = format!("{place}.tool_result.content.{at}");
        match text(&inner["type"]) {
            "text" => check_text(&place, inner)?,
            "image" if block["is_error"] == true => {
                return Err(format!(
                    "{place}: all content must be type `text` if `is_error` is true"
                )
                .into());
            }
            "image" => check_image(&place, inner)?,
            other => return Err(format!("{place}: no block of a tool result: {other}").into()),
        }
    }
    Ok(())
}

fn ids<'a>(message: &'a Value, kind: &'a str, field: &'a str) -> impl Iterator<Item = &'a str> {
    let blocks = items(&message["content"]).iter().filter(move |block| block["type"] == kind);
    blocks.map(move |block| text(&block[field]))
}

/// Each `tool_use` of one message has its `tool_result` in the next, and the other way
/// round; results come before all else.
fn check_pairs(messages: &[Value], index: usize) -> Result<(), Refusal> {
    let message = &messages[index];
    let before: Vec<&str> = match index {
        0 => Vec::new(),
        _ => ids(&messages[index - 1], "tool_use", "id").collect(),
    };
    let results: Vec<&str> = ids(message, "tool_result", "tool_use_id").collect();
    if let Some(id) = results.iter().find(|id| !before.contains(id)) {
        return Err(format!(
            "messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
        )
        .into());
    }
    if let Some(id) = duplicate(results.iter().copied()) {
        return Err(format!("messages.{index}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}").into());
    }
    let kinds: Vec<bool> =
        items(&message["content"]).iter().map(|block| block["type"] == "tool_result").collect();
    let unanswered = before.iter().find(|id| !results.contains(id));
    if unanswered.is_some() || kinds.iter().skip_while(|is| **is).any(|is| *is) {
        return Err(format!(
            "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
            index.saturating_sub(1),
            unanswered.unwrap_or(&"some that stand behind other content"),
        )
        .into());
    }
    Ok(())
}

/// How many blocks carry `cache_control`; arguments and schemas may have such a name.
fn cache_marks(value: &Value) -> usize {
    match value {
        Value::Array(list) => list.iter().map(cache_marks).sum(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match key.as_str() {
                "input" | "input_schema" => 0,
                "cache_control" => usize::from(!value.is_null()),
                _ => cache_marks(value),
            })
            .sum(),
        _ => 0,
    }
}

pub(super) fn events(answer: &Answer, asked: &Asked<'_>) -> Vec<Vec<u8>> {
    let usage = answer.usage;
    let mut events = vec![
        named(
            "message_start",
            &json!({"type": "message_start", "message": {
                "id": format!("msg_{}", asked.number), "type": "message", "role": "assistant",
                "model": asked.model, "content": [], "stop_reason": null, "stop_sequence": null,
                "usage": {
                    "input_tokens": usage.input,
                    "cache_creation_input_tokens": usage.cache_write,
                    "cache_read_input_tokens": usage.cache_read,
                    "output_tokens": 1,
                },
            }}),
        ),
        named("ping", &json!({"type": "ping"})),
    ];
    for (index, (block, pieces)) in answer.blocks.iter().enumerate() {
        let (start, kind, field) = match block {
            Block::Text => (json!({"type": "text", "text": ""}), "text_delta", "text"),
            Block::Thinking { .. } => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                "thinking_delta",
                "thinking",
            ),
            Block::Redacted { data } => {
                (json!({"type": "redacted_thinking", "data": data}), "", "")
            }
            Block::Call { id, name } => (
                json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
                "input_json_delta",
                "partial_json",
            ),
        };
        let delta = |delta: Value| {
            let data = json!({"type": "content_block_delta", "index": index, "delta": delta});
            named("content_block_delta", &data)
        };
        events.push(named(
            "content_block_start",
            &json!({"type": "content_block_start", "index": index, "content_block": start}),
        ));
        events.extend(pieces.iter().map(|piece| delta(json!({"type": kind, field: piece}))));
        if let Block::Thinking { signature } = block {
            events.push(delta(json!({"type": "signature_delta", "signature": signature})));
        }
        let stop = json!({"type": "content_block_stop", "index": index});
        events.push(named("content_block_stop", &stop));
    }
    let stop = match answer.stops_for() {
        Stop::End => "end_turn",
        Stop::ToolUse => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Refusal => "refusal",
    };
    events.push(named(
        "message_delta",
        &json!({
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": null},
            "usage": {"output_tokens": usage.output},
        }),
    ));
    events.push(named("message_stop", &json!({"type": "message_stop"})));
    events
}
