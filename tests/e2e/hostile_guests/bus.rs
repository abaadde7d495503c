//! Two extensions that answer each other's events for ever.

use serde_json::{Value, json};
use wharf_tests::{Env, Wharf};

use super::{
    HOST_MIB, assert_ends, assert_memory, assert_refused, assert_served, next_outcome, outcome,
    with_limits,
};

fn start(env: &Env) -> Wharf {
    env.rpc_with(&["ping", "pong", "hello"], "scripted/demo")
}

fn served(wharf: &mut Wharf, name: &str) -> u64 {
    let outcome = outcome(wharf, &format!("/served-{name}"));
    outcome["ok"].as_u64().unwrap_or_else(|| panic!("{outcome}"))
}

#[test]
fn a_chain_of_events_has_an_end() {
    let env = with_limits(&json!({}));
    let mut wharf = start(&env);
    wharf.prompt("/serve-ping one");
    // The first comes from a command, each other one from the handler of the one before.
    let refused = next_outcome(&mut wharf);
    assert_eq!(refused["call"], "hop 15");
    assert_refused(&refused, "not-allowed", "16", "the last event");
    assert_eq!(served(&mut wharf, "ping") + served(&mut wharf, "pong"), 15);
    assert_served(&mut wharf, "Ann");
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}

/// Each event makes two, so that there would be thousands: what does not fit into a queue
/// is dropped, and said.
#[test]
fn events_that_multiply_are_dropped() {
    let env = with_limits(&json!({}));
    let mut wharf = start(&env);
    wharf.prompt("/serve-pong two");
    assert_served(&mut wharf, "Bea");
    let refused = next_outcome(&mut wharf);
    assert_refused(&refused, "not-allowed", "16", "the last events");
    let came = served(&mut wharf, "ping") + served(&mut wharf, "pong");
    assert!((15..1 << 15).contains(&came), "{came}");
    assert_served(&mut wharf, "Cleo");
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}

/// A task that outlives its handler: the chain is cut, or goes on one event at a time,
/// but nothing waits for it and nothing piles up.
#[test]
fn a_chain_through_tasks_harms_nobody() {
    let env = with_limits(&json!({}));
    let mut wharf = start(&env);
    wharf.prompt("/serve-ping late");
    while served(&mut wharf, "ping") < 5 {}
    for name in ["Dana", "Eve", "Fay"] {
        assert_served(&mut wharf, name);
    }
    let state: Value = wharf.data(json!({"type": "get_state"}));
    assert_eq!(state["isStreaming"], false);
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}
