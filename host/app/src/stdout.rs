//! The one owner of standard output. Lines go into a queue that is bounded in
//! bytes; one thread writes them. A slow reader fills the queue, and whoever
//! produces output then waits; no line is ever dropped while somebody reads.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use tokio::sync::{Notify, oneshot};

/// Bytes waiting for the reader above which the agent is held back.
const SOFT_CAP: usize = 1024 * 1024;

/// Bytes waiting for the reader above which even commands are left unread.
const HARD_CAP: usize = 64 * 1024 * 1024;

/// Buffered bytes after which one write is made of what is there.
const BATCH: usize = 256 * 1024;

/// Longest line that is written by whoever has it, where the pipe has room: to wake the
/// thread costs more than the write.
const DIRECT: usize = 16 * 1024;

/// Writes what a pipe takes at once; gives how many bytes that was. Files and old
/// kernels do not know how: then it is none, and the thread writes.
fn write_without_waiting(bytes: &[u8]) -> usize {
    rustix::io::pwritev2(
        rustix::stdio::stdout(),
        &[io::IoSlice::new(bytes)],
        // The current position; a pipe has no other.
        u64::MAX,
        rustix::io::ReadWriteFlags::NOWAIT,
    )
    .unwrap_or(0)
}

/// Whether nobody can read standard output any more, told without a write. True for pipes
/// and sockets at most.
pub(crate) fn reader_is_gone() -> bool {
    // Asked for no event, the system tells these two all the same.
    let gone = PollFlags::ERR | PollFlags::HUP;
    let mut fds = [PollFd::from_borrowed_fd(rustix::stdio::stdout(), PollFlags::empty())];
    // A time-out of 0 does not wait. A failure says nothing about the reader.
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().intersects(gone)
}

#[derive(Debug)]
enum Item {
    Line(Vec<u8>),
    /// Completed when everything before it has been written.
    Barrier(oneshot::Sender<()>),
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: usize,
    /// No more will come.
    finished: bool,
    /// The reader is gone.
    closed: bool,
    /// The thread has taken items that it has not written yet.
    writing: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    changed: Notify,
    done: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Stdout {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

/// `value` as a line, which has about `size` bytes.
pub(crate) fn json_line(value: &impl Serialize, size: usize) -> Vec<u8> {
    let mut line = Vec::with_capacity(size);
    // Only maps with keys that are no strings fail, and no wire type has one.
    if serde_json::to_writer(&mut line, value).is_err() {
        return Vec::new();
    }
    line.push(b'\n');
    line
}

impl Stdout {
    /// Takes standard output over.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let writer = std::thread::Builder::new().name("stdout".into()).spawn({
            let shared = Arc::clone(&shared);
            move || write_all(&shared)
        })?;
        Ok(Self { shared, writer: Some(writer) })
    }

    /// Queues `value` as one JSON line; gives its length in bytes.
    pub(crate) fn json(&self, value: &impl Serialize) -> usize {
        let line = json_line(value, 256);
        let bytes = line.len();
        if bytes > 0 {
            self.raw(line);
        }
        bytes
    }

    /// Queues bytes as they are.
    pub(crate) fn raw(&self, bytes: Vec<u8>) {
        let mut queue = self.shared.lock();
        if queue.closed {
            return;
        }
        let mut bytes = bytes;
        if !queue.writing && queue.items.is_empty() && bytes.len() <= DIRECT {
            bytes.drain(..write_without_waiting(&bytes));
            if bytes.is_empty() {
                return;
            }
        }
        queue.bytes += bytes.len();
        queue.items.push_back(Item::Line(bytes));
        self.shared.work.notify_one();
    }

    pub(crate) fn barrier(&self, written: oneshot::Sender<()>) {
        let mut queue = self.shared.lock();
        if !queue.writing && queue.items.is_empty() && !queue.closed {
            // Nothing waits before it. Whoever asked may have been aborted.
            let _ = written.send(());
        } else if !queue.closed {
            queue.items.push_back(Item::Barrier(written));
            self.shared.work.notify_one();
        }
    }

    /// False while the agent should be held back.
    pub(crate) fn has_room(&self) -> bool {
        self.shared.lock().bytes < SOFT_CAP
    }

    /// False while even commands should be left unread.
    pub(crate) fn has_room_for_responses(&self) -> bool {
        self.shared.lock().bytes < HARD_CAP
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }

    /// Completes when there may be more room, or the reader is gone.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Writes what is queued and ends, after `limit` at the latest: a reader that
    /// does not read must not keep the process alive.
    pub(crate) fn finish(mut self, limit: Duration) {
        let mut queue = self.shared.lock();
        queue.finished = true;
        self.shared.work.notify_one();
        let waiting =
            |queue: &mut Queue| !(queue.closed || queue.items.is_empty() && queue.bytes == 0);
        let (queue, timeout) = self
            .shared
            .done
            .wait_timeout_while(queue, limit, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        drop(queue);
        if let Some(writer) = self.writer.take()
            && !timeout.timed_out()
        {
            // A panic of the writer has nothing left to lose.
            let _ = writer.join();
        }
    }
}

fn write_all(shared: &Shared) {
    let mut out = io::stdout();
    loop {
        let mut queue = shared.lock();
        while queue.items.is_empty() && !queue.finished {
            queue = shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.items.is_empty() {
            shared.done.notify_all();
            return;
        }
        let mut batch = Vec::new();
        let mut barriers = Vec::new();
        while batch.len() < BATCH {
            match queue.items.pop_front() {
                Some(Item::Line(line)) if batch.is_empty() => batch = line,
                Some(Item::Line(line)) => batch.extend_from_slice(&line),
                Some(Item::Barrier(written)) => {
                    barriers.push(written);
                    break;
                }
                None => break,
            }
        }
        queue.writing = true;
        drop(queue);
        let result = out.write_all(&batch).and_then(|()| out.flush());
        let mut queue = shared.lock();
        queue.writing = false;
        let was_full = queue.bytes >= SOFT_CAP;
        if result.is_err() {
            queue.closed = true;
            queue.items.clear();
            queue.bytes = 0;
        } else {
            queue.bytes = queue.bytes.saturating_sub(batch.len());
            for written in barriers {
                // Whoever waited may have been aborted.
                let _ = written.send(());
            }
        }
        if queue.items.is_empty() {
            shared.done.notify_all();
        }
        let closed = queue.closed;
        drop(queue);
        // Nobody waits for a change while there is room.
        if was_full || closed {
            shared.changed.notify_one();
        }
        if closed {
            return;
        }
    }
}
