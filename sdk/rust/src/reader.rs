//! Reads JSON text into types. `serde_json` does the same in 20 kB more of a guest:
//! here what does not depend on the type that is read is compiled once, and errors do
//! not show the values that they are about.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::iter;

use serde::de::value::{BorrowedStrDeserializer, CowStrDeserializer, MapDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};

/// Arrays and objects in each other, as many as `serde_json` takes.
const MAX_DEPTH: u8 = 127;

/// How `serde_json`'s `RawValue` asks for the text of a value.
const RAW: &str = "$serde_json::private::RawValue";

/// Why JSON text could not be read.
#[derive(Debug)]
pub(crate) struct ReadError(pub(crate) String);

impl Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReadError {}

impl serde::de::Error for ReadError {
    #[cold]
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        wrong_kind(kind(&unexpected), expected)
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        wrong_kind(kind(&unexpected), expected)
    }
}

/// What a value is, without the value: to show numbers takes much code.
fn kind(unexpected: &Unexpected<'_>) -> &'static str {
    match unexpected {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "an integer",
        Unexpected::Float(_) => "a number",
        Unexpected::Char(_) | Unexpected::Str(_) => "a string",
        Unexpected::Unit | Unexpected::Option => "null",
        Unexpected::Seq => "an array",
        Unexpected::Map => "an object",
        _ => "a value",
    }
}

#[cold]
fn wrong_kind(kind: &str, expected: &dyn Expected) -> ReadError {
    ReadError(format!("found {kind}, expected {expected}"))
}

/// Reads a whole text.
pub(crate) fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, ReadError> {
    let mut reader = Reader::new(text);
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// That a text is one JSON value.
pub(crate) fn check(text: &str) -> Result<(), ReadError> {
    let mut reader = Reader::new(text);
    reader.raw()?;
    reader.end()
}

/// The beginning of a value. That of an array or an object has been read when it is
/// here, and that of anything else is all of it.
#[derive(Debug, PartialEq)]
enum Token<'de> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(Cow<'de, str>),
    Array,
    Object,
}

impl Token<'_> {
    #[cold]
    fn unexpected(&self, expected: &dyn Expected) -> ReadError {
        let kind = match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Unsigned(_) | Self::Signed(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Text(_) => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        };
        wrong_kind(kind, expected)
    }

    /// A whole number as an integer, also one such as `10.0`: JSON Schema's `integer`
    /// takes it, and models write it.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "the integer has at most 53 bits"
    )]
    fn whole(self) -> Self {
        match self {
            Self::Float(float) if float.abs() < EXACT && float as i64 as f64 == float => {
                let integer = float as i64;
                u64::try_from(integer).map_or(Self::Signed(integer), Self::Unsigned)
            }
            token => token,
        }
    }
}

/// 2^53: below it, every whole number is a float.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A place in a text.
pub(crate) struct Reader<'de> {
    text: &'de str,
    at: usize,
    depth: u8,
    /// Nobody wants the texts.
    is_skipping: bool,
}

impl<'de> Reader<'de> {
    pub(crate) const fn new(text: &'de str) -> Self {
        Self { text, at: 0, depth: 0, is_skipping: false }
    }

    /// The next byte; 0 at the end, which no JSON text has.
    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    /// The next byte after white space.
    #[inline(never)]
    fn peek(&mut self) -> u8 {
        while matches!(self.byte(), b' ' | b'\n' | b'\t' | b'\r') {
            self.at += 1;
        }
        self.byte()
    }

    fn since(&self, start: usize) -> &'de str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    #[cold]
    #[inline(never)]
    fn error(&self, what: &str) -> ReadError {
        ReadError(format!("{what} at byte {}", self.at))
    }

    /// That nothing follows.
    pub(crate) fn end(&mut self) -> Result<(), ReadError> {
        if self.peek() == 0 && self.at >= self.text.len() {
            Ok(())
        } else {
            Err(self.error("unexpected text"))
        }
    }

    #[inline(never)]
    fn expect(&mut self, byte: u8, what: &str) -> Result<(), ReadError> {
        if self.peek() == byte {
            self.at += 1;
            Ok(())
        } else {
            Err(self.error(what))
        }
    }

    #[inline(never)]
    fn token(&mut self) -> Result<Token<'de>, ReadError> {
        match self.peek() {
            b'n' => self.word("null", Token::Null),
            b't' => self.word("true", Token::Bool(true)),
            b'f' => self.word("false", Token::Bool(false)),
            b'"' => self.string().map(Token::Text),
            b'-' | b'0'..=b'9' => self.number(),
            b'[' => self.open(Token::Array),
            b'{' => self.open(Token::Object),
            _ => Err(self.error("expected a value")),
        }
    }

    fn word(&mut self, word: &str, token: Token<'de>) -> Result<Token<'de>, ReadError> {
        let start = self.at;
        while self.byte().is_ascii_alphabetic() {
            self.at += 1;
        }
        if self.since(start) == word { Ok(token) } else { Err(self.error("unexpected text")) }
    }

    fn open(&mut self, token: Token<'de>) -> Result<Token<'de>, ReadError> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error("too many arrays and objects in each other"));
        }
        self.depth += 1;
        self.at += 1;
        Ok(token)
    }

    /// Whether an array or an object, which ends with `end`, has another part; it is
    /// then the next to be read.
    #[inline(never)]
    fn more(&mut self, end: u8, is_first: bool) -> Result<bool, ReadError> {
        if self.peek() == end {
            self.at += 1;
            self.depth = self.depth.saturating_sub(1);
            return Ok(false);
        }
        if !is_first {
            self.expect(b',', "expected a comma or the end")?;
        }
        Ok(true)
    }

    /// A name, with the colon behind it.
    #[inline(never)]
    fn name(&mut self) -> Result<Cow<'de, str>, ReadError> {
        if self.peek() != b'"' {
            return Err(self.error("expected a name"));
        }
        let name = self.string()?;
        self.expect(b':', "expected a colon")?;
        Ok(name)
    }

    fn string(&mut self) -> Result<Cow<'de, str>, ReadError> {
        let mut owned = String::new();
        let mut is_owned = false;
        loop {
            self.at += 1;
            let start = self.at;
            while !matches!(self.byte(), b'"' | b'\\' | 0..0x20) {
                self.at += 1;
            }
            let plain = self.since(start);
            match self.byte() {
                b'"' => {
                    self.at += 1;
                    if !is_owned {
                        return Ok(Cow::Borrowed(plain));
                    }
                    owned.push_str(plain);
                    return Ok(Cow::Owned(owned));
                }
                b'\\' => {
                    let escaped = self.escaped()?;
                    if !self.is_skipping {
                        is_owned = true;
                        owned.push_str(plain);
                        owned.push(escaped);
                    }
                }
                _ => return Err(self.error("a string has no end, or a control character")),
            }
        }
    }

    /// The character of an escape. Ends at its last byte.
    fn escaped(&mut self) -> Result<char, ReadError> {
        self.at += 1;
        Ok(match self.byte() {
            plain @ (b'"' | b'\\' | b'/') => char::from(plain),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut code = self.hex()?;
                // Two halves, the second of which must follow.
                if matches!(code, 0xd800..0xdc00) {
                    let rest = self.text.as_bytes().get(self.at + 1..).unwrap_or_default();
                    if rest.starts_with(b"\\u") {
                        self.at += 2;
                        let low = self.hex()?;
                        if matches!(low, 0xdc00..0xe000) {
                            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                        }
                    }
                }
                char::from_u32(code).ok_or_else(|| self.error("half a character"))?
            }
            _ => return Err(self.error("an unknown escape")),
        })
    }

    fn hex(&mut self) -> Result<u32, ReadError> {
        let mut code = 0;
        for _ in 0..4 {
            self.at += 1;
            let digit = char::from(self.byte()).to_digit(16);
            code = code * 16 + digit.ok_or_else(|| self.error("an unknown escape"))?;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<Token<'de>, ReadError> {
        let is_negative = self.byte() == b'-';
        if is_negative {
            self.at += 1;
        }
        let starts_with_zero = self.byte() == b'0';
        let mut number = Decimal::default();
        let whole = self.digits(&mut number, false)?;
        if starts_with_zero && whole > 1 {
            return Err(self.error("a number begins with 0"));
        }
        let mut is_whole = true;
        if self.byte() == b'.' {
            is_whole = false;
            self.at += 1;
            self.digits(&mut number, true)?;
        }
        if matches!(self.byte(), b'e' | b'E') {
            is_whole = false;
            self.at += 1;
            let is_small = self.byte() == b'-';
            if matches!(self.byte(), b'-' | b'+') {
                self.at += 1;
            }
            let mut exponent = Decimal::default();
            self.digits(&mut exponent, false)?;
            let exponent = i32::try_from(exponent.digits).unwrap_or(i32::MAX);
            let exponent = if is_small { -exponent } else { exponent };
            number.exponent = number.exponent.saturating_add(exponent);
        }
        if is_whole && number.exponent == 0 {
            if !is_negative {
                return Ok(Token::Unsigned(number.digits));
            }
            // `-0` is a float.
            if let Some(signed) = 0_i64.checked_sub_unsigned(number.digits)
                && signed != 0
            {
                return Ok(Token::Signed(signed));
            }
        }
        let float = number.float();
        if float.is_infinite() {
            return Err(self.error("a number is out of range"));
        }
        Ok(Token::Float(if is_negative { -float } else { float }))
    }

    /// Reads digits, and says how many there are.
    fn digits(&mut self, number: &mut Decimal, is_fraction: bool) -> Result<usize, ReadError> {
        let start = self.at;
        while let digit @ b'0'..=b'9' = self.byte() {
            number.push(digit - b'0', is_fraction);
            self.at += 1;
        }
        if self.at == start { Err(self.error("expected a digit")) } else { Ok(self.at - start) }
    }

    /// The text of a value, which is looked at only as far as JSON needs.
    #[inline(never)]
    pub(crate) fn raw(&mut self) -> Result<&'de str, ReadError> {
        self.peek();
        let start = self.at;
        self.is_skipping = true;
        self.skip()?;
        self.is_skipping = false;
        Ok(self.since(start))
    }

    /// Goes behind a value. Recursion ends at `MAX_DEPTH`.
    fn skip(&mut self) -> Result<(), ReadError> {
        let (end, is_object) = match self.token()? {
            Token::Array => (b']', false),
            Token::Object => (b'}', true),
            _ => return Ok(()),
        };
        let mut is_first = true;
        while self.more(end, is_first)? {
            is_first = false;
            if is_object {
                self.name()?;
            }
            self.skip()?;
        }
        Ok(())
    }

    /// The names and values of an object.
    #[inline(never)]
    pub(crate) fn fields(&mut self) -> Result<Vec<(Cow<'de, str>, &'de str)>, ReadError> {
        if self.token()? != Token::Object {
            return Err(self.error("expected an object"));
        }
        let mut fields = Vec::new();
        while self.more(b'}', fields.is_empty())? {
            fields.push((self.name()?, self.raw()?));
        }
        Ok(fields)
    }

    /// The parts of an array.
    #[inline(never)]
    pub(crate) fn items(&mut self) -> Result<Vec<&'de str>, ReadError> {
        if self.token()? != Token::Array {
            return Err(self.error("expected an array"));
        }
        let mut items = Vec::new();
        while self.more(b']', items.is_empty())? {
            items.push(self.raw()?);
        }
        Ok(items)
    }
}

/// Digits, and how many powers of ten they are to be taken times. What does not fit
/// into them is a power of ten more.
#[derive(Default)]
struct Decimal {
    digits: u64,
    exponent: i32,
}

impl Decimal {
    fn push(&mut self, digit: u8, is_fraction: bool) {
        let more = self.digits.checked_mul(10);
        let more = more.and_then(|digits| digits.checked_add(digit.into()));
        // Once a digit was left out, the ones behind it are too.
        match more {
            Some(digits) if self.exponent <= 0 => {
                self.digits = digits;
                self.exponent -= i32::from(is_fraction);
            }
            _ => self.exponent = self.exponent.saturating_add(i32::from(!is_fraction)),
        }
    }

    /// Exact for as many digits as programs write; else the last bit may be another
    /// one, as `serde_json` has it too.
    #[expect(clippy::cast_precision_loss, reason = "that is what a float is")]
    fn float(&self) -> f64 {
        let mut float = self.digits as f64;
        let mut exponent = self.exponent;
        while exponent < -22 && float != 0.0 {
            float /= 1e22;
            exponent += 22;
        }
        while exponent > 22 && float != 0.0 && float.is_finite() {
            float *= 1e22;
            exponent -= 22;
        }
        let power = power_of_ten(exponent.unsigned_abs().min(22));
        if exponent < 0 { float / power } else { float * power }
    }
}

/// Each of these is exact.
fn power_of_ten(exponent: u32) -> f64 {
    (0..exponent).fold(1.0, |power, _| power * 10.0)
}

/// Methods that read one kind of value, and whose errors say so.
macro_rules! numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            number(self.token()?.whole(), visitor)
        }
    )*};
}

macro_rules! texts {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            text(self.token()?, visitor)
        }
    )*};
}

fn number<'de, V: Visitor<'de>>(token: Token<'de>, visitor: V) -> Result<V::Value, ReadError> {
    match token {
        Token::Unsigned(number) => visitor.visit_u64(number),
        Token::Signed(number) => visitor.visit_i64(number),
        Token::Float(number) => visitor.visit_f64(number),
        token => Err(token.unexpected(&visitor)),
    }
}

fn text<'de, V: Visitor<'de>>(token: Token<'de>, visitor: V) -> Result<V::Value, ReadError> {
    match token {
        Token::Text(Cow::Borrowed(text)) => visitor.visit_borrowed_str(text),
        Token::Text(Cow::Owned(text)) => visitor.visit_string(text),
        token => Err(token.unexpected(&visitor)),
    }
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.token()? {
            Token::Null => visitor.visit_unit(),
            Token::Bool(value) => visitor.visit_bool(value),
            Token::Array => items(self, visitor),
            Token::Object => fields(self, visitor),
            token @ Token::Text(_) => text(token, visitor),
            token => number(token, visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.token()? {
            Token::Bool(value) => visitor.visit_bool(value),
            token => Err(token.unexpected(&visitor)),
        }
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        number(self.token()?, visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        number(self.token()?, visitor)
    }

    texts! { deserialize_char deserialize_str deserialize_string deserialize_identifier }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        if self.peek() == b'n' {
            self.token()?;
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.token()? {
            Token::Array => items(self, visitor),
            token => Err(token.unexpected(&visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.token()? {
            Token::Object => fields(self, visitor),
            token => Err(token.unexpected(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.deserialize_map(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        if name == RAW {
            let raw = self.raw()?;
            let text = BorrowedStrDeserializer::<ReadError>::new;
            return visitor.visit_map(MapDeserializer::new(iter::once((text(RAW), text(raw)))));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.token()? {
            Token::Text(name) => visitor.visit_enum(CowStrDeserializer::new(name)),
            Token::Object if self.more(b'}', true)? => {
                let value = visitor.visit_enum(Variant(self))?;
                if self.more(b'}', false)? {
                    return Err(self.error("expected one field"));
                }
                Ok(value)
            }
            token => Err(token.unexpected(&visitor)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.raw()?;
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! { bytes byte_buf unit unit_struct }
}

/// Reads an array whose beginning has been read, to its end.
fn items<'de, V: Visitor<'de>>(
    reader: &mut Reader<'de>,
    visitor: V,
) -> Result<V::Value, ReadError> {
    let mut parts = Parts { reader, end: b']', is_first: true, is_done: false };
    let value = visitor.visit_seq(&mut parts)?;
    parts.finish()?;
    Ok(value)
}

/// Reads an object whose beginning has been read, to its end.
fn fields<'de, V: Visitor<'de>>(
    reader: &mut Reader<'de>,
    visitor: V,
) -> Result<V::Value, ReadError> {
    let mut parts = Parts { reader, end: b'}', is_first: true, is_done: false };
    let value = visitor.visit_map(&mut parts)?;
    parts.finish()?;
    Ok(value)
}

/// The parts of an array or an object.
struct Parts<'a, 'de> {
    reader: &'a mut Reader<'de>,
    end: u8,
    is_first: bool,
    is_done: bool,
}

impl Parts<'_, '_> {
    #[inline(never)]
    fn more(&mut self) -> Result<bool, ReadError> {
        self.is_done = self.is_done || !self.reader.more(self.end, self.is_first)?;
        self.is_first = false;
        Ok(!self.is_done)
    }

    /// That all parts were taken.
    #[inline(never)]
    fn finish(&mut self) -> Result<(), ReadError> {
        if self.more()? { Err(self.reader.error("too many values")) } else { Ok(()) }
    }
}

impl<'de> SeqAccess<'de> for &mut Parts<'_, 'de> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadError> {
        if self.more()? { seed.deserialize(&mut *self.reader).map(Some) } else { Ok(None) }
    }
}

impl<'de> MapAccess<'de> for &mut Parts<'_, 'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ReadError> {
        if self.more()? { seed.deserialize(Name(self.reader.name()?)).map(Some) } else { Ok(None) }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ReadError> {
        seed.deserialize(&mut *self.reader)
    }
}

/// A field's name. It may stand for a number, since names are the only keys of JSON.
struct Name<'de>(Cow<'de, str>);

macro_rules! parsed {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            let mut reader = Reader::new(&self.0);
            let token = reader.token()?;
            reader.end()?;
            match token {
                Token::Unsigned(number) => visitor.visit_u64(number),
                Token::Signed(number) => visitor.visit_i64(number),
                token => Err(token.unexpected(&visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Name<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        text(Token::Text(self.0), visitor)
    }

    parsed! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &*self.0 {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(ReadError::invalid_type(Unexpected::Str(""), &visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_enum(CowStrDeserializer::new(self.0))
    }

    serde::forward_to_deserialize_any! {
        f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

/// The only field of an object that stands for a variant with data.
struct Variant<'a, 'de>(&'a mut Reader<'de>);

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), ReadError> {
        let name = self.0.name()?;
        Ok((seed.deserialize(CowStrDeserializer::new(name))?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        Deserialize::deserialize(self.0)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, ReadError> {
        seed.deserialize(self.0)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.0.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.0.deserialize_map(visitor)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use proptest::prelude::*;
    use serde_json::value::RawValue;
    use serde_json::{Value, json};

    use super::*;

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            // As many digits as are read exactly.
            any::<i32>().prop_map(|number| Value::from(f64::from(number) / 64.0)),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Equal, but for the last bits of floats.
    fn same(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
                let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
                (a - b).abs() <= a.abs() * 1e-14
            }
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
            }
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len()
                    && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
            }
            _ => a == b,
        }
    }

    #[track_caller]
    fn reads_as_serde_json_does(text: &str) {
        match (read::<Value>(text), serde_json::from_str::<Value>(text)) {
            (Ok(ours), Ok(theirs)) => assert!(same(&ours, &theirs), "{text}: {ours}, {theirs}"),
            (Err(_), Err(_)) => {}
            (ours, theirs) => panic!("{text}: {ours:?}, {theirs:?}"),
        }
    }

    proptest! {
        #[test]
        fn a_value_that_was_written_is_read(value in values()) {
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                prop_assert_eq!(&read::<Value>(&text).unwrap(), &value);
                let raw = Reader::new(&text).raw().unwrap();
                prop_assert_eq!(raw, text.as_str());
            }
        }

        #[test]
        fn what_is_nearly_json_is_read_as_serde_json_reads_it(
            text in r#"([\[\]{},: ]|"(a|\\u(d83d|de00|0041)|\\n|\\x)*"|-?[0-9]{1,25}|0|[.eE+]|null|true|[a-z"\n])*"#
        ) {
            reads_as_serde_json_does(&text);
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            reads_as_serde_json_does(&text);
        }

        #[test]
        fn numbers_are_read_as_serde_json_reads_them(
            text in r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?"
        ) {
            reads_as_serde_json_does(&text);
        }
    }

    #[test]
    fn odd_texts_are_read_as_serde_json_reads_them() {
        for text in [
            "",
            " ",
            "0",
            "-0",
            "-",
            "00",
            "-01",
            "1.",
            ".5",
            "1e",
            "1e+",
            "+1",
            "1e400",
            "-1e400",
            "1e-400",
            "0e999999999999",
            "1e99999999999",
            "1e-99999999999",
            "5e-324",
            "1.7976931348623157e308",
            "18446744073709551615",
            "18446744073709551616",
            "-9223372036854775808",
            "-9223372036854775809",
            "184467440737095516150.5",
            "1e22",
            "1e23",
            "nul",
            "nulll",
            "true false",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\":1,}",
            "{\"a\"}",
            "{a:1}",
            "{\"a\":1 \"b\":2}",
            "[",
            "{",
            "\"",
            "\"\\",
            "\"\\u12",
            "\"\\ud800\"",
            "\"\\ud83d\\ude00\"",
            "\"\\ud83d\\u0041\"",
            "\"\\ude00\"",
            "\"\\ud83d\\n\"",
            "\"a\nb\"",
            "\"\u{0}\"",
            "\u{0}",
            "1\u{0}",
            "\u{feff}1",
            "\"\u{7f}é😀\"",
        ] {
            reads_as_serde_json_does(text);
        }
        for depth in [1, 126, 127, 128, 10_000] {
            reads_as_serde_json_does(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
            reads_as_serde_json_does(&format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)));
        }
        Reader::new(&"[".repeat(10_000)).raw().unwrap_err();
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Shape {
        Point,
        Circle(f32),
        Line(i8, i8),
        Box { width: u16 },
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(tag = "type", rename_all = "lowercase")]
    enum Tagged {
        A { n: u64 },
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i64),
        Text(String),
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Meters(f64);

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Closed {
        a: (u8, char),
        b: Option<Meters>,
        #[serde(default)]
        c: BTreeMap<i32, Vec<bool>>,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Flat<'a> {
        name: &'a str,
        #[serde(flatten)]
        rest: BTreeMap<String, Value>,
    }

    #[track_caller]
    fn check<'a, T: Deserialize<'a> + PartialEq + Debug>(text: &'a str) {
        let theirs: T = serde_json::from_str(text).unwrap();
        assert_eq!(read::<T>(text).unwrap(), theirs);
    }

    #[test]
    fn types_are_read_as_serde_json_reads_them() {
        check::<Vec<Shape>>(
            r#"["point", {"point": null}, {"circle": 2}, {"line":[1,-2]}, {"box":{"width":3, "x":[{}]}}]"#,
        );
        check::<Tagged>(r#"{"n": 7, "type": "a"}"#);
        check::<Vec<Either>>(r#"[1, "a\n"]"#);
        check::<Closed>(r#"{"a":[255,"\u00e9"],"b":0.5,"c":{"-1":[true,false],"2":[]}}"#);
        check::<Closed>(r#" { "a" : [ 0 , "a" ] , "b" : null } "#);
        check::<Flat<'_>>(r#"{"name":"n","x":{"y":[null]}}"#);
        check::<BTreeMap<String, Option<u32>>>(r#"{"a":null,"b\t":4294967295}"#);
        check::<BTreeMap<bool, ()>>(r#"{"true":null}"#);
        check::<Option<Box<[i128; 0]>>>("null");
    }

    #[test]
    fn raw_values_keep_their_text() {
        let text = r#" [ 1.50 , {"a" : "\n"} ] "#;
        let raw: Vec<&RawValue> = read(text).unwrap();
        assert_eq!([raw[0].get(), raw[1].get()], ["1.50", r#"{"a" : "\n"}"#]);
        let raw: Box<RawValue> = read(text).unwrap();
        assert_eq!(raw.get(), text.trim());
    }

    #[test]
    fn a_whole_number_is_an_integer_however_it_is_written() {
        assert_eq!(read::<u32>("1e1").unwrap(), 10);
        assert_eq!(read::<i8>("-3.0").unwrap(), -3);
        assert_eq!(read::<Value>("10.0").unwrap(), json!(10.0));
        read::<u32>("10.5").unwrap_err();
        read::<u8>("256.0").unwrap_err();
    }

    #[test]
    fn errors_say_what_was_found_and_what_is_expected() {
        let error = |text: &str| read::<Closed>(text).unwrap_err().to_string();
        for (text, expected) in [
            ("[]", "found an array, expected struct Closed"),
            ("{}", "missing field `a`"),
            (r#"{"a":[1]}"#, "invalid length 1, expected a tuple of size 2"),
            (r#"{"a":[1,"b",3]}"#, "too many values at byte 12"),
            (r#"{"a":["1","b"]}"#, "found a string, expected u8"),
            (r#"{"a":[300,"b"]}"#, "found an integer, expected u8"),
            (r#"{"a":[1.5,"b"]}"#, "found a number, expected u8"),
            (r#"{"z":1}"#, "unknown field `z`, expected one of `a`, `b`, `c`"),
            (r#"{"a":[1,"b"]"#, "expected a comma or the end at byte 12"),
            (r#"{"a":[1,"b"]} x"#, "unexpected text at byte 14"),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
        let shape = read::<Shape>(r#""star""#).unwrap_err().to_string();
        assert!(shape.starts_with("unknown variant `star`, expected one of `point`"), "{shape}");
        read::<Shape>(r#"{"circle":1,"point":null}"#).unwrap_err();
        read::<Shape>("{}").unwrap_err();
    }
}
