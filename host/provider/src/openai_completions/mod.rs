//! The API `openai-completions`: chat completions as OpenAI and the many servers that
//! imitate it stream them. What the servers do differently stands in `compat`; nothing
//! here performs I/O.

mod chunk;
pub(crate) mod compat;
mod decode;
#[cfg(test)]
mod decode_tests;
mod encode;
#[cfg(test)]
mod encode_tests;
mod ids;
#[cfg(test)]
mod invariants;

use crate::Request;
use crate::api::{Api, Decoder, Endpoint, HttpRequest};

#[derive(Debug)]
pub(crate) struct OpenAiCompletions;

impl Api for OpenAiCompletions {
    fn encode(&self, request: &Request, endpoint: &Endpoint) -> HttpRequest {
        encode::request(request, endpoint)
    }

    fn decoder(&self, _: &Request) -> Box<dyn Decoder> {
        Box::new(decode::ChatDecoder::new(uuid::Uuid::new_v4().simple().to_string()))
    }
}
