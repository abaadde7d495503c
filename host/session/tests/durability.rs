//! What the policies mean for those who use a session. When files are synced is tested
//! beside the writer.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use wharf_protocol::AgentMessage;
use wharf_session::{Durability, Session, SessionDir, SessionOptions};

fn user(text: &str) -> Arc<AgentMessage> {
    let json = serde_json::json!({"role": "user", "content": text, "timestamp": 1});
    Arc::new(serde_json::from_value(json).unwrap())
}

#[test]
fn names_are_those_of_settings() {
    for (policy, name) in
        [(Durability::Turn, "turn"), (Durability::Entry, "entry"), (Durability::Never, "never")]
    {
        assert_eq!(serde_json::to_value(policy).unwrap(), name);
        assert_eq!(serde_json::from_value::<Durability>(name.into()).unwrap(), policy);
    }
    assert_eq!(Durability::default(), Durability::Turn);
    assert!(serde_json::from_str::<Durability>("\"always\"").is_err());
}

#[tokio::test]
async fn every_policy_has_the_line_in_the_file_with_its_receipt() {
    for policy in [Durability::Turn, Durability::Entry, Durability::Never] {
        let dir = TempDir::new().unwrap();
        let store = SessionDir::Flat(dir.path().to_owned());
        let session = Session::create(&store, Path::new("/x"), SessionOptions::default());
        session.set_durability(policy);
        // Before there is a file.
        session.sync();
        session.flush().await.unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        for n in 0..20 {
            let (id, receipt) = session.append_message(user(&n.to_string()));
            session.sync();
            receipt.await.unwrap();
            let text = fs::read_to_string(session.file().unwrap()).unwrap();
            assert!(text.ends_with('\n'));
            assert!(text.lines().last().unwrap().contains(id.as_str()));
        }
        let waiting: Vec<_> = (0..20).map(|_| session.flush()).collect();
        for flush in waiting {
            flush.await.unwrap();
        }
        let path = session.file().unwrap().to_owned();
        drop(session);
        assert_eq!(Session::open(&path).unwrap().message_count(), 20);
    }
}

#[tokio::test]
async fn in_memory_there_is_nothing_to_sync() {
    let session = Session::in_memory(Path::new("/x"));
    session.set_durability(Durability::Entry);
    session.append_message(user("a")).1.await.unwrap();
    session.sync();
    session.flush().await.unwrap();
}

/// More than the queue holds, from several threads: those who append wait, and nothing
/// stops for good.
#[test]
fn a_full_queue_gives_way() {
    let dir = TempDir::new().unwrap();
    let store = SessionDir::Flat(dir.path().to_owned());
    let session = Session::create(&store, Path::new("/x"), SessionOptions::default());
    session.set_durability(Durability::Never);
    let text = "x".repeat(1 << 20);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..16 {
                    drop(session.append_message(user(&text)));
                    if n == 8 {
                        // The writer needs the tree while others wait for it.
                        let _ = fs::remove_file(session.file().unwrap());
                    }
                }
            });
        }
    });
    drop(session.append_message(user("last")));
    let path = session.file().unwrap().to_owned();
    drop(session);
    let session = Session::open(&path).unwrap();
    assert!(session.warnings().is_empty());
    assert_eq!(session.message_count(), 65);
}
