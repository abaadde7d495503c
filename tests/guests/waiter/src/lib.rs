//! Waits for people, in several calls at once: `/wait` opens a dialog and shows its
//! outcome, `/multi` opens two. Meanwhile `tool_call` blocks shell commands that
//! contain `BLOCK`, and asks by a dialog of its own before those that contain `ASK`;
//! so it does before compactions and moves in the tree whose instructions contain `ASK`,
//! and before forks from entries whose id does. Session files of a working directory
//! whose path contains `WAITER` it wants in `of-waiter`.

use wharf_sdk::{
    Answer, BuiltinCall, CommandCtx, CompactDecision, Ctx, Extension, ForkDecision, Registration,
    Result, SessionBeforeCompactEvent, SessionBeforeForkEvent, SessionBeforeTreeEvent,
    SessionDirectoryEvent, ToolCallDecision, ToolCallEvent, TreeDecision, join,
};

#[derive(Default)]
struct Waiter;

impl Extension for Waiter {
    fn register() -> Registration<Self> {
        Registration::new("waiter", "0.1.0")
            .command("wait", "Opens a dialog", Self::wait)
            .command("multi", "Opens two dialogs at once", Self::multi)
            .on_tool_call(Self::tool_call)
            .on_session_before_fork(Self::fork)
            .on_session_before_tree(Self::tree)
            .on_session_directory(Self::directory)
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

    async fn fork(&self, ctx: &Ctx, event: SessionBeforeForkEvent) -> Result<ForkDecision> {
        let goes_on = !event.entry_id.contains("ASK") || asked(ctx, "fork").await;
        Ok(if goes_on { ForkDecision::Proceed } else { ForkDecision::Cancel })
    }

    async fn tree(&self, ctx: &Ctx, event: SessionBeforeTreeEvent) -> Result<TreeDecision> {
        let instructions = event.custom_instructions.unwrap_or_default();
        let goes_on = !instructions.contains("ASK") || asked(ctx, "tree").await;
        Ok(if goes_on { TreeDecision::proceed() } else { TreeDecision::Cancel })
    }

    async fn directory(&self, _ctx: &Ctx, event: SessionDirectoryEvent) -> Result<Option<String>> {
        Ok(event.cwd.contains("WAITER").then(|| "of-waiter".to_owned()))
    }

    async fn compact(
        &self,
        ctx: &Ctx,
        event: SessionBeforeCompactEvent,
    ) -> Result<CompactDecision> {
        let instructions = event.instructions.unwrap_or_default();
        let goes_on = !instructions.contains("ASK") || asked(ctx, "compact").await;
        Ok(if goes_on { CompactDecision::Proceed } else { CompactDecision::Cancel })
    }
}

/// Asks whether something is to go on, and shows the outcome.
async fn asked(ctx: &Ctx, what: &str) -> bool {
    let answer = ctx.ui().confirm(what, "Go on?").await;
    ctx.ui().notify(format!("{what}: {}", outcome(answer)));
    answer.is_yes()
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
