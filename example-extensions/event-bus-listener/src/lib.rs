//! The other half of `event-bus-sender`: shows what is announced, and says so on the
//! bus.
//!
//! No permissions.

use std::cell::Cell;

use wharf_sdk::{BusEvent, Ctx, Extension, Registration, Result};

#[derive(Default)]
struct Listener {
    heard: Cell<u32>,
}

impl Extension for Listener {
    fn register() -> Registration<Self> {
        Registration::new("event-bus-listener", env!("CARGO_PKG_VERSION"))
            .description("Shows announcements of other extensions.")
            .on_bus("announcement", Self::announcement)
    }
}

impl Listener {
    async fn announcement(&self, ctx: &Ctx, event: BusEvent) -> Result<()> {
        let text: String = event.data()?;
        ctx.ui().notify(format!("{} announces: {text}", event.source));
        self.heard.set(self.heard.get() + 1);
        ctx.bus().emit("announcement.heard", &self.heard.get())
    }
}

wharf_sdk::export!(Listener);
