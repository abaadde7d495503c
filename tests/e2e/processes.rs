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

/// A process of a shell command; a test that fails leaves it not running.
pub(crate) struct Started(pub(crate) u32);

impl Drop for Started {
    fn drop(&mut self) {
        if is_running(self.0) {
            // It may have ended in this moment.
            let _ = kill_process(pid_of(self.0), Signal::KILL);
        }
    }
}

/// Waits for a file that a shell command writes its number into.
pub(crate) fn read_pid(file: &Path) -> Started {
    until(&file.display().to_string(), || {
        fs::read_to_string(file).ok()?.trim().parse().ok().map(Started)
    })
}

/// Waits until a process has ended.
#[track_caller]
pub(crate) fn wait_gone(process: &Started) {
    until(&format!("the end of process {}", process.0), || (!is_running(process.0)).then_some(()));
}

/// One that has ended and that nobody has collected does not run: that is up to
/// whoever adopted it.
pub(crate) fn is_running(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // "pid (name) state ...": a name may hold spaces and parentheses.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(pid_of(pid), signal).unwrap();
}
