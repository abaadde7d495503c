//! `wharf extension list`

use std::process::ExitCode;

use clap::Args;

use super::describe::{self, Decisions, Described};
use super::here::{self, Here};
use super::{HereArgs, print, print_json};
use crate::plain::one_line;
use crate::report;

/// Characters of a description, a path, or a list.
const CHARS: usize = 160;

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    here: HereArgs,
}

pub(super) fn run(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let here = Here::new(&args.here)?;
    let loaded = here.load()?;
    for problem in &loaded.reports {
        report::warning(here::line(problem));
    }
    let all = describe::all(&loaded.infos, &here.loading);
    if let Some(error) = all.grants_error {
        report::warning(error);
    }
    if args.json {
        print_json(&serde_json::json!({ "extensions": all.extensions }))?;
    } else if all.extensions.is_empty() {
        report::line("no extension would be loaded here");
    } else {
        print(&all.extensions.iter().map(entry).collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// An extension as a few lines.
fn entry(extension: &Described) -> String {
    let id = extension.id.as_deref().unwrap_or(&extension.name);
    let mut text = format!(
        "{} {}  [{}, {}]\n  {}\n",
        one_line(id, CHARS),
        one_line(extension.version.as_deref().unwrap_or("-"), CHARS),
        extension.scope.name(),
        extension.state,
        one_line(&extension.path.display().to_string(), usize::MAX - 1),
    );
    for line in decisions(&extension.permissions) {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

/// A line for each kind of decision.
pub(super) fn decisions(decisions: &Decisions) -> Vec<String> {
    let kinds = [
        ("granted", &decisions.granted),
        ("denied", &decisions.denied),
        ("undecided", &decisions.undecided),
    ];
    let lines = kinds.into_iter().flat_map(|(kind, permissions)| {
        permissions.iter().map(move |text| format!("{kind:<9}  {}", one_line(text, CHARS)))
    });
    lines.collect()
}
