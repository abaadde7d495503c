//! What leaves the agent. A front end implements [`Outlet`]; the agent, the
//! dialogs and the extension host share it, so that everything leaves in the
//! order in which it happened.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::oneshot;
use wharf_protocol::{Event, StreamDelta};

#[derive(Debug)]
pub enum AgentOutput {
    Event(Arc<Event>),
    /// A step of the reply that the last `message_start` announced.
    Delta(StreamDelta),
    /// Something for the log and the person that no event has a shape for.
    Diagnostic {
        path: PathBuf,
        message: String,
    },
    /// An extension wants the program to end in order, as soon as the agent is idle.
    ShutdownRequested,
    /// Completed once everything before it has been written and flushed.
    Barrier(oneshot::Sender<()>),
}

pub trait Outlet: Send + Sync + fmt::Debug {
    /// Gives the output back when the queue is full or nobody reads any more.
    ///
    /// # Errors
    /// The output, unsent.
    fn try_send(&self, output: AgentOutput) -> Result<(), Box<AgentOutput>>;

    /// Waits for room: a slow reader slows the agent down. Output for a reader
    /// that is gone is dropped.
    fn send(&self, output: AgentOutput) -> BoxFuture<'_, ()>;

    /// Waits until there may be room.
    fn room(&self) -> BoxFuture<'_, ()>;
}

/// Sends, and waits only where it must.
pub async fn deliver(outlet: &dyn Outlet, output: AgentOutput) {
    if let Err(output) = outlet.try_send(output) {
        outlet.send(*output).await;
    }
}
