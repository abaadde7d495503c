//! A component out of an npm package, by the npm program, which knows the person's
//! registries and keys. No script of the package runs.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use tokio::process::Command;

use super::{Fetched, archive, program};

/// Bytes of what npm says.
const MAX_OUTPUT: u64 = 16 << 20;

pub(super) async fn fetch(name: &str, version: Option<&str>) -> anyhow::Result<Fetched> {
    // Empty, so that no .npmrc and no file named like a package is found where it runs.
    let temp = tempfile::tempdir().context("failed to make a temporary directory")?;
    let package = format!("{name}@{}", version.unwrap_or("latest"));
    let mut npm = Command::new("npm");
    npm.current_dir(temp.path())
        .args(["pack", "--ignore-scripts", "--loglevel=error", "--no-update-notifier"])
        .args(["--no-audit", "--no-fund", "--", &package]);
    program::output(npm, MAX_OUTPUT)
        .await
        .with_context(|| format!("failed to fetch the npm package {package}"))?;
    let file = packed(temp.path())?
        .ok_or_else(|| anyhow!("npm has fetched no package {package}; is there such a version?"))?;
    let read = move || {
        let file = File::open(file)?;
        anyhow::Ok(archive::read(file)?)
    };
    let package = tokio::task::spawn_blocking(read).await??;
    Ok(Fetched { component: package.component, resolved: package.version })
}

/// The package that npm has put into the folder.
fn packed(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let mut found = None;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_file() && path.extension().is_some_and(|ext| ext == "tgz") {
            found = Some(path);
        }
    }
    Ok(found)
}
