//! Panics in a command (`/boom`), in a `tool_call` handler when a shell command
//! contains `PANIC`, before a compaction or a move in the tree whose instructions do, and
//! before a fork from an entry whose id does.

use wharf_sdk::{
    BuiltinCall, CommandCtx, CompactDecision, Ctx, Extension, ForkDecision, Registration, Result,
    SessionBeforeCompactEvent, SessionBeforeForkEvent, SessionBeforeTreeEvent, ToolCallDecision,
    ToolCallEvent, TreeDecision,
};

#[derive(Default)]
struct Panics;

impl Extension for Panics {
    fn register() -> Registration<Self> {
        Registration::new("panics", "0.1.0")
            .command("boom", "Panics", Self::boom)
            .on_tool_call(Self::tool_call)
            .on_session_before_fork(Self::fork)
            .on_session_before_tree(Self::tree)
            .on_session_before_compact(Self::compact)
    }
}

impl Panics {
    async fn boom(&self, _ctx: &CommandCtx, _args: &str) -> Result<()> {
        explode()
    }

    async fn tool_call(&self, _ctx: &Ctx, event: ToolCallEvent) -> Result<ToolCallDecision> {
        if let Some(BuiltinCall::Bash(bash)) = event.builtin()? {
            assert!(!bash.command.contains("PANIC"), "boom on purpose");
        }
        Ok(ToolCallDecision::Allow)
    }

    async fn fork(&self, _ctx: &Ctx, event: SessionBeforeForkEvent) -> Result<ForkDecision> {
        assert!(!event.entry_id.contains("PANIC"), "boom on purpose");
        Ok(ForkDecision::Proceed)
    }

    async fn tree(&self, _ctx: &Ctx, event: SessionBeforeTreeEvent) -> Result<TreeDecision> {
        let instructions = event.custom_instructions.unwrap_or_default();
        assert!(!instructions.contains("PANIC"), "boom on purpose");
        Ok(TreeDecision::proceed())
    }

    async fn compact(
        &self,
        _ctx: &Ctx,
        event: SessionBeforeCompactEvent,
    ) -> Result<CompactDecision> {
        let instructions = event.instructions.unwrap_or_default();
        assert!(!instructions.contains("PANIC"), "boom on purpose");
        Ok(CompactDecision::Proceed)
    }
}

/// A function of its own also where everything is inlined: backtraces name it.
#[inline(never)]
fn explode() -> ! {
    panic!("boom on purpose")
}

wharf_sdk::export!(Panics);
