//! What a host call or a handler can fail with.

use crate::bindings::wharf::extension::types::HostError;

/// The result of a host call or a handler.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a host call failed, or why a handler could not do its work. Its text
/// reaches the person, or the model where a tool failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host refuses the call where it was made, for example a function of
    /// [`Control`](crate::Control) outside a command.
    #[error("{0}")]
    NotAllowed(String),
    /// The host does not accept an argument; the text names it.
    #[error("{0}")]
    Invalid(String),
    /// The host tried and failed.
    #[error("{0}")]
    Failed(String),
    /// JSON text that does not have the expected shape.
    #[error("invalid JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The extension's own words.
    #[error("{0}")]
    Message(String),
}

/// What the host is told.
pub(crate) fn text(error: Error) -> String {
    error.to_string()
}

/// What a tool's arguments that cannot be read are reported as.
pub(crate) fn invalid_arguments(tool: &str, error: &Error) -> Error {
    Error::Message(format!("invalid arguments for {tool}: {error}"))
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

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        match error {
            HostError::NotAllowed(text) => Self::NotAllowed(text),
            HostError::Invalid(text) => Self::Invalid(text),
            HostError::Failed(text) => Self::Failed(text),
        }
    }
}
