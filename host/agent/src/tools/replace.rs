//! Exact and unique replacement in a text, with the text's own line endings kept.

const BOM: char = '\u{feff}';

/// Places that are counted before a search gives up; nobody needs the exact number.
const MAX_PLACES: usize = 1_000;
/// Places whose lines an error names.
const NAMED_PLACES: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Replacement {
    pub(super) old: String,
    pub(super) new: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReplaceError {
    #[error("oldText is empty; it must be a text that the file holds once")]
    Empty { index: usize },
    #[error(
        "oldText occurs 0 times; it must match exactly, whitespace and line breaks included: read the file again"
    )]
    NotFound { index: usize },
    #[error("oldText occurs {places} times (lines {lines}); add lines around it to make it unique")]
    NotUnique { index: usize, places: String, lines: String },
    #[error("its oldText overlaps with that of edits[{other}]; make one edit of both")]
    Overlap { index: usize, other: usize },
    #[error("nothing would change: newText gives the text that is there already")]
    NoChange,
}

impl ReplaceError {
    /// Which replacement is to blame.
    pub(super) fn index(&self) -> Option<usize> {
        match self {
            Self::Empty { index }
            | Self::NotFound { index }
            | Self::NotUnique { index, .. }
            | Self::Overlap { index, .. } => Some(*index),
            Self::NoChange => None,
        }
    }
}

/// `text` after all replacements, or none of them. Each `old` is looked for in the
/// original text. A line feed in it also matches CRLF, and a byte order mark at the
/// beginning of the text stays.
pub(super) fn replace(text: &str, replacements: &[Replacement]) -> Result<String, ReplaceError> {
    let (mark, body) = match text.strip_prefix(BOM) {
        Some(body) => (&text[..BOM.len_utf8()], body),
        None => ("", text),
    };
    let view = View::new(body);
    let mut places: Vec<(usize, usize, usize)> = Vec::with_capacity(replacements.len());
    for (index, replacement) in replacements.iter().enumerate() {
        let old = without_mark(&replacement.old, mark);
        let (start, end) = view.find_only(old, index)?;
        places.push((start, end, index));
    }
    places.sort_unstable();
    for pair in places.windows(2) {
        if pair[1].0 < pair[0].1 {
            let (index, other) = (pair[0].2.max(pair[1].2), pair[0].2.min(pair[1].2));
            return Err(ReplaceError::Overlap { index, other });
        }
    }

    let mut result = String::with_capacity(text.len());
    result.push_str(mark);
    let mut copied = 0;
    for (start, end, index) in places {
        result.push_str(&body[copied..start]);
        let new = without_mark(&replacements[index].new, mark);
        if view.uses_crlf(&body[start..end]) {
            result.push_str(&new.replace("\r\n", "\n").replace('\n', "\r\n"));
        } else {
            result.push_str(new);
        }
        copied = end;
    }
    result.push_str(&body[copied..]);
    if result == text { Err(ReplaceError::NoChange) } else { Ok(result) }
}

fn without_mark<'a>(text: &'a str, mark: &str) -> &'a str {
    text.strip_prefix(mark).unwrap_or(text)
}

/// A text with CRLF shown as LF, and the way back.
struct View {
    text: String,
    /// Offsets in `text` of the line feeds that were CRLF.
    crlf: Vec<usize>,
    mostly_crlf: bool,
}

impl View {
    fn new(body: &str) -> Self {
        let mut text = String::with_capacity(body.len());
        let mut crlf = Vec::new();
        for (index, part) in body.split("\r\n").enumerate() {
            if index > 0 {
                crlf.push(text.len());
                text.push('\n');
            }
            text.push_str(part);
        }
        let line_feeds = text.bytes().filter(|byte| *byte == b'\n').count();
        let mostly_crlf = crlf.len() * 2 > line_feeds;
        Self { text, crlf, mostly_crlf }
    }

    /// The only place of `old`, as offsets in the original text.
    fn find_only(&self, old: &str, index: usize) -> Result<(usize, usize), ReplaceError> {
        let old = old.replace("\r\n", "\n");
        let Some(first) = old.chars().next() else {
            return Err(ReplaceError::Empty { index });
        };
        let mut places = Vec::new();
        let mut from = 0;
        while let Some(at) = self.text[from..].find(&old) {
            places.push(from + at);
            // Places that overlap are as ambiguous as others.
            from += at + first.len_utf8();
            if places.len() == MAX_PLACES {
                break;
            }
        }
        match places[..] {
            [] => Err(ReplaceError::NotFound { index }),
            [start] => Ok((self.original(start), self.original(start + old.len()))),
            _ => Err(self.not_unique(&places, index)),
        }
    }

    fn not_unique(&self, places: &[usize], index: usize) -> ReplaceError {
        let mut lines: Vec<String> = places
            .iter()
            .take(NAMED_PLACES)
            .map(|at| (1 + self.text[..*at].matches('\n').count()).to_string())
            .collect();
        if places.len() > NAMED_PLACES {
            lines.push("...".to_owned());
        }
        let at_least = if places.len() == MAX_PLACES { "at least " } else { "" };
        ReplaceError::NotUnique {
            index,
            places: format!("{at_least}{}", places.len()),
            lines: lines.join(", "),
        }
    }

    fn original(&self, at: usize) -> usize {
        at + self.crlf.partition_point(|line_feed| *line_feed < at)
    }

    /// Whether what replaces `old` gets CRLF: as `old` itself, or else the file, has it.
    fn uses_crlf(&self, old: &str) -> bool {
        match old.find('\n') {
            Some(at) => old[..at].ends_with('\r'),
            None => self.mostly_crlf,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(text: &str, edits: &[(&str, &str)]) -> Result<String, ReplaceError> {
        let edits: Vec<Replacement> = edits
            .iter()
            .map(|(old, new)| Replacement { old: (*old).to_owned(), new: (*new).to_owned() })
            .collect();
        replace(text, &edits)
    }

    fn check(text: &str, edits: &[(&str, &str)], expected: &str) {
        assert_eq!(run(text, edits).as_deref(), Ok(expected), "{text:?} {edits:?}");
    }

    #[test]
    fn line_endings_and_mark_are_kept() {
        check("a\nb\nc", &[("b", "x\ny")], "a\nx\ny\nc");
        check("a\r\nb\r\nc\r\n", &[("a\nb", "x\ny\nz")], "x\r\ny\r\nz\r\nc\r\n");
        check("a\r\nb\r\n", &[("a\r\nb", "x\r\ny")], "x\r\ny\r\n");
        check("a\r\nb\r\n", &[("\nb", "\nx")], "a\r\nx\r\n");
        check("a\r\nb\r\n", &[("b\n", "")], "a\r\n");
        check("a\r\nb\r\n", &[("b", "x\ny")], "a\r\nx\r\ny\r\n");
        check("one\r\ntwo\nthree\n", &[("two\n", "2\n2\n")], "one\r\n2\n2\nthree\n");
        check("one\ntwo\n", &[("one", "1\r\n1")], "1\r\n1\ntwo\n");
        check("\u{feff}a\nb", &[("a", "x")], "\u{feff}x\nb");
        check("\u{feff}a\nb", &[("\u{feff}a", "\u{feff}x")], "\u{feff}x\nb");
        check("\u{feff}a\nb", &[("a\nb", "")], "\u{feff}");
        check("ünï\n文", &[("ï\n文", "i")], "üni");
    }

    #[test]
    fn edits_are_made_together_or_not_at_all() {
        check("a b c", &[("c", "a"), ("a", "c")], "c b a");
        check("ab", &[("a", "1"), ("b", "2")], "12");
        let overlap = ReplaceError::Overlap { index: 1, other: 0 };
        assert_eq!(run("abc", &[("bc", "x"), ("ab", "y")]), Err(overlap.clone()));
        assert_eq!(run("abc", &[("abc", "x"), ("b", "y")]), Err(overlap));
        let missing = ReplaceError::NotFound { index: 1 };
        assert_eq!(run("abc", &[("a", "x"), ("x", "y")]), Err(missing));
    }

    #[test]
    fn a_place_must_be_the_only_one() {
        let error = run("x\ny\nx\n", &[("x", "z")]).err().map(|e| e.to_string());
        assert_eq!(
            error.as_deref(),
            Some("oldText occurs 2 times (lines 1, 3); add lines around it to make it unique")
        );
        // Overlapping places count.
        assert!(matches!(run("aaa", &[("aa", "b")]), Err(ReplaceError::NotUnique { .. })));
        let many = run(&"a".repeat(5_000), &[("a", "b")]).err().map(|e| e.to_string());
        assert!(many.is_some_and(|e| e.contains("at least 1000 times (lines 1, 1, 1, 1, 1, ...)")));
        assert_eq!(run("a", &[("", "b")]), Err(ReplaceError::Empty { index: 0 }));
        assert_eq!(run("a", &[("a", "a")]), Err(ReplaceError::NoChange));
        assert_eq!(run("a\r\n", &[("a\n", "a\n")]), Err(ReplaceError::NoChange));
    }

    proptest! {
        /// What is around the match stays byte by byte.
        #[test]
        fn the_rest_is_untouched(
            before in "(\u{feff})?[ab\r\né]{0,30}", after in "[ab\r\né]{0,30}", new in "[abc\n]{0,10}",
        ) {
            let text = format!("{before}@{after}");
            let result = run(&text, &[("@", &new)]);
            prop_assert!(result.is_ok());
            let result = result.unwrap_or_default();
            prop_assert!(result.starts_with(&before));
            prop_assert!(result.ends_with(&after));
            let middle = &result[before.len()..result.len() - after.len()];
            prop_assert_eq!(middle.replace("\r\n", "\n"), new);
        }

        /// A match over line breaks, written with LF, is found in a CRLF text.
        #[test]
        fn crlf_matches_lf(lines in proptest::collection::vec("[a-c]{0,3}", 2..8)) {
            let marked = format!("<{}>", lines.join("\n"));
            let text = format!("x\r\n{}\r\ny", marked.replace('\n', "\r\n"));
            prop_assert_eq!(run(&text, &[(&marked, "1\n2")]), Ok("x\r\n1\r\n2\r\ny".to_owned()));
        }
    }
}
