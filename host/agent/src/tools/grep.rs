//! The tool `grep`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::find::PathGlob;
use super::listing::{Limit, Listing};
use super::paths::{Paths, io_failure};
use super::truncate::{MAX_BYTES, MAX_LINES};
use super::{args, walk, work};
use crate::tool::{Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};

const DEFAULT_LIMIT: usize = 100;
/// Characters of a line that are shown.
const MAX_LINE_CHARS: usize = 500;
/// Bytes of a line that are searched; a file with a longer one counts as unreadable.
const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Grep {
    spec: ToolSpec,
    paths: Paths,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Args {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    literal: bool,
    #[serde(default, deserialize_with = "args::count")]
    context: Option<usize>,
    #[serde(default, deserialize_with = "args::count")]
    limit: Option<usize>,
}

impl Grep {
    pub(super) fn new(paths: Paths) -> Self {
        let spec = ToolSpec {
            name: "grep".to_owned(),
            label: "Grep".to_owned(),
            description: "Searches file contents for a regular expression, line by line. Results look like path:line: text; \
                long lines are cut to 500 characters. Hidden files are searched; .git, what .gitignore names, \
                and binary files are not."
                .to_owned(),
            parameters: args::object_schema(
                &["pattern"],
                &json!({
                    "pattern": { "type": "string", "description": "Regular expression, or plain text with literal" },
                    "path": { "type": "string", "description": "Directory or file to search (default: the current directory)" },
                    "glob": { "type": "string", "description": "Search only files that match, such as *.ts or src/**/*.rs" },
                    "ignoreCase": { "type": "boolean", "description": "Ignore case (default: false)" },
                    "literal": { "type": "boolean", "description": "Take the pattern as plain text (default: false)" },
                    "context": { "type": "integer", "minimum": 0, "description": "Lines to show before and after each match (default: 0)" },
                    "limit": { "type": "integer", "minimum": 1, "description": "Most matches to return (default: 100)" },
                }),
            ),
            prompt_snippet: Some("Search file contents".to_owned()),
            prompt_guidelines: vec![
                "Search with grep and find, not with bash: they are faster and heed .gitignore.".to_owned(),
            ],
            sequential: false,
        };
        Self { spec, paths }
    }

    async fn execute(&self, call: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let args: Args = args::parse(call.args)?;
        let text = args.path.clone().unwrap_or_else(|| ".".to_owned());
        let root = self.paths.canonical(&call.cwd, &text)?;
        let glob = args.glob.as_deref();
        let search = Search {
            filter: glob.map(|glob| PathGlob::new(glob, &root)).transpose()?,
            root,
            cwd: self.paths.canonical(&call.cwd, ".")?,
            matcher: matcher(&args)?,
            context: args.context.unwrap_or(0).min(MAX_LINES),
            limit: args.limit.unwrap_or(DEFAULT_LIMIT),
        };
        work::run_cancellable(&call.cancel, move |cancel| {
            let listing =
                search.run(cancel).map_err(|error| io_failure("search", &text, &error))?;
            Ok(listing.into_output())
        })
        .await
    }
}

impl Tool for Grep {
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

fn matcher(args: &Args) -> Result<RegexMatcher, ToolFailure> {
    RegexMatcherBuilder::new()
        .case_insensitive(args.ignore_case)
        .fixed_strings(args.literal)
        // `^` and `$` are ends of lines, also of CRLF ones.
        .multi_line(true)
        .crlf(true)
        .build(&args.pattern)
        .map_err(|error| {
            ToolFailure::new(format!(
                "invalid pattern: {error}; for plain text set literal, and search one line at a time"
            ))
        })
}

struct Search {
    root: PathBuf,
    cwd: PathBuf,
    filter: Option<PathGlob>,
    matcher: RegexMatcher,
    context: usize,
    limit: usize,
}

impl Search {
    /// # Errors
    /// If the root cannot be read. What cannot be read below it is counted.
    fn run(&self, cancel: &CancellationToken) -> io::Result<Listing> {
        let mut searcher = SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .before_context(self.context)
            .after_context(self.context)
            .heap_limit(Some(MAX_LINE_BYTES))
            .binary_detection(BinaryDetection::quit(0))
            .build();
        let mut hits = Hits::new(self.limit);
        let mut unreadable = 0;
        if self.root.metadata()?.is_dir() {
            for entry in walk::walk(&self.root) {
                if hits.full || cancel.is_cancelled() {
                    break;
                }
                let Ok(entry) = entry else {
                    unreadable += 1;
                    continue;
                };
                // Links, pipes and devices are no files here.
                if !entry.file_type().is_some_and(|kind| kind.is_file()) {
                    continue;
                }
                let path = entry.path();
                if self.filter.as_ref().is_some_and(|glob| !glob.matches(path, &self.root)) {
                    continue;
                }
                if self.search_file(&mut searcher, path, &mut hits, cancel).is_err() {
                    unreadable += 1;
                }
            }
        } else if self.root.is_file() {
            self.search_file(&mut searcher, &self.root, &mut hits, cancel)?;
            if hits.binary {
                hits.notes.push(
                    "The file is binary; it was searched up to the first NUL byte".to_owned(),
                );
            }
        } else {
            return Err(io::Error::other("it is not a regular file"));
        }
        if unreadable > 0 {
            hits.notes.push(format!("{unreadable} files or directories could not be read"));
        }
        Ok(hits.into_listing())
    }

    fn search_file(
        &self,
        searcher: &mut Searcher,
        path: &Path,
        hits: &mut Hits,
        cancel: &CancellationToken,
    ) -> io::Result<()> {
        let reader = CancellableFile { file: File::open(path)?, cancel };
        hits.begin(walk::display(path, &self.cwd));
        searcher.search_reader(&self.matcher, reader, hits)
    }
}

/// Ends early when the call is cancelled, so that a large file does not delay it.
struct CancellableFile<'a> {
    file: File,
    cancel: &'a CancellationToken,
}

impl Read for CancellableFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() { Ok(0) } else { self.file.read(buffer) }
    }
}

/// Takes matches and their context until a cap is reached.
struct Hits {
    limit: usize,
    lines: Vec<String>,
    bytes: usize,
    matches: usize,
    /// The file being searched.
    path: String,
    /// Lines in the list when the file was begun.
    begun_at: usize,
    /// Lines in the list before the context that leads to the next match.
    complete: usize,
    /// A cap is reached.
    full: bool,
    limit_reached: bool,
    lines_cut: bool,
    binary: bool,
    notes: Vec<String>,
}

impl Hits {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            lines: Vec::new(),
            bytes: 0,
            matches: 0,
            path: String::new(),
            begun_at: 0,
            complete: 0,
            full: false,
            limit_reached: false,
            lines_cut: false,
            binary: false,
            notes: Vec::new(),
        }
    }

    fn begin(&mut self, path: String) {
        self.path = path;
        self.begun_at = self.lines.len();
        self.complete = self.lines.len();
    }

    fn push(&mut self, line: String) {
        self.bytes += line.len() + 1;
        self.lines.push(line);
        // One line more than can be shown: the listing says what is missing.
        self.full |= self.bytes > MAX_BYTES;
    }

    fn push_text(&mut self, line: Option<u64>, marks: (&str, &str), bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        let mut shown = text.to_owned();
        if let Some((cut, _)) = text.char_indices().nth(MAX_LINE_CHARS) {
            shown.truncate(cut);
            shown.push_str("...");
            self.lines_cut = true;
        }
        let line = line.unwrap_or_default();
        self.push(format!("{}{}{line}{} {shown}", self.path, marks.0, marks.1));
    }

    fn into_listing(mut self) -> Listing {
        if self.lines_cut {
            let note = format!(
                "Lines longer than {MAX_LINE_CHARS} characters are cut; see them with read"
            );
            self.notes.push(note);
        }
        let limit_reached = self.limit_reached.then_some(Limit {
            count: self.limit,
            what: "matches",
            key: "matchLimitReached",
        });
        Listing { lines: self.lines, empty: "No matches found", limit_reached, notes: self.notes }
    }
}

impl Sink for Hits {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.matches == self.limit {
            // The context that led to this match goes with it.
            self.lines.truncate(self.complete);
            self.limit_reached = true;
            self.full = true;
            return Ok(false);
        }
        self.matches += 1;
        self.push_text(found.line_number(), (":", ":"), found.bytes());
        self.complete = self.lines.len();
        Ok(!self.full)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        if self.begun_at > 0 && self.begun_at == self.lines.len() {
            self.push("--".to_owned());
        }
        self.push_text(context.line_number(), ("-", "-"), context.bytes());
        if *context.kind() == SinkContextKind::After {
            self.complete = self.lines.len();
        }
        Ok(!self.full)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.push("--".to_owned());
        Ok(!self.full)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.binary = true;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::symlink;

    use super::*;
    use crate::tools::testing::Bench;

    fn project() -> Bench {
        let bench = Bench::new();
        bench.file("src/a.rs", "fn main() {\n    call(1);\n}\n");
        bench.file("src/b.txt", "one call\r\nTwo CALL\r\n");
        bench.file(".hidden", "a call\n");
        bench.file(".git/config", "a call\n");
        bench.file("target/out", "a call\n");
        bench.file(".gitignore", "target/\n");
        bench.file("binary", b"a call\n\0\n");
        bench
    }

    #[tokio::test]
    async fn matches_name_their_place() {
        let bench = project();
        assert_eq!(
            bench.text("grep", json!({"pattern": "call"})).await,
            ".hidden:1: a call\nsrc/a.rs:2:     call(1);\nsrc/b.txt:1: one call"
        );
        for (args, expected) in [
            (json!({"pattern": "CALL$"}), "src/b.txt:2: Two CALL"),
            (json!({"pattern": "^one.call$"}), "src/b.txt:1: one call"),
            (json!({"pattern": "two", "ignoreCase": true}), "src/b.txt:2: Two CALL"),
            (json!({"pattern": "call(1)", "literal": true}), "src/a.rs:2:     call(1);"),
            (json!({"pattern": "call", "glob": "*.rs"}), "src/a.rs:2:     call(1);"),
            (json!({"pattern": "call", "glob": "src/*.txt"}), "src/b.txt:1: one call"),
            (json!({"pattern": "call", "path": "src", "glob": "*.txt"}), "src/b.txt:1: one call"),
            (json!({"pattern": "call", "path": "src/b.txt"}), "src/b.txt:1: one call"),
            (json!({"pattern": "call", "path": "target"}), "target/out:1: a call"),
            (json!({"pattern": "absent"}), "No matches found"),
        ] {
            assert_eq!(bench.text("grep", args.clone()).await, expected, "{args}");
        }
        let text = bench.text("grep", json!({"pattern": "x", "path": "binary"})).await;
        assert!(text.contains("The file is binary"), "{text}");
    }

    #[tokio::test]
    async fn context_is_shown_once() {
        let bench = Bench::new();
        let all: String = (1..=12).map(|n| format!("l{n}\n")).collect();
        bench.file("a", &all);
        bench.file("b", "x\nl2\n");
        let text = bench.text("grep", json!({"pattern": "^l(2|4|11)$", "context": 1})).await;
        assert_eq!(
            text,
            "a-1- l1\na:2: l2\na-3- l3\na:4: l4\na-5- l5\n--\na-10- l10\na:11: l11\na-12- l12\n--\nb-1- x\nb:2: l2"
        );
        let text =
            bench.text("grep", json!({"pattern": "^l(2|4|11)$", "context": 1, "limit": 2})).await;
        assert!(
            text.starts_with("a-1- l1\na:2: l2\na-3- l3\na:4: l4\na-5- l5\n\n[Stopped at"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn caps_hold_and_are_named() {
        let bench = Bench::new();
        bench.file("many", "match\n".repeat(150));
        bench.file("wide", format!("{}match\n", "é".repeat(600)));
        let output = bench.output("grep", json!({"pattern": "match", "path": "many"})).await;
        let text = output.content[0].as_text().unwrap();
        assert_eq!(text.matches("many:").count(), 100);
        assert!(text.contains("[Stopped at the limit of 100 matches. Use limit=200"), "{text}");
        assert_eq!(output.details.unwrap()["matchLimitReached"], 100);

        let text = bench.text("grep", json!({"pattern": "match", "path": "wide"})).await;
        assert!(
            text.starts_with(&format!("wide:1: {}...\n\n[Lines longer", "é".repeat(500))),
            "{text}"
        );

        bench.file("huge", format!("{}\n", "match".repeat(60)).repeat(1_000));
        let args = json!({"pattern": "match", "path": "huge", "limit": 1_000});
        let output = bench.output("grep", args).await;
        let text = output.content[0].as_text().unwrap();
        assert!(text.len() < MAX_BYTES + 200);
        assert!(text.ends_with("lines fit in 50 kB. Narrow the search]"));
        assert_eq!(output.details.unwrap(), json!({"byteLimitReached": MAX_BYTES}));

        // Context counts too, however much of it is asked for.
        let args =
            json!({"pattern": "match", "path": "huge", "limit": 1, "context": 1_000_000_000});
        assert!(bench.text("grep", args).await.len() < MAX_BYTES + 200);
    }

    #[tokio::test]
    async fn links_are_judged_and_not_followed_in_trees() {
        let bench = project();
        bench.file(".env", "call me\n");
        symlink(".env", bench.cwd().join("x")).unwrap();
        let args = json!({"pattern": "me", "path": "x"});
        assert_eq!(bench.paths("grep", &args), [bench.cwd().join(".env")]);
        assert_eq!(bench.text("grep", args).await, ".env:1: call me");
        assert_eq!(bench.text("grep", json!({"pattern": "call me"})).await, ".env:1: call me");
        assert_eq!(bench.paths("grep", &json!({"pattern": "me"})), [bench.cwd()]);
    }

    #[tokio::test]
    async fn failures_say_why() {
        let bench = Bench::new();
        let error = bench.error("grep", json!({"pattern": "call("})).await;
        assert!(error.starts_with("invalid pattern: ") && error.contains("set literal"), "{error}");
        assert!(
            bench.error("grep", json!({"pattern": "a\\nb"})).await.contains("one line at a time")
        );
        assert!(
            bench
                .error("grep", json!({"pattern": "a", "path": "no"}))
                .await
                .starts_with("failed to search no")
        );
        let call = bench.call(&json!({"pattern": "a"}));
        call.cancel.cancel();
        assert_eq!(bench.tool("grep").run(call).await, Err(work::aborted()));
    }
}
