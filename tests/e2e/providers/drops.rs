//! Streams that are torn, at every event.

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Api, Close, Reply};

use super::{Fake, blocks, events, finish, messages, only_reply, session_file};
use crate::order::{count, text_of, texts};

/// Text and a call, told from other tries by `mark`.
fn answer(mark: &str) -> Answer {
    Answer::says(&format!("text of {mark}"))
        .in_pieces(3)
        .call("call_a", "bash", &json!({"command": format!("echo {mark} >> log")}))
        .in_pieces(3)
}

/// After how many events the reply is known to be whole.
fn whole_after(api: Api, count: usize) -> usize {
    match api {
        // The stop reason and the usage come with the event before the last.
        Api::AnthropicMessages => count - 1,
        // Behind the finish reason come the usage and a marker.
        Api::OpenaiCompletions => count - 2,
        Api::OpenaiResponses | Api::GoogleGenerativeAi => count,
    }
}

#[track_caller]
fn check(fake: &Fake, wharf: &mut wharf_tests::Wharf, at: usize, close: Close) {
    let api = fake.api;
    let place = format!("{api:?} {close:?} after {at}");
    let broken = answer("torn");
    let whole = at >= whole_after(api, api.events(&broken).len());
    // One that is whole is not told from its second try.
    let mark = if whole { "torn" } else { "second" };
    let before = fake.server.requests().len();
    fake.server.reply(Reply::from(broken).drop_after(at, close));
    if !whole {
        fake.server.reply(answer("second"));
    }
    fake.server.reply(Answer::says("done"));
    assert_eq!(wharf.data(json!({"type": "new_session"}))["cancelled"], false);
    let log = fake.env.project().join("log");
    let _ = std::fs::remove_file(&log);
    let run = wharf.run("go");

    let retries = events(&run, "stream_retry");
    assert_eq!(retries.len(), usize::from(!whole), "{place}: {run:?}");
    for retry in retries {
        assert_eq!((&retry["attempt"], &retry["maxAttempts"]), (&json!(1), &json!(3)), "{place}");
        assert!(!retry["errorMessage"].as_str().unwrap().is_empty());
    }
    assert_eq!(count(&run, "auto_retry_start"), 0, "{place}: {run:?}");
    let replies = messages(&run, "assistant");
    assert_eq!(texts(&run, "assistant"), [&format!("text of {mark}"), "done"], "{place}");
    assert_eq!(blocks(replies[0], "toolCall").len(), 1, "{place}");
    assert_eq!(replies[0]["stopReason"], "toolUse", "{place}");
    assert_eq!(count(&run, "tool_execution_start"), 1, "{place}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("{mark}\n"), "{place}");

    let stored = session_file(wharf).messages();
    let roles: Vec<&Value> = stored.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "toolResult", "assistant"], "{place}");
    assert_eq!(stored[1], *replies[0], "{place}");
    let requests = fake.server.requests();
    assert_eq!(requests.len() - before, if whole { 2 } else { 3 }, "{place}");
    if !whole {
        assert_eq!(requests[before].body, requests[before + 1].body, "{place}");
        assert!(!requests.last().unwrap().body.to_string().contains("torn"), "{place}");
        assert!(!Value::Array(stored).to_string().contains("torn"), "{place}");
    }
}

fn at_every_event(close: Close) {
    for api in Api::ALL {
        let fake = Fake::start(api);
        let mut wharf = fake.rpc();
        let count = api.events(&answer("torn")).len();
        for at in 0..=count {
            check(&fake, &mut wharf, at, close);
        }
        finish(wharf, count + 1);
    }
}

#[test]
fn reset_at_every_event() {
    at_every_event(Close::Reset);
}

#[test]
fn closed_at_every_event() {
    at_every_event(Close::Clean);
}

/// Inside of events too: none of the parts is taken for a whole one.
#[test]
fn closed_at_many_bytes() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        let mut wharf = fake.rpc();
        let events = api.events(&answer("torn"));
        let whole: usize =
            events[..whole_after(api, events.len())].iter().map(Vec::len).sum::<usize>();
        let mut runs = 0;
        for at in (1..whole - 4).step_by(97) {
            fake.server.reply(Reply::from(answer("torn")).drop_after_bytes(at, Close::Clean));
            fake.server.reply(Answer::says("second"));
            wharf.data(json!({"type": "new_session"}));
            let run = wharf.run("go");
            assert_eq!(texts(&run, "assistant"), ["second"], "{api:?} {at}");
            assert_eq!(count(&run, "stream_retry"), 1, "{api:?} {at}: {run:?}");
            assert_eq!(count(&run, "tool_execution_start"), 0, "{api:?} {at}");
            runs += 1;
        }
        finish(wharf, runs);
    }
}

#[test]
fn a_stream_that_is_torn_again_and_again() {
    for api in Api::ALL {
        for close in [Close::Clean, Close::Reset] {
            let fake = Fake::start(api);
            let events_before = api.events(&Answer::says("partial").in_pieces(3)).len() - 3;
            let torn = Reply::from(Answer::says("partial").in_pieces(3))
                .drop_after(events_before.max(1), close);
            fake.server.default_reply(torn);
            let mut wharf = fake.rpc();
            let run = wharf.run("go");
            let attempts: Vec<&Value> =
                events(&run, "stream_retry").iter().map(|retry| &retry["attempt"]).collect();
            assert_eq!(attempts, [&json!(1), &json!(2), &json!(3)], "{api:?} {close:?}");
            let reply = only_reply(&run);
            assert_eq!(reply["stopReason"], "error", "{api:?} {close:?}");
            let said = reply["errorMessage"].as_str().unwrap();
            assert!(said.contains("stream"), "{api:?}: {said}");
            assert_eq!(fake.server.requests().len(), 4, "{api:?} {close:?}");
            fake.server.default_reply(Answer::says("again"));
            let run = wharf.run("more");
            assert_eq!(text_of(only_reply(&run)), "again");
            finish(wharf, 2);
        }
    }
}

/// The server hangs up in place of any answer: nothing of the reply had begun.
#[test]
fn a_stream_that_is_empty() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        fake.server.reply(Reply::events(Vec::new()));
        fake.server.reply(Reply::events(vec![b": keep-alive\n\n".to_vec()]));
        fake.server.reply(Answer::says("done"));
        let mut wharf = fake.rpc();
        let run = wharf.run("go");
        assert_eq!(texts(&run, "assistant"), ["done"], "{api:?}: {run:?}");
        assert_eq!(fake.server.requests().len(), 3);
        finish(wharf, 1);
    }
}
