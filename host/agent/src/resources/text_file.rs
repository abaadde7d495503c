//! Reading the small text files that a person writes, within a size limit.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::Path;

/// Largest skill, prompt template, context or settings file that is read. Far above
/// any that a model could use, far below what would hurt the process.
pub(super) const MAX_BYTES: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum TextFileError {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("is not a regular file")]
    NotAFile,
    #[error("is larger than {limit} bytes")]
    TooLarge { limit: u64 },
}

impl TextFileError {
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Reads a regular file of at most `limit` bytes. Anything else under its name (a
/// FIFO, a device) is refused, and never waited for.
///
/// # Errors
/// It cannot be read, is not a regular file, or is too large.
pub fn read_regular(path: &Path, limit: u64) -> Result<Vec<u8>, TextFileError> {
    // Without O_NONBLOCK opening a FIFO waits for its writer, and so do reads of some
    // files in /proc that look regular.
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.bits().cast_signed(),
    );
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(TextFileError::NotAFile);
    }
    if metadata.len() > limit {
        return Err(TextFileError::TooLarge { limit });
    }
    // Room for the whole file makes this two reads instead of ten.
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(TextFileError::TooLarge { limit });
    }
    Ok(bytes)
}

/// Reads a file as UTF-8 without its byte order mark. Bytes that are not UTF-8
/// become U+FFFD: one stray Latin-1 letter must not cost a whole instruction file.
pub(super) fn read(path: &Path) -> Result<String, TextFileError> {
    let bytes = read_regular(path, MAX_BYTES)?;
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;

    use super::*;

    #[test]
    fn drops_the_byte_order_mark_and_replaces_stray_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.md");
        fs::write(&path, b"\xef\xbb\xbfcaf\xe9").unwrap();
        assert_eq!(read(&path).unwrap(), "caf\u{fffd}");
    }

    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(matches!(read(&path), Err(TextFileError::NotAFile)));
    }

    #[test]
    fn refuses_folders_and_what_is_too_large() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(read(dir.path()), Err(TextFileError::NotAFile)));
        let path = dir.path().join("big.md");
        fs::write(&path, vec![b'a'; MAX_BYTES as usize]).unwrap();
        assert_eq!(read(&path).unwrap().len() as u64, MAX_BYTES);
        fs::write(&path, vec![b'a'; MAX_BYTES as usize + 1]).unwrap();
        assert!(matches!(read(&path), Err(TextFileError::TooLarge { .. })));
        assert!(read(&dir.path().join("absent")).unwrap_err().is_not_found());
    }
}
