//! Sends messages as if the person had typed them: `/say TEXT` now, `/steer TEXT` into
//! a run, `/later TEXT` when it would end, `/hint TEXT` as the extension's own message
//! with the next prompt.
//!
//! No permissions.

use wharf_sdk::{
    CommandCtx, CommandSpec, CustomMessage, Delivery, Extension, Registration, Result,
};

#[derive(Default)]
struct SendUserMessage;

impl Extension for SendUserMessage {
    fn register() -> Registration<Self> {
        let text = |name: &str, what: &str| CommandSpec::new(name, what).hint("TEXT");
        Registration::new("send-user-message", env!("CARGO_PKG_VERSION"))
            .description("Prompts from commands.")
            .command_with(text("say", "Sends a prompt when the agent is idle"), Self::say)
            .command_with(text("steer", "Sends a message into the run"), Self::steer)
            .command_with(text("later", "Sends a prompt after the run"), Self::later)
            .command_with(text("hint", "Goes with your next prompt"), Self::hint)
    }
}

impl SendUserMessage {
    async fn say(&self, ctx: &CommandCtx, text: &str) -> Result<()> {
        ctx.control().wait_for_idle().await?;
        ctx.agent().send_user_message(text, Vec::new(), Delivery::FollowUp)
    }

    async fn steer(&self, ctx: &CommandCtx, text: &str) -> Result<()> {
        if ctx.agent().is_idle() {
            ctx.ui().notify("Nothing runs; this starts a run");
        }
        ctx.agent().send_user_message(text, Vec::new(), Delivery::Steer)
    }

    async fn later(&self, ctx: &CommandCtx, text: &str) -> Result<()> {
        ctx.agent().send_user_message(text, Vec::new(), Delivery::FollowUp)
    }

    async fn hint(&self, ctx: &CommandCtx, text: &str) -> Result<()> {
        let hint = CustomMessage::new("hint", text);
        ctx.agent().send_message(hint, Delivery::NextTurn, false)
    }
}

wharf_sdk::export!(SendUserMessage);
