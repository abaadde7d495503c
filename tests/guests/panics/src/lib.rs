//! Panics in a command (`/boom`), in a `tool_call` handler when a shell command
//! contains `PANIC`, and before a compaction whose instructions do.

use wharf_sdk::{
    BuiltinCall, CommandCtx, CompactDecision, Ctx, Extension, Registration, Result,
    SessionBeforeCompactEvent, ToolCallDecision, ToolCallEvent,
};

#[derive(Default)]
struct Panics;

impl Extension for Panics {
    fn register() -> Registration<Self> {
        Registration::new("panics", "0.1.0")
            .command("boom", "Panics", Self::boom)
            .on_tool_call(Self::tool_call)
            .on_session_before_compact(Self::compact)
    }
}

impl Panics {
    async fn boom(&self, _ctx: &CommandCtx, _args: &str) -> Result<()> {
        panic!("boom on purpose")
    }

    async fn tool_call(&self, _ctx: &Ctx, event: ToolCallEvent) -> Result<ToolCallDecision> {
        if let Some(BuiltinCall::Bash(bash)) = event.builtin()? {
            assert!(!bash.command.contains("PANIC"), "boom on purpose");
        }
        Ok(ToolCallDecision::Allow)
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

wharf_sdk::export!(Panics);
