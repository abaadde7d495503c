use serde_json::{Value, json};
use wharf_protocol::{StopReason, Usage};

use super::super::OpenAiResponses;
use super::{REASONING, model};
use crate::ErrorKind;
use crate::conformance::{self, content, decode, decode_every_way, ended, request, user};

/// The server's events, each with its name and its JSON.
pub(super) fn stream(events: &[Value]) -> String {
    let mut body = String::new();
    for (number, event) in events.iter().enumerate() {
        let mut event = event.clone();
        event["sequence_number"] = json!(number);
        body += &format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    }
    body
}

fn added(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn delta(kind: &str, index: u64, id: &str, delta: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "item_id": id, "output_index": index,
        "content_index": 0, "delta": delta, "obfuscation": "x8Gk2"})
}

fn summary(part: u64, delta: &str) -> Value {
    json!({"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "output_index": 0,
        "summary_index": part, "delta": delta, "obfuscation": "aZ"})
}

fn completed(usage: Value) -> Value {
    json!({"type": "response.completed", "response":
        {"id": "resp_1", "object": "response", "status": "completed", "error": null, "usage": usage}})
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}})
}

/// A reply as the server streams it: reasoning in two parts, text, two calls.
pub(super) fn full_stream() -> Vec<Value> {
    let reasoning: Value = serde_json::from_str(REASONING).unwrap();
    let bare = json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "gA", "summary": []});
    let message = |status: &str, content: Value| {
        json!({"id": "msg_1", "type": "message", "status": status, "role": "assistant",
            "content": content})
    };
    let function = |n: u32, status: &str, arguments: &str| {
        json!({"id": format!("fc_{n}"), "type": "function_call", "status": status,
            "call_id": format!("call_{n}"), "name": "read", "arguments": arguments})
    };
    let part = json!({"type": "output_text", "annotations": [], "logprobs": [], "text": "Hé 😀"});
    vec![
        created(),
        json!({"type": "response.in_progress", "response": {"id": "resp_1"}}),
        added(0, bare),
        json!({"type": "response.reasoning_summary_part.added", "item_id": "rs_1",
            "output_index": 0, "summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
        summary(0, "**One**"),
        summary(0, " two"),
        json!({"type": "response.reasoning_summary_text.done", "item_id": "rs_1",
            "output_index": 0, "summary_index": 0, "text": "**One** two"}),
        json!({"type": "response.reasoning_summary_part.done", "item_id": "rs_1",
            "output_index": 0, "summary_index": 0,
            "part": {"type": "summary_text", "text": "**One** two"}}),
        summary(1, "three"),
        done(0, reasoning),
        added(1, message("in_progress", json!([]))),
        json!({"type": "response.content_part.added", "item_id": "msg_1", "output_index": 1,
            "content_index": 0, "part": {"type": "output_text", "text": ""}}),
        delta("output_text", 1, "msg_1", "Hé "),
        delta("output_text", 1, "msg_1", "😀"),
        json!({"type": "response.output_text.done", "item_id": "msg_1", "output_index": 1,
            "content_index": 0, "text": "Hé 😀"}),
        json!({"type": "response.content_part.done", "item_id": "msg_1", "output_index": 1,
            "content_index": 0, "part": part}),
        done(1, message("completed", json!([part]))),
        added(2, function(1, "in_progress", "")),
        delta("function_call_arguments", 2, "fc_1", r#"{"path""#),
        delta("function_call_arguments", 2, "fc_1", r#":"a"}"#),
        json!({"type": "response.function_call_arguments.done", "item_id": "fc_1",
            "output_index": 2, "arguments": r#"{"path":"a"}"#}),
        done(2, function(1, "completed", r#"{"path":"a"}"#)),
        added(3, function(2, "in_progress", "")),
        json!({"type": "response.function_call_arguments.done", "item_id": "fc_2",
            "output_index": 3, "arguments": "{}"}),
        done(3, function(2, "completed", "{}")),
        completed(json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64},
            "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 5},
            "total_tokens": 120})),
    ]
}

#[test]
fn a_whole_reply_reads_the_same_however_it_is_cut() {
    let request = request(model(), vec![user("hi")]);
    let body = stream(&full_stream());
    let (events, error) = decode_every_way(&OpenAiResponses, &request, &body, |decoded| decoded);
    assert_eq!(error, None);
    let expect = json!([
        {"type": "thinking", "thinking": "**One** two\n\nthree", "thinkingSignature": REASONING},
        {"type": "text", "text": "Hé 😀", "textSignature": "msg_1"},
        {"type": "toolCall", "id": "call_1|fc_1", "name": "read", "arguments": {"path": "a"}},
        {"type": "toolCall", "id": "call_2|fc_2", "name": "read", "arguments": {}},
    ]);
    assert_eq!(content(&events), expect);
    assert_eq!(conformance::problems(&events), [""; 0]);
    let usage =
        Usage { input: 36, cache_read: 64, output: 20, total_tokens: 120, ..Usage::default() };
    assert_eq!(ended(&events), Some((StopReason::ToolUse, usage)));

    // Only the terminal event completes the reply.
    let all = full_stream();
    for end in 0..all.len() {
        let cut = stream(&all[..end]);
        let (events, error) = decode(&OpenAiResponses, &request, [cut.as_bytes()]);
        assert_eq!(error.map(|error| error.kind), Some(ErrorKind::Dropped), "after {end} events");
        assert_eq!(ended(&events), None);
    }
}

fn check_reply(what: &str, events: &[Value], stop: StopReason, expect: Value, problems: &[&str]) {
    let request = request(model(), vec![user("hi")]);
    let body = stream(events);
    let (events, error) = decode_every_way(&OpenAiResponses, &request, &body, |decoded| decoded);
    assert_eq!(error, None, "{what}");
    assert_eq!(content(&events), expect, "{what}");
    assert_eq!(conformance::problems(&events), problems, "{what}");
    assert_eq!(ended(&events).map(|(stop, _)| stop), Some(stop), "{what}");
}

#[test]
fn replies_of_every_shape() {
    let function = |status: &str, arguments: &str| {
        json!({"id": "fc_1", "type": "function_call", "status": status, "call_id": "call_1",
            "name": "read", "arguments": arguments})
    };
    let message =
        |id: &str, content: Value| json!({"id": id, "type": "message", "content": content});
    let incomplete = json!({"type": "response.incomplete", "response": {"status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"}, "usage": null}});
    check_reply(
        "a refusal is text",
        &[
            added(0, message("msg_1", json!([]))),
            delta("refusal", 0, "msg_1", "I can't."),
            done(0, message("msg_1", json!([{"type": "refusal", "refusal": "I can't."}]))),
            completed(Value::Null),
        ],
        StopReason::Stop,
        json!([{"type": "text", "text": "I can't.", "textSignature": "msg_1"}]),
        &[],
    );
    check_reply(
        "a phase is kept, and text that was not streamed is made up for",
        &[
            done(
                0,
                json!({"id": "msg_1", "type": "message", "phase": "final_answer",
                "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}]}),
            ),
            completed(Value::Null),
        ],
        StopReason::Stop,
        json!([{"type": "text", "text": "ab",
            "textSignature": r#"{"v":1,"id":"msg_1","phase":"final_answer"}"#}]),
        &[],
    );
    check_reply(
        "reasoning of servers that stream it plainly and cannot take it back",
        &[
            added(0, json!({"id": "rs_1", "type": "reasoning"})),
            delta("reasoning_text", 0, "rs_1", "one"),
            done(
                0,
                json!({"id": "rs_1", "type": "reasoning", "summary": [],
                "content": [{"type": "reasoning_text", "text": "one"}]}),
            ),
            done(
                1,
                json!({"id": "rs_2", "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "two"}, {"type": "summary_text", "text": "three"}]}),
            ),
            completed(Value::Null),
        ],
        StopReason::Stop,
        json!([{"type": "thinking", "thinking": "one"}, {"type": "thinking", "thinking": "two\n\nthree"}]),
        &[],
    );
    check_reply(
        "items come interleaved; a search of the server's own is none of them",
        &[
            added(0, json!({"id": "ws_1", "type": "web_search_call"})),
            added(1, message("msg_1", json!([]))),
            added(2, message("msg_2", json!([]))),
            delta("output_text", 2, "msg_2", "two"),
            delta("output_text", 1, "msg_1", "one"),
            delta("output_text", 1, "another id each time", " more"),
            done(0, json!({"id": "ws_1", "type": "web_search_call"})),
            done(2, message("msg_2", json!([]))),
            done(1, message("msg_1", json!([]))),
            completed(Value::Null),
        ],
        StopReason::Stop,
        json!([
            {"type": "text", "text": "one more", "textSignature": "msg_1"},
            {"type": "text", "text": "two", "textSignature": "msg_2"},
        ]),
        &[],
    );
    let piece = |id: &str, delta: &str| {
        json!({"type": "response.function_call_arguments.delta", "item_id": id, "output_index": 0,
            "delta": delta})
    };
    let second = |arguments: &str| {
        json!({"id": "fc_2", "type": "function_call", "call_id": "call_2", "name": "now",
            "arguments": arguments})
    };
    check_reply(
        "calls come interleaved, from a server that gives all items the same index",
        &[
            added(0, function("in_progress", "")),
            added(0, second("")),
            piece("fc_1", r#"{"path""#),
            piece("fc_2", "{"),
            piece("fc_1", r#":"a"}"#),
            piece("fc_2", "}"),
            done(0, function("completed", r#"{"path":"a"}"#)),
            done(0, second("{}")),
            completed(Value::Null),
        ],
        StopReason::ToolUse,
        json!([
            {"type": "toolCall", "id": "call_1|fc_1", "name": "read", "arguments": {"path": "a"}},
            {"type": "toolCall", "id": "call_2|fc_2", "name": "now", "arguments": {}},
        ]),
        &[],
    );
    check_reply(
        "text of an item that was never announced",
        &[
            delta("output_text", 0, "msg_1", "a"),
            delta("output_text", 0, "msg_1", "b"),
            completed(Value::Null),
        ],
        StopReason::Stop,
        json!([{"type": "text", "text": "ab"}]),
        &[],
    );
    check_reply(
        "the whole arguments win over the pieces",
        &[
            added(0, function("in_progress", "")),
            delta("function_call_arguments", 0, "fc_1", "{\"path\":"),
            done(0, function("completed", r#"{"path": "b"}"#)),
            completed(Value::Null),
        ],
        StopReason::ToolUse,
        json!([{"type": "toolCall", "id": "call_1|fc_1", "name": "read", "arguments": {"path": "b"}}]),
        &[],
    );
    for last in [None, Some(done(0, function("incomplete", "{}")))] {
        let mut events = vec![
            added(0, function("in_progress", "")),
            delta("function_call_arguments", 0, "fc_1", "{}"),
        ];
        events.extend(last);
        events.push(incomplete.clone());
        check_reply(
            "a call that was cut is marked",
            &events,
            StopReason::Length,
            json!([{"type": "toolCall", "id": "call_1|fc_1", "name": "read", "arguments": {}}]),
            &["the reply was cut off at the token limit"],
        );
    }
    check_reply(
        "text that was cut, and a call before it that was not",
        &[
            done(0, function("completed", "{}")),
            added(1, message("msg_1", json!([]))),
            delta("output_text", 1, "msg_1", "so"),
            incomplete,
        ],
        StopReason::Length,
        json!([
            {"type": "toolCall", "id": "call_1|fc_1", "name": "read", "arguments": {}},
            {"type": "text", "text": "so"},
        ]),
        &[],
    );
}

#[test]
fn failures_say_what_they_are() {
    let request = request(model(), vec![user("hi")]);
    let check = |event: Value, kind: ErrorKind, message: &str, retry_millis: Option<u128>| {
        let mut events = full_stream();
        events.truncate(10);
        events.push(event);
        let body = stream(&events);
        let (out, error) = decode_every_way(&OpenAiResponses, &request, &body, |decoded| decoded);
        let error = error.unwrap();
        assert_eq!((error.kind, error.message.as_str()), (kind, message));
        assert_eq!(error.retry_after.map(|after| after.as_millis()), retry_millis);
        assert_eq!(ended(&out), None);
    };
    let failed = |code: &str, message: &str| {
        json!({"type": "response.failed", "response":
            {"status": "failed", "error": {"code": code, "message": message}}})
    };
    check(failed("server_error", "Oops."), ErrorKind::Server, "server_error: Oops.", None);
    check(
        failed("rate_limit_exceeded", "Limit reached. Please try again in 1.898s. Visit"),
        ErrorKind::RateLimit,
        "rate_limit_exceeded: Limit reached. Please try again in 1.898s. Visit",
        Some(1898),
    );
    check(
        failed("context_length_exceeded", "Your input exceeds the context window of this model."),
        ErrorKind::ContextOverflow,
        "context_length_exceeded: Your input exceeds the context window of this model.",
        None,
    );
    check(failed("insufficient_quota", "Pay."), ErrorKind::Quota, "insufficient_quota: Pay.", None);
    check(failed("invalid_prompt", "No."), ErrorKind::InvalidRequest, "invalid_prompt: No.", None);
    check(
        failed("image_too_large", "No."),
        ErrorKind::InvalidRequest,
        "image_too_large: No.",
        None,
    );
    check(failed("cyber_policy", "No."), ErrorKind::Refused, "cyber_policy: No.", None);
    check(
        json!({"type": "response.failed", "response": {"status": "failed", "error": null}}),
        ErrorKind::Server,
        "the server reported that the reply has failed",
        None,
    );
    check(
        json!({"type": "error", "code": "rate_limit_exceeded", "message": "Slow down: try again in 28ms.", "param": null}),
        ErrorKind::RateLimit,
        "rate_limit_exceeded: Slow down: try again in 28ms.",
        Some(28),
    );
    check(
        json!({"type": "error", "error": {"type": "invalid_request_error", "code": null, "message": "Bad."}}),
        ErrorKind::InvalidRequest,
        "invalid_request_error: Bad.",
        None,
    );
    check(
        json!({"type": "response.incomplete", "response": {"status": "incomplete",
            "incomplete_details": {"reason": "content_filter"}}}),
        ErrorKind::Refused,
        "the provider's content filter stopped the reply (content_filter)",
        None,
    );
}

#[test]
fn what_is_no_event_of_this_api_is_an_error() {
    let request = request(model(), vec![]);
    for (body, kind) in [
        ("data: <html>\n\n", ErrorKind::Protocol),
        ("data: [1]\n\n", ErrorKind::Protocol),
        (
            "data: {\"error\":{\"message\":\"Overloaded\",\"type\":\"overloaded\"}}\n\n",
            ErrorKind::Overloaded,
        ),
        ("data:\n\ndata: [DONE]\n\n", ErrorKind::Dropped),
        ("data: {\"type\":\"respo", ErrorKind::Dropped),
        ("event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n", ErrorKind::Dropped),
    ] {
        let (events, error) = decode(&OpenAiResponses, &request, [body.as_bytes()]);
        assert_eq!((events, error.map(|error| error.kind)), (vec![], Some(kind)), "{body}");
    }
}
