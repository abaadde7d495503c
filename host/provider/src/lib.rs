//! Model providers: the trait that the agent streams replies through, the APIs
//! that models are served by, the registry of models, and the embedded `scripted`
//! provider. The only crate of the workspace that may see an HTTP client.
//!
//! What this crate must not know: sessions, tools' code, extensions, the modes.

mod anthropic;
mod api;
mod auth;
mod blocks;
#[cfg(test)]
mod conformance;
mod error;
pub mod fetch;
mod google;
mod http;
mod openai_completions;
mod openai_responses;
mod payload;
mod prepare;
mod registry;
pub mod scripted;
mod sse;
pub mod thinking;
mod tokens;

use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use futures::stream::BoxStream;
use serde_json::Value;
use wharf_protocol::{AgentMessage, Model, StopReason, StreamDelta, ThinkingLevel, Usage};

pub use blocks::BlockWriter;
pub use error::{ErrorKind, ProviderError};
pub use payload::{PayloadFilter, PayloadInfo};
pub use registry::{
    ModelChoice, OfferedProvider, Problem, PromptOverride, Registry, RegistryError,
};
pub use thinking::ThinkingBudgets;

/// Output tokens that a first request asks for, unless the model gives fewer. A reply
/// that needs more is asked for again with more, up to the model's own limit.
pub const DEFAULT_MAX_OUTPUT_TOKENS: u64 = 32_000;

/// A tool, as a provider offers it to its model.
#[derive(Debug, Clone)]
pub struct ToolDefinition {
    pub name: String,
    pub description: String,
    /// JSON Schema.
    pub parameters: Value,
}

/// What a reply is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// A turn of the conversation.
    #[default]
    Reply,
    /// A summary of a conversation: compaction, or a branch that was left.
    Summary,
    /// A session's name.
    Title,
}

/// One request for a reply.
#[derive(Debug, Clone)]
pub struct Request {
    pub model: Model,
    pub purpose: Purpose,
    /// Clamped to what the model can do before it is sent.
    pub thinking_level: ThinkingLevel,
    /// For APIs that want a number of tokens in place of a level.
    pub thinking_budgets: ThinkingBudgets,
    pub system_prompt: Arc<str>,
    /// User, assistant and tool-result messages only; every call has its result.
    pub messages: Vec<Arc<AgentMessage>>,
    pub tools: Arc<[ToolDefinition]>,
    /// Output tokens, thinking included; none: the smaller one of
    /// [`DEFAULT_MAX_OUTPUT_TOKENS`] and the model's own limit.
    pub max_tokens: Option<u64>,
    /// Stays the same for all requests of a session, so that a provider's prompt cache
    /// finds them together. None: no cache key is sent.
    pub session_id: Option<Arc<str>>,
    /// Sees what is sent before it is.
    pub filter: Option<Arc<dyn PayloadFilter>>,
}

impl Request {
    /// Output tokens to ask for.
    pub fn output_budget(&self) -> u64 {
        let budget = self.max_tokens.unwrap_or(DEFAULT_MAX_OUTPUT_TOKENS);
        if self.model.max_tokens == 0 { budget } else { budget.min(self.model.max_tokens) }
    }
}

/// A step of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum ProviderEvent {
    Delta(StreamDelta),
    /// The reply is complete; always the last event of a stream that did not fail.
    Done {
        /// `stop`, `length` or `toolUse`.
        stop_reason: StopReason,
        usage: Usage,
    },
}

/// A source of replies. Dropping the stream cancels the request.
pub trait Provider: Send + Sync + fmt::Debug {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<ProviderEvent, ProviderError>>;
}

/// Reads a file that a person wrote. A FIFO or a device under its name is refused:
/// reading it could wait for ever.
fn read_file(path: &Path) -> io::Result<String> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.bits().cast_signed(),
    );
    let mut file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}
