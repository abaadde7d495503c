//! Runs shell commands: the tool `bash` and a person's own commands.
//!
//! Not here: what a result looks like to a model or a client.

use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::capture::{Capture, Captured};
use super::process::ProcessGroup;

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Between two reports of the output so far.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Without output for this long after the shell's end, the output counts as complete,
/// though a background process may still hold the pipe.
const QUIET: Duration = Duration::from_millis(100);
/// A background process that writes on and on is listened to no longer than this.
const MAX_DRAIN: Duration = Duration::from_secs(1);
/// A killed process that the kernel does not let go is left to the runtime to reap.
const MAX_REAP: Duration = Duration::from_secs(1);
const READ_SIZE: usize = 64 * 1024;

/// A shell and what comes before each of its commands.
#[derive(Debug, Clone)]
pub struct Shell {
    path: PathBuf,
    command_prefix: Option<String>,
}

#[derive(Debug, Clone)]
pub struct ShellRequest {
    pub command: String,
    pub cwd: PathBuf,
    pub timeout: Option<Duration>,
    pub cancel: CancellationToken,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellEnd {
    /// 128 and the signal's number if a signal ended the shell, as shells count.
    Exited(i32),
    TimedOut,
    Aborted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellOutcome {
    pub end: ShellEnd,
    pub output: Captured,
}

#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    #[error("failed to start {} in {}: {source}", shell.display(), cwd.display())]
    Start { shell: PathBuf, cwd: PathBuf, source: io::Error },
    #[error("failed to wait for {}: {source}", shell.display())]
    Wait { shell: PathBuf, source: io::Error },
}

impl Shell {
    /// `None` for `path`: bash, or sh where there is none.
    pub fn new(path: Option<PathBuf>, command_prefix: Option<String>) -> Self {
        let path = path.unwrap_or_else(|| {
            ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"]
                .iter()
                .map(PathBuf::from)
                .find(|path| path.exists())
                .unwrap_or_else(|| PathBuf::from("sh"))
        });
        Self { path, command_prefix }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a command in its own process group, its output and errors merged as they
    /// come. `report` gets the output so far, at most every 100 ms.
    ///
    /// Ends when the shell ends; what it left in the background goes on. On timeout or
    /// cancel the group gets SIGTERM and, 2 s later, SIGKILL. Dropping the future sends
    /// SIGKILL at once. A process that made itself a group of its own is not reached.
    ///
    /// # Errors
    /// If the shell could not be started or waited for.
    pub async fn run(
        &self,
        request: ShellRequest,
        mut report: impl FnMut(Captured) + Send,
    ) -> Result<ShellOutcome, ShellError> {
        if request.cancel.is_cancelled() {
            return Ok(ShellOutcome { end: ShellEnd::Aborted, output: Capture::new().finish() });
        }
        let (mut group, pipe) = self.spawn(&request).map_err(|source| ShellError::Start {
            shell: self.path.clone(),
            cwd: request.cwd.clone(),
            source,
        })?;
        let mut output = Output::new(pipe);
        let deadline = request.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let mut next_report = Instant::now();
        let mut unreported = false;
        let stop = loop {
            tokio::select! {
                () = request.cancel.cancelled() => break Err(ShellEnd::Aborted),
                () = at(deadline) => break Err(ShellEnd::TimedOut),
                status = group.wait() => break Ok(status),
                more = output.read() => unreported |= more,
                () = sleep_until(next_report), if unreported => {
                    report(output.capture.snapshot());
                    next_report = Instant::now() + REPORT_INTERVAL;
                    unreported = false;
                }
            }
        };
        let end = match stop {
            Ok(status) => ShellEnd::Exited(exit_code(
                status.map_err(|source| ShellError::Wait { shell: self.path.clone(), source })?,
            )),
            Err(end) => {
                group.terminate();
                output.read_during(group.ended(GRACE)).await;
                group.kill();
                // Its status tells nothing that `end` doesn't.
                let _ = timeout(MAX_REAP, group.wait()).await;
                end
            }
        };
        output.drain().await;
        Ok(ShellOutcome { end, output: output.capture.finish() })
    }

    fn spawn(&self, request: &ShellRequest) -> io::Result<(ProcessGroup, pipe::Receiver)> {
        let script = match &self.command_prefix {
            Some(prefix) => format!("{prefix}\n{}", request.command),
            None => request.command.clone(),
        };
        let (reader, writer): (PipeReader, _) = io::pipe()?;
        let mut command = Command::new(&self.path);
        command
            .arg("-c")
            .arg(script)
            .current_dir(&request.cwd)
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let group = ProcessGroup::spawn(&mut command)?;
        // The end of output is seen only when this process holds no writer either.
        drop(command);
        Ok((group, pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?))
    }
}

/// Never, without a deadline.
async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

struct Output {
    pipe: pipe::Receiver,
    at_end: bool,
    buffer: Vec<u8>,
    capture: Capture,
}

impl Output {
    fn new(pipe: pipe::Receiver) -> Self {
        Self { pipe, at_end: false, buffer: vec![0; READ_SIZE], capture: Capture::new() }
    }

    /// Takes what comes next, false at the end; never done after that. Cancel-safe.
    async fn read(&mut self) -> bool {
        if self.at_end {
            return std::future::pending().await;
        }
        match self.pipe.read(&mut self.buffer).await {
            Ok(0) | Err(_) => self.at_end = true,
            Ok(length) => self.capture.push(&self.buffer[..length]),
        }
        !self.at_end
    }

    async fn read_during(&mut self, event: impl Future<Output = ()>) {
        let mut event = std::pin::pin!(event);
        loop {
            tokio::select! {
                () = &mut event => return,
                _ = self.read() => {}
            }
        }
    }

    async fn drain(&mut self) {
        let deadline = Instant::now() + MAX_DRAIN;
        while !self.at_end {
            tokio::select! {
                biased;
                () = sleep_until(deadline) => return,
                _ = self.read() => {}
                () = sleep(QUIET) => return,
            }
        }
    }
}
