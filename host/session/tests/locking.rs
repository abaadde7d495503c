//! Two processes and one session file.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::{Child, ask, user};
use tempfile::TempDir;
use wharf_session::{LockError, OpenError, Session, SessionDir, SessionOptions, WriteError};

/// A session with one message, and its file.
fn make(dir: &Path) -> PathBuf {
    let store = SessionDir::Flat(dir.to_owned());
    let session = Session::create(&store, Path::new("/x"), SessionOptions::default());
    drop(session.append_message(user("first")));
    session.file().unwrap().to_owned()
}

fn lock_file(path: &Path) -> PathBuf {
    path.with_extension("jsonl.lock")
}

fn texts(path: &Path) -> Vec<String> {
    let session = Session::open(path).unwrap();
    assert!(session.warnings().is_empty(), "{:?}", session.warnings());
    session
        .build_context()
        .messages
        .iter()
        .map(|message| match &**message.get().unwrap() {
            wharf_protocol::AgentMessage::User(message) => message.content.to_text(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn child() {
    if let Some(file) = support::task() {
        support::obey(Path::new(&file));
    }
}

fn child_of(path: &Path) -> Child {
    Child::start(path.to_str().unwrap())
}

#[tokio::test]
async fn the_second_is_told_who_has_it_and_goes_on_when_that_one_is_gone() {
    let dir = TempDir::new().unwrap();
    let path = make(dir.path());
    let reader = Session::open(&path).unwrap();
    assert_eq!(Session::owner(&path), None);

    let mut child = child_of(&path);
    ask(&mut child, "open");
    assert_eq!(Session::owner(&path), Some(child.pid()));
    ask(&mut child, "append theirs");

    let who = format!("is in use by process {}; end that one", child.pid());
    let error = Session::open_to_write(&path).unwrap_err();
    assert!(matches!(&error, OpenError::Lock(LockError::InUse { .. })), "{error}");
    for text in [
        error.to_string(),
        reader.claim().unwrap_err().to_string(),
        reader.append_message(user("mine")).1.await.unwrap_err().to_string(),
    ] {
        let needles = [&*who, path.to_str().unwrap(), "(--fork, or fork: true)"];
        assert!(needles.iter().all(|needle| text.contains(needle)), "{text}");
    }
    assert!(matches!(reader.flush().await, Err(WriteError::InUse { .. })));
    // Reading is free, and asking leaves the owner in peace.
    assert_eq!(texts(&path), ["first", "theirs"]);
    assert_eq!(Session::owner(&path), Some(child.pid()));
    ask(&mut child, "append more");

    child.kill();
    assert!(lock_file(&path).exists(), "it was killed");
    assert_eq!(Session::owner(&path), None);
    reader.flush().await.unwrap();
    drop(reader);
    assert!(!lock_file(&path).exists());
    // Nothing is lost: the two are branches now.
    let session = Session::open(&path).unwrap();
    assert!(session.warnings().is_empty());
    assert_eq!(session.message_count(), 4);
    assert_eq!(texts(&path), ["first", "mine"]);
}

#[tokio::test]
async fn it_is_free_when_the_owner_closes_the_session() {
    let dir = TempDir::new().unwrap();
    let path = make(dir.path());
    let mut child = child_of(&path);
    ask(&mut child, "open");
    ask(&mut child, "close");
    let session = Session::open_to_write(&path).unwrap();
    child.tell("open");
    let text = child.hear().unwrap();
    assert!(text.contains(&format!("process {};", std::process::id())), "{text}");
    session.append_message(user("mine")).1.await.unwrap();
    drop(session);
    ask(&mut child, "open");
    ask(&mut child, "append theirs");
    ask(&mut child, "close");
    assert_eq!(texts(&path), ["first", "mine", "theirs"]);
    assert!(!lock_file(&path).exists());
}

#[tokio::test]
async fn a_first_append_takes_the_lock_and_reading_does_not() {
    let dir = TempDir::new().unwrap();
    let store = SessionDir::Flat(dir.path().to_owned());
    let session = Session::create(&store, Path::new("/x"), SessionOptions::default());
    session.claim().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    session.append_message(user("first")).1.await.unwrap();
    let path = session.file().unwrap();
    assert_eq!(Session::owner(path), Some(std::process::id()));
    let mut child = child_of(path);
    child.tell("open");
    assert!(child.hear().unwrap().contains("is in use by process"));

    // The same process may have it twice.
    let again = Session::open_to_write(path).unwrap();
    let path = path.to_owned();
    drop(session);
    assert_eq!(Session::owner(&path), Some(std::process::id()));
    again.append_message(user("second")).1.await.unwrap();
    drop(again);
    assert_eq!(Session::owner(&path), None);

    let reader = Session::open(&path).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    drop(reader);
    assert_eq!(texts(&path), ["first", "second"]);
}

#[test]
fn a_file_that_changed_since_it_was_read_is_not_claimed() {
    let dir = TempDir::new().unwrap();
    let path = make(dir.path());
    let stale = Session::open(&path).unwrap();
    let mut child = child_of(&path);
    ask(&mut child, "open");
    ask(&mut child, "append theirs");
    ask(&mut child, "close");
    let error = stale.claim().unwrap_err();
    assert_eq!(error, LockError::Changed { path: path.clone() });
    assert!(error.to_string().contains("open it again"));
    // The lock is free again.
    ask(&mut child, "open");
    ask(&mut child, "close");
    let session = Session::open_to_write(&path).unwrap();
    assert_eq!(session.message_count(), 2);

    let gone = Session::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(matches!(gone.claim(), Err(LockError::Changed { .. })));
}

#[test]
fn what_is_no_session_is_refused_without_a_trace() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("Gemfile");
    assert!(matches!(Session::open_to_write(&path), Err(OpenError::NotFound { .. })));
    fs::write(&path, "gem").unwrap();
    fs::write(dir.path().join("Gemfile.lock"), "gem 1.0").unwrap();
    assert!(matches!(Session::open_to_write(&path), Err(OpenError::NotASession { .. })));
    assert_eq!(fs::read_to_string(dir.path().join("Gemfile.lock")).unwrap(), "gem 1.0");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn a_link_leads_to_the_same_lock() {
    let dir = TempDir::new().unwrap();
    let path = make(dir.path());
    let link = dir.path().join("link.jsonl");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut child = child_of(&link);
    ask(&mut child, "open");
    assert!(lock_file(&path).exists());
    assert_eq!(Session::owner(&path), Some(child.pid()));
    assert!(Session::open_to_write(&path).is_err());
}

#[tokio::test]
async fn a_folder_that_cannot_hold_the_lock_is_no_obstacle() {
    let dir = TempDir::new().unwrap();
    let path = make(dir.path());
    // Nobody can make a file there, not even root.
    fs::create_dir(lock_file(&path)).unwrap();
    let session = Session::open_to_write(&path).unwrap();
    session.append_message(user("second")).1.await.unwrap();
    assert_eq!(Session::owner(&path), None);
    drop(session);
    assert_eq!(texts(&path), ["first", "second"]);
}

#[tokio::test]
async fn a_session_that_is_done_with_gives_the_lock_away() {
    let dir = TempDir::new().unwrap();
    let path = make(dir.path());
    let session = Session::open_to_write(&path).unwrap();
    session.append_message(user("second")).1.await.unwrap();
    session.flush().await.unwrap();
    session.release();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let mut child = child_of(&path);
    ask(&mut child, "open");
    session.append_message(user("third")).1.await.unwrap_err();
    ask(&mut child, "close");
    session.flush().await.unwrap();
    assert_eq!(Session::owner(&path), Some(std::process::id()));
    assert_eq!(texts(&path), ["first", "second", "third"]);
}

#[test]
fn in_memory_there_is_nothing_to_claim() {
    Session::in_memory(Path::new("/x")).claim().unwrap();
}
