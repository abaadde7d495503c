//! All that the loaded extensions offer together, in load order, with clashes
//! settled. Built anew whenever another extension has registered.

use std::collections::HashMap;
use std::sync::Arc;

use wharf_agent::hooks::{ExtensionCommand, HookEvent};

use crate::extension::{Extension, Status};
use crate::registration::Registration;
use crate::tool::ExtensionTool;

/// Something that two extensions, or an extension and the host, disagree about.
#[derive(Debug)]
pub(crate) struct Clash {
    pub(crate) extension: Arc<Extension>,
    pub(crate) problem: String,
}

#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) public: ExtensionCommand,
    /// As the extension knows it.
    pub(crate) own_name: String,
    pub(crate) extension: Arc<Extension>,
}

#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) commands: Vec<Command>,
    by_name: HashMap<String, usize>,
    pub(crate) tools: Vec<Arc<ExtensionTool>>,
    subscribers: HashMap<HookEvent, Vec<Arc<Extension>>>,
    pub(crate) clashes: Vec<Clash>,
}

impl Registry {
    /// `extensions` in load order; those that have not registered are passed over.
    pub(crate) fn build(extensions: &[Arc<Extension>], built_in_tools: &[String]) -> Self {
        let mut registry = Self::default();
        let mut ids: HashMap<&str, &Arc<Extension>> = HashMap::new();
        let mut active = Vec::new();
        for extension in extensions {
            let Some(Status::Registered(registration)) = extension.status() else { continue };
            if let Some(first) = ids.get(registration.id.as_str()) {
                registry.clashes.push(Clash {
                    extension: Arc::clone(extension),
                    problem: format!(
                        "its id {:?} is taken by {}; it is not used",
                        registration.id,
                        first.path().display()
                    ),
                });
                extension.set_shadowed();
                continue;
            }
            ids.insert(&registration.id, extension);
            active.push((extension, registration));
        }
        registry.add_commands(&active);
        for (extension, registration) in &active {
            registry.add_tools(extension, registration, built_in_tools);
            let (known, unknown) = registration.events();
            for event in known {
                registry.subscribers.entry(event).or_default().push(Arc::clone(extension));
            }
            for name in unknown {
                registry.clashes.push(Clash {
                    extension: Arc::clone(extension),
                    problem: format!("it subscribes to {name:?}, which this host does not know"),
                });
            }
        }
        registry
    }

    /// A name that several extensions use becomes `name:1`, `name:2`, in load order.
    fn add_commands(&mut self, active: &[(&Arc<Extension>, &Arc<Registration>)]) {
        let all = || {
            active.iter().flat_map(|(extension, registration)| {
                registration.commands.iter().map(move |command| (*extension, command))
            })
        };
        let mut owners: HashMap<&str, usize> = HashMap::new();
        for (_, command) in all() {
            *owners.entry(&command.name).or_default() += 1;
        }
        let mut used: HashMap<&str, usize> = HashMap::new();
        for (extension, command) in all() {
            let name = if owners.get(command.name.as_str()).is_some_and(|count| *count > 1) {
                let number = used.entry(&command.name).or_default();
                *number += 1;
                format!("{}:{number}", command.name)
            } else {
                command.name.clone()
            };
            self.by_name.insert(name.clone(), self.commands.len());
            self.commands.push(Command {
                public: ExtensionCommand {
                    name,
                    description: command.description.clone(),
                    argument_hint: command.argument_hint.clone(),
                    extension_path: extension.path().to_owned(),
                },
                own_name: command.name.clone(),
                extension: Arc::clone(extension),
            });
        }
    }

    /// The first extension with a name wins; a built-in is replaced only on purpose.
    fn add_tools(
        &mut self,
        extension: &Arc<Extension>,
        registration: &Registration,
        built_in_tools: &[String],
    ) {
        for tool in &registration.tools {
            let taken = self.tools.iter().find(|other| other.name() == tool.name);
            let problem = if let Some(first) = taken {
                Some(format!(
                    "its tool {:?} is left out: {} has one of that name",
                    tool.name,
                    first.extension().path().display()
                ))
            } else if built_in_tools.contains(&tool.name) && !tool.overrides {
                Some(format!(
                    "its tool {:?} is left out: it is the name of a built-in tool, and the registration does not set `overrides`",
                    tool.name
                ))
            } else {
                None
            };
            match problem {
                Some(problem) => {
                    self.clashes.push(Clash { extension: Arc::clone(extension), problem });
                }
                None => {
                    let tool = ExtensionTool::new(tool.spec(), Arc::clone(extension));
                    self.tools.push(Arc::new(tool));
                }
            }
        }
    }

    pub(crate) fn command(&self, name: &str) -> Option<&Command> {
        self.by_name.get(name).and_then(|index| self.commands.get(*index))
    }

    /// In load order.
    pub(crate) fn subscribers(&self, event: HookEvent) -> &[Arc<Extension>] {
        self.subscribers.get(&event).map_or(&[], Vec::as_slice)
    }
}
