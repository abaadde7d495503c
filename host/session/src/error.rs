//! Errors of opening and of writing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::EntryId;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("session file {} does not exist", .path.display())]
    NotFound { path: PathBuf },
    #[error("{} is not a regular file; name a session file (.jsonl)", .path.display())]
    NotAFile { path: PathBuf },
    #[error("{} is no session file: it has neither a session header nor an entry", .path.display())]
    NotASession { path: PathBuf },
    #[error(
        "session {} has format version {version}, newer than the supported {supported}; \
         update wharf to open it",
        .path.display()
    )]
    TooNew { path: PathBuf, version: u64, supported: u32 },
    #[error("failed to read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
}

impl OpenError {
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if source.kind() == io::ErrorKind::NotFound {
            Self::NotFound { path }
        } else {
            Self::Read { path, source }
        }
    }
}

/// Why a line is not in the file. The line is kept, and written before the next one.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    #[error(
        "no space left to write session {}; free some, the entries are kept and written then",
        .path.display()
    )]
    DiskFull { path: PathBuf, source: Arc<io::Error> },
    #[error(
        "session {} is not writable; make it so, the entries are kept and written then",
        .path.display()
    )]
    ReadOnly { path: PathBuf, source: Arc<io::Error> },
    #[error("session file {} was removed; its new entries are in memory only", .path.display())]
    Removed { path: PathBuf },
    #[error(
        "session {} was changed by another process before it could be brought to the current \
         format; open it again",
        .path.display()
    )]
    Changed { path: PathBuf },
    #[error("failed to write session {}: {source}", .path.display())]
    Io { path: PathBuf, source: Arc<io::Error> },
    /// The writer thread is gone.
    #[error("the writer of session {} has stopped", .path.display())]
    Stopped { path: PathBuf },
    #[error("failed to encode an entry: {0}")]
    Encode(Arc<serde_json::Error>),
}

impl WriteError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        let (path, kind, source) = (path.to_owned(), source.kind(), Arc::new(source));
        match kind {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { path, source }
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path, source }
            }
            _ => Self::Io { path, source },
        }
    }
}

/// No entry has this id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {0} not found")]
pub struct UnknownEntry(pub EntryId);
