//! Processes that a run has started, and signals.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Turns a wait that would never end into a failure.
const LIMIT: Duration = Duration::from_secs(60);

fn until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(start.elapsed() < LIMIT, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for a file that a shell command writes its number into.
pub(crate) fn read_pid(file: &Path) -> u32 {
    until(&file.display().to_string(), || fs::read_to_string(file).ok()?.trim().parse().ok())
}

/// Waits until a process has ended. One that nobody has collected counts: that is
/// up to whoever adopted it.
pub(crate) fn wait_gone(pid: u32) {
    until(&format!("the end of process {pid}"), || {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return Some(()) };
        let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
        (state == 'Z' || state == 'X').then_some(())
    });
}

pub(crate) fn is_running(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}
