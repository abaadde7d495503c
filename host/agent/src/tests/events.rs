//! `context`, `user_bash` and `resources_discover`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use wharf_protocol::{Usage, UserMessage};

use super::fake::{FakeHooks, at_once, waiting};
use super::*;
use crate::hooks::{DiscoverReason, DiscoveredResources, UserBashEvent, UserBashVerdict};
use crate::host_api::HostApi;
use crate::queue::Queued;

fn user(text: &str) -> Arc<AgentMessage> {
    let UserMessage { content, timestamp } = Queued::user_message(text.to_owned(), Vec::new(), 1);
    Arc::new(AgentMessage::User(UserMessage { content, timestamp }))
}

#[tokio::test]
async fn context_changes_what_the_model_reads_and_not_the_session() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    let hooks = FakeHooks {
        context: at_once(move |messages: Vec<Arc<AgentMessage>>| {
            let list: Vec<String> = messages.iter().flat_map(|message| lines(message)).collect();
            note.lock().unwrap().push(list);
            vec![user("replaced")]
        }),
        ..FakeHooks::default()
    };
    // Each line answers only what the handler has made of the conversation.
    let script = [
        json!({"when": "^replaced$", "content": [{"type": "toolCall", "name": "ls", "arguments": {}}]}),
        json!({"when": "^replaced$", "content": [{"type": "text", "text": "done"}]}),
    ];
    let bench = Bench::new(&script, hooks);
    let custom = wharf_protocol::message::CustomMessage {
        custom_type: "note".to_owned(),
        content: wharf_protocol::UserContent::Text("of an extension".to_owned()),
        display: false,
        details: None,
        timestamp: 1,
    };
    bench.agent.send_message(custom, crate::host_api::Delivery::NextTurn, false).unwrap();
    bench.prompt("hello").await;
    let first = ["user:hello", "custom:of an extension"];
    let second = [&first[..], &["call:ls", "result:(empty directory)"]].concat();
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0], first);
    assert_eq!(seen[1][..3], second[..3]);
    assert_eq!(seen.len(), 2, "once for each request");
    let conversation = bench.conversation();
    assert_eq!(conversation[..2], first);
    assert_eq!(conversation.last().unwrap(), "assistant:done");
}

#[tokio::test]
async fn context_is_not_asked_for_summaries() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let hooks = FakeHooks {
        context: at_once(move |messages| {
            count.fetch_add(1, Ordering::SeqCst);
            messages
        }),
        ..FakeHooks::default()
    };
    let summary =
        json!({"for": "summary", "repeat": true, "content": [{"type": "text", "text": "short"}]});
    let mut long = says(&"long ".repeat(40_000));
    long["usage"] = serde_json::to_value(Usage::default()).unwrap();
    let bench = Bench::new(&[long, says("end"), summary], hooks);
    bench.prompt("one").await;
    bench.prompt(&"two ".repeat(40_000)).await;
    within(bench.agent.compact(None)).await.unwrap();
    assert!(bench.conversation()[0].starts_with("compacted:"), "{:?}", bench.conversation()[0]);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

/// What a handler says, and what is recorded and answered then.
async fn check_user_bash(
    verdict: Option<UserBashVerdict>,
    recorded: &str,
    answer: (&str, Option<i64>),
) {
    let hooks = FakeHooks {
        user_bash: verdict.and_then(|verdict| {
            at_once(move |event: UserBashEvent| {
                assert_eq!((&*event.command, event.exclude_from_context), ("echo one", true));
                verdict.clone()
            })
        }),
        ..FakeHooks::default()
    };
    let bench = Bench::new(&[], hooks);
    let result = within(bench.agent.run_user_bash("echo one".to_owned(), true)).await.unwrap();
    assert_eq!(bench.conversation(), [recorded]);
    assert_eq!((&*result.output, result.exit_code), answer);
    assert!(!result.cancelled);
    assert!(bench.agent.state().running_commands.is_empty());
}

#[tokio::test]
async fn user_bash_runs_wraps_or_answers() {
    let run = |command: &str| Some(UserBashVerdict::Run(command.to_owned()));
    let answer = |output: String, exit_code| Some(UserBashVerdict::Answer { output, exit_code });
    check_user_bash(None, "bash:echo one:one\n:Some(0)", ("one\n", Some(0))).await;
    check_user_bash(run("echo one"), "bash:echo one:one\n:Some(0)", ("one\n", Some(0))).await;
    // The person's own text stays.
    check_user_bash(run("echo two; exit 3"), "bash:echo one:two\n:Some(3)", ("two\n", Some(3)))
        .await;
    check_user_bash(
        answer("said".to_owned(), Some(7)),
        "bash:echo one:said:Some(7)",
        ("said", Some(7)),
    )
    .await;
    check_user_bash(answer("said".to_owned(), None), "bash:echo one:said:None", ("said", None))
        .await;
}

#[tokio::test]
async fn a_long_answer_is_cut_as_output_is() {
    let output = "line\n".repeat(100_000);
    let verdict = UserBashVerdict::Answer { output, exit_code: Some(0) };
    let hooks = FakeHooks { user_bash: at_once(move |_| verdict.clone()), ..FakeHooks::default() };
    let bench = Bench::new(&[], hooks);
    let result = within(bench.agent.run_user_bash("x".to_owned(), false)).await.unwrap();
    assert!(result.truncated && result.output.len() < 100_000);
    let full = result.full_output_path.unwrap();
    assert_eq!(fs::read(&full).unwrap().len(), 500_000);
    fs::remove_file(full).unwrap();
}

/// Both kinds of abort end the asking, and nothing runs.
#[tokio::test]
async fn an_abort_while_extensions_are_asked_cancels_the_command() {
    for abort in [Agent::abort as fn(&Agent), Agent::abort_user_bash] {
        for verdict in [
            UserBashVerdict::Run("echo ran".to_owned()),
            UserBashVerdict::Answer { output: "said".to_owned(), exit_code: Some(0) },
        ] {
            let asked = Arc::new(Notify::new());
            let told = Arc::clone(&asked);
            let hooks = FakeHooks {
                user_bash: waiting(move |_, cancel| {
                    told.notify_one();
                    let verdict = verdict.clone();
                    async move {
                        cancel.cancelled().await;
                        verdict
                    }
                }),
                ..FakeHooks::default()
            };
            let bench = Bench::new(&[], hooks);
            let running = tokio::spawn(bench.agent.run_user_bash("echo one".to_owned(), false));
            within(asked.notified()).await;
            abort(&bench.agent);
            let result = within(running).await.unwrap().unwrap();
            assert!(result.cancelled && result.exit_code.is_none());
            assert_eq!(bench.conversation(), ["bash:echo one::None"]);
        }
    }
}

#[tokio::test]
async fn an_abort_lets_a_command_go_on_that_runs() {
    let bench = Bench::new(&[], FakeHooks::default());
    let gate = bench.dir.path().join("gate");
    let started = bench.dir.path().join("started");
    let command = format!(
        "touch {}; until test -e {}; do sleep 0.01; done; echo end",
        started.display(),
        gate.display()
    );
    let running = bench.agent.run_user_bash(command, false);
    // Nobody is asked, so this is not for it either.
    bench.agent.abort();
    let running = tokio::spawn(running);
    within(async {
        while !started.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    bench.agent.abort();
    fs::write(gate, "").unwrap();
    let result = within(running).await.unwrap().unwrap();
    assert_eq!((&*result.output, result.cancelled), ("end\n", false));
}

fn discovering(skill_paths: Vec<PathBuf>) -> FakeHooks {
    FakeHooks {
        resources_discover: at_once(move |reason| {
            assert_eq!(reason, DiscoverReason::Startup);
            DiscoveredResources {
                skill_paths: skill_paths.clone(),
                prompt_paths: vec!["prompts".into()],
            }
        }),
        ..FakeHooks::default()
    }
}

#[tokio::test]
async fn extensions_add_skills_and_templates_and_messages_wait_for_them() {
    let hooks = discovering(vec!["skills".into(), "absent".into()]);
    hooks.is_loading.send_replace(true);
    let script = [
        json!({"when": "Make one: two", "content": [{"type": "text", "text": "template"}]}),
        json!({"when": "(?s)<skill name=\"own\".*Do it", "content": [{"type": "toolCall", "name": "skill", "arguments": {"skill": "own"}}]}),
        json!({"content": [{"type": "text", "text": "skill"}]}),
    ];
    let bench = Bench::new(&script, hooks);
    bench.file("work/skills/own/SKILL.md", "---\ndescription: d\n---\nDo it");
    bench.file("work/prompts/make.md", "Make $1: $2");
    assert!(!bench.agent.system_prompt().contains("<name>own</name>"));
    bench.agent.discover_resources();
    // Accepted at once, expanded when it is known what it names.
    bench.submit("/make one two");
    assert!(bench.conversation().is_empty());
    bench.hooks.is_loading.send_replace(false);
    within(bench.agent.wait_idle()).await;
    assert_eq!(bench.conversation(), ["user:Make one: two", "assistant:template"]);
    // The tool that reads skills is there from now on.
    bench.prompt("/skill:own").await;
    assert!(bench.results()[0].contains("Do it"), "{:?}", bench.results());
    assert!(bench.agent.system_prompt().contains("<name>own</name>"));
    let names: Vec<_> = HostApi::commands(&bench.agent).into_iter().map(|c| c.name).collect();
    assert_eq!(names, ["make", "skill:own"]);
    assert_eq!(bench.errors().len(), 1);
    assert!(bench.errors()[0].starts_with("resources_discover:"), "{:?}", bench.errors());
}

#[tokio::test]
async fn an_abort_ends_the_waiting_and_not_the_finding() {
    let gate = Arc::new(Notify::new());
    let open = Arc::clone(&gate);
    let hooks = FakeHooks {
        resources_discover: waiting(move |_, _| {
            let gate = Arc::clone(&gate);
            async move {
                gate.notified().await;
                DiscoveredResources { prompt_paths: vec!["p".into()], ..Default::default() }
            }
        }),
        ..FakeHooks::default()
    };
    let bench = Bench::new(&[says("a")], hooks);
    bench.file("work/p/late.md", "Late");
    bench.agent.discover_resources();
    assert!(!bench.agent.has_discovered());
    bench.agent.abort();
    within(bench.agent.ready()).await;
    bench.prompt("hello").await;
    open.notify_one();
    within(async {
        while bench.agent.resources().templates.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
