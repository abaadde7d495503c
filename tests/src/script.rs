//! Replies for the scripted provider.

use serde_json::{Value, json};

/// A reply of one text.
pub fn says(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// A reply of one tool call.
pub fn call(tool: &str, arguments: &Value) -> Value {
    json!({"content": [{"type": "toolCall", "name": tool, "arguments": arguments}]})
}

/// A reply that runs this shell command.
pub fn bash(command: &str) -> Value {
    call("bash", &json!({"command": command}))
}
