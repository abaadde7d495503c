//! `session_before_compact`, and the notifications that travel as the WIT's `other`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{
    BeforeCompactEvent, BeforeCompactVerdict, CompactionCause, HookEvent, HookNotification, Hooks,
    ModelSource,
};
use wharf_agent::ui::{DialogAnswer, DialogOutcome};
use wharf_extensions::Limits;
use wharf_protocol::message::{UserContent, UserMessage};
use wharf_protocol::{AgentMessage, CompactionResult, Event, Model};

use crate::support::{Fixture, Setup, patiently};

fn says(text: &str) -> Arc<AgentMessage> {
    let content = UserContent::Text(text.to_owned());
    Arc::new(AgentMessage::User(UserMessage { content, timestamp: 1 }))
}

fn details() -> Value {
    json!({ "readFiles": ["/a"], "modifiedFiles": ["/b"] })
}

fn event(instructions: &str) -> BeforeCompactEvent {
    BeforeCompactEvent {
        cause: CompactionCause::Threshold,
        first_kept_entry_id: "kept".into(),
        tokens_before: 1_234,
        previous_summary: Some("before".into()),
        messages: vec![says("paint the boat")],
        turn_prefix: vec![says("sail")],
        details: details(),
        instructions: Some(instructions.into()),
    }
}

async fn compact(fixture: &Fixture, instructions: &str) -> BeforeCompactVerdict {
    let cancel = CancellationToken::new();
    patiently(fixture.host.session_before_compact(event(instructions), &cancel)).await
}

fn replaced(summary: &str, first_kept: &str, details: Option<Value>) -> BeforeCompactVerdict {
    BeforeCompactVerdict::Replace(CompactionResult {
        summary: summary.into(),
        first_kept_entry_id: first_kept.into(),
        tokens_before: 1_234,
        details,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_proceeds_cancels_or_gives_a_summary() {
    let fixture = Fixture::new(&["probe"]).await;
    assert_eq!(compact(&fixture, "SHOW").await, BeforeCompactVerdict::Proceed);
    let shown = fixture.ui.probed().await;
    assert_eq!(
        shown["result"],
        json!({
            "cause": "Threshold",
            "firstKeptEntryId": "kept",
            "tokensBefore": 1_234,
            "previousSummary": "before",
            "messages": [{"role": "user", "content": "paint the boat", "timestamp": 1}],
            "turnPrefix": [{"role": "user", "content": "sail", "timestamp": 1}],
            "details": details(),
            "instructions": "SHOW",
        })
    );
    assert_eq!(compact(&fixture, "CANCEL").await, BeforeCompactVerdict::Cancel);
    assert_eq!(
        compact(&fixture, "REPLACE all painted").await,
        replaced("all painted", "kept", Some(details()))
    );
    fixture.command("session-append-entry note").await;
    let entry = fixture.ui.probed().await["result"].as_str().unwrap().to_owned();
    assert_eq!(
        compact(&fixture, &format!("KEEP {entry}")).await,
        replaced("kept more", &entry, None)
    );
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_that_cancels_or_replaces_wins() {
    let own = replaced("before\n- paint the boat\n- sail", "kept", Some(details()));
    let check = async |guests: [&str; 2], expected: [&BeforeCompactVerdict; 3]| {
        let fixture = Fixture::new(&guests).await;
        for (instructions, expected) in ["", "CANCEL", "REPLACE x"].into_iter().zip(expected) {
            assert_eq!(&compact(&fixture, instructions).await, expected, "{guests:?}");
        }
        fixture.command("no-compact").await;
        assert_eq!(fixture.ui.notified().await, "Compaction is off");
        let off = compact(&fixture, "").await;
        assert_eq!(off, BeforeCompactVerdict::Cancel, "{guests:?}");
        assert!(fixture.reports.0.is_empty());
    };
    let cancel = BeforeCompactVerdict::Cancel;
    let other = replaced("x", "kept", Some(details()));
    check(["probe", "custom-compaction"], [&own, &cancel, &other]).await;
    check(["custom-compaction", "probe"], [&own, &own, &own]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fails_is_reported_and_the_next_one_is_asked() {
    let fixture = Fixture::new(&["probe", "panics", "custom-compaction"]).await;
    let own = replaced("before\n- paint the boat\n- sail", "kept", Some(details()));
    let branch = "no entry of the session's current branch";
    for (instructions, problems) in [
        ("FAIL", ["probe fails on purpose", ""]),
        ("REPLACE", ["the summary is blank", ""]),
        ("KEEP gone", ["first-kept-entry-id \"gone\" is ", branch]),
        ("PANIC", ["boom on purpose", "unreachable"]),
    ] {
        assert_eq!(compact(&fixture, instructions).await, own, "{instructions}");
        let report = fixture.report().await;
        assert!(report.starts_with("session_before_compact: "), "{report}");
        assert!(problems.iter().all(|problem| report.contains(problem)), "{report}");
        assert!(fixture.reports.0.is_empty(), "{instructions}: one failure, one report");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_over_its_budget_is_ended_and_the_compaction_proceeds() {
    let limits = Limits { event_budget: Duration::from_millis(300), ..Limits::default() };
    let fixture = Fixture::with(&["spins"], Setup { limits, ..Setup::default() }).await;
    assert_eq!(compact(&fixture, "SPIN").await, BeforeCompactVerdict::Proceed);
    assert_eq!(
        fixture.report().await,
        "session_before_compact: it used more than 300 ms of CPU time without returning to the host"
    );
    assert_eq!(compact(&fixture, "").await, BeforeCompactVerdict::Proceed);
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_compaction_settles_the_dialog_of_its_handler() {
    let fixture = Fixture::new(&["waiter"]).await;
    let (verdict, ()) = tokio::join!(compact(&fixture, "ASK"), async {
        let no = DialogOutcome::Answered(DialogAnswer::Confirmed(false));
        fixture.ui.dialogs.next().await.answer(no);
    });
    assert_eq!(verdict, BeforeCompactVerdict::Cancel);
    assert_eq!(fixture.ui.notified().await, "compact: answered false");

    let cancel = CancellationToken::new();
    let compacting = fixture.host.session_before_compact(event("ASK"), &cancel);
    let (verdict, ()) = tokio::join!(patiently(compacting), async {
        let mut dialog = fixture.ui.dialogs.next().await;
        cancel.cancel();
        dialog.dropped().await;
    });
    assert_eq!(verdict, BeforeCompactVerdict::Proceed);
    assert_eq!(fixture.ui.notified().await, "compact: cancelled");
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_over_the_limit_reach_no_extension() {
    let fixture = Fixture::new(&["probe", "custom-compaction"]).await;
    let mut event = event("CANCEL");
    let half = says(&"x".repeat(32 * 1024 * 1024));
    event.messages = vec![Arc::clone(&half)];
    event.turn_prefix = vec![half];
    let cancel = CancellationToken::new();
    let verdict = patiently(fixture.host.session_before_compact(event, &cancel)).await;
    assert_eq!(verdict, BeforeCompactVerdict::Proceed);
    for _ in ["probe", "custom-compaction"] {
        let report = fixture.report().await;
        let beginning = "session_before_compact: it is not asked: the messages have 671089";
        assert!(report.starts_with(beginning), "{report}");
        assert!(report.ends_with("; the limit is 67108864"), "{report}");
    }
}

fn model(id: &str) -> Model {
    Model {
        id: id.into(),
        name: id.into(),
        api: "scripted".into(),
        provider: "scripted".into(),
        base_url: String::new(),
        reasoning: false,
        input: Vec::new(),
        context_window: 1_000,
        max_tokens: 100,
        cost: wharf_protocol::model::ModelCost::default(),
    }
}

fn stream_retry(attempt: u32) -> HookNotification {
    HookNotification::Wire(Arc::new(Event::StreamRetry {
        attempt,
        max_attempts: 3,
        error_message: "torn".into(),
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_from_before_this_event_works() {
    let fixture = Fixture::new(&["older-api", "probe"]).await;
    assert!(fixture.host.subscribes(HookEvent::SessionBeforeCompact));
    assert_eq!(compact(&fixture, "CANCEL").await, BeforeCompactVerdict::Cancel);
    assert_eq!(compact(&fixture, "").await, BeforeCompactVerdict::Proceed);
    fixture.host.notify(stream_retry(1));
    assert_eq!(
        fixture.ui.notified().await,
        r#"stream_retry {"attempt":1,"maxAttempts":3,"errorMessage":"torn"}"#
    );
    fixture.command("hi there").await;
    assert_eq!(fixture.ui.notified().await, "hi there");
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_without_a_case_in_the_wit_arrive_typed_once_and_in_order() {
    let fixture = Fixture::new(&["probe"]).await;
    let result = CompactionResult {
        summary: "s".into(),
        first_kept_entry_id: "k".into(),
        tokens_before: 9,
        details: Some(json!({"n": 1})),
    };
    for notification in [
        HookNotification::ModelSelect {
            model: Box::new(model("a")),
            previous: None,
            source: ModelSource::Restore,
        },
        stream_retry(1),
        stream_retry(2),
        HookNotification::Wire(Arc::new(Event::LengthRetry {
            attempt: 1,
            max_tokens: 100,
            next_max_tokens: 200,
        })),
        // Not for extensions, though front ends see it.
        HookNotification::Wire(Arc::new(Event::SuggestNext { command: "/x".into() })),
        HookNotification::SessionCompact { entry_id: "e".into(), result, from_extension: true },
        HookNotification::ModelSelect {
            model: Box::new(model("b")),
            previous: Some(Box::new(model("a"))),
            source: ModelSource::Cycle,
        },
        HookNotification::SessionShutdown,
    ] {
        fixture.host.notify(notification);
    }
    assert_eq!(fixture.ui.notified().await, "session_shutdown", "the last one has arrived");
    fixture.command("typed").await;
    let lines: Vec<String> = serde_json::from_str(&fixture.ui.notified().await).unwrap();
    assert_eq!(
        lines,
        [
            "model \"a\" false Restore",
            "stream 1/3 torn",
            "stream 2/3 torn",
            "length 1 100 200",
            "compact s Some({\"n\":1}) true",
            "model \"b\" true Cycle",
        ]
    );
    assert!(fixture.reports.0.is_empty());
}
