//! `ask_user` among other calls of one message: they run one after the other, and no
//! answer is the end of the turn.

use std::fs;
use std::process::Stdio;

use insta::assert_snapshot;
use serde_json::{Value, json};
use wharf_tests::script::says;
use wharf_tests::{Env, Wharf};

use crate::order::{count, texts};
use crate::story::{accept, assert_consistent, assert_stored, session_file, state, story};

fn part(id: &str, tool: &str, arguments: Value) -> Value {
    json!({"type": "toolCall", "id": id, "name": tool, "arguments": arguments})
}

/// A call before the question and one after it, each of which leaves a file.
fn question(extra: Value) -> Value {
    let mut arguments = json!({"question": "Which one?", "options": ["A", "B"]});
    arguments.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    json!({"content": [
        part("before", "bash", json!({"command": "touch before; echo before"})),
        part("ask", "ask_user", arguments),
        part("after", "bash", json!({"command": "touch after; echo after"})),
    ]})
}

fn ran(env: &Env, name: &str) -> bool {
    fs::exists(env.project().join(name)).unwrap()
}

/// A run that has asked; only what stands before the question has run.
fn asked(env: &Env, extra: Value) -> (Wharf, Value) {
    let model = env.script(&[question(extra), says("next reply"), says("again")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("go");
    let dialog = wharf.wait_ui("ask");
    assert!(ran(env, "before") && !ran(env, "after"));
    (wharf, dialog)
}

fn result<'a>(run: &'a [Value], id: &str) -> (&'a str, bool) {
    let end = run
        .iter()
        .find(|line| line["type"] == "tool_execution_end" && line["toolCallId"] == id)
        .unwrap();
    let text = end["result"]["content"][0]["text"].as_str().unwrap();
    (text, end["isError"].as_bool().unwrap())
}

#[test]
fn an_answer_and_the_rest_of_the_calls() {
    for (answer, expect) in [
        (json!({"selected": ["B"]}), "The person selected:\n- B"),
        (json!({"selected": [], "customText": "neither"}), "The person wrote:\nneither"),
        (
            json!({"selected": ["A"], "customText": "with é"}),
            "The person selected:\n- A\nThe person wrote:\nwith é",
        ),
    ] {
        let env = Env::new();
        let (mut wharf, dialog) = asked(&env, json!({}));
        wharf.answer(&dialog, answer);
        let run = wharf.take_until("agent_end");
        assert_eq!(result(&run, "ask"), (expect, false));
        assert_eq!(result(&run, "after"), ("after\n", false));
        assert_eq!(texts(&run, "assistant"), ["", "next reply"]);
        assert!(ran(&env, "after"));
        let file = session_file(&mut wharf);
        let exit = wharf.finish();
        assert_eq!(assert_consistent(&exit.all), 1);
        assert_stored(&file, &exit.all);
    }
}

/// No answer: the turn stops. The model is not asked again, and no later call runs.
#[track_caller]
fn assert_stopped(env: &Env, mut wharf: Wharf) -> String {
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "assistant"), [""], "the model was asked again: {}", story(&run));
    assert!(!ran(env, "after"), "a call ran after the question had no answer");
    assert_eq!(result(&run, "before"), ("before\n", false));
    assert!(result(&run, "ask").1 && result(&run, "after").1, "{run:?}");
    assert_eq!(count(&run, "extension_ui_response_handled"), 1);
    assert_eq!(state(&mut wharf)["isStreaming"], false);
    // The next prompt goes on.
    let next = wharf.run("go on");
    assert_eq!(texts(&next, "assistant"), ["next reply"]);
    let file = session_file(&mut wharf);
    let exit = wharf.finish();
    assert_eq!(assert_consistent(&exit.all), 2);
    assert_stored(&file, &exit.all);
    story(&exit.all)
}

#[test]
fn a_question_that_is_cancelled() {
    let env = Env::new();
    let (mut wharf, dialog) = asked(&env, json!({}));
    wharf.answer(&dialog, json!({"cancelled": true}));
    assert_snapshot!("cancelled", assert_stopped(&env, wharf));
}

#[test]
fn a_question_whose_time_passes() {
    let env = Env::new();
    let (wharf, dialog) = asked(&env, json!({"timeout": 0.05}));
    assert_eq!(dialog["timeout"], 50);
    assert!(dialog["expiresAt"].is_u64(), "{dialog}");
    assert_stopped(&env, wharf);
}

#[test]
fn an_empty_answer() {
    for answer in [
        json!({"selected": []}),
        json!({"selected": [], "customText": ""}),
        json!({"selected": [], "customText": " \n\t"}),
    ] {
        let env = Env::new();
        let (mut wharf, dialog) = asked(&env, json!({}));
        wharf.answer(&dialog, answer);
        assert_stopped(&env, wharf);
    }
}

/// An answer that does not fit is refused; the question goes on waiting.
#[test]
fn an_answer_that_is_none() {
    let env = Env::new();
    let (mut wharf, dialog) = asked(&env, json!({}));
    for answer in
        [json!({}), json!({"selected": "A"}), json!({"selected": [1]}), json!({"value": "A"})]
    {
        wharf.answer(&dialog, answer);
        let refused = wharf
            .wait_for("a refusal", |line| line["type"] == "response" && line["id"] == dialog["id"]);
        assert_eq!(refused["success"], false, "{refused}");
    }
    assert_eq!(state(&mut wharf)["isStreaming"], true);
    wharf.answer(&dialog, json!({"selected": ["A"]}));
    let run = wharf.take_until("agent_end");
    assert_eq!(result(&run, "ask"), ("The person selected:\n- A", false));
}

#[test]
fn two_questions_of_one_message_are_asked_one_after_the_other() {
    for (first, then) in [(json!({"selected": ["A"]}), true), (json!({"cancelled": true}), false)] {
        let env = Env::new();
        let ask = |id: &str| part(id, "ask_user", json!({"question": id, "options": ["A", "B"]}));
        let model = env.script(&[json!({"content": [ask("one"), ask("two")]}), says("done")]);
        let mut wharf = env.rpc_with(&[], &model);
        wharf.prompt("go");
        let dialog = wharf.wait_ui("ask");
        assert_eq!(dialog["question"], "one");
        wharf.answer(&dialog, first);
        if then {
            let dialog = wharf.wait_ui("ask");
            assert_eq!(dialog["question"], "two");
            wharf.answer(&dialog, json!({"selected": ["B"]}));
        }
        wharf.wait_event("agent_end");
        let exit = wharf.finish();
        let asked = exit.all.iter().filter(|line| line["method"] == "ask").count();
        assert_eq!(asked, if then { 2 } else { 1 }, "{}", exit.transcript);
        assert_eq!(texts(&exit.all, "assistant").len(), if then { 2 } else { 1 });
        assert_eq!(assert_consistent(&exit.all), 1);
    }
}

/// Waiting messages are not the answer: they stay for the next run.
#[test]
fn a_turn_that_stops_keeps_what_is_queued() {
    let env = Env::new();
    let (mut wharf, dialog) = asked(&env, json!({}));
    accept(&mut wharf, json!({"type": "steer", "message": "s"}));
    accept(&mut wharf, json!({"type": "follow_up", "message": "f"}));
    crate::story::wait_queued(&mut wharf, 2);
    wharf.answer(&dialog, json!({"cancelled": true}));
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "user"), ["go"]);
    let pending = wharf.data(json!({"type": "get_pending_messages"}));
    assert_eq!((&pending["steering"], &pending["followUp"]), (&json!(["s"]), &json!(["f"])));
}

#[test]
fn the_end_of_the_input_cancels_the_question() {
    let env = Env::new();
    let (wharf, _) = asked(&env, json!({}));
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert!(!ran(&env, "after"));
    assert_eq!(texts(&exit.all, "assistant"), [""]);
    assert_eq!(count(&exit.all, "agent_end"), 1);
    assert_eq!(assert_consistent(&exit.all), 1);
}

#[test]
fn with_nobody_to_ask_the_model_is_told_to_go_on() {
    let env = Env::new();
    let model = env.script(&[question(json!({})), says("assumed A")]);
    let output = env
        .command()
        .args(["--mode", "json", "--model", &model, "go"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (told, is_error) = result(&lines, "ask");
    assert!(is_error && told.contains("nobody can be asked"), "{told}");
    assert_eq!(result(&lines, "after"), ("after\n", false));
    assert_eq!(texts(&lines, "assistant"), ["", "assumed A"]);
    assert_eq!(assert_consistent(&lines), 1);
    assert_snapshot!("nobody", story(&lines));
}
