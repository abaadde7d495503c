//! What others do to the file of a session that is open.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use wharf_protocol::AgentMessage;
use wharf_session::{Notice, Session, SessionDir, SessionOptions};

fn user(text: &str) -> Arc<AgentMessage> {
    let json = serde_json::json!({"role": "user", "content": text, "timestamp": 1});
    Arc::new(serde_json::from_value(json).unwrap())
}

fn new_session(dir: &Path) -> Session {
    let store = SessionDir::Flat(dir.join("sessions"));
    Session::create(&store, Path::new("/x"), SessionOptions::default())
}

async fn say(session: &Session, text: &str) {
    session.append_message(user(text)).1.await.unwrap();
}

/// The header's id and the entries' JSON of the file at `path`, which is without damage.
#[track_caller]
fn read(path: &Path) -> (String, Vec<String>) {
    let session = Session::open(path).unwrap();
    assert!(session.warnings().is_empty(), "{:?}", session.warnings());
    (session.id().to_owned(), lines(&session))
}

fn lines(session: &Session) -> Vec<String> {
    session.entries().iter().map(|entry| entry.json().to_owned()).collect()
}

/// The file has all of the session, and nothing is left beside it but the lock.
#[track_caller]
fn check_whole(session: &Session) {
    let path = session.file().unwrap();
    assert_eq!(read(path), (session.id().to_owned(), lines(session)));
    assert_eq!(Session::owner(path), Some(std::process::id()));
    let folder = path.parent().unwrap();
    let others = fs::read_dir(folder).unwrap().filter(|item| {
        let name = item.as_ref().unwrap().file_name().into_string().unwrap();
        !name.ends_with(".jsonl") && !name.ends_with(".lock")
    });
    assert_eq!(others.count(), 0);
}

type Deed = fn(&Path);

fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

/// As an editor saves: a new file gets the name.
fn put(path: &Path, content: &str) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(new, path).unwrap();
}

fn content(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn without_last_line(path: &Path) -> String {
    let text = content(path);
    text[..text.trim_end().rfind('\n').unwrap() + 1].to_owned()
}

#[tokio::test]
async fn a_deleted_file_is_written_again() {
    let remove_folder: Deed = |path| fs::remove_dir_all(path.parent().unwrap()).unwrap();
    let move_away: Deed = |path| fs::rename(path, path.with_extension("old")).unwrap();
    for deed in [remove as Deed, remove_folder, move_away] {
        for reopened in [false, true] {
            let dir = TempDir::new().unwrap();
            let mut session = new_session(dir.path());
            drop(session.append_model_change("p", "m"));
            say(&session, "one").await;
            let path = session.file().unwrap().to_owned();
            if reopened {
                drop(session);
                session = Session::open(&path).unwrap();
                session.claim().unwrap();
            }
            deed(&path);
            say(&session, "two").await;
            assert_eq!(session.file(), Some(&*path));
            let notices = session.take_notices();
            assert_eq!(notices, [Notice::Recreated { path: path.clone() }]);
            let text = notices[0].to_string();
            assert!(text.contains("was deleted") && text.contains(path.to_str().unwrap()));
            say(&session, "three").await;
            assert_eq!(session.take_notices(), []);
            let _ = fs::remove_file(path.with_extension("old"));
            check_whole(&session);
        }
    }
}

#[tokio::test]
async fn a_file_that_is_deleted_again_and_again() {
    let dir = TempDir::new().unwrap();
    let session = new_session(dir.path());
    let path = session.file().unwrap().to_owned();
    for n in 0..20 {
        say(&session, &n.to_string()).await;
        check_whole(&session);
        remove(&path);
    }
    drop(session.append_message(user("last")));
    let entries = lines(&session);
    // Even by those lines that are written when nobody waits any more.
    drop(session);
    assert_eq!(read(&path).1, entries);
}

#[tokio::test]
async fn the_file_behind_a_link_is_written_again() {
    let dir = TempDir::new().unwrap();
    let session = new_session(dir.path());
    say(&session, "one").await;
    let path = session.file().unwrap().to_owned();
    drop(session);
    let link = dir.path().join("link.jsonl");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let session = Session::open(&link).unwrap();
    remove(&path);
    say(&session, "two").await;
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(read(&path).1, lines(&session));
}

/// The session is known in what stands there now, so it goes on in it.
#[tokio::test]
async fn a_file_that_still_is_the_session_is_gone_on_in() {
    let rewrite: Deed = |path| put(path, &content(path));
    let without_line_feed: Deed = |path| put(path, content(path).trim_end());
    let in_place: Deed = |path| fs::write(path, content(path).trim_end()).unwrap();
    let with_more: Deed = |path| {
        let more = r#"{"type":"custom","id":"more","parentId":null,"timestamp":"2024-12-03T14:00:00.000Z","customType":"x"}"#;
        put(path, &format!("{}{more}\n", content(path)));
    };
    for (deed, more) in [(rewrite, 0), (without_line_feed, 0), (in_place, 0), (with_more, 1)] {
        let dir = TempDir::new().unwrap();
        let session = new_session(dir.path());
        say(&session, "one").await;
        say(&session, "two").await;
        let path = session.file().unwrap().to_owned();
        deed(&path);
        say(&session, "three").await;
        say(&session, "four").await;
        assert_eq!(session.file(), Some(&*path));
        assert_eq!(session.take_notices(), []);
        let mut found = read(&path).1;
        assert_eq!(found.len(), 4 + more);
        found.retain(|line| !line.contains("\"more\""));
        assert_eq!(found, lines(&session));
    }
}

/// Nothing is written to a file that is another one; the whole session is in a new one.
#[tokio::test]
async fn a_file_that_is_no_longer_the_session_is_left_alone() {
    const OTHER: &str = r#"{"type":"session","version":3,"id":"other","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/x"}"#;
    // Whether the old file may have the session's id still.
    let cases: [(Deed, bool); 13] = [
        (|path| put(path, "my notes\n"), false),
        (|path| put(path, &format!("{OTHER}\n")), false),
        (|path| put(path, &format!("{OTHER}\n{}", &content(path)[OTHER.len()..])), false),
        (|path| put(path, ""), true),
        (|path| put(path, &without_last_line(path)), true),
        (|path| put(path, &content(path).replace("one", "two")), true),
        // In place.
        (|path| fs::write(path, "").unwrap(), true),
        (|path| fs::write(path, without_last_line(path)).unwrap(), true),
        (|path| fs::write(path, content(path).replace("one", "1")).unwrap(), true),
        (|path| fs::write(path, content(path).replace("one", "a longer text")).unwrap(), true),
        // With the same length.
        (|path| fs::write(path, "\0".repeat(content(path).len())).unwrap(), true),
        (|path| fs::write(path, content(path).replace("two", "2.0")).unwrap(), true),
        (
            |path| {
                remove(path);
                fs::create_dir(path).unwrap();
            },
            false,
        ),
    ];
    for (case, (deed, has_id)) in cases.into_iter().enumerate() {
        let dir = TempDir::new().unwrap();
        let session = new_session(dir.path());
        say(&session, "one").await;
        say(&session, "two").await;
        let (path, id) = (session.file().unwrap().to_owned(), session.id().to_owned());
        deed(&path);
        let left = fs::read_to_string(&path).ok();
        say(&session, "three").await;

        let to = session.file().unwrap().to_owned();
        assert_ne!(to, path, "case {case}");
        assert_eq!(to.parent(), path.parent());
        let notices = session.take_notices();
        assert_eq!(notices, [Notice::Moved { from: path.clone(), to: to.clone() }], "case {case}");
        let text = notices[0].to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains(to.to_str().unwrap()));
        assert_eq!(fs::read_to_string(&path).ok(), left, "case {case}");

        let parent = session.header().parent_session.clone();
        if has_id {
            assert_ne!(session.id(), id, "case {case}");
            assert_eq!(parent.as_deref(), path.to_str());
        } else {
            assert_eq!((session.id(), parent), (&*id, None), "case {case}");
        }
        assert!(to.to_str().unwrap().ends_with(&format!("_{}.jsonl", session.id())));
        say(&session, "four").await;
        assert_eq!(Session::owner(&path), None, "the old file is free");
        check_whole(&session);
        drop(session);
        assert_eq!(fs::read_to_string(&path).ok(), left, "case {case}");
        let count = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(count, 2, "case {case}: a lock or something else is left");
    }
}

/// As before, between reading the session and its first line.
#[tokio::test]
async fn a_file_that_changes_before_the_first_line() {
    let cases: [(Deed, bool); 5] = [
        (|path| put(path, "my notes\n"), true),
        (|path| fs::write(path, without_last_line(path)).unwrap(), true),
        (|path| fs::write(path, content(path).replace("one", "a longer text")).unwrap(), true),
        (remove, false),
        (|path| put(path, &content(path)), false),
    ];
    for (case, (deed, moves)) in cases.into_iter().enumerate() {
        let dir = TempDir::new().unwrap();
        let session = new_session(dir.path());
        say(&session, "one").await;
        say(&session, "two").await;
        let path = session.file().unwrap().to_owned();
        drop(session);
        let session = Session::open(&path).unwrap();
        deed(&path);
        say(&session, "three").await;
        assert_eq!(session.file() != Some(&*path), moves, "case {case}");
        check_whole(&session);
    }
}

/// An old version is brought to the new one even where its file is gone.
#[tokio::test]
async fn a_deleted_file_of_an_old_version() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.jsonl");
    let header = r#"{"type":"session","id":"u","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/x"}"#;
    let old = r#"{"type":"message","timestamp":"2024-12-03T14:00:01.000Z","message":{"role":"user","content":"one"}}"#;
    fs::write(&path, format!("{header}\n{old}\n")).unwrap();
    let session = Session::open(&path).unwrap();
    remove(&path);
    say(&session, "two").await;
    assert_eq!(session.take_notices().len(), 1);
    check_whole(&session);
}

/// What was read of it is not lost, and what stands there now is not replaced.
#[tokio::test]
async fn a_file_of_an_old_version_that_changes_before_the_first_line() {
    let header = r#"{"type":"session","id":"u","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/x"}"#;
    let old = r#"{"type":"message","timestamp":"2024-12-03T14:00:01.000Z","message":{"role":"user","content":"one"}}"#;
    let longer: Deed = |path| {
        OpenOptions::new().append(true).open(path).unwrap().write_all(b"{}\n").unwrap();
    };
    for deed in [longer, |path| put(path, "my notes\n"), |path| fs::write(path, "").unwrap()] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s.jsonl");
        fs::write(&path, format!("{header}\n{old}\n")).unwrap();
        let session = Session::open(&path).unwrap();
        deed(&path);
        let left = content(&path);
        say(&session, "two").await;
        say(&session, "three").await;
        assert_eq!(content(&path), left);
        assert_eq!(session.take_notices().len(), 1);
        assert_ne!(session.file().unwrap(), path);
        assert_eq!(session.message_count(), 3);
        check_whole(&session);
    }
}

/// A torn tail is that of the file that was read, not of one that came later.
#[tokio::test]
async fn a_torn_file_that_is_replaced() {
    let dir = TempDir::new().unwrap();
    let session = new_session(dir.path());
    say(&session, "one").await;
    let path = session.file().unwrap().to_owned();
    drop(session);
    let whole = content(&path);
    let torn = format!("{whole}{{\"type\":\"mess");
    for (now, kept) in [(whole.clone(), 0), (torn.clone(), 1)] {
        fs::write(&path, &torn).unwrap();
        let session = Session::open(&path).unwrap();
        assert_eq!(session.warnings().total(), 2);
        put(&path, &now);
        say(&session, "two").await;
        assert_eq!(read(&path).1, lines(&session));
        assert_eq!(usize::from(fs::exists(torn_file(&path)).unwrap()), kept);
    }
}

fn torn_file(path: &Path) -> PathBuf {
    path.with_extension("jsonl.torn")
}

#[tokio::test]
async fn lines_that_others_append_stay_whole() {
    let dir = TempDir::new().unwrap();
    let session = new_session(dir.path());
    say(&session, "one").await;
    let path = session.file().unwrap().to_owned();
    let theirs = |id: &str| {
        format!(
            r#"{{"type":"custom","id":"{id}","parentId":null,"timestamp":"2024-12-03T14:00:00.000Z","customType":"x"}}"#
        )
    };
    for (round, end) in ["\n", "", "\n"].into_iter().enumerate() {
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(format!("{}{end}", theirs(&format!("t{round}"))).as_bytes()).unwrap();
        say(&session, "more").await;
    }
    assert_eq!(session.take_notices(), []);
    assert_eq!(session.file(), Some(&*path));
    let (_, found) = read(&path);
    assert_eq!(found.len(), 7);
    assert_eq!(found.iter().filter(|line| lines(&session).contains(line)).count(), 4);
}

/// Where no new file can be made either, the lines wait.
#[tokio::test]
async fn what_cannot_be_written_anywhere_waits() {
    let dir = TempDir::new().unwrap();
    let session = new_session(dir.path());
    say(&session, "one").await;
    let path = session.file().unwrap().to_owned();
    let folder = path.parent().unwrap();
    fs::remove_dir_all(folder).unwrap();
    fs::write(folder, "in the way").unwrap();
    session.append_message(user("two")).1.await.unwrap_err();
    session.flush().await.unwrap_err();
    fs::remove_file(folder).unwrap();
    session.flush().await.unwrap();
    assert_eq!(session.take_notices().len(), 1);
    check_whole(&session);
}

#[tokio::test]
async fn what_lies_at_the_place_of_a_new_session_is_left_alone() {
    for there in ["", "not a session\n", "{\"type\":\"session\",\"version\":3,\"id\":\"other\"}\n"]
    {
        let dir = TempDir::new().unwrap();
        let session = new_session(dir.path());
        let from = session.file().unwrap().to_owned();
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        fs::write(&from, there).unwrap();
        say(&session, "first").await;
        say(&session, "second").await;
        let to = session.file().unwrap().to_owned();
        assert_ne!(from, to);
        assert_eq!(session.take_notices(), [Notice::Moved { from: from.clone(), to }]);
        assert_eq!(content(&from), there);
        check_whole(&session);
    }
}
