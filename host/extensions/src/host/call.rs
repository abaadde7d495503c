//! The call under way: waiting, and whether anybody still waits for it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use wasmtime::component::{Access, Accessor};
use wasmtime::{AsContextMut, StoreContextMut};

use crate::bindings::call::{Host, HostWithStore};
use crate::limits::MAX_SLEEP;
use crate::state::{Interfaces, State, root_task};

impl Host for State {}

impl HostWithStore<State> for Interfaces {
    fn is_cancelled(mut access: Access<'_, State, Self>) -> bool {
        token(&mut access.as_context_mut()).is_cancelled()
    }

    async fn sleep(accessor: &Accessor<State, Self>, milliseconds: u64) -> bool {
        let cancel = accessor.with(|mut access| token(&mut access.as_context_mut()));
        let time = Duration::from_millis(milliseconds).min(MAX_SLEEP);
        tokio::select! {
            biased;
            () = cancel.cancelled() => false,
            () = tokio::time::sleep(time) => true,
        }
    }

    async fn wait_cancelled(accessor: &Accessor<State, Self>) {
        let cancel = accessor.with(|mut access| token(&mut access.as_context_mut()));
        cancel.cancelled().await;
    }
}

/// That of the call that asks; work that belongs to none goes on as long as its instance.
fn token(store: &mut StoreContextMut<'_, State>) -> CancellationToken {
    let task = root_task(store);
    let state = store.data();
    match task.and_then(|task| state.calls.get(&task)) {
        Some(call) => call.cancel.clone(),
        None => state.background_cancel.clone(),
    }
}
