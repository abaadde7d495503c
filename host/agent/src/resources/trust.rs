//! Which project directories a person trusts. What trust opens is decided by the
//! callers; grants of single extensions are kept elsewhere.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::text_file::{self, TextFileError};
use serde::{Deserialize, Serialize};

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("failed to read the trusted projects in {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "the list of trusted projects {path} is broken, so no project is trusted: {source}; repair or remove the file",
        path = path.display()
    )]
    Corrupt { path: PathBuf, source: serde_json::Error },
    #[error("failed to write the trusted projects to {path}: {source}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot trust {path}: {source}", path = path.display())]
    Unresolved { path: PathBuf, source: io::Error },
    #[error("cannot trust {path}: it is not a directory", path = path.display())]
    NotADirectory { path: PathBuf },
    #[error("cannot trust {path}: its name is not UTF-8", path = path.display())]
    NotUtf8 { path: PathBuf },
}

/// `trusted.json`: `{"projects": ["/canonical/dir"]}`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct TrustFile {
    projects: BTreeSet<PathBuf>,
}

/// The trusted project directories of one agent directory.
#[derive(Debug)]
pub struct TrustStore {
    file: PathBuf,
    projects: BTreeSet<PathBuf>,
}

impl TrustStore {
    /// Reads the list. A file that does not exist trusts nothing; one that cannot be
    /// understood is an error, and is never overwritten.
    pub fn load(file: impl Into<PathBuf>) -> Result<Self, TrustError> {
        let file = file.into();
        let projects = read(&file)?;
        Ok(Self { file, projects })
    }

    /// Whether exactly this directory is trusted. Its descendants are not, for one may be
    /// a hostile clone; nor are its ancestors.
    pub fn is_trusted(&self, dir: &Path) -> bool {
        !self.projects.is_empty()
            && dir.canonicalize().is_ok_and(|canonical| self.projects.contains(&canonical))
    }

    pub fn projects(&self) -> impl Iterator<Item = &Path> {
        self.projects.iter().map(PathBuf::as_path)
    }

    /// Trusts a directory and returns its canonical path.
    pub fn trust(&mut self, dir: &Path) -> Result<PathBuf, TrustError> {
        let canonical = dir
            .canonicalize()
            .map_err(|source| TrustError::Unresolved { path: dir.to_path_buf(), source })?;
        if !canonical.is_dir() {
            return Err(TrustError::NotADirectory { path: canonical });
        }
        if canonical.to_str().is_none() {
            return Err(TrustError::NotUtf8 { path: canonical });
        }
        self.change(|projects| projects.insert(canonical.clone()))?;
        Ok(canonical)
    }

    /// Takes trust back and returns the paths that were removed: none when the directory
    /// was not trusted. The directory need not exist any more.
    pub fn untrust(&mut self, dir: &Path) -> Result<Vec<PathBuf>, TrustError> {
        let mut removed = Vec::new();
        let spellings = BTreeSet::from([dir.to_path_buf(), canonical_as_far_as_possible(dir)]);
        self.change(|projects| {
            removed.extend(spellings.into_iter().filter(|path| projects.remove(path)));
            !removed.is_empty()
        })?;
        Ok(removed)
    }

    /// Applies a change to the newest list on disk, so that two processes do not undo
    /// each other's. `change` says whether there is something to write.
    fn change(
        &mut self,
        change: impl FnOnce(&mut BTreeSet<PathBuf>) -> bool,
    ) -> Result<(), TrustError> {
        let parent = self.file.parent().filter(|dir| !dir.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let failed = |source| TrustError::Write { path: self.file.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
        let lock = File::open(parent).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut projects = read(&self.file)?;
        if change(&mut projects) {
            let content = TrustFile { projects: projects.clone() };
            write(&self.file, &content, parent).map_err(failed)?;
        }
        self.projects = projects;
        Ok(())
    }
}

fn read(file: &Path) -> Result<BTreeSet<PathBuf>, TrustError> {
    match text_file::read_regular(file, text_file::MAX_BYTES) {
        Ok(bytes) => serde_json::from_slice::<TrustFile>(&bytes)
            .map(|content| content.projects)
            .map_err(|source| TrustError::Corrupt { path: file.to_path_buf(), source }),
        Err(error) if error.is_not_found() => Ok(BTreeSet::new()),
        Err(TextFileError::Io(source)) => {
            Err(TrustError::Read { path: file.to_path_buf(), source })
        }
        Err(other) => Err(TrustError::Read {
            path: file.to_path_buf(),
            source: io::Error::other(other.to_string()),
        }),
    }
}

/// The temporary file has mode 0600, and keeps it when it takes the list's place.
fn write(file: &Path, content: &TrustFile, parent: &Path) -> io::Result<()> {
    let mut temporary = tempfile::Builder::new().prefix(".trusted-").tempfile_in(parent)?;
    serde_json::to_writer_pretty(&mut temporary, content)?;
    temporary.write_all(b"\n")?;
    temporary.as_file().sync_all()?;
    temporary.persist(file)?;
    File::open(parent)?.sync_all()
}

/// The canonical path of the deepest part that still exists, and the rest as it is.
fn canonical_as_far_as_possible(dir: &Path) -> PathBuf {
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let mut rest: Vec<OsString> = Vec::new();
    let mut existing = absolute.as_path();
    loop {
        if let Ok(canonical) = existing.canonicalize() {
            return rest.iter().rev().fold(canonical, |path, name| path.join(name));
        }
        match (existing.parent(), existing.file_name()) {
            (Some(parent), Some(name)) => {
                rest.push(name.to_owned());
                existing = parent;
            }
            _ => return dir.to_path_buf(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::os::unix::fs::{PermissionsExt, symlink};

    use std::fs;

    use super::*;

    struct Setup {
        root: tempfile::TempDir,
    }

    impl Setup {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("work/project/vendor/clone")).unwrap();
            Self { root }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().canonicalize().unwrap().join(name)
        }

        fn load(&self) -> Result<TrustStore, TrustError> {
            TrustStore::load(self.path("agent/trusted.json"))
        }
    }

    #[test]
    fn trust_is_for_exactly_one_directory_and_is_kept() {
        let setup = Setup::new();
        let mut store = setup.load().unwrap();
        assert!(!store.is_trusted(&setup.path("work/project")));
        let canonical = store.trust(&setup.path("work/project/vendor/..")).unwrap();
        assert_eq!(canonical, setup.path("work/project"));

        let store = setup.load().unwrap();
        assert!(store.is_trusted(&setup.path("work/project")));
        assert!(!store.is_trusted(&setup.path("work")));
        assert!(!store.is_trusted(&setup.path("work/project/vendor")));
        assert!(!store.is_trusted(&setup.path("work/project/vendor/clone")));
        assert!(!store.is_trusted(&setup.path("work/absent")));
        let text = fs::read_to_string(setup.path("agent/trusted.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json, serde_json::json!({"projects": [canonical]}));
    }

    #[test]
    fn a_link_is_its_target() {
        let setup = Setup::new();
        symlink(setup.path("work/project"), setup.path("link")).unwrap();
        let mut store = setup.load().unwrap();
        assert_eq!(store.trust(&setup.path("link")).unwrap(), setup.path("work/project"));
        assert!(store.is_trusted(&setup.path("link")));
        // The link is turned to another place: trust does not follow it.
        fs::remove_file(setup.path("link")).unwrap();
        symlink(setup.path("work/project/vendor"), setup.path("link")).unwrap();
        assert!(!store.is_trusted(&setup.path("link")));
    }

    #[test]
    fn only_the_owner_can_read_the_file() {
        let setup = Setup::new();
        setup.load().unwrap().trust(&setup.path("work")).unwrap();
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(setup.path("agent/trusted.json")), 0o600);
        assert_eq!(mode(setup.path("agent")), 0o700);
        let names: Vec<_> = fs::read_dir(setup.path("agent")).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file stays behind");
    }

    #[test]
    fn untrust_works_for_a_directory_that_is_gone() {
        let setup = Setup::new();
        symlink(setup.path("work"), setup.path("link")).unwrap();
        let mut store = setup.load().unwrap();
        store.trust(&setup.path("work/project")).unwrap();
        store.trust(&setup.path("work")).unwrap();
        fs::remove_dir_all(setup.path("work/project")).unwrap();
        assert_eq!(
            store.untrust(&setup.path("link/project")).unwrap(),
            [setup.path("work/project")]
        );
        assert_eq!(store.untrust(&setup.path("link/project")).unwrap(), [] as [PathBuf; 0]);
        let store = setup.load().unwrap();
        assert_eq!(store.projects().collect::<Vec<_>>(), [setup.path("work")]);
    }

    #[test]
    fn a_relative_path_that_is_gone_starts_at_the_working_directory() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        let name = "no-such-directory/below";
        assert_eq!(canonical_as_far_as_possible(Path::new(name)), here.join(name));
    }

    #[test]
    fn what_another_process_wrote_meanwhile_is_kept() {
        let setup = Setup::new();
        let (mut one, mut two) = (setup.load().unwrap(), setup.load().unwrap());
        one.trust(&setup.path("work")).unwrap();
        two.trust(&setup.path("work/project")).unwrap();
        assert!(two.is_trusted(&setup.path("work")));
        assert_eq!(setup.load().unwrap().projects().count(), 2);
    }

    #[test]
    fn a_corrupt_file_is_named_and_left_alone() {
        let setup = Setup::new();
        let mut store = setup.load().unwrap();
        fs::create_dir(setup.path("agent")).unwrap();
        let file = setup.path("agent/trusted.json");
        for content in ["{\"projects\": [", "[]", "{}", "{\"projects\": \"/\"}", ""] {
            fs::write(&file, content).unwrap();
            let error = setup.load().unwrap_err();
            assert!(matches!(error, TrustError::Corrupt { .. }), "{content}: {error}");
            assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
            store.trust(&setup.path("work")).unwrap_err();
            store.untrust(&setup.path("work")).unwrap_err();
            assert!(!store.is_trusted(&setup.path("work")));
            assert_eq!(fs::read_to_string(&file).unwrap(), content);
        }
    }

    #[test]
    fn only_a_directory_that_exists_can_be_trusted() {
        let setup = Setup::new();
        let mut store = setup.load().unwrap();
        fs::write(setup.path("file"), "").unwrap();
        let error = store.trust(&setup.path("file")).unwrap_err();
        assert!(error.to_string().ends_with("it is not a directory"), "{error}");
        assert!(matches!(store.trust(&setup.path("absent")), Err(TrustError::Unresolved { .. })));
        assert!(!setup.path("agent").exists(), "nothing was written");
    }
}
