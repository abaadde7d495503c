#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod decode;
mod encode;

use serde_json::{Value, json};
use wharf_protocol::Model;

use super::GoogleGenerativeAi;
use crate::api::Endpoint;
use crate::conformance::{self, reply_of, request, result, user};
use crate::registry::testing;

fn model(id: &str) -> Model {
    Model { api: "google-generative-ai".to_owned(), ..testing::model("google", id) }
}

fn endpoint(base_url: &str) -> Endpoint {
    Endpoint {
        base_url: base_url.to_owned(),
        api_key: Some("key-1".to_owned()),
        auth_header: false,
        compat: Value::Null,
    }
}

/// What the decoder makes of a reply is what the encoder sends back.
#[test]
fn a_reply_goes_back_as_it_came() {
    let parts = json!([
        {"text": "hm", "thought": true},
        {"text": "a", "thoughtSignature": "AAAA"},
        {"functionCall": {"name": "read", "args": {"path": "a"}, "id": "x"}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "read", "args": {"path": "b"}, "id": "y"}},
    ]);
    let stream = decode::chunk(parts.clone(), Some("STOP"), Value::Null);
    let (events, _) =
        conformance::decode(&GoogleGenerativeAi, &decode::new_request(), [stream.as_bytes()]);
    let model = decode::new_request().model;
    let messages = vec![
        user("hi"),
        reply_of(&model, &events),
        result("x", "read", vec![]),
        result("y", "read", vec![]),
    ];
    let body = encode::body(&request(model, messages), encode::OFFICIAL);
    assert_eq!(body["contents"][1]["parts"], parts);
    encode::check_invariants(&body, true);
}
