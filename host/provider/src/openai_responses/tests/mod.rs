#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod decode;
mod encode;

use serde_json::Value;
use wharf_protocol::{ContentBlock, Model};

use super::OpenAiResponses;
use crate::api::Endpoint;
use crate::conformance::{self, reply_of, request, result, user};
use crate::registry::testing;

/// A reasoning item as the server gives it.
const REASONING: &str = r#"{"id":"rs_1","type":"reasoning","encrypted_content":"gAAA","summary":[{"type":"summary_text","text":"hm"}]}"#;

fn model() -> Model {
    Model { api: "openai-responses".to_owned(), ..testing::model("openai", "gpt-5.2") }
}

fn endpoint() -> Endpoint {
    Endpoint {
        base_url: "https://api.openai.com/v1".to_owned(),
        api_key: Some("sk-1".to_owned()),
        auth_header: false,
        compat: Value::Null,
    }
}

/// What the decoder makes of a reply is what the encoder sends back.
#[test]
fn a_reply_goes_back_as_it_came() {
    let first = request(model(), vec![user("hi")]);
    let stream = decode::stream(&decode::full_stream());
    let (events, _) = conformance::decode(&OpenAiResponses, &first, [stream.as_bytes()]);
    let ids = ["call_1|fc_1", "call_2|fc_2"];
    let mut messages = vec![user("hi"), reply_of(&model(), &events)];
    messages.extend(ids.map(|id| result(id, "read", vec![ContentBlock::text("ok")])));
    let body = encode::body(&request(model(), messages));
    encode::check_invariants(&body);
    let kinds: Vec<&str> = body["input"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["id"].as_str().or(item["call_id"].as_str()).unwrap_or("user"))
        .collect();
    assert_eq!(kinds, ["user", "rs_1", "msg_1", "fc_1", "fc_2", "call_1", "call_2"]);
}
