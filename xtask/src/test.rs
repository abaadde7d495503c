//! `cargo xtask test`: format check, lints, guests, boundaries, every test.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;
use clap::Args;

use crate::guests::{self, WORKSPACES};
use crate::{Workspace, boundaries, run, say};

#[derive(Args)]
pub(crate) struct TestArgs {
    /// Leave out the format check and the lints
    #[arg(long)]
    quick: bool,
    /// Passed on to the test runner: a filter, for example
    args: Vec<String>,
}

fn lint(workspace: &Workspace) -> Result<()> {
    run(workspace.cargo().args(["fmt", "--all", "--check"]))?;
    for folder in WORKSPACES {
        let folder = workspace.root.join(folder);
        run(workspace.cargo().args(["fmt", "--all", "--check"]).current_dir(folder))?;
    }
    run(workspace.cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "--deny",
        "warnings",
    ]))?;
    for folder in WORKSPACES {
        run(workspace
            .cargo()
            .args(["clippy", "--workspace", "--release", "--quiet", "--target", "wasm32-wasip2"])
            .arg("--target-dir")
            .arg(workspace.target.join("guests"))
            .args(["--", "--deny", "warnings"])
            .current_dir(workspace.root.join(folder)))?;
    }
    boundaries::check(workspace)
}

pub(crate) fn test(workspace: &Workspace, args: &TestArgs) -> Result<()> {
    guests::install_target(workspace)?;
    if !args.quick {
        lint(workspace)?;
    }
    let guests = guests::build(workspace)?;
    run(workspace.cargo().args(["build", "--workspace", "--quiet"]))?;
    let env = TestEnv { guests: &guests, binary: &workspace.target.join("debug/wharf") };
    run(env.set(workspace.cargo().args(["test", "--workspace", "--doc", "--quiet"])))?;
    if has_nextest() {
        run(env.set(workspace.cargo().args(["nextest", "run", "--workspace"]).args(&args.args)))
    } else {
        say("cargo-nextest is not installed; cargo test runs the same tests, one binary after the other");
        run(env.set(workspace.cargo().args(["test", "--workspace", "--all-targets"]).args(&args.args)))
    }
}

pub(crate) fn bench(workspace: &Workspace, args: &[String]) -> Result<()> {
    let guests = guests::build(workspace)?;
    run(workspace.cargo().args(["build", "--release", "--quiet", "--package", "wharf"]))?;
    let env = TestEnv { guests: &guests, binary: &workspace.target.join("release/wharf") };
    run(env.set(workspace.cargo().args(["bench", "--workspace", "--benches"]).args(args)))
}

/// How tests find what was built for them.
struct TestEnv<'a> {
    guests: &'a Path,
    binary: &'a Path,
}

impl TestEnv<'_> {
    fn set<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .env("WHARF_TEST_GUESTS", self.guests)
            .env("WHARF_TEST_EXAMPLES", self.guests)
            .env("WHARF_TEST_BIN", self.binary)
    }
}

fn has_nextest() -> bool {
    Command::new(crate::cargo())
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
