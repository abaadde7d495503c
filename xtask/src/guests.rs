//! Builds the components: the example extensions and the guests of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{Workspace, run};

pub(crate) const TARGET: &str = "wasm32-wasip2";

/// The examples' folder, a cargo workspace of its own.
pub(crate) const EXAMPLES: &str = "example-extensions";

/// Folders that are cargo workspaces of guests.
pub(crate) const WORKSPACES: [&str; 2] = [EXAMPLES, "tests/guests"];

/// Builds the guests of these folders and gives the folder where the `.wasm` files are.
pub(crate) fn build(workspace: &Workspace, folders: &[&str]) -> Result<PathBuf> {
    install_target(workspace)?;
    let target_dir = workspace.target.join("guests");
    for folder in folders {
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
    if is_installed(workspace)? {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    let found = rustup.arg("--version").output();
    ensure!(
        found.is_ok_and(|output| output.status.success()),
        "the target {TARGET} is not installed, and rustup, which installs it, was not found; get it from https://rustup.rs"
    );
    run(Command::new("rustup").args(["target", "add", TARGET]).current_dir(&workspace.root))
}

/// Asks the compiler, which also works where the target came without rustup.
fn is_installed(workspace: &Workspace) -> Result<bool> {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(&workspace.root)
        .output()
        .context("failed to start rustc")?;
    let folder = String::from_utf8_lossy(&output.stdout);
    Ok(output.status.success() && Path::new(folder.trim()).is_dir())
}
