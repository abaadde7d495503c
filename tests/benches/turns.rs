//! The agent loop and long replies, as a client sees them over the pipe: whole
//! processes, with the mock LLM server that may lie beside the project (without it
//! nothing is measured). Prints a table; `cargo xtask bench` builds what it needs.
//!
//! `net` is without the mock's own service time, which it counts itself. The rows, for
//! each of two APIs:
//! - a turn that calls a tool, with 0 and 10 extensions that judge every call;
//! - a reply of 20,000 deltas, with 0, 1 and 10 extensions that follow `message_update`.

#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod client;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use client::{Copies, install};
use serde_json::{Value, json};
use wharf_tests::{Env, MockLlm};

/// Tool calls of one run.
const TURNS: u32 = 200;
/// Runs of each row.
const RUNS: usize = 5;

const GATE: Copies<'static> = Copies { guest: "permission-gate", id: "permission-gate" };
const FOLLOWER: Copies<'static> = Copies { guest: "follower", id: "follower-000" };

fn main() {
    let Some(mock) = MockLlm::start() else { return };
    println!(
        "{:<58} {:>9} {:>9} {:>9} {:>9}",
        "case (median of runs)", "ms", "net ms", "bytes", "RSS MB"
    );
    for provider in ["mock-anthropic", "mock-openai"] {
        for (tool, argument) in [("read", "arg.path=file.txt"), ("bash", "arg.command=true")] {
            for extensions in [0, 10] {
                let name = format!("{provider}: a {tool} turn, {extensions} tool_call extensions");
                let prompt = format!("[[mock tools={TURNS} tool={tool} {argument}]]");
                let extensions = (GATE, extensions);
                row(&name, &mock, &Case { provider, extensions, prompt, turns: TURNS });
            }
        }
        for followers in [0, 1, 10] {
            let name = format!("{provider}: 20,000 text deltas, {followers} followers");
            let prompt = "[[mock deltas=20000 chunk=word_]]".to_owned();
            let extensions = (FOLLOWER, followers);
            row(&name, &mock, &Case { provider, extensions, prompt, turns: 1 });
        }
    }
}

struct Case<'a> {
    provider: &'a str,
    /// Which extensions there are, and how many.
    extensions: (Copies<'static>, usize),
    prompt: String,
    turns: u32,
}

fn row(name: &str, mock: &MockLlm, case: &Case<'_>) {
    let mut runs: Vec<Run> = (0..RUNS).map(|_| run(mock, case)).collect();
    runs.sort_by(|a, b| a.wall.total_cmp(&b.wall));
    let Run { wall, net, bytes, memory } = runs.swap_remove(RUNS / 2);
    println!("{name:<58} {wall:>9.3} {net:>9.3} {bytes:>9} {memory:>9.1}");
}

struct Run {
    /// Milliseconds a turn.
    wall: f64,
    net: f64,
    bytes: usize,
    memory: f64,
}

fn run(mock: &MockLlm, case: &Case<'_>) -> Run {
    let env = Env::new();
    env.write("file.txt", "one\ntwo\nthree\n");
    env.write_agent("models.json", mock.models_json());
    env.write_agent("settings.json", r#"{"autoSessionName": false}"#);
    let (copies, count) = case.extensions;
    install(&env, copies, count);
    let mut command: Command = env.command();
    command
        .args(["--mode", "rpc", "--no-session", "--model"])
        .arg(format!("{}/mock", case.provider))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut send = |command: &Value| stdin.write_all(format!("{command}\n").as_bytes()).unwrap();
    let mut wait = |matches: &dyn Fn(&str) -> bool| {
        let (mut bytes, mut line) = (0, String::new());
        loop {
            line.clear();
            let read = stdout.read_line(&mut line).unwrap();
            assert!(read > 0, "the process has ended");
            bytes += read;
            if matches(&line) {
                return bytes;
            }
        }
    };
    send(&json!({"id": "ready", "type": "get_commands"}));
    wait(&|line| line.contains("\"ready\""));
    // The client, its connection and the extensions' instances are there from now on.
    send(&json!({"type": "prompt", "message": "[[mock tools=1 tool=read arg.path=file.txt]]"}));
    wait(&|line| line.starts_with("{\"type\":\"agent_end\""));
    mock.reset();
    let begin = Instant::now();
    send(&json!({"type": "prompt", "message": case.prompt}));
    let bytes = wait(&|line| line.starts_with("{\"type\":\"agent_end\""));
    let wall = begin.elapsed();
    let stats = mock.stats();
    let service = Duration::from_secs_f64(stats["service_ms"].as_f64().unwrap() / 1000.0);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let kilobytes: f64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let a_turn = |time: Duration| time.as_secs_f64() * 1000.0 / f64::from(case.turns);
    Run {
        wall: a_turn(wall),
        net: a_turn(wall.saturating_sub(service)),
        bytes,
        memory: kilobytes / 1024.0,
    }
}
