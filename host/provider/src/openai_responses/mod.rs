//! The API `openai-responses`: OpenAI's Responses API, stateless (nothing is stored on
//! the server: encrypted reasoning travels with the conversation).
//!
//! What a block's signature holds here: of thinking, the reasoning item's JSON as the
//! server gave it; of text, the message item's id ([`TextSignature`]). A call's id is
//! `call_id|item_id`.

mod decode;
mod effort;
mod encode;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::Request;
use crate::api::{Api, Decoder, Endpoint, HttpRequest};

#[derive(Debug)]
pub(crate) struct OpenAiResponses;

impl Api for OpenAiResponses {
    fn encode(&self, request: &Request, endpoint: &Endpoint) -> HttpRequest {
        encode::encode(request, endpoint)
    }

    fn decoder(&self, _: &Request) -> Box<dyn Decoder> {
        Box::new(decode::ResponsesDecoder::default())
    }
}

/// What is kept of a message item beside its text.
#[derive(Debug, Default, PartialEq)]
struct TextSignature {
    id: String,
    /// `commentary` or `final_answer`; models of GPT-5.3-Codex and later want it back.
    phase: Option<String>,
}

impl TextSignature {
    /// The bare id, or `{"v":1,"id":..,"phase":..}` where there is a phase. Sessions of
    /// the reference agent have both forms.
    fn write(&self) -> String {
        match &self.phase {
            None => self.id.clone(),
            Some(phase) => json!({"v": 1, "id": self.id, "phase": phase}).to_string(),
        }
    }

    fn read(signature: &str) -> Self {
        let text = |json: &Value, key: &str| json[key].as_str().map(str::to_owned);
        match serde_json::from_str::<Value>(signature) {
            Ok(json) if json.is_object() => {
                Self { id: text(&json, "id").unwrap_or_default(), phase: text(&json, "phase") }
            }
            _ => Self { id: signature.to_owned(), phase: None },
        }
    }
}
