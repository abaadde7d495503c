//! What happened to a session's file while the session was open.

use std::fmt;
use std::path::PathBuf;

/// Something a person should know, though nothing is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The file was deleted; it was written again from memory.
    Recreated { path: PathBuf },
    /// Another file is in the file's place, or others wrote into it: it was left alone, and
    /// the whole session is in a new file.
    Moved { from: PathBuf, to: PathBuf },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recreated { path } => write!(
                f,
                "session file {} was deleted while the session was open; it was written again, \
                 with all of the session",
                path.display()
            ),
            Self::Moved { from, to } => write!(
                f,
                "session file {} was replaced or cut by another program; it is left as it is, \
                 and the session goes on in {}",
                from.display(),
                to.display()
            ),
        }
    }
}
