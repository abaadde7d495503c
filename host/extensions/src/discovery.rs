//! Where extensions are: explicit paths, settings, the project, the user. Only
//! files are looked at here, not what is in them.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The component in an extension's folder.
const COMPONENT_FILE: &str = "extension.wasm";

/// Where to look, in load order.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// `-e PATH`, in the order given: a `.wasm` file, or a folder with `extension.wasm`.
    pub explicit: Vec<PathBuf>,
    /// Paths that settings name; the same forms.
    pub settings: Vec<PathBuf>,
    /// `.wharf/extensions` of the project. None unless the project is trusted.
    pub project_dir: Option<PathBuf>,
    /// `extensions` of the agent dir.
    pub user_dir: Option<PathBuf>,
    /// Names (file stem or folder) that are not loaded unless named explicitly.
    pub disabled: Vec<String>,
}

/// One extension that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Canonical.
    pub(crate) path: PathBuf,
    /// The folder's name, or the file's without `.wasm`.
    pub(crate) name: String,
    /// Named on the command line.
    pub(crate) is_explicit: bool,
}

/// A path that led to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiscoveryError {
    #[error("there is no extension at {}: {source}", .path.display())]
    Missing { path: PathBuf, source: io::Error },
    #[error("there is no {COMPONENT_FILE} in the folder {}", .path.display())]
    NoComponent { path: PathBuf },
    #[error("failed to read the extension folder {}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
}

impl DiscoveryError {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Missing { path, .. }
            | Self::NoComponent { path }
            | Self::Unreadable { path, .. } => path,
        }
    }
}

/// All extensions in load order; the first of several paths to one file counts.
pub(crate) fn discover(sources: &Sources) -> (Vec<Found>, Vec<DiscoveryError>) {
    let mut found = Vec::new();
    let mut errors = Vec::new();
    for path in &sources.explicit {
        push(named(path), &mut found, &mut errors);
    }
    for extension in &mut found {
        extension.is_explicit = true;
    }
    for path in &sources.settings {
        push(named(path), &mut found, &mut errors);
    }
    for directory in [&sources.project_dir, &sources.user_dir].into_iter().flatten() {
        match in_directory(directory) {
            Ok(paths) => {
                for path in paths {
                    push(named(&path), &mut found, &mut errors);
                }
            }
            Err(source) if source.kind() == io::ErrorKind::NotFound => {}
            Err(source) => {
                errors.push(DiscoveryError::Unreadable { path: directory.clone(), source });
            }
        }
    }
    let mut seen = HashSet::new();
    found.retain(|extension| {
        let wanted = extension.is_explicit || !sources.disabled.contains(&extension.name);
        wanted && seen.insert(extension.path.clone())
    });
    (found, errors)
}

fn push(
    result: Result<Found, DiscoveryError>,
    found: &mut Vec<Found>,
    errors: &mut Vec<DiscoveryError>,
) {
    match result {
        Ok(extension) => found.push(extension),
        Err(error) => errors.push(error),
    }
}

/// A path that somebody named.
fn named(path: &Path) -> Result<Found, DiscoveryError> {
    let missing = |source| DiscoveryError::Missing { path: path.to_owned(), source };
    let canonical = fs::canonicalize(path).map_err(missing)?;
    if !fs::metadata(&canonical).map_err(missing)?.is_dir() {
        let name = text(path.file_stem());
        // `-e folder/extension.wasm` and `-e folder` are the same extension.
        let name = match canonical.parent() {
            Some(folder) if path.file_name().is_some_and(|file| file == COMPONENT_FILE) => {
                text(folder.file_name())
            }
            _ => name,
        };
        return Ok(Found { path: canonical, name, is_explicit: false });
    }
    let file = canonical.join(COMPONENT_FILE);
    match fs::canonicalize(&file) {
        Ok(file) => Ok(Found { path: file, name: text(canonical.file_name()), is_explicit: false }),
        Err(_) => Err(DiscoveryError::NoComponent { path: path.to_owned() }),
    }
}

/// `*.wasm` and `*/extension.wasm` of a directory, by name.
fn in_directory(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_component = path.extension().is_some_and(|extension| extension == "wasm");
        if path.is_dir() {
            let file = path.join(COMPONENT_FILE);
            if file.is_file() {
                paths.push(file);
            }
        } else if is_component {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn text(name: Option<&std::ffi::OsStr>) -> String {
    name.unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn touch(root: &Path, file: &str) -> PathBuf {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, b"").unwrap();
        path
    }

    #[test]
    fn load_order_is_explicit_settings_project_user_and_a_file_counts_once() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        for file in [
            "project/b.wasm",
            "project/a/extension.wasm",
            "project/notes.txt",
            "project/empty/x",
            "user/c.wasm",
            "user/off.wasm",
            "set/s.wasm",
            "cli/z.wasm",
        ] {
            touch(&root, file);
        }
        std::os::unix::fs::symlink(root.join("project/b.wasm"), root.join("user/again.wasm"))
            .unwrap();
        let sources = Sources {
            explicit: vec![root.join("cli/z.wasm"), root.join("project/a")],
            settings: vec![root.join("set/s.wasm")],
            project_dir: Some(root.join("project")),
            user_dir: Some(root.join("user")),
            disabled: vec!["off".into()],
        };
        let (found, errors) = discover(&sources);
        let names: Vec<&str> = found.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["z", "a", "s", "b", "c"]);
        assert!(errors.is_empty());
        assert_eq!(found[1].path, root.join("project/a/extension.wasm"));
    }

    #[test]
    fn what_was_named_and_is_not_there_is_an_error_that_names_it() {
        let temp = tempfile::tempdir().unwrap();
        touch(temp.path(), "folder/readme");
        let sources = Sources {
            explicit: vec![temp.path().join("none.wasm"), temp.path().join("folder")],
            project_dir: Some(temp.path().join("no-such-dir")),
            ..Sources::default()
        };
        let (found, errors) = discover(&sources);
        assert!(found.is_empty());
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors[0].contains("none.wasm"), "{errors:?}");
        assert!(errors[1].contains("no extension.wasm in the folder"), "{errors:?}");
    }

    #[test]
    fn a_disabled_extension_still_loads_when_it_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let path = touch(temp.path(), "x.wasm");
        let sources =
            Sources { explicit: vec![path], disabled: vec!["x".into()], ..Sources::default() };
        assert_eq!(discover(&sources).0.len(), 1);
    }
}
