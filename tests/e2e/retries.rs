//! What is tried again: storms of transient errors, torn streams, their limits, and the
//! ways out of the waits.

use insta::assert_snapshot;
use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Close, Failure, LlmServer, Reply};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, Wharf};

use crate::order::{count, texts};
use crate::story::{
    accept, assert_consistent, assert_stored, rpc_over, session_file, settings, state, story,
};

fn fails(status: u16) -> Value {
    json!({"error": {"status": status, "body": format!("body {status}")}})
}

fn torn(text: &str) -> Value {
    json!({"drop": true, "content": [{"type": "text", "text": text}]})
}

#[track_caller]
fn assert_calm(wharf: &mut Wharf) {
    let state = state(wharf);
    let seen = (&state["isRetrying"], &state["retryAttempt"], &state["isStreaming"]);
    assert_eq!(seen, (&json!(false), &json!(0), &json!(false)));
}

fn events<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

/// The stop reason and error of the last reply of a run.
fn last_reply(run: &[Value]) -> (&str, &str) {
    let end = run.iter().rfind(|line| line["type"] == "turn_end").unwrap();
    let message = &end["message"];
    (message["stopReason"].as_str().unwrap(), message["errorMessage"].as_str().unwrap_or_default())
}

#[test]
fn a_storm_over_several_prompts() {
    let env = Env::new();
    settings(&env, json!({}));
    let model = env.script(&[
        // One, then an answer.
        fails(429),
        says("one"),
        // Three of different kinds, one of them with text before it, in a tool loop.
        fails(529),
        bash("echo out"),
        json!({"content": [{"type": "text", "text": "void"}], "error": {"status": 500, "body": "body 500"}}),
        fails(429),
        fails(529),
        says("two"),
        // More than are tried.
        fails(500),
        fails(429),
        fails(529),
        fails(503),
        // Torn and refused in turn: each has its own count.
        torn("void 1"),
        fails(529),
        torn("void 2"),
        fails(500),
        says("four"),
        // What is no matter of waiting.
        fails(400),
        fails(401),
        says("seven"),
    ]);
    let mut wharf = env.rpc_with(&[], &model);
    for prompt in ["p1", "p2", "p3", "p4", "p5", "p6", "p7"] {
        let run = wharf.run(prompt);
        assert_calm(&mut wharf);
        let starts = events(&run, "auto_retry_start");
        for start in &starts {
            assert!(start["delayMs"].as_u64().unwrap() <= 1000, "{start}");
        }
        // Each series that was begun has one end.
        assert_eq!(
            count(&run, "auto_retry_end"),
            starts.iter().filter(|one| one["attempt"] == 1).count()
        );
    }
    let file = session_file(&mut wharf);
    let exit = wharf.finish();
    assert_eq!(assert_consistent(&exit.all), 7);
    assert_stored(&file, &exit.all);
    assert_snapshot!("storm", story(&exit.all));
}

#[test]
fn the_last_failure_says_what_it_was() {
    let env = Env::new();
    settings(&env, json!({}));
    let model = env.script(&[fails(429), fails(500), fails(503), fails(529), says("again")]);
    let mut wharf = env.rpc_with(&[], &model);
    let run = wharf.run("go");
    let end = events(&run, "auto_retry_end");
    assert_eq!(
        end,
        [
            &json!({"type": "auto_retry_end", "success": false, "attempt": 3, "finalError": "529 body 529"})
        ]
    );
    assert_eq!(last_reply(&run), ("error", "529 body 529"));
    let messages: Vec<&str> = events(&run, "auto_retry_start")
        .iter()
        .map(|start| start["errorMessage"].as_str().unwrap())
        .collect();
    assert_eq!(messages, ["429 body 429", "500 body 500", "503 body 503"]);
    assert_eq!(texts(&wharf.run("more"), "assistant"), ["again"]);
}

#[test]
fn abort_retry_ends_the_wait_and_the_run() {
    let env = Env::new();
    settings(&env, json!({"retry": {"baseDelayMs": 600_000, "maxDelayMs": 600_000}}));
    let model = env.script(&[fails(529), says("again")]);
    let mut wharf = env.rpc_with(&[], &model);
    // With nothing to end it does nothing, also to what comes later.
    accept(&mut wharf, json!({"type": "abort_retry"}));
    assert_calm(&mut wharf);
    wharf.prompt("go");
    let start = wharf.wait_event("auto_retry_start");
    let delay = start["delayMs"].as_u64().unwrap();
    assert!((1..=600_000).contains(&delay), "{start}");
    let waiting = state(&mut wharf);
    let seen = (&waiting["isRetrying"], &waiting["retryAttempt"], &waiting["isStreaming"]);
    assert_eq!(seen, (&json!(true), &json!(1), &json!(true)));
    accept(&mut wharf, json!({"type": "abort_retry"}));
    let run = wharf.take_until("agent_end");
    let [end] = events(&run, "auto_retry_end")[..] else { panic!("{run:?}") };
    assert_eq!((&end["success"], &end["attempt"]), (&json!(false), &json!(1)));
    assert!(end["finalError"].as_str().unwrap().starts_with("529 body 529"), "{end}");
    let (stop, error) = last_reply(&run);
    assert_eq!(stop, "error");
    assert!(error.starts_with("529 body 529"), "{error}");
    assert_calm(&mut wharf);
    assert_eq!(texts(&wharf.run("more"), "assistant"), ["again"]);
    assert_eq!(assert_consistent(&wharf.finish().all), 2);
}

#[test]
fn abort_retry_after_text_leaves_nothing_of_it() {
    let env = Env::new();
    settings(&env, json!({"retry": {"baseDelayMs": 600_000, "maxDelayMs": 600_000}}));
    let mut half = fails(529);
    half["content"] = json!([{"type": "text", "text": "void"}]);
    let model = env.script(&[half, says("again")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("go");
    wharf.wait_event("auto_retry_start");
    accept(&mut wharf, json!({"type": "abort_retry"}));
    let run = wharf.take_until("agent_end");
    let reply = &run.iter().rfind(|line| line["type"] == "message_end").unwrap()["message"];
    // `stream_retry` had told that it does not count.
    assert_eq!(reply["content"], json!([]), "{reply}");
    assert_eq!(texts(&wharf.run("more"), "assistant"), ["again"]);
    assert_eq!(assert_consistent(&wharf.finish().all), 2);
}

#[test]
fn abort_retry_ends_the_wait_after_torn_streams() {
    let env = Env::new();
    settings(&env, json!({"retry": {"baseDelayMs": 600_000, "maxDelayMs": 600_000}}));
    let model = env.script(&[torn("void 1"), torn("void 2"), says("again")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("go");
    wharf
        .wait_for("the second tear", |line| line["type"] == "stream_retry" && line["attempt"] == 2);
    // The response says that what was in progress is ended.
    accept(&mut wharf, json!({"type": "abort_retry"}));
    let run = wharf.take_until("agent_end");
    assert_eq!(last_reply(&run).0, "error");
    assert_eq!(texts(&wharf.run("more"), "assistant"), ["again"]);
}

#[test]
fn without_automatic_retry_the_first_failure_is_the_last() {
    for by_settings in [true, false] {
        let env = Env::new();
        settings(&env, if by_settings { json!({"retry": {"enabled": false}}) } else { json!({}) });
        let model = env.script(&[fails(529), fails(529), says("again")]);
        let mut wharf = env.rpc_with(&[], &model);
        if !by_settings {
            accept(&mut wharf, json!({"type": "set_auto_retry", "enabled": false}));
        }
        let run = wharf.run("go");
        assert_eq!((count(&run, "auto_retry_start"), count(&run, "auto_retry_end")), (0, 0));
        assert_eq!(last_reply(&run), ("error", "529 body 529"));
        assert_calm(&mut wharf);
        let written = std::fs::read_to_string(env.agent_dir().join("settings.json")).unwrap();
        let written: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(written["retry"]["enabled"], false, "kept for later runs");
        accept(&mut wharf, json!({"type": "set_auto_retry", "enabled": true}));
        let run = wharf.run("more");
        assert_eq!(count(&run, "auto_retry_start"), 1);
        assert_eq!(texts(&run, "assistant"), ["again"]);
    }
}

#[test]
fn switching_retries_off_during_a_run_holds_for_the_next_failure() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    let gate = server.gate();
    server.reply(Failure::Overloaded);
    server.reply(Reply::from(Failure::Overloaded).hold(&gate));
    let mut wharf = rpc_over(&env, &server, &[]);
    wharf.prompt("go");
    gate.wait_reached();
    wharf.wait_event("auto_retry_start");
    // The second attempt is under way.
    let executing = state(&mut wharf);
    assert_eq!((&executing["isRetrying"], &executing["retryAttempt"]), (&json!(true), &json!(1)));
    accept(&mut wharf, json!({"type": "set_auto_retry", "enabled": false}));
    gate.open();
    let run = wharf.take_until("agent_end");
    let [end] = events(&run, "auto_retry_end")[..] else { panic!("{run:?}") };
    assert_eq!((&end["success"], &end["attempt"]), (&json!(false), &json!(1)));
    assert_calm(&mut wharf);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn the_state_at_each_step() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    let gates: Vec<_> = (0..4).map(|_| server.gate()).collect();
    server.reply(Reply::from(Failure::RateLimit).hold(&gates[0]));
    server.reply(Reply::from(Failure::Internal).hold(&gates[1]));
    server.reply(
        Reply::from(Answer::calls("toolu_1", "bash", &json!({"command": "echo 1"})))
            .hold(&gates[2]),
    );
    server.reply(Reply::from(Answer::says("done")).hold(&gates[3]));
    let mut wharf = rpc_over(&env, &server, &[]);
    assert_calm(&mut wharf);
    wharf.prompt("go");
    // Before the first failure, in the first and in the second retry, and after them.
    for (gate, (retrying, attempt)) in
        gates.iter().zip([(false, 0), (true, 1), (true, 2), (false, 0)])
    {
        gate.wait_reached();
        if attempt > 0 {
            wharf.wait_for("the retry", |line| {
                line["type"] == "auto_retry_start" && line["attempt"] == attempt
            });
        }
        let now = state(&mut wharf);
        let seen = (&now["isRetrying"], &now["retryAttempt"], &now["isStreaming"]);
        assert_eq!(seen, (&json!(retrying), &json!(attempt), &json!(true)));
        gate.open();
        if attempt == 2 {
            let end = wharf.wait_event("auto_retry_end");
            assert_eq!(end, json!({"type": "auto_retry_end", "success": true, "attempt": 2}));
        }
    }
    wharf.wait_event("agent_end");
    assert_calm(&mut wharf);
}

#[test]
fn how_often_is_a_setting() {
    for (retries, answered) in [(0, false), (1, false), (2, true), (5, true)] {
        let env = Env::new();
        settings(&env, json!({"retry": {"maxRetries": retries}}));
        let model = env.script(&[fails(529), fails(500), says("done")]);
        let mut wharf = env.rpc_with(&[], &model);
        let run = wharf.run("go");
        let starts = events(&run, "auto_retry_start");
        assert_eq!(starts.len(), usize::min(retries, 2));
        assert!(starts.iter().all(|start| start["maxAttempts"] == retries), "{starts:?}");
        assert_eq!(last_reply(&run).0, if answered { "stop" } else { "error" });
        let ends = events(&run, "auto_retry_end");
        assert_eq!(ends.len(), usize::from(retries > 0));
        assert!(ends.iter().all(|end| end["success"] == answered), "{ends:?}");
    }
}

#[test]
fn a_server_that_wants_to_be_left_alone_for_long_is() {
    let env = Env::new();
    settings(&env, json!({"retry": {"maxDelayMs": 2000}}));
    let wait = |ms: u64| json!({"error": {"status": 429, "body": "slow down", "retryAfterMs": ms}});
    let model = env.script(&[wait(2001), wait(20), says("done"), fails(500), wait(3_600_000)]);
    let mut wharf = env.rpc_with(&[], &model);
    let run = wharf.run("longer than allowed");
    assert_eq!(count(&run, "auto_retry_start"), 0);
    let (stop, error) = last_reply(&run);
    assert_eq!(stop, "error");
    assert!(error.contains("429 slow down") && error.contains("retry.maxDelayMs"), "{error}");
    let run = wharf.run("as long as allowed");
    let [start] = events(&run, "auto_retry_start")[..] else { panic!("{run:?}") };
    assert!(start["delayMs"].as_u64().unwrap() >= 20, "{start}");
    assert_eq!(last_reply(&run).0, "stop");
    // In the middle of a series: it ends with a failure that says why.
    let run = wharf.run("after another failure");
    let [end] = events(&run, "auto_retry_end")[..] else { panic!("{run:?}") };
    assert_eq!((&end["success"], &end["attempt"]), (&json!(false), &json!(1)));
    assert!(end["finalError"].as_str().unwrap().contains("3600 s"), "{end}");
}

#[test]
fn the_header_retry_after_is_heeded() {
    let env = Env::new();
    settings(&env, json!({"retry": {"maxDelayMs": 1500}}));
    let server = LlmServer::start();
    server.reply(Reply::from(Failure::RateLimit).header("retry-after", "1"));
    server.reply(Answer::says("done"));
    server.reply(Reply::from(Failure::Overloaded).header("retry-after", "7200"));
    let mut wharf = rpc_over(&env, &server, &[]);
    let run = wharf.run("go");
    let [start] = events(&run, "auto_retry_start")[..] else { panic!("{run:?}") };
    assert!(start["delayMs"].as_u64().unwrap() >= 1000, "{start}");
    assert_eq!(last_reply(&run).0, "stop");
    let run = wharf.run("go");
    assert_eq!(count(&run, "auto_retry_start"), 0);
    assert!(last_reply(&run).1.contains("7200 s"), "{run:?}");
}

#[test]
fn torn_streams_in_a_row() {
    for tears in 1..=4 {
        let env = Env::new();
        settings(&env, json!({}));
        let mut replies: Vec<Value> = (1..=tears).map(|n| torn(&format!("void {n}"))).collect();
        replies.push(says("whole"));
        let model = env.script(&replies);
        let mut wharf = env.rpc_with(&[], &model);
        let run = wharf.run("go");
        let retries = events(&run, "stream_retry");
        assert_eq!(retries.len(), usize::min(tears, 3));
        for (index, retry) in retries.iter().enumerate() {
            assert_eq!((&retry["attempt"], &retry["maxAttempts"]), (&json!(index + 1), &json!(3)));
        }
        assert_eq!(count(&run, "auto_retry_start"), 0);
        if tears <= 3 {
            assert_eq!(texts(&run, "assistant"), ["whole"]);
            assert!(!run.last().unwrap().to_string().contains("void"));
        } else {
            let (stop, error) = last_reply(&run);
            assert_eq!(stop, "error");
            assert!(error.contains("stream ended before the reply was complete"), "{error}");
            // What the last one said was never taken back.
            assert_eq!(texts(&run, "assistant"), ["void 4"]);
        }
        assert_calm(&mut wharf);
        let file = session_file(&mut wharf);
        let exit = wharf.finish();
        assert_eq!(assert_consistent(&exit.all), 1);
        assert_stored(&file, &exit.all);
    }
}

#[test]
fn a_whole_reply_between_them_resets_the_count_of_torn_streams() {
    let env = Env::new();
    settings(&env, json!({}));
    let model = env.script(&[
        torn("v"),
        torn("v"),
        torn("v"),
        bash("echo out"),
        torn("v"),
        torn("v"),
        torn("v"),
        says("done"),
    ]);
    let mut wharf = env.rpc_with(&[], &model);
    let run = wharf.run("go");
    assert_eq!(count(&run, "stream_retry"), 6);
    assert_eq!(texts(&run, "assistant"), ["", "done"]);
}

#[test]
fn connections_that_are_cut_are_torn_streams() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    let answer = || Answer::says("a longer text").in_pieces(5);
    server.reply(Reply::from(answer()).drop_after(4, Close::Clean));
    server.reply(Reply::from(answer()).drop_after(5, Close::Reset));
    server.reply(answer());
    let mut wharf = rpc_over(&env, &server, &[]);
    let run = wharf.run("go");
    assert_eq!(count(&run, "stream_retry"), 2, "{}", wharf.transcript());
    assert_eq!(texts(&run, "assistant"), ["a longer text"]);
    // Each attempt was sent the same.
    let requests = server.requests();
    assert!(requests.windows(2).all(|pair| pair[0].body == pair[1].body));
    assert_eq!(assert_consistent(&wharf.finish().all), 1);
}

#[test]
fn commands_in_one_write_with_the_wait_for_a_retry() {
    let env = Env::new();
    settings(&env, json!({"retry": {"baseDelayMs": 600_000, "maxDelayMs": 600_000}}));
    let model = env.script(&[fails(529), says("steered"), says("again")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("go");
    wharf.wait_event("auto_retry_start");
    wharf.send_raw(
        b"{\"id\":1,\"type\":\"abort_retry\"}\n{\"id\":2,\"type\":\"abort_retry\"}\n{\"id\":3,\"type\":\"abort\"}\n{\"id\":4,\"type\":\"get_state\"}\n",
    );
    for id in 1..=4 {
        let response = wharf.wait_for("a response", |line| line["id"] == id);
        assert_eq!(response["success"], true, "{response}");
    }
    let run = wharf.take_until("agent_end");
    assert_eq!(count(&run, "auto_retry_end"), 1);
    assert_calm(&mut wharf);
    assert_eq!(assert_consistent(&run), 1);
}
