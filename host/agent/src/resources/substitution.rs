//! Arguments of skills and prompt templates: splitting them into words and putting
//! them into a body. Both kinds of body follow the same rules.

use std::ops::Range;

/// What follows the name of a skill or template, split into words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments<'a> {
    raw: &'a str,
    words: Vec<Word<'a>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Word<'a> {
    /// White space before the word, as typed.
    gap: &'a str,
    text: String,
}

impl<'a> Arguments<'a> {
    /// Splits as a shell does: white space separates; `'...'` and `"..."` group; a
    /// backslash protects white space, quotes and itself (between double quotes: `"` and
    /// itself). Unlike in a shell nothing is lost: a quote without a partner and a
    /// backslash before any other character stand for themselves.
    pub fn split(raw: &'a str) -> Self {
        let raw = raw.trim();
        let mut words = Vec::new();
        let mut rest = raw;
        while !rest.is_empty() {
            let start = rest.trim_start();
            let gap = &rest[..rest.len() - start.len()];
            let (text, after) = split_word(start);
            words.push(Word { gap, text });
            rest = after;
        }
        Self { raw, words }
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The arguments as typed, without white space around them.
    pub fn raw(&self) -> &'a str {
        self.raw
    }

    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(|word| word.text.as_str())
    }

    /// Words with the white space that was typed between them, so that line breaks stay.
    fn join(&self, range: Range<usize>) -> String {
        let end = range.end.min(self.words.len());
        let start = range.start.min(end);
        let mut joined = String::new();
        for (index, word) in self.words[start..end].iter().enumerate() {
            if index > 0 {
                joined.push_str(word.gap);
            }
            joined.push_str(&word.text);
        }
        joined
    }
}

/// Splits a word off text that does not start with white space.
fn split_word(text: &str) -> (String, &str) {
    let mut word = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        if first.is_whitespace() {
            break;
        }
        let quoted = match first {
            '\'' => after.split_once('\'').map(|(inner, after)| (inner.to_owned(), after)),
            '"' => double_quoted(after),
            '\\' => after
                .chars()
                .next()
                .filter(|next| next.is_whitespace() || matches!(next, '\'' | '"' | '\\'))
                .map(|next| (next.to_string(), &after[next.len_utf8()..])),
            _ => None,
        };
        if let Some((inner, after)) = quoted {
            word.push_str(&inner);
            rest = after;
        } else {
            word.push(first);
            rest = after;
        }
    }
    (word, rest)
}

/// The text up to the closing double quote, and what follows it; `None` without one.
fn double_quoted(text: &str) -> Option<(String, &str)> {
    let mut inner = String::new();
    let mut characters = text.char_indices().peekable();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return Some((inner, &text[index + 1..])),
            '\\' => {
                let escaped = characters.next_if(|(_, next)| matches!(next, '"' | '\\'));
                inner.push(escaped.map_or('\\', |(_, next)| next));
            }
            other => inner.push(other),
        }
    }
    None
}

/// What a body's placeholders stand for.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    pub arguments: &'a Arguments<'a>,
    /// For `${WHARF_SKILL_DIR}`; without it the placeholder stays.
    pub skill_dir: Option<&'a str>,
    pub session_id: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Substituted {
    pub text: String,
    /// Whether the body had a place for arguments, filled or not.
    pub had_argument_placeholder: bool,
}

/// Fills the placeholders of a body, in one pass: what is inserted is not scanned again.
///
/// - `$ARGUMENTS`, `$@`: all arguments;
/// - `$0` and `$1`: the first one, in skills and templates alike; `$2`, `$10`, ...;
/// - `${@:N}`, `${@:N:L}`: from the Nth on, at most L of them;
/// - braces around any of the plain names, and `${NAME:-default}` for a missing or empty
///   argument; the default reaches to the first `}`;
/// - `${WHARF_SKILL_DIR}`, `${WHARF_SESSION_ID}`, also with the prefix `DREB_`.
///
/// A missing argument is empty. Every other `$` stays as it is.
pub fn substitute(body: &str, values: Values<'_>) -> Substituted {
    // No brace closes after this place, which keeps the search for one linear.
    let last_brace = body.rfind('}').unwrap_or(0);
    let mut text = String::with_capacity(body.len());
    let mut had_argument_placeholder = false;
    let mut at = 0;
    while let Some(offset) = body[at..].find('$') {
        let dollar = at + offset;
        text.push_str(&body[at..dollar]);
        let rest = &body[dollar + 1..];
        let parsed = match rest.strip_prefix('{') {
            Some(inner) if dollar < last_brace => braced(inner).map(|(p, len)| (p, len + 1)),
            Some(_) => None,
            None => plain(rest),
        };
        let filled = parsed.and_then(|(placeholder, length)| {
            had_argument_placeholder |= placeholder.takes_arguments();
            Some((placeholder.fill(values)?, length))
        });
        if let Some((inserted, length)) = filled {
            text.push_str(&inserted);
            at = dollar + 1 + length;
        } else {
            text.push('$');
            at = dollar + 1;
        }
    }
    text.push_str(&body[at..]);
    Substituted { text, had_argument_placeholder }
}

/// The body with the arguments in it: at its placeholders, or after it when it has none,
/// so that nothing that was typed is dropped.
pub fn apply(body: &str, values: Values<'_>) -> String {
    let Substituted { mut text, had_argument_placeholder } = substitute(body, values);
    if !had_argument_placeholder && !values.arguments.is_empty() {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(values.arguments.raw());
    }
    text
}

#[derive(Debug)]
enum Placeholder<'t> {
    /// Words by index from 0, and the default for when they are missing or empty.
    Words(Range<usize>, Option<&'t str>),
    SkillDir,
    SessionId,
}

impl Placeholder<'_> {
    fn takes_arguments(&self) -> bool {
        matches!(self, Self::Words(..))
    }

    fn fill(&self, values: Values<'_>) -> Option<String> {
        match self {
            Self::Words(range, default) => {
                let joined = values.arguments.join(range.clone());
                Some(match default {
                    Some(default) if joined.is_empty() => (*default).to_owned(),
                    _ => joined,
                })
            }
            Self::SkillDir => values.skill_dir.map(str::to_owned),
            Self::SessionId => Some(values.session_id.to_owned()),
        }
    }
}

/// A placeholder without braces, and its length, at the text after `$`.
fn plain(text: &str) -> Option<(Placeholder<'static>, usize)> {
    let (range, rest) = argument_name(text)?;
    Some((Placeholder::Words(range, None), text.len() - rest.len()))
}

/// A placeholder and its length with the closing brace, at the text after `${`.
fn braced(text: &str) -> Option<(Placeholder<'_>, usize)> {
    let variable = |name: &str| {
        let rest = text.strip_prefix("WHARF_").or_else(|| text.strip_prefix("DREB_"))?;
        rest.strip_prefix(name)
    };
    let (placeholder, rest) = if let Some(rest) = variable("SKILL_DIR") {
        (Placeholder::SkillDir, rest)
    } else if let Some(rest) = variable("SESSION_ID") {
        (Placeholder::SessionId, rest)
    } else {
        let (range, rest) = argument_name(text)?;
        if let Some(rest) = rest.strip_prefix(":-") {
            let (default, rest) = rest.split_once('}')?;
            return Some((Placeholder::Words(range, Some(default)), text.len() - rest.len()));
        }
        match rest.strip_prefix(':') {
            Some(rest) if text.starts_with('@') => {
                let (range, rest) = slice(rest)?;
                (Placeholder::Words(range, None), rest)
            }
            Some(_) => return None,
            None => (Placeholder::Words(range, None), rest),
        }
    };
    let rest = rest.strip_prefix('}')?;
    Some((placeholder, text.len() - rest.len()))
}

/// `@`, `ARGUMENTS` or a number: the words it stands for, and what follows it.
fn argument_name(text: &str) -> Option<(Range<usize>, &str)> {
    if let Some(rest) = text.strip_prefix('@') {
        return Some((0..usize::MAX, rest));
    }
    if let Some(rest) = text.strip_prefix("ARGUMENTS") {
        let longer = rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
        return (!longer).then_some((0..usize::MAX, rest));
    }
    let (number, rest) = number(text)?;
    // `$007` is no argument's name.
    let digits = text.len() - rest.len();
    if digits > 1 && text.starts_with('0') {
        return None;
    }
    let index = number.saturating_sub(1);
    Some((index..index.saturating_add(1), rest))
}

/// `N` or `N:L`; words count from 1, and 0 is taken as 1.
fn slice(text: &str) -> Option<(Range<usize>, &str)> {
    let (from, rest) = number(text)?;
    let start = from.saturating_sub(1);
    match rest.strip_prefix(':') {
        None => Some((start..usize::MAX, rest)),
        Some(rest) => {
            let (length, rest) = number(rest)?;
            Some((start..start.saturating_add(length), rest))
        }
    }
}

/// Leading decimal digits; a number too large for any argument is the largest one.
fn number(text: &str) -> Option<(usize, &str)> {
    let end = text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    (!digits.is_empty()).then(|| (digits.parse().unwrap_or(usize::MAX), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fill(body: &str, arguments: &str) -> Substituted {
        let arguments = Arguments::split(arguments);
        let values =
            Values { arguments: &arguments, skill_dir: Some("/skills/x"), session_id: "id-1" };
        substitute(body, values)
    }

    #[track_caller]
    fn check(body: &str, arguments: &str, expected: &str) {
        assert_eq!(fill(body, arguments).text, expected, "{body:?} with {arguments:?}");
    }

    #[track_caller]
    fn check_words(raw: &str, expected: &[&str]) {
        assert_eq!(Arguments::split(raw).words().collect::<Vec<_>>(), expected, "{raw:?}");
    }

    #[test]
    fn words_are_split_as_in_a_shell() {
        check_words("", &[]);
        check_words("  \t\n", &[]);
        check_words(" a  b\tc\nd ", &["a", "b", "c", "d"]);
        check_words(r#"a "b c" 'd e'"#, &["a", "b c", "d e"]);
        check_words(r#"--x="b c"d'e f'"#, &["--x=b cde f"]);
        check_words(r#"a "" b"#, &["a", "", "b"]);
        check_words(r#""it's" 'say "hi"'"#, &["it's", "say \"hi\""]);
        check_words(r"a\ b c\\d \'e\'", &["a b", r"c\d", "'e'"]);
        check_words(r#""a \"b\" \\ c""#, &[r#"a "b" \ c"#]);
        check_words(r"'a\' b", &[r"a\", "b"]);
    }

    #[test]
    fn nothing_is_lost_where_a_shell_would_complain_or_drop() {
        check_words("it's broken", &["it's", "broken"]);
        check_words("say \"hello world", &["say", "\"hello", "world"]);
        check_words("a 'b \"c d\"", &["a", "'b", "c d"]);
        check_words(r"C:\dir \d+ end\", &[r"C:\dir", r"\d+", r"end\"]);
        check_words(r#""a\nb""#, &[r"a\nb"]);
        check_words("é\u{a0}'ü", &["é", "'ü"]);
    }

    #[test]
    fn all_arguments() {
        check("[$ARGUMENTS] [$@] [${@}] [${ARGUMENTS}]", "a b", "[a b] [a b] [a b] [a b]");
        check("[$ARGUMENTS]", "\"a b\" c", "[a b c]");
        check("[$ARGUMENTS]", "", "[]");
        check("[$ARGUMENTS]", "line one\n  line two", "[line one\n  line two]");
        check("$ARGUMENTS.", "it's", "it's.");
    }

    #[test]
    fn single_arguments() {
        check("$0|$1|$2|$3", "a 'b c'", "a|a|b c|");
        check("$10 ${10} ${1}0", "a b c d e f g h i j", "j j a0");
        check("${2}x$1.", "a b", "bxa.");
    }

    #[test]
    fn slices() {
        check("${@:2}|${@:2:1}|${@:1:2}", "a b c", "b c|b|a b");
        check("${@:0}|${@:4}|${@:2:0}|${@:2:9}", "a b c", "a b c|||b c");
        check("${@:2}", "a b\nc", "b\nc");
        check("[${@:99999999999999999999999:99999999999999999999999}]", "a b", "[]");
    }

    #[test]
    fn defaults() {
        check("${1:-main} ${2:-two words}", "", "main two words");
        check("${1:-main} ${2:-}", "dev", "dev ");
        check("${@:-all} ${ARGUMENTS:-every}", "", "all every");
        check("${@:-all}", "a b", "a b");
        check("${1:-x}", "\"\"", "x");
        check("${2:-$1}", "a", "$1");
    }

    #[test]
    fn places() {
        check("${WHARF_SKILL_DIR}/run.sh ${DREB_SKILL_DIR}", "", "/skills/x/run.sh /skills/x");
        check("${WHARF_SESSION_ID} ${DREB_SESSION_ID}", "", "id-1 id-1");
        let arguments = Arguments::split("a");
        let values = Values { arguments: &arguments, skill_dir: None, session_id: "s" };
        assert_eq!(substitute("${WHARF_SKILL_DIR} $1", values).text, "${WHARF_SKILL_DIR} a");
    }

    #[test]
    fn everything_else_stays() {
        for body in [
            "$",
            "$$",
            "$x",
            "$HOME",
            "${HOME}",
            "${",
            "${}",
            "${1",
            "${1:-x",
            "${@:x}",
            "${@: -1}",
            "${1:2}",
            "${ARGUMENTS:1}",
            "$ARGUMENTS_2",
            "$ARGUMENTSX",
            "$00",
            "$01",
            "${01}",
            "${WHARF_SKILL_DIR",
            "${WHARF_OTHER}",
            "${SKILL_DIR}",
            "$WHARF_SESSION_ID",
            "$é",
            "$(1)",
        ] {
            let Substituted { text, had_argument_placeholder } = fill(body, "a b");
            assert_eq!(text, body);
            assert!(!had_argument_placeholder, "{body}");
        }
        check("$$1", "a", "$a");
    }

    #[test]
    fn inserted_text_is_not_scanned() {
        check("$1 $2", "'$2 $ARGUMENTS' ${WHARF_SESSION_ID}", "$2 $ARGUMENTS ${WHARF_SESSION_ID}");
        check("$1ARGUMENTS", "$", "$ARGUMENTS");
        check("$1{2}", "$ b", "${2}");
    }

    #[test]
    fn arguments_without_a_place_follow_the_body() {
        let apply_to = |body: &str, arguments: &str| {
            let arguments = Arguments::split(arguments);
            apply(body, Values { arguments: &arguments, skill_dir: Some("/d"), session_id: "s" })
        };
        assert_eq!(apply_to("Body ${WHARF_SKILL_DIR}", " \"a b\"  c\n"), "Body /d\n\n\"a b\"  c");
        assert_eq!(apply_to("Body $3", "a"), "Body ");
        assert_eq!(apply_to("Body", "  "), "Body");
        assert_eq!(apply_to("", "a"), "a");
    }

    /// Text in which placeholders and quotes are frequent.
    fn tricky() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("$".to_owned()),
            Just("${".to_owned()),
            Just("}".to_owned()),
            Just("$ARGUMENTS".to_owned()),
            Just("${@:".to_owned()),
            Just(":-".to_owned()),
            Just("${WHARF_SKILL_DIR}".to_owned()),
            "[0-9]{1,3}",
            "['\"\\\\ \n]",
            "\\PC{0,3}",
        ];
        proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn no_input_panics(body in tricky(), arguments in tricky()) {
            fill(&body, &arguments);
        }

        #[test]
        fn text_without_a_dollar_is_unchanged(body in "[^$]*", arguments in tricky()) {
            let filled = fill(&body, &arguments);
            prop_assert_eq!(filled.text, body);
            prop_assert!(!filled.had_argument_placeholder);
        }

        #[test]
        fn arguments_arrive_as_they_are(arguments in "[^'\"\\\\]*") {
            prop_assert_eq!(fill("<$ARGUMENTS>", &arguments).text, format!("<{}>", arguments.trim()));
        }

        #[test]
        fn splitting_loses_only_quotes_backslashes_and_white_space(raw in tricky()) {
            let kept = |text: &str| -> String {
                text.chars().filter(|c| !c.is_whitespace() && !"'\"\\".contains(*c)).collect()
            };
            let words: Vec<_> = Arguments::split(&raw).words().map(str::to_owned).collect();
            prop_assert_eq!(kept(&words.concat()), kept(&raw));
        }

        #[test]
        fn a_quoted_word_comes_back(words in proptest::collection::vec("[^']*", 1..5)) {
            let raw: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
            let raw = raw.join(" ");
            let arguments = Arguments::split(&raw);
            prop_assert_eq!(arguments.words().collect::<Vec<_>>(), words);
        }
    }
}
