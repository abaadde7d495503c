//! What one call of the host costs an extension, by kind, in a whole process: a command
//! makes very many of them in a row. Prints a table; `cargo xtask bench` builds what it
//! needs.
//!
//! Medians over `RUNS` commands, without what a command costs that makes no call. The rows:
//! - `session.id`: a plain call that gives a short text;
//! - `session.entries`: gives 100 entries as JSON text, 18 kB or so;
//! - `call.sleep`: an asynchronous call, of no time;
//! - `log.write`: a line of the log file;
//! - `bus.emit`: an event that nobody subscribes to;
//! - `files.read-denied`: judged and refused;
//! - `files.read-granted`: judged, opened and read, 100 bytes.

#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod client;

use std::time::Instant;

use client::{Session, millis, quantile};
use wharf_tests::{Env, guest};

const RUNS: usize = 5;
const ENTRIES: u32 = 100;

/// The kinds, and how many calls one command makes: a fraction of a second's worth.
const KINDS: [(&str, u32); 7] = [
    ("session.id", 100_000),
    ("session.entries", 2_000),
    ("call.sleep", 20_000),
    ("log.write", 20_000),
    ("bus.emit", 50_000),
    ("files.read-denied", 10_000),
    ("files.read-granted", 5_000),
];

fn main() {
    let env = Env::new();
    env.write("granted.txt", "x".repeat(100));
    env.write("denied.txt", "x".repeat(100));
    let path = guest("bench-calls");
    env.grant(&path, &[]);
    let mut command = env.command();
    command.arg("--no-session").arg("-e").arg(&path);
    let mut session = Session::start(command).ready();
    session.command(&format!("/fill {ENTRIES}"));
    let mut run = |kind: &str, count: u32| {
        let mut times: Vec<f64> = (0..RUNS)
            .map(|_| {
                let begin = Instant::now();
                session.command(&format!("/calls {kind} {count}"));
                millis(begin.elapsed())
            })
            .collect();
        quantile(&mut times, 0.5)
    };
    let none = run("none", 1);
    println!("{:<58} {:>12}", "host call", "us");
    for (kind, count) in KINDS {
        let each = (run(kind, count) - none) * 1000.0 / f64::from(count);
        println!("{kind:<58} {each:>12.3}");
    }
}
