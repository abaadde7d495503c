//! Where session files lie and what they are called. Knows nothing of entries.

use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::listing::summary::read_header;

/// A store of session files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionDir {
    /// The default layout: one folder per working directory under this one.
    Nested(PathBuf),
    /// A configured directory: every file lies directly in it.
    Flat(PathBuf),
}

impl SessionDir {
    /// What all sessions are below.
    pub fn root(&self) -> &Path {
        match self {
            Self::Nested(root) => root,
            Self::Flat(dir) => dir,
        }
    }

    /// The folder for sessions of `cwd`.
    pub fn folder(&self, cwd: &Path) -> PathBuf {
        match self {
            Self::Nested(root) => root.join(folder_name(cwd)),
            Self::Flat(dir) => dir.clone(),
        }
    }

    /// The session file of `cwd` that was written last. Two directories may share a
    /// folder (`/a/b` and `/a-b`), so the header decides; a subagent's is nothing to go
    /// on with.
    pub(crate) fn most_recent(&self, cwd: &Path) -> io::Result<Option<PathBuf>> {
        let mut files = session_files(&self.folder(cwd))?.files;
        files.sort_unstable_by(|a, b| (a.modified, &a.path).cmp(&(b.modified, &b.path)));
        Ok(files.into_iter().rev().map(|file| file.path).find(|path| {
            read_header(path)
                .ok()
                .flatten()
                .is_some_and(|header| !header.subagent && is_same_cwd(Path::new(&header.cwd), cwd))
        }))
    }
}

/// A file that may be a session.
#[derive(Debug)]
pub(crate) struct SessionFile {
    pub(crate) path: PathBuf,
    pub(crate) metadata: Metadata,
    pub(crate) modified: SystemTime,
}

#[derive(Debug, Default)]
pub(crate) struct FoundFiles {
    pub(crate) files: Vec<SessionFile>,
    /// Those that can't be looked at, and why.
    pub(crate) problems: Vec<(PathBuf, String)>,
}

impl FoundFiles {
    /// Adds the file if it may be a session.
    pub(crate) fn look_at(&mut self, item: &DirEntry) {
        let path = item.path();
        if path.extension().is_none_or(|extension| extension != EXTENSION) {
            return;
        }
        // Faster than by its path, but of a link it tells of the link.
        let metadata = match item.file_type() {
            Ok(kind) if !kind.is_symlink() => item.metadata(),
            _ => fs::metadata(&path),
        };
        match metadata.and_then(|metadata| Ok((metadata.modified()?, metadata))) {
            Ok((modified, metadata)) => {
                if metadata.is_file() {
                    self.files.push(SessionFile { path, metadata, modified });
                }
            }
            // A file may vanish meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.problems.push((path, error.to_string())),
        }
    }
}

/// What writers of the format call their files; copies that are kept beside them
/// (`.jsonl.torn`, `.jsonl.v1.bak`) and locks have other endings.
pub(crate) const EXTENSION: &str = "jsonl";

/// The files directly in `folder`; none where there is no folder.
pub(crate) fn session_files(folder: &Path) -> io::Result<FoundFiles> {
    let mut found = FoundFiles::default();
    for item in read_folder(folder)? {
        found.look_at(&item?);
    }
    Ok(found)
}

/// The folders directly in `root`; none where there is no root.
pub(crate) fn subfolders(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for item in read_folder(root)? {
        let item = item?;
        // A link to a folder is one too.
        if item.file_type()?.is_dir() || item.path().is_dir() {
            folders.push(item.path());
        }
    }
    folders.sort_unstable();
    Ok(folders)
}

fn read_folder(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<DirEntry>>> {
    match fs::read_dir(folder) {
        Ok(listing) => Ok(Some(listing).into_iter().flatten()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None.into_iter().flatten()),
        Err(error) => Err(error),
    }
}

/// Whether a header's working directory is `cwd`. Headers hold names that are no
/// UTF-8 with replacements.
pub(crate) fn is_same_cwd(of_header: &Path, cwd: &Path) -> bool {
    of_header == cwd || of_header == Path::new(&*cwd.to_string_lossy())
}

/// `/home/me/project` -> `--home-me-project--`. What is longer than file systems take keeps
/// its beginning and gets a number for the rest.
fn folder_name(cwd: &Path) -> String {
    let text = cwd.to_string_lossy();
    let text = text.strip_prefix(['/', '\\']).unwrap_or(&text);
    let name = text.replace(['/', '\\', ':'], "-");
    if name.len() <= MAX_FOLDER_NAME {
        return format!("--{name}--");
    }
    let start = &name[..name.floor_char_boundary(MAX_FOLDER_NAME - 20)];
    format!("--{start}-{:016x}--", fnv1a(name.as_bytes()))
}

/// Bytes of a directory's name within its folder's. Most file systems take 255 for all of it.
const MAX_FOLDER_NAME: usize = 240;

/// The same in every run and version, as the name of a folder has to be: FNV-1a, 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Creates `dir` and what is missing above it, readable by the owner only.
pub(crate) fn create_private_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names() {
        for (cwd, name) in [
            ("/home/me/project", "--home-me-project--"),
            ("/", "----"),
            ("C:\\work\\x", "--C--work-x--"),
        ] {
            assert_eq!(folder_name(Path::new(cwd)), name);
        }
        let long = |end: &str| folder_name(Path::new(&format!("/{}/{end}", "é".repeat(400))));
        assert!(long("a").len() <= 255, "{}", long("a").len());
        assert!(long("a").starts_with("--éé") && long("a").ends_with("--"));
        assert_ne!(long("a"), long("b"));
        // The same for ever.
        assert_eq!(format!("{:016x}", fnv1a(b"foobar")), "85944171f73967e8");
    }
}
