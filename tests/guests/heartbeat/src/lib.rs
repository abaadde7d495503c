//! `/beat N` shows `beat N`, to see whether other extensions are served meanwhile.

use wharf_sdk::{CommandCtx, Extension, Registration, Result};

#[derive(Default)]
struct Heartbeat;

impl Extension for Heartbeat {
    fn register() -> Registration<Self> {
        Registration::new("heartbeat", "0.1.0").command("beat", "Shows a beat", Self::beat)
    }
}

impl Heartbeat {
    async fn beat(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        ctx.ui().notify(format!("beat {args}"));
        Ok(())
    }
}

wharf_sdk::export!(Heartbeat);
