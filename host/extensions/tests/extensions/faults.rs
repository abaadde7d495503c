//! Guests that panic, spin, or take all memory: the host and the other extensions
//! go on.

use std::sync::Arc;
use std::time::Duration;

use wharf_agent::hooks::{HookEvent, HookNotification, Hooks, ToolCallVerdict};
use wharf_extensions::{ExtensionState, Limits};
use wharf_protocol::Event;

use crate::support::{Fixture, Setup, patiently, runs};

fn short_budgets() -> Setup {
    let budget = Duration::from_millis(300);
    let limits = Limits { event_budget: budget, call_budget: budget, ..Limits::default() };
    Setup { limits, ..Setup::default() }
}

fn reason(verdict: ToolCallVerdict) -> String {
    match verdict {
        ToolCallVerdict::Block(reason) => reason,
        other => panic!("not blocked: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_reported_once_with_its_message_and_the_next_call_works() {
    let fixture = Fixture::new(&["panics"]).await;
    fixture.command("boom").await;
    let report = fixture.report().await;
    assert!(report.starts_with("command: /boom: "), "{report}");
    assert!(report.contains("boom on purpose"), "{report}");
    assert!(report.contains("unreachable"), "{report}");
    assert_eq!(fixture.bash("ls").await, runs("ls"));
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panicking_tool_call_handler_blocks_and_the_third_fault_disables_it() {
    let fixture = Fixture::new(&["panics", "heartbeat"]).await;
    for _ in 0..3 {
        let reason = reason(fixture.bash("PANIC").await);
        assert!(reason.starts_with("extension panics failed: "), "{reason}");
        assert!(reason.contains("boom on purpose"), "{reason}");
        assert!(fixture.report().await.starts_with("tool_call: "));
    }
    assert_eq!(
        fixture.report().await,
        "load: it is disabled after three faults within a minute; reload to try again"
    );
    assert_eq!(
        reason(fixture.bash("ls").await),
        "extension panics failed: it is disabled after three faults within a minute; reload to try again"
    );
    fixture.command("beat 1").await;
    assert_eq!(fixture.ui.notified().await, "beat 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spinning_command_ends_with_its_budget_and_others_go_on_meanwhile() {
    let budget = Duration::from_secs(2);
    let limits = Limits { call_budget: budget, ..Limits::default() };
    let fixture =
        Fixture::with(&["spins", "heartbeat"], Setup { limits, ..Setup::default() }).await;
    fixture.command("beat 0").await;
    assert_eq!(fixture.ui.notified().await, "beat 0");
    let spinning = tokio::spawn(fixture.start_command("spin"));
    for n in 1..=20 {
        fixture.command(&format!("beat {n}")).await;
        assert_eq!(fixture.ui.notified().await, format!("beat {n}"));
    }
    assert!(!spinning.is_finished());
    assert_eq!(
        fixture.report().await,
        "command: /spin: it used more than 2 s of CPU time without returning to the host"
    );
    patiently(spinning).await.unwrap();
    fixture.command("still").await;
    assert_eq!(fixture.ui.notified().await, "still here");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spinning_tool_call_handler_blocks() {
    let fixture = Fixture::with(&["spins"], short_budgets()).await;
    assert_eq!(
        reason(fixture.bash("SPIN").await),
        "extension spins failed: it used more than 300 ms of CPU time without returning to the host"
    );
    assert_eq!(fixture.bash("ls").await, runs("ls"));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_capped() {
    let limits = Limits { memory_bytes: 16 * 1024 * 1024, ..Limits::default() };
    let fixture = Fixture::with(&["grows"], Setup { limits, ..Setup::default() }).await;
    fixture.command("grow").await;
    let report = fixture.report().await;
    assert!(report.contains("memory allocation of"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_fails_is_a_diagnostic_and_blocks_nothing() {
    let fixture =
        Fixture::with(&["spins-register", "panics-register", "heartbeat"], short_budgets()).await;
    let mut reports = [fixture.report().await, fixture.report().await];
    reports.sort();
    assert!(reports[0].starts_with("register: register failed: "), "{reports:?}");
    assert!(reports.iter().any(|r| r.contains("boom on purpose")), "{reports:?}");
    assert!(reports.iter().any(|r| r.contains("300 ms of CPU time")), "{reports:?}");
    assert_eq!(fixture.bash("ls").await, runs("ls"));
    assert!(!fixture.host.subscribes(HookEvent::ToolCall));
    fixture.command("beat 1").await;
}

/// More than the memory that `little_memory` leaves a guest: taking it traps.
fn too_much() -> String {
    "x".repeat(20 * 1024 * 1024)
}

fn little_memory() -> Setup {
    let limits = Limits { memory_bytes: 16 * 1024 * 1024, ..Limits::default() };
    Setup { limits, ..Setup::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_is_blamed_on_the_call_that_trapped_and_settles_the_others() {
    let fixture = Fixture::with(&["waiter"], little_memory()).await;
    let waiting = tokio::spawn(fixture.start_command("wait"));
    let mut dialog = fixture.ui.dialogs.next().await;
    let reason = reason(fixture.bash(&too_much()).await);
    assert!(reason.starts_with("extension waiter failed: "), "{reason}");
    assert!(!reason.contains("restarted"), "{reason}");
    dialog.dropped().await;
    patiently(waiting).await.unwrap();
    assert!(fixture.report().await.starts_with("tool_call: "));
    // The command that was lost with it is told too: nobody else answers for it.
    let lost = fixture.report().await;
    assert!(lost.starts_with("command: /wait: it was restarted while this call ran"), "{lost}");
    assert!(fixture.reports.0.is_empty(), "one fault, one report for each who waited");
    assert_eq!(fixture.bash("ls").await, runs("ls"));

    let asking = fixture.bash("ASK");
    let (asked, ()) = tokio::join!(asking, async {
        let mut dialog = fixture.ui.dialogs.next().await;
        fixture.command(&format!("wait {}", too_much())).await;
        dialog.dropped().await;
    });
    let reason = self::reason(asked);
    assert!(reason.contains("it was restarted while this call ran"), "{reason}");
    assert!(fixture.report().await.starts_with("command: /wait: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_instance_gets_session_start_again() {
    let fixture = Fixture::with(&["probe"], little_memory()).await;
    fixture.host.notify(HookNotification::SessionStart);
    fixture.host.notify(HookNotification::Wire(Arc::new(Event::TurnStart)));
    fixture.command(&format!("counts {}", too_much())).await;
    assert!(fixture.report().await.starts_with("command: /counts: "));
    fixture.command("counts").await;
    assert_eq!(fixture.ui.notified().await, r#"{"session_start":1}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trap_names_the_guests_function_and_its_backtrace_is_in_the_log() {
    let fixture = Fixture::new(&["panics", "panics-register"]).await;
    let register = fixture.report().await;
    fixture.command("boom").await;
    let report = fixture.report().await;
    assert!(report.contains("boom on purpose"), "{report}");
    assert!(report.ends_with(") at panics::explode"), "{report}");
    assert!(!report.contains('\n'));
    // A component without names has none to tell.
    assert!(register.contains("boom on purpose") && !register.contains(") at "), "{register}");

    let log = fixture.log().await;
    let lines: Vec<&str> =
        log.lines().filter_map(|line| line.split_once("] ")).map(|l| l.1).collect();
    let at = lines.iter().position(|line| line.starts_with("/boom: command failed: ")).unwrap();
    let rest = &lines[at..];
    let frames = rest.iter().position(|line| line.starts_with("backtrace, ")).unwrap();
    assert!(rest[frames + 1].starts_with("   0: "), "{rest:?}");
    assert!(rest[frames..].iter().any(|line| line.contains("panics::explode")), "{rest:?}");
    assert!(lines.iter().any(|line| line.contains("(the component has no names)")), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_extension_comes_back_with_a_reload() {
    let fixture = Fixture::new(&["panics", "heartbeat"]).await;
    for _ in 0..3 {
        fixture.command("boom").await;
        fixture.report().await;
    }
    assert!(fixture.report().await.starts_with("load: it is disabled after three faults"));
    let states = || fixture.host.list().into_iter().map(|info| info.state).collect::<Vec<_>>();
    assert_eq!(states(), [ExtensionState::Disabled, ExtensionState::Registered]);
    let told = fixture.reload().await;
    assert!(told.iter().all(|one| !one.changed && one.error.is_none()), "{told:?}");
    assert_eq!(states(), [ExtensionState::Registered, ExtensionState::Registered]);
    assert_eq!(fixture.bash("ls").await, runs("ls"));
}
