//! Which file of a package or a repository is the component. Only names are looked at.

use serde_json::Value;

/// The manifest that may name the component, as `{"wharf": {"extension": "dist/x.wasm"}}`.
pub(super) const MANIFEST: &str = "package.json";

/// Bytes of a manifest that are read.
pub(super) const MAX_MANIFEST_BYTES: u64 = 1 << 20;

const DEFAULT: &str = "extension.wasm";

/// How many names an error gives.
const MAX_NAMES: usize = 5;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChooseError {
    #[error("its {MANIFEST} is broken: {0}")]
    Manifest(String),
    #[error("its {MANIFEST} names {0:?} as wharf.extension, and there is no such file")]
    NotThere(String),
    #[error(
        "it has several components ({0}); one must be extension.wasm, or named in {MANIFEST} as wharf.extension"
    )]
    Several(String),
}

/// The component among regular files, given by their paths from the root: the one that the
/// manifest names, else `extension.wasm`, else the only `.wasm` file. None: there is none.
pub(super) fn choose<'a>(
    files: &[&'a str],
    manifest: Option<&[u8]>,
) -> Result<Option<&'a str>, ChooseError> {
    let find = |wanted: &str| files.iter().find(|file| **file == wanted).copied();
    if let Some(named) = manifest.map(named_in).transpose()?.flatten() {
        let wanted = named.strip_prefix("./").unwrap_or(&named);
        return find(wanted).map(Some).ok_or(ChooseError::NotThere(named.clone()));
    }
    if let Some(file) = find(DEFAULT) {
        return Ok(Some(file));
    }
    let components: Vec<&str> =
        files.iter().filter(|file| file.ends_with(".wasm")).copied().collect();
    match components[..] {
        [] => Ok(None),
        [only] => Ok(Some(only)),
        _ => {
            let more = if components.len() > MAX_NAMES { ", .." } else { "" };
            let names = components[..components.len().min(MAX_NAMES)].join(", ");
            Err(ChooseError::Several(format!("{names}{more}")))
        }
    }
}

fn named_in(manifest: &[u8]) -> Result<Option<String>, ChooseError> {
    let manifest: Value = serde_json::from_slice(manifest)
        .map_err(|error| ChooseError::Manifest(error.to_string()))?;
    match &manifest["wharf"]["extension"] {
        Value::Null => Ok(None),
        Value::String(path) => Ok(Some(path.clone())),
        _ => Err(ChooseError::Manifest("wharf.extension is no text".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_then_the_name_then_the_only_one() {
        let named = br#"{"name": "x", "wharf": {"extension": "./dist/a.wasm"}}"#;
        let plain = br#"{"name": "x"}"#;
        for (files, manifest, expect) in [
            (&["dist/a.wasm", "extension.wasm"][..], Some(&named[..]), Ok(Some("dist/a.wasm"))),
            (&["dist/a.wasm", "extension.wasm"], Some(plain), Ok(Some("extension.wasm"))),
            (&["dist/a.wasm", "readme.md"], None, Ok(Some("dist/a.wasm"))),
            (&["readme.md", "x/extension.wasm"], None, Ok(Some("x/extension.wasm"))),
            (&["readme.md"], None, Ok(None)),
            (&[], Some(plain), Ok(None)),
            (&["b.wasm"], Some(named), Err(ChooseError::NotThere("./dist/a.wasm".into()))),
            (&["b.wasm", "c.wasm"], None, Err(ChooseError::Several("b.wasm, c.wasm".into()))),
            (
                &["b.wasm"],
                Some(br#"{"wharf": {"extension": 1}}"#),
                Err(ChooseError::Manifest("wharf.extension is no text".into())),
            ),
            (
                &["dist/a.wasm"],
                Some(br#"{"wharf": {"extension": "../../a.wasm"}}"#),
                Err(ChooseError::NotThere("../../a.wasm".into())),
            ),
        ] {
            assert_eq!(choose(files, manifest), expect, "{files:?}");
        }
        assert!(matches!(choose(&[], Some(b"{")), Err(ChooseError::Manifest(_))));
    }
}
