//! A request as the body of a chat completion. What the servers differ in is asked of
//! `compat`; ids of calls are those that `ids` gives.

use serde_json::{Map, Value, json};
use wharf_protocol::message::{ImageContent, joined_text};
use wharf_protocol::{
    AgentMessage, AssistantContent, AssistantMessage, ContentBlock, ThinkingLevel, ToolCall,
    ToolResultMessage, UserContent,
};

use super::compat::{FillReasoning, Profile, ThinkingFormat};
use super::ids::CallIds;
use crate::api::{Endpoint, HttpRequest};
use crate::prepare::function_name;
use crate::{Request, ToolDefinition};

/// Fields of a message that thinking comes in, in the order in which they are looked at;
/// a thinking block's signature is the name of its field.
pub(super) const THINKING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

/// The signature of thinking that was a part of `content`, as Mistral has it.
pub(super) const CONTENT_FIELD: &str = "content";

/// Stands where a server would refuse to see nothing.
const NO_OUTPUT: &str = "(no output)";
const NO_TEXT: &str = "(empty message)";

/// Stands between tool results and a user message for servers that want an assistant there.
const AFTER_RESULTS: &str = "I have the results of the tools.";

/// Bytes of a cache key that OpenAI takes.
const MAX_CACHE_KEY: usize = 64;

pub(super) fn request(request: &Request, endpoint: &Endpoint) -> HttpRequest {
    let profile = Profile::new(&endpoint.compat, &request.model, &endpoint.base_url);
    let mut headers = Vec::new();
    if let Some(key) = &endpoint.api_key {
        headers.push(("authorization", format!("Bearer {key}")));
    }
    HttpRequest {
        url: format!("{}/chat/completions", endpoint.base_url),
        headers,
        body: Value::Object(body(request, profile)),
    }
}

fn body(request: &Request, profile: Profile) -> Map<String, Value> {
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("model", json!(request.model.id));
    let has_calls = request.messages.iter().any(|message| match message.as_ref() {
        AgentMessage::Assistant(reply) => reply.tool_calls().next().is_some(),
        _ => false,
    });
    if !request.tools.is_empty() || (profile.empty_tools && has_calls) {
        let tools = request.tools.iter().map(|tool| definition(tool, profile.strict_mode));
        set("tools", tools.collect());
    }
    set("stream", json!(true));
    if profile.usage_in_streaming {
        set("stream_options", json!({"include_usage": true}));
    }
    set(profile.max_tokens_field.name(), json!(request.output_budget()));
    if profile.store {
        set("store", json!(false));
    }
    if let (true, Some(session)) = (profile.prompt_cache_key, &request.session_id) {
        set("prompt_cache_key", json!(session.chars().take(MAX_CACHE_KEY).collect::<String>()));
    }
    if request.model.reasoning {
        for (name, value) in thinking(request.thinking_level, &profile) {
            set(name, value);
        }
    }
    if let Some(routing) = &profile.open_router_routing {
        set("provider", json!(routing));
    }
    if let Some(routing) = &profile.vercel_gateway_routing {
        set("providerOptions", json!({"gateway": routing}));
    }
    set("messages", Value::Array(messages(request, profile)));
    body
}

fn definition(tool: &ToolDefinition, says_strict: bool) -> Value {
    let mut function = json!({
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    });
    if says_strict {
        // Strict schemas must list every property as required; those of tools do not.
        function["strict"] = json!(false);
    }
    json!({"type": "function", "function": function})
}

/// The fields that tell a model that reasons how much to.
fn thinking(level: ThinkingLevel, profile: &Profile) -> Vec<(&'static str, Value)> {
    let effort = match profile.effort_map.get(&level) {
        Some(mapped) => mapped.clone(),
        None => (level != ThinkingLevel::Off).then(|| level.as_str().to_owned()),
    };
    let on = level != ThinkingLevel::Off;
    let flag = match profile.thinking_format {
        ThinkingFormat::OpenAi => None,
        ThinkingFormat::OpenRouter => {
            return effort
                .map(|effort| ("reasoning", json!({"effort": effort})))
                .into_iter()
                .collect();
        }
        ThinkingFormat::Zai => {
            Some(("thinking", json!({"type": if on { "enabled" } else { "disabled" }})))
        }
        ThinkingFormat::Qwen => Some(("enable_thinking", json!(on))),
        ThinkingFormat::QwenChatTemplate => {
            Some(("chat_template_kwargs", json!({"enable_thinking": on})))
        }
    };
    let effort = effort.filter(|_| profile.reasoning_effort);
    flag.into_iter().chain(effort.map(|effort| ("reasoning_effort", json!(effort)))).collect()
}

fn messages(request: &Request, profile: Profile) -> Vec<Value> {
    let marks = profile.cache_marks;
    let mut conversation = Conversation {
        ids: CallIds::new(profile.call_id_form),
        fill: if request.model.reasoning { profile.fill_reasoning } else { FillReasoning::None },
        profile,
        sent: Vec::with_capacity(request.messages.len() + 1),
        user: Vec::new(),
        images: Vec::new(),
    };
    if !request.system_prompt.trim().is_empty() {
        let developer = conversation.profile.developer_role && request.model.reasoning;
        let role = if developer { "developer" } else { "system" };
        conversation.sent.push(json!({"role": role, "content": &*request.system_prompt}));
    }
    for message in &request.messages {
        match message.as_ref() {
            AgentMessage::User(user) => conversation.user(&user.content),
            AgentMessage::Assistant(reply) => conversation.assistant(reply),
            AgentMessage::ToolResult(result) => conversation.result(result),
            // They were turned into user messages, or are not for models.
            AgentMessage::BashExecution(_)
            | AgentMessage::Custom(_)
            | AgentMessage::BranchSummary(_)
            | AgentMessage::CompactionSummary(_) => {}
        }
    }
    conversation.end_user();
    if marks {
        mark(&mut conversation.sent);
    }
    conversation.sent
}

struct Conversation {
    profile: Profile,
    fill: FillReasoning,
    ids: CallIds,
    sent: Vec<Value>,
    /// Parts of the user message under way: what users say in a row is one message.
    user: Vec<Value>,
    /// Images of the tool results under way; a result itself can only have text.
    images: Vec<Value>,
}

impl Conversation {
    fn user(&mut self, content: &UserContent) {
        self.user.append(&mut self.images);
        let before = self.user.len();
        match content {
            UserContent::Text(text) => self.user.extend(text_part(text)),
            UserContent::Blocks(blocks) => {
                self.user.extend(blocks.iter().filter_map(|block| match block {
                    ContentBlock::Text(text) => text_part(&text.text),
                    ContentBlock::Image(image) => Some(image_part(image)),
                }));
            }
        }
        if self.user.len() == before {
            self.user.extend(text_part(NO_TEXT));
        }
    }

    /// Sends the user message under way: as a string where it is text only, which is
    /// what every server takes.
    fn end_user(&mut self) {
        self.user.append(&mut self.images);
        let parts = std::mem::take(&mut self.user);
        if parts.is_empty() {
            return;
        }
        let after_results = self.sent.last().is_some_and(|message| message["role"] == "tool");
        if after_results && self.profile.assistant_after_tool_result {
            self.sent.push(json!({"role": "assistant", "content": AFTER_RESULTS}));
        }
        let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        let content = if texts.len() == parts.len() {
            Value::String(texts.join("\n\n"))
        } else {
            Value::Array(parts)
        };
        self.sent.push(json!({"role": "user", "content": content}));
    }

    fn result(&mut self, result: &ToolResultMessage) {
        // Results follow their calls; a user message that is still open is not in between.
        let id = self.ids.get(&result.tool_call_id);
        let mut text = joined_text(&result.content);
        let images: Vec<Value> = result
            .content
            .iter()
            .filter_map(|block| match block {
                ContentBlock::Image(image) => Some(image_part(image)),
                ContentBlock::Text(_) => None,
            })
            .collect();
        if !images.is_empty() {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(match images.len() {
                1 => "[the image of this result is in the next user message]",
                _ => "[the images of this result are in the next user message]",
            });
            let name = function_name(&result.tool_name);
            self.images.extend(text_part(&format!("[result of {name}, call {id}:]")));
            self.images.extend(images);
        }
        if text.trim().is_empty() {
            NO_OUTPUT.clone_into(&mut text);
        }
        let mut message = json!({"role": "tool", "tool_call_id": id, "content": text});
        if self.profile.tool_result_name {
            message["name"] = json!(function_name(&result.tool_name));
        }
        self.sent.push(message);
    }

    fn assistant(&mut self, reply: &AssistantMessage) {
        let thinking_back = self.profile.thinking_back && !self.profile.thinking_as_text;
        // `content`, and fields beside it.
        let mut parts: Vec<Value> = Vec::new();
        let mut has_text = false;
        let mut beside: Map<String, Value> = Map::new();
        for block in &reply.content {
            match block {
                AssistantContent::Text(text) => {
                    has_text |= !text.text.trim().is_empty();
                    parts.extend(text_part(&text.text));
                }
                AssistantContent::Thinking(thought) => {
                    let text = &thought.thinking;
                    if thought.redacted || text.trim().is_empty() {
                        continue;
                    }
                    let field = thought.thinking_signature.as_deref().unwrap_or_default();
                    if self.profile.thinking_as_text {
                        has_text = true;
                        parts.extend(text_part(text));
                    } else if thinking_back && field == CONTENT_FIELD {
                        parts.push(json!({"type": "thinking", "thinking": text_part(text)
                            .into_iter().collect::<Vec<_>>()}));
                    } else if thinking_back && THINKING_FIELDS.contains(&field) {
                        append(&mut beside, field, text);
                    }
                }
                AssistantContent::ToolCall(_) => {}
            }
        }
        let has_calls = reply.tool_calls().next().is_some();
        if !has_text && !has_calls {
            // Nothing is left of it that a server would take.
            return;
        }
        self.end_user();
        let calls: Vec<Value> = reply.tool_calls().map(|call| self.call(call)).collect();
        let details = self.details(reply);
        let mut message = json!({"role": "assistant", "content": content(parts)});
        if !details.is_empty() {
            // They have the same thoughts, and have them whole.
            beside.shift_remove("reasoning");
            beside.insert("reasoning_details".to_owned(), Value::Array(details));
        }
        let fill = match self.fill {
            FillReasoning::None => false,
            FillReasoning::Calls => has_calls,
            FillReasoning::Replies => true,
        };
        if fill {
            beside.entry("reasoning_content").or_insert_with(|| json!(""));
        }
        if has_calls {
            beside.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        if let Value::Object(message) = &mut message {
            message.append(&mut beside);
        }
        self.sent.push(message);
    }

    fn call(&mut self, call: &ToolCall) -> Value {
        json!({
            "id": self.ids.get(&call.id),
            "type": "function",
            "function": {
                "name": function_name(&call.name),
                "arguments": json!(call.arguments).to_string(),
            },
        })
    }

    /// What OpenRouter wants to see again: its `reasoning_details`, which the calls kept.
    fn details(&self, reply: &AssistantMessage) -> Vec<Value> {
        let kept = reply.tool_calls().filter_map(|call| call.thought_signature.as_deref());
        let mut details = Vec::new();
        for text in kept {
            if let Ok(Value::Array(list)) = serde_json::from_str(text) {
                details.extend(list.into_iter().filter(Value::is_object));
            }
        }
        for detail in &mut details {
            // Google's thoughts have the id of the call that they led to.
            if let Some(sent) = detail["id"].as_str().and_then(|id| self.ids.known(id)) {
                detail["id"] = json!(sent);
            }
        }
        details
    }
}

/// Text as a string; a list only where thinking is among it.
fn content(parts: Vec<Value>) -> Value {
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    if texts.len() < parts.len() {
        Value::Array(parts)
    } else if texts.is_empty() {
        Value::Null
    } else {
        Value::String(texts.join("\n"))
    }
}

fn append(fields: &mut Map<String, Value>, name: &str, text: &str) {
    match fields.get_mut(name) {
        Some(Value::String(before)) => {
            before.push('\n');
            before.push_str(text);
        }
        _ => {
            fields.insert(name.to_owned(), json!(text));
        }
    }
}

/// None for text that is blank: some servers refuse such a part.
fn text_part(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn image_part(image: &ImageContent) -> Value {
    let url = format!("data:{};base64,{}", image.mime_type, image.data);
    json!({"type": "image_url", "image_url": {"url": url}})
}

/// Marks where a cached prefix may end: after the system prompt, and after the last text
/// of the conversation.
fn mark(messages: &mut [Value]) {
    let has_role = |message: &Value, roles: &[&str]| {
        message["role"].as_str().is_some_and(|role| roles.contains(&role))
            && !message["content"].is_null()
    };
    let last = messages.iter().rposition(|message| has_role(message, &["user", "assistant"]));
    let first = messages.iter().position(|message| has_role(message, &["system"]));
    for at in first.into_iter().chain(last) {
        let content = &mut messages[at]["content"];
        if content.is_string() {
            *content = json!([{"type": "text", "text": content.take()}]);
        }
        let mut parts = content.as_array_mut().into_iter().flatten();
        if let Some(part) = parts.rfind(|part| part["type"] == "text") {
            part["cache_control"] = json!({"type": "ephemeral"});
        }
    }
}
