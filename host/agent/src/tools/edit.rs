//! The tool `edit`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use similar::TextDiff;
use wharf_protocol::message::ContentBlock;

use super::paths::{Paths, io_failure};
use super::replace::{ReplaceError, Replacement, replace};
use super::{args, save, work};
use crate::tool::{Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};

/// A file is held in memory a few times over while it is edited.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;
/// Lines around a change in the diff.
const DIFF_CONTEXT: usize = 4;
/// Then a diff may be longer than it has to be.
const DIFF_TIME: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Edit {
    spec: ToolSpec,
    paths: Paths,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Args {
    path: String,
    old_text: Option<String>,
    new_text: Option<String>,
    edits: Option<Vec<OneEdit>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct OneEdit {
    old_text: String,
    new_text: String,
}

impl Edit {
    pub(super) fn new(paths: Paths) -> Self {
        let old_text = json!({ "type": "string", "description": "Text to replace; must occur in the file exactly once" });
        let new_text = json!({ "type": "string", "description": "Text to put there" });
        let spec = ToolSpec {
            name: "edit".to_owned(),
            label: "Edit".to_owned(),
            description: "Replaces text in a file. oldText must match exactly, whitespace included, and occur once. \
                Give oldText and newText, or several replacements as edits: each is looked for in the \
                original file, they must not overlap, and all are made or none."
                .to_owned(),
            parameters: args::object_schema(
                &["path"],
                &json!({
                    "path": { "type": "string", "minLength": 1, "description": "File to change, relative to the current directory or absolute" },
                    "oldText": old_text,
                    "newText": new_text,
                    "edits": {
                        "type": "array",
                        "minItems": 1,
                        "description": "Several replacements in one file, instead of oldText and newText",
                        "items": args::object_schema(
                            &["oldText", "newText"],
                            &json!({ "oldText": old_text, "newText": new_text }),
                        ),
                    },
                }),
            ),
            prompt_snippet: Some("Make exact replacements in files".to_owned()),
            prompt_guidelines: vec![
                "Several changes to one file go into one edit call, as edits.".to_owned(),
            ],
            sequential: false,
        };
        Self { spec, paths }
    }

    async fn execute(&self, call: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let args: Args = args::parse(call.args)?;
        let text = args.path.clone();
        let several = args.edits.is_some();
        let replacements = replacements(args)?;
        let path = self.paths.canonical(&call.cwd, &text)?;
        let lock = tokio::select! {
            biased;
            () = call.cancel.cancelled() => return Err(work::aborted()),
            lock = save::lock(&path) => lock,
        };
        work::run_to_the_end(&call.cancel, move || {
            let _lock = lock;
            let old = load(&path, &text)?;
            let new =
                replace(&old, &replacements).map_err(|error| describe(&error, several, &text))?;
            save::save(&path, new.as_bytes())
                .map_err(|error| io_failure("write", &text, &error))?;
            let count = replacements.len();
            let plural = if count == 1 { "" } else { "s" };
            let report = format!("Made {count} replacement{plural} in {text}");
            Ok(ToolOutput {
                content: vec![ContentBlock::text(report)],
                details: Some(json!({ "diff": diff(&old, &new, &text) })),
            })
        })
        .await
    }
}

impl Tool for Edit {
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

fn replacements(args: Args) -> Result<Vec<Replacement>, ToolFailure> {
    match (args.old_text, args.new_text, args.edits) {
        (Some(old), Some(new), None) => Ok(vec![Replacement { old, new }]),
        (None, None, Some(edits)) if !edits.is_empty() => Ok(edits
            .into_iter()
            .map(|edit| Replacement { old: edit.old_text, new: edit.new_text })
            .collect()),
        _ => Err(ToolFailure::new(
            "invalid arguments: give either both oldText and newText, or edits with at least one entry",
        )),
    }
}

fn load(path: &Path, text: &str) -> Result<String, ToolFailure> {
    let failure = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => ToolFailure::new(format!(
            "failed to edit {text}: there is no file {}; make new files with write",
            path.display()
        )),
        _ => io_failure("edit", text, &error),
    };
    let metadata = fs::metadata(path).map_err(failure)?;
    if !metadata.is_file() {
        return Err(ToolFailure::new(format!("failed to edit {text}: it is not a regular file")));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(ToolFailure::new(format!(
            "failed to edit {text}: it is larger than {MAX_FILE_BYTES} bytes; change it with a bash command such as sed"
        )));
    }
    String::from_utf8(fs::read(path).map_err(failure)?).map_err(|error| {
        ToolFailure::new(format!(
            "failed to edit {text}: it is not valid UTF-8 (at byte {}); change it with a bash command",
            error.utf8_error().valid_up_to()
        ))
    })
}

fn describe(error: &ReplaceError, several: bool, text: &str) -> ToolFailure {
    match error.index() {
        Some(index) if several => ToolFailure::new(format!(
            "failed to edit {text}: edits[{index}]: {error}; nothing was changed"
        )),
        _ => ToolFailure::new(format!("failed to edit {text}: {error}")),
    }
}

/// A unified diff, without the CR of CRLF, which readers would show as garbage.
fn diff(old: &str, new: &str, path: &str) -> String {
    let shown = |text: &str| {
        if old.contains("\r\n") { text.replace("\r\n", "\n") } else { text.to_owned() }
    };
    let (old, new) = (shown(old), shown(new));
    TextDiff::configure()
        .timeout(DIFF_TIME)
        .diff_lines(old.as_str(), new.as_str())
        .unified_diff()
        .context_radius(DIFF_CONTEXT)
        .header(path, path)
        .to_string()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::tools::testing::Bench;

    #[tokio::test]
    async fn an_edit_gives_a_diff() {
        let bench = Bench::new();
        let all: String = (1..=20).map(|n| format!("line {n}\n")).collect();
        bench.file("a.txt", &all);
        let args = json!({"path": "a.txt", "oldText": "line 12\n", "newText": "twelve\n"});
        let output = bench.output("edit", args).await;
        assert_eq!(output.content, [ContentBlock::text("Made 1 replacement in a.txt")]);
        assert_eq!(bench.content("a.txt"), all.replace("line 12\n", "twelve\n"));
        let diff = output.details.unwrap()["diff"].as_str().unwrap().to_owned();
        assert!(diff.starts_with("--- a.txt\n+++ a.txt\n@@ -8,9 +8,9 @@\n line 8\n"), "{diff}");
        assert!(diff.contains("\n-line 12\n+twelve\n line 13\n"), "{diff}");
    }

    #[tokio::test]
    async fn several_edits_are_one() {
        let bench = Bench::new();
        bench.file("a.txt", "\u{feff}one\r\ntwo\r\nthree\r\n");
        let edits = json!([
            {"oldText": "one\ntwo", "newText": "1\n2"},
            {"oldText": "three", "newText": "3\n4"},
        ]);
        let output = bench.output("edit", json!({"path": "a.txt", "edits": edits})).await;
        assert_eq!(bench.content("a.txt"), "\u{feff}1\r\n2\r\n3\r\n4\r\n");
        assert!(!output.details.unwrap()["diff"].as_str().unwrap().contains('\r'));

        let edits = json!([
            {"oldText": "1", "newText": "one"},
            {"oldText": "none", "newText": "x"},
        ]);
        let error = bench.error("edit", json!({"path": "a.txt", "edits": edits})).await;
        assert!(error.contains("edits[1]: oldText occurs 0 times"), "{error}");
        assert_eq!(bench.content("a.txt"), "\u{feff}1\r\n2\r\n3\r\n4\r\n");
    }

    #[tokio::test]
    async fn failures_change_nothing_and_say_why() {
        let bench = Bench::new();
        bench.file("a.txt", "x x\n");
        bench.file("latin1", b"caf\xe9 x");
        fs::create_dir(bench.cwd().join("dir")).unwrap();
        for (args, reason) in [
            (
                json!({"path": "a.txt", "oldText": "x", "newText": "y"}),
                "occurs 2 times (lines 1, 1)",
            ),
            (json!({"path": "a.txt", "oldText": "z", "newText": "y"}), "occurs 0 times"),
            (json!({"path": "a.txt", "oldText": "x x", "newText": "x x"}), "nothing would change"),
            (json!({"path": "a.txt", "oldText": "", "newText": "y"}), "oldText is empty"),
            (
                json!({"path": "latin1", "oldText": "x", "newText": "y"}),
                "not valid UTF-8 (at byte 3)",
            ),
            (json!({"path": "none", "oldText": "x", "newText": "y"}), "make new files with write"),
            (json!({"path": "dir", "oldText": "x", "newText": "y"}), "not a regular file"),
            (json!({"path": "a.txt", "oldText": "x"}), "give either both"),
            (
                json!({"path": "a.txt", "oldText": "x", "newText": "y", "edits": [{"oldText": "a", "newText": "b"}]}),
                "give either both",
            ),
            (json!({"path": "a.txt"}), "give either both"),
        ] {
            let error = bench.error("edit", args).await;
            assert!(error.contains(reason), "{error}");
        }
        assert_eq!(bench.content("a.txt"), "x x\n");
    }

    #[tokio::test]
    async fn links_and_modes_survive() {
        let bench = Bench::new();
        bench.file("run.sh", "echo a\n");
        let real = bench.cwd().join("run.sh");
        fs::set_permissions(&real, fs::Permissions::from_mode(0o755)).unwrap();
        symlink("run.sh", bench.cwd().join("link")).unwrap();
        let args = json!({"path": "link", "oldText": "a", "newText": "b"});
        assert_eq!(bench.paths("edit", &args), std::slice::from_ref(&real));
        bench.text("edit", args).await;
        assert_eq!(bench.content("run.sh"), "echo b\n");
        assert!(bench.cwd().join("link").is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn edits_of_one_file_wait_for_each_other() {
        let bench = Bench::new();
        let all: String = (0..40).map(|n| format!("<{n}>\n")).collect();
        bench.file("a.txt", &all);
        symlink("a.txt", bench.cwd().join("b.txt")).unwrap();
        let calls = (0..40).map(|n| {
            let path = if n % 2 == 0 { "a.txt" } else { "b.txt" };
            let args =
                json!({"path": path, "oldText": format!("<{n}>"), "newText": format!("[{n}]")});
            let (tool, call) = (bench.tool("edit"), bench.call(&args));
            tokio::spawn(async move { tool.run(call).await })
        });
        for result in futures::future::join_all(calls).await {
            result.unwrap().unwrap();
        }
        assert_eq!(bench.content("a.txt"), all.replace('<', "[").replace('>', "]"));
    }
}
