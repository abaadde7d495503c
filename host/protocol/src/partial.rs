//! A reply while it streams: deltas, and the message that they add up to.
//! Provider, agent and front ends all fold the same deltas with the same code,
//! so that no copy of a growing message has to travel with each of them.

use serde_json::Map;

use crate::message::{
    AssistantContent, AssistantMessage, StopReason, TextContent, ThinkingContent, ToolCall, Usage,
};

/// One step of a streaming reply. `index` is the place of the content block in
/// the message.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamDelta {
    TextStart {
        index: usize,
    },
    Text {
        index: usize,
        delta: String,
    },
    TextEnd {
        index: usize,
        signature: Option<String>,
    },
    ThinkingStart {
        index: usize,
    },
    Thinking {
        index: usize,
        delta: String,
    },
    ThinkingEnd {
        index: usize,
        signature: Option<String>,
        redacted: bool,
    },
    ToolCallStart {
        index: usize,
        id: String,
        name: String,
    },
    /// A piece of the JSON text of the arguments.
    ToolCall {
        index: usize,
        delta: String,
    },
    /// The complete call. `problem` says why its JSON text could not be read;
    /// the arguments are then empty and the call must not run.
    ToolCallEnd {
        index: usize,
        call: ToolCall,
        problem: Option<String>,
    },
}

/// The message that a run of deltas adds up to.
#[derive(Debug, Clone)]
pub struct PartialMessage {
    message: AssistantMessage,
}

/// Who answers, and since when.
#[derive(Debug, Clone, Default)]
pub struct ReplyOrigin {
    pub api: String,
    pub provider: String,
    pub model: String,
    /// Milliseconds since the Unix epoch.
    pub timestamp: u64,
}

impl PartialMessage {
    pub fn new(origin: ReplyOrigin) -> Self {
        Self {
            message: AssistantMessage {
                content: Vec::new(),
                api: origin.api,
                provider: origin.provider,
                model: origin.model,
                usage: Usage::default(),
                stop_reason: StopReason::Stop,
                error_message: None,
                timestamp: origin.timestamp,
            },
        }
    }

    pub fn message(&self) -> &AssistantMessage {
        &self.message
    }

    pub fn into_message(self) -> AssistantMessage {
        self.message
    }

    pub fn set_usage(&mut self, usage: Usage) {
        self.message.usage = usage;
    }

    /// Folds one delta in. A delta for a block that was never started is a
    /// provider's fault; it is ignored.
    pub fn apply(&mut self, delta: &StreamDelta) {
        let content = &mut self.message.content;
        match delta {
            StreamDelta::TextStart { index } => put(
                content,
                *index,
                AssistantContent::Text(TextContent { text: String::new(), text_signature: None }),
            ),
            StreamDelta::Text { index, delta } => {
                if let Some(AssistantContent::Text(block)) = content.get_mut(*index) {
                    block.text.push_str(delta);
                }
            }
            StreamDelta::TextEnd { index, signature } => {
                if let Some(AssistantContent::Text(block)) = content.get_mut(*index) {
                    block.text_signature.clone_from(signature);
                }
            }
            StreamDelta::ThinkingStart { index } => put(
                content,
                *index,
                AssistantContent::Thinking(ThinkingContent {
                    thinking: String::new(),
                    thinking_signature: None,
                    redacted: false,
                }),
            ),
            StreamDelta::Thinking { index, delta } => {
                if let Some(AssistantContent::Thinking(block)) = content.get_mut(*index) {
                    block.thinking.push_str(delta);
                }
            }
            StreamDelta::ThinkingEnd { index, signature, redacted } => {
                if let Some(AssistantContent::Thinking(block)) = content.get_mut(*index) {
                    block.thinking_signature.clone_from(signature);
                    block.redacted = *redacted;
                }
            }
            StreamDelta::ToolCallStart { index, id, name } => put(
                content,
                *index,
                AssistantContent::ToolCall(ToolCall {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: Map::new(),
                    thought_signature: None,
                }),
            ),
            // Arguments are shown once they are whole: half a JSON text has no value.
            StreamDelta::ToolCall { .. } => {}
            StreamDelta::ToolCallEnd { index, call, .. } => {
                put(content, *index, AssistantContent::ToolCall(call.clone()));
            }
        }
    }
}

fn put(content: &mut Vec<AssistantContent>, index: usize, block: AssistantContent) {
    if index < content.len() {
        content[index] = block;
    } else {
        content.push(block);
    }
}
