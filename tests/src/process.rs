//! A running binary and its pipes.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::transcript::{Direction, Transcript};

/// Longer than anything takes on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Longer input stands in the transcript by its length.
const MAX_SHOWN: usize = 64 * 1024;

/// How a process ended.
#[derive(Debug)]
pub struct Exit {
    /// None when a signal ended it.
    pub code: Option<i32>,
    /// Lines that nobody had received.
    pub rest: Vec<Value>,
    /// Every line of stdout, in order.
    pub all: Vec<Value>,
    /// The length of stdout in bytes.
    pub stdout_bytes: usize,
    pub stderr: String,
    pub transcript: String,
}

/// The binary, spoken to line by line.
#[derive(Debug)]
pub struct Wharf {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    /// Lines that a wait has passed over.
    passed: VecDeque<Value>,
    transcript: Transcript,
    next_id: u32,
}

impl Wharf {
    pub fn start(mut command: Command, names: Vec<(String, String)>) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let mut errors = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // LF only, as the protocol has it.
            let mut reader = BufReader::new(stdout);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let text = String::from_utf8(std::mem::take(&mut line)).expect("stdout is UTF-8");
                if sender.send(text).is_err() {
                    return;
                }
            }
        });
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
            stderr: Some(stderr),
            passed: VecDeque::new(),
            transcript: Transcript::new(names),
            next_id: 0,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes bytes as they are, in one write.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        if bytes.len() <= MAX_SHOWN {
            self.transcript.push(Direction::In, String::from_utf8_lossy(bytes).trim_end());
        } else {
            self.transcript.push(Direction::In, &format!("[{} bytes]", bytes.len()));
        }
        let stdin = self.stdin.as_mut().expect("stdin is open");
        // A process that has ended is noticed by the next wait.
        let _ = stdin.write_all(bytes).and_then(|()| stdin.flush());
    }

    /// Writes one command.
    pub fn send(&mut self, command: &Value) {
        self.send_raw(format!("{command}\n").as_bytes());
    }

    /// Writes a command with an id of its own and waits for its response.
    pub fn request(&mut self, mut command: Value) -> Value {
        self.next_id += 1;
        let id = format!("r{}", self.next_id);
        command["id"] = json!(id);
        self.send(&command);
        self.wait_for(&format!("the response to {command}"), |line| {
            line["type"] == "response" && line["id"] == id.as_str()
        })
    }

    /// The same, and the response's data; panics on a failure.
    pub fn data(&mut self, command: Value) -> Value {
        let response = self.request(command);
        assert_eq!(response["success"], true, "{response}");
        response["data"].clone()
    }

    /// Prompts and waits until the command was accepted.
    pub fn prompt(&mut self, message: &str) {
        let response = self.request(json!({"type": "prompt", "message": message}));
        assert_eq!(response["success"], true, "{response}");
    }

    /// The next line of stdout that no wait has taken yet.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator would end with the process, and no test loops to that end"
    )]
    pub fn next(&mut self) -> Option<Value> {
        if let Some(line) = self.passed.pop_front() {
            return Some(line);
        }
        self.read()
    }

    fn read(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => {
                assert!(line.ends_with('\n'), "a torn line: {line:?}");
                self.transcript.push(Direction::Out, line.trim_end_matches('\n'));
                Some(
                    serde_json::from_str(&line).unwrap_or_else(|e| panic!("no JSON ({e}): {line}")),
                )
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("no line within {LIMIT:?}; so far:\n{}", self.transcript.text())
            }
        }
    }

    /// Takes the first line that matches, of those not taken yet. Others stay for
    /// later waits.
    pub fn wait_for(&mut self, what: &str, matches: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.passed.iter().position(&matches) {
            return self.passed.remove(at).unwrap();
        }
        loop {
            let Some(line) = self.read() else {
                panic!("the process ended before {what}; so far:\n{}", self.transcript.text());
            };
            if matches(&line) {
                return line;
            }
            self.passed.push_back(line);
        }
    }

    /// Takes every line up to the first event of this kind, with it.
    pub fn take_until(&mut self, kind: &str) -> Vec<Value> {
        self.until(kind, |line| line["type"] == kind)
    }

    pub fn wait_event(&mut self, kind: &str) -> Value {
        self.wait_for(kind, |line| line["type"] == kind)
    }

    /// Takes everything that no wait has taken yet, to the first line that matches.
    pub fn until(&mut self, what: &str, matches: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut lines = Vec::new();
        loop {
            let Some(line) = self.next() else {
                panic!("the process ended before {what}; so far:\n{}", self.transcript.text());
            };
            let found = matches(&line);
            lines.push(line);
            if found {
                return lines;
            }
        }
    }

    /// Prompts, and takes everything to the end of the run.
    pub fn run(&mut self, message: &str) -> Vec<Value> {
        self.prompt(message);
        self.until("agent_end", |line| line["type"] == "agent_end")
    }

    /// Waits for an `extension_error` of the extension whose path contains `path`.
    pub fn wait_extension_error(&mut self, path: &str) -> Value {
        self.wait_for(&format!("an extension_error of {path}"), |line| {
            line["type"] == "extension_error"
                && line["extensionPath"].as_str().is_some_and(|found| found.contains(path))
        })
    }

    /// Lines that have been read and that no wait has taken.
    pub fn passed(&self) -> impl Iterator<Item = &Value> {
        self.passed.iter()
    }

    pub fn transcript(&self) -> String {
        self.transcript.text()
    }

    /// Waits for a dialog or a notice of this method.
    pub fn wait_ui(&mut self, method: &str) -> Value {
        self.wait_for(method, |line| {
            line["type"] == "extension_ui_request" && line["method"] == method
        })
    }

    /// Waits for a notice and gives its text.
    pub fn wait_notify(&mut self) -> String {
        self.wait_ui("notify")["message"].as_str().unwrap().to_owned()
    }

    /// Answers a dialog; `fields` are those of `extension_ui_response`.
    pub fn answer(&mut self, dialog: &Value, mut fields: Value) {
        fields["type"] = json!("extension_ui_response");
        fields["id"] = dialog["id"].clone();
        self.send(&fields);
    }

    /// Closes standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
        self.transcript.push(Direction::In, "[end of input]");
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Ends the input and waits for the end of the process.
    pub fn finish(mut self) -> Exit {
        if self.stdin.is_some() {
            self.close_stdin();
        }
        self.wait_exit()
    }

    /// Waits for the end of the process.
    pub fn wait_exit(mut self) -> Exit {
        let mut rest: Vec<Value> = self.passed.drain(..).collect();
        while let Some(line) = self.read() {
            rest.push(line);
        }
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < LIMIT, "the process closed stdout and did not end");
            std::thread::sleep(Duration::from_millis(2));
        };
        let stderr = self.stderr.take().unwrap().join().unwrap();
        let lines = || self.transcript.out();
        Exit {
            code: status.code(),
            rest,
            all: lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            stdout_bytes: lines().map(|line| line.len() + 1).sum(),
            stderr,
            transcript: self.transcript.text(),
        }
    }
}

impl Drop for Wharf {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
