//! Model providers: the trait that the agent streams replies through, the
//! registry of models, and the embedded `scripted` provider. The only crate of
//! the workspace that may see an HTTP client.
//!
//! What this crate must not know: sessions, tools' code, extensions, the modes.

mod registry;
pub mod scripted;

use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use futures::stream::BoxStream;
use serde_json::Value;
use wharf_protocol::{AgentMessage, Model, StopReason, StreamDelta, ThinkingLevel, Usage};

pub use registry::{ModelChoice, Registry, RegistryError};

/// A tool, as a provider offers it to its model.
#[derive(Debug, Clone)]
pub struct ToolDefinition {
    pub name: String,
    pub description: String,
    /// JSON Schema.
    pub parameters: Value,
}

/// One request for a reply.
#[derive(Debug, Clone)]
pub struct Request {
    pub model: Model,
    pub thinking_level: ThinkingLevel,
    pub system_prompt: Arc<str>,
    /// User, assistant and tool-result messages only; every call has its result.
    pub messages: Vec<Arc<AgentMessage>>,
    pub tools: Arc<[ToolDefinition]>,
}

/// A step of a reply.
#[derive(Debug, Clone)]
pub enum ProviderEvent {
    Delta(StreamDelta),
    /// The reply is complete; always the last event of a stream that did not fail.
    Done {
        stop_reason: StopReason,
        usage: Usage,
    },
}

/// Why a provider gave no complete reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The server refused the request.
    #[error("{status} {body}")]
    Status { status: u16, body: String },
    /// The conversation has no scripted reply.
    #[error("script {script}: {problem}")]
    Script { script: String, problem: String },
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
