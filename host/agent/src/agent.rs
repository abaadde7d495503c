//! The agent's handle and its state. What it does is in the modules beside this
//! one: `input` takes messages in, `run` plays a run, `reply` one reply of the
//! model, `calls` one message's tool calls, `switching` changes the session.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use futures::FutureExt as _;
use tokio::sync::{OwnedMutexGuard, watch};
use tokio_util::sync::CancellationToken;
use wharf_protocol::message::{BashExecutionMessage, CustomMessage};
use wharf_protocol::{AgentMessage, Event, Model, ModelRef, SessionTask, ThinkingLevel};
use wharf_provider::{ModelChoice, Registry, thinking};
use wharf_session::{ContextMessage, MessageRole, Receipt, Session, SessionContext};

use crate::hooks::{ExtensionCommand, HookNotification, Hooks};
use crate::input::Input;
use crate::inventory::SessionStore;
use crate::models::Kept;
use crate::output::{AgentOutput, Outlet, deliver};
use crate::performance::PerformanceLog;
use crate::queue::{PendingMessages, Queue, Weight, custom_bytes};
use crate::reload::{Loaded, ResourceLoader};
use crate::reply::Retrying;
use crate::resources::settings::QueueMode;
use crate::resources::{Resources, SettingsFile};
use crate::snapshot::{ContextUsage, ScopedModel, SessionState};
use crate::tasks;
use crate::tool::Tool;
use crate::toolbox::RunningCall;
use crate::tools::Shell;
use crate::ui::Ui;
use crate::user_bash::RunningCommand;
use crate::validation::ArgumentSchemas;

/// What an agent is made of.
#[derive(Debug)]
pub struct AgentOptions {
    pub hooks: Arc<dyn Hooks>,
    pub outlet: Arc<dyn Outlet>,
    pub registry: Registry,
    pub resources: Resources,
    /// Reads the resources again.
    pub loader: Arc<dyn ResourceLoader>,
    /// The built-in tools that are switched on.
    pub tools: Vec<Arc<dyn Tool>>,
    pub cwd: PathBuf,
    /// The session to begin with: new, reopened or in memory.
    pub session: Session,
    pub store: SessionStore,
    /// What `~` means in paths that a client names.
    pub home: Option<PathBuf>,
    /// The model that was asked for; none: the session's last.
    pub model: Option<Model>,
    /// Where the session has none either, or one that cannot be used again.
    pub default_model: Option<Model>,
    /// The level that was asked for; none: the session's last.
    pub thinking_level: Option<ThinkingLevel>,
    /// Where the session has none either; none: off.
    pub default_thinking_level: Option<ThinkingLevel>,
    pub steering_mode: QueueMode,
    pub follow_up_mode: QueueMode,
    /// The models that `cycle_model` goes through; empty: all that have credentials.
    pub scoped_models: Vec<ModelChoice>,
    /// Where tools ask.
    pub ui: Arc<dyn Ui>,
    /// Runs the commands that a person runs.
    pub shell: Shell,
    /// Where replies' speed is recorded; none: nowhere.
    pub performance: Option<PerformanceLog>,
    /// Where choices that are made at run time are kept for later runs; none: nowhere.
    pub settings_file: Option<SettingsFile>,
    /// Ask the model for a name of a new session after its first run.
    pub names_sessions: bool,
}

/// A cheap handle; all clones are the same agent.
#[derive(Debug, Clone)]
pub struct Agent {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    state: Mutex<State>,
    pub(crate) hooks: Arc<dyn Hooks>,
    pub(crate) outlet: Arc<dyn Outlet>,
    /// Grows when a session names a script of its own.
    pub(crate) registry: Mutex<Registry>,
    /// Resources, and what is made of them.
    pub(crate) loaded: RwLock<Arc<Loaded>>,
    pub(crate) loader: Arc<dyn ResourceLoader>,
    /// Held while they are exchanged.
    pub(crate) reloading: Arc<tokio::sync::Mutex<()>>,
    /// False while extensions are asked what they add to the resources.
    pub(crate) discovered: watch::Sender<bool>,
    pub(crate) schemas: ArgumentSchemas,
    pub(crate) cwd: PathBuf,
    pub(crate) store: Mutex<SessionStore>,
    pub(crate) home: Option<PathBuf>,
    /// False while extensions are asked where sessions are kept.
    pub(crate) placed: watch::Sender<bool>,
    /// Ends the asking; whatever has been said by then does not count.
    pub(crate) placing: CancellationToken,
    pub(crate) ui: Arc<dyn Ui>,
    pub(crate) performance: Option<Arc<PerformanceLog>>,
    pub(crate) settings_file: Option<Arc<SettingsFile>>,
    pub(crate) names_sessions: bool,
    /// Held by the run that may emit; the next run waits for it, so that one
    /// run's `agent_end` leaves before the next one's `agent_start`.
    pub(crate) stage: Arc<tokio::sync::Mutex<()>>,
    /// Held while a person's command is being recorded.
    pub(crate) recording_commands: tokio::sync::Mutex<()>,
    /// Held while a session is being switched.
    pub(crate) switching: tokio::sync::Mutex<()>,
    /// Sessions that were left before all of them could be written.
    pub(crate) unsaved: Mutex<Vec<Session>>,
    pub(crate) idle: watch::Sender<bool>,
    /// Runs that have ended and still emit their last events.
    pub(crate) ending: AtomicUsize,
    /// What extensions have added to sessions, in bytes.
    pub(crate) extension_bytes: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) session: Session,
    /// The messages of the current branch, as the context is built from them.
    pub(crate) messages: Vec<ContextMessage>,
    /// How many of them, from the first one on, were there before the last compaction.
    pub(crate) compacted: usize,
    pub(crate) model: Option<Model>,
    /// As it was asked for; what is sent is [`State::effective_level`].
    pub(crate) thinking_level: ThinkingLevel,
    pub(crate) scoped_models: Vec<ModelChoice>,
    pub(crate) tasks: Vec<SessionTask>,
    pub(crate) auto_retry: bool,
    pub(crate) auto_compaction: bool,
    pub(crate) retrying: Retrying,
    /// The compactions under way, or asked for.
    pub(crate) compacting: Vec<Arc<CancellationToken>>,
    /// The reloads under way, or asked for.
    pub(crate) reloads: Vec<Arc<CancellationToken>>,
    /// Commands that a person runs now.
    pub(crate) running_commands: Vec<RunningCommand>,
    /// Results of such commands that came during a run; they enter the conversation
    /// between its turns.
    pub(crate) command_results: Vec<BashExecutionMessage>,
    /// Calls of tools that run now.
    pub(crate) running_calls: Vec<Arc<RunningCall>>,
    /// The names of the tools that the model sees; none: of all.
    pub(crate) active_tools: Option<HashSet<String>>,
    /// What the branch's last entries say of both.
    pub(crate) recorded: Recorded,
    /// Why the session's own model is not the current one; told once.
    pub(crate) unrestored: Option<String>,
    pub(crate) steering: Queue,
    pub(crate) follow_up: Queue,
    /// Extension messages that go with the next prompt.
    pub(crate) next_turn: Vec<CustomMessage>,
    /// Accepted input on its way through the handlers, oldest first.
    pub(crate) inputs: VecDeque<Input>,
    /// True while a task works through `inputs`.
    pub(crate) inputs_active: bool,
    /// How often the current session was to be named.
    pub(crate) naming_tries: u8,
    /// A tool wants the run to end after its turn.
    pub(crate) stop_after_turn: bool,
    /// The current run's cancellation; none while no run is active.
    pub(crate) run: Option<CancellationToken>,
    /// The system prompt of the current or the last run; empty where that is out of date.
    pub(crate) system_prompt: Arc<str>,
}

/// Model and thinking level as the session has them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded {
    pub(crate) model: Option<ModelRef>,
    pub(crate) thinking_level: Option<ThinkingLevel>,
}

impl Recorded {
    pub(crate) fn of(context: &SessionContext) -> Self {
        Self { model: context.model.clone(), thinking_level: context.thinking_level }
    }
}

impl State {
    /// Whether one more message of `bytes` may wait; what waits is held in memory.
    ///
    /// # Errors
    /// Says which cap is reached.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), QueueFull> {
        let waiting = [
            self.steering.weight(),
            self.follow_up.weight(),
            self.inputs.iter().map(Input::bytes).fold(Weight::default(), Weight::plus),
            self.next_turn.iter().map(custom_bytes).fold(Weight::default(), Weight::plus),
        ];
        let total = waiting.into_iter().fold(Weight::default(), Weight::join);
        if total.messages >= MAX_WAITING_MESSAGES || total.bytes + bytes > MAX_WAITING_BYTES {
            return Err(QueueFull);
        }
        Ok(())
    }

    /// The thinking level that the model is asked with.
    pub(crate) fn effective_level(&self) -> ThinkingLevel {
        match &self.model {
            Some(model) => thinking::clamp(self.thinking_level, model),
            None => self.thinking_level,
        }
    }

    /// The conversation is that of `context` from now on.
    pub(crate) fn take_context(&mut self, context: SessionContext) {
        self.messages = context.messages;
        self.compacted = context.compacted;
        self.tasks = tasks::of_messages(&self.messages);
    }

    /// True while accepted work is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.run.is_some() || self.inputs_active
    }
}

impl Agent {
    /// Makes an agent. Call it inside a tokio runtime.
    pub fn new(mut options: AgentOptions) -> Self {
        let context = options.session.build_context();
        let mut unrestored = None;
        let model = match (options.model, &context.model) {
            (Some(model), _) => Some(model),
            (None, None) => options.default_model,
            (None, Some(last)) => options
                .registry
                .restore(&last.provider, &last.id)
                .map_err(|error| unrestored = Some(error.to_string()))
                .ok()
                .or(options.default_model),
        };
        let thinking_level = options
            .thinking_level
            .or(context.thinking_level)
            .or(options.default_thinking_level)
            .unwrap_or_default();
        let settings = &options.resources.settings;
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(State {
                    session: options.session,
                    tasks: tasks::of_messages(&context.messages),
                    recorded: Recorded::of(&context),
                    messages: context.messages,
                    compacted: context.compacted,
                    model,
                    thinking_level,
                    scoped_models: options.scoped_models,
                    auto_retry: settings.retry.enabled,
                    auto_compaction: settings.compaction.enabled,
                    retrying: Retrying::default(),
                    compacting: Vec::new(),
                    reloads: Vec::new(),
                    running_commands: Vec::new(),
                    command_results: Vec::new(),
                    running_calls: Vec::new(),
                    active_tools: None,
                    unrestored,
                    steering: Queue::new(options.steering_mode),
                    follow_up: Queue::new(options.follow_up_mode),
                    next_turn: Vec::new(),
                    inputs: VecDeque::new(),
                    inputs_active: false,
                    naming_tries: 0,
                    stop_after_turn: false,
                    run: None,
                    system_prompt: "".into(),
                }),
                hooks: options.hooks,
                outlet: options.outlet,
                registry: Mutex::new(options.registry),
                loaded: RwLock::new(Arc::new(Loaded {
                    resources: Arc::new(options.resources),
                    tools: options.tools,
                    shell: options.shell,
                })),
                loader: options.loader,
                reloading: Arc::default(),
                discovered: watch::Sender::new(true),
                schemas: ArgumentSchemas::default(),
                cwd: options.cwd,
                store: Mutex::new(options.store),
                home: options.home,
                placed: watch::Sender::new(true),
                placing: CancellationToken::new(),
                ui: options.ui,
                performance: options.performance.map(Arc::new),
                settings_file: options.settings_file.map(Arc::new),
                names_sessions: options.names_sessions,
                stage: Arc::default(),
                recording_commands: tokio::sync::Mutex::new(()),
                switching: tokio::sync::Mutex::new(()),
                unsaved: Mutex::default(),
                idle: watch::Sender::new(true),
                ending: AtomicUsize::new(0),
                extension_bytes: AtomicUsize::new(0),
            }),
        }
    }

    /// Tells extensions that the session has begun. Not part of [`Self::new`]: their
    /// handlers call back, so the extension host must know the agent first.
    pub fn announce_session_start(&self) {
        self.inner.hooks.notify(HookNotification::SessionStart);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records model and thinking level where the branch's last entries differ. Done
    /// when a run starts: merely opening a session writes nothing. Nothing waits for
    /// the lines, which reach the file before the message that follows.
    pub(crate) fn record_model(&self) {
        let mut state = self.state();
        let model = state.model.as_ref().map(Model::reference);
        if let Some(model) = &model
            && state.recorded.model.as_ref() != Some(model)
        {
            state.session.append_model_change(&model.provider, &model.id);
        }
        let level = state.effective_level();
        if state.recorded.thinking_level != Some(level) {
            state.session.append_thinking_level_change(level);
        }
        state.recorded = Recorded { model, thinking_level: Some(level) };
    }

    /// The stage, in line from this call on, not only once the future is polled: what has it
    /// leaves first, and what is asked for after this call comes behind.
    pub(crate) fn stage_in_line(&self) -> impl Future<Output = OwnedMutexGuard<()>> + Send + use<> {
        let mut line = Box::pin(Arc::clone(&self.inner.stage).lock_owned());
        let at_once = (&mut line).now_or_never();
        async move {
            match at_once {
                Some(stage) => stage,
                None => line.await,
            }
        }
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.inner.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells extensions and the front end.
    pub(crate) async fn emit(&self, event: Event) {
        let event = Arc::new(event);
        self.inner.hooks.notify(HookNotification::Wire(Arc::clone(&event)));
        deliver(&*self.inner.outlet, AgentOutput::Event(event)).await;
    }

    /// Waits until an entry has been written; a failure is told and the entry
    /// stays with the writer, which tries again.
    pub(crate) async fn written(&self, receipt: Receipt) {
        let written = receipt.await;
        let session = self.session();
        if let Err(error) = written {
            self.tell_of_session(&session, error.to_string()).await;
        }
        for notice in session.take_notices() {
            self.tell_of_session(&session, notice.to_string()).await;
        }
    }

    pub fn session(&self) -> Session {
        self.state().session.clone()
    }

    /// The conversation; a message is parsed when it is asked for.
    pub fn messages(&self) -> Vec<ContextMessage> {
        self.state().messages.clone()
    }

    /// True until the last event of the last run has left.
    pub fn is_streaming(&self) -> bool {
        let state = self.state();
        state.is_busy() || self.inner.ending.load(Ordering::SeqCst) > 0
    }

    /// Waits until no run is active and every accepted input has been served.
    pub async fn wait_idle(&self) {
        let mut idle = self.inner.idle.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = idle.wait_for(|idle| *idle).await;
    }

    /// Aborts the current run, what is on its way into one, a compaction, a reload, and
    /// what extensions are asked of a person's command; one `agent_end` follows. Waiting
    /// messages stay in their queues.
    pub fn abort(&self) {
        self.abort_work();
        let state = self.state();
        state.reloads.iter().for_each(|reload| reload.cancel());
        state.running_commands.iter().for_each(RunningCommand::abort_asking);
    }

    /// The same for what belongs to the conversation.
    pub(crate) fn abort_work(&self) {
        self.inner.placing.cancel();
        let state = self.state();
        if let Some(run) = &state.run {
            run.cancel();
        }
        state.compacting.iter().for_each(|compacting| compacting.cancel());
        for input in &state.inputs {
            input.cancel.cancel();
        }
    }

    pub fn pending_messages(&self) -> PendingMessages {
        PendingMessages::of(&self.state())
    }

    pub fn clear_pending_messages(&self) -> PendingMessages {
        let mut state = self.state();
        let pending = PendingMessages::of(&state);
        state.steering.clear();
        state.follow_up.clear();
        for input in &mut state.inputs {
            input.clear();
        }
        pending
    }

    /// The text of the last assistant message, if there is one.
    pub fn last_assistant_text(&self) -> Option<String> {
        let state = self.state();
        let mut replies =
            state.messages.iter().rev().filter(|m| m.role() == MessageRole::Assistant);
        replies.find_map(|message| match message.read()?.as_ref() {
            AgentMessage::Assistant(assistant) => Some(assistant.text()),
            _ => None,
        })
    }

    /// Commands of extensions, prompt templates and skills, in this order.
    pub fn extension_commands(&self) -> Vec<ExtensionCommand> {
        self.inner.hooks.commands()
    }

    /// Names the session. It has the name when this returns; the future completes when
    /// that is written and announced.
    ///
    /// # Errors
    /// The name is empty.
    pub fn set_session_name(&self, name: &str) -> Result<Kept, EmptyName> {
        // It is shown in one line.
        let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let name = name.trim().to_owned();
        if name.is_empty() {
            return Err(EmptyName);
        }
        let (_, receipt) = self.session().append_session_info(&name);
        let agent = self.clone();
        Ok(Box::pin(async move { agent.announce_session_name(name, receipt).await }))
    }

    pub(crate) async fn announce_session_name(&self, name: String, receipt: Receipt) {
        self.written(receipt).await;
        self.emit(Event::SessionNameChanged { name }).await;
    }

    /// What `get_state` tells.
    pub fn snapshot(&self) -> SessionState {
        let streaming = self.is_streaming();
        let state = self.state();
        SessionState {
            model: state.model.clone(),
            scoped_models: state.scoped_models.iter().map(ScopedModel::of).collect(),
            tasks: state.tasks.clone(),
            thinking_level: state.effective_level(),
            is_streaming: streaming,
            is_retrying: state.retrying.is_active,
            retry_attempt: state.retrying.attempt,
            is_compacting: !state.compacting.is_empty(),
            auto_compaction_enabled: state.auto_compaction,
            steering_mode: state.steering.mode.as_str(),
            follow_up_mode: state.follow_up.mode.as_str(),
            session_file: state.session.file().map(Path::to_owned),
            session_id: state.session.id().to_owned(),
            session_name: state.session.name(),
            message_count: state.messages.len(),
            pending_message_count: state.steering.len()
                + state.follow_up.len()
                + state.inputs.iter().filter_map(Input::pending).count(),
            context_usage: ContextUsage::of(&state),
            using_subscription: false,
        }
    }
}

/// Messages that may wait, in all queues together.
pub const MAX_WAITING_MESSAGES: usize = 1000;

/// Bytes of text and images that may wait, in all queues together.
pub const MAX_WAITING_BYTES: usize = 128 * 1024 * 1024;

/// Bytes that extensions together may add to a session's entries in one run of the
/// program: entries stay in memory.
pub const MAX_EXTENSION_ENTRY_BYTES: usize = 256 * 1024 * 1024;

/// A message that found the queues full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "Too many messages are waiting (at most {MAX_WAITING_MESSAGES} messages and {MAX_WAITING_BYTES} bytes). Wait until the agent has taken some, or clear_pending_messages."
)]
pub struct QueueFull;

/// `set_session_name` with nothing in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Session name cannot be empty")]
pub struct EmptyName;
