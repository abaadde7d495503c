//! The tool `write`.

use std::fs;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use wharf_protocol::message::ContentBlock;

use super::paths::{Paths, io_failure};
use super::{args, save, work};
use crate::tool::{Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};

#[derive(Debug)]
pub(super) struct Write {
    spec: ToolSpec,
    paths: Paths,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    path: String,
    content: String,
}

impl Write {
    pub(super) fn new(paths: Paths) -> Self {
        let spec = ToolSpec {
            name: "write".to_owned(),
            label: "Write".to_owned(),
            description:
                "Writes a file: makes it and its parent directories, or replaces the whole content."
                    .to_owned(),
            parameters: args::object_schema(
                &["path", "content"],
                &json!({
                    "path": { "type": "string", "minLength": 1, "description": "File to write, relative to the current directory or absolute" },
                    "content": { "type": "string", "description": "The whole new content" },
                }),
            ),
            prompt_snippet: Some("Create or overwrite files".to_owned()),
            prompt_guidelines: vec![
                "Use write for new files and complete rewrites only; change files with edit."
                    .to_owned(),
            ],
            sequential: false,
        };
        Self { spec, paths }
    }

    async fn execute(&self, call: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let Args { path: text, content } = args::parse(call.args)?;
        if text.is_empty() || text.ends_with('/') {
            return Err(ToolFailure::new(format!("failed to write '{text}': it names no file")));
        }
        let path = self.paths.canonical(&call.cwd, &text)?;
        let lock = tokio::select! {
            biased;
            () = call.cancel.cancelled() => return Err(work::aborted()),
            lock = save::lock(&path) => lock,
        };
        work::run_to_the_end(&call.cancel, move || {
            let _lock = lock;
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)
                    .map_err(|error| io_failure("make the parent directory of", &text, &error))?;
            }
            save::save(&path, content.as_bytes())
                .map_err(|error| io_failure("write", &text, &error))?;
            let report = format!("Wrote {} bytes to {text}", content.len());
            Ok(ToolOutput { content: vec![ContentBlock::text(report)], details: None })
        })
        .await
    }
}

impl Tool for Write {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn paths(&self, args: &Map<String, Value>, cwd: &Path) -> Vec<PathBuf> {
        self.paths.touched(args, cwd)
    }

    fn run(&self, call: ToolCallContext) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(self.execute(call))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::symlink;

    use super::*;
    use crate::tools::testing::Bench;

    #[tokio::test]
    async fn files_and_their_folders_are_made() {
        let bench = Bench::new();
        let text = bench.text("write", json!({"path": "a/b/ü.txt", "content": "é\r\n"})).await;
        assert_eq!(text, "Wrote 4 bytes to a/b/ü.txt");
        assert_eq!(bench.content("a/b/ü.txt"), "é\r\n");
        bench.text("write", json!({"path": "a/b/ü.txt", "content": ""})).await;
        assert_eq!(bench.content("a/b/ü.txt"), "");
        bench.text("write", json!({"path": "~/n.txt", "content": "x"})).await;
        assert_eq!(bench.content("home/n.txt"), "x");
    }

    #[tokio::test]
    async fn the_judged_path_is_the_written_one() {
        let bench = Bench::new();
        bench.file(".env", "old");
        symlink(".env", bench.cwd().join("x")).unwrap();
        symlink("new/.secret", bench.cwd().join("dangling")).unwrap();
        let args = json!({"path": "x", "content": "new"});
        assert_eq!(bench.paths("write", &args), [bench.cwd().join(".env")]);
        bench.text("write", args).await;
        assert_eq!(bench.content(".env"), "new");
        assert!(bench.cwd().join("x").is_symlink());

        let args = json!({"path": "dangling", "content": "s"});
        assert_eq!(bench.paths("write", &args), [bench.cwd().join("new/.secret")]);
        bench.text("write", args).await;
        assert_eq!(bench.content("new/.secret"), "s");

        // Judged without `node_modules`, hence written without making it.
        let args = json!({"path": "node_modules/../.git/config", "content": "c"});
        assert_eq!(bench.paths("write", &args), [bench.cwd().join(".git/config")]);
        bench.text("write", args).await;
        assert_eq!(bench.content(".git/config"), "c");
        assert!(!bench.cwd().join("node_modules").exists());
    }

    #[tokio::test]
    async fn what_is_no_file_is_refused() {
        let bench = Bench::new();
        fs::create_dir(bench.cwd().join("dir")).unwrap();
        for path in ["dir", "dir/", "new/"] {
            let error = bench.error("write", json!({"path": path, "content": "x"})).await;
            assert!(error.starts_with("failed to write"), "{error}");
        }
        // The schema refuses it before.
        let call = bench.call(&json!({"path": "", "content": "x"}));
        let error = bench.tool("write").run(call).await.unwrap_err();
        assert!(error.message.starts_with("failed to write"), "{error:?}");
        bench.file("file", "");
        let error = bench.error("write", json!({"path": "file/below", "content": "x"})).await;
        assert!(error.contains("file/below"), "{error}");
        // Nobody can make a file there.
        let error = bench.error("write", json!({"path": "/proc/asked", "content": "x"})).await;
        assert!(error.contains("/proc/asked: ") && !error.contains(".wharf-"), "{error}");
    }

    #[tokio::test]
    async fn an_aborted_call_writes_nothing() {
        let bench = Bench::new();
        let call = bench.call(&json!({"path": "a", "content": "x"}));
        call.cancel.cancel();
        let error = bench.tool("write").run(call).await.unwrap_err();
        assert_eq!(error, work::aborted());
        assert!(!bench.cwd().join("a").exists());
    }
}
