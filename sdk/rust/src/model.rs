//! Models, and the providers that an extension adds.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::fields::{Fields, read};
use crate::{Json, Result};

/// How much a model thinks before it answers. The levels stand in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ThinkingLevel {
    /// Not at all.
    Off,
    /// `minimal`
    Minimal,
    /// `low`
    Low,
    /// `medium`
    Medium,
    /// `high`
    High,
    /// `xhigh`
    XHigh,
    /// A level that this version has no case for. It cannot be set.
    Other,
}

impl ThinkingLevel {
    const NAMED: [(&'static str, Self); 6] = [
        ("off", Self::Off),
        ("minimal", Self::Minimal),
        ("low", Self::Low),
        ("medium", Self::Medium),
        ("high", Self::High),
        ("xhigh", Self::XHigh),
    ];

    /// The level of a name, as [`Notification::AgentStart`](crate::Notification) has
    /// it.
    ///
    /// ```
    /// use wharf_sdk::ThinkingLevel;
    ///
    /// assert_eq!(ThinkingLevel::named("xhigh"), ThinkingLevel::XHigh);
    /// assert_eq!(ThinkingLevel::Low.name(), "low");
    /// assert!(ThinkingLevel::Low < ThinkingLevel::High);
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Self {
        let found = Self::NAMED.iter().find(|(candidate, _)| *candidate == name);
        found.map_or(Self::Other, |(_, level)| *level)
    }

    /// The level's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::NAMED.iter().find(|(_, candidate)| *candidate == self);
        found.map_or("other", |(name, _)| name)
    }
}

/// A model, as [`Agent::model`](crate::Agent::model) and
/// [`Agent::find_models`](crate::Agent::find_models) give it; the JSON text has more.
///
/// ```
/// # use wharf_sdk::{Ctx, Model, Result};
/// fn name(ctx: &Ctx) -> Result<Option<String>> {
///     let Some(model) = ctx.agent().model() else { return Ok(None) };
///     Ok(Some(model.parse::<Model>()?.name))
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Model {
    /// The provider's name.
    pub provider: String,
    /// The id, as the provider knows it.
    pub id: String,
    /// The name for people; the id where there is none.
    pub name: String,
    /// It can think.
    pub reasoning: bool,
    /// Tokens of the context; none where that is not known.
    pub context_window: Option<u64>,
    /// Tokens of a reply; none where that is not known.
    pub max_tokens: Option<u64>,
}

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer, model)
    }
}

fn model(fields: Fields<'_>) -> Result<Model> {
    let id: String = fields.required("id")?;
    Ok(Model {
        provider: fields.required("provider")?,
        name: fields.optional("name")?.unwrap_or_else(|| id.clone()),
        id,
        reasoning: fields.optional("reasoning")?.unwrap_or_default(),
        context_window: fields.optional("contextWindow")?,
        max_tokens: fields.optional("maxTokens")?,
    })
}

/// A provider for [`Agent::register_provider`](crate::Agent::register_provider) and
/// [`Agent::register_streaming_provider`](crate::Agent::register_streaming_provider),
/// as `models.json` has it. The API key and headers are literal here: no `!command`
/// and no variable.
///
/// ```
/// # use wharf_sdk::{Ctx, Result};
/// use wharf_sdk::{ModelConfig, ProviderConfig};
///
/// # async fn started(ctx: &Ctx) -> Result<()> {
/// let config = ProviderConfig::new()
///     .base_url("https://llm.example.org/v1")
///     .api("openai-completions")
///     .api_key(ctx.env("EXAMPLE_KEY").await?.unwrap_or_default())
///     .model(ModelConfig::new("small").name("Small").context_window(200_000));
/// ctx.agent().register_provider("example", config).await
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProviderConfig(Map<String, Value>);

impl ProviderConfig {
    /// A provider without models.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where requests are sent to.
    #[must_use]
    pub fn base_url(self, url: impl Into<String>) -> Self {
        self.with("baseUrl", url.into())
    }

    /// The API: `anthropic-messages`, `openai-completions`, `openai-responses` or
    /// `google-generative-ai`.
    #[must_use]
    pub fn api(self, api: impl Into<String>) -> Self {
        self.with("api", api.into())
    }

    /// The key, literally.
    #[must_use]
    pub fn api_key(self, key: impl Into<String>) -> Self {
        self.with("apiKey", key.into())
    }

    /// Adds a header to each request.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let headers = self.0.entry("headers").or_insert_with(|| Map::new().into());
        if let Value::Object(headers) = headers {
            headers.insert(name.into(), value.into().into());
        }
        self
    }

    /// Adds a model.
    #[must_use]
    pub fn model(mut self, model: ModelConfig) -> Self {
        let models = self.0.entry("models").or_insert_with(|| Vec::<Value>::new().into());
        if let Value::Array(models) = models {
            models.push(model.0.into());
        }
        self
    }

    /// Sets a field that has no method here, for example `compat`.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(field.into(), value.into());
        self
    }
}

impl From<ProviderConfig> for Json {
    fn from(config: ProviderConfig) -> Self {
        Value::Object(config.0).into()
    }
}

/// A model of a [`ProviderConfig`].
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig(Map<String, Value>);

impl ModelConfig {
    /// A model. The id is what the provider calls it.
    pub fn new(id: impl Into<String>) -> Self {
        Self(Map::new()).with("id", id.into())
    }

    /// Its name for people; without it, the id.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        self.with("name", name.into())
    }

    /// It can think.
    #[must_use]
    pub fn reasoning(self) -> Self {
        self.with("reasoning", true)
    }

    /// It can see pictures.
    #[must_use]
    pub fn vision(self) -> Self {
        self.with("input", vec!["text", "image"])
    }

    /// Tokens of its context; without it, 128,000.
    #[must_use]
    pub fn context_window(self, tokens: u64) -> Self {
        self.with("contextWindow", tokens)
    }

    /// Tokens that its reply may have; without it, 16,384.
    #[must_use]
    pub fn max_tokens(self, tokens: u64) -> Self {
        self.with("maxTokens", tokens)
    }

    /// Sets a field that has no method here, for example `cost` or `compat`.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(field.into(), value.into());
        self
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_provider_is_what_models_json_has() {
        let config = ProviderConfig::new()
            .base_url("https://llm.example.org")
            .api("openai-completions")
            .api_key("k")
            .header("a", "1")
            .header("b", "2")
            .model(ModelConfig::new("small"))
            .model(ModelConfig::new("large").name("Large").reasoning().vision().max_tokens(9))
            .with("compat", json!({"supportsStore": false}));
        let expected = json!({
            "baseUrl": "https://llm.example.org",
            "api": "openai-completions",
            "apiKey": "k",
            "headers": {"a": "1", "b": "2"},
            "models": [
                {"id": "small"},
                {"id": "large", "name": "Large", "reasoning": true, "input": ["text", "image"],
                    "maxTokens": 9},
            ],
            "compat": {"supportsStore": false},
        });
        assert_eq!(Json::from(config).value().unwrap(), expected);
    }

    #[test]
    fn a_model_needs_a_provider_and_an_id() {
        let read = |value: Value| Json::from(value).parse::<Model>();
        let model = read(json!({"provider": "p", "id": "m", "contextWindow": 5, "cost": {}}));
        let model = model.unwrap();
        assert_eq!((model.name.as_str(), model.context_window), ("m", Some(5)));
        assert!(!model.reasoning);
        read(json!({"provider": "p"})).unwrap_err();
        read(json!({"id": "m"})).unwrap_err();
    }

    #[test]
    fn each_level_has_a_name_of_its_own() {
        for (name, level) in ThinkingLevel::NAMED {
            assert_eq!(ThinkingLevel::named(name), level);
            assert_eq!(level.name(), name);
        }
        assert_eq!(ThinkingLevel::named("huge"), ThinkingLevel::Other);
    }
}
