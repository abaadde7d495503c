//! Panics in a command (`/boom`), and in a `tool_call` handler when a shell command
//! contains `PANIC`.

use wharf_sdk::{
    BuiltinCall, CommandCtx, Ctx, Extension, Registration, Result, ToolCallDecision, ToolCallEvent,
};

#[derive(Default)]
struct Panics;

impl Extension for Panics {
    fn register() -> Registration<Self> {
        Registration::new("panics", "0.1.0")
            .command("boom", "Panics", Self::boom)
            .on_tool_call(Self::tool_call)
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
}

wharf_sdk::export!(Panics);
