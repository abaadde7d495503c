//! The same as `combiner-a`, under another id.

#[path = "../../combiner-a/src/guest.rs"]
mod guest;

const ID: &str = "combiner-c";
