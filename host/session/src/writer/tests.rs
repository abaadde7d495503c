#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;
use crate::SessionOptions;
use crate::durability::{Durability, SyncFile};

fn shared(path: &Path) -> Arc<Shared> {
    let header = SessionHeader::new(Path::new("/x"), SessionOptions::default());
    Arc::new(Shared::new(Some(path.to_owned()), header))
}

/// For the file that is there, without entries in memory.
fn start(path: &Path) -> Start {
    let content = if path.metadata().unwrap().is_file() { fs::read(path).unwrap() } else { vec![] };
    let stamp = Some(Stamp::new(&path.metadata().unwrap(), &content));
    Start { target: Target::Existing(None), stamp }
}

fn worker(shared: &Arc<Shared>, sync_file: SyncFile) -> Worker {
    let start = start(shared.path());
    Worker::new(Arc::clone(shared), start, 0, Box::new(|| Some(Vec::new())), sync_file)
}

fn writer(path: &Path) -> Writer {
    Writer::spawn_with(worker(&shared(path), fsync())).unwrap()
}

fn lines(first: usize, texts: &[&str]) -> Lines {
    let lines = texts.iter().map(|text| Arc::new(format!("{text}\n"))).collect();
    Lines { first, lines }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_costs_no_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let shared = shared(&path);
    let writer = Writer::spawn_with(worker(&shared, fsync())).unwrap();
    for (place, text) in ["a", "b"].into_iter().enumerate() {
        let error = writer.append(lines(place, &[text])).await.unwrap_err();
        assert!(matches!(error, WriteError::DiskFull { .. }), "{error}");
        assert!(error.to_string().contains("s.jsonl"), "{error}");
    }
    assert!(writer.flush().await.is_err());

    // Another file is there now, so the lines get one of their own.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "x\n").unwrap();
    writer.append(lines(2, &["c", "d"])).await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "x\n");
    let text = fs::read_to_string(shared.path()).unwrap();
    assert!(text.ends_with("\"cwd\":\"/x\"}\na\nb\nc\nd\n"), "{text}");
}

#[tokio::test]
async fn lines_of_others_are_left_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, "torn").unwrap();
    let writer = writer(&path);
    writer.append(lines(0, &["a"])).await.unwrap();
    let mut other = OpenOptions::new().append(true).open(&path).unwrap();
    other.write_all(b"other").unwrap();
    writer.append(lines(1, &["b"])).await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "torn\na\nother\nb\n");
}

#[test]
fn an_interrupted_line_is_finished_or_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    for (between, expected) in [("", "abcd\nef\n"), ("X\n", "abX\nabcd\nef\n")] {
        fs::write(&path, "ab").unwrap();
        let mut worker = worker(&shared(&path), fsync());
        let (sender, mut receipt) = oneshot::channel();
        worker.queue(lines(0, &["abcd", "ef"]), sender);
        // As after a write that stopped two bytes in.
        worker.needs_line_feed = false;
        worker.account(2);
        let mut other = OpenOptions::new().append(true).open(&path).unwrap();
        other.write_all(between.as_bytes()).unwrap();
        assert!(receipt.try_recv().is_err());
        assert!(worker.write_or_keep().is_none());
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        receipt.try_recv().unwrap().unwrap();
    }
}

#[test]
fn lines_in_a_file_that_is_taken_away_meanwhile_are_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, away) = (dir.path().join("here"), dir.path().join("away"));
    fs::create_dir(&folder).unwrap();
    let path = folder.join("s.jsonl");
    fs::write(&path, "").unwrap();
    let mut worker = worker(&shared(&path), fsync());
    let (sender, mut receipt) = oneshot::channel();
    worker.queue(lines(0, &["a"]), sender);
    worker.ready().unwrap();
    fs::rename(&folder, &away).unwrap();
    fs::write(&folder, "in the way").unwrap();
    // The writing itself goes well.
    worker.write_batch().unwrap();
    assert!(receipt.try_recv().is_err());
    worker.look_after();
    // An error as long as it is not mended, though there is no line left to write.
    for _ in 0..2 {
        assert!(worker.write_or_keep().is_some());
    }
    receipt.try_recv().unwrap().unwrap_err();
    fs::remove_file(&folder).unwrap();
    assert!(worker.write_or_keep().is_none());
    assert!(path.exists());
}

#[test]
fn what_a_snapshot_brought_is_not_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, "").unwrap();
    let mut worker = worker(&shared(&path), fsync());
    let mut receipts = Vec::new();
    let mut queue = |worker: &mut Worker, lines| {
        let (sender, receipt) = oneshot::channel();
        worker.queue(lines, sender);
        receipts.push(receipt);
    };
    queue(&mut worker, lines(0, &["a", "b"]));
    worker.finish_until(4);
    queue(&mut worker, lines(2, &["c", "d"]));
    queue(&mut worker, lines(4, &["e"]));
    assert!(worker.write_or_keep().is_none());
    assert_eq!(fs::read_to_string(&path).unwrap(), "e\n");
    for mut receipt in receipts {
        receipt.try_recv().unwrap().unwrap();
    }
}

/// A sync that waits for each leave given, and says how many there were.
fn slow_sync() -> (SyncFile, mpsc::Sender<io::Result<()>>, Arc<AtomicUsize>) {
    let (leave, leaves) = mpsc::channel();
    let (leaves, count) = (Mutex::new(leaves), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&count);
    let sync = move |_: &std::fs::File| {
        counter.fetch_add(1, Ordering::SeqCst);
        leaves.lock().unwrap().recv().unwrap()
    };
    (Arc::new(sync), leave, count)
}

fn slow_writer(path: &Path) -> (Writer, mpsc::Sender<io::Result<()>>, Arc<AtomicUsize>) {
    fs::write(path, "").unwrap();
    let (sync, leave, count) = slow_sync();
    (Writer::spawn_with(worker(&shared(path), sync)).unwrap(), leave, count)
}

#[tokio::test]
async fn an_append_does_not_wait_for_a_sync_but_a_flush_does() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, leave, count) = slow_writer(&dir.path().join("s.jsonl"));
    writer.append(lines(0, &["a"])).await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 0);
    writer.sync();
    while count.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    for place in 1..50 {
        writer.sync();
        writer.append(lines(place, &["b"])).await.unwrap();
    }
    // The first of them is still waiting for its leave; all others are one.
    let flush = tokio::spawn(writer.flush());
    writer.append(lines(50, &["c"])).await.unwrap();
    assert!(!flush.is_finished());
    leave.send(Ok(())).unwrap();
    leave.send(Ok(())).unwrap();
    flush.await.unwrap().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 2);
    // For the last line.
    leave.send(Ok(())).unwrap();
    drop(writer);
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn errors_of_a_sync_reach_the_next_who_asks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let (writer, leave, _) = slow_writer(&path);
    let full = || Err(io::ErrorKind::StorageFull.into());
    writer.append(lines(0, &["a"])).await.unwrap();
    leave.send(full()).unwrap();
    let error = writer.flush().await.unwrap_err();
    assert!(matches!(error, WriteError::Sync { .. }), "{error}");
    assert!(error.to_string().contains("s.jsonl"), "{error}");

    // One that nobody waits for. A sync is over when the next one begins.
    writer.append(lines(1, &["b"])).await.unwrap();
    writer.sync();
    leave.send(full()).unwrap();
    leave.send(Ok(())).unwrap();
    writer.shared.set_durability(Durability::Entry);
    let mut errors = Vec::new();
    let mut place = 2;
    while errors.is_empty() {
        leave.send(Ok(())).unwrap();
        errors.extend(writer.append(lines(place, &["c"])).await.err());
        place += 1;
    }
    assert!(matches!(errors[0], WriteError::Sync { .. }), "{errors:?}");
    leave.send(Ok(())).unwrap();
    writer.append(lines(place, &["d"])).await.unwrap();
    // Lines are never written twice for it.
    assert_eq!(fs::read_to_string(&path).unwrap().matches(['a', 'b', 'd']).count(), 3);
    drop(leave);
}

#[tokio::test]
async fn policies() {
    let dir = tempfile::tempdir().unwrap();
    // How many syncs two appends, a sync, a flush and the end bring about.
    for (durability, appends, syncs) in
        [(Durability::Turn, 0, 2), (Durability::Entry, 2, 3), (Durability::Never, 0, 0)]
    {
        let (writer, leave, count) = slow_writer(&dir.path().join("s.jsonl"));
        for _ in 0..8 {
            leave.send(Ok(())).unwrap();
        }
        writer.shared.set_durability(durability);
        writer.append(lines(0, &["a"])).await.unwrap();
        writer.append(lines(1, &["b"])).await.unwrap();
        assert_eq!(count.load(Ordering::SeqCst), appends, "{durability:?}");
        writer.sync();
        // Written, so that it is not one with the flush.
        while durability == Durability::Turn && count.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        writer.flush().await.unwrap();
        drop(writer);
        assert_eq!(count.load(Ordering::SeqCst), syncs, "{durability:?}");
    }
}

#[tokio::test]
async fn an_entry_is_acknowledged_when_it_is_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let (writer, leave, count) = slow_writer(&path);
    writer.shared.set_durability(Durability::Entry);
    let receipt = tokio::spawn(writer.append(lines(0, &["a"])));
    while count.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\n");
    assert!(!receipt.is_finished());
    leave.send(Ok(())).unwrap();
    receipt.await.unwrap().unwrap();
    drop(leave);
}

#[test]
fn whoever_appends_waits_for_room() {
    let room = Arc::new(Room::default());
    room.wait();
    room.add(QUEUE_BYTES + 1);
    let release = ReleaseOnDrop(Arc::clone(&room));
    let waiting = Arc::clone(&room);
    let thread = std::thread::spawn(move || waiting.wait());
    assert!(!thread.is_finished());
    room.release(1);
    thread.join().unwrap();
    room.add(1);
    drop(release);
    // Nobody will make room any more.
    room.wait();
}
