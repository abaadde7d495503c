//! Whole processes over pipes: what a client sees of start-up, of extension commands and
//! of a reload. Prints a table; `cargo xtask bench` builds what it needs.
//!
//! Medians over `RUNS` processes; start-up is from spawn to a response, CPU and peak
//! memory are the process's own at that moment. The rows:
//! - `spawn -> get_state`: without extensions, and with 1, 10, 50 and 100, each of which
//!   is another component. `warm`: compiled and registered by an earlier process. `cold`:
//!   never seen before. `get_commands` waits until all have registered, `get_state` does not.
//! - `an extension`: what one more takes of the resident memory, of 100, when they are
//!   registered (warm), and when each has an instance that has run a command.
//! - `reload of 50`: a command that reloads, with nothing changed and with one changed
//!   component, which is compiled.
//! - latencies of commands.

#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod client;

use std::process::Command;
use std::time::Instant;

use client::{Copies, Session, install, install_one, millis, quantile};
use serde_json::json;
use wharf_tests::{Env, guest};

/// Processes for each start-up row.
const RUNS: usize = 15;
/// The same for rows that compile, each in an environment of its own.
const COLD_RUNS: usize = 3;
/// Commands for each latency row.
const COMMANDS: usize = 2000;
const RELOADS: usize = 20;

const HEARTBEAT: Copies<'static> = Copies { guest: "heartbeat", id: "heartbeat" };

fn main() {
    println!("{:<58} {:>12} {:>12} {:>10}", "case", "ms", "CPU ms", "RSS MB");
    let bare = Env::new();
    startup("spawn -> get_state, no extension", RUNS, "get_state", || bare.command());
    for count in [1, 10, 50, 100] {
        startups(count);
    }
    memory();
    reload();
    latency();
}

fn startups(count: usize) {
    let with_extensions = || {
        let env = Env::new();
        install(&env, HEARTBEAT, count);
        env
    };
    let warm = with_extensions();
    drop(Session::start(without_file(warm.command())).ready());
    for last in ["get_state", "get_commands"] {
        let name = format!("spawn -> {last}, {count} extensions, warm");
        startup(&name, RUNS, last, || warm.command());
    }
    for last in ["get_state", "get_commands"] {
        let name = format!("spawn -> {last}, {count} extensions, cold");
        let mut cold = Vec::new();
        startup(&name, COLD_RUNS, last, || {
            cold.push(with_extensions());
            cold.last().unwrap().command()
        });
    }
}

fn without_file(mut command: Command) -> Command {
    command.arg("--no-session");
    command
}

fn startup(name: &str, runs: usize, last: &str, mut command: impl FnMut() -> Command) {
    let mut times = Vec::new();
    let mut cpu = Vec::new();
    let mut memory = Vec::new();
    for _ in 0..runs {
        let command = command();
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

/// What an extension takes while nothing is done with it.
fn memory() {
    const COUNT: u8 = 100;
    let resident = |count: u8, used: bool| {
        let env = Env::new();
        install(&env, HEARTBEAT, usize::from(count));
        drop(Session::start(without_file(env.command())).ready());
        let mut session = Session::start(without_file(env.command())).ready();
        for number in 1..=count {
            if used {
                session.command(&format!("/beat:{number} 1"));
            }
        }
        session.resident_megabytes()
    };
    let none = resident(0, false);
    for (name, used) in [("registered", false), ("with an instance", true)] {
        let each = (resident(COUNT, used) - none) / f64::from(COUNT);
        println!(
            "{:<58} {:>12} {:>12} {each:>10.3}",
            format!("an extension of 100, {name}"),
            "",
            ""
        );
    }
}

fn reload() {
    let env = Env::new();
    install(&env, HEARTBEAT, 49);
    env.write_agent("extensions/bench-calls.wasm", std::fs::read(guest("bench-calls")).unwrap());
    let mut session = Session::start(without_file(env.command())).ready();
    session.command("/fill 1");
    for changed in [0, 1] {
        let mut times = Vec::new();
        for number in 0..RELOADS {
            if changed == 1 {
                install_one(&env, HEARTBEAT, 7, &format!("edition {number}"));
            }
            let begin = Instant::now();
            let end = session.command("/reload");
            times.push(millis(begin.elapsed()));
            assert_eq!(end["message"], format!("{changed} changed"));
        }
        let name = format!("reload of 50 extensions, {changed} changed");
        println!("{name:<58} {:>12.2}", quantile(&mut times, 0.5));
    }
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
