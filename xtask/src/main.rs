//! `cargo xtask ...`: the project's own commands. Run without arguments for a list.

mod boundaries;
mod contract;
mod demo;
mod guests;
mod test;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, Subcommand};
use serde_json::Value;

#[derive(Parser)]
#[command(about = "Builds, shows and checks Wharf")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build everything and show a run with the scripted model
    Demo(demo::DemoArgs),
    /// Format check, lints, guests, every test
    Test(test::TestArgs),
    /// Build the example extensions and the guests of the tests
    Guests,
    /// Check which crate may see which
    Boundaries,
    /// Write docs/api.md anew from the WIT
    Docs,
    /// Run the benchmarks
    Bench {
        /// Passed on to every benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    match perform(Cli::parse().task) {
        Ok(code) => code,
        Err(error) => {
            // Nobody may be reading; the exit code says it too.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: Task) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let done = match task {
        Task::Demo(args) => demo::run(&workspace, &args),
        // The runner's summary is the last thing to be read, so it ends the task itself.
        Task::Test(args) => return test::test(&workspace, &args),
        Task::Guests => guests::build(&workspace, &guests::WORKSPACES).map(drop),
        Task::Boundaries => boundaries::check(&workspace),
        Task::Docs => contract::write_docs(&workspace),
        Task::Bench { args } => test::bench(&workspace, &args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Where things are.
struct Workspace {
    root: PathBuf,
    /// Inside the clone, or wherever `CARGO_TARGET_DIR` or cargo's configuration says.
    target: PathBuf,
}

impl Workspace {
    fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask has no parent folder")?
            .to_owned();
        let metadata = metadata(&root)?;
        let target = metadata["target_directory"].as_str().context("no target_directory")?;
        Ok(Self { root, target: target.into() })
    }

    fn cargo(&self) -> Command {
        let mut command = Command::new(cargo());
        command.current_dir(&self.root);
        command
    }
}

/// What cargo knows of the workspace, without its dependencies.
fn metadata(root: &Path) -> Result<Value> {
    let output = Command::new(cargo())
        .args(["metadata", "--format-version=1", "--no-deps"])
        .current_dir(root)
        .output()
        .context("failed to start cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).context("cargo metadata gave no JSON")
}

fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Runs a command whose output the person sees; a failure names it.
fn run(command: &mut Command) -> Result<()> {
    say(format_args!("$ {}", shown(command)));
    let status = command.status().with_context(|| format!("failed to start {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed with {status}", shown(command));
    }
    Ok(())
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(program.to_string_lossy().into_owned())
        .chain(args)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Prints a line of a task's own. A reader that has gone (`| head`) stops nothing.
fn say(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
