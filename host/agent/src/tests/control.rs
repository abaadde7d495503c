//! What commands may ask for: sessions, the tree, compaction, models, the end.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use tokio::sync::Notify;
use wharf_protocol::ThinkingLevel;

use super::fake::{FakeHooks, waiting};
use super::*;
use crate::NewSession;
use crate::hooks::{ExtensionCommand, SwitchReason, TreeOptions};
use crate::host_api::{CommandInfo, CommandSource, HostApi, HostApiError};

/// The ids of the user messages.
fn user_entries(bench: &Bench) -> Vec<String> {
    bench.agent.fork_messages().into_iter().map(|message| message.entry_id).collect()
}

#[tokio::test]
async fn a_failed_compaction_is_an_error_of_the_one_who_asked() {
    let bench = Bench::new(&[], FakeHooks::default());
    HostApi::compact(&bench.agent, PathBuf::from("/x.wasm"), None);
    within(async {
        while bench.errors().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let events = bench.outlet.events();
    let Event::ExtensionError { extension_path, event, .. } = events[0].as_ref() else {
        panic!("{events:?}");
    };
    assert_eq!((&**extension_path, &**event), ("/x.wasm", "compact"));
}

#[tokio::test]
async fn a_compaction_goes_on_by_itself() {
    let summary = json!({"for": "summary", "repeat": true, "when": "look at x", "content": [{"type": "text", "text": "short"}]});
    let bench = Bench::new(&[says("a"), says("b"), summary], FakeHooks::default());
    bench.prompt(&"one ".repeat(40_000)).await;
    bench.prompt(&"two ".repeat(40_000)).await;
    let api: &dyn HostApi = &bench.agent;
    api.compact(PathBuf::from("/x.wasm"), Some("look at x".to_owned()));
    assert!(bench.agent.snapshot().is_compacting, "it is under way at once");
    within(async {
        while bench.agent.snapshot().is_compacting {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(bench.errors(), [""; 0]);
    assert!(bench.conversation()[0].starts_with("compacted:short"));
    // Part of it is a number again only when a reply reports.
    assert_eq!(api.context_usage().map(|usage| usage.tokens), Some(None));
}

#[tokio::test]
async fn shutdown_is_asked_of_the_front_end() {
    let bench = Bench::new(&[], FakeHooks::default());
    assert!(!bench.outlet.shutdown_requested.load(Ordering::SeqCst));
    HostApi::shutdown(&bench.agent);
    assert!(bench.outlet.shutdown_requested.load(Ordering::SeqCst));
}

#[tokio::test]
async fn sessions_are_made_forked_and_walked() {
    let bench = Bench::new(&[says("a"), says("b")], FakeHooks::default());
    let api: &dyn HostApi = &bench.agent;
    bench.prompt("one").await;
    bench.prompt("two").await;
    let entries = user_entries(&bench);
    let no_entry = within(api.navigate_tree("nope".to_owned(), TreeOptions::default())).await;
    assert!(matches!(no_entry, Err(HostApiError::Invalid(_))), "{no_entry:?}");
    let no_fork = within(api.fork("nope".to_owned())).await;
    assert!(matches!(no_fork, Err(HostApiError::Invalid(_))), "{no_fork:?}");

    let moved = within(api.navigate_tree(entries[1].clone(), TreeOptions::default())).await;
    assert_eq!(moved.unwrap().editor_text.as_deref(), Some("two"));
    assert_eq!(bench.conversation(), ["user:one", "assistant:a"]);

    let before = bench.agent.session().id().to_owned();
    let forked = within(api.fork(entries[1].clone())).await.unwrap();
    assert_eq!((&*forked.text, forked.cancelled), ("two", false));
    assert_ne!(bench.agent.session().id(), before);
    assert_eq!(bench.conversation(), ["user:one", "assistant:a"]);

    assert!(!within(api.new_session_with(Some("/parent.jsonl".to_owned()))).await.unwrap());
    assert!(bench.conversation().is_empty());
    let header = serde_json::to_value(bench.agent.session().header()).unwrap();
    assert_eq!(header["parentSession"], "/parent.jsonl");
}

#[tokio::test]
async fn the_tree_cannot_be_walked_during_a_run() {
    let slow = json!({"delayMs": 5, "chunkChars": 1, "content": [{"type": "text", "text": "x".repeat(100_000)}]});
    let bench = Bench::new(&[slow], FakeHooks::default());
    bench.submit("one");
    let moved =
        within(HostApi::navigate_tree(&bench.agent, "x".to_owned(), TreeOptions::default()));
    assert!(matches!(moved.await, Err(HostApiError::Failed(text)) if text.contains("streaming")));
    bench.agent.abort();
    within(bench.agent.wait_idle()).await;
}

/// A program's own `new_session` waits for an extension's dialog; meanwhile a command asks
/// for everything that `control` has. Each gets its turn when the dialog is answered, in
/// any order in which the commands ask.
#[tokio::test]
async fn commands_get_their_turn_after_a_switch_that_waits() {
    for answer in [false, true] {
        let (asked, answered) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (told, gate) = (Arc::clone(&asked), Arc::clone(&answered));
        let first = Arc::new(Mutex::new(true));
        let hooks = FakeHooks {
            before_switch: waiting(move |reason, _| {
                assert_eq!(reason, SwitchReason::New);
                let waits = std::mem::take(&mut *first.lock().unwrap());
                let (told, gate) = (Arc::clone(&told), Arc::clone(&gate));
                async move {
                    if waits {
                        told.notify_one();
                        gate.notified().await;
                    }
                    waits && answer
                }
            }),
            ..FakeHooks::default()
        };
        let bench = Bench::new(&[says("a")], hooks);
        bench.prompt("one").await;
        let entry = user_entries(&bench).remove(0);
        let agent = bench.agent.clone();
        let of_client = tokio::spawn(async move { agent.new_session(NewSession::default()).await });
        within(asked.notified()).await;
        let api: &dyn HostApi = &bench.agent;
        let (of_command, parented) =
            (api.new_session(), api.new_session_with(Some("/p".to_owned())));
        let (forked, moved) =
            (api.fork(entry.clone()), api.navigate_tree(entry, TreeOptions::default()));
        let (reloaded, idle) = (api.reload(), api.wait_for_idle());
        // These need no session to be theirs.
        within(idle).await;
        within(reloaded).await.unwrap();
        assert!(!within(moved).await.unwrap().cancelled);
        answered.notify_one();
        assert_eq!(within(of_client).await.unwrap(), answer);
        assert!(!within(of_command).await.unwrap());
        assert!(!within(parented).await.unwrap());
        // Its message belongs to a session that has been left.
        assert!(matches!(within(forked).await, Err(HostApiError::Invalid(_))));
    }
}

#[tokio::test]
async fn commands_of_all_kinds_are_listed() {
    let mut hooks = FakeHooks::default();
    for (name, description) in [("own", ""), ("other:1", "Does it.")] {
        hooks.commands.push(ExtensionCommand {
            name: name.to_owned(),
            description: description.to_owned(),
            argument_hint: None,
            extension_path: PathBuf::from("/x.wasm"),
        });
    }
    let bench = Bench::new(&[], hooks);
    bench.file("agent/prompts/make.md", "Makes it.");
    bench.file("agent/skills/s/SKILL.md", "---\ndescription: d\n---\n");
    bench.file("agent/skills/h/SKILL.md", "---\ndescription: d\nuser-invocable: false\n---\n");
    within(HostApi::reload(&bench.agent)).await.unwrap();
    let info = |name: &str, description: Option<&str>, source| CommandInfo {
        name: name.to_owned(),
        description: description.map(str::to_owned),
        source,
    };
    assert_eq!(
        HostApi::commands(&bench.agent),
        [
            info("own", None, CommandSource::Extension),
            info("other:1", Some("Does it."), CommandSource::Extension),
            info("make", Some("Makes it."), CommandSource::Prompt),
            info("skill:s", Some("d"), CommandSource::Skill),
        ]
    );
}

#[tokio::test]
async fn models_are_found_and_set() {
    let bench = Bench::new(&[], FakeHooks::default());
    let api: &dyn HostApi = &bench.agent;
    let models_file = bench.file(
        "models.json",
        r#"{"providers": {"p": {"baseUrl": "http://127.0.0.1:1/v1", "api": "openai-completions", "apiKey": "k",
            "models": [{"id": "big", "reasoning": true}, {"id": "small"}]}}}"#,
    );
    assert_eq!(bench.agent.registry().load_models_file(&models_file).len(), 0);
    let names = |pattern: &str| -> Vec<String> {
        let models = api.find_models(pattern);
        models.into_iter().map(|model| format!("{}/{}", model.provider, model.id)).collect()
    };
    assert_eq!(names("p/big"), ["p/big"]);
    assert_eq!(names("big:high"), ["p/big"]);
    assert_eq!(names("there is no such model"), [""; 0]);
    for all in ["", " "] {
        assert!(names(all).contains(&"p/small".to_owned()), "{:?}", names(all));
    }
    let no_key = bench.agent.registry().list(Some("anthropic/")).remove(0);
    assert!(!names("").iter().any(|name| name.starts_with("anthropic/")));

    assert_eq!(api.set_model("p", "big").unwrap().id, "big");
    assert_eq!(api.model().unwrap().id, "big");
    assert_eq!(api.set_thinking_level(ThinkingLevel::High), ThinkingLevel::High);
    assert!(matches!(api.set_model("p", "nope"), Err(HostApiError::Invalid(_))));
    let refused = api.set_model(&no_key.provider, &no_key.id);
    assert!(matches!(refused, Err(HostApiError::Failed(_))), "{refused:?}");
    assert_eq!(api.model().unwrap().id, "big", "a refusal changes nothing");
    // A model that does not reason has one level.
    api.set_model("p", "small").unwrap();
    assert_eq!(api.thinking_level(), ThinkingLevel::Off);
    assert_eq!(api.set_thinking_level(ThinkingLevel::Low), ThinkingLevel::Off);
}
