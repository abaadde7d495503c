//! Waits for people, in several calls at once: `/wait` opens a dialog and shows its
//! outcome, `/multi` opens two. Meanwhile `tool_call` blocks shell commands that
//! contain `BLOCK`, and asks by a dialog of its own before those that contain `ASK`;
//! so it does before compactions whose instructions contain `ASK`.

use wharf_sdk::{
    Answer, BuiltinCall, CommandCtx, CompactDecision, Ctx, Extension, Registration, Result,
    SessionBeforeCompactEvent, ToolCallDecision, ToolCallEvent, join,
};

#[derive(Default)]
struct Waiter;

impl Extension for Waiter {
    fn register() -> Registration<Self> {
        Registration::new("waiter", "0.1.0")
            .command("wait", "Opens a dialog", Self::wait)
            .command("multi", "Opens two dialogs at once", Self::multi)
            .on_tool_call(Self::tool_call)
            .on_session_before_compact(Self::compact)
    }
}

impl Waiter {
    async fn wait(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        let answer = ctx.ui().confirm("Waiting", "Go on?").await;
        ctx.ui().notify(format!("wait: {}", outcome(answer)));
        Ok(())
    }

    async fn multi(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        let ask = async |name: &str| {
            let answer = ctx.ui().confirm(name, "Go on?").await;
            ctx.ui().notify(format!("{name}: {}", outcome(answer)));
        };
        join(ask("first"), ask("second")).await;
        Ok(())
    }

    async fn tool_call(&self, ctx: &Ctx, event: ToolCallEvent) -> Result<ToolCallDecision> {
        let Some(BuiltinCall::Bash(bash)) = event.builtin()? else {
            return Ok(ToolCallDecision::Allow);
        };
        if bash.command.contains("BLOCK") {
            return Ok(ToolCallDecision::block("waiter says no"));
        }
        if !bash.command.contains("ASK") {
            return Ok(ToolCallDecision::Allow);
        }
        Ok(match ctx.ui().select("Allow the command?", ["Yes", "No"]).await {
            Answer::Answered(choice) if choice == "Yes" => ToolCallDecision::Allow,
            answer => ToolCallDecision::block(format!("waiter asked: {}", outcome(answer))),
        })
    }

    async fn compact(
        &self,
        ctx: &Ctx,
        event: SessionBeforeCompactEvent,
    ) -> Result<CompactDecision> {
        if !event.instructions.unwrap_or_default().contains("ASK") {
            return Ok(CompactDecision::Proceed);
        }
        let answer = ctx.ui().confirm("Compact?", "Go on?").await;
        ctx.ui().notify(format!("compact: {}", outcome(answer)));
        Ok(if answer.is_yes() { CompactDecision::Proceed } else { CompactDecision::Cancel })
    }
}

fn outcome<T: ToString>(answer: Answer<T>) -> String {
    match answer {
        Answer::Answered(answer) => format!("answered {}", answer.to_string()),
        Answer::Cancelled => "cancelled".to_owned(),
        Answer::TimedOut => "timed out".to_owned(),
        Answer::NoUi => "no UI".to_owned(),
    }
}

wharf_sdk::export!(Waiter);
