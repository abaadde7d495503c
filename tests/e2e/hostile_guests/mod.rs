//! Extensions that mean harm, beside one that means well: each attempt comes to the
//! refusal that is documented, the program keeps its memory and goes on, and the other
//! extension is served.
//!
//! Loops, panics, and memory without end are `faults`'.

mod bus;
mod deluges;
mod dialogs;
mod evasion;
mod files;
mod giants;
mod net;
mod programs;
mod reentry;
mod schemas;
mod traps;

use std::path::PathBuf;

use serde_json::{Value, json};
use wharf_tests::{Env, Wharf};

/// What a run with one extension at its limit of memory may take beside that limit: the
/// program, compiled code, and what one host call takes out of a guest (64 MiB).
const HOST_MIB: u64 = 300;

/// Limits for every extension.
fn with_limits(limits: &Value) -> Env {
    let env = Env::new();
    let settings = json!({
        "autoSessionName": false,
        "compaction": {"keepRecentTokens": 20},
        "extensionSettings": {"*": {"limits": limits}},
    });
    env.write_agent("settings.json", settings.to_string());
    env
}

/// This extension with all that it asks for, and one that means well.
fn start(env: &Env, name: &str) -> Wharf {
    env.grant_all(&[name]);
    env.rpc_with(&[name, "hello"], "scripted/demo")
}

/// Runs a command of a guest that shows what came of a call.
fn outcome(wharf: &mut Wharf, command: &str) -> Value {
    wharf.prompt(command);
    next_outcome(wharf)
}

fn next_outcome(wharf: &mut Wharf) -> Value {
    let line = wharf.wait_for("an outcome", |line| {
        line["method"] == "notify"
            && line["message"].as_str().is_some_and(|text| text.starts_with("{\"call\""))
    });
    serde_json::from_str(line["message"].as_str().unwrap()).unwrap()
}

/// The call was refused so, and the text says this.
#[track_caller]
fn assert_refused(outcome: &Value, kind: &str, words: &str, about: &str) {
    assert_eq!(outcome["error"]["kind"], kind, "{about}: {outcome}");
    let text = outcome["error"]["message"].as_str().unwrap();
    assert!(text.contains(words), "{about}: {words:?} is not in {text:?}");
}

/// The text of `denied`, as it is documented: the grant that is missing, and how to give it.
fn not_granted(id: &str, permission: &str) -> String {
    format!("{permission} is not granted; grant what it asks for with: wharf extension grant {id}")
}

/// The program answers, and so does the other extension.
#[track_caller]
fn assert_served(wharf: &mut Wharf, name: &str) {
    wharf.data(json!({"type": "get_state"}));
    wharf.prompt(&format!("/hello {name}"));
    let text = format!("Hello, {name}!");
    wharf.wait_for(&text, |line| line["method"] == "notify" && line["message"] == text.as_str());
}

/// A line of `/proc/PID/status`, in MiB: `VmHWM` is the most that was in use, `VmRSS`
/// what is.
fn memory_mib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/status"))).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kib: u64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap();
    kib / 1024
}

#[track_caller]
fn assert_memory(wharf: &Wharf, limit: u64) {
    let peak = memory_mib(wharf.pid(), "VmHWM");
    assert!(peak < limit, "{peak} MiB; the limit is {limit}");
}

/// Everything is over, and in order.
#[track_caller]
fn assert_ends(wharf: Wharf) -> Vec<Value> {
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    exit.rest
}
