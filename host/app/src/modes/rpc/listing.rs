//! The data of `get_messages` and `get_commands`.

use std::path::PathBuf;

use serde::Serialize;
use wharf_agent::Agent;
use wharf_session::ContextMessage;

#[derive(Debug, Serialize)]
pub(super) struct Messages {
    pub(super) messages: Vec<ContextMessage>,
}

impl Messages {
    /// Bytes of them all as JSON, roughly.
    pub(super) fn size(&self) -> usize {
        self.messages.iter().map(|message| message.json_size() + 1).sum()
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Commands {
    commands: Vec<CommandInfo>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CommandInfo {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    argument_hint: Option<String>,
    /// `extension`, `prompt` or `skill`
    source: &'static str,
    /// `user`, `project` or `path`; not present for extensions
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<&'static str>,
    path: PathBuf,
}

/// Commands of extensions, prompt templates and skills, in this order. Skills that
/// are not for people, and all of them where settings switch their commands off,
/// are left out.
pub(super) fn commands(agent: &Agent) -> Commands {
    let resources = agent.resources();
    let extensions = agent.extension_commands().into_iter().map(|command| CommandInfo {
        name: command.name,
        description: (!command.description.is_empty()).then_some(command.description),
        argument_hint: command.argument_hint,
        source: "extension",
        location: None,
        path: command.extension_path,
    });
    let templates = resources.templates.iter().map(|template| CommandInfo {
        name: template.name.clone(),
        description: Some(template.description.clone()),
        argument_hint: template.argument_hint.clone(),
        source: "prompt",
        location: Some(template.location.as_str()),
        path: template.path.clone(),
    });
    let skills = resources
        .skills
        .iter()
        .filter(|skill| skill.user_invocable && resources.settings.enable_skill_commands)
        .map(|skill| CommandInfo {
            name: format!("skill:{}", skill.name),
            description: Some(skill.description.clone()),
            argument_hint: skill.argument_hint.clone(),
            source: "skill",
            location: Some(skill.location.as_str()),
            path: skill.path.clone(),
        });
    Commands { commands: extensions.chain(templates).chain(skills).collect() }
}
