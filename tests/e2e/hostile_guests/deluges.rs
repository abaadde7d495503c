//! One host call again and again, and what is left of it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};
use wharf_tests::guest;

use super::{
    HOST_MIB, assert_ends, assert_memory, assert_served, memory_mib, next_outcome, start,
    with_limits,
};

/// As many as anybody could want; the budget ends it before.
const MANY: u32 = 10_000_000;

/// A reader that keeps up sees them in order, one that does not holds the guest up, and
/// the program keeps its memory.
#[test]
fn ten_million_notices_end_with_the_budget() {
    let env = with_limits(&json!({"commandBudgetMs": 1_500}));
    let mut command = env.command();
    command.args(["--mode", "rpc", "--no-session"]);
    for name in ["floods", "hello"] {
        command.arg("-e").arg(guest(name));
    }
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let mut next = || {
        line.clear();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "the process ended");
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let mut prompt = |message: &str| {
        writeln!(stdin, "{}", json!({"type": "prompt", "message": message})).unwrap();
    };
    prompt("/hello warm");
    while next()["message"] != "Hello, warm!" {}
    let before = memory_mib(child.id(), "VmRSS");
    prompt(&format!("/flood {MANY}"));
    let (mut seen, mut is_served) = (0_u32, false);
    let error = loop {
        let line = next();
        match line["message"].as_str() {
            Some("Hello, Ann!") => is_served = true,
            Some(text) if text.starts_with("flood ") => {
                seen += 1;
                assert_eq!(text, format!("flood {seen}"), "in order, none left out");
                if seen == 1_000 {
                    prompt("/hello Ann");
                }
            }
            _ if line["type"] == "extension_error" => break line,
            _ => {}
        }
    };
    assert!((1_000..MANY).contains(&seen), "{seen}");
    assert!(error["error"].as_str().unwrap().contains("1500 ms"), "{error}");
    while !is_served {
        is_served = next()["message"] == "Hello, Ann!";
    }
    prompt("/hello Bea");
    while next()["message"] != "Hello, Bea!" {}
    let (peak, after) = (memory_mib(child.id(), "VmHWM"), memory_mib(child.id(), "VmRSS"));
    assert!(peak < HOST_MIB, "{peak} MiB");
    assert!(after < before + 100, "from {before} MiB to {after} MiB");
    drop(stdin);
    while stdout.read_line(&mut String::new()).unwrap() > 0 {}
    assert!(child.wait().unwrap().success());
}

/// What goes to the front end or to the log is not kept.
#[test]
fn what_is_shown_or_logged_is_not_kept() {
    let env = with_limits(&json!({"commandBudgetMs": 600_000}));
    let mut wharf = start(&env, "deluges");
    for (call, times, bytes) in [
        ("status", 2_000, 10_000),
        ("widget", 2_000, 10_000),
        ("title", 2_000, 4_000),
        ("editor-text", 2_000, 10_000),
        ("log", 20_000, 5_000),
        ("bus", 10_000, 10_000),
    ] {
        wharf.prompt(&format!("/deluge {call} {times} {bytes}"));
        assert_served(&mut wharf, "Cleo");
        let outcome = next_outcome(&mut wharf);
        assert_eq!(outcome["ok"], json!({"done": times, "refused": null, "message": null}));
        assert_memory(&wharf, HOST_MIB);
    }
    assert_ends(wharf);
    let logs = std::fs::read_dir(env.agent_dir().join("logs"));
    let sizes = logs.into_iter().flatten().map(|file| file.unwrap().metadata().unwrap().len());
    let size: u64 = sizes.sum();
    assert!(size < 64 << 20, "logs of {size} bytes");
}

/// What the host keeps for an extension has a limit, and the refusal says so.
#[test]
fn what_is_kept_has_a_limit() {
    let env = with_limits(&json!({"commandBudgetMs": 600_000}));
    let mut wharf = start(&env, "deluges");
    wharf.prompt("/deluge tool 100000 1000");
    let outcome = next_outcome(&mut wharf);
    assert_eq!(outcome["ok"]["done"], 256, "{outcome}");
    assert!(outcome["ok"]["refused"].is_string(), "{outcome}");
    assert!(outcome["ok"]["message"].as_str().unwrap().contains("256"), "{outcome}");
    assert_served(&mut wharf, "Dana");
    // Two gigabytes that would wait for the next prompt.
    wharf.prompt("/deluge next-turn 2000 1000000");
    let outcome = next_outcome(&mut wharf);
    assert!(outcome["ok"]["refused"].is_string(), "{outcome}");
    assert_served(&mut wharf, "Eve");
    // 128 MiB may wait.
    assert_memory(&wharf, HOST_MIB + 128);
    assert_ends(wharf);
}

/// Compactions that are asked for again and again do not queue up.
#[test]
fn compactions_without_end_do_not_pile_up() {
    let env = with_limits(&json!({"commandBudgetMs": 600_000}));
    let mut wharf = start(&env, "deluges");
    wharf.prompt("/deluge compact 2000 100000");
    assert_served(&mut wharf, "Fay");
    next_outcome(&mut wharf);
    assert_served(&mut wharf, "Gil");
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}
