//! The chunks of a response as a reply's steps. Which tool call a piece belongs to is
//! the question that servers answer most differently: see [`ChatDecoder::call_of`].

use serde_json::Value;
use wharf_protocol::{StopReason, Usage};

use super::chunk::{CallDelta, Choice, Chunk, Delta, FunctionDelta, excerpt};
use super::encode::{CONTENT_FIELD, THINKING_FIELDS};
use crate::api::Decoder;
use crate::blocks::{BlockWriter, parse_arguments};
use crate::sse::SseEvent;
use crate::{ErrorKind, ProviderError, ProviderEvent};

/// The text or thinking block that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    /// The field that it comes in.
    Thinking(&'static str),
}

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    /// As the server gave it; empty where it gave none.
    id: String,
    name: String,
    /// The JSON text so far.
    arguments: String,
    /// None while its name may still grow.
    block: Option<usize>,
}

#[derive(Debug)]
pub(super) struct ChatDecoder {
    /// Makes ids of calls unique beyond this reply.
    nonce: String,
    blocks: BlockWriter,
    current: Option<(Kind, usize)>,
    calls: Vec<Call>,
    /// OpenRouter's `reasoning_details`, pieces put together.
    details: Vec<Value>,
    stop: Option<StopReason>,
    usage: Usage,
    done: bool,
}

type Events = Vec<ProviderEvent>;

impl Decoder for ChatDecoder {
    fn event(&mut self, event: &SseEvent, out: &mut Events) -> Result<(), ProviderError> {
        let data = event.data.trim();
        if self.done || data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            // Some servers forget to say why a reply has ended, but not that it has.
            let anything = self.current.is_some() || !self.calls.is_empty();
            if self.stop.is_none() && !anything {
                return Err(ProviderError::dropped("the server sent no reply"));
            }
            self.finish(out);
            return Ok(());
        }
        let chunk: Chunk = event.json().map_err(|_| {
            ProviderError::new(
                ErrorKind::Protocol,
                format!("the server sent what is no chunk of a chat completion: {}", excerpt(data)),
            )
        })?;
        if let Some(error) = chunk.error(event.event == "error", data) {
            return Err(error);
        }
        if let Some(usage) = chunk.usage.or(chunk.x_groq.as_ref().and_then(|groq| groq.usage)) {
            self.usage = usage.into();
        }
        match chunk.into_choice() {
            Some(choice) => self.choice(choice, out),
            None => Ok(()),
        }
    }

    fn end(&mut self, out: &mut Events) -> Result<(), ProviderError> {
        if self.stop.is_none() {
            return Err(ProviderError::dropped(""));
        }
        self.finish(out);
        Ok(())
    }
}

impl ChatDecoder {
    /// `nonce`: no other reply has the same.
    pub(super) fn new(nonce: String) -> Self {
        Self {
            nonce,
            blocks: BlockWriter::default(),
            current: None,
            calls: Vec::new(),
            details: Vec::new(),
            stop: None,
            usage: Usage::default(),
            done: false,
        }
    }

    fn choice(&mut self, choice: Choice, out: &mut Events) -> Result<(), ProviderError> {
        if let Some(usage) = choice.usage {
            self.usage = usage.into();
        }
        if let Some(delta) = choice.delta {
            self.delta(delta, out);
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            // The usage may still come, in a chunk of its own.
            self.stop = Some(stop_reason(&reason)?);
        }
        Ok(())
    }

    fn delta(&mut self, delta: Delta, out: &mut Events) {
        let texts = [delta.reasoning_content, delta.reasoning, delta.reasoning_text];
        // A server that fills several of the fields says the same in each.
        let thought = THINKING_FIELDS
            .into_iter()
            .zip(&texts)
            .find_map(|(field, text)| Some((field, text.as_deref().filter(|it| !it.is_empty())?)));
        if let Some((field, text)) = thought {
            self.piece(Kind::Thinking(field), text, out);
        }
        for detail in delta.reasoning_details.into_iter().flatten() {
            let text = detail["text"].as_str().or_else(|| detail["summary"].as_str());
            if let (None, Some(text)) = (thought, text) {
                self.piece(Kind::Thinking(DETAILS_FIELD), text, out);
            }
            add_detail(&mut self.details, detail);
        }
        match &delta.content {
            Value::String(text) => self.piece(Kind::Text, text, out),
            Value::Array(parts) => {
                for part in parts {
                    self.part(part, out);
                }
            }
            _ => {}
        }
        if let Some(refusal) = delta.refusal {
            self.piece(Kind::Text, &refusal, out);
        }
        let mut pieces = delta.tool_calls.unwrap_or_default();
        if let Some(function) = delta.function_call {
            pieces.push(CallDelta { index: Some(0), id: None, function: Some(function) });
        }
        let several = pieces.len() > 1;
        for (place, mut piece) in (0..).zip(pieces) {
            if several && piece.index.is_none() && piece.id.as_deref().is_none_or(str::is_empty) {
                piece.index = Some(place);
            }
            self.call_piece(piece, out);
        }
    }

    /// A part of `content` that is a list.
    fn part(&mut self, part: &Value, out: &mut Events) {
        match part["type"].as_str() {
            Some("thinking") => match &part["thinking"] {
                Value::String(text) => self.piece(Kind::Thinking(CONTENT_FIELD), text, out),
                Value::Array(inner) => {
                    for text in inner.iter().filter_map(|inner| inner["text"].as_str()) {
                        self.piece(Kind::Thinking(CONTENT_FIELD), text, out);
                    }
                }
                _ => {}
            },
            _ => {
                if let Some(text) = part["text"].as_str() {
                    self.piece(Kind::Text, text, out);
                }
            }
        }
    }

    /// Text or thinking: of the block that is under way, or of a new one.
    fn piece(&mut self, kind: Kind, text: &str, out: &mut Events) {
        if text.is_empty() {
            return;
        }
        let index = match self.current {
            Some((current, index)) if current == kind => index,
            _ => {
                self.end_current(out);
                self.start_calls(out);
                let index = match kind {
                    Kind::Text => self.blocks.start_text(out),
                    Kind::Thinking(field) => {
                        let index = self.blocks.start_thinking(out);
                        self.blocks.sign(index, field);
                        index
                    }
                };
                self.current = Some((kind, index));
                index
            }
        };
        self.blocks.push(index, text, out);
    }

    fn end_current(&mut self, out: &mut Events) {
        if let Some((_, index)) = self.current.take() {
            self.blocks.end(index, out);
        }
    }

    fn call_piece(&mut self, piece: CallDelta, out: &mut Events) {
        let FunctionDelta { name, arguments } = piece.function.unwrap_or_default();
        let id = piece.id.unwrap_or_default();
        let name = name.unwrap_or_default();
        let (arguments, whole) = match arguments {
            Value::String(text) => (text, false),
            Value::Null => (String::new(), false),
            object => (object.to_string(), true),
        };
        let place = match self.call_of(piece.index, &id, &name, &arguments) {
            Some(place) => place,
            None => {
                self.end_current(out);
                self.start_calls(out);
                self.calls.push(Call { index: piece.index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[place];
        if call.id.is_empty() {
            call.id = id;
        }
        if call.block.is_none() {
            // A name may come in pieces, or whole each time.
            if name.starts_with(&call.name) {
                call.name = name;
            } else if call.name != name {
                call.name.push_str(&name);
            }
        }
        if arguments.is_empty() {
            return;
        }
        if whole {
            call.arguments.clone_from(&arguments);
        } else {
            call.arguments.push_str(&arguments);
        }
        if let Some(block) = call.block {
            if whole {
                self.blocks.set_arguments(block, &arguments, out);
            } else {
                self.blocks.push(block, &arguments, out);
            }
        } else if !call.name.is_empty() {
            self.start_call(place, out);
        }
    }

    /// The call that a piece belongs to; none where it begins one. Servers number the
    /// calls, or give all of them number 0, or none; they give an id in every piece, or
    /// in the first one, or none at all.
    fn call_of(&self, index: Option<u64>, id: &str, name: &str, arguments: &str) -> Option<usize> {
        // The number decides where there is one, then the id; without either it is the
        // call that came last.
        let place = match index {
            Some(index) => self.calls.iter().rposition(|call| call.index == Some(index)),
            None if id.is_empty() => self.calls.len().checked_sub(1),
            None => self.calls.iter().rposition(|call| call.id == id),
        };
        let Some(place) = place else {
            // A number that is new with an id that is not: the same call, unless the
            // piece names a function, as the first one of a call does.
            let same_id = || self.calls.iter().rposition(|call| call.id == id);
            return if id.is_empty() || !name.is_empty() { None } else { same_id() };
        };
        let call = &self.calls[place];
        if !id.is_empty() && !call.id.is_empty() {
            if call.id == id {
                return Some(place);
            }
            // All calls have the same number: the id decides.
            return self.calls.iter().rposition(|call| call.id == id);
        }
        // Nothing but a name tells two calls apart: one after arguments that are complete.
        let complete = !call.arguments.is_empty() && parse_arguments(&call.arguments).1.is_none();
        let begins = !name.is_empty() && complete && (name != call.name || !arguments.is_empty());
        (!begins).then_some(place)
    }

    /// Starts the calls that were waiting for the rest of their name.
    fn start_calls(&mut self, out: &mut Events) {
        for place in 0..self.calls.len() {
            if self.calls[place].block.is_none() {
                self.start_call(place, out);
            }
        }
    }

    fn start_call(&mut self, place: usize, out: &mut Events) {
        self.end_current(out);
        let (before, rest) = self.calls.split_at_mut(place);
        let Some(call) = rest.first_mut() else { return };
        // Two calls of one reply with the same id could not be told apart any more.
        let taken = before.iter().any(|other| other.id == call.id);
        let id = if call.id.is_empty() || taken {
            format!("call_{}_{place}", self.nonce)
        } else {
            call.id.clone()
        };
        let block = self.blocks.start_call(id, call.name.clone(), out);
        self.blocks.push(block, &call.arguments, out);
        call.block = Some(block);
    }

    /// The reply is complete.
    fn finish(&mut self, out: &mut Events) {
        self.end_current(out);
        self.start_calls(out);
        let first = self.calls.first().and_then(|call| call.block);
        if let Some(block) = first.filter(|_| self.details.iter().any(is_signed)) {
            self.blocks.sign(block, &Value::Array(std::mem::take(&mut self.details)).to_string());
        }
        let stop_reason = match self.stop {
            Some(StopReason::Length) => StopReason::Length,
            _ if self.blocks.has_call() => StopReason::ToolUse,
            _ => StopReason::Stop,
        };
        self.blocks.end_all(stop_reason, out);
        out.push(ProviderEvent::Done { stop_reason, usage: self.usage });
        self.done = true;
    }
}

/// The signature of thinking that came in `reasoning_details` alone.
const DETAILS_FIELD: &str = "reasoning_details";

/// True for a detail that only the server can make: it must see it again.
fn is_signed(detail: &Value) -> bool {
    ["data", "signature"]
        .iter()
        .any(|field| detail[field].as_str().is_some_and(|it| !it.is_empty()))
}

/// Adds a piece of `reasoning_details`: text and summaries stream, and their signature
/// comes last.
fn add_detail(details: &mut Vec<Value>, piece: Value) {
    let Value::Object(piece) = piece else { return };
    let text = ["text", "summary"].into_iter().find(|field| piece.contains_key(*field));
    let last = details.last_mut().and_then(Value::as_object_mut);
    let (Some(_), Some(last)) = (text.or(piece.get("signature").map(|_| "signature")), last) else {
        details.push(Value::Object(piece));
        return;
    };
    let same = |field: &str| last.get(field) == piece.get(field);
    if !same("type") || !same("index") {
        details.push(Value::Object(piece));
        return;
    }
    for (field, value) in piece {
        match (last.get_mut(&field), &value) {
            (Some(Value::String(before)), Value::String(more)) if Some(field.as_str()) == text => {
                before.push_str(more);
            }
            (Some(_), Value::Null) => {}
            _ => {
                last.insert(field, value);
            }
        }
    }
}

/// What `finish_reason` says; unknown reasons are ends like any other.
fn stop_reason(reason: &str) -> Result<StopReason, ProviderError> {
    let fail = |kind, text: &str| Err(ProviderError::new(kind, format!("{text} ({reason})")));
    match reason.to_lowercase().as_str() {
        // `model_length`: Mistral; `model_context_window_exceeded`: z.ai
        "length" | "max_tokens" | "model_length" | "model_context_window_exceeded" => {
            Ok(StopReason::Length)
        }
        "tool_calls" | "function_call" | "tool_use" => Ok(StopReason::ToolUse),
        // `sensitive`: z.ai
        "content_filter" | "sensitive" => {
            fail(ErrorKind::Refused, "the server's content filter stopped the reply")
        }
        // `network_error`: z.ai; `abort`: vLLM
        "error" | "network_error" | "abort" => {
            fail(ErrorKind::Server, "the server failed in the middle of the reply")
        }
        // DeepSeek
        "insufficient_system_resource" => {
            fail(ErrorKind::Overloaded, "the server ran out of room in the middle of the reply")
        }
        _ => Ok(StopReason::Stop),
    }
}
