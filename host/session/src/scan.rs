//! Finds the JSON objects in a line of a session file, whole or damaged. Knows
//! nothing of the other lines.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use smol_str::SmolStr;

use crate::Timestamp;
use crate::entry::{EntryId, EntryType};
use crate::json::Fields;

/// How every writer of the format starts a line.
pub(crate) const OBJECT_START: &str = "{\"type\":\"";

/// Unfinished objects that are tried per damaged line: each try may read to its end.
const MAX_TRIES: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ParentField {
    Missing,
    Null,
    Id(EntryId),
}

/// What is read of an entry when a file is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) is_header: bool,
    pub(crate) entry_type: EntryType,
    pub(crate) id: Option<EntryId>,
    pub(crate) parent: ParentField,
    pub(crate) timestamp: Option<Timestamp>,
}

#[derive(Deserialize)]
struct WireEnvelope<'a> {
    r#type: SmolStr,
    #[serde(default)]
    id: Option<EntryId>,
    #[serde(default, rename = "parentId", deserialize_with = "present")]
    parent_id: Option<Option<EntryId>>,
    #[serde(default, borrow)]
    timestamp: Cow<'a, str>,
}

/// Tells `null` from a missing field.
fn present<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Option<EntryId>>, D::Error> {
    Option::deserialize(d).map(Some)
}

impl Envelope {
    /// `None` where `text` is no JSON object with a type.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // serde reads arrays as structs too.
        if !text.starts_with('{') {
            return None;
        }
        match serde_json::from_str::<WireEnvelope<'_>>(text) {
            Ok(wire) => Some(Self::new(
                &wire.r#type,
                wire.id,
                match wire.parent_id {
                    None => ParentField::Missing,
                    Some(None) => ParentField::Null,
                    Some(Some(id)) => ParentField::Id(id),
                },
                &wire.timestamp,
            )),
            Err(_) => Self::parse_leniently(text),
        }
    }

    /// For objects whose base fields have other JSON types than they should.
    fn parse_leniently(text: &str) -> Option<Self> {
        let fields = Fields::parse(text)?;
        Some(Self::new(
            &fields.get_str("type")?,
            fields.get_str("id").map(EntryId::new),
            match (fields.get_str("parentId"), fields.get("parentId")) {
                (Some(id), _) => ParentField::Id(EntryId::new(id)),
                (None, Some("null")) => ParentField::Null,
                (None, _) => ParentField::Missing,
            },
            &fields.get_str("timestamp").unwrap_or_default(),
        ))
    }

    fn new(name: &str, id: Option<EntryId>, parent: ParentField, timestamp: &str) -> Self {
        Self {
            is_header: name == "session",
            entry_type: EntryType::from_name(name),
            id: id.filter(|id| !id.as_str().is_empty()),
            parent,
            timestamp: Timestamp::parse(timestamp),
        }
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

/// A line that is more or less than one object.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// With their places in the line.
    pub(crate) objects: Vec<(Range<usize>, Envelope)>,
    /// Something is left that is no object.
    pub(crate) damaged: bool,
    pub(crate) has_nul: bool,
}

pub(crate) fn trim(line: &str) -> &str {
    line.trim_matches([' ', '\t', '\r', '\n'])
}

/// Reads a line which [`Envelope::parse`] doesn't take.
pub(crate) fn scan(line: &str) -> Scan {
    let mut scan = Scan { has_nul: line.contains('\0'), ..Scan::default() };
    let mut start = 0;
    // JSON text holds no raw NUL: what is on either side of a run was written apart.
    for part in line.split('\0') {
        scan_part(line, start..start + part.len(), &mut scan);
        start += part.len() + 1;
    }
    scan
}

fn scan_part(line: &str, range: Range<usize>, scan: &mut Scan) {
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
        && let Some(offset) = part[at..].find(OBJECT_START)
    {
        let start = at + offset;
        let mut values =
            serde_json::Deserializer::from_str(&part[start..]).into_iter::<&RawValue>();
        let Some(Ok(value)) = values.next() else {
            tries += 1;
            at = start + OBJECT_START.len();
            continue;
        };
        let end = start + value.get().len();
        let rest = trim(&part[end..]);
        // An object within another one is followed by `,`, `]` or `}`.
        if (rest.is_empty() || rest.starts_with('{'))
            && let Some(envelope) = Envelope::parse(value.get())
            && envelope.is_convincing()
        {
            scan.damaged |= !trim(&part[covered..start]).is_empty();
            scan.objects.push((base + start..base + end, envelope));
            covered = end;
        }
        at = end;
    }
    scan.damaged |= !trim(&part[covered..]).is_empty();
}

#[cfg(test)]
mod tests {
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
        check("\0\0", &[], false);
        check(&OBJECT_START.repeat(100_000), &[], true);
    }

    #[test]
    fn base_fields_of_wrong_types_are_missing() {
        let envelope = Envelope::parse(r#"{"type":"message","id":7,"parentId":[],"timestamp":1}"#);
        assert_eq!(
            envelope,
            Some(Envelope {
                is_header: false,
                entry_type: EntryType::Message,
                id: None,
                parent: ParentField::Missing,
                timestamp: None,
            })
        );
        assert_eq!(Envelope::parse(r#"{"id":"a"}"#), None);
        assert_eq!(Envelope::parse(r#"["session"]"#), None);
    }
}
