//! `performance.jsonl`: how fast models replied, for the statistics of
//! `get_performance_stats`. Sessions, usage and costs are not here.
//!
//! Several processes write the same file. Who writes holds the file's lock and appends one
//! whole line with one write. About once a day the writer that finds the oldest entry past
//! its time puts a pruned copy in the file's place, while it holds the lock of the old
//! file; who waited for that lock sees that the file is another one and starts over.
//! Readers take no lock: they see the old file or the new one, and skip a line that is
//! not complete.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wharf_protocol::StopReason;
use wharf_session::Timestamp;

const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// What is older counts no more and goes at the next prune; as session-format.md fixes.
const KEPT_MILLIS: i64 = 30 * DAY_MILLIS;

/// Shorter replies say nothing about speed; as session-format.md fixes.
const MIN_DURATION: Duration = Duration::from_millis(10);

/// Turns of each model that the statistics look at, the latest ones.
const ROLLING_TURNS: usize = 100;

/// A reply that has ended.
#[derive(Debug, Clone)]
pub struct PerformanceEntry {
    /// When it ended.
    pub timestamp: Timestamp,
    pub session_id: String,
    pub provider: String,
    pub model_id: String,
    pub stop_reason: StopReason,
    pub output_tokens: u64,
    pub duration: Duration,
}

/// A model's speed in tokens per second over its latest turns.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelPerformance {
    pub provider: String,
    pub model_id: String,
    pub median: f64,
    pub mean: f64,
    /// Turns that these are of.
    pub count: usize,
}

/// A line as it is written.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    timestamp: Timestamp,
    session_id: &'a str,
    provider: &'a str,
    model_id: &'a str,
    output_tokens: u64,
    duration_ms: u64,
    tps: f64,
}

/// What the statistics need of a line.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    timestamp: String,
    provider: String,
    model_id: String,
    tps: f64,
}

/// What a prune needs of a line, whichever version wrote the rest.
#[derive(Debug, Deserialize)]
struct Dated {
    timestamp: String,
}

#[derive(Debug, Clone)]
pub struct PerformanceLog {
    path: PathBuf,
}

impl PerformanceLog {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends the entry, unless its reply failed, was aborted, has no output tokens or took
    /// less than ten milliseconds. The file is made with the first entry. Blocks.
    ///
    /// # Errors
    /// The file cannot be made, locked, written or pruned. After a failed prune the entry
    /// is in the file all the same.
    pub fn record(&self, entry: PerformanceEntry) -> io::Result<()> {
        self.record_at(&entry, Timestamp::now())
    }

    /// The speed of each model, sorted by provider and model. Blocks.
    ///
    /// # Errors
    /// The file is there and cannot be read. Lines that cannot be read are skipped.
    pub fn stats(&self) -> io::Result<Vec<ModelPerformance>> {
        self.stats_at(Timestamp::now()).map_err(|error| self.named("read", &error))
    }

    fn record_at(&self, entry: &PerformanceEntry, now: Timestamp) -> io::Result<()> {
        let Some(line) = line(entry)? else { return Ok(()) };
        let file = self.open_locked().map_err(|error| self.named("open", &error))?;
        append(&file, &line).map_err(|error| self.named("write", &error))?;
        if prune_is_due(&file, now).map_err(|error| self.named("read", &error))? {
            self.prune(&file, now).map_err(|error| self.named("prune", &error))?;
        }
        Ok(())
    }

    /// The file with its lock held. Closing it releases the lock.
    fn open_locked(&self) -> io::Result<File> {
        if let Some(directory) = self.path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        loop {
            let file = OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&self.path)?;
            let opened = file.metadata()?;
            if !opened.is_file() {
                return Err(io::Error::other("it is not a regular file"));
            }
            file.lock()?;
            match fs::metadata(&self.path) {
                Ok(current) if (current.dev(), current.ino()) == (opened.dev(), opened.ino()) => {
                    return Ok(file);
                }
                // Replaced by a prune, or removed, while this waited.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts a copy without what is past its time in the place of `file`, whose lock is held.
    ///
    /// A line without a date that can be read is as old as the dated one before it; with
    /// none before it, it goes.
    fn prune(&self, mut file: &File, now: Timestamp) -> io::Result<()> {
        // A link stays one.
        let target = fs::canonicalize(&self.path)?;
        let directory = target.parent().unwrap_or(Path::new("/"));
        let mut copy = tempfile::Builder::new().prefix(".performance-").tempfile_in(directory)?;
        copy.as_file().set_permissions(file.metadata()?.permissions())?;
        let mut writer = BufWriter::new(copy.as_file_mut());
        let (mut keep, mut dropped) = (false, false);
        file.seek(SeekFrom::Start(0))?;
        for line in BufReader::new(file).split(b'\n') {
            let line = line?;
            if let Some(date) = date(&line) {
                keep = age_millis(date, now) <= KEPT_MILLIS;
            }
            if keep {
                writer.write_all(&line)?;
                writer.write_all(b"\n")?;
            } else {
                dropped = true;
            }
        }
        writer.flush()?;
        drop(writer);
        if dropped {
            copy.as_file().sync_data()?;
            copy.persist(&target).map_err(|error| error.error)?;
        }
        Ok(())
    }

    fn stats_at(&self, now: Timestamp) -> io::Result<Vec<ModelPerformance>> {
        match fs::metadata(&self.path) {
            Ok(metadata) if metadata.is_file() => {}
            // Opening a FIFO would wait for its writer.
            Ok(_) => return Err(io::Error::other("it is not a regular file")),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        let mut models: BTreeMap<(String, String), VecDeque<f64>> = BTreeMap::new();
        for line in BufReader::new(File::open(&self.path)?).split(b'\n') {
            let Ok(recorded) = serde_json::from_slice::<Recorded>(&line?) else { continue };
            let Some(timestamp) = Timestamp::parse(&recorded.timestamp) else { continue };
            if age_millis(timestamp, now) > KEPT_MILLIS {
                continue;
            }
            let turns = models.entry((recorded.provider, recorded.model_id)).or_default();
            if turns.len() == ROLLING_TURNS {
                turns.pop_front();
            }
            turns.push_back(recorded.tps);
        }
        let of_model = |((provider, model_id), turns): ((String, String), VecDeque<f64>)| {
            let mut turns = Vec::from(turns);
            turns.sort_unstable_by(f64::total_cmp);
            let (median, mean) = (median(&turns), mean(&turns));
            ModelPerformance { provider, model_id, median, mean, count: turns.len() }
        };
        Ok(models.into_iter().map(of_model).collect())
    }

    fn named(&self, action: &str, error: &io::Error) -> io::Error {
        let path = self.path.display();
        io::Error::new(
            error.kind(),
            format!("failed to {action} the performance log {path}: {error}"),
        )
    }
}

/// The entry's line; none if it is not to be recorded.
fn line(entry: &PerformanceEntry) -> io::Result<Option<Vec<u8>>> {
    let completed = match entry.stop_reason {
        StopReason::Stop | StopReason::Length | StopReason::ToolUse => true,
        StopReason::Error | StopReason::Aborted => false,
    };
    if !completed || entry.output_tokens == 0 || entry.duration < MIN_DURATION {
        return Ok(None);
    }
    let duration_ms = u64::try_from(entry.duration.as_millis()).unwrap_or(u64::MAX);
    #[expect(clippy::cast_precision_loss, reason = "both are far below 2^52")]
    let tps = entry.output_tokens as f64 * 1000.0 / duration_ms as f64;
    let mut line = serde_json::to_vec(&Line {
        timestamp: entry.timestamp,
        session_id: &entry.session_id,
        provider: &entry.provider,
        model_id: &entry.model_id,
        output_tokens: entry.output_tokens,
        duration_ms,
        tps,
    })?;
    line.push(b'\n');
    Ok(Some(line))
}

/// Appends a line with one write, on a line of its own also where a crash cut the last one.
fn append(mut file: &File, line: &[u8]) -> io::Result<()> {
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last == *b"\n" {
        return file.write_all(line);
    }
    file.write_all(&[b"\n", line].concat())
}

/// Whether the first line is a day past its time. A prune leaves none there that is past
/// its time, so the next one comes a day later at the earliest. A first line that has no
/// date, or one to come, must not keep the file from being pruned.
fn prune_is_due(mut file: &File, now: Timestamp) -> io::Result<bool> {
    file.seek(SeekFrom::Start(0))?;
    let mut first = Vec::new();
    BufReader::new(file).read_until(b'\n', &mut first)?;
    let age = date(&first).map(|date| age_millis(date, now));
    Ok(age.is_none_or(|age| !(-DAY_MILLIS..=KEPT_MILLIS + DAY_MILLIS).contains(&age)))
}

fn date(line: &[u8]) -> Option<Timestamp> {
    let dated: Dated = serde_json::from_slice(line).ok()?;
    Timestamp::parse(&dated.timestamp)
}

fn age_millis(timestamp: Timestamp, now: Timestamp) -> i64 {
    now.as_millis().saturating_sub(timestamp.as_millis())
}

/// Of sorted numbers; zero of none.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (Some(value), 1) => *value,
        (Some(value), _) => f64::midpoint(sorted[middle - 1], *value),
        (None, _) => 0.0,
    }
}

/// Zero of none.
fn mean(numbers: &[f64]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "at most ROLLING_TURNS")]
    let count = numbers.len().max(1) as f64;
    numbers.iter().sum::<f64>() / count
}

#[cfg(test)]
mod tests;
