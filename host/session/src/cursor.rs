//! A walk over JSON text: checks it by the grammar and tells where values are, and
//! builds nothing. Opening a session spends most of its time here; deserialising into
//! ignored values takes more than twice as long.

use std::borrow::Cow;
use std::str::Chars;

/// A place in a text; every method gives `None` where the text is no JSON from there on,
/// and leaves the place undefined then.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    lone_surrogates: bool,
}

/// A string between its quotes, as it stands in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawString<'a> {
    pub(crate) raw: &'a str,
    /// Of `raw`, in bytes.
    pub(crate) at: usize,
    pub(crate) is_escaped: bool,
}

impl<'a> RawString<'a> {
    /// The string that is meant; half surrogate pairs become the replacement character.
    pub(crate) fn decode(self) -> Cow<'a, str> {
        match self.is_escaped {
            false => Cow::Borrowed(self.raw),
            true => Cow::Owned(self.chars().collect()),
        }
    }

    pub(crate) fn chars(self) -> Unescaped<'a> {
        Unescaped(self.raw.chars())
    }
}

/// The characters that a checked string means.
#[derive(Debug, Clone)]
pub(crate) struct Unescaped<'a>(Chars<'a>);

impl<'a> Unescaped<'a> {
    pub(crate) fn of(raw: &'a str) -> Self {
        Self(raw.chars())
    }

    /// What is left, as it stands in the text.
    pub(crate) fn rest(&self) -> &'a str {
        self.0.as_str()
    }
}

impl Iterator for Unescaped<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self.0.next()? {
            '\\' => match self.0.next()? {
                'b' => Some('\u{8}'),
                'f' => Some('\u{c}'),
                'n' => Some('\n'),
                'r' => Some('\r'),
                't' => Some('\t'),
                'u' => {
                    let high = hex(&mut self.0)?;
                    let mut after = self.0.clone();
                    let low = match high {
                        0xD800..=0xDBFF
                            if (after.next(), after.next()) == (Some('\\'), Some('u')) =>
                        {
                            hex(&mut after)
                        }
                        _ => None,
                    };
                    let pair = low.filter(|low| (0xDC00..=0xDFFF).contains(low));
                    let code = pair.map_or(high, |low| {
                        self.0 = after;
                        0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00)
                    });
                    Some(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
                }
                // A quote, a slash or a backslash.
                other => Some(other),
            },
            plain => Some(plain),
        }
    }
}

fn hex(chars: &mut Chars<'_>) -> Option<u32> {
    (0..4).try_fold(0, |code, _| Some(code * 16 + chars.next()?.to_digit(16)?))
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, lone_surrogates: false }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Whether a string that was passed has an escape of half a surrogate pair.
    pub(crate) fn has_lone_surrogates(&self) -> bool {
        self.lone_surrogates
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_whitespace(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip_whitespace();
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// The byte that the next value begins with.
    pub(crate) fn starts_with(&mut self) -> Option<u8> {
        self.skip_whitespace();
        self.peek()
    }

    /// Passes an object. `field` gets each key and has to pass its value.
    pub(crate) fn object(
        &mut self,
        mut field: impl FnMut(RawString<'a>, &mut Self) -> Option<()>,
    ) -> Option<()> {
        self.expect(b'{')?;
        if self.expect(b'}').is_some() {
            return Some(());
        }
        loop {
            let key = self.key()?;
            field(key, self)?;
            self.skip_whitespace();
            self.at += 1;
            match self.text.as_bytes().get(self.at - 1)? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Passes an array. `item` has to pass each of its values.
    pub(crate) fn array(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(b'[')?;
        if self.expect(b']').is_some() {
            return Some(());
        }
        loop {
            item(self)?;
            if self.expect(b',').is_none() {
                return self.expect(b']');
            }
        }
    }

    fn key(&mut self) -> Option<RawString<'a>> {
        self.skip_whitespace();
        let key = self.string()?;
        self.expect(b':')?;
        Some(key)
    }

    /// Passes a value; a string is told.
    pub(crate) fn string_value(&mut self) -> Option<Option<RawString<'a>>> {
        match self.starts_with()? {
            b'"' => self.string().map(Some),
            _ => self.value().map(|_| None),
        }
    }

    /// Passes a value of any kind, however deeply nested.
    pub(crate) fn value(&mut self) -> Option<&'a str> {
        self.skip_whitespace();
        let start = self.at;
        let mut open = Nesting::default();
        loop {
            self.skip_whitespace();
            match self.peek()? {
                b'"' => drop(self.string()?),
                b'{' => {
                    self.at += 1;
                    if self.expect(b'}').is_none() {
                        self.key()?;
                        open.push(Container::Object);
                        continue;
                    }
                }
                b'[' => {
                    self.at += 1;
                    if self.expect(b']').is_none() {
                        open.push(Container::Array);
                        continue;
                    }
                }
                b't' => self.literal("true")?,
                b'f' => self.literal("false")?,
                b'n' => self.literal("null")?,
                _ => self.number()?,
            }
            // A value has ended, and with it perhaps what it is in.
            loop {
                let Some(container) = open.last() else { return Some(&self.text[start..self.at]) };
                self.skip_whitespace();
                let byte = self.peek()?;
                self.at += 1;
                match (byte, container) {
                    (b',', Container::Array) => break,
                    (b',', Container::Object) => {
                        self.key()?;
                        break;
                    }
                    (b']', Container::Array) | (b'}', Container::Object) => open.pop(),
                    _ => return None,
                }
            }
        }
    }

    fn literal(&mut self, word: &str) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        match self.peek()? {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    fn string(&mut self) -> Option<RawString<'a>> {
        if self.peek()? != b'"' {
            return None;
        }
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let mut is_escaped = false;
        let mut at = start;
        loop {
            at = end_of_plain(bytes, at);
            match bytes.get(at)? {
                b'"' => {
                    self.at = at + 1;
                    return Some(RawString { raw: &self.text[start..at], at: start, is_escaped });
                }
                b'\\' => {
                    is_escaped = true;
                    at = self.end_of_escape(at)?;
                }
                // A control character.
                _ => return None,
            }
        }
    }

    fn end_of_escape(&mut self, at: usize) -> Option<usize> {
        let code = |at: usize| {
            let bytes = self.text.as_bytes().get(at..at + 6)?;
            let digits = bytes.strip_prefix(b"\\u")?;
            digits
                .iter()
                .try_fold(0, |code, digit| Some(code * 16 + char::from(*digit).to_digit(16)?))
        };
        match self.text.as_bytes().get(at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
            b'u' => match code(at)? {
                0xD800..=0xDBFF if matches!(code(at + 6), Some(0xDC00..=0xDFFF)) => Some(at + 12),
                0xD800..=0xDFFF => {
                    self.lone_surrogates = true;
                    Some(at + 6)
                }
                _ => Some(at + 6),
            },
            _ => None,
        }
    }
}

/// Where the first quote, backslash or control character is, eight bytes at a time.
fn end_of_plain(bytes: &[u8], mut at: usize) -> usize {
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let found = special_bytes(u64::from_le_bytes(*chunk));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += size_of::<u64>();
    }
    while bytes.get(at).is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)) {
        at += 1;
    }
    at
}

/// The high bit of the lowest byte of `word` that ends plain text; bits above that one
/// mean nothing. None: zero.
const fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xFF;
    // A byte below `limit` borrows from its own high bit, which it did not have.
    const fn below(word: u64, limit: u8) -> u64 {
        word.wrapping_sub(ONES * limit as u64) & !word
    }
    const fn equal(word: u64, byte: u8) -> u64 {
        below(word ^ (ONES * byte as u64), 1)
    }
    (below(word, 0x20) | equal(word, b'"') | equal(word, b'\\')) & (ONES * 0x80)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    Array,
    Object,
}

/// The containers that are open, a bit for each; memory is needed from the 65th level on.
#[derive(Debug, Default)]
struct Nesting {
    bits: u64,
    depth: usize,
    deeper: Vec<u64>,
}

impl Nesting {
    fn push(&mut self, container: Container) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.deeper.push(self.bits);
        }
        self.bits = self.bits << 1 | u64::from(container == Container::Object);
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.bits >>= 1;
        self.depth -= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.bits = self.deeper.pop().unwrap_or_default();
        }
    }

    fn last(&self) -> Option<Container> {
        (self.depth > 0).then_some(match self.bits & 1 {
            0 => Container::Array,
            _ => Container::Object,
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use proptest::prelude::*;
    use serde_json::value::RawValue;
    use wharf_protocol::surrogates::replace_lone_surrogates;

    use super::*;

    /// Whether the text is one value, as this module and as `serde_json` see it.
    fn both(text: &str) -> (bool, bool) {
        let mut cursor = Cursor::new(text);
        let ours = cursor.value().is_some() && cursor.starts_with().is_none();
        (ours, serde_json::from_str::<&RawValue>(text).is_ok())
    }

    fn check(text: &str, is_json: bool) {
        assert_eq!(both(text), (is_json, is_json), "{text}");
    }

    fn any_json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            any::<f64>().prop_map(|number| serde_json::json!(number).to_string()),
            any::<i64>().prop_map(|number| number.to_string()),
            any::<String>().prop_map(|text| serde_json::json!(text).to_string()),
            Just(r#""\\\ud83d\u0041""#.to_owned()),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            let key = any::<String>().prop_map(|key| serde_json::json!(key).to_string());
            let fields = prop::collection::vec((key, inner.clone()), 0..5);
            prop_oneof![
                prop::collection::vec(inner, 0..5)
                    .prop_map(|items| format!("[{}]", items.join(", "))),
                fields.prop_map(|fields| {
                    let fields: Vec<_> = fields.iter().map(|(k, v)| format!("{k} :{v}")).collect();
                    format!("{{{}}}", fields.join(","))
                }),
            ]
        })
    }

    #[test]
    fn the_grammar() {
        for text in [
            "{}",
            "[]",
            "0",
            "-0.5e+10",
            "1E5",
            "true",
            "null",
            r#""""#,
            r#"{"a":[{},[[]],"x",{"b":-1}]}"#,
            r#"{ "a" : 1 , "b" : [ 1 , 2 ] }"#,
            r#""\"\\\/\b\f\n\r\t\u00e9\ud83d""#,
            r#""é€😀 over eight bytes""#,
            r#"{"a":1,"a":2}"#,
        ] {
            check(text, true);
        }
        for text in [
            "",
            "{",
            "]",
            "{]",
            "[}",
            "[1,]",
            "[,]",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            "{1:2}",
            "01",
            "1.",
            ".5",
            "-",
            "+1",
            "1e",
            "tru",
            "nul",
            r#"""#,
            r#""\x""#,
            r#""\u12g4""#,
            "\"\t\"",
            "\"a\0\"",
            r#"{"a":1 "b":2}"#,
            "[1 2]",
            r#""abcdefgh\"#,
        ] {
            check(text, false);
        }
        let deep = format!("{}{}", r#"[{"a":"#.repeat(100_000), "}]".repeat(100_000));
        assert_eq!(
            Cursor::new(&format!("{}1{}", &deep[..600_000], &deep[600_000..]))
                .value()
                .unwrap()
                .len(),
            800_001
        );
        assert_eq!(Cursor::new(&deep).value(), None);
    }

    #[test]
    fn half_surrogate_pairs_are_seen() {
        for (text, expect) in [
            (r#""\ud83d\ude00""#, "😀"),
            (r#""x\ud83d""#, "x\u{fffd}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\ude00\\ud83d\u0041""#, "\u{fffd}\\ud83dA"),
            (r#""\"\/\n""#, "\"/\n"),
        ] {
            let mut cursor = Cursor::new(text);
            let string = cursor.string_value().unwrap().unwrap();
            assert_eq!(string.decode(), expect, "{text}");
            assert_eq!(cursor.has_lone_surrogates(), expect.contains('\u{fffd}'), "{text}");
        }
    }

    #[test]
    fn every_byte_ends_plain_text_where_it_should() {
        for place in 0..20 {
            for byte in 0..=0xFF {
                let mut bytes = [b'x'; 20];
                bytes[place] = byte;
                let expect = if matches!(byte, b'"' | b'\\' | 0..0x20) { place } else { 20 };
                assert_eq!(end_of_plain(&bytes, 0), expect, "{byte} at {place}");
            }
        }
    }

    proptest! {
        #[test]
        fn text_is_json_where_serde_json_says_so(
            text in r#"([{}\[\]:,"\\ue0-2.tn \x00é-]|"[a-z"\\]{0,9}"|\\u[dD][8-9c-f]{3}|true|null|-?[0-9]{1,2}){0,14}"#,
        ) {
            let (ours, theirs) = both(&text);
            prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn json_is_taken_and_its_damage_seen(
            text in any_json(),
            place in any::<prop::sample::Index>(),
            other in prop::sample::select(vec!['"', '\\', '{', '}', '[', ']', ',', ':', '0', '-', 'e', '\0', ' ']),
        ) {
            prop_assert_eq!(both(&text), (true, true));
            let mut damaged: Vec<char> = text.chars().collect();
            let place = place.index(damaged.len());
            damaged[place] = other;
            let damaged: String = damaged.into_iter().collect();
            let (ours, theirs) = both(&damaged);
            prop_assert_eq!(ours, theirs, "{}", damaged);
        }

        #[test]
        fn strings_mean_what_serde_json_says(
            raw in r#"([a-zé"\\/]|\\["\\/bfnrt]|\\u00[0-9a-f]{2}|\\ud83d|\\ude00){0,12}"#,
        ) {
            let text = format!("\"{raw}\"");
            let sound = replace_lone_surrogates(&text).unwrap_or_else(|| text.clone());
            let theirs = serde_json::from_str::<String>(&sound).ok();
            let mut cursor = Cursor::new(&text);
            let ours = cursor.string_value().flatten().filter(|_| cursor.at() == text.len());
            prop_assert_eq!(ours.map(|string| string.decode().into_owned()), theirs);
        }
    }
}
