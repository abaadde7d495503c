//! Dialogs that do not wait for ever: `/deploy` asks, and goes on by itself when nobody
//! answers in time. `/deploy SECONDS` sets the time.
//!
//! No permissions.

use std::time::Duration;

use wharf_sdk::{Answer, CommandCtx, CommandSpec, Extension, NotifyKind, Registration, Result};

const SECONDS: f64 = 5.0;

#[derive(Default)]
struct TimedConfirm;

impl Extension for TimedConfirm {
    fn register() -> Registration<Self> {
        Registration::new("timed-confirm", env!("CARGO_PKG_VERSION"))
            .description("Asks, but not for ever.")
            .command_with(
                CommandSpec::new("deploy", "Asks in time").hint("[SECONDS]"),
                Self::deploy,
            )
    }
}

impl TimedConfirm {
    async fn deploy(&self, ctx: &CommandCtx, seconds: &str) -> Result<()> {
        let seconds = seconds.parse().ok().filter(|seconds: &f64| seconds.is_finite());
        let seconds = seconds.unwrap_or(SECONDS).clamp(0.001, 3_600.0);
        let ui = ctx.ui().with_timeout(Duration::from_secs_f64(seconds));
        let (kind, said) = match ui.confirm("Deploy?", "It goes out when nobody objects.").await {
            Answer::Answered(true) => (NotifyKind::Info, "deployed: you said yes"),
            Answer::TimedOut => (NotifyKind::Warning, "deployed: nobody objected in time"),
            Answer::Answered(false) => (NotifyKind::Info, "not deployed: you said no"),
            Answer::Cancelled => (NotifyKind::Info, "not deployed: the question was dismissed"),
            Answer::NoUi => (NotifyKind::Error, "not deployed: nobody could be asked"),
        };
        ctx.ui().notify_as(kind, said);
        Ok(())
    }
}

wharf_sdk::export!(TimedConfirm);
