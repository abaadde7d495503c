//! Where session files lie and what they are called. Knows nothing of entries.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::header::FoundHeader;

/// A store of session files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionDir {
    /// The default layout: one folder per working directory under this one.
    Nested(PathBuf),
    /// A configured directory: every file lies directly in it.
    Flat(PathBuf),
}

/// Headers are a few hundred bytes; a first line longer than this (bytes) is none.
const MAX_HEADER: u64 = 64 * 1024;

impl SessionDir {
    /// The folder for sessions of `cwd`.
    pub fn folder(&self, cwd: &Path) -> PathBuf {
        match self {
            Self::Nested(root) => root.join(folder_name(cwd)),
            Self::Flat(dir) => dir.clone(),
        }
    }

    /// The session file of `cwd` that was written last. Two directories may share a
    /// folder (`/a/b` and `/a-b`), so the header decides.
    pub(crate) fn most_recent(&self, cwd: &Path) -> io::Result<Option<PathBuf>> {
        let listing = match fs::read_dir(self.folder(cwd)) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for item in listing {
            let path = item?.path();
            if path.extension().is_some_and(|extension| extension == "jsonl")
                // A file may vanish meanwhile.
                && let Ok(metadata) = fs::metadata(&path)
                && metadata.is_file()
            {
                files.push((metadata.modified()?, path));
            }
        }
        files.sort_unstable();
        Ok(files.into_iter().rev().map(|(_, path)| path).find(|path| belongs_to(path, cwd)))
    }
}

fn belongs_to(path: &Path, cwd: &Path) -> bool {
    let mut line = String::new();
    File::open(path)
        .and_then(|file| BufReader::new(file.take(MAX_HEADER)).read_line(&mut line))
        .is_ok()
        && FoundHeader::parse(line.trim_start_matches('\u{feff}').trim_end(), path)
            .is_some_and(|found| found.header.cwd == cwd)
}

/// `/home/me/project` -> `--home-me-project--`
fn folder_name(cwd: &Path) -> String {
    let text = cwd.to_string_lossy();
    let text = text.strip_prefix(['/', '\\']).unwrap_or(&text);
    format!("--{}--", text.replace(['/', '\\', ':'], "-"))
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
    }
}
