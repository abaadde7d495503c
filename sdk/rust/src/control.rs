//! What only a command may do: wait for the agent, and change the session.

use crate::Result;
use crate::bindings::wharf::extension::control;

/// What became of a request for another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switched {
    /// The other session is the current one.
    Done,
    /// An extension's `session_before_switch` handler said no.
    Cancelled,
}

impl Switched {
    const fn from_cancelled(cancelled: bool) -> Self {
        if cancelled { Self::Cancelled } else { Self::Done }
    }
}

/// Control over the agent, from [`CommandCtx::control`](crate::CommandCtx::control).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Control;

impl Control {
    /// A handle for code that does not know whether a command runs. When none
    /// does, each call fails at once with [`Error::NotAllowed`](crate::Error::NotAllowed):
    /// an event handler that waited for the agent would wait for itself.
    #[must_use]
    pub const fn unchecked() -> Self {
        Self
    }

    /// Waits until the agent has nothing to do.
    ///
    /// # Errors
    /// `NotAllowed` outside a command.
    pub async fn wait_for_idle(self) -> Result<()> {
        Ok(control::wait_for_idle().await?)
    }

    /// Begins a new session.
    ///
    /// # Errors
    /// `NotAllowed` outside a command; `Failed` when it could not be made.
    pub async fn new_session(self) -> Result<Switched> {
        Ok(Switched::from_cancelled(control::new_session().await?))
    }

    /// Opens the session of a file.
    ///
    /// # Errors
    /// `NotAllowed` outside a command; `Failed` when the file is no session.
    pub async fn switch_session(self, file: impl Into<String>) -> Result<Switched> {
        Ok(Switched::from_cancelled(control::switch_session(file.into()).await?))
    }
}
