//! The log file: what guests print, and what extensions log. One thread writes
//! it, so that neither a slow disk nor a chatty guest holds up a runtime thread.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

use crate::limits::{MAX_LOG_LINE_BYTES, truncated};

/// Lines that wait for the disk; what comes on top is dropped and counted.
const QUEUED_LINES: usize = 4_096;
/// At this size the file becomes `<name>.old` and a new one begins.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Debug,
    Info,
    Warn,
    Error,
    Stdout,
    Stderr,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        })
    }
}

#[derive(Debug)]
enum Entry {
    Lines(Vec<u8>),
    /// Answered when everything before it is in the file.
    Flush(oneshot::Sender<()>),
}

/// Writes lines to the log; the file is created with the first one.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    entries: OnceLock<Option<SyncSender<Entry>>>,
    dropped: Arc<AtomicU64>,
}

impl LogFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, entries: OnceLock::new(), dropped: Arc::default() }
    }

    pub(crate) fn write(&self, extension: &str, level: Level, text: &str) {
        self.queue(line(extension, level, text));
    }

    /// Lines that nothing comes between.
    pub(crate) fn write_block(&self, extension: &str, level: Level, text: &str) {
        let lines = text.lines().map(|text| line(extension, level, text));
        self.queue(lines.collect::<String>());
    }

    fn queue(&self, lines: String) {
        let entries = self.entries.get_or_init(|| {
            let (sender, receiver) = sync_channel(QUEUED_LINES);
            let path = self.path.clone();
            let dropped = Arc::clone(&self.dropped);
            let spawned = thread::Builder::new()
                .name("wharf-log".into())
                .spawn(move || write_entries(&path, &receiver, &dropped));
            spawned.is_ok().then_some(sender)
        });
        if let Some(entries) = entries
            && entries.try_send(Entry::Lines(lines.into_bytes())).is_err()
        {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Completes when everything so far is in the file.
    pub(crate) async fn flushed(&self) {
        let Some(Some(entries)) = self.entries.get() else { return };
        let (done, flushed) = oneshot::channel();
        if entries.try_send(Entry::Flush(done)).is_ok() {
            // The writer has ended: there is nothing to wait for.
            let _ = flushed.await;
        }
    }
}

fn line(extension: &str, level: Level, text: &str) -> String {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let text = truncated(text.replace(['\n', '\r'], "\\n"), MAX_LOG_LINE_BYTES);
    format!("{millis} {level} [{extension}] {text}\n")
}

/// Ends when the sender is gone. A log that cannot be written is not worth a failure.
fn write_entries(path: &Path, entries: &Receiver<Entry>, dropped: &AtomicU64) {
    let mut log = open(path).ok();
    for entry in entries {
        let line = match entry {
            Entry::Lines(lines) => lines,
            Entry::Flush(done) => {
                // Whoever waited may have given up.
                let _ = done.send(());
                continue;
            }
        };
        let lost = dropped.swap(0, Relaxed);
        let note = if lost > 0 { format!("... {lost} lines dropped\n") } else { String::new() };
        if let Some((file, size)) = &mut log {
            let written = file.write_all(&line).and_then(|()| file.write_all(note.as_bytes()));
            *size += (line.len() + note.len()) as u64;
            if written.is_err() || *size > MAX_FILE_BYTES {
                log = rotate(path).ok();
            }
        }
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

fn rotate(path: &Path) -> io::Result<(File, u64)> {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    fs::rename(path, old)?;
    open(path)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[tokio::test]
    async fn lines_are_whole_capped_and_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/extensions.log");
        let log = LogFile::new(path.clone());
        log.flushed().await;
        assert!(!path.exists(), "nothing was logged yet");
        log.write("a", Level::Stdout, "one\ntwo");
        log.write("b", Level::Warn, &"x".repeat(MAX_LOG_LINE_BYTES + 1));
        log.flushed().await;
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<_> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        assert_eq!(lines[0], "stdout [a] one\\ntwo");
        assert!(lines[1].starts_with("warn [b] xxx"));
        log.write_block("c", Level::Error, "first\nsecond");
        log.flushed().await;
        let text = fs::read_to_string(directory.path().join("deep/extensions.log")).unwrap();
        let block: Vec<_> = text.lines().skip(2).map(|l| l.split_once(' ').unwrap().1).collect();
        assert_eq!(block, ["error [c] first", "error [c] second"]);
        assert!(lines[1].ends_with("[... 1 bytes over the limit of 8192 dropped]"), "{}", lines[1]);
    }
}
