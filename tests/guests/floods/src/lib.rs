//! `/flood N` shows N messages without a pause, `flood 1` to `flood N`.

use wharf_sdk::{CommandCtx, Error, Extension, Registration, Result};

#[derive(Default)]
struct Floods;

impl Extension for Floods {
    fn register() -> Registration<Self> {
        Registration::new("floods", "0.1.0").command("flood", "Shows N messages", Self::flood)
    }
}

impl Floods {
    async fn flood(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let count: u64 =
            args.parse().map_err(|_| Error::from(format!("not a number of messages: {args}")))?;
        for number in 1..=count {
            ctx.ui().notify(format!("flood {number}"));
        }
        Ok(())
    }
}

wharf_sdk::export!(Floods);
