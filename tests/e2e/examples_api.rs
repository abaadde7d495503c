//! The example extensions that need no grant, each through the binary.

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, LlmServer};
use wharf_tests::script::{bash, call, says};
use wharf_tests::{Env, SessionFile, Wharf, guest};

use crate::story::{rpc_over, session_file, settings, state};

/// Text and `isError` of the tool results of a run.
fn results(run: &[Value]) -> Vec<(String, bool)> {
    let ends = run.iter().filter(|line| line["type"] == "tool_execution_end");
    ends.map(|line| {
        let text = line["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        (text, line["isError"].as_bool().unwrap())
    })
    .collect()
}

/// The messages of the person in the conversation.
fn asked(wharf: &mut Wharf) -> Vec<String> {
    let messages = wharf.data(json!({"type": "get_messages"}));
    let messages = messages["messages"].as_array().unwrap();
    messages.iter().filter(|message| message["role"] == "user").map(text_of).collect()
}

fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        blocks => blocks[0]["text"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Waits until what is shown under a key of the status line is `expect`.
fn wait_status(wharf: &mut Wharf, key: &str, expect: &Value) {
    wharf.wait_for(&format!("the status {expect}"), |line| {
        line["method"] == "setStatus"
            && line["statusKey"] == key
            && line.get("statusText").unwrap_or(&Value::Null) == expect
    });
}

#[test]
fn plan_mode_leaves_only_what_reads_and_comes_back_with_the_session() {
    let env = Env::new();
    env.write("a.txt", "before");
    let write = call("write", &json!({"path": "a.txt", "content": "after"}));
    let model = env.script(&[
        write.clone(),
        bash("rm a.txt"),
        bash("cat a.txt"),
        says("planned"),
        write,
        says("done"),
    ]);
    let mut wharf = env.rpc_with(&["plan-mode"], &model);
    wharf.prompt("/plan");
    assert_eq!(wharf.wait_notify(), "Planning: nothing is changed");
    let planned = results(&wharf.run("go"));
    assert!(planned[0].1 && planned[0].0.contains("write not found"), "{planned:?}");
    assert!(planned[1].1 && planned[1].0.contains("planning mode"), "{planned:?}");
    assert_eq!(planned[2], ("before".to_owned(), false));
    let file = session_file(&mut wharf);
    assert_eq!(wharf.finish().code, Some(0));

    let path = guest("plan-mode").display().to_string();
    let session = file.display().to_string();
    let mut wharf = env.rpc(&["--session", &session, "-e", &path]);
    wait_status(&mut wharf, "plan-mode", &json!("planning"));
    wharf.prompt("/plan");
    wait_status(&mut wharf, "plan-mode", &Value::Null);
    assert_eq!(wharf.wait_notify(), "Planning is over");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn plan_mode_can_be_begun_in_by_a_flag() {
    let env = Env::new();
    let path = guest("plan-mode").display().to_string();
    let mut wharf = env.rpc(&["-e", &path, "--plan"]);
    wait_status(&mut wharf, "plan-mode", &json!("planning"));
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn provider_payload_sees_and_changes_each_request() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    server.reply(Answer::says("one"));
    let path = guest("provider-payload").display().to_string();
    let mut wharf = rpc_over(&env, &server, &["-e", &path, "--temperature", "0.25"]);
    wharf.run("hello");
    let requests = server.requests();
    assert_eq!(requests[0].body["temperature"], 0.25);
    wharf.prompt("/payload");
    let told = wharf.wait_notify();
    assert!(told.starts_with("1 requests; the last one had "), "{told}");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn input_transform_rewrites_answers_and_leaves_the_rest() {
    let env = Env::new();
    let model = env.script(&[says("short"), says("long")]);
    let mut wharf = env.rpc_with(&["input-transform"], &model);
    wharf.run("?why");
    wharf.run("why ?");
    wharf.prompt("ping");
    assert_eq!(wharf.wait_notify(), "pong");
    assert_eq!(asked(&mut wharf), ["Answer in at most two sentences: why", "why ?"]);
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn two_extensions_talk_over_the_bus() {
    let env = Env::new();
    let mut wharf =
        env.rpc_with(&["event-bus-sender", "event-bus-listener"], &env.script(&[says("x")]));
    for count in 1..3 {
        wharf.prompt("/announce lunch");
        assert_eq!(wharf.wait_notify(), "event-bus-sender announces: lunch");
        let heard = format!("event-bus-listener has heard {count} announcements");
        assert_eq!(wharf.wait_notify(), heard);
    }
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn dynamic_tools_come_and_go_and_an_argument_is_completed() {
    let env = Env::new();
    let model = env.script(&[
        call("capital", &json!({})),
        says("known"),
        call("capital", &json!({})),
        says("gone"),
    ]);
    let mut wharf = env.rpc_with(&["dynamic-tools"], &model);
    wharf.prompt("/teach capital It is Paris.");
    assert_eq!(wharf.wait_notify(), "The model has a tool capital now");
    let offers =
        wharf.data(json!({"type": "complete_argument", "command": "forget", "argument": "ca"}));
    assert_eq!(offers["completions"][0]["value"], "capital");
    assert_eq!(results(&wharf.run("go")), [("It is Paris.".to_owned(), false)]);
    wharf.prompt("/forget capital");
    assert_eq!(wharf.wait_notify(), "capital is forgotten");
    let gone = results(&wharf.run("go"));
    assert!(gone[0].1 && gone[0].0.contains("capital not found"), "{gone:?}");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn tool_override_wraps_the_built_in_bash() {
    let env = Env::new();
    let model = env.script(&[bash("vim a"), bash("echo hello"), bash("exit 3"), says("done")]);
    let mut wharf = env.rpc_with(&["tool-override"], &model);
    let run = wharf.run("go");
    let results = results(&run);
    assert_eq!(results[0], ("vim needs a terminal; there is none".to_owned(), true));
    assert_eq!(results[1], ("hello\n".to_owned(), false));
    assert!(results[2].1 && results[2].0.contains('3'), "{results:?}");
    let ends: Vec<_> = run.iter().filter(|line| line["type"] == "tool_execution_end").collect();
    assert_eq!(ends[1]["result"]["details"]["calls"], 1);
    assert_eq!(ends[2]["result"]["details"]["calls"], 2);
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn session_name_names_after_the_first_prompt_and_on_demand() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["session-name"], &env.script(&[says("ok")]));
    wharf.run("fix the\nparser");
    assert_eq!(wharf.wait_event("session_name_changed")["name"], "fix the parser");
    wharf.prompt("/name Parser work");
    assert_eq!(wharf.wait_event("session_name_changed")["name"], "Parser work");
    wharf.prompt("/name");
    let dialog = wharf.wait_ui("input");
    assert_eq!(dialog["placeholder"], "Parser work");
    wharf.answer(&dialog, json!({"value": "Better"}));
    assert_eq!(wharf.wait_event("session_name_changed")["name"], "Better");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn bookmarks_label_the_tree_and_lead_back() {
    let env = Env::new();
    let model = env.script(&[says("one"), says("two")]);
    let mut wharf = env.rpc_with(&["bookmark"], &model);
    wharf.run("first");
    wharf.prompt("/bookmark start");
    assert_eq!(wharf.wait_notify(), "Bookmarked as start");
    wharf.run("second");
    assert_eq!(asked(&mut wharf), ["first", "second"]);
    wharf.prompt("/bookmarks");
    assert_eq!(wharf.wait_notify(), "start");
    wharf.prompt("/goto start");
    assert_eq!(wharf.wait_notify(), "At start");
    assert_eq!(asked(&mut wharf), ["first"]);
    wharf.prompt("/goto nowhere");
    let error = wharf.wait_extension_error("bookmark");
    assert_eq!(error["error"], "/goto: there is no bookmark \"nowhere\"");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn handoff_goes_on_in_a_session_that_names_the_old_one() {
    let env = Env::new();
    env.write("notes.txt", "x");
    let model = env.script(&[call("read", &json!({"path": "notes.txt"})), says("read")]);
    let mut wharf = env.rpc_with(&["handoff"], &model);
    wharf.run("look at the notes");
    let old = session_file(&mut wharf);
    wharf.prompt("/handoff write the summary");
    let editor = wharf.wait_ui("set_editor_text");
    let prompt = "write the summary\n\nAsked before:\n- look at the notes\n\nFiles:\n- notes.txt\n";
    assert_eq!(editor["text"], prompt);
    assert_eq!(asked(&mut wharf), [""; 0]);
    wharf.run("go");
    let new = session_file(&mut wharf);
    assert_ne!(new, old);
    let header: Value =
        serde_json::from_str(std::fs::read_to_string(&new).unwrap().lines().next().unwrap())
            .unwrap();
    assert_eq!(header["parentSession"], old.display().to_string());
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn messages_of_commands_arrive_as_those_of_a_person() {
    let env = Env::new();
    let model = env.script(&[says("one"), says("two"), says("three")]);
    let mut wharf = env.rpc_with(&["send-user-message"], &model);
    wharf.prompt("/say first");
    wharf.take_until("agent_end");
    wharf.prompt("/hint it rains");
    wharf.run("second");
    wharf.prompt("/steer third");
    wharf.take_until("agent_end");
    assert_eq!(asked(&mut wharf), ["first", "second", "third"]);
    let file = SessionFile::read(&session_file(&mut wharf));
    let hints = file.of_type("custom_message");
    assert_eq!(hints.len(), 1);
    assert_eq!(hints[0]["customType"], "hint");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn timed_confirm_tells_a_timeout_from_an_answer() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["timed-confirm"], &env.script(&[says("x")]));
    wharf.prompt("/deploy 0.01");
    wharf.wait_ui("confirm");
    assert_eq!(wharf.wait_notify(), "deployed: nobody objected in time");
    for (answer, expect) in [
        (json!({"confirmed": true}), "deployed: you said yes"),
        (json!({"confirmed": false}), "not deployed: you said no"),
        (json!({"cancelled": true}), "not deployed: the question was dismissed"),
    ] {
        wharf.prompt("/deploy 600");
        let dialog = wharf.wait_ui("confirm");
        assert_eq!(dialog["timeout"], 600_000);
        wharf.answer(&dialog, answer);
        assert_eq!(wharf.wait_notify(), expect);
    }
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn model_status_shows_and_changes_the_model() {
    let env = Env::new();
    settings(&env, json!({}));
    let mut wharf = env.rpc_with(&["model-status"], "scripted/demo");
    let name = state(&mut wharf)["model"]["name"].as_str().unwrap().to_owned();
    let shown = wharf.wait_ui("setStatus");
    assert!(shown["statusText"].as_str().unwrap().starts_with(&name), "{shown}");
    wharf.prompt("/use scripted/demo");
    assert_eq!(wharf.wait_notify(), format!("{name} answers from now on"));
    wharf.prompt("/use no-such-model");
    let error = wharf.wait_extension_error("model_status");
    assert_eq!(error["error"], "/use: no model with a key matches \"no-such-model\"");
    wharf.prompt("/think high");
    assert_eq!(
        wharf.wait_notify(),
        format!("Thinking: {}", state(&mut wharf)["thinkingLevel"].as_str().unwrap())
    );
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn trigger_compact_compacts_on_demand() {
    let env = Env::new();
    settings(&env, json!({"compaction": {"keepRecentTokens": 20}}));
    let server = LlmServer::start();
    let pad = |text: &str| format!("{text:.<400}");
    server.reply(Answer::says(&pad("one")));
    server.reply(Answer::says(&pad("two")));
    server.default_summary(Answer::says("THE SUMMARY"));
    let path = guest("trigger-compact").display().to_string();
    let mut wharf = rpc_over(&env, &server, &["-e", &path, "--compact-at", "100"]);
    wharf.run(&pad("first"));
    wharf.run(&pad("second"));
    wharf.prompt("/compact-now the names");
    assert_eq!(wharf.wait_notify(), "The conversation has been compacted");
    let file = SessionFile::read(&session_file(&mut wharf));
    assert_eq!(file.of_type("compaction").len(), 1);
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn notes_outlive_the_process() {
    let env = Env::new();
    let model = env.script(&[
        call("add_note", &json!({"text": "the\nbuild is slow"})),
        call("read_notes", &json!({})),
        says("done"),
    ]);
    let mut wharf = env.rpc_with(&["notes"], &model);
    wharf.prompt("/notes");
    assert_eq!(wharf.wait_notify(), "There are no notes");
    wharf.prompt("/note buy milk");
    assert_eq!(wharf.wait_notify(), "Noted");
    let run = results(&wharf.run("go"));
    assert_eq!(run[1], ("- buy milk\n- the build is slow\n".to_owned(), false));
    assert_eq!(wharf.finish().code, Some(0));
    let mut wharf = env.rpc_with(&["notes"], &model);
    wharf.prompt("/notes");
    assert_eq!(wharf.wait_notify(), "- buy milk\n- the build is slow\n");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn plan_mode_is_that_of_the_branch() {
    let env = Env::new();
    let model = env.script(&[says("one"), says("two")]);
    let mut wharf = env.rpc_with(&["plan-mode"], &model);
    wharf.run("first");
    let before = wharf.data(json!({"type": "get_tree"}))["leafId"].clone();
    wharf.prompt("/plan");
    wait_status(&mut wharf, "plan-mode", &json!("planning"));
    wharf.run("second");
    let planning = wharf.data(json!({"type": "get_tree"}))["leafId"].clone();
    for (target, status) in [(&before, Value::Null), (&planning, json!("planning"))] {
        let moved = wharf.data(json!({"type": "navigate_tree", "targetId": target}));
        assert_eq!(moved["cancelled"], false);
        wait_status(&mut wharf, "plan-mode", &status);
    }
    assert_eq!(wharf.finish().code, Some(0));
}

/// An extension that ends the program does not take the client's voice before it does.
#[test]
fn commands_are_served_until_a_shutdown_has_waited_for_the_run() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    let gate = server.gate();
    server.reply(wharf_tests::llm::Reply::from(Answer::says("late")).hold(&gate));
    let path = guest("first").display().to_string();
    let mut wharf = rpc_over(&env, &server, &["-e", &path]);
    wharf.prompt("go");
    gate.wait_reached();
    wharf.prompt("/first call shutdown");
    assert_eq!(state(&mut wharf)["isStreaming"], true);
    wharf.data(json!({"type": "abort"}));
    wharf.take_until("agent_end");
    assert_eq!(wharf.wait_exit().code, Some(0));
}
