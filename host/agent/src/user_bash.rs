//! Commands that the person runs, not the model: their output enters the conversation,
//! and the model reads it with the next prompt. Extensions are asked first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use tokio_util::sync::CancellationToken;
use wharf_protocol::AgentMessage;
use wharf_protocol::message::BashExecutionMessage;

use crate::agent::Agent;
use crate::hooks::{HookEvent, UserBashEvent, UserBashVerdict};
use crate::run::now_millis;
use crate::tools::{Captured, ShellEnd, ShellRequest};

/// The answer of the `bash` command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BashResult {
    pub output: String,
    /// Left out where the command was cancelled, or an extension gives none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    pub cancelled: bool,
    pub truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_output_path: Option<String>,
}

/// A command that runs, or that extensions are asked about.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    cancel: CancellationToken,
    /// Extensions are not asked, or have said what is to run.
    has_begun: Arc<AtomicBool>,
}

impl RunningCommand {
    fn abort(&self) {
        self.cancel.cancel();
    }

    /// A command that runs already goes on.
    pub(crate) fn abort_asking(&self) {
        if !self.has_begun.load(Ordering::SeqCst) {
            self.cancel.cancel();
        }
    }
}

/// How a command ended.
struct Outcome {
    exit_code: Option<i64>,
    cancelled: bool,
    output: Captured,
}

impl Agent {
    /// Runs a command in the working directory, or what extensions make of it, and records
    /// it as it was given, with its output. With `exclude` (`!!command`) the model does not
    /// see it. It can be aborted, and belongs to the current session, from this call on,
    /// not only once the future is polled.
    ///
    /// # Errors
    /// The shell could not be started; nothing is recorded.
    pub fn run_user_bash(
        &self,
        command: String,
        exclude: bool,
    ) -> impl Future<Output = Result<BashResult, String>> + Send + use<> {
        let cancel = CancellationToken::new();
        let is_asked = self.inner.hooks.subscribes(HookEvent::UserBash);
        let has_begun = Arc::new(AtomicBool::new(!is_asked));
        let session_id = self.session().id().to_owned();
        self.state()
            .running_commands
            .push(RunningCommand { cancel: cancel.clone(), has_begun: Arc::clone(&has_begun) });
        let agent = self.clone();
        async move {
            let verdict = match is_asked {
                true => agent.ask_about_command(command.clone(), exclude, &cancel).await,
                false => UserBashVerdict::Run(command.clone()),
            };
            has_begun.store(true, Ordering::SeqCst);
            let outcome = agent.run_or_answer(verdict, &cancel).await;
            agent
                .state()
                .running_commands
                .retain(|running| !Arc::ptr_eq(&running.has_begun, &has_begun));
            agent.user_bash_done(command, exclude, &session_id, outcome?).await
        }
    }

    async fn ask_about_command(
        &self,
        command: String,
        exclude_from_context: bool,
        cancel: &CancellationToken,
    ) -> UserBashVerdict {
        let hooks = &self.inner.hooks;
        tokio::select! {
            () = hooks.ready() => {
                hooks.user_bash(UserBashEvent { command, exclude_from_context }, cancel).await
            }
            // It is over before it begins.
            () = cancel.cancelled() => UserBashVerdict::Run(command),
        }
    }

    async fn run_or_answer(
        &self,
        verdict: UserBashVerdict,
        cancel: &CancellationToken,
    ) -> Result<Outcome, String> {
        match verdict {
            // An abort while extensions were asked counts, whatever they said.
            UserBashVerdict::Answer { output, exit_code } if !cancel.is_cancelled() => {
                let output = Captured::of(&output);
                Ok(Outcome { exit_code: exit_code.map(i64::from), cancelled: false, output })
            }
            UserBashVerdict::Answer { .. } => {
                Ok(Outcome { exit_code: None, cancelled: true, output: Captured::of("") })
            }
            UserBashVerdict::Run(command) => {
                let request = ShellRequest {
                    command,
                    cwd: self.inner.cwd.clone(),
                    timeout: None,
                    cancel: cancel.clone(),
                };
                let ran = self.shell().run(request, |_| {}).await;
                let ran = ran.map_err(|error| error.to_string())?;
                let (exit_code, cancelled) = match ran.end {
                    ShellEnd::Exited(code) => (Some(i64::from(code)), false),
                    ShellEnd::Aborted | ShellEnd::TimedOut => (None, true),
                };
                Ok(Outcome { exit_code, cancelled, output: ran.output })
            }
        }
    }

    async fn user_bash_done(
        &self,
        command: String,
        exclude: bool,
        session_id: &str,
        Outcome { exit_code, cancelled, output }: Outcome,
    ) -> Result<BashResult, String> {
        let truncated = output.truncation.is_some();
        let full_output_path =
            output.full_output_path.as_ref().map(|path| path.display().to_string());
        let result = BashResult {
            output: output.noted(),
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

    /// Stops the commands that run, or that extensions are asked about.
    pub fn abort_user_bash(&self) {
        self.state().running_commands.iter().for_each(RunningCommand::abort);
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
