//! One extension at two versions, `changing` and `changing-later`, for reloads. `/which`
//! shows the version and how often `session_start` came, `/wait` opens a dialog and shows
//! its outcome, `/stubborn` opens one after another whatever comes of them, and `/reload`
//! reloads. `tool_call` asks before shell commands that contain `ASK`.

use std::cell::Cell;

use wharf_sdk::{
    Answer, BuiltinCall, CommandCtx, Ctx, Event, Extension, Notification, Registration, Result,
    ToolCallDecision, ToolCallEvent,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Default)]
struct Changing {
    starts: Cell<u32>,
}

impl Extension for Changing {
    fn register() -> Registration<Self> {
        Registration::new("changing", VERSION)
            .command("which", "Shows the version", Self::which)
            .command("wait", "Opens a dialog", Self::wait)
            .command("stubborn", "Opens dialogs for ever", Self::stubborn)
            .command("reload", "Reloads", Self::reload)
            .on_tool_call(Self::tool_call)
            .on_notification([Event::SessionStart], Self::started)
    }
}

impl Changing {
    async fn which(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        ctx.ui().notify(format!("{VERSION}, started {}", self.starts.get()));
        Ok(())
    }

    async fn wait(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        let outcome = match ctx.ui().confirm("Waiting", "Go on?").await {
            Answer::Answered(_) => "answered",
            Answer::Cancelled => "cancelled",
            Answer::TimedOut => "timed out",
            Answer::NoUi => "no UI",
        };
        ctx.ui().notify(format!("{VERSION}: {outcome}"));
        Ok(())
    }

    async fn stubborn(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        loop {
            ctx.ui().confirm("Waiting", "Go on?").await;
        }
    }

    async fn reload(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        let reloaded = ctx.control().reload().await?;
        ctx.ui().notify(format!("{VERSION}: {} reloaded", reloaded.len()));
        Ok(())
    }

    async fn tool_call(&self, ctx: &Ctx, event: ToolCallEvent) -> Result<ToolCallDecision> {
        if let Some(BuiltinCall::Bash(bash)) = event.builtin()?
            && bash.command.contains("ASK")
            && !ctx.ui().confirm("Allow?", bash.command).await.is_yes()
        {
            return Ok(ToolCallDecision::block(format!("{VERSION} says no")));
        }
        Ok(ToolCallDecision::Allow)
    }

    async fn started(&self, _ctx: &Ctx, _event: Notification) -> Result<()> {
        self.starts.set(self.starts.get() + 1);
        Ok(())
    }
}

wharf_sdk::export!(Changing);
