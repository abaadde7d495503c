//! Goes on in a new session that knows what matters: `/handoff GOAL` collects what the
//! person asked for and which files were touched, starts a session whose header names
//! this one, and puts a prompt into the editor for the person to send.
//!
//! No permissions.

use std::collections::BTreeSet;

use serde::Deserialize;
use wharf_sdk::{
    AssistantContent, CommandCtx, CommandSpec, Content, Entry, Error, Extension, Message,
    NewSession, Registration, Result, Switched,
};

#[derive(Deserialize)]
struct Touched {
    path: Option<String>,
}

#[derive(Default)]
struct Handoff;

impl Extension for Handoff {
    fn register() -> Registration<Self> {
        Registration::new("handoff", env!("CARGO_PKG_VERSION"))
            .description("Hands the work over to a fresh session.")
            .command_with(CommandSpec::new("handoff", "Goes on anew").hint("GOAL"), Self::handoff)
    }
}

impl Handoff {
    async fn handoff(&self, ctx: &CommandCtx, goal: &str) -> Result<()> {
        if goal.is_empty() {
            return Err(Error::from("say /handoff GOAL"));
        }
        ctx.control().wait_for_idle().await?;
        let prompt = brief(&ctx.session().branch()?, goal);
        let mut options = NewSession::new();
        if let Some(file) = ctx.session().file() {
            options = options.parent(file);
        }
        if ctx.control().new_session_with(options).await? == Switched::Done {
            ctx.ui().set_editor_text(prompt);
            ctx.ui().notify("The prompt is in the editor");
        }
        Ok(())
    }
}

fn brief(branch: &[Entry], goal: &str) -> String {
    let mut asked = Vec::new();
    let mut files = BTreeSet::new();
    for message in branch.iter().filter_map(Entry::message) {
        match message {
            Message::User { content } => {
                let text: String = content.iter().filter_map(Content::as_text).collect();
                asked.push(format!("- {}", text.lines().next().unwrap_or_default()));
            }
            Message::Assistant { content, .. } => {
                files.extend(content.iter().filter_map(|block| match block {
                    AssistantContent::ToolCall { arguments, .. } => {
                        arguments.parse::<Touched>().ok()?.path.map(|path| format!("- {path}"))
                    }
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    let mut text = format!("{goal}\n");
    for (title, lines) in [("Asked before", asked), ("Files", files.into_iter().collect())] {
        if !lines.is_empty() {
            text.push_str(&format!("\n{title}:\n{}\n", lines.join("\n")));
        }
    }
    text
}

wharf_sdk::export!(Handoff);
