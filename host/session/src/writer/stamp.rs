//! Which file it is, and how far what we know of it goes.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes at the end of what we know that are looked at again when others wrote after them.
const TAIL: usize = 64;

/// A file, whatever its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    #[cfg(unix)]
    pub(crate) fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Elsewhere an open file can be neither removed nor replaced.
    #[cfg(not(unix))]
    pub(crate) fn of(_: &Metadata) -> Self {
        Self { device: 0, inode: 0 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) id: FileId,
    /// Bytes of the file that we read or wrote.
    pub(crate) end: u64,
    /// The last of them, as far as they are known.
    tail: Vec<u8>,
}

impl Stamp {
    /// Of a file with this content.
    pub(crate) fn new(metadata: &Metadata, content: &[u8]) -> Self {
        let mut stamp = Self { id: FileId::of(metadata), end: 0, tail: Vec::new() };
        stamp.extend(content, content.len() as u64);
        stamp
    }

    /// Of a file whose content is known to be ours.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let mut stamp = Self { id: FileId::of(&metadata), end: metadata.len(), tail: Vec::new() };
        stamp.tail = read_before(file, stamp.end, TAIL)?;
        Ok(stamp)
    }

    /// After `written` went to the file, which now goes to `end`.
    pub(crate) fn extend(&mut self, written: &[u8], end: u64) {
        self.end = end;
        // Where others wrote meanwhile, what stands before ours is not known.
        self.tail.clear();
        self.tail.extend_from_slice(&written[written.len().saturating_sub(TAIL)..]);
    }

    /// Whether what we know is still there, as far as its last bytes tell.
    pub(crate) fn is_kept_in(&self, file: &File) -> io::Result<bool> {
        Ok(read_before(file, self.end, self.tail.len())? == self.tail)
    }

    /// Whether what we know is all that stands at `path`.
    pub(crate) fn is_whole_of(&self, path: &Path) -> bool {
        std::fs::metadata(path)
            .is_ok_and(|metadata| FileId::of(&metadata) == self.id && metadata.len() == self.end)
    }

    pub(crate) fn ends_line(&self) -> bool {
        self.tail.last().is_none_or(|byte| *byte == b'\n')
    }
}

/// Up to `len` bytes before `end`.
fn read_before(mut file: &File, end: u64, len: usize) -> io::Result<Vec<u8>> {
    let start = end.saturating_sub(len as u64);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::with_capacity(len);
    file.take(end - start).read_to_end(&mut bytes)?;
    Ok(bytes)
}
