//! End-to-end tests: each runs the real binary over real pipes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aborts;
mod commands;
mod dialogs;
mod order;
mod overlap;
mod processes;
mod protocol;
mod queueing;
