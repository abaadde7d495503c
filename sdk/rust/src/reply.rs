//! Replies that the extension gives in a model's place.

use std::fmt;

use serde_json::value::RawValue;

use crate::bindings::wharf::extension::{replies, types as wit};
use crate::entry;
use crate::{AccessError, Error, Json, Message, Result, ThinkingLevel};

/// A reply that a model of
/// [`Agent::register_streaming_provider`](crate::Agent::register_streaming_provider)
/// is to give.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplyRequest {
    /// The provider's name.
    pub provider: String,
    /// The model, a JSON object. Can be read as a [`Model`](crate::Model).
    pub model: Json,
    /// The system prompt.
    pub system_prompt: String,
    /// A JSON array of messages with the roles `user`, `assistant` and `toolResult`.
    pub messages: Json,
    /// A JSON array of `{name, description, parameters}`.
    pub tools: Json,
    /// How much the model thinks.
    pub thinking_level: ThinkingLevel,
    /// Tokens that the reply may have.
    pub max_tokens: u64,
}

impl ReplyRequest {
    /// The messages, in the order of the conversation.
    ///
    /// # Errors
    /// When a message does not have the shape of one, which only a fault of the host
    /// can cause.
    pub fn messages(&self) -> Result<Vec<Message>> {
        entry::messages(&self.messages)
    }

    /// The messages, each as JSON text.
    ///
    /// # Errors
    /// When they are not a JSON array, which only a fault of the host can cause.
    pub fn raw_messages(&self) -> Result<Vec<&RawValue>> {
        self.messages.parse()
    }
}

/// Takes the pieces of a reply, one after the other; each may have 1 MiB. Pieces of
/// one kind that follow each other are one block.
///
/// ```
/// # use wharf_sdk::{ReplyEnd, ReplyFailure, ReplyRequest, ReplyWriter};
/// async fn echo(request: ReplyRequest, reply: ReplyWriter) -> Result<ReplyEnd, ReplyFailure> {
///     let count = request.messages()?.len();
///     reply.thinking("Shall I count them?").await?;
///     reply.text(format!("There are {count} messages.")).await?;
///     Ok(ReplyEnd::stop().with_usage(12, 6))
/// }
/// ```
#[derive(Debug)]
pub struct ReplyWriter {
    request_id: String,
}

impl ReplyWriter {
    /// Adds text.
    ///
    /// # Errors
    /// `NotAllowed` when the reply is not asked for any more.
    pub async fn text(&self, text: impl Into<String>) -> Result<()> {
        self.push(wit::ReplyPiece::Text(text.into())).await
    }

    /// Adds what the model thinks.
    ///
    /// # Errors
    /// `NotAllowed` when the reply is not asked for any more.
    pub async fn thinking(&self, text: impl Into<String>) -> Result<()> {
        self.push(wit::ReplyPiece::Thinking(text.into())).await
    }

    /// Adds a whole call of a tool. The id is unique within the conversation, the
    /// arguments are a JSON object.
    ///
    /// # Errors
    /// `NotAllowed` when the reply is not asked for any more.
    pub async fn tool_call(
        &self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<Json>,
    ) -> Result<()> {
        self.begin_tool_call(id, name).await?;
        self.tool_call_arguments(arguments.into().into_string()).await
    }

    /// Begins a call of a tool, whose arguments follow piece by piece.
    ///
    /// # Errors
    /// `NotAllowed` when the reply is not asked for any more.
    pub async fn begin_tool_call(
        &self,
        id: impl Into<String>,
        name: impl Into<String>,
    ) -> Result<()> {
        let head = wit::ToolCallHead { id: id.into(), name: name.into() };
        self.push(wit::ReplyPiece::ToolCall(head)).await
    }

    /// Adds to the arguments of the call that was begun last. What they add up to is a
    /// JSON object.
    ///
    /// # Errors
    /// `NotAllowed` when the reply is not asked for any more.
    pub async fn tool_call_arguments(&self, json: impl Into<String>) -> Result<()> {
        self.push(wit::ReplyPiece::ToolCallArguments(json.into())).await
    }

    async fn push(&self, piece: wit::ReplyPiece) -> Result<()> {
        Ok(replies::push(self.request_id.clone(), piece).await?)
    }
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStop {
    /// The model has said all.
    Stop,
    /// Its limit of tokens.
    Length,
    /// It waits for the results of tools.
    ToolUse,
}

/// The end of a reply, with the tokens that it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyEnd {
    /// Why it ended.
    pub stop: ReplyStop,
    /// Tokens that the model read, without those of a cache.
    pub input: u64,
    /// Tokens that the model wrote.
    pub output: u64,
    /// Tokens that the model read from a cache.
    pub cache_read: u64,
    /// Tokens that the model wrote to a cache.
    pub cache_write: u64,
}

impl ReplyEnd {
    /// The model has said all.
    #[must_use]
    pub const fn stop() -> Self {
        Self::new(ReplyStop::Stop)
    }

    /// The model waits for the results of tools.
    #[must_use]
    pub const fn tool_use() -> Self {
        Self::new(ReplyStop::ToolUse)
    }

    /// An end without tokens.
    #[must_use]
    pub const fn new(stop: ReplyStop) -> Self {
        Self { stop, input: 0, output: 0, cache_read: 0, cache_write: 0 }
    }

    /// Says how many tokens the model read and wrote.
    #[must_use]
    pub const fn with_usage(mut self, input: u64, output: u64) -> Self {
        self.input = input;
        self.output = output;
        self
    }
}

/// Why there is no whole reply. Any error of the SDK becomes one with `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyFailure {
    /// What is shown.
    pub message: String,
    /// The HTTP status that the server answered with, where there is one. It decides
    /// whether the reply is tried again (429, 5xx) and when the context is too large
    /// (413).
    pub status: Option<u16>,
    /// The connection was lost, or something else that may work the next time.
    pub transient: bool,
}

impl ReplyFailure {
    /// A failure that is not tried again.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: None, transient: false }
    }

    /// Says what the server answered with.
    #[must_use]
    pub const fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// It may work the next time.
    #[must_use]
    pub const fn transient(mut self) -> Self {
        self.transient = true;
        self
    }
}

impl fmt::Display for ReplyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ReplyFailure {}

impl From<Error> for ReplyFailure {
    fn from(error: Error) -> Self {
        match error {
            Error::Access(error) => error.into(),
            error => Self::new(error.to_string()),
        }
    }
}

impl From<AccessError> for ReplyFailure {
    /// A request that failed or took too long may work the next time.
    fn from(error: AccessError) -> Self {
        let transient = matches!(error, AccessError::Failed(_) | AccessError::TimedOut(_));
        Self { transient, ..Self::new(error.to_string()) }
    }
}

impl From<String> for ReplyFailure {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<&str> for ReplyFailure {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

/// Splits a request of the host.
pub(crate) fn begin(request: wit::ReplyRequest) -> (ReplyRequest, ReplyWriter) {
    let writer = ReplyWriter { request_id: request.id };
    let request = ReplyRequest {
        provider: request.provider,
        model: Json::from_host(request.model),
        system_prompt: request.system_prompt,
        messages: Json::from_host(request.messages),
        tools: Json::from_host(request.tools),
        thinking_level: ThinkingLevel::named(&request.thinking_level),
        max_tokens: request.max_tokens,
    };
    (request, writer)
}

impl From<ReplyEnd> for wit::ReplyEnd {
    fn from(end: ReplyEnd) -> Self {
        Self {
            stop: match end.stop {
                ReplyStop::Stop => wit::ReplyStop::Stop,
                ReplyStop::Length => wit::ReplyStop::Length,
                ReplyStop::ToolUse => wit::ReplyStop::ToolUse,
            },
            usage: wit::ReplyUsage {
                input: end.input,
                output: end.output,
                cache_read: end.cache_read,
                cache_write: end.cache_write,
            },
        }
    }
}

impl From<ReplyFailure> for wit::ReplyFailure {
    fn from(failure: ReplyFailure) -> Self {
        Self { message: failure.message, status: failure.status, transient: failure.transient }
    }
}
