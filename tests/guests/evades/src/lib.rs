//! Never ends, by ways that might escape a budget: `/evade WAY`, and as a `tool_call`
//! handler when a shell command is `EVADE WAY`.
//!
//! - `session-id`, `is-cancelled`, `log`, `refused`: a tight loop of that one host call
//!   (`refused`: of one that the host refuses)
//! - `sleep`, `denied`: a loop of one that is waited for, for no time at all (`denied`: of
//!   one that is not granted)
//! - `dialog`: a loop of dialogs that have no time
//! - `tasks`: tasks without end, each with a task of its own
//! - `after`: a task that spins when the call has answered long ago
//! - `deaf`: waits for ever and does not look whether it is cancelled

use std::hint::black_box;
use std::time::Duration;

use wharf_sdk::{
    BuiltinCall, CommandCtx, Control, Ctx, Error, Extension, Registration, Result,
    ToolCallDecision, ToolCallEvent, spawn,
};

#[derive(Default)]
struct Evades;

impl Extension for Evades {
    fn register() -> Registration<Self> {
        Registration::new("evades", "0.1.0")
            .command("evade", "Never ends", Self::evade)
            .command("evades-still", "Says that it is still there", Self::still)
            .on_tool_call(Self::tool_call)
    }
}

impl Evades {
    async fn evade(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        evade(ctx, args).await
    }

    async fn still(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        ctx.ui().notify("evades is still there");
        Ok(())
    }

    async fn tool_call(&self, ctx: &Ctx, event: ToolCallEvent) -> Result<ToolCallDecision> {
        if let Some(BuiltinCall::Bash(bash)) = event.builtin()?
            && let Some(way) = bash.command.strip_prefix("EVADE ")
        {
            evade(ctx, way).await?;
        }
        Ok(ToolCallDecision::Allow)
    }
}

async fn evade(ctx: &Ctx, way: &str) -> Result<()> {
    match way {
        "session-id" => loop {
            black_box(ctx.session().id());
        },
        "is-cancelled" => loop {
            black_box(ctx.is_cancelled());
        },
        "log" => loop {
            ctx.log().info("once more");
        },
        "refused" => loop {
            let _ = black_box(ctx.session().set_label("no such entry", Some("label")));
        },
        "sleep" => loop {
            let _ = ctx.sleep(Duration::ZERO).await;
        },
        "denied" => loop {
            let _ = ctx.files().read("nothing.txt").await;
        },
        "control" => loop {
            let _ = Control::unchecked().wait_for_idle().await;
        },
        "dialog" => loop {
            ctx.ui().with_timeout(Duration::ZERO).confirm("Yes?", "").await;
        },
        "tasks" => {
            multiply(*ctx);
            deaf(ctx).await
        }
        "after" => {
            let ctx = *ctx;
            spawn(async move {
                let _ = ctx.sleep(Duration::from_millis(1)).await;
                let mut turns = 0_u64;
                loop {
                    turns = black_box(turns.wrapping_add(1));
                }
            });
            Ok(())
        }
        "deaf" => deaf(ctx).await,
        other => Err(Error::from(format!("there is no way {other}"))),
    }
}

fn multiply(ctx: Ctx) {
    spawn(async move {
        multiply(ctx);
        let _ = ctx.sleep(Duration::from_secs(3_600)).await;
    });
}

async fn deaf(ctx: &Ctx) -> ! {
    loop {
        let _ = ctx.sleep(Duration::from_secs(3_600)).await;
    }
}

wharf_sdk::export!(Evades);
