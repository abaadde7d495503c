//! `export_html`: a session as one HTML file that needs nothing else.
//!
//! Here are the page, its tree, its entries and their content. Not here: session
//! files, RPC, and the choice of the folder. What a session holds is hostile: it only
//! becomes HTML through [`html::Html`].

mod blocks;
mod entries;
mod highlight;
mod html;
mod layout;
mod markdown;
mod overview;
mod page;
mod sidebar;
#[cfg(test)]
mod tests;
mod tools;

use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use wharf_session::Session;

/// Writes are gathered to this many bytes.
const BUFFER: usize = 256 * 1024;
/// File names are at most 255 bytes long on common file systems.
const MAX_STEM: usize = 150;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error("failed to export to {path}: there is no folder {folder}; make it or choose another", path = path.display(), folder = folder.display())]
    NoFolder { path: PathBuf, folder: PathBuf },
    #[error("failed to export to {path}: {source}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Writes the page. Memory beyond the session's is bounded by its largest entry and some
/// hundred bytes for each entry.
///
/// # Errors
/// Those of `out`.
pub(crate) fn export(session: &Session, out: &mut dyn io::Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER, out);
    page::write(session, &mut out)?;
    out.flush()
}

/// `wharf-session-<stem of the session file, or its id>.html`
pub(crate) fn default_file_name(session: &Session) -> String {
    let stem = session
        .file()
        .and_then(Path::file_stem)
        .map_or_else(|| session.id().to_owned(), |stem| stem.to_string_lossy().into_owned());
    // An id is whatever the file says.
    let safe: String = stem
        .chars()
        .take(MAX_STEM)
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .collect();
    format!("wharf-session-{safe}.html")
}

/// Exports to `path`, which holds the old content or the whole new one at any time.
///
/// # Errors
/// If the folder is missing or can't be written to.
pub(crate) fn write_file(session: &Session, path: &Path) -> Result<(), ExportError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(ExportError::NoFolder { path: path.to_owned(), folder: folder.to_owned() });
    }
    replace(session, folder, path)
        .map_err(|source| ExportError::Write { path: path.to_owned(), source })
}

/// Where a path leads; what is there need not exist.
fn real_place(path: &Path) -> PathBuf {
    let in_folder = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}

fn replace(session: &Session, folder: &Path, path: &Path) -> io::Result<()> {
    // A link leads to what is meant. Nothing but a file may lose its place to the page: as
    // root, not even a device would be safe.
    let path = &real_place(path);
    let folder = path.parent().unwrap_or(folder);
    match path.metadata() {
        Ok(found) if found.is_dir() => {
            return Err(io::Error::other("it is a folder; name a file in it"));
        }
        Ok(found) if !found.is_file() => {
            return Err(io::Error::other("there is something that is no file; name another"));
        }
        _ => {}
    }
    // Also before its first message, which could not be written then.
    if session.file().is_some_and(|file| real_place(file) == *path) {
        return Err(io::Error::other("it is the session's own file; name another"));
    }
    // Neither a session nor what lies beside one may become a page.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if path.exists() && (name.ends_with(".jsonl") || name.contains(".jsonl.")) {
        return Err(io::Error::other(
            "that is a session file, or belongs to one; name another, such as one that ends in .html",
        ));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".wharf-export-");
    // As any new file: what the umask leaves, not the owner alone.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder)?;
    export(session, file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
