//! Errors that pass: the request is sent again, and what a client is told meanwhile.

use serde_json::{Value, json};
use wharf_tests::Wharf;
use wharf_tests::llm::{Answer, Api, Failure, Reply};

use super::{Fake, blocks, deltas, events, finish, messages, only_reply, session_file};
use crate::order::{count, outline, text_of, texts};

fn retry_state(wharf: &mut Wharf) -> (bool, u64, bool) {
    let state = wharf.data(json!({"type": "get_state"}));
    (
        state["isRetrying"].as_bool().unwrap(),
        state["retryAttempt"].as_u64().unwrap(),
        state["isStreaming"].as_bool().unwrap(),
    )
}

#[test]
fn errors_that_pass_are_tried_again() {
    for api in Api::ALL {
        let overloaded = || Reply::from(Failure::Overloaded);
        for (name, failure) in [
            ("429", Reply::from(Failure::RateLimit)),
            ("overloaded", overloaded()),
            ("500", Reply::from(Failure::Internal)),
            ("529", Reply::status(529, r#"{"error":{"message":"full"}}"#)),
            ("502", Reply::status(502, "<html>Bad Gateway</html>")),
            ("503", Reply::status(503, "")),
            ("504", Reply::status(504, "upstream timed out")),
            ("408", Reply::status(408, "Request Timeout")),
        ] {
            let fake = Fake::start(api);
            fake.server.reply(failure);
            fake.server.reply(Answer::says("done"));
            let mut wharf = fake.rpc();
            let run = wharf.run("go");
            assert_eq!(
                outline(&run),
                [
                    "agent_start",
                    "turn_start",
                    "user: go",
                    "auto_retry_start",
                    "assistant: done",
                    "auto_retry_end",
                    "turn_end",
                    "agent_end",
                ],
                "{api:?} {name}"
            );
            let start = events(&run, "auto_retry_start")[0];
            let fields: Vec<&String> = start.as_object().unwrap().keys().collect();
            assert_eq!(fields, ["type", "attempt", "maxAttempts", "delayMs", "errorMessage"]);
            assert_eq!((&start["attempt"], &start["maxAttempts"]), (&json!(1), &json!(3)));
            assert_eq!(start["delayMs"], 0, "{start}");
            let said = start["errorMessage"].as_str().unwrap();
            // "529 {...}": the status and what the server said.
            assert!(said.chars().take(3).all(|c| c.is_ascii_digit()), "{api:?} {name}: {said}");
            assert_eq!(
                events(&run, "auto_retry_end"),
                [&json!({"type": "auto_retry_end", "success": true, "attempt": 1})],
                "{api:?} {name}"
            );
            let requests = fake.server.requests();
            assert_eq!(requests.len(), 2);
            assert_eq!(requests[0].body, requests[1].body, "{api:?} {name}");
            assert_eq!(session_file(&mut wharf).messages().len(), 2);
            finish(wharf, 1);
        }
    }
}

#[test]
fn the_servers_wish_to_wait_is_honoured() {
    for api in Api::ALL {
        for (header, value, delay) in
            [("retry-after-ms", "70", 70), ("retry-after", "1", 1000), ("retry-after", "0.05", 50)]
        {
            let fake = Fake::start(api);
            fake.server.reply(Reply::from(Failure::RateLimit).header(header, value));
            fake.server.reply(Answer::says("done"));
            let mut wharf = fake.rpc();
            let run = wharf.run("go");
            assert_eq!(events(&run, "auto_retry_start")[0]["delayMs"], delay, "{api:?} {value}");
            assert_eq!(texts(&run, "assistant"), ["done"], "{api:?}");
            finish(wharf, 1);
        }
    }
}

#[test]
fn google_says_in_the_body_how_long_to_wait() {
    let fake = Fake::start(Api::GoogleGenerativeAi);
    let body = json!({"error": {
        "code": 429, "message": "You exceeded your current quota.", "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.06s"}],
    }});
    fake.server.reply(Reply::status(429, body.to_string()));
    fake.server.reply(Answer::says("done"));
    let mut wharf = fake.rpc();
    let run = wharf.run("go");
    assert_eq!(events(&run, "auto_retry_start")[0]["delayMs"], 60);
    finish(wharf, 1);
}

#[test]
fn a_wish_to_wait_that_is_too_long_is_an_error() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        fake.server.reply(Reply::from(Failure::RateLimit).header("retry-after", "61"));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        let reply = only_reply(&run);
        assert_eq!(reply["stopReason"], "error", "{api:?}");
        let message = reply["errorMessage"].as_str().unwrap();
        assert!(message.contains("429") && message.contains("61"), "{api:?}: {message}");
        assert_eq!(count(&run, "auto_retry_start"), 0, "{api:?}");
        assert_eq!(fake.server.requests().len(), 1);
        finish(wharf, 1);
    }
}

#[test]
fn it_gives_up_after_the_last_retry() {
    for api in Api::ALL {
        for (settings, most) in [(json!({}), 3), (json!({"maxRetries": 1}), 1)] {
            let fake = Fake::start(api);
            let mut retry = settings;
            retry["baseDelayMs"] = json!(0);
            fake.settings(&json!({"retry": retry}));
            fake.server.default_reply(Failure::Overloaded);
            let mut wharf = fake.rpc();
            let run = wharf.run("go");
            let starts = events(&run, "auto_retry_start");
            let attempts: Vec<u64> =
                starts.iter().map(|start| start["attempt"].as_u64().unwrap()).collect();
            assert_eq!(attempts, (1..=most).collect::<Vec<u64>>(), "{api:?}");
            assert!(starts.iter().all(|start| start["maxAttempts"] == most));
            let reply = only_reply(&run);
            assert_eq!(reply["stopReason"], "error");
            assert_eq!(reply["content"], json!([]));
            let said = &reply["errorMessage"];
            assert_eq!(
                events(&run, "auto_retry_end"),
                [
                    &json!({"type": "auto_retry_end", "success": false, "attempt": most, "finalError": said})
                ],
                "{api:?}"
            );
            assert_eq!(fake.server.requests().len() as u64, most + 1);
            assert_eq!(retry_state(&mut wharf), (false, 0, false));
            // The next prompt begins to count anew.
            fake.server.default_reply(Answer::says("done"));
            fake.server.reply(Failure::Overloaded);
            let run = wharf.run("again");
            assert_eq!(events(&run, "auto_retry_start")[0]["attempt"], 1);
            assert_eq!(texts(&run, "assistant"), ["done"], "{api:?}");
            finish(wharf, 2);
        }
    }
}

#[test]
fn retries_can_be_switched_off() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        fake.server.default_reply(Failure::Internal);
        let mut wharf = fake.rpc();
        wharf.data(json!({"type": "set_auto_retry", "enabled": false}));
        let run = wharf.run("go");
        assert_eq!(only_reply(&run)["stopReason"], "error", "{api:?}");
        assert_eq!(count(&run, "auto_retry_start") + count(&run, "auto_retry_end"), 0);
        assert_eq!(fake.server.requests().len(), 1);
        finish(wharf, 1);
    }
}

#[test]
fn the_state_tells_of_a_retry_while_it_waits_and_while_it_runs() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        let (first, second) = (fake.server.gate(), fake.server.gate());
        fake.server.reply(Reply::from(Failure::Overloaded).hold(&first));
        fake.server.reply(Failure::Overloaded);
        fake.server.reply(Reply::from(Answer::says("done")).hold(&second));
        let mut wharf = fake.rpc();
        wharf.prompt("go");
        first.wait_reached();
        assert_eq!(retry_state(&mut wharf), (false, 0, true), "{api:?}");
        first.open();
        second.wait_reached();
        assert_eq!(retry_state(&mut wharf), (true, 2, true), "{api:?}");
        second.open();
        let run = wharf.take_until("agent_end");
        assert_eq!(events(&run, "auto_retry_end")[0]["attempt"], 2);
        assert_eq!(retry_state(&mut wharf), (false, 0, false), "{api:?}");
        finish(wharf, 1);
    }
}

/// A retry that waits for an hour.
fn waiting(api: Api) -> (Fake, Wharf) {
    let fake = Fake::start(api);
    let retry = json!({"baseDelayMs": 3_600_000, "maxDelayMs": 3_600_000});
    fake.settings(&json!({"retry": retry}));
    fake.server.reply(Failure::Overloaded);
    fake.server.reply(Answer::says("again"));
    let mut wharf = fake.rpc();
    wharf.prompt("go");
    let start = wharf.wait_event("auto_retry_start");
    assert_eq!(start["delayMs"], 3_600_000);
    assert_eq!(retry_state(&mut wharf), (true, 1, true), "{api:?}");
    (fake, wharf)
}

#[test]
fn abort_retry_ends_the_wait_and_the_run() {
    for api in Api::ALL {
        let (fake, mut wharf) = waiting(api);
        assert_eq!(wharf.request(json!({"type": "abort_retry"}))["success"], true);
        let run = wharf.take_until("agent_end");
        let reply = messages(&run, "assistant")[0];
        assert_eq!(reply["stopReason"], "error", "{api:?}: {reply}");
        let end = events(&run, "auto_retry_end")[0];
        assert_eq!((&end["success"], &end["attempt"]), (&json!(false), &json!(1)));
        assert!(!end["finalError"].as_str().unwrap().is_empty());
        assert_eq!(retry_state(&mut wharf), (false, 0, false));
        assert_eq!(fake.server.requests().len(), 1, "{api:?}");
        assert_eq!(texts(&wharf.run("more"), "assistant"), ["again"]);
        finish(wharf, 2);
    }
}

#[test]
fn abort_retry_while_the_retry_itself_is_under_way_makes_it_the_last() {
    let fake = Fake::start(Api::ALL[0]);
    let gate = fake.server.gate();
    fake.server.reply(Failure::Overloaded);
    fake.server.reply(Reply::from(Failure::Internal).hold(&gate));
    let mut wharf = fake.rpc();
    wharf.prompt("go");
    gate.wait_reached();
    assert_eq!(retry_state(&mut wharf), (true, 1, true));
    assert_eq!(wharf.request(json!({"type": "abort_retry"}))["success"], true);
    gate.open();
    let run = wharf.take_until("agent_end");
    assert_eq!(count(&run, "auto_retry_start"), 1);
    assert_eq!(events(&run, "auto_retry_end")[0]["success"], false);
    assert_eq!(fake.server.requests().len(), 2);
    finish(wharf, 1);
}

#[test]
fn abort_ends_the_wait_too() {
    for api in Api::ALL {
        let (fake, mut wharf) = waiting(api);
        assert_eq!(wharf.request(json!({"type": "abort"}))["success"], true);
        let run = wharf.take_until("agent_end");
        assert_eq!(messages(&run, "assistant")[0]["stopReason"], "aborted", "{api:?}");
        assert_eq!(events(&run, "auto_retry_end")[0]["success"], false);
        assert_eq!(retry_state(&mut wharf), (false, 0, false));
        assert_eq!(fake.server.requests().len(), 1, "{api:?}");
        assert_eq!(texts(&wharf.run("more"), "assistant"), ["again"]);
        finish(wharf, 2);
    }
}

/// Two commands in one write, too: what is said while a retry waits is for the run.
#[test]
fn commands_while_a_retry_waits() {
    for api in Api::ALL {
        let (fake, mut wharf) = waiting(api);
        fake.server.default_reply(Answer::says("again"));
        wharf.send_raw(
            b"{\"id\":\"p\",\"type\":\"prompt\",\"message\":\"no\"}\n{\"id\":\"s\",\"type\":\"steer\",\"message\":\"later\"}\n",
        );
        for (id, success) in [("p", false), ("s", true)] {
            let response = wharf.wait_for("a response", |line| line["id"] == id);
            assert_eq!(response["success"], success, "{api:?}: {response}");
        }
        let state = wharf.data(json!({"type": "get_state"}));
        assert_eq!(state["pendingMessageCount"], 1, "{api:?}");
        assert_eq!(state["isRetrying"], true, "{api:?}");
        assert_eq!(wharf.request(json!({"type": "abort_retry"}))["success"], true);
        // A second one has nothing to end.
        assert_eq!(wharf.request(json!({"type": "abort_retry"}))["success"], true);
        let run = wharf.take_until("agent_end");
        assert_eq!(texts(&run, "user"), ["go"], "{api:?}: a run that failed delivers nothing");
        let run = wharf.run("more");
        let mut said = texts(&run, "user");
        said.sort();
        assert_eq!(said, ["later", "more"], "{api:?}");
        assert!(!fake.last_request().body.to_string().contains("\"no\""), "{api:?}");
        finish(wharf, 2);
    }
}

#[test]
fn an_error_inside_of_a_stream() {
    for api in Api::ALL {
        let answer = || {
            Answer::says("half of it").in_pieces(4).call(
                "c",
                "bash",
                &json!({"command": "touch ran"}),
            )
        };
        let whole = api.events(&answer()).len();
        for after in 0..whole - 2 {
            for failure in [Failure::Overloaded, Failure::RateLimit, Failure::Internal] {
                let fake = Fake::start(api);
                fake.server.reply(Reply::from(answer()).fail_after(after, failure));
                fake.server.reply(Answer::says("done"));
                let mut wharf = fake.rpc();
                let run = wharf.run("go");
                let at = format!("{api:?} {after} {failure:?}");
                assert_eq!(texts(&run, "assistant"), ["done"], "{at}");
                let start = events(&run, "auto_retry_start");
                assert_eq!(start.len(), 1, "{at}: {run:?}");
                assert!(!start[0]["errorMessage"].as_str().unwrap().is_empty());
                let end = events(&run, "auto_retry_end");
                assert_eq!(
                    end,
                    [&json!({"type": "auto_retry_end", "success": true, "attempt": 1})]
                );
                // What had been announced is void.
                let begun = count(&run, "message_start") - 1;
                assert_eq!(count(&run, "stream_retry"), begun - 1, "{at}: {run:?}");
                let requests = fake.server.requests();
                assert_eq!(requests.len(), 2, "{at}");
                assert_eq!(requests[0].body, requests[1].body, "{at}");
                let stored = session_file(&mut wharf).messages();
                assert_eq!(stored.len(), 2, "{at}: {stored:?}");
                assert_eq!(text_of(&stored[1]), "done", "{at}");
                assert!(!fake.env.project().join("ran").exists());
                finish(wharf, 1);
            }
        }
    }
}

#[test]
fn a_final_error_inside_of_a_stream() {
    for api in Api::ALL {
        // Google's error has the status of a wrong key, and its words.
        for failure in [Failure::Authentication, Failure::Quota, Failure::Overflow] {
            if (api, failure) == (Api::GoogleGenerativeAi, Failure::Quota) {
                continue;
            }
            let fake = Fake::start(api);
            fake.settings(&json!({"compaction": {"enabled": false}}));
            let answer = Answer::says("half of it").in_pieces(4);
            let events_before = api.events(&answer).len() - 4;
            fake.server.reply(Reply::from(answer).fail_after(events_before, failure));
            let mut wharf = fake.rpc();
            let run = wharf.run("go");
            let reply = only_reply(&run);
            assert_eq!(reply["stopReason"], "error", "{api:?} {failure:?}");
            assert!(!reply["errorMessage"].as_str().unwrap().is_empty());
            assert_eq!(count(&run, "auto_retry_start"), 0, "{api:?} {failure:?}: {reply}");
            assert_eq!(deltas(&run, "text_delta"), text_of(reply), "{api:?} {failure:?}");
            assert_eq!(fake.server.requests().len(), 1, "{api:?} {failure:?}");
            finish(wharf, 1);
        }
    }
}

#[test]
fn an_error_in_a_later_turn_keeps_what_was_done() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        let append = json!({"command": "echo x >> log"});
        fake.server.reply(Answer::calls("c1", "bash", &append));
        fake.server.reply(Failure::Overloaded);
        fake.server
            .reply(Reply::from(Answer::says("par").in_pieces(3)).fail_after(2, Failure::Internal));
        fake.server.reply(Answer::says("done"));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        let log = std::fs::read_to_string(fake.env.project().join("log")).unwrap();
        assert_eq!(log, "x\n", "{api:?}: the call ran twice");
        let replies = messages(&run, "assistant");
        assert_eq!(blocks(replies[0], "toolCall").len(), 1);
        assert_eq!(text_of(replies[1]), "done");
        let attempts: Vec<&Value> =
            events(&run, "auto_retry_start").iter().map(|start| &start["attempt"]).collect();
        assert_eq!(attempts, [&json!(1), &json!(2)], "{api:?}");
        let requests = fake.server.requests();
        assert!(requests[1..].windows(2).all(|pair| pair[0].body == pair[1].body), "{api:?}");
        finish(wharf, 1);
    }
}
