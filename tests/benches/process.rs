//! Whole processes over pipes: what a client sees of start-up and of extension
//! commands. Prints a table; `cargo xtask bench` builds what it needs.
//!
//! Medians over `RUNS` processes; start-up is from spawn to the response of
//! `get_state`, CPU and peak memory are the process's own at that moment.

#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod client;

use std::process::Command;
use std::time::Instant;

use client::{Session, millis, quantile};
use serde_json::json;
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
    drop(Session::start(without_file(warm.command())).ready());
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

fn without_file(mut command: Command) -> Command {
    command.arg("--no-session");
    command
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
        let mut session = Session::start(without_file(command));
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
    let mut session = Session::start(without_file(command)).ready();
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
