//! `cargo xtask test`: format check, lints, boundaries, guests, every test. And
//! `cargo xtask bench`, which needs the same things built.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::guests::{self, TARGET, WORKSPACES};
use crate::{Workspace, boundaries, run, say, shown};

#[derive(Args)]
pub(crate) struct TestArgs {
    /// Leave out the format check and the lints
    #[arg(long)]
    quick: bool,
    /// Passed on to the test runner, for example a filter; leaves out the doc tests
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
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
            .args(["clippy", "--workspace", "--release", "--quiet", "--target", TARGET])
            .arg("--target-dir")
            .arg(workspace.target.join("guests"))
            .args(["--", "--deny", "warnings"])
            .current_dir(workspace.root.join(folder)))?;
    }
    boundaries::check(workspace)
}

/// Gives the test runner's own verdict, and nothing is printed after it.
pub(crate) fn test(workspace: &Workspace, args: &TestArgs) -> Result<ExitCode> {
    guests::install_target(workspace)?;
    if !args.quick {
        lint(workspace)?;
    }
    let guests = guests::build(workspace, &WORKSPACES)?;
    run(workspace.cargo().args(["build", "--workspace", "--quiet"]))?;
    let env = TestEnv { guests: &guests, binary: &workspace.target.join("debug/wharf") };
    if args.args.is_empty() {
        run(env.set(workspace.cargo().args(["test", "--workspace", "--doc", "--quiet"])))?;
    }
    let mut tests = workspace.cargo();
    if has_nextest(workspace) {
        tests.args(["nextest", "run", "--workspace"]).args(&args.args);
    } else {
        say(
            "cargo-nextest is not installed; cargo test runs the same tests, one binary after the other",
        );
        let filters = args.args.iter().filter(|arg| *arg != "--");
        tests.args(["test", "--workspace", "--tests", "--no-fail-fast", "--"]).args(filters);
    }
    say(format_args!("$ {}", shown(&tests)));
    let status = env
        .set(&mut tests)
        .status()
        .with_context(|| format!("failed to start {}", shown(&tests)))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn bench(workspace: &Workspace, args: &[String]) -> Result<()> {
    let guests = guests::build(workspace, &WORKSPACES)?;
    run(workspace.cargo().args(["build", "--release", "--package", "wharf"]))?;
    let env = TestEnv { guests: &guests, binary: &workspace.target.join("release/wharf") };
    // Not `--benches`: that would also start the unit tests, which take other arguments.
    run(env.set(workspace.cargo().args(["bench", "--workspace", "--bench", "*", "--"]).args(args)))
}

/// How tests find what was built for them.
struct TestEnv<'a> {
    guests: &'a Path,
    binary: &'a Path,
}

impl TestEnv<'_> {
    fn set<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("WHARF_TEST_GUESTS", self.guests).env("WHARF_TEST_BIN", self.binary)
    }
}

fn has_nextest(workspace: &Workspace) -> bool {
    workspace
        .cargo()
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
