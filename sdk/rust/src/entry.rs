//! Entries and messages of a session, as far as extensions read them. Fields that
//! are not named here are skipped; the JSON text has them all.

use serde::{Deserialize, Deserializer};

use crate::fields::{Fields, FromRaw, Raw, list, read};
use crate::{Content, Image, Json, Result};

/// An entry of the session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Entry {
    /// A message.
    Message {
        /// The entry's id.
        id: String,
        /// The entry before it.
        parent_id: Option<String>,
        /// The message.
        message: Message,
    },
    /// Another model from here on.
    ModelChange {
        /// The entry's id.
        id: String,
        /// The entry before it.
        parent_id: Option<String>,
        /// The provider.
        provider: String,
        /// The model's id.
        model_id: String,
    },
    /// Another thinking level from here on.
    ThinkingLevelChange {
        /// The entry's id.
        id: String,
        /// The entry before it.
        parent_id: Option<String>,
        /// The level.
        thinking_level: String,
    },
    /// A summary that stands for the messages before `first_kept_entry_id`.
    Compaction {
        /// The entry's id.
        id: String,
        /// The entry before it.
        parent_id: Option<String>,
        /// The summary.
        summary: String,
        /// The first entry that the model still sees.
        first_kept_entry_id: String,
    },
    /// A summary of a branch that was left.
    BranchSummary {
        /// The entry's id.
        id: String,
        /// The entry before it.
        parent_id: Option<String>,
        /// The leaf of the branch that was left.
        from_id: String,
        /// The summary.
        summary: String,
    },
    /// An extension's data; the model never sees it.
    Custom {
        /// The entry's id.
        id: String,
        /// The entry before it.
        parent_id: Option<String>,
        /// The kind, as the extension named it.
        custom_type: String,
        /// The data.
        data: Option<Json>,
    },
    /// An extension's message; the model sees it.
    CustomMessage {
        /// The entry's id.
        id: String,
        /// The entry before it.
        parent_id: Option<String>,
        /// The kind, as the extension named it.
        custom_type: String,
        /// What the model reads.
        content: Vec<Content>,
        /// True: front ends show it.
        display: bool,
        /// Data that the model never sees.
        details: Option<Json>,
    },
    /// A label on another entry.
    Label {
        /// The entry's id.
        id: String,
        /// The entry before it.
        parent_id: Option<String>,
        /// The labelled entry.
        target_id: String,
        /// None clears the label.
        label: Option<String>,
    },
    /// The session's name.
    SessionInfo {
        /// The entry's id.
        id: String,
        /// The entry before it.
        parent_id: Option<String>,
        /// The name.
        name: Option<String>,
    },
    /// An entry that this version has no case for.
    Other,
}

impl Entry {
    /// The message, when the entry is one.
    #[must_use]
    pub const fn message(&self) -> Option<&Message> {
        match self {
            Self::Message { message, .. } => Some(message),
            _ => None,
        }
    }
}

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Message {
    /// What the person said.
    User {
        /// Text and pictures.
        content: Vec<Content>,
    },
    /// What the model said.
    Assistant {
        /// Text, thinking and tool calls.
        content: Vec<AssistantContent>,
        /// `stop`, `length`, `toolUse`, `error` or `aborted`.
        stop_reason: Option<String>,
        /// Why it failed.
        error_message: Option<String>,
    },
    /// What a tool gave back.
    ToolResult {
        /// The id of the call.
        tool_call_id: String,
        /// The tool's name.
        tool_name: String,
        /// Text and pictures.
        content: Vec<Content>,
        /// Data that the model never sees.
        details: Option<Json>,
        /// True: it failed.
        is_error: bool,
    },
    /// A shell command of the person.
    BashExecution {
        /// The command.
        command: String,
        /// What it printed.
        output: String,
        /// Its exit code; none when it was ended.
        exit_code: Option<i64>,
    },
    /// A message of an extension's own kind.
    Custom {
        /// The kind, as the extension named it.
        custom_type: String,
        /// Text and pictures.
        content: Vec<Content>,
        /// True: front ends show it.
        display: bool,
        /// Data that the model never sees.
        details: Option<Json>,
    },
    /// A summary of a branch that was left.
    BranchSummary {
        /// The summary.
        summary: String,
    },
    /// A summary of the messages before it.
    CompactionSummary {
        /// The summary.
        summary: String,
    },
    /// A message that this version has no case for.
    Other,
}

/// One piece of an assistant's message.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AssistantContent {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// What the model thought.
    Thinking {
        /// The thought.
        thinking: String,
    },
    /// A call of a tool.
    ToolCall {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments.
        arguments: Json,
    },
    /// A piece that this version has no case for.
    Other,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer, entry)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer, message)
    }
}

/// Reads a list of entries, with less code than the list's own `Deserialize`.
pub(crate) fn entries(list: &Json) -> Result<Vec<Entry>> {
    each(list, entry)
}

/// Reads a list of messages, likewise.
pub(crate) fn messages(list: &Json) -> Result<Vec<Message>> {
    each(list, message)
}

fn each<T>(texts: &Json, read: fn(Fields<'_>) -> Result<T>) -> Result<Vec<T>> {
    let texts = list(texts.as_str()).ok_or("not a list of JSON values")?;
    let mut items = Vec::new();
    for text in texts {
        items.push(read(Fields::new(text)?)?);
    }
    Ok(items)
}

fn entry(fields: Fields<'_>) -> Result<Entry> {
    let kind: String = fields.required("type")?;
    let id = fields.optional("id")?.unwrap_or_default();
    let parent_id = fields.optional("parentId")?;
    Ok(match kind.as_str() {
        "message" => {
            Entry::Message { id, parent_id, message: message(fields.required("message")?)? }
        }
        "model_change" => Entry::ModelChange {
            id,
            parent_id,
            provider: fields.required("provider")?,
            model_id: fields.required("modelId")?,
        },
        "thinking_level_change" => Entry::ThinkingLevelChange {
            id,
            parent_id,
            thinking_level: fields.required("thinkingLevel")?,
        },
        "compaction" => Entry::Compaction {
            id,
            parent_id,
            summary: fields.required("summary")?,
            first_kept_entry_id: fields.required("firstKeptEntryId")?,
        },
        "branch_summary" => Entry::BranchSummary {
            id,
            parent_id,
            from_id: fields.required("fromId")?,
            summary: fields.required("summary")?,
        },
        "custom" => Entry::Custom {
            id,
            parent_id,
            custom_type: fields.required("customType")?,
            data: fields.optional("data")?,
        },
        "custom_message" => Entry::CustomMessage {
            id,
            parent_id,
            custom_type: fields.required("customType")?,
            content: content(&fields)?,
            display: fields.required("display")?,
            details: fields.optional("details")?,
        },
        "label" => Entry::Label {
            id,
            parent_id,
            target_id: fields.required("targetId")?,
            label: fields.optional("label")?,
        },
        "session_info" => Entry::SessionInfo { id, parent_id, name: fields.optional("name")? },
        _ => Entry::Other,
    })
}

fn message(fields: Fields<'_>) -> Result<Message> {
    let role: String = fields.required("role")?;
    Ok(match role.as_str() {
        "user" => Message::User { content: content(&fields)? },
        "assistant" => Message::Assistant {
            content: fields.required("content")?,
            stop_reason: fields.optional("stopReason")?,
            error_message: fields.optional("errorMessage")?,
        },
        "toolResult" => Message::ToolResult {
            tool_call_id: fields.required("toolCallId")?,
            tool_name: fields.required("toolName")?,
            content: content(&fields)?,
            details: fields.optional("details")?,
            is_error: fields.optional("isError")?.unwrap_or_default(),
        },
        "bashExecution" => Message::BashExecution {
            command: fields.required("command")?,
            output: fields.required("output")?,
            exit_code: fields.optional("exitCode")?,
        },
        "custom" => Message::Custom {
            custom_type: fields.required("customType")?,
            content: content(&fields)?,
            display: fields.required("display")?,
            details: fields.optional("details")?,
        },
        "branchSummary" => Message::BranchSummary { summary: fields.required("summary")? },
        "compactionSummary" => Message::CompactionSummary { summary: fields.required("summary")? },
        _ => Message::Other,
    })
}

/// Content is a text or a list of pieces.
fn content(fields: &Fields<'_>) -> Result<Vec<Content>> {
    let Raw(content) = fields.required("content")?;
    let text = String::from_raw(content).map(|text| vec![Content::text(text)]);
    text.or_else(|| Vec::from_raw(content))
        .ok_or_else(|| "the field content has another type".into())
}

impl FromRaw<'_> for Content {
    fn from_raw(text: &str) -> Option<Self> {
        let fields = Fields::new(text).ok()?;
        let kind: String = fields.required("type").ok()?;
        match kind.as_str() {
            "text" => Some(Self::Text { text: fields.required("text").ok()? }),
            "image" => Some(Self::Image(Image {
                data: fields.required("data").ok()?,
                mime_type: fields.required("mimeType").ok()?,
            })),
            _ => None,
        }
    }
}

impl FromRaw<'_> for AssistantContent {
    fn from_raw(text: &str) -> Option<Self> {
        let fields = Fields::new(text).ok()?;
        let kind: String = fields.required("type").ok()?;
        Some(match kind.as_str() {
            "text" => Self::Text { text: fields.required("text").ok()? },
            "thinking" => Self::Thinking { thinking: fields.required("thinking").ok()? },
            "toolCall" => Self::ToolCall {
                id: fields.required("id").ok()?,
                name: fields.required("name").ok()?,
                arguments: fields.required("arguments").ok()?,
            },
            _ => Self::Other,
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use super::*;

    fn entry(line: &str) -> Entry {
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn a_text_and_a_list_of_texts_are_the_same_content() {
        for content in [r#""hi""#, r#"[{"type":"text","text":"hi"}]"#] {
            let line = format!(
                r#"{{"type":"message","id":"a","parentId":null,"timestamp":"t","message":{{"role":"user","content":{content},"timestamp":1}}}}"#
            );
            let message = Message::User { content: vec![Content::text("hi")] };
            assert_eq!(entry(&line).message(), Some(&message));
        }
    }

    #[test]
    fn tool_calls_and_results_keep_what_an_extension_needs() {
        let call = entry(
            r#"{"type":"message","id":"b","parentId":"a","message":{"role":"assistant","content":[{"type":"thinking","thinking":"t","thinkingSignature":"s"},{"type":"toolCall","id":"c1","name":"todo","arguments":{"action":"list"}},{"type":"novel"}],"usage":{"input":1},"stopReason":"toolUse"}}"#,
        );
        let Some(Message::Assistant { content, stop_reason, .. }) = call.message() else {
            panic!("{call:?}")
        };
        assert_eq!(stop_reason.as_deref(), Some("toolUse"));
        assert!(matches!(&content[1], AssistantContent::ToolCall { id, .. } if id == "c1"));
        assert_eq!(content[2], AssistantContent::Other);

        let result = entry(
            r#"{"type":"message","id":"c","parentId":"b","message":{"role":"toolResult","toolCallId":"c1","toolName":"todo","content":[],"details":{"n":1},"isError":false}}"#,
        );
        let Some(Message::ToolResult { details: Some(details), .. }) = result.message() else {
            panic!("{result:?}")
        };
        assert_eq!(details.as_str(), r#"{"n":1}"#);
    }

    #[test]
    fn a_type_of_a_later_version_is_other() {
        assert_eq!(entry(r#"{"type":"novel","id":"a","parentId":null}"#), Entry::Other);
        let line = r#"{"type":"message","id":"a","parentId":null,"message":{"role":"novel"}}"#;
        assert_eq!(entry(line).message(), Some(&Message::Other));
    }
}
