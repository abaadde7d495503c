//! `wharf extension new`: a crate that builds at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::Args;

use super::print;

/// Where the SDK may be had from, if it is published.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Of the tree that this binary was built from.
const OWN_SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/rust");

/// Names that cargo or the compiler has another use for.
const RESERVED: [&str; 12] = [
    "alloc",
    "core",
    "crate",
    "deps",
    "examples",
    "build",
    "incremental",
    "proc-macro",
    "self",
    "std",
    "super",
    "test",
];

/// Characters of an extension's id. Fixed by the WIT contract.
const MAX_NAME: usize = 64;

const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("template/Cargo.toml.in")),
    ("src/lib.rs", include_str!("template/lib.rs.in")),
    ("tests/hello.jsonl", include_str!("template/hello.jsonl.in")),
    ("README.md", include_str!("template/README.md.in")),
    (".gitignore", "/target\n"),
];

#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// The extension's id: a-z, 0-9 and -; also the name of the folder that is made
    name: String,
    /// The folder of the crate wharf-sdk [default: that of the tree wharf was built from]
    #[arg(long, value_name = "PATH")]
    sdk: Option<PathBuf>,
}

pub(super) fn run(args: &NewArgs) -> anyhow::Result<ExitCode> {
    check_name(&args.name)?;
    let dependency = dependency(args.sdk.as_deref())?;
    let dir = Path::new(&args.name);
    make(dir, &args.name, &dependency)?;
    print(&format!(
        "made {}\n\nNext:\n  cd {}\n  wharf extension test\n",
        dir.display(),
        dir.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn check_name(name: &str) -> anyhow::Result<()> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    ensure!(
        name.len() <= MAX_NAME
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.ends_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(is_allowed),
        "{name:?} is no name for an extension: it has 1 to {MAX_NAME} characters of a-z, 0-9 and -, a letter first and no - at the end"
    );
    ensure!(!RESERVED.contains(&name), "{name:?} is a name that Rust has another use for");
    Ok(())
}

/// What stands behind `wharf-sdk =`.
fn dependency(sdk: Option<&Path>) -> anyhow::Result<String> {
    if let Some(sdk) = sdk {
        ensure!(
            sdk.join("Cargo.toml").is_file(),
            "there is no crate wharf-sdk in {}",
            sdk.display()
        );
        return local(sdk);
    }
    if !REPOSITORY.is_empty() {
        return Ok(format!("{{ git = {} }}", quoted(REPOSITORY)));
    }
    match Path::new(OWN_SDK) {
        sdk if sdk.join("Cargo.toml").is_file() => local(sdk),
        _ => bail!("the crate wharf-sdk is not known here: name its folder with --sdk PATH"),
    }
}

fn local(sdk: &Path) -> anyhow::Result<String> {
    let sdk = sdk.canonicalize().with_context(|| format!("failed to read {}", sdk.display()))?;
    let path = sdk.to_str().with_context(|| format!("{} is not UTF-8", sdk.display()))?;
    Ok(format!("{{ path = {} }}", quoted(path)))
}

/// As a string of TOML; JSON's are a part of those.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn make(dir: &Path, name: &str, dependency: &str) -> anyhow::Result<()> {
    // The one step that must find nothing there: what follows is in a folder of our own.
    fs::create_dir(dir).with_context(|| format!("failed to make {}", dir.display()))?;
    for (file, template) in FILES {
        let path = dir.join(file);
        let parent = path.parent().unwrap_or(dir);
        fs::create_dir_all(parent)
            .with_context(|| format!("failed to make {}", parent.display()))?;
        let text = template
            .replace("{{name}}", name)
            .replace("{{type}}", &type_name(name))
            .replace("{{sdk}}", dependency);
        fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(())
}

/// `ask-first` as `AskFirst`.
fn type_name(name: &str) -> String {
    let words = name.split('-').filter_map(|word| {
        let mut letters = word.chars();
        Some(letters.next()?.to_ascii_uppercase().to_string() + letters.as_str())
    });
    // Clear of the names that the template takes from the SDK.
    words.collect::<String>() + "Extension"
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn names_are_those_that_cargo_and_the_host_take() {
        for name in ["a", "ask-first", "x2", &"a".repeat(64)] {
            check_name(name).unwrap();
        }
        for name in ["", "Ask", "2x", "-a", "a-", "a_b", "../x", "a b", "test", &"a".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_new_crate_has_its_name_everywhere_and_nothing_is_overwritten() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("ask-first");
        make(&dir, "ask-first", "{ path = \"/sdk\" }").unwrap();
        for (file, _) in FILES {
            let text = fs::read_to_string(dir.join(file)).unwrap();
            assert!(!text.contains("{{"), "{file}: {text}");
        }
        let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("name = \"ask-first\""), "{manifest}");
        assert!(manifest.contains("wharf-sdk = { path = \"/sdk\" }"), "{manifest}");
        let code = fs::read_to_string(dir.join("src/lib.rs")).unwrap();
        assert!(code.contains("struct AskFirstExtension;"), "{code}");
        fs::write(dir.join("src/lib.rs"), "mine").unwrap();
        assert!(make(&dir, "ask-first", "x").is_err());
        assert_eq!(fs::read_to_string(dir.join("src/lib.rs")).unwrap(), "mine");
    }

    #[test]
    fn the_test_of_a_new_crate_is_one() {
        let text = FILES[2].1.replace("{{name}}", "x");
        super::super::test::parse(Path::new("tests/hello.jsonl"), &text).unwrap();
    }
}
