//! `reload`: what it takes up, what it keeps, how it ends.

use std::sync::Mutex;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::fake::{FakeHooks, at_once, waiting};
use super::*;
use crate::hooks::{DiscoverReason, DiscoveredResources, ReloadedExtension};
use crate::host_api::{HostApi, HostApiError};

fn reloaded(error: Option<&str>) -> Vec<ReloadedExtension> {
    vec![ReloadedExtension {
        id: "x".to_owned(),
        path: PathBuf::from("/x.wasm"),
        old_version: Some("1".to_owned()),
        new_version: Some("2".to_owned()),
        changed: true,
        error: error.map(str::to_owned),
    }]
}

fn write_second_state(bench: &Bench) {
    bench.file(
        "agent/settings.json",
        r#"{"retry": {"enabled": false}, "shellCommandPrefix": "echo prefix", "skills": ["absent"]}"#,
    );
    bench.file("agent/skills/new/SKILL.md", "---\ndescription: d\n---\n");
    bench.file("agent/prompts/new.md", "text");
    bench.file("agent/AGENTS.md", "Be kind.");
    bench.file("work/more/found.md", "text");
}

#[tokio::test]
async fn files_are_read_again_and_the_conversation_stays() {
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&reasons);
    let hooks = FakeHooks {
        reload: at_once(|()| Ok(reloaded(None))),
        resources_discover: at_once(move |reason| {
            note.lock().unwrap().push(reason);
            DiscoveredResources { prompt_paths: vec!["more".into()], ..Default::default() }
        }),
        ..FakeHooks::default()
    };
    let bench = Bench::new(&[says("a")], hooks);
    bench.file("work/more/found.md", "text");
    bench.agent.discover_resources();
    within(bench.agent.ready()).await;
    bench.prompt("hello").await;
    let (session, model) = (bench.agent.session().id().to_owned(), bench.agent.model());
    write_second_state(&bench);
    let _kept = bench.agent.set_auto_compaction(false);
    assert_eq!(HostApi::reload(&bench.agent).await.unwrap(), reloaded(None));
    let resources = bench.agent.resources();
    let templates: Vec<_> = resources.templates.iter().map(|t| &*t.name).collect();
    assert_eq!(templates, ["new", "found"]);
    assert_eq!(resources.skills.len(), 1);
    assert!(HostApi::system_prompt(&bench.agent).contains("Be kind."));
    assert!(HostApi::active_tools(&bench.agent).contains(&"skill".to_owned()));
    let ran = within(bench.agent.run_user_bash("echo one".to_owned(), false)).await.unwrap();
    assert_eq!(ran.output, "prefix\none\n");
    {
        let state = bench.agent.state();
        assert!(!state.auto_retry, "the file says something else than it did");
        assert!(!state.auto_compaction, "the file says what it said");
        assert!(state.reloads.is_empty());
    }
    assert_eq!(bench.agent.session().id(), session);
    assert_eq!(bench.agent.model(), model);
    assert_eq!(bench.conversation()[..2], ["user:hello", "assistant:a"]);
    let problems = bench.errors();
    assert!(matches!(&problems[..], [one] if one.starts_with("reload:")), "{problems:?}");
    assert_eq!(*reasons.lock().unwrap(), [DiscoverReason::Startup, DiscoverReason::Reload]);
}

#[tokio::test]
async fn a_failed_reload_changes_nothing() {
    let hooks = FakeHooks {
        reload: at_once(|()| Err("no such folder".to_owned())),
        ..FakeHooks::default()
    };
    let bench = Bench::new(&[], hooks);
    write_second_state(&bench);
    let error = within(HostApi::reload(&bench.agent)).await.unwrap_err();
    assert_eq!(error, HostApiError::Failed("no such folder".to_owned()));
    assert!(bench.agent.resources().templates.is_empty());
    assert!(bench.agent.state().auto_retry);
}

/// By `abort`, and by the caller's own token: also of one that waits behind another.
#[tokio::test]
async fn a_reload_can_be_cancelled() {
    for by_abort in [true, false] {
        let begun = Arc::new(Notify::new());
        let note = Arc::clone(&begun);
        let hooks = FakeHooks {
            reload: waiting(move |(), cancel| {
                note.notify_one();
                async move {
                    cancel.cancelled().await;
                    Err("cancelled by the host".to_owned())
                }
            }),
            ..FakeHooks::default()
        };
        let bench = Bench::new(&[], hooks);
        write_second_state(&bench);
        let cancel = CancellationToken::new();
        let first = tokio::spawn(bench.agent.reload(cancel.clone()));
        let second = tokio::spawn(bench.agent.reload(cancel.clone()));
        within(begun.notified()).await;
        // A switch is none of its business.
        within(bench.agent.new_session(crate::NewSession::default())).await;
        assert!(!first.is_finished());
        if by_abort {
            bench.agent.abort();
        } else {
            cancel.cancel();
        }
        assert_eq!(within(first).await.unwrap(), Err("cancelled by the host".to_owned()));
        assert_eq!(within(second).await.unwrap(), Err("Reload cancelled".to_owned()));
        assert!(bench.agent.resources().templates.is_empty());
        assert!(bench.agent.state().reloads.is_empty());
    }
}

/// The extensions are the new ones already: only what they would add is left out.
#[tokio::test]
async fn an_abort_while_resources_are_found_keeps_the_rest() {
    let begun = Arc::new(Notify::new());
    let note = Arc::clone(&begun);
    let hooks = FakeHooks {
        resources_discover: waiting(move |_, _| {
            note.notify_one();
            std::future::pending()
        }),
        ..FakeHooks::default()
    };
    let bench = Bench::new(&[], hooks);
    write_second_state(&bench);
    let running = tokio::spawn(bench.agent.reload(CancellationToken::new()));
    within(begun.notified()).await;
    bench.agent.abort();
    assert_eq!(within(running).await.unwrap(), Ok(Vec::new()));
    assert_eq!(bench.agent.resources().templates.len(), 1);
}

/// What an instance asked for goes on when the instance is gone.
#[tokio::test]
async fn a_reload_outlives_its_caller() {
    let gate = Arc::new(Notify::new());
    let open = Arc::clone(&gate);
    let hooks = FakeHooks {
        reload: waiting(move |(), _| {
            let gate = Arc::clone(&gate);
            async move {
                gate.notified().await;
                Ok(reloaded(Some("it is broken")))
            }
        }),
        ..FakeHooks::default()
    };
    let bench = Bench::new(&[], hooks);
    write_second_state(&bench);
    drop(HostApi::reload(&bench.agent));
    open.notify_one();
    within(async {
        while bench.agent.resources().templates.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
