//! What is remembered of session files between two listings. It is a cache: it may be
//! deleted, garbled or written by another process at any time.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::mark::Stamp;
use super::summary::Record;
use crate::directory::create_private_dir;

/// The version that is written; files of another one are ignored.
///
/// 1. `files`: for each path how far it was read and what was found there.
const INDEX_VERSION: u32 = 1;

/// Bytes. A larger file is no index of sessions: 200,000 of them take a quarter of it.
const MAX_INDEX: u64 = 256 << 20;

pub(crate) type Records = HashMap<String, Arc<Record>>;

#[derive(Deserialize)]
struct IndexFile {
    version: u32,
    files: Records,
}

#[derive(Serialize)]
struct IndexFileRef<'a> {
    version: u32,
    files: &'a Records,
}

/// Makes listings read only what was written since the last one.
#[derive(Debug)]
pub struct SessionIndex {
    file: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Of the index file as it was read or written last.
    stamp: Option<Stamp>,
    /// Its length in bytes.
    len: u64,
    records: Arc<Records>,
    /// What reading again all that is not in the file costs, in bytes.
    unsaved: u64,
}

/// What a listing found out.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) read: Vec<(String, Arc<Record>)>,
    /// Bytes that were read for it.
    pub(crate) bytes: u64,
    /// Files that are no more.
    pub(crate) gone: Vec<String>,
}

/// Opening a file costs as much as reading this many bytes, more or less.
const FILE_COST: u64 = 4096;

impl SessionIndex {
    /// Kept in `file`, say `<agent-dir>/cache/sessions.json`. Reads and writes nothing yet.
    pub fn new(file: PathBuf) -> Self {
        Self { file: Some(file), state: Mutex::default() }
    }

    /// Kept as long as this value.
    pub fn in_memory() -> Self {
        Self { file: None, state: Mutex::default() }
    }

    pub(crate) fn records(&self) -> Arc<Records> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &self.file {
            state.refresh(file);
        }
        Arc::clone(&state.records)
    }

    /// Applies `changes` to what is in the file by now.
    pub(crate) fn update(&self, changes: Changes) -> Result<(), (PathBuf, io::Error)> {
        if changes.read.is_empty() && changes.gone.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &self.file {
            state.refresh(file);
        }
        let records = Arc::make_mut(&mut state.records);
        for path in &changes.gone {
            records.remove(path);
        }
        let cost = changes.bytes + changes.read.len() as u64 * FILE_COST;
        records.extend(changes.read);
        state.unsaved += cost;
        match &self.file {
            // Of a large store one session that goes on is read again for less than the
            // index is written for.
            Some(file) if state.unsaved >= state.len => {
                state.save(file).map_err(|error| (file.clone(), error))
            }
            _ => Ok(()),
        }
    }
}

impl State {
    /// Takes over what another process wrote.
    fn refresh(&mut self, file: &Path) {
        let Ok(metadata) = fs::metadata(file) else {
            self.len = 0;
            return;
        };
        let stamp = Some(Stamp::of(&metadata));
        if stamp == self.stamp || metadata.len() > MAX_INDEX || !metadata.is_file() {
            return;
        }
        self.stamp = stamp;
        self.len = 0;
        let index = fs::read(file)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<IndexFile>(&bytes).ok())
            .filter(|index| index.version == INDEX_VERSION);
        if let Some(index) = index {
            self.records = Arc::new(index.files);
            self.len = metadata.len();
            self.unsaved = 0;
        }
    }

    fn save(&mut self, file: &Path) -> io::Result<()> {
        let folder = file.parent().unwrap_or(Path::new("."));
        create_private_dir(folder)?;
        let text =
            serde_json::to_vec(&IndexFileRef { version: INDEX_VERSION, files: &self.records })?;
        // Not synced: what a crash leaves of a cache is either whole or ignored.
        let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
        temporary.write_all(&text)?;
        temporary.persist(file)?;
        self.stamp = fs::metadata(file).ok().map(|metadata| Stamp::of(&metadata));
        self.len = text.len() as u64;
        self.unsaved = 0;
        Ok(())
    }
}
