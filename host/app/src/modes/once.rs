//! One-shot runs: `--mode json` prints every event, `-p` only the answer. Nobody
//! can be asked in either.

use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use wharf_agent::hooks::{CommandLookup, Hooks, InputSource};
use wharf_agent::output::AgentOutput;
use wharf_agent::ui::NoUi;
use wharf_agent::{Accepted, Agent, InputKind, Submission};
use wharf_protocol::{AgentMessage, Event, ImageContent, StopReason};
use wharf_session::Session;

use crate::cli::{RunArgs, UiForm};
use crate::front::{Front, Wakeup};
use crate::modes::rpc::{OUTPUT_GONE, session_diagnostic};
use crate::modes::{
    FLUSH_GRACE, READER_CHECK, SIGNAL_GRACE, shell_command, slash_command, sleep_until,
};
use crate::prompt_files::{self, Prompts};
use crate::report;
use crate::signals::Signals;
use crate::stdout::{self, Stdout};
use crate::updates::{UpdateForm, Updates};
use crate::wiring::{self, Wired};

pub(crate) async fn json(args: RunArgs) -> anyhow::Result<ExitCode> {
    let form = match args.ui {
        Some(UiForm::Dashboard) => UpdateForm::Lean,
        None => UpdateForm::Full,
    };
    let printer = Printer::Json { updates: Box::new(Updates::new(form)), ended: false };
    let result = Once::run(args, printer).await;
    if result.is_err() {
        // Nothing has begun, and the stream ends all the same as it always does.
        let out = Stdout::start()?;
        let cwd = std::env::current_dir().unwrap_or_default();
        out.json(Session::in_memory(&cwd).header());
        out.json(&Event::AgentEnd { messages: Vec::new() });
        out.finish(FLUSH_GRACE);
    }
    result
}

pub(crate) async fn text(args: RunArgs) -> anyhow::Result<ExitCode> {
    Once::run(args, Printer::Text { failure: None, answer: None }).await
}

/// What of a run is printed.
enum Printer {
    Json {
        updates: Box<Updates>,
        /// The last line so far was an `agent_end`.
        ended: bool,
    },
    Text {
        /// Why the last run gave no answer.
        failure: Option<String>,
        answer: Option<String>,
    },
}

struct Once {
    agent: Agent,
    hooks: Arc<dyn Hooks>,
    wakeups: mpsc::Receiver<Wakeup>,
    front: Front,
    out: Stdout,
    printer: Printer,
    failed: bool,
    /// Nobody reads standard output any more.
    reader_gone: bool,
    /// An extension asked for the end: no further prompt is served.
    ending: bool,
}

impl Once {
    async fn run(mut args: RunArgs, printer: Printer) -> anyhow::Result<ExitCode> {
        let prompts = prompts(std::mem::take(&mut args.messages))?;
        let out = Stdout::start()?;
        let (front, wakeups) = Front::new();
        let Wired { agent, hooks, .. } = wiring::build(args, Arc::new(NoUi), &front).await?;
        let mut once = Self {
            agent,
            hooks,
            wakeups,
            front,
            out,
            printer,
            failed: false,
            reader_gone: false,
            ending: false,
        };
        if let Printer::Json { .. } = once.printer {
            once.out.json(once.agent.session().header());
        }
        // Until here a signal ends the process by itself, also while a disk is slow.
        let mut signals = Signals::listen()?;
        let code = tokio::select! {
            () = once.serve(prompts) => None,
            code = signals.received() => Some(code),
        };
        Ok(once.end(code).await)
    }

    async fn serve(&mut self, prompts: Prompts) {
        let mut images = prompts.images;
        for text in prompts.texts {
            let served = match self.prompt(text, std::mem::take(&mut images)).await {
                Ok(()) if self.out.is_closed() || self.reader_gone => Err(OUTPUT_GONE.to_owned()),
                served => served,
            };
            if let Err(problem) = served {
                self.failed = true;
                report::error(problem);
                break;
            }
            if self.ending {
                break;
            }
        }
    }

    /// Serves one prompt to its end.
    async fn prompt(&mut self, text: String, images: Vec<ImageContent>) -> Result<(), String> {
        // A command's name is known once its extension has registered; a run waits
        // for all of them anyway.
        let agent = self.agent.clone();
        self.print_until(async move { agent.ready().await }).await;
        if let Some((name, arguments)) = slash_command(&text)
            && self.hooks.find_command(name) == CommandLookup::Found
        {
            let running = self.hooks.run_command(name.to_owned(), arguments.to_owned());
            let agent = self.agent.clone();
            self.print_until(async move {
                running.await;
                agent.wait_idle().await;
            })
            .await;
            return Ok(());
        }
        if let Some((command, hidden)) = shell_command(&text) {
            let run = self.agent.run_user_bash(command.to_owned(), hidden);
            let result = self.print_until(run).await?;
            if let Printer::Text { .. } = self.printer {
                let end = if result.output.ends_with('\n') { "" } else { "\n" };
                self.out.raw(format!("{}{end}", result.output).into_bytes());
            }
            return match result.exit_code {
                Some(0) => Ok(()),
                Some(code) => Err(format!("the command exited with code {code}")),
                None if result.cancelled => Err("the command was cancelled".to_owned()),
                None => Ok(()),
            };
        }
        let submission = Submission {
            text,
            images,
            kind: InputKind::Prompt { streaming_behavior: None },
            source: InputSource::Interactive,
        };
        let accepted = self.agent.submit(submission).map_err(|error| error.to_string())?;
        let agent = self.agent.clone();
        let verdict = self
            .print_until(async move {
                let verdict = match accepted {
                    Accepted::Now => Ok(()),
                    Accepted::Later(verdict) => verdict.await.unwrap_or(Ok(())),
                };
                agent.wait_idle().await;
                verdict
            })
            .await;
        verdict.map_err(|error| error.to_string())
    }

    /// Prints what happens until `work` is done, and what had happened by then.
    async fn print_until<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        // Its first tick is at once, and of no use.
        let mut reader_check = tokio::time::interval(READER_CHECK);
        reader_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        reader_check.reset();
        let result = loop {
            let due = match &self.printer {
                Printer::Json { updates, .. } => updates.due(),
                Printer::Text { .. } => None,
            };
            let room = self.out.has_room() || self.out.is_closed();
            tokio::select! {
                biased;
                // Either there is room again, or nobody reads any more.
                () = self.out.changed() => {
                    if self.out.is_closed() {
                        self.agent.abort();
                    }
                }
                Some(wakeup) = self.wakeups.recv(), if room => self.wakeup(wakeup),
                () = sleep_until(due), if due.is_some() && room => {
                    if let Printer::Json { updates, .. } = &mut self.printer {
                        updates.flush(&self.out);
                    }
                }
                _ = reader_check.tick(), if !self.reader_gone => {
                    if stdout::reader_is_gone() {
                        self.reader_gone = true;
                        self.agent.abort();
                    }
                }
                result = &mut work => break result,
            }
        };
        while let Ok(wakeup) = self.wakeups.try_recv() {
            self.wakeup(wakeup);
        }
        result
    }

    fn wakeup(&mut self, wakeup: Wakeup) {
        let Wakeup::Output(output) = wakeup else { return };
        match output {
            AgentOutput::Event(event) => self.event(&event),
            AgentOutput::Delta(delta) => {
                if let Printer::Json { updates, .. } = &mut self.printer {
                    updates.delta(delta, &self.out);
                }
            }
            AgentOutput::ShutdownRequested => self.ending = true,
            AgentOutput::Barrier(written) => self.out.barrier(written),
            AgentOutput::Diagnostic { path, message } => {
                report::warning(format_args!("{}: {message}", path.display()));
                if let Printer::Json { .. } = self.printer {
                    self.event(&session_diagnostic(&path, message));
                }
            }
        }
    }

    fn event(&mut self, event: &Event) {
        match &mut self.printer {
            Printer::Json { updates, ended } => {
                *ended = matches!(event, Event::AgentEnd { .. });
                updates.event(event, &self.out);
            }
            Printer::Text { failure, answer } => match event {
                Event::MessageEnd { message } => {
                    if let AgentMessage::Assistant(assistant) = message.as_ref() {
                        *answer = Some(assistant.text());
                        *failure = matches!(
                            assistant.stop_reason,
                            StopReason::Error | StopReason::Aborted | StopReason::Length
                        )
                        .then(|| {
                            assistant.error_message.clone().unwrap_or_else(|| {
                                "the answer was cut off at the model's token limit".to_owned()
                            })
                        });
                    }
                }
                Event::AgentEnd { .. } => {
                    if let Some(answer) = answer.take().filter(|answer| !answer.is_empty()) {
                        self.out.raw(format!("{answer}\n").into_bytes());
                    }
                    if let Some(failure) = failure.take() {
                        self.failed = true;
                        report::error(failure);
                    }
                }
                Event::AutoRetryStart { attempt, max_attempts, delay_ms, error_message } => {
                    report::warning(format_args!(
                        "{error_message}; trying again in {:.1} s ({attempt} of {max_attempts})",
                        *delay_ms as f64 / 1000.0
                    ));
                }
                Event::StreamRetry { error_message, .. } => {
                    report::warning(format_args!("{error_message}; asking again"));
                }
                Event::AutoCompactionEnd { error_message: Some(problem), .. } => {
                    report::warning(problem);
                }
                // What concerns the start has been told where it was found.
                Event::ExtensionError { event, .. } if event == "load" || event == "register" => {}
                Event::ExtensionError { extension_path, event, error } => {
                    // A prompt that was a command has failed with it.
                    self.failed |= event == "command";
                    report::warning(format_args!("extension {extension_path} ({event}): {error}"));
                }
                _ => {}
            },
        }
    }

    /// Stops extensions, makes the last line an `agent_end`, and flushes.
    async fn end(mut self, signal: Option<u8>) -> ExitCode {
        let (agent, hooks) = (self.agent.clone(), Arc::clone(&self.hooks));
        let limit = if signal.is_some() { SIGNAL_GRACE } else { FLUSH_GRACE };
        self.print_until(async move {
            if signal.is_some() {
                agent.abort();
                // Past the limit the process ends without waiting for the run.
                let _ = tokio::time::timeout(SIGNAL_GRACE, agent.wait_idle()).await;
                let _ = tokio::time::timeout(SIGNAL_GRACE, hooks.shutdown()).await;
            } else {
                hooks.shutdown().await;
            }
        })
        .await;
        if let Printer::Json { ended: false, .. } = self.printer {
            self.event(&Event::AgentEnd { messages: Vec::new() });
        }
        for error in self.agent.close_sessions().await {
            self.failed = true;
            report::error(error);
        }
        drop(self.front);
        self.out.finish(limit);
        match signal {
            Some(code) => ExitCode::from(code),
            None if self.failed => ExitCode::FAILURE,
            None => ExitCode::SUCCESS,
        }
    }
}

/// The prompts of the command line or, where it has none, standard input.
fn prompts(arguments: Vec<String>) -> anyhow::Result<Prompts> {
    let mut prompts = prompt_files::read(arguments)?;
    if prompts.texts.is_empty() && !std::io::stdin().is_terminal() {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("failed to read the prompt from standard input")?;
        if !text.trim().is_empty() {
            prompts.texts.push(text);
        }
    }
    anyhow::ensure!(
        !prompts.texts.is_empty(),
        "no prompt: give it as an argument or on standard input"
    );
    Ok(prompts)
}
