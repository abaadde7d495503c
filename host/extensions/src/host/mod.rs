//! What a guest can call: one file per WIT interface. Everything that a guest chose
//! the size of is capped here, with the constants of `limits`.

mod agent;
mod bus;
mod call;
mod control;
mod files;
#[expect(unreachable_pub, reason = "what `bindgen!` makes of its resource is public")]
pub mod http;
mod log;
mod process;
mod progress;
mod replies;
mod session;
mod ui;

use std::sync::Arc;

use serde_json::Value;
use wasmtime::AsContextMut;
use wasmtime::component::Accessor;
use wharf_agent::host_api::{HostApi, HostApiError};

use crate::access::{Access, Caller};
use crate::bindings::types::{self, AccessError};
use crate::limits::cut;
use crate::state::{CallKind, Interfaces, State, root_task};

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

/// What the extension may reach, and the call that it asks for. Before a host function's
/// first wait.
fn granted(accessor: &Accessor<State, Interfaces>) -> Result<(Arc<Access>, Caller), AccessError> {
    accessor.with(|mut access| {
        let task = root_task(&mut access.as_context_mut());
        let state = access.get();
        let call = task.and_then(|task| state.calls.get(&task));
        let caller = Caller {
            cancel: call.map_or(&state.background_cancel, |call| &call.cancel).clone(),
            is_start_up: call.is_some_and(|call| matches!(call.kind, CallKind::StartUp)),
        };
        match state.access() {
            Some(access) => Ok((Arc::clone(access), caller)),
            None => Err(AccessError::Denied("register may reach nothing".to_owned())),
        }
    })
}

/// The agent, which does what was granted.
fn agent_of(accessor: &Accessor<State, Interfaces>) -> Result<Arc<dyn HostApi>, AccessError> {
    accessor
        .with(|mut access| access.get().api().cloned())
        .ok_or_else(|| AccessError::Failed("the agent is not there yet".to_owned()))
}

/// An argument within its cap.
fn at_most(argument: &str, bytes: usize, cap: usize) -> Result<(), AccessError> {
    if bytes > cap {
        return Err(AccessError::Invalid(format!(
            "{argument} has {bytes} bytes; the limit is {cap}"
        )));
    }
    Ok(())
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
    crate::convert::parse(text).map_err(|problem| {
        types::HostError::Invalid(format!("{argument} {problem} in {:?}", cut(text, 100)))
    })
}
