//! The one thread that writes a session's file. Knows lines, not entries.
//!
//! A line that could not be written stays in the backlog and is written before the
//! next one, so an error costs time, never an entry.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::directory::create_private_dir;
use crate::error::WriteError;
use crate::header::SessionHeader;

/// Jobs in the channel. Who appends faster than the disk takes it waits here.
const QUEUE: usize = 1024;

/// Bytes gathered for one write.
const BATCH: usize = 1 << 20;

/// Resolves once an entry's line is in the file, or says why it isn't yet.
///
/// Entries before a session's first message have no file: theirs resolve at once.
#[derive(Debug)]
pub struct Receipt(ReceiptState);

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

/// A last line that a crash cut off. Readers that parse every line would stumble over
/// it for ever, so the first append moves it out of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TornTail {
    /// Where it starts, in bytes.
    pub(crate) start: u64,
    /// Length of the file that was read. Another one means that somebody writes there.
    pub(crate) source_len: u64,
}

/// What is added to a file's name for the tails that were moved out of it.
const TORN_SUFFIX: &str = ".torn";

/// The version 3 form of a file that has another one.
#[derive(Debug, Clone)]
pub(crate) struct Replacement {
    /// To be written before `text`, which has none.
    pub(crate) header: Option<SessionHeader>,
    pub(crate) text: Arc<String>,
    /// Length in bytes of the file that was read; another one means that it has changed.
    pub(crate) source_len: u64,
    /// What is added to the file's name for the copy that is kept.
    pub(crate) backup: Option<String>,
}

enum Job {
    Append(Vec<Arc<String>>, oneshot::Sender<Result<(), WriteError>>),
    Flush(oneshot::Sender<Result<(), WriteError>>),
}

/// The session's end of the thread. Dropping it waits until everything is written.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn spawn(path: &Path, target: Target) -> io::Result<Self> {
        let (jobs, queue) = sync_channel(QUEUE);
        let mut worker = Worker::new(path.to_owned(), target);
        let thread = std::thread::Builder::new()
            .name("session-writer".to_owned())
            .spawn(move || worker.run(&queue))?;
        Ok(Self { path: path.to_owned(), jobs: Some(jobs), thread: Some(thread) })
    }

    /// Queues whole lines as one write.
    pub(crate) fn append(&self, lines: Vec<Arc<String>>) -> Receipt {
        self.send(|sender| Job::Append(lines, sender))
    }

    /// Resolves when everything queued so far is on the disk.
    pub(crate) fn flush(&self) -> Receipt {
        self.send(Job::Flush)
    }

    fn send(&self, job: impl FnOnce(oneshot::Sender<Result<(), WriteError>>) -> Job) -> Receipt {
        let (sender, receiver) = oneshot::channel();
        if let Some(jobs) = &self.jobs {
            // Without a thread the sender is dropped, and the receipt says so.
            let _ = jobs.send(job(sender));
        }
        Receipt(ReceiptState::Pending(receiver, self.path.clone()))
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

struct Item {
    line: Arc<String>,
    /// Of the job's last line only.
    receipt: Option<oneshot::Sender<Result<(), WriteError>>>,
}

struct Worker {
    path: PathBuf,
    target: Target,
    file: Option<File>,
    backlog: VecDeque<Item>,
    /// Bytes of the backlog's first line that are in the file.
    partial: usize,
    /// Length of the file after our last write.
    end: Option<u64>,
    /// The file ends within a line that is not ours to finish.
    needs_line_feed: bool,
    unsynced: bool,
}

impl Worker {
    fn new(path: PathBuf, target: Target) -> Self {
        Self {
            path,
            target,
            file: None,
            backlog: VecDeque::new(),
            partial: 0,
            end: None,
            needs_line_feed: false,
            unsynced: false,
        }
    }

    fn run(&mut self, queue: &Receiver<Job>) {
        while let Ok(first) = queue.recv() {
            let mut next = Some(first);
            let mut gathered = 0;
            while let Some(job) = next.take() {
                match job {
                    Job::Append(lines, receipt) => {
                        gathered += lines.iter().map(|line| line.len()).sum::<usize>();
                        self.queue(lines, receipt);
                    }
                    Job::Flush(reply) => {
                        let _ = reply.send(self.write_and_sync());
                    }
                }
                if gathered < BATCH {
                    next = queue.try_recv().ok();
                }
            }
            self.write_or_keep();
        }
        // The last handle is gone, and with it whoever could hear of an error.
        let _ = self.write_and_sync();
    }

    fn queue(&mut self, lines: Vec<Arc<String>>, receipt: oneshot::Sender<Result<(), WriteError>>) {
        self.backlog.extend(lines.into_iter().map(|line| Item { line, receipt: None }));
        if let Some(last) = self.backlog.back_mut() {
            last.receipt = Some(receipt);
        }
    }

    /// Writes the backlog; on an error tells everybody who waits, and keeps the rest.
    fn write_or_keep(&mut self) -> Option<WriteError> {
        let error = self.write().err()?;
        // The file is opened again, in case it was replaced by a sound one.
        self.file = None;
        for item in &mut self.backlog {
            if let Some(receipt) = item.receipt.take() {
                let _ = receipt.send(Err(error.clone()));
            }
        }
        Some(error)
    }

    fn write_and_sync(&mut self) -> Result<(), WriteError> {
        if let Some(error) = self.write_or_keep() {
            return Err(error);
        }
        if self.unsynced
            && let Some(file) = &self.file
        {
            file.sync_all().map_err(|error| self.error(error))?;
            self.unsynced = false;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), WriteError> {
        if self.backlog.is_empty() {
            return Ok(());
        }
        self.prepare()?;
        while !self.backlog.is_empty() {
            self.write_batch()?;
        }
        Ok(())
    }

    fn write_batch(&mut self) -> Result<(), WriteError> {
        let mut batch = Vec::new();
        if self.needs_line_feed {
            batch.push(b'\n');
        }
        for (index, item) in self.backlog.iter().enumerate() {
            let skip = if index == 0 { self.partial } else { 0 };
            batch.extend_from_slice(&item.line.as_bytes()[skip..]);
        }
        let Some(mut file) = self.file.as_ref() else { return Ok(()) };
        let mut done = 0;
        let result = loop {
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
        self.account(done);
        result.map_err(|error| self.error(error))
    }

    /// Takes what `written` bytes finished off the backlog.
    fn account(&mut self, mut written: usize) {
        self.end = self.end.map(|end| end + written as u64);
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
            if let Some(receipt) = item.receipt.take() {
                let _ = receipt.send(Ok(()));
            }
            self.backlog.pop_front();
        }
    }

    /// Has the file open for appending.
    fn prepare(&mut self) -> Result<(), WriteError> {
        match &self.target {
            Target::Existing(None) => {}
            Target::Existing(Some(torn)) => {
                move_torn_tail(&self.path, *torn).map_err(|error| self.error(error))?;
                self.target = Target::Existing(None);
            }
            Target::New(header) => {
                let line = header.to_line().map_err(|error| WriteError::Encode(Arc::new(error)))?;
                self.create(&line).map_err(|error| self.error(error))?;
                self.target = Target::Existing(None);
            }
            Target::Replaced(replacement) => {
                self.replace(replacement)?;
                self.target = Target::Existing(None);
            }
        }
        // A file that someone replaced by another one (an editor does) is opened again.
        for _ in 0..2 {
            let file = match self.file.take() {
                Some(file) => file,
                None => OpenOptions::new().read(true).append(true).open(&self.path).map_err(
                    |error| match error.kind() {
                        ErrorKind::NotFound => WriteError::Removed { path: self.path.clone() },
                        _ => self.error(error),
                    },
                )?,
            };
            let metadata = file.metadata().map_err(|error| self.error(error))?;
            if is_unlinked(&metadata) {
                continue;
            }
            if self.end != Some(metadata.len()) {
                // Somebody else wrote after our last byte: a line of ours that is not
                // finished is written again as a whole.
                self.partial = 0;
                self.needs_line_feed = metadata.len() > 0
                    && last_byte(&file).map_err(|error| self.error(error))? != b'\n';
                self.end = Some(metadata.len());
            }
            self.file = Some(file);
            return Ok(());
        }
        Err(WriteError::Removed { path: self.path.clone() })
    }

    /// Creates the file with its header: by rename, so that a crash leaves no file
    /// without one.
    fn create(&self, header: &str) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        create_private_dir(folder)?;
        // Private, as tempfile makes them.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(header.as_bytes())?;
        file.persist_noclobber(&self.path)?;
        Ok(())
    }

    /// Puts the version 3 form in the file's place, and keeps the file beside it.
    fn replace(&self, replacement: &Replacement) -> Result<(), WriteError> {
        let metadata = std::fs::metadata(&self.path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => WriteError::Removed { path: self.path.clone() },
            _ => self.error(error),
        })?;
        if metadata.len() != replacement.source_len {
            return Err(WriteError::Changed { path: self.path.clone() });
        }
        // Where the path is a link, the file it leads to is replaced, not the link.
        let path = self.path.canonicalize().map_err(|error| self.error(error))?;
        let header = match &replacement.header {
            Some(header) => {
                header.to_line().map_err(|error| WriteError::Encode(Arc::new(error)))?
            }
            None => String::new(),
        };
        put_in_place(&path, &header, replacement).map_err(|error| self.error(error))
    }

    fn error(&self, source: io::Error) -> WriteError {
        WriteError::io(&self.path, source)
    }
}

/// Takes a torn tail out of the file; its bytes are kept beside it.
fn move_torn_tail(path: &Path, torn: TornTail) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    if file.metadata()?.len() != torn.source_len {
        return Ok(());
    }
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(torn.start))?;
    file.read_to_end(&mut tail)?;
    tail.push(b'\n');
    let mut name = path.as_os_str().to_owned();
    name.push(TORN_SUFFIX);
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut kept = options.open(name)?;
    kept.write_all(&tail)?;
    kept.sync_all()?;
    file.set_len(torn.start)
}

fn put_in_place(path: &Path, header: &str, replacement: &Replacement) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // Private, as tempfile makes them.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(header.as_bytes())?;
    file.write_all(replacement.text.as_bytes())?;
    if !replacement.text.is_empty() && !replacement.text.ends_with('\n') {
        file.write_all(b"\n")?;
    }
    file.as_file().sync_all()?;
    if let Some(suffix) = &replacement.backup {
        keep_copy(path, suffix)?;
    }
    file.persist(path)?;
    // Makes the new name durable, where a directory can be synced at all.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Gives the file at `path` a second name; a copy that exists is never overwritten.
fn keep_copy(path: &Path, suffix: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    let mut backup = PathBuf::from(&name);
    let mut number = 1;
    loop {
        match std::fs::hard_link(path, &backup) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // Left by an attempt that was cut off?
                if std::fs::read(&backup)? == std::fs::read(path)? {
                    return Ok(());
                }
                number += 1;
                let mut numbered = name.clone();
                numbered.push(number.to_string());
                backup = PathBuf::from(numbered);
            }
            // The file system has no hard links.
            Err(_) => return std::fs::copy(path, &backup).map(|_| ()),
        }
    }
}

#[cfg(unix)]
fn is_unlinked(metadata: &std::fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(metadata) == 0
}

/// Elsewhere an open file cannot be removed.
#[cfg(not(unix))]
fn is_unlinked(_: &std::fs::Metadata) -> bool {
    false
}

fn last_byte(mut file: &File) -> io::Result<u8> {
    let mut byte = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut byte)?;
    Ok(byte[0])
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::fs;

    fn start(path: &Path, target: Target) -> Writer {
        Writer::spawn(path, target).unwrap()
    }

    fn lines(texts: &[&str]) -> Vec<Arc<String>> {
        texts.iter().map(|text| Arc::new(format!("{text}\n"))).collect()
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_full_disk_costs_no_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let writer = start(&path, Target::Existing(None));
        for text in ["a", "b"] {
            let error = writer.append(lines(&[text])).await.unwrap_err();
            assert!(matches!(error, WriteError::DiskFull { .. }), "{error}");
            assert!(error.to_string().contains("s.jsonl"), "{error}");
        }
        assert!(writer.flush().await.is_err());

        fs::remove_file(&path).unwrap();
        fs::write(&path, "x\n").unwrap();
        writer.append(lines(&["c", "d"])).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "x\na\nb\nc\nd\n");
        writer.flush().await.unwrap();
    }

    #[tokio::test]
    async fn a_removed_file_is_not_written_into_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        fs::write(&path, "").unwrap();
        let writer = start(&path, Target::Existing(None));
        writer.append(lines(&["a"])).await.unwrap();
        fs::remove_file(&path).unwrap();
        let error = writer.append(lines(&["b"])).await.unwrap_err();
        assert!(matches!(error, WriteError::Removed { .. }), "{error}");
        assert!(!path.exists());
        fs::write(&path, "restored").unwrap();
        drop(writer);
        assert_eq!(fs::read_to_string(&path).unwrap(), "restored\nb\n");
    }

    #[tokio::test]
    async fn lines_of_others_are_left_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        fs::write(&path, "torn").unwrap();
        let writer = start(&path, Target::Existing(None));
        writer.append(lines(&["a"])).await.unwrap();
        let mut other = OpenOptions::new().append(true).open(&path).unwrap();
        other.write_all(b"other").unwrap();
        writer.append(lines(&["b"])).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "torn\na\nother\nb\n");
    }

    #[test]
    fn an_interrupted_line_is_finished_or_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        for (between, expected) in [("", "abcd\nef\n"), ("X\n", "abX\nabcd\nef\n")] {
            fs::write(&path, "ab").unwrap();
            let mut worker = Worker::new(path.clone(), Target::Existing(None));
            let (sender, mut receipt) = oneshot::channel();
            worker.queue(lines(&["abcd", "ef"]), sender);
            // As after a write that stopped two bytes in.
            worker.end = Some(0);
            worker.account(2);
            let mut other = OpenOptions::new().append(true).open(&path).unwrap();
            other.write_all(between.as_bytes()).unwrap();
            assert!(receipt.try_recv().is_err());
            worker.write_and_sync().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), expected);
            receipt.try_recv().unwrap().unwrap();
        }
    }

    #[test]
    fn copies_are_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        for content in ["one", "one", "two"] {
            let _ = fs::remove_file(&path);
            fs::write(&path, content).unwrap();
            keep_copy(&path, ".v1.bak").unwrap();
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("s.jsonl.v1.bak"), "one");
        assert_eq!(read("s.jsonl.v1.bak2"), "two");
    }
}
