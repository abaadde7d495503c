//! Changes what the person typed on its way to the model: `?question` asks for a short
//! answer, `ping` is answered without the model. What other extensions send is left
//! alone.
//!
//! No permissions.

use wharf_sdk::{Ctx, Extension, InputDecision, InputEvent, InputSource, Registration, Result};

#[derive(Default)]
struct InputTransform;

impl Extension for InputTransform {
    fn register() -> Registration<Self> {
        Registration::new("input-transform", env!("CARGO_PKG_VERSION"))
            .description("Short forms for prompts.")
            .on_input(Self::input)
    }
}

impl InputTransform {
    async fn input(&self, ctx: &Ctx, event: InputEvent) -> Result<InputDecision> {
        if event.source == InputSource::Extension {
            return Ok(InputDecision::Proceed);
        }
        if event.text == "ping" {
            ctx.ui().notify("pong");
            return Ok(InputDecision::Handled);
        }
        Ok(match event.text.strip_prefix('?').map(str::trim) {
            Some(question) if !question.is_empty() => {
                let text = format!("Answer in at most two sentences: {question}");
                event.with_text(text)
            }
            _ => InputDecision::Proceed,
        })
    }
}

wharf_sdk::export!(InputTransform);
