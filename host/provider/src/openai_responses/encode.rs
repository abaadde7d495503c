//! The request of a reply: the conversation as input items.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use wharf_protocol::message::joined_text;
use wharf_protocol::{
    AgentMessage, AssistantContent, AssistantMessage, ContentBlock, ImageContent, Model,
    ThinkingContent, ThinkingLevel, ToolCall, ToolResultMessage, UserContent, UserMessage,
};

use super::TextSignature;
use super::effort::effort;
use crate::api::{Endpoint, HttpRequest};
use crate::prepare::function_name;
use crate::{Request, ToolDefinition};

/// What the server takes as `max_output_tokens` at least.
const MIN_OUTPUT_TOKENS: u64 = 16;

/// Characters that the server takes in a call's id, an item's id and the cache key.
const MAX_ID_CHARS: usize = 64;

/// Stands for a message or a result in which there is nothing: the server wants content.
const EMPTY_MESSAGE: &str = "(empty message)";
const EMPTY_OUTPUT: &str = "(no output)";

pub(super) fn encode(request: &Request, endpoint: &Endpoint) -> HttpRequest {
    let model = &request.model;
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| body.insert(key.to_owned(), value);
    put("model", json!(model.id));
    if !request.system_prompt.is_empty() {
        put("instructions", json!(&*request.system_prompt));
    }
    put("input", Value::Array(Input::new(model).read(&request.messages)));
    put("stream", json!(true));
    put("store", json!(false));
    put("max_output_tokens", json!(request.output_budget().max(MIN_OUTPUT_TOKENS)));
    if !request.tools.is_empty() {
        put("tools", request.tools.iter().map(tool).collect());
    }
    if model.reasoning {
        put("include", json!(["reasoning.encrypted_content"]));
        if let Some(reasoning) = reasoning(request, &endpoint.compat) {
            put("reasoning", reasoning);
        }
    }
    if let Some(session) = &request.session_id {
        put("prompt_cache_key", json!(valid_id(session)));
    }
    let headers =
        endpoint.api_key.iter().map(|key| ("authorization", format!("Bearer {key}"))).collect();
    HttpRequest {
        url: format!("{}/responses", endpoint.base_url),
        headers,
        body: Value::Object(body),
    }
}

fn reasoning(request: &Request, compat: &Value) -> Option<Value> {
    if compat["supportsReasoningEffort"] == false {
        return None;
    }
    let level = request.thinking_level;
    let mapped = compat["reasoningEffortMap"][level.as_str()].as_str();
    let effort = mapped.or_else(|| effort(&request.model.id, level))?;
    Some(if level == ThinkingLevel::Off {
        json!({"effort": effort})
    } else {
        json!({"effort": effort, "summary": "auto"})
    })
}

fn tool(tool: &ToolDefinition) -> Value {
    // The server refuses a schema that is not plainly an object's.
    let mut parameters = tool.parameters.as_object().cloned().unwrap_or_default();
    parameters.entry("type").or_insert_with(|| json!("object"));
    parameters.entry("properties").or_insert_with(|| json!({}));
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters,
        "strict": false,
    })
}

/// The items of a conversation, while it is read from its beginning.
struct Input<'a> {
    model: &'a Model,
    items: Vec<Value>,
    call_ids: CallIds,
    /// Ids of items that stand in the input: the server refuses the same one twice.
    item_ids: HashSet<String>,
}

impl<'a> Input<'a> {
    fn new(model: &'a Model) -> Self {
        Self { model, items: Vec::new(), call_ids: CallIds::default(), item_ids: HashSet::new() }
    }

    fn read(mut self, messages: &[Arc<AgentMessage>]) -> Vec<Value> {
        for message in messages {
            match message.as_ref() {
                AgentMessage::User(message) => self.items.push(user(message)),
                AgentMessage::Assistant(reply) => self.reply(reply),
                AgentMessage::ToolResult(result) => {
                    let call_id = self.call_ids.sent(&result.tool_call_id);
                    self.items.push(output(call_id, result));
                }
                // A request has none of these.
                AgentMessage::BashExecution(_)
                | AgentMessage::Custom(_)
                | AgentMessage::BranchSummary(_)
                | AgentMessage::CompactionSummary(_) => {}
            }
        }
        if self.items.is_empty() {
            self.items.push(user_item(vec![input_text(EMPTY_MESSAGE)]));
        }
        self.items
    }

    fn reply(&mut self, reply: &AssistantMessage) {
        let is_own = reply.provider == self.model.provider
            && reply.api == self.model.api
            && reply.model == self.model.id;
        // The server knows what it made in one go: it refuses an item that comes with its
        // id but without the reasoning before it. Without an id it is taken as it is.
        let mut with_ids = is_own;
        let start = self.items.len();
        for block in &reply.content {
            match block {
                AssistantContent::Thinking(thinking) => {
                    let item = reasoning_item(thinking).filter(|item| {
                        item["id"].as_str().is_none_or(|id| self.item_ids.insert(id.to_owned()))
                    });
                    with_ids = is_own && item.is_some();
                    self.items.extend(item);
                }
                AssistantContent::Text(text) if text.text.is_empty() => {}
                AssistantContent::Text(text) => {
                    let signature = text.text_signature.as_deref().unwrap_or_default();
                    let TextSignature { id, phase } = TextSignature::read(signature);
                    let mut item = json!({
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": text.text, "annotations": []}],
                        "status": "completed",
                    });
                    if with_ids && id.starts_with("msg_") && self.claim(&id) {
                        item["id"] = json!(id);
                    }
                    if let Some(phase) = phase {
                        item["phase"] = json!(phase);
                    }
                    self.items.push(item);
                }
                AssistantContent::ToolCall(call) => {
                    let item = self.call(call, with_ids);
                    self.items.push(item);
                }
            }
        }
        // Reasoning must be followed by what it led to.
        while self.items.len() > start
            && self.items.last().is_some_and(|item| item["type"] == "reasoning")
        {
            self.items.pop();
        }
    }

    fn call(&mut self, call: &ToolCall, with_ids: bool) -> Value {
        let mut item = json!({
            "type": "function_call",
            "call_id": self.call_ids.sent(&call.id),
            "name": function_name(&call.name),
            "arguments": Value::Object(call.arguments.clone()).to_string(),
        });
        if let Some((_, id)) = call.id.split_once('|')
            && with_ids
            && id.starts_with("fc_")
            && self.claim(id)
        {
            item["id"] = json!(id);
        }
        item
    }

    /// True where an item's id may be sent.
    fn claim(&mut self, id: &str) -> bool {
        is_valid_id(id) && self.item_ids.insert(id.to_owned())
    }
}

/// The reasoning item that a thinking block's signature holds; none where the server
/// could make nothing of it.
fn reasoning_item(thinking: &ThinkingContent) -> Option<Value> {
    let mut item: Value = serde_json::from_str(thinking.thinking_signature.as_deref()?).ok()?;
    let is_whole = item["type"] == "reasoning"
        && item["encrypted_content"].as_str().is_some_and(|content| !content.is_empty());
    if !is_whole {
        return None;
    }
    item.as_object_mut()?.entry("summary").or_insert_with(|| json!([]));
    Some(item)
}

fn user(message: &UserMessage) -> Value {
    let mut parts = match &message.content {
        UserContent::Text(text) if text.is_empty() => Vec::new(),
        UserContent::Text(text) => vec![input_text(text)],
        UserContent::Blocks(blocks) => input_parts(blocks),
    };
    if parts.is_empty() {
        parts.push(input_text(EMPTY_MESSAGE));
    }
    user_item(parts)
}

fn user_item(parts: Vec<Value>) -> Value {
    json!({"role": "user", "content": parts})
}

fn output(call_id: String, result: &ToolResultMessage) -> Value {
    let parts = input_parts(&result.content);
    let output = if parts.iter().any(|part| part["type"] == "input_image") {
        Value::Array(parts)
    } else {
        let text = joined_text(&result.content);
        json!(if text.is_empty() { EMPTY_OUTPUT } else { &text })
    };
    json!({"type": "function_call_output", "call_id": call_id, "output": output})
}

fn input_parts(blocks: &[ContentBlock]) -> Vec<Value> {
    let part = |block: &ContentBlock| match block {
        ContentBlock::Text(text) => (!text.text.is_empty()).then(|| input_text(&text.text)),
        ContentBlock::Image(ImageContent { data, .. }) if data.is_empty() => None,
        ContentBlock::Image(ImageContent { data, mime_type }) => Some(json!({
            "type": "input_image",
            "detail": "auto",
            "image_url": format!("data:{mime_type};base64,{data}"),
        })),
    };
    blocks.iter().filter_map(part).collect()
}

fn input_text(text: &str) -> Value {
    json!({"type": "input_text", "text": text})
}

/// The ids of calls as the server is sent them. A call and its result get the same one,
/// and two calls never do.
#[derive(Default)]
struct CallIds {
    /// By the conversation's id.
    sent: HashMap<String, String>,
    used: HashSet<String>,
}

impl CallIds {
    fn sent(&mut self, id: &str) -> String {
        if let Some(sent) = self.sent.get(id) {
            return sent.clone();
        }
        let mut sent = valid_id(id.split('|').next().unwrap_or_default());
        if !self.used.insert(sent.clone()) {
            sent = hashed_id(id);
            self.used.insert(sent.clone());
        }
        self.sent.insert(id.to_owned(), sent.clone());
        sent
    }
}

fn is_valid_id(id: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !id.is_empty() && id.len() <= MAX_ID_CHARS && id.chars().all(is_valid)
}

/// The id, or one of its own that the server takes.
fn valid_id(id: &str) -> String {
    if is_valid_id(id) { id.to_owned() } else { hashed_id(id) }
}

/// An id from another id's hash (FNV-1a, 64 bits): the same one in every request, so
/// that the server's prompt cache finds what it knows.
fn hashed_id(id: &str) -> String {
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("id_{hash:016x}")
}
