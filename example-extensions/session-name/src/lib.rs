//! Names a session after its first prompt, and lets the person name it: `/name TEXT`,
//! or `/name` alone, which asks.
//!
//! No permissions.

use wharf_sdk::{
    CommandCtx, CommandSpec, Content, Ctx, Entry, Event, Extension, Message, Notification,
    Registration, Result,
};

/// Characters of a name.
const LENGTH: usize = 40;

#[derive(Default)]
struct SessionName;

impl Extension for SessionName {
    fn register() -> Registration<Self> {
        Registration::new("session-name", env!("CARGO_PKG_VERSION"))
            .description("Names sessions.")
            .command_with(CommandSpec::new("name", "Names the session").hint("[TEXT]"), Self::name)
            .on_notification([Event::AgentEnd], Self::agent_end)
    }
}

impl SessionName {
    async fn name(&self, ctx: &CommandCtx, text: &str) -> Result<()> {
        let name = match text {
            "" => ctx.ui().input("Name of the session", ctx.session().name().as_deref()).await,
            text => wharf_sdk::Answer::Answered(text.to_owned()),
        };
        match name.answered() {
            Some(name) if !name.trim().is_empty() => ctx.session().set_name(name),
            _ => Ok(()),
        }
    }

    async fn agent_end(&self, ctx: &Ctx, _: Notification) -> Result<()> {
        if ctx.session().name().is_some() {
            return Ok(());
        }
        let entries = ctx.session().branch()?;
        let first = entries.iter().filter_map(Entry::message).find_map(|message| match message {
            Message::User { content } => content.iter().find_map(Content::as_text),
            _ => None,
        });
        match first.map(name_of) {
            Some(name) if !name.is_empty() => ctx.session().set_name(name),
            _ => Ok(()),
        }
    }
}

/// The beginning of a prompt, in one line, cut between words where that is possible.
fn name_of(prompt: &str) -> String {
    let line = prompt.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= LENGTH {
        return line;
    }
    let cut: String = line.chars().take(LENGTH).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{}…", &cut[..end])
}

wharf_sdk::export!(SessionName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_short_line() {
        assert_eq!(name_of("  fix\nthe bug "), "fix the bug");
        let long = name_of("explain how the scheduler decides which task runs next, please");
        assert_eq!(long, "explain how the scheduler decides which…");
        assert_eq!(name_of(&"x".repeat(100)).chars().count(), LENGTH + 1);
    }
}
