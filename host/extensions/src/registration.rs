//! What an extension offers, as data: taken from a guest once, checked, kept in the
//! cache. Clashes between extensions are `registry`'s.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use wharf_agent::hooks::HookEvent;
use wharf_agent::tool::ToolSpec;

use crate::bindings::types as wit;
use crate::limits::{MAX_NAME_BYTES, MAX_UI_TEXT_BYTES};
use crate::permissions::{self, Malformed};
use crate::schema::object_schema;

const MAX_COMMANDS: usize = 256;
const MAX_TOOLS: usize = 256;
const MAX_SUBSCRIPTIONS: usize = 256;
const MAX_FLAGS: usize = 256;
const MAX_SHORTCUTS: usize = 256;
const MAX_PERMISSIONS: usize = 256;
/// Words of a program that is asked for.
const MAX_EXEC_WORDS: usize = 256;
const MAX_GUIDELINES: usize = 100;
/// Characters of a command's or a tool's name. Fixed by the WIT contract.
const MAX_ITEM_NAME: usize = 64;

/// A registration as it stands in the cache, in the newest version's shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    pub id: String,
    pub version: String,
    pub description: String,
    pub commands: Vec<Command>,
    pub tools: Vec<Tool>,
    /// As the extension wrote them, unknown ones too.
    pub subscriptions: Vec<String>,
    pub flags: Vec<Flag>,
    pub shortcuts: Vec<Shortcut>,
    pub permissions: Vec<Permission>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    pub name: String,
    pub description: String,
    pub argument_hint: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    pub name: String,
    pub label: String,
    pub description: String,
    pub parameters: Value,
    pub prompt_snippet: Option<String>,
    pub prompt_guidelines: Vec<String>,
    pub sequential: bool,
    pub overrides: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flag {
    pub name: String,
    pub description: String,
    pub takes_value: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortcut {
    pub key: String,
    pub description: String,
    pub command: String,
}

/// What an extension asks for beyond the UI and the session; what the patterns mean is
/// `permissions`'.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    FsRead(String),
    FsWrite(String),
    Net(String),
    Exec(Vec<String>),
    Env(String),
}

/// Why a registration is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RegistrationError {
    #[error("its id {0:?} must be 1 to 64 characters of a-z, 0-9 and -")]
    Id(String),
    #[error("{what} {name:?} must be {rule}")]
    Name { what: &'static str, name: String, rule: &'static str },
    #[error("it registers the {what} {name:?} twice")]
    Twice { what: &'static str, name: String },
    #[error("it registers {count} {what}; the limit is {cap}")]
    TooMany { what: &'static str, count: usize, cap: usize },
    #[error("{what} has {bytes} bytes; the limit is {cap}")]
    TooLong { what: String, bytes: usize, cap: usize },
    #[error("{0}")]
    Permission(#[from] Malformed),
    #[error("the parameters of the tool {tool:?} are no JSON Schema of an object: {problem}")]
    Parameters { tool: String, problem: String },
}

impl Registration {
    /// Checks what a guest gave.
    pub(crate) fn from_guest(guest: wit::Registration) -> Result<Self, RegistrationError> {
        check_counts(&guest)?;
        let is_id = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !is_name(&guest.id, is_id) {
            return Err(RegistrationError::Id(crate::limits::cut(&guest.id, 100).to_owned()));
        }
        short("the version", &guest.version)?;
        long("the description", &guest.description)?;
        let commands = guest.commands.into_iter().map(command).collect::<Result<Vec<_>, _>>()?;
        unique("command", commands.iter().map(|command| command.name.as_str()))?;
        let tools = guest.tools.into_iter().map(tool).collect::<Result<Vec<_>, _>>()?;
        unique("tool", tools.iter().map(|tool| tool.name.as_str()))?;
        for name in &guest.subscriptions {
            short("a subscription", name)?;
        }
        Ok(Self {
            id: guest.id,
            version: guest.version,
            description: guest.description,
            commands,
            tools,
            subscriptions: guest.subscriptions,
            flags: guest.flags.into_iter().map(flag).collect::<Result<_, _>>()?,
            shortcuts: guest.shortcuts.into_iter().map(shortcut).collect::<Result<_, _>>()?,
            permissions: guest.permissions.into_iter().map(permission).collect::<Result<_, _>>()?,
        })
    }

    /// The subscriptions that this host knows, and the names of the others.
    pub(crate) fn events(&self) -> (Vec<HookEvent>, Vec<&str>) {
        let mut known = Vec::new();
        let mut unknown = Vec::new();
        for name in &self.subscriptions {
            match HookEvent::ALL.into_iter().find(|event| event.name() == name) {
                Some(event) if known.contains(&event) => {}
                Some(event) => known.push(event),
                None if topic_of(name).is_some() => {}
                None => unknown.push(name.as_str()),
            }
        }
        (known, unknown)
    }

    /// The topics of events between extensions that it subscribes to.
    pub(crate) fn topics(&self) -> Vec<&str> {
        let mut topics: Vec<_> =
            self.subscriptions.iter().filter_map(|name| topic_of(name)).collect();
        topics.sort_unstable();
        topics.dedup();
        topics
    }
}

impl Tool {
    /// Checks what a guest gave.
    pub(crate) fn from_guest(spec: wit::ToolSpec) -> Result<Self, RegistrationError> {
        tool(spec)
    }

    pub(crate) fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.clone(),
            label: self.label.clone(),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
            prompt_snippet: self.prompt_snippet.clone(),
            prompt_guidelines: self.prompt_guidelines.clone(),
            sequential: self.sequential,
        }
    }
}

fn check_counts(guest: &wit::Registration) -> Result<(), RegistrationError> {
    for (what, count, cap) in [
        ("commands", guest.commands.len(), MAX_COMMANDS),
        ("tools", guest.tools.len(), MAX_TOOLS),
        ("subscriptions", guest.subscriptions.len(), MAX_SUBSCRIPTIONS),
        ("flags", guest.flags.len(), MAX_FLAGS),
        ("shortcuts", guest.shortcuts.len(), MAX_SHORTCUTS),
        ("permission requests", guest.permissions.len(), MAX_PERMISSIONS),
    ] {
        if count > cap {
            return Err(RegistrationError::TooMany { what, count, cap });
        }
    }
    Ok(())
}

/// The topic of a subscription `bus:TOPIC`.
fn topic_of(subscription: &str) -> Option<&str> {
    subscription.strip_prefix("bus:").filter(|topic| is_topic(topic))
}

pub(crate) fn is_topic(topic: &str) -> bool {
    is_name(topic, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

fn is_name(name: &str, allowed: impl Fn(char) -> bool) -> bool {
    (1..=MAX_ITEM_NAME).contains(&name.chars().count()) && name.chars().all(allowed)
}

fn bounded(what: &str, text: &str, cap: usize) -> Result<(), RegistrationError> {
    if text.len() > cap {
        return Err(RegistrationError::TooLong { what: what.to_owned(), bytes: text.len(), cap });
    }
    Ok(())
}

fn short(what: &str, text: &str) -> Result<(), RegistrationError> {
    bounded(what, text, MAX_NAME_BYTES)
}

fn long(what: &str, text: &str) -> Result<(), RegistrationError> {
    bounded(what, text, MAX_UI_TEXT_BYTES)
}

fn unique<'a>(
    what: &'static str,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), RegistrationError> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(RegistrationError::Twice { what, name: name.to_owned() });
        }
    }
    Ok(())
}

fn command(spec: wit::CommandSpec) -> Result<Command, RegistrationError> {
    let allowed = |c: char| !c.is_whitespace() && !c.is_control() && c != '/' && c != ':';
    if !is_name(&spec.name, allowed) {
        return Err(RegistrationError::Name {
            what: "the command name",
            name: crate::limits::cut(&spec.name, 100).to_owned(),
            rule: "1 to 64 characters without white space, / and :",
        });
    }
    long("a command's description", &spec.description)?;
    short("a command's argument hint", spec.argument_hint.as_deref().unwrap_or_default())?;
    Ok(Command {
        name: spec.name,
        description: spec.description,
        argument_hint: spec.argument_hint,
    })
}

fn tool(spec: wit::ToolSpec) -> Result<Tool, RegistrationError> {
    if !is_name(&spec.name, |c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        return Err(RegistrationError::Name {
            what: "the tool name",
            name: crate::limits::cut(&spec.name, 100).to_owned(),
            rule: "1 to 64 characters of a-z, A-Z, 0-9, _ and -",
        });
    }
    short("a tool's label", &spec.label)?;
    long("a tool's description", &spec.description)?;
    long("a tool's prompt snippet", spec.prompt_snippet.as_deref().unwrap_or_default())?;
    if spec.prompt_guidelines.len() > MAX_GUIDELINES {
        return Err(RegistrationError::TooMany {
            what: "prompt guidelines for one tool",
            count: spec.prompt_guidelines.len(),
            cap: MAX_GUIDELINES,
        });
    }
    for guideline in &spec.prompt_guidelines {
        long("a prompt guideline", guideline)?;
    }
    long("a tool's parameters", &spec.parameters)?;
    let parameters = object_schema(&spec.parameters)
        .map_err(|problem| RegistrationError::Parameters { tool: spec.name.clone(), problem })?;
    Ok(Tool {
        name: spec.name,
        label: spec.label,
        description: spec.description,
        parameters,
        prompt_snippet: spec.prompt_snippet,
        prompt_guidelines: spec.prompt_guidelines,
        sequential: spec.sequential,
        overrides: spec.overrides,
    })
}

fn flag(spec: wit::FlagSpec) -> Result<Flag, RegistrationError> {
    short("a flag's name", &spec.name)?;
    long("a flag's description", &spec.description)?;
    Ok(Flag { name: spec.name, description: spec.description, takes_value: spec.takes_value })
}

fn shortcut(spec: wit::ShortcutSpec) -> Result<Shortcut, RegistrationError> {
    short("a shortcut's key", &spec.key)?;
    short("a shortcut's command", &spec.command)?;
    long("a shortcut's description", &spec.description)?;
    Ok(Shortcut { key: spec.key, description: spec.description, command: spec.command })
}

fn permission(request: wit::PermissionRequest) -> Result<Permission, RegistrationError> {
    let what = "a permission request";
    let permission = match request {
        wit::PermissionRequest::FsRead(glob) => {
            short(what, &glob)?;
            Permission::FsRead(glob)
        }
        wit::PermissionRequest::FsWrite(glob) => {
            short(what, &glob)?;
            Permission::FsWrite(glob)
        }
        wit::PermissionRequest::Net(host) => {
            short(what, &host)?;
            Permission::Net(host)
        }
        wit::PermissionRequest::Exec(words) => {
            if words.len() > MAX_EXEC_WORDS {
                let what = "words in one permission request";
                let (count, cap) = (words.len(), MAX_EXEC_WORDS);
                return Err(RegistrationError::TooMany { what, count, cap });
            }
            for word in &words {
                short(what, word)?;
            }
            Permission::Exec(words)
        }
        wit::PermissionRequest::Env(name) => {
            short(what, &name)?;
            Permission::Env(name)
        }
    };
    permissions::check(&permission)?;
    Ok(permission)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest() -> wit::Registration {
        wit::Registration {
            id: "gate-1".into(),
            version: "0.1.0".into(),
            description: String::new(),
            commands: Vec::new(),
            tools: Vec::new(),
            subscriptions: Vec::new(),
            flags: Vec::new(),
            shortcuts: Vec::new(),
            permissions: Vec::new(),
        }
    }

    fn with_command(name: &str) -> wit::CommandSpec {
        wit::CommandSpec { name: name.into(), description: String::new(), argument_hint: None }
    }

    fn with_tool(name: &str, parameters: &str) -> wit::ToolSpec {
        wit::ToolSpec {
            name: name.into(),
            label: String::new(),
            description: String::new(),
            parameters: parameters.into(),
            prompt_snippet: None,
            prompt_guidelines: Vec::new(),
            sequential: false,
            overrides: false,
        }
    }

    fn check(change: impl FnOnce(&mut wit::Registration), expected: Option<&str>) {
        let mut registration = guest();
        change(&mut registration);
        let error = Registration::from_guest(registration).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), expected);
    }

    #[test]
    fn names_follow_the_contract() {
        check(|_| {}, None);
        let id_error = |id| format!("its id {id:?} must be 1 to 64 characters of a-z, 0-9 and -");
        for id in ["", "Gate", "a_b", "ä"] {
            check(|r| r.id = id.into(), Some(&id_error(id)));
        }
        for name in ["größe", "a.b", "x-1"] {
            check(|r| r.commands = vec![with_command(name)], None);
        }
        for name in ["", "a b", "a/b", "a:1"] {
            let error = format!(
                "the command name {name:?} must be 1 to 64 characters without white space, / and :"
            );
            check(|r| r.commands = vec![with_command(name)], Some(&error));
        }
        check(
            |r| r.commands = vec![with_command("a"), with_command("a")],
            Some("it registers the command \"a\" twice"),
        );
        check(
            |r| r.tools = vec![with_tool("a.b", "{}")],
            Some("the tool name \"a.b\" must be 1 to 64 characters of a-z, A-Z, 0-9, _ and -"),
        );
        check(
            |r| r.commands = (0..257).map(|n| with_command(&n.to_string())).collect(),
            Some("it registers 257 commands; the limit is 256"),
        );
    }

    #[test]
    fn tool_parameters_are_a_schema_of_an_object() {
        let prefix = "the parameters of the tool \"t\" are no JSON Schema of an object: ";
        let deep = |levels: usize| {
            let (open, close) = ("[".repeat(levels - 1), "]".repeat(levels - 1));
            format!(r#"{{"type":"object","default":{open}{close}}}"#)
        };
        for parameters in [r#"{"type":"object"}"#, &deep(64)] {
            check(|r| r.tools = vec![with_tool("t", parameters)], None);
        }
        for (parameters, problem) in [
            ("{", "is no JSON: EOF while parsing an object at line 1 column 1"),
            ("[]", "its root must have \"type\": \"object\""),
            (r#"{"type":"string"}"#, "its root must have \"type\": \"object\""),
            (&deep(65), "they are more than 64 levels deep"),
        ] {
            check(
                |r| r.tools = vec![with_tool("t", parameters)],
                Some(&format!("{prefix}{problem}")),
            );
        }
        for unusable in [
            r#"{"type":"object","properties":5}"#,
            r##"{"type":"object","$ref":"#/$defs/none"}"##,
            r#"{"type":"object","$ref":"https://example.org/schema.json"}"#,
        ] {
            let mut registration = guest();
            registration.tools = vec![with_tool("t", unusable)];
            assert!(Registration::from_guest(registration).is_err(), "{unusable}");
        }
    }

    #[test]
    fn unknown_subscriptions_are_told_apart() {
        let mut registration = guest();
        registration.subscriptions =
            ["tool_call", "contexts", "bus:a.B-1_", "bus:", "bus:a b", "tool_call", "agent_end"]
                .map(String::from)
                .into();
        let Ok(registration) = Registration::from_guest(registration) else {
            panic!("not accepted");
        };
        let (known, unknown) = registration.events();
        assert_eq!(known, [HookEvent::ToolCall, HookEvent::AgentEnd]);
        assert_eq!(unknown, ["contexts", "bus:", "bus:a b"]);
        assert_eq!(registration.topics(), ["a.B-1_"]);
    }

    #[test]
    fn the_cached_form_reads_back() {
        let mut guest = guest();
        guest.tools = vec![with_tool("t", r#"{"type":"object","b":1,"a":2}"#)];
        guest.permissions = vec![
            wit::PermissionRequest::FsRead("*.md".into()),
            wit::PermissionRequest::Exec(vec!["git".into(), "status".into()]),
        ];
        let Ok(registration) = Registration::from_guest(guest) else { panic!("not accepted") };
        let text = serde_json::to_string(&registration).unwrap_or_default();
        assert_eq!(serde_json::from_str::<Registration>(&text).ok(), Some(registration));
    }
}
