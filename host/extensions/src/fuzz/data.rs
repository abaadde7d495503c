//! Texts, numbers and JSON as a guest might give them: mostly plausible, often wrong,
//! now and then far over a limit.

use fastrand::Rng;

use crate::limits::{MAX_COMMAND_BYTES, MAX_NAME_BYTES};

/// Makes data from one seed.
pub(super) struct Data(pub(super) Rng);

/// Texts that have a meaning somewhere, or look as if they had.
const WORDS: [&str; 28] = [
    "",
    " ",
    "\n\t ",
    "a",
    "read",
    "bash",
    "tool_call",
    "contexts",
    "bus:x",
    "bus:",
    "x:1",
    "a/b",
    "../../x",
    "/",
    "~",
    "~/x",
    "a\0b",
    "\u{7}\u{1b}[2J",
    "\u{202e}txt",
    "\u{feff}",
    "é",
    "😀",
    "\u{fffd}",
    "%s%n",
    "{}",
    "null",
    "0",
    "\"",
];

/// JSON texts that parsers and readers of schemas have stumbled over.
const JSONS: [&str; 24] = [
    "",
    "{",
    "[",
    "nul",
    "1e999",
    "-1e-999",
    "1.7976931348623157e308",
    "18446744073709551616",
    "0.1000000000000000055511151231257827",
    "\"\\ud800\"",
    "\"\\u0000\"",
    "{\"a\":1,\"a\":2}",
    "{\"\":{}}",
    "[1,]",
    "{} {}",
    "\u{feff}{}",
    "NaN",
    "'a'",
    "{\"role\":\"user\"}",
    "[{\"role\":\"user\",\"content\":\"hi\",\"timestamp\":1}]",
    "[{\"role\":\"user\",\"content\":[],\"timestamp\":-1}]",
    "[{\"role\":\"toolResult\",\"toolCallId\":\"\",\"toolName\":\"\",\"content\":[],\"isError\":false,\"timestamp\":1e400}]",
    "[{\"role\":\"assistant\",\"content\":[{\"type\":\"toolCall\",\"id\":\"\",\"name\":\"\",\"arguments\":[]}]}]",
    "{\"__proto__\":{\"x\":1}}",
];

impl Data {
    /// True once in `of` times.
    pub(super) fn once_in(&mut self, of: usize) -> bool {
        self.0.usize(..of) == 0
    }

    pub(super) fn bool(&mut self) -> bool {
        self.0.bool()
    }

    pub(super) fn text(&mut self) -> String {
        match self.0.u8(..20) {
            0..8 => self.word().to_owned(),
            8..14 => (0..self.0.usize(..40)).map(|_| self.0.alphanumeric()).collect(),
            14..17 => (0..self.0.usize(..40)).map(|_| self.0.char(..)).collect(),
            17..19 => self.word().repeat(self.0.usize(..200)),
            _ => self.long(),
        }
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.0.usize(..WORDS.len())]
    }

    /// Around the caps that texts have. Those of megabytes are the tests' of each cap.
    fn long(&mut self) -> String {
        let cap = if self.once_in(50) { MAX_COMMAND_BYTES } else { MAX_NAME_BYTES };
        let unit = if self.bool() { "x" } else { "é" };
        unit.repeat((cap + self.0.usize(..4)).saturating_sub(2) / unit.len())
    }

    /// A name of the kind that registrations must have, most of the time.
    pub(super) fn name(&mut self) -> String {
        match self.0.u8(..10) {
            0..8 => {
                let length =
                    if self.once_in(20) { self.0.usize(60..70) } else { self.0.usize(1..3) };
                (0..length)
                    .map(|_| self.0.choice(['a', 'b', 'c', '1', '-']).unwrap_or('x'))
                    .collect()
            }
            8 => self.text(),
            _ => self.word().to_owned(),
        }
    }

    pub(super) fn option<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.bool().then(|| value(self))
    }

    /// Few, most of the time; now and then more than any cap allows.
    pub(super) fn list<T>(&mut self, mut value: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = if self.once_in(200) { self.0.usize(250..1_100) } else { self.0.usize(..4) };
        (0..count).map(|_| value(self)).collect()
    }

    /// JSON text, or what is meant to look like it.
    pub(super) fn json(&mut self) -> String {
        match self.0.u8(..10) {
            0..5 => self.value(4),
            5..7 => JSONS[self.0.usize(..JSONS.len())].to_owned(),
            7 => self.nested(),
            8 => {
                let text = self.value(4);
                let end = text.floor_char_boundary(self.0.usize(..=text.len()));
                text[..end].to_owned()
            }
            _ => self.text(),
        }
    }

    /// Deeper than a parser that recurses likes, on both sides of its limit.
    pub(super) fn nested(&mut self) -> String {
        let depth =
            if self.once_in(4) { self.0.usize(1_000..100_000) } else { self.0.usize(110..140) };
        let (open, close) = if self.bool() { ("[", "]") } else { ("{\"a\":", "}") };
        format!("{}1{}", open.repeat(depth), close.repeat(depth))
    }

    /// Valid JSON.
    fn value(&mut self, depth: usize) -> String {
        let kinds = if depth == 0 { 5 } else { 8 };
        match self.0.u8(..kinds) {
            0 => "null".to_owned(),
            1 => self.bool().to_string(),
            2 => self.0.i64(..).to_string(),
            3 => self.number(),
            4 => quoted(&self.text()),
            5 => {
                let items: Vec<_> = (0..self.0.usize(..4)).map(|_| self.value(depth - 1)).collect();
                format!("[{}]", items.join(","))
            }
            _ => self.object(depth - 1),
        }
    }

    pub(super) fn object(&mut self, depth: usize) -> String {
        let fields: Vec<_> = (0..self.0.usize(..4))
            .map(|_| format!("{}:{}", quoted(&self.text()), self.value(depth)))
            .collect();
        format!("{{{}}}", fields.join(","))
    }

    fn number(&mut self) -> String {
        let number = f64::from_bits(self.0.u64(..));
        if number.is_finite() { format!("{number:e}") } else { "0.1".to_owned() }
    }
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
