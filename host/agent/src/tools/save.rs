//! Whole-file writes, one at a time per file.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use tempfile::NamedTempFile;
use tokio::sync::OwnedMutexGuard;

type FileLock = tokio::sync::Mutex<()>;

/// For the whole process: agents that share it share its files too.
static LOCKS: LazyLock<Mutex<HashMap<PathBuf, Weak<FileLock>>>> = LazyLock::new(Mutex::default);

/// Waits until no other call changes the file at the canonical `path`.
pub(super) async fn lock(path: &Path) -> OwnedMutexGuard<()> {
    let lock = {
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        match locks.get(path).and_then(Weak::upgrade) {
            Some(lock) => lock,
            None => {
                locks.retain(|_, lock| lock.strong_count() > 0);
                let lock = Arc::new(FileLock::new(()));
                locks.insert(path.to_path_buf(), Arc::downgrade(&lock));
                lock
            }
        }
    };
    lock.lock_owned().await
}

/// Makes `content` the whole content of the file at the canonical `path`. A crash or a
/// full disk leaves the old content, where the file can be replaced by a rename.
pub(super) fn save(path: &Path, content: &[u8]) -> io::Result<()> {
    let old = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => Some(metadata),
        Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => return Err(io::Error::other("not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if try_replace(path, old.as_ref(), content)? {
        return Ok(());
    }
    fs::write(path, content)
}

/// False where a rename would change more than the content: another name of the same
/// file would keep the old one, an owner or group would change, a write protection
/// would be passed by.
fn try_replace(path: &Path, old: Option<&fs::Metadata>, content: &[u8]) -> io::Result<bool> {
    let Some(directory) = path.parent() else { return Ok(false) };
    if old.is_some_and(|old| old.nlink() > 1 || old.permissions().readonly()) {
        return Ok(false);
    }
    let mut file = match temporary_file(directory) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
        Err(error) => return Err(error),
    };
    if let Some(old) = old {
        let new = file.as_file().metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            return Ok(false);
        }
        file.as_file().set_permissions(old.permissions())?;
    }
    file.as_file_mut().write_all(content)?;
    file.as_file().sync_data()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(true)
}

/// An error is that of the system alone: `tempfile` adds a name that nobody asked for.
fn temporary_file(directory: &Path) -> io::Result<NamedTempFile> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o666);
    let mut code = None;
    let made = tempfile::Builder::new().prefix(".wharf-").make_in(directory, |path| {
        options.open(path).inspect_err(|error| code = error.raw_os_error())
    });
    made.map_err(|error| code.map_or_else(|| error.kind().into(), io::Error::from_raw_os_error))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn mode_and_other_names_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("run.sh");
        fs::write(&script, "old").unwrap();
        fs::set_permissions(&script, Permissions::from_mode(0o751)).unwrap();
        save(&script, b"new").unwrap();
        assert_eq!(fs::read(&script).unwrap(), b"new");
        assert_eq!(fs::metadata(&script).unwrap().mode() & 0o7777, 0o751);

        let other = dir.path().join("other.sh");
        fs::hard_link(&script, &other).unwrap();
        save(&script, b"newer").unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"newer");
        // Nothing temporary stays behind.
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn only_regular_files_are_written() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(save(dir.path(), b"x").unwrap_err().kind(), io::ErrorKind::IsADirectory);
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(save(&socket, b"x").is_err());
    }

    #[test]
    fn errors_do_not_name_the_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let absent = dir.path().join("absent");
        // What cannot be made there: a folder that does not exist, and what is no folder.
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        for (parent, code) in
            [(&absent, rustix::io::Errno::NOENT), (&file, rustix::io::Errno::NOTDIR)]
        {
            let error = try_replace(&parent.join("asked"), None, b"x").unwrap_err();
            assert_eq!(error.to_string(), io::Error::from(code).to_string());
        }
    }

    #[tokio::test]
    async fn a_lock_is_per_file() {
        let first = lock(Path::new("/save-test/a")).await;
        let _other = lock(Path::new("/save-test/b")).await;
        let waiting = tokio::spawn(lock(Path::new("/save-test/a")));
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
    }
}
