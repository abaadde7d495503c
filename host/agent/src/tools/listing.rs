//! Results that are lists: joined, cut to the byte cap, and with a word on what is
//! missing.

use serde_json::{Map, Value, json};
use wharf_protocol::message::ContentBlock;

use super::truncate::{self, Limits, MAX_BYTES};
use crate::tool::ToolOutput;

#[derive(Debug)]
pub(super) struct Listing {
    pub(super) lines: Vec<String>,
    /// Said where there are no lines.
    pub(super) empty: &'static str,
    /// The limit on entries, if it cut something.
    pub(super) limit_reached: Option<Limit>,
    pub(super) notes: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Limit {
    pub(super) count: usize,
    /// What is counted: `matches`.
    pub(super) what: &'static str,
    /// Its name in `details`.
    pub(super) key: &'static str,
}

impl Listing {
    pub(super) fn into_output(self) -> ToolOutput {
        let mut details = Map::new();
        let joined = self.lines.join("\n");
        let kept = truncate::head(&joined, Limits::BYTES_ONLY);
        let mut text = kept.text.trim_end_matches('\n').to_owned();
        if self.lines.is_empty() {
            text.push_str(self.empty);
        }
        if let Some(limit) = self.limit_reached {
            let Limit { count, what, key } = limit;
            let note = format!(
                "Stopped at the limit of {count} {what}. Use limit={} for more, or narrow the search",
                count.saturating_mul(2)
            );
            text = truncate::with_note(text, &note);
            details.insert(key.to_owned(), json!(count));
        }
        if kept.cut_by.is_some() {
            let note =
                format!("Only the first {} lines fit in 50 kB. Narrow the search", kept.lines);
            text = truncate::with_note(text, &note);
            details.insert("byteLimitReached".to_owned(), json!(MAX_BYTES));
        }
        for note in &self.notes {
            text = truncate::with_note(text, note);
        }
        let details = if details.is_empty() { None } else { Some(Value::Object(details)) };
        ToolOutput { content: vec![ContentBlock::text(text)], details }
    }
}
