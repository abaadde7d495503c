//! The name that a session is given after its first run: when, from what, and when not.

use std::process::Stdio;

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Failure, LlmServer, Reply};
use wharf_tests::{Env, SessionFile, Wharf};

use crate::order::count;
use crate::story::{accept, rpc_over, session_file, settings, state};

fn titled(title: &str) -> Value {
    json!({"for": "title", "content": [{"type": "text", "text": title}]})
}

fn answers() -> Value {
    json!({"repeat": true, "content": [{"type": "text", "text": "ok"}]})
}

/// The server takes what has no tools for the request for a title.
fn over_http(env: &Env, server: &LlmServer) -> Wharf {
    settings(env, json!({"autoSessionName": true}));
    rpc_over(env, server, &[])
}

#[test]
fn the_first_run_names_the_session() {
    let env = Env::new();
    let model = env.script(&[titled(" \"Paint the boat.\"\n"), answers(), titled("another")]);
    let mut wharf = env.rpc_with(&[], &model);
    assert!(state(&mut wharf).get("sessionName").is_none());
    wharf.run("paint it");
    let event = wharf.wait_event("session_name_changed");
    assert_eq!(event, json!({"type": "session_name_changed", "name": "Paint the boat"}));
    assert_eq!(state(&mut wharf)["sessionName"], "Paint the boat");
    wharf.run("again");
    wharf.run("and again");
    let file = session_file(&mut wharf);
    let exit = wharf.finish();
    assert_eq!(count(&exit.all, "session_name_changed"), 1, "{}", exit.transcript);
    let session = SessionFile::read(&file);
    session.assert_linear();
    let names: Vec<&Value> =
        session.of_type("session_info").iter().map(|entry| &entry["name"]).collect();
    assert_eq!(names, ["Paint the boat"]);
    // It is there after a reopening, and no other is made.
    let model = env.script(&[titled("wrong"), answers()]);
    let mut reopened = env.rpc(&["--model", &model, "--session", file.to_str().unwrap()]);
    assert_eq!(state(&mut reopened)["sessionName"], "Paint the boat");
    reopened.run("more");
    assert_eq!(count(&reopened.finish().all, "session_name_changed"), 0);
}

/// Runs, ends the input, and gives the names that were announced.
fn names_after(mut wharf: Wharf, prompts: &[&str]) -> Vec<Value> {
    for prompt in prompts {
        wharf.run(prompt);
    }
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert!(!exit.stderr.contains("title"), "{}", exit.stderr);
    assert_eq!(count(&exit.all, "extension_error"), 0, "{}", exit.transcript);
    exit.all.into_iter().filter(|line| line["type"] == "session_name_changed").collect()
}

#[test]
fn a_session_that_has_a_name_keeps_it() {
    let env = Env::new();
    let model = env.script(&[titled("wrong"), answers()]);
    let mut wharf = env.rpc_with(&[], &model);
    accept(&mut wharf, json!({"type": "set_session_name", "name": "mine"}));
    wharf.run("a");
    assert_eq!(state(&mut wharf)["sessionName"], "mine");
    let names = names_after(wharf, &["b"]);
    assert_eq!(names.len(), 1, "only the person's own: {names:?}");
    assert_eq!(names[0]["name"], "mine");
}

#[test]
fn switched_off_or_without_a_title_there_is_none_and_nothing_is_told() {
    // The setting.
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    server.default_reply(Answer::says("ok"));
    let wharf = rpc_over(&env, &server, &[]);
    assert!(names_after(wharf, &["a", "b"]).is_empty());
    assert_eq!(server.requests().len(), 2, "a title was asked for");
    // No line for it in the script.
    let env = Env::new();
    let model = env.script(&[answers()]);
    assert!(names_after(env.rpc_with(&[], &model), &["a", "b"]).is_empty());
    // One that is empty.
    let env = Env::new();
    let model = env.script(&[titled(" \"\" "), answers()]);
    assert!(names_after(env.rpc_with(&[], &model), &["a", "b"]).is_empty());
    // One that fails.
    let env = Env::new();
    let failing = json!({"for": "title", "error": {"status": 401, "body": "no"}});
    let model = env.script(&[failing, answers()]);
    assert!(names_after(env.rpc_with(&[], &model), &["a", "b"]).is_empty());
}

#[test]
fn a_title_that_failed_is_asked_for_again_after_the_next_run() {
    let env = Env::new();
    let failing = json!({"for": "title", "when": "one", "error": {"status": 401, "body": "no"}});
    let later =
        json!({"for": "title", "when": "two", "content": [{"type": "text", "text": "Late"}]});
    let model = env.script(&[failing, later, answers()]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.run("one");
    wharf.run("two");
    assert_eq!(wharf.wait_event("session_name_changed")["name"], "Late");
    wharf.finish();
}

#[test]
fn one_shot_runs_are_not_named() {
    let env = Env::new();
    let model = env.script(&[titled("wrong"), answers()]);
    let output = env
        .command()
        .args(["--mode", "json", "--model", &model, "go"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(count(&lines, "session_name_changed"), 0);
    assert_eq!(lines.last().unwrap()["type"], "agent_end");
}

#[test]
fn a_second_session_of_a_process_is_named_too() {
    let env = Env::new();
    let model = env.script(&[titled("one"), titled("two"), answers()]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.run("a");
    assert_eq!(wharf.wait_event("session_name_changed")["name"], "one");
    accept(&mut wharf, json!({"type": "new_session"}));
    assert!(state(&mut wharf).get("sessionName").is_none());
    wharf.run("b");
    assert_eq!(wharf.wait_event("session_name_changed")["name"], "two");
}

#[test]
fn the_title_is_asked_without_tools_and_about_the_first_exchange() {
    let env = Env::new();
    let server = LlmServer::start();
    server.reply(Answer::says("it is painted"));
    server.on_summary(Failure::Overloaded);
    server.on_summary(Answer::says("Paint the boat"));
    let mut wharf = over_http(&env, &server);
    wharf.run("paint it");
    // What passes by itself is tried again, and nothing is told of it.
    assert_eq!(wharf.wait_event("session_name_changed")["name"], "Paint the boat");
    let asked = &server.requests()[2].body;
    let text = asked["messages"].to_string();
    assert!(text.contains("paint it") && text.contains("it is painted"), "{text}");
    assert!(asked["tools"].as_array().is_none_or(Vec::is_empty), "{asked}");
    let exit = wharf.finish();
    assert_eq!(count(&exit.all, "auto_retry_start"), 0, "{}", exit.transcript);
}

#[test]
fn a_name_that_the_person_gives_meanwhile_stays() {
    let env = Env::new();
    let server = LlmServer::start();
    let gate = server.gate();
    server.reply(Answer::says("ok"));
    server.on_summary(Reply::from(Answer::says("late")).hold(&gate));
    let mut wharf = over_http(&env, &server);
    wharf.run("a");
    gate.wait_reached();
    // It holds nobody up.
    assert_eq!(state(&mut wharf)["isStreaming"], false);
    accept(&mut wharf, json!({"type": "set_session_name", "name": "mine"}));
    gate.open();
    server.wait_outcome(1);
    server.reply(Answer::says("ok"));
    wharf.run("b");
    let exit = wharf.finish();
    assert_eq!(count(&exit.all, "session_name_changed"), 1, "{}", exit.transcript);
}

#[test]
fn a_title_does_not_follow_the_person_into_another_session() {
    let env = Env::new();
    let server = LlmServer::start();
    let gate = server.gate();
    server.reply(Answer::says("ok"));
    server.on_summary(Reply::from(Answer::says("late")).hold(&gate));
    let mut wharf = over_http(&env, &server);
    wharf.run("a");
    gate.wait_reached();
    accept(&mut wharf, json!({"type": "new_session"}));
    gate.open();
    server.wait_outcome(1);
    server.on_summary(Answer::says("right"));
    server.reply(Answer::says("ok"));
    wharf.run("b");
    assert_eq!(wharf.wait_event("session_name_changed")["name"], "right");
    assert_eq!(state(&mut wharf)["sessionName"], "right");
    let exit = wharf.finish();
    assert_eq!(count(&exit.all, "session_name_changed"), 1, "{}", exit.transcript);
}

/// A title under way does not keep the process from ending.
#[test]
fn the_end_of_the_input_does_not_wait_for_a_title() {
    let env = Env::new();
    let server = LlmServer::start();
    let gate = server.gate();
    server.reply(Answer::says("ok"));
    server.on_summary(Reply::from(Answer::says("never")).hold(&gate));
    let mut wharf = over_http(&env, &server);
    wharf.run("a");
    gate.wait_reached();
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(count(&exit.all, "session_name_changed"), 0);
}
