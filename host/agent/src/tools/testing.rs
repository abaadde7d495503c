//! Runs tools as the agent does: by name, with arguments that the schema accepts, in a
//! directory of their own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use wharf_protocol::event::SessionTask;

use super::{ToolOptions, builtin_tools};
use crate::tool::{
    NoSession, Progress, Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSession,
};
use crate::ui::{DialogOutcome, Question};

pub(super) struct Bench {
    _dir: TempDir,
    cwd: PathBuf,
    tools: Vec<Arc<dyn Tool>>,
    session: Arc<dyn ToolSession>,
}

impl Bench {
    /// With `home` in the cwd for `~`.
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut ToolOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cwd = fs::canonicalize(dir.path()).unwrap();
        let mut options = ToolOptions {
            shell_path: None,
            shell_command_prefix: None,
            home: Some(cwd.join("home")),
            has_skills: true,
            auto_resize_images: true,
        };
        change(&mut options);
        Self { _dir: dir, cwd, tools: builtin_tools(options), session: Arc::new(NoSession) }
    }

    /// With a conversation that the calls belong to.
    pub(super) fn in_session(session: Arc<dyn ToolSession>) -> Self {
        Self { session, ..Self::new() }
    }

    pub(super) fn cwd(&self) -> &Path {
        &self.cwd
    }

    pub(super) fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.cwd.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(super) fn content(&self, path: &str) -> String {
        fs::read_to_string(self.cwd.join(path)).unwrap()
    }

    pub(super) fn tool(&self, name: &str) -> Arc<dyn Tool> {
        Arc::clone(self.tools.iter().find(|tool| tool.spec().name == name).unwrap())
    }

    pub(super) fn call(&self, args: &Value) -> ToolCallContext {
        ToolCallContext {
            tool_call_id: "call".to_owned(),
            args: args.as_object().unwrap().clone(),
            cwd: self.cwd.clone(),
            cancel: CancellationToken::new(),
            progress: Progress::ignored(),
            session: Arc::clone(&self.session),
        }
    }

    pub(super) fn paths(&self, name: &str, args: &Value) -> Vec<PathBuf> {
        self.tool(name).paths(args.as_object().unwrap(), &self.cwd)
    }

    pub(super) async fn run(&self, name: &str, args: Value) -> Result<ToolOutput, ToolFailure> {
        let tool = self.tool(name);
        let accepted = jsonschema::is_valid(&tool.spec().parameters, &args);
        assert!(accepted, "the schema of {name} refuses {args}");
        tool.run(self.call(&args)).await
    }

    pub(super) async fn output(&self, name: &str, args: Value) -> ToolOutput {
        self.run(name, args).await.unwrap()
    }

    pub(super) async fn text(&self, name: &str, args: Value) -> String {
        self.output(name, args).await.content[0].as_text().unwrap().to_owned()
    }

    pub(super) async fn error(&self, name: &str, args: Value) -> String {
        self.run(name, args).await.unwrap_err().message
    }
}

/// A conversation that answers every question alike and notes what is done to it.
#[derive(Debug, Default)]
pub(super) struct FakeSession {
    /// None: nobody can be asked.
    outcome: Option<DialogOutcome>,
    /// Names and texts.
    skills: Vec<(&'static str, &'static str)>,
    asked: Mutex<Vec<(Question, Option<Duration>)>>,
    tasks: Mutex<Vec<SessionTask>>,
    suggested: Mutex<Vec<String>>,
    stopped: AtomicBool,
}

impl FakeSession {
    pub(super) fn answering(outcome: Option<DialogOutcome>) -> Self {
        Self { outcome, ..Self::default() }
    }

    pub(super) fn with_skills(skills: Vec<(&'static str, &'static str)>) -> Self {
        Self { skills, ..Self::default() }
    }

    pub(super) fn asked(&self) -> Vec<(Question, Option<Duration>)> {
        self.asked.lock().unwrap().clone()
    }

    pub(super) fn tasks(&self) -> Vec<SessionTask> {
        self.tasks.lock().unwrap().clone()
    }

    pub(super) fn suggested(&self) -> Vec<String> {
        self.suggested.lock().unwrap().clone()
    }

    pub(super) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

impl ToolSession for FakeSession {
    fn ask(
        &self,
        question: Question,
        timeout: Option<Duration>,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, DialogOutcome> {
        self.asked.lock().unwrap().push((question, timeout));
        Box::pin(async move {
            match &self.outcome {
                _ if cancel.is_cancelled() => DialogOutcome::Cancelled,
                Some(outcome) => outcome.clone(),
                None => DialogOutcome::NoUi,
            }
        })
    }

    fn set_tasks(&self, tasks: Vec<SessionTask>) -> BoxFuture<'_, ()> {
        Box::pin(async move { *self.tasks.lock().unwrap() = tasks })
    }

    fn suggest_next(&self, command: String) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.suggested.lock().unwrap().push(command) })
    }

    fn skill(&self, name: &str, args: &str) -> Result<String, String> {
        let names: Vec<&str> = self.skills.iter().map(|(name, _)| *name).collect();
        match self.skills.iter().find(|skill| skill.0 == name) {
            Some((_, text)) => Ok(format!("{text} [{args}]")),
            None => Err(format!("there is no skill {name:?}; there are {}", names.join(", "))),
        }
    }

    fn stop_after_turn(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
}
