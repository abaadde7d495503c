//! The agent: the turn loop, its queues, built-in tools, and the resources
//! (settings, skills, prompt templates, context files) that a run is made of.
//!
//! What this crate must not know: standard input and output, the RPC commands,
//! wasmtime, an HTTP client.

mod agent;
mod ask;
mod branch_summary;
mod built_in_call;
mod calls;
mod compaction;
mod conversation;
mod exec;
mod extension_api;
mod extension_provider;
pub mod hooks;
pub mod host_api;
mod images;
mod input;
mod inventory;
mod models;
mod navigation;
pub mod output;
mod payload;
mod performance;
mod queue;
mod reload;
mod reply;
pub mod resources;
mod retry;
mod run;
mod snapshot;
mod speed;
mod stream;
mod switching;
mod tasks;
#[cfg(test)]
mod test_agent;
#[cfg(test)]
mod tests;
mod title;
pub mod tool;
mod toolbox;
pub mod tools;
pub mod ui;
mod user_bash;
mod validation;

pub use agent::{
    Agent, AgentOptions, EmptyName, MAX_EXTENSION_ENTRY_BYTES, MAX_WAITING_BYTES,
    MAX_WAITING_MESSAGES, QueueFull,
};
pub use compaction::CompactError;
pub use input::{Accepted, InputKind, Submission, SubmitError};
pub use inventory::{DeleteSessionError, SessionStore};
pub use models::{CycledModel, Kept, SetModelError};
pub use navigation::{ForkMessage, NavigateError, Navigated};
pub use performance::{ModelPerformance, PerformanceLog};
pub use queue::{PendingMessage, PendingMessages};
pub use reload::ResourceLoader;
pub use snapshot::{ContextUsage, ScopedModel, SessionState, SessionStats};
pub use switching::{Forked, NewSession, SwitchError};
pub use user_bash::BashResult;
