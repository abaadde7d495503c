//! Sessions from creation to reopening.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use wharf_protocol::{AgentMessage, ThinkingLevel};
use wharf_session::{
    BranchSummaryEntry, CompactionEntry, ContextMessage, CustomMessageEntry, Entry, EntryKind,
    FORMAT_VERSION, MessageRole, OpenError, Session, SessionDir, SessionOptions, WriteError,
};

const HEADER: &str =
    r#"{"type":"session","version":3,"id":"u","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/x"}"#;

fn user(text: &str) -> Arc<AgentMessage> {
    let json = serde_json::json!({"role": "user", "content": text, "timestamp": 1});
    Arc::new(serde_json::from_value(json).unwrap())
}

fn assistant(model: &str) -> Arc<AgentMessage> {
    let json = serde_json::json!({
        "role": "assistant", "content": [], "provider": "p", "model": model, "stopReason": "stop",
    });
    Arc::new(serde_json::from_value(json).unwrap())
}

fn new_session(dir: &TempDir) -> Session {
    let dir = SessionDir::Nested(dir.path().join("sessions"));
    Session::create(&dir, Path::new("/home/me/project"), SessionOptions::default())
}

fn lines(entries: &[Arc<Entry>]) -> Vec<String> {
    entries.iter().map(|entry| entry.json().to_owned()).collect()
}

fn texts(session: &Session) -> Vec<String> {
    let text = |message: &ContextMessage| match message.get().unwrap().as_ref() {
        AgentMessage::User(m) => m.content.to_text(),
        AgentMessage::Custom(m) => m.content.to_text(),
        AgentMessage::Assistant(m) => m.model.clone(),
        AgentMessage::BranchSummary(m) => format!("branch:{}", m.summary),
        AgentMessage::CompactionSummary(m) => format!("compaction:{}", m.summary),
        AgentMessage::ToolResult(_) | AgentMessage::BashExecution(_) => "other".to_owned(),
    };
    session.build_context().messages.iter().map(text).collect()
}

#[tokio::test]
async fn no_file_before_the_first_message() {
    let dir = TempDir::new().unwrap();
    let session = new_session(&dir);
    session.append_model_change("p", "m").1.await.unwrap();
    session.append_session_info("  Refactor  ").1.await.unwrap();
    session.flush().await.unwrap();
    assert!(!dir.path().join("sessions").exists());

    session.append_message(user("hi")).1.await.unwrap();
    let file = session.file().unwrap().to_owned();
    let folder = file.parent().unwrap();
    assert_eq!(folder, dir.path().join("sessions/--home-me-project--"));
    let time = session.header().timestamp.to_string().replace([':', '.'], "-");
    assert_eq!(
        file.file_name().unwrap().to_str(),
        Some(&*format!("{time}_{}.jsonl", session.id()))
    );

    let text = fs::read_to_string(&file).unwrap();
    let written: Vec<&str> = text.lines().collect();
    assert_eq!(
        written[0],
        format!(
            r#"{{"type":"session","version":{FORMAT_VERSION},"id":"{}","timestamp":"{}","cwd":"/home/me/project"}}"#,
            session.id(),
            session.header().timestamp
        )
    );
    assert_eq!(written[1..], lines(&session.entries()));
    assert!(text.ends_with('\n'));

    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(folder), 0o700);
    }
    drop(session);

    let session = Session::open(&file).unwrap();
    assert!(session.warnings().is_empty());
    assert_eq!(session.name().as_deref(), Some("Refactor"));
    assert_eq!(lines(&session.entries()), written[1..]);
    session.append_session_info("").1.await.unwrap();
    assert_eq!(session.name(), None);
}

#[test]
fn a_session_that_says_nothing_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    drop(new_session(&dir).append_custom("x", None));
    assert!(!dir.path().join("sessions").exists());
}

#[tokio::test]
async fn in_memory_receipts_resolve_at_once() {
    let session = Session::in_memory(Path::new("/x"));
    assert_eq!(session.file(), None);
    let (id, receipt) = session.append_message(user("hi"));
    receipt.await.unwrap();
    session.flush().await.unwrap();
    assert_eq!(session.leaf_id(), Some(id));
    assert_eq!(texts(&session), ["hi"]);
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_named() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let blocked = SessionDir::Flat(dir.path().join("file/sub"));
    let session = Session::create(&blocked, Path::new("/x"), SessionOptions::default());
    let error = session.append_message(user("a")).1.await.unwrap_err();
    assert!(matches!(&error, WriteError::Io { path, .. } if Some(&**path) == session.file()));
    assert!(session.flush().await.is_err());

    // Once it can be written, nothing is missing.
    fs::remove_file(dir.path().join("file")).unwrap();
    session.append_message(user("b")).1.await.unwrap();
    let file = session.file().unwrap().to_owned();
    let entries = lines(&session.entries());
    drop(session);
    assert_eq!(lines(&Session::open(&file).unwrap().entries()), entries);
}

#[test]
fn a_missing_file_is_an_error_and_stays_missing() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("sub/none.jsonl");
    let error = Session::open(&path).unwrap_err();
    assert!(matches!(error, OpenError::NotFound { .. }));
    assert!(error.to_string().contains("sub/none.jsonl"));
    assert!(!dir.path().join("sub").exists());
}

#[test]
fn the_most_recent_session_of_a_directory_goes_on() {
    let dir = TempDir::new().unwrap();
    for store in [
        SessionDir::Flat(dir.path().join("flat")),
        // `/a/b` and `/a-b` share a folder here.
        SessionDir::Nested(dir.path().join("nested")),
    ] {
        let (here, there) = (Path::new("/a/b"), Path::new("/a-b"));
        let fresh = Session::continue_recent(&store, here).unwrap();
        assert_eq!(fresh.entry_count(), 0);
        assert_eq!(fresh.cwd(), here);
        let mut files = Vec::new();
        for (age, cwd) in [(30, here), (20, here), (10, there)] {
            let session = Session::create(&store, cwd, SessionOptions::default());
            drop(session.append_message(user("hi")));
            let path = session.file().unwrap().to_owned();
            drop(session);
            let time = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
            fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
            files.push(path);
        }
        fs::write(store.folder(here).join("notes.jsonl"), "no session").unwrap();
        let session = Session::continue_recent(&store, here).unwrap();
        assert_eq!(session.file(), Some(&*files[1]));
        assert_eq!(session.message_count(), 1);
    }
}

#[test]
fn contexts() {
    let session = Session::in_memory(Path::new("/x"));
    let (first, _) = session.append_message(user("one"));
    drop(session.append_message(assistant("m1")));
    drop(session.append_custom("state", Some(serde_json::json!(1))));
    drop(session.append_custom_message(CustomMessageEntry {
        custom_type: "x".to_owned(),
        content: wharf_protocol::UserContent::Text("injected".to_owned()),
        display: false,
        details: None,
    }));
    let (kept, _) = session.append_message(user("two"));
    drop(session.append_thinking_level_change(ThinkingLevel::High));
    assert_eq!(texts(&session), ["one", "m1", "injected", "two"]);
    let context = session.build_context();
    assert_eq!(context.model.unwrap().id, "m1");
    assert_eq!(context.thinking_level, Some(ThinkingLevel::High));

    let compaction = |kept: &str| CompactionEntry {
        summary: "s".to_owned(),
        first_kept_entry_id: kept.to_owned(),
        tokens_before: 9,
        details: None,
        from_hook: None,
    };
    drop(session.append_compaction(compaction("nothing")));
    drop(session.append_message(user("three")));
    assert_eq!(texts(&session), ["compaction:s", "three"]);
    drop(session.append_compaction(compaction(kept.as_str())));
    let (end, _) = session.append_message(user("four"));
    assert_eq!(texts(&session), ["compaction:s", "two", "three", "four"]);

    drop(session.append_model_change("q", "m2"));
    assert_eq!(session.build_context().model.unwrap().id, "m2");

    let summary = BranchSummaryEntry {
        from_id: end.to_string(),
        summary: "left".to_owned(),
        details: None,
        from_hook: Some(true),
    };
    drop(session.append_branch_summary(Some(first.as_str()), summary).unwrap());
    assert_eq!(texts(&session), ["one", "branch:left"]);
    assert_eq!(session.build_context().model, None);
    assert_eq!(session.build_context_to(end.as_str()).unwrap().messages.len(), 4);

    session.set_leaf(None).unwrap();
    assert_eq!(texts(&session), [""; 0]);
    let (root, _) = session.append_message(user("anew"));
    assert_eq!(session.entry(root.as_str()).unwrap().parent_id(), None);
    assert_eq!(texts(&session), ["anew"]);
}

#[test]
fn labels() {
    let session = Session::in_memory(Path::new("/x"));
    let (id, _) = session.append_message(user("one"));
    drop(session.append_label(id.as_str(), Some("here")).unwrap());
    assert_eq!(session.label(id.as_str()).as_deref(), Some("here"));
    assert_eq!(session.tree()[0].label.as_deref(), Some("here"));
    drop(session.append_label(id.as_str(), None).unwrap());
    assert_eq!(session.label(id.as_str()), None);
    let error = session.append_label("nobody", Some("x")).unwrap_err();
    assert_eq!(error.to_string(), "entry nobody not found");
    assert!(session.set_leaf(Some("nobody")).is_err());
    assert!(session.branch_to("nobody").is_err());
    assert_eq!(session.entry_count(), 3);
}

#[test]
fn threads_append_to_one_chain() {
    const THREADS: usize = 8;
    const EACH: usize = 200;
    let dir = TempDir::new().unwrap();
    let session = new_session(&dir);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let session = session.clone();
            scope.spawn(move || {
                for n in 0..EACH {
                    drop(session.append_message(user(&format!("{thread}/{n}"))));
                    assert!(session.branch().len() > n);
                }
            });
        }
    });
    let file = session.file().unwrap().to_owned();
    let entries = session.entries();
    drop(session);

    let ids: HashSet<&str> = entries.iter().map(|entry| entry.id().as_str()).collect();
    let times: HashSet<_> = entries.iter().map(|entry| entry.timestamp()).collect();
    assert_eq!((ids.len(), times.len()), (THREADS * EACH, THREADS * EACH));
    for pair in entries.windows(2) {
        assert_eq!(pair[1].parent_id(), Some(pair[0].id()));
        assert!(pair[0].timestamp() < pair[1].timestamp());
    }
    let reopened = Session::open(&file).unwrap();
    assert!(reopened.warnings().is_empty());
    assert_eq!(lines(&reopened.entries()), lines(&entries));
}

#[tokio::test]
async fn receipts_can_be_awaited_by_other_tasks() {
    let dir = TempDir::new().unwrap();
    let session = new_session(&dir);
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let session = session.clone();
            tokio::spawn(async move {
                let (id, receipt) = session.append_message(user(&n.to_string()));
                receipt.await.unwrap();
                // What was announced as written is in the file.
                let text = fs::read_to_string(session.file().unwrap()).unwrap();
                assert!(text.contains(&format!(r#""id":"{id}""#)));
                session.flush().await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(session.message_count(), 50);
}

#[test]
fn entries_are_after_those_of_the_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.jsonl");
    let header = r#"{"type":"session","version":3,"id":"u","timestamp":"2100-01-01T00:00:00.000Z","cwd":"/x"}"#;
    let last = r#"{"type":"custom","id":"a","parentId":null,"timestamp":"2100-01-01T00:00:00.999Z","customType":"x"}"#;
    fs::write(&path, format!("{header}\n{last}\n")).unwrap();
    let session = Session::open(&path).unwrap();
    let (id, _) = session.append_message(user("hi"));
    let entry = session.entry(id.as_str()).unwrap();
    assert_eq!(entry.timestamp().to_string(), "2100-01-01T00:00:01.000Z");
    assert!(matches!(entry.kind(), EntryKind::Message(_)));
}

#[test]
fn a_long_chain_is_walked() {
    // A recursion would overflow its stack with either; the longer one takes its time
    // where nothing is optimised.
    const LENGTH: usize = if cfg!(debug_assertions) { 200_000 } else { 1_000_000 };
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.jsonl");
    let mut text = HEADER.to_owned();
    let mut parent = "null".to_owned();
    for n in 0..LENGTH {
        let message = r#"{"role":"user"}"#;
        text.push_str(&format!(
            "\n{{\"type\":\"message\",\"id\":\"{n:x}\",\"parentId\":{parent},\"message\":{message}}}"
        ));
        parent = format!("\"{n:x}\"");
    }
    text.push('\n');
    fs::write(&path, text).unwrap();
    let session = Session::open(&path).unwrap();
    assert!(session.warnings().is_empty());
    let last = format!("{:x}", LENGTH - 1);
    assert_eq!(session.branch().len(), LENGTH);
    assert_eq!(session.tree().len(), LENGTH);
    assert_eq!(session.build_context().messages.len(), LENGTH);
    let end = format!("{}],\"leafId\":\"{last}\"}}", "]}".repeat(LENGTH));
    assert!(session.tree_json().ends_with(&end));
    // What is added goes on behind what the file has.
    let (id, _) = session.append_message(user("more"));
    let children = session.children(Some(&last));
    assert_eq!((children.len(), children[0].id()), (1, &id));
    assert!(session.children(Some("nobody")).is_empty());
}

#[test]
fn children_are_listed_oldest_first() {
    let session = Session::in_memory(Path::new("/x"));
    assert!(session.children(None).is_empty() && session.leaf_entry().is_none());
    assert_eq!(session.tree_json(), r#"{"roots":[],"leafId":null}"#);
    let ids = |session: &Session, parent: Option<&str>| -> Vec<String> {
        session.children(parent).iter().map(|entry| entry.id().to_string()).collect()
    };
    let (root, _) = session.append_message(user("root"));
    let mut expect = Vec::new();
    for n in 0..3 {
        session.set_leaf(Some(root.as_str())).unwrap();
        expect.push(session.append_message(user(&n.to_string())).0.to_string());
        assert_eq!(ids(&session, Some(root.as_str())), expect);
    }
    session.set_leaf(None).unwrap();
    let (second, _) = session.append_message(user("another root"));
    assert_eq!(ids(&session, None), [root.to_string(), second.to_string()]);
    let leaf = session.leaf_entry().unwrap();
    assert_eq!((leaf.id(), leaf.role()), (&second, Some(MessageRole::User)));

    // By time, where a file has them in another order.
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.jsonl");
    let line = |id: &str, parent: &str, second: u32| {
        format!(
            r#"{{"type":"custom","id":"{id}","parentId":{parent},"timestamp":"2024-12-03T14:00:0{second}.000Z","customType":"x"}}"#
        )
    };
    let lines = [line("a", "null", 1), line("c", "\"a\"", 3), line("b", "\"a\"", 2)];
    fs::write(&path, format!("{HEADER}\n{}\n", lines.join("\n"))).unwrap();
    let session = Session::open(&path).unwrap();
    assert_eq!(ids(&session, Some("a")), ["b", "c"]);
    let json = session.tree_json();
    assert!(json.find(r#""id":"b""#) < json.find(r#""id":"c""#), "{json}");
}
