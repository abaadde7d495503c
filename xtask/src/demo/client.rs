//! The client's side of the protocol: starts wharf, shows every line, and waits with
//! a limit. What is sent and expected is in `story`.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::screen::{Direction, Screen};

/// Longer than any step takes, also while a debug build compiles the components on a
/// busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// What wharf may take to end after its output has.
const EXIT_LIMIT: Duration = Duration::from_secs(10);

/// What a process that still holds standard error open may cost.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(2);

enum Output {
    Line(String),
    Error(String),
    /// Standard output has ended.
    End,
}

pub(super) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    output: Receiver<Output>,
    screen: Screen,
}

impl Client {
    pub(super) fn start(mut command: Command, screen: Screen) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start {}", crate::shown(&command)))?;
        let (sender, output) = channel();
        if let Some(stderr) = child.stderr.take() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                read(stderr, |line| sender.send(Output::Error(line)).is_ok());
            });
        }
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || read_stdout(stdout, &sender));
        }
        Ok(Self { stdin: child.stdin.take(), child, output, screen })
    }

    pub(super) fn screen(&self) -> Screen {
        self.screen
    }

    /// Writes one line.
    pub(super) fn send(&mut self, line: &Value) -> Result<()> {
        self.screen.line(Direction::FromClient, &line.to_string());
        let stdin = self.stdin.as_mut().context("wharf's input is closed already")?;
        if stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush()).is_err() {
            bail!("wharf does not read its input any more{}", self.how_it_ended());
        }
        Ok(())
    }

    /// Shows lines until one of them is what the demo waits for; gives all of them.
    pub(super) fn until(
        &mut self,
        what: &str,
        is_it: impl Fn(&Value) -> bool,
    ) -> Result<Vec<Value>> {
        let deadline = Instant::now() + LIMIT;
        let mut lines = Vec::new();
        loop {
            let Some(line) = self.next(deadline, what)? else {
                bail!("wharf ended before {what}{}", self.how_it_ended());
            };
            let found = is_it(&line);
            let asks = line["type"] == "extension_ui_request"
                && matches!(
                    line["method"].as_str(),
                    Some("select" | "confirm" | "input" | "editor" | "ask")
                );
            ensure!(found || !asks, "a dialog that nobody expected before {what}: {line}");
            lines.push(line);
            if found {
                return Ok(lines);
            }
        }
    }

    /// Ends the input; wharf then ends by itself.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.stdin = None;
        let deadline = Instant::now() + LIMIT;
        while self.next(deadline, "the end of the output")?.is_some() {}
        let status = self.exit_status().context("wharf closed its output and did not end")?;
        ensure!(status.success(), "wharf ended with {status}");
        Ok(())
    }

    /// The next line; none when the output has ended.
    fn next(&mut self, deadline: Instant, what: &str) -> Result<Option<Value>> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(Output::Error(line)) => self.screen.error_line(&line),
                Ok(Output::Line(line)) => {
                    self.screen.line(Direction::FromWharf, &line);
                    let line: Value = serde_json::from_str(&line)
                        .with_context(|| format!("wharf wrote a line that is no JSON: {line}"))?;
                    ensure!(line["type"] != "extension_error", "an extension failed: {line}");
                    ensure!(line["success"] != false, "a command failed: {line}");
                    return Ok(Some(line));
                }
                Ok(Output::End) => {
                    self.last_words();
                    return Ok(None);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{what} did not come within {} seconds", LIMIT.as_secs())
                }
            }
        }
    }

    /// Shows what is left on standard error when standard output has ended: most of
    /// the time that is why.
    fn last_words(&self) {
        let deadline = Instant::now() + LAST_WORDS_LIMIT;
        let left = || deadline.saturating_duration_since(Instant::now());
        while let Ok(Output::Error(line)) = self.output.recv_timeout(left()) {
            self.screen.error_line(&line);
        }
    }

    fn how_it_ended(&mut self) -> String {
        self.exit_status().map_or_else(String::new, |status| format!(" ({status})"))
    }

    fn exit_status(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + EXIT_LIMIT;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => return None,
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It has ended already, unless something went wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_stdout(stdout: impl Read, sender: &Sender<Output>) {
    read(stdout, |line| sender.send(Output::Line(line)).is_ok());
    // The receiver may have gone before.
    let _ = sender.send(Output::End);
}

/// Lines as the protocol has them: LF ends one, nothing else does.
fn read(input: impl Read, mut take: impl FnMut(String) -> bool) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if !take(String::from_utf8_lossy(&line).into_owned()) {
            return;
        }
        line.clear();
    }
}
