//! Taking values out of a JSON object by hand, where a derived reader of many
//! types would take too much of a guest's size.

use serde_json::{Map, Value};

use crate::{Error, Json, Result};

/// The fields of a JSON object that are not taken yet.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    pub(crate) fn new(value: Value) -> Result<Self> {
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err("a JSON object is expected".into()),
        }
    }

    pub(crate) fn required<T: FromValue>(&mut self, name: &str) -> Result<T> {
        self.optional(name)?.ok_or_else(|| Error::Message(format!("the field {name} is missing")))
    }

    /// The field; none when it is not there, and when it is `null`.
    pub(crate) fn optional<T: FromValue>(&mut self, name: &str) -> Result<Option<T>> {
        // Not `remove`, whose rebalancing takes code: what is taken becomes null.
        match self.0.get_mut(name).map(Value::take) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match T::from_value(value) {
                Some(value) => Ok(Some(value)),
                None => Err(Error::Message(format!("the field {name} has another type"))),
            },
        }
    }
}

/// A type that a field can have.
pub(crate) trait FromValue: Sized {
    /// None when the value is of another type.
    fn from_value(value: Value) -> Option<Self>;
}

impl FromValue for Value {
    fn from_value(value: Value) -> Option<Self> {
        Some(value)
    }
}

impl FromValue for Json {
    fn from_value(value: Value) -> Option<Self> {
        Some(value.into())
    }
}

impl FromValue for Fields {
    fn from_value(value: Value) -> Option<Self> {
        Self::new(value).ok()
    }
}

impl FromValue for String {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl FromValue for bool {
    fn from_value(value: Value) -> Option<Self> {
        value.as_bool()
    }
}

impl FromValue for f64 {
    fn from_value(value: Value) -> Option<Self> {
        value.as_f64()
    }
}

impl FromValue for i64 {
    fn from_value(value: Value) -> Option<Self> {
        value.as_i64()
    }
}

impl FromValue for u64 {
    /// A whole number, also as `10.0`: JSON Schema's `integer` takes it, and models
    /// write it.
    fn from_value(value: Value) -> Option<Self> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the float is whole, and not below zero"
        )]
        let from_float =
            |float: f64| (float >= 0.0 && float.fract() == 0.0).then_some(float as Self);
        value.as_u64().or_else(|| value.as_f64().and_then(from_float))
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Array(list) => list.into_iter().map(T::from_value).collect(),
            _ => None,
        }
    }
}
