//! Notifications: what happened, for extensions that follow along.

use crate::bindings::wharf::extension::types as wit;
use crate::{Json, SwitchReason};

/// Names on the wire.
mod names {
    pub(super) const SESSION_START: &str = "session_start";
    pub(super) const SESSION_SWITCH: &str = "session_switch";
    pub(super) const SESSION_FORK: &str = "session_fork";
    pub(super) const SESSION_TREE: &str = "session_tree";
    pub(super) const SESSION_COMPACT: &str = "session_compact";
    pub(super) const SESSION_SHUTDOWN: &str = "session_shutdown";
    pub(super) const MODEL_SELECT: &str = "model_select";
    pub(super) const STREAM_RETRY: &str = "stream_retry";
    pub(super) const LENGTH_RETRY: &str = "length_retry";
    pub(super) const AGENT_START: &str = "agent_start";
    pub(super) const AGENT_END: &str = "agent_end";
    pub(super) const TURN_START: &str = "turn_start";
    pub(super) const TURN_END: &str = "turn_end";
    pub(super) const MESSAGE_START: &str = "message_start";
    pub(super) const MESSAGE_UPDATE: &str = "message_update";
    pub(super) const MESSAGE_END: &str = "message_end";
    pub(super) const TOOL_EXECUTION_START: &str = "tool_execution_start";
    pub(super) const TOOL_EXECUTION_UPDATE: &str = "tool_execution_update";
    pub(super) const TOOL_EXECUTION_END: &str = "tool_execution_end";
}

/// A notification that an extension subscribes to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// `session_start`
    SessionStart,
    /// `session_switch`
    SessionSwitch,
    /// `session_fork`
    SessionFork,
    /// `session_tree`
    SessionTree,
    /// `session_compact`
    SessionCompact,
    /// `session_shutdown`
    SessionShutdown,
    /// `model_select`
    ModelSelect,
    /// `stream_retry`
    StreamRetry,
    /// `length_retry`
    LengthRetry,
    /// `agent_start`
    AgentStart,
    /// `agent_end`
    AgentEnd,
    /// `turn_start`
    TurnStart,
    /// `turn_end`
    TurnEnd,
    /// `message_start`
    MessageStart,
    /// `message_update`
    MessageUpdate,
    /// `message_end`
    MessageEnd,
    /// `tool_execution_start`
    ToolExecutionStart,
    /// `tool_execution_update`
    ToolExecutionUpdate,
    /// `tool_execution_end`
    ToolExecutionEnd,
    /// An event that this version has no case for, by its name on the wire; it
    /// arrives as [`Notification::Other`].
    Other(String),
}

impl Event {
    /// Every notification that has a case of its own.
    pub const ALL: [Self; 19] = [
        Self::SessionStart,
        Self::SessionSwitch,
        Self::SessionFork,
        Self::SessionTree,
        Self::SessionCompact,
        Self::SessionShutdown,
        Self::ModelSelect,
        Self::StreamRetry,
        Self::LengthRetry,
        Self::AgentStart,
        Self::AgentEnd,
        Self::TurnStart,
        Self::TurnEnd,
        Self::MessageStart,
        Self::MessageUpdate,
        Self::MessageEnd,
        Self::ToolExecutionStart,
        Self::ToolExecutionUpdate,
        Self::ToolExecutionEnd,
    ];

    /// The event's name on the wire.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::SessionStart => names::SESSION_START,
            Self::SessionSwitch => names::SESSION_SWITCH,
            Self::SessionFork => names::SESSION_FORK,
            Self::SessionTree => names::SESSION_TREE,
            Self::SessionCompact => names::SESSION_COMPACT,
            Self::SessionShutdown => names::SESSION_SHUTDOWN,
            Self::ModelSelect => names::MODEL_SELECT,
            Self::StreamRetry => names::STREAM_RETRY,
            Self::LengthRetry => names::LENGTH_RETRY,
            Self::AgentStart => names::AGENT_START,
            Self::AgentEnd => names::AGENT_END,
            Self::TurnStart => names::TURN_START,
            Self::TurnEnd => names::TURN_END,
            Self::MessageStart => names::MESSAGE_START,
            Self::MessageUpdate => names::MESSAGE_UPDATE,
            Self::MessageEnd => names::MESSAGE_END,
            Self::ToolExecutionStart => names::TOOL_EXECUTION_START,
            Self::ToolExecutionUpdate => names::TOOL_EXECUTION_UPDATE,
            Self::ToolExecutionEnd => names::TOOL_EXECUTION_END,
            Self::Other(name) => name,
        }
    }
}

/// Something happened. Each notification arrives once, in order, and the next one
/// waits until the handler is done; the agent does not wait.
///
/// Messages can be read as [`Message`](crate::Message):
///
/// ```
/// # use wharf_sdk::{Message, Notification, Result};
/// fn error_of(notification: &Notification) -> Result<Option<String>> {
///     let Notification::MessageEnd { message } = notification else { return Ok(None) };
///     Ok(match message.parse()? {
///         Message::Assistant { error_message, .. } => error_message,
///         _ => None,
///     })
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notification {
    /// A session is there, for the first time in this instance's life.
    SessionStart,
    /// Another session became the current one.
    SessionSwitch {
        /// Why.
        reason: SwitchReason,
        /// The file of the session before.
        previous_session_file: Option<String>,
    },
    /// A fork has become the current session.
    SessionFork {
        /// Can be read as a [`SessionForkNote`](crate::SessionForkNote).
        note: Json,
    },
    /// The leaf has moved to another entry of the session's tree.
    SessionTree {
        /// Can be read as a [`SessionTreeNote`](crate::SessionTreeNote).
        note: Json,
    },
    /// A summary has taken the place of messages, for the model.
    SessionCompact {
        /// Can be read as a [`SessionCompactNote`](crate::SessionCompactNote).
        note: Json,
    },
    /// Wharf is about to end.
    SessionShutdown,
    /// Another model became the current one.
    ModelSelect {
        /// Can be read as a [`ModelSelectNote`](crate::ModelSelectNote).
        note: Json,
    },
    /// A reply was torn and is asked for again; what came of it is void.
    StreamRetry {
        /// Can be read as a [`StreamRetryNote`](crate::StreamRetryNote).
        note: Json,
    },
    /// A reply hit its limit of tokens and is asked for again with more; what came
    /// of it is void.
    LengthRetry {
        /// Can be read as a [`LengthRetryNote`](crate::LengthRetryNote).
        note: Json,
    },
    /// A run begins.
    AgentStart {
        /// `provider/id`
        model: Option<String>,
        /// The thinking level.
        thinking_level: String,
    },
    /// A run has ended.
    AgentEnd {
        /// The run's messages, a JSON array.
        messages: Json,
    },
    /// A request to the model begins.
    TurnStart,
    /// The model has answered and its tools have run.
    TurnEnd {
        /// The assistant's message.
        message: Json,
        /// The tool-result messages, a JSON array.
        tool_results: Json,
    },
    /// A message begins.
    MessageStart {
        /// The message.
        message: Json,
    },
    /// A message grows; at most twenty a second.
    MessageUpdate {
        /// The message so far.
        message: Json,
    },
    /// A message is complete.
    MessageEnd {
        /// The message.
        message: Json,
    },
    /// A tool call begins.
    ToolExecutionStart {
        /// The id that the model gave to the call.
        tool_call_id: String,
        /// The tool's name.
        tool_name: String,
        /// The arguments.
        args: Json,
    },
    /// A running tool has shown output.
    ToolExecutionUpdate {
        /// The id that the model gave to the call.
        tool_call_id: String,
        /// The tool's name.
        tool_name: String,
        /// The arguments.
        args: Json,
        /// All output so far, as `{content, details}`.
        partial_result: Json,
    },
    /// A tool call is done.
    ToolExecutionEnd {
        /// The id that the model gave to the call.
        tool_call_id: String,
        /// The tool's name.
        tool_name: String,
        /// `{content, details}`
        result: Json,
        /// True: it failed.
        is_error: bool,
    },
    /// An event that this version has no case for.
    Other {
        /// The event's name on the wire.
        name: String,
        /// Its fields, a JSON object.
        fields: Json,
    },
}

impl Notification {
    /// The event's name on the wire.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::SessionStart => names::SESSION_START,
            Self::SessionSwitch { .. } => names::SESSION_SWITCH,
            Self::SessionFork { .. } => names::SESSION_FORK,
            Self::SessionTree { .. } => names::SESSION_TREE,
            Self::SessionCompact { .. } => names::SESSION_COMPACT,
            Self::SessionShutdown => names::SESSION_SHUTDOWN,
            Self::ModelSelect { .. } => names::MODEL_SELECT,
            Self::StreamRetry { .. } => names::STREAM_RETRY,
            Self::LengthRetry { .. } => names::LENGTH_RETRY,
            Self::AgentStart { .. } => names::AGENT_START,
            Self::AgentEnd { .. } => names::AGENT_END,
            Self::TurnStart => names::TURN_START,
            Self::TurnEnd { .. } => names::TURN_END,
            Self::MessageStart { .. } => names::MESSAGE_START,
            Self::MessageUpdate { .. } => names::MESSAGE_UPDATE,
            Self::MessageEnd { .. } => names::MESSAGE_END,
            Self::ToolExecutionStart { .. } => names::TOOL_EXECUTION_START,
            Self::ToolExecutionUpdate { .. } => names::TOOL_EXECUTION_UPDATE,
            Self::ToolExecutionEnd { .. } => names::TOOL_EXECUTION_END,
            Self::Other { name, .. } => name,
        }
    }
}

impl From<wit::Notification> for Notification {
    fn from(event: wit::Notification) -> Self {
        match event {
            wit::Notification::SessionStart => Self::SessionStart,
            wit::Notification::SessionSwitch(note) => Self::SessionSwitch {
                reason: note.reason.into(),
                previous_session_file: note.previous_session_file,
            },
            wit::Notification::SessionShutdown => Self::SessionShutdown,
            wit::Notification::AgentStart(note) => {
                Self::AgentStart { model: note.model, thinking_level: note.thinking_level }
            }
            wit::Notification::AgentEnd(messages) => {
                Self::AgentEnd { messages: Json::from_host(messages) }
            }
            wit::Notification::TurnStart => Self::TurnStart,
            wit::Notification::TurnEnd(note) => Self::TurnEnd {
                message: Json::from_host(note.message),
                tool_results: Json::from_host(note.tool_results),
            },
            wit::Notification::MessageStart(message) => {
                Self::MessageStart { message: Json::from_host(message) }
            }
            wit::Notification::MessageUpdate(note) => {
                Self::MessageUpdate { message: Json::from_host(note.message) }
            }
            wit::Notification::MessageEnd(message) => {
                Self::MessageEnd { message: Json::from_host(message) }
            }
            wit::Notification::ToolExecutionStart(note) => Self::ToolExecutionStart {
                tool_call_id: note.tool_call_id,
                tool_name: note.tool_name,
                args: Json::from_host(note.args),
            },
            wit::Notification::ToolExecutionUpdate(note) => Self::ToolExecutionUpdate {
                tool_call_id: note.tool_call_id,
                tool_name: note.tool_name,
                args: Json::from_host(note.args),
                partial_result: Json::from_host(note.partial_result),
            },
            wit::Notification::ToolExecutionEnd(note) => Self::ToolExecutionEnd {
                tool_call_id: note.tool_call_id,
                tool_name: note.tool_name,
                result: Json::from_host(note.result),
                is_error: note.is_error,
            },
            wit::Notification::Other(note) => {
                let fields = Json::from_host(note.fields);
                match note.name.as_str() {
                    names::SESSION_FORK => Self::SessionFork { note: fields },
                    names::SESSION_TREE => Self::SessionTree { note: fields },
                    names::SESSION_COMPACT => Self::SessionCompact { note: fields },
                    names::MODEL_SELECT => Self::ModelSelect { note: fields },
                    names::STREAM_RETRY => Self::StreamRetry { note: fields },
                    names::LENGTH_RETRY => Self::LengthRetry { note: fields },
                    _ => Self::Other { name: note.name, fields },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_without_a_case_in_the_wit_have_one_here_as_far_as_they_are_known() {
        for event in Event::ALL.into_iter().chain([Event::Other("novel".into())]) {
            let note = wit::OtherNote { name: event.name().into(), fields: "{}".into() };
            let notification = Notification::from(wit::Notification::Other(note));
            assert_eq!(notification.name(), event.name());
            let is_typed = !matches!(notification, Notification::Other { .. });
            let expected = matches!(
                event,
                Event::SessionFork
                    | Event::SessionTree
                    | Event::SessionCompact
                    | Event::ModelSelect
                    | Event::StreamRetry
                    | Event::LengthRetry
            );
            assert_eq!(is_typed, expected, "{}", event.name());
        }
    }
}
