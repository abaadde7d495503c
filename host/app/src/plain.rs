//! Text that may be anybody's, made fit for a person's terminal.

/// The beginning of a text that may be anything, without what a terminal obeys.
pub(crate) fn shown(text: &str, chars: usize) -> String {
    text.chars().filter(|c| !is_obeyed(*c)).take(chars).collect()
}

/// Whether a terminal does something else with a character than show it.
pub(crate) fn is_obeyed(c: char) -> bool {
    let changes_direction = matches!(
        c,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || changes_direction
}

/// A text as one line of at most `chars` characters.
pub(crate) fn one_line(text: &str, chars: usize) -> String {
    // One more, to know whether there is more.
    let line = shown(&text.split_whitespace().collect::<Vec<_>>().join(" "), chars + 1);
    if line.chars().count() <= chars {
        return line;
    }
    let cut: String = line.chars().take(chars.saturating_sub(3)).collect();
    cut + "..."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        for (text, expect) in [
            ("plain", "plain"),
            ("\u{1b}[31mred\u{1b}[0m", "[31mred[0m"),
            ("a\u{9b}2Jb\u{7}\u{8}", "a2Jb"),
            ("x\u{202e}gnp.exe", "xgnp.exe"),
            ("two\n lines\tand  more", "two lines and more"),
            ("ä\u{0}ö", "äö"),
            ("123456789012345678901", "12345678901234567..."),
        ] {
            assert_eq!(one_line(text, 20), expect);
        }
    }
}
