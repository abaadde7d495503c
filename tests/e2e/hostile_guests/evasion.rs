//! Guests that never end, by ways that might not look like a loop.

use serde_json::{Value, json};
use wharf_tests::Env;
use wharf_tests::script::{bash, says};

use super::{HOST_MIB, assert_ends, assert_memory, assert_served, start, with_limits};

/// Budgets that end a guest soon.
fn quick() -> Env {
    with_limits(&json!({"eventBudgetMs": 200, "commandBudgetMs": 300, "memoryMb": 64}))
}

/// Budgets that no guest reaches within a test.
fn patient() -> Env {
    with_limits(&json!({"eventBudgetMs": 600_000, "commandBudgetMs": 600_000, "memoryMb": 64}))
}

/// A loop of host calls is a loop: what it takes in all counts.
#[test]
fn a_loop_of_host_calls_ends_with_its_budget() {
    for way in
        ["session-id", "is-cancelled", "log", "refused", "sleep", "denied", "control", "dialog"]
    {
        let env = quick();
        let mut wharf = start(&env, "evades");
        wharf.prompt(&format!("/evade {way}"));
        assert_served(&mut wharf, "Ann");
        let error = wharf.wait_extension_error("evades.wasm");
        assert_eq!(error["event"], "command", "{way}: {error}");
        let text = error["error"].as_str().unwrap();
        assert!(text.contains("/evade") && text.contains("300 ms"), "{way}: {text}");
        // A new instance takes its place.
        wharf.prompt("/evades-still");
        wharf.wait_for(way, |line| line["message"] == "evades is still there");
        assert_served(&mut wharf, "Bea");
        assert_memory(&wharf, HOST_MIB);
        assert_ends(wharf);
    }
}

#[test]
fn tasks_without_end_end() {
    for way in ["tasks", "after"] {
        let env = quick();
        let mut wharf = start(&env, "evades");
        wharf.prompt(&format!("/evade {way}"));
        assert_served(&mut wharf, "Cleo");
        wharf.wait_extension_error("evades.wasm");
        wharf.prompt("/evades-still");
        wharf.wait_for(way, |line| line["message"] == "evades is still there");
        assert_served(&mut wharf, "Dana");
        assert_memory(&wharf, HOST_MIB);
        assert_ends(wharf);
    }
}

/// A guard that never answers has not allowed anything.
#[test]
fn a_guard_that_evades_fails_closed() {
    for way in ["session-id", "sleep", "denied", "dialog", "control"] {
        let env = quick();
        let model = env.script(&[bash(&format!("EVADE {way}")), says("done")]);
        env.grant_all(&["evades"]);
        let mut wharf = env.rpc_with(&["evades", "hello"], &model);
        let run = wharf.run("go");
        let result = run.iter().find(|line| line["type"] == "tool_execution_end").unwrap();
        assert_eq!(result["isError"], true, "{way}: {result}");
        let text = result["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("evades failed") && text.contains("200 ms"), "{way}: {text}");
        assert_served(&mut wharf, "Eve");
        assert_ends(wharf);
    }
}

/// Whoever waits for ever does not hold up an abort.
#[test]
fn an_abort_does_not_wait_for_a_guest() {
    for way in ["deaf", "sleep", "is-cancelled", "tasks"] {
        let env = patient();
        let model = env.script(&[bash(&format!("EVADE {way}")), says("never")]);
        env.grant_all(&["evades"]);
        let mut wharf = env.rpc_with(&["evades", "hello"], &model);
        wharf.prompt("go");
        wharf.wait_event("tool_execution_start");
        assert_served(&mut wharf, "Fay");
        assert_eq!(wharf.request(json!({"type": "abort"}))["success"], true);
        let end: Vec<Value> = wharf.until("agent_end", |line| line["type"] == "agent_end");
        let ran = end.iter().any(|line| line["type"] == "tool_execution_update");
        assert!(!ran, "{way}: the call ran");
        assert_served(&mut wharf, "Gil");
        assert_memory(&wharf, HOST_MIB);
        wharf.kill();
    }
}

/// Neither a wait for ever nor its budget of ten minutes holds the exit.
#[test]
fn the_exit_does_not_wait_for_a_guest() {
    for way in ["deaf", "is-cancelled"] {
        let env = patient();
        let mut wharf = start(&env, "evades");
        wharf.prompt(&format!("/evade {way}"));
        assert_served(&mut wharf, "Hal");
        assert_ends(wharf);
    }
}
