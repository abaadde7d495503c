//! `cargo xtask ...`: the project's own commands. Run without arguments for a list.

mod boundaries;
mod demo;
mod guests;
mod test;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
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
    Demo,
    /// Format check, lints, guests, every test
    Test(test::TestArgs),
    /// Build the example extensions and the guests of the tests
    Guests,
    /// Check which crate may see which
    Boundaries,
    /// Run the benchmarks
    Bench {
        /// Passed on to criterion
        args: Vec<String>,
    },
}

fn main() -> Result<()> {
    let workspace = Workspace::find()?;
    match Cli::parse().task {
        Task::Demo => demo::run(&workspace),
        Task::Test(args) => test::test(&workspace, &args),
        Task::Guests => guests::build(&workspace).map(drop),
        Task::Boundaries => boundaries::check(&workspace),
        Task::Bench { args } => test::bench(&workspace, &args),
    }
}

/// Where things are.
struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask has no parent folder")?
            .to_owned();
        let output = Command::new(cargo())
            .args(["metadata", "--format-version=1", "--no-deps"])
            .current_dir(&root)
            .output()
            .context("failed to start cargo metadata")?;
        let metadata: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("cargo metadata said {}", String::from_utf8_lossy(&output.stderr)))?;
        let target = metadata["target_directory"].as_str().context("no target_directory")?;
        Ok(Self { root, target: target.into() })
    }

    fn cargo(&self) -> Command {
        let mut command = Command::new(cargo());
        command.current_dir(&self.root);
        command
    }
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
    std::iter::once(program.to_string_lossy().into_owned()).chain(args).collect::<Vec<_>>().join(" ")
}

#[expect(clippy::print_stdout, reason = "a task's own output; nothing parses it")]
fn say(line: impl std::fmt::Display) {
    println!("{line}");
}
