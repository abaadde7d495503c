//! A reader of session files of its own, after the format's parsing example and
//! nothing else: it shares no code with the binary, and it takes no damage lightly.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

/// A session file of version 3.
#[derive(Debug, Clone)]
pub struct SessionFile {
    pub header: Value,
    pub entries: Vec<Value>,
}

impl SessionFile {
    /// Reads a file and checks every line of it.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.ends_with('\n'), "{} does not end with a line", path.display());
        Self::parse(&text).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()))
    }

    /// Checks whole lines.
    ///
    /// # Errors
    /// What is not as documented, and in which line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut values = Vec::new();
        for (index, line) in text.trim().split('\n').enumerate() {
            let value: Value = serde_json::from_str(line)
                .map_err(|error| format!("line {}: {error}: {line:?}", index + 1))?;
            values.push(value);
        }
        let header = values.remove(0);
        check_header(&header)?;
        let mut lines: HashMap<&str, usize> = HashMap::new();
        let mut last = "";
        for (index, entry) in values.iter().enumerate() {
            let fail = |what: &str| format!("line {}: {what}: {entry}", index + 2);
            let id = entry["id"].as_str().ok_or_else(|| fail("no id"))?;
            if !is_like(id, "xxxxxxxx") {
                return Err(fail("its id is not 8 hex digits"));
            }
            match &entry["parentId"] {
                Value::Null if index == 0 && entry.get("parentId").is_some() => {}
                Value::String(parent) if lines.contains_key(parent.as_str()) => {}
                _ => return Err(fail("its parent is no earlier entry")),
            }
            if lines.insert(id, index).is_some() {
                return Err(fail("its id is used twice"));
            }
            let timestamp = entry["timestamp"].as_str().unwrap_or_default();
            if !is_timestamp(timestamp) {
                return Err(fail("its timestamp is not ISO 8601 with three digits"));
            }
            // Texts of this form sort as the times do.
            if timestamp <= last {
                return Err(fail("its timestamp is not later than the one before"));
            }
            last = timestamp;
            check_entry(entry).map_err(|what| fail(&what))?;
        }
        Ok(Self { header, entries: values })
    }

    /// The messages, as `get_messages` tells them, of a session without branches.
    pub fn messages(&self) -> Vec<Value> {
        let mut messages = Vec::new();
        for entry in &self.entries {
            match entry["type"].as_str() {
                Some("message") => messages.push(entry["message"].clone()),
                Some("custom_message") => {
                    let mut message = serde_json::Map::new();
                    message.insert("role".to_owned(), Value::from("custom"));
                    for field in ["customType", "content", "display", "details"] {
                        if let Some(value) = entry.get(field) {
                            message.insert(field.to_owned(), value.clone());
                        }
                    }
                    messages.push(Value::Object(message));
                }
                _ => {}
            }
        }
        messages
    }

    pub fn of_type(&self, kind: &str) -> Vec<&Value> {
        self.entries.iter().filter(|entry| entry["type"] == kind).collect()
    }

    /// Every entry follows the one before.
    pub fn assert_linear(&self) {
        for pair in self.entries.windows(2) {
            assert_eq!(pair[1]["parentId"], pair[0]["id"], "{}", pair[1]);
        }
    }
}

fn is_timestamp(text: &str) -> bool {
    is_like(text, "dddd-dd-ddTdd:dd:dd.dddZ")
}

/// Compares by characters; `d` is a digit and `x` a hex digit.
fn is_like(text: &str, form: &str) -> bool {
    let fits = |(found, wanted): (u8, u8)| match wanted {
        b'd' => found.is_ascii_digit(),
        b'x' => found.is_ascii_digit() || (b'a'..=b'f').contains(&found),
        _ => found == wanted,
    };
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(fits)
}

fn check_header(header: &Value) -> Result<(), String> {
    let text = |field: &str| header[field].as_str().unwrap_or_default();
    let is_sound = header["type"] == "session"
        && header["version"] == 3
        && is_like(text("id"), "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
        && is_timestamp(text("timestamp"))
        && Path::new(text("cwd")).is_absolute()
        && header.get("parentId").is_none();
    if is_sound { Ok(()) } else { Err(format!("line 1: not a header of version 3: {header}")) }
}

fn check_entry(entry: &Value) -> Result<(), String> {
    let strings: &[&str] = match entry["type"].as_str().unwrap_or_default() {
        "message" => return check_message(&entry["message"]),
        "model_change" => &["provider", "modelId"],
        "thinking_level_change" => &["thinkingLevel"],
        "compaction" => &["summary", "firstKeptEntryId"],
        "branch_summary" => &["fromId", "summary"],
        "custom" => &["customType"],
        "custom_message" => {
            if !entry["display"].is_boolean() || !is_content(&entry["content"]) {
                return Err("display or content is wrong".to_owned());
            }
            &["customType"]
        }
        "label" => &["targetId"],
        "session_info" => &["name"],
        other => return Err(format!("no type of entry: {other:?}")),
    };
    require(entry, strings, Value::is_string)
}

fn check_message(message: &Value) -> Result<(), String> {
    require(message, &["timestamp"], Value::is_u64)?;
    match message["role"].as_str().unwrap_or_default() {
        "user" => {
            if !is_content(&message["content"]) {
                return Err("content is neither text nor blocks".to_owned());
            }
        }
        "assistant" => {
            require(message, &["content"], Value::is_array)?;
            require(message, &["api", "provider", "model", "stopReason"], Value::is_string)?;
            let stop = message["stopReason"].as_str().unwrap_or_default();
            if !["stop", "length", "toolUse", "error", "aborted"].contains(&stop) {
                return Err(format!("no stop reason: {stop}"));
            }
            let usage = &message["usage"];
            let counts = ["input", "output", "cacheRead", "cacheWrite", "totalTokens"];
            require(usage, &counts, Value::is_u64)?;
            let costs = ["input", "output", "cacheRead", "cacheWrite", "total"];
            require(&usage["cost"], &costs, Value::is_number)?;
            for block in message["content"].as_array().into_iter().flatten() {
                match block["type"].as_str().unwrap_or_default() {
                    "text" => require(block, &["text"], Value::is_string)?,
                    "thinking" => require(block, &["thinking"], Value::is_string)?,
                    "toolCall" => {
                        require(block, &["id", "name"], Value::is_string)?;
                        require(block, &["arguments"], Value::is_object)?;
                    }
                    other => return Err(format!("no block of a reply: {other}")),
                }
            }
        }
        "toolResult" => {
            require(message, &["toolCallId", "toolName"], Value::is_string)?;
            require(message, &["isError"], Value::is_boolean)?;
            if !message["content"].is_array() || !is_content(&message["content"]) {
                return Err("content is no list of blocks".to_owned());
            }
        }
        "bashExecution" => {
            require(message, &["command", "output"], Value::is_string)?;
            require(message, &["cancelled", "truncated"], Value::is_boolean)?;
            if !message["exitCode"].is_null() && !message["exitCode"].is_i64() {
                return Err("exitCode is no number".to_owned());
            }
        }
        other => return Err(format!("unexpected role {other:?}")),
    }
    Ok(())
}

fn is_content(content: &Value) -> bool {
    let is_block = |block: &Value| match block["type"].as_str() {
        Some("text") => block["text"].is_string(),
        Some("image") => block["data"].is_string() && block["mimeType"].is_string(),
        _ => false,
    };
    content.is_string() || content.as_array().is_some_and(|blocks| blocks.iter().all(is_block))
}

fn require(value: &Value, fields: &[&str], is_right: fn(&Value) -> bool) -> Result<(), String> {
    match fields.iter().find(|field| !is_right(&value[**field])) {
        None => Ok(()),
        Some(field) => Err(format!("{field} is missing or of another type")),
    }
}
