//! Reads `auth.json`: keys by provider, `{"PROVIDER": {"type": "api_key", "key": "..."}}`.
//! Entries of other types are somebody else's and are left alone.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::config::{is_blank_source, without_value};

/// The texts of the keys (see `auth`), and what is wrong with the file.
pub(super) fn read(path: &Path) -> (HashMap<String, String>, Vec<String>) {
    let text = match crate::read_file(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Default::default(),
        Err(error) => return (HashMap::new(), vec![format!("failed to read it: {error}")]),
    };
    let (keys, mut problems) = parse(&text);
    problems.extend(too_open(path));
    (keys, problems)
}

/// Keys are for their owner's eyes.
#[cfg(unix)]
fn too_open(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;

    let mode = std::fs::metadata(path).ok()?.mode() & 0o777;
    (mode & 0o077 != 0).then(|| {
        format!(
            "other users may read the keys in it (mode {mode:o}); run: chmod 600 {}",
            path.display()
        )
    })
}

#[cfg(not(unix))]
fn too_open(_: &Path) -> Option<String> {
    None
}

fn parse(text: &str) -> (HashMap<String, String>, Vec<String>) {
    if text.trim().is_empty() {
        return Default::default();
    }
    let file: Map<String, Value> = match serde_json::from_str(text) {
        Ok(file) => file,
        Err(error) => return (HashMap::new(), vec![without_value(&error)]),
    };
    let mut keys = HashMap::new();
    let mut problems = Vec::new();
    for (provider, entry) in file {
        let kind = entry.get("type").and_then(Value::as_str);
        match (kind, entry.get("key").and_then(Value::as_str)) {
            (None, _) => problems.push(format!("{provider}.type: missing; \"api_key\" is one")),
            (Some("api_key"), None) => problems.push(format!("{provider}.key: it must be a text")),
            (Some("api_key"), Some(key)) if is_blank_source(key) => {
                problems.push(format!("{provider}.key: it is empty"));
            }
            (Some("api_key"), Some(key)) => {
                keys.insert(provider, key.to_owned());
            }
            (Some(_), _) => {}
        }
    }
    (keys, problems)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn keys_are_read_and_problems_placed() {
        for (text, keys, problems) in [
            ("", vec![], vec![]),
            (
                r#"{"a":{"type":"api_key","key":"k"},"b":{"type":"oauth","refresh":"r"}}"#,
                vec!["a"],
                vec![],
            ),
            (
                r#"{"a":{"key":"k"},"b":{"type":"api_key"},"c":{"type":"api_key","key":" "},"d":7,"e":{"type":"api_key","key":"k"}}"#,
                vec!["e"],
                vec!["a.type: ", "b.key: it must be a text", "c.key: it is empty", "d.type: "],
            ),
            ("{\n\"a\" 1}", vec![], vec!["expected `:` at line 2 column 5"]),
            ("[]", vec![], vec!["invalid type: sequence, expected a map at line 1"]),
        ] {
            let (found, seen) = parse(text);
            let names: Vec<_> = found.keys().collect();
            assert_eq!(names, keys, "{text}");
            assert_eq!(seen.len(), problems.len(), "{text}: {seen:?}");
            for (seen, expect) in seen.iter().zip(problems) {
                assert!(seen.starts_with(expect), "{text}: {seen}");
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_used_with_a_warning() {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth.json");
        std::fs::write(&path, r#"{"a":{"type":"api_key","key":"k"}}"#).unwrap();
        for (mode, warned) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let (keys, problems) = read(&path);
            assert_eq!(keys.len(), 1, "{mode:o}");
            let fix = format!("chmod 600 {}", path.display());
            assert_eq!(problems.iter().any(|p| p.ends_with(&fix)), warned, "{problems:?}");
        }
        assert_eq!(read(&dir.path().join("absent.json")), Default::default());
    }
}
