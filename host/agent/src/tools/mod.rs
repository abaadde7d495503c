//! The built-in tools: read, bash, edit, write, grep, find and ls for files and commands;
//! ask_user, skill, tasks_update and suggest_next for the conversation.
//!
//! What isn't here: which tools are active, hooks around calls, and settings files.
//! The file tools act on exactly the path that [`Tool::paths`] names, so that what a
//! guard judged is what gets touched.

mod ansi;
mod args;
mod ask_user;
mod bash;
mod capture;
mod edit;
mod find;
mod grep;
mod listing;
mod ls;
mod paths;
pub(crate) mod process;
mod read;
mod replace;
mod save;
mod shell;
mod skill;
mod suggest_next;
mod tasks_update;
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
pub use shell::{Shell, ShellEnd, ShellError, ShellOutcome, ShellRequest};
pub use truncate::{CutBy, Kept, Limits, MAX_BYTES, MAX_LINES, Truncation, head, tail};

pub use crate::images::image_type;
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
    /// Whether there are skills that the model may use; without any, `skill` is not
    /// offered.
    pub has_skills: bool,
    /// Whether `read` scales large images down; else it refuses them.
    pub auto_resize_images: bool,
}

impl Default for ToolOptions {
    fn default() -> Self {
        Self {
            shell_path: None,
            shell_command_prefix: None,
            home: std::env::home_dir(),
            has_skills: false,
            auto_resize_images: true,
        }
    }
}

/// The tools, in the order in which the system prompt lists them.
pub fn builtin_tools(options: ToolOptions) -> Vec<Arc<dyn Tool>> {
    let paths = paths::Paths::new(options.home);
    let shell = Shell::new(options.shell_path, options.shell_command_prefix);
    let mut tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(read::Read::new(paths.clone(), options.auto_resize_images)),
        Arc::new(bash::Bash::new(shell)),
        Arc::new(edit::Edit::new(paths.clone())),
        Arc::new(write::Write::new(paths.clone())),
        Arc::new(grep::Grep::new(paths.clone())),
        Arc::new(find::Find::new(paths.clone())),
        Arc::new(ls::Ls::new(paths)),
        Arc::new(ask_user::AskUser::new()),
    ];
    if options.has_skills {
        tools.push(Arc::new(skill::Skill::new()));
    }
    tools.push(Arc::new(tasks_update::TasksUpdate::new()));
    tools.push(Arc::new(suggest_next::SuggestNext::new()));
    tools
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn tools(has_skills: bool) -> Vec<Arc<dyn Tool>> {
        builtin_tools(ToolOptions { home: None, has_skills, ..ToolOptions::default() })
    }

    #[test]
    fn skill_is_offered_only_where_there_are_skills() {
        let names = |tools: Vec<Arc<dyn Tool>>| {
            tools.iter().map(|tool| tool.spec().name.clone()).collect::<Vec<_>>()
        };
        let mut expected = vec![
            "read",
            "bash",
            "edit",
            "write",
            "grep",
            "find",
            "ls",
            "ask_user",
            "skill",
            "tasks_update",
            "suggest_next",
        ];
        assert_eq!(names(tools(true)), expected);
        expected.retain(|name| *name != "skill");
        assert_eq!(names(tools(false)), expected);
    }

    /// An object's keywords are all there, at every depth.
    fn check_object(tool: &str, schema: &Value) {
        assert_eq!(schema["type"], "object", "{tool}");
        assert_eq!(schema["additionalProperties"], Value::Bool(false), "{tool}");
        assert!(schema["required"].is_array(), "{tool}");
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            assert!(property["description"].is_string(), "{tool} {name}");
            if property["items"]["type"] == "object" {
                check_object(tool, &property["items"]);
            }
        }
    }

    #[test]
    fn every_schema_is_strict() {
        for tool in tools(true) {
            let spec = tool.spec();
            let schema = &spec.parameters;
            check_object(&spec.name, schema);
            // Some APIs refuse these at the root of a tool's schema.
            for keyword in ["oneOf", "anyOf", "allOf"] {
                assert!(schema.get(keyword).is_none(), "{}", spec.name);
            }
            assert!(jsonschema::validator_for(schema).is_ok(), "{}", spec.name);
        }
    }
}
