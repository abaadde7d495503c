//! What a branch that is left becomes: a summary by the model, for the branch that goes on.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use wharf_protocol::AgentMessage;
use wharf_provider::Purpose;
use wharf_session::{Entry, EntryKind};

use crate::agent::Agent;
use crate::ask::{AskError, Question};
use crate::compaction::files::FileOperations;
use crate::compaction::summary::{SYSTEM_PROMPT, conversation_text, room, without_file_lists};
use crate::hooks::TreeOptions;

/// Tokens that the summary itself may have.
const MAX_SUMMARY_TOKENS: u64 = 4096;

const INSTRUCTIONS: &str = "The conversation above is a branch that the person has left to go on from an earlier point. \
    Summarise it, so that what was learned and done there is not lost.\n\n\
    Use exactly these sections, in Markdown:\n\n\
    ## Goal\n[What the person wanted to achieve on this branch]\n\n\
    ## Constraints and preferences\n- [What the person asked for in how it is done; \"none\" if nothing]\n\n\
    ## Progress\n### Done\n- [x] [What is finished]\n### In progress\n- [ ] [What was begun and not finished]\n### Blocked\n- [What stood in the way, if anything]\n\n\
    ## Key decisions\n- **[Decision]**: [Why]\n\n\
    ## Next steps\n1. [What would have come next]\n\n\
    Be short in each section, but keep exact file paths, function names, commands and error messages.";

/// The prompt for the summary of a branch.
fn prompt(conversation: &str, options: &TreeOptions) -> String {
    let own = options.custom_instructions.as_deref().map(str::trim).filter(|own| !own.is_empty());
    let task = match own {
        Some(own) if options.replace_instructions => own.to_owned(),
        Some(own) => format!("{INSTRUCTIONS}\n\nAdditional focus: {own}"),
        None => INSTRUCTIONS.to_owned(),
    };
    format!("<conversation>\n{conversation}\n</conversation>\n\n{task}")
}

impl Agent {
    /// The summary of `entries`, and the files that they name as `details` has them.
    pub(crate) async fn summarise_branch(
        &self,
        entries: &[Arc<Entry>],
        options: &TreeOptions,
        cancel: &CancellationToken,
    ) -> Result<(String, Value), AskError> {
        let (model, thinking_level) = {
            let state = self.state();
            (state.model.clone(), state.thinking_level)
        };
        let model = model.ok_or_else(|| AskError::Failed("no model is selected".to_owned()))?;
        let mut files = FileOperations::default();
        let mut messages: Vec<Arc<AgentMessage>> = Vec::new();
        for entry in entries {
            let (details, from_hook) = match entry.kind() {
                EntryKind::BranchSummary(body) => (body.details.as_ref(), body.from_hook),
                EntryKind::Compaction(body) => (body.details.as_ref(), body.from_hook),
                _ => (None, None),
            };
            files.join(FileOperations::carried_over(details, from_hook));
            if let Some(message) = entry.context_message() {
                files.add_message(&message);
                messages.push(message);
            }
        }
        let window = model.context_window;
        let reserve = self.resources().settings.branch_summary_reserve_tokens.min(window / 2);
        let text = conversation_text(&messages, room(window, reserve));
        let question = Question {
            purpose: Purpose::Summary,
            model: &model,
            thinking_level,
            system_prompt: SYSTEM_PROMPT,
            prompt: prompt(&text, options),
            max_tokens: MAX_SUMMARY_TOKENS,
        };
        let summary = self.ask(question, cancel).await?;
        Ok((format!("{}{}", without_file_lists(&summary), files.as_text()), files.details()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_persons_words_go_beside_the_instructions_or_in_their_place() {
        let options = |own: Option<&str>, replace_instructions| TreeOptions {
            custom_instructions: own.map(str::to_owned),
            replace_instructions,
            ..TreeOptions::default()
        };
        let plain = prompt("C", &options(None, true));
        assert!(plain.starts_with("<conversation>\nC\n</conversation>\n\nThe conversation above"));
        assert!(prompt("C", &options(Some(" X "), false)).ends_with("Additional focus: X"));
        assert_eq!(
            prompt("C", &options(Some("X"), true)),
            "<conversation>\nC\n</conversation>\n\nX"
        );
        assert_eq!(prompt("C", &options(Some("  "), true)), plain);
    }
}
