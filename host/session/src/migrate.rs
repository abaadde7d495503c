//! Brings the text of a version 1 or 2 file to version 3, in memory. Line for line,
//! so that warnings still name the right line; what is damaged stays as it is.

use std::collections::HashSet;

use crate::entry::EntryId;
use crate::header::FORMAT_VERSION;
use crate::json::{Fields, quote};
use crate::scan::{Envelope, ParentField, scan, trim};

/// A stable id for the entry at `ordinal` (from 0) of a file: the same file always
/// gives the same ids.
pub(crate) fn assigned_id(ordinal: usize, taken: impl Fn(&EntryId) -> bool) -> EntryId {
    let mut number = ordinal;
    loop {
        let id = EntryId::new(format!("{number:08x}"));
        if !taken(&id) {
            return id;
        }
        // Far from the ordinals of this file's other entries.
        number += 1 << 24;
    }
}

pub(crate) fn migrate(text: &str) -> String {
    let mut migration = Migration::default();
    // Ids take some 40 bytes an entry.
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    for line in text.split_inclusive('\n') {
        if trim(line).is_empty() {
            out.push_str(line);
            continue;
        }
        // Damaged lines are found again, and reported, when the result is loaded.
        let objects = match Envelope::parse(trim(line)) {
            Some(envelope) => {
                let start = line.find('{').unwrap_or_default();
                vec![(start..start + trim(line).len(), envelope)]
            }
            None => scan(line).objects,
        };
        let mut copied = 0;
        for (range, envelope) in &objects {
            out.push_str(&line[copied..range.start]);
            out.push_str(&migration.object(&line[range.clone()], envelope));
            copied = range.end;
        }
        out.push_str(&line[copied..]);
        if objects.is_empty() {
            migration.by_line.push(None);
        }
    }
    out
}

#[derive(Default)]
struct Migration {
    taken: HashSet<EntryId>,
    last: Option<EntryId>,
    entries: usize,
    /// Version 1 compactions name the first kept entry by its line (from 0, the header's).
    by_line: Vec<Option<EntryId>>,
}

impl Migration {
    fn object(&mut self, text: &str, envelope: &Envelope<'_>) -> String {
        let Some(mut fields) = Fields::parse(text) else { return text.to_owned() };
        if envelope.is_header {
            fields.set(1, "version", FORMAT_VERSION.to_string());
            self.by_line.push(None);
            return fields.to_text();
        }
        let id = envelope.id.map(|id| EntryId::new(id.decode())).unwrap_or_else(|| {
            let id = assigned_id(self.entries, |id| self.taken.contains(id));
            fields.set(1, "id", quote(id.as_str()));
            id
        });
        if envelope.parent == ParentField::Missing {
            let parent = self.last.as_ref().map_or("null".to_owned(), |id| quote(id.as_str()));
            fields.set(2, "parentId", parent);
        }
        let first_kept = fields.get("firstKeptEntryIndex").and_then(|n| n.parse::<usize>().ok());
        if let Some(Some(kept)) = first_kept.and_then(|line| self.by_line.get(line)) {
            fields.set(5, "firstKeptEntryId", quote(kept.as_str()));
            fields.remove("firstKeptEntryIndex");
        }
        if let Some(message) = fields.get("message").and_then(rename_hook_message) {
            fields.set(4, "message", message);
        }
        self.entries += 1;
        self.taken.insert(id.clone());
        self.by_line.push(Some(id.clone()));
        self.last = Some(id);
        fields.to_text()
    }
}

/// Version 3 calls the role `hookMessage` `custom`.
fn rename_hook_message(message: &str) -> Option<String> {
    let mut fields = Fields::parse(message)?;
    if fields.get_str("role")? != "hookMessage" {
        return None;
    }
    fields.set(0, "role", quote("custom"));
    Some(fields.to_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_becomes_a_chain() {
        let old = r#"{"type":"session","id":"u","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/x","modelId":"m"}

{"type":"message","timestamp":"2024-12-03T14:00:01.000Z","message":{"role":"user","content":"a","n":1.50}}
garbage
{"type":"compaction","timestamp":"2024-12-03T14:00:02.000Z","summary":"s","firstKeptEntryIndex":1,"tokensBefore":9}
{"type":"message","timestamp":"2024-12-03T14:00:03.000Z","message":{"role":"hookMessage","customType":"x"}}"#;
        let new = r#"{"type":"session","version":3,"id":"u","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/x","modelId":"m"}

{"type":"message","id":"00000000","parentId":null,"timestamp":"2024-12-03T14:00:01.000Z","message":{"role":"user","content":"a","n":1.50}}
garbage
{"type":"compaction","id":"00000001","parentId":"00000000","timestamp":"2024-12-03T14:00:02.000Z","summary":"s","firstKeptEntryId":"00000000","tokensBefore":9}
{"type":"message","id":"00000002","parentId":"00000001","timestamp":"2024-12-03T14:00:03.000Z","message":{"role":"custom","customType":"x"}}"#;
        assert_eq!(migrate(old), new);
        // What is new is left alone.
        assert_eq!(migrate(new), new);
    }
}
