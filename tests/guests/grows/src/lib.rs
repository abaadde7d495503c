//! Takes memory without end, and touches it: in a command (`/grow`), and in a
//! `tool_call` handler when a shell command contains `GROW`.

use std::hint::black_box;

use wharf_sdk::{
    BuiltinCall, CommandCtx, Ctx, Extension, Registration, Result, ToolCallDecision, ToolCallEvent,
};

/// Bytes taken at a time.
const CHUNK: usize = 1 << 20;

#[derive(Default)]
struct Grows;

impl Extension for Grows {
    fn register() -> Registration<Self> {
        Registration::new("grows", "0.1.0")
            .command("grow", "Takes memory without end", Self::grow)
            .on_tool_call(Self::tool_call)
    }
}

impl Grows {
    async fn grow(&self, _ctx: &CommandCtx, _args: &str) -> Result<()> {
        grow()
    }

    async fn tool_call(&self, _ctx: &Ctx, event: ToolCallEvent) -> Result<ToolCallDecision> {
        match event.builtin()? {
            Some(BuiltinCall::Bash(bash)) if bash.command.contains("GROW") => grow(),
            _ => Ok(ToolCallDecision::Allow),
        }
    }
}

fn grow() -> ! {
    let mut kept = Vec::new();
    loop {
        kept.push(black_box(vec![1_u8; CHUNK]));
        black_box(&kept);
    }
}

wharf_sdk::export!(Grows);
