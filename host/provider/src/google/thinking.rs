//! How Google's model families take a thinking level: Gemini 2.5 as a number of tokens,
//! Gemini 3 and later as a name.

use serde_json::{Value, json};
use wharf_protocol::ThinkingLevel::{self, High, Low, Medium, Minimal, Off};

use crate::Request;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Takes `thinkingBudget`: tokens, `off` included where zero is taken.
    Budget { min: u64, max: u64, takes_zero: bool },
    /// Takes `thinkingLevel`, one of these, least first.
    Level(&'static [ThinkingLevel]),
    /// The same; takes and gives ids of calls, and wants calls signed.
    Gemini3(&'static [ThinkingLevel]),
    /// Any other one.
    Other,
}

impl Family {
    /// By the tables of Google's pages on thinking. `gemini-flash-latest` and the like
    /// are of the newest generation.
    pub(super) fn of(model_id: &str) -> Self {
        let id = model_id.to_lowercase();
        let id = id.rsplit('/').next().unwrap_or_default();
        if id.starts_with("gemma-4") {
            return Self::Level(&[Minimal, High]);
        }
        let Some(rest) = id.strip_prefix("gemini-") else { return Self::Other };
        let has = |word: &str| rest.split('-').any(|part| part == word);
        let (is_flash, is_lite) = (has("flash"), has("lite"));
        let version = rest.split('-').next().unwrap_or_default();
        let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
        match (major.parse::<u32>(), minor) {
            (Ok(2), "5") if is_lite => Self::Budget { min: 512, max: 24_576, takes_zero: true },
            (Ok(2), "5") if is_flash => Self::Budget { min: 1, max: 24_576, takes_zero: true },
            (Ok(2), "5") => Self::Budget { min: 128, max: 32_768, takes_zero: false },
            (Ok(3), "0") if is_flash => Self::Gemini3(&[Minimal, Low, Medium, High]),
            (Ok(3), "0") => Self::Gemini3(&[Low, High]),
            (Ok(3), _) if is_lite => Self::Gemini3(&[Minimal, Low, Medium, High]),
            (Ok(3..), _) => Self::Gemini3(&[Low, Medium, High]),
            (Err(_), _) if has("latest") => Self::Gemini3(&[Low, Medium, High]),
            _ => Self::Other,
        }
    }

    /// `thinkingConfig` of a request; none where the model's default is all there is.
    pub(super) fn config(self, request: &Request) -> Option<Value> {
        if !request.model.reasoning {
            return None;
        }
        let level = request.thinking_level;
        let mut config = match self {
            Self::Budget { min, max, takes_zero } => {
                let tokens = if level == Off && takes_zero {
                    0
                } else {
                    // Thinking counts as output: half of it stays for the reply.
                    let wanted = request.thinking_budgets.tokens(level);
                    wanted.min(request.output_budget() / 2).clamp(min, max)
                };
                json!({"thinkingBudget": tokens})
            }
            Self::Level(known) | Self::Gemini3(known) => {
                let taken = known.iter().find(|known| **known >= level).or(known.last())?;
                json!({"thinkingLevel": taken.as_str()})
            }
            Self::Other if level == Off => return None,
            Self::Other => json!({}),
        };
        if level != Off {
            config["includeThoughts"] = json!(true);
        }
        Some(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;
    use crate::registry::testing::model;

    #[test]
    fn every_family_gets_what_it_takes() {
        // Off, minimal, low, medium, high, xhigh.
        for (id, expect) in [
            ("gemini-2.5-pro", "128 1024 2048 8192 16384 16384"),
            ("gemini-2.5-flash-preview-09-2025", "0 1024 2048 8192 16384 16384"),
            ("models/gemini-2.5-flash-lite", "0 1024 2048 8192 16384 16384"),
            ("gemini-3-pro-preview", "low low low high high high"),
            ("gemini-3-flash-preview", "minimal minimal low medium high high"),
            ("gemini-3.1-pro-preview", "low low low medium high high"),
            ("gemini-3.1-flash-lite", "minimal minimal low medium high high"),
            ("google/gemini-3.8-flash", "low low low medium high high"),
            ("gemini-4-argon", "low low low medium high high"),
            ("gemini-flash-latest", "low low low medium high high"),
            ("gemma-4-31b-it", "minimal minimal high high high high"),
            ("gemini-2.0-flash", "- {} {} {} {} {}"),
            ("learnlm", "- {} {} {} {} {}"),
        ] {
            let mut request = conformance::request(model("google", id), Vec::new());
            request.model.max_tokens = 65_536;
            request.max_tokens = Some(65_536);
            let seen: Vec<String> = ThinkingLevel::ALL
                .iter()
                .map(|level| {
                    request.thinking_level = *level;
                    let Some(mut config) = Family::of(id).config(&request) else {
                        return "-".to_owned();
                    };
                    let shown = config.as_object_mut().and_then(|c| c.remove("includeThoughts"));
                    assert_eq!(shown, (*level != Off).then(|| json!(true)), "{id} {level}");
                    match (&config["thinkingBudget"], &config["thinkingLevel"]) {
                        (Value::Null, Value::String(level)) => level.clone(),
                        (Value::Number(budget), Value::Null) => budget.to_string(),
                        _ => config.to_string(),
                    }
                })
                .collect();
            assert_eq!(seen.join(" "), expect, "{id}");
        }
    }

    #[test]
    fn a_budget_leaves_room_for_the_reply() {
        for (id, max_tokens, expect) in [
            ("gemini-2.5-flash", 1000, 500),
            ("gemini-2.5-flash-lite", 100, 512),
            ("gemini-2.5-pro", 100, 128),
        ] {
            let mut request = conformance::request(model("google", id), Vec::new());
            request.thinking_level = High;
            request.max_tokens = Some(max_tokens);
            let config = Family::of(id).config(&request);
            assert_eq!(config, Some(json!({"thinkingBudget": expect, "includeThoughts": true})));
        }
    }

    #[test]
    fn a_model_that_does_not_reason_gets_no_config() {
        let mut request = conformance::request(model("google", "gemini-2.5-flash"), Vec::new());
        request.model.reasoning = false;
        assert_eq!(Family::of("gemini-2.5-flash").config(&request), None);
    }
}
