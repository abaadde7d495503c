//! A file that is read again when it has changed.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file, and how it was when it was last read.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) path: PathBuf,
    /// None: it was not read. Some of none: it was not there.
    seen: Option<Stamp>,
}

/// When a file was changed, and its bytes; none: it is not there.
type Stamp = Option<(SystemTime, u64)>;

impl Watched {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), seen: None }
    }

    fn stamp(&self) -> Stamp {
        let metadata = std::fs::metadata(&self.path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    /// To be called before the file is read: a change while it is read is seen later.
    pub(super) fn note(&mut self) {
        self.seen = Some(self.stamp());
    }

    pub(super) fn forget(&mut self) {
        self.seen = None;
    }

    pub(super) fn has_changed(&self) -> bool {
        self.seen != Some(self.stamp())
    }
}
