//! Entries and their lines. Knows nothing of the tree or of files.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use smol_str::SmolStr;
use wharf_protocol::surrogates::replace_lone_surrogates;
use wharf_protocol::{AgentMessage, ThinkingLevel, UserContent};

use crate::Timestamp;
use crate::json::{Verbatim, quote};
use crate::preview::preview;

/// Eight hex digits where this crate made it; files may hold any string.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EntryId(SmolStr);

impl EntryId {
    pub fn new(id: impl AsRef<str>) -> Self {
        Self(SmolStr::new(id))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `Hash` and `Eq` are those of the text, as `Borrow` demands.
impl Borrow<str> for EntryId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for EntryId {
    fn from(id: &str) -> Self {
        Self::new(id)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelChangeEntry {
    pub provider: String,
    pub model_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThinkingLevelChangeEntry {
    pub thinking_level: ThinkingLevel,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionEntry {
    pub summary: String,
    /// Empty where a migrated file does not tell: nothing before the compaction is kept.
    #[serde(default)]
    pub first_kept_entry_id: String,
    #[serde(default)]
    pub tokens_before: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// True if an extension made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_hook: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchSummaryEntry {
    pub from_id: String,
    pub summary: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// True if an extension made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_hook: Option<bool>,
}

/// An extension's state; no model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomEntry {
    pub custom_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// An extension's message; models see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomMessageEntry {
    pub custom_type: String,
    pub content: UserContent,
    #[serde(default)]
    pub display: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelEntry {
    pub target_id: String,
    /// `None` clears the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionInfoEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct MessageEntry {
    message: Arc<AgentMessage>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum EntryKind {
    Message(Arc<AgentMessage>),
    ModelChange(ModelChangeEntry),
    ThinkingLevelChange(ThinkingLevelChangeEntry),
    Compaction(CompactionEntry),
    BranchSummary(BranchSummaryEntry),
    Custom(CustomEntry),
    CustomMessage(CustomMessageEntry),
    Label(LabelEntry),
    SessionInfo(SessionInfoEntry),
    /// Of an unknown type, or of a known one in an unknown shape: the whole entry, raw.
    Unknown(Box<RawJson>),
}

/// JSON text that can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawJson(Box<str>);

impl RawJson {
    pub fn get(&self) -> &str {
        &self.0
    }
}

/// The type that an entry's line states, whatever the shape of the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryType {
    Message,
    ModelChange,
    ThinkingLevelChange,
    Compaction,
    BranchSummary,
    Custom,
    CustomMessage,
    Label,
    SessionInfo,
    Unknown,
}

impl EntryType {
    const KNOWN: [Self; 9] = [
        Self::Message,
        Self::ModelChange,
        Self::ThinkingLevelChange,
        Self::Compaction,
        Self::BranchSummary,
        Self::Custom,
        Self::CustomMessage,
        Self::Label,
        Self::SessionInfo,
    ];

    pub(crate) fn from_name(name: &str) -> Self {
        Self::KNOWN.into_iter().find(|kind| kind.name() == name).unwrap_or(Self::Unknown)
    }

    /// As files write it; an unknown type's own name is in the entry's JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::ModelChange => "model_change",
            Self::ThinkingLevelChange => "thinking_level_change",
            Self::Compaction => "compaction",
            Self::BranchSummary => "branch_summary",
            Self::Custom => "custom",
            Self::CustomMessage => "custom_message",
            Self::Label => "label",
            Self::SessionInfo => "session_info",
            Self::Unknown => "unknown",
        }
    }
}

/// Who a message is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageRole {
    User,
    Assistant,
    ToolResult,
    BashExecution,
    Custom,
    BranchSummary,
    CompactionSummary,
}

impl MessageRole {
    const ALL: [Self; 7] = [
        Self::User,
        Self::Assistant,
        Self::ToolResult,
        Self::BashExecution,
        Self::Custom,
        Self::BranchSummary,
        Self::CompactionSummary,
    ];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    pub fn of(message: &AgentMessage) -> Self {
        match message {
            AgentMessage::User(_) => Self::User,
            AgentMessage::Assistant(_) => Self::Assistant,
            AgentMessage::ToolResult(_) => Self::ToolResult,
            AgentMessage::BashExecution(_) => Self::BashExecution,
            AgentMessage::Custom(_) => Self::Custom,
            AgentMessage::BranchSummary(_) => Self::BranchSummary,
            AgentMessage::CompactionSummary(_) => Self::CompactionSummary,
        }
    }

    /// As messages carry it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::ToolResult => "toolResult",
            Self::BashExecution => "bashExecution",
            Self::Custom => "custom",
            Self::BranchSummary => "branchSummary",
            Self::CompactionSummary => "compactionSummary",
        }
    }
}

impl EntryKind {
    pub(crate) fn parse(entry_type: EntryType, text: &str) -> Self {
        let kind = match entry_type {
            EntryType::Message => body::<MessageEntry>(text).map(|e| Self::Message(e.message)),
            EntryType::ModelChange => body(text).map(Self::ModelChange),
            EntryType::ThinkingLevelChange => body(text).map(Self::ThinkingLevelChange),
            EntryType::Compaction => body(text).map(Self::Compaction),
            EntryType::BranchSummary => body(text).map(Self::BranchSummary),
            EntryType::Custom => body(text).map(Self::Custom),
            EntryType::CustomMessage => body(text).map(Self::CustomMessage),
            EntryType::Label => body(text).map(Self::Label),
            EntryType::SessionInfo => body(text).map(Self::SessionInfo),
            EntryType::Unknown => None,
        };
        kind.unwrap_or_else(|| Self::Unknown(Box::new(RawJson(text.into()))))
    }

    fn entry_type(&self) -> EntryType {
        match self {
            Self::Message(_) => EntryType::Message,
            Self::ModelChange(_) => EntryType::ModelChange,
            Self::ThinkingLevelChange(_) => EntryType::ThinkingLevelChange,
            Self::Compaction(_) => EntryType::Compaction,
            Self::BranchSummary(_) => EntryType::BranchSummary,
            Self::Custom(_) => EntryType::Custom,
            Self::CustomMessage(_) => EntryType::CustomMessage,
            Self::Label(_) => EntryType::Label,
            Self::SessionInfo(_) => EntryType::SessionInfo,
            Self::Unknown(_) => EntryType::Unknown,
        }
    }

    /// The fields of this kind as a JSON object.
    pub(crate) fn to_body(&self) -> Result<String, serde_json::Error> {
        match self {
            Self::Message(message) => {
                serde_json::to_string(&MessageEntry { message: Arc::clone(message) })
            }
            Self::ModelChange(body) => serde_json::to_string(body),
            Self::ThinkingLevelChange(body) => serde_json::to_string(body),
            Self::Compaction(body) => serde_json::to_string(body),
            Self::BranchSummary(body) => serde_json::to_string(body),
            Self::Custom(body) => serde_json::to_string(body),
            Self::CustomMessage(body) => serde_json::to_string(body),
            Self::Label(body) => serde_json::to_string(body),
            Self::SessionInfo(body) => serde_json::to_string(body),
            Self::Unknown(raw) => Ok(raw.get().to_owned()),
        }
    }
}

/// The value that `text` holds; half surrogate pairs, which no string can hold, are replaced.
pub(crate) fn body<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text)
        .ok()
        .or_else(|| serde_json::from_str(&replace_lone_surrogates(text)?).ok())
}

/// A part of a shared text: a loaded file is held once, however many entries it has.
#[derive(Clone)]
pub(crate) struct Slice {
    text: Arc<String>,
    start: usize,
    end: usize,
}

impl Slice {
    pub(crate) fn new(text: &Arc<String>, start: usize, end: usize) -> Self {
        Self { text: Arc::clone(text), start, end }
    }

    fn as_str(&self) -> &str {
        &self.text[self.start..self.end]
    }
}

pub struct Entry {
    base: EntryBase,
    entry_type: EntryType,
    json: Json,
    /// Parsed when first asked for: most entries of a long session never are.
    kind: OnceLock<Box<EntryKind>>,
}

/// An entry's JSON and what is known of it.
pub(crate) struct Json {
    pub(crate) text: Slice,
    /// Where the message is in it, and whose it is.
    pub(crate) message: Option<(Range<usize>, Option<MessageRole>)>,
    pub(crate) has_lone_surrogates: bool,
}

impl Entry {
    pub fn id(&self) -> &EntryId {
        &self.base.id
    }

    pub fn parent_id(&self) -> Option<&EntryId> {
        self.base.parent_id.as_ref()
    }

    pub fn timestamp(&self) -> Timestamp {
        self.base.timestamp
    }

    pub fn entry_type(&self) -> EntryType {
        self.entry_type
    }

    /// Of a `message` entry, unless its role is none that the format has.
    pub fn role(&self) -> Option<MessageRole> {
        self.json.message.as_ref().and_then(|(_, role)| *role)
    }

    /// The whole entry as it stands in the file: one JSON object without a line feed.
    pub fn json(&self) -> &str {
        self.json.text.as_str()
    }

    /// The message of a `message` entry as it stands in the file.
    pub fn message_json(&self) -> Option<&str> {
        self.json.message.as_ref().map(|(range, _)| &self.json()[range.clone()])
    }

    pub fn kind(&self) -> &EntryKind {
        self.kind.get_or_init(|| Box::new(EntryKind::parse(self.entry_type, self.json())))
    }

    /// [`kind`](Self::kind), but not kept if nobody asked before: for one pass over a long
    /// session in bounded memory.
    pub fn kind_once(&self) -> Cow<'_, EntryKind> {
        match self.kind.get() {
            Some(kind) => Cow::Borrowed(kind),
            None => Cow::Owned(EntryKind::parse(self.entry_type, self.json())),
        }
    }

    pub fn message(&self) -> Option<&Arc<AgentMessage>> {
        if self.entry_type != EntryType::Message {
            return None;
        }
        match self.kind() {
            EntryKind::Message(message) => Some(message),
            _ => None,
        }
    }

    /// What it says, in one line of at most `max_chars` characters.
    pub fn preview(&self, max_chars: usize) -> String {
        preview(self.entry_type, self.role(), self.message_json().unwrap_or(self.json()), max_chars)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json())
    }
}

/// What every entry has.
#[derive(Debug, Clone)]
pub(crate) struct EntryBase {
    pub(crate) id: EntryId,
    pub(crate) parent_id: Option<EntryId>,
    pub(crate) timestamp: Timestamp,
}

impl EntryBase {
    /// A new entry and its line (with the line feed); `body` is what
    /// [`EntryKind::to_body`] gave for `kind`.
    pub(crate) fn into_entry(self, kind: EntryKind, body: &str) -> (Entry, Arc<String>) {
        let entry_type = kind.entry_type();
        let parent = self
            .parent_id
            .as_ref()
            .map_or(Cow::Borrowed("null"), |id| Cow::Owned(quote(id.as_str())));
        let mut line = format!(
            r#"{{"type":"{}","id":{},"parentId":{parent},"timestamp":"{}""#,
            entry_type.name(),
            quote(self.id.as_str()),
            self.timestamp,
        );
        match body.strip_prefix('{') {
            Some("}") | None => line.push('}'),
            Some(fields) => {
                line.push(',');
                line.push_str(fields);
            }
        }
        let message = match &kind {
            // `{"message":` before it and `}` behind it are the body's.
            EntryKind::Message(message) => {
                let start = line.len() + r#"{"message":"#.len() - body.len();
                Some((start..line.len() - 1, Some(MessageRole::of(message))))
            }
            _ => None,
        };
        line.push('\n');
        let line = Arc::new(line);
        let text = Slice::new(&line, 0, line.len() - 1);
        let json = Json { text, message, has_lone_surrogates: false };
        let mut entry = self.into_loaded(entry_type, json);
        entry.kind = OnceLock::from(Box::new(kind));
        (entry, line)
    }

    pub(crate) fn into_loaded(self, entry_type: EntryType, json: Json) -> Entry {
        Entry { base: self, entry_type, json, kind: OnceLock::new() }
    }
}

/// As it stands in the file; half surrogate pairs, at which many a reader of JSON fails,
/// are replaced.
impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Verbatim(&sound(self.json(), self.json.has_lone_surrogates)).serialize(serializer)
    }
}

/// `json` as any reader takes it.
pub(crate) fn sound(json: &str, has_lone_surrogates: bool) -> Cow<'_, str> {
    match has_lone_surrogates {
        true => replace_lone_surrogates(json).map_or(Cow::Borrowed(json), Cow::Owned),
        false => Cow::Borrowed(json),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// A line read, and its kind written again under the same base, is the same line.
    fn check(line: &str) {
        let name =
            serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned();
        let kind = EntryKind::parse(EntryType::from_name(&name), line);
        assert_eq!(kind.entry_type().name(), name, "{line}");
        let base = EntryBase {
            id: "b2c3d4e5".into(),
            parent_id: Some("a1b2c3d4".into()),
            timestamp: Timestamp::parse("2024-12-03T14:00:01.000Z").unwrap(),
        };
        let body = kind.to_body().unwrap();
        let (entry, written) = base.into_entry(kind.clone(), &body);
        assert_eq!(*written, format!("{line}\n"));
        assert_eq!(entry.json(), line);
        assert_eq!(*entry.kind(), kind);
    }

    #[test]
    fn lines_are_those_of_the_format() {
        for rest in [
            r#""type":"message",BASE,"message":{"role":"user","content":"Hello","timestamp":1}"#,
            r#""type":"model_change",BASE,"provider":"openai","modelId":"gpt-4o""#,
            r#""type":"thinking_level_change",BASE,"thinkingLevel":"high""#,
            r#""type":"compaction",BASE,"summary":"User discussed X","firstKeptEntryId":"c3d4e5f6","tokensBefore":50000"#,
            r#""type":"compaction",BASE,"summary":"s","firstKeptEntryId":"c","tokensBefore":1,"details":{"readFiles":[]},"fromHook":true"#,
            r#""type":"branch_summary",BASE,"fromId":"f6g7h8i9","summary":"Branch explored""#,
            r#""type":"custom",BASE,"customType":"my-extension","data":{"count":42}"#,
            r#""type":"custom",BASE,"customType":"my-extension""#,
            r#""type":"custom_message",BASE,"customType":"my-extension","content":"Injected","display":true"#,
            r#""type":"label",BASE,"targetId":"a1b2c3d4","label":"checkpoint-1""#,
            r#""type":"label",BASE,"targetId":"a1b2c3d4""#,
            r#""type":"session_info",BASE,"name":"Refactor auth module""#,
            r#""type":"session_info",BASE"#,
        ] {
            let base =
                r#""id":"b2c3d4e5","parentId":"a1b2c3d4","timestamp":"2024-12-03T14:00:01.000Z""#;
            check(&format!("{{{}}}", rest.replace("BASE", base)));
        }
    }

    #[test]
    fn what_is_not_understood_stays_raw() {
        for line in [
            r#"{"type":"hologram","id":"x","parentId":null,"timestamp":"t","beam":[1.50]}"#,
            r#"{"type":"message","id":"x","parentId":null,"timestamp":"t","message":{"role":"oracle"}}"#,
            r#"{"type":"thinking_level_change","id":"x","thinkingLevel":"cosmic"}"#,
        ] {
            let name =
                serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned();
            match EntryKind::parse(EntryType::from_name(&name), line) {
                EntryKind::Unknown(raw) => assert_eq!(raw.get(), line),
                known => panic!("{known:?}"),
            }
        }
    }

    #[test]
    fn half_a_surrogate_pair_does_not_hide_a_message() {
        let line = r#"{"type":"message","message":{"role":"user","content":"cut \ud83d"}}"#;
        match EntryKind::parse(EntryType::Message, line) {
            EntryKind::Message(message) => match message.as_ref() {
                AgentMessage::User(user) => assert_eq!(user.content.to_text(), "cut \u{fffd}"),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
}
