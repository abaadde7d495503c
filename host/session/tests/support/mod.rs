//! A second process: the test binary runs itself, with one test that is the child.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;

use wharf_protocol::AgentMessage;
use wharf_session::Session;

/// Names the child's task.
const TASK: &str = "WHARF_SESSION_TEST_CHILD";

/// What the child says starts with this; the rest of its output is the test harness's.
const MARK: &str = "@ ";

pub(crate) struct Child {
    process: std::process::Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts the test `child` of this binary in a process of its own.
    pub(crate) fn start(task: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--quiet"])
            .env(TASK, task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, input, output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What the child says next; `None` once it has ended.
    pub(crate) fn hear(&mut self) -> Option<String> {
        self.output
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix(MARK).map(str::to_owned))
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Ends the child as `kill -9` does, and gives what it had said until then.
    pub(crate) fn kill(&mut self) -> Vec<String> {
        self.process.kill().unwrap();
        self.wait().0
    }

    /// Waits for the child's end; gives what it says until then, and how it ended.
    pub(crate) fn wait(&mut self) -> (Vec<String>, ExitStatus) {
        let said = std::iter::from_fn(|| self.hear()).collect();
        (said, self.process.wait().unwrap())
    }
}

/// None is left behind, nor does one that lives on complain that nobody hears it.
impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In the child: its task. `None` in the parent's own run of the test.
pub(crate) fn task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// In the child: tells the parent something. The harness may have begun a line.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{MARK}{text}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// In the child: does to the session at `path` what the parent tells, until that ends.
pub(crate) fn obey(path: &Path) {
    let mut session = None;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let result = match line.split_once(' ') {
            None if line == "open" => Session::open_to_write(path)
                .map(|opened| session = Some(opened))
                .map_err(|error| error.to_string()),
            None if line == "close" => {
                session = None;
                Ok(())
            }
            Some(("append", text)) => runtime
                .block_on(session.as_ref().unwrap().append_message(user(text)).1)
                .map_err(|error| error.to_string()),
            _ => panic!("{line}"),
        };
        say(&result.err().unwrap_or("ok".to_owned()));
    }
}

/// Has the child do something, which succeeds.
#[track_caller]
pub(crate) fn ask(child: &mut Child, line: &str) {
    child.tell(line);
    assert_eq!(child.hear().unwrap(), "ok");
}

pub(crate) fn user(text: &str) -> Arc<AgentMessage> {
    let json = serde_json::json!({"role": "user", "content": text, "timestamp": 1});
    Arc::new(serde_json::from_value(json).unwrap())
}
