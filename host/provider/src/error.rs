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
        let json = parse(body);
        let kind = classify(Some(status), body, named_kind(&json));
        let mut error = Self::new(kind, message.trim_end().to_owned());
        error.retry_after = retry_delay(&json);
        error
    }

    /// An error that came inside a stream that had begun well. `payload` is the JSON of
    /// the error as the server sent it; `code` is its type or code (a name, or a status
    /// as a number).
    pub fn in_stream(code: &str, message: &str, payload: &str) -> Self {
        let text = match (code, message) {
            ("", "") => payload.to_owned(),
            ("", message) => message.to_owned(),
            (code, "") => code.to_owned(),
            (code, message) => format!("{code}: {message}"),
        };
        // Other numbers are a server's own.
        let status = code.parse().ok().filter(|status| (400..600).contains(status));
        let json = parse(payload);
        let named = named_kind(&json).or_else(|| by_name(code));
        let mut error = Self::new(classify(status, payload, named), text);
        error.retry_after = retry_delay(&json);
        error
    }
}

/// The JSON of an error; null where it is none. Google may put it into a list.
fn parse(body: &str) -> Value {
    match serde_json::from_str::<Value>(body).unwrap_or_default() {
        Value::Array(list) => list.into_iter().next().unwrap_or_default(),
        json => json,
    }
}

/// How long to wait, as Google says it: `RetryInfo` among the details, `"12.5s"`.
fn retry_delay(json: &Value) -> Option<Duration> {
    let details = json.pointer("/error/details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail["retryDelay"].as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

/// Types and codes that servers name in their errors.
const BY_NAME: [(&str, ErrorKind); 36] = [
    ("authentication_error", ErrorKind::Authentication),
    ("permission_error", ErrorKind::Authentication),
    ("invalid_api_key", ErrorKind::Authentication),
    ("unauthenticated", ErrorKind::Authentication),
    ("permission_denied", ErrorKind::Authentication),
    ("insufficient_quota", ErrorKind::Quota),
    ("exceeded_current_quota_error", ErrorKind::Quota),
    ("usage_limit_reached", ErrorKind::Quota),
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
    ("engine_overloaded_error", ErrorKind::Overloaded),
    ("server_is_overloaded", ErrorKind::Overloaded),
    ("server_overloaded", ErrorKind::Overloaded),
    ("slow_down", ErrorKind::Overloaded),
    ("unavailable", ErrorKind::Overloaded),
    ("service_unavailable", ErrorKind::Overloaded),
    ("api_error", ErrorKind::Server),
    ("server_error", ErrorKind::Server),
    ("internal_error", ErrorKind::Server),
    ("internal", ErrorKind::Server),
    ("timeout_error", ErrorKind::Server),
    ("deadline_exceeded", ErrorKind::Server),
    ("content_filter", ErrorKind::Refused),
    ("content_policy_violation", ErrorKind::Refused),
    ("invalid_request_error", ErrorKind::InvalidRequest),
    ("invalid_argument", ErrorKind::InvalidRequest),
    ("not_found_error", ErrorKind::InvalidRequest),
];

/// How servers say in words that a conversation is too long. Each stands in the answer
/// of a server that is in use: Anthropic, OpenAI, Google, xAI, Groq, OpenRouter and vLLM,
/// llama.cpp, LM Studio, MiniMax, Kimi, Mistral.
const OVERFLOW: [&str; 15] = [
    "prompt is too long",
    "exceed context limit",
    "exceeds the context window",
    "exceeds the maximum number of tokens",
    "maximum prompt length is",
    "prompt exceeds max length",
    "prompt token count of",
    "reduce the length of the messages",
    "maximum context length",
    "exceeds the available context size",
    "greater than the context length",
    "context window exceeds limit",
    "exceeded model token limit",
    "input is too long",
    "context length exceeded",
];

/// And that there is nothing left to pay with.
const QUOTA: [&str; 4] = [
    "insufficient_quota",
    "credit balance is too low",
    "insufficient balance",
    "key limit exceeded",
];

/// And that the key is none: Google's status for that is 400.
const NO_KEY: [&str; 2] = ["api key not valid", "api_key_invalid"];

/// `named`: what the error's own type or code says.
fn classify(status: Option<u16>, body: &str, named: Option<ErrorKind>) -> ErrorKind {
    let lower = body.to_lowercase();
    let says = |texts: &[&str]| texts.iter().any(|text| lower.contains(text));
    if named == Some(ErrorKind::ContextOverflow)
        || (status.is_none_or(|status| status < 500) && says(&OVERFLOW))
    {
        return ErrorKind::ContextOverflow;
    }
    if says(&QUOTA) {
        return ErrorKind::Quota;
    }
    match status {
        // The driver follows none.
        Some(300..=399) => ErrorKind::InvalidRequest,
        Some(401 | 403) => ErrorKind::Authentication,
        Some(402) => ErrorKind::Quota,
        Some(408) => ErrorKind::Server,
        Some(413) => ErrorKind::ContextOverflow,
        Some(429) => match named {
            Some(kind @ (ErrorKind::Quota | ErrorKind::Overloaded)) => kind,
            _ => ErrorKind::RateLimit,
        },
        Some(503 | 529) => ErrorKind::Overloaded,
        Some(500..) => match named {
            Some(ErrorKind::Overloaded) => ErrorKind::Overloaded,
            _ => ErrorKind::Server,
        },
        Some(400..) if says(&NO_KEY) => ErrorKind::Authentication,
        Some(400..) => {
            named.filter(|kind| !kind.is_transient()).unwrap_or(ErrorKind::InvalidRequest)
        }
        // Inside a stream there is only what the payload says. A failure that nobody
        // names is one of the server's: it had accepted the request.
        Some(_) | None => named.unwrap_or(ErrorKind::Server),
    }
}

/// What the names say that stand in the usual places of an error's JSON, the most
/// precise one first: OpenAI's `type` is `invalid_request_error` for most codes.
fn named_kind(json: &Value) -> Option<ErrorKind> {
    let places = ["/error/code", "/error/type", "/error/status", "/code", "/type", "/status"];
    places.iter().find_map(|place| by_name(json.pointer(place)?.as_str()?))
}

fn by_name(name: &str) -> Option<ErrorKind> {
    let name = name.to_lowercase();
    BY_NAME.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_real_servers() {
        use ErrorKind::{
            Authentication, ContextOverflow, InvalidRequest, Overloaded, Quota, RateLimit, Refused,
            Server,
        };
        for (status, body, expect) in [
            // Anthropic
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213462 tokens > 200000 maximum"},"request_id":"req_1"}"#,
                ContextOverflow,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length or `max_tokens` and try again"}}"#,
                ContextOverflow,
            ),
            (
                413,
                r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
                ContextOverflow,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}"#,
                Quota,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages: at least one message is required"}}"#,
                InvalidRequest,
            ),
            (
                401,
                r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
                Authentication,
            ),
            (
                403,
                r#"{"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission to use the specified resource."}}"#,
                Authentication,
            ),
            (
                404,
                r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-0"}}"#,
                InvalidRequest,
            ),
            (
                429,
                r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 40,000 input tokens per minute"}}"#,
                RateLimit,
            ),
            (
                500,
                r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#,
                Server,
            ),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Overloaded,
            ),
            // OpenAI
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
                ContextOverflow,
            ),
            (
                400,
                r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                ContextOverflow,
            ),
            (
                400,
                r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","param":"input","code":null}}"#,
                ContextOverflow,
            ),
            (
                401,
                r#"{"error":{"message":"Incorrect API key provided: sk-a***b.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
                Authentication,
            ),
            (
                404,
                r#"{"error":{"message":"The model `gpt-0` does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
                InvalidRequest,
            ),
            (
                429,
                r#"{"error":{"message":"Rate limit reached for gpt-5 on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
                RateLimit,
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
                Quota,
            ),
            (
                500,
                r#"{"error":{"message":"The server had an error while processing your request. Sorry about that!","type":"server_error","param":null,"code":null}}"#,
                Server,
            ),
            // Azure
            (
                400,
                r#"{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400}}"#,
                Refused,
            ),
            // Google
            (
                400,
                r#"{"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
                ContextOverflow,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
                Authentication,
            ),
            (
                400,
                r#"[{"error":{"code":400,"message":"Please use a valid role: user, model.","status":"INVALID_ARGUMENT"}}]"#,
                InvalidRequest,
            ),
            (
                403,
                r#"{"error":{"code":403,"message":"Method doesn't allow unregistered callers","status":"PERMISSION_DENIED"}}"#,
                Authentication,
            ),
            (
                429,
                r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED"}}"#,
                RateLimit,
            ),
            (
                500,
                r#"{"error":{"code":500,"message":"An internal error has occurred.","status":"INTERNAL"}}"#,
                Server,
            ),
            (
                503,
                r#"{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}"#,
                Overloaded,
            ),
            // Others that speak OpenAI's API
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#,
                ContextOverflow,
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 32768 tokens. However, you requested 40000 tokens.","type":"BadRequestError","param":null,"code":400}"#,
                ContextOverflow,
            ),
            (
                400,
                r#"{"code":"invalid-argument","error":"This model's maximum prompt length is 131072 but the request contains 150000 tokens."}"#,
                ContextOverflow,
            ),
            (
                400,
                r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#,
                ContextOverflow,
            ),
            (
                400,
                r#"{"error":"The number of tokens to keep from the initial prompt is greater than the context length."}"#,
                ContextOverflow,
            ),
            (402, r#"{"error":{"message":"Insufficient credits","code":402}}"#, Quota),
            (403, r#"{"error":{"message":"Key limit exceeded (total limit).","code":403}}"#, Quota),
            (
                429,
                r#"{"error":{"message":"Your account is suspended, please check your plan and billing details","type":"exceeded_current_quota_error"}}"#,
                Quota,
            ),
            (
                429,
                r#"{"error":{"message":"The engine is currently overloaded, please try again later","type":"engine_overloaded_error"}}"#,
                Overloaded,
            ),
            (500, r#"{"error":{"message":"Overloaded","type":"overloaded_error"}}"#, Overloaded),
            // Proxies on the way
            (408, "", Server),
            (413, "<html><title>413 Request Entity Too Large</title></html>", ContextOverflow),
            (502, "<html><title>502 Bad Gateway</title></html>", Server),
            (503, "upstream connect error or disconnect/reset before headers", Overloaded),
            (524, "error code: 524", Server),
            (307, "", InvalidRequest),
            (404, "404 page not found", InvalidRequest),
            (400, "", InvalidRequest),
        ] {
            let error = ProviderError::status(status, body);
            assert_eq!(error.kind, expect, "{status} {body}");
            assert_eq!(error.message, format!("{status} {body}").trim_end());
        }
    }

    #[test]
    fn errors_inside_a_stream() {
        let check = |(code, message, payload), kind: ErrorKind, text: &str| {
            let error = ProviderError::in_stream(code, message, payload);
            assert_eq!((error.kind, error.message.as_str()), (kind, text), "{payload}");
        };
        check(
            (
                "overloaded_error",
                "Overloaded",
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ),
            ErrorKind::Overloaded,
            "overloaded_error: Overloaded",
        );
        // The most precise name counts, wherever it stands.
        check(
            (
                "",
                "slower, please",
                r#"{"error":{"type":"invalid_request_error","code":"rate_limit_exceeded"}}"#,
            ),
            ErrorKind::RateLimit,
            "slower, please",
        );
        check(("rate_limit_exceeded", "", "{}"), ErrorKind::RateLimit, "rate_limit_exceeded");
        check(("503", "later", r#"{"error":{"code":503}}"#), ErrorKind::Overloaded, "503: later");
        check(("401", "no", r#"{"error":{"code":401}}"#), ErrorKind::Authentication, "401: no");
        check(
            (
                "invalid_request_error",
                "prompt is too long: 2 > 1",
                r#"{"error":{"message":"prompt is too long: 2 > 1"}}"#,
            ),
            ErrorKind::ContextOverflow,
            "invalid_request_error: prompt is too long: 2 > 1",
        );
        // Numbers that are no status, and failures that nobody names.
        check(("1234", "hm", "{}"), ErrorKind::Server, "1234: hm");
        check(("20", "hm", "{}"), ErrorKind::Server, "20: hm");
        check(("", "", "no JSON"), ErrorKind::Server, "no JSON");
    }

    #[test]
    fn google_says_in_the_body_how_long_to_wait() {
        for (delay, expect) in [
            ("\"19s\"", Some(Duration::from_secs(19))),
            ("\"0.5s\"", Some(Duration::from_millis(500))),
            ("\"-1s\"", None),
            ("\"soon\"", None),
            ("5", None),
        ] {
            let body = format!(
                r#"{{"error":{{"code":429,"details":[{{"@type":"type.googleapis.com/google.rpc.Help"}},{{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":{delay}}}]}}}}"#
            );
            assert_eq!(ProviderError::status(429, &body).retry_after, expect, "{delay}");
            assert_eq!(ProviderError::in_stream("429", "", &body).retry_after, expect, "{delay}");
        }
    }

    #[test]
    fn a_long_body_is_cut_between_characters() {
        let body = format!("x{}", "\u{e9}".repeat(MAX_BODY_BYTES));
        let error = ProviderError::status(500, &body);
        assert_eq!(error.message.len(), "500 ".len() + MAX_BODY_BYTES - 1);
        assert!(body.starts_with(error.message.strip_prefix("500 ").unwrap_or("?")));
    }

    #[test]
    fn names_are_known_once() {
        for (at, (name, _)) in BY_NAME.iter().enumerate() {
            assert_eq!(name.to_lowercase(), *name);
            assert!(BY_NAME[..at].iter().all(|(other, _)| other != name), "{name}");
        }
    }
}
