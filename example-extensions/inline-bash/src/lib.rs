//! Puts the output of commands into prompts: `What does !{git log -3} say?` And makes
//! the person's own `!` commands fail where any part of a pipe fails.
//!
//! Permission: `sh -c` with any command: what it runs is what the person typed. A
//! prompt of another extension is left alone, since nobody typed it.

use std::time::Duration;

use wharf_sdk::{
    Ctx, Extension, InputDecision, InputEvent, InputSource, Permission, Registration, Result,
    UserBashDecision, UserBashEvent,
};

const LIMIT: Duration = Duration::from_secs(30);

#[derive(Default)]
struct InlineBash;

impl Extension for InlineBash {
    fn register() -> Registration<Self> {
        Registration::new("inline-bash", env!("CARGO_PKG_VERSION"))
            .description("Runs !{commands} inside prompts.")
            .permission(Permission::exec(["sh", "-c", "*"]))
            .on_input(Self::input)
            .on_user_bash(Self::user_bash)
    }
}

impl InlineBash {
    async fn input(&self, ctx: &Ctx, event: InputEvent) -> Result<InputDecision> {
        if event.source == InputSource::Extension || !event.text.contains("!{") {
            return Ok(InputDecision::Proceed);
        }
        let mut text = String::new();
        for piece in pieces(&event.text) {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Command(command) => text.push_str(&output(ctx, command).await?),
            }
        }
        Ok(event.with_text(text))
    }

    async fn user_bash(&self, _: &Ctx, event: UserBashEvent) -> Result<UserBashDecision> {
        Ok(match event.command.contains('|') {
            true => UserBashDecision::wrap(format!("set -o pipefail; {}", event.command)),
            false => UserBashDecision::Proceed,
        })
    }
}

async fn output(ctx: &Ctx, command: &str) -> Result<String> {
    let run = ctx.process().command("sh").args(["-c", command]).timeout(LIMIT);
    let output = run.output().await?;
    let text = output.stdout_text().trim_end().to_owned();
    Ok(match output.is_success() {
        true => text,
        false => format!("{text}[{command} failed: {}]", output.stderr_text().trim()),
    })
}

#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    Command(&'a str),
}

/// Cuts a prompt at `!{...}`; a `!{` that is never closed is text.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("!{") {
        let Some((command, left)) = after.split_once('}') else { break };
        pieces.extend([Piece::Text(before), Piece::Command(command.trim())]);
        rest = left;
    }
    pieces.push(Piece::Text(rest));
    pieces
}

wharf_sdk::export!(InlineBash);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_cut_at_its_commands() {
        use Piece::{Command, Text};
        for (text, expect) in [
            ("none", vec![Text("none")]),
            ("a !{ ls } b", vec![Text("a "), Command("ls"), Text(" b")]),
            ("!{a}!{b}", vec![Text(""), Command("a"), Text(""), Command("b"), Text("")]),
            ("a !{b", vec![Text("a !{b")]),
        ] {
            assert_eq!(pieces(text), expect, "{text}");
        }
    }
}
