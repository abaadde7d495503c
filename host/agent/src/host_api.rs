//! What an extension can ask of the agent: the other direction of `hooks`.
//! The agent implements it; the extension host calls it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wharf_protocol::{
    AgentMessage, ImageContent, Model, ThinkingLevel, Usage, message::CustomMessage,
};
pub use wharf_provider::fetch::{HttpBody, HttpError, HttpErrorKind, HttpRequest, HttpResponse};
use wharf_session::Session;

use crate::hooks::ReloadedExtension;
use crate::navigation::Navigated;
use crate::snapshot::ContextUsage;
use crate::switching::Forked;
use crate::tool::{ToolOutput, ToolSpec};

/// When a message that arrives during a run is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Steer,
    FollowUp,
    NextTurn,
}

/// A refusal or a failure, told to the extension as a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostApiError {
    #[error("{0}")]
    NotAllowed(String),
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Failed(String),
}

/// Where a command comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandSource {
    Extension,
    Prompt,
    Skill,
}

/// A command that a person can call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandInfo {
    /// Without the slash.
    pub name: String,
    pub description: Option<String>,
    pub source: CommandSource,
}

/// A program that an extension was granted.
#[derive(Debug, Clone)]
pub struct ExecRequest {
    /// An absolute path.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub cwd: PathBuf,
    /// All that it inherits.
    pub environment: Vec<(String, String)>,
    pub stdin: Vec<u8>,
    pub timeout: Duration,
    /// Bytes that are kept of each of its two outputs.
    pub output_bytes: usize,
    /// Kills the program and what it started.
    pub cancel: CancellationToken,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// None: it was killed by a signal.
    pub exit_code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// There was more output.
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecError {
    #[error("{0}")]
    Failed(String),
    #[error("it did not end within {0:?}, and was killed")]
    TimedOut(Duration),
    #[error("it was cancelled")]
    Cancelled,
}

/// A call of a built-in tool by the tool that overrides it.
#[derive(Debug, Clone)]
pub struct BuiltInCall {
    pub tool_call_id: String,
    pub name: String,
    pub input: Map<String, Value>,
    pub cancel: CancellationToken,
}

/// A reply that an extension is to give.
#[derive(Debug, Clone)]
pub struct ReplyRequest {
    pub model: Model,
    pub system_prompt: Arc<str>,
    pub messages: Vec<Arc<AgentMessage>>,
    pub tools: Vec<ToolSpec>,
    pub thinking_level: ThinkingLevel,
    pub max_tokens: u64,
}

/// Pieces of one kind that follow each other are one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyPiece {
    Text(String),
    Thinking(String),
    ToolCall { id: String, name: String },
    ToolCallArguments(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStop {
    Stop,
    Length,
    ToolUse,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReplyEnd {
    pub stop: ReplyStop,
    pub usage: Usage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyFailure {
    pub message: String,
    /// The HTTP status of the server behind it.
    pub status: Option<u16>,
    pub transient: bool,
}

/// An extension that answers for models. Dropping the future cancels the reply.
pub trait ReplySource: Send + Sync + fmt::Debug {
    fn reply(
        &self,
        request: ReplyRequest,
        pieces: mpsc::Sender<ReplyPiece>,
    ) -> BoxFuture<'static, Result<ReplyEnd, ReplyFailure>>;
}

/// A provider that an extension adds.
#[derive(Debug, Clone)]
pub struct ProviderOffer {
    /// The extension's id: who may change it, and take it back.
    pub owner: String,
    pub name: String,
    /// As in `models.json`.
    pub config: Map<String, Value>,
    /// None: the host sends the requests.
    pub source: Option<Arc<dyn ReplySource>>,
}

pub trait HostApi: Send + Sync + fmt::Debug {
    /// The current session; it changes with `new_session` and `switch_session`.
    fn session(&self) -> Session;
    fn is_idle(&self) -> bool;
    fn has_pending_messages(&self) -> bool;
    fn abort(&self);
    fn cwd(&self) -> PathBuf;
    fn system_prompt(&self) -> String;
    fn tools(&self) -> Vec<ToolSpec>;
    fn model(&self) -> Option<Model>;

    fn send_user_message(
        &self,
        text: String,
        images: Vec<ImageContent>,
        deliver: Delivery,
    ) -> Result<(), HostApiError>;

    fn send_message(
        &self,
        message: CustomMessage,
        deliver: Delivery,
        trigger_turn: bool,
    ) -> Result<(), HostApiError>;

    /// Appends an entry that the model never sees; gives its id.
    fn append_entry(
        &self,
        custom_type: String,
        data: Option<Value>,
    ) -> Result<String, HostApiError>;
    /// Also announces `session_name_changed`.
    fn set_session_name(&self, name: String) -> Result<(), HostApiError>;
    fn set_label(&self, entry: String, label: Option<String>) -> Result<(), HostApiError>;

    fn wait_for_idle(&self) -> BoxFuture<'static, ()>;
    /// True: an extension cancelled it.
    fn new_session(&self) -> BoxFuture<'static, Result<bool, HostApiError>>;
    /// True: an extension cancelled it.
    fn switch_session(&self, file: PathBuf) -> BoxFuture<'static, Result<bool, HostApiError>>;

    fn context_usage(&self) -> Option<ContextUsage>;
    /// Starts a compaction. Its failure is told as a diagnostic of `owner`.
    fn compact(&self, owner: PathBuf, instructions: Option<String>);
    /// Ends the program in order once the agent is idle.
    fn shutdown(&self);

    /// Active or not.
    fn all_tools(&self) -> Vec<ToolSpec>;
    fn active_tools(&self) -> Vec<String>;
    fn set_active_tools(&self, names: Vec<String>) -> Result<(), HostApiError>;
    /// Runs a built-in; one whose input is not the call's own passes the `tool_call`
    /// handlers again.
    fn call_built_in(
        &self,
        call: BuiltInCall,
    ) -> BoxFuture<'static, Result<(ToolOutput, bool), HostApiError>>;

    fn commands(&self) -> Vec<CommandInfo>;
    /// Models that have a key; an empty pattern: all.
    fn find_models(&self, pattern: &str) -> Vec<Model>;
    fn set_model(&self, provider: &str, id: &str) -> Result<Model, HostApiError>;
    fn thinking_level(&self) -> ThinkingLevel;
    /// Gives the level that the model can do.
    fn set_thinking_level(&self, level: ThinkingLevel) -> ThinkingLevel;

    fn register_provider(&self, offer: ProviderOffer) -> Result<(), HostApiError>;
    /// False: the extension has added no such provider.
    fn unregister_provider(&self, owner: &str, name: &str) -> bool;

    /// One request, without following redirects.
    fn fetch(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, HttpError>>;
    fn exec(&self, request: ExecRequest) -> BoxFuture<'static, Result<ExecOutput, ExecError>>;

    /// True: an extension cancelled it.
    fn new_session_with(
        &self,
        parent_session: Option<String>,
    ) -> BoxFuture<'static, Result<bool, HostApiError>>;
    fn fork(&self, entry: String) -> BoxFuture<'static, Result<Forked, HostApiError>>;
    fn navigate_tree(
        &self,
        target: String,
        options: crate::hooks::TreeOptions,
    ) -> BoxFuture<'static, Result<Navigated, HostApiError>>;
    /// Loads resources and extensions anew.
    fn reload(&self) -> BoxFuture<'static, Result<Vec<ReloadedExtension>, HostApiError>>;
}
