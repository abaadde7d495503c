//! Extensions: WebAssembly components that add commands, tools and event handlers
//! to the agent. The only crate that sees wasmtime.
//!
//! One [`ExtensionHost`] per process finds the components, asks each what it offers
//! (or knows it from the cache), and runs each in a store of its own, owned by one
//! task. It implements the agent's [`Hooks`](wharf_agent::hooks::Hooks).
//!
//! What this crate must not know: JSONL, the RPC commands, standard input and
//! output, an LLM provider.

mod actor;
mod bindings;
mod budget;
mod cache;
mod call;
mod code;
mod convert;
mod discovery;
mod dispatch;
mod engine;
mod extension;
mod extension_host;
mod fault;
mod host;
mod limits;
mod loader;
mod log_file;
mod output;
mod registration;
mod registry;
mod report;
mod state;
mod tool;
mod version;

pub use discovery::Sources;
pub use extension_host::{
    ArgumentCompletion, ExtensionHost, ExtensionHostOptions, ExtensionInfo, ExtensionState,
};
pub use limits::{
    DEFAULT_CALL_BUDGET, DEFAULT_CANCEL_GRACE, DEFAULT_EVENT_BUDGET, DEFAULT_MEMORY_BYTES, Limits,
};
pub use report::{Report, Reporter, Severity};
