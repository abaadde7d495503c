//! The request of a reply: the conversation as contents, whose roles alternate.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use wharf_protocol::message::joined_text;
use wharf_protocol::{
    AgentMessage, AssistantContent, AssistantMessage, ContentBlock, ImageContent,
    ToolResultMessage, UserContent,
};

use super::thinking::Family;
use crate::api::{Endpoint, HttpRequest};
use crate::{Request, ToolDefinition};

/// Gemini 3 refuses the first function call of a step if it has no signature. This value
/// is Google's own for calls that the model has not made (page "Thought signatures").
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Stands where there is nothing: the server wants content.
const EMPTY_MESSAGE: &str = "(empty message)";
const EMPTY_OUTPUT: &str = "(no output)";
const IMAGE_OUTPUT: &str = "(see the image)";

/// Stands before a conversation whose beginning is a reply.
const NO_BEGINNING: &str = "(the conversation begins with a reply)";

pub(super) fn encode(request: &Request, endpoint: &Endpoint) -> HttpRequest {
    let family = Family::of(&request.model.id);
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| body.insert(key.to_owned(), value);
    put("contents", contents(request, endpoint, family));
    if !request.system_prompt.is_empty() {
        put("systemInstruction", json!({"parts": [{"text": &*request.system_prompt}]}));
    }
    if !request.tools.is_empty() {
        let declarations: Vec<Value> = request.tools.iter().map(declaration).collect();
        put("tools", json!([{"functionDeclarations": declarations}]));
    }
    let mut config = json!({"maxOutputTokens": request.output_budget()});
    if let Some(thinking) = family.config(request) {
        config["thinkingConfig"] = thinking;
    }
    put("generationConfig", config);
    let header = |key: &String| {
        if endpoint.auth_header {
            ("authorization", format!("Bearer {key}"))
        } else {
            ("x-goog-api-key", key.clone())
        }
    };
    let id = request.model.id.strip_prefix("models/").unwrap_or(&request.model.id);
    HttpRequest {
        url: format!("{}/models/{id}:streamGenerateContent?alt=sse", endpoint.base_url),
        headers: endpoint.api_key.iter().map(header).collect(),
        body: Value::Object(body),
    }
}

fn declaration(tool: &ToolDefinition) -> Value {
    let mut declaration = json!({"name": tool.name, "description": tool.description});
    if tool.parameters.is_object() {
        declaration["parametersJsonSchema"] = tool.parameters.clone();
    }
    declaration
}

fn contents(request: &Request, endpoint: &Endpoint, family: Family) -> Value {
    let is_gemini_3 = matches!(family, Family::Gemini3(_));
    let model = &request.model;
    // Older models and other services (Vertex AI, proxies) refuse the field.
    let takes_ids =
        is_gemini_3 && endpoint.base_url.contains("://generativelanguage.googleapis.com");
    let mut contents = Contents::default();
    // The last reply's calls, where they were sent with their ids.
    let mut with_id = HashSet::new();
    for message in &request.messages {
        match message.as_ref() {
            AgentMessage::User(user) => {
                let mut parts: Vec<Value> = match &user.content {
                    UserContent::Text(text) => text_part(text).into_iter().collect(),
                    UserContent::Blocks(blocks) => blocks.iter().filter_map(part).collect(),
                };
                if parts.is_empty() {
                    parts = vec![json!({"text": EMPTY_MESSAGE})];
                }
                contents.add("user", parts);
            }
            AgentMessage::Assistant(reply) => {
                // An id that another API made is none of this one's.
                let own_ids = takes_ids
                    && reply.provider == model.provider
                    && reply.api == model.api
                    && reply.model == model.id;
                with_id.clear();
                if own_ids {
                    with_id.extend(reply.tool_calls().map(|call| call.id.as_str()));
                }
                contents.add("model", reply_parts(reply, own_ids));
            }
            AgentMessage::ToolResult(result) => {
                let has_id = with_id.contains(result.tool_call_id.as_str());
                contents.add("user", result_parts(result, has_id));
            }
            // A request has none of these.
            AgentMessage::BashExecution(_)
            | AgentMessage::Custom(_)
            | AgentMessage::BranchSummary(_)
            | AgentMessage::CompactionSummary(_) => {}
        }
    }
    if contents.list.is_empty() {
        contents.add("user", vec![json!({"text": EMPTY_MESSAGE})]);
    }
    let list = contents.list.into_iter().map(|(role, mut parts)| {
        if is_gemini_3 && role == "model" {
            sign_first_call(&mut parts);
        }
        json!({"role": role, "parts": parts})
    });
    list.collect()
}

/// Contents whose roles alternate, the user's first.
#[derive(Default)]
struct Contents {
    list: Vec<(&'static str, Vec<Value>)>,
}

impl Contents {
    fn add(&mut self, role: &'static str, parts: Vec<Value>) {
        if parts.is_empty() {
            return;
        }
        match self.list.last_mut() {
            Some((last, before)) if *last == role => before.extend(parts),
            None if role == "model" => {
                self.list.push(("user", vec![json!({"text": NO_BEGINNING})]));
                self.list.push((role, parts));
            }
            _ => self.list.push((role, parts)),
        }
    }
}

/// A reply's parts; none where nothing of it can be sent. Thoughts alone are no reply.
fn reply_parts(reply: &AssistantMessage, own_ids: bool) -> Vec<Value> {
    let signed = |mut part: Value, signature: Option<&String>| {
        if let Some(signature) = signature.filter(|signature| is_base64(signature)) {
            part["thoughtSignature"] = json!(signature);
        }
        part
    };
    let parts: Vec<Value> = reply
        .content
        .iter()
        .filter_map(|block| match block {
            AssistantContent::Thinking(thinking) => {
                let mut part = text_part(&thinking.thinking)?;
                part["thought"] = json!(true);
                Some(signed(part, thinking.thinking_signature.as_ref()))
            }
            AssistantContent::Text(text) => {
                Some(signed(text_part(&text.text)?, text.text_signature.as_ref()))
            }
            AssistantContent::ToolCall(call) => {
                let mut function = json!({"name": call.name, "args": call.arguments});
                if own_ids {
                    function["id"] = json!(call.id);
                }
                let part = json!({"functionCall": function});
                Some(signed(part, call.thought_signature.as_ref()))
            }
        })
        .collect();
    if parts.iter().all(|part| part["thought"] == true) { Vec::new() } else { parts }
}

/// In a reply with several calls only the first one has a signature, and must have one.
fn sign_first_call(parts: &mut [Value]) {
    let first = parts.iter_mut().find(|part| part.get("functionCall").is_some());
    if let Some(part) = first
        && part.get("thoughtSignature").is_none()
    {
        part["thoughtSignature"] = json!(NO_SIGNATURE);
    }
}

/// The result itself, and its images beside it.
fn result_parts(result: &ToolResultMessage, has_id: bool) -> Vec<Value> {
    let images = result.content.iter().filter(|block| matches!(block, ContentBlock::Image(_)));
    let images: Vec<Value> = images.filter_map(part).collect();
    let text = match joined_text(&result.content) {
        text if !text.is_empty() => text,
        _ if images.is_empty() => EMPTY_OUTPUT.to_owned(),
        _ => IMAGE_OUTPUT.to_owned(),
    };
    let key = if result.is_error { "error" } else { "output" };
    let mut response = json!({"name": result.tool_name, "response": {key: text}});
    if has_id {
        response["id"] = json!(result.tool_call_id);
    }
    let mut parts = vec![json!({"functionResponse": response})];
    parts.extend(images);
    parts
}

fn part(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text(text) => text_part(&text.text),
        ContentBlock::Image(ImageContent { data, .. }) if data.is_empty() => None,
        ContentBlock::Image(ImageContent { data, mime_type }) => {
            Some(json!({"inlineData": {"mimeType": mime_type, "data": data}}))
        }
    }
}

fn text_part(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| json!({"text": text}))
}

/// The server decodes a signature before anything else, and refuses the whole request
/// where it cannot.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let is_digit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_');
    !body.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.chars().all(is_digit)
}
