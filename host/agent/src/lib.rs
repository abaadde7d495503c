//! The agent: the turn loop, its queues, built-in tools, and the resources
//! (settings, skills, prompt templates, context files) that a run is made of.
//!
//! What this crate must not know: standard input and output, the RPC commands,
//! wasmtime, an HTTP client.

pub mod hooks;
pub mod host_api;
pub mod resources;
pub mod tool;
pub mod tools;
pub mod ui;
