//! Responses as real servers send them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use wharf_protocol::partial::{PartialMessage, ReplyOrigin};
use wharf_protocol::{StopReason, StreamDelta, Usage};

use super::decode::ChatDecoder;
use crate::api::Decoder as _;
use crate::sse::SseParser;
use crate::{ErrorKind, ProviderError, ProviderEvent};

type Outcome = (Vec<ProviderEvent>, Option<ProviderError>);

/// Decodes a body that comes in these pieces, as the driver does.
fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut decoder = ChatDecoder::new("n".to_owned());
    let mut parser = SseParser::default();
    let (mut events, mut out) = (Vec::new(), Vec::new());
    for piece in pieces {
        parser.push(piece, &mut events).unwrap();
        for event in events.drain(..) {
            if let Err(error) = decoder.event(&event, &mut out) {
                return (out, Some(error));
            }
        }
    }
    parser.finish(&mut events);
    for event in events.drain(..) {
        if let Err(error) = decoder.event(&event, &mut out) {
            return (out, Some(error));
        }
    }
    let done = |out: &[ProviderEvent]| matches!(out.last(), Some(ProviderEvent::Done { .. }));
    if !done(&out)
        && let Err(error) = decoder.end(&mut out)
    {
        return (out, Some(error));
    }
    assert!(done(&out), "a reply without an end");
    (out, None)
}

/// The message that the events add up to, after checking that they are in order.
fn message(events: &[ProviderEvent]) -> (Value, Option<(StopReason, Usage)>) {
    let mut partial = PartialMessage::new(ReplyOrigin::default());
    let (mut open, mut started, mut end) = (Vec::new(), 0, None);
    for event in events {
        assert_eq!(end, None, "after the end: {event:?}");
        let delta = match event {
            ProviderEvent::Delta(delta) => delta,
            ProviderEvent::Done { stop_reason, usage } => {
                end = Some((*stop_reason, *usage));
                assert!(open.is_empty(), "open at the end: {open:?}");
                continue;
            }
        };
        partial.apply(delta);
        match delta {
            StreamDelta::TextStart { index }
            | StreamDelta::ThinkingStart { index }
            | StreamDelta::ToolCallStart { index, .. } => {
                assert_eq!(*index, started);
                started += 1;
                open.push(*index);
            }
            StreamDelta::Text { index, .. }
            | StreamDelta::Thinking { index, .. }
            | StreamDelta::ToolCall { index, .. } => assert!(open.contains(index)),
            StreamDelta::TextEnd { index, .. }
            | StreamDelta::ThinkingEnd { index, .. }
            | StreamDelta::ToolCallEnd { index, .. } => {
                let at = open.iter().position(|open| open == index).unwrap();
                open.remove(at);
            }
        }
    }
    (serde_json::to_value(&partial.into_message().content).unwrap(), end)
}

/// Decodes it whole, cut at every byte, byte by byte, and ended after every event.
fn decode_every_way(stream: &str) -> Outcome {
    let bytes = stream.as_bytes();
    let whole = decode([bytes]);
    for at in 0..=bytes.len() {
        assert_eq!(decode([&bytes[..at], &bytes[at..]]), whole, "cut at {at}");
    }
    assert_eq!(decode(bytes.chunks(1)), whole);
    let deltas = |events: &[ProviderEvent]| {
        events
            .iter()
            .filter(|it| matches!(it, ProviderEvent::Delta(_)))
            .cloned()
            .collect::<Vec<_>>()
    };
    for (at, _) in stream.match_indices("\n\n") {
        let (events, error) = decode([&bytes[..at + 2]]);
        match error {
            Some(error) if error.kind == ErrorKind::Dropped => {
                assert!(whole.0.starts_with(&events), "ended at {at}: {events:?}");
            }
            Some(error) => assert_eq!(Some(&error), whole.1.as_ref(), "ended at {at}"),
            None => assert_eq!(deltas(&events), deltas(&whole.0), "ended at {at}"),
        }
    }
    whole
}

struct Expect {
    content: Value,
    stop: StopReason,
    /// input, output, cacheRead
    usage: [u64; 3],
}

fn check(stream: &str, expect: &Expect) {
    let (events, error) = decode_every_way(stream);
    assert_eq!(error, None, "{stream}");
    let (content, end) = message(&events);
    let (stop, usage) = end.unwrap();
    assert_eq!(content, expect.content, "{stream}");
    assert_eq!(stop, expect.stop, "{stream}");
    assert_eq!([usage.input, usage.output, usage.cache_read], expect.usage, "{stream}");
}

/// Chunks with these deltas, and a proper end.
fn stream_of(deltas: &[Value], finish: &str) -> String {
    let chunk = |delta: &Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!("data: {}\n\n", json!({"id": "c", "choices": [choice]}))
    };
    let mut stream: String = deltas.iter().map(|delta| chunk(delta, Value::Null)).collect();
    stream += &chunk(&json!({}), json!(finish));
    stream + "data: [DONE]\n\n"
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn thought(field: &str, text: &str) -> Value {
    json!({"type": "thinking", "thinking": text, "thinkingSignature": field})
}

fn call(id: &str, name: &str, arguments: &Value) -> Value {
    json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments})
}

const OPENAI: &str = r#"data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":1,"model":"gpt-4.1","service_tier":"default","system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x"}

data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":1,"model":"gpt-4.1","choices":[{"index":0,"delta":{"content":"Hé"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":1,"model":"gpt-4.1","choices":[{"index":0,"delta":{"content":"llo 😀"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":1,"model":"gpt-4.1","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}

data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":1,"model":"gpt-4.1","choices":[],"usage":{"prompt_tokens":1117,"completion_tokens":46,"total_tokens":1163,"prompt_tokens_details":{"cached_tokens":1024,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}}}

data: [DONE]

"#;

#[test]
fn openai_with_usage() {
    let expect = Expect {
        content: json!([text("Héllo 😀")]),
        stop: StopReason::Stop,
        usage: [93, 46, 1024],
    };
    check(OPENAI, &expect);
    check(&OPENAI.replace('\n', "\r\n").replace("\r\n\r\n", "\n\n"), &expect);
    // Without the last line; with nothing after the usage.
    check(OPENAI.strip_suffix("\n\n").unwrap(), &expect);
    check(OPENAI.strip_suffix("data: [DONE]\n\n").unwrap(), &expect);
    // The usage never comes.
    let at = OPENAI.find(r#"data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":1,"model":"gpt-4.1","choices":[],"#).unwrap();
    check(&OPENAI[..at], &Expect { usage: [0, 0, 0], ..expect });
}

#[test]
fn the_end_waits_for_the_usage() {
    let whole = decode([OPENAI.as_bytes()]).0;
    let done = whole.iter().filter(|it| matches!(it, ProviderEvent::Done { .. })).count();
    assert_eq!(done, 1);
    // After the end, nothing counts any more.
    let twice = format!("{OPENAI}{OPENAI}");
    assert_eq!(decode([twice.as_bytes()]).0, whole);
}

#[test]
fn openai_parallel_calls() {
    check(
        r#"data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_A","type":"function","function":{"name":"read","arguments":""}}]},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":"}}]},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"a\"}"}}]},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_B","type":"function","function":{"name":"ls","arguments":""}}]},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"id":"c","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}

data: [DONE]

"#,
        &Expect {
            content: json!([
                call("call_A", "read", &json!({"path": "a"})),
                call("call_B", "ls", &json!({}))
            ]),
            stop: StopReason::ToolUse,
            usage: [10, 5, 0],
        },
    );
}

#[test]
fn ollama() {
    // A call in one piece, its finish reason in the same chunk.
    check(
        r#"data: {"id":"chatcmpl-495","object":"chat.completion.chunk","created":1,"model":"qwen3","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"Hm"},"finish_reason":null}]}

data: {"id":"chatcmpl-495","object":"chat.completion.chunk","created":1,"model":"qwen3","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"."},"finish_reason":null}]}

data: {"id":"chatcmpl-495","object":"chat.completion.chunk","created":1,"model":"qwen3","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"id":"call_x1","index":0,"type":"function","function":{"name":"ls","arguments":"{\"path\":\".\"}"}}]},"finish_reason":"stop"}]}

data: {"id":"chatcmpl-495","object":"chat.completion.chunk","created":1,"model":"qwen3","system_fingerprint":"fp_ollama","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}

data: [DONE]

"#,
        &Expect {
            content: json!([
                thought("reasoning", "Hm."),
                call("call_x1", "ls", &json!({"path": "."}))
            ]),
            stop: StopReason::ToolUse,
            usage: [7, 3, 0],
        },
    );
}

#[test]
fn llama_cpp_and_deepseek_reasoning() {
    check(
        r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"chatcmpl-z","model":"m","object":"chat.completion.chunk"}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":null,"reasoning_content":"Let me"}}],"id":"chatcmpl-z"}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":null,"reasoning_content":" see."}}],"id":"chatcmpl-z"}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"4","reasoning_content":null}}],"id":"chatcmpl-z"}

data: {"choices":[{"finish_reason":"stop","index":0,"delta":{"content":"","reasoning_content":null}}],"id":"chatcmpl-z","usage":{"prompt_tokens":20,"completion_tokens":9,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":16},"completion_tokens_details":{"reasoning_tokens":7},"prompt_cache_hit_tokens":16,"prompt_cache_miss_tokens":4},"timings":{"prompt_n":1}}

data: [DONE]

"#,
        &Expect {
            content: json!([thought("reasoning_content", "Let me see."), text("4")]),
            stop: StopReason::Stop,
            usage: [4, 9, 16],
        },
    );
}

#[test]
fn openrouter_comments_details_and_errors() {
    let begin = ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n";
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish, "native_finish_reason": finish});
        format!(
            "data: {}\n\n: OPENROUTER PROCESSING\n\n",
            json!({"id": "gen-1", "provider": "X", "choices": [choice]})
        )
    };
    let body = chunk(
        json!({"role": "assistant", "content": "", "reasoning": "I ", "reasoning_details": [{"type": "reasoning.text", "text": "I ", "format": "anthropic-claude-v1", "index": 0}]}),
        Value::Null,
    ) + &chunk(
        json!({"role": "assistant", "content": "", "reasoning": "look.", "reasoning_details": [{"type": "reasoning.text", "text": "look.", "format": "anthropic-claude-v1", "index": 0}]}),
        Value::Null,
    ) + &chunk(
        json!({"role": "assistant", "content": "", "reasoning": null, "reasoning_details": [{"type": "reasoning.text", "signature": "SIG", "format": "anthropic-claude-v1", "index": 0}]}),
        Value::Null,
    ) + &chunk(
        json!({"content": null, "tool_calls": [{"index": 0, "id": "tool_0_ls", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
            "reasoning_details": [{"type": "reasoning.encrypted", "id": "tool_0_ls", "data": "AAAA", "format": "google-gemini-v1", "index": 0}]}),
        Value::Null,
    );
    let end = chunk(json!({"role": "assistant", "content": ""}), json!("tool_calls"))
        + "data: {\"id\":\"gen-1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,\"total_tokens\":13,\"cost\":0.01}}\n\ndata: [DONE]\n\n";
    let mut signed = call("tool_0_ls", "ls", &json!({}));
    signed["thoughtSignature"] = json!(json!([
        {"type": "reasoning.text", "text": "I look.", "format": "anthropic-claude-v1", "index": 0, "signature": "SIG"},
        {"type": "reasoning.encrypted", "id": "tool_0_ls", "data": "AAAA", "format": "google-gemini-v1", "index": 0},
    ]).to_string());
    check(
        &format!("{begin}{body}{end}"),
        &Expect {
            content: json!([thought("reasoning", "I look."), signed]),
            stop: StopReason::ToolUse,
            usage: [9, 4, 0],
        },
    );
    // An error in the middle of it.
    let error = r#"data: {"id":"gen-1","provider":"X","error":{"code":502,"message":"Provider disconnected"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#;
    let (events, failed) = decode_every_way(&format!("{begin}{body}{error}\n\n"));
    let failed = failed.unwrap();
    assert_eq!(
        (failed.kind, failed.message.as_str()),
        (ErrorKind::Server, "502: Provider disconnected")
    );
    assert_eq!(message(&events).1, None);
}

#[test]
fn groq_usage() {
    check(
        r#"data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"x_groq":{"id":"req_1","seed":1}}

data: {"id":"c","choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"x_groq":{"id":"req_1","usage":{"queue_time":0.1,"prompt_tokens":30,"prompt_time":0.1,"completion_tokens":2,"total_tokens":32}}}

data: [DONE]

"#,
        &Expect { content: json!([text("Hi")]), stop: StopReason::Stop, usage: [30, 2, 0] },
    );
}

#[test]
fn mistral() {
    // Thinking is a part of the content; the usage comes with the finish reason.
    check(
        r#"data: {"id":"c","object":"chat.completion.chunk","model":"magistral","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Two and"}]}]},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":" two."}]},{"type":"text","text":"Fo"}]},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"content":"ur"},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"content":"","tool_calls":[{"id":"D681PevKs","function":{"name":"read","arguments":"{\"path\": \"a\"}"},"index":0}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"total_tokens":12,"completion_tokens":7}}

data: [DONE]

"#,
        &Expect {
            content: json!([
                thought("content", "Two and two."),
                text("Four"),
                call("D681PevKs", "read", &json!({"path": "a"}))
            ]),
            stop: StopReason::ToolUse,
            usage: [5, 7, 0],
        },
    );
}

#[test]
fn pieces_of_calls() {
    let read = |id: &str| call(id, "read", &json!({"path": "a"}));
    let ls = |id: &str| call(id, "ls", &json!({}));
    let delta = |calls: Value| json!({"tool_calls": calls});
    let f = |name: Value, arguments: Value| json!({"name": name, "arguments": arguments});
    let args = r#"{"path":"a"}"#;
    for (what, deltas, expect) in [
        (
            "no index: an id begins a call",
            vec![
                delta(json!([{"id": "A", "function": f(json!("read"), json!("{\"path\":"))}])),
                delta(json!([{"function": {"arguments": "\"a\"}"}}])),
                delta(json!([{"id": "B", "function": f(json!("ls"), json!("{}"))}])),
            ],
            json!([read("A"), ls("B")]),
        ),
        (
            "id and name in every piece",
            vec![
                delta(
                    json!([{"index": 0, "id": "A", "function": f(json!("read"), json!("{\"path\""))}]),
                ),
                delta(
                    json!([{"index": 0, "id": "A", "function": f(json!("read"), json!(":\"a\"}"))}]),
                ),
                delta(json!([{"index": 1, "id": "B", "function": f(json!("ls"), json!(""))}])),
                delta(json!([{"index": 1, "id": "B", "function": f(json!("ls"), json!("{}"))}])),
            ],
            json!([read("A"), ls("B")]),
        ),
        (
            "id in every piece, no index",
            vec![
                delta(json!([{"id": "A", "function": f(json!("read"), json!("{\"path\""))}])),
                delta(json!([{"id": "B", "function": f(json!("ls"), json!("{"))}])),
                delta(json!([{"id": "A", "function": f(json!(null), json!(":\"a\"}"))}])),
                delta(json!([{"id": "B", "function": f(json!(null), json!("}"))}])),
            ],
            json!([read("A"), ls("B")]),
        ),
        (
            "number 0 for all of them",
            vec![
                delta(json!([{"index": 0, "id": "A", "function": f(json!("read"), json!(args))}])),
                delta(json!([{"index": 0, "id": "B", "function": f(json!("ls"), json!("{}"))}])),
            ],
            json!([read("A"), ls("B")]),
        ),
        (
            "number 0 for all of them, and no id",
            vec![
                delta(json!([{"index": 0, "id": "", "function": f(json!("read"), json!(args))}])),
                delta(json!([{"index": 0, "id": "", "function": f(json!("read"), json!(args))}])),
                delta(json!([{"index": 0, "id": "", "function": f(json!("ls"), json!("{}"))}])),
            ],
            json!([read("call_n_0"), read("call_n_1"), ls("call_n_2")]),
        ),
        (
            "several in one chunk without index or id",
            vec![delta(json!([
                {"function": f(json!("read"), json!(args))},
                {"function": f(json!("ls"), json!("{}"))},
            ]))],
            json!([read("call_n_0"), ls("call_n_1")]),
        ),
        (
            "mixed up",
            vec![
                delta(json!([
                    {"index": 0, "id": "A", "function": f(json!("read"), json!("{\"path\""))},
                    {"index": 1, "id": "B", "function": f(json!("ls"), json!("{"))},
                ])),
                delta(
                    json!([{"index": 1, "function": {"arguments": "}"}}, {"index": 0, "function": {"arguments": ":\"a\"}"}}]),
                ),
            ],
            json!([read("A"), ls("B")]),
        ),
        (
            "the name in pieces, and the arguments as an object",
            vec![
                delta(json!([{"index": 0, "id": "A", "function": {"name": "re"}}])),
                delta(json!([{"index": 0, "function": {"name": "ad"}}])),
                delta(json!([{"index": 0, "function": {"arguments": {"path": "a"}}}])),
            ],
            json!([read("A")]),
        ),
        (
            "arguments before the name",
            vec![
                delta(json!([{"index": 0, "id": "A", "function": {"arguments": "{\"path\":"}}])),
                delta(json!([{"index": 0, "function": {"name": "read", "arguments": "\"a\"}"}}])),
            ],
            json!([read("A")]),
        ),
        (
            "the same id twice",
            vec![
                delta(json!([{"index": 0, "id": "A", "function": f(json!("read"), json!(args))}])),
                delta(json!([{"index": 1, "id": "A", "function": f(json!("ls"), json!("{}"))}])),
            ],
            json!([read("A"), ls("call_n_1")]),
        ),
        (
            "text around it, no arguments at all",
            vec![
                json!({"content": "x"}),
                delta(json!([{"index": 0, "id": "B", "function": {"name": "ls"}}])),
                json!({"content": "y"}),
            ],
            json!([text("x"), ls("B"), text("y")]),
        ),
        (
            "before there were tool calls",
            vec![
                json!({"function_call": {"name": "read", "arguments": ""}}),
                json!({"function_call": {"arguments": args}}),
            ],
            json!([read("call_n_0")]),
        ),
    ] {
        for finish in ["tool_calls", "stop", "function_call"] {
            let (events, error) = decode_every_way(&stream_of(&deltas, finish));
            assert_eq!(error, None, "{what}");
            let (content, end) = message(&events);
            assert_eq!(content, expect, "{what}");
            assert_eq!(end.unwrap().0, StopReason::ToolUse, "{what}");
        }
    }
}

#[test]
fn thinking_and_text_alternate() {
    let deltas = [
        json!({"role": "assistant"}),
        json!({"reasoning_content": "a", "reasoning": "a"}),
        json!({"reasoning_content": "b", "content": ""}),
        json!({"content": "c"}),
        json!({"reasoning_text": "d", "content": null}),
        json!({"refusal": "e", "content": {"odd": 1}, "tool_calls": null}),
        json!({"reasoning_details": [{"type": "reasoning.summary", "summary": "f"}]}),
    ];
    let (events, error) = decode_every_way(&stream_of(&deltas, "stop"));
    assert_eq!(error, None);
    let expect = json!([
        thought("reasoning_content", "ab"),
        text("c"),
        thought("reasoning_text", "d"),
        text("e"),
        thought("reasoning_details", "f"),
    ]);
    assert_eq!(message(&events).0, expect);
}

#[test]
fn reasons_to_stop() {
    let some = [json!({"content": "a"})];
    for (reason, expect) in [
        ("stop", Ok(StopReason::Stop)),
        ("end", Ok(StopReason::Stop)),
        ("eos", Ok(StopReason::Stop)),
        ("length", Ok(StopReason::Length)),
        ("MAX_TOKENS", Ok(StopReason::Length)),
        ("model_length", Ok(StopReason::Length)),
        // There is no call: nothing would answer.
        ("tool_calls", Ok(StopReason::Stop)),
        ("content_filter", Err(ErrorKind::Refused)),
        ("error", Err(ErrorKind::Server)),
        ("network_error", Err(ErrorKind::Server)),
        ("insufficient_system_resource", Err(ErrorKind::Overloaded)),
    ] {
        let (events, error) = decode_every_way(&stream_of(&some, reason));
        match expect {
            Ok(stop) => assert_eq!(message(&events).1.unwrap().0, stop, "{reason}"),
            Err(kind) => assert_eq!(error.unwrap().kind, kind, "{reason}"),
        }
    }
    // Cut inside a call.
    let cut = [
        json!({"tool_calls": [{"index": 0, "id": "A", "function": {"name": "ls", "arguments": ""}}]}),
    ];
    let (events, _) = decode_every_way(&stream_of(&cut, "length"));
    let is_marked = |event: &ProviderEvent| {
        matches!(event, ProviderEvent::Delta(StreamDelta::ToolCallEnd { problem: Some(_), .. }))
    };
    assert!(events.iter().any(is_marked), "{events:?}");
    assert_eq!(message(&events).1.unwrap().0, StopReason::Length);
}

#[test]
fn ends_that_are_none() {
    for (stream, kind, part) in [
        ("", ErrorKind::Dropped, "the stream ended"),
        (": ping\n\n", ErrorKind::Dropped, "the stream ended"),
        ("data: [DONE]\n\n", ErrorKind::Dropped, "the server sent no reply"),
        (
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"\"}]}\n\n",
            ErrorKind::Dropped,
            "the stream ended",
        ),
        ("data: {\"choices\":[{\"delta\":{\"content\":\"a\"", ErrorKind::Protocol, "{\"choices\""),
        ("data: <html>no</html>\n\n", ErrorKind::Protocol, "<html>no</html>"),
        ("data: 5\n\n", ErrorKind::Protocol, ": 5"),
        (
            "data: {\"error\":{\"message\":\"m\",\"code\":401}}\n\n",
            ErrorKind::Authentication,
            "401: m",
        ),
        ("event: error\ndata: {\"message\":\"m\"}\n\n", ErrorKind::Server, "m"),
    ] {
        let (_, error) = decode_every_way(stream);
        let error = error.unwrap();
        assert_eq!(error.kind, kind, "{stream}: {error}");
        assert!(error.message.contains(part), "{stream}: {error}");
    }
    // `[DONE]` says it all where something has come.
    let stream = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n";
    check(stream, &Expect { content: json!([text("a")]), stop: StopReason::Stop, usage: [0; 3] });
    let long = format!("data: {}\n\n", "é".repeat(4000));
    assert!(decode([long.as_bytes()]).1.unwrap().message.len() < 1000);
}

#[test]
fn only_the_first_choice_counts_wherever_it_stands() {
    let stream = r#"data: {"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"length","usage":{"prompt_tokens":9}},{"index":0,"delta":{"content":"a"}}]}

data: {"choices":[{"index":2,"delta":{"content":"y"},"error":{"message":"not asked for"}}]}

data: {"choices":[{"delta":{"content":"b"}},{"index":1,"delta":{"content":"x"}}]}

data: {"choices":[{"index":null,"delta":{"content":"c"}}]}

data: {"choices":[{"index":1,"finish_reason":"length"},{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":3,"completion_tokens":2}}]}

data: [DONE]

"#;
    let content = json!([text("abc")]);
    check(stream, &Expect { content, stop: StopReason::Stop, usage: [3, 2, 0] });
}

fn any_delta() -> impl Strategy<Value = Value> {
    let odd =
        || prop::sample::select(vec![json!(null), json!(""), json!(3), json!({"a": 1}), json!([])]);
    let word = || prop_oneof![4 => "[a-c{}]{1,3}".prop_map(Value::String), 1 => odd()];
    let index = prop_oneof![Just(json!(null)), (0..3u64).prop_map(|at| json!(at)), odd()];
    let id = prop_oneof![Just(json!(null)), "[AB]".prop_map(Value::String), odd()];
    let piece = (index, id, word(), word()).prop_map(|(index, id, name, arguments)| {
        json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}})
    });
    let fields = vec![
        "content",
        "reasoning_content",
        "reasoning",
        "refusal",
        "reasoning_details",
        "tool_calls",
    ];
    prop_oneof![
        2 => (prop::sample::select(fields), word()).prop_map(|(field, value)| json!({field: value})),
        2 => prop::collection::vec(piece, 1..3).prop_map(|pieces| json!({"tool_calls": pieces})),
        1 => (word(), word()).prop_map(|(text, signature)| {
            json!({"reasoning_details": [{"type": "reasoning.text", "text": text, "signature": signature}]})
        }),
    ]
}

proptest! {
    #[test]
    fn any_chunks_are_a_reply_in_order(deltas in prop::collection::vec(any_delta(), 0..12)) {
        let (events, error) = decode([stream_of(&deltas, "stop").as_bytes()]);
        prop_assert_eq!(error, None);
        let (content, end) = message(&events);
        prop_assert!(end.is_some());
        let calls = content.as_array().unwrap().iter().filter(|block| block["type"] == "toolCall");
        let ids: Vec<&str> = calls.map(|call| call["id"].as_str().unwrap()).collect();
        prop_assert!(ids.iter().all(|id| !id.is_empty()));
        prop_assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }
}
