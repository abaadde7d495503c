//! A writer that is killed at any byte: the kernel cuts its write at a given length of the
//! file (`RLIMIT_FSIZE`) and kills it. What was acknowledged is there when the session is
//! opened again, and it goes on.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use support::{Child, ask, say, user};
use tempfile::TempDir;
use wharf_protocol::AgentMessage;
use wharf_session::WarningKind::{NoFinalNewline, TornTail};
use wharf_session::{Durability, Session, SessionDir, SessionOptions};

/// Messages that a child appends if it lives that long.
const MESSAGES: usize = 8;

/// Bytes that such a message takes at most.
const MESSAGE: u64 = 450;

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    /// A file to open, or a folder to make one in.
    path: PathBuf,
    run: usize,
    /// Length in bytes at which any write of the child is cut.
    limit: u64,
    /// Two messages are appended, and the file is deleted, before there is a limit.
    deletes: bool,
    /// Appends all messages before it waits for the first.
    in_bulk: bool,
}

fn text(run: usize, n: usize) -> String {
    format!("{run}/{n} {}", "x".repeat((run * 31 + n * 97) % 250))
}

#[test]
fn child() {
    let Some(task) = support::task() else { return };
    match serde_json::from_str(&task) {
        Ok(task) => append_until_killed(task),
        Err(_) => support::obey(Path::new(&task)),
    }
}

fn append_until_killed(task: Task) {
    let limit = |resource, bytes| {
        setrlimit(resource, Rlimit { current: Some(bytes), maximum: Some(bytes) }).unwrap();
    };
    limit(Resource::Core, 0);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    if !task.deletes {
        limit(Resource::Fsize, task.limit);
    }
    let session = if task.path.is_dir() {
        let store = SessionDir::Flat(task.path);
        Session::create(&store, Path::new("/x"), SessionOptions::default())
    } else {
        Session::open_to_write(&task.path).unwrap()
    };
    // A power cut is not tested here, and a thousand children are.
    session.set_durability(Durability::Never);
    let mut receipts = Vec::new();
    for n in 0..MESSAGES {
        if task.deletes && n == 2 {
            fs::remove_file(session.file().unwrap()).unwrap();
            limit(Resource::Fsize, task.limit);
        }
        let (_, receipt) = session.append_message(user(&text(task.run, n)));
        if task.in_bulk {
            receipts.push(receipt);
        } else {
            runtime.block_on(receipt).unwrap();
            say("written");
        }
    }
    for receipt in receipts {
        runtime.block_on(receipt).unwrap();
        say("written");
    }
}

/// Xorshift: the same limits in every run, so that a failure can be seen again.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

struct Killed {
    /// How many messages were acknowledged.
    written: usize,
    /// It was not done.
    killed: bool,
}

fn run(task: &Task) -> Killed {
    let mut child = Child::start(&serde_json::to_string(task).unwrap());
    let (said, status) = child.wait();
    let killed = status.signal() == Some(rustix::process::Signal::XFSZ.as_raw());
    assert!(killed || status.success(), "{task:?}: {status}");
    assert!(killed || said.len() == MESSAGES, "{task:?}: {said:?}");
    Killed { written: said.len(), killed }
}

fn texts(session: &Session) -> Vec<String> {
    let text = |message: &AgentMessage| match message {
        AgentMessage::User(message) => message.content.to_text(),
        other => panic!("{other:?}"),
    };
    // Of every entry, not only of one branch.
    session.entries().iter().map(|entry| text(entry.message().unwrap())).collect()
}

/// The file has `before` and the messages of the child in their order: all that were
/// acknowledged, and no others but those that were being written.
fn check(path: &Path, before: &[String], task: &Task, result: &Killed) -> Vec<String> {
    let session = Session::open(path).unwrap();
    for warning in session.warnings().list() {
        let expected = matches!(warning.kind, TornTail | NoFinalNewline);
        assert!(expected && result.killed, "{task:?}: {warning}");
    }
    let found = texts(&session);
    assert_eq!(session.branch().len(), found.len(), "{task:?}: it is one branch");
    assert_eq!(found[..before.len()], *before, "{task:?}");
    let ours: Vec<String> = (0..MESSAGES).map(|n| text(task.run, n)).collect();
    let new = &found[before.len()..];
    assert_eq!(*new, ours[..new.len()], "{task:?}");
    assert!(new.len() >= result.written, "{task:?}: an acknowledged entry is lost");
    // Acknowledgements are in the pipe as soon as they are made, so at most one is missing
    // for what the file has.
    assert!(task.in_bulk || new.len() <= result.written + 1, "{task:?}");
    found
}

/// Goes on after the crash: everything is still there, and the damage is gone.
fn go_on(path: &Path, mut texts_before: Vec<String>, task: &Task) {
    let session = Session::open_to_write(path).unwrap();
    session.set_durability(Durability::Never);
    drop(session.append_message(user("more")));
    drop(session);
    let session = Session::open(path).unwrap();
    assert!(session.warnings().is_empty(), "{task:?}: {:?}", session.warnings());
    texts_before.push("more".to_owned());
    assert_eq!(texts(&session), texts_before, "{task:?}");
}

fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|item| item.unwrap().path());
    paths.filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

/// Runs `attempt`, which tells whether the child was killed, until `kills` were.
fn repeat(kills: usize, seed: u64, mut attempt: impl FnMut(&mut Random, usize) -> bool) {
    let mut random = Random(seed);
    let (mut killed, mut run) = (0, 0);
    while killed < kills {
        killed += usize::from(attempt(&mut random, run));
        run += 1;
    }
    assert!(run < 2 * kills, "limits are too high to kill anybody");
}

#[test]
fn killed_while_a_session_is_made() {
    repeat(250, 0x9e37_79b9, |random, run_number| {
        let dir = TempDir::new().unwrap();
        let path = dir.path().to_owned();
        let (limit, in_bulk) = (random.below(5 * MESSAGE), random.below(2) == 0);
        let task = Task { path, run: run_number, limit, deletes: false, in_bulk };
        let result = run(&task);
        match &files(dir.path(), ".jsonl")[..] {
            [] => assert_eq!(result.written, 0, "{task:?}"),
            [path] => {
                let found = check(path, &[], &task, &result);
                go_on(path, found, &task);
            }
            more => panic!("{task:?}: {more:?}"),
        }
        result.killed
    });
}

#[test]
fn killed_in_a_file_that_was_killed_in_before() {
    /// After these the file is left for another one.
    const RUNS: usize = 40;
    let mut dir = TempDir::new().unwrap();
    let mut path = PathBuf::new();
    let mut before = Vec::new();
    repeat(350, 0x7f4a_7c15, |random, run_number| {
        if run_number % RUNS == 0 {
            dir = TempDir::new().unwrap();
            let store = SessionDir::Flat(dir.path().to_owned());
            let session = Session::create(&store, Path::new("/x"), SessionOptions::default());
            drop(session.append_message(user("first")));
            path = session.file().unwrap().to_owned();
            before = vec!["first".to_owned()];
        }
        let limit = fs::metadata(&path).unwrap().len() + random.below(5 * MESSAGE);
        let in_bulk = random.below(2) == 0;
        let task = Task { path: path.clone(), run: run_number, limit, deletes: false, in_bulk };
        let result = run(&task);
        before = check(&path, &before, &task, &result);
        assert_eq!(Session::owner(&path), None);
        result.killed
    });
    go_on(
        &path,
        before,
        &Task { path: path.clone(), run: 0, limit: 0, deletes: false, in_bulk: false },
    );
}

#[test]
fn killed_while_an_old_version_is_replaced() {
    let header = r#"{"type":"session","id":"u","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/x"}"#;
    let mut original = format!("{header}\n");
    let mut old = Vec::new();
    for n in 0..6 {
        old.push(format!("old {n}"));
        original.push_str(&format!(
            r#"{{"type":"message","timestamp":"2024-12-03T14:00:0{n}.000Z","message":{{"role":"user","content":"old {n}"}}}}"#
        ));
        original.push('\n');
    }
    repeat(200, 0x1656_67b1, |random, run_number| {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s.jsonl");
        let torn = if random.below(2) == 0 { "{\"type\":\"message\",\"timest" } else { "" };
        let original = format!("{original}{torn}");
        fs::write(&path, &original).unwrap();
        let limit = random.below(original.len() as u64 + 4 * MESSAGE);
        let in_bulk = random.below(2) == 0;
        let task = Task { path: path.clone(), run: run_number, limit, deletes: false, in_bulk };
        let result = run(&task);
        let backups = files(dir.path(), ".v1.bak");
        for backup in &backups {
            assert_eq!(fs::read_to_string(backup).unwrap(), original, "{task:?}");
        }
        if fs::read_to_string(&path).unwrap() == original {
            assert_eq!(result.written, 0, "{task:?}");
        } else {
            assert_eq!(backups.len(), 1, "{task:?}");
        }
        let found = check(&path, &old, &task, &result);
        go_on(&path, found, &task);
        let backups = files(dir.path(), ".v1.bak");
        assert_eq!(fs::read_to_string(&backups[0]).unwrap(), original, "{task:?}");
        result.killed
    });
}

#[test]
fn killed_while_a_torn_tail_is_moved() {
    let header = r#"{"type":"session","version":3,"id":"u","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/x"}"#;
    let tail = format!(r#"{{"type":"message","id":"b","text":"{}"#, "y".repeat(400));
    repeat(100, 0x2545_f491, |random, run_number| {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s.jsonl");
        let entry = r#"{"type":"message","id":"a","parentId":null,"timestamp":"2024-12-03T14:00:01.000Z","message":{"role":"user","content":"old"}}"#;
        fs::write(&path, format!("{header}\n{entry}\n{tail}")).unwrap();
        let (limit, in_bulk) = (random.below(4 * MESSAGE), random.below(2) == 0);
        let task = Task { path: path.clone(), run: run_number, limit, deletes: false, in_bulk };
        let result = run(&task);
        let is_kept = |path: &Path| fs::read_to_string(path).unwrap().contains(&tail);
        let torn = files(dir.path(), ".torn");
        assert!(is_kept(&path) || is_kept(&torn[0]), "{task:?}: the tail is lost");
        let found = check(&path, &["old".to_owned()], &task, &result);
        go_on(&path, found, &task);
        assert!(is_kept(&files(dir.path(), ".torn")[0]), "{task:?}");
        result.killed
    });
}

#[test]
fn killed_while_a_deleted_file_is_written_again() {
    repeat(100, 0x5851_f42d, |random, run_number| {
        let dir = TempDir::new().unwrap();
        let (path, limit) = (dir.path().to_owned(), random.below(5 * MESSAGE));
        let task = Task { path, run: run_number, limit, deletes: true, in_bulk: false };
        let result = run(&task);
        assert!(result.written >= 2, "{task:?}");
        match &files(dir.path(), ".jsonl")[..] {
            // What was deleted is gone; nothing came after it.
            [] => assert_eq!(result.written, 2, "{task:?}"),
            [path] => {
                let found = check(path, &[], &task, &result);
                go_on(path, found, &task);
            }
            more => panic!("{task:?}: {more:?}"),
        }
        result.killed
    });
}

/// The lock of a process that was killed at any moment goes to the one that waited.
#[test]
fn killed_writers_take_turns() {
    const KILLS: usize = 300;
    let dir = TempDir::new().unwrap();
    let store = SessionDir::Flat(dir.path().to_owned());
    let session = Session::create(&store, Path::new("/x"), SessionOptions::default());
    drop(session.append_message(user("first")));
    let path = session.file().unwrap().to_owned();
    drop(session);

    let mut writer = Child::start(path.to_str().unwrap());
    ask(&mut writer, "open");
    let mut acknowledged = vec!["first".to_owned()];
    for turn in 0..KILLS {
        let mut waiting = Child::start(path.to_str().unwrap());
        waiting.tell("open");
        let answer = waiting.hear().unwrap();
        assert!(answer.contains(&format!("is in use by process {};", writer.pid())), "{answer}");

        // Killed somewhere among these: how far it gets is up to the machine.
        let heard = turn % 4;
        for n in 0..heard + 3 {
            writer.tell(&format!("append {}", text(turn, n)));
        }
        let mut said: Vec<String> = (0..heard).map(|_| writer.hear().unwrap()).collect();
        said.extend(writer.kill());
        acknowledged.extend((0..said.len()).map(|n| text(turn, n)));

        ask(&mut waiting, "open");
        writer = waiting;
    }
    writer.kill();
    let session = Session::open(&path).unwrap();
    assert!(session.warnings().is_empty(), "{:?}", session.warnings());
    let found = texts(&session);
    assert_eq!(session.branch().len(), found.len(), "it is one branch");
    let mut rest = found.iter();
    for text in &acknowledged {
        assert!(rest.any(|found| found == text), "{text} is missing or misplaced");
    }
    // One more at most of each turn: it was written and not acknowledged.
    assert!(found.len() <= acknowledged.len() + KILLS);
}
