//! Commands, dialogs, overlapping calls, cancellation, and what a guest may call.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{CommandLookup, Hooks};
use wharf_agent::ui::{DialogAnswer, DialogKind, DialogOutcome};
use wharf_extensions::Limits;

use crate::support::{Fixture, Setup, blocks, patiently, runs};

const YES: DialogOutcome = DialogOutcome::Answered(DialogAnswer::Confirmed(true));

#[tokio::test(flavor = "multi_thread")]
async fn a_command_shows_something() {
    let fixture = Fixture::new(&["heartbeat"]).await;
    fixture.command("beat  7 ").await;
    assert_eq!(fixture.ui.notified().await, "beat 7");
    assert_eq!(fixture.host.find_command("beat:1"), CommandLookup::Unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_start_in_the_order_of_their_calls() {
    let fixture = Fixture::new(&["heartbeat"]).await;
    let running: Vec<_> = (0..500).map(|n| fixture.start_command(&format!("beat {n}"))).collect();
    for n in 0..500 {
        assert_eq!(fixture.ui.notified().await, format!("beat {n}"));
    }
    patiently(futures::future::join_all(running)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_calls_enter_while_a_dialog_is_open() {
    let fixture = Fixture::new(&["waiter"]).await;
    let waiting = tokio::spawn(fixture.start_command("wait"));
    let dialog = fixture.ui.dialogs.next().await;
    assert!(matches!(&dialog.dialog.kind, DialogKind::Confirm { title, .. } if title == "Waiting"));
    assert_eq!(fixture.bash("BLOCK").await, blocks("waiter says no"));
    assert_eq!(fixture.bash("ls").await, runs("ls"));
    assert!(!waiting.is_finished());
    dialog.answer(YES);
    assert_eq!(fixture.ui.notified().await, "wait: answered true");
    patiently(waiting).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dialogs_of_one_call_are_open_together_and_settle_in_any_order() {
    let fixture = Fixture::new(&["waiter"]).await;
    let running = tokio::spawn(fixture.start_command("multi"));
    let first = fixture.ui.dialogs.next().await;
    let second = fixture.ui.dialogs.next().await;
    second.answer(DialogOutcome::TimedOut);
    assert_eq!(fixture.ui.notified().await, "second: timed out");
    first.answer(DialogOutcome::NoUi);
    assert_eq!(fixture.ui.notified().await, "first: no UI");
    patiently(running).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_settles_the_dialog_of_its_tool_call_and_no_other() {
    let fixture = Fixture::new(&["waiter"]).await;
    let waiting = tokio::spawn(fixture.start_command("wait"));
    let command_dialog = fixture.ui.dialogs.next().await;
    let cancel = CancellationToken::new();
    let (verdict, ()) = tokio::join!(fixture.bash_until("ASK", &cancel), async {
        let mut dialog = fixture.ui.dialogs.next().await;
        assert!(matches!(dialog.dialog.kind, DialogKind::Select { .. }));
        cancel.cancel();
        dialog.dropped().await;
        assert!(dialog.dialog.cancel.is_cancelled());
    });
    assert_eq!(verdict, blocks("extension waiter failed: the call was cancelled"));
    assert!(!command_dialog.dialog.cancel.is_cancelled());
    command_dialog.answer(YES);
    assert_eq!(fixture.ui.notified().await, "wait: answered true");
    patiently(waiting).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_command_sees_its_dialog_cancelled() {
    let fixture = Fixture::new(&["waiter"]).await;
    let waiting = tokio::spawn(fixture.start_command("wait"));
    let mut dialog = fixture.ui.dialogs.next().await;
    waiting.abort();
    dialog.dropped().await;
    assert_eq!(fixture.ui.notified().await, "wait: cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_settles_dialogs_and_ends_commands() {
    let fixture = Fixture::new(&["waiter", "probe"]).await;
    let waiting = tokio::spawn(fixture.start_command("wait"));
    let mut dialog = fixture.ui.dialogs.next().await;
    patiently(fixture.host.shutdown()).await;
    dialog.dropped().await;
    patiently(waiting).await.unwrap();
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_front_end_pauses_the_extension_that_floods_it_and_nothing_is_lost() {
    let setup = Setup { room: Some(10), ..Setup::default() };
    let fixture = Fixture::with(&["floods", "heartbeat"], setup).await;
    let flooding = tokio::spawn(fixture.start_command("flood 2000"));
    for n in 1..=10 {
        assert_eq!(fixture.ui.notified().await, format!("flood {n}"));
    }
    assert!(!flooding.is_finished());
    assert_eq!(fixture.bash("ls").await, runs("ls"), "nobody else waits");
    fixture.ui.room.add_permits(2_000);
    for n in 11..=2_000 {
        assert_eq!(fixture.ui.notified().await, format!("flood {n}"));
    }
    patiently(flooding).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_and_the_agent_are_there() {
    let mut fixture = Fixture::new(&["probe"]).await;
    let mut check = Vec::new();
    for line in [
        "session-file",
        "session-append-entry note {\"a\":1}",
        "session-entries",
        "session-set-name Fred",
        "session-name",
        "session-set-label x y",
        "agent-is-idle",
        "agent-cwd",
        "agent-system-prompt",
        "agent-model",
        "agent-send-user-message steer hello",
        "agent-send-message-and-run next-turn hello",
        "control-wait-for-idle",
        "control-new-session",
        "control-switch-session /x.jsonl",
        "ui-has-ui",
    ] {
        fixture.command(line).await;
        let mut shown = fixture.ui.probed().await;
        assert_eq!(shown["call"], line.split(' ').next().unwrap());
        if let Some(entries) = shown["result"].as_array() {
            shown["result"] = entries.iter().map(|entry| entry["customType"].clone()).collect();
        }
        let error = &shown["error"];
        check.push(if error.is_null() {
            shown["result"].clone()
        } else {
            json!(format!("{}: {}", error["kind"], error["message"]))
        });
    }
    assert!(check[1].is_string(), "the new entry's id");
    check.remove(1);
    assert_eq!(
        check,
        [
            json!(null),
            json!(["note"]),
            json!(null),
            json!("Fred"),
            json!("\"invalid\": \"no entry x\""),
            json!(true),
            json!("/project"),
            json!("be brief"),
            json!(null),
            json!(null),
            json!(null),
            json!(null),
            json!("cancelled"),
            json!("\"failed\": \"no session /x.jsonl\""),
            json!(true),
        ]
    );
    assert_eq!(fixture.api_calls.recv().await.unwrap(), "user Steer hello");
    assert_eq!(fixture.api_calls.recv().await.unwrap(), "probe NextTurn true");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_guest_logs_is_in_the_log_file_after_shutdown() {
    let fixture = Fixture::new(&["probe"]).await;
    fixture.command("log hello").await;
    patiently(fixture.host.shutdown()).await;
    let text = std::fs::read_to_string(fixture.directory.path().join("extensions.log")).unwrap();
    assert!(text.contains(" warn [probe] warn hello\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn control_is_for_commands_only() {
    let fixture = Fixture::new(&["probe"]).await;
    assert_eq!(fixture.bash("CONTROL").await, runs("CONTROL"));
    let shown = fixture.ui.probed().await;
    assert_eq!(shown["error"]["kind"], "not-allowed", "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_holds_on_to_a_cancelled_call_is_replaced() {
    let limits = Limits {
        cancel_grace: Duration::from_millis(50),
        call_budget: Duration::from_secs(1_000),
        ..Limits::default()
    };
    let fixture = Fixture::with(&["spins"], Setup { limits, ..Setup::default() }).await;
    // A command that is cancelled before the guest gets it never starts: try again.
    let report = loop {
        let spinning = tokio::spawn(fixture.start_command("spin"));
        tokio::time::sleep(Duration::from_millis(20)).await;
        spinning.abort();
        let report = tokio::time::timeout(Duration::from_secs(2), fixture.report());
        if let Ok(report) = report.await {
            break report;
        }
    };
    assert_eq!(report, "command: /spin: it did not return within 50 ms of being cancelled");
    fixture.command("still").await;
    assert_eq!(fixture.ui.notified().await, "still here");
}
