//! The tool `ls`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::listing::{Limit, Listing};
use super::paths::{Paths, io_failure};
use super::{args, work};
use crate::tool::{Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};

const DEFAULT_LIMIT: usize = 500;

#[derive(Debug)]
pub(super) struct Ls {
    spec: ToolSpec,
    paths: Paths,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    path: Option<String>,
    #[serde(default, deserialize_with = "args::count")]
    limit: Option<usize>,
}

impl Ls {
    pub(super) fn new(paths: Paths) -> Self {
        let spec = ToolSpec {
            name: "ls".to_owned(),
            label: "List".to_owned(),
            description:
                "Lists a directory, sorted, hidden entries included; directories end with /."
                    .to_owned(),
            parameters: args::object_schema(
                &[],
                &json!({
                    "path": { "type": "string", "description": "Directory to list (default: the current one)" },
                    "limit": { "type": "integer", "minimum": 1, "description": "Most entries to return (default: 500)" },
                }),
            ),
            prompt_snippet: Some("List directories".to_owned()),
            prompt_guidelines: Vec::new(),
            sequential: false,
        };
        Self { spec, paths }
    }

    async fn execute(&self, call: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let args: Args = args::parse(call.args)?;
        let text = args.path.unwrap_or_else(|| ".".to_owned());
        let path = self.paths.canonical(&call.cwd, &text)?;
        let limit = args.limit.unwrap_or(DEFAULT_LIMIT);
        work::run_cancellable(&call.cancel, move |cancel| {
            let listing = list(&path, limit, cancel).map_err(|error| match error.kind() {
                io::ErrorKind::NotADirectory => ToolFailure::new(format!(
                    "failed to list {text}: it is not a directory; read files with read"
                )),
                _ => io_failure("list", &text, &error),
            })?;
            Ok(listing.into_output())
        })
        .await
    }
}

impl Tool for Ls {
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

fn list(path: &Path, limit: usize, cancel: &CancellationToken) -> io::Result<Listing> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        if cancel.is_cancelled() {
            break;
        }
        names.push(entry?.file_name());
    }
    // The exact name decides between names that differ by case only.
    names.sort_by_cached_key(|name| (name.to_string_lossy().to_lowercase(), name.clone()));
    let limit_reached = (names.len() > limit).then_some(Limit {
        count: limit,
        what: "entries",
        key: "entryLimitReached",
    });
    names.truncate(limit);
    let lines = names
        .iter()
        .map(|name| {
            // Follows links, as a person asks "can I go in there?".
            let suffix = if path.join(name).is_dir() { "/" } else { "" };
            format!("{}{suffix}", name.to_string_lossy())
        })
        .collect();
    Ok(Listing { lines, empty: "(empty directory)", limit_reached, notes: Vec::new() })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::symlink;

    use super::*;
    use crate::tools::testing::Bench;

    #[tokio::test]
    async fn entries_are_sorted_and_marked() {
        let bench = Bench::new();
        for name in ["b.txt", "A.txt", "a.txt", ".env", "Zdir/x", "cdir/y"] {
            bench.file(name, "");
        }
        symlink("cdir", bench.cwd().join("link")).unwrap();
        symlink("none", bench.cwd().join("dangling")).unwrap();
        let text = bench.text("ls", json!({})).await;
        assert_eq!(text, ".env\nA.txt\na.txt\nb.txt\ncdir/\ndangling\nlink/\nZdir/");
        assert_eq!(bench.text("ls", json!({"path": "link"})).await, "y");
        assert_eq!(bench.paths("ls", &json!({"path": "link"})), [bench.cwd().join("cdir")]);
        assert_eq!(bench.paths("ls", &json!({})), [bench.cwd()]);
    }

    #[tokio::test]
    async fn the_limit_is_named() {
        let bench = Bench::new();
        assert_eq!(bench.text("ls", json!({})).await, "(empty directory)");
        for n in 0..501 {
            bench.file(&format!("{n:03}"), "");
        }
        let output = bench.output("ls", json!({})).await;
        let text = output.content[0].as_text().unwrap();
        assert_eq!(text.lines().filter(|line| line.len() == 3).count(), 500);
        assert!(text.ends_with("499\n\n[Stopped at the limit of 500 entries. Use limit=1000 for more, or narrow the search]"));
        assert_eq!(output.details.unwrap(), json!({"entryLimitReached": 500}));
        let text = bench.text("ls", json!({"limit": 501})).await;
        assert!(text.ends_with("500"));
    }

    #[tokio::test]
    async fn what_is_no_directory_is_refused() {
        let bench = Bench::new();
        bench.file("a", "");
        assert!(bench.error("ls", json!({"path": "a"})).await.contains("read files with read"));
        assert!(bench.error("ls", json!({"path": "b"})).await.starts_with("failed to list b: "));
    }
}
