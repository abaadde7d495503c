//! Watching where extensions are looked for. The system's events only say when to look;
//! whether anything has changed is seen from the files themselves. What follows from a
//! change is the caller's.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::discovery::{Sources, discover};
use crate::extension_host::AskLoadable;

/// How long things have to be quiet: a build writes its component in several steps.
const QUIET: Duration = Duration::from_millis(300);

/// Why extensions cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("the extensions cannot be watched: {0}")]
    System(#[from] notify::Error),
    #[error("the extensions cannot be watched: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// What tells two states of a file apart: its device and inode (a file that was renamed
/// over it is another one), size, and time of change in seconds and
/// nanoseconds.
type Stamp = (u64, u64, u64, (i64, i64));

/// The components that there are.
type Snapshot = BTreeMap<PathBuf, Stamp>;

pub(crate) struct Watcher {
    loadable: AskLoadable,
    watcher: RecommendedWatcher,
    events: mpsc::Receiver<()>,
    /// The folders that the system watches, by device and inode: one that took another's
    /// place is not watched yet.
    folders: HashMap<PathBuf, (u64, u64)>,
    snapshot: Snapshot,
}

impl Watcher {
    /// What changes after this has returned is seen.
    pub(crate) async fn start(loadable: AskLoadable) -> Result<Self, WatchError> {
        // One that waits is enough: it says "look again".
        let (sender, events) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event| {
            if matters(&event) {
                // Full: somebody will look anyway. Closed: nobody looks any more.
                let _ = sender.try_send(());
            }
        })?;
        let (folders, snapshot) = (HashMap::new(), Snapshot::new());
        let this = Self { loadable, watcher, events, folders, snapshot };
        Ok(spawn_blocking(|| this.look()).await?.0)
    }

    pub(crate) async fn run(mut self, on_change: impl Fn() + Send + Sync) {
        while self.events.recv().await.is_some() {
            while let Ok(event) = timeout(QUIET, self.events.recv()).await {
                if event.is_none() {
                    return;
                }
            }
            let Ok((this, has_changed)) = spawn_blocking(|| self.look()).await else { return };
            self = this;
            if has_changed {
                on_change();
            }
        }
    }

    /// Looks at the files; says whether they are others than before. Blocks.
    fn look(mut self) -> (Self, bool) {
        let sources = self.loadable.ask().sources;
        loop {
            let folders = identified(folders(&sources));
            let watcher = &mut self.watcher;
            self.folders.retain(|folder, identity| {
                let stays = folders.get(folder) == Some(identity);
                if !stays {
                    // One that was removed is no longer watched anyway.
                    let _ = watcher.unwatch(folder);
                }
                stays
            });
            let mut is_new = false;
            for (folder, identity) in folders {
                // One that cannot be watched cannot be looked into either.
                if !self.folders.contains_key(&folder)
                    && watcher.watch(&folder, RecursiveMode::NonRecursive).is_ok()
                {
                    is_new = true;
                    self.folders.insert(folder, identity);
                }
            }
            // What came into a new folder before it was watched must not be missed.
            if !is_new {
                break;
            }
        }
        let snapshot = snapshot(&sources);
        let has_changed = snapshot != self.snapshot;
        self.snapshot = snapshot;
        (self, has_changed)
    }
}

/// Reading changes nothing, and this crate reads.
fn matters(event: &notify::Result<notify::Event>) -> bool {
    let Ok(event) = event else { return true };
    !matches!(event.kind, EventKind::Access(access)
        if access != AccessKind::Close(AccessMode::Write))
}

fn snapshot(sources: &Sources) -> Snapshot {
    let (found, _) = discover(sources);
    let stamped = found.into_iter().filter_map(|found| {
        let metadata = fs::metadata(&found.path).ok()?;
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        Some((found.path, (metadata.dev(), metadata.ino(), metadata.size(), changed)))
    });
    stamped.collect()
}

fn identified(folders: HashSet<PathBuf>) -> HashMap<PathBuf, (u64, u64)> {
    let identified = folders.into_iter().filter_map(|folder| {
        let metadata = fs::metadata(&folder).ok()?;
        Some((folder, (metadata.dev(), metadata.ino())))
    });
    identified.collect()
}

/// Folders in which something can happen that changes what is found.
fn folders(sources: &Sources) -> HashSet<PathBuf> {
    let mut folders = HashSet::new();
    for path in sources.explicit.iter().chain(&sources.settings) {
        add_named(path, &mut folders);
    }
    for directory in [&sources.project_dir, &sources.user_dir].into_iter().flatten() {
        // It may be made, or be replaced as a whole.
        add_existing(directory.parent(), &mut folders);
        let Ok(entries) = fs::read_dir(directory) else { continue };
        folders.insert(directory.clone());
        for entry in entries.flatten() {
            add_named(&entry.path(), &mut folders);
        }
    }
    folders
}

/// A component, or a folder with one: where it is, and where its links lead.
fn add_named(path: &Path, folders: &mut HashSet<PathBuf>) {
    let real = fs::canonicalize(path);
    for path in [Some(path), real.as_deref().ok()].into_iter().flatten() {
        add_existing(path.parent(), folders);
        if path.is_dir() {
            folders.insert(path.to_owned());
            if let Ok(component) = fs::canonicalize(path.join(crate::discovery::COMPONENT_FILE)) {
                add_existing(component.parent(), folders);
            }
        }
    }
}

/// The folder or, where there is none, the nearest one above it that there is.
fn add_existing(folder: Option<&Path>, folders: &mut HashSet<PathBuf>) {
    let above = folder.into_iter().flat_map(Path::ancestors);
    if let Some(folder) = above.filter(|folder| !folder.as_os_str().is_empty()).find(|f| f.is_dir())
    {
        folders.insert(folder.to_owned());
    }
}
