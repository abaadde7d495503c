//! `wharf extension grant` and `wharf extension revoke`

use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use wharf_extensions::{GrantStore, Permission};

use super::describe::grants_file;
use super::here::Here;
use super::inspect::subject;
use super::permission::parse;
use super::{HereArgs, print};
use crate::plain::one_line;
use crate::report;

/// Characters of a permission that is shown.
const CHARS: usize = 400;

#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// The id of an extension that loads here, a .wasm file, or a folder with extension.wasm
    #[arg(value_name = "ID|FILE")]
    extension: String,
    /// What of that which it asks for, e.g. "exec:git status **" [default: all, asked first]
    #[arg(value_name = "PERMISSION")]
    permissions: Vec<String>,
    /// Grant all that it asks for, without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    here: HereArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// The extension's id, also of one that is gone, or its file
    #[arg(value_name = "ID|FILE")]
    id: String,
    /// What to take back [default: all]
    #[arg(value_name = "PERMISSION")]
    permissions: Vec<String>,
    #[command(flatten)]
    here: HereArgs,
}

pub(super) fn grant(args: &GrantArgs) -> anyhow::Result<ExitCode> {
    let named = args.permissions.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
    let here = Here::new(&args.here)?;
    let inspection = here.inspect(&here.find(&args.extension)?)?;
    let registration = &inspection.registration;
    let id = &registration.id;
    let asked = &registration.permissions;
    if asked.is_empty() {
        ensure!(named.is_empty(), "{id} asks for nothing, so nothing can be granted to it");
        print(&format!("{id} asks for nothing\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let granted = chosen(named, asked).with_context(|| format!("nothing was granted to {id}"))?;
    if args.permissions.is_empty() && !args.yes {
        let version = one_line(&registration.version, CHARS);
        report::line(format_args!("{id} {version} ({}) asks for:", inspection.path.display()));
        report::line(listed(asked).trim_end());
        if !says_yes()? {
            report::line("nothing was granted");
            return Ok(ExitCode::FAILURE);
        }
    }
    let mut grants = GrantStore::load(grants_file(&here.loading))?;
    grants.decide(subject(&inspection), granted.clone(), Vec::new())?;
    print(&format!("granted to {id}:\n{}", listed(&granted)))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn revoke(args: &RevokeArgs) -> anyhow::Result<ExitCode> {
    let named = args.permissions.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
    let here = Here::new(&args.here)?;
    let mut grants = GrantStore::load(grants_file(&here.loading))?;
    // An id needs no extension that is still there.
    let id = match args.id.contains('/') || args.id.ends_with(".wasm") {
        true => here.inspect(&here.find(&args.id)?)?.registration.id,
        false => args.id.clone(),
    };
    let revoked = grants.revoke(&id, (!named.is_empty()).then_some(named.as_slice()))?;
    let id = one_line(&id, CHARS);
    if revoked.is_empty() {
        print(&format!("nothing of that was granted to {id}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&format!("taken back from {id}:\n{}", listed(&revoked)))?;
    Ok(ExitCode::SUCCESS)
}

/// Those that a person named, all of which must be asked for; all where none is named.
fn chosen(named: Vec<Permission>, asked: &[Permission]) -> anyhow::Result<Vec<Permission>> {
    if named.is_empty() {
        return Ok(asked.to_vec());
    }
    if let Some(other) = named.iter().find(|permission| !asked.contains(permission)) {
        let asked: Vec<String> =
            asked.iter().map(|permission| one_line(&permission.to_string(), CHARS)).collect();
        bail!(
            "it does not ask for {}; it asks for: {}",
            one_line(&other.to_string(), CHARS),
            asked.join(", ")
        );
    }
    Ok(named)
}

fn listed(permissions: &[Permission]) -> String {
    let lines = permissions
        .iter()
        .map(|permission| format!("  {}\n", one_line(&permission.to_string(), CHARS)));
    lines.collect()
}

fn says_yes() -> anyhow::Result<bool> {
    ensure!(
        io::stdin().is_terminal(),
        "nobody can be asked here: name the permissions to grant, or pass --yes for all of them"
    );
    report::line("Grant all of it? [y/N]");
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("failed to read the answer")?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn only_what_is_asked_for_can_be_granted() {
        let net = Permission::Net("example.org".to_owned());
        let env = Permission::Env("HOME".to_owned());
        let asked = [net.clone(), env.clone()];
        assert_eq!(chosen(Vec::new(), &asked).unwrap(), asked);
        assert_eq!(chosen(vec![env.clone()], &asked).unwrap(), [env]);
        let error = chosen(vec![net, Permission::Net("*".to_owned())], &asked).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it does not ask for net:*; it asks for: net:example.org, env:HOME"
        );
    }
}
