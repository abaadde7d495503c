//! The extension host against real components. `cargo xtask guests` builds them.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cache;
mod calls;
mod compaction;
mod dispatch;
mod faults;
mod loading;
mod sessions;
mod support;
