//! The one thread that writes a session's file: the session's end of it. What the
//! thread does is in the modules below; none of them knows more of an entry than its line.

mod create;
mod recover;
mod replace;
mod stamp;
mod worker;

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::durability::fsync;
use crate::entry::Entry;
use crate::error::WriteError;
use crate::header::SessionHeader;
use crate::shared::Shared;

pub(crate) use create::{folder_of, write_session};
pub(crate) use replace::{Replacement, TornTail};
pub(crate) use stamp::{FileId, Stamp};
use worker::Worker;

/// Bytes on their way to the thread. Who appends faster than the disk takes it waits.
const QUEUE_BYTES: usize = 16 << 20;

/// Resolves once an entry's line is in the file, or says why it isn't yet.
///
/// Entries before a session's first message have no file: theirs resolve at once.
#[derive(Debug)]
pub struct Receipt(ReceiptState);

type Reply = oneshot::Sender<Result<(), WriteError>>;

#[derive(Debug)]
enum ReceiptState {
    Known(Result<(), WriteError>),
    Pending(oneshot::Receiver<Result<(), WriteError>>, PathBuf),
}

impl Receipt {
    pub(crate) fn known(result: Result<(), WriteError>) -> Self {
        Self(ReceiptState::Known(result))
    }
}

impl Future for Receipt {
    type Output = Result<(), WriteError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            ReceiptState::Known(result) => Poll::Ready(result.clone()),
            ReceiptState::Pending(receiver, path) => Pin::new(receiver).poll(cx).map(|result| {
                result.unwrap_or_else(|_| Err(WriteError::Stopped { path: path.clone() }))
            }),
        }
    }
}

/// What stands at the path before the first write.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// Nothing: the file and its folder are created.
    New(SessionHeader),
    /// A session file of the current version, perhaps with a torn tail.
    Existing(Option<TornTail>),
    /// A file to be replaced.
    Replaced(Replacement),
}

/// What the writer begins with.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) target: Target,
    /// Of the file that was read.
    pub(crate) stamp: Option<Stamp>,
}

/// All entries of the session, in the order of the file. Called on the writer thread;
/// `None` once the session is gone.
pub(crate) type Snapshot = Box<dyn Fn() -> Option<Vec<Arc<Entry>>> + Send>;

/// Lines that follow each other.
pub(crate) struct Lines {
    /// The place of the first one's entry among all of the session.
    pub(crate) first: usize,
    pub(crate) lines: Vec<Arc<String>>,
}

enum Job {
    Append(Lines, Reply),
    /// Without anybody who waits.
    Sync,
    Flush(Reply),
}

/// The session's end of the thread. Dropping it waits until everything is written.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    jobs: Option<Sender<Job>>,
    room: Arc<Room>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// `in_file`: how many entries of the session the file has.
    pub(crate) fn spawn(
        shared: &Arc<Shared>,
        start: Start,
        in_file: usize,
        snapshot: Snapshot,
    ) -> io::Result<Self> {
        Self::spawn_with(Worker::new(Arc::clone(shared), start, in_file, snapshot, fsync()))
    }

    fn spawn_with(worker: Worker) -> io::Result<Self> {
        let shared = Arc::clone(worker.shared());
        let (jobs, queue) = channel();
        let room = Arc::new(Room::default());
        let release = ReleaseOnDrop(Arc::clone(&room));
        let thread = std::thread::Builder::new()
            .name("session-writer".to_owned())
            .spawn(move || worker.run(&queue, &release.0))?;
        Ok(Self { shared, jobs: Some(jobs), room, thread: Some(thread) })
    }

    /// Queues whole lines as one write, and never waits: the caller holds locks which the
    /// thread may need. Without them it then waits for [`room`](Self::room).
    pub(crate) fn append(&self, lines: Lines) -> Receipt {
        self.room.add(lines.bytes());
        self.send(|reply| Job::Append(lines, reply))
    }

    pub(crate) fn room(&self) -> Arc<Room> {
        Arc::clone(&self.room)
    }

    /// Asks for all that is queued so far to get onto the disk; errors come with the next
    /// receipt.
    pub(crate) fn sync(&self) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(Job::Sync);
        }
    }

    /// Resolves when everything queued so far is on the disk.
    pub(crate) fn flush(&self) -> Receipt {
        self.send(Job::Flush)
    }

    fn send(&self, job: impl FnOnce(Reply) -> Job) -> Receipt {
        let (sender, receiver) = oneshot::channel();
        if let Some(jobs) = &self.jobs {
            // Without a thread the sender is dropped, and the receipt says so.
            let _ = jobs.send(job(sender));
        }
        Receipt(ReceiptState::Pending(receiver, self.shared.path().to_owned()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Lines {
    fn bytes(&self) -> usize {
        self.lines.iter().map(|line| line.len()).sum()
    }
}

/// The bytes in the queue. Kept apart from it, so that appending itself never waits.
#[derive(Debug, Default)]
pub(crate) struct Room {
    queued: Mutex<Queued>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct Queued {
    bytes: usize,
    /// There is no thread any more.
    closed: bool,
}

impl Room {
    fn queued(&self) -> MutexGuard<'_, Queued> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, bytes: usize) {
        self.queued().bytes += bytes;
    }

    fn release(&self, bytes: usize) {
        self.queued().bytes -= bytes;
        self.released.notify_all();
    }

    /// Waits until the queue has room for more.
    pub(crate) fn wait(&self) {
        let full = |queued: &mut Queued| queued.bytes > QUEUE_BYTES && !queued.closed;
        drop(self.released.wait_while(self.queued(), full));
    }
}

/// However the thread ends, nobody waits for it any more.
struct ReleaseOnDrop(Arc<Room>);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        self.0.queued().closed = true;
        self.0.released.notify_all();
    }
}

#[cfg(test)]
mod tests;
