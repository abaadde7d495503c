//! One module per mode.

pub(crate) mod once;
pub(crate) mod rpc;
