//! HTML out: the only place where text becomes HTML. Knows nothing of sessions.

use std::fmt::Write as _;
use std::io::{self, Write};

/// Longer ids, in bytes, go by their place.
const MAX_ANCHOR: usize = 64;

pub(super) struct Html<'a> {
    out: &'a mut dyn Write,
}

impl<'a> Html<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out }
    }

    /// Markup. `'static`, so that it is this program's own and never a session's.
    pub(super) fn raw(&mut self, markup: &'static str) -> io::Result<()> {
        self.out.write_all(markup.as_bytes())
    }

    /// Text, or the value of an attribute between double quotes.
    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        let bytes = text.as_bytes();
        let (mut copied, mut at) = (0, 0);
        while at < bytes.len() {
            if !SUSPECT[usize::from(bytes[at])] {
                at += 1;
                continue;
            }
            // A suspect byte starts a character.
            let Some(c) = text[at..].chars().next() else { break };
            let end = at + c.len_utf8();
            if let Some(instead) = replacement(c, bytes.get(end)) {
                self.out.write_all(&bytes[copied..at])?;
                self.out.write_all(instead.as_bytes())?;
                copied = end;
            }
            at = end;
        }
        self.out.write_all(&bytes[copied..])
    }

    pub(super) fn number(&mut self, number: usize) -> io::Result<()> {
        write!(self.out, "{number}")
    }

    /// `<tag class="class">text</tag>`, for `open` `<tag class="class">`.
    pub(super) fn wrapped(
        &mut self,
        open: &'static str,
        text: &str,
        close: &'static str,
    ) -> io::Result<()> {
        self.raw(open)?;
        self.text(text)?;
        self.raw(close)
    }

    /// Base64, which has nothing to escape; the caller has checked that it is such.
    pub(super) fn base64(&mut self, data: &str) -> io::Result<()> {
        debug_assert!(is_base64(data));
        self.out.write_all(data.as_bytes())
    }
}

pub(super) fn is_base64(data: &str) -> bool {
    !data.is_empty()
        && data.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
}

/// First bytes of the characters that [`replacement`] looks at.
const SUSPECT: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = byte != b'\n' as usize && byte != b'\t' as usize;
        byte += 1;
    }
    table[0x7f] = true;
    table[b'&' as usize] = true;
    table[b'<' as usize] = true;
    table[b'>' as usize] = true;
    table[b'"' as usize] = true;
    table[b'\'' as usize] = true;
    // U+0080 to U+00BF; U+2000 to U+2FFF.
    table[0xc2] = true;
    table[0xe2] = true;
    table
};

/// What stands for a character that HTML reads as markup, forbids, or that makes text
/// look like other text.
fn replacement(c: char, next: Option<&u8>) -> Option<&'static str> {
    Some(match c {
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '"' => "&quot;",
        '\'' => "&#39;",
        '\t' | '\n' => return None,
        // Terminals and old files; HTML would read the bare one as a line feed anyway.
        '\r' if next == Some(&b'\n') => "",
        '\r' => "\n",
        '\u{1b}' => "␛",
        '\u{8}' => "␈",
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => "\u{fffd}",
        // Embeddings, overrides and isolates reorder what stands around them.
        '\u{202a}' => "[U+202A]",
        '\u{202b}' => "[U+202B]",
        '\u{202c}' => "[U+202C]",
        '\u{202d}' => "[U+202D]",
        '\u{202e}' => "[U+202E]",
        '\u{2066}' => "[U+2066]",
        '\u{2067}' => "[U+2067]",
        '\u{2068}' => "[U+2068]",
        '\u{2069}' => "[U+2069]",
        _ => return None,
    })
}

/// The `id` attribute of an entry, and its URL fragment: nothing in it needs an escape.
/// `place` is the entry's place in the file.
pub(super) fn anchor(id: &str, place: usize) -> String {
    let mut anchor = String::from("entry-");
    if !has_own_anchor(id) {
        // No encoded id has a colon.
        let _ = write!(anchor, ":{place}");
        return anchor;
    }
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            anchor.push(char::from(byte));
        } else {
            let _ = write!(anchor, ".{byte:02x}");
        }
    }
    anchor
}

/// Whether the anchor tells the id alone.
pub(super) fn has_own_anchor(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ANCHOR
}

/// The start of a text in one line, of at most `max` characters.
pub(super) fn snippet(text: &str, max: usize) -> String {
    let mut short = String::new();
    let mut count = 0;
    // What is read is bounded, too: texts of megabytes may start with a lot of blanks.
    for c in text.trim_start().chars().take(max * 4) {
        let blank = c.is_whitespace();
        if blank && (short.is_empty() || short.ends_with(' ')) {
            continue;
        }
        if count == max {
            short.push('…');
            return short;
        }
        short.push(if blank { ' ' } else { c });
        count += 1;
    }
    short.truncate(short.trim_end().len());
    short
}

/// `1234567` as `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// US dollars; small amounts keep two significant digits or so.
pub(super) fn dollars(amount: f64) -> String {
    match amount {
        _ if amount >= 1.0 || amount == 0.0 => format!("${amount:.2}"),
        _ if amount >= 0.01 => format!("${amount:.3}"),
        _ => format!("${amount:.5}"),
    }
}

#[cfg(test)]
mod unit {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = Vec::new();
        Html::new(&mut out).text(text).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_is_escaped() {
        for (text, expect) in [
            ("", ""),
            ("plain\ttext\n", "plain\ttext\n"),
            ("<b a=\"1\" c='2'>&amp;", "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;"),
            ("é“”–\u{2028}日本\u{1f600}\u{a0}", "é“”–\u{2028}日本\u{1f600}\u{a0}"),
            ("a\0b\u{7f}\u{85}c\u{1b}[0m", "a\u{fffd}b\u{fffd}\u{fffd}c␛[0m"),
            ("one\r\ntwo\rthree", "one\ntwo\nthree"),
            ("user\u{202e}txt\u{2066}x\u{2069}", "user[U+202E]txt[U+2066]x[U+2069]"),
            ("\u{200f}ع\u{200d}", "\u{200f}ع\u{200d}"),
        ] {
            assert_eq!(escaped(text), expect, "{text:?}");
        }
    }

    #[test]
    fn anchors_need_no_escape_and_differ() {
        let long = "x".repeat(65);
        for (id, expect) in [
            ("a1b2c3d4", "entry-a1b2c3d4"),
            ("a b\"'>", "entry-a.20b.22.27.3e"),
            ("é.", "entry-.c3.a9.2e"),
            ("", "entry-:7"),
            (long.as_str(), "entry-:7"),
            (":7", "entry-.3a7"),
        ] {
            assert_eq!(anchor(id, 7), expect, "{id:?}");
        }
    }

    #[test]
    fn snippets_are_one_line() {
        for (text, expect) in [
            ("", ""),
            ("  a\n\n b\t", "a b"),
            ("12345", "12345"),
            ("123456", "12345…"),
            ("1234 6789", "1234 …"),
            ("ééééé", "ééééé"),
        ] {
            assert_eq!(snippet(text, 5), expect, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_grouped() {
        for (number, expect) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), expect);
        }
        for (amount, expect) in
            [(0.0, "$0.00"), (0.000_42, "$0.00042"), (0.1234, "$0.123"), (12.345, "$12.35")]
        {
            assert_eq!(dollars(amount), expect);
        }
    }
}
