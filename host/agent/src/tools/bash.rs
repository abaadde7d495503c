//! The tool `bash`.

use std::time::Duration;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;

use super::args;
use super::shell::{Shell, ShellEnd, ShellRequest};
use crate::tool::{Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};
use wharf_protocol::message::ContentBlock;

#[derive(Debug)]
pub(super) struct Bash {
    spec: ToolSpec,
    shell: Shell,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    command: String,
    timeout: Option<f64>,
}

impl Bash {
    pub(super) fn new(shell: Shell) -> Self {
        let spec = ToolSpec {
            name: "bash".to_owned(),
            label: "Bash".to_owned(),
            description: "Runs a shell command in the current directory and returns its output and errors, merged. \
                Only the last 2,000 lines or 50 kB are returned, whichever is less; longer output is saved \
                to a file that the result names. Standard input is empty. A process started in the background \
                with & goes on after the command."
                .to_owned(),
            parameters: args::object_schema(
                &["command"],
                &json!({
                    "command": { "type": "string", "description": "The command to run" },
                    "timeout": {
                        "type": "number",
                        "exclusiveMinimum": 0,
                        "description": "Seconds after which the command is stopped (default: none)",
                    },
                }),
            ),
            prompt_snippet: Some("Run shell commands".to_owned()),
            prompt_guidelines: Vec::new(),
            sequential: false,
        };
        Self { spec, shell }
    }

    async fn execute(&self, call: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let args: Args = args::parse(call.args)?;
        let timeout = args.timeout.map(seconds).transpose()?;
        let request =
            ShellRequest { command: args.command, cwd: call.cwd, timeout, cancel: call.cancel };
        let progress = call.progress;
        let outcome = self
            .shell
            .run(request, |output| {
                let details = Some(output.details());
                progress
                    .report(ToolOutput { content: vec![ContentBlock::text(output.text)], details });
            })
            .await
            .map_err(|error| ToolFailure::new(error.to_string()))?;

        let details = Some(outcome.output.details());
        let text = outcome.output.annotated();
        let remark = match outcome.end {
            ShellEnd::Exited(0) => {
                let text = if text.trim().is_empty() { "(no output)".to_owned() } else { text };
                return Ok(ToolOutput { content: vec![ContentBlock::text(text)], details });
            }
            ShellEnd::Exited(code) => format!("Command exited with code {code}"),
            ShellEnd::Aborted => "Command aborted".to_owned(),
            ShellEnd::TimedOut => {
                format!("Command timed out after {} seconds", args.timeout.unwrap_or_default())
            }
        };
        let text = text.trim_end_matches('\n');
        let message = if text.is_empty() { remark } else { format!("{text}\n\n{remark}") };
        Err(ToolFailure { message, details })
    }
}

fn seconds(timeout: f64) -> Result<Duration, ToolFailure> {
    Duration::try_from_secs_f64(timeout)
        .map_err(|error| ToolFailure::new(format!("invalid timeout {timeout}: {error}")))
}

impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: ToolCallContext) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(self.execute(call))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex};

    use rustix::process::{Pid, test_kill_process};
    use serde_json::Value;
    use tokio::sync::mpsc;

    use super::*;
    use crate::tool::Progress;
    use crate::tools::testing::Bench;
    use crate::tools::truncate::{MAX_BYTES, MAX_LINES};

    /// Turns a wait that would never end into a failure.
    const PATIENCE: Duration = Duration::from_secs(60);
    const NOTHING_CUT: &str = r#"{"truncation":null,"fullOutputPath":null}"#;

    async fn run(command: &str) -> Result<ToolOutput, ToolFailure> {
        Bench::new().run("bash", json!({ "command": command })).await
    }

    async fn text(command: &str) -> String {
        run(command).await.unwrap().content[0].as_text().unwrap().to_owned()
    }

    async fn until<T>(mut check: impl FnMut() -> Option<T>) -> T {
        let wait = async {
            loop {
                if let Some(value) = check() {
                    return value;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap()
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
        until(|| (!is_there(pid) || zombie()).then_some(())).await;
    }

    fn is_there(pid: Pid) -> bool {
        test_kill_process(pid).is_ok()
    }

    #[tokio::test]
    async fn output_and_errors_are_merged_in_order() {
        let output = run("echo a; echo b >&2; echo c; cat; pwd >/dev/null").await.unwrap();
        assert_eq!(output.content, [ContentBlock::text("a\nb\nc\n")]);
        assert_eq!(output.details.unwrap().to_string(), NOTHING_CUT);
        assert_eq!(text("true").await, "(no output)");
        assert_eq!(text("printf '\\033[31mred\\033[0m 1%%\\r100%%'").await, "100%");
    }

    #[tokio::test]
    async fn settings_shape_the_command() {
        let bench = Bench::with(|options| {
            options.shell_path = Some(PathBuf::from("/bin/sh"));
            options.shell_command_prefix = Some("X=set # a comment".to_owned());
        });
        assert_eq!(bench.text("bash", json!({"command": "echo $0 $X"})).await, "/bin/sh set\n");
        let cwd = bench.text("bash", json!({"command": "pwd -P"})).await;
        assert_eq!(cwd.trim_end(), bench.cwd().to_str().unwrap());

        let bench = Bench::with(|options| options.shell_path = Some("/no/shell".into()));
        let error = bench.error("bash", json!({"command": "echo"})).await;
        assert!(error.starts_with("failed to start /no/shell in "), "{error}");
    }

    #[tokio::test]
    async fn failures_carry_output_and_code() {
        let failure = run("echo out; exit 3").await.unwrap_err();
        assert_eq!(failure.message, "out\n\nCommand exited with code 3");
        assert_eq!(failure.details.unwrap().to_string(), NOTHING_CUT);
        assert_eq!(run("exit 1").await.unwrap_err().message, "Command exited with code 1");
        assert_eq!(run("kill -9 $$").await.unwrap_err().message, "Command exited with code 137");
    }

    #[tokio::test]
    async fn a_background_child_does_not_hold_the_call() {
        let bench = Bench::new();
        let command = "sleep 1000 & echo $! > pid; echo started";
        assert_eq!(bench.text("bash", json!({ "command": command })).await, "started\n");
        let child = pid_in(&bench.cwd().join("pid")).await;
        assert!(is_there(child));
        // One that keeps writing doesn't either.
        let command = "echo begun; while :; do echo x; sleep 0.02; done & echo $! > pid2";
        assert!(bench.text("bash", json!({ "command": command })).await.starts_with("begun\n"));
        let writer = pid_in(&bench.cwd().join("pid2")).await;
        for pid in [child, writer] {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    #[tokio::test]
    async fn a_timeout_ends_the_group() {
        let bench = Bench::new();
        let command = "echo before; sleep 1000 & echo $! > pid; wait";
        let args = json!({"command": command, "timeout": 2.0});
        let failure = bench.run("bash", args).await.unwrap_err();
        assert_eq!(failure.message, "before\n\nCommand timed out after 2 seconds");
        gone(pid_in(&bench.cwd().join("pid")).await).await;
        let error = bench.error("bash", json!({"command": "sleep 1000", "timeout": 0.25})).await;
        assert_eq!(error, "Command timed out after 0.25 seconds");
        assert!(
            bench
                .error("bash", json!({"command": "x", "timeout": 1e300}))
                .await
                .starts_with("invalid timeout")
        );
    }

    /// Grandchildren that ignore SIGTERM or write elsewhere, as servers do.
    const STUBBORN: &str = "echo up; (trap '' TERM; sh -c 'echo $$ > pid; exec sleep 1000' >/dev/null 2>&1); echo never";

    #[tokio::test]
    async fn an_abort_kills_grandchildren() {
        let bench = Bench::new();
        let call = bench.call(&json!({ "command": STUBBORN }));
        let cancel = call.cancel.clone();
        let tool = bench.tool("bash");
        let running = tokio::spawn(async move { tool.run(call).await });
        let grandchild = pid_in(&bench.cwd().join("pid")).await;
        cancel.cancel();
        let failure = running.await.unwrap().unwrap_err();
        assert_eq!(failure.message, "up\n\nCommand aborted");
        gone(grandchild).await;
    }

    #[tokio::test]
    async fn an_abort_leaves_time_to_clean_up() {
        let bench = Bench::new();
        let command = "(trap 'sleep 0.1; echo clean > done; exit' TERM; echo $BASHPID > pid; \
            while :; do sleep 0.01; done) >/dev/null 2>&1 & wait";
        let call = bench.call(&json!({ "command": command }));
        let cancel = call.cancel.clone();
        let tool = bench.tool("bash");
        let running = tokio::spawn(async move { tool.run(call).await });
        pid_in(&bench.cwd().join("pid")).await;
        cancel.cancel();
        assert_eq!(running.await.unwrap().unwrap_err().message, "Command aborted");
        assert_eq!(bench.content("done"), "clean\n");
    }

    #[tokio::test]
    async fn dropping_the_call_kills_the_group() {
        let bench = Bench::new();
        let call = bench.call(&json!({ "command": STUBBORN }));
        let tool = bench.tool("bash");
        let running = tokio::spawn(async move { tool.run(call).await });
        let grandchild = pid_in(&bench.cwd().join("pid")).await;
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        gone(grandchild).await;
    }

    #[tokio::test]
    async fn an_aborted_call_starts_nothing() {
        let bench = Bench::new();
        let call = bench.call(&json!({"command": "echo > started"}));
        call.cancel.cancel();
        let failure = bench.tool("bash").run(call).await.unwrap_err();
        assert_eq!(failure.message, "Command aborted");
        assert!(!bench.cwd().join("started").exists());
    }

    #[tokio::test]
    async fn progress_shows_the_output_so_far() {
        let bench = Bench::new();
        let mut call = bench.call(&json!({"command": "echo one; read x < go; echo $x"}));
        let (sender, mut reports) = mpsc::unbounded_channel();
        call.progress = Progress::new(move |output| {
            let _ = sender.send(output);
        });
        let made = std::process::Command::new("mkfifo").arg(bench.cwd().join("go")).status();
        assert!(made.unwrap().success());
        let tool = bench.tool("bash");
        let running = tokio::spawn(async move { tool.run(call).await });
        let report = reports.recv().await.unwrap();
        assert_eq!(report.content, [ContentBlock::text("one\n")]);
        assert_eq!(report.details.unwrap().to_string(), NOTHING_CUT);
        fs::write(bench.cwd().join("go"), "two\n").unwrap();
        let output = running.await.unwrap().unwrap();
        assert_eq!(output.content, [ContentBlock::text("one\ntwo\n")]);
    }

    #[tokio::test]
    async fn ten_megabytes_stay_bounded() {
        let bench = Bench::new();
        let largest = Arc::new(Mutex::new(0));
        let mut call = bench.call(&json!({
            "command": "yes 0123456789 2>/dev/null | head -n 1000000; echo end; exit 1",
        }));
        let seen = Arc::clone(&largest);
        call.progress = Progress::new(move |output| {
            let length = output.content[0].as_text().unwrap().len();
            let mut largest = seen.lock().unwrap();
            *largest = length.max(*largest);
        });
        let failure = bench.tool("bash").run(call).await.unwrap_err();
        assert!(*largest.lock().unwrap() <= MAX_BYTES);
        assert!(failure.message.len() < MAX_BYTES + 300);
        assert!(
            failure
                .message
                .contains("\nend\n\n[Showing lines 998002-1000001 of 1000001. Full output: /")
        );
        assert!(failure.message.ends_with("]\n\nCommand exited with code 1"));
        let details: Value = failure.details.unwrap();
        assert_eq!(details["truncation"]["outputLines"], MAX_LINES);
        assert_eq!(details["truncation"]["totalBytes"], 11_000_004);
        let path = PathBuf::from(details["fullOutputPath"].as_str().unwrap());
        let metadata = fs::metadata(&path).unwrap();
        fs::remove_file(path).unwrap();
        assert_eq!(metadata.len(), 11_000_004);
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn binary_output_is_named() {
        let shown = text("printf 'a\\0b\\377'").await;
        assert_eq!(
            shown,
            "ab\u{fffd}\n\n[The output holds binary data: 1 NUL bytes left out, 1 sequences that are not UTF-8 shown as U+FFFD]"
        );
    }
}
