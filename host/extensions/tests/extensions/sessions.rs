//! Events about forks, moves in the tree and the directory of sessions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{
    BeforeTreeEvent, ForkVerdict, HookEvent, HookNotification, Hooks, TreeOptions, TreeSummary,
    TreeVerdict,
};
use wharf_agent::ui::{DialogAnswer, DialogOutcome};
use wharf_extensions::Limits;
use wharf_protocol::AgentMessage;
use wharf_protocol::message::{UserContent, UserMessage};
use wharf_session::{Entry, Session};

use crate::support::{Fixture, Setup, patiently};

const NO: DialogOutcome = DialogOutcome::Answered(DialogAnswer::Confirmed(false));

fn says(text: &str) -> Arc<AgentMessage> {
    let content = UserContent::Text(text.to_owned());
    Arc::new(AgentMessage::User(UserMessage { content, timestamp: 1 }))
}

/// A move with a summary that these instructions are for.
fn asked(instructions: &str) -> TreeOptions {
    TreeOptions {
        summarize: true,
        custom_instructions: Some(instructions.into()),
        replace_instructions: false,
        label: Some("old".into()),
    }
}

fn event(options: TreeOptions) -> BeforeTreeEvent {
    BeforeTreeEvent {
        target_id: "target".into(),
        old_leaf_id: Some("leaf".into()),
        common_ancestor_id: None,
        abandoned: vec![says("paint the boat"), says("sail")],
        options,
    }
}

async fn tree(fixture: &Fixture, options: TreeOptions) -> TreeVerdict {
    let cancel = CancellationToken::new();
    patiently(fixture.host.session_before_tree(event(options), &cancel)).await
}

fn unchanged(options: TreeOptions) -> TreeVerdict {
    TreeVerdict::Proceed { options, summary: None }
}

async fn fork(fixture: &Fixture, entry: &str) -> ForkVerdict {
    patiently(fixture.host.session_before_fork(entry.into())).await
}

async fn directory(fixture: &Fixture, cwd: &str) -> Option<PathBuf> {
    patiently(fixture.host.session_directory(Path::new("/projects").join(cwd))).await
}

/// Has `probe` answer an event in another way from now on.
async fn steer(fixture: &Fixture, command: &str) {
    fixture.command(command).await;
    let shown = fixture.ui.probed().await;
    assert_eq!(shown["call"].as_str(), command.split(' ').next());
}

/// Lets the person answer what `waiter` asks before a fork or a move.
async fn answer(fixture: &Fixture, what: &str, yes: bool) {
    let answer = DialogOutcome::Answered(DialogAnswer::Confirmed(yes));
    fixture.ui.dialogs.next().await.answer(answer);
    assert_eq!(fixture.ui.notified().await, format!("{what}: answered {yes}"));
}

/// One failure, one report.
async fn check_report(fixture: &Fixture, beginning: &str) {
    let report = fixture.report().await;
    assert!(report.starts_with(beginning), "{report}");
    assert!(fixture.reports.0.is_empty(), "{beginning}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_proceeds_is_cancelled_or_keeps_the_conversation() {
    let fixture = Fixture::new(&["probe"]).await;
    for (word, expected) in [
        ("", ForkVerdict::Proceed),
        ("KEEP", ForkVerdict::KeepConversation),
        ("CANCEL", ForkVerdict::Cancel),
        ("SHOW", ForkVerdict::Proceed),
    ] {
        steer(&fixture, &format!("before-fork {word}")).await;
        assert_eq!(fork(&fixture, "e1").await, expected, "{word}");
    }
    assert_eq!(fixture.ui.probed().await["result"], json!({"entryId": "e1"}));
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_that_cancels_a_fork_wins_and_nobody_after_it_is_asked() {
    let fixture = Fixture::new(&["probe", "waiter"]).await;
    steer(&fixture, "before-fork CANCEL").await;
    assert_eq!(fork(&fixture, "ASK").await, ForkVerdict::Cancel);
    assert!(fixture.ui.dialogs.is_empty(), "waiter was not asked");

    steer(&fixture, "before-fork KEEP").await;
    for (yes, expected) in [(true, ForkVerdict::KeepConversation), (false, ForkVerdict::Cancel)] {
        let answered = answer(&fixture, "fork", yes);
        let (verdict, ()) = tokio::join!(fork(&fixture, "ASK"), answered);
        assert_eq!(verdict, expected);
    }

    // In the other order the second one's opinion counts for as much.
    let fixture = Fixture::new(&["waiter", "probe"]).await;
    steer(&fixture, "before-fork KEEP").await;
    assert_eq!(fork(&fixture, "e1").await, ForkVerdict::KeepConversation);
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fails_before_a_fork_is_reported_and_the_next_one_is_asked() {
    let limits = Limits { event_budget: Duration::from_millis(300), ..Limits::default() };
    let guests = ["probe", "panics", "spins", "waiter"];
    let fixture = Fixture::with(&guests, Setup { limits, ..Setup::default() }).await;
    let check = async |entry: &str, report: &str| {
        let entry = format!("{entry} ASK");
        let answered = answer(&fixture, "fork", false);
        let (verdict, ()) = tokio::join!(fork(&fixture, &entry), answered);
        assert_eq!(verdict, ForkVerdict::Cancel, "{entry}");
        check_report(&fixture, report).await;
    };
    check("PANIC", "session_before_fork: ").await;
    check("SPIN", "session_before_fork: it used more than 300 ms of CPU time").await;
    steer(&fixture, "before-fork FAIL").await;
    check("e1", "session_before_fork: probe fails on purpose").await;
    assert_eq!(fork(&fixture, "PANIC").await, ForkVerdict::Proceed);
}

#[tokio::test(flavor = "multi_thread")]
async fn confirm_switch_asks_before_a_fork() {
    let fixture = Fixture::new(&["confirm-switch"]).await;
    for (answer, expected) in [
        (DialogOutcome::Answered(DialogAnswer::Confirmed(true)), ForkVerdict::Proceed),
        (DialogOutcome::NoUi, ForkVerdict::Proceed),
        (NO, ForkVerdict::Cancel),
        (DialogOutcome::TimedOut, ForkVerdict::Cancel),
    ] {
        let (verdict, ()) = tokio::join!(fork(&fixture, "e1"), async {
            fixture.ui.dialogs.next().await.answer(answer);
        });
        assert_eq!(verdict, expected);
        if expected == ForkVerdict::Cancel {
            assert_eq!(fixture.ui.notified().await, "Fork cancelled");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_proceeds_is_cancelled_summarised_or_changed() {
    let fixture = Fixture::new(&["probe"]).await;
    assert_eq!(tree(&fixture, asked("SHOW")).await, unchanged(asked("SHOW")));
    assert_eq!(
        fixture.ui.probed().await["result"],
        json!({
            "targetId": "target",
            "oldLeafId": "leaf",
            "commonAncestorId": null,
            "abandoned": [
                {"role": "user", "content": "paint the boat", "timestamp": 1},
                {"role": "user", "content": "sail", "timestamp": 1},
            ],
            "summarize": true,
            "customInstructions": "SHOW",
            "replaceInstructions": false,
            "label": "old",
        })
    );
    assert_eq!(tree(&fixture, asked("CANCEL")).await, TreeVerdict::Cancel);

    steer(&fixture, r#"before-tree CHANGE {"summary":"all painted","details":{"n":1}}"#).await;
    let summary = |details| Some(TreeSummary { summary: "all painted".into(), details });
    let options = asked("CANCEL");
    assert_eq!(
        tree(&fixture, options.clone()).await,
        TreeVerdict::Proceed { options, summary: summary(Some(json!({"n": 1}))) }
    );
    // Nobody asked for a summary, so none is taken.
    let options = TreeOptions::default();
    assert_eq!(tree(&fixture, options.clone()).await, unchanged(options));

    steer(
        &fixture,
        r#"before-tree CHANGE {"customInstructions":"be brief","replaceInstructions":true,"label":null}"#,
    )
    .await;
    let changed = TreeOptions {
        summarize: true,
        custom_instructions: Some("be brief".into()),
        replace_instructions: true,
        label: None,
    };
    assert_eq!(tree(&fixture, asked("x")).await, unchanged(changed));

    steer(&fixture, r#"before-tree CHANGE {"customInstructions":null,"label":"new"}"#).await;
    let changed =
        TreeOptions { custom_instructions: None, label: Some("new".into()), ..asked("x") };
    assert_eq!(tree(&fixture, asked("x")).await, unchanged(changed));
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_handler_changes_is_what_the_next_one_sees() {
    let change = r#"before-tree CHANGE {"customInstructions":"ASK about sails","summary":"s"}"#;
    let changed = asked("ASK about sails");
    let summary = Some(TreeSummary { summary: "s".into(), details: None });

    let fixture = Fixture::new(&["probe", "waiter"]).await;
    steer(&fixture, change).await;
    let goes_on = TreeVerdict::Proceed { options: changed.clone(), summary: summary.clone() };
    for (yes, expected) in [(true, goes_on), (false, TreeVerdict::Cancel)] {
        let answered = answer(&fixture, "tree", yes);
        let (verdict, ()) = tokio::join!(tree(&fixture, asked("x")), answered);
        assert_eq!(verdict, expected);
    }
    steer(&fixture, "before-tree CANCEL").await;
    assert_eq!(tree(&fixture, asked("ASK")).await, TreeVerdict::Cancel);
    assert!(fixture.ui.dialogs.is_empty(), "nobody is asked after a cancel");

    // The other way round waiter sees what was asked for.
    let fixture = Fixture::new(&["waiter", "probe"]).await;
    steer(&fixture, change).await;
    assert_eq!(
        tree(&fixture, asked("x")).await,
        TreeVerdict::Proceed { options: changed, summary }
    );
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_acceptable_in_an_answer_is_reported_and_the_rest_counts() {
    let fixture = Fixture::new(&["probe"]).await;
    let long = "x".repeat(5_000);
    let too_long = json!({"label": long, "customInstructions": "y"}).to_string();
    for (answer, instructions, report) in [
        (r#"{"summary":" \n","customInstructions":"y"}"#, "y", "the summary is blank"),
        (r#"{"label":" ","customInstructions":"y"}"#, "y", "label is blank"),
        (r#"{"customInstructions":""}"#, "x", "custom-instructions is blank"),
        (&too_long, "y", "label has 5000 bytes; the limit is 4096"),
    ] {
        steer(&fixture, &format!("before-tree CHANGE {answer}")).await;
        assert_eq!(tree(&fixture, asked("x")).await, unchanged(asked(instructions)), "{answer}");
        check_report(&fixture, &format!("session_before_tree: {report}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fails_before_a_move_is_reported_and_the_next_one_is_asked() {
    let limits = Limits { event_budget: Duration::from_millis(300), ..Limits::default() };
    let guests = ["panics", "spins", "probe"];
    let fixture = Fixture::with(&guests, Setup { limits, ..Setup::default() }).await;
    steer(&fixture, r#"before-tree CHANGE {"label":"new"}"#).await;
    for (instructions, report) in [
        ("PANIC", "session_before_tree: "),
        ("SPIN", "session_before_tree: it used more than 300 ms of CPU time"),
    ] {
        let expected = TreeOptions { label: Some("new".into()), ..asked(instructions) };
        assert_eq!(tree(&fixture, asked(instructions)).await, unchanged(expected));
        check_report(&fixture, report).await;
    }
    steer(&fixture, "before-tree FAIL").await;
    assert_eq!(tree(&fixture, asked("x")).await, unchanged(asked("x")));
    check_report(&fixture, "session_before_tree: probe fails on purpose").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_move_settles_the_dialog_of_its_handler() {
    let fixture = Fixture::new(&["waiter"]).await;
    let cancel = CancellationToken::new();
    let moving = fixture.host.session_before_tree(event(asked("ASK")), &cancel);
    let (verdict, ()) = tokio::join!(patiently(moving), async {
        let mut dialog = fixture.ui.dialogs.next().await;
        cancel.cancel();
        dialog.dropped().await;
    });
    assert_eq!(verdict, unchanged(asked("ASK")));
    assert_eq!(fixture.ui.notified().await, "tree: cancelled");
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_over_the_limit_reach_no_extension() {
    let fixture = Fixture::new(&["probe", "waiter"]).await;
    let mut event = event(asked("CANCEL"));
    event.abandoned = vec![says(&"x".repeat(32 * 1024 * 1024)); 2];
    let cancel = CancellationToken::new();
    let verdict = patiently(fixture.host.session_before_tree(event, &cancel)).await;
    assert_eq!(verdict, unchanged(asked("CANCEL")));
    for _ in ["probe", "waiter"] {
        let report = fixture.report().await;
        let beginning = "session_before_tree: it is not asked: the messages have 671089";
        assert!(report.starts_with(beginning), "{report}");
        assert!(report.ends_with("; the limit is 67108864"), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_that_names_a_directory_wins() {
    let fixture = Fixture::new(&["probe", "waiter"]).await;
    let other = Fixture::new(&["waiter", "probe"]).await;
    for (cwd, expected, in_the_other_order) in [
        ("boat", None, None),
        ("DIRECTORY ~%own", Some("~/own"), Some("~/own")),
        ("WAITER", Some("of-waiter"), Some("of-waiter")),
        ("WAITER/DIRECTORY own", Some("of-waiter"), Some("own")),
        // No opinion is not a wish for the default.
        ("WAITER/SHOW", Some("of-waiter"), Some("of-waiter")),
    ] {
        assert_eq!(directory(&fixture, cwd).await, expected.map(PathBuf::from), "{cwd}");
        assert_eq!(directory(&other, cwd).await, in_the_other_order.map(PathBuf::from), "{cwd}");
    }
    assert_eq!(fixture.ui.probed().await["result"], json!({"cwd": "/projects/WAITER/SHOW"}));
    assert!(fixture.reports.0.is_empty() && other.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_not_acceptable_is_reported_and_counts_as_none() {
    let limits = Limits { event_budget: Duration::from_millis(300), ..Limits::default() };
    let setup = Setup { limits, ..Setup::default() };
    let fixture = Fixture::with(&["waiter", "spins", "probe"], setup).await;
    for (cwd, report) in [
        ("BLANK", "session_directory: the directory is blank"),
        ("LONG", "session_directory: the directory has 5000 bytes; the limit is 4096"),
        ("FAIL", "session_directory: probe fails on purpose"),
        ("SPIN", "session_directory: it used more than 300 ms of CPU time"),
    ] {
        let expected = Some(PathBuf::from("of-waiter"));
        assert_eq!(directory(&fixture, &format!("WAITER/{cwd}")).await, expected, "{cwd}");
        check_report(&fixture, report).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn start_up_waits_neither_for_people_nor_for_an_answer_that_never_comes() {
    let limits = Limits { cancel_grace: Duration::from_millis(300), ..Limits::default() };
    let fixture = Fixture::with(&["probe"], Setup { limits, ..Setup::default() }).await;
    assert_eq!(directory(&fixture, "ASK").await, None);
    assert_eq!(fixture.ui.notified().await, "directory: NoUi");
    assert!(fixture.ui.dialogs.is_empty() && fixture.reports.0.is_empty());

    assert_eq!(directory(&fixture, "HANG").await, None);
    assert_eq!(fixture.report().await, "session_directory: it did not answer within 300 ms");
    // The instance that holds on to the call is replaced, as after any cancelled one.
    assert_eq!(
        fixture.report().await,
        "session_directory: it did not return within 300 ms of being cancelled"
    );
    assert_eq!(directory(&fixture, "DIRECTORY own").await, Some(PathBuf::from("own")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_from_before_these_events_works() {
    let fixture = Fixture::new(&["older-api"]).await;
    for event in
        [HookEvent::SessionBeforeFork, HookEvent::SessionBeforeTree, HookEvent::SessionDirectory]
    {
        assert!(fixture.host.subscribes(event), "{}", event.name());
    }
    assert_eq!(fork(&fixture, "e1").await, ForkVerdict::Proceed);
    assert_eq!(tree(&fixture, asked("x")).await, unchanged(asked("x")));
    assert_eq!(directory(&fixture, "boat").await, None);
    fixture.host.notify(HookNotification::SessionFork { previous_session_file: None });
    assert_eq!(fixture.ui.notified().await, r#"session_fork {"previousSessionFile":null}"#);
    assert!(fixture.reports.0.is_empty());
}

/// An entry as a session has it.
fn an_entry() -> Arc<Entry> {
    let session = Session::in_memory(Path::new("/project"));
    session.append_custom("note", Some(json!({"z": 1, "a": 2})));
    session.entries().first().map(Arc::clone).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_and_moves_are_told_once_each_and_in_order() {
    let fixture = Fixture::new(&["probe", "older-api"]).await;
    let entry = an_entry();
    let told = [
        HookNotification::SessionFork { previous_session_file: Some("/s.jsonl".into()) },
        HookNotification::SessionTree {
            new_leaf_id: Some("new".into()),
            old_leaf_id: None,
            summary_entry: Some(Arc::clone(&entry)),
            from_extension: true,
        },
        HookNotification::SessionTree {
            new_leaf_id: None,
            old_leaf_id: Some("old".into()),
            summary_entry: None,
            from_extension: false,
        },
    ];
    for notification in told {
        fixture.host.notify(notification);
    }
    let entry = entry.json();
    for expected in [
        r#"session_fork {"previousSessionFile":"/s.jsonl"}"#.to_owned(),
        format!(
            r#"session_tree {{"newLeafId":"new","oldLeafId":null,"summaryEntry":{entry},"fromExtension":true}}"#
        ),
        r#"session_tree {"newLeafId":null,"oldLeafId":"old","fromExtension":false}"#.to_owned(),
    ] {
        assert_eq!(fixture.ui.notified().await, expected, "as an older component reads it");
    }

    fixture.host.notify(HookNotification::SessionShutdown);
    assert_eq!(fixture.ui.notified().await, "session_shutdown", "the last one has arrived");
    fixture.command("typed").await;
    let lines: Vec<String> = serde_json::from_str(&fixture.ui.notified().await).unwrap();
    assert_eq!(
        lines,
        [
            r#"fork Some("/s.jsonl")"#.to_owned(),
            format!(r#"tree None Some("new") Some({entry}) true"#),
            r#"tree Some("old") None None false"#.to_owned(),
        ]
    );
    fixture.command("counts").await;
    let counts: Value = fixture.ui.probed().await;
    assert_eq!(counts, json!({"session_fork": 1, "session_shutdown": 1, "session_tree": 2}));
    assert!(fixture.reports.0.is_empty());
}
