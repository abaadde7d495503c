//! What a list tells of one session file, gathered line by line without holding the
//! file. Sees a file as [`load`](crate::load) does, and must count as it counts.

use std::io::{self, Read as _};
use std::path::Path;
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wharf_protocol::AgentMessage;
use wharf_protocol::surrogates::replace_lone_surrogates;

use super::SessionInfo;
use super::lines::Line;
use super::mark::{Mark, Reading, open_listed};
use crate::Timestamp;
use crate::entry::{EntryType, SessionInfoEntry};
use crate::header::{FORMAT_VERSION, told_by_file_name, version_of};
use crate::json::Fields;
use crate::scan::{Envelope, OBJECT_START, scan, trim};

/// Characters of [`SessionInfo::first_message`].
pub(crate) const MAX_FIRST_MESSAGE: usize = 1000;

/// Bytes at the start of a file where its header is looked for.
const MAX_HEADER: u64 = 64 * 1024;

/// For a session in which no user has said anything.
const NO_MESSAGES: &str = "(no messages)";

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) id: Option<String>,
    /// Milliseconds since the Unix epoch.
    created: Option<i64>,
    pub(crate) cwd: String,
    /// It is the transcript of a subagent.
    pub(crate) subagent: bool,
    version: u64,
}

impl Header {
    fn parse(text: &str) -> Option<Self> {
        let fields = Fields::parse(text)?;
        if fields.get_str("type")? != "session" {
            return None;
        }
        let created = fields.get_str("timestamp").and_then(|text| Timestamp::parse(&text));
        Some(Self {
            id: fields.get_str("id"),
            created: created.map(Timestamp::as_millis),
            cwd: fields.get_str("cwd").unwrap_or_default(),
            subagent: fields.get_str("agentType").is_some(),
            version: version_of(&fields),
        })
    }
}

/// What the lines so far tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Facts {
    pub(crate) header: Option<Header>,
    messages: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_message: Option<String>,
    /// The latest time of an entry, in milliseconds since the Unix epoch.
    modified: Option<i64>,
    /// There is more than white space and NUL.
    has_content: bool,
    /// At least one line is what only session files have, or the start of it.
    is_session: bool,
}

impl Facts {
    /// `first`: the line is the first of the file.
    pub(crate) fn add(&mut self, line: Line<'_>, first: bool) {
        let mut bytes = line.bytes;
        if first {
            bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        let whole = trim(&text);
        if whole.is_empty() {
            return;
        }
        self.has_content |=
            !whole.trim_matches(|c: char| c == '\0' || c.is_whitespace()).is_empty();
        if let Some(last) = line.cut {
            self.add_cut(whole, last);
        } else if let Some(envelope) = Envelope::parse(whole) {
            self.add_object(whole, &envelope);
        } else {
            for (range, envelope) in scan(&text).objects {
                self.add_object(&text[range], &envelope);
            }
            // A new session whose writer was cut off within its header.
            let start = format!("{OBJECT_START}session\"");
            self.is_session |= first
                && (text.starts_with(&start) || (!line.finished && start.starts_with(&*text)));
        }
    }

    fn add_object(&mut self, text: &str, envelope: &Envelope) {
        self.is_session |= envelope.is_convincing();
        if envelope.is_header {
            if self.header.is_none() {
                self.header = Header::parse(text);
            }
            return;
        }
        self.modified = self.modified.max(envelope.timestamp.map(Timestamp::as_millis));
        match envelope.entry_type {
            EntryType::Message => {
                self.messages += 1;
                if self.first_message.is_none() {
                    self.first_message = user_text(text);
                }
            }
            EntryType::SessionInfo => {
                if let Some(info) = parse::<SessionInfoEntry>(text) {
                    let name = info.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
                    self.name = name.map(str::to_owned);
                }
            }
            EntryType::ModelChange
            | EntryType::ThinkingLevelChange
            | EntryType::Compaction
            | EntryType::BranchSummary
            | EntryType::Custom
            | EntryType::CustomMessage
            | EntryType::Label
            | EntryType::Unknown => {}
        }
    }

    /// A line that is too long to be read as a whole: an entry if it starts and ends as one.
    fn add_cut(&mut self, start: &str, last: u8) {
        if last == b'}' && start.starts_with(&format!("{OBJECT_START}message\"")) {
            self.messages += 1;
            self.is_session = true;
        }
    }
}

/// The text of a user's message, if that is what the entry holds.
fn user_text(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Role {
        message: Inner,
    }
    #[derive(Deserialize)]
    struct Inner {
        role: String,
    }
    #[derive(Deserialize)]
    struct Entry {
        message: AgentMessage,
    }
    // Tells without building the whole message.
    if parse::<Role>(text)?.message.role != "user" {
        return None;
    }
    let AgentMessage::User(message) = parse::<Entry>(text)?.message else { return None };
    let text: String = message.content.to_text().chars().take(MAX_FIRST_MESSAGE).collect();
    (!text.is_empty()).then_some(text)
}

fn parse<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text)
        .ok()
        .or_else(|| serde_json::from_str(&replace_lone_surrogates(text)?).ok())
}

/// The session header as it stands in the file. It is near the start, but for damage.
pub(crate) fn header_text(path: &Path) -> io::Result<Option<String>> {
    let mut start = Vec::new();
    open_listed(path)?.0.take(MAX_HEADER).read_to_end(&mut start)?;
    let start = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&start);
    let found = start.split(|byte| *byte == b'\n').find_map(|line| {
        let text = String::from_utf8_lossy(line);
        let whole = trim(&text);
        match Envelope::parse(whole) {
            Some(envelope) => envelope.is_header.then(|| whole.to_owned()),
            None => {
                let objects = scan(&text).objects;
                let (range, _) = objects.into_iter().find(|(_, envelope)| envelope.is_header)?;
                Some(text[range].to_owned())
            }
        }
    });
    Ok(found)
}

pub(crate) fn read_header(path: &Path) -> io::Result<Option<Header>> {
    Ok(header_text(path)?.and_then(|text| Header::parse(&text)))
}

/// A file as it was when it was read last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) mark: Mark,
    /// Of the lines before the mark.
    before_mark: Facts,
    /// With the line after it, where there is one: it may be torn, or not yet finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    with_rest: Option<Box<Facts>>,
}

pub(crate) enum Verdict {
    Session(SessionInfo),
    /// A session of a format that this program doesn't know.
    TooNew(u64),
    NoSession,
}

impl Record {
    /// Reads what `known` doesn't cover; tells how many bytes that were.
    pub(crate) fn read(path: &Path, known: Option<&Self>) -> io::Result<(Self, u64)> {
        let reading = Reading::start(path, known.map(|record| &record.mark))?;
        let bytes = reading.rest();
        let mut first = reading.offset() == 0;
        let mut before_mark = match known {
            Some(record) if !first => record.before_mark.clone(),
            _ => Facts::default(),
        };
        let mut with_rest = None;
        let mark = reading.read(|line| {
            if line.finished {
                before_mark.add(line, first);
            } else {
                let mut facts = before_mark.clone();
                facts.add(line, first);
                with_rest = Some(Box::new(facts));
            }
            first = false;
        })?;
        Ok((Self { mark, before_mark, with_rest }, bytes))
    }

    pub(crate) fn facts(&self) -> &Facts {
        self.with_rest.as_deref().unwrap_or(&self.before_mark)
    }

    /// `modified`: of the file.
    pub(crate) fn verdict(&self, path: &Path, modified: Timestamp) -> Verdict {
        let facts = self.facts();
        let header = facts.header.as_ref();
        if let Some(header) = header
            && header.version > u64::from(FORMAT_VERSION)
        {
            return Verdict::TooNew(header.version);
        }
        let mut id = header.and_then(|header| header.id.clone());
        let mut created = header.and_then(|header| header.created).map(Timestamp::from_millis);
        let mut is_session = header.is_some() || facts.is_session;
        if id.is_none() || created.is_none() {
            let (named_id, named_time) = told_by_file_name(path);
            // Where a crash left a file of NULs, or nothing, its name tells that it was a
            // session.
            is_session |= !facts.has_content && named_id.is_some();
            id = id.or(named_id);
            created = created.or(named_time);
        }
        if !is_session {
            return Verdict::NoSession;
        }
        let modified = facts.modified.map(Timestamp::from_millis).or(created).unwrap_or(modified);
        Verdict::Session(SessionInfo {
            path: path.to_owned(),
            id: id.unwrap_or_else(|| {
                path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
            }),
            cwd: header.map(|header| header.cwd.clone().into()).unwrap_or_default(),
            name: facts.name.clone(),
            created: created.unwrap_or(modified),
            modified,
            message_count: facts.messages,
            first_message: facts.first_message.clone().unwrap_or_else(|| NO_MESSAGES.to_owned()),
        })
    }
}

pub(crate) fn timestamp_of(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const TIME: &str = "\"timestamp\":\"2024-12-03T14:00:01.000Z\"";

    /// Messages, first message and name after these lines; each may be damaged.
    #[track_caller]
    fn check(lines: &[&str], messages: usize, first_message: Option<&str>, name: Option<&str>) {
        let mut facts = Facts::default();
        for (number, line) in lines.iter().enumerate() {
            let line = line.replace("TIME", TIME);
            let line = Line { bytes: line.as_bytes(), cut: None, finished: true };
            facts.add(line, number == 0);
        }
        assert_eq!(facts.messages, messages, "{lines:?}");
        assert_eq!(facts.first_message.as_deref(), first_message, "{lines:?}");
        assert_eq!(facts.name.as_deref(), name, "{lines:?}");
        // What the index keeps is what was found.
        let kept = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<Facts>(&kept).unwrap(), facts);
    }

    #[test]
    fn lines_tell_what_entries_do() {
        let user = r#"{"type":"message",TIME,"message":{"role":"user","content":"hi"}}"#;
        let empty = r#"{"type":"message",TIME,"message":{"role":"user","content":""}}"#;
        let tool = r#"{"type":"message",TIME,"message":{"role":"toolResult","content":"no"}}"#;
        let odd = r#"{"type":"message",TIME,"message":{"role":"user","content":7}}"#;
        let half = r#"{"type":"message",TIME,"message":{"role":"user","content":"a\ud83d"}}"#;
        let named = r#"{"type":"session_info",TIME,"name":" a "}"#;
        let cleared = r#"{"type":"session_info",TIME}"#;
        let bad_name = r#"{"type":"session_info",TIME,"name":5}"#;
        check(&[], 0, None, None);
        check(&[tool, empty, odd, user, half], 5, Some("hi"), None);
        check(&[half], 1, Some("a\u{fffd}"), None);
        check(&[named, bad_name], 0, None, Some("a"));
        check(&[named, cleared], 0, None, None);
        check(
            &[&format!("{user}{tool}"), &format!("{}{named}", &user[..30])],
            2,
            Some("hi"),
            Some("a"),
        );
        check(&[&format!("\0\0{user}\r"), "garbage", "\0"], 1, Some("hi"), None);
    }

    #[test]
    fn a_line_that_is_cut_is_judged_by_its_ends() {
        for (start, last, messages) in [
            (r#"{"type":"message","id":"a","mess"#, b'}', 1),
            (r#"{"type":"message","id":"a","mess"#, b'x', 0),
            (r#"{"type":"custom","id":"a","da"#, b'}', 0),
        ] {
            let mut facts = Facts::default();
            facts.add(Line { bytes: start.as_bytes(), cut: Some(last), finished: true }, false);
            assert_eq!(facts.messages, messages, "{start}");
        }
    }
}
