//! What a tool gives back, and the content of messages.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::bindings::wharf::extension::types as wit;
use crate::error::invalid_arguments;
use crate::{Json, Result, ToolCtx};

/// A picture, as it is sent to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Base64 (RFC 4648, padded).
    pub data: String,
    /// For example `image/png`.
    pub mime_type: String,
}

/// One piece of a message or of a tool's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image(Image),
}

impl Content {
    /// A piece of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The text, when it is text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Image(_) => None,
        }
    }
}

impl<T: Into<String>> From<T> for Content {
    fn from(text: T) -> Self {
        Self::text(text)
    }
}

/// What a tool gives back. A handler may return a `String` instead.
///
/// ```
/// # fn main() -> wharf_sdk::Result<()> {
/// use wharf_sdk::{Json, ToolOutput};
///
/// let output = ToolOutput::text("3 files").with_details(Json::of(&["a", "b", "c"])?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// What the model reads.
    pub content: Vec<Content>,
    /// Data for people and for the extension's own state; the model never sees it.
    pub details: Option<Json>,
    /// True: the call failed.
    pub is_error: bool,
}

impl ToolOutput {
    /// Output of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], ..Self::default() }
    }

    /// A failure that the model reads.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// Adds a piece.
    #[must_use]
    pub fn with_content(mut self, content: impl Into<Content>) -> Self {
        self.content.push(content.into());
        self
    }

    /// Sets the details.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<Json>) -> Self {
        self.details = Some(details.into());
        self
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<Image> for wit::Image {
    fn from(image: Image) -> Self {
        Self { data: image.data, mime_type: image.mime_type }
    }
}

impl From<wit::Image> for Image {
    fn from(image: wit::Image) -> Self {
        Self { data: image.data, mime_type: image.mime_type }
    }
}

impl From<Content> for wit::Content {
    fn from(content: Content) -> Self {
        match content {
            Content::Text { text } => Self::Text(text),
            Content::Image(image) => Self::Image(image.into()),
        }
    }
}

impl From<wit::Content> for Content {
    fn from(content: wit::Content) -> Self {
        match content {
            wit::Content::Text(text) => Self::Text { text },
            wit::Content::Image(image) => Self::Image(image.into()),
        }
    }
}

impl From<ToolOutput> for wit::ToolOutput {
    fn from(output: ToolOutput) -> Self {
        Self {
            content: convert(output.content),
            details: output.details.map(Json::into_string),
            is_error: output.is_error,
        }
    }
}

impl From<wit::ToolOutput> for ToolOutput {
    fn from(output: wit::ToolOutput) -> Self {
        Self {
            content: convert(output.content),
            details: output.details.map(Json::from_host),
            is_error: output.is_error,
        }
    }
}

/// Reads the arguments of a call.
pub(crate) fn arguments<P: DeserializeOwned>(ctx: &ToolCtx, input: &Json) -> Result<P> {
    input.parse().map_err(|error| invalid_arguments(ctx.tool_name(), &error))
}

/// Converts a list between the API's types and the bindings'.
pub(crate) fn convert<A, B: From<A>>(list: Vec<A>) -> Vec<B> {
    list.into_iter().map(B::from).collect()
}
