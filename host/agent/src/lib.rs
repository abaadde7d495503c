//! The agent: the turn loop, its queues, built-in tools, and the resources
//! (settings, skills, prompt templates, context files) that a run is made of.
//!
//! What this crate must not know: standard input and output, the RPC commands,
//! wasmtime, an HTTP client.

mod agent;
mod calls;
mod conversation;
mod extension_api;
pub mod hooks;
pub mod host_api;
mod input;
pub mod output;
mod queue;
mod reply;
pub mod resources;
mod run;
mod snapshot;
mod switching;
pub mod tool;
pub mod tools;
pub mod ui;
mod validation;

pub use agent::{
    Agent, AgentOptions, EmptyName, MAX_EXTENSION_ENTRY_BYTES, MAX_WAITING_BYTES,
    MAX_WAITING_MESSAGES, QueueFull,
};
pub use input::{Accepted, InputKind, Submission, SubmitError};
pub use queue::{PendingMessage, PendingMessages};
pub use snapshot::{ContextUsage, SessionState};
pub use switching::{NewSession, SwitchError};
