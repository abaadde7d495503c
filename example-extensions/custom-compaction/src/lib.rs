//! Compacts without asking the model: the summary is a list of what the person asked
//! for, one line each, after the summary of the compaction before. The details, the
//! files that were read and changed, are kept as the host knows them.
//!
//! `/no-compact` switches compactions off, and on again.

use std::cell::Cell;

use wharf_sdk::{
    CommandCtx, CompactDecision, Content, Ctx, Extension, Message, OwnSummary, Registration,
    Result, SessionBeforeCompactEvent,
};

/// Characters of a message that its line in the summary has.
const LINE: usize = 200;

#[derive(Default)]
struct CustomCompaction {
    is_off: Cell<bool>,
}

impl Extension for CustomCompaction {
    fn register() -> Registration<Self> {
        Registration::new("custom-compaction", env!("CARGO_PKG_VERSION"))
            .description("Compacts to a list of what the person asked for.")
            .command("no-compact", "Switches compactions off, and on again", Self::toggle)
            .on_session_before_compact(Self::before_compact)
    }
}

impl CustomCompaction {
    async fn toggle(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        self.is_off.set(!self.is_off.get());
        ctx.ui().notify(if self.is_off.get() { "Compaction is off" } else { "Compaction is on" });
        Ok(())
    }

    async fn before_compact(
        &self,
        _ctx: &Ctx,
        event: SessionBeforeCompactEvent,
    ) -> Result<CompactDecision> {
        if self.is_off.get() {
            return Ok(CompactDecision::Cancel);
        }
        Ok(match digest(event.previous_summary.as_deref(), &event.all_messages()?) {
            Some(summary) => OwnSummary::new(summary).with_details(event.details).into(),
            // Nothing that this could make a summary of: the model does it.
            None => CompactDecision::Proceed,
        })
    }
}

/// None when the person said nothing.
fn digest(previous: Option<&str>, messages: &[Message]) -> Option<String> {
    let mut lines: Vec<String> = messages.iter().filter_map(request).collect();
    if lines.is_empty() {
        return None;
    }
    lines.insert(0, previous.unwrap_or("The person asked for this, in order:").to_owned());
    Some(lines.join("\n"))
}

/// A message of the person as one line.
fn request(message: &Message) -> Option<String> {
    let Message::User { content } = message else { return None };
    let words: Vec<&str> =
        content.iter().filter_map(Content::as_text).flat_map(str::split_whitespace).collect();
    let line: String = words.join(" ").chars().take(LINE).collect();
    (!line.is_empty()).then(|| format!("- {line}"))
}

wharf_sdk::export!(CustomCompaction);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_carries_the_one_before_on_and_has_a_line_for_each_request() {
        let says = |text: &str| Message::User { content: vec![Content::text(text)] };
        let messages = [says("paint\n the  boat"), Message::Other, says(" "), says("sail")];
        let expected = "The person asked for this, in order:\n- paint the boat\n- sail";
        let first = digest(None, &messages);
        assert_eq!(first.as_deref(), Some(expected));
        let second = digest(first.as_deref(), &[says(&"é".repeat(LINE + 1))]);
        assert_eq!(second, Some(format!("{expected}\n- {}", "é".repeat(LINE))));
        assert_eq!(digest(Some("before"), &[Message::Other]), None);
    }
}
