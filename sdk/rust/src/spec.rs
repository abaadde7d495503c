//! Descriptions of what an extension offers: commands, tools, flags, shortcuts,
//! and the permissions that it asks for. Only data; handlers are in `registration`.

use crate::bindings::wharf::extension::types as wit;
use crate::{Json, Parameters};

/// A command that a person or a program calls as `/name arguments`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec(pub(crate) wit::CommandSpec);

impl CommandSpec {
    /// A command. The name has 1 to 64 characters without white space, `/` and `:`.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self(wit::CommandSpec {
            name: name.into(),
            description: description.into(),
            argument_hint: None,
        })
    }

    /// Shown after the name, for example `[file]`.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.argument_hint = Some(hint.into());
        self
    }
}

/// A tool that the model may call. The schema of its parameters comes from its
/// handler's argument type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec(pub(crate) wit::ToolSpec);

impl ToolSpec {
    /// A tool. The name has 1 to 64 characters of `a-z A-Z 0-9 _ -`; the
    /// description is what the model reads.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        let name = name.into();
        Self(wit::ToolSpec {
            label: name.clone(),
            name,
            description: description.into(),
            parameters: String::new(),
            prompt_snippet: None,
            prompt_guidelines: Vec::new(),
            sequential: false,
            overrides: false,
        })
    }

    /// A short name for people; without it, the name.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.0.label = label.into();
        self
    }

    /// A JSON Schema in place of the one derived from the handler's argument
    /// type; its root describes an object.
    #[must_use]
    pub fn parameters(mut self, schema: impl Into<Json>) -> Self {
        self.0.parameters = schema.into().into_string();
        self
    }

    /// One line for the list of tools in the system prompt.
    #[must_use]
    pub fn prompt_snippet(mut self, line: impl Into<String>) -> Self {
        self.0.prompt_snippet = Some(line.into());
        self
    }

    /// Adds a guideline to the system prompt, one bullet.
    #[must_use]
    pub fn prompt_guideline(mut self, line: impl Into<String>) -> Self {
        self.0.prompt_guidelines.push(line.into());
        self
    }

    /// Never runs at the same time as another tool call.
    #[must_use]
    pub const fn sequential(mut self) -> Self {
        self.0.sequential = true;
        self
    }

    /// Replaces the built-in tool of the same name.
    #[must_use]
    pub const fn overrides_builtin(mut self) -> Self {
        self.0.overrides = true;
        self
    }

    /// Takes the schema of `P`, unless one was given.
    /// [`Registration::tool_with`](crate::Registration::tool_with) and
    /// [`Agent::register_tool`](crate::Agent::register_tool) do so by themselves.
    #[must_use]
    pub fn with_schema_of<P: Parameters>(mut self) -> Self {
        if self.0.parameters.is_empty() {
            self.0.parameters = P::schema().into_string();
        }
        self
    }
}

/// A command-line flag, `--name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagSpec(pub(crate) wit::FlagSpec);

impl FlagSpec {
    /// A flag that is present or absent.
    pub fn switch(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self::new(name.into(), description.into(), false)
    }

    /// A flag that takes a value.
    pub fn value(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self::new(name.into(), description.into(), true)
    }

    const fn new(name: String, description: String, takes_value: bool) -> Self {
        Self(wit::FlagSpec { name, description, takes_value })
    }
}

/// A key binding that a front end may offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortcutSpec(pub(crate) wit::ShortcutSpec);

impl ShortcutSpec {
    /// A key, for example `ctrl+t`, and the command that it runs, without the slash.
    pub fn new(
        key: impl Into<String>,
        description: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        Self(wit::ShortcutSpec {
            key: key.into(),
            description: description.into(),
            command: command.into(),
        })
    }
}

/// What an extension asks for beyond the UI and the session.
///
/// ```
/// use wharf_sdk::Permission;
///
/// let permissions = [
///     Permission::fs_read("docs/**"),
///     Permission::net("*.example.org"),
///     // `git status` with any arguments, or none.
///     Permission::exec(["git", "status", "**"]),
///     Permission::env("EXAMPLE_KEY"),
/// ];
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Permission {
    /// Reading files; see [`fs_read`](Self::fs_read).
    FsRead(String),
    /// Writing files; see [`fs_write`](Self::fs_write).
    FsWrite(String),
    /// Outgoing HTTP; see [`net`](Self::net).
    Net(String),
    /// Running a program; see [`exec`](Self::exec).
    Exec(Vec<String>),
    /// An environment variable; see [`env`](Self::env).
    Env(String),
}

impl Permission {
    /// Reading files: a glob pattern, relative to the project (`docs/**`), to the
    /// person's home (`~/notes/*.md`) or to the agent directory (`@agent/skills/**`).
    /// `*` and `?` do not cross a `/`, `**` does.
    pub fn fs_read(pattern: impl Into<String>) -> Self {
        Self::FsRead(pattern.into())
    }

    /// Making, changing and removing files: a glob pattern, as for reading, which it
    /// does not include.
    pub fn fs_write(pattern: impl Into<String>) -> Self {
        Self::FsWrite(pattern.into())
    }

    /// Requests to hosts: `example.org` (that name only), `*.example.org` (any name
    /// below it), `*` (any host) or an address (`127.0.0.1`, `[::1]`), then optionally
    /// `:port` or `:*`. Without a port: 443 for `https` and 80 for `http`.
    pub fn net(host: impl Into<String>) -> Self {
        Self::Net(host.into())
    }

    /// Running a program: its name or absolute path, and one pattern for each argument,
    /// in order. A last pattern `**` stands for any further arguments, or none; `*` and
    /// `?` in a pattern match any characters.
    pub fn exec<T: Into<String>>(program: impl IntoIterator<Item = T>) -> Self {
        Self::Exec(program.into_iter().map(Into::into).collect())
    }

    /// Reading an environment variable, which programs that the extension runs inherit.
    pub fn env(name: impl Into<String>) -> Self {
        Self::Env(name.into())
    }

    pub(crate) fn into_wit(self) -> wit::PermissionRequest {
        match self {
            Self::FsRead(pattern) => wit::PermissionRequest::FsRead(pattern),
            Self::FsWrite(pattern) => wit::PermissionRequest::FsWrite(pattern),
            Self::Net(host) => wit::PermissionRequest::Net(host),
            Self::Exec(program) => wit::PermissionRequest::Exec(program),
            Self::Env(name) => wit::PermissionRequest::Env(name),
        }
    }
}

/// One offer for a command's argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    value: String,
    description: Option<String>,
}

impl Completion {
    /// A value.
    pub fn new(value: impl Into<String>) -> Self {
        Self { value: value.into(), description: None }
    }

    /// Says what the value is.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

impl From<Completion> for wit::Completion {
    fn from(completion: Completion) -> Self {
        Self { value: completion.value, description: completion.description }
    }
}
