//! Asks before another session becomes the current one, a fork too.
//!
//! Declined, cancelled and timed out keep the session, since a question that
//! somebody saw and did not affirm is no consent. Where nobody can be asked the
//! switch goes on: no UI is not "no", and a program that drives Wharf without
//! dialogs must not be locked into one session.

use wharf_sdk::{
    Answer, Ctx, Extension, ForkDecision, Registration, Result, SessionBeforeForkEvent,
    SessionBeforeSwitchEvent, SwitchDecision, SwitchReason,
};

const YES: &str = "Yes";
const NO: &str = "No";

#[derive(Default)]
struct ConfirmSwitch;

impl Extension for ConfirmSwitch {
    fn register() -> Registration<Self> {
        Registration::new("confirm-switch", env!("CARGO_PKG_VERSION"))
            .description("Asks before the session is cleared, switched or forked.")
            .on_session_before_switch(Self::before_switch)
            .on_session_before_fork(Self::before_fork)
    }
}

impl ConfirmSwitch {
    async fn before_switch(
        &self,
        ctx: &Ctx,
        event: SessionBeforeSwitchEvent,
    ) -> Result<SwitchDecision> {
        let ui = ctx.ui();
        let (answer, kept) = match event.reason {
            SwitchReason::New => {
                let message = "All messages in this session will be lost.";
                (ui.confirm("Clear session?", message).await, "Clear cancelled")
            }
            SwitchReason::Resume => {
                let choice = ui.select("Switch session?", [YES, NO]).await;
                (choice.map(|chosen| chosen == YES), "Switch cancelled")
            }
        };
        Ok(if goes_on(ctx, answer, kept) {
            SwitchDecision::Proceed
        } else {
            SwitchDecision::Cancel
        })
    }

    async fn before_fork(&self, ctx: &Ctx, _event: SessionBeforeForkEvent) -> Result<ForkDecision> {
        let message = "The conversation goes on in a new session, from before that message.";
        let answer = ctx.ui().confirm("Fork session?", message).await;
        Ok(if goes_on(ctx, answer, "Fork cancelled") {
            ForkDecision::Proceed
        } else {
            ForkDecision::Cancel
        })
    }
}

/// What an answer means; one that keeps the session is told.
fn goes_on(ctx: &Ctx, answer: Answer<bool>, kept: &str) -> bool {
    match answer {
        Answer::Answered(true) | Answer::NoUi => true,
        Answer::Answered(false) | Answer::Cancelled | Answer::TimedOut => {
            ctx.ui().notify(kept);
            false
        }
    }
}

wharf_sdk::export!(ConfirmSwitch);
