//! One half of an example of two: `/announce TEXT` tells other extensions; the answers
//! of those that heard it are shown. The other half is `event-bus-listener`.
//!
//! No permissions.

use wharf_sdk::{BusEvent, CommandCtx, CommandSpec, Ctx, Extension, Registration, Result};

#[derive(Default)]
struct Sender;

impl Extension for Sender {
    fn register() -> Registration<Self> {
        Registration::new("event-bus-sender", env!("CARGO_PKG_VERSION"))
            .description("Announces to other extensions.")
            .command_with(
                CommandSpec::new("announce", "Tells other extensions").hint("TEXT"),
                Self::announce,
            )
            .on_bus("announcement.heard", Self::heard)
    }
}

impl Sender {
    async fn announce(&self, ctx: &CommandCtx, text: &str) -> Result<()> {
        ctx.bus().emit("announcement", text)
    }

    async fn heard(&self, ctx: &Ctx, event: BusEvent) -> Result<()> {
        let count: u32 = event.data()?;
        ctx.ui().notify(format!("{} has heard {count} announcements", event.source));
        Ok(())
    }
}

wharf_sdk::export!(Sender);
