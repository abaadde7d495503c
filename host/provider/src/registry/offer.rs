//! Providers that extensions add at run time. Nothing of the person's goes to their
//! servers unasked: no key from `auth.json`, no environment variable, no command, and no
//! name that means another provider already.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::config::{ApiName, Problems, ServedBy, api_name};
use super::overlay::{Layer, Player};
use super::{Registry, RegistryError, SCRIPTED, catalog, models_file};
use crate::Provider;
use crate::prepare::Prepared;

/// Providers that one extension may add.
const MAX_PROVIDERS: usize = 64;

/// Models that one of them may have.
const MAX_MODELS: usize = 1024;

/// Bytes of its configuration, as JSON.
const MAX_CONFIG: usize = 1024 * 1024;

/// Characters of its name.
const MAX_NAME: usize = 64;

/// A provider that an extension adds.
#[derive(Debug, Clone)]
pub struct OfferedProvider {
    /// Who may change it, and take it back.
    pub owner: String,
    pub name: String,
    /// As in `models.json`. Key and headers are literal; of a provider that has a
    /// `source`, what only an HTTP server needs is left out of account.
    pub config: Map<String, Value>,
    /// Answers for the models. None: the server at `baseUrl` does.
    pub source: Option<Arc<dyn Provider>>,
}

impl Registry {
    /// Adds a provider, or replaces the one of that name that the same owner has added.
    ///
    /// # Errors
    /// The name is another provider's: a built-in one's, one of `models.json`, or one of
    /// another owner. Or the configuration is wrong; then everything that is wrong with it
    /// is named. Nothing changes.
    pub fn add_provider(&mut self, offer: OfferedProvider) -> Result<(), RegistryError> {
        let OfferedProvider { owner, name, config, source } = offer;
        let mut problems = Problems::default();
        self.check_name(&owner, &name, &mut problems);
        if config.get("models").and_then(Value::as_array).is_some_and(|all| all.len() > MAX_MODELS)
        {
            problems.add("models", format!("there are more than {MAX_MODELS}"));
        }
        let config = Value::Object(config);
        if config.to_string().len() > MAX_CONFIG {
            problems.add("config", format!("it has more than {MAX_CONFIG} bytes"));
        }
        let refuse = |problems: Problems| RegistryError::Provider {
            name: name.chars().take(MAX_NAME).collect(),
            problems: problems.0.join("; "),
        };
        if !problems.0.is_empty() {
            return Err(refuse(problems));
        }
        let served = if source.is_some() { ServedBy::Extension } else { ServedBy::Url };
        let config = models_file::entry((&name, &name), config, served, &mut problems);
        if let Some(config) = &config {
            let mut values = config.api_key.iter().chain(config.headers.values());
            if values.any(|text| text.trim_start().starts_with('!')) {
                problems.add("apiKey, headers", "only models.json may name a command");
            }
            let api = config.api.as_deref().map(api_name);
            if api == Some(Ok(ApiName::Scripted)) {
                problems.add("api", "only models.json may name a script");
            }
        }
        let (Some(config), []) = (config, problems.0.as_slice()) else {
            return Err(refuse(problems));
        };
        let player = match source {
            None => Player::Server,
            Some(source) => Player::Extension(Arc::new(Prepared(source))),
        };
        let layer = Layer { config, player, owner: Some(owner) };
        match self.added.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = layer,
            None => self.added.push((name, layer)),
        }
        self.forget_entries();
        Ok(())
    }

    fn check_name(&self, owner: &str, name: &str, problems: &mut Problems) {
        let is_bad = |c: char| c.is_whitespace() || c.is_control() || c == '/';
        if name.is_empty() || name.chars().count() > MAX_NAME || name.contains(is_bad) {
            let text = format!("1 to {MAX_NAME} characters without white space and \"/\"");
            problems.add("name", text);
        }
        // Names that differ only in their case would be taken for each other.
        let is_name = |known: &str| known.to_lowercase() == name.to_lowercase();
        if is_name(SCRIPTED) || catalog::PROVIDERS.iter().any(|(known, _)| is_name(known)) {
            problems.add("name", "a built-in provider has it");
        }
        if self.from_file.iter().any(|(known, _)| is_name(known)) {
            problems.add("name", "a provider of models.json has it");
        }
        let is_own = |layer: &Layer| layer.owner.as_deref() == Some(owner);
        match self.added.iter().find(|(known, _)| is_name(known)) {
            Some((known, layer)) if *known != name || !is_own(layer) => {
                let other = layer.owner.as_deref().unwrap_or_default();
                problems.add("name", format!("extension {other} has added {known:?}"));
            }
            Some(_) => {}
            None if self.added.iter().filter(|(_, layer)| is_own(layer)).count()
                >= MAX_PROVIDERS =>
            {
                problems.add("name", format!("an extension may add {MAX_PROVIDERS} providers"));
            }
            None => {}
        }
    }

    /// Takes back what [`Self::add_provider`] did. False: `owner` has added nothing as
    /// `name`.
    pub fn remove_provider(&mut self, owner: &str, name: &str) -> bool {
        let before = self.added.len();
        self.added.retain(|(known, layer)| known != name || layer.owner.as_deref() != Some(owner));
        self.forget_entries();
        self.added.len() != before
    }
}
