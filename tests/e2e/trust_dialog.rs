//! A client is asked, once in a run, whether it trusts a project that brings something.

use serde_json::{Value, json};
use wharf_tests::{Env, Wharf, guest};

fn project() -> Env {
    let env = Env::new();
    env.write(".wharf/extensions/hello.wasm", std::fs::read(guest("hello")).unwrap());
    env.write(".wharf/prompts/shout.md", "SHOUTED $1");
    env
}

fn commands(wharf: &mut Wharf) -> Vec<String> {
    let data = wharf.data(json!({"type": "get_commands"}));
    let commands = data["commands"].as_array().unwrap();
    commands.iter().map(|command| command["name"].as_str().unwrap().to_owned()).collect()
}

fn dialogs(lines: &[Value]) -> usize {
    lines.iter().filter(|line| line["method"] == "confirm").count()
}

#[test]
fn a_yes_trusts_the_project_and_loads_what_it_brings() {
    let env = project();
    let mut wharf = env.rpc(&[]);
    // Nothing waits for the answer.
    assert_eq!(commands(&mut wharf), [""; 0]);
    let dialog = wharf.wait_ui("confirm");
    let message = dialog["message"].as_str().unwrap();
    assert!(message.contains(env.project().to_str().unwrap()), "{message}");
    wharf.answer(&dialog, json!({"confirmed": true}));
    wharf.wait_event("extensions_reloaded");
    assert_eq!(commands(&mut wharf), ["hello", "shout"]);
    wharf.prompt("/hello Ada");
    assert_eq!(wharf.wait_notify(), "Hello, Ada!");
    assert_eq!(wharf.finish().code, Some(0));
    // It is kept, and not asked again.
    let mut wharf = env.rpc(&[]);
    assert_eq!(commands(&mut wharf), ["hello", "shout"]);
    assert_eq!(dialogs(&wharf.finish().all), 0);
}

#[test]
fn without_a_yes_the_project_stays_inert_and_a_later_run_asks_again() {
    let env = project();
    for answer in [json!({"confirmed": false}), json!({"cancelled": true})] {
        let mut wharf = env.rpc(&[]);
        let dialog = wharf.wait_ui("confirm");
        wharf.answer(&dialog, answer);
        wharf.wait_event("extension_ui_response_handled");
        wharf.data(json!({"type": "reload"}));
        assert_eq!(commands(&mut wharf), [""; 0]);
        let exit = wharf.finish();
        assert_eq!(exit.code, Some(0));
        assert_eq!(dialogs(&exit.all), 1, "{}", exit.transcript);
    }
    assert!(!env.agent_dir().join("trusted.json").exists());
}

#[test]
fn nobody_is_asked_where_there_is_nothing_to_ask() {
    for (env, args) in [(Env::new(), &[][..]), (project(), &["--trust-project"])] {
        let mut wharf = env.rpc(args);
        wharf.data(json!({"type": "get_commands"}));
        assert_eq!(dialogs(&wharf.finish().all), 0, "{args:?}");
    }
}

/// A client that never answers: its end is the end of the dialog.
#[test]
fn an_open_question_holds_no_exit() {
    let env = project();
    let mut wharf = env.rpc(&[]);
    wharf.wait_ui("confirm");
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0));
    assert!(exit.all.iter().any(|line| line["type"] == "extension_ui_response_handled"));
}
