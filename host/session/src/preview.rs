//! What an entry says, in one short line: what `get_tree` shows of it. Reads no further
//! than the line needs.

use crate::cursor::{Cursor, RawString, Unescaped};
use crate::entry::{EntryType, MessageRole};

/// `json` is the entry's; of a `message` entry, its message's.
pub(crate) fn preview(
    entry_type: EntryType,
    role: Option<MessageRole>,
    json: &str,
    max_chars: usize,
) -> String {
    let found = Found::read(json, max_chars);
    let mut line = Line::new(max_chars);
    match (entry_type, role) {
        (EntryType::Message, Some(MessageRole::User)) => line.push_line(&found.content, max_chars),
        (EntryType::Message, Some(MessageRole::Assistant)) => found.reply(&mut line),
        (EntryType::Message, Some(MessageRole::ToolResult)) => {
            found.named(&mut line, found.tool_name)
        }
        (EntryType::Message, Some(MessageRole::BashExecution)) => {
            line.push("[bash]: ");
            line.push_raw(found.command);
        }
        (EntryType::Message, Some(MessageRole::Custom)) | (EntryType::CustomMessage, _) => {
            found.named(&mut line, found.custom_type);
        }
        (EntryType::Message, Some(MessageRole::CompactionSummary)) => {
            line.push("[compaction summary]: ");
            line.push_raw(found.summary);
        }
        (EntryType::Message, Some(MessageRole::BranchSummary)) | (EntryType::BranchSummary, _) => {
            line.push("[branch summary]: ");
            line.push_raw(found.summary);
        }
        (EntryType::Message, None) => found.named(&mut line, found.role),
        (EntryType::Compaction, _) => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a damaged number shows as the nearest one"
            )]
            let thousands = (found.tokens_before / 1000.0).round() as u64;
            line.push(&format!("[compaction: {thousands}k tokens]"));
        }
        (EntryType::ModelChange, _) => line.bracketed("model", found.model_id),
        (EntryType::ThinkingLevelChange, _) => line.bracketed("thinking", found.thinking_level),
        (EntryType::Custom, _) => line.bracketed("custom", found.custom_type),
        (EntryType::Label, _) => match found.label {
            Some(label) if !label.raw.is_empty() => line.bracketed("label", found.label),
            _ => line.push("[label: (cleared)]"),
        },
        (EntryType::SessionInfo, _) => match found.name {
            Some(name) if !name.raw.is_empty() => line.bracketed("title", found.name),
            _ => line.push("[title: (cleared)]"),
        },
        (EntryType::Unknown, _) => {
            line.push("[");
            line.push_raw(found.type_name);
            line.push("]");
        }
    }
    line.text
}

/// Text with every run of white space as one space, up to a number of characters.
#[derive(Debug)]
struct Line {
    text: String,
    room: usize,
    /// White space that shows once something follows it.
    has_gap: bool,
}

impl Line {
    fn new(max_chars: usize) -> Self {
        // Most lines are of ASCII and end up full.
        Self { text: String::with_capacity(max_chars.min(256)), room: max_chars, has_gap: false }
    }

    fn push(&mut self, text: &str) {
        self.push_chars(text.chars());
    }

    fn push_raw(&mut self, text: Option<RawString<'_>>) {
        let mut rest = text.map_or("", |text| text.raw);
        while self.room > 0 && !rest.is_empty() {
            // Nearly all text is words of ASCII: those are copied as they are.
            let is_plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'\\';
            let word = rest.bytes().take(self.room).take_while(|byte| is_plain(byte)).count();
            let (word, behind) = rest.split_at(word);
            let mut next = Unescaped::of(behind);
            self.push_word(word, word.len());
            self.push_chars(next.by_ref().take(1));
            rest = next.rest();
        }
    }

    /// What holds no white space, or is collapsed already.
    fn push_word(&mut self, word: &str, chars: usize) {
        if word.is_empty() {
            return;
        }
        let gap = usize::from(self.has_gap);
        if chars + gap > self.room {
            return self.push_chars(word.chars());
        }
        if std::mem::take(&mut self.has_gap) {
            self.text.push(' ');
        }
        self.text.push_str(word);
        self.room -= chars + gap;
    }

    fn push_line(&mut self, line: &Self, max_chars: usize) {
        self.push_word(&line.text, max_chars - line.room);
    }

    fn push_chars(&mut self, chars: impl Iterator<Item = char>) {
        for char in chars {
            if self.room == 0 {
                return;
            }
            if char.is_whitespace() {
                self.has_gap = !self.text.is_empty();
                continue;
            }
            if std::mem::take(&mut self.has_gap) {
                self.text.push(' ');
                self.room -= 1;
                if self.room == 0 {
                    return;
                }
            }
            self.text.push(char);
            self.room -= 1;
        }
    }

    fn bracketed(&mut self, what: &str, value: Option<RawString<'_>>) {
        self.push("[");
        self.push(what);
        self.push(": ");
        self.push_raw(value);
        self.push("]");
    }
}

/// The fields of an entry or a message that a line may show.
#[derive(Debug)]
struct Found<'a> {
    max_chars: usize,
    content: Line,
    calls: Vec<RawString<'a>>,
    has_images: bool,
    tokens_before: f64,
    type_name: Option<RawString<'a>>,
    role: Option<RawString<'a>>,
    tool_name: Option<RawString<'a>>,
    command: Option<RawString<'a>>,
    custom_type: Option<RawString<'a>>,
    summary: Option<RawString<'a>>,
    model_id: Option<RawString<'a>>,
    thinking_level: Option<RawString<'a>>,
    label: Option<RawString<'a>>,
    name: Option<RawString<'a>>,
    stop_reason: Option<RawString<'a>>,
    error_message: Option<RawString<'a>>,
}

impl<'a> Found<'a> {
    fn read(json: &'a str, max_chars: usize) -> Self {
        let mut found = Self {
            max_chars,
            content: Line::new(max_chars),
            calls: Vec::new(),
            has_images: false,
            tokens_before: 0.0,
            type_name: None,
            role: None,
            tool_name: None,
            command: None,
            custom_type: None,
            summary: None,
            model_id: None,
            thinking_level: None,
            label: None,
            name: None,
            stop_reason: None,
            error_message: None,
        };
        // `None` where it has what it needs.
        let _ = Cursor::new(json).object(|key, cursor| found.field(key, cursor));
        found
    }

    fn field(&mut self, key: RawString<'a>, cursor: &mut Cursor<'a>) -> Option<()> {
        let place = match key.raw {
            "type" => &mut self.type_name,
            "role" => &mut self.role,
            "toolName" => &mut self.tool_name,
            "command" => &mut self.command,
            "customType" => &mut self.custom_type,
            "summary" => &mut self.summary,
            "modelId" => &mut self.model_id,
            "thinkingLevel" => &mut self.thinking_level,
            "label" => &mut self.label,
            "name" => &mut self.name,
            "stopReason" => &mut self.stop_reason,
            "errorMessage" => &mut self.error_message,
            "tokensBefore" => {
                self.tokens_before = cursor.value()?.parse().unwrap_or_default();
                return Some(());
            }
            "content" => {
                self.content(cursor)?;
                // Names that show before the content stand before it, in files of this
                // format; if not, the rest is read for them.
                let has_name = self.custom_type.or(self.tool_name).is_some();
                let needs_name =
                    self.role.is_none_or(|role| matches!(role.raw, "toolResult" | "custom"));
                let is_full = self.content.room == 0 && (has_name || !needs_name);
                return (!is_full).then_some(());
            }
            _ => return cursor.value().map(drop),
        };
        *place = cursor.string_value()?;
        Some(())
    }

    fn content(&mut self, cursor: &mut Cursor<'a>) -> Option<()> {
        if cursor.starts_with()? != b'[' {
            let text = cursor.string_value()?;
            self.content.push_raw(text);
            return Some(());
        }
        cursor.array(|cursor| {
            if cursor.starts_with()? != b'{' {
                return cursor.value().map(drop);
            }
            let (mut kind, mut text, mut name) = (None, None, None);
            cursor.object(|key, cursor| {
                match key.raw {
                    "type" => kind = cursor.string_value()?,
                    "text" => text = cursor.string_value()?,
                    "name" => name = cursor.string_value()?,
                    _ => drop(cursor.value()?),
                }
                Some(())
            })?;
            match kind.map(|kind: RawString<'_>| kind.raw) {
                Some("text") => {
                    self.content.push(" ");
                    self.content.push_raw(text);
                }
                Some("toolCall") => self.calls.extend(name),
                Some("image") => self.has_images = true,
                _ => {}
            }
            Some(())
        })
    }

    /// `[name]: content`
    fn named(&self, line: &mut Line, name: Option<RawString<'_>>) {
        line.push("[");
        line.push_raw(name);
        line.push("]");
        if !self.content.text.is_empty() {
            line.push(": ");
            line.push_line(&self.content, self.max_chars);
        } else if self.has_images {
            line.push(": [image]");
        }
    }

    fn reply(&self, line: &mut Line) {
        if !self.content.text.is_empty() {
            line.push_line(&self.content, self.max_chars);
        } else if !self.calls.is_empty() {
            line.push(if self.calls.len() == 1 { "[tool call: " } else { "[tool calls: " });
            for (place, name) in self.calls.iter().enumerate() {
                line.push(if place == 0 { "" } else { ", " });
                line.push_raw(Some(*name));
            }
            line.push("]");
        } else if self.stop_reason.is_some_and(|reason| reason.raw == "aborted") {
            line.push("[aborted]");
        } else if self.error_message.is_some() {
            line.bracketed("error", self.error_message);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::scan::Envelope;

    fn of_entry(json: &str, max_chars: usize) -> String {
        let envelope = Envelope::parse(json).unwrap();
        let (range, role) = envelope.message.unwrap_or((0..json.len(), None));
        preview(envelope.entry_type, role, &json[range], max_chars)
    }

    fn check(json: &str, expect: &str) {
        assert_eq!(of_entry(json, 200), expect, "{json}");
    }

    #[test]
    fn of_messages() {
        for (message, expect) in [
            (
                r#""role":"user","content":"Help me\n\n\trefactor  the auth module ""#,
                "Help me refactor the auth module",
            ),
            (
                r#""role":"user","content":[{"type":"text","text":"a"},{"type":"image","data":"AA==","mimeType":"image/png"},{"text":"b\u00e9 \"","type":"text"}]"#,
                "a bé \"",
            ),
            (
                r#""role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"Sure \u2014 let's look."},{"type":"toolCall","name":"read"}]"#,
                "Sure — let's look.",
            ),
            (
                r#""role":"assistant","content":[{"type":"toolCall","id":"1","name":"read","arguments":{"name":"x"}}]"#,
                "[tool call: read]",
            ),
            (
                r#""role":"assistant","content":[{"type":"toolCall","name":"read"},{"type":"toolCall","name":"ls"}]"#,
                "[tool calls: read, ls]",
            ),
            (
                r#""role":"assistant","content":[],"stopReason":"error","errorMessage":"no\nway""#,
                "[error: no way]",
            ),
            (
                r#""role":"assistant","content":[],"stopReason":"aborted","errorMessage":"x""#,
                "[aborted]",
            ),
            (r#""role":"assistant","content":[],"stopReason":"stop""#, ""),
            (
                r#""role":"toolResult","toolName":"read","content":[{"type":"text","text":" x"}]"#,
                "[read]: x",
            ),
            (
                r#""role":"toolResult","content":[{"type":"image"}],"toolName":"read""#,
                "[read]: [image]",
            ),
            (r#""role":"bashExecution","command":"npm  test","output":"ok""#, "[bash]: npm test"),
            (r#""role":"custom","customType":"todo","content":"c""#, "[todo]: c"),
            (r#""role":"branchSummary","summary":"s""#, "[branch summary]: s"),
            (r#""role":"compactionSummary","summary":"s""#, "[compaction summary]: s"),
            (r#""role":"oracle","content":"c""#, "[oracle]: c"),
            (r#""content":7"#, "[]"),
        ] {
            check(&format!(r#"{{"type":"message","message":{{{message}}}}}"#), expect);
        }
        check(r#"{"type":"message","message":"odd"}"#, "[]");
    }

    #[test]
    fn of_other_entries() {
        for (json, expect) in [
            (r#""compaction","summary":"s","tokensBefore":50000"#, "[compaction: 50k tokens]"),
            (r#""compaction","tokensBefore":1500"#, "[compaction: 2k tokens]"),
            (r#""compaction","tokensBefore":"x""#, "[compaction: 0k tokens]"),
            (r#""branch_summary","summary":"Tried\nA""#, "[branch summary]: Tried A"),
            (r#""model_change","modelId":"claude-sonnet-4""#, "[model: claude-sonnet-4]"),
            (r#""thinking_level_change","thinkingLevel":"high""#, "[thinking: high]"),
            (r#""custom","customType":"todo","data":{"name":1}"#, "[custom: todo]"),
            (
                r#""custom_message","customType":"todo","content":[{"type":"text","text":"c"}]"#,
                "[todo]: c",
            ),
            (r#""label","targetId":"x","label":"here""#, "[label: here]"),
            (r#""label","targetId":"x""#, "[label: (cleared)]"),
            (r#""session_info","name":"Auth""#, "[title: Auth]"),
            (r#""session_info""#, "[title: (cleared)]"),
            (r#""hologram","beam":1"#, "[hologram]"),
        ] {
            check(&format!(r#"{{"type":{json}}}"#), expect);
        }
    }

    #[test]
    fn never_longer_than_asked_for() {
        let text = "é ".repeat(500);
        for rest in [
            format!(r#"message","message":{{"role":"user","content":"{text}"}}"#),
            format!(
                r#"message","message":{{"role":"toolResult","content":"{text}","toolName":"read"}}"#
            ),
            format!(r#"model_change","modelId":"{text}""#),
        ] {
            let json = format!(r#"{{"type":"{rest}}}"#);
            for max in [0, 1, 2, 9, 200] {
                let line = of_entry(&json, max);
                assert!(line.chars().count() <= max, "{line}");
                assert!(line.chars().count() + 1 >= max, "{line}");
                assert!(!json.contains("read") || max < 6 || line.starts_with("[read]"), "{line}");
            }
        }
    }
}
