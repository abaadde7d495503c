//! RPC mode: commands in, responses and events out.
//!
//! One loop owns the mode's state and only reacts: whatever takes time runs in a
//! task and comes back as a [`Wakeup`].

mod commands;
mod extensions;
mod listing;
mod reloading;
mod sessions;

use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use wharf_agent::Agent;
use wharf_agent::hooks::Hooks;
use wharf_agent::output::AgentOutput;
use wharf_extensions::ExtensionHost;
use wharf_protocol::command::CommandError;
use wharf_protocol::framing::{Frame, MAX_LINE_BYTES};
use wharf_protocol::{Command, Event, Response, RpcCommand};

use crate::cli::{RunArgs, UiForm};
use crate::dialogs::Dialogs;
use crate::front::{Front, Wakeup};
use crate::loading::Loading;
use crate::modes::{FLUSH_GRACE, READER_CHECK, SIGNAL_GRACE, sleep_until};
use crate::signals::Signals;
use crate::stdout::{self, Stdout};
use crate::updates::{UpdateForm, Updates};
use crate::wiring::{self, Wired};
use crate::{report, stdin};

use self::reloading::Reloader;

/// After the agent is idle at the end of the input, extension commands that still
/// run get this long.
const COMMAND_GRACE: Duration = Duration::from_secs(10);

/// Wakeups handled in one go before the input is looked at again.
const BURST: usize = 128;

/// Why a run ends that nobody asked to end.
pub(super) const OUTPUT_GONE: &str =
    "standard output cannot be written any more: its reader is gone, or its disk is full";

/// What concerns a session's file, in the one event of the protocol that carries a
/// problem with its place.
pub(super) fn session_diagnostic(path: &Path, error: String) -> Event {
    Event::ExtensionError {
        extension_path: path.display().to_string(),
        event: "session".to_owned(),
        error,
    }
}

pub(crate) async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let form = match args.ui {
        Some(UiForm::Dashboard) => UpdateForm::Lean,
        None => UpdateForm::Full,
    };
    let out = Stdout::start()?;
    let (front, wakeups) = Front::new();
    let dialogs = Arc::new(Dialogs::new(Arc::new(front.clone())));
    let watch = args.watch;
    let Wired { agent, hooks, extensions, loading, registered } =
        wiring::build(args, Arc::clone(&dialogs) as _, &front).await?;
    // From here on: until the parts stand, a signal ends the process by itself, also
    // while a slow disk is read.
    let mut signals = Signals::listen()?;
    let lines = stdin::lines()?;
    let reloader = Reloader { agent: agent.clone(), front: front.clone() };
    if watch {
        reloading::watch(&extensions, reloader.clone());
    }
    if loading.ignores_project() {
        tokio::spawn(reloading::ask_for_trust(
            Arc::clone(&dialogs) as _,
            Arc::clone(&loading),
            reloader,
        ));
    }
    let rpc = Rpc {
        agent,
        hooks,
        extensions,
        loading,
        dialogs,
        front,
        out,
        updates: Updates::new(form),
        stage: Stage::Serving,
        running_commands: 0,
        deferred: 0,
        waiting_for_commands: VecDeque::new(),
        switching: false,
        waiting_for_switch: VecDeque::new(),
        idle_since: None,
    };
    rpc.serve(Inputs { lines, wakeups, registered }, &mut signals).await
}

/// A command with its id.
type Request = (Option<Value>, RpcCommand);

/// Where everything comes in.
struct Inputs {
    lines: mpsc::Receiver<Frame>,
    wakeups: mpsc::Receiver<Wakeup>,
    registered: wiring::Registered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    /// The input has ended; what was accepted is finished.
    Draining,
    /// `session_shutdown` is being delivered.
    Stopping,
    Done,
}

struct Rpc {
    agent: Agent,
    hooks: Arc<dyn Hooks>,
    extensions: Arc<ExtensionHost>,
    loading: Arc<Loading>,
    dialogs: Arc<Dialogs>,
    front: Front,
    out: Stdout,
    updates: Updates,
    stage: Stage,
    /// Extension commands under way.
    running_commands: usize,
    /// Responses that a task still owes.
    deferred: usize,
    /// A message `/name` that may be a command of an extension which still loads, and
    /// the messages and switches that came after it.
    waiting_for_commands: VecDeque<Request>,
    /// A session switch is under way.
    switching: bool,
    /// Commands for the session that will be the current one then.
    waiting_for_switch: VecDeque<Request>,
    /// When, after the end of the input, the agent was first seen idle.
    idle_since: Option<Instant>,
}

impl Rpc {
    async fn serve(
        mut self,
        mut inputs: Inputs,
        signals: &mut Signals,
    ) -> anyhow::Result<ExitCode> {
        // Kept over the turns of the loop: what happens more often must not put it off.
        let mut reader_check = tokio::time::interval(READER_CHECK);
        reader_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.stage != Stage::Done {
            let due = self.updates.due();
            let reading = self.stage == Stage::Serving && self.out.has_room_for_responses();
            tokio::select! {
                code = signals.received() => return Ok(self.end_now(code, inputs).await),
                wakeup = inputs.wakeups.recv(), if self.out.has_room() => {
                    if let Some(wakeup) = wakeup {
                        self.wakeup(wakeup);
                    }
                    self.drain(&mut inputs.wakeups, BURST);
                }
                frame = inputs.lines.recv(), if reading => {
                    // What has happened before the command leaves before its answer.
                    let before = inputs.wakeups.len();
                    self.drain(&mut inputs.wakeups, before);
                    match frame {
                        Some(frame) => self.frame(frame),
                        None => {
                            // A client that is done may close both at once: not yet a fault.
                            reader_check.reset();
                            self.input_ended();
                        }
                    }
                }
                () = inputs.registered.changed(), if !self.waiting_for_commands.is_empty() => {
                    self.retry_waiting_for_commands();
                }
                () = sleep_until(due), if due.is_some() && self.out.has_room() => {
                    self.updates.flush(&self.out);
                }
                _ = reader_check.tick(), if self.stage == Stage::Draining => {
                    if stdout::reader_is_gone() {
                        report::error(OUTPUT_GONE);
                        return Ok(self.end_now(1, inputs).await);
                    }
                }
                () = self.out.changed() => {
                    if self.out.is_closed() {
                        report::error(OUTPUT_GONE);
                        return Ok(self.end_now(1, inputs).await);
                    }
                }
            }
        }
        let written = self.finish(FLUSH_GRACE).await;
        Ok(if written { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn drain(&mut self, wakeups: &mut mpsc::Receiver<Wakeup>, most: usize) {
        for _ in 0..most {
            if !self.out.has_room() {
                return;
            }
            match wakeups.try_recv() {
                Ok(wakeup) => self.wakeup(wakeup),
                Err(_) => return,
            }
        }
    }

    fn frame(&mut self, frame: Frame) {
        let parsed = match frame {
            Frame::Line(line) => Command::parse(&line),
            Frame::TooLong { bytes } => Err(CommandError::too_long(bytes, MAX_LINE_BYTES)),
        };
        match parsed {
            Ok(Command::Rpc { id, command }) => self.command(id, command),
            Ok(Command::UiResponse(response)) => match self.dialogs.answer(&response) {
                Ok(Some(handled)) => self.updates.event(&handled, &self.out),
                // Late, twice, or for no dialog: the protocol has it ignored.
                Ok(None) => {}
                Err(error) => self.respond(&Response::failure(
                    Some(Value::String(response.id)),
                    "extension_ui_response",
                    error.to_string(),
                )),
            },
            Err(error) => self.respond(&error.into_response()),
        }
    }

    fn respond(&self, response: &Response) {
        self.out.json(response);
    }

    fn wakeup(&mut self, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Output(AgentOutput::Event(event)) => self.updates.event(&event, &self.out),
            Wakeup::Output(AgentOutput::Delta(delta)) => self.updates.delta(delta, &self.out),
            Wakeup::Output(AgentOutput::Barrier(written)) => self.out.barrier(written),
            Wakeup::Output(AgentOutput::Diagnostic { path, message }) => {
                report::warning(format_args!("{}: {message}", path.display()));
                self.updates.event(&session_diagnostic(&path, message), &self.out);
            }
            Wakeup::Output(AgentOutput::ShutdownRequested) => {
                // Commands are read until then: the client may want to abort.
                let (agent, front) = (self.agent.clone(), self.front.clone());
                tokio::spawn(async move {
                    agent.wait_idle().await;
                    front.wake(Wakeup::ShutDown).await;
                });
            }
            Wakeup::ShutDown => {
                if self.stage == Stage::Serving {
                    self.input_ended();
                }
            }
            Wakeup::Response(response) => {
                self.deferred -= 1;
                self.respond(&response);
            }
            Wakeup::Line(line) => {
                self.deferred -= 1;
                self.out.raw(line);
            }
            Wakeup::Switched(response) => {
                self.deferred -= 1;
                self.respond(&response);
                self.switching = false;
                while !self.switching
                    && let Some((id, command)) = self.waiting_for_switch.pop_front()
                {
                    self.command(id, command);
                }
            }
            Wakeup::CommandDone => self.running_commands -= 1,
            Wakeup::Idle if self.stage != Stage::Draining => {}
            Wakeup::Idle => {
                let idle_since = *self.idle_since.get_or_insert_with(Instant::now);
                if self.is_drained() || idle_since.elapsed() > COMMAND_GRACE {
                    self.stop();
                } else {
                    self.wait_for_idle();
                }
            }
            Wakeup::Stopped => self.stage = Stage::Done,
        }
    }

    fn retry_waiting_for_commands(&mut self) {
        for (id, command) in std::mem::take(&mut self.waiting_for_commands) {
            self.command(id, command);
        }
    }

    fn input_ended(&mut self) {
        self.stage = Stage::Draining;
        for handled in self.dialogs.close() {
            self.updates.event(&handled, &self.out);
        }
        self.wait_for_idle();
    }

    /// Comes back with [`Wakeup::Idle`] when there may be nothing left to do.
    fn wait_for_idle(&self) {
        let (agent, hooks, front) =
            (self.agent.clone(), Arc::clone(&self.hooks), self.front.clone());
        let settled = self.running_commands == 0 && self.deferred == 0;
        tokio::spawn(async move {
            hooks.ready().await;
            agent.wait_idle().await;
            if !settled {
                // Looked at again soon; this is no hot path.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            front.wake(Wakeup::Idle).await;
        });
    }

    fn is_drained(&self) -> bool {
        self.running_commands == 0
            && self.deferred == 0
            && self.waiting_for_commands.is_empty()
            && self.waiting_for_switch.is_empty()
            && !self.agent.is_streaming()
    }

    fn stop(&mut self) {
        self.stage = Stage::Stopping;
        let (hooks, front) = (Arc::clone(&self.hooks), self.front.clone());
        tokio::spawn(async move {
            hooks.shutdown().await;
            front.wake(Wakeup::Stopped).await;
        });
    }

    /// The quick way out: abort, tell extensions, flush, each within its limit.
    async fn end_now(mut self, code: u8, mut inputs: Inputs) -> ExitCode {
        for handled in self.dialogs.close() {
            self.updates.event(&handled, &self.out);
        }
        self.agent.abort();
        let agent = self.agent.clone();
        let hooks = Arc::clone(&self.hooks);
        let ending = async move {
            let _ = tokio::time::timeout(SIGNAL_GRACE, agent.wait_idle()).await;
            let _ = tokio::time::timeout(SIGNAL_GRACE, hooks.shutdown()).await;
        };
        tokio::pin!(ending);
        loop {
            tokio::select! {
                () = &mut ending => break,
                Some(wakeup) = inputs.wakeups.recv(), if self.out.has_room() => self.wakeup(wakeup),
            }
        }
        self.drain(&mut inputs.wakeups, usize::MAX);
        self.finish(SIGNAL_GRACE).await;
        ExitCode::from(code)
    }

    /// Flushes. False: a session could not be written.
    async fn finish(self, limit: Duration) -> bool {
        let unwritten = self.agent.close_sessions().await;
        for error in &unwritten {
            report::error(error);
        }
        self.out.finish(limit);
        unwritten.is_empty()
    }
}
