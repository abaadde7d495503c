//! Which key a provider's requests carry, and which models have one.

use wharf_protocol::Model;

use super::Registry;
use super::overlay::ProviderEntry;
use super::watched::Watched;
use crate::auth::KeySource;

impl Registry {
    /// A key for this run; it goes before all others of the provider.
    pub fn set_api_key(&mut self, provider: &str, key: &str) {
        self.given_keys.insert(provider.to_owned(), key.to_owned());
    }

    /// The first one that there is of: the key of this run, `auth.json`, `models.json`, the
    /// provider's own variables. Of a provider that an extension has added: the key of
    /// this run, the extension's own.
    pub(super) fn key(&self, provider: &ProviderEntry) -> KeySource {
        let name = provider.name.as_str();
        if let Some(key) = self.given_keys.get(name) {
            return KeySource::Literal(key.trim().to_owned());
        }
        let file_key = self.file_keys.get(name).filter(|_| provider.owner.is_none());
        if let Some(text) = file_key.or(provider.api_key.as_ref()) {
            return self.source(provider, text);
        }
        // Two keys in one request are refused; the headers were written on purpose.
        if provider.has_key_header() {
            return KeySource::None;
        }
        let variable = |name: &String| KeySource::variable(name, &self.environment);
        if let Some(source) = provider.key_variables.iter().find_map(variable) {
            return source;
        }
        if provider.needs_no_key() { KeySource::None } else { self.missing_key(provider) }
    }

    /// What `text` means in the entry of `provider`.
    pub(super) fn source(&self, provider: &ProviderEntry, text: &str) -> KeySource {
        match provider.owner {
            None => KeySource::from_text(text, &self.environment),
            Some(_) => KeySource::Literal(text.trim().to_owned()),
        }
    }

    fn missing_key(&self, provider: &ProviderEntry) -> KeySource {
        let ProviderEntry { name, key_variables, owner, .. } = provider;
        if let Some(owner) = owner {
            return KeySource::Missing(format!(
                "there is no API key for provider {name}: extension {owner}, which adds it, \
                 gives none (apiKey); give one with --api-key"
            ));
        }
        let shown = |file: &Option<Watched>, name: &str| match file {
            Some(file) => file.path.display().to_string(),
            None => name.to_owned(),
        };
        let auth = shown(&self.auth_file, "auth.json");
        let models = shown(&self.models_file, "models.json");
        let variable = match key_variables.as_slice() {
            [] => String::new(),
            names => format!("set {}, or ", names.join(" or ")),
        };
        KeySource::Missing(format!(
            "there is no API key for provider {name}: {variable}put one into {auth} \
             ({{\"{name}\": {{\"type\": \"api_key\", \"key\": \"...\"}}}}) or into {models} \
             (providers.{name}.apiKey), or give one with --api-key"
        ))
    }

    /// Whether a request has a chance: there is a key, or none is needed. No command is
    /// run to find out.
    pub fn has_credentials(&self, model: &Model) -> bool {
        let Some(provider) = self.entry(&model.provider) else { return false };
        let Some(entry) = provider.model(&model.id) else { return false };
        entry.player.is_some() || !matches!(self.key(provider), KeySource::Missing(_))
    }

    /// What to do where a model has no credentials; none where it has.
    pub fn missing_credentials(&self, model: &Model) -> Option<String> {
        if self.has_credentials(model) {
            return None;
        }
        match self.entry(&model.provider).map(|provider| self.key(provider)) {
            Some(KeySource::Missing(hint)) => Some(hint),
            _ => Some(format!("there is no provider {:?}", model.provider)),
        }
    }

    /// The models that have credentials, in the order of [`Self::models`].
    pub fn available(&self) -> Vec<Model> {
        self.models().iter().filter(|model| self.has_credentials(model)).cloned().collect()
    }
}
