//! From the bytes that a program sends to a terminal to the text that stays on it:
//! escape sequences, rewritten lines and control characters are worked off.
//!
//! An own state machine, as the memory must stay bounded and a stray string escape
//! must not swallow the lines after it, which the terminal parsers do.

/// Bytes of a line without line feed that are held back for a rewrite by `\r`. What is
/// longer is passed on in parts, and only its last part can be rewritten.
const MAX_PENDING: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    /// After ESC and any intermediate characters.
    Escape,
    /// `ESC [`: up to a final character.
    Control,
    /// OSC, DCS, SOS, PM or APC: up to BEL or ST.
    String,
}

/// Takes output in chunks of any split and gives back clean text.
#[derive(Debug)]
pub(super) struct Cleaner {
    state: State,
    /// The line being written.
    line: String,
    /// A `\r` came; the next character starts the line over.
    returned: bool,
    /// The beginning of a character that the last chunk cut.
    carry: Vec<u8>,
    /// NUL bytes seen: a sign of binary data.
    pub(super) nul_bytes: u64,
    /// Byte sequences that are not UTF-8.
    pub(super) invalid: u64,
}

impl Cleaner {
    pub(super) fn new() -> Self {
        Self {
            state: State::Text,
            line: String::new(),
            returned: false,
            carry: Vec::new(),
            nul_bytes: 0,
            invalid: 0,
        }
    }

    /// The line being written, which a `\r` may still change.
    pub(super) fn pending(&self) -> &str {
        &self.line
    }

    /// Gives `out` the text that nothing can change any more.
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut impl FnMut(&str)) {
        if self.carry.is_empty() {
            self.decode(bytes, out);
        } else {
            let mut joined = std::mem::take(&mut self.carry);
            joined.extend_from_slice(bytes);
            self.decode(&joined, out);
        }
    }

    /// Gives `out` what was held back.
    pub(super) fn finish(&mut self, out: &mut impl FnMut(&str)) {
        if !self.carry.is_empty() {
            self.carry.clear();
            self.invalid += 1;
            self.write("\u{fffd}", out);
        }
        if !self.line.is_empty() {
            out(&self.line);
            self.line.clear();
        }
    }

    fn decode(&mut self, bytes: &[u8], out: &mut impl FnMut(&str)) {
        let mut left = bytes.len();
        for chunk in bytes.utf8_chunks() {
            self.take(chunk.valid(), out);
            let invalid = chunk.invalid();
            left -= chunk.valid().len() + invalid.len();
            if invalid.is_empty() {
                continue;
            }
            // A character that the end of this chunk cuts, perhaps.
            let incomplete = std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            if left == 0 && incomplete {
                self.carry = invalid.to_vec();
            } else {
                self.invalid += 1;
                self.take("\u{fffd}", out);
            }
        }
    }

    fn take(&mut self, mut text: &str, out: &mut impl FnMut(&str)) {
        while let Some(first) = text.chars().next() {
            if self.state == State::Text {
                let run = text.find(char::is_control).unwrap_or(text.len());
                if run > 0 {
                    self.write(&text[..run], out);
                    text = &text[run..];
                    continue;
                }
            }
            self.step(first, out);
            text = &text[first.len_utf8()..];
        }
    }

    fn step(&mut self, c: char, out: &mut impl FnMut(&str)) {
        match (self.state, c) {
            (State::Text, _) => self.control(c, out),
            (_, '\u{18}' | '\u{1a}') => self.state = State::Text,
            (State::Escape, '[') => self.state = State::Control,
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => self.state = State::String,
            (State::Escape, ' '..='/') | (State::Control, ' '..='?') => {}
            (State::Escape, '0'..='~') => self.state = State::Text,
            (State::Control, '@'..='~') => {
                // "Erase in line" after a `\r`, as progress displays send it.
                if c == 'K' && self.returned {
                    self.line.clear();
                }
                self.state = State::Text;
            }
            (State::String, '\u{7}' | '\u{9c}') => self.state = State::Text,
            (State::String, '\u{1b}') => self.state = State::Escape,
            // A terminal would go on waiting for the string's end.
            (State::String, c) if c != '\n' => {}
            // No sequence goes on like this: an ordinary character again.
            _ => {
                self.state = State::Text;
                if c.is_control() {
                    self.control(c, out);
                } else {
                    self.write(c.encode_utf8(&mut [0; 4]), out);
                }
            }
        }
    }

    fn control(&mut self, c: char, out: &mut impl FnMut(&str)) {
        match c {
            '\n' => {
                self.line.push('\n');
                out(&self.line);
                self.line.clear();
                self.returned = false;
            }
            '\r' => self.returned = true,
            '\t' => self.write("\t", out),
            '\u{8}' => {
                self.line.pop();
            }
            '\u{1b}' => self.state = State::Escape,
            '\u{9b}' => self.state = State::Control,
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => self.state = State::String,
            '\0' => self.nul_bytes += 1,
            _ => {}
        }
    }

    fn write(&mut self, text: &str, out: &mut impl FnMut(&str)) {
        if self.returned {
            self.line.clear();
            self.returned = false;
        }
        self.line.push_str(text);
        if self.line.len() > MAX_PENDING {
            out(&self.line);
            self.line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn clean(chunks: &[&[u8]]) -> (String, Cleaner) {
        let mut cleaner = Cleaner::new();
        let mut text = String::new();
        for chunk in chunks {
            cleaner.feed(chunk, &mut |part| text.push_str(part));
        }
        cleaner.finish(&mut |part| text.push_str(part));
        (text, cleaner)
    }

    fn check(input: &str, expected: &str) {
        assert_eq!(clean(&[input.as_bytes()]).0, expected, "{input:?}");
    }

    #[test]
    fn sequences_vanish() {
        check("\x1b[1;31mred\x1b[0m \x1b[38;5;200mx\x1b[m", "red x");
        check("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink");
        check("\x1b(Bplain\x1b=\x1b>", "plain");
        check("\x1bP1$r0m\x1b\\after", "after");
        check("\u{9b}31mred", "red");
        check("bell\x07 \x0c\x7fend", "bell end");
        check("tab\tstays ünï 文", "tab\tstays ünï 文");
    }

    #[test]
    fn broken_sequences_do_not_swallow_lines() {
        check("\x1b]never ended\nnext\n", "\nnext\n");
        check("\x1b[12\nnext", "\nnext");
        check("\x1b文", "文");
        check("a\x1b", "a");
    }

    #[test]
    fn the_last_state_of_a_line_wins() {
        check("10%\r50%\r100%\ndone\r\n", "100%\ndone\n");
        check("dos\r\nlines\r\r\n", "dos\nlines\n");
        check("last\r", "last");
        check("working\r\x1b[Kdone", "done");
        check("gone\r\x1b[K\nx", "\nx");
        check("abc\x08\x08X", "aX");
        check("a\rb\nc", "b\nc");
    }

    #[test]
    fn binary_data_is_counted() {
        let (text, cleaner) = clean(&[b"a\0b\0\xff\xfe\xc3("]);
        assert_eq!(text, "ab\u{fffd}\u{fffd}\u{fffd}(");
        assert_eq!((cleaner.nul_bytes, cleaner.invalid), (2, 3));
        let (text, cleaner) = clean(&[b"cut \xe6\x96"]);
        assert_eq!((text.as_str(), cleaner.invalid), ("cut \u{fffd}", 1));
    }

    #[test]
    fn an_endless_line_is_passed_on() {
        let mut cleaner = Cleaner::new();
        let mut passed = 0;
        for _ in 0..100 {
            cleaner.feed(&[b'x'; 10_000], &mut |part| passed += part.len());
            assert!(cleaner.pending().len() <= MAX_PENDING);
        }
        assert_eq!(passed + cleaner.pending().len(), 1_000_000);
    }

    proptest! {
        #[test]
        fn splits_make_no_difference(
            bytes in proptest::collection::vec(prop_oneof![
                any::<u8>(), Just(0x1b), Just(b'['), Just(b'\r'), Just(b'\n'), Just(b'm'), Just(0xe6), Just(0x96), Just(0x87),
            ], 0..60),
            at in 0_usize..60,
        ) {
            let at = at.min(bytes.len());
            let whole = clean(&[&bytes]);
            let parts = clean(&[&bytes[..at], &bytes[at..]]);
            prop_assert_eq!(&whole.0, &parts.0);
            prop_assert_eq!(whole.1.invalid, parts.1.invalid);
            prop_assert!(whole.0.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
        }

        #[test]
        fn plain_text_is_unchanged(text in "[ -~é文\n\t]{0,80}") {
            prop_assert_eq!(clean(&[text.as_bytes()]).0, text);
        }
    }
}
