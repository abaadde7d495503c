//! What a tool is, whether built in or an extension's.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
pub use wharf_protocol::event::ToolOutput;

/// What the model and the system prompt are told of a tool.
#[derive(Debug, Clone)]
pub struct ToolSpec {
    pub name: String,
    /// For people.
    pub label: String,
    pub description: String,
    /// JSON Schema; its root describes an object.
    pub parameters: Value,
    /// One line for the system prompt's list of tools.
    pub prompt_snippet: Option<String>,
    pub prompt_guidelines: Vec<String>,
    /// Never runs at the same time as another tool call.
    pub sequential: bool,
}

/// Shows a running call's output so far; each report replaces the one before.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(ToolOutput) + Send + Sync>);

impl Progress {
    pub fn new(report: impl Fn(ToolOutput) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    /// For callers that show nothing.
    pub fn ignored() -> Self {
        Self::new(|_| {})
    }

    pub fn report(&self, output: ToolOutput) {
        (self.0)(output);
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

/// One call of a tool.
#[derive(Debug, Clone)]
pub struct ToolCallContext {
    pub tool_call_id: String,
    /// Arguments that are valid against the tool's schema.
    pub args: Map<String, Value>,
    pub cwd: PathBuf,
    /// Cancelled when the run is aborted. A tool then stops what it started and
    /// returns soon.
    pub cancel: CancellationToken,
    pub progress: Progress,
}

/// Why a tool gave no result. The text is what the model reads.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ToolFailure {
    pub message: String,
    pub details: Option<Value>,
}

impl ToolFailure {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), details: None }
    }
}

pub trait Tool: Send + Sync + fmt::Debug {
    fn spec(&self) -> &ToolSpec;

    /// The canonical paths that a call would touch (`..` and links resolved, also
    /// where the last parts do not exist yet). Empty for tools that name no file.
    fn paths(&self, _args: &Map<String, Value>, _cwd: &Path) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Runs a call. Dropping the future must leave no child process behind.
    fn run(&self, call: ToolCallContext) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>>;
}
