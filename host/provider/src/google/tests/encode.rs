use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use wharf_protocol::{AgentMessage, ContentBlock, Model, ThinkingLevel};

use super::super::GoogleGenerativeAi;
use super::{endpoint, model};
use crate::Request;
use crate::api::{Api as _, Endpoint};
use crate::conformance::{
    call, conversation, image, reply, request, result, text, thinking, tool, user, user_blocks,
};

pub(super) const OFFICIAL: &str = "https://generativelanguage.googleapis.com/v1beta";
const PROXY: &str = "https://gemini.example.com/v1beta";

pub(super) fn body(request: &Request, base_url: &str) -> Value {
    GoogleGenerativeAi.encode(request, &endpoint(base_url)).body
}

fn check_contents(what: &str, model: &Model, messages: Vec<Arc<AgentMessage>>, expect: Value) {
    let messages = crate::prepare::messages(&messages, model);
    let body = body(&request(model.clone(), messages), PROXY);
    assert_eq!(body["contents"], expect, "{what}");
}

#[test]
fn a_request_has_what_it_needs_and_no_more() {
    let plain = Model { reasoning: false, ..model("models/gemini-2.5-flash") };
    let mut bare = request(plain, vec![user("hi")]);
    bare.max_tokens = Some(1);
    let mut by_bearer = endpoint(OFFICIAL);
    by_bearer.auth_header = true;
    let sent = GoogleGenerativeAi.encode(&bare, &by_bearer);
    let url = format!("{OFFICIAL}/models/gemini-2.5-flash:streamGenerateContent?alt=sse");
    assert_eq!(sent.url, url);
    assert_eq!(sent.headers, [("authorization", "Bearer key-1".to_owned())]);
    let contents = json!([{"role": "user", "parts": [{"text": "hi"}]}]);
    let expect = json!({"contents": contents, "generationConfig": {"maxOutputTokens": 1}});
    assert_eq!(sent.body, expect);

    let mut full = request(model("gemini-2.5-flash"), vec![user("hi")]);
    full.system_prompt = "Be brief.".into();
    let mut bare_tool = tool("now");
    bare_tool.parameters = Value::Null;
    full.tools = Arc::new([tool("read"), bare_tool]);
    full.thinking_level = ThinkingLevel::Low;
    let sent = GoogleGenerativeAi.encode(&full, &endpoint(OFFICIAL));
    assert_eq!(sent.url, url);
    assert_eq!(sent.headers, [("x-goog-api-key", "key-1".to_owned())]);
    let expect = json!({
        "contents": contents,
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [
            {
                "name": "read",
                "description": "does read",
                "parametersJsonSchema":
                    {"type": "object", "properties": {"path": {"type": "string"}}},
            },
            {"name": "now", "description": "does now"},
        ]}],
        "generationConfig": {
            "maxOutputTokens": full.output_budget(),
            "thinkingConfig": {"thinkingBudget": 2048, "includeThoughts": true},
        },
    });
    assert_eq!(sent.body, expect);
    let keyless = Endpoint { api_key: None, ..endpoint(OFFICIAL) };
    assert_eq!(GoogleGenerativeAi.encode(&full, &keyless).headers, []);
}

fn text_part(text: &str) -> Value {
    json!({"text": text})
}

fn signed(mut part: Value, signature: &str) -> Value {
    part["thoughtSignature"] = json!(signature);
    part
}

fn call_part(name: &str) -> Value {
    json!({"functionCall": {"name": name, "args": {"path": "a"}}})
}

fn result_part(name: &str, key: &str, text: &str) -> Value {
    json!({"functionResponse": {"name": name, "response": {key: text}}})
}

fn from_user(parts: Value) -> Value {
    json!({"role": "user", "parts": parts})
}

fn from_model(parts: Value) -> Value {
    json!({"role": "model", "parts": parts})
}

#[test]
fn messages_become_contents() {
    let model_2 = model("gemini-2.5-pro");
    let ok = || vec![ContentBlock::text("ok")];
    for messages in [vec![], vec![user("")]] {
        let expect = json!([from_user(json!([text_part("(empty message)")]))]);
        check_contents("nothing, and an empty message", &model_2, messages, expect);
    }
    check_contents(
        "an image, an empty text and an empty image",
        &model_2,
        vec![user_blocks(vec![ContentBlock::text(""), image("AAAA"), image("")])],
        json!([from_user(json!([{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]))]),
    );
    check_contents(
        "a reply at the beginning, and one after another",
        &model_2,
        vec![
            reply(&model_2, vec![text("a", None)]),
            reply(&model_2, vec![text("b", Some("c2ln"))]),
        ],
        json!([
            from_user(json!([text_part("(the conversation begins with a reply)")])),
            from_model(json!([text_part("a"), signed(text_part("b"), "c2ln")])),
        ]),
    );
    let thought = json!({"text": "hm", "thought": true});
    check_contents(
        "thoughts of its own, signatures that are none, and a reply of thoughts alone",
        &model_2,
        vec![
            user("q"),
            reply(
                &model_2,
                vec![
                    thinking("hm", Some("c2ln")),
                    thinking("", Some("c2ln")),
                    text("a", Some("!")),
                ],
            ),
            user("r"),
            reply(&model_2, vec![thinking("hm", None), text("", Some("c2ln"))]),
            user("s"),
        ],
        json!([
            from_user(json!([text_part("q")])),
            from_model(json!([signed(thought, "c2ln"), text_part("a")])),
            from_user(json!([text_part("r"), text_part("s")])),
        ]),
    );
    check_contents(
        "results of one reply stand together, images beside them",
        &model_2,
        vec![
            user("q"),
            reply(
                &model_2,
                vec![
                    call("1", "read", Some("c2ln")),
                    call("2", "fail", None),
                    call("3", "read", None),
                ],
            ),
            result("1", "read", vec![ContentBlock::text("see"), image("AAAA")]),
            result("2", "fail", vec![]),
            result("3", "read", vec![image("BBBB")]),
            user("r"),
        ],
        json!([
            from_user(json!([text_part("q")])),
            from_model(json!([
                signed(call_part("read"), "c2ln"),
                call_part("fail"),
                call_part("read")
            ])),
            from_user(json!([
                result_part("read", "output", "see"),
                {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
                result_part("fail", "error", "(no output)"),
                result_part("read", "output", "(see the image)"),
                {"inlineData": {"mimeType": "image/png", "data": "BBBB"}},
                text_part("r"),
            ])),
        ]),
    );
    let skip = "skip_thought_signature_validator";
    for (id, expect) in [
        ("gemini-2.5-pro", call_part("read")),
        ("gemma-4-31b-it", call_part("read")),
        ("gemini-3-pro-preview", signed(call_part("read"), skip)),
        ("gemini-flash-latest", signed(call_part("read"), skip)),
    ] {
        check_contents(
            "the first call of a step is signed where it must be",
            &model(id),
            vec![
                user("q"),
                reply(
                    &model("another"),
                    vec![call("1", "read", Some("c2ln")), call("2", "read", None)],
                ),
                result("1", "read", ok()),
                result("2", "read", ok()),
            ],
            json!([
                from_user(json!([text_part("q")])),
                from_model(json!([expect, call_part("read")])),
                from_user(json!([
                    result_part("read", "output", "ok"),
                    result_part("read", "output", "ok")
                ])),
            ]),
        );
    }
}

#[test]
fn ids_go_only_where_they_are_taken() {
    let check = |id: &str, base_url: &str, from: &str, expect: bool| {
        let messages = vec![
            user("q"),
            reply(&model(from), vec![call("c1", "read", None)]),
            result("c1", "read", vec![]),
        ];
        let messages = crate::prepare::messages(&messages, &model(id));
        let contents = body(&request(model(id), messages), base_url)["contents"].clone();
        let expect = if expect { json!("c1") } else { Value::Null };
        assert_eq!(contents[1]["parts"][0]["functionCall"]["id"], expect, "{id} {base_url}");
        assert_eq!(contents[2]["parts"][0]["functionResponse"]["id"], expect, "{id} {base_url}");
    };
    check("gemini-3-pro-preview", OFFICIAL, "gemini-3-pro-preview", true);
    check("gemini-3-pro-preview", OFFICIAL, "another", false);
    check("gemini-3-pro-preview", PROXY, "gemini-3-pro-preview", false);
    check("gemini-2.5-pro", OFFICIAL, "gemini-2.5-pro", false);
}

/// What the server refuses.
pub(super) fn check_invariants(body: &Value, wants_signatures: bool) {
    let contents = body["contents"].as_array().unwrap();
    assert!(!contents.is_empty());
    // Names and ids of the calls that wait for their results.
    let mut calls: Vec<(&Value, Option<&Value>)> = Vec::new();
    for (at, content) in contents.iter().enumerate() {
        assert_eq!(content["role"], if at % 2 == 0 { "user" } else { "model" });
        let parts = content["parts"].as_array().unwrap();
        assert!(!parts.is_empty());
        for part in parts {
            let kinds = ["text", "inlineData", "functionCall", "functionResponse"];
            assert_eq!(kinds.iter().filter(|kind| part.get(**kind).is_some()).count(), 1, "{part}");
            assert!(part["text"] != "" && part["inlineData"]["data"] != "", "{part}");
            assert!(part["thoughtSignature"] != "no base64!", "{part}");
        }
        let named = |kind: &'static str| {
            parts.iter().filter_map(move |part| part.get(kind)).map(|f| (&f["name"], f.get("id")))
        };
        let answered: Vec<_> = named("functionResponse").collect();
        assert_eq!(answered, calls, "each call has its result in the next content");
        calls = named("functionCall").collect();
        if content["role"] == "user" {
            assert!(calls.is_empty());
        } else {
            assert!(!parts.iter().all(|part| part["thought"] == true), "{parts:?}");
            let first = parts.iter().find(|part| part.get("functionCall").is_some());
            assert!(
                !wants_signatures || first.is_none_or(|part| part["thoughtSignature"].is_string())
            );
        }
    }
    assert!(calls.is_empty());
}

proptest! {
    #[test]
    fn no_conversation_makes_a_request_that_the_server_refuses(
        (id, messages) in prop::sample::select(vec!["gemini-2.5-flash", "gemini-3-flash-preview"])
            .prop_flat_map(|id| (Just(id), conversation(model(id)))),
        base_url in prop::sample::select(vec![OFFICIAL, PROXY]),
    ) {
        let body = body(&request(model(id), messages), base_url);
        check_invariants(&body, id.contains("-3-"));
    }
}
