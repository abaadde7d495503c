//! What a session and its writer thread share: where the session is stored, the lock of
//! that file, what is to be told about it. Not the tree.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::durability::Durability;
use crate::error::LockError;
use crate::header::SessionHeader;
use crate::lock::FileLock;
use crate::notice::Notice;

#[derive(Debug)]
pub(crate) struct Shared {
    first: Place,
    lock: Mutex<Option<FileLock>>,
    notices: Mutex<Vec<Notice>>,
    durability: Mutex<Durability>,
}

/// A chain, so that what was borrowed of a place outlives a move.
#[derive(Debug)]
pub(crate) struct Place {
    /// `None` in memory.
    pub(crate) path: Option<PathBuf>,
    pub(crate) header: SessionHeader,
    next: OnceLock<Box<Place>>,
}

impl Place {
    fn new(path: Option<PathBuf>, header: SessionHeader) -> Self {
        Self { path, header, next: OnceLock::new() }
    }
}

impl Shared {
    pub(crate) fn new(path: Option<PathBuf>, header: SessionHeader) -> Self {
        Self {
            first: Place::new(path, header),
            lock: Mutex::default(),
            notices: Mutex::default(),
            durability: Mutex::default(),
        }
    }

    pub(crate) fn place(&self) -> &Place {
        let mut place = &self.first;
        while let Some(next) = place.next.get() {
            place = next;
        }
        place
    }

    /// Before there is a file, or a writer thread.
    pub(crate) fn relocate(&self, path: PathBuf, header: SessionHeader) {
        let _ = self.place().next.set(Box::new(Place::new(Some(path), header)));
    }

    /// Empty in memory.
    pub(crate) fn path(&self) -> &Path {
        self.place().path.as_deref().unwrap_or(Path::new(""))
    }

    /// `lock` is the new file's; the old one's is released.
    pub(crate) fn move_to(&self, path: PathBuf, header: SessionHeader, lock: FileLock) {
        // The writer thread alone moves a session.
        let _ = self.place().next.set(Box::new(Place::new(Some(path), header)));
        *locked(&self.lock) = Some(lock);
    }

    /// Has the file's lock, or says who does. Its folder exists.
    pub(crate) fn hold_lock(&self) -> Result<(), LockError> {
        let mut lock = locked(&self.lock);
        if lock.is_none() {
            *lock = Some(FileLock::take(self.path())?);
        }
        Ok(())
    }

    /// As [`hold_lock`](Self::hold_lock), after somebody may have removed the lock file.
    pub(crate) fn renew_lock(&self) -> Result<(), LockError> {
        let mut lock = locked(&self.lock);
        if lock.as_ref().is_none_or(|lock| !lock.is_intact()) {
            *lock = Some(FileLock::take(self.path())?);
        }
        Ok(())
    }

    pub(crate) fn release_lock(&self) {
        *locked(&self.lock) = None;
    }

    pub(crate) fn notify(&self, notice: Notice) {
        locked(&self.notices).push(notice);
    }

    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut *locked(&self.notices))
    }

    pub(crate) fn durability(&self) -> Durability {
        *locked(&self.durability)
    }

    pub(crate) fn set_durability(&self, durability: Durability) {
        *locked(&self.durability) = durability;
    }
}

/// What these mutexes guard is whole at every moment.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
