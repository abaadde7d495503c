//! One chunk of a response as the servers send it, read leniently: a field of a shape
//! that nobody expects is as good as none.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use wharf_protocol::Usage;

use crate::{ProviderError, tokens};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk {
    #[serde(deserialize_with = "lenient")]
    choices: Option<Vec<Choice>>,
    #[serde(deserialize_with = "tokens::lenient_object")]
    pub(super) usage: Option<ServerUsage>,
    /// Groq
    #[serde(deserialize_with = "lenient")]
    pub(super) x_groq: Option<Groq>,
    error: Value,
    /// vLLM has had errors without `error`, and says so here.
    #[serde(deserialize_with = "lenient")]
    object: Option<String>,
    code: Value,
    #[serde(deserialize_with = "lenient")]
    message: Option<String>,
    #[serde(rename = "type", deserialize_with = "lenient")]
    kind: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Groq {
    #[serde(deserialize_with = "tokens::lenient_object")]
    pub(super) usage: Option<ServerUsage>,
    #[serde(deserialize_with = "lenient")]
    error: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    /// None is 0.
    #[serde(deserialize_with = "lenient")]
    index: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(super) delta: Option<Delta>,
    #[serde(deserialize_with = "lenient")]
    pub(super) finish_reason: Option<String>,
    /// Moonshot
    #[serde(deserialize_with = "tokens::lenient_object")]
    pub(super) usage: Option<ServerUsage>,
    /// OpenRouter
    error: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta {
    /// A string; a list of parts with Mistral.
    pub(super) content: Value,
    #[serde(deserialize_with = "lenient")]
    pub(super) refusal: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) reasoning_content: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) reasoning: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) reasoning_text: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) reasoning_details: Option<Vec<Value>>,
    #[serde(deserialize_with = "lenient")]
    pub(super) tool_calls: Option<Vec<CallDelta>>,
    /// What calls were before there were `tool_calls`.
    #[serde(deserialize_with = "lenient")]
    pub(super) function_call: Option<FunctionDelta>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallDelta {
    #[serde(deserialize_with = "lenient")]
    pub(super) index: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(super) id: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(super) function: Option<FunctionDelta>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionDelta {
    #[serde(deserialize_with = "lenient")]
    pub(super) name: Option<String>,
    /// JSON text, or a piece of it; some servers send the object itself.
    pub(super) arguments: Value,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServerUsage {
    #[serde(deserialize_with = "tokens::lenient")]
    prompt_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens::lenient")]
    completion_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens::lenient")]
    total_tokens: Option<u64>,
    #[serde(deserialize_with = "tokens::lenient_object")]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(deserialize_with = "tokens::lenient_object")]
    completion_tokens_details: Option<CompletionDetails>,
    /// DeepSeek
    #[serde(deserialize_with = "tokens::lenient")]
    prompt_cache_hit_tokens: Option<u64>,
    /// Moonshot
    #[serde(deserialize_with = "tokens::lenient")]
    cached_tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    #[serde(deserialize_with = "tokens::lenient")]
    cached_tokens: Option<u64>,
    /// OpenRouter
    #[serde(deserialize_with = "tokens::lenient")]
    cache_write_tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    #[serde(deserialize_with = "tokens::lenient")]
    reasoning_tokens: Option<u64>,
}

fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    input: D,
) -> Result<Option<T>, D::Error> {
    Ok(T::deserialize(Value::deserialize(input)?).ok())
}

impl From<ServerUsage> for Usage {
    fn from(usage: ServerUsage) -> Self {
        let prompt = usage.prompt_tokens.unwrap_or_default();
        let details = usage.prompt_tokens_details.unwrap_or_default();
        let cached = [details.cached_tokens, usage.prompt_cache_hit_tokens, usage.cached_tokens];
        let cache_read = cached.into_iter().flatten().max().unwrap_or_default().min(prompt);
        let cache_write = details.cache_write_tokens.unwrap_or_default().min(prompt - cache_read);
        let mut output = usage.completion_tokens.unwrap_or_default();
        let thinking = usage
            .completion_tokens_details
            .unwrap_or_default()
            .reasoning_tokens
            .unwrap_or_default();
        // xAI counts thinking beside the completion; only the total tells.
        let with_thinking = output.saturating_add(thinking);
        if usage.total_tokens.is_some_and(|total| total >= prompt.saturating_add(with_thinking)) {
            output = with_thinking;
        }
        tokens::with_total(Self {
            input: prompt - cache_read - cache_write,
            output,
            cache_read,
            cache_write,
            ..Self::default()
        })
    }
}

impl Choice {
    fn is_first(&self) -> bool {
        self.index.unwrap_or_default() == 0
    }
}

impl Chunk {
    /// The first choice: no more than that one is asked for. A server that makes others
    /// all the same may send them in any order.
    pub(super) fn into_choice(self) -> Option<Choice> {
        self.choices.into_iter().flatten().find(Choice::is_first)
    }

    /// The error that the chunk reports, if any. `named`: the event was called `error`.
    pub(super) fn error(&self, named: bool, payload: &str) -> Option<ProviderError> {
        let choices = self.choices.iter().flatten().filter(|choice| choice.is_first());
        let inner = choices.map(|choice| &choice.error);
        let mut places = std::iter::once(&self.error).chain(inner);
        if let Some(error) = places.find(|error| says_something(error)) {
            let text = error.as_str().or_else(|| error["message"].as_str()).unwrap_or_default();
            // OpenRouter: what the server behind it has said.
            let text = match error["metadata"]["raw"].as_str() {
                Some(raw) => format!("{text}: {}", excerpt(raw)),
                None => text.to_owned(),
            };
            let outer = error.is_string();
            let code = code(if outer { &self.code } else { &error["code"] })
                .or_else(|| code(&error["type"]))
                .unwrap_or_default();
            return Some(ProviderError::in_stream(&code, &text, payload));
        }
        if let Some(text) = self.x_groq.as_ref().and_then(|groq| groq.error.as_deref()) {
            return Some(ProviderError::in_stream("", text, payload));
        }
        if named || self.object.as_deref() == Some("error") {
            let code = code(&self.code).or_else(|| self.kind.clone()).unwrap_or_default();
            let text = self.message.as_deref().unwrap_or_default();
            return Some(ProviderError::in_stream(&code, text, payload));
        }
        None
    }
}

fn says_something(error: &Value) -> bool {
    match error {
        Value::Object(fields) => !fields.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => false,
    }
}

/// A code that says something to whoever classifies: a name, or an HTTP status. Numbers
/// of a server's own are left to the text.
fn code(code: &Value) -> Option<String> {
    let text = match code {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    match text.parse::<u64>() {
        Ok(number) => (100..600).contains(&number).then_some(text),
        Err(_) => Some(text).filter(|text| !text.is_empty()),
    }
}

/// Characters of a server's data that an error's text carries.
const EXCERPT: usize = 300;

/// The beginning of what a server sent.
pub(super) fn excerpt(text: &str) -> String {
    let mut excerpt: String = text.trim().chars().take(EXCERPT).collect();
    if excerpt.len() < text.trim().len() {
        excerpt.push_str("...");
    }
    excerpt
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn usage_of_every_server() {
        // (JSON, input, output, cacheRead, cacheWrite)
        for (text, expect) in [
            (r#"{}"#, [0, 0, 0, 0]),
            (r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}"#, [10, 5, 0, 0]),
            (
                r#"{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,"prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":{"reasoning_tokens":40}}"#,
                [36, 50, 64, 0],
            ),
            // DeepSeek
            (
                r#"{"prompt_tokens":100,"completion_tokens":5,"prompt_cache_hit_tokens":60,"prompt_cache_miss_tokens":40,"prompt_tokens_details":{"cached_tokens":60}}"#,
                [40, 5, 60, 0],
            ),
            // Moonshot
            (r#"{"prompt_tokens":100,"completion_tokens":5,"cached_tokens":10}"#, [90, 5, 10, 0]),
            // OpenRouter
            (
                r#"{"prompt_tokens":100,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":10,"cache_write_tokens":80}}"#,
                [10, 5, 10, 80],
            ),
            // xAI
            (
                r#"{"prompt_tokens":20,"completion_tokens":5,"total_tokens":125,"completion_tokens_details":{"reasoning_tokens":100}}"#,
                [20, 105, 0, 0],
            ),
            // Floats, and lists for objects.
            (
                r#"{"prompt_tokens":100.4,"completion_tokens":4.5,"total_tokens":105.0,"prompt_tokens_details":{"cached_tokens":63.9},"completion_tokens_details":[40]}"#,
                [36, 5, 64, 0],
            ),
            (
                r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":[4,3]}"#,
                [10, 5, 0, 0],
            ),
            // What cannot be.
            (
                r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":64,"cache_write_tokens":9}}"#,
                [0, 5, 10, 0],
            ),
            (
                r#"{"prompt_tokens":"many","completion_tokens":5,"prompt_tokens_details":null}"#,
                [0, 5, 0, 0],
            ),
            (
                r#"{"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615}"#,
                [u64::MAX, u64::MAX, 0, 0],
            ),
        ] {
            let usage: Usage = serde_json::from_str::<ServerUsage>(text).unwrap().into();
            let seen = [usage.input, usage.output, usage.cache_read, usage.cache_write];
            assert_eq!(seen, expect, "{text}");
            let sum = expect.into_iter().fold(0, u64::saturating_add);
            assert_eq!(usage.total_tokens, sum, "{text}");
        }
    }

    #[test]
    fn errors_of_every_server() {
        for (named, text, kind, message) in [
            (
                false,
                r#"{"error":{"message":"Slow down","type":"rate_limit_error","code":null}}"#,
                ErrorKind::RateLimit,
                "rate_limit_error: Slow down",
            ),
            (
                false,
                r#"{"error":{"message":"Down","type":"server_error","code":"rate_limit_exceeded"}}"#,
                ErrorKind::RateLimit,
                "rate_limit_exceeded: Down",
            ),
            (
                false,
                r#"{"error":{"code":429,"message":"Rate limited"}}"#,
                ErrorKind::RateLimit,
                "429: Rate limited",
            ),
            (
                false,
                r#"{"error":{"code":"502","message":"Bad"},"choices":[]}"#,
                ErrorKind::Server,
                "502: Bad",
            ),
            (
                false,
                r#"{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}"#,
                ErrorKind::ContextOverflow,
                "400: too long",
            ),
            (
                false,
                r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","error":{"code":503,"message":"Provider returned error","metadata":{"raw":"no room","provider_name":"X"}}}]}"#,
                ErrorKind::Overloaded,
                "503: Provider returned error: no room",
            ),
            // A code that is no HTTP status.
            (
                false,
                r#"{"error":{"code":"1302","message":"Too fast","type":"too_many_requests"}}"#,
                ErrorKind::RateLimit,
                "too_many_requests: Too fast",
            ),
            (false, r#"{"error":{"code":"1113","message":"x"}}"#, ErrorKind::Server, "x"),
            // xAI, Ollama
            (
                false,
                r#"{"code":"invalid-argument","error":"Model not found"}"#,
                ErrorKind::Server,
                "invalid-argument: Model not found",
            ),
            (
                false,
                r#"{"error":"model runner has stopped"}"#,
                ErrorKind::Server,
                "model runner has stopped",
            ),
            // vLLM
            (
                false,
                r#"{"object":"error","message":"bad","type":"BadRequestError","code":400}"#,
                ErrorKind::InvalidRequest,
                "400: bad",
            ),
            (true, r#"{"message":"bad"}"#, ErrorKind::Server, "bad"),
            (true, r#"{}"#, ErrorKind::Server, "{}"),
            // Groq
            (
                false,
                r#"{"choices":[],"x_groq":{"error":"over capacity"}}"#,
                ErrorKind::Server,
                "over capacity",
            ),
        ] {
            let chunk: Chunk = serde_json::from_str(text).unwrap();
            let error = chunk.error(named, text).unwrap();
            assert_eq!((error.kind, error.message.as_str()), (kind, message), "{text}");
        }
        for text in [
            r#"{"choices":[{"delta":{"content":"a"},"error":null}],"error":null}"#,
            r#"{"choices":[],"error":{}}"#,
            r#"{"choices":null,"message":"fine"}"#,
        ] {
            let chunk: Chunk = serde_json::from_str(text).unwrap();
            assert_eq!(chunk.error(false, text), None, "{text}");
        }
    }
}
