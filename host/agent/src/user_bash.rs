//! Commands that the person runs, not the model: their output enters the conversation,
//! and the model reads it with the next prompt.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use tokio_util::sync::CancellationToken;
use wharf_protocol::AgentMessage;
use wharf_protocol::message::BashExecutionMessage;

use crate::agent::Agent;
use crate::run::now_millis;
use crate::tools::{ShellEnd, ShellError, ShellOutcome, ShellRequest};

/// The answer of the `bash` command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BashResult {
    pub output: String,
    /// Left out where the command was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    pub cancelled: bool,
    pub truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_output_path: Option<String>,
}

/// Tells the commands apart that run at the same time.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Agent {
    /// Runs a command in the working directory and records it with its output. With
    /// `exclude` (`!!command`) the model does not see it. It can be aborted, and belongs to
    /// the current session, from this call on, not only once the future is polled.
    ///
    /// # Errors
    /// The shell could not be started; nothing is recorded.
    pub fn run_user_bash(
        &self,
        command: String,
        exclude: bool,
    ) -> impl Future<Output = Result<BashResult, String>> + Send + use<> {
        let cancel = CancellationToken::new();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let session_id = self.session().id().to_owned();
        self.state().running_commands.push((number, cancel.clone()));
        let request = ShellRequest {
            command: command.clone(),
            cwd: self.inner.cwd.clone(),
            timeout: None,
            cancel,
        };
        let agent = self.clone();
        async move {
            let outcome = agent.inner.shell.run(request, |_| {}).await;
            agent.state().running_commands.retain(|(running, _)| *running != number);
            agent.user_bash_done(command, exclude, &session_id, outcome).await
        }
    }

    async fn user_bash_done(
        &self,
        command: String,
        exclude: bool,
        session_id: &str,
        outcome: Result<ShellOutcome, ShellError>,
    ) -> Result<BashResult, String> {
        let outcome = outcome.map_err(|error| error.to_string())?;
        let (exit_code, cancelled) = match outcome.end {
            ShellEnd::Exited(code) => (Some(i64::from(code)), false),
            ShellEnd::Aborted | ShellEnd::TimedOut => (None, true),
        };
        let truncated = outcome.output.truncation.is_some();
        let full_output_path =
            outcome.output.full_output_path.as_ref().map(|path| path.display().to_string());
        let result = BashResult {
            output: outcome.output.noted(),
            exit_code,
            cancelled,
            truncated,
            full_output_path,
        };
        // It belongs to the conversation that it was run in.
        if self.session().id() != session_id {
            return Ok(result);
        }
        self.record_command(BashExecutionMessage {
            command,
            output: result.output.clone(),
            exit_code,
            cancelled,
            truncated,
            full_output_path: result.full_output_path.clone(),
            exclude_from_context: exclude.then_some(true),
            timestamp: now_millis(),
        })
        .await;
        Ok(result)
    }

    /// Stops the commands that run.
    pub fn abort_user_bash(&self) {
        for (_, running) in &self.state().running_commands {
            running.cancel();
        }
    }

    /// Between a call and its result nothing may stand, nor between a compaction and what
    /// it has summarised: while a run or a compaction has the stage, the result waits.
    async fn record_command(&self, message: BashExecutionMessage) {
        // One at a time: two that end together must not find the stage taken by each other.
        let _one = self.inner.recording_commands.lock().await;
        self.state().command_results.push(message);
        // Whoever has it takes the results in, at the next place where they may stand.
        if let Ok(_stage) = self.inner.stage.try_lock() {
            self.take_in_command_results().await;
        }
    }

    /// Takes in what waited. No event tells of it.
    pub(crate) async fn take_in_command_results(&self) {
        let waiting = std::mem::take(&mut self.state().command_results);
        for message in waiting {
            self.append(AgentMessage::BashExecution(message)).await;
        }
    }
}
