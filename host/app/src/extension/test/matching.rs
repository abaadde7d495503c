//! Whether an event has what a step expects, and where not.

use serde_json::Value;

/// A place in which an event is not as expected.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    /// A JSON pointer.
    pub(super) path: String,
    pub(super) expected: Value,
    /// None: it is not there.
    pub(super) came: Option<Value>,
}

/// Empty for an event that has all that is expected.
pub(super) fn differences(expected: &Value, came: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(expected, Some(came), &mut String::new(), &mut found);
    found
}

fn compare(expected: &Value, came: Option<&Value>, path: &mut String, found: &mut Vec<Difference>) {
    let same = match (expected, came) {
        (Value::Object(fields), Some(Value::Object(came))) => {
            for (key, value) in fields {
                let length = path.len();
                path.push('/');
                path.push_str(&key.replace('~', "~0").replace('/', "~1"));
                compare(value, came.get(key), path, found);
                path.truncate(length);
            }
            return;
        }
        (Value::Array(items), Some(Value::Array(came))) if items.len() == came.len() => {
            for (at, (item, came)) in items.iter().zip(came).enumerate() {
                let length = path.len();
                path.push_str(&format!("/{at}"));
                compare(item, Some(came), path, found);
                path.truncate(length);
            }
            return;
        }
        (Value::String(pattern), Some(Value::String(text))) => is_like(pattern, text),
        (Value::Number(expected), Some(Value::Number(came))) => {
            expected == came || expected.as_f64() == came.as_f64()
        }
        (Value::Null, None) => true,
        (expected, Some(came)) => expected == came,
        (_, None) => false,
    };
    if !same {
        found.push(Difference {
            path: path.clone(),
            expected: expected.clone(),
            came: came.cloned(),
        });
    }
}

/// `*` stands for any text, `\*` for itself.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = vec![String::new()];
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        let is_escaped = letter == '\\' && letters.peek() == Some(&'*');
        match (letter, parts.last_mut()) {
            ('*', _) => parts.push(String::new()),
            (_, Some(part)) => part.extend(if is_escaped { letters.next() } else { Some(letter) }),
            (_, None) => {}
        }
    }
    let Some((last, parts)) = parts.split_last() else { return pattern == text };
    let Some((first, middle)) = parts.split_first() else { return last == text };
    let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
    for part in middle {
        // The first place leaves the most for what follows.
        let Some(at) = rest.find(part.as_str()) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn strings_match_with_stars() {
        for (pattern, text, expect) in [
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("", "", true),
            ("*", "", true),
            ("*", "any\ntext", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "ac", true),
            ("ab*bc", "abc", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*b*", "abc", true),
            (r"2 \* 3", "2 * 3", true),
            (r"2 \* 3", "2 x 3", false),
            (r"a\b", r"a\b", true),
            ("ä*ü", "äöü", true),
        ] {
            assert_eq!(is_like(pattern, text), expect, "{pattern} {text}");
        }
    }

    #[test]
    fn an_event_may_have_more_than_is_expected() {
        let came = json!({"type": "x", "n": 1, "list": [{"a": 1, "b": 2}], "o": {"k": "v"}});
        for expected in [
            json!({}),
            json!({"type": "x"}),
            json!({"n": 1.0, "gone": null}),
            json!({"list": [{"a": 1}], "o": {"k": "*"}}),
        ] {
            assert_eq!(differences(&expected, &came), [], "{expected}");
        }
    }

    #[test]
    fn differences_name_their_places() {
        let came = json!({"type": "x", "list": [1, 2], "o": {"a/b": true}});
        let difference = |path: &str, expected: Value, came: Option<Value>| Difference {
            path: path.to_owned(),
            expected,
            came,
        };
        for (expected, found) in [
            (json!({"type": "y"}), vec![difference("/type", json!("y"), Some(json!("x")))]),
            (json!({"m": 1}), vec![difference("/m", json!(1), None)]),
            (json!({"list": [1]}), vec![difference("/list", json!([1]), Some(json!([1, 2])))]),
            (json!({"list": [1, 3]}), vec![difference("/list/1", json!(3), Some(json!(2)))]),
            (
                json!({"o": {"a/b": false}}),
                vec![difference("/o/a~1b", json!(false), Some(json!(true)))],
            ),
            (json!({"o": null}), vec![difference("/o", json!(null), Some(json!({"a/b": true})))]),
        ] {
            assert_eq!(differences(&expected, &came), found, "{expected}");
        }
    }

    proptest! {
        #[test]
        fn a_text_is_like_itself_with_any_part_left_out(text in "[ab*\\\\]{0,12}", cut in 0usize..13, len in 0usize..13) {
            let escape = |text: &str| text.replace('*', "\\*");
            // A backslash before a star would be taken for an escape of it.
            prop_assume!(!text.contains('\\'));
            let start = cut.min(text.len());
            let end = (start + len).min(text.len());
            let pattern = format!("{}*{}", escape(&text[..start]), escape(&text[end..]));
            prop_assert!(is_like(&pattern, &text), "{} {}", pattern, text);
            prop_assert!(is_like(&escape(&text), &text));
        }
    }
}
