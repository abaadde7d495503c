//! What only a command may do, because it would wait for itself elsewhere.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wasmtime::AsContextMut;
use wasmtime::component::Accessor;
use wharf_agent::host_api::HostApi;

use super::no_agent;
use crate::bindings::control::{Host, HostWithStore};
use crate::bindings::types::HostError;
use crate::state::{CallKind, Interfaces, State, root_task};

impl Host for State {}

impl HostWithStore<State> for Interfaces {
    async fn wait_for_idle(accessor: &Accessor<State, Self>) -> Result<(), HostError> {
        let (api, cancel) = in_command(accessor, "wait-for-idle")?;
        until(&cancel, async {
            api.wait_for_idle().await;
            Ok(())
        })
        .await
    }

    async fn new_session(accessor: &Accessor<State, Self>) -> Result<bool, HostError> {
        let (api, cancel) = in_command(accessor, "new-session")?;
        until(&cancel, async { Ok(api.new_session().await?) }).await
    }

    async fn switch_session(
        accessor: &Accessor<State, Self>,
        file: String,
    ) -> Result<bool, HostError> {
        let (api, cancel) = in_command(accessor, "switch-session")?;
        until(&cancel, async { Ok(api.switch_session(PathBuf::from(file)).await?) }).await
    }
}

/// The agent, and the token of the command that asks.
fn in_command(
    accessor: &Accessor<State, Interfaces>,
    function: &str,
) -> Result<(Arc<dyn HostApi>, CancellationToken), HostError> {
    accessor.with(|mut access| {
        let task = root_task(&mut access.as_context_mut());
        let state = access.get();
        match task.and_then(|task| state.calls.get(&task)) {
            Some(call) if matches!(call.kind, CallKind::Command { .. }) => {
                let api = state.api().ok_or_else(no_agent)?;
                Ok((Arc::clone(api), call.cancel.clone()))
            }
            _ => Err(HostError::NotAllowed(format!(
                "control.{function} may be called only while a command of this extension runs"
            ))),
        }
    })
}

async fn until<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, HostError>>,
) -> Result<T, HostError> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(HostError::Failed("the command was cancelled".to_owned())),
        result = work => result,
    }
}
