//! The arguments of Wharf's built-in tools for files and commands, as types. They are
//! read by hand: seven derived readers would take 20 kB of a guest that looks at one.

use serde::Serialize;

use crate::error::invalid_arguments;
use crate::fields::{Fields, FromRaw};
use crate::{Json, Result};

/// A call of a built-in tool. Each can be changed, and given back with
/// [`ToolCallDecision::replace`](crate::ToolCallDecision::replace).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BuiltinCall {
    /// `read`
    Read(ReadCall),
    /// `write`
    Write(WriteCall),
    /// `edit`
    Edit(EditCall),
    /// `bash`
    Bash(BashCall),
    /// `grep`
    Grep(GrepCall),
    /// `find`
    Find(FindCall),
    /// `ls`
    Ls(LsCall),
}

impl BuiltinCall {
    pub(crate) fn parse(tool_name: &str, input: &Json) -> Result<Option<Self>> {
        let read: fn(Fields<'_>) -> Result<Self> = match tool_name {
            "read" => |fields| {
                Ok(Self::Read(ReadCall {
                    path: fields.required("path")?,
                    offset: fields.optional("offset")?,
                    limit: fields.optional("limit")?,
                }))
            },
            "write" => |fields| {
                Ok(Self::Write(WriteCall {
                    path: fields.required("path")?,
                    content: fields.required("content")?,
                }))
            },
            "edit" => |fields| {
                Ok(Self::Edit(EditCall {
                    path: fields.required("path")?,
                    old_text: fields.optional("oldText")?,
                    new_text: fields.optional("newText")?,
                    edits: fields.optional("edits")?,
                }))
            },
            "bash" => |fields| {
                Ok(Self::Bash(BashCall {
                    command: fields.required("command")?,
                    timeout: fields.optional("timeout")?,
                }))
            },
            "grep" => |fields| {
                Ok(Self::Grep(GrepCall {
                    pattern: fields.required("pattern")?,
                    path: fields.optional("path")?,
                    glob: fields.optional("glob")?,
                    ignore_case: fields.optional("ignoreCase")?,
                    literal: fields.optional("literal")?,
                    context: fields.optional("context")?,
                    limit: fields.optional("limit")?,
                }))
            },
            "find" => |fields| {
                Ok(Self::Find(FindCall {
                    pattern: fields.required("pattern")?,
                    path: fields.optional("path")?,
                    limit: fields.optional("limit")?,
                }))
            },
            "ls" => |fields| {
                Ok(Self::Ls(LsCall {
                    path: fields.optional("path")?,
                    limit: fields.optional("limit")?,
                }))
            },
            _ => return Ok(None),
        };
        let call = Fields::new(input.as_str()).and_then(read);
        call.map(Some).map_err(|error| invalid_arguments(tool_name, &error))
    }

    /// The path argument as the model wrote it. None for `bash`, and where the
    /// model left it out. The paths to judge are those of the event.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Read(call) => Some(&call.path),
            Self::Write(call) => Some(&call.path),
            Self::Edit(call) => Some(&call.path),
            Self::Bash(_) => None,
            Self::Grep(call) => call.path.as_deref(),
            Self::Find(call) => call.path.as_deref(),
            Self::Ls(call) => call.path.as_deref(),
        }
    }
}

/// `read`: the lines of a file, or a picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReadCall {
    /// The file.
    pub path: String,
    /// The first line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// How many lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// `write`: a whole file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WriteCall {
    /// The file.
    pub path: String,
    /// Its content.
    pub content: String,
}

/// `edit`: text for other text in a file; one replacement, or a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EditCall {
    /// The file.
    pub path: String,
    /// The text that goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_text: Option<String>,
    /// The text that comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_text: Option<String>,
    /// Several replacements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edits: Option<Vec<TextReplacement>>,
}

impl EditCall {
    /// All replacements, in whichever form the model gave them.
    #[must_use]
    pub fn replacements(&self) -> Vec<TextReplacement> {
        let mut all = self.edits.clone().unwrap_or_default();
        if let (Some(old_text), Some(new_text)) = (&self.old_text, &self.new_text) {
            all.push(TextReplacement { old_text: old_text.clone(), new_text: new_text.clone() });
        }
        all
    }
}

/// One replacement of an `edit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TextReplacement {
    /// The text that goes.
    pub old_text: String,
    /// The text that comes.
    pub new_text: String,
}

/// `bash`: a shell command.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BashCall {
    /// The command.
    pub command: String,
    /// Seconds until it is ended; none: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
}

/// `grep`: a search in files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GrepCall {
    /// What is searched for.
    pub pattern: String,
    /// The file or directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Which files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// Upper and lower case are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_case: Option<bool>,
    /// The pattern is plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub literal: Option<bool>,
    /// Lines around each match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// How many matches at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// `find`: files by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FindCall {
    /// A glob pattern.
    pub pattern: String,
    /// The directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How many results at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// `ls`: a directory's entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LsCall {
    /// The directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How many entries at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl FromRaw<'_> for TextReplacement {
    fn from_raw(text: &str) -> Option<Self> {
        let fields = Fields::new(text).ok()?;
        Some(Self {
            old_text: fields.required("oldText").ok()?,
            new_text: fields.required("newText").ok()?,
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(tool: &str, input: serde_json::Value) -> Result<Option<BuiltinCall>> {
        BuiltinCall::parse(tool, &input.into())
    }

    #[test]
    fn each_builtin_has_its_type() {
        let calls = [
            ("read", json!({"path": "a", "offset": 3.0}), Some("a")),
            ("write", json!({"path": "a", "content": ""}), Some("a")),
            ("edit", json!({"path": "a", "oldText": "x", "newText": "y"}), Some("a")),
            ("bash", json!({"command": "ls", "timeout": 1.5}), None),
            ("grep", json!({"pattern": "x", "path": "a", "ignoreCase": true}), Some("a")),
            ("find", json!({"pattern": "*.rs", "path": "a"}), Some("a")),
            ("ls", json!({}), None),
        ];
        for (tool, input, path) in calls {
            let call = parse(tool, input).unwrap().unwrap();
            assert_eq!(call.path(), path, "{tool}");
        }
        assert_eq!(parse("greet", json!({})).unwrap(), None);
    }

    #[test]
    fn a_builtin_of_another_shape_is_an_error_and_not_an_other_tool() {
        for (tool, input) in [
            ("bash", json!({"script": "rm -rf /"})),
            ("read", json!({"path": "a", "limit": 1.5})),
            ("read", json!({"path": "a", "limit": -1})),
            ("edit", json!({"path": "a", "edits": [{"oldText": "x"}]})),
            ("ls", json!([])),
        ] {
            parse(tool, input).unwrap_err();
        }
    }

    #[test]
    fn an_edit_has_one_form() {
        let one = json!({"path": "a", "oldText": "x", "newText": "y"});
        let list = json!({"path": "a", "edits": [{"oldText": "x", "newText": "y"}]});
        for input in [one, list] {
            let Some(BuiltinCall::Edit(call)) = parse("edit", input.clone()).unwrap() else {
                panic!("{input}")
            };
            let expected = TextReplacement { old_text: "x".into(), new_text: "y".into() };
            assert_eq!(call.replacements(), [expected]);
            assert_eq!(serde_json::to_value(&call).unwrap(), input);
        }
    }
}
