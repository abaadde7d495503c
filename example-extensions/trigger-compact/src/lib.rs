//! Compacts earlier than Wharf would: when the context is fuller than
//! `--compact-at PERCENT` (60 by default) at the end of a run, or at once with
//! `/compact-now [what matters]`.
//!
//! No permissions.

use wharf_sdk::{
    CommandCtx, CommandSpec, Ctx, Event, Extension, FlagSpec, Notification, Registration, Result,
};

const PERCENT: u64 = 60;

#[derive(Default)]
struct TriggerCompact;

impl Extension for TriggerCompact {
    fn register() -> Registration<Self> {
        Registration::new("trigger-compact", env!("CARGO_PKG_VERSION"))
            .description("Compacts in time.")
            .flag(FlagSpec::value("compact-at", "Percent of the context"))
            .command_with(
                CommandSpec::new("compact-now", "Compacts now").hint("[what matters]"),
                Self::now,
            )
            .on_notification([Event::AgentEnd, Event::SessionCompact], Self::notified)
    }
}

impl TriggerCompact {
    async fn now(&self, ctx: &CommandCtx, instructions: &str) -> Result<()> {
        ctx.agent().compact(Some(instructions).filter(|text| !text.is_empty()))
    }

    async fn notified(&self, ctx: &Ctx, event: Notification) -> Result<()> {
        if let Notification::SessionCompact { .. } = event {
            ctx.ui().notify("The conversation has been compacted");
            return Ok(());
        }
        let limit = ctx.agent().flag("compact-at").value();
        let limit = limit.and_then(|text| text.parse().ok()).unwrap_or(PERCENT);
        match ctx.agent().context_usage().and_then(|usage| usage.percent()) {
            Some(percent) if percent > limit => ctx.agent().compact(None),
            _ => Ok(()),
        }
    }
}

wharf_sdk::export!(TriggerCompact);
