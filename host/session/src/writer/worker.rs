//! What the writer thread does: gathers lines, writes them, tells whoever waits.
//!
//! A line that could not be written stays in the backlog and is written before the
//! next one, so an error costs time, never an entry.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Seek, Write};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::{Job, Lines, Reply, Room, Snapshot, Stamp, Start, Target};
use crate::durability::{Durability, SyncFile, Syncer, reply_to};
use crate::error::WriteError;
use crate::shared::Shared;

/// Bytes gathered for one write.
const BATCH: usize = 1 << 20;

/// A file that is taken away this often while a line is being written is an error.
pub(super) const ATTEMPTS: usize = 8;

struct Item {
    line: Arc<String>,
    /// Of the job's last line only.
    receipt: Option<Reply>,
}

pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) target: Target,
    pub(super) snapshot: Snapshot,
    /// Open for appending.
    pub(super) file: Option<Arc<File>>,
    /// Of the file that has our entries; `None` before there is one.
    pub(super) stamp: Option<Stamp>,
    /// How many of the session's entries the file has.
    pub(super) in_file: usize,
    backlog: VecDeque<Item>,
    /// Bytes of the backlog's first line that are in the file.
    pub(super) partial: usize,
    /// The file ends within a line that is not ours to finish.
    pub(super) needs_line_feed: bool,
    /// Of entries that are in the file.
    finished: Vec<Reply>,
    /// The file was taken away after the last write.
    displaced: bool,
    unsynced: bool,
    syncer: Syncer,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        start: Start,
        in_file: usize,
        snapshot: Snapshot,
        sync_file: SyncFile,
    ) -> Self {
        let needs_line_feed = start.stamp.as_ref().is_some_and(|stamp| !stamp.ends_line());
        Self {
            shared,
            target: start.target,
            snapshot,
            file: None,
            stamp: start.stamp,
            in_file,
            backlog: VecDeque::new(),
            partial: 0,
            needs_line_feed,
            finished: Vec::new(),
            displaced: false,
            unsynced: false,
            syncer: Syncer::new(sync_file),
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn run(mut self, queue: &Receiver<Job>, room: &Room) {
        while let Ok(first) = queue.recv() {
            let mut next = Some(first);
            let mut gathered = 0;
            // Not again after an attempt that nothing came after.
            let mut is_due = false;
            while let Some(job) = next.take() {
                match job {
                    Job::Append(lines, receipt) => {
                        let bytes = lines.bytes();
                        gathered += bytes;
                        room.release(bytes);
                        self.queue(lines, receipt);
                        is_due = true;
                    }
                    Job::Sync => {
                        self.sync();
                        is_due = false;
                    }
                    Job::Flush(reply) => {
                        self.flush(reply);
                        is_due = false;
                    }
                }
                if gathered < BATCH {
                    next = queue.try_recv().ok();
                }
            }
            if is_due {
                self.write_or_keep();
            }
        }
        // The last handle is gone, and with it whoever could hear of an error.
        self.write_or_keep();
        if self.unsynced
            && self.shared.durability() != Durability::Never
            && let Some(file) = &self.file
        {
            let _ = self.syncer.sync_now(file);
        }
    }

    pub(super) fn queue(&mut self, lines: Lines, receipt: Reply) {
        // A snapshot may have brought some, or all, of them into the file already.
        let known = (self.in_file + self.backlog.len()).saturating_sub(lines.first);
        let mut new = lines.lines.into_iter().skip(known).peekable();
        if new.peek().is_none() {
            self.finished.push(receipt);
            return;
        }
        self.backlog.extend(new.map(|line| Item { line, receipt: None }));
        if let Some(last) = self.backlog.back_mut() {
            last.receipt = Some(receipt);
        }
    }

    /// Writes the backlog; on an error tells everybody who waits, and keeps the rest.
    pub(super) fn write_or_keep(&mut self) -> Option<WriteError> {
        let error = self.write().err();
        match &error {
            None => self.acknowledge(),
            Some(error) => {
                // The file is opened again, in case it was replaced by a sound one.
                self.file = None;
                let backlog = self.backlog.iter_mut().filter_map(|item| item.receipt.take());
                for receipt in self.finished.drain(..).chain(backlog) {
                    let _ = receipt.send(Err(error.clone()));
                }
            }
        }
        error
    }

    fn acknowledge(&mut self) {
        if self.finished.is_empty() {
            return;
        }
        let mut result = match self.syncer.take_failure() {
            Some(error) => Err(self.sync_error(error)),
            None => Ok(()),
        };
        if self.unsynced
            && self.shared.durability() == Durability::Entry
            && let Some(file) = &self.file
        {
            match self.syncer.sync_now(file) {
                Ok(()) => self.unsynced = false,
                Err(error) => result = Err(self.sync_error(error)),
            }
        }
        for receipt in self.finished.drain(..) {
            let _ = receipt.send(result.clone());
        }
    }

    fn sync(&mut self) {
        if self.write_or_keep().is_none()
            && self.shared.durability() != Durability::Never
            && self.unsynced
            && let Some(file) = &self.file
        {
            self.syncer.request(file, None);
            self.unsynced = false;
        }
    }

    fn flush(&mut self, reply: Reply) {
        let error = self
            .write_or_keep()
            .or_else(|| self.syncer.take_failure().map(|error| self.sync_error(error)));
        if let Some(error) = error {
            let _ = reply.send(Err(error));
            return;
        }
        match &self.file {
            // Also if all of it was asked for: the answer to that may be on its way.
            Some(file) if self.shared.durability() != Durability::Never => {
                let path = self.shared.path().to_owned();
                let reply = reply_to(reply, move |error| sync_error(path, error));
                self.syncer.request(file, Some(reply));
                self.unsynced = false;
            }
            _ => {
                let _ = reply.send(Ok(()));
            }
        }
    }

    fn write(&mut self) -> Result<(), WriteError> {
        for _ in 0..ATTEMPTS {
            if self.backlog.is_empty() && !self.displaced {
                return Ok(());
            }
            self.ready()?;
            while !self.backlog.is_empty() {
                self.write_batch()?;
            }
            self.look_after();
        }
        Err(self.error(io::Error::other("the file is taken away again and again")))
    }

    /// What went into a file that was taken away meanwhile is not written.
    pub(super) fn look_after(&mut self) {
        self.displaced = !self.is_in_place();
    }

    pub(super) fn write_batch(&mut self) -> Result<(), WriteError> {
        let mut batch = Vec::new();
        if self.needs_line_feed {
            batch.push(b'\n');
        }
        for (index, item) in self.backlog.iter().enumerate() {
            let skip = if index == 0 { self.partial } else { 0 };
            batch.extend_from_slice(&item.line.as_bytes()[skip..]);
        }
        let Some(mut file) = self.file.as_deref() else { return Ok(()) };
        let mut done = 0;
        let mut result = loop {
            if done == batch.len() {
                break Ok(());
            }
            match file.write(&batch[done..]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        if done > 0 {
            // Others may have written just before us: the kernel knows where ours ended.
            match (file.stream_position(), &mut self.stamp) {
                (Ok(end), Some(stamp)) => stamp.extend(&batch[..done], end),
                (Err(error), _) => result = result.and(Err(error)),
                (Ok(_), None) => {}
            }
        }
        self.account(done);
        result.map_err(|error| self.error(error))
    }

    /// Takes what `written` bytes finished off the backlog.
    pub(super) fn account(&mut self, mut written: usize) {
        self.unsynced |= written > 0;
        if self.needs_line_feed && written > 0 {
            self.needs_line_feed = false;
            written -= 1;
        }
        self.partial += written;
        while let Some(item) = self.backlog.front_mut()
            && item.line.len() <= self.partial
        {
            self.partial -= item.line.len();
            self.finish_first();
        }
    }

    /// After the first `in_file` entries of the session got into the file otherwise.
    pub(super) fn finish_until(&mut self, in_file: usize) {
        self.partial = 0;
        while self.in_file < in_file && !self.backlog.is_empty() {
            self.finish_first();
        }
        // The lines of the others are still in the queue.
        self.in_file = self.in_file.max(in_file);
        // Whole files are synced when they are made.
        self.unsynced = false;
    }

    fn finish_first(&mut self) {
        let item = self.backlog.pop_front();
        self.finished.extend(item.and_then(|item| item.receipt));
        self.in_file += 1;
    }

    pub(super) fn error(&self, source: io::Error) -> WriteError {
        WriteError::io(self.shared.path(), source)
    }

    fn sync_error(&self, source: io::Error) -> WriteError {
        WriteError::Sync { path: self.shared.path().to_owned(), source: Arc::new(source) }
    }
}

/// For an error that several wait for.
fn sync_error(path: std::path::PathBuf, error: &io::Error) -> WriteError {
    let source = io::Error::new(error.kind(), error.to_string());
    WriteError::Sync { path, source: Arc::new(source) }
}
