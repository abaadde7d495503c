//! Keeps the model and how full its context is in the status line, and changes both
//! from the keyboard: `/use PATTERN` takes the first model with a key that matches,
//! `/think LEVEL` sets the thinking level.
//!
//! No permissions.

use wharf_sdk::{
    CommandCtx, CommandSpec, Completion, Ctx, Error, Event, Extension, Model, Notification,
    Registration, Result, ShortcutSpec, ThinkingLevel,
};

const LEVELS: [&str; 6] = ["off", "minimal", "low", "medium", "high", "xhigh"];

#[derive(Default)]
struct ModelStatus;

impl Extension for ModelStatus {
    fn register() -> Registration<Self> {
        Registration::new("model-status", env!("CARGO_PKG_VERSION"))
            .description("Shows the model in the status line.")
            .command_with(CommandSpec::new("use", "Changes the model").hint("PATTERN"), Self::take)
            .command_with(CommandSpec::new("think", "Sets the level").hint("LEVEL"), Self::think)
            .complete("think", Self::levels)
            .shortcut(ShortcutSpec::new("ctrl+alt+t", "Think hard", "think high"))
            .on_notification(
                [Event::SessionStart, Event::ModelSelect, Event::TurnEnd],
                Self::changed,
            )
    }
}

impl ModelStatus {
    async fn changed(&self, ctx: &Ctx, _: Notification) -> Result<()> {
        show(ctx)
    }

    async fn take(&self, ctx: &CommandCtx, pattern: &str) -> Result<()> {
        let found = ctx.agent().find_models(pattern).into_iter().next();
        let found =
            found.ok_or_else(|| Error::from(format!("no model with a key matches {pattern:?}")))?;
        let model: Model = found.parse()?;
        ctx.agent().set_model(&model.provider, &model.id)?;
        ctx.ui().notify(format!("{} answers from now on", model.name));
        Ok(())
    }

    async fn think(&self, ctx: &CommandCtx, level: &str) -> Result<()> {
        let level = ctx.agent().set_thinking_level(ThinkingLevel::named(level))?;
        ctx.ui().notify(format!("Thinking: {}", level.name()));
        show(ctx)
    }

    async fn levels(&self, _: &Ctx, prefix: &str) -> Result<Vec<Completion>> {
        Ok(LEVELS
            .into_iter()
            .filter(|name| name.starts_with(prefix))
            .map(Completion::new)
            .collect())
    }
}

fn show(ctx: &Ctx) -> Result<()> {
    let agent = ctx.agent();
    let Some(model) = agent.model() else {
        ctx.ui().clear_status("model");
        return Ok(());
    };
    let model: Model = model.parse()?;
    let mut status = format!("{} ({})", model.name, agent.thinking_level().name());
    if let Some(percent) = agent.context_usage().and_then(|usage| usage.percent()) {
        status.push_str(&format!(", {percent}% full"));
    }
    ctx.ui().set_status("model", status);
    Ok(())
}

wharf_sdk::export!(ModelStatus);
