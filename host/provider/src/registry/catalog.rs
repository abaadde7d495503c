//! The built-in providers and their models. The figures are data: `catalog.json`, which
//! names where they come from. It is parsed when somebody first asks for them: a run
//! that plays a script must not pay for it.

use serde::Deserialize;
use wharf_protocol::model::ModelCost;

use crate::api::ApiKind;

const TEXT: &str = include_str!("catalog.json");

/// The built-in providers in the catalogue's order, and their APIs.
pub(super) const PROVIDERS: [(&str, ApiKind); 9] = [
    ("anthropic", ApiKind::AnthropicMessages),
    ("openai", ApiKind::OpenaiResponses),
    ("google", ApiKind::GoogleGenerativeAi),
    ("openrouter", ApiKind::OpenaiCompletions),
    ("groq", ApiKind::OpenaiCompletions),
    ("xai", ApiKind::OpenaiCompletions),
    ("mistral", ApiKind::OpenaiCompletions),
    ("deepseek", ApiKind::OpenaiCompletions),
    ("cerebras", ApiKind::OpenaiCompletions),
];

/// The API of a built-in provider; none: `name` is no such provider.
pub(super) fn api_of(name: &str) -> Option<ApiKind> {
    PROVIDERS.iter().find(|(known, _)| *known == name).map(|(_, api)| *api)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Catalog {
    pub(super) providers: Vec<CatalogProvider>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CatalogProvider {
    pub(super) name: String,
    pub(super) base_url: String,
    pub(super) api: ApiKind,
    /// Environment variables that may hold the key; the first that is set counts.
    pub(super) key_variables: Vec<String>,
    pub(super) models: Vec<CatalogModel>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CatalogModel {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) reasoning: bool,
    pub(super) input: Vec<String>,
    /// Tokens.
    pub(super) context_window: u64,
    /// Tokens of one reply.
    pub(super) max_tokens: u64,
    pub(super) cost: ModelCost,
}

impl Catalog {
    pub(super) fn parse() -> Self {
        // A test parses the text; here a fault would only mean an empty catalogue.
        serde_json::from_str(TEXT).unwrap_or_default()
    }

    pub(super) fn provider(&self, name: &str) -> Option<&CatalogProvider> {
        self.providers.iter().find(|provider| provider.name == name)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::collections::HashSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_catalogue_is_sound() {
        let json: Value = serde_json::from_str(TEXT).unwrap();
        assert!(json["source"].as_str().is_some_and(|source| source.len() > 40));
        let date = json["date"].as_str().unwrap();
        assert_eq!((date.len(), date.matches('-').count()), (10, 2), "{date}");

        let catalog: Catalog = serde_json::from_str(TEXT).unwrap();
        let named: Vec<_> = catalog.providers.iter().map(|p| (p.name.as_str(), p.api)).collect();
        assert_eq!(named, PROVIDERS);
        let mut variables = HashSet::new();
        for provider in &catalog.providers {
            let name = &provider.name;
            let url = reqwest::Url::parse(&provider.base_url).unwrap();
            assert_eq!(url.scheme(), "https", "{name}");
            assert!(!provider.base_url.ends_with('/'), "{name}");
            assert!(!provider.key_variables.is_empty(), "{name}");
            // A variable of two providers would send one's key to the other.
            assert!(provider.key_variables.iter().all(|v| variables.insert(v.clone())), "{name}");
            assert!(!provider.models.is_empty(), "{name}");
            let mut ids = HashSet::new();
            for model in &provider.models {
                let id = &model.id;
                assert!(!id.is_empty() && !model.name.is_empty(), "{name}/{id}");
                assert!(ids.insert(id.to_lowercase()), "{name}/{id} stands twice");
                assert!(model.input.contains(&"text".to_owned()), "{name}/{id}");
                assert!(model.input.iter().all(|kind| kind == "text" || kind == "image"));
                assert!((8_000..=10_000_000).contains(&model.context_window), "{name}/{id}");
                assert!((1_000..=model.context_window).contains(&model.max_tokens), "{name}/{id}");
                let ModelCost { input, output, cache_read, cache_write } = model.cost;
                assert!(0.0 < input && input <= output && output < 1000.0, "{name}/{id}");
                assert!((0.0..input).contains(&cache_read), "{name}/{id}");
                assert!((0.0..=2.0 * input).contains(&cache_write), "{name}/{id}");
            }
        }
    }

    #[test]
    fn every_entry_states_its_price() {
        let json: Value = serde_json::from_str(TEXT).unwrap();
        for provider in json["providers"].as_array().unwrap() {
            for model in provider["models"].as_array().unwrap() {
                for price in ["input", "output", "cacheRead", "cacheWrite"] {
                    assert!(model["cost"][price].is_number(), "{}: {price}", model["id"]);
                }
            }
        }
    }
}
