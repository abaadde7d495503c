//! Which models there are and who answers for each. The figures are `catalog`'s, how a
//! pattern chooses a model is `matching`'s, which key a provider gets is `keys`', what
//! extensions may add is `offer`'s.

mod auth_file;
mod catalog;
mod config;
mod keys;
mod matching;
mod models_file;
mod offer;
mod overlay;
#[cfg(test)]
mod tests;
mod watched;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use wharf_protocol::{Model, ThinkingLevel};

use self::catalog::Catalog;
use self::config::{ApiName, ProviderConfig, SCRIPTED};
use self::overlay::{Layer, Player, ProviderEntry};
use self::watched::Watched;
use crate::Provider;
use crate::api::ApiKind;
use crate::auth::Environment;
use crate::http::HttpProvider;
use crate::scripted::{self, DemoProvider, ScriptedProvider};

pub use self::offer::OfferedProvider;
pub use self::overlay::PromptOverride;

/// The id of the model that plays the embedded script.
const DEMO_ID: &str = "demo";

/// A choice of a model, or a provider, that cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error("no model matches {pattern:?}; {hint}")]
    NoMatch { pattern: String, hint: String },
    #[error("there is no provider {name:?}; there are {known}")]
    UnknownProvider { name: String, known: String },
    #[error("{pattern:?} matches several models: {matches}; name one of them")]
    Ambiguous { pattern: String, matches: String },
    #[error("provider {name:?} cannot be added: {problems}")]
    Provider { name: String, problems: String },
    #[error(transparent)]
    Script(#[from] scripted::ScriptError),
}

/// A part of a file that is not used, or a file that should be different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub path: PathBuf,
    /// Begins with the place in the file where there is one.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.message)
    }
}

/// A model, and what its pattern said besides.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelChoice {
    pub model: Model,
    /// `pattern:high`
    pub thinking_level: Option<ThinkingLevel>,
    /// What a person should know of how the choice was made.
    pub warning: Option<String>,
}

/// The models of this run and the provider of each.
pub struct Registry {
    environment: Environment,
    catalog: OnceLock<Catalog>,
    /// Models of the provider `scripted`: ids, and who plays them.
    scripts: Vec<(String, Arc<dyn Provider>)>,
    models_file: Option<Watched>,
    from_file: Vec<(String, Layer)>,
    /// The scripts that `models.json` names. A script's state outlives a reading.
    file_scripts: HashMap<PathBuf, Arc<ScriptedProvider>>,
    auth_file: Option<Watched>,
    file_keys: HashMap<String, String>,
    /// Added by extensions. One whose name `models.json` has got since is not there.
    added: Vec<(String, Layer)>,
    given_keys: HashMap<String, String>,
    /// In the order of listings; an entry is put together when it is first asked for.
    providers: OnceLock<Vec<(String, OnceLock<ProviderEntry>)>>,
    models: OnceLock<Vec<Model>>,
}

impl fmt::Debug for Registry {
    /// Without keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.provider_names().collect();
        f.debug_struct("Registry").field("providers", &names).finish_non_exhaustive()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

impl Registry {
    /// The built-in models: those of the catalogue, and `scripted/demo`, which plays the
    /// embedded script.
    pub fn builtin() -> Self {
        Self::with_environment(|name| std::env::var(name).ok())
    }

    /// The same, with another way to look up environment variables.
    pub fn with_environment(
        environment: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            environment: Arc::new(environment),
            catalog: OnceLock::new(),
            scripts: vec![(DEMO_ID.to_owned(), Arc::new(DemoProvider::default()))],
            models_file: None,
            from_file: Vec::new(),
            file_scripts: HashMap::new(),
            auth_file: None,
            file_keys: HashMap::new(),
            added: Vec::new(),
            given_keys: HashMap::new(),
            providers: OnceLock::new(),
            models: OnceLock::new(),
        }
    }

    /// Adds the providers of `models.json` and remembers its path for
    /// [`Self::reload`]. A file that is not there adds nothing; of a broken one, what is
    /// sound is used.
    pub fn load_models_file(&mut self, path: &Path) -> Vec<Problem> {
        self.models_file = Some(Watched::new(path));
        self.read_models_file()
    }

    /// Takes the keys of `auth.json` and remembers its path for [`Self::reload`].
    pub fn load_auth_file(&mut self, path: &Path) -> Vec<Problem> {
        self.auth_file = Some(Watched::new(path));
        self.read_auth_file()
    }

    /// Reads the files again that have changed. What was added at run time stays.
    pub fn reload(&mut self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.models_file.as_ref().is_some_and(Watched::has_changed) {
            problems = self.read_models_file();
        }
        if self.auth_file.as_ref().is_some_and(Watched::has_changed) {
            problems.append(&mut self.read_auth_file());
        }
        problems
    }

    fn read_models_file(&mut self) -> Vec<Problem> {
        let Some(file) = &mut self.models_file else { return Vec::new() };
        file.note();
        let path = file.path.clone();
        let (entries, mut problems) = models_file::read(&path);
        self.from_file.clear();
        for (name, config) in entries {
            let player = match is_scripted(&config) {
                false => Player::Server,
                true => match self.file_script(&path, &config) {
                    Ok(script) => Player::Script(script),
                    Err(problem) => {
                        problems.push(format!("providers.{name}.baseUrl: {problem}"));
                        // The file may be right as it is once the script is there.
                        self.models_file.as_mut().into_iter().for_each(Watched::forget);
                        continue;
                    }
                },
            };
            self.from_file.push((name, Layer { config, player, owner: None }));
        }
        self.forget_entries();
        self::problems(&path, problems)
    }

    fn file_script(
        &mut self,
        models_file: &Path,
        config: &ProviderConfig,
    ) -> Result<Arc<dyn Provider>, scripted::ScriptError> {
        let path = config.base_url.as_deref().unwrap_or_default();
        let path = models_file.parent().unwrap_or(Path::new(".")).join(path);
        if let Some(script) = self.file_scripts.get(&path) {
            return Ok(Arc::clone(script) as _);
        }
        let script = Arc::new(ScriptedProvider::load(&path)?);
        self.file_scripts.insert(path, Arc::clone(&script));
        Ok(script)
    }

    fn read_auth_file(&mut self) -> Vec<Problem> {
        let Some(file) = &mut self.auth_file else { return Vec::new() };
        file.note();
        let (keys, problems) = auth_file::read(&file.path);
        self.file_keys = keys;
        self::problems(&file.path, problems)
    }

    fn forget_entries(&mut self) {
        self.providers.take();
        self.models.take();
    }

    fn slots(&self) -> &[(String, OnceLock<ProviderEntry>)] {
        self.providers.get_or_init(|| {
            let mut names = vec![SCRIPTED];
            names.extend(catalog::PROVIDERS.iter().map(|(name, _)| *name));
            for (name, _) in self.from_file.iter().chain(&self.added) {
                if !names.contains(&name.as_str()) {
                    names.push(name);
                }
            }
            names.into_iter().map(|name| (name.to_owned(), OnceLock::new())).collect()
        })
    }

    /// In the order of listings.
    pub fn provider_names(&self) -> impl Iterator<Item = &str> {
        self.slots().iter().map(|(name, _)| name.as_str())
    }

    fn entry(&self, provider: &str) -> Option<&ProviderEntry> {
        let (name, entry) = self.slots().iter().find(|(name, _)| name == provider)?;
        Some(entry.get_or_init(|| self.put_together(name)))
    }

    fn put_together(&self, name: &str) -> ProviderEntry {
        let mut entry = ProviderEntry::named(name);
        if name == SCRIPTED {
            for (id, script) in &self.scripts {
                let shown = if id == DEMO_ID { scripted::DEMO_NAME } else { id };
                entry.push_script(id, shown, Arc::clone(script));
            }
        } else if catalog::api_of(name).is_some()
            && let Some(provider) = self.catalog.get_or_init(Catalog::parse).provider(name)
        {
            entry = ProviderEntry::of_catalog(provider);
        }
        // A server of an extension never gets the key of a provider that is the person's.
        let layers = if self.from_file.iter().any(|(of, _)| of == name) {
            &self.from_file
        } else {
            &self.added
        };
        for (_, layer) in layers.iter().filter(|(of, _)| of == name) {
            entry.apply(layer);
        }
        entry
    }

    /// All models, those of the catalogue first; they need not have a key.
    pub fn models(&self) -> &[Model] {
        self.models.get_or_init(|| {
            let entries = self.provider_names().filter_map(|name| self.entry(name));
            entries.flat_map(|entry| entry.models.iter().map(|of| of.model.clone())).collect()
        })
    }

    pub fn find(&self, provider: &str, id: &str) -> Option<&Model> {
        self.entry(provider)?.model(id).map(|entry| &entry.model)
    }

    /// The model that a session names: one of the list, or a script of its own.
    ///
    /// # Errors
    /// There is no such model any more, or its script cannot be read.
    pub fn restore(&mut self, provider: &str, id: &str) -> Result<Model, RegistryError> {
        self.add_script(provider, id)?;
        match self.find(provider, id) {
            Some(model) => Ok(model.clone()),
            None => Err(self.no_match(None, &format!("{provider}/{id}"))),
        }
    }

    /// Makes a model of the script at the path `id`, where these are that.
    fn add_script(&mut self, provider: &str, id: &str) -> Result<(), RegistryError> {
        if provider == SCRIPTED && id.ends_with(".jsonl") && self.find(SCRIPTED, id).is_none() {
            let script = Arc::new(ScriptedProvider::load(Path::new(id))?);
            self.scripts.push((id.to_owned(), script));
            self.forget_entries();
        }
        Ok(())
    }

    /// Who answers for `model`. Its key is looked for now, and read when a request
    /// needs it.
    pub fn provider(&self, model: &Model) -> Option<Arc<dyn Provider>> {
        let provider = self.entry(&model.provider)?;
        let entry = provider.model(&model.id)?;
        if let Some(player) = &entry.player {
            return Some(Arc::clone(player));
        }
        let api = ApiKind::ALL.into_iter().find(|api| api.name() == entry.model.api)?;
        let source = |text: &str| self.source(provider, text);
        Some(Arc::new(HttpProvider {
            api,
            provider: provider.name.clone(),
            base_url: provider.base_url.clone(),
            key: self.key(provider),
            auth_header: provider.auth_header,
            headers: provider.headers.iter().map(|(k, v)| (k.clone(), source(v))).collect(),
            compat: provider.compat(entry),
        }))
    }

    /// What the model's entry says of the system prompt; none: nothing.
    pub fn prompt_override(&self, model: &Model) -> Option<&PromptOverride> {
        let prompt = &self.entry(&model.provider)?.model(&model.id)?.prompt;
        (*prompt != PromptOverride::default()).then_some(prompt)
    }
}

fn is_scripted(config: &ProviderConfig) -> bool {
    config.api.as_deref().is_some_and(|api| config::api_name(api) == Ok(ApiName::Scripted))
}

fn problems(path: &Path, messages: Vec<String>) -> Vec<Problem> {
    let problem = |message| Problem { path: path.to_owned(), message };
    messages.into_iter().map(problem).collect()
}

/// What tests of other modules need of it.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A reasoning model that takes images.
    pub(crate) fn model(provider: &str, id: &str) -> Model {
        Model { provider: provider.to_owned(), ..overlay::scripted_model(provider, id, "") }
    }
}
