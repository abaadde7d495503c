//! The answer to a command: exactly one for each.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// `{"id"?, "type": "response", "command", "success", "data"?, "error"?}`
#[derive(Debug, Clone, Serialize)]
pub struct Response {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Value>,
    #[serde(rename = "type")]
    kind: &'static str,
    command: Cow<'static, str>,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Response {
    pub fn success(id: Option<Value>, command: impl Into<Cow<'static, str>>) -> Self {
        Self {
            id,
            kind: "response",
            command: command.into(),
            success: true,
            data: None,
            error: None,
        }
    }

    /// A success that carries data. Data that cannot be written as JSON (a map
    /// with keys that are no strings) is a failure that says so.
    pub fn with_data(
        id: Option<Value>,
        command: impl Into<Cow<'static, str>>,
        data: &impl Serialize,
    ) -> Self {
        let command = command.into();
        match serde_json::value::to_raw_value(data) {
            Ok(data) => Self { data: Some(data), ..Self::success(id, command) },
            Err(error) => {
                Self::failure(id, command, format!("failed to write the answer as JSON: {error}"))
            }
        }
    }

    pub fn failure(
        id: Option<Value>,
        command: impl Into<Cow<'static, str>>,
        error: impl Into<String>,
    ) -> Self {
        Self {
            id,
            kind: "response",
            command: command.into(),
            success: false,
            data: None,
            error: Some(error.into()),
        }
    }

    pub const fn is_success(&self) -> bool {
        self.success
    }
}

/// A success whose data may have tens of megabytes: it goes into its line without being
/// written anywhere else first.
#[derive(Debug, Serialize)]
pub struct LongResponse<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Value>,
    #[serde(rename = "type")]
    kind: &'static str,
    command: &'static str,
    success: bool,
    data: &'a T,
}

impl<'a, T: Serialize> LongResponse<'a, T> {
    pub const fn new(id: Option<Value>, command: &'static str, data: &'a T) -> Self {
        Self { id, kind: "response", command, success: true, data }
    }
}
