//! What a host call or a handler can fail with.

use std::fmt;

use crate::bindings::wharf::extension::types as wit;
use crate::reader::ReadError;

/// The result of a host call or a handler.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a host call failed, or why a handler could not do its work. Its text
/// reaches the person, or the model where a tool failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The host refuses the call where it was made, for example a function of
    /// [`Control`](crate::Control) outside a command.
    NotAllowed(String),
    /// The host does not accept an argument; the text names it.
    Invalid(String),
    /// The host tried and failed.
    Failed(String),
    /// Something that needs a grant was not done.
    Access(AccessError),
    /// JSON text that does not have the expected shape.
    Json(String),
    /// The extension's own words.
    Message(String),
}

// By hand, here and below: what `thiserror` makes takes more code.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed(text)
            | Self::Invalid(text)
            | Self::Failed(text)
            | Self::Message(text) => f.write_str(text),
            Self::Json(text) => {
                f.write_str("invalid JSON: ")?;
                f.write_str(text)
            }
            Self::Access(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<AccessError> for Error {
    fn from(error: AccessError) -> Self {
        Self::Access(error)
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error.to_string())
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        Self::Json(error.0)
    }
}

/// Why something that needs a grant was not done: a file, a request, a program, a
/// variable. With `?` it becomes an [`Error`] where a handler returns one.
///
/// ```
/// # use wharf_sdk::{AccessError, Ctx, Result};
/// async fn rules(ctx: &Ctx) -> Result<Option<String>> {
///     match ctx.files().read_to_string("RULES.md").await {
///         Ok(rules) => Ok(Some(rules)),
///         Err(AccessError::NotFound(_)) => Ok(None),
///         Err(error) => Err(error.into()),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessError {
    /// It is not granted. The text names the grant that is missing, and the command
    /// that gives it.
    Denied(String),
    /// An argument is not acceptable; the text names it.
    Invalid(String),
    /// It is not there: a file, a program.
    NotFound(String),
    /// The host tried and failed; the text says what and why.
    Failed(String),
    /// Its time is up.
    TimedOut(String),
    /// The call that asked for it was cancelled: nobody waits for its answer.
    Cancelled,
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Denied(text)
            | Self::Invalid(text)
            | Self::NotFound(text)
            | Self::Failed(text)
            | Self::TimedOut(text) => text,
            Self::Cancelled => "the call was cancelled",
        })
    }
}

impl std::error::Error for AccessError {}

impl From<wit::AccessError> for AccessError {
    fn from(error: wit::AccessError) -> Self {
        match error {
            wit::AccessError::Denied(text) => Self::Denied(text),
            wit::AccessError::Invalid(text) => Self::Invalid(text),
            wit::AccessError::NotFound(text) => Self::NotFound(text),
            wit::AccessError::Failed(text) => Self::Failed(text),
            wit::AccessError::TimedOut(text) => Self::TimedOut(text),
            wit::AccessError::Cancelled => Self::Cancelled,
        }
    }
}

/// What the host is told.
#[inline(never)]
pub(crate) fn text(error: Error) -> String {
    error.to_string()
}

/// What a tool's arguments that cannot be read are reported as.
pub(crate) fn invalid_arguments(tool: &str, error: &Error) -> Error {
    Error::Message(["invalid arguments for ", tool, ": ", &error.to_string()].concat())
}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

impl From<&str> for Error {
    fn from(message: &str) -> Self {
        Self::Message(message.to_owned())
    }
}

impl From<std::fmt::Error> for Error {
    fn from(error: std::fmt::Error) -> Self {
        Self::Message(error.to_string())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Message(error.to_string())
    }
}

impl From<wit::HostError> for Error {
    fn from(error: wit::HostError) -> Self {
        match error {
            wit::HostError::NotAllowed(text) => Self::NotAllowed(text),
            wit::HostError::Invalid(text) => Self::Invalid(text),
            wit::HostError::Failed(text) => Self::Failed(text),
        }
    }
}
