//! Replies that hit the token limit.

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Api, Reply, Stop};

use super::{Fake, blocks, events, finish, messages, only_reply, session_file};
use crate::order::{count, text_of, texts};

/// The output tokens that a request asks for.
fn asked(api: Api, body: &Value) -> u64 {
    let value = match api {
        Api::AnthropicMessages => &body["max_tokens"],
        Api::OpenaiCompletions => body.get("max_tokens").unwrap_or(&body["max_completion_tokens"]),
        Api::OpenaiResponses => &body["max_output_tokens"],
        Api::GoogleGenerativeAi => &body["generationConfig"]["maxOutputTokens"],
    };
    value.as_u64().unwrap_or_else(|| panic!("no limit in {body}"))
}

fn cut(text: &str) -> Answer {
    Answer::says(text).in_pieces(2).stop(Stop::Length)
}

#[test]
fn a_longer_reply_is_asked_for_up_to_the_models_ceiling() {
    for api in Api::ALL {
        let fake = Fake::with(api, &json!({"maxTokens": 100_000, "contextWindow": 1_000_000}));
        for text in ["a", "ab", "abc"] {
            fake.server.reply(cut(text));
        }
        fake.server.reply(Answer::says("again"));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        let asked: Vec<u64> =
            fake.server.requests().iter().map(|request| asked(api, &request.body)).collect();
        assert_eq!(asked, [32_000, 64_000, 100_000], "{api:?}");
        let retries = events(&run, "length_retry");
        let expected = [(1, 32_000, 64_000), (2, 64_000, 100_000)].map(|(attempt, max, next)| {
            json!({"type": "length_retry", "attempt": attempt, "maxTokens": max, "nextMaxTokens": next})
        });
        assert_eq!(retries, expected.iter().collect::<Vec<_>>(), "{api:?}");
        let reply = only_reply(&run);
        assert_eq!(reply["stopReason"], "length", "{api:?}");
        assert_eq!(text_of(reply), "abc", "{api:?}: the partial text is kept");
        let said = reply["errorMessage"].as_str().unwrap();
        assert!(said.contains("100000") && said.contains("fake-1"), "{api:?}: {said}");
        assert_eq!(count(&run, "stream_retry") + count(&run, "auto_retry_start"), 0);
        let stored = session_file(&mut wharf).messages();
        assert_eq!(stored.len(), 2, "{api:?}: {stored:?}");
        assert_eq!(stored[1], *reply);
        // What was cut off is part of the conversation.
        wharf.run("go on");
        assert!(fake.last_request().body.to_string().contains("\"abc\""), "{api:?}");
        assert_eq!(
            asked_last(&fake),
            32_000,
            "{api:?}: the next reply begins with the usual limit"
        );
        finish(wharf, 2);
    }
}

fn asked_last(fake: &Fake) -> u64 {
    asked(fake.api, &fake.last_request().body)
}

#[test]
fn the_longer_reply_succeeds() {
    for api in Api::ALL {
        let fake = Fake::with(api, &json!({"maxTokens": 64_000, "contextWindow": 1_000_000}));
        fake.server.reply(cut("the beg").call("c0", "bash", &json!({"command": "touch ran"})));
        fake.server.reply(Answer::says("the whole").call(
            "c1",
            "bash",
            &json!({"command": "echo second >> log"}),
        ));
        fake.server.reply(Answer::says("done"));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        assert_eq!(texts(&run, "assistant"), ["the whole", "done"], "{api:?}");
        assert_eq!(count(&run, "length_retry"), 1, "{api:?}");
        assert_eq!(count(&run, "tool_execution_start"), 1, "{api:?}");
        assert!(!fake.env.project().join("ran").exists(), "{api:?}: a void call ran");
        let requests = fake.server.requests();
        assert!(!requests[2].body.to_string().contains("the beg"), "{api:?}");
        assert!(!requests[2].body.to_string().contains("touch ran"), "{api:?}");
        assert_eq!(session_file(&mut wharf).messages().len(), 4);
        finish(wharf, 1);
    }
}

/// At the ceiling: a call that the limit has cut does not run, the model is told, and
/// the conversation goes on.
#[test]
fn a_call_that_is_cut_does_not_run() {
    for api in Api::ALL {
        let fake = Fake::with(api, &json!({"maxTokens": 2048}));
        let whole = json!({"command": "touch ran"});
        // Arguments that happen to read as whole; the limit may still have cut them.
        let answer =
            Answer::says("I will write.").call("call_a", "bash", &whole).stop(Stop::Length);
        let mut event_list = api.events(&answer);
        if api == Api::OpenaiResponses {
            for event in &mut event_list {
                let text = String::from_utf8(event.clone()).unwrap();
                *event = text
                    .replace(
                        "\"status\":\"completed\",\"call_id\"",
                        "\"status\":\"incomplete\",\"call_id\"",
                    )
                    .into_bytes();
                if text.contains("output_item.done") && text.contains("function_call") {
                    let mut json: Value =
                        serde_json::from_str(text.split_once("data: ").unwrap().1).unwrap();
                    json["item"]["status"] = json!("incomplete");
                    *event =
                        format!("event: response.output_item.done\ndata: {json}\n\n").into_bytes();
                }
            }
        }
        if api == Api::GoogleGenerativeAi {
            // A call comes whole, in one part: it was not cut.
            continue;
        }
        fake.server.reply(Reply::events(event_list));
        fake.server.reply(Answer::says("I see"));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        assert!(!fake.env.project().join("ran").exists(), "{api:?}: a call that was cut ran");
        let result = messages(&run, "toolResult")[0];
        assert_eq!(result["isError"], true, "{api:?}: {result}");
        assert!(text_of(result).contains("token limit"), "{api:?}: {result}");
        let replies = messages(&run, "assistant");
        assert_eq!(replies[0]["stopReason"], "length", "{api:?}");
        assert_eq!(blocks(replies[0], "toolCall").len(), 1);
        assert_eq!(text_of(replies[1]), "I see");
        let sent = super::replies::results(api, &fake.last_request().body);
        assert_eq!(sent.len(), 1, "{api:?}");
        assert!(sent[0].1.contains("token limit"), "{api:?}: {sent:?}");
        finish(wharf, 1);
    }
}

/// The same where the JSON text stops in its middle.
#[test]
fn a_call_that_is_cut_in_the_middle_of_its_arguments() {
    for api in [Api::AnthropicMessages, Api::OpenaiCompletions, Api::OpenaiResponses] {
        let fake = Fake::with(api, &json!({"maxTokens": 2048}));
        fake.server.reply(
            Answer::default()
                .call("call_a", "bash", &json!({"command": "echo whole >> log"}))
                .raw_call("call_b", "bash", "{\"command\": \"touch r")
                .stop(Stop::Length),
        );
        fake.server.reply(Answer::says("I see"));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        let results = messages(&run, "toolResult");
        assert_eq!(results.len(), 2, "{api:?}");
        assert_eq!(results[1]["isError"], true, "{api:?}: {results:?}");
        assert!(!fake.env.project().join("r").exists());
        assert_eq!(texts(&run, "assistant").last().unwrap(), "I see");
        finish(wharf, 1);
    }
}

#[test]
fn the_limit_leaves_room_in_the_context_window() {
    for api in Api::ALL {
        let extra = json!({"maxTokens": 32_000, "contextWindow": 40_000});
        let fake = Fake::with(api, &extra);
        fake.settings(&json!({"compaction": {"enabled": false}}));
        let usage = wharf_tests::llm::Usage { input: 30_000, output: 100, ..Default::default() };
        fake.server.reply(Answer::says("one").usage(usage));
        fake.server.reply(Answer::says("two"));
        let mut wharf = fake.rpc();
        wharf.run("go");
        wharf.run("more");
        let limit = asked_last(&fake);
        assert!(limit <= 40_000 - 30_100, "{api:?}: {limit}");
        finish(wharf, 2);
    }
}
