//! The agent: what it does, what it knows, and messages to it.

use crate::bindings::wharf::extension::agent;
use crate::tool::convert;
use crate::{CustomMessage, Image, Json, Result};

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

/// A tool that the model sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolInfo {
    /// Its name.
    pub name: String,
    /// What the model reads.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Json,
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
        agent::tools()
            .into_iter()
            .map(|tool| ToolInfo {
                name: tool.name,
                description: tool.description,
                parameters: Json::from_host(tool.parameters),
            })
            .collect()
    }

    /// The current model, a JSON object.
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
