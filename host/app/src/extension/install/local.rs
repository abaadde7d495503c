//! A component from a path: a `.wasm` file, a folder with `extension.wasm`, or a crate
//! whose component has been built.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;
use tokio::process::Command;
use wharf_agent::resources::read_regular;
use wharf_extensions::MAX_COMPONENT_BYTES;

use super::{Fetched, program};

/// What components are built for.
const TARGET: &str = "wasm32-wasip2";

/// Bytes of what cargo says of a crate.
const MAX_METADATA: u64 = 64 << 20;

pub(super) async fn fetch(path: &Path, build: bool) -> anyhow::Result<Fetched> {
    let metadata = std::fs::metadata(path)
        .with_context(|| format!("there is no extension at {}", path.display()))?;
    let file = if metadata.is_dir() { in_folder(path, build).await? } else { path.to_owned() };
    Ok(Fetched { component: read(&file)?, resolved: None })
}

async fn in_folder(folder: &Path, build: bool) -> anyhow::Result<PathBuf> {
    let component = folder.join("extension.wasm");
    if component.is_file() {
        return Ok(component);
    }
    if folder.join("Cargo.toml").is_file() {
        return of_crate(folder, build, None).await;
    }
    bail!("there is neither an extension.wasm nor a crate in the folder {}", folder.display())
}

/// The component of the crate in a folder, which is built first if that was asked for.
/// A build runs code of the crate and of what it depends on. `target` is where builds go,
/// if not where the person has them.
pub(super) async fn of_crate(
    folder: &Path,
    build: bool,
    target: Option<&Path>,
) -> anyhow::Result<PathBuf> {
    let cargo = || {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(folder);
        if let Some(target) = target {
            cargo.env("CARGO_TARGET_DIR", target);
        }
        cargo
    };
    if build {
        let mut cargo = cargo();
        cargo.args(["build", "--release", "--target", TARGET]);
        program::output(cargo, MAX_METADATA).await?;
    }
    let mut cargo = cargo();
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata = program::output(cargo, MAX_METADATA).await?;
    let metadata = serde_json::from_slice(&metadata).context("cargo metadata is no JSON")?;
    let manifest = folder.canonicalize()?.join("Cargo.toml");
    let file = component_file(&metadata, &manifest).ok_or_else(|| {
        anyhow!(
            "the crate in {} makes no component: its crate-type is not cdylib",
            folder.display()
        )
    })?;
    if !file.is_file() {
        bail!(
            "the crate in {} has not been built: there is no {}; build it, or let --build do so",
            folder.display(),
            file.display()
        );
    }
    Ok(file)
}

/// Where cargo puts the component of the package with this manifest.
fn component_file(metadata: &Value, manifest: &Path) -> Option<PathBuf> {
    let packages = metadata["packages"].as_array()?;
    let package = packages
        .iter()
        .find(|package| package["manifest_path"].as_str().map(Path::new) == Some(manifest))?;
    let is_component = |target: &&Value| {
        target["crate_types"].as_array().is_some_and(|types| types.iter().any(|t| t == "cdylib"))
    };
    let name = package["targets"].as_array()?.iter().find(is_component)?["name"].as_str()?;
    let target_dir = Path::new(metadata["target_directory"].as_str()?);
    let file = format!("{}.wasm", name.replace('-', "_"));
    Some(target_dir.join(TARGET).join("release").join(file))
}

pub(super) fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    read_regular(file, MAX_COMPONENT_BYTES)
        .with_context(|| format!("failed to read {}", file.display()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::fs;

    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_file_and_a_folder_and_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("x.wasm"), "file").unwrap();
        fs::create_dir_all(temp.path().join("folder")).unwrap();
        fs::create_dir_all(temp.path().join("empty")).unwrap();
        fs::write(temp.path().join("folder/extension.wasm"), "folder").unwrap();
        for (path, expect) in [("x.wasm", "file"), ("folder", "folder")] {
            let fetched = fetch(&temp.path().join(path), false).await.unwrap();
            assert_eq!(fetched.component, expect.as_bytes());
            assert_eq!(fetched.resolved, None);
        }
        for (path, expect) in [("none", "there is no extension at"), ("empty", "neither an")] {
            let error = fetch(&temp.path().join(path), false).await.unwrap_err().to_string();
            assert!(error.contains(expect) && error.contains(path), "{error}");
        }
    }

    #[test]
    fn the_component_of_the_right_package_is_found() {
        let package = |name: &str, kind: &str| {
            json!({
                "manifest_path": format!("/w/{name}/Cargo.toml"),
                "targets": [{"name": "build", "crate_types": ["bin"]}, {"name": name, "crate_types": [kind]}],
            })
        };
        let metadata = json!({
            "target_directory": "/w/target",
            "packages": [package("other", "cdylib"), package("my-one", "cdylib"), package("lib", "lib")],
        });
        let find =
            |name: &str| component_file(&metadata, Path::new(&format!("/w/{name}/Cargo.toml")));
        let expect = Path::new("/w/target/wasm32-wasip2/release/my_one.wasm");
        assert_eq!(find("my-one").as_deref(), Some(expect));
        assert_eq!(find("lib"), None);
        assert_eq!(find("none"), None);
    }

    #[tokio::test]
    async fn a_crate_that_was_not_built_is_told_so() {
        let temp = tempfile::tempdir().unwrap();
        let manifest = "[package]\nname = \"my-one\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"cdylib\"]\n[workspace]\n";
        fs::write(temp.path().join("Cargo.toml"), manifest).unwrap();
        fs::create_dir(temp.path().join("src")).unwrap();
        fs::write(temp.path().join("src/lib.rs"), "").unwrap();
        let error = fetch(temp.path(), false).await.unwrap_err().to_string();
        assert!(error.contains("has not been built") && error.contains("my_one.wasm"), "{error}");
    }
}
