//! `message_update`: the reference's shape, bounded.
//!
//! An update carries the whole message twice, so that one per delta would make a
//! long reply quadratic. Deltas are merged instead: after an update of N bytes the
//! next one waits N / [`BYTES_PER_SECOND`]. No text is lost: the deltas of a block
//! always add up to the block.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::value::RawValue;
use wharf_protocol::event::ToolCallObject;
use wharf_protocol::partial::ReplyOrigin;
use wharf_protocol::{
    AgentMessage, AssistantContent, AssistantMessage, AssistantMessageEvent, Event, PartialMessage,
    StreamDelta,
};

use crate::stdout::Stdout;

/// The budget of updates (performance.md). Ten updates a second of a 100 kB
/// message, which stands in each twice, are just within it.
const BYTES_PER_SECOND: u64 = 2 * 1024 * 1024;

/// Which form updates have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpdateForm {
    /// With `message` and `partial`, as every client of the protocol expects.
    Full,
    /// Without both (`--ui dashboard`).
    Lean,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    ToolCall,
}

/// Deltas of one block that have not left yet.
#[derive(Debug)]
struct Pending {
    index: usize,
    kind: Kind,
    text: String,
}

#[derive(Debug)]
pub(crate) struct Updates {
    form: UpdateForm,
    partial: Option<PartialMessage>,
    pending: Option<Pending>,
    /// When the next merged delta may leave.
    next: Instant,
}

/// A message with its role, borrowed.
#[derive(Serialize)]
#[serde(tag = "role", rename_all = "camelCase")]
enum WithRole<'a> {
    Assistant(&'a AssistantMessage),
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "message_update", rename_all = "camelCase")]
struct UpdateLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a RawValue>,
    assistant_message_event: AssistantMessageEvent<&'a RawValue>,
}

impl Updates {
    pub(crate) fn new(form: UpdateForm) -> Self {
        Self { form, partial: None, pending: None, next: Instant::now() }
    }

    /// When something waits to leave, and has to leave then.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.pending.is_some().then_some(self.next)
    }

    /// Writes an event; updates that were held back leave before it.
    pub(crate) fn event(&mut self, event: &Event, out: &Stdout) {
        match event {
            // Dialogs and notices do not belong to the reply; they need not wait.
            Event::ExtensionUiRequest(_)
            | Event::ExtensionUiResponseHandled { .. }
            | Event::ExtensionError { .. }
            | Event::ExtensionsReloaded { .. }
            | Event::SessionNameChanged { .. } => {}
            Event::MessageStart { message } => {
                self.flush(out);
                if let AgentMessage::Assistant(assistant) = message.as_ref() {
                    self.partial = Some(PartialMessage::new(ReplyOrigin {
                        api: assistant.api.clone(),
                        provider: assistant.provider.clone(),
                        model: assistant.model.clone(),
                        timestamp: assistant.timestamp,
                    }));
                }
            }
            _ => self.flush(out),
        }
        out.json(event);
    }

    /// Takes a delta; it leaves now, or merged with others later.
    pub(crate) fn delta(&mut self, delta: StreamDelta, out: &Stdout) {
        let Some(partial) = &mut self.partial else { return };
        let (index, kind, text) = match delta {
            StreamDelta::Text { index, ref delta } => (index, Kind::Text, delta),
            StreamDelta::Thinking { index, ref delta } => (index, Kind::Thinking, delta),
            StreamDelta::ToolCall { index, ref delta } => (index, Kind::ToolCall, delta),
            edge => {
                self.flush(out);
                if let Some(partial) = &mut self.partial {
                    partial.apply(&edge);
                }
                self.edge(edge, out);
                return;
            }
        };
        match &mut self.pending {
            Some(pending) if pending.index == index && pending.kind == kind => {
                pending.text.push_str(text);
                partial.apply(&delta);
            }
            _ => {
                let text = text.clone();
                self.flush(out);
                if let Some(partial) = &mut self.partial {
                    partial.apply(&delta);
                }
                self.pending = Some(Pending { index, kind, text });
            }
        }
        if Instant::now() >= self.next {
            self.flush(out);
        }
    }

    /// Lets go of what was held back.
    pub(crate) fn flush(&mut self, out: &Stdout) {
        let Some(Pending { index: content_index, kind, text: delta }) = self.pending.take() else {
            return;
        };
        self.write(out, |partial| match kind {
            Kind::Text => AssistantMessageEvent::TextDelta { content_index, delta, partial },
            Kind::Thinking => {
                AssistantMessageEvent::ThinkingDelta { content_index, delta, partial }
            }
            Kind::ToolCall => {
                AssistantMessageEvent::ToolCallDelta { content_index, delta, partial }
            }
        });
    }

    /// The beginning or the end of a block.
    fn edge(&mut self, delta: StreamDelta, out: &Stdout) {
        let content = |index: usize| {
            self.partial
                .as_ref()
                .and_then(|partial| partial.message().content.get(index))
                .map(|block| match block {
                    AssistantContent::Text(text) => text.text.clone(),
                    AssistantContent::Thinking(thinking) => thinking.thinking.clone(),
                    AssistantContent::ToolCall(_) => String::new(),
                })
                .unwrap_or_default()
        };
        match delta {
            StreamDelta::TextStart { index: content_index } => {
                self.write(out, |partial| AssistantMessageEvent::TextStart {
                    content_index,
                    partial,
                });
            }
            StreamDelta::TextEnd { index: content_index, .. } => {
                let content = content(content_index);
                self.write(out, |partial| AssistantMessageEvent::TextEnd {
                    content_index,
                    content,
                    partial,
                });
            }
            StreamDelta::ThinkingStart { index: content_index } => self.write(out, |partial| {
                AssistantMessageEvent::ThinkingStart { content_index, partial }
            }),
            StreamDelta::ThinkingEnd { index: content_index, .. } => {
                let content = content(content_index);
                self.write(out, |partial| AssistantMessageEvent::ThinkingEnd {
                    content_index,
                    content,
                    partial,
                });
            }
            StreamDelta::ToolCallStart { index: content_index, .. } => self.write(out, |partial| {
                AssistantMessageEvent::ToolCallStart { content_index, partial }
            }),
            StreamDelta::ToolCallEnd { index: content_index, call, .. } => {
                self.write(out, |partial| AssistantMessageEvent::ToolCallEnd {
                    content_index,
                    tool_call: ToolCallObject { call },
                    partial,
                });
            }
            StreamDelta::Text { .. }
            | StreamDelta::Thinking { .. }
            | StreamDelta::ToolCall { .. } => {}
        }
    }

    fn write(
        &mut self,
        out: &Stdout,
        event: impl for<'p> FnOnce(Option<&'p RawValue>) -> AssistantMessageEvent<&'p RawValue>,
    ) {
        let message = match (&self.partial, self.form) {
            (Some(partial), UpdateForm::Full) => {
                serde_json::value::to_raw_value(&WithRole::Assistant(partial.message())).ok()
            }
            _ => None,
        };
        let message = message.as_deref();
        let bytes = out.json(&UpdateLine { message, assistant_message_event: event(message) });
        let pause = Duration::from_micros(bytes as u64 * 1_000_000 / BYTES_PER_SECOND);
        self.next = Instant::now() + pause;
    }
}
