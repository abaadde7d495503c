//! Calls the functions of `control` where they would wait for themselves.
//!
//! - `/inside NAME` does so in a command, where it is allowed: `switches` (five new
//!   sessions at once), `reloads` (two reloads at once), `after` (one more when the
//!   command has answered), `own-turn` (waits for the run of its own message).
//! - `/arm` has every handler try all of them from then on; each shows what it was told.

use std::cell::Cell;
use std::time::Duration;

use outcome::{kind, show};
use serde::Serialize;
use wharf_sdk::{
    BeforeAgentStart, BeforeAgentStartEvent, CommandCtx, CommandSpec, Completion, ContextEvent,
    Control, Ctx, Delivery, Event, Extension, ForkDecision, InputDecision, InputEvent, Json,
    Navigate, NewSession, Notification, Parameters, Registration, Result, SessionBeforeForkEvent,
    SessionBeforeSwitchEvent, SwitchDecision, ToolCallDecision, ToolCallEvent, ToolCtx,
    UserBashDecision, UserBashEvent, join, join_all, spawn,
};

#[derive(Default)]
struct Reenters {
    is_armed: Cell<bool>,
}

#[derive(serde::Deserialize, Parameters)]
struct Nothing {}

/// What the functions answered: each kind of refusal once, or `ok`.
#[derive(Serialize)]
struct Refusals(Vec<(&'static str, &'static str)>);

impl Extension for Reenters {
    fn register() -> Registration<Self> {
        Registration::new("reenters", "0.1.0")
            .command("inside", "Calls control in a command", Self::inside)
            .command("arm", "Has every handler call control", Self::arm)
            .command_with(CommandSpec::new("offers", "Has completions"), Self::arm)
            .complete("offers", Self::complete)
            .tool("reenter", "Calls control.", Self::tool)
            .on_tool_call(Self::tool_call)
            .on_input(Self::input)
            .on_before_agent_start(Self::before_agent_start)
            .on_context(Self::context)
            .on_user_bash(Self::user_bash)
            .on_session_before_switch(Self::before_switch)
            .on_session_before_fork(Self::before_fork)
            .on_notification([Event::AgentStart, Event::SessionSwitch], Self::notified)
    }
}

impl Reenters {
    async fn inside(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let control = ctx.control();
        match args {
            "switches" => {
                let all = join_all((0..5).map(|_| control.new_session())).await;
                let outcomes = all.iter().map(|one| one.as_ref().map_or_else(kind, |_| "ok"));
                show(ctx, args, &Ok(outcomes.collect::<Vec<_>>()))
            }
            "reloads" => {
                let (first, second) = join(control.reload(), control.reload()).await;
                let outcomes = [first, second].map(|one| one.map_or_else(|e| kind(&e), |_| "ok"));
                show(ctx, args, &Ok(outcomes))
            }
            "after" => {
                let inner: Ctx = **ctx;
                spawn(async move {
                    let _ = inner.sleep(Duration::from_millis(1)).await;
                    let outcome = control.new_session().await.map(|_| "ok");
                    let _ = show(&inner, "after", &outcome);
                });
                Ok(())
            }
            "own-turn" => {
                ctx.agent().send_user_message("mine", Vec::new(), Delivery::FollowUp)?;
                show(ctx, args, &control.wait_for_idle().await)
            }
            other => Err(format!("there is no {other}").into()),
        }
    }

    async fn arm(&self, _ctx: &CommandCtx, _args: &str) -> Result<()> {
        self.is_armed.set(true);
        Ok(())
    }

    async fn complete(&self, ctx: &Ctx, _prefix: &str) -> Result<Vec<Completion>> {
        self.attempt(ctx, "complete_argument").await?;
        Ok(Vec::new())
    }

    async fn tool(&self, ctx: &ToolCtx, _args: Nothing) -> Result<String> {
        self.attempt(ctx, "tool").await?;
        Ok("tried".to_owned())
    }

    async fn tool_call(&self, ctx: &Ctx, _event: ToolCallEvent) -> Result<ToolCallDecision> {
        self.attempt(ctx, "tool_call").await?;
        Ok(ToolCallDecision::Allow)
    }

    async fn input(&self, ctx: &Ctx, _event: InputEvent) -> Result<InputDecision> {
        self.attempt(ctx, "input").await?;
        Ok(InputDecision::Proceed)
    }

    async fn before_agent_start(
        &self,
        ctx: &Ctx,
        _event: BeforeAgentStartEvent,
    ) -> Result<BeforeAgentStart> {
        self.attempt(ctx, "before_agent_start").await?;
        Ok(BeforeAgentStart::default())
    }

    async fn context(&self, ctx: &Ctx, _event: ContextEvent) -> Result<Option<Json>> {
        self.attempt(ctx, "context").await?;
        Ok(None)
    }

    async fn user_bash(&self, ctx: &Ctx, _event: UserBashEvent) -> Result<UserBashDecision> {
        self.attempt(ctx, "user_bash").await?;
        Ok(UserBashDecision::Proceed)
    }

    async fn before_switch(
        &self,
        ctx: &Ctx,
        _event: SessionBeforeSwitchEvent,
    ) -> Result<SwitchDecision> {
        self.attempt(ctx, "session_before_switch").await?;
        Ok(SwitchDecision::Proceed)
    }

    async fn before_fork(&self, ctx: &Ctx, _event: SessionBeforeForkEvent) -> Result<ForkDecision> {
        self.attempt(ctx, "session_before_fork").await?;
        Ok(ForkDecision::Proceed)
    }

    async fn notified(&self, ctx: &Ctx, event: Notification) -> Result<()> {
        self.attempt(ctx, event.name()).await
    }

    /// Calls every function, and shows what each answered.
    async fn attempt(&self, ctx: &Ctx, place: &str) -> Result<()> {
        if !self.is_armed.get() {
            return Ok(());
        }
        let control = Control::unchecked();
        let mut all = Vec::new();
        let mut add = |name, outcome: Result<()>| {
            all.push((name, outcome.map_or_else(|error| kind(&error), |()| "ok")));
        };
        add("wait-for-idle", control.wait_for_idle().await);
        add("new-session", control.new_session().await.map(drop));
        add("new-session-with", control.new_session_with(NewSession::new()).await.map(drop));
        add("switch-session", control.switch_session("missing.jsonl").await.map(drop));
        add("fork", control.fork("none").await.map(drop));
        add("navigate-tree", control.navigate_tree("none", Navigate::new()).await.map(drop));
        add("reload", control.reload().await.map(drop));
        show(ctx, place, &Ok(Refusals(all)))
    }
}

wharf_sdk::export!(Reenters);
