//! Messages that wait: steering, follow-up, and what goes with the next prompt.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::Value;
use wharf_protocol::message::CustomMessage;
use wharf_protocol::{ContentBlock, ImageContent, StreamingBehavior, UserContent, UserMessage};

use crate::agent::State;
use crate::input::Input;
use crate::resources::settings::QueueMode;

/// A message on its way into the conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Queued {
    User { text: String, images: Vec<ImageContent> },
    Custom(CustomMessage),
}

impl Queued {
    /// The message that enters the conversation now.
    pub(crate) fn user_message(
        text: String,
        images: Vec<ImageContent>,
        timestamp: u64,
    ) -> UserMessage {
        let mut blocks = vec![ContentBlock::text(text)];
        blocks.extend(images.into_iter().map(ContentBlock::Image));
        UserMessage { content: UserContent::Blocks(blocks), timestamp }
    }
}

/// How much waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

impl Weight {
    pub(crate) fn plus(self, bytes: usize) -> Self {
        Self { messages: self.messages + 1, bytes: self.bytes + bytes }
    }

    pub(crate) fn join(self, other: Self) -> Self {
        Self { messages: self.messages + other.messages, bytes: self.bytes + other.bytes }
    }
}

/// The size of a message's text and images.
pub(crate) fn user_bytes(text: &str, images: &[ImageContent]) -> usize {
    text.len() + images.iter().map(|image| image.data.len()).sum::<usize>()
}

/// The size of a custom message, details included.
pub(crate) fn custom_bytes(message: &CustomMessage) -> usize {
    let content = match &message.content {
        UserContent::Text(text) => text.len(),
        UserContent::Blocks(blocks) => blocks
            .iter()
            .map(|block| match block {
                ContentBlock::Text(text) => text.text.len(),
                ContentBlock::Image(image) => image.data.len(),
            })
            .sum(),
    };
    content + message.details.as_ref().map_or(0, json_bytes)
}

/// What a JSON value takes in memory, about: many small ones take far more than their text.
pub(crate) fn json_bytes(value: &Value) -> usize {
    /// A key's own part of a map, and its share of what is reserved.
    const KEY: usize = 64;
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(json_bytes).sum(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| KEY + key.len() + json_bytes(value)).sum()
        }
    };
    size_of::<Value>() + inside
}

#[derive(Debug)]
pub(crate) struct Queue {
    waiting: VecDeque<Queued>,
    pub(crate) mode: QueueMode,
}

impl Queue {
    pub(crate) fn new(mode: QueueMode) -> Self {
        Self { waiting: VecDeque::new(), mode }
    }

    pub(crate) fn push(&mut self, message: Queued) {
        self.waiting.push_back(message);
    }

    pub(crate) fn weight(&self) -> Weight {
        let bytes = self.waiting.iter().map(|queued| match queued {
            Queued::User { text, images } => user_bytes(text, images),
            Queued::Custom(custom) => custom_bytes(custom),
        });
        bytes.fold(Weight::default(), Weight::plus)
    }

    /// The messages that are due.
    pub(crate) fn take_due(&mut self) -> Vec<Queued> {
        match self.mode {
            QueueMode::All => self.waiting.drain(..).collect(),
            QueueMode::OneAtATime => self.waiting.pop_front().into_iter().collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    fn pending(&self) -> Vec<PendingMessage> {
        self.waiting
            .iter()
            .map(|queued| match queued {
                Queued::User { text, images } => PendingMessage::new(text.clone(), images),
                Queued::Custom(custom) => {
                    PendingMessage { text: custom.content.to_text(), images: Vec::new() }
                }
            })
            .collect()
    }
}

impl PendingMessage {
    pub(crate) fn new(text: String, images: &[ImageContent]) -> Self {
        Self { text, images: images.iter().cloned().map(ContentBlock::Image).collect() }
    }
}

/// One waiting message, as `get_pending_messages` tells it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PendingMessage {
    pub text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ContentBlock>,
}

/// The answer of `get_pending_messages` and `clear_pending_messages`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingMessages {
    steering: Vec<String>,
    follow_up: Vec<String>,
    steering_messages: Vec<PendingMessage>,
    follow_up_messages: Vec<PendingMessage>,
}

impl PendingMessages {
    /// The queues, and after them what is accepted and still with `input` handlers.
    pub(crate) fn of(state: &State) -> Self {
        let mut steering_messages = state.steering.pending();
        let mut follow_up_messages = state.follow_up.pending();
        for (kind, message) in state.inputs.iter().filter_map(Input::pending) {
            match kind {
                StreamingBehavior::Steer => steering_messages.push(message),
                StreamingBehavior::FollowUp => follow_up_messages.push(message),
            }
        }
        let texts =
            |list: &[PendingMessage]| list.iter().map(|message| message.text.clone()).collect();
        Self {
            steering: texts(&steering_messages),
            follow_up: texts(&follow_up_messages),
            steering_messages,
            follow_up_messages,
        }
    }
}
