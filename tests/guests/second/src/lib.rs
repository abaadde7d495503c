//! The same as `first`, under another id.

#[path = "../../first/src/guest.rs"]
mod guest;

const ID: &str = "second";
