//! Automatic compaction: at the threshold and after an overflow, inside runs and at
//! their ends, and what becomes of a run whose compaction fails.

use insta::assert_snapshot;
use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Failure, LlmServer, Reply, Usage};
use wharf_tests::{Env, SessionFile, Wharf};

use crate::order::{count, texts};
use crate::story::{
    accept, assert_consistent, get_messages, rpc_over, session_file, settings, state, story,
};

/// A text of ten tokens, as the agent estimates them.
fn pad(text: &str) -> String {
    format!("{text:.<40}")
}

fn compacting_env() -> Env {
    let env = Env::new();
    settings(&env, json!({"compaction": {"keepRecentTokens": 20}, "retry": {"maxRetries": 1}}));
    env
}

/// Over the threshold of the window.
const FULL: Usage = Usage { input: 9500, output: 5, cache_read: 0, cache_write: 0, reasoning: 0 };

fn echo(id: &str) -> Answer {
    Answer::calls(id, "bash", &json!({"command": format!("echo {id}")}))
}

fn one_run(env: &Env, server: &LlmServer) -> Wharf {
    server.reply(Answer::says(&pad("answer one")));
    let mut wharf = rpc_over(env, server, &[]);
    wharf.run(&pad("first"));
    wharf
}

fn event<'a>(run: &'a [Value], kind: &str) -> &'a Value {
    let found: Vec<&Value> = run.iter().filter(|line| line["type"] == kind).collect();
    let [event] = found[..] else { panic!("not one {kind}: {}", story(run)) };
    event
}

fn position(run: &[Value], matches: impl Fn(&Value) -> bool) -> usize {
    run.iter().position(matches).unwrap()
}

#[test]
fn the_threshold_inside_a_tool_loop() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = one_run(&env, &server);
    server.reply(echo("toolu_1").usage(FULL));
    server.default_summary(Answer::says("S"));
    server.reply(Answer::says("done"));
    let run = wharf.run(&pad("second"));
    assert_eq!(event(&run, "auto_compaction_start")["reason"], "threshold");
    let end = event(&run, "auto_compaction_end");
    assert_eq!((&end["aborted"], &end["willRetry"]), (&json!(false), &json!(true)));
    assert!(end.get("errorMessage").is_none(), "{end}");
    let result = &end["result"];
    assert!(result["summary"].as_str().unwrap().starts_with('S'), "{end}");
    assert!(result["tokensBefore"].as_u64().unwrap() >= 9505, "{end}");
    // Between the two turns, and what is sent afterwards is whole.
    let at = position(&run, |line| line["type"] == "auto_compaction_start");
    assert_eq!(run[at - 1]["type"], "turn_end");
    let last = server.requests().last().unwrap().body["messages"].to_string();
    assert!(last.contains("toolu_1") && !last.contains("answer one."), "{last}");
    assert_eq!(texts(&run, "assistant").last().unwrap(), "done");
    // The run tells of all its messages, compacted or not.
    assert_eq!(run.last().unwrap()["messages"].as_array().unwrap().len(), 4);
    let file = session_file(&mut wharf);
    let exit = wharf.finish();
    assert_eq!(assert_consistent(&exit.all), 2);
    assert_snapshot!("threshold_in_a_loop", story(&run));
    let session = SessionFile::read(&file);
    session.assert_linear();
    let [entry] = session.of_type("compaction")[..] else { panic!("not one entry") };
    assert_eq!(entry["firstKeptEntryId"], result["firstKeptEntryId"]);
}

#[test]
fn the_threshold_at_the_end_of_a_run() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = one_run(&env, &server);
    server.reply(Answer::says(&pad("answer two")).usage(FULL));
    server.on_summary(Answer::says("S"));
    let run = wharf.run(&pad("second"));
    let end = event(&run, "auto_compaction_end");
    assert_eq!((&end["aborted"], &end["willRetry"]), (&json!(false), &json!(false)));
    assert_snapshot!("threshold_at_the_end", story(&run));
    assert_eq!(server.requests().len(), 3, "nothing was asked after it");
    let usage = state(&mut wharf)["contextUsage"].clone();
    assert_eq!((&usage["tokens"], &usage["percent"]), (&Value::Null, &Value::Null));
    server.reply(Answer::says("three"));
    wharf.run("third");
    assert_eq!(state(&mut wharf)["contextUsage"]["tokens"], 15);
}

#[test]
fn the_threshold_with_a_message_that_waits() {
    for kind in ["steer", "follow_up"] {
        let env = compacting_env();
        let server = LlmServer::start();
        let mut wharf = one_run(&env, &server);
        let gate = server.gate();
        server.reply(Reply::from(Answer::says(&pad("answer two")).usage(FULL)).hold(&gate));
        server.on_summary(Answer::says("S"));
        server.reply(Answer::says("done"));
        wharf.prompt(&pad("second"));
        gate.wait_reached();
        accept(&mut wharf, json!({"type": kind, "message": "more"}));
        crate::story::wait_queued(&mut wharf, 1);
        gate.open();
        let run = wharf.take_until("agent_end");
        // Another request is imminent.
        assert_eq!(event(&run, "auto_compaction_end")["willRetry"], true);
        let sent = server.requests().last().unwrap().body["messages"].to_string();
        assert!(sent.contains("more") && !sent.contains("first."), "{sent}");
        assert_eq!(texts(&run, "assistant").last().unwrap(), "done");
        assert_eq!(assert_consistent(&wharf.finish().all), 2);
    }
}

#[test]
fn compactions_at_every_turn_part_no_call_from_its_result() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = one_run(&env, &server);
    server.default_summary(Answer::says("S"));
    for turn in 0..12 {
        let mut answer = Answer::says(&format!("turn {turn}"));
        for call in 0..=turn % 4 {
            let command = json!({"command": format!("echo {}", "x".repeat(turn * 13))});
            answer = answer.call(&format!("toolu_{turn}_{call}"), "bash", &command);
        }
        server.reply(answer.usage(FULL));
    }
    server.reply(Answer::says("done"));
    let run = wharf.run(&pad("second"));
    assert_eq!(count(&run, "auto_compaction_end"), 12);
    for end in run.iter().filter(|line| line["type"] == "auto_compaction_end") {
        assert!(end["result"].is_object() && end["willRetry"] == true, "{end}");
    }
    assert_eq!(texts(&run, "assistant").last().unwrap(), "done");
    let messages = get_messages(&mut wharf);
    let file = session_file(&mut wharf);
    let exit = wharf.finish();
    assert_eq!(assert_consistent(&exit.all), 2);
    SessionFile::read(&file).assert_linear();
    let mut reopened = env.rpc(&["--session", file.to_str().unwrap()]);
    assert_eq!(get_messages(&mut reopened), messages);
    // It refuses what real servers refuse: a result without its call among it.
    server.verify();
}

/// The server refuses the context once; compacted, it takes it.
#[test]
fn an_overflow_compacts_and_the_run_goes_on() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = one_run(&env, &server);
    server.reply(Failure::Overflow);
    let gate = server.gate();
    server.on_summary(Reply::from(Answer::says("S")).hold(&gate));
    server.reply(echo("toolu_1"));
    server.reply(Answer::says("done"));
    wharf.prompt(&pad("second"));
    gate.wait_reached();
    wharf.wait_event("auto_compaction_start");
    let during = state(&mut wharf);
    assert_eq!((&during["isCompacting"], &during["isStreaming"]), (&json!(true), &json!(true)));
    gate.open();
    let end = wharf.wait_event("auto_compaction_end");
    assert_eq!((&end["aborted"], &end["willRetry"]), (&json!(false), &json!(true)));
    assert_eq!(state(&mut wharf)["isCompacting"], false);
    wharf.take_until("agent_end");
    let requests = server.requests();
    let again = requests[3].body["messages"].to_string();
    assert!(again.contains("second.") && again.contains("summary"), "{again}");
    assert!(!again.contains("first."), "{again}");
    let file = session_file(&mut wharf);
    let exit = wharf.finish();
    assert_eq!(assert_consistent(&exit.all), 2);
    assert_snapshot!("overflow", story(&exit.all));
    SessionFile::read(&file).assert_linear();
}

#[test]
fn a_second_overflow_of_a_reply_fails_clearly() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = one_run(&env, &server);
    server.reply(Failure::Overflow);
    server.on_summary(Answer::says("S"));
    server.reply(Failure::Overflow);
    let run = wharf.run(&pad("second"));
    assert_snapshot!("overflow_twice", story(&run));
    let reply = &event(&run, "turn_end")["message"];
    assert_eq!(reply["stopReason"], "error");
    assert!(reply["errorMessage"].as_str().unwrap().contains("prompt is too long"), "{reply}");
    assert_eq!(state(&mut wharf)["isStreaming"], false);
    // Another run may compact again.
    server.reply(Failure::Overflow);
    server.default_summary(Answer::says("S"));
    server.reply(Answer::says("done"));
    let run = wharf.run(&pad("third"));
    assert_eq!(event(&run, "auto_compaction_end")["willRetry"], true, "{}", story(&run));
    assert_eq!(texts(&run, "assistant"), ["done"]);
    assert_eq!(assert_consistent(&wharf.finish().all), 3);
}

#[test]
fn an_overflow_with_nothing_to_compact() {
    let env = compacting_env();
    let server = LlmServer::start();
    server.reply(Failure::Overflow);
    let mut wharf = rpc_over(&env, &server, &[]);
    let run = wharf.run("first");
    let end = event(&run, "auto_compaction_end");
    let expected = json!({
        "type": "auto_compaction_end", "result": null, "aborted": false, "willRetry": false,
        "errorMessage": "Nothing to compact (session too small)",
    });
    assert_eq!(*end, expected);
    let reply = &event(&run, "turn_end")["message"];
    assert!(reply["errorMessage"].as_str().unwrap().contains("prompt is too long"), "{reply}");
    assert_eq!(assert_consistent(&wharf.finish().all), 1);
}

/// What came before the overflow had been taken back; nothing of it is recorded.
#[test]
fn an_overflow_in_the_stream_voids_what_came() {
    for compacts in [true, false] {
        let env = compacting_env();
        let server = LlmServer::start();
        let mut wharf = one_run(&env, &server);
        server.reply(Reply::from(Answer::says("half")).fail_after(4, Failure::Overflow));
        if compacts {
            server.on_summary(Answer::says("S"));
            server.reply(Answer::says("done"));
        } else {
            server.on_summary(Failure::Authentication);
        }
        let run = wharf.run(&pad("second"));
        assert_eq!(count(&run, "stream_retry"), 1, "{}", story(&run));
        let expect = if compacts { "done" } else { "" };
        assert_eq!(texts(&run, "assistant"), [expect], "{}", story(&run));
        assert_eq!(assert_consistent(&wharf.finish().all), 2);
    }
}

#[test]
fn a_failed_summary_is_told_and_the_run_goes_on_as_it_can() {
    // At the threshold, in a loop: nothing is lost but the room.
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = one_run(&env, &server);
    server.reply(echo("toolu_1").usage(FULL));
    server.on_summary(Failure::Quota);
    server.reply(echo("toolu_2").usage(FULL));
    server.reply(Answer::says("done"));
    let run = wharf.run(&pad("second"));
    let end = event(&run, "auto_compaction_end");
    assert_eq!((&end["result"], &end["aborted"]), (&Value::Null, &json!(false)));
    assert_eq!(end["willRetry"], true, "another request follows");
    assert!(end["errorMessage"].as_str().unwrap().contains("credit balance"), "{end}");
    assert_eq!(texts(&run, "assistant").last().unwrap(), "done");

    // After an overflow it is the run's failure.
    server.reply(Failure::Overflow);
    server.on_summary(Failure::Internal);
    server.on_summary(Failure::Internal);
    let run = wharf.run(&pad("third"));
    let ends: Vec<&Value> =
        run.iter().filter(|line| line["type"] == "auto_compaction_end").collect();
    let last = ends.last().unwrap();
    assert_eq!(last["willRetry"], false);
    assert!(last["errorMessage"].as_str().unwrap().contains("500"), "{last}");
    let reply = &event(&run, "turn_end")["message"];
    assert_eq!(reply["stopReason"], "error");
    assert!(reply["errorMessage"].as_str().unwrap().contains("prompt is too long"), "{reply}");
    let exit = wharf.finish();
    assert_eq!(assert_consistent(&exit.all), 3);
}

#[test]
fn switched_off_it_leaves_the_context_alone() {
    for by_settings in [true, false] {
        let env = Env::new();
        settings(&env, json!({"compaction": {"enabled": !by_settings}}));
        let server = LlmServer::start();
        let mut wharf = one_run(&env, &server);
        if !by_settings {
            accept(&mut wharf, json!({"type": "set_auto_compaction", "enabled": false}));
        }
        assert_eq!(state(&mut wharf)["autoCompactionEnabled"], false);
        server.reply(echo("toolu_1").usage(FULL));
        server.reply(Failure::Overflow);
        let run = wharf.run(&pad("second"));
        assert_eq!(count(&run, "auto_compaction_start"), 0);
        let ends: Vec<&Value> = run.iter().filter(|line| line["type"] == "turn_end").collect();
        assert_eq!(ends.last().unwrap()["message"]["stopReason"], "error");
        // By hand it is still there.
        server.default_summary(Answer::says("S"));
        assert_eq!(wharf.request(json!({"type": "compact"}))["success"], true);
        accept(&mut wharf, json!({"type": "set_auto_compaction", "enabled": true}));
        assert_eq!(state(&mut wharf)["autoCompactionEnabled"], true);
        assert_eq!(assert_consistent(&wharf.finish().all), 2);
    }
}

#[test]
fn abort_compaction_ends_an_automatic_one_and_not_the_run() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = one_run(&env, &server);
    let gate = server.gate();
    server.reply(echo("toolu_1").usage(FULL));
    server.on_summary(Reply::from(Answer::says("never")).hold(&gate));
    server.reply(Answer::says("done"));
    wharf.prompt(&pad("second"));
    gate.wait_reached();
    accept(&mut wharf, json!({"type": "abort_compaction"}));
    let run = wharf.take_until("agent_end");
    let end = event(&run, "auto_compaction_end");
    let expected = json!({
        "type": "auto_compaction_end", "result": null, "aborted": true, "willRetry": true,
    });
    assert_eq!(*end, expected);
    assert_eq!(texts(&run, "assistant").last().unwrap(), "done");

    // After an overflow there is nothing left to do.
    server.reply(Failure::Overflow);
    let gate = server.gate();
    server.on_summary(Reply::from(Answer::says("never")).hold(&gate));
    wharf.prompt(&pad("third"));
    gate.wait_reached();
    accept(&mut wharf, json!({"type": "abort_compaction"}));
    let run = wharf.take_until("agent_end");
    let end = event(&run, "auto_compaction_end");
    assert_eq!((&end["aborted"], &end["willRetry"]), (&json!(true), &json!(false)));
    assert_eq!(event(&run, "turn_end")["message"]["stopReason"], "error");
    assert_eq!(assert_consistent(&wharf.finish().all), 3);
}

#[test]
fn a_retry_and_a_compaction_in_one_reply() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = one_run(&env, &server);
    server.reply(Failure::Overloaded);
    server.reply(Failure::Overflow);
    server.on_summary(Failure::Overloaded);
    server.on_summary(Answer::says("S"));
    server.reply(Answer::says("done"));
    let run = wharf.run(&pad("second"));
    assert_snapshot!("retry_and_overflow", story(&run));
    assert_eq!(assert_consistent(&wharf.finish().all), 2);
}

/// A session that was left full is compacted before its next request.
#[test]
fn a_full_session_that_is_reopened() {
    let env = compacting_env();
    let server = LlmServer::start();
    let mut wharf = one_run(&env, &server);
    accept(&mut wharf, json!({"type": "set_auto_compaction", "enabled": false}));
    server.reply(Answer::says(&pad("answer two")).usage(FULL));
    wharf.run(&pad("second"));
    accept(&mut wharf, json!({"type": "set_auto_compaction", "enabled": true}));
    let file = session_file(&mut wharf);
    wharf.finish();
    let mut reopened = env.rpc(&["--session", file.to_str().unwrap()]);
    server.on_summary(Answer::says("S"));
    server.reply(Answer::says("done"));
    let run = reopened.run("third");
    assert_eq!(event(&run, "auto_compaction_end")["willRetry"], true);
    let sent = server.requests().last().unwrap().body["messages"].to_string();
    assert!(sent.contains("third") && !sent.contains("first."), "{sent}");
    assert_eq!(assert_consistent(&reopened.finish().all), 1);
}
