//! `wharf trust` and `wharf untrust`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use wharf_agent::resources::TrustStore;

use crate::cli::ProjectArgs;
use crate::wiring::agent_dir;

pub(crate) fn trust(args: &ProjectArgs) -> anyhow::Result<ExitCode> {
    let mut store = TrustStore::load(agent_dir(args.agent_dir.as_deref())?.trust_file())?;
    let dir = store.trust(&args.dir)?;
    say(format_args!("trusted {}", dir.display()))
}

pub(crate) fn untrust(args: &ProjectArgs) -> anyhow::Result<ExitCode> {
    let mut store = TrustStore::load(agent_dir(args.agent_dir.as_deref())?.trust_file())?;
    let removed = store.untrust(&args.dir)?;
    if removed.is_empty() {
        return say(format_args!("{} was not trusted", args.dir.display()));
    }
    for dir in removed {
        say(format_args!("no longer trusted: {}", dir.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn say(text: std::fmt::Arguments<'_>) -> anyhow::Result<ExitCode> {
    writeln!(std::io::stdout(), "{text}").context("failed to write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
