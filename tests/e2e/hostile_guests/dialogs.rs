//! Dialogs without end.

use serde_json::json;

use super::{
    HOST_MIB, assert_ends, assert_memory, assert_served, next_outcome, outcome, start, with_limits,
};

/// Fixed by the host.
const MAX_OPEN: u64 = 64;

#[test]
fn dialogs_one_after_the_other_pile_nothing_up() {
    let env = with_limits(&json!({"commandBudgetMs": 600_000}));
    let mut wharf = start(&env, "dialogs");
    wharf.prompt("/in-turn 5000");
    for name in ["Ann", "Bea", "Cleo"] {
        assert_served(&mut wharf, name);
    }
    let outcome = next_outcome(&mut wharf);
    assert_eq!(outcome["ok"], json!({"timed out": 5_000}));
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}

/// Those over the limit are shown to nobody; for them nobody was there to ask.
#[test]
fn few_dialogs_are_open_at_a_time() {
    let env = with_limits(&json!({}));
    let mut wharf = start(&env, "dialogs");
    wharf.prompt("/at-once 5000");
    let mut open = Vec::new();
    for _ in 0..MAX_OPEN {
        open.push(wharf.wait_ui("confirm"));
    }
    assert_served(&mut wharf, "Dana");
    assert!(wharf.passed().all(|line| line["method"] != "confirm"), "more than {MAX_OPEN}");
    for dialog in &open {
        wharf.answer(dialog, json!({"confirmed": true}));
    }
    let told = next_outcome(&mut wharf);
    assert_eq!(told["ok"], json!({"answered": MAX_OPEN, "no UI": 5_000 - MAX_OPEN}));
    // The places are free again.
    wharf.prompt("/at-once 1");
    let dialog = wharf.wait_ui("confirm");
    wharf.answer(&dialog, json!({"confirmed": false}));
    assert_eq!(next_outcome(&mut wharf)["ok"], json!({"answered": 1}));
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}

/// The end of the input settles what is open.
#[test]
fn open_dialogs_do_not_hold_the_exit() {
    let env = with_limits(&json!({}));
    let mut wharf = start(&env, "dialogs");
    wharf.prompt("/at-once 100");
    for _ in 0..MAX_OPEN {
        wharf.wait_ui("confirm");
    }
    assert_served(&mut wharf, "Eve");
    assert_ends(wharf);
    // And a program without anybody to ask opens none.
    let mut wharf = start(&env, "dialogs");
    let outcome = outcome(&mut wharf, "/in-turn 3");
    assert_eq!(outcome["ok"], json!({"timed out": 3}));
    assert_ends(wharf);
}
