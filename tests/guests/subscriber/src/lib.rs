//! Subscribes to `tool_call` and allows everything without a look, for benches.

use wharf_sdk::{Ctx, Extension, Registration, Result, ToolCallDecision, ToolCallEvent};

#[derive(Default)]
struct Subscriber;

impl Extension for Subscriber {
    fn register() -> Registration<Self> {
        Registration::new("subscriber", "0.1.0").on_tool_call(Self::tool_call)
    }
}

impl Subscriber {
    async fn tool_call(&self, _ctx: &Ctx, _event: ToolCallEvent) -> Result<ToolCallDecision> {
        Ok(ToolCallDecision::Allow)
    }
}

wharf_sdk::export!(Subscriber);
