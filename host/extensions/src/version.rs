//! Which API version a component was built for, and whether this host serves it.
//! Read from the names of its imports and exports, before anything is instantiated.

use std::fmt;
use std::str::FromStr;

use wasmtime::Engine;
use wasmtime::component::{Component, ComponentExportIndex};

use crate::bindings::HANDLERS;

const PACKAGE: &str = "wharf:extension/";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ApiVersion {
    major: u64,
    minor: u64,
    patch: u64,
}

/// The versions that this host serves, one folder of `wit/` each.
const OLDEST: ApiVersion = ApiVersion { major: 0, minor: 1, patch: 0 };
const NEWEST: ApiVersion = ApiVersion { major: 0, minor: 1, patch: 1 };

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for ApiVersion {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        // A pre-release counts as the version that it leads to.
        let core = text.split(['-', '+']).next().unwrap_or_default();
        let mut numbers = core.split('.').map(|part| part.parse().map_err(drop));
        let mut next = || numbers.next().unwrap_or(Err(()));
        let version = Self { major: next()?, minor: next()?, patch: next()? };
        if numbers.next().is_some() { Err(()) } else { Ok(version) }
    }
}

/// Why a component is no extension of this host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VersionError {
    #[error(
        "extension {extension} is built for wharf:extension@{built_for}; this host supports {OLDEST} to {NEWEST}"
    )]
    Unsupported { extension: String, built_for: ApiVersion },
    #[error(
        "it is a WebAssembly component but not a Wharf extension: it does not export {HANDLERS}; build it with wharf-sdk or against wit/{NEWEST}"
    )]
    NotAnExtension,
}

/// The exported `handlers` of a component whose version this host serves, and the version.
pub(crate) fn check(
    engine: &Engine,
    component: &Component,
    extension: &str,
) -> Result<(ComponentExportIndex, ApiVersion), VersionError> {
    let ty = component.component_type();
    let imports = ty.imports(engine).map(|(name, _)| name);
    let names: Vec<&str> = imports.chain(ty.exports(engine).map(|(name, _)| name)).collect();
    let built_for = newest_required(&names).unwrap_or(OLDEST);
    if !(OLDEST..=NEWEST).contains(&built_for) {
        return Err(VersionError::Unsupported { extension: extension.to_owned(), built_for });
    }
    ty.exports(engine)
        .find(|(name, _)| name.split('@').next() == Some(HANDLERS))
        .and_then(|(name, _)| component.get_export_index(None, name))
        .map(|handlers| (handlers, built_for))
        .ok_or(VersionError::NotAnExtension)
}

/// The newest version of our package among interface names.
fn newest_required(names: &[&str]) -> Option<ApiVersion> {
    names
        .iter()
        .filter(|name| name.starts_with(PACKAGE))
        .filter_map(|name| name.split_once('@')?.1.parse().ok())
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_name_decides() {
        let version = |names: &[&str]| newest_required(names).map(|v| v.to_string());
        assert_eq!(version(&["wasi:cli/run@0.2.6"]), None);
        assert_eq!(
            version(&["wharf:extension/ui@0.1.0", "wharf:extension/handlers@0.2.1-rc.1"]),
            Some("0.2.1".to_owned())
        );
        assert_eq!(version(&["wharf:extension/ui@1", "wharf:extension/ui@0.1.0.0"]), None);
    }
}
