use std::collections::HashMap;

use serde_json::{Value, json};
use wharf_protocol::{StopReason, StreamDelta, Usage};

use super::super::GoogleGenerativeAi;
use super::model;
use crate::conformance::{
    Decoded, call, content, decode, decode_every_way, ended, reply, request, result, user,
};
use crate::{ErrorKind, ProviderEvent, Request};

/// One event as the server writes it: compact, its lines ended by CR LF.
pub(super) fn chunk(parts: Value, finish: Option<&str>, usage: Value) -> String {
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
    if let Some(reason) = finish {
        candidate["finishReason"] = json!(reason);
    }
    event(&json!({
        "candidates": [candidate], "usageMetadata": usage,
        "modelVersion": "gemini-2.5-flash", "responseId": "r-1",
    }))
}

fn event(json: &Value) -> String {
    format!("data: {json}\r\n\r\n")
}

fn usage(prompt: u64, cached: u64, candidates: u64, thoughts: u64) -> Value {
    let mut usage = json!({"promptTokenCount": prompt, "totalTokenCount": prompt + candidates + thoughts,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}]});
    for (key, count) in [
        ("cachedContentTokenCount", cached),
        ("candidatesTokenCount", candidates),
        ("thoughtsTokenCount", thoughts),
    ] {
        // The server leaves out what is zero.
        if count > 0 {
            usage[key] = json!(count);
        }
    }
    usage
}

/// Ids that were made differ from run to run: they become `made-0`, `made-1`.
fn settle((mut events, error): Decoded) -> Decoded {
    let mut names = HashMap::new();
    let mut rename = |id: &mut String| {
        if id.starts_with("call_") {
            let next = format!("made-{}", names.len());
            *id = names.entry(id.clone()).or_insert(next).clone();
        }
    };
    for event in &mut events {
        match event {
            ProviderEvent::Delta(StreamDelta::ToolCallStart { id, .. }) => rename(id),
            ProviderEvent::Delta(StreamDelta::ToolCallEnd { call, .. }) => rename(&mut call.id),
            _ => {}
        }
    }
    (events, error)
}

pub(super) fn new_request() -> Request {
    request(model("gemini-3-pro-preview"), vec![user("hi")])
}

fn check_reply(what: &str, chunks: &[String], stop: StopReason, expect: Value) {
    let body = chunks.concat();
    let (events, error) = decode_every_way(&GoogleGenerativeAi, &new_request(), &body, settle);
    assert_eq!(error, None, "{what}");
    assert_eq!(content(&events), expect, "{what}");
    assert_eq!(ended(&events).map(|(stop, _)| stop), Some(stop), "{what}");
}

fn thought(text: &str) -> Value {
    json!([{"text": text, "thought": true}])
}

#[test]
fn a_whole_reply_reads_the_same_however_it_is_cut() {
    let chunks = [
        chunk(thought("**One**\n\n"), None, usage(100, 64, 0, 7)),
        chunk(thought("two"), None, usage(100, 64, 0, 9)),
        chunk(json!([{"text": "Hé "}]), None, usage(100, 64, 2, 9)),
        chunk(json!([{"text": "😀"}]), None, usage(100, 64, 3, 9)),
        chunk(
            json!([
                {"functionCall": {"name": "read", "args": {"path": "a"}, "id": "own-1"}, "thoughtSignature": "c2ln"},
                {"functionCall": {"name": "read", "args": {}}},
            ]),
            None,
            usage(100, 64, 20, 9),
        ),
        chunk(json!([{"text": ""}]), Some("STOP"), usage(100, 64, 20, 9)),
    ];
    let body = chunks.concat();
    let (events, error) = decode_every_way(&GoogleGenerativeAi, &new_request(), &body, settle);
    assert_eq!(error, None);
    let expect = json!([
        {"type": "thinking", "thinking": "**One**\n\ntwo"},
        {"type": "text", "text": "Hé 😀"},
        {"type": "toolCall", "id": "own-1", "name": "read", "arguments": {"path": "a"}, "thoughtSignature": "c2ln"},
        {"type": "toolCall", "id": "made-0", "name": "read", "arguments": {}},
    ]);
    assert_eq!(content(&events), expect);
    let used =
        Usage { input: 36, cache_read: 64, output: 29, total_tokens: 129, ..Usage::default() };
    assert_eq!(ended(&events), Some((StopReason::ToolUse, used)));

    for end in 0..chunks.len() {
        let cut = chunks[..end].concat();
        let (events, error) = decode(&GoogleGenerativeAi, &new_request(), [cut.as_bytes()]);
        assert_eq!(error.map(|error| error.kind), Some(ErrorKind::Dropped), "after {end} events");
        assert_eq!(ended(&events), None);
    }
}

#[test]
fn replies_of_every_shape() {
    let none = || Value::Null;
    check_reply(
        "a signature belongs to the text that it ends, also where it comes alone",
        &[
            chunk(thought("hm"), None, none()),
            chunk(json!([{"text": "a"}]), None, none()),
            chunk(json!([{"text": "", "thoughtSignature": "c2ln"}]), Some("STOP"), none()),
        ],
        StopReason::Stop,
        json!([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a", "textSignature": "c2ln"}]),
    );
    check_reply(
        "a signature that comes alone belongs to a thought as well",
        &[
            chunk(thought("hm"), None, none()),
            chunk(json!([{"thoughtSignature": "c2ln"}]), None, none()),
            chunk(thought("hm"), Some("STOP"), none()),
        ],
        StopReason::Stop,
        json!([{"type": "thinking", "thinking": "hmhm", "thinkingSignature": "c2ln"}]),
    );
    check_reply(
        "signatures do not add up, and do not cut a text in two",
        &[
            chunk(json!([{"text": "a", "thoughtSignature": "AAAA"}]), None, none()),
            chunk(json!([{"text": "b", "thoughtSignature": "c2ln"}]), None, none()),
            chunk(json!([{"text": "c"}]), Some("STOP"), none()),
        ],
        StopReason::Stop,
        json!([{"type": "text", "text": "abc", "textSignature": "c2ln"}]),
    );
    check_reply(
        "a signature with nothing before it has a block of its own",
        &[
            chunk(json!([{"functionCall": {"name": "now"}}]), None, none()),
            chunk(json!([{"text": "", "thoughtSignature": "c2ln"}]), Some("STOP"), none()),
        ],
        StopReason::ToolUse,
        json!([
            {"type": "toolCall", "id": "made-0", "name": "now", "arguments": {}},
            {"type": "text", "text": "", "textSignature": "c2ln"},
        ]),
    );
    check_reply(
        "an id that was given twice counts once",
        &[chunk(
            json!([
                {"functionCall": {"name": "now", "id": "x", "args": {}}},
                {"functionCall": {"name": "now", "id": "x", "args": {}}},
                {"functionCall": {"name": "now", "id": "", "args": {}}},
            ]),
            Some("STOP"),
            none(),
        )],
        StopReason::ToolUse,
        json!([
            {"type": "toolCall", "id": "x", "name": "now", "arguments": {}},
            {"type": "toolCall", "id": "made-0", "name": "now", "arguments": {}},
            {"type": "toolCall", "id": "made-1", "name": "now", "arguments": {}},
        ]),
    );
    check_reply(
        "cut at the token limit: calls come whole, so that none is in doubt",
        &[
            chunk(json!([{"functionCall": {"name": "now", "id": "x", "args": {}}}]), None, none()),
            chunk(json!([{"text": "so"}]), Some("MAX_TOKENS"), none()),
        ],
        StopReason::Length,
        json!([
            {"type": "toolCall", "id": "x", "name": "now", "arguments": {}},
            {"type": "text", "text": "so"},
        ]),
    );
    check_reply(
        "thinking used up the limit: there is no content at all",
        &[event(&json!({"candidates": [{"finishReason": "MAX_TOKENS", "index": 0}]}))],
        StopReason::Length,
        json!([]),
    );
    check_reply(
        "parts that are none of Wharf's, and a reason that nobody knows",
        &[chunk(
            json!([{"text": "a"}, {"executableCode": {"code": "1"}}, {"text": "b"}]),
            Some("NEW"),
            none(),
        )],
        StopReason::Stop,
        json!([{"type": "text", "text": "ab"}]),
    );
}

#[test]
fn usage_may_come_after_the_finish_reason() {
    let body = [
        chunk(json!([{"text": "a"}]), Some("STOP"), Value::Null),
        event(&json!({"usageMetadata": usage(10, 0, 5, 0)})),
        "data:\n\ndata: [DONE]\n\n".to_owned(),
    ]
    .concat();
    let (events, error) = decode(&GoogleGenerativeAi, &new_request(), [body.as_bytes()]);
    assert_eq!(error, None);
    let used = Usage { input: 10, output: 5, total_tokens: 15, ..Usage::default() };
    assert_eq!(ended(&events), Some((StopReason::Stop, used)));
}

#[test]
fn an_id_of_the_conversation_is_not_given_again() {
    let model = model("gemini-3-pro-preview");
    let messages =
        vec![user("q"), reply(&model, vec![call("x", "now", None)]), result("x", "now", vec![])];
    let body =
        chunk(json!([{"functionCall": {"name": "now", "id": "x"}}]), Some("STOP"), Value::Null);
    let (events, _) =
        settle(decode(&GoogleGenerativeAi, &request(model, messages), [body.as_bytes()]));
    assert_eq!(content(&events)[0]["id"], "made-0");
}

#[test]
fn failures_say_what_they_are() {
    let check = |last: String, kind: ErrorKind, message: &str, retry_millis: Option<u128>| {
        let body = chunk(json!([{"text": "a"}]), None, Value::Null) + &last;
        let (events, error) = decode_every_way(&GoogleGenerativeAi, &new_request(), &body, settle);
        let error = error.unwrap();
        assert_eq!((error.kind, error.message.as_str()), (kind, message));
        assert_eq!(error.retry_after.map(|after| after.as_millis()), retry_millis);
        assert_eq!(ended(&events), None);
    };
    for reason in
        ["SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "RECITATION", "SPII", "IMAGE_SAFETY"]
    {
        let message = format!("the server stopped the reply ({reason})");
        check(chunk(json!([]), Some(reason), Value::Null), ErrorKind::Refused, &message, None);
    }
    for reason in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"] {
        let message = format!("the model wrote a call that cannot be read ({reason}): print(");
        let candidate = json!({"finishReason": reason, "finishMessage": "print("});
        check(event(&json!({"candidates": [candidate]})), ErrorKind::Server, &message, None);
    }
    check(
        event(&json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})),
        ErrorKind::Refused,
        "the server blocked the prompt (PROHIBITED_CONTENT)",
        None,
    );
    let error = |code: u64, status: &str, message: &str| {
        event(&json!({"error": {"code": code, "message": message, "status": status}}))
    };
    check(
        error(503, "UNAVAILABLE", "The model is overloaded."),
        ErrorKind::Overloaded,
        "UNAVAILABLE: The model is overloaded.",
        None,
    );
    check(error(500, "INTERNAL", "Oops."), ErrorKind::Server, "INTERNAL: Oops.", None);
    check(
        error(400, "INVALID_ARGUMENT", "Bad."),
        ErrorKind::InvalidRequest,
        "INVALID_ARGUMENT: Bad.",
        None,
    );
    check(
        error(
            400,
            "INVALID_ARGUMENT",
            "The input token count (2) exceeds the maximum number of tokens allowed (1).",
        ),
        ErrorKind::ContextOverflow,
        "INVALID_ARGUMENT: The input token count (2) exceeds the maximum number of tokens allowed (1).",
        None,
    );
    check(
        event(
            &json!({"error": {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED",
            "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]}}),
        ),
        ErrorKind::RateLimit,
        "RESOURCE_EXHAUSTED: Slow down.",
        Some(34_500),
    );
    check(
        event(&json!({"error": {"message": "No.", "status": "PERMISSION_DENIED"}})),
        ErrorKind::Authentication,
        "PERMISSION_DENIED: No.",
        None,
    );
    check(
        "data: <html>\n\n".to_owned(),
        ErrorKind::Protocol,
        "the server sent an event that is not valid JSON: expected value at line 1 column 1",
        None,
    );
    check(
        "data: []\n\n".to_owned(),
        ErrorKind::Protocol,
        "the server sent an event that is not a JSON object",
        None,
    );
}
