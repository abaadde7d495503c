//! `wharf extension test`: plays scripted conversations against an extension, through the
//! real binary in RPC mode, and compares what comes with what the script expects. The
//! format is `script`'s.

mod conversation;
mod matching;
mod script;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use wharf_extensions::Inspection;

use self::conversation::{Failure, Stage};
pub(super) use self::script::parse;
use super::{check, here, print};
use crate::report;

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// The extension's crate, which is built, or a .wasm file
    #[arg(value_name = "DIR|FILE", default_value = ".")]
    extension: PathBuf,
    /// Where the conversations are, *.jsonl [default: tests/ of the crate, or here]
    #[arg(long, value_name = "DIR")]
    tests: Option<PathBuf>,
    /// Play only those whose file name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Seconds that each step may take
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,
}

pub(super) fn run(args: &TestArgs) -> anyhow::Result<ExitCode> {
    let component = check::component(&args.extension)?;
    let scripts = scripts(args)?;
    let root = tempfile::tempdir().context("failed to make a temporary directory")?;
    // Code that one conversation had compiled is there for the next.
    let cache = root.path().join("cache");
    let inspection = here::inspect(&component, &cache.join("components"))?;
    let mut failed = 0;
    for (at, path) in scripts.iter().enumerate() {
        let stage = Stage {
            root: root.path().join(at.to_string()),
            cache: &cache,
            inspection: &inspection,
            timeout: Duration::from_secs(args.timeout),
        };
        match play(&stage, path)? {
            Ok(steps) => print(&format!("ok      {} ({steps} steps)\n", path.display()))?,
            Err(failure) => {
                failed += 1;
                print(&format!("FAILED  {}\n{failure}", path.display()))?;
            }
        }
    }
    print(&format!("\n{} passed, {failed} failed\n", scripts.len() - failed))?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn play(stage: &Stage<'_>, path: &Path) -> anyhow::Result<Result<usize, Failure>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("failed to read {}", path.display()))?;
    let script = parse(path, &text)?;
    let Inspection { registration, .. } = stage.inspection;
    for permission in &script.grant {
        ensure!(
            registration.permissions.contains(permission),
            "{}: {} does not ask for {}",
            path.display(),
            registration.id,
            permission
        );
    }
    stage.play(&script)
}

/// The conversations, by name.
fn scripts(args: &TestArgs) -> anyhow::Result<Vec<PathBuf>> {
    let dir = match &args.tests {
        Some(dir) => dir.clone(),
        None if args.extension.is_dir() => args.extension.join("tests"),
        None => PathBuf::from("tests"),
    };
    let entries = std::fs::read_dir(&dir)
        .with_context(|| format!("there are no conversations in {}", dir.display()))?;
    let mut scripts = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("failed to read {}", dir.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_meant = args.only.as_ref().is_none_or(|text| name.contains(text));
        if is_meant && path.extension().is_some_and(|extension| extension == "jsonl") {
            scripts.push(path);
        }
    }
    scripts.sort();
    ensure!(!scripts.is_empty(), "there is no conversation *.jsonl to play in {}", dir.display());
    report::line(format_args!("playing {} conversations", scripts.len()));
    Ok(scripts)
}
