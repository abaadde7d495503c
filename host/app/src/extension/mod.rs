//! `wharf extension ...`: what the person or the author of an extension does with it from
//! the shell. No handler of an extension runs in any of it but in `test`, which starts
//! the binary as a client does.

mod build;
mod check;
pub(crate) mod describe;
mod grant;
mod here;
mod inspect;
mod install;
mod list;
mod new;
mod permission;
mod test;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use crate::cli::LoadArgs;
use crate::plain::is_obeyed;

#[derive(Debug, Subcommand)]
pub(crate) enum ExtensionCommand {
    /// List what a run in this directory would load, in load order
    List(list::ListArgs),
    /// Show what an extension offers and asks for, without running any of its handlers
    Inspect(inspect::InspectArgs),
    /// Grant an extension what it asks for
    Grant(grant::GrantArgs),
    /// Take grants back
    Revoke(grant::RevokeArgs),
    /// Make the crate of a new extension
    New(new::NewArgs),
    /// Build an extension's crate for release
    Build(build::BuildArgs),
    /// Tell what Wharf would say to an extension here
    Check(check::CheckArgs),
    /// Run the scripted conversations of an extension's tests
    Test(test::TestArgs),
    /// Install an extension from a path, a git URL, npm or an OCI registry
    Install(install::InstallArgs),
    /// Delete an installed extension
    Remove(install::RemoveArgs),
    /// Fetch installed extensions anew from where they came
    Update(install::UpdateArgs),
}

/// Where extensions are looked for.
#[derive(Debug, Args)]
pub(crate) struct HereArgs {
    #[command(flatten)]
    loaded: LoadArgs,
    /// Where settings, extensions, grants and trust are kept [default: ~/.wharf/agent]
    #[arg(long, value_name = "DIR")]
    agent_dir: Option<PathBuf>,
    /// Look into the project of this directory as if it were trusted
    #[arg(long)]
    trust_project: bool,
}

pub(crate) fn run(command: ExtensionCommand) -> anyhow::Result<ExitCode> {
    match command {
        ExtensionCommand::List(args) => list::run(&args),
        ExtensionCommand::Inspect(args) => inspect::run(&args),
        ExtensionCommand::Grant(args) => grant::grant(&args),
        ExtensionCommand::Revoke(args) => grant::revoke(&args),
        ExtensionCommand::New(args) => new::run(&args),
        ExtensionCommand::Build(args) => build::run(&args),
        ExtensionCommand::Check(args) => check::run(&args),
        ExtensionCommand::Test(args) => test::run(&args),
        ExtensionCommand::Install(args) => install::install(&args),
        ExtensionCommand::Remove(args) => install::remove(&args),
        ExtensionCommand::Update(args) => install::update(&args),
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("failed to write to standard output")
}

/// What a terminal would obey is escaped: it can only stand in strings.
fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut text = String::new();
    for c in serde_json::to_string_pretty(value)?.chars() {
        if c != '\n' && is_obeyed(c) {
            // No such character is outside of the basic plane.
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    print(&(text + "\n"))
}
