//! The response: server-sent events of the API into a reply's steps.

use serde::Deserialize;
use serde_json::{Map, Value};
use wharf_protocol::{StopReason, Usage};

use crate::api::Decoder;
use crate::blocks::BlockWriter;
use crate::sse::SseEvent;
use crate::{ErrorKind, ProviderError, ProviderEvent, tokens};

/// Characters of an event that an error's text shows.
const EXCERPT: usize = 200;

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: MessageStart,
    },
    ContentBlockStart {
        index: u64,
        content_block: Block,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        delta: MessageDelta,
        #[serde(default, deserialize_with = "tokens::lenient_object")]
        usage: Option<Tokens>,
    },
    MessageStop,
    Error {
        #[serde(default)]
        error: Value,
    },
    /// `ping`, and what later versions add.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct MessageStart {
    #[serde(default, deserialize_with = "tokens::lenient_object")]
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: Option<String>,
    },
    Thinking {
        thinking: Option<String>,
        signature: Option<String>,
    },
    RedactedThinking {
        data: String,
    },
    ToolUse {
        id: String,
        name: String,
        input: Option<Map<String, Value>>,
    },
    /// What the server does by itself (`server_tool_use` and its results).
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "the API's names")]
enum Delta {
    TextDelta {
        text: String,
    },
    ThinkingDelta {
        thinking: String,
    },
    SignatureDelta {
        signature: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct MessageDelta {
    stop_reason: Option<String>,
    stop_details: Option<StopDetails>,
}

#[derive(Deserialize)]
struct StopDetails {
    explanation: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Tokens {
    #[serde(deserialize_with = "tokens::lenient")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens::lenient")]
    output_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens::lenient")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens::lenient")]
    cache_creation_input_tokens: Option<u64>,
}

/// A block that has not stopped.
struct OpenBlock {
    /// The API's index; the blocks that are skipped count there too.
    wire: u64,
    index: usize,
    is_call: bool,
    /// The arguments that came with a call's start: the whole of them if no delta follows.
    input: Option<String>,
}

#[derive(Default)]
pub(super) struct MessagesDecoder {
    writer: BlockWriter,
    open: Vec<OpenBlock>,
    /// Calls that have stopped, by their index. The token limit may have stopped them,
    /// which is said only later: they end when something follows that is no end.
    held: Vec<usize>,
    tokens: Tokens,
    stop: Option<StopReason>,
}

impl Decoder for MessagesDecoder {
    fn event(
        &mut self,
        event: &SseEvent,
        out: &mut Vec<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        match parse(event)? {
            Event::MessageStart { message } => self.count(message.usage),
            Event::ContentBlockStart { index, content_block } => {
                self.start(index, content_block, out);
            }
            Event::ContentBlockDelta { index, delta } => self.delta(index, delta, out),
            Event::ContentBlockStop { index } => self.stop_block(index, out),
            Event::MessageDelta { delta, usage } => {
                self.count(usage);
                if let Some(reason) = &delta.stop_reason {
                    if reason == "refusal" {
                        return Err(refused(delta.stop_details));
                    }
                    self.finish(Some(reason), out);
                }
            }
            Event::MessageStop => self.done(out),
            Event::Error { error } => return Err(failed(&error, &event.data)),
            Event::Other => {}
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<ProviderEvent>) -> Result<(), ProviderError> {
        if self.stop.is_none() {
            return Err(ProviderError::dropped(""));
        }
        self.done(out);
        Ok(())
    }
}

impl MessagesDecoder {
    fn start(&mut self, wire: u64, block: Block, out: &mut Vec<ProviderEvent>) {
        // A server that does not count its blocks has ended the one before.
        self.stop_block(wire, out);
        self.release(out);
        let is_call = matches!(block, Block::ToolUse { .. });
        let mut arguments = None;
        let index = match block {
            Block::Text { text } => {
                let index = self.writer.start_text(out);
                self.writer.push(index, &text.unwrap_or_default(), out);
                index
            }
            Block::Thinking { thinking, signature } => {
                let index = self.writer.start_thinking(out);
                self.writer.push(index, &thinking.unwrap_or_default(), out);
                if let Some(signature) = signature.filter(|signature| !signature.is_empty()) {
                    self.writer.sign(index, &signature);
                }
                index
            }
            Block::RedactedThinking { data } => {
                let index = self.writer.start_thinking(out);
                self.writer.redact(index);
                self.writer.sign(index, &data);
                index
            }
            Block::ToolUse { id, name, input } => {
                let input = input.filter(|input| !input.is_empty());
                arguments = input.map(|input| Value::Object(input).to_string());
                self.writer.start_call(id, name, out)
            }
            Block::Other => return,
        };
        self.open.push(OpenBlock { wire, index, is_call, input: arguments });
    }

    fn delta(&mut self, wire: u64, delta: Delta, out: &mut Vec<ProviderEvent>) {
        let Some(block) = self.open.iter_mut().find(|block| block.wire == wire) else { return };
        let index = block.index;
        match delta {
            Delta::TextDelta { text: piece } | Delta::ThinkingDelta { thinking: piece } => {
                self.release(out);
                self.writer.push(index, &piece, out);
            }
            Delta::InputJsonDelta { partial_json } => {
                // The first one of a call is empty, also where no other follows.
                if !partial_json.is_empty() {
                    block.input = None;
                }
                self.release(out);
                self.writer.push(index, &partial_json, out);
            }
            Delta::SignatureDelta { signature } => self.writer.sign(index, &signature),
            Delta::Other => {}
        }
    }

    fn stop_block(&mut self, wire: u64, out: &mut Vec<ProviderEvent>) {
        let Some(at) = self.open.iter().position(|block| block.wire == wire) else { return };
        let block = self.open.remove(at);
        if block.is_call {
            self.complete(&block, out);
            self.held.push(block.index);
        } else {
            self.writer.end(block.index, out);
        }
    }

    /// All pieces of a call's arguments have come.
    fn complete(&mut self, block: &OpenBlock, out: &mut Vec<ProviderEvent>) {
        if let Some(input) = &block.input {
            self.writer.set_arguments(block.index, input, out);
        }
    }

    /// The calls that wait for the reply's end have not been cut: something follows.
    fn release(&mut self, out: &mut Vec<ProviderEvent>) {
        for index in self.held.drain(..) {
            self.writer.end(index, out);
        }
    }

    fn count(&mut self, tokens: Option<Tokens>) {
        let new = tokens.unwrap_or_default();
        let old = std::mem::take(&mut self.tokens);
        self.tokens = Tokens {
            input_tokens: new.input_tokens.or(old.input_tokens),
            output_tokens: new.output_tokens.or(old.output_tokens),
            cache_read_input_tokens: new.cache_read_input_tokens.or(old.cache_read_input_tokens),
            cache_creation_input_tokens: new
                .cache_creation_input_tokens
                .or(old.cache_creation_input_tokens),
        };
    }

    /// The model has stopped; what is still open ends here.
    fn finish(&mut self, reason: Option<&str>, out: &mut Vec<ProviderEvent>) {
        let stop = match reason {
            Some("end_turn" | "stop_sequence" | "pause_turn") => StopReason::Stop,
            Some("tool_use") => StopReason::ToolUse,
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
            _ if self.writer.has_call() => StopReason::ToolUse,
            _ => StopReason::Stop,
        };
        for block in std::mem::take(&mut self.open) {
            self.complete(&block, out);
        }
        self.held.clear();
        self.writer.end_all(stop, out);
        self.stop = Some(stop);
    }

    fn done(&mut self, out: &mut Vec<ProviderEvent>) {
        if self.stop.is_none() {
            self.finish(None, out);
        }
        let stop_reason = self.stop.unwrap_or(StopReason::Stop);
        out.push(ProviderEvent::Done { stop_reason, usage: self.usage() });
    }

    fn usage(&self) -> Usage {
        // The API's `input_tokens` are those that no cache had.
        let input = self.tokens.input_tokens.unwrap_or(0);
        let output = self.tokens.output_tokens.unwrap_or(0);
        let cache_read = self.tokens.cache_read_input_tokens.unwrap_or(0);
        let cache_write = self.tokens.cache_creation_input_tokens.unwrap_or(0);
        let usage = Usage { input, output, cache_read, cache_write, ..Usage::default() };
        tokens::with_total(usage)
    }
}

fn parse(event: &SseEvent) -> Result<Event, ProviderError> {
    event.json().map_err(|problem| {
        // Gateways put in errors of their own, without a type around them.
        let json = event.json::<Value>().unwrap_or_default();
        match json.get("error") {
            Some(error) if json.get("type").is_none() => failed(error, &event.data),
            _ => {
                let excerpt: String = event.data.chars().take(EXCERPT).collect();
                let message =
                    format!("the server sent no event of this API: {problem}: {excerpt:?}");
                ProviderError::new(ErrorKind::Protocol, message)
            }
        }
    })
}

fn failed(error: &Value, payload: &str) -> ProviderError {
    let field = |name: &str| error.get(name).and_then(Value::as_str);
    let message = field("message").or(error.as_str()).unwrap_or_default();
    ProviderError::in_stream(field("type").unwrap_or_default(), message, payload)
}

fn refused(details: Option<StopDetails>) -> ProviderError {
    let mut message = "the model declined to answer".to_owned();
    if let Some(explanation) = details.and_then(|details| details.explanation) {
        message.push_str(": ");
        message.push_str(&explanation);
    }
    ProviderError::new(ErrorKind::Refused, message)
}
