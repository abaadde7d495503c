//! Blocking file work away from the async threads.

use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;

use crate::tool::ToolFailure;

pub(super) fn aborted() -> ToolFailure {
    ToolFailure::new("operation aborted")
}

/// Runs work that changes nothing. It gets a token that is cancelled on abort and when
/// the returned future is dropped; on abort the answer does not wait for it.
pub(super) async fn run_cancellable<T, F>(
    cancel: &CancellationToken,
    work: F,
) -> Result<T, ToolFailure>
where
    T: Send + 'static,
    F: FnOnce(&CancellationToken) -> Result<T, ToolFailure> + Send + 'static,
{
    let token = cancel.child_token();
    let _stop_when_dropped = token.clone().drop_guard();
    let task = spawn_blocking(move || work(&token));
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(aborted()),
        result = task => result.unwrap_or_else(|error| Err(panicked(&error))),
    }
}

/// Runs work that changes a file: once begun it is waited for, so that the answer is
/// the truth.
pub(super) async fn run_to_the_end<T, F>(
    cancel: &CancellationToken,
    work: F,
) -> Result<T, ToolFailure>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, ToolFailure> + Send + 'static,
{
    if cancel.is_cancelled() {
        return Err(aborted());
    }
    spawn_blocking(work).await.unwrap_or_else(|error| Err(panicked(&error)))
}

fn panicked(error: &JoinError) -> ToolFailure {
    ToolFailure::new(format!("internal error: the tool's work failed: {error}"))
}
