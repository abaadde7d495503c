//! Descriptions of what an extension offers: commands, tools, flags, shortcuts,
//! and the permissions that it asks for. Only data; handlers are in `registration`.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

use crate::Json;
use crate::bindings::wharf::extension::types as wit;

/// A command that a person or a program calls as `/name arguments`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    pub(crate) name: String,
    description: String,
    argument_hint: Option<String>,
}

impl CommandSpec {
    /// A command. The name has 1 to 64 characters without white space, `/` and `:`.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), description: description.into(), argument_hint: None }
    }

    /// Shown after the name, for example `[file]`.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.argument_hint = Some(hint.into());
        self
    }

    pub(crate) fn into_wit(self) -> wit::CommandSpec {
        wit::CommandSpec {
            name: self.name,
            description: self.description,
            argument_hint: self.argument_hint,
        }
    }
}

/// A tool that the model may call. The schema of its parameters comes from its
/// handler's argument type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    pub(crate) name: String,
    label: Option<String>,
    description: String,
    parameters: Option<Json>,
    prompt_snippet: Option<String>,
    prompt_guidelines: Vec<String>,
    sequential: bool,
    overrides: bool,
}

impl ToolSpec {
    /// A tool. The name has 1 to 64 characters of `a-z A-Z 0-9 _ -`; the
    /// description is what the model reads.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            label: None,
            description: description.into(),
            parameters: None,
            prompt_snippet: None,
            prompt_guidelines: Vec::new(),
            sequential: false,
            overrides: false,
        }
    }

    /// A short name for people; without it, the name.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// A JSON Schema in place of the one derived from the handler's argument
    /// type; its root describes an object.
    #[must_use]
    pub fn parameters(mut self, schema: impl Into<Json>) -> Self {
        self.parameters = Some(schema.into());
        self
    }

    /// One line for the list of tools in the system prompt.
    #[must_use]
    pub fn prompt_snippet(mut self, line: impl Into<String>) -> Self {
        self.prompt_snippet = Some(line.into());
        self
    }

    /// Adds a guideline to the system prompt, one bullet.
    #[must_use]
    pub fn prompt_guideline(mut self, line: impl Into<String>) -> Self {
        self.prompt_guidelines.push(line.into());
        self
    }

    /// Never runs at the same time as another tool call.
    #[must_use]
    pub const fn sequential(mut self) -> Self {
        self.sequential = true;
        self
    }

    /// Replaces the built-in tool of the same name.
    #[must_use]
    pub const fn overrides_builtin(mut self) -> Self {
        self.overrides = true;
        self
    }

    /// Takes the schema of `P`, unless one was given.
    pub(crate) fn with_schema_of<P: JsonSchema>(mut self) -> Self {
        self.parameters.get_or_insert_with(schema_of::<P>);
        self
    }

    pub(crate) fn into_wit(self) -> wit::ToolSpec {
        wit::ToolSpec {
            label: self.label.unwrap_or_else(|| self.name.clone()),
            name: self.name,
            description: self.description,
            parameters: self
                .parameters
                .map_or_else(|| r#"{"type":"object"}"#.to_owned(), Json::into_string),
            prompt_snippet: self.prompt_snippet,
            prompt_guidelines: self.prompt_guidelines,
            sequential: self.sequential,
            overrides: self.overrides,
        }
    }
}

/// The schema that the model reads: types in place, since not every model follows
/// references, and neither `$schema` nor the Rust type's name. Made without
/// schemars' root schema, whose work on references would take 10 kB of each guest.
fn schema_of<P: JsonSchema>() -> Json {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut generator = settings.into_generator();
    let mut schema = P::json_schema(&mut generator);
    // Only a type that contains itself is still referred to.
    let definitions = generator.take_definitions(true);
    if !definitions.is_empty() {
        schema.insert("$defs".to_owned(), definitions.into());
    }
    schema.to_value().into()
}

/// A command-line flag, `--name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagSpec {
    name: String,
    description: String,
    takes_value: bool,
}

impl FlagSpec {
    /// A flag that is present or absent.
    pub fn switch(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), description: description.into(), takes_value: false }
    }

    /// A flag that takes a value.
    pub fn value(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), description: description.into(), takes_value: true }
    }

    pub(crate) fn into_wit(self) -> wit::FlagSpec {
        wit::FlagSpec {
            name: self.name,
            description: self.description,
            takes_value: self.takes_value,
        }
    }
}

/// A key binding that a front end may offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortcutSpec {
    key: String,
    description: String,
    command: String,
}

impl ShortcutSpec {
    /// A key, for example `ctrl+t`, and the command that it runs, without the slash.
    pub fn new(
        key: impl Into<String>,
        description: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        Self { key: key.into(), description: description.into(), command: command.into() }
    }

    pub(crate) fn into_wit(self) -> wit::ShortcutSpec {
        wit::ShortcutSpec { key: self.key, description: self.description, command: self.command }
    }
}

/// What an extension asks for beyond the UI and the session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Permission {
    /// Reading files: a glob pattern, relative to the project, `~` or the agent dir.
    FsRead(String),
    /// Writing files: a glob pattern, as for reading.
    FsWrite(String),
    /// Outgoing HTTP: a host pattern, for example `*.example.org`.
    Net(String),
    /// Running a program: its name, and patterns for its arguments.
    Exec(Vec<String>),
    /// An environment variable, by name.
    Env(String),
}

impl Permission {
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
