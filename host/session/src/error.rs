//! Errors of opening and of writing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::header::version_text;
use crate::lock::Owner;
use crate::{EntryId, SessionInfo};

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("session file {} does not exist", .path.display())]
    NotFound { path: PathBuf },
    #[error("{} is not a regular file; name a session file (.jsonl)", .path.display())]
    NotAFile { path: PathBuf },
    #[error("{} is no session file: it has neither a session header nor an entry", .path.display())]
    NotASession { path: PathBuf },
    #[error(
        "session {} has format version {}, newer than the supported {supported}; \
         update wharf to open it",
        .path.display(),
        version_text(*version)
    )]
    TooNew { path: PathBuf, version: u64, supported: u32 },
    #[error("failed to read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Of opening to write only.
    #[error(transparent)]
    Lock(#[from] LockError),
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

/// Why this process may not write a session file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// `pid` is unknown where the owner could not say; `host` is told if it is another one.
    #[error("{}", in_use(.path, *.pid, .host.as_deref()))]
    InUse { path: PathBuf, pid: Option<u32>, host: Option<String> },
    #[error(
        "session {} was changed by another process since it was read; open it again",
        .path.display()
    )]
    Changed { path: PathBuf },
}

impl LockError {
    pub(crate) fn in_use(path: &Path, owner: Option<Owner>) -> Self {
        let host = owner.as_ref().filter(|owner| !owner.is_on_this_host());
        Self::InUse {
            path: path.to_owned(),
            host: host.map(|owner| owner.host.clone()),
            pid: owner.map(|owner| owner.pid),
        }
    }
}

fn in_use(path: &Path, pid: Option<u32>, host: Option<&str>) -> String {
    let process = pid.map_or("another process".to_owned(), |pid| format!("process {pid}"));
    let host = host.map_or(String::new(), |host| format!(" on {host}"));
    format!(
        "session {} is in use by {process}{host}; end that one, or work on a copy (--fork, or fork: true)",
        path.display()
    )
}

/// The store, or a folder of it, can't be read. That it doesn't exist is no error.
#[derive(Debug, thiserror::Error)]
#[error("failed to read session directory {}", .path.display())]
pub struct ListError {
    pub path: PathBuf,
    pub source: io::Error,
}

impl ListError {
    pub(crate) fn new(path: &Path, source: io::Error) -> Self {
        Self { path: path.to_owned(), source }
    }
}

/// No single session has the id that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error(
        "no session in {} has an id that starts with {what:?}; name a session file, or choose \
         from the list of sessions",
        .looked_in.display()
    )]
    NotFound { what: String, looked_in: PathBuf },
    #[error(
        "{total} sessions match {what:?}; name more of the id, or the file:{}",
        candidate_lines(.candidates, *.total)
    )]
    Ambiguous {
        what: String,
        /// At most [`FindError::MAX_CANDIDATES`] of them, most recently modified first.
        candidates: Vec<SessionInfo>,
        total: usize,
    },
    #[error(transparent)]
    Store(#[from] ListError),
}

impl FindError {
    pub const MAX_CANDIDATES: usize = 10;
}

/// Characters of a first message in an error.
const PREVIEW: usize = 60;

fn candidate_lines(candidates: &[SessionInfo], total: usize) -> String {
    let mut lines = String::new();
    for session in candidates {
        // The same id twice is a copied file.
        let copied = candidates.iter().filter(|other| other.id == session.id).count() > 1;
        let name = if copied { session.path.display().to_string() } else { session.id.clone() };
        let words: Vec<&str> = session.first_message.split_whitespace().collect();
        let preview: String = words.join(" ").chars().take(PREVIEW).collect();
        lines.push_str(&format!("\n  {name}  {}  {preview}", session.cwd.display()));
    }
    if total > candidates.len() {
        lines.push_str(&format!("\n  and {} more", total - candidates.len()));
    }
    lines
}

/// Why there is no fork, branched or imported session; none was created.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error(transparent)]
    Source(#[from] OpenError),
    #[error("session {} has no entries; there is nothing to copy", .path.display())]
    Empty { path: PathBuf },
    #[error(transparent)]
    UnknownEntry(#[from] UnknownEntry),
    #[error("session {id} is in the store already, as {}; open or fork that one", .path.display())]
    Exists { id: String, path: PathBuf },
    #[error(transparent)]
    Store(#[from] ListError),
    #[error("failed to write session {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
}

#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    // The text is fixed by the RPC reference.
    #[error("Not a session file (expected .jsonl): {}", .path.display())]
    NotASessionFile { path: PathBuf },
    #[error("session file {} does not exist", .path.display())]
    NotFound { path: PathBuf },
    #[error("{} is a directory; name a session file (.jsonl)", .path.display())]
    Directory { path: PathBuf },
    #[error("failed to delete session {}", .path.display())]
    Failed { path: PathBuf, source: io::Error },
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
    /// Another live process writes there.
    #[error("{}", in_use(.path, *.pid, .host.as_deref()))]
    InUse { path: PathBuf, pid: Option<u32>, host: Option<String> },
    #[error(
        "session {} was changed by another process before it could be brought to the current \
         format; open it again",
        .path.display()
    )]
    Changed { path: PathBuf },
    #[error("failed to write session {}: {source}", .path.display())]
    Io { path: PathBuf, source: Arc<io::Error> },
    /// The exception: the line is in the file, though perhaps not on the disk.
    #[error(
        "failed to force session {} onto the disk: {source}; what it got last may not survive a \
         loss of power",
        .path.display()
    )]
    Sync { path: PathBuf, source: Arc<io::Error> },
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

impl From<LockError> for WriteError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::InUse { path, pid, host } => Self::InUse { path, pid, host },
            LockError::Changed { path } => Self::Changed { path },
        }
    }
}

/// No entry has this id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {0} not found")]
pub struct UnknownEntry(pub EntryId);
