//! Lists of sessions, without opening them. Here is what is listed and in which order;
//! what a file tells is in `summary`, what is remembered in `index`.

mod index;
pub(crate) mod lines;
pub(crate) mod mark;
pub(crate) mod summary;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use serde::Serialize;

pub use index::SessionIndex;

use crate::Timestamp;
use crate::directory::{SessionDir, SessionFile, is_same_cwd, session_files, subfolders};
use crate::error::ListError;
use crate::header::lossy;
use crate::header::version_text;
use index::{Changes, Records};
use summary::{Record, Verdict, timestamp_of};

/// Threads for files that must be read. A disk serves few readers well.
const MAX_THREADS: usize = 8;

/// One session in a list, as RPC clients get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionInfo {
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// Of the header; where damage took it, of the file's name.
    pub id: String,
    /// Empty where a damaged file no longer tells.
    #[serde(serialize_with = "lossy")]
    pub cwd: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub created: Timestamp,
    /// The latest time of an entry: a copied or restored file keeps its place in the list.
    /// For a session without entries that of its creation.
    pub modified: Timestamp,
    /// How many `message` entries there are, on all branches.
    pub message_count: usize,
    /// The first user message that has text, up to 1,000 characters of it; or
    /// `(no messages)`.
    pub first_message: String,
}

#[derive(Debug, Default)]
pub struct Listing {
    /// Most recently modified first.
    pub sessions: Vec<SessionInfo>,
    /// Files that could not be read, and why. An index that could not be written is
    /// one: the next listing is slow then, no more.
    pub problems: Vec<(PathBuf, String)>,
}

/// Is told how many files of how many are done.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

impl SessionDir {
    /// The sessions of `cwd`, or all of a flat directory. Files that are no sessions and
    /// the transcripts of subagents are left out; a session whose header is lost is
    /// listed for the directory in whose folder it lies.
    ///
    /// # Errors
    /// If the folder can't be read. That there is none yet is no error, and neither is
    /// a file that can't be read.
    pub fn list(
        &self,
        cwd: &Path,
        index: &SessionIndex,
        progress: Progress<'_>,
    ) -> Result<Listing, ListError> {
        let folder = absolute(&self.folder(cwd));
        let mut listing = list_folders(std::slice::from_ref(&folder), &folder, index, progress)?;
        if let Self::Nested(_) = self {
            listing.sessions.retain(|session| {
                session.cwd.as_os_str().is_empty() || is_same_cwd(&session.cwd, cwd)
            });
        }
        Ok(listing)
    }

    /// The sessions of all directories.
    ///
    /// # Errors
    /// If a folder of the store can't be read.
    pub fn list_all(
        &self,
        index: &SessionIndex,
        progress: Progress<'_>,
    ) -> Result<Listing, ListError> {
        let (root, folders) = self.folders()?;
        list_folders(&folders, &root, index, progress)
    }

    /// The store's place and its folders that may hold sessions.
    pub(crate) fn folders(&self) -> Result<(PathBuf, Vec<PathBuf>), ListError> {
        match self {
            Self::Flat(dir) => {
                let dir = absolute(dir);
                Ok((dir.clone(), vec![dir]))
            }
            Self::Nested(root) => {
                let root = absolute(root);
                let folders = subfolders(&root).map_err(|error| ListError::new(&root, error))?;
                Ok((root, folders))
            }
        }
    }
}

pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn list_folders(
    folders: &[PathBuf],
    scope: &Path,
    index: &SessionIndex,
    progress: Progress<'_>,
) -> Result<Listing, ListError> {
    let mut listing = Listing::default();
    let mut files = Vec::new();
    for folder in folders {
        let found = session_files(folder).map_err(|error| ListError::new(folder, error))?;
        files.extend(found.files);
        listing.problems.extend(found.problems);
    }
    let records = index.records();
    let gone = gone(&records, &files, folders, scope);
    let mut changes = Changes { gone, ..Changes::default() };
    let results = read_all(&files, &records, progress);
    for (file, result) in files.iter().zip(results) {
        match result {
            Outcome::Known(record) => listing.add(file, &record),
            Outcome::Read(Ok((record, bytes))) => {
                listing.add(file, &record);
                // One that changed a moment ago is read again, and mostly is as it was.
                if let Some(key) = file.path.to_str()
                    && records.get(key).is_none_or(|known| *known != record)
                {
                    changes.read.push((key.to_owned(), record));
                    changes.bytes += bytes;
                }
            }
            // A file may vanish meanwhile.
            Outcome::Read(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Outcome::Read(Err(error)) => {
                listing.problems.push((file.path.clone(), error.to_string()));
            }
        }
    }
    // So that the update need not copy them.
    drop(records);
    if let Err((path, error)) = index.update(changes) {
        listing.problems.push((path, format!("failed to write the session index: {error}")));
    }
    listing.sessions.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
    Ok(listing)
}

impl Listing {
    fn add(&mut self, file: &SessionFile, record: &Record) {
        if record.facts().header.as_ref().is_some_and(|header| header.subagent) {
            return;
        }
        match record.verdict(&file.path, timestamp_of(file.modified)) {
            Verdict::Session(info) => self.sessions.push(info),
            Verdict::TooNew(version) => self.problems.push((
                file.path.clone(),
                format!(
                    "format version {} is newer than the supported {}; update wharf",
                    version_text(version),
                    crate::FORMAT_VERSION
                ),
            )),
            Verdict::NoSession => {}
        }
    }
}

/// One session, as lists show it.
pub(crate) fn describe(file: &SessionFile, index: &SessionIndex) -> Option<SessionInfo> {
    let records = index.records();
    let known = file.path.to_str().and_then(|path| records.get(path));
    let record = match known {
        Some(record) if record.mark.is_current(&file.metadata) => Arc::clone(record),
        _ => Arc::new(Record::read(&file.path, known.map(Arc::as_ref)).ok()?.0),
    };
    match record.verdict(&file.path, timestamp_of(file.modified)) {
        Verdict::Session(info) => Some(info),
        Verdict::TooNew(_) | Verdict::NoSession => None,
    }
}

/// What is remembered of files that were in these folders.
fn gone(
    records: &Records,
    files: &[SessionFile],
    folders: &[PathBuf],
    scope: &Path,
) -> Vec<String> {
    let present: HashSet<&str> = files.iter().filter_map(|file| file.path.to_str()).collect();
    let one_folder = folders.iter().any(|folder| folder == scope);
    let was_here = |path: &Path| {
        if one_folder { path.parent() == Some(scope) } else { path.starts_with(scope) }
    };
    records
        .keys()
        .filter(|path| !present.contains(path.as_str()) && was_here(Path::new(path)))
        .cloned()
        .collect()
}

enum Outcome {
    Known(Arc<Record>),
    /// With the bytes that were read.
    Read(std::io::Result<(Arc<Record>, u64)>),
}

/// Reads the files that have changed, on all processors.
fn read_all(files: &[SessionFile], records: &Records, progress: Progress<'_>) -> Vec<Outcome> {
    let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(files.len());
    let mut changed = Vec::new();
    for (place, file) in files.iter().enumerate() {
        let known = file.path.to_str().and_then(|path| records.get(path));
        match known {
            Some(record) if record.mark.is_current(&file.metadata) => {
                outcomes.push(Some(Outcome::Known(Arc::clone(record))));
            }
            _ => {
                outcomes.push(None);
                changed.push((place, known));
            }
        }
    }
    let mut done = files.len() - changed.len();
    progress(done, files.len());

    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let read_next = || {
        let (place, known) = changed.get(next.fetch_add(1, Ordering::Relaxed))?;
        let known = known.map(Arc::as_ref);
        let record = Record::read(&files[*place].path, known);
        let record = record.map(|(record, bytes)| (Arc::new(record), bytes));
        Some((*place, Outcome::Read(record)))
    };
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        // A single file is read right here.
        let helpers = threads.min(MAX_THREADS).min(changed.len()).saturating_sub(1);
        for _ in 0..helpers {
            let sender = sender.clone();
            let read_next = &read_next;
            // Without a helper this thread reads all.
            let _ = std::thread::Builder::new().name("session-list".to_owned()).spawn_scoped(
                scope,
                move || {
                    while let Some(read) = read_next() {
                        if sender.send(read).is_err() {
                            break;
                        }
                    }
                },
            );
        }
        drop(sender);
        let mut take = |(place, outcome): (usize, Outcome)| {
            outcomes[place] = Some(outcome);
            done += 1;
            progress(done, files.len());
        };
        while let Some(read) = read_next() {
            take(read);
            receiver.try_iter().for_each(&mut take);
        }
        receiver.iter().for_each(&mut take);
    });
    // Every place was taken by exactly one thread.
    outcomes.into_iter().flatten().collect()
}
