//! The first line of a session file.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use uuid::Uuid;

use crate::Timestamp;
use crate::json::Fields;

/// The version that is written.
///
/// 1. A linear list: entries have no id and no parent.
/// 2. A tree through `id` and `parentId`; extension messages have the role `hookMessage`.
/// 3. That role is `custom`.
pub const FORMAT_VERSION: u32 = 3;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "session", rename_all = "camelCase")]
pub struct SessionHeader {
    pub version: u32,
    /// A UUID, version 4.
    pub id: String,
    pub timestamp: Timestamp,
    /// Empty where a damaged file no longer tells.
    #[serde(serialize_with = "lossy")]
    pub cwd: PathBuf,
    /// The type of agent, for a subagent's session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    /// The file of the session that this one was forked from or started by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_session: Option<String>,
}

/// A directory name that is no UTF-8 must not keep a session from being written.
pub(crate) fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// What a new session's header may say besides the working directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionOptions {
    pub agent_type: Option<String>,
    pub parent_session: Option<String>,
}

impl SessionHeader {
    pub(crate) fn new(cwd: &Path, options: SessionOptions) -> Self {
        Self {
            version: FORMAT_VERSION,
            id: Self::new_id(),
            timestamp: Timestamp::now(),
            cwd: cwd.to_owned(),
            agent_type: options.agent_type,
            parent_session: options.parent_session,
        }
    }

    pub(crate) fn new_id() -> String {
        Uuid::new_v4().to_string()
    }

    /// For a file whose header is lost: what its name, `<timestamp>_<uuid>.jsonl`, tells.
    pub(crate) fn from_file_name(path: &Path) -> Self {
        let mut header = Self::new(Path::new(""), SessionOptions::default());
        let (id, timestamp) = told_by_file_name(path);
        header.id = id.unwrap_or(header.id);
        header.timestamp = timestamp.unwrap_or(header.timestamp);
        header
    }

    pub(crate) fn to_line(&self) -> Result<String, serde_json::Error> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        Ok(line)
    }

    /// `2024-12-03T14-00-00-000Z_<uuid>.jsonl`
    pub(crate) fn file_name(&self) -> String {
        self.file_name_at(self.timestamp)
    }

    /// As [`file_name`](Self::file_name), for a file that is made later than the session.
    pub(crate) fn file_name_at(&self, time: Timestamp) -> String {
        format!("{}_{}.jsonl", time.to_string().replace([':', '.'], "-"), self.id)
    }
}

/// The id and the time of creation in `<timestamp>_<uuid>.jsonl`.
pub(crate) fn told_by_file_name(path: &Path) -> (Option<String>, Option<Timestamp>) {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let Some((time, id)) = stem.rsplit_once('_') else { return (None, None) };
    (Uuid::try_parse(id).is_ok().then(|| id.to_owned()), parse_file_time(time))
}

fn parse_file_time(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once('T')?;
    let time = time.strip_suffix('Z')?;
    let [hour, minute, second, millis] = time.split('-').collect::<Vec<_>>().try_into().ok()?;
    Timestamp::parse(&format!("{date}T{hour}:{minute}:{second}.{millis}Z"))
}

/// A header as some version of the format wrote it.
#[derive(Debug)]
pub(crate) struct FoundHeader {
    pub(crate) header: SessionHeader,
    /// Of the file; `header` always says [`FORMAT_VERSION`].
    pub(crate) version: u64,
}

impl FoundHeader {
    /// `None` where `text` is no session header.
    pub(crate) fn parse(text: &str, path: &Path) -> Option<Self> {
        let fields = Fields::parse(text)?;
        if fields.get_str("type")? != "session" {
            return None;
        }
        let mut header = SessionHeader::from_file_name(path);
        if let Some(id) = fields.get_str("id") {
            header.id = id;
        }
        if let Some(time) = fields.get_str("timestamp").and_then(|text| Timestamp::parse(&text)) {
            header.timestamp = time;
        }
        header.cwd = fields.get_str("cwd").unwrap_or_default().into();
        header.agent_type = fields.get_str("agentType");
        header.parent_session = fields.get_str("parentSession");
        let version = version_of(&fields);
        Some(Self { header, version })
    }
}

/// The format version that a header says.
pub(crate) fn version_of(fields: &Fields<'_>) -> u64 {
    fields.get("version").map_or(1, version)
}

/// As an error shows it: of one that is no whole number only so much is known.
pub(crate) fn version_text(version: u64) -> String {
    match version {
        u64::MAX => "unknown".to_owned(),
        known => known.to_string(),
    }
}

/// The version that a field says. A number in a form that no version has had is newer than
/// all of them; what is no number is as good as missing.
fn version(text: &str) -> u64 {
    let text = text.trim_matches('"');
    text.parse().unwrap_or_else(|_| match text.parse::<f64>() {
        Ok(number) if number > f64::from(FORMAT_VERSION) => u64::MAX,
        _ => 1,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn odd_versions() {
        for (text, expect) in [
            ("3", 3),
            ("\"3\"", 3),
            ("\"99\"", 99),
            ("3.5", u64::MAX),
            ("1e30", u64::MAX),
            ("99999999999999999999", u64::MAX),
            ("null", 1),
            ("\"x\"", 1),
            ("-1", 1),
            ("2.0", 1),
        ] {
            assert_eq!(version(text), expect, "{text}");
        }
    }

    #[test]
    fn lines_are_those_of_the_format() {
        for line in [
            r#"{"type":"session","version":3,"id":"uuid","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/path/to/project"}"#,
            r#"{"type":"session","version":3,"id":"uuid","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/path/to/project","parentSession":"/path/to/original/session.jsonl"}"#,
            r#"{"type":"session","version":3,"id":"uuid","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/path/to/project","agentType":"feature-dev","parentSession":"/path/to/parent/session.jsonl"}"#,
        ] {
            let found = FoundHeader::parse(line, Path::new("x.jsonl")).unwrap();
            assert_eq!(found.version, 3);
            assert_eq!(found.header.to_line().unwrap(), format!("{line}\n"));
            assert_eq!(found.header.file_name(), "2024-12-03T14-00-00-000Z_uuid.jsonl");
        }
    }

    #[test]
    fn file_names_tell_id_and_time() {
        let header = SessionHeader::new(Path::new("/x"), SessionOptions::default());
        let back = SessionHeader::from_file_name(Path::new(&header.file_name()));
        assert_eq!((back.id, back.timestamp), (header.id, header.timestamp));
        SessionHeader::from_file_name(Path::new("notes"));
        SessionHeader::from_file_name(Path::new("aTbZ_c.jsonl"));
    }
}
