//! The extension host against real components. `cargo xtask guests` builds them.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod agent;
mod bus;
mod cache;
mod calls;
mod chains;
mod compaction;
mod dispatch;
mod faults;
mod fuzz;
mod inspect;
mod limits;
mod loading;
mod permissions;
mod reload;
mod replies;
mod sessions;
mod support;
mod watch;
