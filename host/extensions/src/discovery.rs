//! Where extensions are: explicit paths, settings, the project, the user. Only
//! files are looked at here, not what is in them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::installed::{Installed, InstalledError};

/// The component in an extension's folder.
pub(crate) const COMPONENT_FILE: &str = "extension.wasm";

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

/// Where an extension was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Named on the command line.
    Explicit,
    /// Named by settings.
    Settings,
    /// In the project's directory.
    Project,
    /// In the agent directory.
    User,
}

/// One extension that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Canonical.
    pub(crate) path: PathBuf,
    /// The folder's name, or the file's without `.wasm`.
    pub(crate) name: String,
    pub(crate) scope: Scope,
    /// The only content that may be loaded, `sha256:HEX`; none for what was not installed.
    pub(crate) pinned: Option<String>,
}

impl Found {
    /// Named on the command line.
    pub(crate) fn is_explicit(&self) -> bool {
        self.scope == Scope::Explicit
    }
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
    #[error("{source}; until then nothing in {} is loaded", .path.display())]
    Installed { path: PathBuf, source: InstalledError },
}

impl DiscoveryError {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Missing { path, .. }
            | Self::NoComponent { path }
            | Self::Unreadable { path, .. }
            | Self::Installed { path, .. } => path,
        }
    }
}

/// All extensions in load order; the first of several paths to one file counts.
pub(crate) fn discover(sources: &Sources) -> (Vec<Found>, Vec<DiscoveryError>) {
    let mut found = Vec::new();
    let mut errors = Vec::new();
    for path in &sources.explicit {
        push(named(path, Scope::Explicit), &mut found, &mut errors);
    }
    for path in &sources.settings {
        push(named(path, Scope::Settings), &mut found, &mut errors);
    }
    let mut pins = HashMap::new();
    let directories = [(&sources.project_dir, Scope::Project), (&sources.user_dir, Scope::User)];
    for (directory, scope) in directories {
        let Some(directory) = directory else { continue };
        if let Err(source) = add_pins(directory, &mut pins) {
            errors.push(DiscoveryError::Installed { path: directory.clone(), source });
            continue;
        }
        match in_directory(directory) {
            Ok(paths) => {
                for path in paths {
                    push(named(&path, scope), &mut found, &mut errors);
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
        let wanted = extension.is_explicit() || !sources.disabled.contains(&extension.name);
        wanted && seen.insert(extension.path.clone())
    });
    for extension in &mut found {
        extension.pinned = pins.remove(&extension.path);
    }
    (found, errors)
}

/// Adds what each installed component of a directory must be, by its canonical file: it
/// counts however the file was named.
fn add_pins(directory: &Path, pins: &mut HashMap<PathBuf, String>) -> Result<(), InstalledError> {
    let installed = Installed::load(directory)?;
    for (id, entry) in installed.entries() {
        // One that is gone is not loaded anyway.
        if let Ok(path) = fs::canonicalize(installed.component(id)) {
            pins.insert(path, entry.hash.clone());
        }
    }
    Ok(())
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
pub(crate) fn named(path: &Path, scope: Scope) -> Result<Found, DiscoveryError> {
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
        return Ok(Found { path: canonical, name, scope, pinned: None });
    }
    let file = canonical.join(COMPONENT_FILE);
    match fs::canonicalize(&file) {
        Ok(file) => {
            Ok(Found { path: file, name: text(canonical.file_name()), scope, pinned: None })
        }
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
    fn installed_components_are_pinned_and_a_broken_list_loads_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        for file in ["user/own.wasm", "user/demo/extension.wasm", "project/x.wasm"] {
            touch(&root, file);
        }
        let hash = format!("sha256:{}", "0".repeat(64));
        let entry = crate::installed::InstalledEntry {
            source: "npm:demo".into(),
            resolved: None,
            hash: hash.clone(),
            version: "1.0.0".into(),
            installed_at: "2026-01-02T03:04:05Z".into(),
        };
        let mut locked = Installed::lock(&root.join("user")).unwrap();
        locked.insert("demo", entry.clone()).unwrap();
        locked.insert("gone", entry).unwrap();
        let mut sources = Sources {
            explicit: vec![root.join("user/demo")],
            project_dir: Some(root.join("project")),
            user_dir: Some(root.join("user")),
            ..Sources::default()
        };
        for explicit in [sources.explicit.clone(), Vec::new()] {
            sources.explicit = explicit;
            let (mut found, errors) = discover(&sources);
            found.sort_by(|a, b| a.name.cmp(&b.name));
            let pins: Vec<_> =
                found.iter().map(|f| (f.name.as_str(), f.pinned.as_deref())).collect();
            assert_eq!(pins, [("demo", Some(hash.as_str())), ("own", None), ("x", None)]);
            assert!(errors.is_empty(), "{errors:?}");
        }
        fs::write(root.join("user/installed.json"), "{").unwrap();
        let (found, errors) = discover(&sources);
        assert_eq!(found.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["x"]);
        let error = errors[0].to_string();
        assert!(error.contains("installed.json is broken"), "{error}");
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
