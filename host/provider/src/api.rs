//! The seam between the HTTP driver and the APIs: an API turns a request into one
//! HTTP request, and the server-sent events of its response into a reply's steps. No
//! API performs I/O.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use crate::anthropic::AnthropicMessages;
use crate::google::GoogleGenerativeAi;
use crate::openai_completions::OpenAiCompletions;
use crate::openai_responses::OpenAiResponses;
use crate::sse::SseEvent;
use crate::{ProviderError, ProviderEvent, Request};

/// The APIs that Wharf speaks over HTTP, by their names in `models.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ApiKind {
    AnthropicMessages,
    OpenaiCompletions,
    OpenaiResponses,
    GoogleGenerativeAi,
}

impl ApiKind {
    pub(crate) const ALL: [Self; 4] = [
        Self::AnthropicMessages,
        Self::OpenaiCompletions,
        Self::OpenaiResponses,
        Self::GoogleGenerativeAi,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "anthropic-messages",
            Self::OpenaiCompletions => "openai-completions",
            Self::OpenaiResponses => "openai-responses",
            Self::GoogleGenerativeAi => "google-generative-ai",
        }
    }

    pub(crate) fn api(self) -> &'static dyn Api {
        match self {
            Self::AnthropicMessages => &AnthropicMessages,
            Self::OpenaiCompletions => &OpenAiCompletions,
            Self::OpenaiResponses => &OpenAiResponses,
            Self::GoogleGenerativeAi => &GoogleGenerativeAi,
        }
    }
}

/// Where one model is served, as an API sees it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// Without a slash at its end.
    pub(crate) base_url: String,
    /// None where the server wants none (a local one).
    pub(crate) api_key: Option<String>,
    /// The key goes into `Authorization: Bearer` and not into the API's own header.
    pub(crate) auth_header: bool,
    /// What `models.json` says under `compat`; null where it says nothing. Its shape is
    /// the API's own affair; it was checked when the file was read.
    pub(crate) compat: Value,
}

impl fmt::Debug for Endpoint {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("base_url", &self.base_url)
            .field("has_key", &self.api_key.is_some())
            .field("auth_header", &self.auth_header)
            .field("compat", &self.compat)
            .finish()
    }
}

/// A POST whose body is JSON.
#[derive(Clone, PartialEq)]
pub(crate) struct HttpRequest {
    pub(crate) url: String,
    /// Authentication included; `content-type` and `accept` are the driver's.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Value,
}

pub(crate) trait Api: Send + Sync + fmt::Debug {
    /// The HTTP request of a reply. Whatever stands in `request.messages`, the server
    /// must not refuse the result: see `prepare`.
    fn encode(&self, request: &Request, endpoint: &Endpoint) -> HttpRequest;

    /// Reads the response to such a request.
    fn decoder(&self, request: &Request) -> Box<dyn Decoder>;
}

/// One response under way.
pub(crate) trait Decoder: Send {
    /// Takes one server-sent event. After [`ProviderEvent::Done`] has been put out, no
    /// more come.
    ///
    /// # Errors
    /// The event says that the reply has failed (classified by its payload), or it is
    /// none of this API.
    fn event(
        &mut self,
        event: &SseEvent,
        out: &mut Vec<ProviderEvent>,
    ) -> Result<(), ProviderError>;

    /// The response has ended without [`ProviderEvent::Done`]. Puts it out where what
    /// came is known to be the whole reply.
    ///
    /// # Errors
    /// [`ProviderError::dropped`] where it is not.
    fn end(&mut self, out: &mut Vec<ProviderEvent>) -> Result<(), ProviderError>;
}
