//! The words that a summary is asked for with, and the conversation as text.

use std::sync::Arc;

use wharf_protocol::{AgentMessage, AssistantContent, ContentBlock, UserContent};

/// Characters of one tool result that the summary is made from: the beginning says what
/// it was, and results make up most of a long conversation.
const MAX_RESULT_CHARS: usize = 2000;

pub(crate) const SYSTEM_PROMPT: &str = "You write summaries of conversations between a person and a coding agent, so that \
    another agent can carry the work on from the summary alone. Do not carry on the conversation yourself, and do not answer \
    questions that stand in it. Give only the summary.";

const FORMAT: &str = "Use exactly these sections, in Markdown:\n\n\
    ## Goal\n[What the person wants to achieve; a list if it is several things]\n\n\
    ## Constraints and preferences\n[What the person asked for in how it is done; \"none\" if nothing]\n\n\
    ## Progress\n### Done\n- [x] [What is finished]\n### In progress\n- [ ] [What is under way]\n### Blocked\n- [What stands in the way, if anything]\n\n\
    ## Key decisions\n- **[Decision]**: [Why]\n\n\
    ## Next steps\n1. [What comes next, in order]\n\n\
    ## Critical context\n- [Names, values, error texts and findings that are needed to go on; \"none\" if nothing]\n\n\
    Be short in each section, but keep exact file paths, function names, commands and error messages.";

/// The prompt for the summary of whole turns. An earlier summary is brought up to date,
/// so that nothing of it is lost over many compactions.
pub(super) fn history_prompt(
    conversation: &str,
    previous: Option<&str>,
    instructions: Option<&str>,
) -> String {
    let task = match previous {
        None => format!(
            "The conversation above is to be continued by another agent that will not see it. Summarise it.\n\n{FORMAT}"
        ),
        Some(_) => format!(
            "The conversation above went on after the previous summary. Give the previous summary brought up to date: keep \
             what still holds, move finished work to Done, add what is new, correct what has changed, and drop only what no \
             longer matters.\n\n{FORMAT}"
        ),
    };
    let previous = previous.map_or_else(String::new, |summary| {
        format!("\n\n<previous-summary>\n{summary}\n</previous-summary>")
    });
    format!(
        "<conversation>\n{conversation}\n</conversation>{previous}\n\n{task}{}",
        focus(instructions)
    )
}

/// The prompt for the beginning of a turn whose end is kept.
pub(super) fn prefix_prompt(conversation: &str, instructions: Option<&str>) -> String {
    format!(
        "<conversation>\n{conversation}\n</conversation>\n\nThe conversation above is the beginning of one turn that was too \
         long to be kept whole; its end is kept and follows the summary. Summarise the beginning.\n\n\
         Use exactly these sections, in Markdown:\n\n## Original request\n[What the person asked for in this turn]\n\n\
         ## Early progress\n- [What was found, decided and done]\n\n## Context for the rest of the turn\n- [What is needed to \
         understand what follows]\n\nKeep exact file paths, function names, commands and error messages.{}",
        focus(instructions)
    )
}

fn focus(instructions: Option<&str>) -> String {
    instructions
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map_or_else(String::new, |text| format!("\n\nAdditional focus: {text}"))
}

/// How the summaries of the history and of a turn's beginning become one.
pub(super) fn merged(history: Option<String>, prefix: Option<String>) -> String {
    match (history, prefix) {
        (Some(history), Some(prefix)) => {
            format!("{history}\n\n---\n\n**Beginning of the turn under way:**\n\n{prefix}")
        }
        (Some(text), None) | (None, Some(text)) => text,
        (None, None) => String::new(),
    }
}

/// A summary without the lists of files at the end of an earlier one that it took over.
pub(crate) fn without_file_lists(text: &str) -> String {
    let mut rest = text.to_owned();
    for tag in ["read-files", "modified-files"] {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        while let Some(start) = rest.find(&open)
            && let Some(length) = rest[start..].find(&close)
        {
            rest.replace_range(start..start + length + close.len(), "");
        }
    }
    rest.trim_end().to_owned()
}

/// Characters of a conversation that a request for its summary may have, where `reserve`
/// tokens of the window stay free. Three a token, fewer than the usual four: a summary must
/// not overflow too. A window of 0 is not known.
pub(crate) fn room(context_window: u64, reserve: u64) -> usize {
    match context_window {
        0 => usize::MAX,
        window => usize::try_from(window.saturating_sub(reserve) * 3).unwrap_or(usize::MAX),
    }
}

/// The conversation as text for a summary, at most `max_chars` long: where it is more,
/// the oldest part goes, and a line says so.
pub(crate) fn conversation_text(messages: &[Arc<AgentMessage>], max_chars: usize) -> String {
    let mut parts = Vec::new();
    let mut chars = 0;
    for message in messages.iter().rev() {
        let part = message_text(message);
        if part.is_empty() {
            continue;
        }
        chars += part.chars().count() + 2;
        if chars > max_chars && !parts.is_empty() {
            parts.push("[What came before does not fit and was left out]".to_owned());
            break;
        }
        parts.push(part);
    }
    parts.reverse();
    parts.join("\n\n")
}

fn message_text(message: &AgentMessage) -> String {
    let labelled = |label: &str, text: &str| {
        if text.trim().is_empty() { String::new() } else { format!("[{label}]: {text}") }
    };
    match message {
        AgentMessage::User(user) => labelled("User", &content_text(&user.content)),
        AgentMessage::Custom(custom) => labelled("User", &content_text(&custom.content)),
        AgentMessage::Assistant(reply) => {
            let parts: Vec<String> = reply
                .content
                .iter()
                .map(|block| match block {
                    AssistantContent::Text(text) => labelled("Assistant", &text.text),
                    AssistantContent::Thinking(thinking) => {
                        labelled("Assistant's thinking", &thinking.thinking)
                    }
                    AssistantContent::ToolCall(call) => {
                        let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
                        labelled("Assistant calls", &format!("{}({})", call.name, cut(&arguments)))
                    }
                })
                .filter(|part| !part.is_empty())
                .collect();
            parts.join("\n")
        }
        AgentMessage::ToolResult(result) => {
            let label = if result.is_error { "Tool error" } else { "Tool result" };
            labelled(label, &cut(&blocks_text(&result.content)))
        }
        AgentMessage::BashExecution(run) if run.exclude_from_context == Some(true) => String::new(),
        AgentMessage::BashExecution(run) => {
            labelled("User ran", &format!("{}\n{}", run.command, cut(&run.output)))
        }
        AgentMessage::BranchSummary(summary) => {
            labelled("Summary of another branch", &summary.summary)
        }
        AgentMessage::CompactionSummary(summary) => labelled("Summary", &summary.summary),
    }
}

fn content_text(content: &UserContent) -> String {
    match content {
        UserContent::Text(text) => text.clone(),
        UserContent::Blocks(blocks) => blocks_text(blocks),
    }
}

fn blocks_text(blocks: &[ContentBlock]) -> String {
    let texts: Vec<&str> =
        blocks.iter().map(|block| block.as_text().unwrap_or("[an image]")).collect();
    texts.join("\n")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_RESULT_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => {
            let left = text[end..].chars().count();
            format!("{}\n[{left} more characters]", &text[..end])
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conversation_becomes_text_within_its_limit() {
        let messages: Vec<Arc<AgentMessage>> = serde_json::from_value::<Vec<AgentMessage>>(json!([
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}]},
            {"role": "assistant", "stopReason": "toolUse", "content": [
                {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look."},
                {"type": "toolCall", "id": "1", "name": "read", "arguments": {"path": "a"}}]},
            {"role": "toolResult", "toolCallId": "1", "toolName": "read", "isError": true, "content": [{"type": "text", "text": "é".repeat(2_010)}]},
            {"role": "bashExecution", "command": "id", "output": "x", "excludeFromContext": true},
        ]))
        .unwrap()
        .into_iter()
        .map(Arc::new)
        .collect();
        let text = conversation_text(&messages, 100_000);
        assert_eq!(
            text,
            format!(
                "[User]: look\n[an image]\n\n[Assistant's thinking]: hm\n[Assistant]: I look.\n[Assistant calls]: read({{\"path\":\"a\"}})\n\n[Tool error]: {}\n[10 more characters]",
                "é".repeat(2_000)
            )
        );
        let short = conversation_text(&messages, 2_130);
        assert!(
            short.starts_with("[What came before does not fit and was left out]\n\n[Assistant's"),
            "{short}"
        );
        assert!(conversation_text(&messages, 0).contains("[Tool error]"));
    }

    #[test]
    fn prompts_carry_the_summary_before_and_the_persons_words() {
        let prompt = history_prompt("C", Some("OLD"), Some(" only the API "));
        assert!(prompt.contains("<previous-summary>\nOLD\n</previous-summary>"));
        assert!(prompt.ends_with("Additional focus: only the API"));
        let plain = history_prompt("C", None, Some("  "));
        assert!(!plain.contains("previous") && !plain.contains("focus"));
        for section in [
            "Goal",
            "Constraints and preferences",
            "Progress",
            "Key decisions",
            "Next steps",
            "Critical context",
        ] {
            assert!(plain.contains(&format!("## {section}\n")), "{section}");
        }
        assert_eq!(merged(Some("a".into()), None), "a");
        let lists =
            "S\n\n<read-files>\n/a\n</read-files>\n\n<modified-files>\n/b\n</modified-files>\n";
        assert_eq!(without_file_lists(lists), "S");
        assert!(
            merged(Some("a".into()), Some("b".into()))
                .contains("**Beginning of the turn under way:**\n\nb")
        );
    }
}
