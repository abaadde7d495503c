//! Files beyond `/data`, as far as they are granted. Where a path leads is `places`';
//! here it is judged, and the work is done on blocking threads.

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cap_std::fs::{Dir, FileType, Metadata, OpenOptions, Permissions, PermissionsExt as _};
use tokio::task::spawn_blocking;
use wasmtime::component::Accessor;

use super::granted;
use crate::access::Access;
use crate::bindings::files::{FileEntry, FileInfo, FileKind, Host, HostWithStore};
use crate::bindings::types::AccessError;
use crate::limits::{MAX_FILE_BYTES, MAX_FOLDER_ENTRIES, MAX_PATH_BYTES, cut};
use crate::permissions::{Base, FileUse, Rules};
use crate::places::{LastLink, open_regular};
use crate::registration::Permission;
use crate::state::{Interfaces, State};

impl Host for State {}

impl HostWithStore<State> for Interfaces {
    async fn read(accessor: &Accessor<State, Self>, path: String) -> Result<Vec<u8>, AccessError> {
        on_file(accessor, path, 0, read).await
    }

    async fn write(
        accessor: &Accessor<State, Self>,
        path: String,
        contents: Vec<u8>,
    ) -> Result<(), AccessError> {
        super::at_most("contents", contents.len(), MAX_FILE_BYTES)?;
        let bytes = contents.len();
        on_file(accessor, path, bytes, move |job| write(job, &contents)).await
    }

    async fn list_directory(
        accessor: &Accessor<State, Self>,
        path: String,
    ) -> Result<Vec<FileEntry>, AccessError> {
        on_file(accessor, path, 0, list).await
    }

    async fn stat(accessor: &Accessor<State, Self>, path: String) -> Result<FileInfo, AccessError> {
        on_file(accessor, path, 0, stat).await
    }

    async fn remove(accessor: &Accessor<State, Self>, path: String) -> Result<(), AccessError> {
        on_file(accessor, path, 0, remove).await
    }
}

/// One attempt of a file call.
struct Job<'a> {
    access: &'a Access,
    rules: &'a Rules,
    /// As the guest wrote it.
    path: &'a str,
}

/// A place that the extension may use in the way that it asked for.
struct Target {
    base: Base,
    relative: PathBuf,
    /// Absolute and canonical.
    path: PathBuf,
    /// What is there could not be found.
    problem: Option<io::Error>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intent {
    Read,
    /// To see what is in a folder, or that it is one.
    Look,
    Write,
    /// Of the name itself, where it is a link.
    Remove,
}

/// Does blocking work for a call; `bytes`: of its argument.
async fn on_file<T: Send + 'static>(
    accessor: &Accessor<State, Interfaces>,
    path: String,
    bytes: usize,
    work: impl Fn(&Job<'_>) -> Result<T, AccessError> + Send + Sync + 'static,
) -> Result<T, AccessError> {
    super::at_most("path", path.len(), MAX_PATH_BYTES)?;
    let (access, caller) = granted(accessor)?;
    let held = access.hold(bytes)?;
    let shared = Arc::new((path, work, held));
    let attempt = |rules: Arc<Rules>| {
        let (access, shared) = (Arc::clone(&access), Arc::clone(&shared));
        async move {
            let permit = Arc::clone(&access.file_work).acquire_owned().await;
            let done = spawn_blocking(move || {
                let (path, work, _) = &*shared;
                let result = work(&Job { access: &access, rules: &rules, path });
                // Held by the work itself: a call that is given up still works.
                drop(permit);
                result
            });
            done.await.unwrap_or_else(|error| Err(AccessError::Failed(error.to_string())))
        }
    };
    access.attempt(&caller, attempt).await
}

impl Job<'_> {
    /// Where the path leads, if that may be used so.
    fn judge(&self, intent: Intent) -> Result<Target, AccessError> {
        let last = if intent == Intent::Remove { LastLink::Keep } else { LastLink::Follow };
        let places = &self.access.places;
        let resolved = places.resolve(self.path, last).map_err(AccessError::Invalid)?;
        let usage = match intent {
            Intent::Read | Intent::Look => FileUse::Read,
            Intent::Write | Intent::Remove => FileUse::Write,
        };
        if places.is_protected(&resolved.path, usage) {
            return Err(AccessError::Denied(format!(
                "{} belongs to what extensions cannot reach, whatever is granted",
                self.shown()
            )));
        }
        let is_allowed = |&(base, relative): &(Base, &Path)| {
            self.rules.file(usage, base, relative)
                || (intent == Intent::Look && self.rules.folder(base, relative))
        };
        let allowed = places.below(&resolved.path).find(is_allowed);
        let Some((base, relative)) = allowed.map(|(base, path)| (base, path.to_owned())) else {
            return Err(self.denied(&resolved.path, intent));
        };
        Ok(Target { base, relative, path: resolved.path, problem: resolved.problem })
    }

    fn denied(&self, path: &Path, intent: Intent) -> AccessError {
        let nearest =
            self.access.places.below(path).min_by_key(|(_, relative)| relative.as_os_str().len());
        let Some((base, relative)) = nearest else {
            return AccessError::Denied(format!(
                "{} leads out of the project, the home and the agent directory, where nothing can be granted",
                self.shown()
            ));
        };
        let missing = match intent {
            Intent::Read => Permission::FsRead(base.written(relative)),
            Intent::Look => Permission::FsRead(base.written(&relative.join("**"))),
            Intent::Write | Intent::Remove => Permission::FsWrite(base.written(relative)),
        };
        self.access.denied(&missing)
    }

    /// [`Self::judge`] for something that must be there.
    fn existing(&self, intent: Intent) -> Result<Target, AccessError> {
        let mut target = self.judge(intent)?;
        match target.problem.take() {
            None => Ok(target),
            Some(error) => Err(self.failed("find", error)),
        }
    }

    fn shown(&self) -> &str {
        cut(self.path, 300)
    }

    fn failed(&self, action: &str, error: io::Error) -> AccessError {
        match error.kind() {
            io::ErrorKind::NotFound => {
                AccessError::NotFound(format!("{} is not there", self.shown()))
            }
            _ => AccessError::Failed(format!("failed to {action} {}: {error}", self.shown())),
        }
    }

    fn folder_of<'a>(
        &self,
        target: &'a Target,
        make: bool,
    ) -> Result<(Dir, Option<&'a OsStr>), AccessError> {
        let places = &self.access.places;
        places.folder_of(target.base, &target.relative, make).map_err(|e| self.failed("open", e))
    }
}

fn read(job: &Job<'_>) -> Result<Vec<u8>, AccessError> {
    let target = job.existing(Intent::Read)?;
    let (folder, name) = job.folder_of(&target, false)?;
    let name = name.ok_or_else(|| job.failed("read", io::ErrorKind::IsADirectory.into()))?;
    let failed = |error| job.failed("read", error);
    let file = open_regular(&folder, name).map_err(failed)?;
    let too_large =
        || AccessError::Failed(format!("{} has more than {MAX_FILE_BYTES} bytes", job.shown()));
    let size = usize::try_from(file.metadata().map_err(failed)?.len()).unwrap_or(usize::MAX);
    if size > MAX_FILE_BYTES {
        return Err(too_large());
    }
    let mut contents = Vec::with_capacity(size);
    // It may grow meanwhile.
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut contents).map_err(failed)?;
    if contents.len() > MAX_FILE_BYTES { Err(too_large()) } else { Ok(contents) }
}

/// A new file takes the place of the old one, so that nobody sees half of it, and no other
/// name of the old file changes with it.
fn write(job: &Job<'_>, contents: &[u8]) -> Result<(), AccessError> {
    let mut target = job.judge(Intent::Write)?;
    match target.problem.take() {
        Some(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(job.failed("write", error));
        }
        _ => {}
    }
    let (folder, name) = job.folder_of(&target, true)?;
    let name = name.ok_or_else(|| job.failed("write", io::ErrorKind::IsADirectory.into()))?;
    let failed = |error| job.failed("write", error);
    let permissions = match folder.symlink_metadata(name) {
        Ok(old) if !old.is_file() => {
            return Err(failed(io::Error::other("there is something that is no regular file")));
        }
        Ok(old) if old.permissions().mode() & 0o200 == 0 => {
            return Err(failed(io::Error::other("it is write-protected")));
        }
        Ok(old) => Some(Permissions::from_mode(old.permissions().mode() & 0o777)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let temporary = temporary_name();
    let result = write_new(&folder, &temporary, contents, permissions)
        .and_then(|()| folder.rename(&temporary, &folder, name));
    if result.is_err() {
        // It may not have been made.
        let _ = folder.remove_file(&temporary);
    }
    result.map_err(failed)
}

fn write_new(
    folder: &Dir,
    name: &str,
    contents: &[u8],
    permissions: Option<Permissions>,
) -> io::Result<()> {
    let mut file = folder.open_with(name, OpenOptions::new().write(true).create_new(true))?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.write_all(contents)
}

/// Unique among the processes and threads of this computer.
fn temporary_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!(".wharf-{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Relaxed))
}

fn list(job: &Job<'_>) -> Result<Vec<FileEntry>, AccessError> {
    let target = job.existing(Intent::Look)?;
    let failed = |error| job.failed("list", error);
    let (folder, name) = job.folder_of(&target, false)?;
    let folder = match name {
        Some(name) => open_folder(&folder, name).map_err(failed)?,
        None => folder,
    };
    let mut entries = Vec::new();
    for entry in folder.entries().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A guest cannot name what is not Unicode.
        let Ok(name) = entry.file_name().into_string() else { continue };
        let kind = kind(entry.file_type().map_err(failed)?);
        let relative = target.relative.join(&name);
        let is_granted = job.rules.file(FileUse::Read, target.base, &relative)
            || (kind == FileKind::Directory && job.rules.folder(target.base, &relative));
        if !is_granted {
            continue;
        }
        if entries.len() == MAX_FOLDER_ENTRIES {
            let text = format!("{} holds more than {MAX_FOLDER_ENTRIES} entries", job.shown());
            return Err(AccessError::Failed(text));
        }
        entries.push(FileEntry { name, kind });
    }
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let is_closed = |entry: &FileEntry| {
        let path = target.path.join(&entry.name);
        job.access.places.is_protected(&path, FileUse::Read)
    };
    // Few folders hold anything of the agent directory; those that do are short.
    if entries.len() <= 1_000 {
        entries.retain(|entry| !is_closed(entry));
    }
    Ok(entries)
}

fn open_folder(parent: &Dir, name: &OsStr) -> io::Result<Dir> {
    use cap_fs_ext::DirExt as _;
    parent.open_dir_nofollow(name)
}

fn stat(job: &Job<'_>) -> Result<FileInfo, AccessError> {
    let target = job.existing(Intent::Look)?;
    let (folder, name) = job.folder_of(&target, false)?;
    let metadata = match name {
        Some(name) => folder.symlink_metadata(name),
        None => folder.dir_metadata(),
    };
    let metadata = metadata.map_err(|error| job.failed("look at", error))?;
    // What only leads to something that is granted may be known as a folder.
    if !metadata.is_dir() && !job.rules.file(FileUse::Read, target.base, &target.relative) {
        return Err(job.denied(&target.path, Intent::Read));
    }
    Ok(FileInfo {
        kind: kind(metadata.file_type()),
        size: metadata.len(),
        modified_ms: modified_ms(&metadata),
    })
}

fn modified_ms(metadata: &Metadata) -> Option<u64> {
    let modified = metadata.modified().ok()?.into_std();
    let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

fn remove(job: &Job<'_>) -> Result<(), AccessError> {
    let target = job.existing(Intent::Remove)?;
    let failed = |error| job.failed("remove", error);
    let (folder, name) = job.folder_of(&target, false)?;
    let name = name.ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let file_type = folder.symlink_metadata(name).map_err(failed)?.file_type();
    let removed = if file_type.is_dir() {
        folder.remove_dir(name)
    } else if file_type.is_file() || file_type.is_symlink() {
        folder.remove_file(name)
    } else {
        Err(io::Error::other("it is no file and no folder"))
    };
    removed.map_err(failed)
}

fn kind(file_type: FileType) -> FileKind {
    if file_type.is_file() {
        FileKind::File
    } else if file_type.is_dir() {
        FileKind::Directory
    } else {
        FileKind::Other
    }
}

/// The folder that a program is to run in.
pub(super) fn working_folder(
    access: &Access,
    rules: &Rules,
    path: Option<&str>,
) -> Result<PathBuf, AccessError> {
    let places = &access.places;
    let project = places
        .project()
        .map_err(|error| AccessError::Failed(format!("failed to open the project: {error}")))?;
    let Some(path) = path else { return Ok(project.to_owned()) };
    let job = Job { access, rules, path };
    let resolved = places.resolve(path, LastLink::Follow).map_err(AccessError::Invalid)?;
    let folder = if resolved.path.starts_with(project) {
        match resolved.problem {
            None => resolved.path,
            Some(error) => return Err(job.failed("find", error)),
        }
    } else {
        job.existing(Intent::Look)?.path
    };
    if folder.is_dir() {
        Ok(folder)
    } else {
        Err(AccessError::Invalid(format!("cwd {} is no folder", job.shown())))
    }
}

#[cfg(test)]
mod tests;
