//! What only a command may do, because it would wait for itself elsewhere.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wasmtime::AsContextMut;
use wasmtime::component::Accessor;
use wharf_agent::hooks::TreeOptions;
use wharf_agent::host_api::HostApi;

use super::{bounded, no_agent};
use crate::bindings::control::{
    ForkOutcome, Host, HostWithStore, NavigateOptions, NavigateOutcome, NewSessionOptions,
    ReloadedExtension,
};
use crate::bindings::types::HostError;
use crate::limits::{MAX_NAME_BYTES, MAX_PATH_BYTES, MAX_TEXT_BYTES};
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
        bounded("file", &file, MAX_PATH_BYTES)?;
        until(&cancel, async { Ok(api.switch_session(PathBuf::from(file)).await?) }).await
    }

    async fn new_session_with(
        accessor: &Accessor<State, Self>,
        options: NewSessionOptions,
    ) -> Result<bool, HostError> {
        let (api, cancel) = in_command(accessor, "new-session-with")?;
        bounded("parent-session", text(&options.parent_session), MAX_PATH_BYTES)?;
        until(&cancel, async { Ok(api.new_session_with(options.parent_session).await?) }).await
    }

    async fn fork(
        accessor: &Accessor<State, Self>,
        entry: String,
    ) -> Result<ForkOutcome, HostError> {
        let (api, cancel) = in_command(accessor, "fork")?;
        bounded("entry", &entry, MAX_NAME_BYTES)?;
        until(&cancel, async {
            let forked = api.fork(entry).await?;
            Ok(ForkOutcome { cancelled: forked.cancelled, text: forked.text })
        })
        .await
    }

    async fn navigate_tree(
        accessor: &Accessor<State, Self>,
        target: String,
        options: NavigateOptions,
    ) -> Result<NavigateOutcome, HostError> {
        let (api, cancel) = in_command(accessor, "navigate-tree")?;
        bounded("target", &target, MAX_NAME_BYTES)?;
        bounded("custom-instructions", text(&options.custom_instructions), MAX_TEXT_BYTES)?;
        bounded("label", text(&options.label), MAX_NAME_BYTES)?;
        let options = TreeOptions {
            summarize: options.summarize,
            custom_instructions: options.custom_instructions,
            replace_instructions: options.replace_instructions,
            label: options.label,
        };
        until(&cancel, async {
            let moved = api.navigate_tree(target, options).await?;
            Ok(NavigateOutcome { cancelled: moved.cancelled, editor_text: moved.editor_text })
        })
        .await
    }

    async fn reload(accessor: &Accessor<State, Self>) -> Result<Vec<ReloadedExtension>, HostError> {
        let (api, _) = in_command(accessor, "reload")?;
        let runtime = accessor.with(|mut access| access.get().services.runtime.clone());
        // It may replace the very instance that asks, which cancels this command: what has
        // begun goes on to its end all the same.
        let reload = runtime.spawn(api.reload()).await;
        let reloaded = reload.map_err(|error| HostError::Failed(error.to_string()))??;
        let reloaded = reloaded.into_iter().map(|extension| ReloadedExtension {
            id: extension.id,
            old_version: extension.old_version,
            new_version: extension.new_version,
            changed: extension.changed,
            error: extension.error,
        });
        Ok(reloaded.collect())
    }
}

fn text(option: &Option<String>) -> &str {
    option.as_deref().unwrap_or_default()
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
