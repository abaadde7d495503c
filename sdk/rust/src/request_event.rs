//! Events about what is sent to the model, about resources and about the person's
//! shell commands, and the answers.

use serde_json::value::RawValue;

use crate::bindings::wharf::extension::types as wit;
use crate::entry;
use crate::{Json, Message, Result};

/// `context`: the messages that are about to be sent to the model. The session stays
/// as it is, whatever the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextEvent {
    /// A JSON array of messages, as the session has them: roles `user`, `assistant`,
    /// `toolResult`, `custom`, `bashExecution`, `branchSummary` and
    /// `compactionSummary`.
    pub messages: Json,
}

impl ContextEvent {
    /// The messages, as far as the SDK reads them.
    ///
    /// # Errors
    /// When a message does not have the shape of one, which only a fault of the host
    /// can cause.
    pub fn messages(&self) -> Result<Vec<Message>> {
        entry::messages(&self.messages)
    }

    /// The messages, each as JSON text.
    ///
    /// # Errors
    /// When they are not a JSON array, which only a fault of the host can cause.
    pub fn raw_messages(&self) -> Result<Vec<&RawValue>> {
        self.messages.parse()
    }

    /// The messages that `keep` says yes to, each with all its fields; none when it
    /// says yes to all, so that this can be the handler's answer.
    ///
    /// ```
    /// # use wharf_sdk::{ContextEvent, Ctx, Json, Message, Result};
    /// /// The model does not see what the person ran.
    /// async fn context(_ctx: &Ctx, event: ContextEvent) -> Result<Option<Json>> {
    ///     event.retain(|message| !matches!(message, Message::BashExecution { .. }))
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`messages`](Self::messages).
    pub fn retain(&self, mut keep: impl FnMut(&Message) -> bool) -> Result<Option<Json>> {
        let mut texts = self.raw_messages()?.into_iter();
        let all = texts.len();
        let messages = self.messages()?;
        let mut kept = Vec::new();
        for message in &messages {
            let text = texts.next();
            if keep(message) {
                kept.extend(text);
            }
        }
        if kept.len() == all { Ok(None) } else { Json::of(&kept).map(Some) }
    }

    /// The messages with one more at the end.
    ///
    /// ```
    /// # use wharf_sdk::{ContextEvent, Ctx, Json, Result};
    /// use serde_json::json;
    ///
    /// async fn context(_ctx: &Ctx, event: ContextEvent) -> Result<Option<Json>> {
    ///     let reminder = json!({"role": "user", "content": "Be brief.", "timestamp": 0});
    ///     event.with_message(reminder).map(Some)
    /// }
    /// ```
    ///
    /// # Errors
    /// When the messages are not a JSON array, which only a fault of the host can
    /// cause.
    pub fn with_message(&self, message: impl Into<Json>) -> Result<Json> {
        let message = message.into();
        let mut messages = self.raw_messages()?;
        messages.push(message.parse()?);
        Json::of(&messages)
    }
}

/// `before_provider_request`: the request is put together and about to be sent.
///
/// ```
/// # use wharf_sdk::{Ctx, Json, ProviderRequestEvent, Result};
/// async fn request(_ctx: &Ctx, event: ProviderRequestEvent) -> Result<Option<Json>> {
///     let mut payload = event.payload.value()?;
///     payload["temperature"] = 0.into();
///     Ok(Some(payload.into()))
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProviderRequestEvent {
    /// The provider's name.
    pub provider: String,
    /// The model's id.
    pub model: String,
    /// The API, for example `anthropic-messages`.
    pub api: String,
    /// The body of the HTTP request. It holds no key.
    pub payload: Json,
}

/// Why resources are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscoverReason {
    /// Wharf starts.
    Startup,
    /// Somebody asked for a reload.
    Reload,
}

/// `resources_discover`: skills and prompt templates are being looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourcesDiscoverEvent {
    /// The working directory, an absolute path.
    pub cwd: String,
    /// Why.
    pub reason: DiscoverReason,
}

/// Skills and prompt templates to add, files or directories, at most 256 of each. A
/// relative path is relative to the working directory, and `~` at its beginning is the
/// person's home. The default adds nothing.
///
/// ```
/// use wharf_sdk::Resources;
///
/// let resources = Resources::new().skill("docs/skills").prompt("~/prompts/review.md");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// Skills.
    pub skill_paths: Vec<String>,
    /// Prompt templates.
    pub prompt_paths: Vec<String>,
}

impl Resources {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a path of skills.
    #[must_use]
    pub fn skill(mut self, path: impl Into<String>) -> Self {
        self.skill_paths.push(path.into());
        self
    }

    /// Adds a path of prompt templates.
    #[must_use]
    pub fn prompt(mut self, path: impl Into<String>) -> Self {
        self.prompt_paths.push(path.into());
        self
    }
}

/// `user_bash`: the person runs a command with `!`, or a program does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserBashEvent {
    /// The command.
    pub command: String,
    /// True: the model will not see it.
    pub exclude_from_context: bool,
    /// The directory that it runs in.
    pub cwd: String,
}

/// What a `user_bash` handler decides. What one extension wraps is what the next one
/// sees; the first that answers wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserBashDecision {
    /// The command runs.
    Proceed,
    /// This runs instead, at most 1 MiB. The session keeps the person's own text.
    Wrap(String),
    /// Nothing runs: this is what came of it.
    Answer {
        /// At most 16 MiB.
        output: String,
        /// None: it was ended by something else.
        exit_code: Option<i32>,
    },
}

impl UserBashDecision {
    /// Runs another command instead.
    pub fn wrap(command: impl Into<String>) -> Self {
        Self::Wrap(command.into())
    }

    /// Answers in the command's place, which has ended with the exit code.
    pub fn answer(output: impl Into<String>, exit_code: i32) -> Self {
        Self::Answer { output: output.into(), exit_code: Some(exit_code) }
    }
}

// ---- conversions -----------------------------------------------------------

impl From<wit::ContextEvent> for ContextEvent {
    fn from(event: wit::ContextEvent) -> Self {
        Self { messages: Json::from_host(event.messages) }
    }
}

impl From<wit::ProviderRequestEvent> for ProviderRequestEvent {
    fn from(event: wit::ProviderRequestEvent) -> Self {
        Self {
            provider: event.provider,
            model: event.model,
            api: event.api,
            payload: Json::from_host(event.payload),
        }
    }
}

impl From<wit::ResourcesDiscoverEvent> for ResourcesDiscoverEvent {
    fn from(event: wit::ResourcesDiscoverEvent) -> Self {
        let reason = match event.reason {
            wit::DiscoverReason::Startup => DiscoverReason::Startup,
            wit::DiscoverReason::Reload => DiscoverReason::Reload,
        };
        Self { cwd: event.cwd, reason }
    }
}

impl From<Resources> for wit::DiscoveredResources {
    fn from(resources: Resources) -> Self {
        Self { skill_paths: resources.skill_paths, prompt_paths: resources.prompt_paths }
    }
}

impl From<wit::UserBashEvent> for UserBashEvent {
    fn from(event: wit::UserBashEvent) -> Self {
        Self {
            command: event.command,
            exclude_from_context: event.exclude_from_context,
            cwd: event.cwd,
        }
    }
}

impl From<UserBashDecision> for wit::UserBashDecision {
    fn from(decision: UserBashDecision) -> Self {
        match decision {
            UserBashDecision::Proceed => Self::Proceed,
            UserBashDecision::Wrap(command) => Self::Wrap(command),
            UserBashDecision::Answer { output, exit_code } => {
                Self::Answer(wit::UserBashResult { output, exit_code })
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kept_messages_keep_every_field() {
        let messages = json!([
            {"role": "user", "content": "hi", "timestamp": 1, "novel": [1.50]},
            {"role": "bashExecution", "command": "ls", "output": "", "exitCode": 0},
            {"role": "branchSummary", "summary": "s"},
        ]);
        let event = ContextEvent { messages: messages.clone().into() };
        assert_eq!(event.retain(|_| true).unwrap(), None);
        let kept = event.retain(|message| !matches!(message, Message::BashExecution { .. }));
        let kept = kept.unwrap().unwrap().value().unwrap();
        assert_eq!(kept, json!([messages[0], messages[2]]));
        let more = event.with_message(json!({"role": "novel"})).unwrap().value().unwrap();
        assert_eq!(more.as_array().unwrap().len(), 4);
        assert_eq!(more[3], json!({"role": "novel"}));
    }
}
