//! A client of a whole process, and what it measures.

#![expect(dead_code, reason = "not every benchmark uses all of it")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use wharf_tests::{Env, guest};

/// How an extension got into an environment.
#[derive(Clone, Copy)]
pub(crate) struct Copies<'a> {
    /// The guest.
    pub(crate) guest: &'a str,
    /// Its id, or what else stands in its data; as long as that is, digits at the end.
    pub(crate) id: &'a str,
}

/// Different extensions, each with an id of its own, with the same behaviour: the id is
/// changed in the component's data. No component has been seen before by any cache.
pub(crate) fn install(env: &Env, copies: Copies<'_>, count: usize) {
    for number in 0..count {
        install_one(env, copies, number, "first");
    }
}

/// Writes one of them, again if it was there; another `edition` is another content.
pub(crate) fn install_one(env: &Env, copies: Copies<'_>, number: usize, edition: &str) {
    let Copies { guest: name, id } = copies;
    let mut component = std::fs::read(guest(name)).unwrap();
    let own = format!("{}{number:03}", &id[..id.len() - 3]);
    let mut found = 0;
    for at in 0..component.len() - id.len() {
        if component[at..].starts_with(id.as_bytes()) {
            component[at..at + id.len()].copy_from_slice(own.as_bytes());
            found += 1;
        }
    }
    assert!(found > 0, "{name} does not hold its id {id} as plain text");
    // A custom section makes the content one of this environment and edition.
    let text = format!("{edition} {}", env.agent_dir().display());
    component.extend_from_slice(&[0, u8::try_from(2 + text.len()).unwrap(), 1, b'n']);
    component.extend_from_slice(text.as_bytes());
    env.write_agent(&format!("extensions/{own}.wasm"), component);
}

/// A process in RPC mode.
pub(crate) struct Session {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Session {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .args(["--mode", "rpc"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdin, stdout }
    }

    /// Waits until every extension has registered.
    pub(crate) fn ready(mut self) -> Self {
        self.send(&json!({"id": "ready", "type": "get_commands"}));
        self.wait(|line| line["id"] == "ready");
        self
    }

    pub(crate) fn send(&mut self, command: &Value) {
        self.stdin.write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    /// Sends a command and gives its response's line; what else comes is passed over, and
    /// nothing is parsed: a response may have tens of megabytes.
    pub(crate) fn ask(&mut self, command: &Value) -> String {
        self.send(command);
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the process has ended");
            let start = &line[..line.len().min(200)];
            if start.contains(r#""type":"response""#) {
                assert!(start.contains(r#""success":true"#), "{start}");
                return line;
            }
        }
    }

    pub(crate) fn wait(&mut self, matches: impl Fn(&Value) -> bool) -> Value {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the process has ended");
            let value: Value = serde_json::from_str(&line).unwrap();
            if matches(&value) {
                return value;
            }
        }
    }

    /// User and system time so far, from `/proc`, in milliseconds (10 ms steps).
    pub(crate) fn cpu_millis(&self) -> f64 {
        let stat = std::fs::read_to_string(self.proc("stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
        (ticks(11) + ticks(12)) * 10.0
    }

    pub(crate) fn peak_megabytes(&self) -> f64 {
        self.megabytes("VmHWM")
    }

    /// What it has now.
    pub(crate) fn resident_megabytes(&self) -> f64 {
        self.megabytes("VmRSS")
    }

    fn megabytes(&self, field: &str) -> f64 {
        let status = std::fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kilobytes / 1024.0
    }

    /// Runs an extension's command up to the notification that ends it; an error of an
    /// extension ends the benchmark.
    pub(crate) fn command(&mut self, line: &str) -> Value {
        self.send(&json!({"type": "prompt", "message": line}));
        let end = self.wait(|line| line["method"] == "notify" || line["type"] == "extension_error");
        assert!(end["type"] != "extension_error", "{end}");
        end
    }

    fn proc(&self, file: &str) -> std::path::PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(file)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

pub(crate) fn quantile(values: &mut [f64], at: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into a short list"
    )]
    let index = ((values.len() - 1) as f64 * at) as usize;
    values[index]
}
