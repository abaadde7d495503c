//! The conversation as the API takes it. It is strict: the roles alternate, the first is
//! the user; all results of a message's calls come first in the message that follows it;
//! no text is blank; ids have an alphabet. What does not fit is brought into this shape
//! here, whatever the conversation looks like.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};
use wharf_protocol::{
    AgentMessage, AssistantContent, AssistantMessage, ContentBlock, ToolResultMessage, UserContent,
};

/// What the model takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Earlier thinking goes back to it.
    pub(super) keep_thinking: bool,
    /// The conversation may end with the model's own words, which it continues.
    pub(super) may_end_with_assistant: bool,
}

/// The user's words where the API wants some and there are none.
const FILLER: &str = "Continue.";

/// A result must not be empty if it is an error; a blank text it must never be.
const NO_OUTPUT: &str = "(no output)";

/// The result of a call that has none.
const NO_RESULT: &str = "(no result: the call was not run to its end)";

/// The media types of images that the API takes.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Characters of a call's id.
const MAX_ID: usize = 64;

pub(super) fn encode(list: &[Arc<AgentMessage>], shape: Shape) -> Vec<Value> {
    let mut conversation = Conversation { shape, ..Conversation::default() };
    for message in list {
        match message.as_ref() {
            AgentMessage::User(user) => match &user.content {
                UserContent::Text(words) => conversation.user.extend(non_blank(words)),
                UserContent::Blocks(blocks) => {
                    conversation.user.extend(blocks.iter().filter_map(content_block));
                }
            },
            AgentMessage::Assistant(reply) => conversation.reply(reply),
            AgentMessage::ToolResult(result) => conversation.result(result),
            // The agent has turned these into user messages.
            AgentMessage::BashExecution(_)
            | AgentMessage::Custom(_)
            | AgentMessage::BranchSummary(_)
            | AgentMessage::CompactionSummary(_) => {}
        }
    }
    conversation.finish()
}

impl Default for Shape {
    fn default() -> Self {
        Self { keep_thinking: true, may_end_with_assistant: true }
    }
}

/// A call whose result is due in the next user message.
struct Call {
    /// As it stands in the conversation.
    id: String,
    /// As it is sent.
    sent: String,
    answered: bool,
}

#[derive(Default)]
struct Conversation {
    shape: Shape,
    sent: Vec<Value>,
    /// The user message under way: results first, then everything else.
    results: Vec<Value>,
    user: Vec<Value>,
    calls: Vec<Call>,
    /// Some servers begin to count anew with every reply; the API wants ids to be unique.
    ids: HashSet<String>,
}

impl Conversation {
    fn reply(&mut self, reply: &AssistantMessage) {
        let mut calls = Vec::new();
        let mut blocks: Vec<Value> = Vec::new();
        let mut first_call = None;
        for block in &reply.content {
            match block {
                // Nothing but calls may follow a call.
                AssistantContent::Text(words) => {
                    if let Some(block) = non_blank(&words.text) {
                        match &mut first_call {
                            Some(at) => {
                                blocks.insert(*at, block);
                                *at += 1;
                            }
                            None => blocks.push(block),
                        }
                    }
                }
                AssistantContent::Thinking(thought) => {
                    // Without its signature the API does not take it back.
                    let signature = thought.thinking_signature.as_deref().unwrap_or_default();
                    if !self.shape.keep_thinking || signature.is_empty() {
                        continue;
                    }
                    blocks.push(if thought.redacted {
                        json!({"type": "redacted_thinking", "data": signature})
                    } else {
                        json!({
                            "type": "thinking",
                            // May be empty: some models show nothing but the signature.
                            "thinking": thought.thinking,
                            "signature": signature,
                        })
                    });
                }
                AssistantContent::ToolCall(call) => {
                    first_call.get_or_insert(blocks.len());
                    let sent = self.unique_id(&call.id);
                    blocks.push(json!({
                        "type": "tool_use",
                        "id": sent,
                        "name": call.name,
                        "input": call.arguments,
                    }));
                    calls.push(Call { id: call.id.clone(), sent, answered: false });
                }
            }
        }
        // A message cannot end with a thought: one that was interrupted there.
        while blocks.last().is_some_and(is_thinking) {
            blocks.pop();
        }
        if blocks.is_empty() {
            return;
        }
        self.end_user_message();
        self.calls = calls;
        if let Some(before) = self.sent.last_mut()
            && before["role"] == "assistant"
        {
            if let Some(content) = before["content"].as_array_mut() {
                content.extend(blocks);
            }
            return;
        }
        if self.sent.is_empty() {
            self.sent.push(message("user", vec![text(FILLER)]));
        }
        self.sent.push(message("assistant", blocks));
    }

    /// A result without its call is left out: the API takes none.
    fn result(&mut self, result: &ToolResultMessage) {
        let due = |call: &&mut Call| !call.answered && call.id == result.tool_call_id;
        let Some(call) = self.calls.iter_mut().find(due) else { return };
        call.answered = true;
        let mut content: Vec<Value> = result.content.iter().filter_map(content_block).collect();
        if result.is_error {
            // An error is text only; its images follow as the user's.
            self.user.extend(content.extract_if(.., |block| block["type"] != "text"));
        }
        if content.is_empty() {
            content.push(text(NO_OUTPUT));
        }
        let mut block =
            json!({"type": "tool_result", "tool_use_id": call.sent, "content": content});
        if result.is_error {
            block["is_error"] = json!(true);
        }
        self.results.push(block);
    }

    fn end_user_message(&mut self) {
        for call in self.calls.drain(..).filter(|call| !call.answered) {
            self.results.push(json!({
                "type": "tool_result",
                "tool_use_id": call.sent,
                "content": [text(NO_RESULT)],
                "is_error": true,
            }));
        }
        let mut blocks = std::mem::take(&mut self.results);
        blocks.append(&mut self.user);
        if !blocks.is_empty() {
            self.sent.push(message("user", blocks));
        }
    }

    fn finish(mut self) -> Vec<Value> {
        self.end_user_message();
        let ends_with_user = self.sent.last().is_some_and(|last| last["role"] == "user");
        if !ends_with_user && (self.sent.is_empty() || !self.shape.may_end_with_assistant) {
            self.sent.push(message("user", vec![text(FILLER)]));
        } else if !ends_with_user
            && let Some(words) = self.sent.last_mut().and_then(last_block)
            && let Some(trimmed) = words["text"].as_str().map(|words| words.trim_end().to_owned())
        {
            // Words that the model is to continue must not end with white space.
            words["text"] = json!(trimmed);
        }
        self.sent
    }

    fn unique_id(&mut self, id: &str) -> String {
        let mut sent = identifier(id, MAX_ID);
        let mut turn = 1;
        while !self.ids.insert(sent.clone()) {
            turn += 1;
            sent = identifier(&format!("{id}#{turn}"), MAX_ID);
        }
        sent
    }
}

fn message(role: &str, content: Vec<Value>) -> Value {
    json!({"role": role, "content": content})
}

pub(super) fn text(words: &str) -> Value {
    json!({"type": "text", "text": words})
}

fn non_blank(words: &str) -> Option<Value> {
    (!words.trim().is_empty()).then(|| text(words))
}

/// None where nothing is left to send.
fn content_block(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text(words) => non_blank(&words.text),
        ContentBlock::Image(image) => {
            let media_type = match image.mime_type.as_str() {
                "image/jpg" => "image/jpeg",
                other => other,
            };
            if !IMAGE_TYPES.contains(&media_type) || image.data.is_empty() {
                return Some(text(&format!("[image left out: {media_type} is not supported]")));
            }
            let source = json!({"type": "base64", "media_type": media_type, "data": image.data});
            Some(json!({"type": "image", "source": source}))
        }
    }
}

fn is_thinking(block: &Value) -> bool {
    block["type"] == "thinking" || block["type"] == "redacted_thinking"
}

fn is_result(block: &Value) -> bool {
    block["type"] == "tool_result"
}

fn blocks(message: &Value) -> &[Value] {
    message["content"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn last_block(message: &mut Value) -> Option<&mut Value> {
    message["content"].as_array_mut()?.last_mut()
}

/// `name` if it has only letters that the API takes; else one that does, and that no
/// other name is likely to become.
fn identifier(name: &str, max: usize) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= max && name.chars().all(is_valid) {
        return name.to_owned();
    }
    // FNV-1a. The same name must give the same id in every request and every release:
    // the prompt cache goes by it.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let start = name.chars().map(|c| if is_valid(c) { c } else { '_' }).take(max - 17);
    format!("{}_{hash:016x}", start.collect::<String>())
}

/// Whether the model's turn that goes on with this request began with a thought. True
/// where no turn goes on: the user has the word.
pub(super) fn turn_begins_with_thinking(conversation: &[Value]) -> bool {
    let goes_on =
        |pair: &[Value]| pair.last().is_some_and(|user| blocks(user).iter().any(is_result));
    let turn = conversation.rchunks(2).take_while(|pair| goes_on(pair)).last();
    turn.and_then(<[Value]>::first)
        .is_none_or(|assistant| blocks(assistant).first().is_some_and(is_thinking))
}

/// Marks the end of what the prompt cache is to keep.
pub(super) fn mark(block: &mut Value) {
    block["cache_control"] = json!({"type": "ephemeral"});
}

/// Marks the last user message, and the one before, which the request before this one
/// had marked: the cache looks back over 20 blocks only, and a turn may have more. With
/// the marks of the system prompt and of the tools these are the four that the API takes.
pub(super) fn mark_for_cache(conversation: &mut [Value]) {
    let users = conversation.iter_mut().rev().filter(|message| message["role"] == "user");
    for block in users.take(2).filter_map(last_block) {
        mark(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_fit_and_stay_apart() {
        for (name, max, expect) in [
            ("toolu_01A-b", 64, "toolu_01A-b"),
            ("call_abc|fc_123", 64, "call_abc_fc_123_ce279ba5b90ec5de"),
            ("", 64, "_cbf29ce484222325"),
        ] {
            assert_eq!(identifier(name, max), expect);
        }
        let long = ["a".repeat(400), "a".repeat(401), format!("{}b", "a".repeat(399))];
        let ids: HashSet<String> = long.iter().map(|id| identifier(id, 64)).collect();
        assert_eq!(ids.len(), 3);
        assert!(ids.iter().all(|id| id.len() == 64));
        assert_ne!(identifier("a.b", 64), identifier("a/b", 64));
        assert_eq!(identifier("é", 64).len(), 18);
    }
}
