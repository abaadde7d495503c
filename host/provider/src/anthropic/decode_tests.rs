//! Streams as servers send them, byte for byte, and what they add up to.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Map, Value, json};
use wharf_protocol::partial::ReplyOrigin;
use wharf_protocol::{PartialMessage, StopReason, StreamDelta, Usage};

use super::decode::MessagesDecoder;
use crate::api::Decoder as _;
use crate::sse::SseParser;
use crate::{ErrorKind, ProviderError, ProviderEvent};

type Steps = (Vec<ProviderEvent>, Option<ProviderError>);

/// What the driver makes of a body that comes in these pieces.
fn play<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Steps {
    let mut parser = SseParser::default();
    let mut decoder = MessagesDecoder::default();
    let mut out = Vec::new();
    let is_done = |out: &[ProviderEvent]| matches!(out.last(), Some(ProviderEvent::Done { .. }));
    let mut chunks: Vec<Option<&[u8]>> = chunks.into_iter().map(Some).collect();
    chunks.push(None);
    for chunk in chunks {
        let mut events = Vec::new();
        match chunk {
            Some(bytes) => parser.push(bytes, &mut events).unwrap(),
            None => parser.finish(&mut events),
        }
        for event in events {
            if is_done(&out) {
                return (out, None);
            }
            if let Err(error) = decoder.event(&event, &mut out) {
                return (out, Some(error));
            }
        }
    }
    let error = if is_done(&out) { None } else { decoder.end(&mut out).err() };
    (out, error)
}

/// Plays a stream whole, cut at every byte, and byte by byte.
fn steps(stream: &str) -> Steps {
    let bytes = stream.as_bytes();
    let whole = play([bytes]);
    for at in 0..=bytes.len() {
        assert_eq!(play([&bytes[..at], &bytes[at..]]), whole, "cut at byte {at}");
    }
    assert_eq!(play(bytes.chunks(1)), whole);
    whole
}

fn sse(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
}

fn stream(events: &[Value]) -> String {
    events.iter().map(sse).collect()
}

fn message_start() -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
        "model": "claude-sonnet-4-5", "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 3, "output_tokens": 1}}})
}

fn start(index: u64, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn call_start(index: u64, id: &str, input: &Value) -> Value {
    start(index, &json!({"type": "tool_use", "id": id, "name": "read", "input": input}))
}

fn delta(index: u64, delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn json_delta(index: u64, piece: &str) -> Value {
    delta(index, &json!({"type": "input_json_delta", "partial_json": piece}))
}

fn text_delta(index: u64, piece: &str) -> Value {
    delta(index, &json!({"type": "text_delta", "text": piece}))
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn message_delta(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": 7}})
}

fn message_stop() -> Value {
    json!({"type": "message_stop"})
}

/// The reply that the steps add up to, as it stands in a session; its end; the problems
/// of its calls. Fails where the steps do not fit each other.
fn fold(stream: &str) -> (Value, Option<StopReason>, Vec<String>, Option<ProviderError>) {
    let (steps, error) = steps(stream);
    let mut reply = PartialMessage::new(ReplyOrigin::default());
    let (mut started, mut ended) = (0, Vec::new());
    let mut problems = Vec::new();
    let mut end = None;
    for step in &steps {
        let delta = match step {
            ProviderEvent::Done { stop_reason, .. } => {
                assert_eq!(end, None);
                end = Some(*stop_reason);
                continue;
            }
            ProviderEvent::Delta(delta) => delta,
        };
        match delta {
            StreamDelta::TextStart { index }
            | StreamDelta::ThinkingStart { index }
            | StreamDelta::ToolCallStart { index, .. } => {
                assert_eq!(*index, started, "indices are dense");
                started += 1;
            }
            StreamDelta::Text { index, .. }
            | StreamDelta::Thinking { index, .. }
            | StreamDelta::ToolCall { index, .. } => {
                assert!(*index < started && !ended.contains(index));
            }
            StreamDelta::TextEnd { index, .. } | StreamDelta::ThinkingEnd { index, .. } => {
                ended.push(*index);
            }
            StreamDelta::ToolCallEnd { index, problem, .. } => {
                ended.push(*index);
                problems.extend(problem.clone());
            }
        }
        reply.apply(delta);
    }
    if end.is_some() {
        ended.sort_unstable();
        assert_eq!(ended, (0..started).collect::<Vec<_>>(), "every block ends once");
    }
    (json!(reply.message().content), end, problems, error)
}

fn check(stream: &str, content: &Value, end: StopReason, problems: &[&str]) {
    let seen = fold(stream);
    assert_eq!(seen.0, *content);
    assert_eq!((seen.1, seen.3), (Some(end), None));
    assert_eq!(seen.2, problems);
}

const TEXT: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_01\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4-5-20250929\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":100,\"cache_read_input_tokens\":2000,\"cache_creation\":{\"ephemeral_5m_input_tokens\":100,\"ephemeral_1h_input_tokens\":0},\"output_tokens\":1,\"service_tier\":\"standard\"}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}     }\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"H\u{e9}llo\"}    }\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" \u{1f600}\\n\"}}\n\nevent: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0         }\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"input_tokens\":null,\"output_tokens\":15}    }\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"            }\n\n";

#[test]
fn a_text_with_usage() {
    let (steps, error) = steps(TEXT);
    let d = ProviderEvent::Delta;
    let text = |delta: &str| d(StreamDelta::Text { index: 0, delta: delta.to_owned() });
    let usage = Usage {
        input: 25,
        output: 15,
        cache_read: 2000,
        cache_write: 100,
        total_tokens: 2140,
        ..Usage::default()
    };
    let expect = vec![
        d(StreamDelta::TextStart { index: 0 }),
        text("Héllo"),
        text(" 😀\n"),
        d(StreamDelta::TextEnd { index: 0, signature: None }),
        ProviderEvent::Done { stop_reason: StopReason::Stop, usage },
    ];
    assert_eq!((steps, error), (expect, None));
}

#[test]
fn the_usage_of_the_end_goes_over_that_of_the_start() {
    let tokens = |start: &Value, end: &Value| {
        let events = [
            json!({"type": "message_start", "message": {"usage": start}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": end}),
            message_stop(),
        ];
        match steps(&stream(&events)).0.as_slice() {
            [ProviderEvent::Done { usage: u, .. }] => {
                [u.input, u.output, u.cache_read, u.cache_write, u.total_tokens]
            }
            other => panic!("{other:?}"),
        }
    };
    for (start, end, expect) in [
        (
            json!({"input_tokens": 3, "output_tokens": 1}),
            json!({"output_tokens": 9}),
            [3, 9, 0, 0, 12],
        ),
        (
            json!({"input_tokens": 3, "output_tokens": 1, "cache_read_input_tokens": 4}),
            json!({"input_tokens": 5, "output_tokens": 9, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 6}),
            [5, 9, 0, 6, 20],
        ),
        (json!(null), json!(null), [0; 5]),
    ] {
        assert_eq!(tokens(&start, &end), expect, "{start} {end}");
    }
}

fn thinking_stream() -> Vec<Value> {
    let piece = |kind: &str, field: &str, piece: &str| {
        let mut value = Map::new();
        value.insert("type".to_owned(), json!(kind));
        value.insert(field.to_owned(), json!(piece));
        delta(0, &Value::Object(value))
    };
    vec![
        message_start(),
        start(0, &json!({"type": "thinking", "thinking": "", "signature": ""})),
        piece("thinking_delta", "thinking", "Let me "),
        piece("thinking_delta", "thinking", "see."),
        piece("signature_delta", "signature", "Eq"),
        piece("signature_delta", "signature", "QB=="),
        stop(0),
        start(1, &json!({"type": "text", "text": ""})),
        text_delta(1, "Yes."),
        stop(1),
        message_delta("end_turn"),
        message_stop(),
    ]
}

#[test]
fn thinking_signed_hidden_and_redacted() {
    check(
        &stream(&thinking_stream()),
        &json!([
            {"type": "thinking", "thinking": "Let me see.", "thinkingSignature": "EqQB=="},
            {"type": "text", "text": "Yes."},
        ]),
        StopReason::Stop,
        &[],
    );
    check(
        &stream(&[
            message_start(),
            start(0, &json!({"type": "thinking", "thinking": "", "signature": "hid"})),
            stop(0),
            start(1, &json!({"type": "redacted_thinking", "data": "EmwK"})),
            stop(1),
            start(2, &json!({"type": "text", "text": "At once."})),
            stop(2),
            message_delta("stop_sequence"),
            message_stop(),
        ]),
        &json!([
            {"type": "thinking", "thinking": "", "thinkingSignature": "hid"},
            {"type": "thinking", "thinking": "", "thinkingSignature": "EmwK", "redacted": true},
            {"type": "text", "text": "At once."},
        ]),
        StopReason::Stop,
        &[],
    );
}

fn call(id: &str, arguments: &Value) -> Value {
    json!({"type": "toolCall", "id": id, "name": "read", "arguments": arguments})
}

fn parallel_calls() -> Vec<Value> {
    vec![
        message_start(),
        start(0, &json!({"type": "text", "text": ""})),
        text_delta(0, "Both."),
        stop(0),
        call_start(1, "toolu_1", &json!({})),
        json_delta(1, ""),
        call_start(2, "toolu_2", &json!({})),
        json_delta(2, "{\"path\""),
        json_delta(1, "{\"path\": \"a"),
        json_delta(2, ": \"b\"}"),
        json_delta(1, "\"}"),
        stop(2),
        stop(1),
        message_delta("tool_use"),
        message_stop(),
    ]
}

#[test]
fn calls_interleave() {
    check(
        &stream(&parallel_calls()),
        &json!([
            {"type": "text", "text": "Both."},
            call("toolu_1", &json!({"path": "a"})),
            call("toolu_2", &json!({"path": "b"})),
        ]),
        StopReason::ToolUse,
        &[],
    );
}

#[test]
fn arguments_come_with_the_start_or_not_at_all() {
    for (events, expect) in [
        (vec![call_start(0, "c", &json!({"path": "a"})), stop(0)], json!({"path": "a"})),
        (
            vec![call_start(0, "c", &json!({"path": "a"})), json_delta(0, ""), stop(0)],
            json!({"path": "a"}),
        ),
        (vec![call_start(0, "c", &json!({"path": "a"}))], json!({"path": "a"})),
        (
            vec![call_start(0, "c", &json!({"path": "a"})), json_delta(0, "{\"x\":1}"), stop(0)],
            json!({"x": 1}),
        ),
        (vec![call_start(0, "c", &json!({})), stop(0)], json!({})),
        (vec![call_start(0, "c", &json!(null)), json_delta(0, ""), stop(0)], json!({})),
    ] {
        let mut all = vec![message_start()];
        all.extend(events);
        all.extend([message_delta("tool_use"), message_stop()]);
        check(&stream(&all), &json!([call("c", &expect)]), StopReason::ToolUse, &[]);
    }
}

#[test]
fn a_call_that_the_token_limit_cut_does_not_run() {
    const CUT: &str = "the reply was cut off at the token limit";
    for reason in ["max_tokens", "model_context_window_exceeded"] {
        for pieces in [&[][..], &[""], &["{\"pa"], &["{\"path\":\"a\"}"]] {
            let mut all = vec![message_start(), call_start(0, "c", &json!({}))];
            all.extend(pieces.iter().map(|piece| json_delta(0, piece)));
            all.extend([
                stop(0),
                json!({"type": "ping"}),
                json!({"type": "message_delta", "delta": {"stop_reason": null}, "usage": null}),
                message_delta(reason),
                message_stop(),
            ]);
            check(&stream(&all), &json!([call("c", &json!({}))]), StopReason::Length, &[CUT]);
        }
    }
    // A call that another block follows was complete, and it ends before that one begins.
    let all = stream(&[
        message_start(),
        call_start(0, "one", &json!({})),
        json_delta(0, "{\"path\":\"a\"}"),
        stop(0),
        call_start(1, "two", &json!({})),
        json_delta(1, "{\"path\":\"b\"}"),
        stop(1),
        message_delta("max_tokens"),
        message_stop(),
    ]);
    let content = json!([call("one", &json!({"path": "a"})), call("two", &json!({}))]);
    check(&all, &content, StopReason::Length, &[CUT]);
    let steps = steps(&all).0;
    let at = |wanted: fn(&StreamDelta) -> bool| {
        steps.iter().position(|s| matches!(s, ProviderEvent::Delta(d) if wanted(d))).unwrap()
    };
    let first_end = at(|d| matches!(d, StreamDelta::ToolCallEnd { index: 0, .. }));
    assert!(first_end < at(|d| matches!(d, StreamDelta::ToolCallStart { index: 1, .. })));
}

#[test]
fn arguments_that_are_no_json_are_a_problem() {
    let all = stream(&[
        message_start(),
        call_start(0, "c", &json!({})),
        json_delta(0, "{\"path\":"),
        stop(0),
        message_delta("tool_use"),
        message_stop(),
    ]);
    let (content, end, problems, error) = fold(&all);
    assert_eq!(content, json!([call("c", &json!({}))]));
    assert_eq!((end, error, problems.len()), (Some(StopReason::ToolUse), None, 1));
}

#[test]
fn unknown_events_blocks_and_deltas_are_skipped() {
    let server =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}});
    let found =
        json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []});
    check(
        &stream(&[
            message_start(),
            json!({"type": "from_the_future", "index": "x", "delta": 5}),
            start(0, &server),
            json_delta(0, "{\"query\":\"a\"}"),
            stop(0),
            start(1, &found),
            stop(1),
            start(2, &json!({"type": "text", "text": "", "citations": []})),
            delta(2, &json!({"type": "citations_delta", "citation": {"type": "char_location"}})),
            text_delta(2, "Found."),
            text_delta(9, "of no block"),
            stop(2),
            call_start(3, "c", &json!({})),
            stop(3),
            stop(3),
            message_delta("tool_use"),
            message_stop(),
        ]),
        &json!([{"type": "text", "text": "Found."}, call("c", &json!({}))]),
        StopReason::ToolUse,
        &[],
    );
}

#[test]
fn blocks_that_all_have_one_index() {
    check(
        &stream(&[
            message_start(),
            start(0, &json!({"type": "text", "text": ""})),
            text_delta(0, "a"),
            call_start(0, "one", &json!({})),
            json_delta(0, "{\"path\":\"a\"}"),
            call_start(0, "two", &json!({})),
            json_delta(0, "{\"path\":\"b\"}"),
            message_delta("tool_use"),
            message_stop(),
        ]),
        &json!([
            {"type": "text", "text": "a"},
            call("one", &json!({"path": "a"})),
            call("two", &json!({"path": "b"})),
        ]),
        StopReason::ToolUse,
        &[],
    );
}

#[test]
fn stop_reasons() {
    for (reason, with_call, expect) in [
        ("end_turn", false, StopReason::Stop),
        ("stop_sequence", false, StopReason::Stop),
        ("pause_turn", false, StopReason::Stop),
        ("tool_use", true, StopReason::ToolUse),
        ("max_tokens", false, StopReason::Length),
        ("model_context_window_exceeded", false, StopReason::Length),
        ("something_new", false, StopReason::Stop),
        ("something_new", true, StopReason::ToolUse),
    ] {
        let mut all = vec![message_start()];
        if with_call {
            all.extend([call_start(0, "c", &json!({})), stop(0)]);
        }
        all.extend([message_delta(reason), message_stop()]);
        let (_, end, _, error) = fold(&stream(&all));
        assert_eq!((end, error), (Some(expect), None), "{reason}");
    }
    // Without a message_delta.
    let (_, end, _, _) =
        fold(&stream(&[message_start(), call_start(0, "c", &json!({})), message_stop()]));
    assert_eq!(end, Some(StopReason::ToolUse));
}

#[test]
fn refusals() {
    for (details, expect) in [
        (json!(null), "the model declined to answer"),
        (
            json!({"type": "refusal", "category": "cyber", "explanation": "It could do harm."}),
            "the model declined to answer: It could do harm.",
        ),
    ] {
        let refusal = json!({"type": "message_delta",
            "delta": {"stop_reason": "refusal", "stop_sequence": null, "stop_details": details},
            "usage": {"output_tokens": 1}});
        let (_, end, _, error) = fold(&stream(&[message_start(), refusal, message_stop()]));
        assert_eq!((end, error), (None, Some(ProviderError::new(ErrorKind::Refused, expect))));
    }
}

#[test]
fn errors_inside_a_stream() {
    let check = |event: &str, kind: ErrorKind, message: &str| {
        let body = format!("{}event: error\ndata: {event}\n\n", stream(&[message_start()]));
        let (_, end, _, error) = fold(&body);
        assert_eq!((end, error), (None, Some(ProviderError::new(kind, message))), "{event}");
    };
    for (name, kind) in [
        ("overloaded_error", ErrorKind::Overloaded),
        ("rate_limit_error", ErrorKind::RateLimit),
        ("api_error", ErrorKind::Server),
        ("timeout_error", ErrorKind::Server),
        ("authentication_error", ErrorKind::Authentication),
        ("permission_error", ErrorKind::Authentication),
        ("billing_error", ErrorKind::Quota),
        ("invalid_request_error", ErrorKind::InvalidRequest),
        ("not_found_error", ErrorKind::InvalidRequest),
        ("request_too_large", ErrorKind::ContextOverflow),
        ("never_heard_of_error", ErrorKind::Server),
    ] {
        let event = json!({"type": "error", "error": {"type": name, "message": "Why"}, "request_id": "req_1"});
        check(&event.to_string(), kind, &format!("{name}: Why"));
    }
    check(
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}}"#,
        ErrorKind::ContextOverflow,
        "invalid_request_error: prompt is too long: 9 tokens > 8 maximum",
    );
    check(r#"{"error":{"message":"upstream gone"}}"#, ErrorKind::Server, "upstream gone");
    check(r#"{"type":"error","error":"bad day"}"#, ErrorKind::Server, "bad day");
    check(r#"{"type":"error"}"#, ErrorKind::Server, r#"{"type":"error"}"#);
}

#[test]
fn what_is_no_event_of_this_api() {
    for data in [
        "<html>",
        "[DONE]",
        "null",
        "{}",
        r#"{"id":"chatcmpl-1","choices":[]}"#,
        r#"{"type":"content_block_start","content_block":{"type":"text"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta"}}"#,
    ] {
        let (_, end, _, error) = fold(&format!("data: {data}\n\n"));
        let error = error.unwrap();
        assert_eq!((end, error.kind), (None, ErrorKind::Protocol), "{data}");
        assert!(error.message.starts_with("the server sent no event of this API: "), "{error}");
    }
    let error = fold(&format!("data: {}\n\n", "é".repeat(500))).3.unwrap();
    assert!(error.message.chars().count() < 400, "{error}");
}

#[test]
fn a_stream_that_drops_between_events() {
    for events in [thinking_stream(), parallel_calls()] {
        let whole = fold(&stream(&events));
        assert_eq!(whole.3, None);
        let known = events.iter().position(|event| event["type"] == "message_delta").unwrap();
        for count in 0..events.len() {
            let (content, end, _, error) = fold(&stream(&events[..count]));
            if count > known {
                assert_eq!((content, end, error), (whole.0.clone(), whole.1, None), "{count}");
            } else {
                assert_eq!((end, error), (None, Some(ProviderError::dropped(""))), "{count}");
            }
        }
    }
}
