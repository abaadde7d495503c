//! Whole files: written beside their place, forced onto the disk, then renamed into it,
//! so that a crash leaves the old state or the new one.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use tempfile::NamedTempFile;

use crate::durability::sync_folder;
use crate::entry::Entry;

/// Bytes gathered for one write.
const BUFFER: usize = 1 << 16;

/// Creates the file at `path`; an error of kind `AlreadyExists` if there is one.
pub(super) fn create_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<File> {
    let folder = folder_of(path);
    let file = prepare(folder, write)?.persist_noclobber(path)?;
    sync_folder(folder);
    Ok(file)
}

/// Creates the file at `path` with a header's line and entries.
pub(crate) fn write_session(
    path: &Path,
    header: serde_json::Result<String>,
    entries: &[Arc<Entry>],
) -> io::Result<File> {
    create_file(path, |out| {
        out.write_all(header?.as_bytes())?;
        for entry in entries {
            out.write_all(entry.json().as_bytes())?;
            out.write_all(b"\n")?;
        }
        Ok(())
    })
}

/// Puts a file in the place of the one at `path`; `before` is done when it is ready.
pub(super) fn replace_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    before: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let folder = folder_of(path);
    let file = prepare(folder, write)?;
    // Who could read it before still can.
    file.as_file().set_permissions(std::fs::metadata(path)?.permissions())?;
    before()?;
    file.persist(path)?;
    sync_folder(folder);
    Ok(())
}

fn prepare(
    folder: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<NamedTempFile> {
    // Private, as tempfile makes them.
    let mut file = NamedTempFile::new_in(folder)?;
    let mut buffer = BufWriter::with_capacity(BUFFER, file.as_file_mut());
    write(&mut buffer)?;
    buffer.flush()?;
    drop(buffer);
    file.as_file().sync_all()?;
    Ok(file)
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
