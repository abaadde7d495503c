//! Asks before another session becomes the current one.
//!
//! Declined, cancelled and timed out keep the session, since a question that
//! somebody saw and did not affirm is no consent. Where nobody can be asked the
//! switch goes on: no UI is not "no", and a program that drives Wharf without
//! dialogs must not be locked into one session.

use wharf_sdk::{
    Answer, Ctx, Extension, Registration, Result, SessionBeforeSwitchEvent, SwitchDecision,
    SwitchReason,
};

const YES: &str = "Yes";
const NO: &str = "No";

#[derive(Default)]
struct ConfirmSwitch;

impl Extension for ConfirmSwitch {
    fn register() -> Registration<Self> {
        Registration::new("confirm-switch", env!("CARGO_PKG_VERSION"))
            .description("Asks before the session is cleared or switched.")
            .on_session_before_switch(Self::before_switch)
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
        Ok(match answer {
            Answer::Answered(true) | Answer::NoUi => SwitchDecision::Proceed,
            Answer::Answered(false) | Answer::Cancelled | Answer::TimedOut => {
                ui.notify(kept);
                SwitchDecision::Cancel
            }
        })
    }
}

wharf_sdk::export!(ConfirmSwitch);
