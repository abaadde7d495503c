//! `wharf extension build`: cargo, with the settings that give small components.

use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde_json::Value;

use super::print;
use crate::report;

pub(super) const TARGET: &str = "wasm32-wasip2";

/// Bytes that a component of the SDK needs at most, if nothing large is in it.
const EXPECTED_BYTES: u64 = 200_000;

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The extension's crate
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Leave out the names of functions: smaller, but a backtrace has numbers only
    #[arg(long)]
    strip: bool,
}

pub(super) fn run(args: &BuildArgs) -> anyhow::Result<ExitCode> {
    for component in components(&args.dir, args.strip)? {
        let bytes = std::fs::metadata(&component)
            .with_context(|| format!("failed to read {}", component.display()))?
            .len();
        print(&format!("{}  {bytes} bytes\n", component.display()))?;
        if bytes > EXPECTED_BYTES {
            let hint = if args.strip { "" } else { "; --strip leaves out the names of functions" };
            report::warning(format_args!(
                "{} has more than {EXPECTED_BYTES} bytes: look at its dependencies and at the profile in its Cargo.toml{hint}",
                component.display()
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds a crate; gives its one component.
pub(super) fn component(dir: &Path) -> anyhow::Result<PathBuf> {
    let mut components = components(dir, false)?;
    match (components.pop(), components.is_empty()) {
        (Some(component), true) => Ok(component),
        _ => bail!(
            "{} makes more than one component: name the .wasm file that is meant",
            dir.display()
        ),
    }
}

/// Builds a crate, or a workspace of them; what cargo has to say goes to standard error.
fn components(dir: &Path, strip: bool) -> anyhow::Result<Vec<PathBuf>> {
    ensure!(
        dir.join("Cargo.toml").is_file(),
        "there is no Cargo.toml in {}: `wharf extension new NAME` makes a crate",
        dir.display()
    );
    has_target(dir)?;
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--release", "--target", TARGET])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if strip {
        cargo.args(["--config", "profile.release.strip=\"symbols\""]);
    }
    let mut child = cargo.spawn().map_err(not_there)?;
    let mut components = Vec::new();
    if let Some(messages) = child.stdout.take() {
        for message in BufReader::new(messages).lines() {
            components.extend(artifacts(&message.context("failed to read what cargo says")?));
        }
    }
    let status = child.wait().context("failed to wait for cargo")?;
    ensure!(status.success(), "cargo could not build {}", dir.display());
    ensure!(
        !components.is_empty(),
        "{} makes no component: its Cargo.toml needs [lib] with crate-type = [\"cdylib\"]",
        dir.display()
    );
    Ok(components)
}

/// The components that one of cargo's messages tells of.
fn artifacts(message: &str) -> Vec<PathBuf> {
    let Ok(message) = serde_json::from_str::<Value>(message) else { return Vec::new() };
    let is_cdylib = message["target"]["crate_types"]
        .as_array()
        .is_some_and(|kinds| kinds.iter().any(|kind| kind == "cdylib"));
    if message["reason"] != "compiler-artifact" || !is_cdylib {
        return Vec::new();
    }
    let files = message["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str);
    files.map(PathBuf::from).filter(|file| file.extension().is_some_and(|e| e == "wasm")).collect()
}

/// cargo says of a target that is missing only that `core` cannot be found.
fn has_target(dir: &Path) -> anyhow::Result<()> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(dir)
        .stderr(Stdio::inherit())
        .output()
        .map_err(not_there)?;
    let libraries = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && Path::new(libraries.trim()).is_dir(),
        "Rust cannot build for {TARGET} yet: run `rustup target add {TARGET}`"
    );
    Ok(())
}

fn not_there(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow::anyhow!("cargo is not on the PATH: install Rust with https://rustup.rs")
        }
        _ => anyhow::Error::new(error).context("cargo cannot be started"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_components_count() {
        let message = |reason: &str, kind: &str, files: &[&str]| {
            json!({"reason": reason, "target": {"crate_types": [kind]}, "filenames": files})
                .to_string()
        };
        for (message, expect) in [
            (message("compiler-artifact", "cdylib", &["/t/a.wasm", "/t/a.d"]), &["/t/a.wasm"][..]),
            (message("compiler-artifact", "lib", &["/t/a.rlib"]), &[]),
            (message("build-finished", "cdylib", &["/t/a.wasm"]), &[]),
            ("no JSON".to_owned(), &[]),
        ] {
            let expect: Vec<PathBuf> = expect.iter().map(PathBuf::from).collect();
            assert_eq!(artifacts(&message), expect, "{message}");
        }
    }
}
