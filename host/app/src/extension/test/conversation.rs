//! One conversation: the binary with an extension, an agent directory and a working
//! directory of its own, spoken to step by step.

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use wharf_extensions::{GrantStore, Inspection};

use super::super::inspect::subject;
use super::matching::{Difference, differences};
use super::script::{Action, Script};
use crate::plain::one_line;

/// Events since the last step that are kept for the report of a failure.
const KEPT: usize = 200;
/// Of those, how many a report shows.
const SHOWN: usize = 12;
/// Characters of an event in a report.
const CHARS: usize = 400;
/// Lines of the log in a report.
const LOG_LINES: usize = 12;

/// Where a conversation is played.
pub(super) struct Stage<'a> {
    /// Nothing is there yet.
    pub(super) root: PathBuf,
    /// Compiled code, lent to each conversation.
    pub(super) cache: &'a Path,
    pub(super) inspection: &'a Inspection,
    /// For each step.
    pub(super) timeout: Duration,
}

/// Why a conversation is not as its script says.
#[derive(Debug, Default)]
pub(super) struct Failure {
    /// None: after the last step.
    line: Option<usize>,
    problem: String,
    /// As JSON.
    expected: Option<String>,
    /// The event that has the most of what is expected.
    closest: Option<Box<(Value, Vec<Difference>)>>,
    /// The last of them last.
    came: Vec<Value>,
    /// What the extension and the binary said besides.
    log: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = |value: &Value| one_line(&value.to_string(), CHARS);
        match self.line {
            Some(line) => writeln!(f, "  line {line}: {}", self.problem)?,
            None => writeln!(f, "  after the last step: {}", self.problem)?,
        }
        if let Some(expected) = &self.expected {
            writeln!(f, "  expected {}", one_line(expected, CHARS))?;
        }
        if let Some((closest, differences)) = self.closest.as_deref() {
            writeln!(f, "  closest  {}", json(closest))?;
            for Difference { path, expected, came } in differences {
                let came = came.as_ref().map_or("nothing".to_owned(), json);
                writeln!(f, "    {path}\n      - {}\n      + {came}", json(expected))?;
            }
        }
        if !self.came.is_empty() {
            writeln!(f, "  since the step before came:")?;
        }
        let hidden = self.came.len().saturating_sub(SHOWN);
        if hidden > 0 {
            writeln!(f, "    ... {hidden} more")?;
        }
        for event in self.came.iter().skip(hidden) {
            writeln!(f, "    {}", json(event))?;
        }
        if !self.log.is_empty() {
            writeln!(f, "  the log says:")?;
        }
        for line in &self.log {
            writeln!(f, "    {}", one_line(line, CHARS))?;
        }
        Ok(())
    }
}

impl Stage<'_> {
    /// Gives the number of steps.
    pub(super) fn play(&self, script: &Script) -> anyhow::Result<Result<usize, Failure>> {
        let [agent, home, project] = ["agent", "home", "project"].map(|name| self.root.join(name));
        for dir in [&agent, &home, &project] {
            fs::create_dir_all(dir).with_context(|| format!("failed to make {}", dir.display()))?;
        }
        self.prepare(script, &agent, &project)?;
        // Without it everything is compiled once more.
        let _ = fs::rename(self.cache, agent.join("cache"));
        let mut conversation = Conversation::start(self, script)?;
        let mut played = Ok(script.steps.len());
        for step in &script.steps {
            conversation.came.clear();
            let done = match &step.action {
                Action::Send(command) => conversation.send(command),
                Action::Expect(expected) => conversation.expect(expected),
                Action::Answer(answer) => conversation.answer(answer),
            };
            if let Err(failure) = done {
                played = Err(Failure { line: Some(step.line), ..failure });
                break;
            }
        }
        if played.is_ok()
            && let Err(failure) = conversation.end()
        {
            played = Err(failure);
        }
        let said = conversation.kill();
        let _ = fs::rename(agent.join("cache"), self.cache);
        Ok(played.map_err(|failure| Failure {
            log: log(&agent.join("wharf.log")).into_iter().chain(said).collect(),
            ..failure
        }))
    }

    fn prepare(&self, script: &Script, agent: &Path, project: &Path) -> anyhow::Result<()> {
        let write = |path: &Path, text: &str| {
            let parent = path.parent().unwrap_or(path);
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(path, text))
                .with_context(|| format!("failed to write {}", path.display()))
        };
        // A name for the session would be one more request to the model.
        write(&agent.join("settings.json"), &json!({"autoSessionName": false}).to_string())?;
        for (file, text) in &script.files {
            write(&project.join(file), text)?;
        }
        let lines: String = script.model.iter().map(|reply| format!("{reply}\n")).collect();
        write(&self.root.join("model.jsonl"), &lines)?;
        let asked = self.inspection.registration.permissions.clone();
        if !asked.is_empty() {
            let (granted, denied) =
                asked.into_iter().partition(|permission| script.grant.contains(permission));
            let mut grants = GrantStore::load(agent.join("grants.json"))?;
            grants.decide(subject(self.inspection), granted, denied)?;
        }
        Ok(())
    }
}

struct Conversation {
    child: Child,
    /// None: its input has been ended.
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    stderr: Option<JoinHandle<String>>,
    timeout: Duration,
    next_id: usize,
    /// Dialogs that wait for an answer, the oldest first.
    dialogs: VecDeque<(String, Value)>,
    /// What has come since the step before, and was not expected.
    came: VecDeque<Value>,
}

/// Why no further event comes.
enum Silence {
    Timeout,
    Ended,
}

impl Conversation {
    fn start(stage: &Stage<'_>, script: &Script) -> anyhow::Result<Self> {
        let wharf = std::env::current_exe().context("the binary's own path cannot be read")?;
        let mut command = Command::new(wharf);
        command
            .args(["--mode", "rpc", "-e"])
            .arg(&stage.inspection.path)
            .env_clear()
            .envs(
                ["PATH", "TMPDIR", "LANG"]
                    .into_iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .env("HOME", stage.root.join("home"))
            .env("WHARF_AGENT_DIR", stage.root.join("agent"))
            .current_dir(stage.root.join("project"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if !script.model.is_empty() {
            let model = format!("scripted/{}", stage.root.join("model.jsonl").display());
            command.args(["--model", &model]);
        }
        let mut child = command.spawn().context("the binary cannot be started")?;
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                // LF only, as the protocol has it.
                for line in BufReader::new(stdout).split(b'\n') {
                    let Ok(line) = line else { return };
                    let event = serde_json::from_slice(&line).unwrap_or(Value::Null);
                    if sender.send(event).is_err() {
                        return;
                    }
                }
            });
        }
        let stderr = child.stderr.take().map(|mut stderr| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                // What can be read of it is all that there is to tell.
                let _ = stderr.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        Ok(Self {
            stdin: child.stdin.take(),
            child,
            lines,
            stderr,
            timeout: stage.timeout,
            next_id: 1,
            dialogs: VecDeque::new(),
            came: VecDeque::new(),
        })
    }

    fn send(&mut self, command: &Map<String, Value>) -> Result<(), Failure> {
        let mut command = command.clone();
        if !command.contains_key("id") {
            command.insert("id".to_owned(), format!("step-{}", self.next_id).into());
            self.next_id += 1;
        }
        self.write(&command.into())
    }

    fn write(&mut self, line: &Value) -> Result<(), Failure> {
        let written = match &mut self.stdin {
            Some(stdin) => stdin.write_all(format!("{line}\n").as_bytes()),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(|_| self.failure("wharf has ended"))
    }

    fn expect(&mut self, expected: &Value) -> Result<(), Failure> {
        let due = Instant::now() + self.timeout;
        loop {
            let event = match self.next(due) {
                Ok(event) => event,
                Err(silence) => return Err(self.missing(expected, &silence)),
            };
            if differences(expected, &event).is_empty() {
                return Ok(());
            }
            if let Some(problem) = fault(&event) {
                self.keep(event);
                return Err(Failure {
                    expected: Some(expected.to_string()),
                    ..self.failure(problem)
                });
            }
            self.keep(event);
        }
    }

    fn answer(&mut self, answer: &Map<String, Value>) -> Result<(), Failure> {
        let due = Instant::now() + self.timeout;
        while self.dialogs.is_empty() {
            match self.next(due) {
                Ok(event) => {
                    if let Some(problem) = fault(&event) {
                        self.keep(event);
                        return Err(self.failure(problem));
                    }
                    self.keep(event);
                }
                Err(Silence::Timeout) => return Err(self.failure("no dialog came")),
                Err(Silence::Ended) => {
                    return Err(self.failure("wharf has ended, and no dialog came"));
                }
            }
        }
        let Some((id, _)) = self.dialogs.pop_front() else { return Ok(()) };
        let mut answer = answer.clone();
        answer.insert("type".to_owned(), "extension_ui_response".into());
        answer.insert("id".to_owned(), id.into());
        self.write(&answer.into())
    }

    /// Ends the input, and looks at what still comes.
    fn end(&mut self) -> Result<(), Failure> {
        self.came.clear();
        self.stdin = None;
        let due = Instant::now() + self.timeout;
        loop {
            match self.next(due) {
                Ok(event) => {
                    let problem = fault(&event);
                    self.keep(event);
                    if let Some(problem) = problem {
                        return Err(self.failure(problem));
                    }
                }
                Err(Silence::Timeout) => return Err(self.failure("wharf does not end")),
                Err(Silence::Ended) => break,
            }
        }
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(self.failure(&format!("wharf ended with {status}"))),
            Err(error) => Err(self.failure(&format!("wharf's end was missed: {error}"))),
        }
    }

    /// Ends the binary, if it has not ended; gives what it said to people.
    fn kill(mut self) -> Vec<String> {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let said = self.stderr.take().and_then(|stderr| stderr.join().ok()).unwrap_or_default();
        last_lines(&said)
    }

    fn next(&mut self, due: Instant) -> Result<Value, Silence> {
        let event = self.lines.recv_timeout(due.saturating_duration_since(Instant::now()));
        let event = event.map_err(|error| match error {
            RecvTimeoutError::Timeout => Silence::Timeout,
            RecvTimeoutError::Disconnected => Silence::Ended,
        })?;
        let id = event["id"].as_str().unwrap_or_default();
        match (event["type"].as_str(), event["method"].as_str()) {
            (
                Some("extension_ui_request"),
                Some("select" | "confirm" | "input" | "editor" | "ask"),
            ) => self.dialogs.push_back((id.to_owned(), event.clone())),
            (Some("extension_ui_response_handled"), _) => {
                self.dialogs.retain(|(open, _)| open != id);
            }
            _ => {}
        }
        Ok(event)
    }

    fn keep(&mut self, event: Value) {
        if self.came.len() == KEPT {
            self.came.pop_front();
        }
        self.came.push_back(event);
    }

    fn failure(&self, problem: &str) -> Failure {
        Failure {
            problem: problem.to_owned(),
            came: self.came.iter().cloned().collect(),
            ..Failure::default()
        }
    }

    fn missing(&self, expected: &Value, silence: &Silence) -> Failure {
        let mut problem = match silence {
            Silence::Timeout => format!("it did not come within {:?}", self.timeout),
            Silence::Ended => "it did not come, and wharf has ended".to_owned(),
        };
        if let Some((_, dialog)) = self.dialogs.front() {
            let title = dialog["title"].as_str().unwrap_or_default();
            problem.push_str(&format!("; the dialog {title:?} waits for an answer"));
        }
        Failure {
            expected: Some(expected.to_string()),
            closest: closest(expected, &self.came).map(Box::new),
            ..self.failure(&problem)
        }
    }
}

/// The event with the fewest differences; one of another type is not close.
fn closest(expected: &Value, came: &VecDeque<Value>) -> Option<(Value, Vec<Difference>)> {
    let kind = expected.get("type");
    came.iter()
        .filter(|event| kind.is_none() || event.get("type") == kind)
        .map(|event| (event, differences(expected, event)))
        .min_by_key(|(_, differences)| differences.len())
        .map(|(event, differences)| (event.clone(), differences))
}

/// What no conversation may have without expecting it.
fn fault(event: &Value) -> Option<&'static str> {
    match event["type"].as_str() {
        Some("extension_error") => Some("the extension failed"),
        Some("response") if event["success"] == false => Some("a command was refused"),
        Some(_) => None,
        None => Some("wharf wrote a line that is no event"),
    }
}

fn log(file: &Path) -> Vec<String> {
    fs::read(file).map(|bytes| last_lines(&String::from_utf8_lossy(&bytes))).unwrap_or_default()
}

fn last_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().rev().take(LOG_LINES).map(str::to_owned).collect();
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reads_like_a_diff() {
        let came = VecDeque::from([
            json!({"type": "turn_start"}),
            json!({"type": "note", "text": "Hello, Bob!", "kind": "info"}),
            json!({"type": "note", "text": "Bye\u{1b}[2J", "kind": "error"}),
        ]);
        let expected = json!({"type": "note", "text": "Hello, Ada!", "kind": "info"});
        let failure = Failure {
            line: Some(7),
            problem: "it did not come within 10s".to_owned(),
            closest: closest(&expected, &came).map(Box::new),
            expected: Some(expected.to_string()),
            came: came.into(),
            log: vec!["a word".to_owned()],
        };
        assert_eq!(
            failure.to_string(),
            r#"  line 7: it did not come within 10s
  expected {"type":"note","text":"Hello, Ada!","kind":"info"}
  closest  {"type":"note","text":"Hello, Bob!","kind":"info"}
    /text
      - "Hello, Ada!"
      + "Hello, Bob!"
  since the step before came:
    {"type":"turn_start"}
    {"type":"note","text":"Hello, Bob!","kind":"info"}
    {"type":"note","text":"Bye\u001b[2J","kind":"error"}
  the log says:
    a word
"#
        );
    }

    #[test]
    fn an_event_of_another_type_is_not_close() {
        let came = VecDeque::from([json!({"type": "a", "x": 1}), json!({"type": "b", "x": 2})]);
        let close =
            |expected: Value| closest(&expected, &came).map(|(event, _)| event["x"].clone());
        assert_eq!(close(json!({"type": "b", "x": 1})), Some(json!(2)));
        assert_eq!(close(json!({"type": "c", "x": 1})), None);
        assert_eq!(close(json!({"x": 1})), Some(json!(1)));
    }

    #[test]
    fn errors_and_refusals_are_faults() {
        for (event, expect) in [
            (json!({"type": "extension_error", "error": "x"}), true),
            (json!({"type": "response", "success": false}), true),
            (json!({"type": "response", "success": true}), false),
            (json!({"type": "turn_end"}), false),
            (Value::Null, true),
        ] {
            assert_eq!(fault(&event).is_some(), expect, "{event}");
        }
    }
}
