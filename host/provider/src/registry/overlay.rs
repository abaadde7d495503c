//! One provider with its models: the catalogue's entry, and what `models.json` and
//! extensions lay over it.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Url;
use serde_json::Value;
use wharf_protocol::Model;
use wharf_protocol::model::ModelCost;

use super::catalog::CatalogProvider;
use super::config::{ApiName, ModelConfig, ModelSettings, ProviderConfig, SCRIPTED, api_name};
use crate::Provider;
use crate::api::ApiKind;

/// What `models.json` says of a model if it says nothing.
const CONTEXT_WINDOW: u64 = 128_000;
const MAX_TOKENS: u64 = 16_384;

/// Headers that carry a key: who sets one needs no other.
const KEY_HEADERS: [&str; 4] = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];

/// What a model's entry says of the system prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromptOverride {
    /// Takes the place of Wharf's own.
    pub system_prompt: Option<Arc<str>>,
    /// Follows the system prompt.
    pub append_system_prompt: Option<Arc<str>>,
}

impl PromptOverride {
    fn set(&mut self, settings: &ModelSettings) {
        if let Some(text) = &settings.system_prompt {
            self.system_prompt = Some(text.as_str().into());
        }
        if let Some(text) = &settings.append_system_prompt {
            self.append_system_prompt = Some(text.as_str().into());
        }
    }
}

/// How [`Model::api`] calls what an extension itself answers.
const EXTENSION: &str = "extension";

/// A configuration that has been checked.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    pub(super) config: ProviderConfig,
    pub(super) player: Player,
    /// The extension that has added it.
    pub(super) owner: Option<String>,
}

/// Who answers for the models that a layer adds.
#[derive(Debug, Clone)]
pub(super) enum Player {
    /// The server at the base URL.
    Server,
    Script(Arc<dyn Provider>),
    Extension(Arc<dyn Provider>),
}

#[derive(Debug)]
pub(super) struct ModelEntry {
    pub(super) model: Model,
    pub(super) prompt: PromptOverride,
    /// Gives the model's replies; none: it is served over HTTP.
    pub(super) player: Option<Arc<dyn Provider>>,
    compat: Option<Value>,
}

#[derive(Debug, Default)]
pub(super) struct ProviderEntry {
    pub(super) name: String,
    pub(super) models: Vec<ModelEntry>,
    /// Where requests go; it may hold a password, which [`Model::base_url`] does not.
    pub(super) base_url: String,
    /// How `models.json`, or an extension, writes the key.
    pub(super) api_key: Option<String>,
    pub(super) key_variables: Vec<String>,
    pub(super) auth_header: bool,
    /// Their names are in lower case.
    pub(super) headers: BTreeMap<String, String>,
    /// The extension that has added it: then keys and headers mean only themselves.
    pub(super) owner: Option<String>,
    api: Option<ApiKind>,
    compat: Option<Value>,
    is_configured: bool,
}

impl ProviderEntry {
    pub(super) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    pub(super) fn of_catalog(provider: &CatalogProvider) -> Self {
        let model = |of: &super::catalog::CatalogModel| Model {
            id: of.id.clone(),
            name: of.name.clone(),
            api: provider.api.name().to_owned(),
            provider: provider.name.clone(),
            base_url: provider.base_url.clone(),
            reasoning: of.reasoning,
            input: of.input.clone(),
            context_window: of.context_window,
            max_tokens: of.max_tokens,
            cost: of.cost,
        };
        Self {
            name: provider.name.clone(),
            models: provider.models.iter().map(|of| ModelEntry::new(model(of), None)).collect(),
            base_url: provider.base_url.clone(),
            key_variables: provider.key_variables.clone(),
            api: Some(provider.api),
            ..Self::default()
        }
    }

    /// Adds a model that a script plays.
    pub(super) fn push_script(&mut self, id: &str, script: &str, player: Arc<dyn Provider>) {
        self.upsert(ModelEntry::new(scripted_model(&self.name, id, script), Some(player)));
    }

    /// Lays a configuration over what there is.
    pub(super) fn apply(&mut self, layer: &Layer) {
        let Layer { config, owner, .. } = layer;
        self.is_configured = true;
        self.owner.clone_from(owner);
        for (id, settings) in &config.model_overrides {
            if let Some(entry) = self.models.iter_mut().find(|entry| entry.model.id == *id) {
                entry.set(settings);
            }
        }
        // A script's path is no address, and none of its provider's other models.
        let api = config.api.as_deref().and_then(|api| api_name(api).ok());
        if api != Some(ApiName::Scripted) {
            if let Some(url) = &config.base_url {
                self.base_url = url.trim_end_matches('/').to_owned();
            }
            if let Some(ApiName::Http(api)) = api {
                self.api = Some(api);
            }
        }
        self.api_key = config.api_key.clone().or(self.api_key.take());
        let headers = config.headers.iter();
        self.headers.extend(headers.map(|(name, value)| (name.to_lowercase(), value.clone())));
        self.auth_header = config.auth_header.unwrap_or(self.auth_header);
        self.compat = merged(self.compat.take(), config.compat.as_ref());
        for model in &config.models {
            let entry = self.added(model, layer);
            self.upsert(entry);
        }
        let shown = without_user_info(&self.base_url);
        for entry in self.models.iter_mut().filter(|entry| entry.player.is_none()) {
            entry.model.base_url.clone_from(&shown);
        }
    }

    fn added(
        &self,
        ModelConfig { id, settings }: &ModelConfig,
        Layer { config, player, owner }: &Layer,
    ) -> ModelEntry {
        let plain = |api: String, base_url: String| Model {
            id: id.clone(),
            name: id.clone(),
            api,
            provider: self.name.clone(),
            base_url,
            reasoning: false,
            input: vec!["text".to_owned()],
            context_window: CONTEXT_WINDOW,
            max_tokens: MAX_TOKENS,
            cost: ModelCost::default(),
        };
        let (defaults, player) = match player {
            Player::Script(script) => {
                let path = config.base_url.as_deref().unwrap_or_default();
                let model = scripted_model(&self.name, id, path);
                (Model { reasoning: false, ..model }, Some(Arc::clone(script)))
            }
            Player::Extension(source) => {
                let owner = owner.as_deref().unwrap_or_default();
                let address = format!("{EXTENSION}:{owner}");
                (plain(EXTENSION.to_owned(), address), Some(Arc::clone(source)))
            }
            Player::Server => {
                let api = self.api.map(|api| api.name().to_owned()).unwrap_or_default();
                (plain(api, self.base_url.clone()), None)
            }
        };
        let mut entry = ModelEntry::new(defaults, player);
        entry.model.context_window = CONTEXT_WINDOW;
        entry.set(settings);
        entry
    }

    fn upsert(&mut self, entry: ModelEntry) {
        match self.models.iter_mut().find(|known| known.model.id == entry.model.id) {
            Some(known) => *known = entry,
            None => self.models.push(entry),
        }
    }

    pub(super) fn model(&self, id: &str) -> Option<&ModelEntry> {
        self.models.iter().find(|entry| entry.model.id == id)
    }

    pub(super) fn compat(&self, entry: &ModelEntry) -> Value {
        merged(self.compat.clone(), entry.compat.as_ref()).unwrap_or_default()
    }

    /// A server of one's own machine, or one whose headers carry the key.
    pub(super) fn needs_no_key(&self) -> bool {
        self.is_configured && is_loopback(&self.base_url)
    }

    /// Whether the headers carry the key.
    pub(super) fn has_key_header(&self) -> bool {
        self.headers.keys().any(|name| KEY_HEADERS.contains(&name.as_str()))
    }
}

impl ModelEntry {
    fn new(model: Model, player: Option<Arc<dyn Provider>>) -> Self {
        Self { model, prompt: PromptOverride::default(), player, compat: None }
    }

    fn set(&mut self, settings: &ModelSettings) {
        let model = &mut self.model;
        let put = |to: &mut String, from: &Option<String>| {
            if let Some(text) = from {
                to.clone_from(text);
            }
        };
        put(&mut model.name, &settings.name);
        put(&mut model.api, &settings.api);
        model.reasoning = settings.reasoning.unwrap_or(model.reasoning);
        if let Some(input) = &settings.input {
            model.input.clone_from(input);
        }
        model.context_window = settings.context_window.unwrap_or(model.context_window);
        model.max_tokens = settings.max_tokens.unwrap_or(model.max_tokens);
        let cost = settings.cost;
        model.cost = ModelCost {
            input: cost.input.unwrap_or(model.cost.input),
            output: cost.output.unwrap_or(model.cost.output),
            cache_read: cost.cache_read.unwrap_or(model.cost.cache_read),
            cache_write: cost.cache_write.unwrap_or(model.cost.cache_write),
        };
        self.compat = merged(self.compat.take(), settings.compat.as_ref());
        self.prompt.set(settings);
    }
}

/// `over` on top of `below`, key by key.
fn merged(below: Option<Value>, over: Option<&Value>) -> Option<Value> {
    match (below, over) {
        (below, None) => below,
        (Some(Value::Object(mut below)), Some(Value::Object(over))) => {
            below.extend(over.clone());
            Some(Value::Object(below))
        }
        (_, Some(over)) => Some(over.clone()),
    }
}

/// An address as clients may see it. Requests go to the one that has the name and the
/// password.
fn without_user_info(base_url: &str) -> String {
    match Url::parse(base_url) {
        Ok(mut url) if !url.username().is_empty() || url.password().is_some() => {
            // Both only fail where an address can have neither.
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.as_str().trim_end_matches('/').to_owned()
        }
        _ => base_url.to_owned(),
    }
}

fn is_loopback(base_url: &str) -> bool {
    let Ok(url) = Url::parse(base_url) else { return false };
    let Some(host) = url.host_str() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

pub(super) fn scripted_model(provider: &str, id: &str, script: &str) -> Model {
    Model {
        id: id.to_owned(),
        name: format!("Scripted replies ({id})"),
        api: SCRIPTED.to_owned(),
        provider: provider.to_owned(),
        base_url: format!("scripted:{script}"),
        reasoning: true,
        input: vec!["text".to_owned(), "image".to_owned()],
        context_window: 200_000,
        max_tokens: MAX_TOKENS,
        cost: ModelCost::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_info_is_taken_out_of_addresses() {
        for (url, expect) in [
            ("https://me:pass@example.com:8443/v1", "https://example.com:8443/v1"),
            ("https://me@example.com", "https://example.com"),
            ("https://:pass@example.com/v1/", "https://example.com/v1"),
            ("https://me:p@ss@example.com/a@b", "https://example.com/a@b"),
            ("https:/me:pass@example.com/v1", "https://example.com/v1"),
            ("https://example.com/a@b", "https://example.com/a@b"),
            ("HTTP://Example.com:80/v1", "HTTP://Example.com:80/v1"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(without_user_info(url), expect, "{url}");
        }
    }

    #[test]
    fn loopback_hosts_are_told_from_others() {
        for (url, expect) in [
            ("http://localhost:11434/v1", true),
            ("http://api.localhost", true),
            ("http://127.3.2.1:1", true),
            ("http://[::1]:8080/v1", true),
            ("http://localhost.example.com", false),
            ("http://192.168.0.2", false),
            ("https://api.openai.com", false),
            ("nothing", false),
        ] {
            assert_eq!(is_loopback(url), expect, "{url}");
        }
    }
}
