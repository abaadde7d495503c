//! Taking values out of a JSON object by hand, where a derived reader of many
//! types would take too much of a guest's size. What nobody takes is not read.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::reader::{self, Reader};
use crate::{Error, Json, Result};

/// The text of a JSON value.
#[derive(Clone, Copy)]
pub(crate) struct Raw<'a>(pub(crate) &'a str);

/// The fields of a JSON object.
pub(crate) struct Fields<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Fields<'a> {
    #[inline(never)]
    pub(crate) fn new(text: &'a str) -> Result<Self> {
        let mut reader = Reader::new(text);
        let fields = reader.fields()?;
        reader.end()?;
        Ok(Self(fields))
    }

    pub(crate) fn required<T: FromRaw<'a>>(&self, name: &str) -> Result<T> {
        let text = self.find(name).ok_or_else(|| wrong(name, "is missing"))?;
        T::from_raw(text).ok_or_else(|| wrong(name, "has another type"))
    }

    /// The field; none when it is not there, and when it is `null`.
    pub(crate) fn optional<T: FromRaw<'a>>(&self, name: &str) -> Result<Option<T>> {
        self.find(name).map(|_| self.required(name)).transpose()
    }

    /// The last one counts when a name stands twice, as `serde_json` has it.
    #[inline(never)]
    fn find(&self, name: &str) -> Option<&'a str> {
        let (_, text) = self.0.iter().rev().find(|(field, _)| field == name)?;
        (*text != "null").then_some(*text)
    }
}

#[cold]
fn wrong(name: &str, what: &str) -> Error {
    Error::Message(format!("the field {name} {what}"))
}

/// Reads an object for a type's `Deserialize`.
pub(crate) fn read<'de, T, D>(
    deserializer: D,
    from: fn(Fields<'_>) -> Result<T>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    let text = Box::<RawValue>::deserialize(deserializer)?;
    Fields::new(text.get()).and_then(from).map_err(serde::de::Error::custom)
}

/// A type that a field can have.
pub(crate) trait FromRaw<'a>: Sized {
    /// None when the value is of another type.
    fn from_raw(text: &'a str) -> Option<Self>;
}

impl<'a> FromRaw<'a> for Raw<'a> {
    fn from_raw(text: &'a str) -> Option<Self> {
        Some(Self(text))
    }
}

impl FromRaw<'_> for Json {
    fn from_raw(text: &str) -> Option<Self> {
        Some(Self::from_host(text.to_owned()))
    }
}

impl<'a> FromRaw<'a> for Fields<'a> {
    fn from_raw(text: &'a str) -> Option<Self> {
        Self::new(text).ok()
    }
}

impl FromRaw<'_> for String {
    fn from_raw(text: &str) -> Option<Self> {
        reader::read(text).ok()
    }
}

impl FromRaw<'_> for bool {
    fn from_raw(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl FromRaw<'_> for f64 {
    fn from_raw(text: &str) -> Option<Self> {
        reader::read(text).ok()
    }
}

impl FromRaw<'_> for i64 {
    fn from_raw(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl FromRaw<'_> for u64 {
    /// A whole number, also as `10.0`: JSON Schema's `integer` takes it, and models
    /// write it.
    fn from_raw(text: &str) -> Option<Self> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the float is whole, and not below zero"
        )]
        let from_float =
            |float: f64| (float >= 0.0 && float.fract() == 0.0).then_some(float as Self);
        text.parse().ok().or_else(|| f64::from_raw(text).and_then(from_float))
    }
}

impl FromRaw<'_> for u32 {
    fn from_raw(text: &str) -> Option<Self> {
        u64::from_raw(text)?.try_into().ok()
    }
}

/// The parts of an array; none when it is no array.
#[inline(never)]
pub(crate) fn list(text: &str) -> Option<Vec<&str>> {
    let mut reader = Reader::new(text);
    let items = reader.items().ok()?;
    reader.end().ok()?;
    Some(items)
}

impl<'a, T: FromRaw<'a>> FromRaw<'a> for Vec<T> {
    fn from_raw(text: &'a str) -> Option<Self> {
        // Not `collect`, whose ways to stop early take more code.
        let mut values = Vec::new();
        for text in list(text)? {
            values.push(T::from_raw(text)?);
        }
        Some(values)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use super::*;

    #[test]
    fn fields_have_their_types_and_json_keeps_its_text() {
        let text = r#"{"text":"a\nb","n":12,"whole":1e1,"half":0.5,"none":null,"yes":true,
            "list":[1,2],"json":{"z":1.50,"a":null},"n":3}"#;
        let json = Json::from_host(text.to_owned());
        let fields = Fields::new(json.as_str()).unwrap();
        assert_eq!(fields.required::<String>("text").unwrap(), "a\nb");
        assert_eq!(fields.required::<u64>("whole").unwrap(), 10);
        assert_eq!(fields.required::<f64>("half").unwrap(), 0.5);
        assert_eq!(fields.optional::<bool>("yes").unwrap(), Some(true));
        assert_eq!(fields.required::<Vec<i64>>("list").unwrap(), [1, 2]);
        assert_eq!(fields.required::<Json>("json").unwrap().as_str(), r#"{"z":1.50,"a":null}"#);
        assert_eq!(fields.required::<i64>("n").unwrap(), 3, "the last one counts");
        for name in ["none", "absent"] {
            assert_eq!(fields.optional::<String>(name).unwrap(), None);
            let error = fields.required::<String>(name).unwrap_err().to_string();
            assert_eq!(error, format!("the field {name} is missing"));
        }
        for error in [
            fields.required::<u64>("half").map(drop),
            fields.required::<u64>("text").map(drop),
            fields.required::<String>("n").map(drop),
            fields.optional::<bool>("n").map(drop),
            fields.required::<Vec<bool>>("list").map(drop),
        ] {
            assert!(error.unwrap_err().to_string().ends_with("has another type"));
        }
    }
}
