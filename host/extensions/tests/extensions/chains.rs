//! `context`, `before_provider_request`, `resources_discover` and `user_bash` with two
//! extensions, whose answers a test chooses.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{
    DiscoverReason, Hooks, ProviderRequestEvent, UserBashEvent, UserBashVerdict,
};
use wharf_agent::ui::DialogOutcome;
use wharf_protocol::AgentMessage;

use crate::support::{Fixture, patiently};

async fn both() -> Fixture {
    Fixture::new(&["first", "second"]).await
}

async fn shown<const N: usize>(fixture: &Fixture, expected: [&str; N]) {
    for line in expected {
        assert_eq!(fixture.ui.notified().await, line);
    }
}

fn messages(text: &str) -> Vec<Arc<AgentMessage>> {
    serde_json::from_value::<Vec<AgentMessage>>(
        json!([{"role": "user", "content": text, "timestamp": 1}]),
    )
    .unwrap()
    .into_iter()
    .map(Arc::new)
    .collect()
}

fn user(text: &str) -> String {
    format!(r#"[{{"role":"user","content":"{text}","timestamp":1}}]"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn replacements_of_the_messages_chain_and_bad_ones_change_nothing() {
    let fixture = both().await;
    let context = async |text: &str| {
        patiently(fixture.host.context(messages(text), &CancellationToken::new())).await
    };
    assert_eq!(context("a").await, messages("a"));
    let seen = |id: &str, text: &str| format!("{id} context {}", user(text));
    shown(&fixture, [&*seen("first", "a"), &*seen("second", "a")]).await;

    fixture.command(&format!("first set context REPLACE {}", user("b"))).await;
    assert_eq!(context("a").await, messages("b"));
    shown(&fixture, [&*seen("first", "a"), &*seen("second", "b")]).await;

    fixture.command(&format!("second set context REPLACE {}", user("c"))).await;
    assert_eq!(context("a").await, messages("c"));
    shown(&fixture, [&*seen("first", "a"), &*seen("second", "b")]).await;

    for (answer, error) in [
        ("REPLACE []", "context: its answer has no message"),
        (
            "REPLACE {}",
            "context: its answer is no JSON array of messages: invalid type: map, expected a sequence at line 1 column 0",
        ),
        ("FAIL", "context: it fails on purpose"),
    ] {
        fixture.command(&format!("second set context {answer}")).await;
        assert_eq!(context("a").await, messages("b"), "{answer}");
        shown(&fixture, [&*seen("first", "a"), &*seen("second", "b")]).await;
        assert_eq!(fixture.report().await, error);
    }
    fixture.command("second set context TRAP").await;
    assert_eq!(context("a").await, messages("b"));
    assert!(fixture.report().await.contains("it panics on purpose"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_about_messages_that_are_too_large() {
    let fixture = both().await;
    let large = messages(&"x".repeat(64 * 1024 * 1024));
    let cancel = CancellationToken::new();
    let context = fixture.host.context(large.clone(), &cancel);
    assert!(patiently(context).await == large);
    for _ in 0..2 {
        let report = fixture.report().await;
        assert!(report.starts_with("context: it is not asked: the messages have 671"), "{report}");
    }
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn replacements_of_the_payload_chain_and_text_that_is_no_json_changes_nothing() {
    let fixture = both().await;
    let payload = async || {
        let event = ProviderRequestEvent {
            provider: "p".into(),
            model: "m".into(),
            api: "a".into(),
            payload: json!({"n": 1}),
        };
        let cancel = CancellationToken::new();
        patiently(fixture.host.before_provider_request(event, &cancel)).await
    };
    assert_eq!(payload().await, json!({"n": 1}));
    shown(&fixture, [r#"first payload p m a {"n":1}"#, r#"second payload p m a {"n":1}"#]).await;
    fixture.command("first set payload REPLACE [2]").await;
    assert_eq!(payload().await, json!([2]));
    shown(&fixture, [r#"first payload p m a {"n":1}"#, "second payload p m a [2]"]).await;
    fixture.command("second set payload REPLACE {").await;
    assert_eq!(payload().await, json!([2]));
    assert_eq!(
        fixture.report().await,
        "before_provider_request: its payload is no JSON: EOF while parsing an object at line 1 column 1"
    );
    fixture.command("second set payload REPLACE null").await;
    assert_eq!(payload().await, Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_are_added_in_load_order_whoever_answers_first() {
    let fixture = both().await;
    fixture.command("first set resources SLOW a ~/b").await;
    fixture.command("second set resources SKILLS c").await;
    let found = fixture.host.resources_discover(DiscoverReason::Startup);
    let answer = async {
        // The second has been asked although the first waits.
        let mut lines = [fixture.ui.notified().await, fixture.ui.notified().await];
        lines.sort();
        assert_eq!(
            lines,
            [
                "first resources /project DiscoverReason::Startup",
                "second resources /project DiscoverReason::Startup"
            ]
        );
        fixture.ui.dialogs.next().await.answer(DialogOutcome::Cancelled);
    };
    let (found, ()) = patiently(async { tokio::join!(found, answer) }).await;
    assert_eq!(found.skill_paths, ["a", "~/b", "c"].map(PathBuf::from));
    assert!(found.prompt_paths.is_empty());

    fixture.command("first set resources PROMPTS p").await;
    fixture.command("second set resources SKILLS c BLANK").await;
    let found = patiently(fixture.host.resources_discover(DiscoverReason::Reload)).await;
    assert_eq!(found.prompt_paths, [PathBuf::from("p")]);
    assert!(found.skill_paths.is_empty());
    assert_eq!(fixture.report().await, "resources_discover: a path of skill-paths is blank");

    fixture.command(&format!("second set resources SKILLS{}", " x".repeat(257))).await;
    patiently(fixture.host.resources_discover(DiscoverReason::Reload)).await;
    assert_eq!(
        fixture.report().await,
        "resources_discover: skill-paths has 257 paths; the limit is 256"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn shell_commands_are_wrapped_in_turn_and_the_first_answer_wins() {
    let fixture = both().await;
    let bash = async || {
        let event = UserBashEvent { command: "ls".into(), exclude_from_context: true };
        patiently(fixture.host.user_bash(event, &CancellationToken::new())).await
    };
    let run = |command: &str| UserBashVerdict::Run(command.to_owned());
    assert_eq!(bash().await, run("ls"));
    shown(&fixture, ["first bash /project true ls", "second bash /project true ls"]).await;
    fixture.command("first set bash WRAP time %").await;
    fixture.command("second set bash WRAP nice %").await;
    assert_eq!(bash().await, run("nice time ls"));
    shown(&fixture, ["first bash /project true ls", "second bash /project true time ls"]).await;
    fixture.command("second set bash ANSWER done").await;
    let answer = UserBashVerdict::Answer { output: "done".into(), exit_code: Some(3) };
    assert_eq!(bash().await, answer);
    shown(&fixture, ["first bash /project true ls", "second bash /project true time ls"]).await;
    fixture.command("first set bash ANSWER first").await;
    let answer = UserBashVerdict::Answer { output: "first".into(), exit_code: Some(3) };
    assert_eq!(bash().await, answer);
    shown(&fixture, ["first bash /project true ls"]).await;
    fixture.command("first set bash WRAP").await;
    fixture.command("second set bash FAIL").await;
    assert_eq!(bash().await, run("ls"));
    assert_eq!(fixture.report().await, "user_bash: its command is blank");
    assert_eq!(fixture.report().await, "user_bash: it fails on purpose");
}
