//! Doing several things at once inside one handler.

use std::future::Future;

/// Waits for both.
///
/// ```no_run
/// # async fn example(ctx: &wharf_sdk::Ctx) {
/// let (first, second) = wharf_sdk::join(
///     ctx.ui().confirm("First?", ""),
///     ctx.ui().confirm("Second?", ""),
/// )
/// .await;
/// # }
/// ```
pub async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    futures::future::join(a, b).await
}

/// Waits for all; the results stand in the order of the futures.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    futures::future::join_all(futures).await
}

/// Runs a future on after the handler that spawned it has answered. Only inside a
/// handler. A host function that is allowed only during a command or a tool call
/// is refused once that call has answered.
pub fn spawn(future: impl Future<Output = ()> + 'static) {
    wit_bindgen::spawn_local(future);
}
