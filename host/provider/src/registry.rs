//! Which models there are, and how a pattern chooses one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use wharf_protocol::model::ModelCost;
use wharf_protocol::{Model, ThinkingLevel};

use crate::Provider;
use crate::scripted::{self, DemoProvider, ScriptedProvider};

/// A choice of a model that cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error("no model matches {pattern:?}; known models: {known}")]
    NoMatch { pattern: String, known: String },
    #[error("{pattern:?} matches several models: {matches}; name one of them")]
    Ambiguous { pattern: String, matches: String },
    #[error("failed to read {}: {problem}", path.display())]
    ModelsFile { path: PathBuf, problem: String },
    #[error(transparent)]
    Script(#[from] scripted::ScriptError),
}

/// A model, and the thinking level that its pattern asked for (`pattern:high`).
#[derive(Debug, Clone, PartialEq)]
pub struct ModelChoice {
    pub model: Model,
    pub thinking_level: Option<ThinkingLevel>,
}

/// The models of this run and the provider of each.
#[derive(Debug, Default)]
pub struct Registry {
    models: Vec<Model>,
    providers: HashMap<(String, String), Arc<dyn Provider>>,
}

/// The part of `models.json` that this version reads: providers whose `api` is
/// `scripted`; their `baseUrl` is the path of the script.
#[derive(Deserialize)]
struct ModelsFile {
    #[serde(default)]
    providers: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScriptedEntry {
    base_url: String,
    models: Vec<ModelEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ModelEntry {
    id: String,
    name: Option<String>,
    #[serde(default)]
    reasoning: bool,
    input: Option<Vec<String>>,
    context_window: Option<u64>,
    max_tokens: Option<u64>,
    #[serde(default)]
    cost: ModelCost,
}

impl Registry {
    /// The built-in models: `scripted/demo`, which plays the embedded script.
    pub fn builtin() -> Self {
        let mut registry = Self::default();
        let demo = Arc::new(DemoProvider::default());
        registry.add(scripted_model("scripted", "demo", scripted::DEMO_NAME), demo);
        registry
    }

    /// Adds the providers of `models.json`. A file that is not there adds nothing.
    ///
    /// # Errors
    /// Names the file and what in it is wrong; what was read before stays.
    pub fn load_models_file(&mut self, path: &Path) -> Result<(), RegistryError> {
        let fail = |problem: String| RegistryError::ModelsFile { path: path.to_owned(), problem };
        let text = match crate::read_file(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(fail(error.to_string())),
        };
        let file: ModelsFile =
            serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
        for (provider, entry) in file.providers {
            if entry.get("api").and_then(Value::as_str) != Some("scripted") {
                continue;
            }
            let entry: ScriptedEntry = serde_json::from_value(entry)
                .map_err(|error| fail(format!("providers.{provider}: {error}")))?;
            let script_path = path.parent().unwrap_or(Path::new(".")).join(&entry.base_url);
            let script = Arc::new(ScriptedProvider::load(&script_path)?);
            for model in entry.models {
                let base = scripted_model(&provider, &model.id, &entry.base_url);
                self.add(
                    Model {
                        name: model.name.unwrap_or(base.name),
                        reasoning: model.reasoning,
                        input: model.input.unwrap_or(base.input),
                        context_window: model.context_window.unwrap_or(128_000),
                        max_tokens: model.max_tokens.unwrap_or(16_384),
                        cost: model.cost,
                        ..base
                    },
                    Arc::clone(&script) as Arc<dyn Provider>,
                );
            }
        }
        Ok(())
    }

    fn add(&mut self, model: Model, provider: Arc<dyn Provider>) {
        let key = (model.provider.clone(), model.id.clone());
        self.models.retain(|known| (&known.provider, &known.id) != (&key.0, &key.1));
        self.models.push(model);
        self.providers.insert(key, provider);
    }

    pub fn models(&self) -> &[Model] {
        &self.models
    }

    pub fn find(&self, provider: &str, id: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.provider == provider && model.id == id)
    }

    /// The model that a session names: one of the list, or a script of its own.
    ///
    /// # Errors
    /// There is no such model any more, or its script cannot be read.
    pub fn restore(&mut self, provider: &str, id: &str) -> Result<Model, RegistryError> {
        if let Some(model) = self.find(provider, id) {
            return Ok(model.clone());
        }
        Ok(self.resolve(Some(provider), id)?.model)
    }

    /// Who answers for `model`.
    pub fn provider(&self, model: &Model) -> Option<Arc<dyn Provider>> {
        self.providers.get(&(model.provider.clone(), model.id.clone())).cloned()
    }

    /// Chooses by `[provider/]pattern[:thinking]`: an exact id first, else the one
    /// model whose id contains the pattern. With the provider `scripted`, a
    /// pattern that ends in `.jsonl` is the path of a script to play.
    ///
    /// # Errors
    /// Nothing or more than one model matches, or the script cannot be read.
    pub fn resolve(
        &mut self,
        provider: Option<&str>,
        pattern: &str,
    ) -> Result<ModelChoice, RegistryError> {
        let (bare, thinking_level) = match pattern.rsplit_once(':') {
            Some((bare, level)) if level.parse::<ThinkingLevel>().is_ok() => {
                (bare, level.parse::<ThinkingLevel>().ok())
            }
            _ => (pattern, None),
        };
        let (provider, id) = match (provider, bare.split_once('/')) {
            (Some(provider), _) => {
                (Some(provider), bare.strip_prefix(&format!("{provider}/")).unwrap_or(bare))
            }
            (None, Some((provider, id)))
                if provider == "scripted"
                    || self.models.iter().any(|model| model.provider == provider) =>
            {
                (Some(provider), id)
            }
            (None, _) => (None, bare),
        };
        if provider == Some("scripted")
            && id.ends_with(".jsonl")
            && self.find("scripted", id).is_none()
        {
            let script = Arc::new(ScriptedProvider::load(Path::new(id))?);
            self.add(scripted_model("scripted", id, id), script);
        }
        let offered = |model: &&Model| provider.is_none_or(|name| model.provider == name);
        let exact: Vec<&Model> =
            self.models.iter().filter(offered).filter(|model| model.id == id).collect();
        let matches = if exact.is_empty() {
            let wanted = id.to_lowercase();
            let contains = |model: &&Model| model.id.to_lowercase().contains(&wanted);
            self.models.iter().filter(offered).filter(contains).collect()
        } else {
            exact
        };
        let names = |models: &[&Model]| {
            let names: Vec<String> =
                models.iter().map(|model| format!("{}/{}", model.provider, model.id)).collect();
            names.join(", ")
        };
        match matches.as_slice() {
            [model] => Ok(ModelChoice { model: (*model).clone(), thinking_level }),
            [] => Err(RegistryError::NoMatch {
                pattern: match provider {
                    Some(provider) => format!("{provider}/{id}"),
                    None => pattern.to_owned(),
                },
                known: names(&self.models.iter().collect::<Vec<_>>()),
            }),
            several => Err(RegistryError::Ambiguous {
                pattern: pattern.to_owned(),
                matches: names(several),
            }),
        }
    }
}

fn scripted_model(provider: &str, id: &str, script: &str) -> Model {
    Model {
        id: id.to_owned(),
        name: format!("Scripted replies ({id})"),
        api: "scripted".to_owned(),
        provider: provider.to_owned(),
        base_url: format!("scripted:{script}"),
        reasoning: true,
        input: vec!["text".to_owned(), "image".to_owned()],
        context_window: 200_000,
        max_tokens: 16_384,
        cost: ModelCost::default(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_pattern_names_one_model_or_says_what_matched() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.jsonl"), "{\"content\":[]}\n").unwrap();
        let models = dir.path().join("models.json");
        std::fs::write(
            &models,
            r#"{"providers":{"mine":{"api":"scripted","baseUrl":"a.jsonl","models":[{"id":"one"},{"id":"one-more"},{"id":"demo"}]},
                "other":{"api":"anthropic-messages"}}}"#,
        )
        .unwrap();
        let mut registry = Registry::builtin();
        registry.load_models_file(&models).unwrap();
        let mut check =
            |provider: Option<&str>, pattern: &str, expect: Result<(&str, Option<&str>), &str>| {
                let found = registry.resolve(provider, pattern);
                let seen = found
                    .as_ref()
                    .map(|c| {
                        (
                            format!("{}/{}", c.model.provider, c.model.id),
                            c.thinking_level.map(|l| l.as_str()),
                        )
                    })
                    .map_err(ToString::to_string);
                match (seen, expect) {
                    (Ok(seen), Ok(want)) => assert_eq!((seen.0.as_str(), seen.1), want),
                    (Err(seen), Err(want)) => assert!(seen.contains(want), "{seen}"),
                    (seen, want) => panic!("{pattern}: {seen:?} instead of {want:?}"),
                }
            };
        check(None, "scripted/demo", Ok(("scripted/demo", None)));
        check(None, "one", Ok(("mine/one", None)));
        check(None, "one:high", Ok(("mine/one", Some("high"))));
        check(None, "more", Ok(("mine/one-more", None)));
        check(Some("mine"), "demo", Ok(("mine/demo", None)));
        check(Some("mine"), "mine/demo", Ok(("mine/demo", None)));
        check(None, "demo", Err("matches several models: scripted/demo, mine/demo"));
        check(Some("mine"), "on", Err("mine/one, mine/one-more"));
        check(None, "gpt", Err("known models: scripted/demo, mine/one, mine/one-more, mine/demo"));
        check(None, "scripted/absent.jsonl", Err("absent.jsonl"));
        let script = dir.path().join("a.jsonl");
        let script = script.to_str().unwrap();
        check(Some("scripted"), script, Ok((&format!("scripted/{script}"), None)));
    }
}
