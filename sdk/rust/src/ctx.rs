//! What a handler is given to reach the host with.

use std::ops::Deref;

use crate::bindings::wharf::extension::progress;
use crate::{Agent, Control, Log, Session, ToolOutput, Ui};

/// The host, as every handler sees it.
#[derive(Debug, Clone, Copy)]
pub struct Ctx(());

impl Ctx {
    pub(crate) const fn new() -> Self {
        Self(())
    }

    /// Dialogs, and what a front end shows.
    #[must_use]
    pub const fn ui(self) -> Ui {
        Ui::new()
    }

    /// The current session.
    #[must_use]
    pub const fn session(self) -> Session {
        Session
    }

    /// The agent.
    #[must_use]
    pub const fn agent(self) -> Agent {
        Agent
    }

    /// The log file.
    #[must_use]
    pub const fn log(self) -> Log {
        Log
    }
}

/// The host, as a command sees it: a [`Ctx`] with [`control`](Self::control).
#[derive(Debug, Clone, Copy)]
pub struct CommandCtx(Ctx);

impl CommandCtx {
    pub(crate) const fn new() -> Self {
        Self(Ctx::new())
    }

    /// Waiting for the agent, and changing the session.
    #[must_use]
    pub const fn control(self) -> Control {
        Control
    }
}

impl Deref for CommandCtx {
    type Target = Ctx;

    fn deref(&self) -> &Ctx {
        &self.0
    }
}

/// The host, as a running tool sees it: a [`Ctx`] with the call's progress.
#[derive(Debug, Clone)]
pub struct ToolCtx {
    ctx: Ctx,
    tool_call_id: String,
    tool_name: String,
}

impl ToolCtx {
    pub(crate) const fn new(tool_call_id: String, tool_name: String) -> Self {
        Self { ctx: Ctx::new(), tool_call_id, tool_name }
    }

    /// The id that the model gave to the call.
    #[must_use]
    pub fn tool_call_id(&self) -> &str {
        &self.tool_call_id
    }

    /// The tool's name.
    #[must_use]
    pub fn tool_name(&self) -> &str {
        &self.tool_name
    }

    /// Replaces what the front end shows of the running call.
    pub fn progress(&self, output: impl Into<ToolOutput>) {
        progress::update(&self.tool_call_id, &output.into().into());
    }
}

impl Deref for ToolCtx {
    type Target = Ctx;

    fn deref(&self) -> &Ctx {
        &self.ctx
    }
}
