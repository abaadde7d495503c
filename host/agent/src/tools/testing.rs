//! Runs tools as the agent does: by name, with arguments that the schema accepts, in a
//! directory of their own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{ToolOptions, builtin_tools};
use crate::tool::{Progress, Tool, ToolCallContext, ToolFailure, ToolOutput};

pub(super) struct Bench {
    _dir: TempDir,
    cwd: PathBuf,
    tools: Vec<Arc<dyn Tool>>,
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
        };
        change(&mut options);
        Self { _dir: dir, cwd, tools: builtin_tools(options) }
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
