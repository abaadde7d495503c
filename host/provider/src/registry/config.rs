//! What `models.json`, or an extension, says of a provider, and what may be wrong with
//! it. Reading the file is `models_file`'s, laying it over the catalogue `overlay`'s.

use std::collections::BTreeMap;

use reqwest::Url;
use reqwest::header::HeaderName;
use serde::Deserialize;
use serde_json::Value;

use super::catalog;
use crate::api::ApiKind;

/// How `models.json` calls the provider that plays scripts.
pub(super) const SCRIPTED: &str = "scripted";

/// A provider's entry. Of a built-in one, it changes what it names and leaves the rest.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ProviderConfig {
    /// With the API `scripted`, the path of the script.
    pub(super) base_url: Option<String>,
    /// `anthropic-messages`, `openai-completions`, `openai-responses`,
    /// `google-generative-ai` or `scripted`; the default of `models`.
    pub(super) api: Option<String>,
    /// `!command`, the name of an environment variable that is set, or the key.
    pub(super) api_key: Option<String>,
    /// By name; the values are written as `api_key` is.
    pub(super) headers: BTreeMap<String, String>,
    /// The key goes into `Authorization: Bearer` and not into the API's own header.
    pub(super) auth_header: Option<bool>,
    /// Peculiarities of an OpenAI-like server.
    pub(super) compat: Option<Value>,
    /// Added; one with the id of a built-in model takes its place.
    pub(super) models: Vec<ModelConfig>,
    /// Changes of built-in models, by id; unknown ids mean nothing.
    pub(super) model_overrides: BTreeMap<String, ModelSettings>,
}

/// A model that is added.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ModelConfig {
    pub(super) id: String,
    pub(super) settings: ModelSettings,
}

/// What is said of a model; none: the default, or what the built-in model has.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ModelSettings {
    pub(super) name: Option<String>,
    pub(super) api: Option<String>,
    pub(super) reasoning: Option<bool>,
    /// `text`, `image`
    pub(super) input: Option<Vec<String>>,
    /// Tokens.
    pub(super) context_window: Option<u64>,
    /// Tokens of one reply.
    pub(super) max_tokens: Option<u64>,
    pub(super) cost: CostSettings,
    /// Goes over the provider's, key by key.
    pub(super) compat: Option<Value>,
    /// Takes the place of Wharf's system prompt.
    pub(super) system_prompt: Option<String>,
    /// Follows the system prompt.
    pub(super) append_system_prompt: Option<String>,
}

/// US dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CostSettings {
    pub(super) input: Option<f64>,
    pub(super) output: Option<f64>,
    pub(super) cache_read: Option<f64>,
    pub(super) cache_write: Option<f64>,
}

impl ProviderConfig {
    /// Leaves out what only requests to a server need.
    pub(super) fn forget_server(&mut self) {
        let models = std::mem::take(&mut self.models);
        let without = |ModelConfig { id, settings }| ModelConfig {
            id,
            settings: ModelSettings { api: None, compat: None, ..settings },
        };
        *self = Self { models: models.into_iter().map(without).collect(), ..Self::default() };
    }
}

/// Who answers for a provider's models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServedBy {
    /// What `baseUrl` says.
    Url,
    /// The extension that adds it.
    Extension,
}

/// An API's name in a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApiName {
    Http(ApiKind),
    Scripted,
}

pub(super) fn api_name(text: &str) -> Result<ApiName, String> {
    if text == SCRIPTED {
        return Ok(ApiName::Scripted);
    }
    let found = ApiKind::ALL.into_iter().find(|api| api.name() == text);
    found.map(ApiName::Http).ok_or_else(|| {
        let known: Vec<_> = ApiKind::ALL.iter().map(|api| api.name()).collect();
        format!("unknown API {text:?}; there are {} and {SCRIPTED}", known.join(", "))
    })
}

/// Problems with their places, for example `providers.x.models[2].contextWindow: ...`.
#[derive(Debug, Default)]
pub(super) struct Problems(pub(super) Vec<String>);

impl Problems {
    pub(super) fn add(&mut self, place: &str, problem: impl std::fmt::Display) {
        self.0.push(format!("{place}: {problem}"));
    }
}

/// Takes out of `config` what cannot be used. None: nothing of it can.
///
/// `place` is the entry's own; `indices` are those of `config.models` in the file.
pub(super) fn checked(
    (name, place): (&str, &str),
    mut config: ProviderConfig,
    (indices, served): (&[usize], ServedBy),
    problems: &mut Problems,
) -> Option<ProviderConfig> {
    let before = problems.0.len();
    let built_in = catalog::api_of(name);
    let api = match config.api.as_deref().map(api_name).transpose() {
        Ok(api) => api.or(built_in.map(ApiName::Http)),
        Err(problem) => {
            problems.add(&format!("{place}.api"), problem);
            return None;
        }
    };
    let is_scripted = api == Some(ApiName::Scripted);
    match &config.base_url {
        _ if served == ServedBy::Extension => {}
        Some(url) if !is_scripted => {
            if let Err(problem) = checked_url(url) {
                problems.add(&format!("{place}.baseUrl"), problem);
            }
        }
        Some(_) => {}
        None if is_scripted => {
            problems.add(&format!("{place}.baseUrl"), "missing; it is the path of the script");
        }
        None if built_in.is_none() && name != SCRIPTED => {
            problems.add(&format!("{place}.baseUrl"), "missing; it is the server's address");
        }
        None => {}
    }
    if built_in.is_none() && name != SCRIPTED && config.models.is_empty() {
        problems.add(&format!("{place}.models"), "no model; this provider is no built-in one");
    }
    if config.api_key.as_deref().is_some_and(is_blank_source) {
        problems.add(&format!("{place}.apiKey"), "it is empty");
    }
    for (header, value) in &config.headers {
        let place = format!("{place}.headers.{header}");
        if HeaderName::from_bytes(header.as_bytes()).is_err() {
            problems.add(&place, "this is no name of an HTTP header");
        } else if is_blank_source(value) {
            problems.add(&place, "it is empty");
        }
    }
    let provider_api = match api {
        Some(ApiName::Http(api)) => Some(api),
        Some(ApiName::Scripted) | None => None,
    };
    check_compat(&format!("{place}.compat"), provider_api, config.compat.as_ref(), problems);
    if problems.0.len() > before {
        return None;
    }

    let mut position = 0;
    config.models.retain(|model| {
        let before = problems.0.len();
        let index = indices.get(position).copied().unwrap_or(position);
        position += 1;
        let place = format!("{place}.models[{index}]");
        if model.id.trim().is_empty() {
            problems.add(&format!("{place}.id"), "it is empty");
        }
        if served == ServedBy::Url && api.is_none() && model.settings.api.is_none() {
            problems.add(&format!("{place}.api"), "missing here and in the provider's entry");
        }
        check_settings(&place, api, &model.settings, problems);
        problems.0.len() == before
    });
    config.model_overrides.retain(|id, settings| {
        let before = problems.0.len();
        check_settings(&format!("{place}.modelOverrides.{id}"), api, settings, problems);
        problems.0.len() == before
    });
    Some(config)
}

/// What serde complains of, without the value: in the wrong place it may be a key.
pub(super) fn without_value(problem: &impl std::fmt::Display) -> String {
    let problem = problem.to_string();
    let Some((before, rest)) = problem.split_once("string \"") else { return problem };
    match rest.rsplit_once("\", expected") {
        Some((_, after)) => format!("{before}string, expected{after}"),
        None => problem,
    }
}

/// `!` with no command, or nothing at all.
pub(super) fn is_blank_source(text: &str) -> bool {
    text.trim().trim_start_matches('!').trim().is_empty()
}

fn checked_url(text: &str) -> Result<(), String> {
    let url = Url::parse(text).map_err(|error| format!("{text:?} is no address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(format!("{text:?} must begin with http:// or https:// and a host"));
    }
    Ok(())
}

fn check_settings(
    place: &str,
    provider_api: Option<ApiName>,
    settings: &ModelSettings,
    problems: &mut Problems,
) {
    let mut add = |field: &str, problem: String| problems.add(&format!("{place}.{field}"), problem);
    let mut api = provider_api;
    match settings.api.as_deref().map(api_name).transpose() {
        Err(problem) => add("api", problem),
        Ok(None) => {}
        Ok(own) => {
            let is_scripted = |api| api == Some(ApiName::Scripted);
            if provider_api.is_some() && is_scripted(own) != is_scripted(provider_api)
                || provider_api.is_none() && is_scripted(own)
            {
                add("api", format!("{SCRIPTED:?} is an API of whole providers, not of a model"));
            }
            api = own;
        }
    }
    for (field, tokens) in
        [("contextWindow", settings.context_window), ("maxTokens", settings.max_tokens)]
    {
        if tokens == Some(0) {
            add(field, "it must be above 0".to_owned());
        }
    }
    for kind in settings.input.iter().flatten() {
        if kind != "text" && kind != "image" {
            add("input", format!("unknown kind {kind:?}; there are text and image"));
        }
    }
    let CostSettings { input, output, cache_read, cache_write } = settings.cost;
    for (field, price) in [
        ("cost.input", input),
        ("cost.output", output),
        ("cost.cacheRead", cache_read),
        ("cost.cacheWrite", cache_write),
    ] {
        if price.is_some_and(|price| !price.is_finite() || price < 0.0) {
            add(field, "it must be 0 or above".to_owned());
        }
    }
    let api = match api {
        Some(ApiName::Http(api)) => Some(api),
        Some(ApiName::Scripted) | None => None,
    };
    check_compat(&format!("{place}.compat"), api, settings.compat.as_ref(), problems);
}

fn check_compat(
    place: &str,
    api: Option<ApiKind>,
    compat: Option<&Value>,
    problems: &mut Problems,
) {
    let Some(compat) = compat else { return };
    if !compat.is_object() {
        problems.add(place, "it must be an object");
    } else if api == Some(ApiKind::OpenaiCompletions)
        && let Err(problem) = crate::openai_completions::compat::check(compat)
    {
        problems.add(place, problem);
    }
}
