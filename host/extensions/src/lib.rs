//! Extensions: WebAssembly components that add commands, tools and event handlers
//! to the agent. The only crate that sees wasmtime.
//!
//! One [`ExtensionHost`] per process finds the components, asks each what it offers
//! (or knows it from the cache), and runs each in a store of its own, owned by one
//! task. It implements the agent's [`Hooks`](wharf_agent::hooks::Hooks).
//!
//! What this crate must not know: JSONL, the RPC commands, standard input and
//! output, an LLM provider.

mod access;
mod actor;
mod ask;
mod bindings;
mod budget;
mod cache;
mod call;
mod code;
mod convert;
mod data;
mod discovery;
mod dispatch;
mod engine;
mod extension;
mod extension_host;
mod fault;
#[doc(hidden)]
pub mod for_benches;
#[cfg(test)]
mod fuzz;
mod grants;
mod host;
mod inspect;
mod installed;
mod limits;
mod live;
mod loader;
mod log_file;
mod offers;
mod output;
mod peers;
mod permissions;
mod places;
mod registration;
mod registry;
mod reload;
mod replies;
mod report;
mod schema;
mod state;
mod tool;
mod version;
mod watch;

pub use discovery::{Scope, Sources};
pub use extension_host::{
    ArgumentCompletion, ExtensionHost, ExtensionHostOptions, ExtensionInfo, ExtensionState,
    Loadable,
};
pub use grants::{Grant, GrantError, GrantStore, Subject};
pub use inspect::{Inspection, inspect};
pub use installed::{
    Installed, InstalledEntry, InstalledError, LockedInstalled, is_content_hash, is_extension_id,
};
pub use limits::{
    DEFAULT_CALL_BUDGET, DEFAULT_CANCEL_GRACE, DEFAULT_EVENT_BUDGET, DEFAULT_EXEC_OUTPUT_BYTES,
    DEFAULT_FAULTS_PER_MINUTE, DEFAULT_MEMORY_BYTES, DEFAULT_OPEN_DIALOGS,
    DEFAULT_QUEUED_NOTIFICATIONS, DEFAULT_WAITING_CALLS, Limits, MAX_COMPONENT_BYTES,
};
pub use registration::{Command, Flag, Permission, Registration, Shortcut, Tool};
pub use report::{Report, Reporter, Severity};
pub use watch::WatchError;
