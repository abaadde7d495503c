//! What was installed into an extensions directory, and the content that each component
//! is pinned to: `installed.json`. Fetching, and what a person is told, is not here.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use wharf_agent::resources::{TextFileError, read_regular};

use crate::discovery::COMPONENT_FILE;

const FILE: &str = "installed.json";

/// Versions of the file.
///
/// 1. `{"version": 1, "extensions": {ID: Entry}}`.
const VERSION: u32 = 1;

/// Bytes of the file that are read: some thousand entries.
const MAX_BYTES: u64 = 1 << 20;

/// Bytes of an id. Fixed by the WIT contract.
const MAX_ID: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum InstalledError {
    #[error("failed to read {}: {source}", .path.display())]
    Read { path: PathBuf, source: TextFileError },
    #[error("{} is broken: {problem}; repair it, or remove it and install again", .path.display())]
    Corrupt { path: PathBuf, problem: String },
    #[error("{} has version {found}, which this wharf does not know; use a newer one", .path.display())]
    Version { path: PathBuf, found: u32 },
    #[error("failed to write {}: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// One installed extension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstalledEntry {
    /// Where it came from, as it can be given to `wharf extension install`.
    pub source: String,
    /// What the source stood for then: a commit, a version, a digest. None for a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<String>,
    /// `sha256:` and 64 hex digits: the only content that is loaded.
    pub hash: String,
    /// The extension's own version.
    pub version: String,
    /// RFC 3339, UTC.
    pub installed_at: String,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    extensions: BTreeMap<String, InstalledEntry>,
}

/// Read before the rest, so that a newer file is not called broken.
#[derive(Deserialize)]
struct StoredVersion {
    version: u32,
}

/// The installed extensions of one directory, as they were when they were read.
#[derive(Debug)]
pub struct Installed {
    directory: PathBuf,
    entries: BTreeMap<String, InstalledEntry>,
}

impl Installed {
    /// Reads a directory's list; where there is none, nothing is installed.
    ///
    /// # Errors
    /// It cannot be read or understood; it is never overwritten then.
    pub fn load(directory: &Path) -> Result<Self, InstalledError> {
        let path = directory.join(FILE);
        let entries = match read_regular(&path, MAX_BYTES) {
            Ok(bytes) => parse(&path, &bytes)?,
            Err(TextFileError::Io(error)) if is_absent(&error) => BTreeMap::new(),
            Err(source) => return Err(InstalledError::Read { path, source }),
        };
        Ok(Self { directory: directory.to_owned(), entries })
    }

    /// Waits until nobody else changes the directory, which is made if need be, and reads
    /// the list as it is then.
    ///
    /// # Errors
    /// The directory cannot be written, or its list is not understood.
    pub fn lock(directory: &Path) -> Result<LockedInstalled, InstalledError> {
        let lock = lock(directory)
            .map_err(|source| InstalledError::Write { path: directory.join(FILE), source })?;
        Ok(LockedInstalled { installed: Self::load(directory)?, _lock: lock })
    }

    pub fn entries(&self) -> &BTreeMap<String, InstalledEntry> {
        &self.entries
    }

    /// Where the component of an id is, or would be.
    pub fn component(&self, id: &str) -> PathBuf {
        self.directory.join(id).join(COMPONENT_FILE)
    }
}

/// The list while nobody else may change it.
#[derive(Debug)]
pub struct LockedInstalled {
    installed: Installed,
    /// Dropped last, which lets the next one in.
    _lock: File,
}

impl LockedInstalled {
    pub fn installed(&self) -> &Installed {
        &self.installed
    }

    /// Lists an extension, in place of an earlier entry of its id.
    ///
    /// # Errors
    /// The file cannot be written; it is as it was then.
    pub fn insert(&mut self, id: &str, entry: InstalledEntry) -> Result<(), InstalledError> {
        self.change(|entries| {
            entries.insert(id.to_owned(), entry);
        })
    }

    /// Takes an extension off the list.
    ///
    /// # Errors
    /// The file cannot be written; it is as it was then.
    pub fn remove(&mut self, id: &str) -> Result<(), InstalledError> {
        self.change(|entries| {
            entries.remove(id);
        })
    }

    fn change(
        &mut self,
        change: impl FnOnce(&mut BTreeMap<String, InstalledEntry>),
    ) -> Result<(), InstalledError> {
        let mut entries = self.installed.entries.clone();
        change(&mut entries);
        let path = self.installed.directory.join(FILE);
        let stored = Stored { version: VERSION, extensions: entries };
        write(&self.installed.directory, &path, &stored)
            .map_err(|source| InstalledError::Write { path, source })?;
        self.installed.entries = stored.extensions;
        Ok(())
    }
}

/// Whether a text may be an extension's id, and so a folder's name.
pub fn is_extension_id(text: &str) -> bool {
    let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=MAX_ID).contains(&text.len()) && text.bytes().all(fits)
}

/// `sha256:` and 64 hex digits.
pub fn is_content_hash(text: &str) -> bool {
    let fits = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    text.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(fits))
}

fn is_absent(error: &io::Error) -> bool {
    // The second: the directory is a file, which whoever needs it will say.
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<BTreeMap<String, InstalledEntry>, InstalledError> {
    let broken = |problem: String| InstalledError::Corrupt { path: path.to_owned(), problem };
    let json = |error: serde_json::Error| broken(error.to_string());
    let StoredVersion { version } = serde_json::from_slice(bytes).map_err(json)?;
    if version != VERSION {
        return Err(InstalledError::Version { path: path.to_owned(), found: version });
    }
    let stored: Stored = serde_json::from_slice(bytes).map_err(json)?;
    for (id, entry) in &stored.extensions {
        // The id names a folder, which `remove` deletes: a project's list is not to reach
        // any other.
        if !is_extension_id(id) {
            return Err(broken(format!("{id:?} is no extension id")));
        }
        if !is_content_hash(&entry.hash) {
            return Err(broken(format!("{:?} is no hash of {id}", entry.hash)));
        }
    }
    Ok(stored.extensions)
}

fn lock(directory: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let lock = File::open(directory)?;
    lock.lock()?;
    Ok(lock)
}

fn write(directory: &Path, path: &Path, stored: &Stored) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(stored)?;
    text.push(b'\n');
    let mut file = tempfile::Builder::new().prefix(".tmp-").tempfile_in(directory)?;
    file.write_all(&text)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::fs;

    use super::*;

    fn entry(digit: char) -> InstalledEntry {
        InstalledEntry {
            source: "npm:demo".into(),
            resolved: Some("1.2.0".into()),
            hash: format!("sha256:{}", String::from(digit).repeat(64)),
            version: "1.2.0".into(),
            installed_at: "2026-01-02T03:04:05Z".into(),
        }
    }

    #[test]
    fn what_is_listed_is_read_again_and_can_be_taken_off() {
        let temp = tempfile::tempdir().unwrap();
        let directory = temp.path().join("extensions");
        assert!(Installed::load(&directory).unwrap().entries().is_empty());
        let mut locked = Installed::lock(&directory).unwrap();
        locked.insert("a", entry('1')).unwrap();
        locked.insert("b", entry('2')).unwrap();
        locked.insert("a", entry('3')).unwrap();
        drop(locked);
        let read = Installed::load(&directory).unwrap();
        assert_eq!(read.entries()["a"], entry('3'));
        assert_eq!(read.component("a"), directory.join("a/extension.wasm"));
        let mut locked = Installed::lock(&directory).unwrap();
        locked.remove("a").unwrap();
        assert_eq!(locked.installed().entries().keys().collect::<Vec<_>>(), ["b"]);
        drop(locked);
        assert_eq!(Installed::load(&directory).unwrap().entries().len(), 1);
        // No temporary file is left.
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn the_format_is_as_documented() {
        let temp = tempfile::tempdir().unwrap();
        let mut locked = Installed::lock(temp.path()).unwrap();
        locked.insert("demo", entry('0')).unwrap();
        let text = fs::read(temp.path().join(FILE)).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"version": 1, "extensions": {"demo": {
                "source": "npm:demo",
                "resolved": "1.2.0",
                "hash": format!("sha256:{}", "0".repeat(64)),
                "version": "1.2.0",
                "installedAt": "2026-01-02T03:04:05Z",
            }}})
        );
    }

    #[test]
    fn a_list_that_is_not_understood_is_an_error_and_stays() {
        let entry = serde_json::to_string(&entry('a')).unwrap();
        for (text, expect) in [
            ("{", "is broken"),
            ("{}", "is broken"),
            (r#"{"version": 2, "of": "the future"}"#, "has version 2"),
            (&format!(r#"{{"version": 1, "extensions": {{"../x": {entry}}}}}"#), "no extension id"),
            (&format!(r#"{{"version": 1, "extensions": {{"": {entry}}}}}"#), "no extension id"),
            (
                &format!(
                    r#"{{"version": 1, "extensions": {{"x": {}}}}}"#,
                    entry.replace("sha256:", "sha512:")
                ),
                "no hash of x",
            ),
        ] {
            let temp = tempfile::tempdir().unwrap();
            let path = temp.path().join(FILE);
            fs::write(&path, text).unwrap();
            let error = Installed::load(temp.path()).unwrap_err().to_string();
            assert!(error.contains(expect) && error.contains(FILE), "{text}: {error}");
            assert!(Installed::lock(temp.path()).is_err(), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn changes_made_at_once_are_all_kept() {
        let temp = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let directory = temp.path();
                scope.spawn(move || {
                    let mut locked = Installed::lock(directory).unwrap();
                    locked.insert(&format!("x{number}"), entry('0')).unwrap();
                });
            }
        });
        assert_eq!(Installed::load(temp.path()).unwrap().entries().len(), 8);
    }
}
