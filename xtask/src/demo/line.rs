//! Makes a long protocol line readable: parts of it give way to their size, until
//! the rest is short enough. Nothing disappears without a trace.

use serde_json::{Map, Value};

/// Parts that repeat what other lines have said; they go first.
const BULKY: [&str; 3] = ["partial", "usage", "messages"];

/// Shorter parts are left alone: their placeholder would be as long.
const SMALLEST: usize = 40;

/// What is kept of a long string, in characters.
const STRING_HEAD: usize = 30;

/// What is kept of a long object: its plain fields, up to so many bytes.
const OBJECT_HEAD: usize = 70;

/// Around a placeholder while it is a JSON string.
const MARK: char = '\u{1}';

/// At the end of a field's name that stands for the fields that are left out.
const REST: char = '\u{2}';

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) text: String,
    pub(super) left_out: bool,
}

/// `line` in about `max` bytes.
pub(super) fn shortened(line: &str, max: usize) -> Shown {
    if line.len() <= max {
        return Shown { text: printable(line), left_out: false };
    }
    let Ok(original) = serde_json::from_str::<Value>(line) else { return cut(line, max) };
    let mut value = original.clone();
    let is_update = value["type"] == "message_update";
    for Part { pointer, .. } in parts(&value) {
        let name = pointer.rsplit('/').next().unwrap_or_default();
        if BULKY.contains(&name) || is_update && pointer == "/message" {
            replace(&mut value, &original, &pointer, placeholder);
        }
    }
    loop {
        let length = rendered(&value).len();
        if length <= max {
            break;
        }
        let mut parts = parts(&value);
        parts.sort_by_key(|part| part.bytes);
        let suffices = |part: &&Part| length - part.bytes + part.least <= max;
        let Some(part) = parts.iter().find(suffices).or(parts.last()) else { break };
        let shorter = if part.least == OBJECT_HEAD { head } else { placeholder };
        if !replace(&mut value, &original, &part.pointer, shorter) {
            break;
        }
    }
    Shown { left_out: true, ..cut(&rendered(&value), max) }
}

/// A part that can be shortened.
#[derive(Debug)]
struct Part {
    pointer: String,
    bytes: usize,
    /// About what it takes when it has been shortened.
    least: usize,
}

fn parts(value: &Value) -> Vec<Part> {
    let mut parts = Vec::new();
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                // The protocol's names have no character that a pointer escapes; a
                // part under another name is not found, and stays.
                collect(value, format!("/{name}"), &mut parts);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect(value, format!("/{index}"), &mut parts);
            }
        }
        _ => {}
    }
    parts
}

fn collect(value: &Value, pointer: String, all: &mut Vec<Part>) {
    let bytes = rendered(value).len();
    let least = match value {
        Value::Object(fields)
            if bytes > OBJECT_HEAD && !fields.keys().any(|name| is_rest(name)) =>
        {
            OBJECT_HEAD
        }
        Value::Object(_) | Value::Array(_) => SMALLEST,
        Value::String(text) if !text.starts_with(MARK) => SMALLEST,
        _ => return,
    };
    if bytes > least {
        all.push(Part { pointer: pointer.clone(), bytes, least });
    }
    for Part { pointer: inner, bytes, least } in parts(value) {
        all.push(Part { pointer: format!("{pointer}{inner}"), bytes, least });
    }
}

fn is_rest(name: &str) -> bool {
    name.ends_with(REST)
}

/// Puts a shorter form in a part's place; false where there is no such part any more.
fn replace(
    value: &mut Value,
    original: &Value,
    pointer: &str,
    shorter: fn(&Value) -> Value,
) -> bool {
    match (value.pointer_mut(pointer), original.pointer(pointer)) {
        (Some(part), Some(original)) => {
            *part = shorter(original);
            true
        }
        _ => false,
    }
}

/// The size of a part instead of the part.
fn placeholder(part: &Value) -> Value {
    let bytes = part.to_string().len();
    let text = match part {
        Value::Array(_) => format!("[… {bytes} bytes]"),
        Value::String(text) => {
            let head: String = text.chars().take(STRING_HEAD).collect();
            format!("{head}… {bytes} bytes")
        }
        _ => format!("{{… {bytes} bytes}}"),
    };
    Value::String(format!("{MARK}{text}{MARK}"))
}

/// Some plain fields of an object, and the size of the others.
fn head(part: &Value) -> Value {
    let Value::Object(fields) = part else { return placeholder(part) };
    let mut kept = Map::new();
    let (mut length, mut rest) = (0, 0);
    for (name, value) in fields {
        let bytes = name.len() + value.to_string().len() + "\"\":,".len();
        let is_plain = !matches!(value, Value::Object(_) | Value::Array(_));
        if is_plain && length + bytes <= OBJECT_HEAD - SMALLEST / 2 {
            length += bytes;
            kept.insert(name.clone(), value.clone());
        } else {
            rest += bytes;
        }
    }
    kept.insert(format!("{MARK}… {rest} bytes{REST}"), Value::Null);
    Value::Object(kept)
}

/// The JSON text, with placeholders that cannot be taken for strings or fields.
fn rendered(value: &Value) -> String {
    let text = value.to_string();
    text.replace("\\u0002\":null", "").replace("\"\\u0001", "").replace("\\u0001\"", "")
}

fn cut(text: &str, max: usize) -> Shown {
    // A few characters of grace, rather than a cut that saves nothing.
    if text.len() <= max + SMALLEST {
        return Shown { text: printable(text), left_out: false };
    }
    let head = &text[..text.floor_char_boundary(max)];
    Shown { text: format!("{}…", printable(head)), left_out: true }
}

/// `text` without characters that could change the terminal. Line feeds stay.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|character| {
            let escape = character.is_control() && character != '\n';
            let escaped = escape.then(|| character.escape_unicode()).into_iter().flatten();
            escaped.chain((!escape).then_some(character))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(line: &Value, expect: &str) {
        assert_eq!(shortened(&line.to_string(), 160).text, expect);
    }

    #[test]
    fn short_lines_are_shown_as_they_are() {
        let line = json!({"type": "turn_start", "partial": {"a": 1}}).to_string();
        assert_eq!(shortened(&line, 160), Shown { text: line.clone(), left_out: false });
    }

    #[test]
    fn an_update_keeps_its_delta_and_says_what_it_leaves_out() {
        let message =
            json!({"role": "assistant", "content": [{"type": "text", "text": "x".repeat(300)}]});
        check(
            &json!({"type": "message_update", "message": message,
                "assistantMessageEvent": {"type": "text_delta", "contentIndex": 0, "delta": "xx", "partial": message}}),
            r#"{"type":"message_update","message":{… 358 bytes},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"xx","partial":{… 358 bytes}}}"#,
        );
    }

    #[test]
    fn objects_keep_their_plain_fields_and_strings_their_beginning() {
        let list: Vec<&str> = vec!["item"; 40];
        check(
            &json!({"type": "response", "data": {"model": {"id": "m"}, "idle": true, "list": list}}),
            r#"{"type":"response","data":{"model":{"id":"m"},"idle":true,"list":[… 281 bytes]}}"#,
        );
        let fields: Map<String, Value> =
            ('a'..='z').map(|name| (name.to_string(), json!("12345"))).collect();
        check(
            &json!({"type": "response", "data": fields}),
            r#"{"type":"response","data":{"a":"12345","b":"12345","c":"12345","d":"12345",… 264 bytes}}"#,
        );
        check(
            &json!({"type": "turn_start", "note": "abcdefghij".repeat(20)}),
            r#"{"type":"turn_start","note":abcdefghijabcdefghijabcdefghij… 202 bytes}"#,
        );
    }

    #[test]
    fn whatever_comes_is_cut_and_harmless() {
        let flat = json!((0..200).collect::<Vec<_>>()).to_string();
        for line in ["not json ".repeat(100), flat, "\u{9b}31m\u{1b}[2J".repeat(100)] {
            let shown = shortened(&line, 160);
            assert!(shown.left_out && shown.text.ends_with('…'), "{shown:?}");
            assert!(!shown.text.contains(char::is_control), "{shown:?}");
        }
    }
}
