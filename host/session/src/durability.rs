//! When lines are forced from the kernel's cache onto the disk, and the thread that does
//! it while others go on. Knows files, not lines.

use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// What a loss of power may cost; a process that ends, however it does, costs nothing of
/// what was acknowledged. A file that is made or replaced is on the disk before it gets
/// its name, whatever the policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing up to the last [`sync`](crate::Session::sync) or
    /// [`flush`](crate::Session::flush); the agent syncs at the end of each turn.
    #[default]
    Turn,
    /// Nothing acknowledged: each receipt waits for the disk.
    Entry,
    /// Whatever the system has not written yet: some 30 seconds on most.
    Never,
}

/// Forces a file's content onto the disk. Tests put a slow or a failing one in its place.
pub(crate) type SyncFile = Arc<dyn Fn(&File) -> io::Result<()> + Send + Sync>;

pub(crate) fn fsync() -> SyncFile {
    Arc::new(File::sync_all)
}

type Reply = Box<dyn FnOnce(&io::Result<()>) + Send>;

/// A thread that syncs one file at a time. Requests that come meanwhile are one request.
/// Dropping it waits for all of them.
pub(crate) struct Syncer {
    sync_file: SyncFile,
    slot: Arc<Slot>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Slot {
    requests: Mutex<Requests>,
    changed: Condvar,
}

#[derive(Default)]
struct Requests {
    file: Option<Arc<File>>,
    replies: Vec<Reply>,
    /// Of a sync that nobody waited for.
    failure: Option<io::Error>,
    closed: bool,
}

impl Slot {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, sync_file: &SyncFile) {
        let mut requests = self.requests();
        loop {
            if let Some(file) = requests.file.take() {
                let replies = std::mem::take(&mut requests.replies);
                drop(requests);
                let result = sync_file(&file);
                let nobody_hears = replies.is_empty();
                for reply in replies {
                    reply(&result);
                }
                requests = self.requests();
                if nobody_hears && let Err(error) = result {
                    requests.failure = Some(error);
                }
            } else if requests.closed {
                return;
            } else {
                requests = self.changed.wait(requests).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Syncer {
    pub(crate) fn new(sync_file: SyncFile) -> Self {
        Self { sync_file, slot: Arc::default(), thread: None }
    }

    /// Syncs at once, on the calling thread.
    pub(crate) fn sync_now(&self, file: &File) -> io::Result<()> {
        (self.sync_file)(file)
    }

    /// Asks for a sync of all that has been written to `file` so far.
    pub(crate) fn request(&mut self, file: &Arc<File>, reply: Option<Reply>) {
        if self.thread.is_none() {
            let (slot, sync_file) = (Arc::clone(&self.slot), Arc::clone(&self.sync_file));
            self.thread = std::thread::Builder::new()
                .name("session-sync".to_owned())
                .spawn(move || slot.run(&sync_file))
                .ok();
        }
        if self.thread.is_none() {
            // No thread to be had.
            let result = (self.sync_file)(file);
            match (reply, result) {
                (Some(reply), result) => reply(&result),
                (None, Err(error)) => self.slot.requests().failure = Some(error),
                (None, Ok(())) => {}
            }
            return;
        }
        let mut requests = self.slot.requests();
        // A file that was left for another one needs no sync: the other has all of it.
        requests.file = Some(Arc::clone(file));
        requests.replies.extend(reply);
        drop(requests);
        self.slot.changed.notify_one();
    }

    /// The error of a sync that nobody waited for.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.slot.requests().failure.take()
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.slot.requests().closed = true;
        self.slot.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes a name in `folder` durable, where a directory can be synced at all.
pub(crate) fn sync_folder(folder: &std::path::Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

/// A reply for [`Syncer::request`].
pub(crate) fn reply_to<E: Send + 'static>(
    sender: oneshot::Sender<Result<(), E>>,
    error: impl FnOnce(&io::Error) -> E + Send + 'static,
) -> Reply {
    Box::new(move |result| {
        let _ = sender.send(match result {
            Ok(()) => Ok(()),
            Err(cause) => Err(error(cause)),
        });
    })
}
