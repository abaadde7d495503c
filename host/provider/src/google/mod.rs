//! The API `google-generative-ai`: the Gemini API's `streamGenerateContent`.
//!
//! What a block's signature holds here: the `thoughtSignature` of the part that the
//! block was, whatever its kind.

mod decode;
mod encode;
#[cfg(test)]
mod tests;
mod thinking;

use crate::Request;
use crate::api::{Api, Decoder, Endpoint, HttpRequest};

#[derive(Debug)]
pub(crate) struct GoogleGenerativeAi;

impl Api for GoogleGenerativeAi {
    fn encode(&self, request: &Request, endpoint: &Endpoint) -> HttpRequest {
        encode::encode(request, endpoint)
    }

    fn decoder(&self, request: &Request) -> Box<dyn Decoder> {
        Box::new(decode::GoogleDecoder::new(request))
    }
}
