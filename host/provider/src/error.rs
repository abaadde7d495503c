//! Why there is no reply, and what can be done about it.

use std::time::Duration;

use serde_json::Value;

/// What kind of failure it is decides what the agent does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No key, a wrong one, or one that may not use the model.
    Authentication,
    /// The account's money or quota is used up: waiting does not help.
    Quota,
    /// The server refuses the request as it is.
    InvalidRequest,
    /// The conversation does not fit the model's context window.
    ContextOverflow,
    /// Too many requests.
    RateLimit,
    /// The server has no room now.
    Overloaded,
    /// The server has failed.
    Server,
    /// The server could not be reached, or did not answer in time.
    Connection,
    /// The stream ended, or was torn, before the reply was complete.
    Dropped,
    /// The server, or the model, declines to answer.
    Refused,
    /// The server sent what is no reply of its API.
    Protocol,
    /// A scripted conversation has no reply for this request.
    Script,
}

impl ErrorKind {
    /// True where the same request may succeed a little later.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::RateLimit | Self::Overloaded | Self::Server | Self::Connection)
    }
}

/// Why a provider gave no complete reply. The text is what a person reads: the status
/// and the body as the server gave them, or what went wrong on the way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    pub kind: ErrorKind,
    pub message: String,
    /// How long the server wants to be left alone.
    pub retry_after: Option<Duration>,
}

/// Bytes of a body that an error's text carries at most.
const MAX_BODY_BYTES: usize = 4096;

impl ProviderError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    /// The response ended before the reply did.
    pub fn dropped(detail: &str) -> Self {
        let message = if detail.is_empty() {
            "the stream ended before the reply was complete".to_owned()
        } else {
            format!("the stream ended before the reply was complete: {detail}")
        };
        Self::new(ErrorKind::Dropped, message)
    }

    /// A response whose status is no success.
    pub fn status(status: u16, body: &str) -> Self {
        let body = body.trim();
        let mut end = body.len().min(MAX_BODY_BYTES);
        while !body.is_char_boundary(end) {
            end -= 1;
        }
        let message = format!("{status} {}", &body[..end]);
        Self::new(classify(Some(status), body), message.trim_end().to_owned())
    }

    /// An error that came inside a stream that had begun well. `payload` is the JSON of
    /// the error as the server sent it; `code` is its type or code (a name, or a status
    /// as a number).
    pub fn in_stream(code: &str, message: &str, payload: &str) -> Self {
        let status = code.parse().ok();
        let text = match (code, message) {
            ("", "") => payload.to_owned(),
            ("", message) => message.to_owned(),
            (code, "") => code.to_owned(),
            (code, message) => format!("{code}: {message}"),
        };
        let mut error = Self::status(status.unwrap_or(0), payload);
        error.message = text;
        if status.is_none() {
            error.kind = classify(None, payload);
        }
        error
    }
}

/// Types and codes that servers name in their errors.
const BY_NAME: [(&str, ErrorKind); 27] = [
    ("authentication_error", ErrorKind::Authentication),
    ("permission_error", ErrorKind::Authentication),
    ("invalid_api_key", ErrorKind::Authentication),
    ("unauthenticated", ErrorKind::Authentication),
    ("permission_denied", ErrorKind::Authentication),
    ("insufficient_quota", ErrorKind::Quota),
    ("billing_error", ErrorKind::Quota),
    ("billing_hard_limit_reached", ErrorKind::Quota),
    ("context_length_exceeded", ErrorKind::ContextOverflow),
    ("request_too_large", ErrorKind::ContextOverflow),
    ("exceed_context_size_error", ErrorKind::ContextOverflow),
    ("rate_limit_error", ErrorKind::RateLimit),
    ("rate_limit_exceeded", ErrorKind::RateLimit),
    ("too_many_requests", ErrorKind::RateLimit),
    ("resource_exhausted", ErrorKind::RateLimit),
    ("overloaded_error", ErrorKind::Overloaded),
    ("overloaded", ErrorKind::Overloaded),
    ("unavailable", ErrorKind::Overloaded),
    ("service_unavailable", ErrorKind::Overloaded),
    ("api_error", ErrorKind::Server),
    ("server_error", ErrorKind::Server),
    ("internal_error", ErrorKind::Server),
    ("internal", ErrorKind::Server),
    ("timeout_error", ErrorKind::Server),
    ("content_filter", ErrorKind::Refused),
    ("invalid_request_error", ErrorKind::InvalidRequest),
    ("not_found_error", ErrorKind::InvalidRequest),
];

/// How servers say in words that a conversation is too long. Each stands in the answer
/// of a server that is in use: Anthropic, OpenAI, Google, xAI, Groq, OpenRouter and vLLM,
/// llama.cpp, LM Studio, MiniMax, Kimi, Mistral.
const OVERFLOW: [&str; 12] = [
    "prompt is too long",
    "exceeds the context window",
    "exceeds the maximum number of tokens",
    "maximum prompt length is",
    "reduce the length of the messages",
    "maximum context length",
    "exceeds the available context size",
    "greater than the context length",
    "context window exceeds limit",
    "exceeded model token limit",
    "input is too long",
    "context length exceeded",
];

fn classify(status: Option<u16>, body: &str) -> ErrorKind {
    let lower = body.to_lowercase();
    let json = serde_json::from_str::<Value>(body).unwrap_or_default();
    let named = named_kind(&json);
    if named == Some(ErrorKind::ContextOverflow)
        || (status.is_none_or(|status| status < 500) && OVERFLOW.iter().any(|t| lower.contains(t)))
    {
        return ErrorKind::ContextOverflow;
    }
    // "You exceeded your current quota, please check your plan and billing details."
    if lower.contains("insufficient_quota") || lower.contains("credit balance is too low") {
        return ErrorKind::Quota;
    }
    match status {
        Some(401 | 403) => ErrorKind::Authentication,
        Some(402) => ErrorKind::Quota,
        Some(408) => ErrorKind::Server,
        Some(413) => ErrorKind::ContextOverflow,
        Some(429) => match named {
            Some(ErrorKind::Quota) => ErrorKind::Quota,
            _ => ErrorKind::RateLimit,
        },
        Some(503 | 529) => ErrorKind::Overloaded,
        Some(500..) => match named {
            Some(ErrorKind::Overloaded) => ErrorKind::Overloaded,
            _ => ErrorKind::Server,
        },
        Some(400..) => {
            named.filter(|kind| !kind.is_transient()).unwrap_or(ErrorKind::InvalidRequest)
        }
        // Inside a stream there is only what the payload says. A failure that nobody
        // names is one of the server's: it had accepted the request.
        Some(_) | None => named.unwrap_or(ErrorKind::Server),
    }
}

/// What the names say that stand in the usual places of an error's JSON.
fn named_kind(json: &Value) -> Option<ErrorKind> {
    let places = ["/error/type", "/error/code", "/error/status", "/type", "/code", "/status"];
    let names = places.iter().filter_map(|place| json.pointer(place)?.as_str());
    names
        .map(str::to_lowercase)
        .find_map(|name| BY_NAME.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind))
}
