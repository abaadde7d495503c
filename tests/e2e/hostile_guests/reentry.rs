//! Functions of `control` where they would wait for themselves.

use serde_json::{Value, json};
use wharf_tests::script::{bash, call, says};

use super::{assert_ends, assert_served, next_outcome, outcome, start, with_limits};

/// All functions of `control`.
const FUNCTIONS: [&str; 7] = [
    "wait-for-idle",
    "new-session",
    "new-session-with",
    "switch-session",
    "fork",
    "navigate-tree",
    "reload",
];

#[test]
fn outside_of_a_command_each_is_refused_at_once() {
    let env = with_limits(&json!({}));
    let mut again = says("again");
    again["repeat"] = json!(true);
    let model = env.script(&[bash("echo calm"), call("reenter", &json!({})), says("done"), again]);
    let mut wharf = env.rpc_with(&["reenters", "hello"], &model);
    wharf.prompt("/arm");
    assert_served(&mut wharf, "Ann");
    let session = wharf.data(json!({"type": "get_state"}))["sessionId"].clone();
    wharf.request(json!({"type": "complete_argument", "command": "offers", "argument": "x"}));
    wharf.prompt("go");
    wharf.wait_event("agent_end");
    assert_eq!(wharf.data(json!({"type": "get_state"}))["sessionId"], session);
    let messages = wharf.data(json!({"type": "get_fork_messages"}));
    let entry = messages["messages"][0]["entryId"].clone();
    assert_eq!(wharf.data(json!({"type": "bash", "command": "echo x"}))["output"], "x\n");
    assert_eq!(wharf.data(json!({"type": "fork", "entryId": entry}))["cancelled"], false);
    assert_eq!(wharf.data(json!({"type": "new_session"}))["cancelled"], false);
    // The last of them comes from a notification, which nothing waits for.
    let mut places = Vec::new();
    while places.last().is_none_or(|place| place != "session_switch") {
        let told = next_outcome(&mut wharf);
        let all: Vec<Value> = FUNCTIONS.map(|name| json!([name, "not-allowed"])).to_vec();
        assert_eq!(told["ok"], json!(all), "{}", told["call"]);
        places.push(told["call"].as_str().unwrap().to_owned());
    }
    for place in [
        "complete_argument",
        "input",
        "before_agent_start",
        "agent_start",
        "context",
        "tool_call",
        "tool",
        "user_bash",
        "session_before_fork",
        "session_before_switch",
    ] {
        assert!(places.iter().any(|one| one == place), "{place} is not in {places:?}");
    }
    assert_served(&mut wharf, "Bea");
    assert_ends(wharf);
}

#[test]
fn in_a_command_they_come_one_after_the_other() {
    let env = with_limits(&json!({}));
    let mut wharf = start(&env, "reenters");
    let told = outcome(&mut wharf, "/inside switches");
    assert_eq!(told["ok"], json!(["ok", "ok", "ok", "ok", "ok"]));
    let told = outcome(&mut wharf, "/inside reloads");
    // One at a time: the second waits, or is refused.
    let ended = |one: &Value| one == "ok" || one == "failed";
    let outcomes = told["ok"].as_array().unwrap();
    assert!(outcomes.contains(&json!("ok")) && outcomes.iter().all(ended), "{told}");
    assert_served(&mut wharf, "Cleo");
    // The command has answered, so it is none any more.
    let told = outcome(&mut wharf, "/inside after");
    assert_eq!(told["error"]["kind"], "not-allowed", "{told}");
    assert_served(&mut wharf, "Dana");
    assert_ends(wharf);
}

#[test]
fn a_command_may_wait_for_its_own_message() {
    let env = with_limits(&json!({}));
    let model = env.script(&[says("heard")]);
    let mut wharf = env.rpc_with(&["reenters", "hello"], &model);
    let told = outcome(&mut wharf, "/inside own-turn");
    assert!(told["error"].is_null(), "{told}");
    assert_eq!(wharf.data(json!({"type": "get_last_assistant_text"}))["text"], "heard");
    assert_served(&mut wharf, "Eve");
    assert_ends(wharf);
}

/// A client's own switch waits for a person; the commands' come to their turn after it.
#[test]
fn a_command_during_a_switch_waits_for_its_turn() {
    let env = with_limits(&json!({}));
    let model = env.script(&[says("one")]);
    let mut wharf = env.rpc_with(&["confirm-switch", "reenters", "hello"], &model);
    wharf.run("first");
    wharf.send(&json!({"id": "switch", "type": "new_session"}));
    let dialog = wharf.wait_ui("confirm");
    wharf.prompt("/inside switches");
    assert_served(&mut wharf, "Fay");
    wharf.answer(&dialog, json!({"confirmed": true}));
    let response = wharf.wait_for("the switch", |line| line["id"] == "switch");
    assert_eq!(response["data"]["cancelled"], false, "{response}");
    // Each of the five is asked about too.
    for answer in [true, false, true, false, true] {
        let dialog = wharf.wait_ui("confirm");
        wharf.answer(&dialog, json!({"confirmed": answer}));
    }
    let told = next_outcome(&mut wharf);
    assert_eq!(told["ok"], json!(["ok", "ok", "ok", "ok", "ok"]));
    assert_served(&mut wharf, "Gil");
    assert_ends(wharf);
}
