//! From validated JSON arguments to typed ones, and the common part of the schemas.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value, json};

use crate::tool::ToolFailure;

pub(super) fn parse<T: DeserializeOwned>(args: Map<String, Value>) -> Result<T, ToolFailure> {
    serde_json::from_value(Value::Object(args))
        .map_err(|error| ToolFailure::new(format!("invalid arguments: {error}")))
}

/// A closed object schema.
pub(super) fn object_schema(required: &[&str], properties: &Value) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// An optional count. JSON Schema takes `2.0` for an integer, and some models write
/// it so.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let integer = number.as_u64().or_else(|| {
        let float = number.as_f64().filter(|f| f.fract() == 0.0 && *f >= 0.0)?;
        // Saturates, as an over-long count is no different from a very long one.
        Some(float as u64)
    });
    match integer {
        Some(integer) => Ok(Some(usize::try_from(integer).unwrap_or(usize::MAX))),
        None => Err(D::Error::custom(format!("{number} is not a count"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Counted {
        #[serde(default, deserialize_with = "count")]
        n: Option<usize>,
    }

    #[test]
    fn counts_are_whole_numbers() {
        let read = |text: &str| serde_json::from_str::<Counted>(text).ok().map(|c| c.n);
        assert_eq!(read("{}"), Some(None));
        assert_eq!(read(r#"{"n":3}"#), Some(Some(3)));
        assert_eq!(read(r#"{"n":3.0}"#), Some(Some(3)));
        assert_eq!(read(r#"{"n":1e30}"#), Some(Some(usize::MAX)));
        assert_eq!(read(r#"{"n":2.5}"#), None);
        assert_eq!(read(r#"{"n":-1}"#), None);
        assert_eq!(read(r#"{"n":"3"}"#), None);
    }
}
