//! YAML front matter of Markdown files. What the fields mean is not known here.

use std::borrow::Cow;

use serde_norway::{Mapping, Value};

/// Largest front matter that is parsed: many times what the known fields need, and small
/// enough for a parser whose time grows with the square of the nesting.
const MAX_BYTES: usize = 16 << 10;

/// A Markdown file in two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document<'a> {
    /// What stands between the `---` lines, from the line end of the first one on: the
    /// YAML parser then counts lines as the file does. `None` without front matter.
    yaml: Option<&'a str>,
    body: &'a str,
}

/// Front matter that is not a YAML mapping, or too large to tell.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the front matter is not valid YAML (line {line}): {message}")]
pub struct FrontMatterError {
    /// Line of the file, from 1.
    pub line: usize,
    pub message: String,
}

/// A field with a value of the wrong kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` must be {expected}")]
pub struct FieldError {
    pub field: &'static str,
    pub expected: &'static str,
}

impl<'a> Document<'a> {
    /// Splits at the `---` lines. The second one may be the end of the file; if it is
    /// missing, there is no front matter and everything is body.
    pub fn split(text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let whole = Self { yaml: None, body: text };
        let mut lines = text.split_inclusive('\n');
        let Some(first) = lines.next().filter(|line| is_fence(line)) else { return whole };
        let mut end = first.len();
        for line in lines {
            if is_fence(line) {
                return Self {
                    yaml: Some(&text["---".len()..end]),
                    body: &text[end + line.len()..],
                };
            }
            end += line.len();
        }
        whole
    }

    /// The text after the front matter, without blank lines around it, lines ending in LF.
    pub fn body(&self) -> Cow<'a, str> {
        let body = self.body.trim();
        if body.contains('\r') {
            Cow::Owned(body.replace("\r\n", "\n"))
        } else {
            Cow::Borrowed(body)
        }
    }

    /// Parses the front matter; without one there are no fields.
    pub fn fields(&self) -> Result<Fields, FrontMatterError> {
        let Some(yaml) = self.yaml else { return Ok(Fields::default()) };
        if yaml.len() > MAX_BYTES {
            return Err(FrontMatterError {
                line: 1,
                message: format!("it is larger than {MAX_BYTES} bytes"),
            });
        }
        match serde_norway::from_str(yaml) {
            Ok(Value::Mapping(mapping)) => Ok(Fields(mapping)),
            Ok(Value::Null) => Ok(Fields::default()),
            Ok(_) => Err(FrontMatterError {
                line: 2,
                message: "expected `field: value` lines".to_owned(),
            }),
            Err(error) => Err(FrontMatterError {
                line: error.location().map_or(1, |location| location.line()),
                message: error.to_string(),
            }),
        }
    }
}

fn is_fence(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.trim_end().is_empty())
}

/// The fields of a front matter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields(Mapping);

impl Fields {
    /// A text; numbers and booleans are taken as they are written. An empty value counts
    /// as missing.
    pub fn text(&self, field: &'static str) -> Result<Option<String>, FieldError> {
        let text = match self.0.get(field) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.trim().to_owned(),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Bool(flag)) => flag.to_string(),
            Some(_) => return Err(FieldError { field, expected: "a text" }),
        };
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    pub fn flag(&self, field: &'static str) -> Result<Option<bool>, FieldError> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(Value::String(text)) if text == "true" => Ok(Some(true)),
            Some(Value::String(text)) if text == "false" => Ok(Some(false)),
            Some(_) => Err(FieldError { field, expected: "true or false" }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, name: Option<&str>, body: &str) {
        let document = Document::split(text);
        assert_eq!(document.fields().unwrap().text("name").unwrap().as_deref(), name);
        assert_eq!(document.body(), body);
    }

    #[test]
    fn splits_at_the_fences() {
        check("---\nname: a\n---\n\n# Body\n\nText\n", Some("a"), "# Body\n\nText");
        check("\u{feff}---\nname: a\n---\nBody", Some("a"), "Body");
        check("---\r\nname: a\r\n---\r\nOne\r\nTwo\r\n", Some("a"), "One\nTwo");
        check("--- \nname: a\n---\t\nBody", Some("a"), "Body");
        check("---\nname: a\n---", Some("a"), "");
        check("---\n---\nBody", None, "Body");
        check("---\n# only a comment\n---\nBody", None, "Body");
    }

    #[test]
    fn without_a_front_matter_all_is_body() {
        check("# Body\n\n---\nname: a\n---\n", None, "# Body\n\n---\nname: a\n---");
        check("---\nname: a\n", None, "---\nname: a");
        check("----\nname: a\n----\n", None, "----\nname: a\n----");
        check("", None, "");
        check("---", None, "---");
    }

    #[test]
    fn reads_the_yaml_ways_to_write_a_text() {
        let text = "---\nblock: |\n  one\n  two\nfolded: >\n  one\n  two\nquoted: \"a: b\"\nsingle: 'it''s'\nnumber: 12\n---\n";
        let fields = Document::split(text).fields().unwrap();
        assert_eq!(fields.text("block").unwrap().unwrap(), "one\ntwo");
        assert_eq!(fields.text("folded").unwrap().unwrap(), "one two");
        assert_eq!(fields.text("quoted").unwrap().unwrap(), "a: b");
        assert_eq!(fields.text("single").unwrap().unwrap(), "it's");
        assert_eq!(fields.text("number").unwrap().unwrap(), "12");
        assert_eq!(fields.text("absent").unwrap(), None);
        let crlf = text.replace('\n', "\r\n");
        assert_eq!(Document::split(&crlf).fields().unwrap(), fields);
    }

    #[test]
    fn wrong_kinds_name_their_field() {
        let fields = Document::split("---\na: [x]\nb: perhaps\nc: 'true'\n---\n").fields().unwrap();
        assert_eq!(fields.text("a").unwrap_err().to_string(), "`a` must be a text");
        assert_eq!(fields.flag("b").unwrap_err().to_string(), "`b` must be true or false");
        assert_eq!(fields.flag("c").unwrap(), Some(true));
    }

    #[test]
    fn broken_yaml_names_the_line_of_the_file() {
        let text = "---\nname: a\ndescription: [open\n---\nBody";
        let error = Document::split(text).fields().unwrap_err();
        assert!(error.line == 3 || error.line == 4, "{error}");
        let error = Document::split("---\nname: a\nb: c: d\n---\n").fields().unwrap_err();
        assert_eq!(error.line, 3, "{error}");
        let error = Document::split("---\njust text\n---\n").fields().unwrap_err();
        assert_eq!(error.message, "expected `field: value` lines");
    }

    #[test]
    fn nested_repeated_and_large_yaml_is_refused() {
        let deep = format!("---\na: {}\n---\n", "[".repeat(5_000));
        Document::split(&deep).fields().unwrap_err();
        let large = format!("---\na: {}\n---\n", "x".repeat(MAX_BYTES));
        let error = Document::split(&large).fields().unwrap_err();
        assert_eq!(error.message, "it is larger than 16384 bytes");
        let mut bomb = "---\na: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (before, name) in "abcdefgh".chars().zip("bcdefghi".chars()) {
            let nine = vec![format!("*{before}"); 9].join(", ");
            bomb.push_str(&format!("{name}: &{name} [{nine}]\n"));
        }
        bomb.push_str("---\n");
        Document::split(&bomb).fields().unwrap_err();
    }

    proptest! {
        #[test]
        fn any_input_is_split_without_loss(text in "(---)?[ \\t]?\\PC*(\r?\n(---|\\PC*)){0,6}") {
            let document = Document::split(&text);
            prop_assert!(text.ends_with(document.body));
            let _ = document.fields();
        }
    }
}
