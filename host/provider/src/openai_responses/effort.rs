//! How OpenAI's model families take a thinking level: each refuses the values of
//! `reasoning.effort` that it does not know.

use wharf_protocol::ThinkingLevel::{self, High, Low, Medium, Minimal, Off, Xhigh};

/// The value of `reasoning.effort`; none where it is best left out: no value of the
/// model's family stands for "off".
pub(super) fn effort(model_id: &str, level: ThinkingLevel) -> Option<&'static str> {
    let known = efforts(model_id);
    let taken = if level == Off {
        known.iter().find(|effort| matches!(effort, Off | Minimal))
    } else {
        known.iter().find(|effort| **effort >= level).or(known.last())
    }?;
    Some(if *taken == Off { "none" } else { taken.as_str() })
}

/// What a family takes, least first; `Off` is `none`. By OpenAI's model pages and the
/// errors ("Supported values are: ...") of its server. A model that is not known here
/// gets the three that every reasoning model has.
fn efforts(model_id: &str) -> &'static [ThinkingLevel] {
    let id = model_id.to_lowercase();
    let id = id.rsplit('/').next().unwrap_or_default();
    let Some(rest) = id.strip_prefix("gpt-5") else {
        return &[Low, Medium, High, Xhigh];
    };
    // "gpt-5.1-codex-max"; in "gpt-5-2025-08-07" there is no minor version.
    let minor: u32 = rest
        .strip_prefix('.')
        .and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .unwrap_or(0);
    let has = |word: &str| rest.split('-').any(|part| part == word);
    match minor {
        _ if has("chat") => &[Medium],
        0 if has("pro") => &[High],
        _ if has("pro") => &[Medium, High, Xhigh],
        1 if has("codex") && has("mini") => &[Medium, High],
        0 | 1 if has("codex") && !has("max") => &[Low, Medium, High],
        _ if has("codex") => &[Low, Medium, High, Xhigh],
        0 => &[Minimal, Low, Medium, High],
        1 => &[Off, Low, Medium, High],
        2.. => &[Off, Low, Medium, High, Xhigh],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_gets_what_it_takes() {
        // Off, minimal, low, medium, high, xhigh; "-" is left out.
        for (id, expect) in [
            ("gpt-5", "minimal minimal low medium high high"),
            ("gpt-5-mini-2025-08-07", "minimal minimal low medium high high"),
            ("openai/GPT-5-nano", "minimal minimal low medium high high"),
            ("gpt-5-pro", "- high high high high high"),
            ("gpt-5-codex", "- low low medium high high"),
            ("gpt-5.1", "none low low medium high high"),
            ("gpt-5.1-codex", "- low low medium high high"),
            ("gpt-5.1-codex-mini", "- medium medium medium high high"),
            ("gpt-5.1-codex-max", "- low low medium high xhigh"),
            ("gpt-5.2", "none low low medium high xhigh"),
            ("gpt-5.2-pro", "- medium medium medium high xhigh"),
            ("gpt-5.2-chat-latest", "- medium medium medium medium medium"),
            ("gpt-5.3-codex", "- low low medium high xhigh"),
            ("gpt-5.4-mini", "none low low medium high xhigh"),
            ("o3", "- low low medium high xhigh"),
            ("gpt-oss-120b", "- low low medium high xhigh"),
        ] {
            let seen: Vec<&str> =
                ThinkingLevel::ALL.iter().map(|level| effort(id, *level).unwrap_or("-")).collect();
            assert_eq!(seen.join(" "), expect, "{id}");
        }
    }
}
