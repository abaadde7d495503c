//! Dialogs, commands and runs at the same time, in one extension and in several.

use std::fs;

use serde_json::{Value, json};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, Wharf};

use crate::order::{assert_documented_order, count, texts};

fn abort(wharf: &mut Wharf) {
    assert_eq!(wharf.request(json!({"type": "abort"}))["success"], true);
}

#[test]
fn an_extension_gates_a_tool_while_its_command_waits_in_a_dialog() {
    let env = Env::new();
    let model = env.script(&[bash("touch ran; echo BLOCK"), says("understood")]);
    let mut wharf = env.rpc_with(&["waiter"], &model);
    wharf.prompt("/wait");
    let dialog = wharf.wait_ui("confirm");
    let run = wharf.run("go on");
    assert_eq!(texts(&run, "toolResult"), ["waiter says no"]);
    assert_eq!(texts(&run, "assistant").last().unwrap(), "understood");
    assert!(!fs::exists(env.project().join("ran")).unwrap(), "a blocked call ran");
    assert_eq!(count(&run, "extension_ui_response_handled"), 0, "{}", wharf.transcript());
    wharf.answer(&dialog, json!({"confirmed": true}));
    assert_eq!(wharf.wait_event("extension_ui_response_handled")["id"], dialog["id"]);
    assert_eq!(wharf.wait_notify(), "wait: answered true");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn a_command_and_a_gate_of_one_extension_wait_in_two_dialogs() {
    for gate_first in [true, false] {
        let env = Env::new();
        let model = env.script(&[bash("echo ASK"), says("done")]);
        let mut wharf = env.rpc_with(&["waiter"], &model);
        wharf.prompt("/wait");
        let command = wharf.wait_ui("confirm");
        wharf.prompt("go on");
        let gate = wharf.wait_ui("select");
        let answer_command = |wharf: &mut Wharf| {
            wharf.answer(&command, json!({"confirmed": false}));
            assert_eq!(wharf.wait_notify(), "wait: answered false");
        };
        let answer_gate = |wharf: &mut Wharf| {
            wharf.answer(&gate, json!({"value": "Yes"}));
            let run = wharf.take_until("agent_end");
            assert_eq!(texts(&run, "toolResult"), ["ASK\n"]);
        };
        if gate_first {
            answer_gate(&mut wharf);
            answer_command(&mut wharf);
        } else {
            answer_command(&mut wharf);
            answer_gate(&mut wharf);
        }
        let exit = wharf.finish();
        assert_eq!(count(&exit.all, "extension_ui_response_handled"), 2, "{}", exit.transcript);
        assert_eq!(assert_documented_order(&exit.all), 1);
    }
}

#[test]
fn two_dialogs_of_one_command_settle_in_either_order() {
    for order in [["first", "second"], ["second", "first"]] {
        let env = Env::new();
        let mut wharf = env.rpc_with(&["waiter"], "scripted/demo");
        wharf.prompt("/multi");
        let dialogs = [wharf.wait_ui("confirm"), wharf.wait_ui("confirm")];
        assert_eq!(
            (&dialogs[0]["title"], &dialogs[1]["title"]),
            (&json!("first"), &json!("second"))
        );
        assert_ne!(dialogs[0]["id"], dialogs[1]["id"]);
        for name in order {
            let dialog = dialogs.iter().find(|dialog| dialog["title"] == name).unwrap();
            wharf.answer(dialog, json!({"confirmed": name == "first"}));
            assert_eq!(wharf.wait_event("extension_ui_response_handled")["id"], dialog["id"]);
            assert_eq!(wharf.wait_notify(), format!("{name}: answered {}", name == "first"));
        }
        let exit = wharf.finish();
        assert_eq!(count(&exit.all, "extension_ui_response_handled"), 2, "{}", exit.transcript);
    }
}

#[test]
fn two_dialogs_of_one_command_end_in_different_ways() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["waiter"], "scripted/demo");
    wharf.prompt("/multi");
    let first = wharf.wait_ui("confirm");
    wharf.wait_ui("confirm");
    wharf.answer(&first, json!({"cancelled": true}));
    assert_eq!(wharf.wait_notify(), "first: cancelled");
    wharf.close_stdin();
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(exit.rest.last().unwrap()["message"], "second: cancelled", "{}", exit.transcript);
    assert_eq!(count(&exit.all, "extension_ui_response_handled"), 2, "{}", exit.transcript);
}

#[test]
fn the_same_command_may_run_several_times_at_once() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["waiter"], "scripted/demo");
    let mut dialogs: Vec<Value> = (0..10)
        .map(|_| {
            wharf.prompt("/wait");
            wharf.wait_ui("confirm")
        })
        .collect();
    while let Some(dialog) = dialogs.pop() {
        let yes = dialogs.len().is_multiple_of(2);
        wharf.answer(&dialog, json!({"confirmed": yes}));
        assert_eq!(wharf.wait_notify(), format!("wait: answered {yes}"));
    }
}

#[test]
fn other_commands_are_served_while_one_waits() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["waiter", "heartbeat"], "scripted/demo");
    wharf.prompt("/wait");
    let dialog = wharf.wait_ui("confirm");
    wharf.prompt("/beat 1");
    assert_eq!(wharf.wait_notify(), "beat 1");
    assert_eq!(wharf.data(json!({"type": "get_state"}))["isStreaming"], false);
    wharf.answer(&dialog, json!({"confirmed": true}));
    assert_eq!(wharf.wait_notify(), "wait: answered true");
}

#[test]
fn abort_settles_the_dialog_of_a_gate_and_ends_the_run_once() {
    let env = Env::new();
    let model = env.script(&[bash("touch ran; echo ASK"), says("again")]);
    let mut wharf = env.rpc_with(&["waiter"], &model);
    wharf.prompt("go on");
    let gate = wharf.wait_ui("select");
    abort(&mut wharf);
    let run = wharf.take_until("agent_end");
    let handled = run.iter().find(|line| line["type"] == "extension_ui_response_handled").unwrap();
    assert_eq!(handled["id"], gate["id"]);
    assert!(!fs::exists(env.project().join("ran")).unwrap(), "an aborted call ran");
    let result = run.iter().find(|line| line["type"] == "tool_execution_end").unwrap();
    assert_eq!(result["isError"], true, "{result}");
    let run = wharf.run("still there?");
    assert_eq!(texts(&run, "assistant"), ["again"]);
    let exit = wharf.finish();
    assert_eq!(assert_documented_order(&exit.all), 2);
    assert_eq!(count(&exit.all, "extension_ui_response_handled"), 1, "{}", exit.transcript);
}

#[test]
fn abort_settles_every_dialog() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["waiter", "rpc-demo"], "scripted/demo");
    wharf.prompt("/multi");
    wharf.wait_ui("confirm");
    wharf.wait_ui("confirm");
    wharf.prompt("/rpc-editor");
    wharf.wait_ui("editor");
    abort(&mut wharf);
    let mut notices = [wharf.wait_notify(), wharf.wait_notify(), wharf.wait_notify()];
    notices.sort();
    assert_eq!(notices, ["editor: cancelled", "first: cancelled", "second: cancelled"]);
    let exit = wharf.finish();
    assert_eq!(count(&exit.all, "extension_ui_response_handled"), 3, "{}", exit.transcript);
}

/// A run that is in a tool while `/rpc-ask` asks.
fn asking_during_a_run(env: &Env, command: &str) -> (Wharf, Value) {
    let model = env.script(&[bash("while [ ! -e go ]; do sleep 0.01; done"), says("answered")]);
    let mut wharf = env.rpc_with(&["rpc-demo"], &model);
    wharf.prompt("hi");
    wharf.wait_event("tool_execution_start");
    wharf.prompt(command);
    let dialog = wharf.wait_ui("ask");
    (wharf, dialog)
}

#[test]
fn a_question_without_an_answer_stops_the_turn() {
    for (command, answer, shown) in [
        ("/rpc-ask", Some(json!({"cancelled": true})), "ask: cancelled"),
        ("/rpc-ask", Some(json!({"selected": [], "customText": "  "})), "ask: cancelled"),
        ("/rpc-ask timeout=20", None, "ask: timed out"),
    ] {
        let env = Env::new();
        let (mut wharf, dialog) = asking_during_a_run(&env, command);
        if let Some(answer) = answer {
            wharf.answer(&dialog, answer);
        }
        assert_eq!(wharf.wait_notify(), shown);
        let run = wharf.take_until("agent_end");
        assert_eq!(texts(&run, "assistant"), [""], "the model was asked again");
        let result = run.iter().find(|line| line["type"] == "tool_execution_end").unwrap();
        assert_eq!(result["isError"], true, "{result}");
        let exit = wharf.finish();
        assert_eq!(assert_documented_order(&exit.all), 1);
    }
}

#[test]
fn an_answered_question_and_other_cancelled_dialogs_stop_nothing() {
    let env = Env::new();
    let (mut wharf, dialog) = asking_during_a_run(&env, "/rpc-ask");
    wharf.answer(&dialog, json!({"selected": ["SQLite"]}));
    assert_eq!(wharf.wait_notify(), "ask: answered [SQLite]");
    wharf.prompt("/rpc-input");
    let input = wharf.wait_ui("input");
    wharf.answer(&input, json!({"cancelled": true}));
    assert_eq!(wharf.wait_notify(), "input: cancelled");
    env.write("go", "");
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "assistant").last().unwrap(), "answered");
}

#[test]
fn a_thousand_commands_over_one_pipe() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["heartbeat"], "scripted/demo");
    let mut input = String::new();
    for n in 0..1000 {
        let line = json!({"id": n, "type": "prompt", "message": format!("/beat {n}")});
        input.push_str(&format!("{line}\n"));
    }
    wharf.send_raw(input.as_bytes());
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(exit.all.len(), 2000, "{}", exit.stderr);
    let responses = exit.all.iter().filter(|line| line["type"] == "response");
    for (n, response) in responses.enumerate() {
        let expected = json!({"id": n, "type": "response", "command": "prompt", "success": true});
        assert_eq!(*response, expected);
    }
    let notices = exit.all.iter().filter(|line| line["type"] == "extension_ui_request");
    for (n, notice) in notices.enumerate() {
        assert_eq!(notice["message"], format!("beat {n}"));
    }
    // What a command does comes after the response that accepted it.
    let mut accepted = 0;
    let mut shown = 0;
    for line in &exit.all {
        if line["type"] == "response" {
            accepted += 1
        } else {
            shown += 1
        }
        assert!(shown <= accepted, "a notice before its response");
    }
}
