//! Finds the JSON objects in a line of a session file, whole or damaged. Knows
//! nothing of the other lines.

use std::ops::Range;

use crate::Timestamp;
use crate::cursor::{Cursor, RawString};
use crate::entry::{EntryType, MessageRole};

/// How every writer of the format starts a line.
pub(crate) const OBJECT_START: &str = "{\"type\":\"";

/// Unfinished objects that are tried per damaged line: each try may read to its end.
const MAX_TRIES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParentField<'a> {
    Missing,
    Null,
    Id(RawString<'a>),
}

/// What is read of an entry when a file is opened. Of a repeated field the last counts,
/// as JavaScript takes it; one of another JSON type than it should have is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Envelope<'a> {
    pub(crate) type_name: RawString<'a>,
    pub(crate) is_header: bool,
    pub(crate) entry_type: EntryType,
    /// Never empty.
    pub(crate) id: Option<RawString<'a>>,
    pub(crate) parent: ParentField<'a>,
    pub(crate) timestamp: Option<Timestamp>,
    /// Where the message is, and its role if that is known.
    pub(crate) message: Option<(Range<usize>, Option<MessageRole>)>,
    /// A string in it has an escape of half a surrogate pair.
    pub(crate) has_lone_surrogates: bool,
}

impl<'a> Envelope<'a> {
    /// `None` where `text` is no JSON object with a type.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (envelope, end) = Self::parse_start(text)?;
        (end == text.len()).then_some(envelope)
    }

    /// Of the object that `text` begins with, and where that ends.
    fn parse_start(text: &'a str) -> Option<(Self, usize)> {
        if !text.starts_with('{') {
            return None;
        }
        let mut cursor = Cursor::new(text);
        let (mut type_name, mut id, mut timestamp, mut message) = (None, None, None, None);
        let mut parent = ParentField::Missing;
        cursor.object(|key, cursor| {
            match &*key.decode() {
                "type" => type_name = cursor.string_value()?,
                "id" => id = cursor.string_value()?,
                "timestamp" => timestamp = cursor.string_value()?,
                "parentId" => {
                    parent = match cursor.starts_with()? {
                        b'"' => {
                            cursor.string_value()?.map_or(ParentField::Missing, ParentField::Id)
                        }
                        b'n' => cursor.value().map(|_| ParentField::Null)?,
                        _ => cursor.value().map(|_| ParentField::Missing)?,
                    };
                }
                "message" => message = parse_message(cursor)?,
                _ => drop(cursor.value()?),
            }
            Some(())
        })?;
        let type_name: RawString<'_> = type_name?;
        let entry_type = EntryType::from_name(&type_name.decode());
        let envelope = Self {
            type_name,
            is_header: type_name.decode() == "session",
            entry_type,
            id: id.filter(|id: &RawString<'_>| !id.raw.is_empty()),
            parent,
            timestamp: timestamp.and_then(|text: RawString<'_>| Timestamp::parse(&text.decode())),
            message: message.filter(|_| entry_type == EntryType::Message),
            has_lone_surrogates: cursor.has_lone_surrogates(),
        };
        Some((envelope, cursor.at()))
    }

    /// Whether nothing but a session file would have this object. Objects inside of
    /// messages have a type too, but no timestamp.
    pub(crate) fn is_convincing(&self) -> bool {
        self.timestamp.is_some()
            && (self.entry_type != EntryType::Unknown
                || self.is_header
                || (self.id.is_some() && self.parent != ParentField::Missing))
    }
}

/// Passes the value of `message`.
fn parse_message(cursor: &mut Cursor<'_>) -> Option<Option<(Range<usize>, Option<MessageRole>)>> {
    if cursor.starts_with()? != b'{' {
        return cursor.value().map(|_| None);
    }
    let start = cursor.at();
    let mut role = None;
    cursor.object(|key, cursor| {
        match key.raw {
            "role" => {
                role = cursor.string_value()?.and_then(|r| MessageRole::from_name(&r.decode()))
            }
            _ => drop(cursor.value()?),
        }
        Some(())
    })?;
    Some(Some((start..cursor.at(), role)))
}

/// A line that is more or less than one object.
#[derive(Debug, Default)]
pub(crate) struct Scan<'a> {
    /// With their places in the line.
    pub(crate) objects: Vec<(Range<usize>, Envelope<'a>)>,
    /// Something is left that is no object.
    pub(crate) damaged: bool,
    pub(crate) has_nul: bool,
}

pub(crate) fn trim(line: &str) -> &str {
    line.trim_matches([' ', '\t', '\r', '\n'])
}

/// Reads a line which [`Envelope::parse`] doesn't take.
pub(crate) fn scan(line: &str) -> Scan<'_> {
    let mut scan = Scan { has_nul: line.contains('\0'), ..Scan::default() };
    let mut start = 0;
    // JSON text holds no raw NUL: what is on either side of a run was written apart.
    for part in line.split('\0') {
        scan_part(line, start..start + part.len(), &mut scan);
        start += part.len() + 1;
    }
    scan
}

fn scan_part<'a>(line: &'a str, range: Range<usize>, scan: &mut Scan<'a>) {
    let part = trim(&line[range.clone()]);
    if part.is_empty() {
        return;
    }
    // `part` lies within `line`.
    let base = range.start + line[range].find(part).unwrap_or_default();
    if let Some(envelope) = Envelope::parse(part) {
        scan.objects.push((base..base + part.len(), envelope));
        return;
    }
    // Entries glued together: the rest of one that was cut off and a whole one after it,
    // or whole ones whose line feed is lost.
    let mut at = 0;
    let mut covered = 0;
    let mut tries = 0;
    while tries < MAX_TRIES
        && let Some(start) = next_object(part, at)
    {
        let Some((envelope, len)) = Envelope::parse_start(&part[start..]) else {
            tries += 1;
            at = start + 1;
            continue;
        };
        let end = start + len;
        let rest = trim(&part[end..]);
        // An object within another one is followed by `,`, `]` or `}`; with nothing before
        // it, it is within none.
        let is_outermost = trim(&part[covered..start]).is_empty();
        if (is_outermost || rest.is_empty() || rest.starts_with('{')) && envelope.is_convincing() {
            scan.damaged |= !trim(&part[covered..start]).is_empty();
            scan.objects.push((base + start..base + end, envelope));
            covered = end;
        }
        at = end;
    }
    scan.damaged |= !trim(&part[covered..]).is_empty();
}

/// Where an object begins, at `from` or behind it: a brace, and a key after it.
fn next_object(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    memchr::memchr_iter(b'{', &bytes[from..]).map(|offset| from + offset).find(|brace| {
        let key = bytes[brace + 1..].iter().find(|byte| !byte.is_ascii_whitespace());
        key == Some(&b'"')
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const A: &str = r#"{"type":"label","id":"a","parentId":null,"timestamp":"2024-12-03T14:00:00.000Z","targetId":"x"}"#;
    const B: &str = r#"{"type":"odd","id":"b","parentId":"a","timestamp":"2024-12-03T14:00:01.000Z","n":{"type":"text"}}"#;

    fn check(line: &str, expected: &[&str], damaged: bool) {
        let scan = scan(line);
        let found: Vec<&str> = scan.objects.iter().map(|(range, _)| &line[range.clone()]).collect();
        assert_eq!(found, expected, "{line}");
        assert_eq!(scan.damaged, damaged, "{line}");
    }

    #[test]
    fn whole_entries_are_found_in_damaged_lines() {
        check(&format!("{A}{B}"), &[A, B], false);
        check(&format!("{} {B}", &A[..40]), &[B], true);
        check(&format!("{A}{}", &B[..40]), &[A], true);
        check(&format!("\0\0{A}\0\0\r"), &[A], false);
        check(&format!("{}\0\0{B}", &A[..40]), &[B], true);
        // Cut right after an object within the entry.
        check(&B[..B.len() - 1], &[], true);
        check(&format!(r#"{{"type":"custom","data":[{A},{B}],"x"#), &[], true);
        check("[1,2]", &[], true);
        // Whatever the order of the keys and the white space, and what follows.
        let spaced = B.replace("\":", "\": ").replace(",\"", ", \"");
        let id_first = B.replacen(r#"{"type":"odd","id":"b","#, r#"{"id":"b", "type":"odd","#, 1);
        for whole in [&spaced, &id_first] {
            check(&format!("{whole}{whole}"), &[whole, whole], false);
            check(&format!("{}{whole}", &whole[..40]), &[whole], true);
            check(&format!("{}{whole}", &A[..40]), &[whole], true);
        }
        for garbage in ["}}garbage", ",", "]", " x"] {
            check(&format!("{A}{garbage}"), &[A], true);
            check(&format!("{A}{B}{garbage}"), &[A, B], true);
        }
        check(&"{ ".repeat(100_000), &[], true);
        check("\0\0", &[], false);
        check(&OBJECT_START.repeat(100_000), &[], true);
    }

    #[test]
    fn base_fields_of_wrong_types_are_missing() {
        let text = r#"{"type":"message","id":7,"parentId":[],"timestamp":1,"message":"x"}"#;
        let envelope = Envelope::parse(text).unwrap();
        assert_eq!(envelope.entry_type, EntryType::Message);
        assert_eq!((envelope.id, envelope.parent), (None, ParentField::Missing));
        assert_eq!((envelope.timestamp, envelope.message), (None, None));
        for text in [
            r#"{"id":"a"}"#,
            r#"["session"]"#,
            r#"{"type":7}"#,
            r#"{"type":"label"} x"#,
            r#"{"type":"label","x":"\x"}"#,
        ] {
            assert_eq!(Envelope::parse(text), None, "{text}");
        }
    }

    #[test]
    fn fields_may_be_repeated_escaped_and_in_any_order() {
        let text = r#"{"message":{"content":{"role":"x"},"role":"toolResult"},"\u0069d":"a","id":"b\ud83d","parentId":null,"timestamp":"2024-12-03T14:00:01.000Z","type":"x","type":"\u006dessage"}"#;
        let envelope = Envelope::parse(text).unwrap();
        assert_eq!(envelope.id.unwrap().decode(), "b\u{fffd}");
        assert_eq!(envelope.parent, ParentField::Null);
        assert!(envelope.is_convincing() && envelope.has_lone_surrogates);
        let (range, role) = envelope.message.unwrap();
        assert_eq!(&text[range], r#"{"content":{"role":"x"},"role":"toolResult"}"#);
        assert_eq!(role, Some(MessageRole::ToolResult));
    }
}
