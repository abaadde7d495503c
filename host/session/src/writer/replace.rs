//! What happens to a file that was read before its first line is appended: one of an older
//! version or a damaged one is replaced, a torn tail is moved out of it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::create::replace_file;
use super::stamp::{FileId, Stamp};
use crate::error::WriteError;
use crate::header::SessionHeader;

/// A last line that a crash cut off. Readers that parse every line would stumble over
/// it for ever, so the first append moves it out of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TornTail {
    /// Where it starts, in bytes.
    pub(crate) start: u64,
    /// Length of the file that was read. Another one means that somebody writes there.
    pub(crate) source_len: u64,
}

/// What is added to a file's name for the tails that were moved out of it.
const TORN_SUFFIX: &str = ".torn";

/// The version 3 form of a file that has another one.
#[derive(Debug, Clone)]
pub(crate) struct Replacement {
    /// To be written before `text`, which has none.
    pub(crate) header: Option<SessionHeader>,
    pub(crate) text: Arc<String>,
    /// Length in bytes of the file that was read; another one means that it has changed.
    pub(crate) source_len: u64,
    /// What is added to the file's name for the copy that is kept.
    pub(crate) backup: Option<String>,
}

/// What became of a file that was to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Applied {
    Replaced,
    /// It is not the one that was read; it was left alone.
    Changed,
    Missing,
}

impl Replacement {
    /// Puts the version 3 form in the place of the file that was read, which is kept
    /// beside it.
    pub(super) fn apply(&self, path: &Path, read: Option<&Stamp>) -> Result<Applied, WriteError> {
        let fail = |error| WriteError::io(path, error);
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Applied::Missing),
            Err(error) => return Err(fail(error)),
        };
        if metadata.len() != self.source_len
            || read.is_some_and(|read| read.id != FileId::of(&metadata))
        {
            return Ok(Applied::Changed);
        }
        // Where the path is a link, the file it leads to is replaced, not the link.
        let real = path.canonicalize().map_err(fail)?;
        let header = match &self.header {
            Some(header) => {
                header.to_line().map_err(|error| WriteError::Encode(Arc::new(error)))?
            }
            None => String::new(),
        };
        let write = |out: &mut dyn Write| {
            out.write_all(header.as_bytes())?;
            out.write_all(self.text.as_bytes())?;
            if !self.text.is_empty() && !self.text.ends_with('\n') {
                out.write_all(b"\n")?;
            }
            Ok(())
        };
        let keep = || self.backup.as_ref().map_or(Ok(()), |suffix| keep_copy(&real, suffix));
        replace_file(&real, write, keep).map_err(fail)?;
        Ok(Applied::Replaced)
    }
}

/// Takes a torn tail out of `file`, whose path is `path`; its bytes are kept beside it.
/// The file is as long as it was when it was read.
pub(super) fn move_torn_tail(mut file: &File, path: &Path, torn: TornTail) -> io::Result<()> {
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(torn.start))?;
    file.read_to_end(&mut tail)?;
    tail.push(b'\n');
    let mut name = path.as_os_str().to_owned();
    name.push(TORN_SUFFIX);
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut kept = options.open(name)?;
    kept.write_all(&tail)?;
    kept.sync_all()?;
    file.set_len(torn.start)
}

/// Gives the file at `path` a second name; a copy that exists is never overwritten.
fn keep_copy(path: &Path, suffix: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    let mut backup = PathBuf::from(&name);
    let mut number = 1;
    loop {
        match std::fs::hard_link(path, &backup) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // Left by an attempt that was cut off?
                if std::fs::read(&backup)? == std::fs::read(path)? {
                    return Ok(());
                }
                number += 1;
                let mut numbered = name.clone();
                numbered.push(number.to_string());
                backup = PathBuf::from(numbered);
            }
            // The file system has no hard links.
            Err(_) => {
                std::fs::copy(path, &backup)?;
                return File::open(&backup)?.sync_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::fs;

    #[test]
    fn copies_are_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        for content in ["one", "one", "two"] {
            let _ = fs::remove_file(&path);
            fs::write(&path, content).unwrap();
            keep_copy(&path, ".v1.bak").unwrap();
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("s.jsonl.v1.bak"), "one");
        assert_eq!(read("s.jsonl.v1.bak2"), "two");
    }
}
