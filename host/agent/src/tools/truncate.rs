//! Cutting text to the caps on what a tool may show.

use serde::Serialize;

/// The caps of `read` and `bash`.
pub const MAX_LINES: usize = 2_000;
/// 50 kB, counted in bytes of UTF-8.
pub const MAX_BYTES: usize = 50_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub lines: usize,
    pub bytes: usize,
}

impl Limits {
    pub const STANDARD: Self = Self { lines: MAX_LINES, bytes: MAX_BYTES };
    /// For lists that count entries on their own.
    pub const BYTES_ONLY: Self = Self { lines: usize::MAX, bytes: MAX_BYTES };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CutBy {
    Lines,
    Bytes,
}

/// The part of a text that stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept<'a> {
    pub text: &'a str,
    /// A last line without line feed counts.
    pub lines: usize,
    /// `None`: nothing was cut.
    pub cut_by: Option<CutBy>,
    /// The only kept line is longer than the byte cap and was itself cut.
    pub partial_line: bool,
}

/// What was cut, as `details.truncation` carries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Truncation {
    pub truncated: bool,
    pub truncated_by: CutBy,
    pub total_lines: usize,
    pub total_bytes: u64,
    pub output_lines: usize,
    pub output_bytes: usize,
    /// One line was longer than `maxBytes`, and only a part of it is shown.
    pub last_line_partial: bool,
    pub max_lines: usize,
    pub max_bytes: usize,
}

impl Truncation {
    pub fn of(kept: &Kept<'_>, cut_by: CutBy, total_lines: usize, total_bytes: u64) -> Self {
        Self {
            truncated: true,
            truncated_by: cut_by,
            total_lines,
            total_bytes,
            output_lines: kept.lines,
            output_bytes: kept.text.len(),
            last_line_partial: kept.partial_line,
            max_lines: MAX_LINES,
            max_bytes: MAX_BYTES,
        }
    }
}

/// Lines of `text`; a last line without line feed counts.
#[cfg(test)]
pub(super) fn count_lines(text: &str) -> usize {
    text.split_inclusive('\n').count()
}

/// The first whole lines of `text` within `limits`. Of a first line that is too long
/// alone, the beginning.
pub fn head(text: &str, limits: Limits) -> Kept<'_> {
    let mut end = 0;
    let mut lines = 0;
    for line in text.split_inclusive('\n') {
        if lines == limits.lines {
            return Kept {
                text: &text[..end],
                lines,
                cut_by: Some(CutBy::Lines),
                partial_line: false,
            };
        }
        if end + line.len() > limits.bytes {
            let partial_line = lines == 0;
            if partial_line {
                end = text.floor_char_boundary(limits.bytes);
                lines = 1;
            }
            return Kept { text: &text[..end], lines, cut_by: Some(CutBy::Bytes), partial_line };
        }
        end += line.len();
        lines += 1;
    }
    Kept { text, lines, cut_by: None, partial_line: false }
}

/// The last whole lines of `text` within `limits`. Of a last line that is too long
/// alone, the end.
pub fn tail(text: &str, limits: Limits) -> Kept<'_> {
    let mut start = text.len();
    let mut lines = 0;
    for line in text.split_inclusive('\n').rev() {
        if lines == limits.lines {
            return Kept {
                text: &text[start..],
                lines,
                cut_by: Some(CutBy::Lines),
                partial_line: false,
            };
        }
        if text.len() - start + line.len() > limits.bytes {
            let partial_line = lines == 0;
            if partial_line {
                start = text.ceil_char_boundary(text.len() - limits.bytes);
                lines = 1;
            }
            return Kept { text: &text[start..], lines, cut_by: Some(CutBy::Bytes), partial_line };
        }
        start -= line.len();
        lines += 1;
    }
    Kept { text, lines, cut_by: None, partial_line: false }
}

/// `text` with a remark in square brackets after a blank line.
pub(super) fn with_note(mut text: String, note: &str) -> String {
    if !text.is_empty() {
        text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
    }
    text.push('[');
    text.push_str(note);
    text.push(']');
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = String> {
        proptest::collection::vec(prop_oneof!["[a-zé文😀]{0,12}", Just("\n".to_owned())], 0..40)
            .prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn cuts_keep_the_caps_and_the_right_end(text in text(), lines in 1_usize..20, bytes in 4_usize..80) {
            let limits = Limits { lines, bytes };
            for (kept, at_end) in [(head(&text, limits), false), (tail(&text, limits), true)] {
                prop_assert!(kept.text.len() <= bytes);
                prop_assert!(kept.lines <= lines);
                prop_assert!(count_lines(kept.text) <= lines);
                let fits = text.len() <= bytes && count_lines(&text) <= lines;
                prop_assert_eq!(kept.cut_by.is_none(), fits);
                if at_end {
                    prop_assert!(text.ends_with(kept.text));
                } else {
                    prop_assert!(text.starts_with(kept.text));
                }
                if kept.cut_by.is_none() {
                    prop_assert_eq!(kept.text, text.as_str());
                }
                if !text.is_empty() {
                    prop_assert!(!kept.text.is_empty());
                }
                if !kept.partial_line {
                    prop_assert_eq!(kept.lines, count_lines(kept.text));
                    let rest = if at_end { &text[..text.len() - kept.text.len()] } else { kept.text };
                    prop_assert!(kept.cut_by.is_none() || rest.ends_with('\n'));
                }
            }
        }

        /// One more line would have broken a cap.
        #[test]
        fn head_keeps_as_much_as_fits(text in text(), lines in 1_usize..20, bytes in 4_usize..80) {
            let kept = head(&text, Limits { lines, bytes });
            let next = text[kept.text.len()..].split_inclusive('\n').next().map_or(0, str::len);
            match kept.cut_by {
                Some(CutBy::Lines) => prop_assert_eq!(kept.lines, lines),
                Some(CutBy::Bytes) => prop_assert!(kept.text.len() + next > bytes),
                None => {}
            }
        }
    }

    #[test]
    fn a_cut_line_ends_between_characters() {
        let limits = Limits { lines: 10, bytes: 5 };
        assert_eq!(head("ééé", limits).text, "éé");
        assert_eq!(tail("ééé", limits).text, "éé");
        assert!(head("ééé", limits).partial_line);
        assert_eq!(tail("a\nbb\ncc\n", limits).text, "cc\n");
    }

    #[test]
    fn notes_stand_after_a_blank_line() {
        assert_eq!(with_note("a\n".to_owned(), "n"), "a\n\n[n]");
        assert_eq!(with_note("a".to_owned(), "n"), "a\n\n[n]");
        assert_eq!(with_note(String::new(), "n"), "[n]");
    }
}
