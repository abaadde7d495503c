//! A child process and its process group, which ends with it unless the child ended
//! by itself.
//!
//! A group is signalled only while its leader is not reaped: until then the system
//! gives the number to nobody else.

use std::fs;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// How often a group that was asked to end is looked at.
const POLL: Duration = Duration::from_millis(10);

/// Dropping it kills the group, unless the child was reaped.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    child: Child,
    id: Option<Pid>,
}

impl ProcessGroup {
    pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { child, id })
    }

    /// The child's ends of its pipes, those that it has and that were not taken yet.
    pub(crate) fn take_pipes(
        &mut self,
    ) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdin.take(), self.child.stdout.take(), self.child.stderr.take())
    }

    /// Done when the child has ended. It is not reaped: the rest of the group can still
    /// be killed.
    pub(crate) fn child_ended(&self) -> impl Future<Output = ()> + use<> {
        let id = self.id;
        async move {
            let Some(id) = id else { return };
            let wait = move || {
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                while waitid(WaitId::Pid(id), options).is_err_and(|error| error == Errno::INTR) {}
            };
            // A worker that failed is one that waits no longer.
            let _ = tokio::task::spawn_blocking(wait).await;
        }
    }

    /// Waits for the child, not for the rest of the group. Cancel-safe.
    pub(crate) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.id = None;
        status
    }

    /// Asks the group to end. Stopped processes are woken, else they could not.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(id) = self.id {
            // It fails when no process of the group is left to be signalled.
            let _ = kill_process_group(id, signal);
        }
    }

    /// Done when no process of the group runs any more, or after `limit`.
    pub(crate) fn ended(&self, limit: Duration) -> impl Future<Output = ()> + use<> {
        let id = self.id;
        async move {
            let Some(id) = id else { return };
            let task = tokio::task::spawn_blocking(move || {
                let deadline = Instant::now() + limit;
                while is_running(id) && Instant::now() < deadline {
                    thread::sleep(POLL);
                }
            });
            // A worker that failed is one that waits no longer.
            let _ = task.await;
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether a process of the group is more than a zombie. Where the system has no
/// `/proc` nobody can tell, and the answer is yes.
fn is_running(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    let group = group.as_raw_nonzero().to_string();
    for process in processes.flatten() {
        if !process.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit) {
            continue;
        }
        let Ok(stat) = fs::read_to_string(process.path().join("stat")) else { continue };
        // "pid (name) state ppid pgrp ...": a name may hold spaces and parentheses.
        let Some((_, fields)) = stat.rsplit_once(')') else { continue };
        let mut fields = fields.split_ascii_whitespace();
        let (state, _parent, id) = (fields.next(), fields.next(), fields.next());
        if id == Some(group.as_str()) && !matches!(state, Some("Z" | "X")) {
            return true;
        }
    }
    false
}
