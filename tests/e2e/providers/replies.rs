//! Replies that go well: text, thinking, calls, usage and stop reasons.

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Api, Chunking, Reply, Stop, Usage};

use super::{Fake, blocks, deltas, events, finish, messages, only_reply};
use crate::order::{text_of, texts};

#[test]
fn text_streams_and_its_deltas_add_up() {
    let text = "Grüße, 世界! 🦀 \u{2028}\u{2029} \"quoted\"\n\ttab \\ end".repeat(7);
    for api in Api::ALL {
        for chunking in
            [Chunking::Events, Chunking::Whole, Chunking::Bytes, Chunking::InsideCharacters]
        {
            let fake = Fake::start(api);
            let answer = Answer::says(&text).in_pieces(40);
            fake.server.reply(Reply::from(answer).chunking(chunking));
            let mut wharf = fake.rpc();
            let run = wharf.run("go");
            let reply = only_reply(&run);
            assert_eq!(text_of(reply), text, "{api:?} {chunking:?}");
            assert_eq!(deltas(&run, "text_delta"), text, "{api:?} {chunking:?}");
            let starts = run.iter().filter(|l| l["assistantMessageEvent"]["type"] == "text_start");
            assert_eq!(starts.count(), 1);
            let end = run.iter().find(|l| l["assistantMessageEvent"]["type"] == "text_end");
            assert_eq!(end.unwrap()["assistantMessageEvent"]["content"], text.as_str());
            assert_eq!(reply["stopReason"], "stop");
            let of = [("api", api.name()), ("provider", "fake"), ("model", "fake-1")];
            assert!(of.iter().all(|(field, value)| reply[*field] == *value), "{reply}");
            assert!(reply.get("errorMessage").is_none(), "{reply}");
            assert_eq!(
                events(&run, "agent_start")[0]["model"],
                json!({"provider": "fake", "id": "fake-1"})
            );
            finish(wharf, 1);
        }
    }
}

#[test]
fn a_long_reply_of_many_deltas() {
    let text: String = (0..20_000).map(|n| format!("{n} ")).collect();
    for api in Api::ALL {
        let fake = Fake::start(api);
        fake.server.reply(Answer::says(&text).in_pieces(2000));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        assert_eq!(text_of(only_reply(&run)), text, "{api:?}");
        assert_eq!(deltas(&run, "text_delta"), text, "{api:?}");
        finish(wharf, 1);
    }
}

/// Where in a request, and how, the thinking of the reply before stands.
#[track_caller]
fn assert_thinking_is_sent_back(api: Api, body: &Value) {
    match api {
        Api::AnthropicMessages => {
            let content = body["messages"][1]["content"].as_array().unwrap();
            assert_eq!(
                content[0],
                json!({"type": "thinking", "thinking": "let me see", "signature": "c2lnbmVk"})
            );
            assert_eq!(content[1]["type"], "text");
            assert_eq!(content[2]["type"], "tool_use");
        }
        Api::OpenaiCompletions => {
            let messages = body["messages"].as_array().unwrap();
            let reply = messages.iter().find(|message| message["role"] == "assistant").unwrap();
            assert_eq!(reply["reasoning_content"], "let me see", "{reply}");
            assert_eq!(reply["content"], "I will look.");
        }
        Api::OpenaiResponses => {
            let input = body["input"].as_array().unwrap();
            let at = input.iter().position(|item| item["type"] == "reasoning").unwrap();
            let item = &input[at];
            assert_eq!(item["encrypted_content"], "c2lnbmVk", "{item}");
            assert_eq!(item["id"], "rs_0_0");
            assert_eq!(item["summary"], json!([{"type": "summary_text", "text": "let me see"}]));
            assert_eq!(input[at + 1]["id"], "msg_0_1", "{input:?}");
            assert_eq!(input[at + 2]["type"], "function_call");
            assert_eq!(input[at + 2]["call_id"], "call_a");
        }
        Api::GoogleGenerativeAi => {
            let parts = body["contents"][1]["parts"].as_array().unwrap();
            let signed: Vec<&Value> =
                parts.iter().filter(|part| part.get("thoughtSignature").is_some()).collect();
            assert_eq!(
                signed,
                [&json!({"text": "I will look.", "thoughtSignature": "c2lnbmVk"})],
                "the signature must come back on the part that it came with: {parts:?}"
            );
        }
    }
}

#[test]
fn thinking_streams_and_its_signature_is_sent_back() {
    for api in Api::ALL {
        let fake = Fake::with(api, &json!({"reasoning": true}));
        fake.env.write("a.txt", "A");
        fake.server.reply(
            Answer::default()
                .thinking("let me see", "c2lnbmVk")
                .in_pieces(3)
                .text("I will look.")
                .call("call_a", "read", &json!({"path": "a.txt"})),
        );
        fake.server.reply(Answer::says("done"));
        fake.server.reply(Answer::says("again"));
        let mut wharf = fake.rpc_args(&["--thinking", "high"]);
        let run = wharf.run("go");
        assert_eq!(deltas(&run, "thinking_delta"), "let me see", "{api:?}");
        let reply = messages(&run, "assistant")[0];
        let kinds: Vec<&Value> =
            reply["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
        assert_eq!(kinds, ["thinking", "text", "toolCall"], "{api:?}");
        assert_eq!(blocks(reply, "thinking")[0]["thinking"], "let me see");
        assert_eq!(reply["stopReason"], "toolUse");
        assert_thinking_is_sent_back(api, &fake.last_request().body);
        // And in the turn after the next prompt (Anthropic's and Google's servers may
        // drop it themselves).
        wharf.run("more");
        assert_thinking_is_sent_back(api, &fake.last_request().body);
        finish(wharf, 2);
    }
}

#[test]
fn thinking_is_asked_for_as_each_api_wants_it() {
    type Asked = fn(&Value) -> Value;
    let of: [(Api, Asked, Value, Value); 4] = [
        (
            Api::AnthropicMessages,
            |body| body["thinking"].clone(),
            json!({"type": "enabled", "budget_tokens": 2048}),
            Value::Null,
        ),
        (
            Api::OpenaiCompletions,
            |body| body["reasoning_effort"].clone(),
            json!("low"),
            Value::Null,
        ),
        (
            Api::OpenaiResponses,
            |body| json!([body["reasoning"]["effort"], body["include"]]),
            json!(["low", ["reasoning.encrypted_content"]]),
            json!([null, ["reasoning.encrypted_content"]]),
        ),
        (
            Api::GoogleGenerativeAi,
            |body| body["generationConfig"]["thinkingConfig"]["includeThoughts"].clone(),
            json!(true),
            Value::Null,
        ),
    ];
    for (api, asked, low, off) in of {
        let extra = json!({"reasoning": true, "compat": {"supportsReasoningEffort": true}});
        let fake = Fake::with(api, &extra);
        fake.server.default_reply(Answer::says("ok"));
        let mut wharf = fake.rpc_args(&["--thinking", "low"]);
        wharf.run("one");
        assert_eq!(asked(&fake.last_request().body), low, "{api:?}");
        wharf.data(json!({"type": "set_thinking_level", "level": "off"}));
        wharf.run("two");
        assert_eq!(asked(&fake.last_request().body), off, "{api:?}");
        finish(wharf, 2);
    }
}

/// What the calls of a conversation are answered with in a request, in order: the id (or
/// Google's name) and the text.
pub(super) fn results(api: Api, body: &Value) -> Vec<(String, String)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match api {
        Api::AnthropicMessages => list(&body["messages"])
            .iter()
            .flat_map(|message| list(&message["content"]))
            .filter(|block| block["type"] == "tool_result")
            .map(|block| (text(&block["tool_use_id"]), text(&block["content"][0]["text"])))
            .collect(),
        Api::OpenaiCompletions => list(&body["messages"])
            .iter()
            .filter(|message| message["role"] == "tool")
            .map(|message| (text(&message["tool_call_id"]), text(&message["content"])))
            .collect(),
        Api::OpenaiResponses => list(&body["input"])
            .iter()
            .filter(|item| item["type"] == "function_call_output")
            .map(|item| (text(&item["call_id"]), text(&item["output"])))
            .collect(),
        Api::GoogleGenerativeAi => list(&body["contents"])
            .iter()
            .flat_map(|content| list(&content["parts"]))
            .filter(|part| part["functionResponse"].is_object())
            .map(|part| {
                let response = &part["functionResponse"];
                let inner = &response["response"];
                let inner =
                    if inner["output"].is_null() { &inner["error"] } else { &inner["output"] };
                (text(&response["name"]), text(inner))
            })
            .collect(),
    }
}

#[test]
fn parallel_calls_and_their_results_in_source_order() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        // The first one ends last.
        let wait = "while [ ! -e mark ]; do sleep 0.01; done; printf one";
        fake.server.reply(
            Answer::says("Both.")
                .call("call_a", "bash", &json!({"command": wait}))
                .in_pieces(4)
                .call("call_b", "bash", &json!({"command": "printf two"}))
                .call("call_c", "bash", &json!({"command": "touch mark; printf three"})),
        );
        fake.server.reply(Answer::says("done"));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        assert_eq!(texts(&run, "toolResult"), ["one", "two", "three"], "{api:?}");
        let reply = messages(&run, "assistant")[0];
        let ids: Vec<&str> =
            blocks(reply, "toolCall").iter().map(|call| call["id"].as_str().unwrap()).collect();
        let answered: Vec<&str> = messages(&run, "toolResult")
            .iter()
            .map(|result| result["toolCallId"].as_str().unwrap())
            .collect();
        assert_eq!(ids, answered, "{api:?}");
        let mut unique = ids.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 3, "{api:?}: {ids:?}");
        let request = fake.last_request();
        let sent = results(api, &request.body);
        let expected: Vec<(String, String)> = ["call_a", "call_b", "call_c"]
            .iter()
            .zip(["one", "two", "three"])
            .map(|(id, text)| {
                let id = if api == Api::GoogleGenerativeAi { "bash" } else { id };
                (id.to_owned(), text.to_owned())
            })
            .collect();
        assert_eq!(sent, expected, "{api:?}");
        finish(wharf, 1);
    }
}

#[test]
fn usage_and_its_cost_by_the_models_prices() {
    let cost = json!({"input": 3.0, "output": 15.0, "cacheRead": 0.3, "cacheWrite": 3.75});
    let usage =
        Usage { input: 1000, output: 500, cache_read: 20_000, cache_write: 4000, reasoning: 100 };
    for api in Api::ALL {
        let fake = Fake::with(api, &json!({"cost": cost, "contextWindow": 200_000}));
        fake.env.write("a.txt", "A");
        fake.server.reply(Answer::calls("call_a", "read", &json!({"path": "a.txt"})).usage(usage));
        fake.server.reply(Answer::says("done").usage(usage));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        // Where the API does not tell what was written to the cache, it is input.
        let counts_writes = api == Api::AnthropicMessages;
        let (input, cache_write) = if counts_writes { (1000, 4000) } else { (5000, 0) };
        let replies = messages(&run, "assistant");
        assert_eq!(replies.len(), 2);
        let total_cost = f64::from(input) * 3e-6
            + 500.0 * 15e-6
            + 20_000.0 * 0.3e-6
            + f64::from(cache_write) * 3.75e-6;
        for reply in replies {
            let seen = &reply["usage"];
            for (field, expected) in [
                ("input", input),
                ("output", 500),
                ("cacheRead", 20_000),
                ("cacheWrite", cache_write),
                ("totalTokens", 25_500),
            ] {
                assert_eq!(seen[field], expected, "{api:?} {field}: {seen}");
            }
            for (field, expected) in [
                ("input", f64::from(input) * 3e-6),
                ("output", 0.0075),
                ("cacheRead", 0.006),
                ("cacheWrite", f64::from(cache_write) * 3.75e-6),
                ("total", total_cost),
            ] {
                let found = seen["cost"][field].as_f64().unwrap();
                assert!((found - expected).abs() < 1e-9, "{api:?} {field}: {found} {expected}");
            }
        }
        let stats = wharf.data(json!({"type": "get_session_stats"}));
        assert_eq!(
            stats["tokens"],
            json!({
                "input": 2 * input, "output": 1000, "cacheRead": 40_000,
                "cacheWrite": 2 * cache_write, "total": 51_000,
            }),
            "{api:?}"
        );
        let found = stats["cost"].as_f64().unwrap();
        assert!((found - 2.0 * total_cost).abs() < 1e-9, "{api:?}: {found} {total_cost}");
        for (field, expected) in [
            ("userMessages", 1),
            ("assistantMessages", 2),
            ("toolCalls", 1),
            ("toolResults", 1),
            ("totalMessages", 4),
        ] {
            assert_eq!(stats[field], expected, "{api:?} {field}: {stats}");
        }
        assert_eq!(stats["contextUsage"]["tokens"], 25_500, "{api:?}: {stats}");
        assert_eq!(stats["contextUsage"]["contextWindow"], 200_000);
        finish(wharf, 1);
    }
}

#[test]
fn stop_reasons() {
    for api in Api::ALL {
        for (answer, expected) in [
            (Answer::says("x"), "stop"),
            (Answer::says("x").stop(Stop::End), "stop"),
            (Answer::says("x").stop(Stop::Length), "length"),
            (Answer::says("x").stop(Stop::Refusal), "error"),
        ] {
            // No room for another try.
            let fake = Fake::with(api, &json!({"maxTokens": 1024}));
            fake.server.reply(answer.clone());
            let mut wharf = fake.rpc();
            let run = wharf.run("go");
            let reply = only_reply(&run);
            assert_eq!(reply["stopReason"], expected, "{api:?} {answer:?}: {reply}");
            assert_eq!(text_of(reply), "x", "{api:?} {answer:?}");
            finish(wharf, 1);
        }
    }
}

/// Servers say "stop" where they mean calls, and the other way round.
#[test]
fn stop_reasons_that_do_not_fit_the_content() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        let command = json!({"command": "printf ran"});
        fake.server.reply(Answer::calls("call_a", "bash", &command).stop(Stop::End));
        fake.server.reply(Answer::says("no call").stop(Stop::ToolUse));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        assert_eq!(texts(&run, "toolResult"), ["ran"], "{api:?}");
        assert_eq!(texts(&run, "assistant"), ["", "no call"], "{api:?}");
        let last = messages(&run, "assistant")[1];
        assert!(["stop", "toolUse"].iter().any(|stop| last["stopReason"] == *stop), "{last}");
        finish(wharf, 1);
    }
}

#[test]
fn a_reply_without_any_content() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        fake.server.reply(Answer::default());
        fake.server.reply(Answer::says("here"));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        assert_eq!(only_reply(&run)["content"], json!([]), "{api:?}");
        // The next request goes without it: servers refuse empty replies.
        let run = wharf.run("and?");
        assert_eq!(texts(&run, "assistant"), ["here"], "{api:?}");
        finish(wharf, 2);
    }
}
