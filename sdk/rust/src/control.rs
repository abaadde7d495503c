//! What only a command may do: wait for the agent, and change the session.

use crate::Result;
use crate::bindings::wharf::extension::control::{self, self as wit};
use crate::tool::convert;

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

/// How a session begins that [`Control::new_session_with`] makes. The default is that
/// of [`Control::new_session`].
///
/// ```
/// # use wharf_sdk::{CommandCtx, NewSession, Result};
/// async fn continue_elsewhere(ctx: &CommandCtx) -> Result<()> {
///     let mut options = NewSession::new();
///     options.parent_session = ctx.session().file();
///     ctx.control().new_session_with(options).await?;
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewSession {
    /// The file of the session that it came from, which its header names.
    pub parent_session: Option<String>,
}

impl NewSession {
    /// A session that came from nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the file of the session that it came from.
    #[must_use]
    pub fn parent(mut self, file: impl Into<String>) -> Self {
        self.parent_session = Some(file.into());
        self
    }
}

/// What became of [`Control::fork`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forked {
    /// The fork is the current session.
    Done {
        /// The text of the message that it begins before.
        text: String,
    },
    /// An extension's `session_before_fork` handler said no.
    Cancelled,
}

/// How [`Control::navigate_tree`] leaves the branch. The default says nothing about
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Navigate(wit::NavigateOptions);

impl Navigate {
    /// Nothing is said about the branch that is left.
    #[must_use]
    pub const fn new() -> Self {
        Self(wit::NavigateOptions {
            summarize: false,
            custom_instructions: None,
            replace_instructions: false,
            label: None,
        })
    }

    /// The model summarises it.
    #[must_use]
    pub const fn summarize(mut self) -> Self {
        self.0.summarize = true;
        self
    }

    /// What the summary is to look at, beside the host's own instructions.
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.0.custom_instructions = Some(instructions.into());
        self
    }

    /// What the summary is to be, in place of the host's own instructions.
    #[must_use]
    pub fn only_instructions(mut self, instructions: impl Into<String>) -> Self {
        self.0.replace_instructions = true;
        self.instructions(instructions)
    }

    /// A label for the entry with the summary or, without one, for the target.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.0.label = Some(label.into());
        self
    }
}

impl Default for Navigate {
    fn default() -> Self {
        Self::new()
    }
}

/// What became of [`Control::navigate_tree`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Navigated {
    /// The leaf has moved.
    Done {
        /// The text of the message that it was moved before, to be written anew.
        editor_text: Option<String>,
    },
    /// An extension said no, or the summary was aborted.
    Cancelled,
}

/// What became of one extension in [`Control::reload`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReloadedExtension {
    /// Its id.
    pub id: String,
    /// None: it was not there before.
    pub old_version: Option<String>,
    /// None: it is gone.
    pub new_version: Option<String>,
    /// Its content is another one than before.
    pub changed: bool,
    /// Why the new content is not used; the old one goes on.
    pub error: Option<String>,
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
    /// Begins a new session in a way of its own.
    ///
    /// # Errors
    /// `NotAllowed` outside a command; `Failed` when it could not be made.
    pub async fn new_session_with(self, options: NewSession) -> Result<Switched> {
        let options = wit::NewSessionOptions { parent_session: options.parent_session };
        Ok(Switched::from_cancelled(control::new_session_with(options).await?))
    }

    /// Makes a session of the branch before a message of the person the current one.
    ///
    /// # Errors
    /// `NotAllowed` outside a command; `Invalid` when the entry is no message of the
    /// person.
    pub async fn fork(self, entry: impl Into<String>) -> Result<Forked> {
        let outcome = control::fork(entry.into()).await?;
        Ok(if outcome.cancelled { Forked::Cancelled } else { Forked::Done { text: outcome.text } })
    }

    /// Moves the leaf to another entry of the session's tree.
    ///
    /// ```
    /// # use wharf_sdk::{CommandCtx, Navigate, Navigated, Result};
    /// async fn back(ctx: &CommandCtx, entry: &str) -> Result<()> {
    ///     let options = Navigate::new().summarize().label("a dead end");
    ///     if let Navigated::Done { editor_text: Some(text) } =
    ///         ctx.control().navigate_tree(entry, options).await?
    ///     {
    ///         ctx.ui().set_editor_text(text);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// `NotAllowed` outside a command; `Invalid` when there is no such entry.
    pub async fn navigate_tree(
        self,
        target: impl Into<String>,
        options: Navigate,
    ) -> Result<Navigated> {
        let outcome = control::navigate_tree(target.into(), options.0).await?;
        Ok(if outcome.cancelled {
            Navigated::Cancelled
        } else {
            Navigated::Done { editor_text: outcome.editor_text }
        })
    }

    /// Loads settings, skills, prompt templates and the extensions whose content has
    /// changed again. Where this extension is one of them, its instance ends soon after
    /// the command has returned.
    ///
    /// # Errors
    /// `NotAllowed` outside a command.
    pub async fn reload(self) -> Result<Vec<ReloadedExtension>> {
        Ok(convert(control::reload().await?))
    }
}

impl From<wit::ReloadedExtension> for ReloadedExtension {
    fn from(extension: wit::ReloadedExtension) -> Self {
        Self {
            id: extension.id,
            old_version: extension.old_version,
            new_version: extension.new_version,
            changed: extension.changed,
            error: extension.error,
        }
    }
}
