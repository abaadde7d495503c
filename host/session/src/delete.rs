//! Deletes session files. Which session is active, and must stay, is the caller's to know.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use crate::directory::EXTENSION;
use crate::error::DeleteError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteMethod {
    /// It can be taken back.
    Trash,
    Unlink,
}

impl DeleteMethod {
    /// As RPC clients get it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trash => "trash",
            Self::Unlink => "unlink",
        }
    }
}

/// Moves a session file to the trash or, where there is none, removes it. Of a link
/// the link goes. A lock file beside it that nobody holds goes too; copies that were
/// kept of it (`.torn`, `.v1.bak`) stay, as they are what is left if this was a mistake.
///
/// # Errors
/// If the name doesn't end in `.jsonl` (whether there is such a file or not), there is
/// no such file, it is a directory, or it can't be removed.
pub fn delete(path: &Path) -> Result<DeleteMethod, DeleteError> {
    delete_with(path, move_to_trash)
}

fn delete_with(
    path: &Path,
    trash: impl FnOnce(&Path) -> Result<(), trash::Error>,
) -> Result<DeleteMethod, DeleteError> {
    let ending = format!(".{EXTENSION}");
    if !path.as_os_str().as_encoded_bytes().ends_with(ending.as_bytes()) {
        return Err(DeleteError::NotASessionFile { path: path.to_owned() });
    }
    let metadata = fs::symlink_metadata(path).map_err(|error| failed(path, error))?;
    if metadata.is_dir() {
        return Err(DeleteError::Directory { path: path.to_owned() });
    }
    // Why there is no trash (another file system, no home) doesn't matter.
    let method = match trash(path) {
        Ok(()) => DeleteMethod::Trash,
        Err(_) => {
            fs::remove_file(path).map_err(|error| failed(path, error))?;
            DeleteMethod::Unlink
        }
    };
    remove_lock(path);
    Ok(method)
}

/// Removes a lock file that is left over; whoever holds one removes it itself.
fn remove_lock(session: &Path) {
    let mut lock = session.as_os_str().to_owned();
    lock.push(".lock");
    // Nearly always there is none.
    let Ok(file) = File::open(&lock) else { return };
    if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        let _ = fs::remove_file(lock);
    }
}

fn failed(path: &Path, source: io::Error) -> DeleteError {
    let path = path.to_owned();
    // A parent that is a file has nothing in it either.
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => DeleteError::NotFound { path },
        _ => DeleteError::Failed { path, source },
    }
}

fn move_to_trash(path: &Path) -> Result<(), trash::Error> {
    #[cfg_attr(not(target_os = "macos"), expect(unused_mut, reason = "macOS sets it up"))]
    let mut context = trash::TrashContext::new();
    // The other way asks the Finder, which may ask the person.
    #[cfg(target_os = "macos")]
    trash::macos::TrashContextExtMacos::set_delete_method(
        &mut context,
        trash::macos::DeleteMethod::NsFileManager,
    );
    context.delete(path)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::path::PathBuf;

    fn no_trash(_: &Path) -> Result<(), trash::Error> {
        Err(trash::Error::Unknown { description: "none".to_owned() })
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        fs::write(&path, "x").unwrap();
        (dir, path)
    }

    #[test]
    fn the_trash_comes_first() {
        let (dir, path) = folder();
        for name in ["s.jsonl.lock", "s.jsonl.torn", "s.jsonl.v1.bak"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let method = delete_with(&path, |path| {
            fs::rename(path, dir.path().join("trashed")).unwrap();
            Ok(())
        });
        assert_eq!(method.unwrap().as_str(), "trash");
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|item| item.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["s.jsonl.torn", "s.jsonl.v1.bak", "trashed"]);
    }

    #[test]
    fn without_a_trash_the_file_is_removed() {
        let (_dir, path) = folder();
        assert_eq!(delete_with(&path, no_trash).unwrap().as_str(), "unlink");
        assert!(!path.exists());
    }

    #[test]
    fn a_lock_that_is_held_stays() {
        let (dir, path) = folder();
        let lock = dir.path().join("s.jsonl.lock");
        let held = File::create(&lock).unwrap();
        held.lock().unwrap();
        delete_with(&path, no_trash).unwrap();
        assert!(lock.exists());
    }

    #[cfg(unix)]
    #[test]
    fn of_a_link_the_link_goes() {
        let (dir, path) = folder();
        for (name, target) in [("link.jsonl", path.clone()), ("dangling.jsonl", "gone".into())] {
            let link = dir.path().join(name);
            std::os::unix::fs::symlink(&target, &link).unwrap();
            delete_with(&link, no_trash).unwrap();
            assert!(fs::symlink_metadata(&link).is_err());
        }
        assert_eq!(fs::read_to_string(path).unwrap(), "x");
    }

    #[test]
    fn what_is_no_session_file_stays() {
        let (dir, _path) = folder();
        fs::write(dir.path().join("evil.txt"), "x").unwrap();
        fs::create_dir(dir.path().join("folder.jsonl")).unwrap();
        let check = |name: &str, start: &str, end: &str| {
            let path = dir.path().join(name);
            let error = delete_with(&path, |_| panic!("trashed")).unwrap_err();
            assert_eq!(error.to_string(), format!("{start}{}{end}", path.display()));
        };
        check("evil.txt", "Not a session file (expected .jsonl): ", "");
        check("missing.txt", "Not a session file (expected .jsonl): ", "");
        check("missing.jsonl", "session file ", " does not exist");
        check("s.jsonl/x.jsonl", "session file ", " does not exist");
        check("folder.jsonl", "", " is a directory; name a session file (.jsonl)");
        assert!(dir.path().join("evil.txt").exists() && dir.path().join("folder.jsonl").exists());
    }
}
