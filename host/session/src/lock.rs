//! The advisory lock that keeps a session file to one writing process. Knows paths
//! and processes, not sessions.
//!
//! The lock is the kernel's, on `<session file>.lock` beside the real file; it goes with
//! the process that holds it, however that one ends. A lock file that nobody holds is
//! left over and is taken without further ado. What it says, as JSON, is for the error
//! text only. Where it cannot be made (a folder that can't be written) there is no lock.
//! On a file system without locks the process that the lock file names has to be alive.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::LockError;
use crate::writer::FileId;

/// What is added to a session file's name.
const SUFFIX: &str = ".lock";

/// A lock that is held for a process which its file does not (or no longer) name is in
/// passing: somebody asks for its owner, or has it since a moment ago.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// Bytes read of a lock file; Wharf writes some 60.
const MAX_CONTENT: u64 = 4096;

/// Within a process a session may be open more than once (a switch to the one that is
/// open), so the locks held are counted.
static HELD: Mutex<BTreeMap<PathBuf, Held>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Held {
    file: File,
    count: usize,
}

fn held() -> MutexGuard<'static, BTreeMap<PathBuf, Held>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to write a session file, until it is dropped.
#[derive(Debug)]
pub(crate) struct FileLock {
    /// `None` where no lock is to be had.
    key: Option<PathBuf>,
}

enum Attempt {
    Held,
    Unavailable,
    Refused(Option<Owner>),
}

type TryLock = fn(&File) -> Result<(), TryLockError>;

impl FileLock {
    /// Takes the lock of the session file at `session`, which need not exist; its folder
    /// does.
    pub(crate) fn take(session: &Path) -> Result<Self, LockError> {
        Self::take_with(session, File::try_lock)
    }

    fn take_with(session: &Path, try_lock: TryLock) -> Result<Self, LockError> {
        let key = lock_path(session);
        let mut owner = None;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(PAUSE);
            }
            match attempt_lock(&key, try_lock) {
                Attempt::Held => return Ok(Self { key: Some(key) }),
                Attempt::Unavailable => return Ok(Self { key: None }),
                Attempt::Refused(Some(other)) if other.is_another_live_process() => {
                    return Err(LockError::in_use(session, Some(other)));
                }
                Attempt::Refused(other) => owner = other,
            }
        }
        Err(LockError::in_use(session, owner))
    }

    /// False if the lock file was removed or replaced, so that others can have a lock too.
    pub(crate) fn is_intact(&self) -> bool {
        let Some(key) = &self.key else { return true };
        held().get(key).is_some_and(|held| is_at(&held.file, key))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        let mut all = held();
        let Some(held) = all.get_mut(&key) else { return };
        held.count -= 1;
        if held.count == 0 {
            // While it is locked: whoever waits for it looks whether it is still there.
            if is_at(&held.file, &key) {
                let _ = fs::remove_file(&key);
            }
            all.remove(&key);
        }
    }
}

fn attempt_lock(key: &Path, try_lock: TryLock) -> Attempt {
    let mut all = held();
    if let Some(held) = all.get_mut(key)
        && is_at(&held.file, key)
    {
        held.count += 1;
        return Attempt::Held;
    }
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600).custom_flags(open_flags());
        }
        let Ok(file) = options.open(key) else { return Attempt::Unavailable };
        match try_lock(&file) {
            // Its last owner may have removed it meanwhile.
            Ok(()) if !is_at(&file, key) => continue,
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Attempt::Refused(Owner::read(&file)),
            // No locks here.
            Err(TryLockError::Error(_)) => match Owner::read(&file) {
                Some(owner) if owner.is_another_live_process() => {
                    return Attempt::Refused(Some(owner));
                }
                _ => {}
            },
        }
        Owner::this_process().write(&file);
        // A lock whose file was removed under it keeps its holders counted.
        let count = all.get(key).map_or(0, |held| held.count) + 1;
        all.insert(key.to_owned(), Held { file, count });
        return Attempt::Held;
    }
}

/// The process that writes the session file at `session`, if there is one.
pub(crate) fn owner(session: &Path) -> Option<u32> {
    let key = lock_path(session);
    if held().get(&key).is_some_and(|held| is_at(&held.file, &key)) {
        return Some(std::process::id());
    }
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, open_flags());
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(PAUSE);
        }
        let file = options.open(&key).ok()?;
        // For a moment only; the file is closed at once.
        match file.try_lock_shared() {
            Ok(()) => return None,
            Err(TryLockError::WouldBlock) => {
                if let Some(pid) = Owner::read(&file).map(|owner| owner.pid) {
                    return Some(pid);
                }
            }
            Err(TryLockError::Error(_)) => {
                let owner = Owner::read(&file)?;
                return owner.is_another_live_process().then_some(owner.pid);
            }
        }
    }
    None
}

/// Beside the file that `session` leads to, whatever links are on the way.
fn lock_path(session: &Path) -> PathBuf {
    let real = session.canonicalize().ok().or_else(|| {
        let folder = session.parent()?.canonicalize().ok()?;
        Some(folder.join(session.file_name()?))
    });
    let mut name = real.unwrap_or_else(|| session.to_owned()).into_os_string();
    name.push(SUFFIX);
    name.into()
}

/// A link in the lock file's place must not lead to some other file, nor a FIFO stop us.
#[cfg(unix)]
fn open_flags() -> i32 {
    use rustix::fs::OFlags;
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

/// Whether `path` is a name of `file`.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(file), Ok(path)) => FileId::of(&file) == FileId::of(&path),
        _ => false,
    }
}

/// What a lock file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    #[serde(default)]
    pub(crate) host: String,
    /// When the process began, in the kernel's own unit; tells it from a later one with
    /// the same pid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_ticks: Option<u64>,
}

impl Owner {
    fn this_process() -> Self {
        let pid = std::process::id();
        Self { pid, host: host_name(), start_ticks: start_ticks(pid) }
    }

    fn read(mut file: &File) -> Option<Self> {
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).ok()?;
        file.take(MAX_CONTENT).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// An error costs others the pid in their error text, nothing else.
    fn write(&self, mut file: &File) {
        let Ok(mut text) = serde_json::to_string(self) else { return };
        text.push('\n');
        let _ = file
            .set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| file.write_all(text.as_bytes()));
    }

    pub(crate) fn is_on_this_host(&self) -> bool {
        self.host == host_name()
    }

    /// Of another host nothing can be known.
    fn is_another_live_process(&self) -> bool {
        if !self.is_on_this_host() {
            return true;
        }
        self.pid != std::process::id()
            && is_alive(self.pid)
            && (self.start_ticks.is_none() || self.start_ticks == start_ticks(self.pid))
    }
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

#[cfg(unix)]
fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    // A process that we may not signal is one all the same.
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(not(unix))]
fn is_alive(_: u32) -> bool {
    true
}

/// Field 22 of `/proc/<pid>/stat` (man 5 proc); the second, the command, may hold anything.
#[cfg(target_os = "linux")]
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(not(target_os = "linux"))]
fn start_ticks(_: u32) -> Option<u64> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn session() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        let lock = dir.path().canonicalize().unwrap().join("s.jsonl.lock");
        (dir, path, lock)
    }

    /// As a file system that has no locks answers.
    fn no_locks(_: &File) -> Result<(), TryLockError> {
        Err(TryLockError::Error(std::io::ErrorKind::Unsupported.into()))
    }

    #[test]
    fn is_shared_within_the_process_and_goes_with_the_last() {
        let (_dir, path, lock) = session();
        assert_eq!(owner(&path), None);
        let first = FileLock::take(&path).unwrap();
        let second = FileLock::take(&path).unwrap();
        assert_eq!(Owner::read(&File::open(&lock).unwrap()).unwrap(), Owner::this_process());
        drop(first);
        assert_eq!(owner(&path), Some(std::process::id()));
        drop(second);
        assert_eq!(owner(&path), None);
        assert!(!lock.exists());
    }

    #[test]
    fn left_over_files_are_taken_over() {
        let alive = Owner::this_process();
        let parent = std::os::unix::process::parent_id();
        for content in [
            String::new(),
            "{\"pid\":".to_owned(),
            "\0\0\0".to_owned(),
            // Live processes, but nobody holds the file.
            serde_json::to_string(&alive).unwrap(),
            format!("{{\"pid\":{parent},\"host\":\"{}\"}}", alive.host),
        ] {
            let (_dir, path, lock) = session();
            fs::write(&lock, &content).unwrap();
            assert_eq!(owner(&path), None, "{content}");
            let held = FileLock::take(&path).unwrap();
            assert_eq!(owner(&path), Some(alive.pid), "{content}");
            drop(held);
            assert!(!lock.exists());
        }
    }

    #[test]
    fn a_file_held_by_an_unknown_process_is_refused() {
        let (_dir, path, lock) = session();
        let other = File::create(&lock).unwrap();
        // Another open file, as another process has it.
        other.lock().unwrap();
        let error = FileLock::take(&path).unwrap_err();
        assert!(matches!(&error, LockError::InUse { pid: None, .. }), "{error}");
        assert!(error.to_string().contains("in use by another process"), "{error}");
        drop(other);
        FileLock::take(&path).unwrap();
    }

    #[test]
    fn without_locks_the_process_that_is_named_counts() {
        let here = Owner::this_process();
        let parent = std::os::unix::process::parent_id();
        let ticks = start_ticks(parent);
        for (owner, refused) in [
            (Owner { pid: parent, start_ticks: ticks, ..here.clone() }, true),
            (Owner { pid: parent, start_ticks: None, ..here.clone() }, true),
            // Its number was given to another process.
            (Owner { pid: parent, start_ticks: Some(u64::MAX), ..here.clone() }, false),
            (Owner { pid: i32::MAX as u32, start_ticks: None, ..here.clone() }, false),
            (Owner { pid: 0, start_ticks: None, ..here.clone() }, false),
            (here.clone(), false),
            (Owner { pid: 7, host: "elsewhere".to_owned(), start_ticks: None }, true),
        ] {
            let (_dir, path, lock) = session();
            fs::write(&lock, serde_json::to_string(&owner).unwrap()).unwrap();
            match FileLock::take_with(&path, no_locks) {
                Ok(_) => assert!(!refused, "{owner:?}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(refused && text.contains(&format!("process {}", owner.pid)), "{text}");
                    assert_eq!(text.contains("on elsewhere"), !owner.is_on_this_host(), "{text}");
                }
            }
        }
    }

    #[test]
    fn a_folder_that_cannot_hold_it_is_no_obstacle() {
        let (_dir, path, lock) = session();
        // Nobody can make a file here, not even root.
        fs::create_dir(&lock).unwrap();
        let held = FileLock::take(&path).unwrap();
        assert!(held.key.is_none() && held.is_intact());
        assert_eq!(owner(&path), None);
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let (dir, path, lock) = session();
        let other = dir.path().join("other");
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, &lock).unwrap();
        assert!(FileLock::take(&path).unwrap().key.is_none());
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
    }

    #[test]
    fn a_lock_file_that_was_removed_is_made_again() {
        let (_dir, path, lock) = session();
        let first = FileLock::take(&path).unwrap();
        fs::remove_file(&lock).unwrap();
        assert!(!first.is_intact());
        let second = FileLock::take(&path).unwrap();
        assert!(first.is_intact() && second.is_intact());
        drop(first);
        assert!(lock.exists());
        drop(second);
        assert!(!lock.exists());
    }
}
