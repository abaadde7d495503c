//! Errors that no second try mends: the run ends with a reply that says what the server
//! said, once, and the agent can be used again.

use std::net::TcpListener;

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Api, Failure, Reply, Stop};

use super::{Fake, events, finish, only_reply};
use crate::order::{count, text_of, texts};

/// A run that fails at once: one request, no retry, one reply with an error that has
/// all of these texts in it. The next prompt is answered.
#[track_caller]
fn check(fake: &Fake, reply: impl Into<Reply>, says: &[&str]) {
    fake.server.reply(reply);
    fake.server.reply(Answer::says("again"));
    let mut wharf = fake.rpc();
    let run = wharf.run("go");
    let api = fake.api;
    let reply = only_reply(&run);
    assert_eq!(reply["stopReason"], "error", "{api:?} {says:?}: {reply}");
    let message = reply["errorMessage"].as_str().unwrap();
    for text in says {
        assert!(message.contains(text), "{api:?}: {text:?} is not in {message:?}");
    }
    for kind in ["auto_retry_start", "auto_retry_end", "stream_retry", "auto_compaction_start"] {
        assert_eq!(count(&run, kind), 0, "{api:?} {says:?} {kind}: {message}");
    }
    assert_eq!(fake.server.requests().len(), 1, "{api:?} {says:?}");
    assert_eq!(count(&run, "turn_end"), 1);
    let end = events(&run, "agent_end")[0];
    assert_eq!(end["messages"][1], *reply, "{api:?}");
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(
        (&state["isStreaming"], &state["isRetrying"], &state["retryAttempt"]),
        (&json!(false), &json!(false), &json!(0)),
        "{api:?} {says:?}"
    );
    assert_eq!(texts(&wharf.run("still there?"), "assistant"), ["again"], "{api:?} {says:?}");
    finish(wharf, 2);
}

/// An error's body as the API words it.
fn body(api: Api, status: u16, message: &str) -> String {
    match api {
        Api::AnthropicMessages => json!({
            "type": "error",
            "error": {"type": "invalid_request_error", "message": message},
            "request_id": "req_1",
        }),
        Api::OpenaiCompletions | Api::OpenaiResponses => json!({"error": {
            "message": message, "type": "invalid_request_error", "param": null, "code": null,
        }}),
        Api::GoogleGenerativeAi => json!({"error": {
            "code": status, "message": message, "status": "INVALID_ARGUMENT",
        }}),
    }
    .to_string()
}

#[test]
fn statuses_that_are_final() {
    for api in Api::ALL {
        for (status, message) in [
            (400, "Something is wrong with the request."),
            (401, "Who are you?"),
            (402, "Payment is required."),
            (403, "You may not use this model."),
            (404, "There is no such model."),
            (405, "Not this way."),
            (422, "This cannot be processed."),
        ] {
            let reply = Reply::status(status, body(api, status, message));
            check(&Fake::start(api), reply, &[&status.to_string(), message]);
        }
    }
}

#[test]
fn a_wrong_key() {
    for api in Api::ALL {
        let says = match api {
            Api::AnthropicMessages => "invalid x-api-key",
            Api::OpenaiCompletions | Api::OpenaiResponses => "Incorrect API key provided",
            Api::GoogleGenerativeAi => "API key not valid",
        };
        check(&Fake::start(api), Failure::Authentication, &[says]);
    }
}

#[test]
fn a_key_that_the_server_repeats_is_not_shown() {
    for api in Api::ALL {
        let fake = Fake::with(api, &json!({"apiKey": "sk-very-secret-0123456789"}));
        let said = body(api, 401, "Incorrect API key provided: sk-very-secret-0123456789.");
        fake.server.reply(Reply::status(401, said));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        assert!(only_reply(&run)["errorMessage"].as_str().unwrap().contains("Incorrect API key"));
        let exit = finish(wharf, 1);
        let all = format!("{}{}", exit.transcript, exit.stderr);
        assert!(!all.contains("very-secret"), "{api:?}: {all}");
    }
}

#[test]
fn money_that_is_used_up() {
    for api in Api::ALL {
        let says = match api {
            Api::AnthropicMessages => "credit balance is too low",
            Api::OpenaiCompletions | Api::OpenaiResponses => "exceeded your current quota",
            // It has one text for this and for too many requests.
            Api::GoogleGenerativeAi => continue,
        };
        check(&Fake::start(api), Failure::Quota, &[says]);
    }
}

#[test]
fn a_context_that_is_too_long_without_compaction() {
    for api in Api::ALL {
        let says = match api {
            Api::AnthropicMessages => "prompt is too long",
            Api::OpenaiCompletions => "maximum context length",
            Api::OpenaiResponses => "exceeds the context window",
            Api::GoogleGenerativeAi => "exceeds the maximum number of tokens",
        };
        let fake = Fake::start(api);
        fake.settings(&json!({"compaction": {"enabled": false}}));
        check(&fake, Failure::Overflow, &[says]);
    }
}

#[test]
fn a_page_in_place_of_a_stream() {
    for api in Api::ALL {
        let page = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>";
        let reply = Reply::status(200, page).header("content-type", "text/html; charset=utf-8");
        let fake = Fake::start(api);
        let url = fake.server.base_url();
        check(&fake, reply, &["text/html", "Sign in", "baseUrl", &url]);
        // The same as an error.
        let reply = Reply::status(404, page).header("content-type", "text/html");
        check(&Fake::start(api), reply, &["404", "Sign in"]);
    }
}

#[test]
fn a_redirect_is_not_followed() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        let target = format!("{}/elsewhere", fake.server.base_url());
        let reply = Reply::status(307, "").header("location", &target);
        check(&fake, reply, &["307", "redirect", "/elsewhere"]);
    }
}

#[test]
fn a_refusal_keeps_the_text_so_far() {
    for api in Api::ALL {
        let says = match api {
            Api::AnthropicMessages => "declined",
            Api::OpenaiCompletions | Api::OpenaiResponses => "content filter",
            Api::GoogleGenerativeAi => "SAFETY",
        };
        let fake = Fake::start(api);
        check(&fake, Answer::says("I was about").stop(Stop::Refusal), &[says]);
        // A call of a reply that was refused does not run, and is not sent back.
        let fake = Fake::start(api);
        let touch = json!({"command": "touch ran"});
        let answer = Answer::says("I call").call("c", "bash", &touch).stop(Stop::Refusal);
        check(&fake, answer, &[says]);
        assert!(!fake.env.project().join("ran").exists(), "{api:?}");
        assert!(!fake.last_request().body.to_string().contains("touch ran"), "{api:?}");
    }
}

#[test]
fn a_prompt_that_google_blocks() {
    let fake = Fake::start(Api::GoogleGenerativeAi);
    let event = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}});
    let reply = Reply::events(vec![format!("data: {event}\r\n\r\n").into_bytes()]);
    check(&fake, reply, &["PROHIBITED_CONTENT"]);
}

#[test]
fn garbage_in_a_stream() {
    for api in Api::ALL {
        let mut events = api.events(&Answer::says("hello"));
        events.insert(events.len() - 1, b"data: {\"no\": json}\n\n".to_vec());
        let fake = Fake::start(api);
        fake.server.reply(Reply::events(events));
        fake.server.default_reply(Answer::says("fine"));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        // Whatever is made of it, the garbage is no part of the reply, and the run ends.
        let reply = only_reply(&run);
        assert!(["error", "stop"].iter().any(|stop| reply["stopReason"] == *stop), "{reply}");
        assert!(["hello", "fine"].contains(&text_of(reply).as_str()), "{api:?}: {reply}");
        finish(wharf, 1);
    }
}

#[test]
fn an_error_of_a_one_shot_run_is_told() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        fake.server.default_reply(Failure::Authentication);
        let run = |mode: &[&str]| {
            fake.env.command().args(mode).args(["--model", &fake.model, "go"]).output().unwrap()
        };
        let text = run(&["-p"]);
        assert_ne!(text.status.code(), Some(0), "{api:?}: {text:?}");
        assert_eq!(String::from_utf8_lossy(&text.stdout), "");
        assert!(String::from_utf8_lossy(&text.stderr).to_lowercase().contains("key"), "{text:?}");
        let json = run(&["--mode", "json"]);
        let lines: Vec<Value> = str::from_utf8(&json.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.last().unwrap()["type"], "agent_end", "{api:?}");
        assert_eq!(only_reply(&lines)["stopReason"], "error", "{api:?}");
        assert_eq!(fake.server.requests().len(), 2, "{api:?}");
    }
}

#[test]
fn nobody_listens() {
    for api in Api::ALL {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let fake = Fake::with(api, &json!({"baseUrl": format!("http://127.0.0.1:{port}/v1")}));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        let starts = events(&run, "auto_retry_start");
        assert_eq!(starts.len(), 3, "{api:?}: {run:?}");
        let reply = only_reply(&run);
        assert_eq!(reply["stopReason"], "error", "{api:?}");
        let message = reply["errorMessage"].as_str().unwrap();
        for text in [&format!("127.0.0.1:{port}"), "fake", "onnection refused"] {
            assert!(message.contains(text), "{api:?}: {message}");
        }
        assert_eq!(
            events(&run, "auto_retry_end"),
            [
                &json!({"type": "auto_retry_end", "success": false, "attempt": 3, "finalError": message})
            ]
        );
        assert_eq!(count(&run, "message_start"), 2, "the user's and one reply: {run:?}");
        finish(wharf, 1);
    }
}
