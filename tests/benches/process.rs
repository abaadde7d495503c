//! Whole processes over pipes: what a client sees of start-up and of extension
//! commands. Prints a table; `cargo xtask bench` builds what it needs.
//!
//! Medians over `RUNS` processes; start-up is from spawn to the response of
//! `get_state`, CPU and peak memory are the process's own at that moment.

#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wharf_tests::{Env, guest};

/// Processes for each start-up row.
const RUNS: usize = 15;
/// Commands for each latency row.
const COMMANDS: usize = 2000;
const EXTENSIONS: usize = 50;

fn main() {
    println!("{:<58} {:>12} {:>12} {:>10}", "case", "ms", "CPU ms", "RSS MB");
    let bare = Env::new();
    startup("spawn -> get_state, no extension", RUNS, || bare.command());
    let warm = with_extensions();
    drop(Session::start(warm.command()).ready());
    startup("the same, 50 extensions, warm cache", RUNS, || warm.command());
    startup("the same, until get_commands", RUNS, || {
        let mut command = warm.command();
        command.env("BENCH_LAST", "get_commands");
        command
    });
    let mut cold = Vec::new();
    startup("the same, 50 extensions never seen before", 5, || {
        cold.push(with_extensions());
        cold.last().unwrap().command()
    });
    latency();
}

/// An environment with fifty different copies of one guest.
fn with_extensions() -> Env {
    let env = Env::new();
    let bytes = std::fs::read(guest("heartbeat")).unwrap();
    for number in 0..EXTENSIONS {
        // A custom section of its own makes each a component never seen before.
        let mut copy = bytes.clone();
        let id = format!("{number}-{}", env.agent_dir().display());
        let mut section = vec![u8::try_from(1 + id.len()).unwrap()];
        section.push(1);
        section.extend_from_slice(b"n");
        section[0] = u8::try_from(section.len() - 1 + id.len()).unwrap();
        section.extend_from_slice(id.as_bytes());
        copy.push(0);
        copy.extend_from_slice(&section);
        env.write_agent(&format!("extensions/e{number:02}.wasm"), copy);
    }
    env
}

fn startup(name: &str, runs: usize, mut command: impl FnMut() -> Command) {
    let mut times = Vec::new();
    let mut cpu = Vec::new();
    let mut memory = Vec::new();
    for _ in 0..runs {
        let command = command();
        let last = command
            .get_envs()
            .find_map(|(key, value)| (key == "BENCH_LAST").then_some(value?.to_str()?))
            .unwrap_or("get_state")
            .to_owned();
        let begin = Instant::now();
        let mut session = Session::start(command);
        session.send(&json!({"id": "s", "type": last}));
        session.wait(|line| line["id"] == "s");
        times.push(millis(begin.elapsed()));
        cpu.push(session.cpu_millis());
        memory.push(session.peak_megabytes());
    }
    println!(
        "{name:<58} {:>12.2} {:>12.1} {:>10.1}",
        quantile(&mut times, 0.5),
        quantile(&mut cpu, 0.5),
        quantile(&mut memory, 0.5)
    );
}

fn latency() {
    let env = Env::new();
    let mut command = env.command();
    command.arg("-e").arg(guest("heartbeat")).arg("-e").arg(guest("rpc-demo"));
    let mut session = Session::start(command).ready();
    let mut notify = Vec::new();
    for number in 0..COMMANDS {
        let begin = Instant::now();
        session.send(&json!({"type": "prompt", "message": format!("/beat {number}")}));
        session.wait(|line| line["method"] == "notify");
        notify.push(millis(begin.elapsed()));
    }
    let p99 = quantile(&mut notify, 0.99);
    println!(
        "{:<58} {:>12} {:>12} {:>10}",
        "extension command -> its notify on stdout, p50 / p99",
        format!("{:.3} / {p99:.3}", quantile(&mut notify, 0.5)),
        "",
        ""
    );
    let mut confirm = Vec::new();
    for _ in 0..COMMANDS {
        let begin = Instant::now();
        session.send(&json!({"type": "prompt", "message": "/rpc-confirm"}));
        let dialog = session.wait(|line| line["method"] == "confirm");
        session
            .send(&json!({"type": "extension_ui_response", "id": dialog["id"], "confirmed": true}));
        session.wait(|line| line["method"] == "notify");
        confirm.push(millis(begin.elapsed()));
    }
    println!(
        "{:<58} {:>12.3}",
        "command -> confirm -> answer -> notify, p50",
        quantile(&mut confirm, 0.5)
    );
}

/// A process in RPC mode.
struct Session {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Session {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .args(["--mode", "rpc", "--no-session"])
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
    fn ready(mut self) -> Self {
        self.send(&json!({"id": "ready", "type": "get_commands"}));
        self.wait(|line| line["id"] == "ready");
        self
    }

    fn send(&mut self, command: &Value) {
        self.stdin.write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    fn wait(&mut self, matches: impl Fn(&Value) -> bool) -> Value {
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
    fn cpu_millis(&self) -> f64 {
        let stat = std::fs::read_to_string(self.proc("stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
        (ticks(11) + ticks(12)) * 10.0
    }

    fn peak_megabytes(&self) -> f64 {
        let status = std::fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kilobytes / 1024.0
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

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn quantile(values: &mut [f64], at: f64) -> f64 {
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
