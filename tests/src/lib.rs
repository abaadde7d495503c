//! The harness of the end-to-end tests: a hermetic environment, the real binary
//! over real pipes, and transcripts that can be compared.
//!
//! Waits are bounded so that a fault fails a test instead of hanging it; no test
//! passes or fails by how fast something was.

#![expect(clippy::missing_panics_doc, reason = "a test fails by panicking")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod env;
mod process;
pub mod script;
mod transcript;

pub use env::{Env, binary, guest};
pub use process::{Exit, Wharf};
pub use transcript::{Direction, normalise};
