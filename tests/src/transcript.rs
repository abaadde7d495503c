//! What went in and out, with everything that differs from run to run replaced.

use std::collections::HashMap;

use regex::{Captures, Regex};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Written to the binary.
    In,
    /// Written by the binary.
    Out,
}

#[derive(Debug)]
pub(crate) struct Transcript {
    lines: Vec<(Direction, String)>,
    names: Vec<(String, String)>,
}

impl Transcript {
    pub(crate) fn new(names: Vec<(String, String)>) -> Self {
        Self { lines: Vec::new(), names }
    }

    pub(crate) fn push(&mut self, direction: Direction, line: &str) {
        self.lines.push((direction, line.to_owned()));
    }

    /// What the binary wrote, line by line.
    pub(crate) fn out(&self) -> impl Iterator<Item = &str> {
        self.lines
            .iter()
            .filter(|(direction, _)| *direction == Direction::Out)
            .map(|(_, line)| line.as_str())
    }

    pub(crate) fn text(&self) -> String {
        let lines: Vec<String> = self
            .lines
            .iter()
            .map(|(direction, line)| match direction {
                Direction::In => format!("> {line}"),
                Direction::Out => format!("< {line}"),
            })
            .collect();
        normalise(&lines.join("\n"), &self.names)
    }
}

/// Replaces ids by `[ID1]`, `[ID2]`... in the order in which they appear, times by
/// `[TIME]`, and paths by their names.
pub fn normalise(text: &str, names: &[(String, String)]) -> String {
    let mut text = text.to_owned();
    for (path, name) in names {
        text = text.replace(path.as_str(), name);
    }
    let id =
        Regex::new(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b").unwrap();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let text = id.replace_all(&text, |found: &Captures<'_>| {
        let next = seen.len() + 1;
        format!("[ID{}]", seen.entry(found[0].to_owned()).or_insert(next))
    });
    let iso = Regex::new(r"\b\d{4}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d[.-]\d{3}Z").unwrap();
    let text = iso.replace_all(&text, "[TIME]");
    let millis = Regex::new(r#""(timestamp|expiresAt)":\d{13}"#).unwrap();
    millis
        .replace_all(&text, |found: &Captures<'_>| format!("\"{}\":[TIME]", &found[1]))
        .into_owned()
}
