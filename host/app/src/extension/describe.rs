//! An extension as lists and `get_extensions` show it: what it offers, where it comes
//! from, and what was decided about what it asks for.

use std::path::PathBuf;

use serde::Serialize;
use wharf_extensions::{
    ExtensionInfo, ExtensionState, GrantError, GrantStore, Permission, Registration, Subject,
};

use crate::loading::{Loading, Scope};

/// What an extension offers, in the words of the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Offer {
    pub(crate) commands: Vec<Command>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) subscriptions: Vec<String>,
    pub(crate) flags: Vec<Flag>,
    pub(crate) shortcuts: Vec<Shortcut>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Command {
    pub(crate) name: String,
    pub(crate) description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) argument_hint: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) description: String,
    pub(crate) overrides: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Flag {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) takes_value: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Shortcut {
    pub(crate) key: String,
    pub(crate) description: String,
    pub(crate) command: String,
}

/// What an extension asks for, as `wharf extension grant` takes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Decisions {
    pub(crate) granted: Vec<String>,
    pub(crate) denied: Vec<String>,
    /// The person will be asked.
    pub(crate) undecided: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Described {
    /// None until it has registered; so are the version and the description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// The folder's name, or the file's; settings and limits go by it.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) scope: Scope,
    /// `loading`, `registered`, `failed`, `disabled` or `shadowed` (by one of the same id).
    pub(crate) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(flatten)]
    pub(crate) offer: Offer,
    pub(crate) permissions: Decisions,
}

/// All extensions, in load order.
#[derive(Debug)]
pub(crate) struct All {
    pub(crate) extensions: Vec<Described>,
    /// Why nothing is known of grants.
    pub(crate) grants_error: Option<GrantError>,
}

impl From<&Registration> for Offer {
    fn from(registration: &Registration) -> Self {
        let commands = registration.commands.iter().map(|command| Command {
            name: command.name.clone(),
            description: command.description.clone(),
            argument_hint: command.argument_hint.clone(),
        });
        let tools = registration.tools.iter().map(|tool| Tool {
            name: tool.name.clone(),
            label: tool.label.clone(),
            description: tool.description.clone(),
            overrides: tool.overrides,
        });
        let flags = registration.flags.iter().map(|flag| Flag {
            name: flag.name.clone(),
            description: flag.description.clone(),
            takes_value: flag.takes_value,
        });
        let shortcuts = registration.shortcuts.iter().map(|shortcut| Shortcut {
            key: shortcut.key.clone(),
            description: shortcut.description.clone(),
            command: shortcut.command.clone(),
        });
        Self {
            commands: commands.collect(),
            tools: tools.collect(),
            subscriptions: registration.subscriptions.clone(),
            flags: flags.collect(),
            shortcuts: shortcuts.collect(),
        }
    }
}

impl Decisions {
    /// What was decided about what is asked. A refusal goes over a grant.
    pub(crate) fn of(grants: Option<&GrantStore>, subject: &Subject, asked: &[Permission]) -> Self {
        let grant = grants.and_then(|grants| grants.find(subject));
        let mut decisions = Self::default();
        for permission in asked {
            let list = match grant {
                Some(grant) if grant.denied.contains(permission) => &mut decisions.denied,
                Some(grant) if grant.granted.contains(permission) => &mut decisions.granted,
                _ => &mut decisions.undecided,
            };
            list.push(permission.to_string());
        }
        decisions
    }
}

/// Where an agent directory keeps grants.
pub(crate) fn grants_file(loading: &Loading) -> PathBuf {
    loading.place().agent_dir.path().join("grants.json")
}

/// Reads the grants.
pub(crate) fn all(infos: &[ExtensionInfo], loading: &Loading) -> All {
    // Told where they are loaded.
    let settings = loading.settings(&mut Vec::new());
    let sources = loading.sources(&settings);
    let (grants, grants_error) = match GrantStore::load(grants_file(loading)) {
        Ok(grants) => (Some(grants), None),
        Err(error) => (None, Some(error)),
    };
    let extensions = infos.iter().map(|info| {
        let registration = info.registration.as_deref();
        Described {
            id: registration.map(|registration| registration.id.clone()),
            version: registration.map(|registration| registration.version.clone()),
            description: registration.map(|registration| registration.description.clone()),
            name: info.name.clone(),
            path: info.path.clone(),
            scope: loading.scope(&sources, &info.path),
            state: state(&info.state),
            error: match &info.state {
                ExtensionState::Failed { error } => Some(error.clone()),
                _ => None,
            },
            offer: registration.map(Offer::from).unwrap_or_default(),
            permissions: registration
                .map(|registration| {
                    let subject = Subject {
                        id: registration.id.clone(),
                        path: info.path.clone(),
                        content_hash: info.content_hash.clone().unwrap_or_default(),
                    };
                    Decisions::of(grants.as_ref(), &subject, &registration.permissions)
                })
                .unwrap_or_default(),
        }
    });
    All { extensions: extensions.collect(), grants_error }
}

const fn state(state: &ExtensionState) -> &'static str {
    match state {
        ExtensionState::Loading => "loading",
        ExtensionState::Registered => "registered",
        ExtensionState::Failed { .. } => "failed",
        ExtensionState::Disabled => "disabled",
        ExtensionState::Shadowed => "shadowed",
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_permission_is_granted_denied_or_undecided() {
        let temp = tempfile::tempdir().unwrap();
        let mut grants = GrantStore::load(temp.path().join("grants.json")).unwrap();
        let subject = Subject {
            id: "x".to_owned(),
            path: "/x.wasm".into(),
            content_hash: format!("sha256:{}", "0".repeat(64)),
        };
        let [net, env, read] = [
            Permission::Net("example.org".to_owned()),
            Permission::Env("HOME".to_owned()),
            Permission::FsRead("docs/**".to_owned()),
        ];
        grants.decide(subject.clone(), vec![net.clone()], vec![env.clone()]).unwrap();
        let asked = [read, env, net];
        let strings = |text: &str| vec![text.to_owned()];
        assert_eq!(
            Decisions::of(Some(&grants), &subject, &asked),
            Decisions {
                granted: strings("net:example.org"),
                denied: strings("env:HOME"),
                undecided: strings("fs-read:docs/**"),
            }
        );
        assert_eq!(Decisions::of(None, &subject, &asked).undecided.len(), 3);
    }
}
