//! What a guest can call: one file per WIT interface. Everything that a guest chose
//! the size of is capped here, with the constants of `limits`.

mod agent;
mod control;
mod log;
mod progress;
mod session;
mod ui;

use serde_json::Value;
use wharf_agent::host_api::HostApiError;

use crate::bindings::types;
use crate::limits::cut;
use crate::state::State;

impl types::Host for State {}

impl From<HostApiError> for types::HostError {
    fn from(error: HostApiError) -> Self {
        match error {
            HostApiError::NotAllowed(text) => Self::NotAllowed(text),
            HostApiError::Invalid(text) => Self::Invalid(text),
            HostApiError::Failed(text) => Self::Failed(text),
        }
    }
}

/// What a function answers that needs the agent while there is none.
fn no_agent() -> types::HostError {
    types::HostError::NotAllowed(
        "the agent is not there yet: call this from a handler, not from register".to_owned(),
    )
}

/// An argument within its cap.
fn bounded(argument: &str, text: &str, cap: usize) -> Result<(), types::HostError> {
    if text.len() > cap {
        return Err(types::HostError::Invalid(format!(
            "{argument} has {} bytes; the limit is {cap}",
            text.len()
        )));
    }
    Ok(())
}

/// An argument that is JSON text, within its cap.
fn parse_json(argument: &str, text: &str, cap: usize) -> Result<Value, types::HostError> {
    bounded(argument, text, cap)?;
    serde_json::from_str(text).map_err(|error| {
        types::HostError::Invalid(format!("{argument} is no JSON: {error} in {:?}", cut(text, 100)))
    })
}
