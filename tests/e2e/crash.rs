//! Runs that are killed: whatever had been announced is in the file, and the file is
//! reopened as if nothing had happened.
//!
//! When a process is killed depends on a seed and on the machine; what must hold
//! does not.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use wharf_tests::{Env, SessionFile};

/// xorshift64
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A run that the test reads only as far as it likes.
struct Victim {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Messages whose end was announced.
    announced: Vec<Value>,
}

impl Victim {
    fn start(env: &Env, model: &str, session: Option<&Path>) -> Self {
        let mut command = env.command();
        command.args(["--mode", "rpc", "--model", model]);
        if let Some(session) = session {
            command.arg("--session").arg(session);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            announced: Vec::new(),
        }
    }

    fn send(&mut self, command: &Value) {
        writeln!(self.stdin, "{command}").unwrap();
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let line = serde_json::from_str(&line).unwrap();
        self.note(&line);
        line
    }

    fn note(&mut self, line: &Value) {
        if line["type"] == "message_end" {
            self.announced.push(line["message"].clone());
        }
    }

    fn data(&mut self, kind: &str) -> Value {
        self.send(&json!({"id": kind, "type": kind}));
        loop {
            let line = self.next();
            if line["id"] == kind {
                assert_eq!(line["success"], true, "{line}");
                return line["data"].clone();
            }
        }
    }

    /// Kills it, and gives every message that it had announced.
    fn kill(mut self) -> Vec<Value> {
        // SIGKILL
        self.child.kill().unwrap();
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).unwrap();
        self.child.wait().unwrap();
        // What had left before the end counts too; the last line may be cut off.
        for line in rest.split_inclusive(|byte| *byte == b'\n') {
            if line.ends_with(b"\n") {
                let line = serde_json::from_slice(line).unwrap();
                self.note(&line);
            }
        }
        self.announced
    }
}

/// The whole lines of a file, parsed strictly; the file may not exist yet.
fn whole_lines(file: &Path) -> (String, Vec<Value>) {
    let bytes = fs::read(file).unwrap_or_default();
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let messages = if text.is_empty() {
        Vec::new()
    } else {
        SessionFile::parse(&text)
            .unwrap_or_else(|problem| panic!("{}: {problem}", file.display()))
            .messages()
    };
    (text, messages)
}

/// Kills `runs` runs. Every so often a new session begins; the others go on with the
/// last one.
fn kill_many(seed: u64, runs: u32) {
    let env = Env::new();
    env.write("note.txt", "a note\n");
    // A run that never ends by itself: each turn is text and two calls.
    let turn = json!({"repeat": true, "chunkChars": 6, "content": [
        {"type": "thinking", "thinking": "What is to be done? Something."},
        {"type": "text", "text": "Some text with \"quotes\", \u{fc}ml\u{e4}uts and a \u{2028} separator."},
        {"type": "toolCall", "name": "read", "arguments": {"path": "note.txt"}},
        {"type": "toolCall", "name": "ls", "arguments": {"path": "."}},
    ]});
    let model = env.script(&[turn]);
    let mut random = Random(seed);
    let mut session: Option<PathBuf> = None;
    let mut announced_in_all = 0;
    for run in 0..runs {
        let place = format!("seed {seed:#x}, run {run}");
        if run % 6 == 0 {
            session = None;
        }
        let (before, stored) = session.as_deref().map(whole_lines).unwrap_or_default();
        // A first message may have been lost with its file.
        let reopened = session.as_deref().filter(|file| file.exists());
        let mut victim = Victim::start(&env, &model, reopened);
        if reopened.is_some() {
            let messages = victim.data("get_messages");
            assert_eq!(*messages["messages"].as_array().unwrap(), stored, "{place}");
        }
        let state = victim.data("get_state");
        let file = PathBuf::from(state["sessionFile"].as_str().unwrap());
        victim.send(&json!({"type": "prompt", "message": format!("run {run}")}));
        // Mostly soon, sometimes many turns later.
        let reach = [3, 30, 120, 400][usize::try_from(random.below(4)).unwrap()];
        for _ in 0..random.below(reach) {
            victim.next();
        }
        std::thread::sleep(Duration::from_micros(random.below(2500)));
        let announced = victim.kill();
        announced_in_all += announced.len();

        let (after, now_stored) = whole_lines(&file);
        assert!(after.starts_with(&before), "{place}: what was there has changed");
        let new = &now_stored[stored.len()..];
        assert!(new.len() >= announced.len(), "{place}: announced and lost");
        assert_eq!(new[..announced.len()], announced, "{place}");
        session = Some(file);
    }
    assert!(announced_in_all > 1000, "only {announced_in_all} messages were announced at all");
    // The last survivor goes on to a regular end.
    let file = session.filter(|file| file.exists()).unwrap();
    let mut victim = Victim::start(&env, &model, Some(&file));
    victim.send(&json!({"type": "prompt", "message": "the last one"}));
    while victim.announced.len() < 10 {
        victim.next();
    }
    victim.send(&json!({"type": "abort"}));
    while victim.next()["type"] != "agent_end" {}
    let Victim { mut child, stdin, announced, .. } = victim;
    drop(stdin);
    assert!(child.wait().unwrap().success());
    let stored = SessionFile::read(&file).messages();
    assert!(stored.ends_with(&announced));
}

#[test]
fn killed_runs_keep_what_they_announced() {
    kill_many(0x9e37_79b9_7f4a_7c15, 150);
}

#[test]
fn killed_runs_keep_what_they_announced_with_another_seed() {
    kill_many(0x2545_f491_4f6c_dd1d, 150);
}
