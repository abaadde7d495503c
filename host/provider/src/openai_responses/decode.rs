//! The response of a reply: events about output items, which may come interleaved.

use std::time::Duration;

use serde_json::{Value, json};
use wharf_protocol::{StopReason, Usage};

use super::TextSignature;
use crate::api::Decoder;
use crate::blocks::BlockWriter;
use crate::sse::SseEvent;
use crate::{ErrorKind, ProviderError, ProviderEvent, tokens};

#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    blocks: BlockWriter,
    /// Items that are not done, oldest first.
    items: Vec<Item>,
    is_done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
    Call,
}

impl Kind {
    /// None for what Wharf does not ask for, such as a web search of the server's own.
    fn of(item: &Value) -> Option<Self> {
        match item["type"].as_str()? {
            "reasoning" => Some(Self::Reasoning),
            "message" => Some(Self::Message),
            "function_call" => Some(Self::Call),
            _ => None,
        }
    }
}

/// An output item under way, and the block that it becomes.
#[derive(Debug)]
struct Item {
    kind: Kind,
    id: String,
    output_index: Option<u64>,
    block: usize,
    /// The part that the last text belonged to; none before the first text.
    part: Option<Part>,
}

/// A summary and the reasoning itself may both stand in an item, each in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Summary(u64),
    Content(u64),
}

impl Decoder for ResponsesDecoder {
    fn event(
        &mut self,
        event: &SseEvent,
        out: &mut Vec<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        // Some servers keep the connection awake with empty events, or end with the marker
        // of the older API.
        if self.is_done || matches!(event.data.trim(), "" | "[DONE]") {
            return Ok(());
        }
        let json = event.json_object()?;
        match json["type"].as_str().unwrap_or(&event.event) {
            "response.output_item.added" => {
                if let Some(kind) = Kind::of(&json["item"]) {
                    self.start(kind, &json, out);
                }
            }
            "response.output_item.done" => self.item_done(&json, out),
            "response.reasoning_summary_text.delta" => {
                let part = Part::Summary(json["summary_index"].as_u64().unwrap_or(0));
                self.thinking(&json, part, out);
            }
            "response.reasoning_text.delta" => {
                let part = Part::Content(json["content_index"].as_u64().unwrap_or(0));
                self.thinking(&json, part, out);
            }
            "response.output_text.delta" | "response.refusal.delta" => self.text(&json, out),
            "response.function_call_arguments.delta" => {
                if let Some(block) = self.call_block(&json) {
                    self.blocks.push(block, text(&json["delta"]), out);
                }
            }
            "response.function_call_arguments.done" => {
                if let Some(block) = self.call_block(&json) {
                    self.blocks.set_arguments(block, text(&json["arguments"]), out);
                }
            }
            "response.completed" => {
                let is_cut = json["response"]["status"] == "incomplete";
                return self.finish(&json["response"], is_cut, out);
            }
            "response.incomplete" => return self.finish(&json["response"], true, out),
            "response.failed" => return Err(failure(&json["response"]["error"])),
            "error" => {
                let inner = &json["error"];
                return Err(failure(if inner.is_object() { inner } else { &json }));
            }
            // Proxies report their own failures without a type.
            "" if json["error"].is_object() => return Err(failure(&json["error"])),
            // `response.created`, `.in_progress`, the ends of parts, and what is new.
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Vec<ProviderEvent>) -> Result<(), ProviderError> {
        if self.is_done { Ok(()) } else { Err(ProviderError::dropped("")) }
    }
}

impl ResponsesDecoder {
    /// Starts the block of an event's item; gives the item's place.
    fn start(&mut self, kind: Kind, json: &Value, out: &mut Vec<ProviderEvent>) -> usize {
        let item = &json["item"];
        let id = item["id"].as_str().unwrap_or(text(&json["item_id"])).to_owned();
        let block = match kind {
            Kind::Reasoning => self.blocks.start_thinking(out),
            Kind::Message => self.blocks.start_text(out),
            Kind::Call => {
                let call_id = call_id(text(&item["call_id"]), &id);
                self.blocks.start_call(call_id, text(&item["name"]).to_owned(), out)
            }
        };
        let output_index = json["output_index"].as_u64();
        self.items.push(Item { kind, id, output_index, block, part: None });
        self.items.len() - 1
    }

    /// The place of the open item that an event is about. Its id counts first; some
    /// proxies give an item another id in every event, but keep its index.
    fn find(&self, kind: Kind, json: &Value) -> Option<usize> {
        let id = json["item"]["id"].as_str().or(json["item_id"].as_str()).unwrap_or_default();
        let index = json["output_index"].as_u64();
        let by_id = |item: &Item| !id.is_empty() && item.id == id;
        let by_index = |item: &Item| index.is_some() && item.output_index == index;
        let last = |is_it: &dyn Fn(&Item) -> bool| {
            self.items.iter().rposition(|item| item.kind == kind && is_it(item))
        };
        last(&by_id).or_else(|| last(&by_index))
    }

    fn call_block(&self, json: &Value) -> Option<usize> {
        self.find(Kind::Call, json).map(|at| self.items[at].block)
    }

    fn thinking(&mut self, json: &Value, part: Part, out: &mut Vec<ProviderEvent>) {
        let delta = text(&json["delta"]);
        if delta.is_empty() {
            return;
        }
        let Some(at) = self.find(Kind::Reasoning, json) else { return };
        let item = &mut self.items[at];
        let block = item.block;
        if item.part.replace(part).is_some_and(|before| before != part) {
            self.blocks.push(block, "\n\n", out);
        }
        self.blocks.push(block, delta, out);
    }

    fn text(&mut self, json: &Value, out: &mut Vec<ProviderEvent>) {
        let delta = text(&json["delta"]);
        if delta.is_empty() {
            return;
        }
        // Text of an item that was never announced is text all the same.
        let at = match self.find(Kind::Message, json) {
            Some(at) => at,
            None => self.start(Kind::Message, json, out),
        };
        let item = &mut self.items[at];
        item.part = Some(Part::Content(0));
        self.blocks.push(item.block, delta, out);
    }

    /// The item as it is in the end; what was not streamed of it is made up for.
    fn item_done(&mut self, json: &Value, out: &mut Vec<ProviderEvent>) {
        let done = &json["item"];
        let Some(kind) = Kind::of(done) else { return };
        let at = match self.find(kind, json) {
            Some(at) => at,
            None => self.start(kind, json, out),
        };
        let Item { block, part, .. } = self.items[at];
        match kind {
            Kind::Reasoning => {
                if part.is_none() {
                    self.blocks.push(block, &reasoning_text(done), out);
                }
                // Without its encrypted content the server does not take it back.
                if done["encrypted_content"].as_str().is_some_and(|content| !content.is_empty()) {
                    self.blocks.sign(block, &done.to_string());
                }
            }
            Kind::Message => {
                if part.is_none() {
                    self.blocks.push(block, &message_text(done), out);
                }
                let id = text(&done["id"]);
                if !id.is_empty() {
                    let phase = done["phase"].as_str().map(str::to_owned);
                    let signature = TextSignature { id: id.to_owned(), phase };
                    self.blocks.sign(block, &signature.write());
                }
            }
            Kind::Call => {
                if let Some(arguments) = done["arguments"].as_str() {
                    self.blocks.set_arguments(block, arguments, out);
                }
                // Cut at the token limit. The call stays open: the end of the reply marks
                // it so.
                if done["status"] == "incomplete" {
                    return;
                }
            }
        }
        self.blocks.end(block, out);
        self.items.remove(at);
    }

    fn finish(
        &mut self,
        response: &Value,
        is_cut: bool,
        out: &mut Vec<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        if is_cut && response["incomplete_details"]["reason"] == "content_filter" {
            let message = "the provider's content filter stopped the reply (content_filter)";
            return Err(ProviderError::new(ErrorKind::Refused, message));
        }
        let stop_reason = if is_cut {
            StopReason::Length
        } else if self.blocks.has_call() {
            StopReason::ToolUse
        } else {
            StopReason::Stop
        };
        self.is_done = true;
        self.blocks.end_all(stop_reason, out);
        out.push(ProviderEvent::Done { stop_reason, usage: usage(&response["usage"]) });
        Ok(())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// `call_id|item_id`; the second part only where there is one.
fn call_id(call_id: &str, item_id: &str) -> String {
    match (call_id, item_id) {
        ("", "") => format!("call_{}", uuid::Uuid::new_v4().simple()),
        ("", id) | (id, "") => id.to_owned(),
        (call_id, item_id) => format!("{call_id}|{item_id}"),
    }
}

fn reasoning_text(item: &Value) -> String {
    let summary = texts(&item["summary"]);
    let parts = if summary.is_empty() { texts(&item["content"]) } else { summary };
    parts.join("\n\n")
}

fn message_text(item: &Value) -> String {
    texts(&item["content"]).concat()
}

/// The texts and refusals of an item's parts.
fn texts(parts: &Value) -> Vec<&str> {
    let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter_map(|part| part["text"].as_str().or(part["refusal"].as_str())).collect()
}

fn usage(usage: &Value) -> Usage {
    let count = |place: &str| usage.pointer(place).and_then(tokens::count).unwrap_or(0);
    let cache_read = count("/input_tokens_details/cached_tokens");
    tokens::with_total(Usage {
        // The API's `input_tokens` are all of them.
        input: count("/input_tokens").saturating_sub(cache_read),
        output: count("/output_tokens"),
        cache_read,
        ..Usage::default()
    })
}

/// What the server says of a reply that has failed.
fn failure(error: &Value) -> ProviderError {
    let code = match (&error["code"], &error["type"]) {
        (Value::String(code), _) => code.clone(),
        (Value::Number(code), _) => code.to_string(),
        (_, Value::String(name)) if name != "error" => name.clone(),
        _ => String::new(),
    };
    let message = match text(&error["message"]) {
        "" if code.is_empty() => "the server reported that the reply has failed",
        message => message,
    };
    let mut failure =
        ProviderError::in_stream(&code, message, &json!({"error": error}).to_string());
    // The server names many faults of a request; as it took the request first, what is
    // not known counts as its own fault, and would be tried again.
    if failure.kind == ErrorKind::Server {
        if code.ends_with("_policy") || code.ends_with("_policy_violation") {
            failure.kind = ErrorKind::Refused;
        } else if code.starts_with("invalid_") || code.contains("image") {
            failure.kind = ErrorKind::InvalidRequest;
        }
    }
    failure.retry_after = retry_after(message);
    failure
}

/// "Rate limit reached for ... Please try again in 1.898s."; also "28ms".
fn retry_after(message: &str) -> Option<Duration> {
    let (_, rest) = message.split_once("try again in ")?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = rest[..end].parse().ok()?;
    let seconds = match rest[end..].trim_start() {
        unit if unit.starts_with("ms") => number / 1000.0,
        unit if unit.starts_with('s') => number,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}
