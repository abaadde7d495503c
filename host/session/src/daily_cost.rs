//! What all sessions together cost today. Reads costs as providers' replies state them;
//! knows no prices.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::ZonedDateTime;
use memchr::memmem;
use serde::Deserialize;

use crate::directory::FoundFiles;
use crate::entry::EntryType;
use crate::error::ListError;
use crate::listing::lines::Line;
use crate::listing::mark::{Mark, Reading};
use crate::listing::summary::timestamp_of;
use crate::scan::{Envelope, scan, trim};

/// Adds up `usage.cost.total` of the assistant messages of this day, in local time, in
/// all session files below some directories. Remembers what it has read.
pub struct DailyCost {
    roots: Vec<PathBuf>,
    clock: Box<dyn Fn() -> ZonedDateTime + Send + Sync>,
    /// The first millisecond of the day that `files` is of.
    day: i64,
    files: HashMap<PathBuf, FileCost>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct CostToday {
    /// US dollars.
    pub cost: f64,
    /// Files and folders that could not be read, and why.
    pub problems: Vec<(PathBuf, String)>,
}

struct FileCost {
    mark: Mark,
    replies: Vec<Reply>,
    /// In a last line without line feed: it may be torn, or not yet finished.
    unfinished: Vec<Reply>,
}

#[derive(Clone, Copy)]
struct Reply {
    /// Milliseconds since the Unix epoch.
    time: i64,
    tokens: f64,
    /// US dollars.
    cost: f64,
}

impl DailyCost {
    /// `roots`: the main sessions' directory, of either layout, and the subagents'; one
    /// that doesn't exist is empty. Reads nothing yet.
    pub fn new(roots: Vec<PathBuf>) -> Self {
        Self::with_clock(roots, ZonedDateTime::now)
    }

    pub(crate) fn with_clock(
        roots: Vec<PathBuf>,
        clock: impl Fn() -> ZonedDateTime + Send + Sync + 'static,
    ) -> Self {
        Self { roots, clock: Box::new(clock), day: i64::MIN, files: HashMap::new() }
    }

    /// Reads what was written since the last call.
    ///
    /// # Errors
    /// If one of the roots can't be read.
    pub fn refresh(&mut self) -> Result<CostToday, ListError> {
        let now = (self.clock)();
        let millis = |time: Result<ZonedDateTime, jiff::Error>, unknown| {
            time.map_or(unknown, |time| time.timestamp().as_millisecond())
        };
        let start = millis(now.start_of_day(), i64::MIN);
        let end = millis(now.tomorrow().and_then(|day| day.start_of_day()), i64::MAX);
        self.begin(start);

        let mut today = CostToday::default();
        let mut previous = std::mem::take(&mut self.files);
        // A fork repeats the messages of its source.
        let mut counted = HashSet::new();
        for root in &self.roots {
            let mut found = walk(root)?;
            today.problems.append(&mut found.problems);
            // An order that is always the same makes a sum that is.
            found.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
            for file in found.files {
                if timestamp_of(file.modified).as_millis() < start
                    || self.files.contains_key(&file.path)
                {
                    continue;
                }
                let known = previous.remove(&file.path);
                let read = match known {
                    Some(known) if known.mark.is_current(&file.metadata) => known,
                    known => match FileCost::read(&file.path, known, start) {
                        Ok(read) => read,
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        Err(error) => {
                            today.problems.push((file.path, error.to_string()));
                            continue;
                        }
                    },
                };
                for reply in read.replies.iter().chain(&read.unfinished) {
                    if (start..end).contains(&reply.time)
                        && counted.insert((reply.time, reply.tokens.to_bits()))
                    {
                        today.cost += reply.cost;
                    }
                }
                self.files.insert(file.path, read);
            }
        }
        Ok(today)
    }

    fn begin(&mut self, day: i64) {
        if day < self.day {
            // The clock was set back, or the time zone changed: what was passed over counts.
            self.files.clear();
        } else if day > self.day {
            for file in self.files.values_mut() {
                file.replies.retain(|reply| reply.time >= day);
            }
        }
        self.day = day;
    }
}

impl fmt::Debug for DailyCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DailyCost").field("roots", &self.roots).finish_non_exhaustive()
    }
}

/// The session files in `root` and in all folders below it.
fn walk(root: &Path) -> Result<FoundFiles, ListError> {
    let mut found = FoundFiles::default();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let listing = match fs::read_dir(&folder) {
            Ok(listing) => listing,
            // Not there yet, or no more.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) if folder == root => return Err(ListError::new(root, error)),
            Err(error) => {
                found.problems.push((folder, error.to_string()));
                continue;
            }
        };
        for item in listing {
            // Links to folders are not followed: they may lead in circles.
            match item.and_then(|item| Ok((item.file_type()?, item))) {
                Ok((kind, item)) if kind.is_dir() => folders.push(item.path()),
                Ok((_, item)) => found.look_at(&item),
                Err(error) => found.problems.push((folder.clone(), error.to_string())),
            }
        }
    }
    Ok(found)
}

impl FileCost {
    /// Reads what `known` doesn't cover; keeps what is not before `start`.
    fn read(path: &Path, known: Option<Self>, start: i64) -> io::Result<Self> {
        let reading = Reading::start(path, known.as_ref().map(|known| &known.mark))?;
        let mut replies = match known {
            Some(known) if reading.offset() > 0 => known.replies,
            _ => Vec::new(),
        };
        let mut unfinished = Vec::new();
        let mark = reading.read(|line| {
            let to = if line.finished { &mut replies } else { &mut unfinished };
            add_replies(line, start, to);
        })?;
        Ok(Self { mark, replies, unfinished })
    }
}

fn add_replies(line: Line<'_>, start: i64, to: &mut Vec<Reply>) {
    // Most lines are none: this tells without reading them as JSON. A reply is never so
    // long that it would be cut.
    if line.cut.is_some() || memmem::find(line.bytes, b"\"usage\"").is_none() {
        return;
    }
    let text = String::from_utf8_lossy(line.bytes);
    let whole = trim(&text);
    let mut add = |text: &str, envelope: &Envelope| {
        to.extend(Reply::parse(text, envelope).filter(|reply| reply.time >= start));
    };
    match Envelope::parse(whole) {
        Some(envelope) => add(whole, &envelope),
        None => {
            for (range, envelope) in scan(&text).objects {
                add(&text[range], &envelope);
            }
        }
    }
}

#[derive(Deserialize)]
struct WireEntry {
    message: WireMessage,
}

#[derive(Deserialize)]
struct WireMessage {
    role: String,
    /// Milliseconds since the Unix epoch.
    #[serde(default)]
    timestamp: Option<f64>,
    usage: WireUsage,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireUsage {
    #[serde(default)]
    total_tokens: f64,
    cost: WireCost,
}

#[derive(Deserialize)]
struct WireCost {
    total: f64,
}

impl Reply {
    fn parse(text: &str, envelope: &Envelope) -> Option<Self> {
        if envelope.entry_type != EntryType::Message {
            return None;
        }
        let message = serde_json::from_str::<WireEntry>(text).ok()?.message;
        if message.role != "assistant" {
            return None;
        }
        let time = match envelope.timestamp {
            Some(time) => time.as_millis(),
            None => message.timestamp? as i64,
        };
        Some(Self { time, tokens: message.usage.total_tokens, cost: message.usage.cost.total })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, SystemTime};

    /// A store whose clock is set by hand.
    struct Store {
        dir: tempfile::TempDir,
        now: Arc<Mutex<ZonedDateTime>>,
        daily: DailyCost,
    }

    impl Store {
        fn new(now: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let now = Arc::new(Mutex::new(now.parse::<ZonedDateTime>().unwrap()));
            let clock = Arc::clone(&now);
            let roots = vec![
                dir.path().join("sessions"),
                dir.path().join("subagents"),
                dir.path().join("none"),
            ];
            let daily = DailyCost::with_clock(roots, move || clock.lock().unwrap().clone());
            Self { dir, now, daily }
        }

        fn set(&self, now: &str) {
            *self.now.lock().unwrap() = now.parse().unwrap();
        }

        /// Appends at the time that the store's clock shows.
        fn append(&self, name: &str, text: &str) {
            let path = self.dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let now = self.now.lock().unwrap().timestamp().as_millisecond();
            let since = Duration::from_millis(now.unsigned_abs());
            file.set_modified(SystemTime::UNIX_EPOCH + since).unwrap();
        }

        #[track_caller]
        fn check(&mut self, cents: i64, problems: usize) {
            let today = self.daily.refresh().unwrap();
            assert_eq!((today.cost * 100.0).round() as i64, cents);
            assert_eq!(today.problems.len(), problems, "{:?}", today.problems);
        }
    }

    fn reply(time: &str, tokens: u64, cost: f64) -> String {
        let usage = serde_json::json!({
            "input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": tokens,
            "cost": {"input": 0, "output": cost, "cacheRead": 0, "cacheWrite": 0, "total": cost},
        });
        let entry = serde_json::json!({
            "type": "message", "id": "a", "parentId": null, "timestamp": time,
            "message": {"role": "assistant", "content": [], "usage": usage},
        });
        format!("{entry}\n")
    }

    #[test]
    fn replies_of_today_are_added_up() {
        // Midnight there is five o'clock in UTC.
        let mut store = Store::new("2026-01-15T10:00:00-05:00[-05:00]");
        store.check(0, 0);
        let header = "{\"type\":\"session\",\"version\":3}\n";
        store.append("sessions/--x--/a.jsonl", header);
        store.append("sessions/--x--/a.jsonl", &reply("2026-01-15T04:59:59.999Z", 1, 10.0));
        store.append("sessions/--x--/a.jsonl", &reply("2026-01-15T05:00:00.000Z", 2, 1.0));
        store.append("sessions/flat.jsonl", &reply("2026-01-15T06:00:00.000Z", 3, 0.5));
        store.append("subagents/one/step-1/b.jsonl", &reply("2026-01-15T07:00:00.000Z", 4, 0.25));
        store.append("subagents/b.jsonl.v1.bak", &reply("2026-01-15T07:00:01.000Z", 4, 7.0));
        store.check(175, 0);
        store.check(175, 0);

        // A fork repeats it; another one at the same time is another one.
        store.append("sessions/fork.jsonl", &reply("2026-01-15T05:00:00.000Z", 2, 1.0));
        store.append("sessions/fork.jsonl", &reply("2026-01-15T05:00:00.000Z", 5, 0.1));
        store.check(185, 0);

        // Damage costs what is damaged; a line may be read while it is written.
        let line = reply("2026-01-15T08:00:00.000Z", 6, 2.0);
        store.append("sessions/fork.jsonl", &line[..60]);
        store.check(185, 0);
        store.append("sessions/fork.jsonl", &line[60..line.len() - 1]);
        store.check(385, 0);
        store.append("sessions/fork.jsonl", "\n");
        store.check(385, 0);
        store.append("sessions/fork.jsonl", &reply("2026-01-16T09:00:00.000Z", 7, 4.0));
        store.check(385, 0);

        // At midnight it starts again, with what is of the new day.
        store.set("2026-01-16T00:30:00-05:00[-05:00]");
        store.check(0, 0);
        store.append("sessions/fork.jsonl", &reply("2026-01-16T05:10:00.000Z", 8, 0.5));
        store.check(450, 0);
        store.set("2026-01-15T23:30:00-05:00[-05:00]");
        store.check(385, 0);
    }

    #[test]
    fn a_bad_file_costs_itself() {
        let mut store = Store::new("2026-01-15T10:00:00+00:00[+00:00]");
        store.append("sessions/a.jsonl", &reply("2026-01-15T04:00:00.000Z", 1, 1.0));
        for other in [
            "[]\n",
            "\"usage\"\n",
            "{\"type\":\"message\",\"timestamp\":\"2026-01-15T04:00:01.000Z\",\"message\":{\"role\":\"assistant\",\"usage\":{}}}\n",
            "{\"type\":\"custom\",\"timestamp\":\"2026-01-15T04:00:01.000Z\",\"message\":{\"role\":\"assistant\",\"usage\":{\"cost\":{\"total\":5}}}}\n",
        ] {
            store.append("sessions/a.jsonl", other);
        }
        store.append("sessions/a.jsonl", &reply("2026-01-15T04:00:02.000Z", 1, 1.0));
        #[cfg(unix)]
        std::os::unix::fs::symlink("loop.jsonl", store.dir.path().join("sessions/loop.jsonl"))
            .unwrap();
        store.check(200, usize::from(cfg!(unix)));

        fs::write(store.dir.path().join("subagents"), "a file").unwrap();
        let error = store.daily.refresh().unwrap_err();
        assert_eq!(error.path, store.dir.path().join("subagents"));
        fs::remove_file(store.dir.path().join("subagents")).unwrap();
        store.check(200, usize::from(cfg!(unix)));
    }
}
