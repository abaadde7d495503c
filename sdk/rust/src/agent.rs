//! The agent: what it does, what it knows, and messages to it. Tools that come and go
//! are in `dynamic`.

use crate::bindings::wharf::extension::agent;
use crate::tool::convert;
use crate::{CustomMessage, Image, Json, Result, ThinkingLevel};

/// When a message that arrives during a run is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// After the current tool calls, before the next request.
    Steer,
    /// When the agent would stop.
    FollowUp,
    /// With the next prompt of the person.
    NextTurn,
}

impl From<Delivery> for agent::Delivery {
    fn from(delivery: Delivery) -> Self {
        match delivery {
            Delivery::Steer => Self::Steer,
            Delivery::FollowUp => Self::FollowUp,
            Delivery::NextTurn => Self::NextTurn,
        }
    }
}

/// A tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolInfo {
    /// Its name.
    pub name: String,
    /// What the model reads.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Json,
}

impl From<agent::ToolInfo> for ToolInfo {
    fn from(tool: agent::ToolInfo) -> Self {
        Self {
            name: tool.name,
            description: tool.description,
            parameters: Json::from_host(tool.parameters),
        }
    }
}

/// How full the model's context is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextUsage {
    /// An estimate; none right after a compaction, until the next reply reports.
    pub tokens: Option<u64>,
    /// The model's limit, in tokens.
    pub context_window: u64,
}

impl ContextUsage {
    /// The part of the limit that is taken, in whole per cent.
    #[must_use]
    pub fn percent(self) -> Option<u64> {
        self.tokens?.saturating_mul(100).checked_div(self.context_window)
    }
}

/// Where a command comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandSource {
    /// An extension.
    Extension,
    /// A prompt template.
    Prompt,
    /// A skill.
    Skill,
}

/// Something that is called as `/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandInfo {
    /// Without the slash, as it is called: `name`, or `name:1` after a clash.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Where it comes from.
    pub source: CommandSource,
}

/// The value of a flag, as it stood on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlagValue {
    /// It was not given.
    Absent,
    /// It was given, and takes no value.
    Present,
    /// It was given with this value.
    Value(String),
}

impl FlagValue {
    /// True when it was given.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// The value, when it was given one.
    #[must_use]
    pub fn value(self) -> Option<String> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Present => None,
        }
    }
}

/// The agent, from [`Ctx::agent`](crate::Ctx::agent).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Agent;

impl Agent {
    /// True when no run is going on.
    #[must_use]
    pub fn is_idle(self) -> bool {
        agent::is_idle()
    }

    /// True when messages wait in a queue.
    #[must_use]
    pub fn has_pending_messages(self) -> bool {
        agent::has_pending_messages()
    }

    /// Aborts what the agent does.
    pub fn abort(self) {
        agent::abort();
    }

    /// The working directory.
    #[must_use]
    pub fn cwd(self) -> String {
        agent::cwd()
    }

    /// The system prompt.
    #[must_use]
    pub fn system_prompt(self) -> String {
        agent::system_prompt()
    }

    /// The tools that the model sees.
    #[must_use]
    pub fn tools(self) -> Vec<ToolInfo> {
        convert(agent::tools())
    }

    /// All tools that there are, active or not.
    #[must_use]
    pub fn all_tools(self) -> Vec<ToolInfo> {
        convert(agent::all_tools())
    }

    /// The names of the tools that the model sees.
    #[must_use]
    pub fn active_tools(self) -> Vec<String> {
        agent::active_tools()
    }

    /// Lets the model see these tools and no others, from the next request on. Kept
    /// until Wharf ends.
    ///
    /// ```
    /// # use wharf_sdk::{Ctx, Result};
    /// fn read_only(ctx: &Ctx) -> Result<()> {
    ///     ctx.agent().set_active_tools(["read", "grep", "find", "ls"])
    /// }
    /// ```
    ///
    /// # Errors
    /// `Invalid` when there is no tool of one of the names; then nothing changes.
    pub fn set_active_tools<T: Into<String>>(
        self,
        names: impl IntoIterator<Item = T>,
    ) -> Result<()> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        Ok(agent::set_active_tools(&names)?)
    }

    /// How full the model's context is; none without a model, or where its limit is
    /// not known.
    #[must_use]
    pub fn context_usage(self) -> Option<ContextUsage> {
        let usage = agent::context_usage()?;
        Some(ContextUsage { tokens: usage.tokens, context_window: usage.context_window })
    }

    /// Starts a compaction and returns; what the agent does is ended first. How it went
    /// is told by [`Event::SessionCompact`](crate::Event::SessionCompact).
    ///
    /// # Errors
    /// When the host cannot begin one, for example because no model is configured.
    pub fn compact(self, instructions: Option<&str>) -> Result<()> {
        Ok(agent::compact(instructions)?)
    }

    /// Ends Wharf in order, as soon as the agent is idle.
    pub fn shutdown(self) {
        agent::shutdown();
    }

    /// What can be called as `/name`: commands of extensions, prompt templates and
    /// skills.
    #[must_use]
    pub fn commands(self) -> Vec<CommandInfo> {
        convert(agent::commands())
    }

    /// A flag of this extension, as it stood on the command line.
    #[must_use]
    pub fn flag(self, name: impl AsRef<str>) -> FlagValue {
        match agent::flag(name.as_ref()) {
            agent::FlagValue::Absent => FlagValue::Absent,
            agent::FlagValue::Present => FlagValue::Present,
            agent::FlagValue::Value(value) => FlagValue::Value(value),
        }
    }

    /// The models that have a key and match a pattern, as `--model` takes it; empty:
    /// all. JSON objects, each can be read as a [`Model`](crate::Model).
    #[must_use]
    pub fn find_models(self, pattern: impl AsRef<str>) -> Vec<Json> {
        agent::find_models(pattern.as_ref()).into_iter().map(Json::from_host).collect()
    }

    /// Changes the model from the next request on; gives the model.
    ///
    /// # Errors
    /// When there is no such model, or it has no key.
    pub fn set_model(self, provider: impl AsRef<str>, id: impl AsRef<str>) -> Result<Json> {
        Ok(Json::from_host(agent::set_model(provider.as_ref(), id.as_ref())?))
    }

    /// How much the model thinks.
    #[must_use]
    pub fn thinking_level(self) -> ThinkingLevel {
        ThinkingLevel::named(&agent::thinking_level())
    }

    /// Changes how much the model thinks; gives the level that it can do.
    ///
    /// # Errors
    /// When the host does not know the level.
    pub fn set_thinking_level(self, level: ThinkingLevel) -> Result<ThinkingLevel> {
        Ok(ThinkingLevel::named(&agent::set_thinking_level(level.name())?))
    }

    /// Adds a provider whose requests the host sends, or replaces one that this
    /// extension added: a [`ProviderConfig`](crate::ProviderConfig), or the JSON that a
    /// provider in `models.json` has. It needs a `net` grant for the host of its base
    /// URL. It is gone when the extension is unloaded: add it when
    /// [`Event::SessionStart`](crate::Event::SessionStart) arrives.
    ///
    /// # Errors
    /// `NotAllowed` without a grant; `Invalid` when the configuration is not
    /// acceptable or another one has the name.
    pub async fn register_provider(
        self,
        name: impl Into<String>,
        config: impl Into<Json>,
    ) -> Result<()> {
        add_provider(name.into(), config.into(), false).await
    }

    /// Adds a provider for whose models this extension's
    /// [`reply_source`](crate::Registration::reply_source) answers; base URL, API and
    /// key are not needed.
    ///
    /// # Errors
    /// `Invalid` when the configuration is not acceptable or another one has the name.
    pub async fn register_streaming_provider(
        self,
        name: impl Into<String>,
        config: impl Into<Json>,
    ) -> Result<()> {
        add_provider(name.into(), config.into(), true).await
    }

    /// Takes back a provider that this extension added. False: there is none.
    pub fn unregister_provider(self, name: impl AsRef<str>) -> bool {
        agent::unregister_provider(name.as_ref())
    }

    /// The current model, a JSON object. Can be read as a [`Model`](crate::Model).
    #[must_use]
    pub fn model(self) -> Option<Json> {
        agent::model().map(Json::from_host)
    }

    /// Sends a message as if the person had typed it; during a run it is queued.
    ///
    /// # Errors
    /// When the host cannot take it, for example because no model is configured.
    pub fn send_user_message(
        self,
        text: impl AsRef<str>,
        images: Vec<Image>,
        deliver: Delivery,
    ) -> Result<()> {
        Ok(agent::send_user_message(text.as_ref(), &convert(images), deliver.into())?)
    }

    /// Puts a message of the extension's own kind into the conversation. When the
    /// agent is idle and `trigger_turn` is true, a run starts.
    ///
    /// # Errors
    /// When the host cannot take it, for example because no model is configured.
    pub fn send_message(
        self,
        message: CustomMessage,
        deliver: Delivery,
        trigger_turn: bool,
    ) -> Result<()> {
        Ok(agent::send_message(&message.into(), deliver.into(), trigger_turn)?)
    }
}

async fn add_provider(name: String, config: Json, streams: bool) -> Result<()> {
    Ok(agent::register_provider(name, config.into_string(), streams).await?)
}

impl From<agent::CommandInfo> for CommandInfo {
    fn from(command: agent::CommandInfo) -> Self {
        Self {
            name: command.name,
            description: command.description,
            source: match command.source {
                agent::CommandSource::Extension => CommandSource::Extension,
                agent::CommandSource::Prompt => CommandSource::Prompt,
                agent::CommandSource::Skill => CommandSource::Skill,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_in_per_cent_needs_tokens_and_a_limit() {
        for (tokens, context_window, expected) in [
            (Some(60_000), 200_000, Some(30)),
            (Some(1), 200_000, Some(0)),
            (None, 200_000, None),
            (Some(1), 0, None),
        ] {
            assert_eq!(ContextUsage { tokens, context_window }.percent(), expected);
        }
    }
}
