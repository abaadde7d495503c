//! Abort while the server is silent: the connection is closed at once, what was
//! complete is kept, and the next prompt works.

use serde_json::{Value, json};
use wharf_tests::Wharf;
use wharf_tests::llm::{Answer, Api, Outcome, Reply};

use super::{Fake, blocks, finish, messages, only_reply, session_file};
use crate::order::{count, text_of, texts};

fn abort(wharf: &mut Wharf) -> Vec<Value> {
    assert_eq!(wharf.request(json!({"type": "abort"}))["success"], true);
    wharf.take_until("agent_end")
}

#[test]
fn before_the_head() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        let gate = fake.server.gate();
        fake.server.reply(Reply::from(Answer::says("never said")).hold(&gate));
        fake.server.reply(Answer::says("again"));
        let mut wharf = fake.rpc();
        wharf.prompt("go");
        gate.wait_reached();
        let run = abort(&mut wharf);
        assert_eq!(fake.server.wait_outcome(0), Outcome::ClientClosed, "{api:?}");
        let reply = messages(&run, "assistant")[0];
        assert_eq!((&reply["stopReason"], &reply["content"]), (&json!("aborted"), &json!([])));
        assert_eq!(reply["errorMessage"], "Request was aborted");
        assert_eq!(count(&run, "stream_retry") + count(&run, "auto_retry_start"), 0);
        assert_eq!(texts(&wharf.run("more"), "assistant"), ["again"], "{api:?}");
        assert!(!fake.last_request().body.to_string().contains("never said"));
        finish(wharf, 2);
    }
}

#[test]
fn in_the_body_of_an_error() {
    for api in Api::ALL {
        for status in [400, 500] {
            let fake = Fake::start(api);
            let gate = fake.server.gate();
            fake.server.reply(Reply::status(status, "it is broken").hold_after(0, &gate));
            fake.server.reply(Answer::says("again"));
            let mut wharf = fake.rpc();
            wharf.prompt("go");
            gate.wait_reached();
            let run = abort(&mut wharf);
            assert_eq!(fake.server.wait_outcome(0), Outcome::ClientClosed, "{api:?} {status}");
            assert_eq!(messages(&run, "assistant")[0]["stopReason"], "aborted", "{api:?} {status}");
            assert_eq!(count(&run, "auto_retry_start"), 0, "{api:?} {status}");
            assert_eq!(texts(&wharf.run("more"), "assistant"), ["again"], "{api:?} {status}");
            finish(wharf, 2);
        }
    }
}

/// After every event: whole blocks and the text so far stay; half a call does not, and
/// no call runs.
#[test]
fn after_every_event() {
    for api in Api::ALL {
        let answer = || {
            Answer::default()
                .thinking("let me see", "c2lnbmVk")
                .text("some words")
                .in_pieces(2)
                .call("call_a", "bash", &json!({"command": "touch ran"}))
                .in_pieces(2)
        };
        let whole = api.events(&answer()).len();
        let fake = Fake::with(api, &json!({"reasoning": true}));
        let mut wharf = fake.rpc_args(&["--thinking", "high"]);
        for after in 0..whole {
            let gate = fake.server.gate();
            let request = fake.server.requests().len();
            fake.server.reply(Reply::from(answer()).hold_after(after, &gate));
            fake.server.reply(Answer::says("again"));
            wharf.data(json!({"type": "new_session"}));
            wharf.prompt("go");
            gate.wait_reached();
            let run = abort(&mut wharf);
            let place = format!("{api:?} after {after}");
            assert_eq!(fake.server.wait_outcome(request), Outcome::ClientClosed, "{place}");
            let reply = messages(&run, "assistant");
            assert_eq!(reply.len(), 1, "{place}");
            let reply = reply[0];
            assert_eq!(reply["stopReason"], "aborted", "{place}: {reply}");
            assert!("some words".starts_with(&text_of(reply)), "{place}: {reply}");
            assert_eq!(count(&run, "tool_execution_start"), 0, "{place}");
            assert!(!fake.env.project().join("ran").exists(), "{place}");
            for call in blocks(reply, "toolCall") {
                assert_eq!(
                    call["arguments"],
                    json!({"command": "touch ran"}),
                    "{place}: half a call"
                );
            }
            let stored = session_file(&mut wharf).messages();
            assert_eq!(stored[1], *reply, "{place}");
            let run = wharf.run("more");
            assert_eq!(texts(&run, "assistant"), ["again"], "{place} {:?}", fake.server.refusals());
            // The text is what the model sees of it.
            let body = fake.last_request().body.to_string();
            assert!(!body.contains("touch ran"), "{place}: {body}");
            let kept = text_of(reply);
            assert!(
                kept.trim().is_empty() || body.contains(kept.trim()),
                "{place}: {kept:?} {body}"
            );
        }
        finish(wharf, 2 * whole);
    }
}

/// What was seen of the text is kept.
#[test]
fn the_text_that_was_shown_is_kept() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        let gate = fake.server.gate();
        let events = api.events(&Answer::says("some words").in_pieces(10));
        // Up to the last delta but one, whatever frames them.
        let seen = events
            .iter()
            .position(|event| String::from_utf8_lossy(event).contains("\"d\""))
            .unwrap();
        fake.server.reply(Reply::events(events).hold_after(seen + 1, &gate));
        fake.server.reply(Answer::says("again"));
        let mut wharf = fake.rpc();
        wharf.prompt("go");
        // What a client has been shown, and more may not come.
        let mut shown = String::new();
        while shown != "some word" {
            let update = wharf
                .wait_for("a delta", |line| line["assistantMessageEvent"]["type"] == "text_delta");
            shown.push_str(update["assistantMessageEvent"]["delta"].as_str().unwrap());
        }
        let run = abort(&mut wharf);
        let reply = messages(&run, "assistant")[0];
        assert_eq!(text_of(reply), "some word", "{api:?}: {reply}");
        wharf.run("more");
        assert!(fake.last_request().body.to_string().contains("some word"), "{api:?}");
        finish(wharf, 2);
    }
}

/// Closing the input, and signals, end a silent request too.
#[test]
fn the_end_of_the_input_while_the_server_is_silent() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        let gate = fake.server.gate();
        fake.server.reply(Reply::from(Answer::says("never said")).hold(&gate));
        let mut wharf = fake.rpc();
        wharf.prompt("go");
        gate.wait_reached();
        crate::processes::signal(wharf.pid(), rustix::process::Signal::TERM);
        wharf.wait_exit();
        assert_eq!(fake.server.wait_outcome(0), Outcome::ClientClosed, "{api:?}");
    }
}

/// Twenty aborts of twenty runs leave nothing behind.
#[test]
fn many_aborted_runs() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        let mut wharf = fake.rpc();
        for round in 0..20 {
            let gate = fake.server.gate();
            let reply = Reply::from(Answer::says("half of it").in_pieces(5));
            fake.server.reply(if round % 2 == 0 {
                reply.hold(&gate)
            } else {
                reply.hold_after(3, &gate)
            });
            wharf.prompt("go");
            gate.wait_reached();
            let run = abort(&mut wharf);
            assert_eq!(messages(&run, "assistant")[0]["stopReason"], "aborted", "{api:?} {round}");
            assert_eq!(fake.server.wait_outcome(round), Outcome::ClientClosed, "{api:?} {round}");
        }
        fake.server.reply(Answer::says("again"));
        let run = wharf.run("more");
        assert_eq!(text_of(only_reply(&run)), "again", "{api:?}");
        finish(wharf, 21);
    }
}
