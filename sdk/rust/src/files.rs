//! Files beyond the extension's own `/data`, as far as they are granted.

use std::time::{Duration, SystemTime};

use crate::AccessError;
use crate::bindings::wharf::extension::files as wit;

/// Files of the project, of the person's home and of the agent directory, from
/// [`Ctx::files`](crate::Ctx::files), as far as they are granted
/// ([`Permission::fs_read`](crate::Permission::fs_read),
/// [`fs_write`](crate::Permission::fs_write)).
///
/// A path is relative to the project (`docs/a.md`), to the person's home
/// (`~/notes/a.md`) or to the agent directory (`@agent/skills/a.md`), or an absolute
/// path below one of them. It is judged after links and `..` are resolved.
///
/// An extension's own files need none of this: `std::fs` has a directory `/data` that
/// stays from run to run.
///
/// ```
/// # use wharf_sdk::{AccessError, Ctx};
/// async fn add(ctx: &Ctx, line: &str) -> Result<(), AccessError> {
///     let files = ctx.files();
///     let mut notes = files.read_to_string("docs/notes.md").await?;
///     notes.push_str(line);
///     files.write("docs/notes.md", notes).await
/// }
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Files;

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// Something else, such as a socket.
    Other,
}

/// What [`Files::stat`] knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileInfo {
    /// What it is.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// When it was last changed, where the file system knows it.
    pub modified: Option<SystemTime>,
}

/// One thing in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileEntry {
    /// Its name, without the directory.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
}

impl Files {
    /// The contents of a file of at most 16 MiB (`fs-read`).
    ///
    /// # Errors
    /// `Denied` without a grant, `NotFound` without a file; see [`AccessError`].
    pub async fn read(self, path: impl Into<String>) -> Result<Vec<u8>, AccessError> {
        Ok(wit::read(path.into()).await?)
    }

    /// The text of a file of at most 16 MiB (`fs-read`).
    ///
    /// # Errors
    /// As [`read`](Self::read); `Failed` when the file is not UTF-8.
    pub async fn read_to_string(self, path: impl Into<String>) -> Result<String, AccessError> {
        let path = path.into();
        let bytes = self.read(&path).await?;
        String::from_utf8(bytes).map_err(|_| not_text(&path))
    }

    /// Replaces a file, or makes it with its folders (`fs-write`). At most 16 MiB.
    ///
    /// # Errors
    /// `Denied` without a grant; see [`AccessError`].
    pub async fn write(
        self,
        path: impl Into<String>,
        contents: impl Into<Vec<u8>>,
    ) -> Result<(), AccessError> {
        Ok(wit::write(path.into(), contents.into()).await?)
    }

    /// What a directory holds, by name, at most 100,000 (`fs-read`). What is not
    /// granted is left out.
    ///
    /// # Errors
    /// `Denied` without a grant, `NotFound` without a directory; see [`AccessError`].
    pub async fn list_directory(
        self,
        path: impl Into<String>,
    ) -> Result<Vec<FileEntry>, AccessError> {
        let entries = wit::list_directory(path.into()).await?;
        let entries = entries.into_iter();
        Ok(entries.map(|entry| FileEntry { name: entry.name, kind: entry.kind.into() }).collect())
    }

    /// What a path leads to (`fs-read`).
    ///
    /// # Errors
    /// `Denied` without a grant, `NotFound` when nothing is there; see [`AccessError`].
    pub async fn stat(self, path: impl Into<String>) -> Result<FileInfo, AccessError> {
        let info = wit::stat(path.into()).await?;
        let modified = info.modified_ms.map(Duration::from_millis);
        Ok(FileInfo {
            kind: info.kind.into(),
            size: info.size,
            modified: modified.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since)),
        })
    }

    /// Removes a file or an empty directory (`fs-write`).
    ///
    /// # Errors
    /// `Denied` without a grant, `NotFound` when nothing is there; see [`AccessError`].
    pub async fn remove(self, path: impl Into<String>) -> Result<(), AccessError> {
        Ok(wit::remove(path.into()).await?)
    }
}

fn not_text(path: &str) -> AccessError {
    AccessError::Failed([path, " is not UTF-8 text"].concat())
}

impl From<wit::FileKind> for FileKind {
    fn from(kind: wit::FileKind) -> Self {
        match kind {
            wit::FileKind::File => Self::File,
            wit::FileKind::Directory => Self::Directory,
            wit::FileKind::Other => Self::Other,
        }
    }
}
