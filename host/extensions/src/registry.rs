//! All that the loaded extensions offer together, in load order, with clashes
//! settled. Built anew whenever another extension has registered.

use std::collections::HashMap;
use std::sync::Arc;

use wharf_agent::hooks::{ExtensionCommand, HookEvent};

use crate::extension::{Extension, Status};
use crate::registration::{self, Registration};
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
    /// By topic.
    bus: HashMap<String, Vec<Arc<Extension>>>,
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
                extension.set_shadowed(true);
                continue;
            }
            extension.set_shadowed(false);
            ids.insert(&registration.id, extension);
            active.push((extension, registration));
        }
        registry.add_commands(&active);
        for (extension, registration) in &active {
            let added = extension.offers.tools();
            registry.add_tools(extension, registration, &added, built_in_tools);
            for topic in registration.topics() {
                registry.bus.entry(topic.to_owned()).or_default().push(Arc::clone(extension));
            }
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
    /// `added` are tools of run time: each replaces one of its name of this extension.
    fn add_tools(
        &mut self,
        extension: &Arc<Extension>,
        registration: &Registration,
        added: &[Arc<registration::Tool>],
        built_in_tools: &[String],
    ) {
        let is_added = |name: &str| added.iter().any(|tool| tool.name == name);
        let registered = registration.tools.iter().filter(|tool| !is_added(&tool.name));
        for tool in registered.chain(added.iter().map(|tool| &**tool)) {
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

    /// Why `extension` cannot add `tool` now, if so.
    pub(crate) fn clash(
        &self,
        extension: &Arc<Extension>,
        tool: &registration::Tool,
        built_in_tools: &[String],
    ) -> Option<String> {
        let of_another = self
            .tools
            .iter()
            .find(|other| other.name() == tool.name && !Arc::ptr_eq(other.extension(), extension));
        if let Some(other) = of_another {
            return Some(format!(
                "there is a tool {:?} of the extension {}",
                tool.name,
                other.extension().name()
            ));
        }
        (built_in_tools.contains(&tool.name) && !tool.overrides).then(|| {
            format!("{:?} is the name of a built-in tool, and `overrides` is not set", tool.name)
        })
    }

    /// In load order.
    pub(crate) fn bus_subscribers(&self, topic: &str) -> &[Arc<Extension>] {
        self.bus.get(topic).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn command(&self, name: &str) -> Option<&Command> {
        self.by_name.get(name).and_then(|index| self.commands.get(*index))
    }

    /// In load order.
    pub(crate) fn subscribers(&self, event: HookEvent) -> &[Arc<Extension>] {
        self.subscribers.get(&event).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::path::PathBuf;
    use std::sync::Mutex;

    use serde_json::json;
    use wharf_agent::ui::NoUi;

    use super::*;
    use crate::ask::Permits;
    use crate::bindings::types::Notification;
    use crate::discovery::{Found, Scope};
    use crate::extension::NoteKind;
    use crate::limits::{DEFAULT_QUEUED_NOTIFICATIONS, Limits};
    use crate::log_file::LogFile;
    use crate::places::Places;
    use crate::report::{Report, Reporter};
    use crate::state::Services;

    #[derive(Debug, Default)]
    struct Kept(Mutex<Vec<Report>>);

    impl Reporter for Kept {
        fn report(&self, report: Report) {
            self.0.lock().unwrap().push(report);
        }
    }

    fn extension(
        id: &str,
        commands: &[&str],
        tools: &[(&str, bool)],
    ) -> (Arc<Extension>, Arc<Kept>) {
        let kept = Arc::new(Kept::default());
        let services = Services {
            ui: Arc::new(NoUi),
            api: Arc::default(),
            log: Arc::new(LogFile::new(PathBuf::new())),
            reporter: Arc::clone(&kept) as Arc<dyn Reporter>,
            cwd: PathBuf::new(),
            permits: Arc::new(Permits::new(Places::new(PathBuf::new(), None, PathBuf::new()))),
            limits: Limits::default(),
            own_limits: Arc::default(),
            flags: Arc::default(),
            peers: Arc::default(),
            runtime: tokio::runtime::Handle::current(),
        };
        let found = Found {
            path: format!("/{id}.wasm").into(),
            name: id.to_owned(),
            scope: Scope::User,
            pinned: None,
        };
        let (extension, mailbox) = Extension::new(found, Arc::new(services));
        // Kept open: these tests have no actor.
        std::mem::forget(mailbox);
        let registration = json!({
            "id": id, "version": "1", "description": "",
            "commands": commands.iter().map(|name| json!({"name": name, "description": ""})).collect::<Vec<_>>(),
            "tools": tools.iter().map(|(name, overrides)| json!({
                "name": name, "label": "", "description": "", "parameters": {"type": "object"},
                "prompt_guidelines": [], "sequential": false, "overrides": overrides,
            })).collect::<Vec<_>>(),
            "subscriptions": ["tool_call", "contexts"],
            "flags": [], "shortcuts": [], "permissions": [],
        });
        let registration = serde_json::from_value(registration).unwrap();
        extension.set_status(Status::Registered(Arc::new(registration)));
        (extension, kept)
    }

    fn names(registry: &Registry) -> (Vec<&str>, Vec<&str>) {
        let commands = registry.commands.iter().map(|c| c.public.name.as_str()).collect();
        let tools = registry.tools.iter().map(|t| t.name()).collect();
        (commands, tools)
    }

    #[tokio::test]
    async fn commands_that_clash_are_numbered_and_the_plain_name_is_gone() {
        let (a, _) = extension("a", &["x", "only"], &[]);
        let (b, _) = extension("b", &["x"], &[]);
        let registry = Registry::build(&[a, b], &[]);
        assert_eq!(names(&registry).0, ["x:1", "only", "x:2"]);
        assert!(registry.command("x").is_none());
        let second = registry.command("x:2").unwrap();
        assert_eq!((second.own_name.as_str(), second.extension.name()), ("x", "b"));
        assert_eq!(registry.subscribers(HookEvent::ToolCall).len(), 2);
    }

    #[tokio::test]
    async fn the_first_tool_wins_and_a_built_in_is_replaced_only_on_purpose() {
        let (a, _) = extension("a", &[], &[("t", false), ("read", false)]);
        let (b, _) = extension("b", &[], &[("t", false), ("bash", true)]);
        let registry = Registry::build(&[a, b], &["read".to_owned(), "bash".to_owned()]);
        assert_eq!(names(&registry).1, ["t", "bash"]);
        let problems: Vec<_> = registry
            .clashes
            .iter()
            .map(|clash| format!("{}: {}", clash.extension.name(), clash.problem))
            .filter(|problem| !problem.contains("contexts"))
            .collect();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("a: its tool \"read\" is left out"), "{problems:?}");
        assert_eq!(problems[1], "b: its tool \"t\" is left out: /a.wasm has one of that name");
    }

    #[tokio::test]
    async fn an_unknown_subscription_and_a_second_id_are_told() {
        let (a, _) = extension("a", &["x"], &[]);
        let (again, _) = extension("a", &["x"], &[]);
        let registry = Registry::build(&[a, Arc::clone(&again)], &[]);
        assert_eq!(names(&registry).0, ["x"]);
        assert!(again.is_shadowed());
        let problems: Vec<_> =
            registry.clashes.iter().map(|clash| clash.problem.as_str()).collect();
        assert_eq!(
            problems,
            [
                "its id \"a\" is taken by /a.wasm; it is not used",
                "it subscribes to \"contexts\", which this host does not know",
            ]
        );
    }

    #[tokio::test]
    async fn notifications_over_the_queue_are_dropped_and_told_once() {
        let (extension, kept) = extension("a", &[], &[]);
        for _ in 0..DEFAULT_QUEUED_NOTIFICATIONS + 10 {
            let kind = NoteKind::Hook(HookEvent::TurnStart);
            extension.notify(kind, Arc::new(Notification::TurnStart));
        }
        let reports = kept.0.lock().unwrap();
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].event, "turn_start");
    }
}
