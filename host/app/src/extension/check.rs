//! `wharf extension check`: what the host would say to an extension in this directory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use wharf_extensions::Severity;

use super::here::{self, Here};
use super::inspect::Inspected;
use super::{HereArgs, build, print};
use crate::{flags, report};

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A .wasm file, a folder with extension.wasm, or a crate, which is built
    #[arg(value_name = "FILE|DIR", default_value = ".")]
    extension: PathBuf,
    #[command(flatten)]
    here: HereArgs,
}

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let here = Here::new(&args.here)?;
    let inspection = here.inspect(&component(&args.extension)?)?;
    let path = &inspection.path;
    print(&Inspected::new(&here, &inspection).text())?;
    let loaded = here.load_also(path.clone())?;
    let of_others = path.display().to_string();
    let (mut errors, mut warnings) = (0, 0);
    for problem in &loaded.reports {
        // Also what another one has to suffer from it.
        if problem.extension_path != *path && !problem.error.contains(&of_others) {
            continue;
        }
        match problem.severity {
            Severity::Error => {
                errors += 1;
                report::error(here::line(problem));
            }
            Severity::Warning => {
                warnings += 1;
                report::warning(here::line(problem));
            }
        }
    }
    for clash in flags::registered(&loaded.infos).clashes {
        if clash.extension_path == *path || clash.problem.contains(&inspection.registration.id) {
            warnings += 1;
            report::warning(format_args!("{}: {}", clash.extension_path.display(), clash.problem));
        }
    }
    if errors + warnings > 0 {
        report::line(format_args!("{errors} errors, {warnings} warnings"));
        return Ok(if errors > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    report::line("the host has nothing to say against it");
    Ok(ExitCode::SUCCESS)
}

/// The component that a path stands for; that of a crate is built.
pub(super) fn component(path: &Path) -> anyhow::Result<PathBuf> {
    if path.is_dir() && !path.join("extension.wasm").is_file() {
        return build::component(path);
    }
    Ok(path.to_owned())
}
