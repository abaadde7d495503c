//! Which files a conversation has read and modified: a summary alone forgets them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use wharf_protocol::AgentMessage;

/// As `details` of compactions and branch summaries have it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FileOperations {
    read_files: BTreeSet<String>,
    modified_files: BTreeSet<String>,
}

impl FileOperations {
    /// What an earlier summary lists. An extension's `details` may mean anything.
    pub(crate) fn carried_over(details: Option<&Value>, from_hook: Option<bool>) -> Self {
        match details {
            Some(details) if from_hook != Some(true) => {
                Self::deserialize(details).unwrap_or_default()
            }
            _ => Self::default(),
        }
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.read_files.extend(other.read_files);
        self.modified_files.extend(other.modified_files);
    }

    /// Takes in what a reply's calls of the file tools name.
    pub(crate) fn add_message(&mut self, message: &AgentMessage) {
        let AgentMessage::Assistant(reply) = message else { return };
        for call in reply.tool_calls() {
            let Some(path) = call.arguments.get("path").and_then(Value::as_str) else { continue };
            match call.name.as_str() {
                "read" => self.read_files.insert(path.to_owned()),
                "write" | "edit" => self.modified_files.insert(path.to_owned()),
                _ => continue,
            };
        }
    }

    /// A file that was modified is listed as that alone.
    fn only_read(&self) -> impl Iterator<Item = &String> {
        self.read_files.difference(&self.modified_files)
    }

    pub(crate) fn details(&self) -> Value {
        let read: Vec<_> = self.only_read().collect();
        serde_json::json!({ "readFiles": read, "modifiedFiles": self.modified_files })
    }

    /// For the end of a summary; empty where there are none.
    pub(crate) fn as_text(&self) -> String {
        let mut text = String::new();
        let read: Vec<_> = self.only_read().map(String::as_str).collect();
        let modified: Vec<_> = self.modified_files.iter().map(String::as_str).collect();
        for (tag, files) in [("read-files", read), ("modified-files", modified)] {
            if !files.is_empty() {
                text.push_str(&format!("\n\n<{tag}>\n{}\n</{tag}>", files.join("\n")));
            }
        }
        text
    }
}
