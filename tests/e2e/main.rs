//! End-to-end tests: each runs the real binary over real pipes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aborts;
mod commands;
mod crash;
mod demo;
mod dialogs;
mod examples;
mod extensions;
mod faults;
mod input;
mod interleaving;
mod life;
mod modes;
mod order;
mod overlap;
mod processes;
mod protocol;
mod queueing;
mod readme;
mod resources;
mod sessions;
mod sizes;
mod tools;
mod trust;
mod updates;
