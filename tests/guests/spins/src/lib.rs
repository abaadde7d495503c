//! Never comes back from a command (`/spin`), from a `tool_call` handler when a shell
//! command contains `SPIN`, from a compaction or a move in the tree whose instructions
//! do, from a fork from an entry whose id does, and from `session_directory` of a working
//! directory that does. `/still` tells whether the extension is alive.

use std::hint::black_box;

use wharf_sdk::{
    BuiltinCall, CommandCtx, CompactDecision, Ctx, Extension, ForkDecision, Registration, Result,
    SessionBeforeCompactEvent, SessionBeforeForkEvent, SessionBeforeTreeEvent,
    SessionDirectoryEvent, ToolCallDecision, ToolCallEvent, TreeDecision,
};

#[derive(Default)]
struct Spins;

impl Extension for Spins {
    fn register() -> Registration<Self> {
        Registration::new("spins", "0.1.0")
            .command("spin", "Loops for ever", Self::spin)
            .command("still", "Says that it is still there", Self::still)
            .on_tool_call(Self::tool_call)
            .on_session_before_fork(Self::fork)
            .on_session_before_tree(Self::tree)
            .on_session_directory(Self::directory)
            .on_session_before_compact(Self::compact)
    }
}

impl Spins {
    async fn spin(&self, _ctx: &CommandCtx, _args: &str) -> Result<()> {
        spin()
    }

    async fn still(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        ctx.ui().notify("still here");
        Ok(())
    }

    async fn tool_call(&self, _ctx: &Ctx, event: ToolCallEvent) -> Result<ToolCallDecision> {
        match event.builtin()? {
            Some(BuiltinCall::Bash(bash)) if bash.command.contains("SPIN") => spin(),
            _ => Ok(ToolCallDecision::Allow),
        }
    }

    async fn fork(&self, _ctx: &Ctx, event: SessionBeforeForkEvent) -> Result<ForkDecision> {
        if event.entry_id.contains("SPIN") { spin() } else { Ok(ForkDecision::Proceed) }
    }

    async fn tree(&self, _ctx: &Ctx, event: SessionBeforeTreeEvent) -> Result<TreeDecision> {
        match event.custom_instructions {
            Some(instructions) if instructions.contains("SPIN") => spin(),
            _ => Ok(TreeDecision::proceed()),
        }
    }

    async fn directory(&self, _ctx: &Ctx, event: SessionDirectoryEvent) -> Result<Option<String>> {
        if event.cwd.contains("SPIN") { spin() } else { Ok(None) }
    }

    async fn compact(
        &self,
        _ctx: &Ctx,
        event: SessionBeforeCompactEvent,
    ) -> Result<CompactDecision> {
        match event.instructions {
            Some(instructions) if instructions.contains("SPIN") => spin(),
            _ => Ok(CompactDecision::Proceed),
        }
    }
}

fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

wharf_sdk::export!(Spins);
