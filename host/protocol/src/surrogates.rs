//! Text that is JSON and still no text: escapes of half surrogate pairs.

/// Replaces each `\uXXXX` escape of half a surrogate pair, which JavaScript writes
/// where it cuts a text inside a character, by the replacement character.
/// `None` where there is none.
pub fn replace_lone_surrogates(text: &str) -> Option<String> {
    let code = |at: usize| {
        let digits = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(offset) = text[at..].find('\\') {
        at += offset;
        match code(at) {
            Some(0xD800..=0xDBFF) if matches!(code(at + 6), Some(0xDC00..=0xDFFF)) => at += 12,
            Some(0xD800..=0xDFFF) => {
                out.push_str(&text[copied..at]);
                out.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            Some(_) => at += 6,
            // A two-character escape. The second may be the first byte of damaged text.
            None => at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        }
    }
    if copied == 0 {
        return None;
    }
    out.push_str(&text[copied..]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates() {
        for (text, expected) in [
            (r"plain \n \\ud83d", None),
            (r"pair \ud83d\ude00 \u00e9", None),
            (r"cut \ud83d", Some(r"cut \ufffd")),
            (r"cut \ud83d\ud83d\ude00 \ude00x", Some(r"cut \ufffd\ud83d\ude00 \ufffdx")),
            (r"end \", None),
            (r"end \u12", None),
            ("odd \\é \\ud800", Some("odd \\é \\ufffd")),
        ] {
            assert_eq!(replace_lone_surrogates(text).as_deref(), expected, "{text}");
        }
    }
}
