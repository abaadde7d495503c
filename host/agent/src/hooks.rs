//! What extensions can do to the agent: the trait that the extension host
//! implements and the agent calls. No type of an extension runtime appears here.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use wharf_protocol::{
    AgentMessage, CompactionResult, Event, ImageContent, Model, message::CustomMessage,
};
use wharf_session::Entry;

use crate::tool::{Tool, ToolOutput};

/// Events that an extension can subscribe to, by their names on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HookEvent {
    ToolCall,
    ToolResult,
    Input,
    BeforeAgentStart,
    Context,
    BeforeProviderRequest,
    UserBash,
    ResourcesDiscover,
    SessionDirectory,
    SessionBeforeSwitch,
    SessionBeforeFork,
    SessionBeforeTree,
    SessionBeforeCompact,
    SessionStart,
    SessionSwitch,
    SessionFork,
    SessionTree,
    SessionCompact,
    SessionShutdown,
    ModelSelect,
    StreamRetry,
    LengthRetry,
    AgentStart,
    AgentEnd,
    TurnStart,
    TurnEnd,
    MessageStart,
    MessageUpdate,
    MessageEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolExecutionEnd,
}

impl HookEvent {
    pub const ALL: [Self; 32] = [
        Self::ToolCall,
        Self::ToolResult,
        Self::Input,
        Self::BeforeAgentStart,
        Self::Context,
        Self::BeforeProviderRequest,
        Self::UserBash,
        Self::ResourcesDiscover,
        Self::SessionDirectory,
        Self::SessionBeforeSwitch,
        Self::SessionBeforeFork,
        Self::SessionBeforeTree,
        Self::SessionBeforeCompact,
        Self::SessionStart,
        Self::SessionSwitch,
        Self::SessionFork,
        Self::SessionTree,
        Self::SessionCompact,
        Self::SessionShutdown,
        Self::ModelSelect,
        Self::StreamRetry,
        Self::LengthRetry,
        Self::AgentStart,
        Self::AgentEnd,
        Self::TurnStart,
        Self::TurnEnd,
        Self::MessageStart,
        Self::MessageUpdate,
        Self::MessageEnd,
        Self::ToolExecutionStart,
        Self::ToolExecutionUpdate,
        Self::ToolExecutionEnd,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::Input => "input",
            Self::BeforeAgentStart => "before_agent_start",
            Self::Context => "context",
            Self::BeforeProviderRequest => "before_provider_request",
            Self::UserBash => "user_bash",
            Self::ResourcesDiscover => "resources_discover",
            Self::SessionDirectory => "session_directory",
            Self::SessionBeforeSwitch => "session_before_switch",
            Self::SessionBeforeFork => "session_before_fork",
            Self::SessionBeforeTree => "session_before_tree",
            Self::SessionBeforeCompact => "session_before_compact",
            Self::SessionStart => "session_start",
            Self::SessionSwitch => "session_switch",
            Self::SessionFork => "session_fork",
            Self::SessionTree => "session_tree",
            Self::SessionCompact => "session_compact",
            Self::SessionShutdown => "session_shutdown",
            Self::ModelSelect => "model_select",
            Self::StreamRetry => "stream_retry",
            Self::LengthRetry => "length_retry",
            Self::AgentStart => "agent_start",
            Self::AgentEnd => "agent_end",
            Self::TurnStart => "turn_start",
            Self::TurnEnd => "turn_end",
            Self::MessageStart => "message_start",
            Self::MessageUpdate => "message_update",
            Self::MessageEnd => "message_end",
            Self::ToolExecutionStart => "tool_execution_start",
            Self::ToolExecutionUpdate => "tool_execution_update",
            Self::ToolExecutionEnd => "tool_execution_end",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolCallEvent {
    pub tool_call_id: String,
    pub tool_name: String,
    pub input: Map<String, Value>,
    /// Canonical paths that a built-in file tool would touch.
    pub paths: Vec<PathBuf>,
}

/// Re-validates an input that a handler replaced and tells the paths that the
/// call would touch with it. An error is the text that the model reads.
pub type RecheckInput<'a> =
    &'a (dyn Fn(&Map<String, Value>) -> Result<Vec<PathBuf>, String> + Send + Sync);

/// What all handlers together decided.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolCallVerdict {
    /// Run with this input (the original or the last replacement).
    Run(Map<String, Value>),
    /// Do not run; the model reads the reason.
    Block(String),
    /// Do not run; this is the result.
    Answer { output: ToolOutput, is_error: bool },
}

/// A tool's result on its way to the model; handlers patch it in load order.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResultEvent {
    pub tool_call_id: String,
    pub tool_name: String,
    pub input: Map<String, Value>,
    pub output: ToolOutput,
    pub is_error: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputSource {
    Interactive,
    Rpc,
    Extension,
}

#[derive(Debug, Clone, PartialEq)]
pub struct InputEvent {
    pub text: String,
    pub images: Vec<ImageContent>,
    pub source: InputSource,
}

#[derive(Debug, Clone, PartialEq)]
pub enum InputVerdict {
    /// Go on with this text and these images (transformed or not).
    Proceed { text: String, images: Vec<ImageContent> },
    /// An extension dealt with it.
    Handled,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BeforeAgentStartEvent {
    pub prompt: String,
    pub images: Vec<ImageContent>,
    pub system_prompt: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BeforeAgentStartVerdict {
    /// In load order.
    pub messages: Vec<CustomMessage>,
    pub system_prompt: String,
}

/// A request that is put together and about to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderRequestEvent {
    pub provider: String,
    /// The model's id.
    pub model: String,
    pub api: String,
    /// The body of the HTTP request; it holds no key.
    pub payload: Value,
}

/// Why skills and prompt templates are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscoverReason {
    Startup,
    Reload,
}

/// Skills and prompt templates that extensions know of, in load order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiscoveredResources {
    /// Files or folders, as the extensions wrote them: perhaps relative to the working
    /// directory, perhaps with `~`.
    pub skill_paths: Vec<PathBuf>,
    pub prompt_paths: Vec<PathBuf>,
}

/// The person runs a command, or a program does for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserBashEvent {
    pub command: String,
    /// The model will not see it.
    pub exclude_from_context: bool,
}

/// What all handlers of `user_bash` together decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserBashVerdict {
    /// Run this: the person's command, or what extensions made of it.
    Run(String),
    /// Run nothing; this is what came of it.
    Answer { output: String, exit_code: Option<i32> },
}

/// What a reload did to one extension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReloadedExtension {
    pub id: String,
    pub path: PathBuf,
    /// None: it was not there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_version: Option<String>,
    /// None: it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_version: Option<String>,
    /// Its content is another one than before.
    pub changed: bool,
    /// Why the new content is not used; the old one goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchReason {
    New,
    Resume,
}

/// What all handlers of `session_before_fork` together decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkVerdict {
    /// The fork ends before the message that it was asked for.
    Proceed,
    /// The fork has the whole branch: the conversation is not rewound.
    KeepConversation,
    Cancel,
}

/// The leaf is about to move to another entry of the session's tree.
#[derive(Debug, Clone, PartialEq)]
pub struct BeforeTreeEvent {
    pub target_id: String,
    pub old_leaf_id: Option<String>,
    /// Where the branch that is left and the one that is taken up part; none: before the
    /// first entry.
    pub common_ancestor_id: Option<String>,
    /// What is on the branch that is left, from the common ancestor on.
    pub abandoned: Vec<Arc<AgentMessage>>,
    pub options: TreeOptions,
}

/// How the leaf is to be moved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeOptions {
    /// Summarise the branch that is left.
    pub summarize: bool,
    pub custom_instructions: Option<String>,
    /// The instructions stand in place of the host's own, not beside them.
    pub replace_instructions: bool,
    /// For the summary or, without one, for the target.
    pub label: Option<String>,
}

/// What all handlers of `session_before_tree` together decided.
#[derive(Debug, Clone, PartialEq)]
pub enum TreeVerdict {
    Cancel,
    Proceed {
        /// The options as the handlers left them.
        options: TreeOptions,
        /// An extension's own; the model is not asked for one.
        summary: Option<TreeSummary>,
    },
}

/// A summary of a branch by an extension.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeSummary {
    pub summary: String,
    pub details: Option<Value>,
}

/// What a compaction was begun by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionCause {
    Manual,
    Threshold,
    Overflow,
}

impl CompactionCause {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Threshold => "threshold",
            Self::Overflow => "overflow",
        }
    }
}

/// A compaction that is about to begin.
#[derive(Debug, Clone, PartialEq)]
pub struct BeforeCompactEvent {
    pub cause: CompactionCause,
    /// Entries from here on stay.
    pub first_kept_entry_id: String,
    pub tokens_before: u64,
    /// Of the compaction before; the new one carries it on.
    pub previous_summary: Option<String>,
    /// Whole turns that are to be summarised.
    pub messages: Vec<Arc<AgentMessage>>,
    /// The beginning of a turn whose end is kept.
    pub turn_prefix: Vec<Arc<AgentMessage>>,
    /// `{"readFiles", "modifiedFiles"}`
    pub details: Value,
    pub instructions: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum BeforeCompactVerdict {
    Proceed,
    Cancel,
    /// An extension's own summary.
    Replace(CompactionResult),
}

/// How a model came to be the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelSource {
    Set,
    Cycle,
    /// It is the one of the session that was opened.
    Restore,
}

impl ModelSource {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Cycle => "cycle",
            Self::Restore => "restore",
        }
    }
}

/// Something that happened. What front ends see too is borrowed from there.
#[derive(Debug, Clone)]
pub enum HookNotification {
    SessionStart,
    SessionSwitch {
        reason: SwitchReason,
        previous_session_file: Option<PathBuf>,
    },
    /// A fork has become the current session.
    SessionFork {
        previous_session_file: Option<PathBuf>,
    },
    /// The leaf has moved.
    SessionTree {
        new_leaf_id: Option<String>,
        old_leaf_id: Option<String>,
        /// The entry, as it stands in the file.
        summary_entry: Option<Arc<Entry>>,
        from_extension: bool,
    },
    SessionCompact {
        entry_id: String,
        result: CompactionResult,
        from_extension: bool,
    },
    ModelSelect {
        model: Box<Model>,
        previous: Option<Box<Model>>,
        source: ModelSource,
    },
    SessionShutdown,
    /// One of the events that front ends see, as on the wire; its name is a
    /// [`HookEvent`].
    Wire(Arc<Event>),
}

/// A command that extensions offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionCommand {
    /// As it is called, without the slash: `name`, or `name:1` after a clash.
    pub name: String,
    pub description: String,
    pub argument_hint: Option<String>,
    /// The component's file.
    pub extension_path: PathBuf,
}

/// What a lookup of `/name` finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandLookup {
    Found,
    /// Not yet, but some extensions are still loading.
    Loading,
    Unknown,
}

/// The extensions, as the agent sees them. Handlers run in load order; an
/// extension that fails is reported as an `extension_error` by the implementor
/// and never fails the caller.
pub trait Hooks: Send + Sync + fmt::Debug {
    /// Waits until every extension has registered or failed. A run starts only
    /// then: a guard that is still being compiled must not be missed.
    fn ready(&self) -> BoxFuture<'_, ()>;

    /// True when some extension subscribes to `event`, or when that is not known yet.
    fn subscribes(&self, event: HookEvent) -> bool;

    /// Tools of extensions, in load order. Names that clash are left out already.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;

    fn commands(&self) -> Vec<ExtensionCommand>;

    fn find_command(&self, name: &str) -> CommandLookup;

    /// Runs a command that [`Self::find_command`] found. Completes when the
    /// handler has returned; its failure has been reported by then.
    fn run_command(&self, name: String, arguments: String) -> BoxFuture<'static, ()>;

    /// Fails closed: a handler that fails, traps or runs over its budget blocks.
    fn tool_call<'a>(
        &'a self,
        event: ToolCallEvent,
        recheck: RecheckInput<'a>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolCallVerdict>;

    fn tool_result<'a>(
        &'a self,
        event: ToolResultEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolResultEvent>;

    fn input<'a>(
        &'a self,
        event: InputEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, InputVerdict>;

    fn before_agent_start<'a>(
        &'a self,
        event: BeforeAgentStartEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, BeforeAgentStartVerdict>;

    /// The messages for the model, as the handlers left them.
    fn context<'a>(
        &'a self,
        messages: Vec<Arc<AgentMessage>>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Vec<Arc<AgentMessage>>>;

    /// The payload, as the handlers left it.
    fn before_provider_request<'a>(
        &'a self,
        event: ProviderRequestEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Value>;

    /// What one wraps is what the next one sees; the first that answers wins.
    fn user_bash<'a>(
        &'a self,
        event: UserBashEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, UserBashVerdict>;

    /// What all of them know of, in load order.
    fn resources_discover(&self, reason: DiscoverReason) -> BoxFuture<'_, DiscoveredResources>;

    /// Looks for extensions anew and replaces those whose content has changed. One that
    /// cannot be loaded leaves the old one running. Cancelled before its end, nothing has
    /// changed.
    ///
    /// # Errors
    /// It was cancelled, or another one is under way.
    fn reload<'a>(
        &'a self,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<ReloadedExtension>, String>>;

    /// True: an extension cancelled the switch.
    fn session_before_switch(
        &self,
        reason: SwitchReason,
        target: Option<PathBuf>,
    ) -> BoxFuture<'_, bool>;

    /// The first one that cancels wins, then the first that keeps the conversation.
    fn session_before_fork(&self, entry_id: String) -> BoxFuture<'_, ForkVerdict>;

    /// The first one that cancels wins; options that a handler changes are what the next
    /// one sees; the first own summary wins.
    fn session_before_tree<'a>(
        &'a self,
        event: BeforeTreeEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, TreeVerdict>;

    /// Where an extension wants session files of `cwd` kept; the last one that answers
    /// wins. Asked once, at the start, and only where neither the command line nor
    /// settings say it.
    fn session_directory(&self, cwd: PathBuf) -> BoxFuture<'_, Option<PathBuf>>;

    /// The first one that cancels or replaces wins.
    fn session_before_compact<'a>(
        &'a self,
        event: BeforeCompactEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, BeforeCompactVerdict>;

    /// Queues a notification for those who subscribe; never waits.
    fn notify(&self, notification: HookNotification);

    /// Waits until the queued notifications have been handled or `shutdown` grace
    /// has passed, then stops every extension; dialogs settle as cancelled.
    fn shutdown(&self) -> BoxFuture<'_, ()>;
}

/// The hooks of an agent without extensions.
#[derive(Debug, Clone, Copy)]
pub struct NoHooks;

impl Hooks for NoHooks {
    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn subscribes(&self, _event: HookEvent) -> bool {
        false
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    fn commands(&self) -> Vec<ExtensionCommand> {
        Vec::new()
    }

    fn find_command(&self, _name: &str) -> CommandLookup {
        CommandLookup::Unknown
    }

    fn run_command(&self, _name: String, _arguments: String) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn tool_call<'a>(
        &'a self,
        event: ToolCallEvent,
        _recheck: RecheckInput<'a>,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolCallVerdict> {
        Box::pin(std::future::ready(ToolCallVerdict::Run(event.input)))
    }

    fn tool_result<'a>(
        &'a self,
        event: ToolResultEvent,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolResultEvent> {
        Box::pin(std::future::ready(event))
    }

    fn input<'a>(
        &'a self,
        event: InputEvent,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, InputVerdict> {
        Box::pin(std::future::ready(InputVerdict::Proceed {
            text: event.text,
            images: event.images,
        }))
    }

    fn before_agent_start<'a>(
        &'a self,
        event: BeforeAgentStartEvent,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, BeforeAgentStartVerdict> {
        Box::pin(std::future::ready(BeforeAgentStartVerdict {
            messages: Vec::new(),
            system_prompt: event.system_prompt,
        }))
    }

    fn context<'a>(
        &'a self,
        messages: Vec<Arc<AgentMessage>>,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Vec<Arc<AgentMessage>>> {
        Box::pin(std::future::ready(messages))
    }

    fn before_provider_request<'a>(
        &'a self,
        event: ProviderRequestEvent,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Value> {
        Box::pin(std::future::ready(event.payload))
    }

    fn user_bash<'a>(
        &'a self,
        event: UserBashEvent,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, UserBashVerdict> {
        Box::pin(std::future::ready(UserBashVerdict::Run(event.command)))
    }

    fn resources_discover(&self, _reason: DiscoverReason) -> BoxFuture<'_, DiscoveredResources> {
        Box::pin(std::future::ready(DiscoveredResources::default()))
    }

    fn reload<'a>(
        &'a self,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<ReloadedExtension>, String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn session_before_switch(
        &self,
        _reason: SwitchReason,
        _target: Option<PathBuf>,
    ) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    fn session_before_fork(&self, _entry_id: String) -> BoxFuture<'_, ForkVerdict> {
        Box::pin(std::future::ready(ForkVerdict::Proceed))
    }

    fn session_before_tree<'a>(
        &'a self,
        event: BeforeTreeEvent,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, TreeVerdict> {
        let verdict = TreeVerdict::Proceed { options: event.options, summary: None };
        Box::pin(std::future::ready(verdict))
    }

    fn session_directory(&self, _cwd: PathBuf) -> BoxFuture<'_, Option<PathBuf>> {
        Box::pin(std::future::ready(None))
    }

    fn session_before_compact<'a>(
        &'a self,
        _event: BeforeCompactEvent,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, BeforeCompactVerdict> {
        Box::pin(std::future::ready(BeforeCompactVerdict::Proceed))
    }

    fn notify(&self, _notification: HookNotification) {}

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
