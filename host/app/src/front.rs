//! The one channel on which everything reaches a mode's loop, in order.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use wharf_agent::output::{AgentOutput, Outlet};
use wharf_protocol::{Event, Response};

/// Events that may wait for the loop. Beyond it the agent waits.
const CAPACITY: usize = 1024;

/// Everything that wakes a mode's loop, but its input and signals.
#[derive(Debug)]
pub(crate) enum Wakeup {
    Output(AgentOutput),
    /// The answer to a command that had to wait for something.
    Response(Response),
    /// The same as a line, where it is long.
    Line(Vec<u8>),
    /// The same for a session switch; those that waited behind it go on.
    Switched(Response),
    /// An extension's command has ended.
    CommandDone,
    /// An extension wanted the end, and the agent is idle.
    ShutDown,
    /// After the end of the input: the agent is idle.
    Idle,
    /// Every extension has stopped; nothing more will come.
    Stopped,
}

#[derive(Debug, Clone)]
pub(crate) struct Front {
    sender: mpsc::Sender<Wakeup>,
}

impl Front {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Wakeup>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Self { sender }, receiver)
    }

    pub(crate) async fn wake(&self, wakeup: Wakeup) {
        // The loop may have ended: then nobody needs to know.
        let _ = self.sender.send(wakeup).await;
    }

    /// For callers that cannot wait: sent now or, when the queue is full, by a task.
    pub(crate) fn event(&self, event: Event) {
        let output = AgentOutput::Event(Arc::new(event));
        if let Err(TrySendError::Full(wakeup)) = self.sender.try_send(Wakeup::Output(output)) {
            let front = self.clone();
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { front.wake(wakeup).await });
            }
        }
    }

    pub(crate) fn extension_error(&self, path: PathBuf, event: &str, error: String) {
        self.event(Event::ExtensionError {
            extension_path: path.display().to_string(),
            event: event.to_owned(),
            error,
        });
    }
}

impl Outlet for Front {
    fn try_send(&self, output: AgentOutput) -> Result<(), Box<AgentOutput>> {
        match self.sender.try_send(Wakeup::Output(output)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(Wakeup::Output(output))) => Err(Box::new(output)),
            // A reader that is gone takes nothing.
            Err(_) => Ok(()),
        }
    }

    fn send(&self, output: AgentOutput) -> BoxFuture<'_, ()> {
        Box::pin(self.wake(Wakeup::Output(output)))
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // Given back at once: whoever asked tries again. A closed channel has room.
            let _ = self.sender.reserve().await;
        })
    }
}
