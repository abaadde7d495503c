//! What an extension can ask of the agent: the other direction of `hooks`.
//! The agent implements it; the extension host calls it.

use std::fmt;
use std::path::PathBuf;

use futures::future::BoxFuture;
use serde_json::Value;
use wharf_protocol::{ImageContent, Model, message::CustomMessage};
use wharf_session::Session;

use crate::tool::ToolSpec;

/// When a message that arrives during a run is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Steer,
    FollowUp,
    NextTurn,
}

/// A refusal or a failure, told to the extension as a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostApiError {
    #[error("{0}")]
    NotAllowed(String),
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Failed(String),
}

pub trait HostApi: Send + Sync + fmt::Debug {
    /// The current session; it changes with `new_session` and `switch_session`.
    fn session(&self) -> Session;
    fn is_idle(&self) -> bool;
    fn has_pending_messages(&self) -> bool;
    fn abort(&self);
    fn cwd(&self) -> PathBuf;
    fn system_prompt(&self) -> String;
    fn tools(&self) -> Vec<ToolSpec>;
    fn model(&self) -> Option<Model>;

    fn send_user_message(
        &self,
        text: String,
        images: Vec<ImageContent>,
        deliver: Delivery,
    ) -> Result<(), HostApiError>;

    fn send_message(
        &self,
        message: CustomMessage,
        deliver: Delivery,
        trigger_turn: bool,
    ) -> Result<(), HostApiError>;

    /// Appends an entry that the model never sees; gives its id.
    fn append_entry(
        &self,
        custom_type: String,
        data: Option<Value>,
    ) -> Result<String, HostApiError>;
    /// Also announces `session_name_changed`.
    fn set_session_name(&self, name: String) -> Result<(), HostApiError>;
    fn set_label(&self, entry: String, label: Option<String>) -> Result<(), HostApiError>;

    fn wait_for_idle(&self) -> BoxFuture<'static, ()>;
    /// True: an extension cancelled it.
    fn new_session(&self) -> BoxFuture<'static, Result<bool, HostApiError>>;
    /// True: an extension cancelled it.
    fn switch_session(&self, file: PathBuf) -> BoxFuture<'static, Result<bool, HostApiError>>;
}
