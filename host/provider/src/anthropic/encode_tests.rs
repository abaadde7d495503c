//! Requests, rule by rule, and what must hold for the request of any conversation.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use wharf_protocol::{AgentMessage, Model, ThinkingLevel};

use super::AnthropicMessages;
use crate::api::{Api as _, Endpoint, HttpRequest};
use crate::registry::testing;
use crate::{Purpose, Request, ThinkingBudgets, ToolDefinition, prepare};

const OLD: &str = "claude-sonnet-4-5";
const OPUS: &str = "claude-opus-4-6";

fn model(id: &str) -> Model {
    let api = "anthropic-messages".to_owned();
    Model { api, max_tokens: 64_000, ..testing::model("anthropic", id) }
}

/// A request as the driver hands it over; `messages` in the shape of a session file.
fn request(id: &str, level: ThinkingLevel, messages: &Value) -> Request {
    let list: Vec<AgentMessage> = serde_json::from_value(messages.clone()).unwrap();
    let list: Vec<_> = list.into_iter().map(Arc::new).collect();
    let model = model(id);
    Request {
        messages: prepare::messages(&list, &model),
        purpose: Purpose::Reply,
        thinking_level: crate::thinking::clamp(level, &model),
        thinking_budgets: ThinkingBudgets::default(),
        system_prompt: Arc::from(""),
        tools: Arc::new([]),
        max_tokens: None,
        session_id: None,
        filter: None,
        model,
    }
}

fn endpoint() -> Endpoint {
    Endpoint {
        base_url: "https://api.example".to_owned(),
        api_key: Some("KEY".to_owned()),
        auth_header: false,
        compat: Value::Null,
    }
}

fn encode(request: &Request) -> HttpRequest {
    AnthropicMessages.encode(request, &endpoint())
}

fn user(content: &Value) -> Value {
    json!({"role": "user", "content": content, "timestamp": 1})
}

fn reply_of(model: &str, content: &Value) -> Value {
    json!({"role": "assistant", "content": content, "api": "anthropic-messages",
        "provider": "anthropic", "model": model, "stopReason": "stop", "timestamp": 1})
}

fn reply(content: &Value) -> Value {
    reply_of(OPUS, content)
}

fn words(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn thought(text: &str, signature: &str) -> Value {
    json!({"type": "thinking", "thinking": text, "thinkingSignature": signature})
}

fn call(id: &str) -> Value {
    json!({"type": "toolCall", "id": id, "name": "read", "arguments": {"path": "a"}})
}

fn result(id: &str, content: &Value) -> Value {
    json!({"role": "toolResult", "toolCallId": id, "toolName": "read", "content": content,
        "isError": false, "timestamp": 1})
}

fn failed(id: &str, content: &Value) -> Value {
    let mut failed = result(id, content);
    failed["isError"] = json!(true);
    failed
}

fn image(mime_type: &str) -> Value {
    json!({"type": "image", "data": "AA==", "mimeType": mime_type})
}

fn sent_image(media_type: &str) -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": "AA=="}})
}

fn tool_use(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "read", "input": {"path": "a"}})
}

fn tool_result(id: &str, content: &Value) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": content})
}

fn sent(role: &str, content: &Value) -> Value {
    json!({"role": role, "content": content})
}

/// Takes the cache marks out; gives their number.
fn unmark(value: &mut Value) -> usize {
    match value {
        Value::Object(map) => {
            let own = usize::from(map.remove("cache_control").is_some());
            own + map.values_mut().map(unmark).sum::<usize>()
        }
        Value::Array(list) => list.iter_mut().map(unmark).sum(),
        _ => 0,
    }
}

/// The messages that an adaptive model is sent, without the cache marks.
fn check(messages: &Value, expect: &Value) {
    let mut seen = encode(&request(OPUS, ThinkingLevel::High, messages)).body;
    unmark(&mut seen);
    assert_eq!(seen["messages"], *expect);
}

#[test]
fn a_whole_request() {
    let messages = json!([
        user(&json!("Hi")),
        reply_of(OLD, &json!([thought("Hm", "sig"), words("I look."), call("toolu_1")])),
        result("toolu_1", &json!([words("found")])),
        user(&json!("And now?")),
    ]);
    let mut request = request(OLD, ThinkingLevel::Medium, &messages);
    request.system_prompt = Arc::from("Be brief.");
    request.tools = Arc::new([
        ToolDefinition {
            name: "read".to_owned(),
            description: "Reads.".to_owned(),
            parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        },
        ToolDefinition {
            name: "now".to_owned(),
            description: "Tells the time.".to_owned(),
            parameters: json!({}),
        },
    ]);
    let seen = encode(&request);
    let cached = json!({"type": "ephemeral"});
    let expect = json!({
        "model": OLD,
        "max_tokens": 32_000,
        "stream": true,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": cached}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": cached}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm", "signature": "sig"},
                {"type": "text", "text": "I look."},
                tool_use("toolu_1"),
            ]},
            {"role": "user", "content": [
                tool_result("toolu_1", &json!([words("found")])),
                {"type": "text", "text": "And now?", "cache_control": cached},
            ]},
        ],
        "tools": [
            {"name": "read", "description": "Reads.",
                "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}},
            {"name": "now", "description": "Tells the time.",
                "input_schema": {"type": "object"}, "cache_control": cached},
        ],
        "thinking": {"type": "enabled", "budget_tokens": 8192},
    });
    assert_eq!(seen.body, expect);
    assert_eq!(seen.url, "https://api.example/v1/messages");
    let headers: Vec<_> = seen.headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
    assert_eq!(
        headers,
        [
            ("anthropic-version", "2023-06-01"),
            ("x-api-key", "KEY"),
            ("anthropic-beta", "interleaved-thinking-2025-05-14"),
        ]
    );
}

#[test]
fn urls_and_keys() {
    let request = request(OLD, ThinkingLevel::Off, &json!([user(&json!("Hi"))]));
    for (base_url, key, auth_header, url, expect) in [
        ("http://h", Some("K"), false, "http://h/v1/messages", Some(("x-api-key", "K"))),
        (
            "http://h/v1",
            Some("K"),
            true,
            "http://h/v1/messages",
            Some(("authorization", "Bearer K")),
        ),
        ("http://h/anthropic", None, false, "http://h/anthropic/v1/messages", None),
        ("http://h/a/v1", None, true, "http://h/a/v1/messages", None),
    ] {
        let endpoint = Endpoint {
            base_url: base_url.to_owned(),
            api_key: key.map(str::to_owned),
            auth_header,
            compat: Value::Null,
        };
        let seen = AnthropicMessages.encode(&request, &endpoint);
        assert_eq!(seen.url, url);
        let mut headers = seen.headers.iter().map(|(name, value)| (*name, value.as_str()));
        assert_eq!(headers.next(), Some(("anthropic-version", "2023-06-01")));
        assert_eq!((headers.next(), headers.next()), (expect, None));
        for absent in ["system", "tools", "thinking", "output_config", "temperature"] {
            assert_eq!(seen.body.get(absent), None, "{absent}");
        }
    }
}

#[test]
fn thinking_of_every_kind_of_model() {
    use ThinkingLevel::{High, Low, Medium, Minimal, Off, Xhigh};
    let beta = "thinking-binding-controls-2026-08-01";
    let adaptive = || json!({"type": "adaptive"});
    let shown = || json!({"type": "adaptive", "display": "summarized"});
    let bound = || {
        json!({"type": "adaptive", "display": "summarized",
            "block_binding": {"prefix_mismatch_behavior": "drop_block"}})
    };
    let budget = |tokens: u64| json!({"type": "enabled", "budget_tokens": tokens});
    for (id, level, thinking, effort, expect_beta) in [
        (OLD, Off, json!(null), json!(null), None),
        (OLD, Minimal, budget(1024), json!(null), None),
        (OLD, Low, budget(2048), json!(null), None),
        (OLD, Xhigh, budget(16_384), json!(null), None),
        ("kimi-k2", Off, json!(null), json!(null), None),
        ("kimi-k2", High, budget(16_384), json!(null), None),
        (OPUS, Off, json!(null), json!(null), None),
        (OPUS, Minimal, adaptive(), json!("low"), None),
        (OPUS, Low, adaptive(), json!("low"), None),
        (OPUS, Medium, adaptive(), json!("medium"), None),
        (OPUS, High, adaptive(), json!("high"), None),
        (OPUS, Xhigh, adaptive(), json!("max"), None),
        ("claude-sonnet-4-6", Xhigh, adaptive(), json!("high"), None),
        ("claude-opus-4-7", Off, json!(null), json!(null), None),
        ("claude-opus-4-7", Low, shown(), json!("low"), None),
        ("claude-opus-5", Off, json!({"type": "disabled"}), json!(null), None),
        ("claude-sonnet-5", Xhigh, shown(), json!("max"), None),
        ("claude-fable-5", Off, shown(), json!("low"), None),
        ("claude-opus-5-5", High, bound(), json!("high"), Some(beta)),
        ("claude-fable-5-1", Off, bound(), json!("low"), Some(beta)),
    ] {
        let seen = encode(&request(id, level, &json!([user(&json!("Hi"))])));
        assert_eq!(seen.body["thinking"], thinking, "{id} {level}");
        assert_eq!(seen.body["output_config"]["effort"], effort, "{id} {level}");
        let mut betas = seen.headers.iter().filter(|(name, _)| *name == "anthropic-beta");
        assert_eq!(betas.next().map(|(_, value)| value.as_str()), expect_beta, "{id} {level}");
        assert_eq!(seen.body["max_tokens"], 32_000);
    }
    // `reasoning` is off in models.json.
    let mut plain = request("claude-opus-5", High, &json!([user(&json!("Hi"))]));
    plain.model.reasoning = false;
    let seen = encode(&plain);
    assert_eq!((seen.body.get("thinking"), seen.body.get("output_config")), (None, None));
}

#[test]
fn a_budget_fits_into_max_tokens() {
    for (asked, ceiling, expect) in [
        (None, 64_000, (json!(16_384), 32_000)),
        (Some(4000), 64_000, (json!(16_384), 20_384)),
        (Some(4000), 8000, (json!(6976), 8000)),
        (None, 1024, (json!(null), 1024)),
    ] {
        let mut request = request(OLD, ThinkingLevel::High, &json!([user(&json!("Hi"))]));
        request.max_tokens = asked;
        request.model.max_tokens = ceiling;
        let seen = encode(&request).body;
        let budget = seen["thinking"]["budget_tokens"].clone();
        assert_eq!((budget, seen["max_tokens"].as_u64().unwrap()), expect, "{asked:?} {ceiling}");
    }
}

#[test]
fn users_words_and_images() {
    check(
        &json!([
            user(&json!([words("look"), image("image/png"), words("  \n"), image("image/jpg")])),
            user(&json!("")),
            user(&json!([words("now"), image("image/bmp")])),
        ]),
        &json!([sent(
            "user",
            &json!([
                words("look"),
                sent_image("image/png"),
                sent_image("image/jpeg"),
                words("now"),
                words("[image left out: image/bmp is not supported]"),
            ])
        )]),
    );
}

#[test]
fn thinking_goes_back_as_it_came() {
    let content = json!([
        thought("Hm", "sig"),
        thought("", "hidden"),
        thought("unsigned", ""),
        {"type": "thinking", "thinking": "unsigned"},
        {"type": "thinking", "thinking": "", "thinkingSignature": "blob", "redacted": true},
        {"type": "thinking", "thinking": "", "redacted": true},
        words("So."),
        // Where a reply was interrupted.
        thought("last", "sig"),
    ]);
    let list = json!([user(&json!("Hi")), reply(&content), user(&json!("Go"))]);
    check(
        &list,
        &json!([
            sent("user", &json!([words("Hi")])),
            sent(
                "assistant",
                &json!([
                    {"type": "thinking", "thinking": "Hm", "signature": "sig"},
                    {"type": "thinking", "thinking": "", "signature": "hidden"},
                    {"type": "redacted_thinking", "data": "blob"},
                    words("So."),
                ])
            ),
            sent("user", &json!([words("Go")])),
        ]),
    );
    // A model that does not think refuses it; one that always thinks wants it.
    for (id, level, kept) in [
        (OPUS, ThinkingLevel::Off, false),
        (OLD, ThinkingLevel::Off, false),
        ("claude-opus-5", ThinkingLevel::Off, false),
        ("claude-fable-5-1", ThinkingLevel::Off, true),
        ("kimi-k2", ThinkingLevel::Off, true),
        (OLD, ThinkingLevel::Low, true),
    ] {
        let list = json!([user(&json!("Hi")), reply_of(id, &content), user(&json!("Go"))]);
        let body = encode(&request(id, level, &list)).body;
        let kinds: Vec<_> = body["messages"][1]["content"].as_array().unwrap().iter().collect();
        assert_eq!(kinds.iter().any(|block| block["type"] == "thinking"), kept, "{id} {level}");
    }
}

#[test]
fn a_turn_that_did_not_begin_with_thinking_goes_on_without() {
    let turn = |first: &Value| {
        json!([
            user(&json!("Hi")),
            first,
            result("c1", &json!([words("r")])),
            reply_of(OLD, &json!([call("c2")])),
            result("c2", &json!([words("r")])),
        ])
    };
    let own = reply_of(OLD, &json!([thought("Hm", "sig"), call("c1")]));
    let unthinking = reply_of(OLD, &json!([call("c1")]));
    let foreign = reply_of(OPUS, &json!([thought("Hm", "sig"), call("c1")]));
    for (first, thinks) in [(&own, true), (&unthinking, false), (&foreign, false)] {
        let mut list = turn(first);
        let seen = encode(&request(OLD, ThinkingLevel::High, &list)).body;
        assert_eq!(seen.get("thinking").is_some(), thinks, "{first}");
        assert_eq!(seen["max_tokens"], 32_000);
        // Only that turn.
        list.as_array_mut().unwrap().push(reply_of(OLD, &json!([words("Done.")])));
        list.as_array_mut().unwrap().push(user(&json!("More")));
        let seen = encode(&request(OLD, ThinkingLevel::High, &list)).body;
        assert!(seen.get("thinking").is_some(), "{first}");
    }
    // Models that choose for themselves do not ask for it.
    let seen = encode(&request(OPUS, ThinkingLevel::High, &turn(&unthinking))).body;
    assert_eq!(seen["thinking"], json!({"type": "adaptive"}));
}

#[test]
fn results_stand_together_right_after_their_calls() {
    check(
        &json!([
            user(&json!("Hi")),
            reply(&json!([
                call("c1"),
                words("after"),
                call("c2"),
                call("c3"),
                call("c4"),
                call("c5")
            ])),
            result("c2", &json!([])),
            user(&json!("meanwhile")),
            result("c1", &json!([words("one"), image("image/png")])),
            failed("c3", &json!([words("bad"), image("image/png")])),
            failed("c4", &json!([image("image/gif")])),
            result("c9", &json!([words("of no call")])),
            result("c1", &json!([words("again")])),
            user(&json!("Go on")),
        ]),
        &json!([
            sent("user", &json!([words("Hi")])),
            sent(
                "assistant",
                &json!([
                    words("after"),
                    tool_use("c1"),
                    tool_use("c2"),
                    tool_use("c3"),
                    tool_use("c4"),
                    tool_use("c5"),
                ])
            ),
            sent(
                "user",
                &json!([
                    tool_result("c2", &json!([words("(no output)")])),
                    tool_result("c1", &json!([words("one"), sent_image("image/png")])),
                    {"type": "tool_result", "tool_use_id": "c3", "content": [words("bad")], "is_error": true},
                    {"type": "tool_result", "tool_use_id": "c4", "content": [words("(no output)")], "is_error": true},
                    {"type": "tool_result", "tool_use_id": "c5", "is_error": true,
                        "content": [words("(no result: the call was not run to its end)")]},
                    words("meanwhile"),
                    sent_image("image/png"),
                    sent_image("image/gif"),
                    words("Go on"),
                ])
            ),
        ]),
    );
}

#[test]
fn ids_and_names_of_other_providers() {
    let id = format!("call_abc|fc_{}", "1".repeat(400));
    let list = json!([
        user(&json!("Hi")),
        reply(&json!([call(&id), call("same"), {"type": "toolCall", "id": "n", "name": "a.b"}])),
        result(&id, &json!([words("long")])),
        result("same", &json!([words("first")])),
        result("n", &json!([words("named")])),
        reply(&json!([call("same")])),
        result("same", &json!([words("second")])),
    ]);
    let body = encode(&request(OPUS, ThinkingLevel::Off, &list)).body;
    assert_eq!(body, encode(&request(OPUS, ThinkingLevel::Off, &list)).body);
    let at = |pointer: &str| body.pointer(pointer).unwrap();
    let long = at("/messages/1/content/0/id").as_str().unwrap();
    assert!(long.starts_with("call_abc_fc_1111") && long.len() == 64, "{long}");
    assert_eq!(at("/messages/2/content/0/tool_use_id"), long);
    assert_eq!(at("/messages/1/content/1/id"), "same");
    assert_eq!(at("/messages/2/content/1/tool_use_id"), "same");
    assert_eq!(at("/messages/1/content/2/name"), "a_b");
    assert_eq!(at("/messages/1/content/2/input"), &json!({}));
    let again = at("/messages/3/content/0/id");
    assert_ne!(again, "same");
    assert_eq!(at("/messages/4/content/0/tool_use_id"), again);
    assert_eq!(at("/messages/4/content/0/content/0/text"), "second");
}

#[test]
fn nothing_is_empty_and_the_user_begins() {
    let filler = || sent("user", &json!([words("Continue.")]));
    check(&json!([]), &json!([filler()]));
    check(&json!([user(&json!(" \n"))]), &json!([filler()]));
    check(
        &json!([reply(&json!([words("I begin.")])), user(&json!("Fine"))]),
        &json!([
            filler(),
            sent("assistant", &json!([words("I begin.")])),
            sent("user", &json!([words("Fine")]))
        ]),
    );
    check(
        &json!([
            user(&json!("a")),
            reply(&json!([words(" "), thought("interrupted", "")])),
            user(&json!("b")),
            reply(&json!([words("c")])),
            reply(&json!([words("d")])),
        ]),
        &json!([
            sent("user", &json!([words("a"), words("b")])),
            sent("assistant", &json!([words("c"), words("d")])),
            filler(),
        ]),
    );
    // A model that continues its own words takes them at the end, but no white space.
    let list = json!([user(&json!("a")), reply_of(OLD, &json!([words("It is: \n")]))]);
    let seen = encode(&request(OLD, ThinkingLevel::Off, &list)).body;
    assert_eq!(seen["messages"].as_array().unwrap().len(), 2);
    assert_eq!(seen["messages"][1]["content"][0]["text"], "It is:");
    let seen = encode(&request(OLD, ThinkingLevel::Low, &list)).body;
    assert_eq!(seen["messages"][1]["content"][0]["text"], "It is: \n");
    assert_eq!(seen["messages"][2]["role"], "user");
}

/// What the API checks before it answers.
fn assert_valid(body: &Value) {
    let is_id = |id: &Value, max: usize| {
        let id = id.as_str().unwrap();
        (1..=max).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    fn no_blank_text(value: &Value) {
        match value {
            Value::Object(map) => {
                if map.get("type") == Some(&json!("text")) {
                    assert!(!map["text"].as_str().unwrap().trim().is_empty());
                }
                map.values().for_each(no_blank_text);
            }
            Value::Array(list) => list.iter().for_each(no_blank_text),
            _ => {}
        }
    }
    let kind = |block: &Value| block["type"].as_str().unwrap().to_owned();
    let messages = body["messages"].as_array().unwrap();
    no_blank_text(&body["messages"]);
    assert!(!messages.is_empty());
    let mut ids = HashSet::new();
    let mut due: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        assert_eq!(message["role"], ["user", "assistant"][at % 2], "roles alternate");
        let content = message["content"].as_array().unwrap();
        assert!(!content.is_empty());
        let (results, rest) =
            content.split_at(content.iter().take_while(|b| kind(b) == "tool_result").count());
        let mut answered: Vec<_> = Vec::new();
        for result in results {
            answered.push(result["tool_use_id"].as_str().unwrap().to_owned());
            let parts = result["content"].as_array().unwrap();
            assert!(!parts.is_empty());
            if result["is_error"] == true {
                assert!(parts.iter().all(|part| kind(part) == "text"));
            }
        }
        answered.sort_unstable();
        due.sort_unstable();
        assert_eq!(answered, due, "every call has its result in the next message");
        due.clear();
        let mut called = false;
        for block in rest {
            let allowed: &[&str] = if at % 2 == 0 {
                &["text", "image"]
            } else if called {
                &["tool_use", "thinking", "redacted_thinking"]
            } else {
                &["text", "tool_use", "thinking", "redacted_thinking"]
            };
            assert!(allowed.contains(&kind(block).as_str()), "{block} in {at}");
            if kind(block).ends_with("thinking") {
                assert_eq!(block.get("cache_control"), None);
                let signature = if kind(block) == "thinking" { "signature" } else { "data" };
                assert!(!block[signature].as_str().unwrap().is_empty());
            }
            if kind(block) == "tool_use" {
                called = true;
                assert!(is_id(&block["id"], 64) && is_id(&block["name"], 128), "{block}");
                assert!(block["input"].is_object());
                let id = block["id"].as_str().unwrap().to_owned();
                assert!(ids.insert(id.clone()), "ids are unique");
                due.push(id);
            }
        }
        assert!(!kind(content.last().unwrap()).ends_with("thinking"));
    }
    assert_eq!(due, Vec::<String>::new());
    if let Some(budget) = body["thinking"]["budget_tokens"].as_u64() {
        assert!(budget >= 1024 && budget < body["max_tokens"].as_u64().unwrap());
    }
    let marks = unmark(&mut body.clone());
    assert!((1..=4).contains(&marks), "{marks} marks");
}

fn some_text() -> impl Strategy<Value = Value> {
    prop_oneof![Just(""), Just(" \n"), Just("a"), Just("b \n")].prop_map(words)
}

fn some_content() -> impl Strategy<Value = Value> {
    let image = prop_oneof![Just("image/png"), Just("image/tiff")].prop_map(image);
    prop::collection::vec(prop_oneof![3 => some_text(), 1 => image], 0..3).prop_map(Value::from)
}

fn some_id() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("toolu_1".to_owned()),
        Just("call_0".to_owned()),
        Just("call_abc|fc_123".to_owned()),
        Just(format!("call_abc|{}", "x".repeat(400))),
        Just("x".repeat(65)),
        Just("é.ü".to_owned()),
        ".{0,8}",
    ]
}

fn some_message() -> impl Strategy<Value = Value> {
    let thought =
        (any::<bool>(), prop_oneof![Just(""), Just("Hm")], prop_oneof![Just(""), Just("sig")])
            .prop_map(|(redacted, text, signature)| {
                let mut block = thought(text, signature);
                block["redacted"] = json!(redacted);
                block
            });
    let call =
        (some_id(), prop_oneof![Just("read"), Just("a.b"), Just("")]).prop_map(|(id, name)| {
            let mut block = call(&id);
            block["name"] = json!(name);
            block
        });
    let block = prop_oneof![some_text(), thought, call];
    let model = prop_oneof![Just(OLD), Just(OPUS), Just("claude-fable-5-1"), Just("gpt-5")];
    let reply = (model, prop::collection::vec(block, 0..5))
        .prop_map(|(model, content)| reply_of(model, &Value::from(content)));
    let result = (some_id(), some_content(), any::<bool>()).prop_map(|(id, content, bad)| {
        if bad { failed(&id, &content) } else { result(&id, &content) }
    });
    let user = prop_oneof![
        some_content().prop_map(|content| user(&content)),
        prop_oneof![Just(""), Just("a")].prop_map(|text| user(&json!(text))),
    ];
    prop_oneof![user, reply, result]
}

/// Gives every call its result right after it, as the agent does; other results go.
fn paired(list: &[Value]) -> Vec<Value> {
    let mut paired = Vec::new();
    for (at, message) in list.iter().enumerate() {
        if message["role"] == "toolResult" {
            continue;
        }
        paired.push(message.clone());
        let empty = Vec::new();
        let calls = message["content"].as_array().unwrap_or(&empty).iter();
        for call in calls.filter(|block| block["type"] == "toolCall") {
            let content = json!([words(if at % 2 == 0 { "r" } else { "" })]);
            paired.push(result(call["id"].as_str().unwrap(), &content));
        }
    }
    paired
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn any_conversation_gives_a_valid_request(
        list in prop::collection::vec(some_message(), 0..12),
        is_paired in any::<bool>(),
        id in prop_oneof![Just(OLD), Just(OPUS), Just("claude-fable-5-1"), Just("kimi-k2")],
        level in prop::sample::select(&ThinkingLevel::ALL[..]),
        max_tokens in prop_oneof![Just(None), (1u64..70_000).prop_map(Some)],
        with_tools in any::<bool>(),
    ) {
        let list = if is_paired { paired(&list) } else { list };
        let mut request = request(id, level, &Value::from(list));
        request.max_tokens = max_tokens;
        if with_tools {
            request.system_prompt = Arc::from("Be brief.");
            request.tools = Arc::new([ToolDefinition {
                name: "read".to_owned(),
                description: String::new(),
                parameters: json!({"type": "object"}),
            }]);
        }
        let body = encode(&request).body;
        assert_valid(&body);
        if is_paired {
            let text = body["messages"].to_string();
            prop_assert!(!text.contains("(no result"), "a result got lost: {text}");
        }
    }
}
