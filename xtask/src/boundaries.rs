//! Dependencies point one way, and some crates are seen by one room only
//! (host/ARCHITECTURE.md).

use anyhow::{Context as _, Result, bail, ensure};

use crate::{Workspace, metadata, say};

/// A crate of the workspace, and the crates of the workspace that it may use.
const MAY_USE: [(&str, &[&str]); 7] = [
    ("wharf-protocol", &[]),
    // Runs inside a component: no type of the host reaches it.
    ("wharf-sdk", &[]),
    ("wharf-session", &["wharf-protocol"]),
    ("wharf-provider", &["wharf-protocol"]),
    ("wharf-agent", &["wharf-protocol", "wharf-session", "wharf-provider"]),
    ("wharf-extensions", &["wharf-protocol", "wharf-session", "wharf-agent"]),
    (
        "wharf",
        &["wharf-protocol", "wharf-session", "wharf-provider", "wharf-agent", "wharf-extensions"],
    ),
];

/// A crate from outside, and the only crate of the workspace that may name it.
const SEEN_BY_ONE: [(&str, &str); 4] = [
    ("wasmtime", "wharf-extensions"),
    ("wasmtime-wasi", "wharf-extensions"),
    ("reqwest", "wharf-provider"),
    ("clap", "wharf"),
];

/// Not even through other crates.
const NEVER_REACHES: [(&str, &str); 3] =
    [("wharf-agent", "wasmtime"), ("wharf-session", "reqwest"), ("wharf-sdk", "wasmtime")];

pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let metadata = metadata(&workspace.root)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let named = |name: &str| packages.iter().any(|package| package["name"] == name);
    if let Some((gone, _)) = MAY_USE.iter().find(|(name, _)| !named(name)) {
        bail!("there is no crate {gone}; its line in this check guards nothing");
    }
    let mut faults = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else { continue };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if dependency["kind"] == "dev" {
                continue;
            }
            let used = dependency["name"].as_str().unwrap_or_default();
            if MAY_USE.iter().any(|(known, _)| *known == used) && !allowed.contains(&used) {
                faults.push(format!("{name} must not use {used}"));
            }
            if let Some((_, owner)) = SEEN_BY_ONE.iter().find(|(known, _)| *known == used)
                && *owner != name
            {
                faults.push(format!("{name} must not use {used}; only {owner} may"));
            }
        }
    }
    for (crate_, outside) in NEVER_REACHES {
        if is_reached(workspace, crate_, outside)? {
            faults.push(format!("{crate_} reaches {outside} through another crate"));
        }
    }
    if !faults.is_empty() {
        bail!("boundaries crossed:\n  {}", faults.join("\n  "));
    }
    say("boundaries: every crate sees only what it may");
    Ok(())
}

/// True when `package` depends on `outside`, however indirectly.
fn is_reached(workspace: &Workspace, package: &str, outside: &str) -> Result<bool> {
    let output = workspace
        .cargo()
        .args(["tree", "--package", package, "--edges", "normal", "--prefix", "none"])
        .output()
        .context("failed to start cargo tree")?;
    ensure!(
        output.status.success(),
        "cargo tree failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let tree = String::from_utf8_lossy(&output.stdout);
    Ok(tree.lines().any(|line| line.split(' ').next() == Some(outside)))
}
