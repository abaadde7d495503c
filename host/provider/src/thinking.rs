//! Thinking levels: which ones a model has, and what they are in tokens.

use wharf_protocol::{Model, ThinkingLevel};

/// Tokens of thinking by level (`thinkingBudgets` of `settings.json`), for models that
/// take a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThinkingBudgets {
    pub minimal: u64,
    pub low: u64,
    pub medium: u64,
    pub high: u64,
}

impl Default for ThinkingBudgets {
    fn default() -> Self {
        Self { minimal: 1024, low: 2048, medium: 8192, high: 16_384 }
    }
}

impl ThinkingBudgets {
    /// Tokens of `level`; `xhigh` has those of `high`, `off` none.
    pub const fn tokens(&self, level: ThinkingLevel) -> u64 {
        match level {
            ThinkingLevel::Off => 0,
            ThinkingLevel::Minimal => self.minimal,
            ThinkingLevel::Low => self.low,
            ThinkingLevel::Medium => self.medium,
            ThinkingLevel::High | ThinkingLevel::Xhigh => self.high,
        }
    }
}

/// The levels that a model has, lowest first; a model that does not reason has `off` only.
pub fn levels(model: &Model) -> &'static [ThinkingLevel] {
    match (model.reasoning, supports_xhigh(model)) {
        (false, _) => &ThinkingLevel::ALL[..1],
        (true, false) => &ThinkingLevel::ALL[..5],
        (true, true) => &ThinkingLevel::ALL,
    }
}

/// The level that is sent: the highest one of the model's that is not above `level`.
pub fn clamp(level: ThinkingLevel, model: &Model) -> ThinkingLevel {
    let fitting = levels(model).iter().rev().find(|known| **known <= level);
    fitting.copied().unwrap_or(ThinkingLevel::Off)
}

/// The families that rpc-mode.md names: GPT-5.2 to GPT-5.6, Claude Opus 4.6 to 4.x and
/// Claude 5, Kimi K3. The id may have a prefix (`anthropic/claude-opus-4.6`) and a suffix.
pub(crate) fn supports_xhigh(model: &Model) -> bool {
    let id = model.id.to_lowercase().replace('.', "-");
    let id = id.rsplit('/').next().unwrap_or_default();
    if let Some(rest) = id.strip_prefix("gpt-5-") {
        return leading_number(rest).is_some_and(|minor| (2..=6).contains(&minor));
    }
    if let Some(rest) = id.strip_prefix("claude-opus-4-") {
        // A snapshot's date is no minor version: claude-opus-4-20250514.
        return leading_number(rest).is_some_and(|minor| (6..100).contains(&minor));
    }
    if let Some(rest) = id.strip_prefix("claude-") {
        // claude-sonnet-5, claude-5-sonnet; not claude-3-5-sonnet.
        let major = rest.split('-').find(|part| part.starts_with(|c: char| c.is_ascii_digit()));
        return major == Some("5");
    }
    id.contains("kimi-k3") || (id == "k3" && model.provider.contains("kimi"))
}

fn leading_number(text: &str) -> Option<u32> {
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::testing::model;

    #[test]
    fn xhigh_belongs_to_the_families_that_have_it() {
        for (id, expect) in [
            ("gpt-5.2", true),
            ("gpt-5.6-sol", true),
            ("openai/gpt-5.4-mini", true),
            ("gpt-5.1", false),
            ("gpt-5", false),
            ("gpt-5.7", false),
            ("gpt-5-mini", false),
            ("claude-opus-4-6", true),
            ("anthropic/claude-opus-4.7", true),
            ("claude-opus-4-5", false),
            ("claude-opus-4-20250514", false),
            ("claude-sonnet-4-6", false),
            ("claude-sonnet-5", true),
            ("claude-opus-5-1", true),
            ("claude-3-5-sonnet", false),
            ("kimi-k3", true),
            ("kimi-k2", false),
        ] {
            assert_eq!(supports_xhigh(&model("p", id)), expect, "{id}");
        }
    }

    #[test]
    fn levels_are_clamped_to_the_model() {
        use ThinkingLevel::{High, Low, Off, Xhigh};
        let mut plain = model("p", "gpt-4.1");
        plain.reasoning = false;
        let reasoning = model("p", "gpt-5");
        let extra = model("p", "gpt-5.2");
        assert_eq!([clamp(High, &plain), clamp(Off, &plain)], [Off, Off]);
        assert_eq!([clamp(Xhigh, &reasoning), clamp(Low, &reasoning)], [High, Low]);
        assert_eq!(clamp(Xhigh, &extra), Xhigh);
        assert_eq!(levels(&plain), [Off]);
    }
}
