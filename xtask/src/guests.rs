//! Builds the components: the example extensions and the guests of the tests.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{Workspace, run};

const TARGET: &str = "wasm32-wasip2";

/// Folders that are cargo workspaces of guests.
pub(crate) const WORKSPACES: [&str; 2] = ["example-extensions", "tests/guests"];

/// Builds all guests and gives the folder where the `.wasm` files are.
pub(crate) fn build(workspace: &Workspace) -> Result<PathBuf> {
    install_target(workspace)?;
    let target_dir = workspace.target.join("guests");
    for folder in WORKSPACES {
        run(workspace
            .cargo()
            .args(["build", "--release", "--quiet", "--target", TARGET, "--target-dir"])
            .arg(&target_dir)
            .current_dir(workspace.root.join(folder)))?;
    }
    Ok(target_dir.join(TARGET).join("release"))
}

/// Adds the wasm target where it is missing.
pub(crate) fn install_target(workspace: &Workspace) -> Result<()> {
    let installed = Command::new("rustup")
        .args(["target", "list", "--installed"])
        .current_dir(&workspace.root)
        .output()
        .context("failed to start rustup; install it from https://rustup.rs")?;
    if String::from_utf8_lossy(&installed.stdout).lines().any(|line| line.trim() == TARGET) {
        return Ok(());
    }
    run(Command::new("rustup").args(["target", "add", TARGET]).current_dir(&workspace.root))
}
