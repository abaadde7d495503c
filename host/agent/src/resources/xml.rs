//! Escaping for the XML-like blocks that the model reads.

use std::borrow::Cow;

/// Escapes text for element content and for a double-quoted attribute.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"']) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn escapes_what_could_end_an_element_or_attribute() {
        assert_eq!(escape("plain's"), "plain's");
        assert_eq!(escape(r#"a<b> & "c""#), "a&lt;b&gt; &amp; &quot;c&quot;");
        assert_eq!(escape("&amp;"), "&amp;amp;");
    }
}
