//! What a handler is given to reach the host with.

use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use serde::Serialize;

use crate::bindings::wharf::extension::{agent, call, progress, types as wit};
use crate::{
    AccessError, Agent, Bus, Control, Files, Http, Json, Log, Process, Result, Session, ToolOutput,
    Ui,
};

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

    /// Files beyond `/data`, as far as they are granted.
    #[must_use]
    pub const fn files(self) -> Files {
        Files
    }

    /// HTTP requests to granted hosts.
    #[must_use]
    pub const fn http(self) -> Http {
        Http
    }

    /// Programs that are granted.
    #[must_use]
    pub const fn process(self) -> Process {
        Process
    }

    /// The value of an environment variable that is granted; none: it is not set.
    ///
    /// # Errors
    /// `Denied` without a grant.
    pub async fn env(self, name: impl Into<String>) -> Result<Option<String>, AccessError> {
        Process.env(name).await
    }

    /// Events to other extensions.
    #[must_use]
    pub const fn bus(self) -> Bus {
        Bus
    }

    /// The log file.
    #[must_use]
    pub const fn log(self) -> Log {
        Log
    }

    /// Waits, in whole milliseconds and for at most 24 hours. Other handlers run
    /// meanwhile, and waiting is not charged to the call's budget.
    ///
    /// ```
    /// # use wharf_sdk::{Ctx, Result};
    /// use std::time::Duration;
    ///
    /// async fn wait_for_server(ctx: &Ctx) -> Result<()> {
    ///     while ctx.http().get("http://127.0.0.1:8080/").send().await.is_err() {
    ///         ctx.sleep(Duration::from_millis(200)).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// `Cancelled` when the call was cancelled meanwhile.
    pub async fn sleep(self, duration: Duration) -> Result<(), AccessError> {
        let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        if call::sleep(milliseconds).await { Ok(()) } else { Err(AccessError::Cancelled) }
    }

    /// True when nobody waits for this call any more: the run was aborted, or Wharf
    /// ends. A handler then returns soon.
    #[must_use]
    pub fn is_cancelled(self) -> bool {
        call::is_cancelled()
    }

    /// Waits until this call is cancelled.
    pub async fn cancelled(self) {
        call::wait_cancelled().await;
    }

    /// Waits for some work, unless the call is cancelled before; the work is then
    /// dropped.
    ///
    /// ```
    /// # use wharf_sdk::{AccessError, Ctx};
    /// async fn page(ctx: &Ctx, url: &str) -> Result<String, AccessError> {
    ///     let response = ctx.http().get(url).send().await?;
    ///     ctx.unless_cancelled(response.text()).await?
    /// }
    /// ```
    ///
    /// # Errors
    /// `Cancelled` when the call was cancelled before.
    pub async fn unless_cancelled<F: Future>(self, work: F) -> Result<F::Output, AccessError> {
        match select(pin!(work), pin!(self.cancelled())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(AccessError::Cancelled),
        }
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
    /// The context of a call, and its arguments.
    pub(crate) fn of_call(call: wit::ToolInvocation) -> (Self, Json) {
        let (tool_call_id, tool_name) = (call.tool_call_id, call.tool_name);
        (Self { ctx: Ctx::new(), tool_call_id, tool_name }, Json::from_host(call.input))
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

    /// Runs the built-in tool that this tool overrides. Arguments that differ from
    /// those of the call are checked against the schema and pass the `tool_call`
    /// handlers of all extensions again. What the built-in reports as an error is the
    /// output.
    ///
    /// ```
    /// # use wharf_sdk::{Result, ToolCtx, ToolOutput};
    /// use wharf_sdk::Parameters;
    ///
    /// #[derive(serde::Deserialize, serde::Serialize, Parameters)]
    /// struct Bash {
    ///     command: String,
    ///     #[serde(skip_serializing_if = "Option::is_none")]
    ///     timeout: Option<f64>,
    /// }
    ///
    /// async fn bash(ctx: &ToolCtx, mut args: Bash) -> Result<ToolOutput> {
    ///     args.command.insert_str(0, "set -e; ");
    ///     ctx.call_built_in(&args).await
    /// }
    /// ```
    ///
    /// # Errors
    /// `NotAllowed` when the tool overrides no built-in or an extension blocks the
    /// other arguments, `Invalid` when they do not fit the schema.
    pub async fn call_built_in<T: Serialize + ?Sized>(&self, input: &T) -> Result<ToolOutput> {
        let input = Json::of(input)?.into_string();
        Ok(agent::call_built_in(self.tool_call_id.clone(), input).await?.into())
    }
}

impl Deref for ToolCtx {
    type Target = Ctx;

    fn deref(&self) -> &Ctx {
        &self.ctx
    }
}
