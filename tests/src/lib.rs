//! The harness of the end-to-end tests: a hermetic environment, the real binary
//! over real pipes, and transcripts that can be compared.
//!
//! Waits are bounded so that a fault fails a test instead of hanging it; no test
//! passes or fails by how fast something was.

#![expect(clippy::missing_panics_doc, reason = "a test fails by panicking")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod env;
mod file_server;
pub mod llm;
mod mock;
mod process;
pub mod script;
mod session_file;
mod transcript;
pub mod web;

pub use env::{Env, binary, guest};
pub use file_server::{Answer, FileServer, Request};
pub use mock::MockLlm;
pub use process::{Exit, Wharf};
pub use session_file::SessionFile;
pub use transcript::{Direction, normalise};

/// Two PNGs of one pixel, in base64: a black one and a white one.
pub const PIXELS: [&str; 2] = [
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNgAAAAAgAB5Sfe/AAAAABJRU5ErkJggg==",
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mP4DwABAQEAHLCMmQAAAABJRU5ErkJggg==",
];

/// Tells whoever runs the tests something: that a part was skipped, and why.
pub fn note(text: impl std::fmt::Display) {
    use std::io::Write as _;
    // Nobody may be reading; the test goes on.
    let _ = writeln!(std::io::stderr(), "{text}");
}
