//! What a tool is, whether built in or an extension's, and what its calls may do to the
//! conversation that they belong to.

use std::fmt;
use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use wharf_protocol::event::SessionTask;
pub use wharf_protocol::event::ToolOutput;

use crate::ui::{DialogOutcome, Question};

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

/// What a tool may do to the conversation that its call belongs to.
pub trait ToolSession: Send + Sync + fmt::Debug {
    /// Asks the person who drives the agent. Settles as cancelled soon after `cancel`.
    fn ask(
        &self,
        question: Question,
        timeout: Option<Duration>,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, DialogOutcome>;

    /// Replaces the task list and announces it (`tasks_update`).
    fn set_tasks(&self, tasks: Vec<SessionTask>) -> BoxFuture<'_, ()>;

    /// Announces `suggest_next`.
    fn suggest_next(&self, command: String) -> BoxFuture<'_, ()>;

    /// The body of a skill with its arguments put in. Reads the skill's file.
    ///
    /// # Errors
    /// The text for the model; of a skill that does not exist it lists those that do.
    fn skill(&self, name: &str, args: &str) -> Result<String, String>;

    /// Ends the run after this turn: nothing further is asked of the model.
    fn stop_after_turn(&self);
}

/// For calls that belong to no conversation.
#[derive(Debug, Clone, Copy)]
pub struct NoSession;

impl ToolSession for NoSession {
    fn ask(
        &self,
        _question: Question,
        _timeout: Option<Duration>,
        _cancel: CancellationToken,
    ) -> BoxFuture<'_, DialogOutcome> {
        Box::pin(ready(DialogOutcome::NoUi))
    }

    fn set_tasks(&self, _tasks: Vec<SessionTask>) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }

    fn suggest_next(&self, _command: String) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }

    fn skill(&self, name: &str, _args: &str) -> Result<String, String> {
        Err(format!("there is no skill {name:?}: no skills are available"))
    }

    fn stop_after_turn(&self) {}
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
    pub session: Arc<dyn ToolSession>,
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
