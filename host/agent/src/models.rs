//! Which model answers, and how long it thinks: changed at run time, recorded in the
//! session, kept as the default of later runs.

use std::path::Path;

use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, Value, json};
use wharf_protocol::command::QueueMode;
use wharf_protocol::{Model, ThinkingLevel};
use wharf_provider::{ModelChoice, Problem, RegistryError, thinking};

use crate::agent::{Agent, State};
use crate::hooks::{HookNotification, ModelSource};
use crate::output::{AgentOutput, deliver};
use crate::resources::ModelPrompt;
use crate::resources::settings_file::set_path;

/// Why a model could not become the current one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetModelError {
    #[error("Model not found: {0}")]
    NotFound(String),
    #[error("{0}")]
    NoCredentials(String),
}

/// Completes when a change that is in effect already has also been kept for later runs.
pub type Kept = BoxFuture<'static, ()>;

/// The answer of `cycle_model`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CycledModel {
    pub model: Model,
    pub thinking_level: ThinkingLevel,
    pub is_scoped: bool,
}

impl Agent {
    /// Models whose provider has a key; `models.json` is read again.
    pub fn available_models(&self) -> Vec<Model> {
        self.reload_models();
        self.registry().available()
    }

    /// Reads `models.json` and `auth.json` again where they have changed, and tells what is
    /// wrong with them.
    pub(crate) fn reload_models(&self) {
        let problems = self.registry().reload();
        if problems.is_empty() {
            return;
        }
        let agent = self.clone();
        tokio::spawn(async move {
            for Problem { path, message } in problems {
                agent.tell(&path, message).await;
            }
        });
    }

    /// The model that a pattern stands for; nothing changes.
    ///
    /// # Errors
    /// Several match, or a script cannot be read. That nothing matches is none.
    pub fn resolve_model(&self, pattern: &str) -> Result<Option<ModelChoice>, RegistryError> {
        self.reload_models();
        match self.registry().resolve(None, pattern) {
            Ok(choice) => Ok(Some(choice)),
            Err(RegistryError::NoMatch { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a model the current one, also during a run: from its next request on. It is
    /// when this returns; the future keeps it as the default of later runs.
    ///
    /// # Errors
    /// There is no such model, or no key for it.
    pub fn set_model(&self, provider: &str, id: &str) -> Result<(Model, Kept), SetModelError> {
        let model = self.use_model(provider, id)?;
        Ok((model, self.keep_model(false)))
    }

    /// The same, for this run of the program only.
    ///
    /// # Errors
    /// There is no such model, or no key for it.
    pub(crate) fn use_model(&self, provider: &str, id: &str) -> Result<Model, SetModelError> {
        self.reload_models();
        let model = {
            let registry = self.registry();
            let Some(model) = registry.find(provider, id) else {
                return Err(SetModelError::NotFound(format!("{provider}/{id}")));
            };
            if let Some(problem) = registry.missing_credentials(model) {
                return Err(SetModelError::NoCredentials(problem));
            }
            model.clone()
        };
        self.select_model(model.clone(), None, ModelSource::Set);
        Ok(model)
    }

    /// The next model of the scope or, without one, of those that have a key. None where
    /// there is no other.
    pub fn cycle_model(&self) -> Option<(CycledModel, Kept)> {
        let scope = self.state().scoped_models.clone();
        let is_scoped = !scope.is_empty();
        let choices = if is_scoped {
            scope
        } else {
            let plain = |model| ModelChoice { model, thinking_level: None, warning: None };
            self.available_models().into_iter().map(plain).collect()
        };
        if choices.len() < 2 {
            return None;
        }
        let current = self.state().model.as_ref().map(Model::reference);
        let at = choices.iter().position(|choice| Some(choice.model.reference()) == current);
        let next = choices[at.map_or(0, |at| (at + 1) % choices.len())].clone();
        self.select_model(next.model.clone(), next.thinking_level, ModelSource::Cycle);
        let kept = self.keep_model(next.thinking_level.is_some());
        let thinking_level = self.state().effective_level();
        Some((CycledModel { model: next.model, thinking_level, is_scoped }, kept))
    }

    fn select_model(&self, model: Model, level: Option<ThinkingLevel>, source: ModelSource) {
        let previous = {
            let mut state = self.state();
            let previous = state.model.replace(model.clone());
            if let Some(level) = level {
                state.thinking_level = level;
            }
            previous
        };
        self.record_model();
        self.inner.hooks.notify(HookNotification::ModelSelect {
            model: Box::new(model),
            previous: previous.map(Box::new),
            source,
        });
    }

    /// Keeps the current model, and where it came with one the thinking level.
    fn keep_model(&self, and_level: bool) -> Kept {
        self.keep(move |state, settings| {
            if let Some(model) = &state.model {
                set_path(settings, &["defaultProvider"], json!(model.provider));
                set_path(settings, &["defaultModel"], json!(model.id));
            }
            if and_level {
                set_path(settings, &["defaultThinkingLevel"], json!(state.thinking_level));
            }
        })
    }

    /// Asks for a thinking level; what the model cannot do is clamped.
    pub fn set_thinking_level(&self, level: ThinkingLevel) -> Kept {
        self.use_thinking_level(level);
        self.keep(|state, settings| {
            set_path(settings, &["defaultThinkingLevel"], json!(state.thinking_level));
        })
    }

    /// The same, for this run of the program only.
    pub(crate) fn use_thinking_level(&self, level: ThinkingLevel) {
        self.state().thinking_level = level;
        self.record_model();
    }

    /// The next level that the model has; none where it does not reason.
    pub fn cycle_thinking_level(&self) -> Option<(ThinkingLevel, Kept)> {
        let next = {
            let state = self.state();
            let levels = thinking::levels(state.model.as_ref()?);
            if levels.len() < 2 {
                return None;
            }
            let at = levels.iter().position(|level| *level == state.effective_level());
            levels[at.map_or(0, |at| (at + 1) % levels.len())]
        };
        Some((next, self.set_thinking_level(next)))
    }

    pub fn set_steering_mode(&self, mode: QueueMode) -> Kept {
        self.state().steering.mode = mode;
        self.keep(|state, settings| {
            set_path(settings, &["steeringMode"], json!(state.steering.mode.as_str()));
        })
    }

    pub fn set_follow_up_mode(&self, mode: QueueMode) -> Kept {
        self.state().follow_up.mode = mode;
        self.keep(|state, settings| {
            set_path(settings, &["followUpMode"], json!(state.follow_up.mode.as_str()));
        })
    }

    pub fn set_auto_compaction(&self, enabled: bool) -> Kept {
        self.state().auto_compaction = enabled;
        self.keep(|state, settings| {
            set_path(settings, &["compaction", "enabled"], json!(state.auto_compaction));
        })
    }

    pub fn set_auto_retry(&self, enabled: bool) -> Kept {
        self.state().auto_retry = enabled;
        self.keep(|state, settings| {
            set_path(settings, &["retry", "enabled"], json!(state.auto_retry));
        })
    }

    /// Ends the wait for a retry; what failed is not tried again.
    pub fn abort_retry(&self) {
        self.state().retrying.cancel.cancel();
    }

    /// What `models.json` and, over it, `modelSettings` of the settings say of the current
    /// model's system prompt.
    pub(crate) fn model_prompt(&self) -> ModelPrompt {
        let Some(model) = self.state().model.clone() else { return ModelPrompt::default() };
        let mut prompt = ModelPrompt::default();
        if let Some(own) = self.registry().prompt_override(&model) {
            prompt.replace = own.system_prompt.as_deref().map(str::to_owned);
            prompt.append = own.append_system_prompt.as_deref().map(str::to_owned);
        }
        let name = format!("{}/{}", model.provider, model.id);
        let resources = self.resources();
        if let Some(own) =
            resources.settings.merged.get("modelSettings").and_then(|all| all.get(&name))
        {
            let text = |key: &str| own.get(key).and_then(Value::as_str).map(str::to_owned);
            prompt.replace = text("systemPrompt").or(prompt.replace);
            prompt.append = text("appendSystemPrompt").or(prompt.append);
        }
        prompt
    }

    /// Writes what is in effect into the settings, so that later runs begin with it. It is
    /// looked up at the moment of writing: of two changes in a row the later one stays,
    /// whichever is written first. What cannot be written is told.
    fn keep(&self, change: impl FnOnce(&State, &mut Map<String, Value>) + Send + 'static) -> Kept {
        let Some(file) = self.inner.settings_file.clone() else {
            return Box::pin(std::future::ready(()));
        };
        let (agent, path) = (self.clone(), file.path().to_owned());
        let writer = self.clone();
        let writing = tokio::task::spawn_blocking(move || {
            file.update(|settings| change(&writer.state(), settings))
        });
        Box::pin(async move {
            let problem = match writing.await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            agent.tell(&path, problem).await;
        })
    }

    pub(crate) async fn tell(&self, path: &Path, message: String) {
        let path = path.to_owned();
        deliver(&*self.inner.outlet, AgentOutput::Diagnostic { path, message }).await;
    }
}
