//! How a request asks a model to think: by a budget of tokens (Claude up to 4.5, and
//! the models of other makers that speak this API), or by an effort (Claude from 4.6 on,
//! which chooses its own budget).
//!
//! The differences between the models are those of the pages "Extended thinking",
//! "Adaptive thinking" and "Preserved thinking" of the Claude API's documentation.

use serde_json::{Value, json};
use wharf_protocol::ThinkingLevel;

use super::messages::Shape;
use crate::Request;

/// The API takes no smaller budget.
const MIN_BUDGET: u64 = 1024;

/// Tokens that the answer itself gets beside the thinking, where the model has them.
const MIN_ANSWER: u64 = 1024;

/// Lets a model think between tool calls. Needed for budgets only.
const INTERLEAVED: &str = "interleaved-thinking-2025-05-14";

/// Makes the API accept `block_binding`.
const BINDING_CONTROLS: &str = "thinking-binding-controls-2026-08-01";

/// What a request says of thinking, and what follows from that for the rest of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub(super) thinking: Option<Value>,
    pub(super) effort: Option<&'static str>,
    pub(super) beta: Option<&'static str>,
    pub(super) max_tokens: u64,
    /// The model gets its earlier thinking back. One that does not think refuses it.
    keep_thinking: bool,
    /// The model takes a conversation that ends with its own words.
    may_end_with_assistant: bool,
    needs_thinking_first: bool,
}

impl Plan {
    pub(super) fn shape(&self) -> Shape {
        Shape {
            keep_thinking: self.keep_thinking,
            may_end_with_assistant: self.may_end_with_assistant,
        }
    }

    /// With a budget, a turn whose tools have just run must have begun with thinking. One
    /// that another model began has not.
    pub(super) fn needs_thinking_first(&self) -> bool {
        self.needs_thinking_first
    }
}

/// What a model's id says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Takes an effort. The number is the version: (4, 6) and later.
    Adaptive { version: (u32, u32), can_be_off: bool },
    /// An earlier Claude.
    Budget,
    /// Not a Claude.
    Other,
}

fn family(id: &str) -> Family {
    let id = id.to_lowercase();
    let Some((_, name)) = id.rsplit_once("claude-") else { return Family::Other };
    // claude-opus-4-6, claude-3-5-sonnet, claude-sonnet-4-20250514, claude-opus-4.6-v1
    let mut parts = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .map(|part| part.parse::<u32>().ok().filter(|number| *number < 100))
        .skip_while(Option::is_none);
    let version = match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), minor) => (major, minor.unwrap_or(0)),
        (None, _) if name.starts_with("mythos") => (5, 0),
        (None, _) => return Family::Budget,
    };
    if version < (4, 6) {
        return Family::Budget;
    }
    // Off by default up to 4.x; on by default, but not always, in Opus 5 and Sonnet 5.
    let can_be_off = version < (5, 0)
        || (version == (5, 0) && (name.contains("opus") || name.contains("sonnet")));
    Family::Adaptive { version, can_be_off }
}

/// Without thinking, as far as the model can do without.
pub(super) fn without(request: &Request) -> Plan {
    let (mut thinking, mut effort, mut beta) = (None, None, None);
    let mut keep_thinking = false;
    let family = family(&request.model.id);
    match family {
        Family::Adaptive { version, can_be_off } if version >= (5, 0) => {
            keep_thinking = !can_be_off;
            // `reasoning` is off in models.json: then nothing at all is said of it.
            if request.model.reasoning && can_be_off {
                thinking = Some(json!({"type": "disabled"}));
            } else if request.model.reasoning {
                (thinking, beta) = adaptive(version);
                effort = Some("low");
            } else {
                keep_thinking = true;
            }
        }
        Family::Adaptive { .. } | Family::Budget => {}
        // Some think without being asked to, and want to see it again.
        Family::Other => keep_thinking = true,
    }
    Plan {
        thinking,
        effort,
        beta,
        max_tokens: request.output_budget(),
        keep_thinking,
        may_end_with_assistant: !matches!(family, Family::Adaptive { .. }),
        needs_thinking_first: false,
    }
}

pub(super) fn plan(request: &Request) -> Plan {
    let level = request.thinking_level;
    let none = without(request);
    if level == ThinkingLevel::Off || !request.model.reasoning {
        return none;
    }
    let family = family(&request.model.id);
    if let Family::Adaptive { version, .. } = family {
        let (thinking, beta) = adaptive(version);
        return Plan { thinking, effort: Some(effort(level)), beta, keep_thinking: true, ..none };
    }
    let wanted = request.thinking_budgets.tokens(level);
    let Some((budget, max_tokens)) = fit(wanted, none.max_tokens, request.model.max_tokens) else {
        return none;
    };
    let is_claude = family == Family::Budget;
    Plan {
        thinking: Some(json!({"type": "enabled", "budget_tokens": budget})),
        beta: (is_claude && !request.tools.is_empty()).then_some(INTERLEAVED),
        max_tokens,
        keep_thinking: true,
        may_end_with_assistant: !is_claude,
        needs_thinking_first: is_claude,
        ..none
    }
}

fn adaptive(version: (u32, u32)) -> (Option<Value>, Option<&'static str>) {
    let mut thinking = json!({"type": "adaptive"});
    if version >= (4, 7) {
        // The default of these models is to keep the text of their thoughts back.
        thinking["display"] = json!("summarized");
    }
    if version > (5, 0) {
        // These models refuse thoughts of theirs if anything before them has changed, as
        // compaction or another set of tools changes it: the API is to forget such ones.
        thinking["block_binding"] = json!({"prefix_mismatch_behavior": "drop_block"});
        return (Some(thinking), Some(BINDING_CONTROLS));
    }
    (Some(thinking), None)
}

const fn effort(level: ThinkingLevel) -> &'static str {
    match level {
        ThinkingLevel::Off | ThinkingLevel::Minimal | ThinkingLevel::Low => "low",
        ThinkingLevel::Medium => "medium",
        ThinkingLevel::High => "high",
        ThinkingLevel::Xhigh => "max",
    }
}

/// The budget and the `max_tokens` that hold it; none where there is no room for one.
/// `ceiling`: the model's own limit; 0 where it is not known.
fn fit(wanted: u64, max_tokens: u64, ceiling: u64) -> Option<(u64, u64)> {
    let wanted = wanted.max(MIN_BUDGET);
    if wanted.saturating_add(MIN_ANSWER) <= max_tokens {
        return Some((wanted, max_tokens));
    }
    let raised = max_tokens.saturating_add(wanted);
    let max_tokens = if ceiling == 0 { raised } else { raised.min(ceiling) };
    let budget = wanted.min(max_tokens.saturating_sub(MIN_ANSWER)).max(MIN_BUDGET);
    (budget < max_tokens).then_some((budget, max_tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_the_family() {
        let adaptive =
            |major, minor, can_be_off| Family::Adaptive { version: (major, minor), can_be_off };
        for (id, expect) in [
            ("claude-3-5-sonnet-20241022", Family::Budget),
            ("claude-3-7-sonnet-latest", Family::Budget),
            ("claude-sonnet-4-20250514", Family::Budget),
            ("claude-opus-4-5-20251101", Family::Budget),
            ("claude-opus-4-5@20251101", Family::Budget),
            ("claude-haiku-4-5", Family::Budget),
            ("claude-instant", Family::Budget),
            ("claude-opus-4-6", adaptive(4, 6, true)),
            ("claude-sonnet-4-6", adaptive(4, 6, true)),
            ("anthropic/claude-opus-4.7", adaptive(4, 7, true)),
            ("us.anthropic.claude-opus-4-6-v1", adaptive(4, 6, true)),
            ("claude-opus-4-8[1m]", adaptive(4, 8, true)),
            ("claude-opus-5", adaptive(5, 0, true)),
            ("claude-sonnet-5-20260601", adaptive(5, 0, true)),
            ("claude-5-sonnet", adaptive(5, 0, true)),
            ("claude-fable-5", adaptive(5, 0, false)),
            ("claude-fable-5-1", adaptive(5, 1, false)),
            ("claude-mythos-preview", adaptive(5, 0, false)),
            ("claude-opus-5-5", adaptive(5, 5, false)),
            ("kimi-k2-thinking", Family::Other),
            ("MiniMax-M2", Family::Other),
        ] {
            assert_eq!(family(id), expect, "{id}");
        }
    }

    #[test]
    fn a_budget_leaves_room_for_the_answer() {
        for (wanted, max_tokens, ceiling, expect) in [
            (16_384, 32_000, 64_000, Some((16_384, 32_000))),
            (100, 32_000, 64_000, Some((1024, 32_000))),
            // Raised, as far as the model goes.
            (16_384, 8000, 64_000, Some((16_384, 24_384))),
            (16_384, 16_384, 20_000, Some((16_384, 20_000))),
            (16_384, 8000, 0, Some((16_384, 24_384))),
            // No room to raise: lowered.
            (16_384, 8192, 8192, Some((7168, 8192))),
            (16_384, 2048, 2048, Some((1024, 2048))),
            (16_384, 1500, 1500, Some((1024, 1500))),
            (16_384, 1025, 1025, Some((1024, 1025))),
            (16_384, 1024, 1024, None),
            (1024, 10, 10, None),
            (u64::MAX, 8192, 0, Some((u64::MAX - 1024, u64::MAX))),
        ] {
            assert_eq!(fit(wanted, max_tokens, ceiling), expect, "{wanted} {max_tokens} {ceiling}");
        }
    }
}
