//! JSON text at the host's edge, parsed only when somebody looks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, Result, reader};

/// A JSON value as text.
///
/// The host hands over messages, arguments and entries as text. Most handlers
/// need none or little of it, so nothing is parsed before [`parse`](Self::parse),
/// and parsing into a type of one's own skips what that type does not name.
///
/// ```
/// # fn main() -> wharf_sdk::Result<()> {
/// use wharf_sdk::Json;
///
/// #[derive(serde::Deserialize)]
/// struct Point {
///     x: i32,
/// }
///
/// let json = Json::of(&serde_json::json!({"x": 1, "y": 2}))?;
/// assert_eq!(json.parse::<Point>()?.x, 1);
/// assert_eq!(json.value()?["y"], 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Json(String);

impl Json {
    /// The JSON text of a value.
    ///
    /// # Errors
    /// When the value cannot be written as JSON, for example a map whose keys are
    /// not text.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        Ok(Self(serde_json::to_string(value)?))
    }

    /// Reads the text as a `T`.
    ///
    /// # Errors
    /// When the text does not have the shape of `T`.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        Ok(reader::read(&self.0)?)
    }

    /// Reads JSON text that did not come from the host, for example a piece of a
    /// response, as a `T`. As `serde_json::from_str`, in less code.
    ///
    /// ```
    /// # fn main() -> wharf_sdk::Result<()> {
    /// use wharf_sdk::Json;
    ///
    /// let numbers: Vec<u32> = Json::read("[1, 2]")?;
    /// assert_eq!(numbers, [1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the text is not JSON, or does not have the shape of `T`.
    pub fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T> {
        Ok(reader::read(text)?)
    }

    /// Reads the text as a tree.
    ///
    /// # Errors
    /// When the text is not JSON, which only a fault of the host can cause.
    pub fn value(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.0)?)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) const fn from_host(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

impl FromStr for Json {
    type Err = Error;

    /// Checks that the text is JSON, and keeps it as it is.
    fn from_str(text: &str) -> Result<Self> {
        reader::check(text)?;
        Ok(Self(text.to_owned()))
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self(value.to_string())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_checked_and_kept() {
        let json: Json = r#"{"n": 1.50}"#.parse().unwrap();
        assert_eq!(json.as_str(), r#"{"n": 1.50}"#);
        for text in ["", "{", "[1] 2", "'a'"] {
            text.parse::<Json>().unwrap_err();
        }
    }
}
