//! Runs a program for an extension, without a shell.
//!
//! Not here: which programs are granted, and how many may run at a time.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::host_api::{ExecError, ExecOutput, ExecRequest};
use crate::tools::process::ProcessGroup;

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// A killed process that the kernel does not let go is left to the runtime to reap.
const MAX_REAP: Duration = Duration::from_secs(1);
/// After the program's end, a process that has left its group may still hold the pipes.
/// Longer than this nobody listens to it.
const MAX_DRAIN: Duration = Duration::from_secs(1);
const READ_SIZE: usize = 64 * 1024;

/// Runs a program in a process group of its own and waits for its end. What it has
/// started and left in its group ends with it; a process that made itself a group of its
/// own is not reached.
///
/// On timeout or cancel the group gets SIGTERM and, 2 s later, SIGKILL. Dropping the
/// future sends SIGKILL at once.
pub(crate) async fn run(request: ExecRequest) -> Result<ExecOutput, ExecError> {
    if request.cancel.is_cancelled() {
        return Err(ExecError::Cancelled);
    }
    let mut group = spawn(&request)?;
    let (stdin, stdout, stderr) = group.take_pipes();
    let mut out = Kept::new(request.output_bytes);
    let mut err = Kept::new(request.output_bytes);
    let stopped = {
        let feed = feed(stdin, &request.stdin);
        let outputs = async { tokio::join!(out.fill(stdout), err.fill(stderr)) };
        // Its end tells nothing: the program may close its outputs and go on.
        let traffic = async {
            tokio::join!(feed, outputs);
        };
        let mut traffic = std::pin::pin!(traffic);
        let mut is_done = false;
        let mut ended = std::pin::pin!(group.child_ended());
        let mut time = std::pin::pin!(sleep_for(request.timeout));
        let stopped = loop {
            tokio::select! {
                biased;
                () = request.cancel.cancelled() => break Some(ExecError::Cancelled),
                () = &mut ended => break None,
                () = &mut time => break Some(ExecError::TimedOut(request.timeout)),
                () = &mut traffic, if !is_done => is_done = true,
            }
        };
        if stopped.is_some() {
            group.terminate();
            let over = group.ended(GRACE);
            let mut over = std::pin::pin!(over);
            loop {
                tokio::select! {
                    () = &mut over => break,
                    // A process that cannot get rid of its output could not end.
                    () = &mut traffic, if !is_done => is_done = true,
                }
            }
        }
        group.kill();
        if !is_done && stopped.is_none() {
            // What is in the pipes is there already.
            let _ = timeout(MAX_DRAIN, &mut traffic).await;
        }
        stopped
    };
    let status = timeout(MAX_REAP, group.wait()).await;
    if let Some(error) = stopped {
        return Err(error);
    }
    let status = match status {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => return Err(failed(&request, &format!("was lost: {error}"))),
        Err(_) => return Err(failed(&request, "has ended, but not said how")),
    };
    let truncated = out.is_cut || err.is_cut;
    Ok(ExecOutput { exit_code: status.code(), stdout: out.bytes, stderr: err.bytes, truncated })
}

fn failed(request: &ExecRequest, problem: &str) -> ExecError {
    ExecError::Failed(format!("{} {problem}", request.program.display()))
}

fn spawn(request: &ExecRequest) -> Result<ProcessGroup, ExecError> {
    if !request.program.is_absolute() {
        return Err(failed(request, "is no absolute path"));
    }
    let mut command = Command::new(&request.program);
    command
        .args(&request.arguments)
        .current_dir(&request.cwd)
        .env_clear()
        .envs(request.environment.iter().map(|(name, value)| (name, value)))
        .stdin(if request.stdin.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    ProcessGroup::spawn(&mut command).map_err(|error| {
        failed(request, &format!("could not be started in {}: {error}", request.cwd.display()))
    })
}

/// Never, where it is too far away to be told.
async fn sleep_for(limit: Duration) {
    match Instant::now().checked_add(limit) {
        Some(_) => sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// Writes all of it and closes the pipe. A program need not read its input.
async fn feed(stdin: Option<ChildStdin>, bytes: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(bytes).await;
    }
}

/// The beginning of an output.
#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    limit: usize,
    /// There was more.
    is_cut: bool,
}

impl Kept {
    fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, is_cut: false }
    }

    /// Reads to the end, keeps what there is room for and drops the rest: a program must
    /// not be stuck on a full pipe.
    async fn fill(&mut self, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(mut pipe) = pipe else { return };
        let mut buffer = vec![0; READ_SIZE];
        // A pipe that breaks has given what it had.
        while let Ok(length) = pipe.read(&mut buffer).await
            && length > 0
        {
            let room = self.limit - self.bytes.len();
            self.bytes.extend_from_slice(&buffer[..length.min(room)]);
            self.is_cut |= length > room;
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;
    use std::path::{Path, PathBuf};

    use rustix::process::{Pid, test_kill_process};
    use tempfile::TempDir;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// Turns a wait that would never end into a failure.
    const PATIENCE: Duration = Duration::from_secs(60);
    const MIB: usize = 1024 * 1024;

    fn request(dir: &TempDir, script: &str) -> ExecRequest {
        ExecRequest {
            program: PathBuf::from("/bin/sh"),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            cwd: dir.path().to_owned(),
            environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            stdin: Vec::new(),
            timeout: PATIENCE,
            output_bytes: MIB,
            cancel: CancellationToken::new(),
        }
    }

    async fn until<T>(mut check: impl FnMut() -> Option<T>) -> T {
        let wait = async {
            loop {
                if let Some(value) = check() {
                    return value;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap()
    }

    /// Waits until a process has written its id there.
    async fn pid_in(path: &Path) -> Pid {
        until(|| {
            let text = fs::read_to_string(path).ok()?;
            Pid::from_raw(text.strip_suffix('\n')?.parse().unwrap())
        })
        .await
    }

    /// Waits until there is no such process, or only a zombie that its new parent has
    /// not reaped yet.
    async fn gone(pid: Pid) {
        let stat = PathBuf::from(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        let zombie = || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "));
        until(|| (test_kill_process(pid).is_err() || zombie()).then_some(())).await;
    }

    #[tokio::test]
    async fn a_program_gets_what_was_given_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let script = "pwd -P; echo \"$1\" >&2; cat; exit 3";
        let mut request = request(&dir, script);
        request.arguments.extend(["sh".to_owned(), "$(x) 'y' \n".to_owned()]);
        request.stdin = b"in".to_vec();
        let output = run(request.clone()).await.unwrap();
        let cwd = fs::canonicalize(dir.path()).unwrap();
        assert_eq!(output.stdout, format!("{}\nin", cwd.display()).as_bytes());
        assert_eq!(output.stderr, b"$(x) 'y' \n\n");
        assert_eq!((output.exit_code, output.truncated), (Some(3), false));

        request.program = ["/usr/bin/env", "/bin/env"]
            .into_iter()
            .map(PathBuf::from)
            .find(|path| path.exists())
            .unwrap();
        request.arguments.clear();
        request.environment = vec![("ONE".to_owned(), "1 =".to_owned())];
        assert_eq!(run(request).await.unwrap().stdout, b"ONE=1 =\n");
    }

    #[tokio::test]
    async fn a_program_that_cannot_run_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let absent = ExecRequest { program: "/no/program".into(), ..request(&dir, "") };
        let error = run(absent).await.unwrap_err().to_string();
        assert!(error.starts_with("/no/program could not be started in "), "{error}");
        let relative = ExecRequest { program: "sh".into(), ..request(&dir, "") };
        let error = run(relative).await.unwrap_err().to_string();
        assert_eq!(error, "sh is no absolute path");
        let broken = request(&dir, "a\0b");
        assert!(matches!(run(broken).await, Err(ExecError::Failed(_))));
        let cancelled = request(&dir, "echo > started");
        cancelled.cancel.cancel();
        assert_eq!(run(cancelled).await, Err(ExecError::Cancelled));
        assert!(!dir.path().join("started").exists());
    }

    #[tokio::test]
    async fn a_signal_leaves_no_exit_code() {
        let dir = tempfile::tempdir().unwrap();
        let output = run(request(&dir, "echo a; kill -9 $$")).await.unwrap();
        assert_eq!((output.exit_code, output.stdout), (None, b"a\n".to_vec()));
    }

    #[tokio::test]
    async fn huge_outputs_are_read_and_the_beginning_kept() {
        let dir = tempfile::tempdir().unwrap();
        let script = "echo begin; yes o | head -c 100000000 & \
            (echo error; yes e | head -c 100000000) >&2; wait; exit 4";
        let output = run(request(&dir, script)).await.unwrap();
        assert_eq!((output.exit_code, output.truncated), (Some(4), true));
        for (bytes, start) in
            [(&output.stdout, b"begin\no\no\n" as &[u8]), (&output.stderr, b"error\ne\ne\n")]
        {
            assert_eq!(bytes.len(), MIB);
            assert!(bytes.capacity() <= 2 * MIB, "{}", bytes.capacity());
            assert!(bytes.starts_with(start));
        }
        let exact = ExecRequest { output_bytes: 2, ..request(&dir, "printf ab; printf abc >&2") };
        let output = run(exact.clone()).await.unwrap();
        assert_eq!((&*output.stdout, &*output.stderr), (b"ab" as &[u8], b"ab" as &[u8]));
        assert!(output.truncated);
        let none = ExecRequest { output_bytes: 0, ..exact };
        assert_eq!(run(none).await.unwrap().stdout, b"");
    }

    #[tokio::test]
    async fn input_is_written_while_output_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let stdin: Vec<u8> = (0..3 * MIB).map(|at| b'a' + (at % 23) as u8).collect();
        let echo =
            ExecRequest { stdin: stdin.clone(), output_bytes: 4 * MIB, ..request(&dir, "cat") };
        assert!(run(echo).await.unwrap().stdout == stdin);
        // One that does not read it is not waited for.
        let deaf = ExecRequest { stdin, ..request(&dir, "exec 0<&-; exit 5") };
        assert_eq!(run(deaf).await.unwrap().exit_code, Some(5));
    }

    #[tokio::test]
    async fn what_a_program_leaves_in_its_group_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let script = "sleep 1000 & echo $! > pid; echo started";
        let output = run(request(&dir, script)).await.unwrap();
        assert_eq!((output.exit_code, output.stdout), (Some(0), b"started\n".to_vec()));
        gone(pid_in(&dir.path().join("pid")).await).await;
    }

    /// Grandchildren that ignore SIGTERM, with and without the program's pipes.
    const STUBBORN: &str = "trap '' TERM; sh -c 'echo $$ > pid; exec sleep 1000' & \
        sh -c 'echo $$ > other; exec sleep 1000' >/dev/null 2>&1";

    #[tokio::test]
    async fn a_timeout_kills_grandchildren() {
        let dir = tempfile::tempdir().unwrap();
        let limit = Duration::from_secs(1);
        // Until they have begun.
        for seconds in 1.. {
            let limit = limit * seconds;
            let slow = ExecRequest { timeout: limit, ..request(&dir, STUBBORN) };
            assert_eq!(run(slow).await, Err(ExecError::TimedOut(limit)));
            if dir.path().join("other").exists() {
                break;
            }
        }
        for file in ["pid", "other"] {
            gone(pid_in(&dir.path().join(file)).await).await;
        }
    }

    #[tokio::test]
    async fn cancel_and_drop_kill_grandchildren() {
        for drops in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let request = request(&dir, STUBBORN);
            let cancel = request.cancel.clone();
            let running = tokio::spawn(run(request));
            let (pid, other) =
                (pid_in(&dir.path().join("pid")).await, pid_in(&dir.path().join("other")).await);
            if drops {
                running.abort();
                assert!(running.await.unwrap_err().is_cancelled());
            } else {
                cancel.cancel();
                assert_eq!(running.await.unwrap(), Err(ExecError::Cancelled));
            }
            gone(pid).await;
            gone(other).await;
        }
    }
}
