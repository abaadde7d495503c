//! Limits that settings change, for all extensions or for one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use wharf_agent::hooks::{HookNotification, Hooks};
use wharf_extensions::{ExtensionState, Limits};
use wharf_protocol::Event;

use crate::support::{Fixture, Setup, patiently};

fn only(id: &str, limits: Limits) -> Setup {
    Setup { own_limits: HashMap::from([(id.to_owned(), limits)]), ..Setup::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_fault_is_enough_where_the_limit_says_so() {
    let limits = Limits { faults_per_minute: 1, ..Limits::default() };
    let fixture = Fixture::with(&["panics", "heartbeat"], only("panics", limits)).await;
    fixture.command("boom").await;
    assert!(fixture.report().await.starts_with("command: /boom: "));
    assert_eq!(
        fixture.report().await,
        "load: it is disabled after a fault within a minute; reload to try again"
    );
    let infos = fixture.host.list();
    assert_eq!(infos[0].state, ExtensionState::Disabled);
    assert_eq!(infos[0].limits.faults_per_minute, 1);
    assert_eq!(infos[1].limits, Limits::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dialog_over_the_limit_answers_that_there_is_no_ui() {
    let limits = Limits { open_dialogs: 1, ..Limits::default() };
    let fixture = Fixture::with(&["waiter"], only("waiter", limits)).await;
    let running = tokio::spawn(fixture.start_command("multi"));
    assert_eq!(fixture.ui.notified().await, "second: no UI");
    drop(fixture.ui.dialogs.next().await);
    patiently(running).await.unwrap();
    assert_eq!(fixture.ui.notified().await, "first: cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_notifications_over_the_limit_do_not_wait() {
    let limits = Limits {
        waiting_calls: 1,
        queued_notifications: 1,
        call_budget: Duration::from_secs(2),
        ..Limits::default()
    };
    // Its id and its file's name differ: both lead to its limits.
    let fixture = Fixture::with(&["spins", "probe"], Setup { limits, ..Setup::default() }).await;
    let spinning = tokio::spawn(fixture.start_command("spin"));
    // The actor is busy with the guest, or about to be: of these, at most two are taken.
    let calls: Vec<_> = (0..4).map(|_| fixture.start_command("still")).collect();
    for call in calls {
        patiently(call).await;
    }
    patiently(spinning).await.unwrap();
    let mut reports = Vec::new();
    while !fixture.reports.0.is_empty() {
        reports.push(fixture.report().await);
    }
    let busy = "command: /still: 1 of its calls wait already";
    assert!(reports.iter().filter(|report| *report == busy).count() >= 2, "{reports:?}");

    for _ in 0..50 {
        fixture.host.notify(HookNotification::Wire(Arc::new(Event::TurnStart)));
    }
    let report = fixture.report().await;
    assert_eq!(
        report,
        "turn_start: its queue of 1 notifications is full; further ones are dropped until it catches up"
    );
}

#[test]
fn each_limit_is_described_by_its_name_in_the_settings() {
    let said: Vec<String> = Limits::default()
        .describe()
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    assert_eq!(
        said,
        [
            "eventBudgetMs: 5000 ms",
            "commandBudgetMs: 60000 ms",
            "memoryMb: 256 MiB",
            "cancelGraceMs: 30000 ms",
            "maxOpenDialogs: 64",
            "maxQueuedNotifications: 1024",
            "maxWaitingCalls: 4096",
            "execOutputBytes: 1048576 bytes",
            "faultsPerMinute: 3",
        ]
    );
}
