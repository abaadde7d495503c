//! Long sessions in whole processes: what a client sees of opening one, of the answers that
//! carry all of it, and of a store with thousands of them. Prints a table; `cargo xtask
//! bench` builds what it needs. Medians over `RUNS` processes.

#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod client;
#[path = "../../host/session/benches/generate/mod.rs"]
mod generate;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use client::{Session, millis, quantile};
use serde_json::json;
use wharf_tests::Env;

const RUNS: usize = 7;
/// Sessions of the listing rows.
const SESSIONS: usize = 3000;

fn main() {
    println!("{:<58} {:>12} {:>12} {:>10}", "case", "ms", "answer MB", "RSS MB");
    let env = Env::new();
    let file = |name: &str| env.agent_dir().join(name);
    let (mixed, short, long) = (file("mixed.jsonl"), file("short.jsonl"), file("long.jsonl"));
    generate::mixed(&mixed, 100_000).unwrap();
    generate::chain(&short, 10_000).unwrap();
    generate::chain(&long, 1_000_000).unwrap();
    let size = |path: &Path| std::fs::metadata(path).unwrap().len() / 1_000_000;
    let large = format!("100,000 entries, {} MB", size(&mixed));
    open(&format!("{large}: spawn -> get_state"), &env, &mixed);
    answer(&format!("{large}: get_messages"), &env, &mixed, "get_messages");
    answer(&format!("{large}: get_tree"), &env, &mixed, "get_tree");
    switch(&format!("{large}: switch_session"), &env, &mixed);
    answer("a chain of 10,000: get_tree", &env, &short, "get_tree");
    let long_name = format!("a chain of 1,000,000, {} MB", size(&long));
    open(&format!("{long_name}: spawn -> get_state"), &env, &long);
    answer(&format!("{long_name}: get_tree"), &env, &long, "get_tree");
    listing();
}

fn with_session(env: &Env, file: &Path) -> Command {
    let mut command = env.command();
    command.arg("--session").arg(file);
    command
}

/// Prints the medians of what `measure` gives: milliseconds, bytes, megabytes.
fn row(name: &str, mut measure: impl FnMut() -> (f64, usize, f64)) {
    let (mut times, mut sizes, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (time, size, peak) = measure();
        times.push(time);
        #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
        sizes.push(size as f64 / 1e6);
        memory.push(peak);
    }
    println!(
        "{name:<58} {:>12.1} {:>12.1} {:>10.1}",
        quantile(&mut times, 0.5),
        quantile(&mut sizes, 0.5),
        quantile(&mut memory, 0.5)
    );
}

fn open(name: &str, env: &Env, file: &Path) {
    row(name, || {
        let begin = Instant::now();
        let mut session = Session::start(with_session(env, file));
        let line = session.ask(&json!({"type": "get_state"}));
        (millis(begin.elapsed()), line.len(), session.peak_megabytes())
    });
}

fn answer(name: &str, env: &Env, file: &Path, command: &str) {
    row(name, || {
        let mut session = Session::start(with_session(env, file));
        session.ask(&json!({"type": "get_state"}));
        let begin = Instant::now();
        let line = session.ask(&json!({"type": command}));
        (millis(begin.elapsed()), line.len(), session.peak_megabytes())
    });
}

fn switch(name: &str, env: &Env, file: &Path) {
    row(name, || {
        let mut session = Session::start(env.command());
        session.ask(&json!({"type": "get_state"}));
        let begin = Instant::now();
        let line = session.ask(&json!({"type": "switch_session", "sessionPath": file}));
        (millis(begin.elapsed()), line.len(), session.peak_megabytes())
    });
}

fn listing() {
    let env = Env::new();
    let folder = env.agent_dir().join("sessions/--home-me-project--");
    std::fs::create_dir_all(&folder).unwrap();
    let template = folder.join("template");
    generate::mixed(&template, 300).unwrap();
    for number in 0..SESSIONS {
        let path = folder.join(format!(
            "2024-12-03T14-00-00-000Z_{number:08x}-6b0d-4c52-9d7e-0b9f4a3c2d11.jsonl"
        ));
        std::fs::copy(&template, path).unwrap();
    }
    let index: PathBuf = env.agent_dir().join("cache/sessions.json");
    let list = |forgets: bool| {
        if forgets {
            let _ = std::fs::remove_file(&index);
        }
        let mut session = Session::start(env.command());
        session.ask(&json!({"type": "get_state"}));
        let begin = Instant::now();
        let line = session.ask(&json!({"type": "list_all_sessions"}));
        (millis(begin.elapsed()), line.len(), session.peak_megabytes())
    };
    row("3,000 sessions, 180 kB each: list_all_sessions, unknown", || list(true));
    row("the same, known from the index", || list(false));
}
