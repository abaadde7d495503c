//! How a pattern chooses a model, or several: an exact name, else a glob or a part of a
//! name; a thinking level may follow after a colon.
//!
//! Ids hold slashes and colons themselves (`qwen3:8b`, openrouter's `x/y:free`), so the
//! whole text is tried before anything is split off.

use std::cmp::Ordering;

use globset::{GlobBuilder, GlobMatcher};
use wharf_protocol::{Model, ThinkingLevel};

use super::config::SCRIPTED;
use super::{ModelChoice, Registry, RegistryError};

/// Names that one message lists.
const MAX_NAMES: usize = 20;

/// How alike an unknown name and a known one are at least, to be called similar: 1 is
/// equal.
const SIMILAR: f64 = 0.6;

/// The same for single words, which are short.
const SIMILAR_WORD: f64 = 0.75;

/// What a text without a thinking level matches.
enum Found<'a> {
    Nothing,
    One(&'a Model, Option<String>),
    /// Models of more than one provider.
    Several(Vec<&'a Model>),
}

impl Registry {
    /// Chooses by `[provider/]pattern[:thinking]`; see the module's comment. With the
    /// provider `scripted`, a pattern that ends in `.jsonl` is the path of a script.
    ///
    /// # Errors
    /// Nothing matches, or models of more than one provider do; or the script cannot be
    /// read.
    pub fn resolve(
        &mut self,
        provider: Option<&str>,
        pattern: &str,
    ) -> Result<ModelChoice, RegistryError> {
        let pattern = pattern.trim();
        let provider = provider.map(|name| self.known_provider(name)).transpose()?;
        let provider = provider.as_deref();
        if let Some(choice) = self.choose(provider, pattern, pattern)? {
            return Ok(choice);
        }
        let Some((bare, level)) = pattern.rsplit_once(':') else {
            return Err(self.no_match(provider, pattern));
        };
        let Some(mut choice) = self.choose(provider, bare, pattern)? else {
            return Err(self.no_match(provider, pattern));
        };
        match level.to_ascii_lowercase().parse() {
            Ok(level) => choice.thinking_level = Some(level),
            Err(_) => {
                let problem = unusable_level(pattern, level);
                choice.warning = Some(match choice.warning {
                    Some(warning) => format!("{warning}; {problem}"),
                    None => problem,
                });
            }
        }
        Ok(choice)
    }

    fn known_provider(&self, name: &str) -> Result<String, RegistryError> {
        let mut names = self.provider_names();
        let found = names.find(|known| known.eq_ignore_ascii_case(name)).map(str::to_owned);
        found.ok_or_else(|| RegistryError::UnknownProvider {
            name: name.to_owned(),
            known: self.provider_names().collect::<Vec<_>>().join(", "),
        })
    }

    /// The one model that `text` means; `pattern` is what was asked for, for messages.
    fn choose(
        &mut self,
        provider: Option<&str>,
        text: &str,
        pattern: &str,
    ) -> Result<Option<ModelChoice>, RegistryError> {
        let script = match provider {
            Some(SCRIPTED) => Some(text.strip_prefix("scripted/").unwrap_or(text)),
            Some(_) => None,
            None => text.strip_prefix("scripted/"),
        };
        if let Some(path) = script.filter(|path| path.ends_with(".jsonl")) {
            self.add_script(SCRIPTED, path)?;
            if let Some(model) = self.find(SCRIPTED, path) {
                let model = model.clone();
                return Ok(Some(ModelChoice { model, thinking_level: None, warning: None }));
            }
        }
        match self.look_up(provider, text) {
            Found::Nothing => Ok(None),
            Found::One(model, warning) => {
                Ok(Some(ModelChoice { model: model.clone(), thinking_level: None, warning }))
            }
            Found::Several(models) => Err(RegistryError::Ambiguous {
                pattern: pattern.to_owned(),
                matches: listed(&models),
            }),
        }
    }

    fn look_up(&self, provider: Option<&str>, text: &str) -> Found<'_> {
        let exact = self.exact(provider, text);
        if let Some((first, rest)) = exact.split_first() {
            if rest.is_empty() {
                return Found::One(first, None);
            }
            return match self.with_credentials(&exact).as_slice() {
                [model] => Found::One(model, None),
                [] => Found::Several(exact),
                several => Found::Several(several.to_vec()),
            };
        }
        let matches = self.partial(provider, text);
        let usable = self.with_credentials(&matches);
        let matches = if usable.is_empty() { matches } else { usable };
        let Some(first) = matches.first() else { return Found::Nothing };
        if matches.iter().any(|model| model.provider != first.provider) {
            return Found::Several(matches);
        }
        let best = matches.iter().copied().reduce(|a, b| if is_better(b, a) { b } else { a });
        let best = best.unwrap_or(first);
        let warning = (matches.len() > 1).then(|| {
            format!(
                "{text:?} matched several models ({}); using {}",
                listed(&matches),
                reference(best)
            )
        });
        Found::One(best, warning)
    }

    fn with_credentials<'a>(&self, models: &[&'a Model]) -> Vec<&'a Model> {
        models.iter().copied().filter(|model| self.has_credentials(model)).collect()
    }

    /// The models that `text` names in full, upper and lower case alike: at most one a
    /// provider, and just one where it says which provider.
    fn exact(&self, provider: Option<&str>, text: &str) -> Vec<&Model> {
        if let Some(name) = provider {
            let rest = without_provider(name, text);
            let found = self.in_provider(name, text);
            return found.or_else(|| self.in_provider(name, rest?)).into_iter().collect();
        }
        for name in self.provider_names() {
            let found = without_provider(name, text).and_then(|id| self.in_provider(name, id));
            if let Some(model) = found {
                return vec![model];
            }
        }
        self.provider_names().filter_map(|name| self.in_provider(name, text)).collect()
    }

    fn in_provider(&self, provider: &str, id: &str) -> Option<&Model> {
        self.find(provider, id).or_else(|| {
            let mut models = self.entry(provider)?.models.iter().map(|entry| &entry.model);
            models.find(|model| model.id.to_lowercase() == id.to_lowercase())
        })
    }

    /// The models whose id or name the glob matches or holds the text.
    fn partial(&self, provider: Option<&str>, text: &str) -> Vec<&Model> {
        let of = |provider: Option<&str>, text: &str| {
            let wanted = Wanted::new(text);
            let mut models = self.offered(provider);
            models.retain(|model| wanted.matches(model));
            models
        };
        let mut names = self.provider_names();
        let named = match provider {
            Some(name) => without_provider(name, text).map(|rest| (name, rest)),
            None => names.find_map(|name| without_provider(name, text).map(|rest| (name, rest))),
        };
        let found = named.map(|(name, rest)| of(Some(name), rest)).unwrap_or_default();
        if found.is_empty() { of(provider, text) } else { found }
    }

    /// The models of one provider, or all.
    fn offered(&self, provider: Option<&str>) -> Vec<&Model> {
        match provider {
            None => self.models().iter().collect(),
            Some(name) => {
                let entries = self.entry(name).map(|entry| entry.models.as_slice());
                entries.unwrap_or_default().iter().map(|entry| &entry.model).collect()
            }
        }
    }

    /// The models of several patterns, each with all of its matches that have
    /// credentials, in order and each model once; and what was not as it should be.
    pub fn scoped(&self, patterns: &[String]) -> (Vec<ModelChoice>, Vec<String>) {
        let mut choices: Vec<ModelChoice> = Vec::new();
        let mut warnings = Vec::new();
        for pattern in patterns.iter().map(|pattern| pattern.trim()) {
            let mut level = None;
            let mut models = self.all_matches(pattern);
            if models.is_empty()
                && let Some((bare, text)) = pattern.rsplit_once(':')
            {
                models = self.all_matches(bare);
                level = text.to_ascii_lowercase().parse::<ThinkingLevel>().ok();
                if level.is_none() && !models.is_empty() {
                    warnings.push(unusable_level(pattern, text));
                }
            }
            let usable = self.with_credentials(&models);
            if models.is_empty() {
                warnings.push(self.no_match(None, pattern).to_string());
            } else if usable.is_empty() {
                warnings.push(format!(
                    "{pattern:?} matches only models without a key: {}",
                    listed(&models)
                ));
            }
            for model in usable {
                if !choices.iter().any(|choice| choice.model.reference() == model.reference()) {
                    let model = model.clone();
                    choices.push(ModelChoice { model, thinking_level: level, warning: None });
                }
            }
        }
        (choices, warnings)
    }

    fn all_matches(&self, text: &str) -> Vec<&Model> {
        let exact = self.exact(None, text);
        if exact.is_empty() { self.partial(None, text) } else { exact }
    }

    /// The models where each word of `search` stands in `provider/id` or in the name.
    pub fn list(&self, search: Option<&str>) -> Vec<Model> {
        let search = search.unwrap_or_default().to_lowercase();
        let matches = |model: &&Model| {
            let text = format!("{} {}", reference(model), model.name).to_lowercase();
            search.split_whitespace().all(|word| text.contains(word))
        };
        self.models().iter().filter(matches).cloned().collect()
    }

    pub(super) fn no_match(&self, provider: Option<&str>, pattern: &str) -> RegistryError {
        let models = self.offered(provider);
        let close = if models.len() > MAX_NAMES { similar(&models, pattern) } else { Vec::new() };
        let hint = if models.is_empty() {
            "there are none; see models.json".to_owned()
        } else if models.len() <= MAX_NAMES {
            format!("known models: {}", listed(&models))
        } else if close.is_empty() {
            format!("--list-models shows all {}", models.len())
        } else {
            format!("similar ones: {}", listed(&close))
        };
        let pattern = match provider {
            Some(name) => format!("{name}/{}", without_provider(name, pattern).unwrap_or(pattern)),
            None => pattern.to_owned(),
        };
        RegistryError::NoMatch { pattern, hint }
    }
}

/// `id` of `provider/id`.
fn without_provider<'a>(provider: &str, text: &'a str) -> Option<&'a str> {
    let (name, id) = text.split_at_checked(provider.len())?;
    name.eq_ignore_ascii_case(provider).then(|| id.strip_prefix('/'))?
}

/// A glob, or a part of a name.
enum Wanted {
    Glob(GlobMatcher),
    Part(String),
}

impl Wanted {
    fn new(text: &str) -> Self {
        let is_glob = text.contains(['*', '?', '[']);
        let glob = is_glob.then(|| GlobBuilder::new(text).case_insensitive(true).build());
        match glob {
            Some(Ok(glob)) => Self::Glob(glob.compile_matcher()),
            _ => Self::Part(text.to_lowercase()),
        }
    }

    fn matches(&self, model: &Model) -> bool {
        match self {
            Self::Glob(glob) => {
                glob.is_match(&model.id)
                    || glob.is_match(&model.name)
                    || glob.is_match(reference(model))
            }
            Self::Part(part) => {
                // A letter or a digit chooses; what only stands between them does not.
                part.contains(char::is_alphanumeric)
                    && (model.id.to_lowercase().contains(part)
                        || model.name.to_lowercase().contains(part))
            }
        }
    }
}

/// Of models of one provider: a name that stays wins over a snapshot's, then the newer.
fn is_better(model: &Model, than: &Model) -> bool {
    match (is_snapshot(&model.id), is_snapshot(&than.id)) {
        (false, true) => true,
        (true, false) => false,
        _ => natural_order(&model.id, &than.id) == Ordering::Greater,
    }
}

/// `-20250929`, `-2025-09-29`, `-2512` (year and month), `-latest` at the end.
fn is_snapshot(id: &str) -> bool {
    let mut parts = id.rsplit('-');
    let last = parts.next().unwrap_or_default();
    let before = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let number = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    last == "latest"
        || number(last, 8)
        || number(last, 4)
        || (number(last, 2) && number(before.0, 2) && number(before.1, 4))
}

/// Compares numbers in a text as numbers: `gpt-5.10` is after `gpt-5.9`.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (in_a, in_b) = (digits(a), digits(b));
        let (head_a, head_b, order) = if in_a > 0 && in_b > 0 {
            let (x, y) = (a[..in_a].trim_start_matches('0'), b[..in_b].trim_start_matches('0'));
            (in_a, in_b, x.len().cmp(&y.len()).then_with(|| x.cmp(y)))
        } else {
            let (x, y) = (a.chars().next(), b.chars().next());
            let lower = |c: Option<char>| c.map(|c| c.to_ascii_lowercase());
            let len = |c: Option<char>| c.map_or(0, char::len_utf8);
            (len(x), len(y), lower(x).cmp(&lower(y)))
        };
        if order != Ordering::Equal || a.is_empty() {
            return order;
        }
        (a, b) = (&a[head_a..], &b[head_b..]);
    }
}

/// The models that a person may have meant, the likeliest first.
fn similar<'a>(models: &[&'a Model], pattern: &str) -> Vec<&'a Model> {
    let pattern = pattern.to_lowercase();
    let pattern = match pattern.rsplit_once(':') {
        Some((bare, level)) if level.parse::<ThinkingLevel>().is_ok() => bare,
        _ => &pattern,
    };
    let last = pattern.rsplit('/').next().unwrap_or_default();
    let words_of = |text: &str| -> Vec<String> {
        let words = text
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| word.len() > 2 && !word.bytes().all(|byte| byte.is_ascii_digit()));
        words.map(str::to_owned).collect()
    };
    let words = words_of(pattern);
    let mut ranked: Vec<(usize, f64, &Model)> = models
        .iter()
        .filter_map(|model| {
            let text = format!("{} {}", reference(model), model.name).to_lowercase();
            let known = words_of(&text);
            let is_held = |word: &&String| {
                let alike =
                    |known: &String| strsim::normalized_levenshtein(word, known) >= SIMILAR_WORD;
                text.contains(word.as_str()) || known.iter().any(alike)
            };
            let held = words.iter().filter(is_held).count();
            let id = model.id.to_lowercase();
            let alike = strsim::normalized_levenshtein(last, id.rsplit('/').next()?);
            (held > 0 || alike >= SIMILAR).then_some((held, alike, *model))
        })
        .collect();
    ranked.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
    ranked.into_iter().map(|(_, _, model)| model).collect()
}

fn unusable_level(pattern: &str, level: &str) -> String {
    let known: Vec<_> = ThinkingLevel::ALL.iter().map(|level| level.as_str()).collect();
    format!(
        "{pattern:?}: {level:?} is no thinking level and is left out; valid ones are {}",
        known.join(", ")
    )
}

fn reference(model: &Model) -> String {
    format!("{}/{}", model.provider, model.id)
}

fn listed(models: &[&Model]) -> String {
    let names: Vec<_> = models.iter().take(MAX_NAMES).map(|model| reference(model)).collect();
    let mut text = names.join(", ");
    if models.len() > MAX_NAMES {
        text.push_str(&format!(" and {} more", models.len() - MAX_NAMES));
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn natural_order_is_an_order(a in "[a-c0-2.-]{0,6}", b in "[a-c0-2.-]{0,6}", c in "[a-c0-2.-]{0,6}") {
            prop_assert_eq!(natural_order(&a, &b), natural_order(&b, &a).reverse());
            if natural_order(&a, &b).is_le() && natural_order(&b, &c).is_le() {
                prop_assert!(natural_order(&a, &c).is_le());
            }
        }

        #[test]
        fn any_text_is_a_pattern(text in "(anthropic/|scripted/)?[a-z0-9é:/*?\\[\\]{}!.-]{0,16}") {
            let mut registry = Registry::with_environment(|_| None);
            let text = text.replace(".jsonl", "");
            let _ = registry.resolve(None, &text);
            let _ = registry.scoped(std::slice::from_ref(&text));
            // What a listing shows can be asked for as it is.
            let model = registry.list(Some(&text)).pop();
            if let Some(model) = model {
                let choice = registry.resolve(None, &reference(&model));
                prop_assert_eq!(choice.map(|choice| choice.model), Ok(model));
            }
        }
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        for (smaller, greater) in [
            ("gpt-5.9", "gpt-5.10"),
            ("gpt-5", "gpt-5.1"),
            ("claude-opus-4-8", "claude-opus-5"),
            ("claude-opus-5", "claude-opus-5-5"),
            ("a", "b"),
            ("", "a"),
            ("gemini-3.5-flash", "gemini-3.5-flash-lite"),
            ("x-20250514", "x-20251101"),
            ("é1", "é02"),
        ] {
            assert_eq!(natural_order(smaller, greater), Ordering::Less, "{smaller} {greater}");
            assert_eq!(natural_order(greater, smaller), Ordering::Greater);
        }
        assert_eq!(natural_order("A-007", "a-7"), Ordering::Equal);
    }

    #[test]
    fn snapshots_are_told_from_names_that_stay() {
        for (id, expect) in [
            ("claude-sonnet-4-5-20250929", true),
            ("gpt-5.4-2026-03-05", true),
            ("mistral-large-2512", true),
            ("mistral-large-latest", true),
            ("claude-sonnet-4-5", false),
            ("gpt-5.4", false),
            ("gpt-oss-120b", false),
            ("20250929", true),
            ("", false),
        ] {
            assert_eq!(is_snapshot(id), expect, "{id}");
        }
    }
}
