//! A session's name, made by the model after the session's first run.

use tokio_util::sync::CancellationToken;
use wharf_protocol::{AgentMessage, StopReason, ThinkingLevel};
use wharf_provider::Purpose;
use wharf_session::MessageRole;

use crate::agent::Agent;
use crate::ask::Question;
use crate::run::Messages;

const SYSTEM_PROMPT: &str = "You name conversations. Give a title of three to seven words for the conversation that begins as \
    shown, in its language. Give only the title: no quotes, no full stop, no explanation.";

/// Characters of the person's message and of the answer that the title is made from.
const MAX_CHARS: usize = 2000;

/// Characters of a title; models do not always do as they are told.
const MAX_TITLE_CHARS: usize = 80;

/// Runs after which it is tried: servers fail.
const MAX_TRIES: u8 = 3;

/// Output tokens for the answer: a reasoning model thinks first.
const MAX_TOKENS: u64 = 2048;

impl Agent {
    /// Names the session of the run that has just ended, if it has no name yet and this
    /// was its first, or the first ones gave none. In the background; a failure costs
    /// nothing but the name.
    pub(crate) fn name_session(&self, recorded: &Messages) {
        if !self.inner.names_sessions || self.session().name().is_some() {
            return;
        }
        let (model, is_due) = {
            let state = self.state();
            let before = state.messages.len().saturating_sub(recorded.len());
            let answered = state.messages[..before].iter().any(|message| {
                message.role() == MessageRole::Assistant
                    && message.read().is_some_and(|message| is_answer(&message))
            });
            let is_first = !answered && state.compacted == 0;
            let failed_before = (1..MAX_TRIES).contains(&state.naming_tries);
            (state.model.clone(), is_first || failed_before)
        };
        let Some(model) = model else { return };
        let Some(prompt) = prompt(recorded).filter(|_| is_due) else { return };
        self.state().naming_tries += 1;
        let (agent, session) = (self.clone(), self.session());
        tokio::spawn(async move {
            let question = Question {
                purpose: Purpose::Title,
                model: &model,
                thinking_level: ThinkingLevel::Off,
                system_prompt: SYSTEM_PROMPT,
                prompt,
                max_tokens: MAX_TOKENS,
            };
            let Ok(answer) = agent.ask(question, &CancellationToken::new()).await else { return };
            let title = clean(&answer);
            // The person may have named it meanwhile, or left it.
            let current = agent.session();
            if title.is_empty() || current.id() != session.id() || current.name().is_some() {
                return;
            }
            let (_, receipt) = current.append_session_info(&title);
            agent.announce_session_name(title, receipt).await;
        });
    }
}

fn prompt(recorded: &Messages) -> Option<String> {
    let cut = |text: String| text.chars().take(MAX_CHARS).collect::<String>();
    let question = recorded.iter().find_map(|message| match message.as_ref() {
        AgentMessage::User(user) => Some(user.content.to_text()),
        _ => None,
    })?;
    // A run that failed is no conversation yet; the next one may be.
    let last = recorded.last().filter(|message| is_answer(message))?;
    let AgentMessage::Assistant(reply) = last.as_ref() else { return None };
    if question.trim().is_empty() {
        return None;
    }
    let answer = reply.text();
    Some(format!(
        "<user>\n{}\n</user>\n\n<assistant>\n{}\n</assistant>",
        cut(question),
        cut(answer)
    ))
}

fn is_answer(message: &AgentMessage) -> bool {
    matches!(message, AgentMessage::Assistant(reply)
        if !matches!(reply.stop_reason, StopReason::Error | StopReason::Aborted))
}

/// One line without the quotes and marks that models put around it.
fn clean(answer: &str) -> String {
    let answer = without_thoughts(answer);
    let line = answer.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line = line.trim_start_matches("Title:").trim_matches(|c: char| {
        c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '*' | '#' | '“' | '”' | '.')
    });
    let line: String = line.chars().filter(|c| !c.is_control()).take(MAX_TITLE_CHARS).collect();
    line.trim_end().to_owned()
}

/// What follows the thoughts that some servers leave in the text. Where the chat template
/// has opened them, only `</think>` is there; where the tokens ran out, nothing follows.
fn without_thoughts(answer: &str) -> &str {
    let rest = answer.rsplit_once("</think>").map_or(answer, |(_, rest)| rest);
    if rest.trim_start().starts_with("<think>") { "" } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_one_plain_line() {
        for (answer, expect) in [
            ("Fix the login test", "Fix the login test"),
            ("\n  \"Fix the login test.\"\nBecause", "Fix the login test"),
            ("**Title: x**", "Title: x"),
            ("# Anmeldung läuft", "Anmeldung läuft"),
            ("  \n ", ""),
            ("a\u{7}b", "ab"),
            ("<think>A test.</think>Fix the login test", "Fix the login test"),
            (
                "\n<think>\nA test.\n\nOr two.\n</think>\n\nFix the login test\n",
                "Fix the login test",
            ),
            ("<think></think>\n\n\"Fix it\"", "Fix it"),
            ("<think>One</think><think>Two</think>Fix it", "Fix it"),
            ("A test.\n</think>\n\nFix it", "Fix it"),
            ("<think>A test.\nFix the", ""),
            ("<think>One</think>\n<think>Two", ""),
            ("<think>A test.</think>\n", ""),
            ("Strip <think> from titles", "Strip <think> from titles"),
        ] {
            assert_eq!(clean(answer), expect);
        }
        assert_eq!(clean(&"x".repeat(200)).len(), 80);
    }
}
