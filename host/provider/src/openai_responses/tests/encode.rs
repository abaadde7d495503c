use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use wharf_protocol::{AgentMessage, ContentBlock, Model, ThinkingLevel};

use super::super::OpenAiResponses;
use super::{REASONING, endpoint, model};
use crate::Request;
use crate::api::{Api as _, Endpoint};
use crate::conformance::{
    call, conversation, image, reply, request, result, text, thinking, tool, user, user_blocks,
};

pub(super) fn body(request: &Request) -> Value {
    OpenAiResponses.encode(request, &endpoint()).body
}

fn check_input(what: &str, messages: Vec<Arc<AgentMessage>>, expect: Value) {
    let messages = crate::prepare::messages(&messages, &model());
    assert_eq!(body(&request(model(), messages))["input"], expect, "{what}");
}

#[test]
fn a_request_has_what_it_needs_and_no_more() {
    let mut bare = request(Model { reasoning: false, ..model() }, vec![user("hi")]);
    bare.max_tokens = Some(1);
    let sent = OpenAiResponses.encode(&bare, &endpoint());
    assert_eq!(sent.url, "https://api.openai.com/v1/responses");
    assert_eq!(sent.headers, [("authorization", "Bearer sk-1".to_owned())]);
    let input = json!([{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]);
    let expect = json!({
        "model": "gpt-5.2", "input": input, "stream": true, "store": false,
        "max_output_tokens": 16,
    });
    assert_eq!(sent.body, expect);

    let mut full = request(model(), vec![user("hi")]);
    full.system_prompt = "Be brief.".into();
    full.tools = Arc::new([tool("read")]);
    full.thinking_level = ThinkingLevel::High;
    full.session_id = Some("s-1".into());
    let keyless = Endpoint { api_key: None, ..endpoint() };
    let sent = OpenAiResponses.encode(&full, &keyless);
    assert_eq!(sent.headers, []);
    let expect = json!({
        "model": "gpt-5.2", "instructions": "Be brief.", "input": input, "stream": true,
        "store": false, "max_output_tokens": full.output_budget(),
        "tools": [{
            "type": "function", "name": "read", "description": "does read", "strict": false,
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        }],
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
        "prompt_cache_key": "s-1",
    });
    assert_eq!(sent.body, expect);
}

#[test]
fn reasoning_is_as_the_model_and_its_provider_take_it() {
    let check = |id: &str, level: ThinkingLevel, compat: Value, expect: Value| {
        let mut request = request(Model { id: id.to_owned(), ..model() }, vec![user("hi")]);
        request.thinking_level = level;
        let endpoint = Endpoint { compat, ..endpoint() };
        let body = OpenAiResponses.encode(&request, &endpoint).body;
        assert_eq!(body["reasoning"], expect, "{id} {level}");
        assert_eq!(body["include"], json!(["reasoning.encrypted_content"]), "{id} {level}");
    };
    let map = json!({"reasoningEffortMap": {"high": "max", "off": "off"}});
    check("gpt-5.2", ThinkingLevel::Off, Value::Null, json!({"effort": "none"}));
    check("gpt-5", ThinkingLevel::Off, Value::Null, json!({"effort": "minimal"}));
    check("o3", ThinkingLevel::Off, Value::Null, Value::Null);
    check("o3", ThinkingLevel::Low, Value::Null, json!({"effort": "low", "summary": "auto"}));
    check("o3", ThinkingLevel::High, map.clone(), json!({"effort": "max", "summary": "auto"}));
    check("o3", ThinkingLevel::Off, map.clone(), json!({"effort": "off"}));
    check("o3", ThinkingLevel::Low, map, json!({"effort": "low", "summary": "auto"}));
    check("o3", ThinkingLevel::High, json!({"supportsReasoningEffort": false}), Value::Null);
}

#[test]
fn a_schema_is_plainly_an_objects_and_a_long_cache_key_is_cut() {
    let mut request = request(model(), vec![user("hi")]);
    let mut bare = tool("now");
    bare.parameters = Value::Null;
    request.tools = Arc::new([bare]);
    request.session_id = Some("s".repeat(65).into());
    let body = body(&request);
    assert_eq!(body["tools"][0]["parameters"], json!({"type": "object", "properties": {}}));
    let key = body["prompt_cache_key"].as_str().unwrap();
    assert!(key.len() <= 64 && !key.is_empty(), "{key}");
}

fn message_item(text: &str) -> Value {
    json!({
        "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    })
}

fn with(mut item: Value, key: &str, value: &str) -> Value {
    item[key] = json!(value);
    item
}

fn call_item(call_id: &str) -> Value {
    json!({
        "type": "function_call", "call_id": call_id, "name": "read",
        "arguments": r#"{"path":"a"}"#,
    })
}

fn output_item(call_id: &str, output: impl Into<Value>) -> Value {
    json!({"type": "function_call_output", "call_id": call_id, "output": output.into()})
}

fn user_item(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "input_text", "text": text}]})
}

#[test]
fn messages_become_items() {
    let reasoning: Value = serde_json::from_str(REASONING).unwrap();
    let ok = || vec![ContentBlock::text("ok")];
    check_input("nothing at all", vec![], json!([user_item("(empty message)")]));
    check_input("an empty message", vec![user("")], json!([user_item("(empty message)")]));
    check_input(
        "an image, an empty text and an empty image",
        vec![user_blocks(vec![image("AAAA"), ContentBlock::text(""), image("")])],
        json!([{"role": "user", "content": [{
            "type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA",
        }]}]),
    );
    check_input(
        "text with an id, and with an id and a phase",
        vec![reply(
            &model(),
            vec![
                text("a", Some("msg_1")),
                text("", Some("msg_2")),
                text("b", Some(r#"{"v":1,"id":"msg_3","phase":"commentary"}"#)),
                text("c", Some("msg_1")),
                text("d", Some("chatcmpl-1")),
            ],
        )],
        json!([
            with(message_item("a"), "id", "msg_1"),
            with(with(message_item("b"), "id", "msg_3"), "phase", "commentary"),
            message_item("c"),
            message_item("d"),
        ]),
    );
    check_input(
        "reasoning goes back as it came, with the ids of what it led to",
        vec![
            reply(
                &model(),
                vec![thinking("hm", Some(REASONING)), call("call_1|fc_1", "read", None)],
            ),
            result("call_1|fc_1", "read", ok()),
        ],
        json!([reasoning, with(call_item("call_1"), "id", "fc_1"), output_item("call_1", "ok")]),
    );
    check_input(
        "reasoning that nothing follows",
        vec![user("q"), reply(&model(), vec![thinking("hm", Some(REASONING)), text("", None)])],
        json!([user_item("q")]),
    );
    let bare = r#"{"id":"rs_1","type":"reasoning","summary":[]}"#;
    for signature in [None, Some("c2ln"), Some(bare)] {
        check_input(
            "reasoning that cannot go back takes the ids with it",
            vec![
                reply(
                    &model(),
                    vec![
                        thinking("hm", signature),
                        text("a", Some("msg_1")),
                        call("call_1|fc_1", "read", None),
                    ],
                ),
                result("call_1|fc_1", "read", ok()),
            ],
            json!([message_item("a"), call_item("call_1"), output_item("call_1", "ok")]),
        );
    }
    check_input(
        "ids stay before reasoning that cannot go back",
        vec![reply(
            &model(),
            vec![
                thinking("hm", Some(REASONING)),
                text("a", Some("msg_1")),
                thinking("cut", None),
                text("b", Some("msg_2")),
            ],
        )],
        json!([reasoning, with(message_item("a"), "id", "msg_1"), message_item("b")]),
    );
    let another = Model { id: "gpt-5.1".to_owned(), ..model() };
    check_input(
        "another model's reply has neither reasoning nor ids",
        vec![
            reply(
                &another,
                vec![
                    thinking("hm", Some(REASONING)),
                    text("a", Some("msg_1")),
                    call("call_1|fc_1", "read", None),
                ],
            ),
            result("call_1|fc_1", "read", ok()),
        ],
        json!([message_item("a"), call_item("call_1"), output_item("call_1", "ok")]),
    );
    check_input(
        "results: nothing, an image, an item id of another kind",
        vec![
            reply(&model(), vec![call("call_1|x_1", "read", None), call("c2", "read", None)]),
            result("call_1|x_1", "read", vec![]),
            result("c2", "read", vec![ContentBlock::text("see"), image("AAAA")]),
        ],
        json!([
            call_item("call_1"),
            call_item("c2"),
            output_item("call_1", "(no output)"),
            output_item(
                "c2",
                json!([
                    {"type": "input_text", "text": "see"},
                    {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA"},
                ])
            ),
        ]),
    );
}

#[test]
fn ids_of_other_apis_become_valid_and_stay_apart() {
    let ids = ["toolu_1", "functions.read:0", "functions.read:1", "", "|fc_1", "c|fc_1", "c|fc_2"];
    let long = "x".repeat(65);
    let ids: Vec<&str> = ids.into_iter().chain([long.as_str()]).collect();
    let encode = || {
        let mut messages =
            vec![reply(&model(), ids.iter().map(|id| call(id, "read", None)).collect())];
        messages.extend(ids.iter().map(|id| result(id, "read", vec![ContentBlock::text(*id)])));
        body(&request(model(), messages))["input"].as_array().unwrap().clone()
    };
    let items = encode();
    assert_eq!(items, encode(), "the same in every request");
    let (calls, results) = items.split_at(ids.len());
    assert_eq!([&calls[0]["call_id"], &calls[5]["call_id"]], ["toolu_1", "c"]);
    let mut seen = HashSet::new();
    for ((call, result), id) in calls.iter().zip(results).zip(&ids) {
        let sent = call["call_id"].as_str().unwrap();
        assert_eq!(result["call_id"], sent, "{id}");
        assert!(seen.insert(sent), "{sent} stands for two calls");
    }
    check_invariants(&json!({"input": items}));
}

/// What the server refuses.
pub(super) fn check_invariants(body: &Value) {
    let is_id = |id: &Value| {
        let id = id.as_str().unwrap();
        (1..=64).contains(&id.len())
            && id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    let input = body["input"].as_array().unwrap();
    assert!(!input.is_empty());
    let mut open: Vec<&Value> = Vec::new();
    let mut ids = HashSet::new();
    let mut needs_follower = false;
    for item in input {
        if let Some(id) = item.get("id") {
            assert!(is_id(id) && ids.insert(id), "{id}");
        }
        let kind = item["type"].as_str().unwrap_or("user");
        let follows = matches!(kind, "message" | "function_call");
        assert!(!needs_follower || follows || kind == "reasoning", "reasoning without a follower");
        match kind {
            "reasoning" => {
                assert!(!item["encrypted_content"].as_str().unwrap().is_empty());
                assert!(item["summary"].is_array());
            }
            "message" | "user" => {
                assert!(kind == "message" || open.is_empty(), "a call without its result");
                assert_eq!(item["role"], if kind == "user" { "user" } else { "assistant" });
                let parts = item["content"].as_array().unwrap();
                assert!(!parts.is_empty());
                assert!(parts.iter().all(|part| part["text"] != ""), "{item}");
                assert!(item.get("id").is_none_or(|id| id.as_str().unwrap().starts_with("msg_")));
            }
            "function_call" => {
                assert!(is_id(&item["call_id"]), "{item}");
                assert!(item.get("id").is_none_or(|id| id.as_str().unwrap().starts_with("fc_")));
                let arguments: Value =
                    serde_json::from_str(item["arguments"].as_str().unwrap()).unwrap();
                assert!(arguments.is_object());
                assert!(ids.insert(&item["call_id"]), "{item}");
                open.push(&item["call_id"]);
            }
            "function_call_output" => {
                let at = open.iter().position(|id| **id == item["call_id"]);
                open.remove(at.expect("a result without its call"));
                assert!(!matches!(&item["output"], Value::String(text) if text.is_empty()));
                assert!(!matches!(&item["output"], Value::Array(parts) if parts.is_empty()));
            }
            other => panic!("{other}"),
        }
        needs_follower = kind == "reasoning";
    }
    assert!(open.is_empty() && !needs_follower, "{input:?}");
}

proptest! {
    #[test]
    fn no_conversation_makes_a_request_that_the_server_refuses(
        messages in conversation(model()),
    ) {
        check_invariants(&body(&request(model(), messages)));
    }
}
