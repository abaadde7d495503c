//! The built-in tools: read, write, edit, bash, grep, find and ls.
//!
//! What isn't here: which tools are active, hooks around calls, and settings files.
//! The file tools act on exactly the path that [`Tool::paths`] names, so that what a
//! guard judged is what gets touched.

mod ansi;
mod args;
mod bash;
mod capture;
mod edit;
mod find;
mod grep;
mod listing;
mod ls;
mod paths;
mod process;
mod read;
mod replace;
mod save;
mod shell;
#[cfg(test)]
mod testing;
mod truncate;
mod walk;
mod work;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

pub use capture::Captured;
pub use paths::{LinkLoop, canonical_path, resolve_path};
pub use read::image_type;
pub use shell::{Shell, ShellEnd, ShellError, ShellOutcome, ShellRequest};
pub use truncate::{CutBy, Kept, Limits, MAX_BYTES, MAX_LINES, Truncation, head, tail};

use crate::tool::Tool;

/// What the built-in tools take from settings and environment.
#[derive(Debug, Clone)]
pub struct ToolOptions {
    /// The shell of `bash`; `None` looks for bash, then sh.
    pub shell_path: Option<PathBuf>,
    /// Runs before each command of `bash`, in the same shell.
    pub shell_command_prefix: Option<String>,
    /// What `~` stands for; `None` leaves `~` as it is.
    pub home: Option<PathBuf>,
}

impl Default for ToolOptions {
    fn default() -> Self {
        Self { shell_path: None, shell_command_prefix: None, home: std::env::home_dir() }
    }
}

/// The seven tools, in the order in which the system prompt lists them.
pub fn builtin_tools(options: ToolOptions) -> Vec<Arc<dyn Tool>> {
    let paths = paths::Paths::new(options.home);
    let shell = Shell::new(options.shell_path, options.shell_command_prefix);
    vec![
        Arc::new(read::Read::new(paths.clone())),
        Arc::new(bash::Bash::new(shell)),
        Arc::new(edit::Edit::new(paths.clone())),
        Arc::new(write::Write::new(paths.clone())),
        Arc::new(grep::Grep::new(paths.clone())),
        Arc::new(find::Find::new(paths.clone())),
        Arc::new(ls::Ls::new(paths)),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_schema_is_strict() {
        let tools =
            builtin_tools(ToolOptions { shell_path: None, shell_command_prefix: None, home: None });
        let names: Vec<&str> = tools.iter().map(|tool| tool.spec().name.as_str()).collect();
        assert_eq!(names, ["read", "bash", "edit", "write", "grep", "find", "ls"]);
        for tool in &tools {
            let spec = tool.spec();
            let schema = &spec.parameters;
            assert_eq!(schema["type"], "object", "{}", spec.name);
            assert_eq!(schema["additionalProperties"], Value::Bool(false), "{}", spec.name);
            assert!(schema["required"].is_array(), "{}", spec.name);
            // Some APIs refuse these at the root of a tool's schema.
            for keyword in ["oneOf", "anyOf", "allOf"] {
                assert!(schema.get(keyword).is_none(), "{}", spec.name);
            }
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                assert!(property["description"].is_string(), "{} {name}", spec.name);
            }
            assert!(jsonschema::validator_for(schema).is_ok(), "{}", spec.name);
        }
    }
}
