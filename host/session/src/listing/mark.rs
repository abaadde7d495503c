//! How far a file that others append to has been read, and whether it is still the
//! same file. Knows nothing of what is in it.

use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::lines::{Line, read_lines};
use crate::regular::open_regular;

/// Bytes at the start of a file, and before the mark, that must be as they were.
const CHECKED: u64 = 512;

/// File systems count time in steps of up to some ten milliseconds: a file that was
/// written less than this ago may be written again without a change of its time.
const SETTLED: Duration = Duration::from_millis(100);

/// What a look at the directory tells of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    size: u64,
    /// Nanoseconds since the Unix epoch; 0 for a time that says nothing.
    modified: u64,
    /// 0 where the system has none.
    inode: u64,
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let modified = metadata
            .modified()
            .ok()
            .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok())
            .and_then(|since| u64::try_from(since.as_nanos()).ok())
            .unwrap_or(0);
        Self { size: metadata.len(), modified, inode: inode(metadata) }
    }
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    stamp: Stamp,
    /// The start of the first line that was not finished.
    offset: u64,
    /// Hash of [`CHECKED`] bytes at the start and before `offset`.
    check: u64,
}

impl Mark {
    /// Whether nothing was written since.
    pub(crate) fn is_current(&self, metadata: &Metadata) -> bool {
        self.stamp.modified != 0 && self.stamp == Stamp::of(metadata)
    }
}

/// One reading of a file, from the mark of the last one where the file only grew.
#[derive(Debug)]
pub(crate) struct Reading {
    file: File,
    metadata: Metadata,
    offset: u64,
}

impl Reading {
    pub(crate) fn start(path: &Path, known: Option<&Mark>) -> io::Result<Self> {
        let (file, metadata) = open_listed(path)?;
        let mut reading = Self { file, metadata, offset: 0 };
        if let Some(mark) = known
            && mark.stamp.inode == inode(&reading.metadata)
            && mark.offset <= reading.metadata.len()
            && mark.check == reading.check(mark.offset)?
        {
            reading.offset = mark.offset;
        }
        Ok(reading)
    }

    /// 0: the file is read as a whole, whatever was known of it.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that are not read yet.
    pub(crate) fn rest(&self) -> u64 {
        self.metadata.len() - self.offset
    }

    /// Shows the lines that are not read yet to `visit`. What is appended meanwhile waits
    /// for the next reading.
    pub(crate) fn read(mut self, visit: impl FnMut(Line<'_>)) -> io::Result<Mark> {
        self.file.seek(SeekFrom::Start(self.offset))?;
        self.offset += read_lines((&self.file).take(self.rest()), visit)?;
        let mut stamp = Stamp::of(&self.metadata);
        let settled = self
            .metadata
            .modified()
            .is_ok_and(|time| time.elapsed().is_ok_and(|elapsed| elapsed > SETTLED));
        if !settled {
            stamp.modified = 0;
        }
        Ok(Mark { stamp, offset: self.offset, check: self.check(self.offset)? })
    }

    fn check(&mut self, offset: u64) -> io::Result<u64> {
        let mut hasher = DefaultHasher::new();
        for start in [0, offset.saturating_sub(CHECKED)] {
            let mut bytes = Vec::new();
            self.file.seek(SeekFrom::Start(start))?;
            (&self.file).take((offset - start).min(CHECKED)).read_to_end(&mut bytes)?;
            hasher.write(&bytes);
        }
        Ok(hasher.finish())
    }
}

/// A file to be listed; one that is no regular file is an error.
pub(crate) fn open_listed(path: &Path) -> io::Result<(File, Metadata)> {
    open_regular(path)?
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::fs::OpenOptions;

    use super::*;
    use std::fs;
    use std::io::Write as _;

    fn read(path: &Path, known: Option<&Mark>) -> (Vec<String>, Mark) {
        let mut lines = Vec::new();
        let mark = Reading::start(path, known)
            .unwrap()
            .read(|line| lines.push(String::from_utf8(line.bytes.to_vec()).unwrap()))
            .unwrap();
        (lines, mark)
    }

    fn append(path: &Path, text: &str) {
        OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn age(path: &Path) {
        let file = OpenOptions::new().append(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn only_what_was_added_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        fs::write(&path, "one\ntwo\nth").unwrap();
        let (lines, mark) = read(&path, None);
        assert_eq!(lines, ["one", "two", "th"]);
        assert!(!mark.is_current(&fs::metadata(&path).unwrap()), "it may change unseen");

        age(&path);
        let (_, mark) = read(&path, Some(&mark));
        assert!(mark.is_current(&fs::metadata(&path).unwrap()));
        append(&path, "ree\nfour\n");
        assert!(!mark.is_current(&fs::metadata(&path).unwrap()));
        let (lines, mark) = read(&path, Some(&mark));
        assert_eq!(lines, ["three", "four"]);
        assert_eq!(read(&path, Some(&mark)).0, [""; 0]);
    }

    #[test]
    fn another_file_is_read_from_its_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        let other = dir.path().join("other");
        for (content, how) in
            [("one\n", "shorter"), ("one\nTWO\nthree\n", "changed"), ("one\ntwo\nthree\n", "moved")]
        {
            fs::write(&path, "one\ntwo\n").unwrap();
            let (_, mark) = read(&path, None);
            if how == "moved" {
                fs::write(&other, content).unwrap();
                fs::rename(&other, &path).unwrap();
            } else {
                fs::write(&path, content).unwrap();
            }
            let (lines, _) = read(&path, Some(&mark));
            assert_eq!(lines, content.lines().collect::<Vec<_>>(), "{how}");
        }
    }
}
