//! The tool `find`.

use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::listing::{Limit, Listing};
use super::paths::{Paths, io_failure};
use super::{args, walk, work};
use crate::tool::{Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};

const DEFAULT_LIMIT: usize = 1_000;

#[derive(Debug)]
pub(super) struct Find {
    spec: ToolSpec,
    paths: Paths,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    pattern: String,
    path: Option<String>,
    #[serde(default, deserialize_with = "args::count")]
    limit: Option<usize>,
}

impl Find {
    pub(super) fn new(paths: Paths) -> Self {
        let spec = ToolSpec {
            name: "find".to_owned(),
            label: "Find".to_owned(),
            description: "Finds files and directories by glob pattern, sorted by path; directories end with /. \
                Hidden files are found; .git and what .gitignore names are not."
                .to_owned(),
            parameters: args::object_schema(
                &["pattern"],
                &json!({
                    "pattern": {
                        "type": "string",
                        "description": "Glob. Without / it matches names at any depth (*.rs); with / it matches paths from the searched directory on (src/**/*.rs)",
                    },
                    "path": { "type": "string", "description": "Directory to search (default: the current one)" },
                    "limit": { "type": "integer", "minimum": 1, "description": "Most results to return (default: 1000)" },
                }),
            ),
            prompt_snippet: Some("Find files by glob pattern".to_owned()),
            prompt_guidelines: Vec::new(),
            sequential: false,
        };
        Self { spec, paths }
    }

    async fn execute(&self, call: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let args: Args = args::parse(call.args)?;
        let text = args.path.unwrap_or_else(|| ".".to_owned());
        let root = self.paths.canonical(&call.cwd, &text)?;
        let cwd = self.paths.canonical(&call.cwd, ".")?;
        let filter = PathGlob::new(&args.pattern, &root)?;
        let limit = args.limit.unwrap_or(DEFAULT_LIMIT);
        work::run_cancellable(&call.cancel, move |cancel| {
            let metadata = root.metadata().map_err(|error| io_failure("search", &text, &error))?;
            if !metadata.is_dir() {
                return Err(ToolFailure::new(format!(
                    "failed to search {text}: it is not a directory"
                )));
            }
            Ok(find(&Search { root, cwd, filter, limit }, cancel).into_output())
        })
        .await
    }
}

impl Tool for Find {
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

/// A glob for names, or for paths if it has a slash.
#[derive(Debug)]
pub(super) struct PathGlob {
    matcher: GlobMatcher,
    subject: Subject,
}

#[derive(Debug)]
enum Subject {
    Name,
    /// Relative to the searched directory.
    Path,
    AbsolutePath,
}

impl PathGlob {
    /// # Errors
    /// `pattern` is no glob, or nothing below `root` can match it.
    pub(super) fn new(pattern: &str, root: &Path) -> Result<Self, ToolFailure> {
        let stripped = pattern.strip_prefix("./").unwrap_or(pattern);
        let glob = GlobBuilder::new(stripped)
            .literal_separator(true)
            .build()
            .map_err(|error| ToolFailure::new(format!("invalid glob: {error}")))?;
        if let Some(why) = never_matches(stripped, root) {
            return Err(ToolFailure::new(format!(
                "the glob '{pattern}' can never match: {why}; give the directory as path, and a glob relative to it"
            )));
        }
        let subject = if stripped.starts_with('/') {
            Subject::AbsolutePath
        } else if pattern.contains('/') {
            Subject::Path
        } else {
            Subject::Name
        };
        Ok(Self { matcher: glob.compile_matcher(), subject })
    }

    pub(super) fn matches(&self, path: &Path, root: &Path) -> bool {
        let subject = match self.subject {
            Subject::Name => path.file_name().map(Path::new),
            Subject::Path => path.strip_prefix(root).ok(),
            Subject::AbsolutePath => Some(path),
        };
        subject.is_some_and(|subject| self.matcher.is_match(subject))
    }
}

/// Why nothing below `root` can match a glob, where that is plain to see. An absolute one
/// can, if it leads there.
fn never_matches(glob: &str, root: &Path) -> Option<&'static str> {
    if glob.is_empty() {
        return Some("it is empty");
    }
    if glob.split('/').any(|part| part == "..") {
        return Some("it has '..' in it");
    }
    if !glob.starts_with('/') {
        return None;
    }
    let is_literal = |part: &&str| !part.contains(['*', '?', '[', '{', '\\']);
    let mut literal = PathBuf::from("/");
    literal.extend(glob.split('/').take_while(is_literal).filter(|part| !part.is_empty()));
    let leads_there = literal.starts_with(root) || root.starts_with(&literal);
    (!leads_there).then_some("it is absolute and lies outside of the searched directory")
}

struct Search {
    root: PathBuf,
    cwd: PathBuf,
    filter: PathGlob,
    limit: usize,
}

fn find(search: &Search, cancel: &CancellationToken) -> Listing {
    let mut lines = Vec::new();
    let mut limit_reached = None;
    let mut unreadable = 0;
    for entry in walk::walk(&search.root) {
        if cancel.is_cancelled() {
            break;
        }
        let Ok(entry) = entry else {
            unreadable += 1;
            continue;
        };
        if entry.depth() == 0 || !search.filter.matches(entry.path(), &search.root) {
            continue;
        }
        if lines.len() == search.limit {
            limit_reached =
                Some(Limit { count: search.limit, what: "results", key: "resultLimitReached" });
            break;
        }
        let suffix = if entry.file_type().is_some_and(|kind| kind.is_dir()) { "/" } else { "" };
        lines.push(format!("{}{suffix}", walk::display(entry.path(), &search.cwd)));
    }
    let notes = match unreadable {
        0 => Vec::new(),
        count => vec![format!("{count} directories could not be read")],
    };
    Listing { lines, empty: "No files found", limit_reached, notes }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::symlink;

    use super::*;
    use crate::tools::testing::Bench;

    fn project() -> Bench {
        let bench = Bench::new();
        for path in [
            "src/main.rs",
            "src/deep/lib.rs",
            "src/deep/notes.md",
            "target/out.rs",
            ".hidden/h.rs",
            ".git/g.rs",
            "top.rs",
            "sub/ignored.rs",
            "sub/kept.rs",
            "ü/文.rs",
        ] {
            bench.file(path, "");
        }
        bench.file(".gitignore", "/target/\n");
        bench.file("sub/.gitignore", "ignored.rs\n");
        bench
    }

    #[tokio::test]
    async fn names_and_paths_are_matched() {
        let bench = project();
        assert_eq!(
            bench.text("find", json!({"pattern": "*.rs"})).await,
            ".hidden/h.rs\nsrc/deep/lib.rs\nsrc/main.rs\nsub/kept.rs\ntop.rs\nü/文.rs"
        );
        for (pattern, expected) in [
            ("src/*.rs", "src/main.rs"),
            ("./src/*.rs", "src/main.rs"),
            ("src/**/*.rs", "src/deep/lib.rs\nsrc/main.rs"),
            ("**/deep/*", "src/deep/lib.rs\nsrc/deep/notes.md"),
            ("{main,lib}.rs", "src/deep/lib.rs\nsrc/main.rs"),
            ("deep", "src/deep/"),
            ("*.py", "No files found"),
        ] {
            assert_eq!(
                bench.text("find", json!({"pattern": pattern})).await,
                expected,
                "{pattern}"
            );
        }
        let absolute = format!("{}/src/*.rs", bench.cwd().display());
        assert_eq!(bench.text("find", json!({"pattern": absolute})).await, "src/main.rs");
        assert!(bench.error("find", json!({"pattern": "["})).await.starts_with("invalid glob: "));
    }

    #[tokio::test]
    async fn a_glob_that_can_never_match_is_refused() {
        let bench = project();
        for (pattern, path) in [
            ("", "."),
            ("./", "."),
            ("../*.rs", "src"),
            ("..", "src"),
            ("deep/../*.rs", "src"),
            ("/etc/*", "."),
            ("/etc", "."),
            ("/srcs/*.rs", "src"),
        ] {
            for (tool, args) in [
                ("find", json!({"pattern": pattern, "path": path})),
                ("grep", json!({"pattern": "x", "glob": pattern, "path": path})),
            ] {
                let error = bench.error(tool, args).await;
                assert!(error.contains(&format!("'{pattern}' can never match")), "{error}");
                assert!(error.contains("give the directory as path"), "{error}");
            }
        }
    }

    #[test]
    fn a_glob_that_may_match_is_not_refused() {
        for (glob, root) in [
            ("*.rs", "/a/b"),
            ("a..b/*", "/a/b"),
            ("...", "/a/b"),
            ("/a/b/*.rs", "/a/b"),
            ("/a/b/c/d.rs", "/a/b"),
            ("//a/b/*.rs", "/a/b"),
            ("/a/*/c", "/a/b"),
            ("/**/*.rs", "/a/b"),
            ("/{etc,a/b}/*.rs", "/a/b"),
            ("/a/[b]/*.rs", "/a/b"),
            ("/etc/*", "/"),
        ] {
            assert_eq!(never_matches(glob, Path::new(root)), None, "{glob} in {root}");
        }
    }

    #[tokio::test]
    async fn the_searched_directory_is_judged() {
        let bench = project();
        symlink("src", bench.cwd().join("link")).unwrap();
        let args = json!({"pattern": "deep/*.rs", "path": "link"});
        assert_eq!(bench.paths("find", &args), [bench.cwd().join("src")]);
        assert_eq!(bench.text("find", args).await, "src/deep/lib.rs");
        // A link is named but not entered.
        assert_eq!(bench.text("find", json!({"pattern": "link"})).await, "link");
        let outside = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(outside.path()).unwrap();
        std::fs::write(root.join("a.rs"), "").unwrap();
        let text = bench.text("find", json!({"pattern": "*.rs", "path": root})).await;
        assert_eq!(text, root.join("a.rs").to_str().unwrap());
        assert!(
            bench
                .error("find", json!({"pattern": "*", "path": "top.rs"}))
                .await
                .contains("not a directory")
        );
        assert!(
            bench
                .error("find", json!({"pattern": "*", "path": "no"}))
                .await
                .starts_with("failed to search no")
        );
    }

    #[tokio::test]
    async fn the_limit_is_named() {
        let bench = project();
        let output = bench.output("find", json!({"pattern": "*.rs", "limit": 2})).await;
        assert_eq!(
            output.content[0].as_text(),
            Some(
                ".hidden/h.rs\nsrc/deep/lib.rs\n\n[Stopped at the limit of 2 results. Use limit=4 for more, or narrow the search]"
            )
        );
        assert_eq!(output.details, Some(json!({"resultLimitReached": 2})));
        assert_eq!(
            bench.output("find", json!({"pattern": "*.rs", "limit": 6})).await.details,
            None
        );
    }
}
