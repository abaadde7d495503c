//! The four APIs, by their names in `models.json`, and what they have in common.

use serde_json::{Value, json};

use super::{Answer, Recorded, anthropic, completions, google, responses};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    AnthropicMessages,
    OpenaiCompletions,
    OpenaiResponses,
    GoogleGenerativeAi,
}

/// Ways for a server to fail that each API words in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The conversation does not fit the context window.
    Overflow,
    RateLimit,
    Overloaded,
    Internal,
    Authentication,
    /// The account's money is used up.
    Quota,
}

/// Where servers that speak OpenAI's chat completions differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Strictness {
    /// As chat templates of llama.cpp want it: users, and replies that call no tool,
    /// take turns.
    pub alternating_roles: bool,
    pub no_store: bool,
    pub no_developer_role: bool,
    /// As OpenAI itself: no field but its own.
    pub known_fields_only: bool,
}

/// What a real server would answer to a faulty request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) message: String,
}

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self { status: 400, message }
    }
}

impl From<&str> for Refusal {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

/// What a reply is an answer to.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    /// Differs from request to request: for ids.
    pub(super) number: usize,
    pub(super) model: &'a str,
    /// Chat completions send the usage only if asked to.
    pub(super) wants_usage: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn of(request: &'a Recorded, number: usize) -> Self {
        Self {
            number,
            model: request.body["model"].as_str().unwrap_or("fake-1"),
            wants_usage: request.body["stream_options"]["include_usage"] == true,
        }
    }
}

impl Api {
    pub const ALL: [Self; 4] = [
        Self::AnthropicMessages,
        Self::OpenaiCompletions,
        Self::OpenaiResponses,
        Self::GoogleGenerativeAi,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "anthropic-messages",
            Self::OpenaiCompletions => "openai-completions",
            Self::OpenaiResponses => "openai-responses",
            Self::GoogleGenerativeAi => "google-generative-ai",
        }
    }

    /// What a `baseUrl` of this API has after the host.
    pub const fn base_path(self) -> &'static str {
        match self {
            Self::AnthropicMessages => "",
            Self::OpenaiCompletions | Self::OpenaiResponses => "/v1",
            Self::GoogleGenerativeAi => "/v1beta",
        }
    }

    pub(super) fn of_path(path: &str) -> Option<Self> {
        let is_google = path
            .rsplit_once("/models/")
            .and_then(|(_, rest)| rest.strip_suffix(":streamGenerateContent"))
            .is_some_and(|id| !id.is_empty());
        if path.ends_with("/messages") {
            Some(Self::AnthropicMessages)
        } else if path.ends_with("/chat/completions") {
            Some(Self::OpenaiCompletions)
        } else if path.ends_with("/responses") {
            Some(Self::OpenaiResponses)
        } else {
            is_google.then_some(Self::GoogleGenerativeAi)
        }
    }

    pub(super) fn check(self, request: &Recorded, strictness: Strictness) -> Result<(), Refusal> {
        match self {
            Self::AnthropicMessages => anthropic::check(request),
            Self::OpenaiCompletions => completions::check(request, strictness),
            Self::OpenaiResponses => responses::check(request),
            Self::GoogleGenerativeAi => google::check(request),
        }
    }

    /// A whole stream, one server-sent event each; to be changed by a test and played
    /// with [`super::Reply::events`].
    pub fn events(self, answer: &Answer) -> Vec<Vec<u8>> {
        self.stream(answer, &Asked { number: 0, model: "fake-1", wants_usage: true })
    }

    pub(super) fn stream(self, answer: &Answer, asked: &Asked<'_>) -> Vec<Vec<u8>> {
        match self {
            Self::AnthropicMessages => anthropic::events(answer, asked),
            Self::OpenaiCompletions => completions::events(answer, asked),
            Self::OpenaiResponses => responses::events(answer, asked),
            Self::GoogleGenerativeAi => google::events(answer, asked),
        }
    }

    /// Status, type or code, and text of a failure.
    pub(super) const fn failure(self, failure: Failure) -> (u16, &'static str, &'static str) {
        use Failure::{Authentication, Internal, Overflow, Overloaded, Quota, RateLimit};
        match (self, failure) {
            (Self::AnthropicMessages, Overflow) => {
                (400, "invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum")
            }
            (Self::AnthropicMessages, RateLimit) => (
                429,
                "rate_limit_error",
                "This request would exceed your organization's rate limit of 50 requests per minute.",
            ),
            (Self::AnthropicMessages, Overloaded) => (529, "overloaded_error", "Overloaded"),
            (Self::AnthropicMessages, Internal) => (500, "api_error", "Internal server error"),
            (Self::AnthropicMessages, Authentication) => {
                (401, "authentication_error", "invalid x-api-key")
            }
            (Self::AnthropicMessages, Quota) => (
                400,
                "invalid_request_error",
                "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
            ),
            (Self::OpenaiCompletions, Overflow) => (
                400,
                "context_length_exceeded",
                "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens. Please reduce the length of the messages.",
            ),
            (Self::OpenaiResponses, Overflow) => (
                400,
                "context_length_exceeded",
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
            ),
            (Self::OpenaiCompletions | Self::OpenaiResponses, RateLimit) => (
                429,
                "rate_limit_exceeded",
                "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
            ),
            (Self::OpenaiCompletions | Self::OpenaiResponses, Overloaded) => (
                503,
                "server_overloaded",
                "The engine is currently overloaded, please try again later",
            ),
            (Self::OpenaiCompletions | Self::OpenaiResponses, Internal) => (
                500,
                "server_error",
                "The server had an error while processing your request. Sorry about that!",
            ),
            (Self::OpenaiCompletions | Self::OpenaiResponses, Authentication) => {
                (401, "invalid_api_key", "Incorrect API key provided.")
            }
            (Self::OpenaiCompletions | Self::OpenaiResponses, Quota) => (
                429,
                "insufficient_quota",
                "You exceeded your current quota, please check your plan and billing details.",
            ),
            (Self::GoogleGenerativeAi, Overflow) => (
                400,
                "INVALID_ARGUMENT",
                "The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).",
            ),
            (Self::GoogleGenerativeAi, RateLimit | Quota) => {
                (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota).")
            }
            (Self::GoogleGenerativeAi, Overloaded) => {
                (503, "UNAVAILABLE", "The model is overloaded. Please try again later.")
            }
            (Self::GoogleGenerativeAi, Internal) => {
                (500, "INTERNAL", "An internal error has occurred.")
            }
            (Self::GoogleGenerativeAi, Authentication) => {
                (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.")
            }
        }
    }

    /// What the API calls a faulty request of this status.
    pub(super) const fn refusal_code(self, status: u16) -> &'static str {
        match (self, status) {
            (Self::AnthropicMessages, 401) => "authentication_error",
            (Self::AnthropicMessages, _) => "invalid_request_error",
            (Self::OpenaiCompletions | Self::OpenaiResponses, 401) => "invalid_api_key",
            (Self::OpenaiCompletions | Self::OpenaiResponses, _) => "invalid_value",
            (Self::GoogleGenerativeAi, 403) => "PERMISSION_DENIED",
            (Self::GoogleGenerativeAi, _) => "INVALID_ARGUMENT",
        }
    }

    /// The body of a response that is no success.
    pub(super) fn error_body(self, status: u16, code: &str, message: &str) -> Value {
        match self {
            Self::AnthropicMessages => json!({
                "type": "error",
                "error": {"type": code, "message": message},
                "request_id": "req_fake",
            }),
            Self::OpenaiCompletions | Self::OpenaiResponses => {
                let kind = match status {
                    429 if code == "insufficient_quota" => "insufficient_quota",
                    429 => "tokens",
                    500.. => "server_error",
                    _ => "invalid_request_error",
                };
                json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
            }
            Self::GoogleGenerativeAi => {
                json!({"error": {"code": status, "message": message, "status": code}})
            }
        }
    }

    /// An error inside a stream that had begun well.
    pub(super) fn error_event(self, status: u16, code: &str, message: &str) -> Vec<u8> {
        match self {
            Self::AnthropicMessages => named("error", &self.error_body(status, code, message)),
            Self::OpenaiCompletions => unnamed(&self.error_body(status, code, message), "\n"),
            Self::OpenaiResponses => named(
                "error",
                &json!({
                    "type": "error", "sequence_number": 99,
                    "code": code, "message": message, "param": null,
                }),
            ),
            Self::GoogleGenerativeAi => unnamed(&self.error_body(status, code, message), "\r\n"),
        }
    }
}

/// One server-sent event with a name.
pub(super) fn named(name: &str, data: &Value) -> Vec<u8> {
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}

/// One without.
pub(super) fn unnamed(data: &Value, line_end: &str) -> Vec<u8> {
    format!("data: {data}{line_end}{line_end}").into_bytes()
}

/// A list's items; none where it is no list.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A string; empty where it is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Matches `^[a-zA-Z0-9_-]{1,max}$`.
pub(super) fn is_identifier(name: &str, max: usize) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=max).contains(&name.len()) && name.bytes().all(fits)
}

/// The first field of an object that is not in the list.
pub(super) fn unknown_field<'a>(object: &'a Value, known: &[&str]) -> Option<&'a str> {
    object.as_object()?.keys().map(String::as_str).find(|key| !known.contains(key))
}

/// The first name that comes twice.
pub(super) fn duplicate<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = std::collections::HashSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}
