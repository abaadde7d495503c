//! The response of a reply: each event is a `GenerateContentResponse` with the parts that
//! are new. No event is the last one by what it says: the reply ends with the response.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use wharf_protocol::{AgentMessage, StopReason, Usage};

use crate::api::Decoder;
use crate::blocks::BlockWriter;
use crate::sse::SseEvent;
use crate::{ErrorKind, ProviderError, ProviderEvent, Request, tokens};

/// Finish reasons by which the server, or the model, declines.
const REFUSED: [&str; 9] = [
    "SAFETY",
    "PROHIBITED_CONTENT",
    "BLOCKLIST",
    "RECITATION",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "MODEL_ARMOR",
];

/// Finish reasons by which the model has written what is no call. The next try is
/// another throw of the dice.
const MALFORMED: [&str; 3] =
    ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"];

#[derive(Debug)]
pub(super) struct GoogleDecoder {
    blocks: BlockWriter,
    open: Option<OpenBlock>,
    /// Ids of the calls of the conversation, this reply included.
    call_ids: HashSet<String>,
    finish: Option<StopReason>,
    usage: Usage,
    is_done: bool,
}

/// A block of text or thinking that further parts may belong to.
#[derive(Debug)]
struct OpenBlock {
    is_thought: bool,
    index: usize,
    /// The last one that came counts: signatures cannot be joined.
    signature: Option<String>,
}

impl GoogleDecoder {
    pub(super) fn new(request: &Request) -> Self {
        let calls = request.messages.iter().filter_map(|message| match message.as_ref() {
            AgentMessage::Assistant(reply) => Some(reply.tool_calls().map(|call| call.id.clone())),
            _ => None,
        });
        Self {
            blocks: BlockWriter::default(),
            open: None,
            call_ids: calls.flatten().collect(),
            finish: None,
            usage: Usage::default(),
            is_done: false,
        }
    }
}

impl Decoder for GoogleDecoder {
    fn event(
        &mut self,
        event: &SseEvent,
        out: &mut Vec<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        // Some proxies keep the connection awake with empty events, or end with the marker
        // of another API.
        if matches!(event.data.trim(), "" | "[DONE]") {
            return Ok(());
        }
        let json = event.json_object()?;
        if json["error"].is_object() {
            return Err(failure(&json["error"], &event.data));
        }
        if let Some(usage) = json["usageMetadata"].as_object() {
            self.usage = read_usage(usage);
        }
        if let Some(reason) = json["promptFeedback"]["blockReason"].as_str() {
            let detail = json["promptFeedback"]["blockReasonMessage"].as_str();
            return Err(with_detail(
                ErrorKind::Refused,
                "the server blocked the prompt",
                reason,
                detail,
            ));
        }
        let candidate = &json["candidates"][0];
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            self.part(part, out);
        }
        if let Some(reason) = candidate["finishReason"].as_str() {
            let detail = candidate["finishMessage"].as_str();
            self.finish = Some(finish(reason, detail)?);
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<ProviderEvent>) -> Result<(), ProviderError> {
        if self.is_done {
            return Ok(());
        }
        let stop_reason = match self.finish {
            None => return Err(ProviderError::dropped("")),
            Some(StopReason::Stop) if self.blocks.has_call() => StopReason::ToolUse,
            Some(reason) => reason,
        };
        self.is_done = true;
        self.close(out);
        self.blocks.end_all(stop_reason, out);
        out.push(ProviderEvent::Done { stop_reason, usage: self.usage });
        Ok(())
    }
}

impl GoogleDecoder {
    fn part(&mut self, part: &Value, out: &mut Vec<ProviderEvent>) {
        let signature = part["thoughtSignature"].as_str().filter(|signature| !signature.is_empty());
        if let Some(call) = part["functionCall"].as_object() {
            self.close(out);
            let text = |key: &str| call.get(key).and_then(Value::as_str).unwrap_or_default();
            let id = self.call_id(text("id"));
            let index = self.blocks.start_call(id, text("name").to_owned(), out);
            if let Some(arguments) = call.get("args").filter(|arguments| !arguments.is_null()) {
                self.blocks.push(index, &arguments.to_string(), out);
            }
            if let Some(signature) = signature {
                self.blocks.sign(index, signature);
            }
            self.blocks.end(index, out);
            return;
        }
        let is_thought = part["thought"] == true;
        let text = part["text"].as_str().unwrap_or_default();
        if text.is_empty() && signature.is_none() {
            return;
        }
        // A part without text only brings a signature, of the block before it.
        let goes_on = |open: &OpenBlock| text.is_empty() || open.is_thought == is_thought;
        if !self.open.as_ref().is_some_and(goes_on) {
            self.close(out);
            let index = if is_thought {
                self.blocks.start_thinking(out)
            } else {
                self.blocks.start_text(out)
            };
            self.open = Some(OpenBlock { is_thought, index, signature: None });
        }
        if let Some(open) = &mut self.open {
            self.blocks.push(open.index, text, out);
            if let Some(signature) = signature {
                open.signature = Some(signature.to_owned());
            }
        }
    }

    fn close(&mut self, out: &mut Vec<ProviderEvent>) {
        if let Some(OpenBlock { index, signature, .. }) = self.open.take() {
            if let Some(signature) = signature {
                self.blocks.sign(index, &signature);
            }
            self.blocks.end(index, out);
        }
    }

    /// The API's own id of a call, or one that is made: older models give none, and no
    /// two calls of a conversation may have the same.
    fn call_id(&mut self, given: &str) -> String {
        let mut id = given.to_owned();
        while id.is_empty() || !self.call_ids.insert(id.clone()) {
            id = format!("call_{}", uuid::Uuid::new_v4().simple());
        }
        id
    }
}

fn finish(reason: &str, detail: Option<&str>) -> Result<StopReason, ProviderError> {
    match reason {
        "MAX_TOKENS" => Ok(StopReason::Length),
        _ if REFUSED.contains(&reason) => {
            Err(with_detail(ErrorKind::Refused, "the server stopped the reply", reason, detail))
        }
        _ if MALFORMED.contains(&reason) => {
            let what = "the model wrote a call that cannot be read";
            Err(with_detail(ErrorKind::Server, what, reason, detail))
        }
        _ => Ok(StopReason::Stop),
    }
}

fn with_detail(kind: ErrorKind, what: &str, reason: &str, detail: Option<&str>) -> ProviderError {
    let message = match detail.filter(|detail| !detail.is_empty()) {
        None => format!("{what} ({reason})"),
        Some(detail) => format!("{what} ({reason}): {detail}"),
    };
    ProviderError::new(kind, message)
}

fn failure(error: &Value, payload: &str) -> ProviderError {
    let name = error["status"].as_str().unwrap_or_default();
    let message = error["message"].as_str().unwrap_or_default();
    let mut failure = ProviderError::in_stream(name, message, payload);
    // Where the number of the status is there too, it decides as it does outside of a
    // stream: most names say no more than it does.
    if let Some(code) = error["code"].as_u64().filter(|code| (400..600).contains(code)) {
        failure.kind = ProviderError::in_stream(&code.to_string(), message, payload).kind;
    }
    failure.retry_after = retry_delay(error);
    failure
}

/// `RetryInfo` among the details: `"retryDelay": "34.07s"`.
fn retry_delay(error: &Value) -> Option<Duration> {
    let details = error["details"].as_array()?;
    let delay = details.iter().find_map(|detail| detail["retryDelay"].as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

/// Counts of the reply up to here; later ones replace them.
fn read_usage(usage: &serde_json::Map<String, Value>) -> Usage {
    let count = |key: &str| usage.get(key).and_then(tokens::count).unwrap_or(0);
    let cache_read = count("cachedContentTokenCount");
    tokens::with_total(Usage {
        input: count("promptTokenCount").saturating_sub(cache_read),
        output: count("candidatesTokenCount").saturating_add(count("thoughtsTokenCount")),
        cache_read,
        ..Usage::default()
    })
}
