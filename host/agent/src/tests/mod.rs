//! The agent against extensions that are made up: what it asks them, and what they may ask
//! of it. Their runtime, and what a person's program sees, are tested elsewhere.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod control;
mod events;
mod fake;
mod reload;
mod tools;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use wharf_protocol::{AgentMessage, Event};
use wharf_provider::Registry;
use wharf_session::{Session, SessionDir, SessionIndex, SessionOptions};

use crate::hooks::InputSource;
use crate::resources::settings::QueueMode;
use crate::resources::{AgentDir, ResourceOptions, Resources};
use crate::tool::Tool;
use crate::tools::{Shell, ToolOptions, builtin_tools};
use crate::ui::NoUi;
use crate::{Agent, AgentOptions, InputKind, ResourceLoader, SessionStore, Submission};
use fake::{FakeHooks, FakeOutlet};

/// An agent with a scripted model, in a directory of its own.
struct Bench {
    dir: TempDir,
    agent: Agent,
    hooks: Arc<FakeHooks>,
    outlet: Arc<FakeOutlet>,
}

#[derive(Debug)]
struct Files(ResourceOptions);

impl ResourceLoader for Files {
    fn load(&self) -> Resources {
        Resources::load(self.0.clone())
    }

    fn tools(&self, resources: &Resources) -> Vec<Arc<dyn Tool>> {
        builtin_tools(ToolOptions {
            shell_path: resources.settings.shell_path.clone(),
            shell_command_prefix: resources.settings.shell_command_prefix.clone(),
            home: None,
            has_skills: resources.skills_for_model().next().is_some(),
            auto_resize_images: true,
        })
    }
}

impl Bench {
    /// `script` has a line for each reply, as the provider `scripted` reads them.
    fn new(script: &[Value], hooks: FakeHooks) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cwd = fs::canonicalize(dir.path()).unwrap().join("work");
        fs::create_dir(&cwd).unwrap();
        let file = dir.path().join("script.jsonl");
        let lines: Vec<String> = script.iter().map(Value::to_string).collect();
        fs::write(&file, lines.join("\n")).unwrap();
        let mut registry = Registry::with_environment(|_| None);
        let pattern = format!("scripted/{}", file.display());
        let model = registry.resolve(None, &pattern).unwrap().model;
        let agent_dir = AgentDir::new(dir.path().join("agent"));
        let loader = Files(ResourceOptions::new(agent_dir, None, cwd.clone()));
        let resources = loader.load();
        let sessions = SessionDir::Flat(dir.path().join("sessions"));
        let session = Session::create(&sessions, &cwd, SessionOptions::default());
        let index = Arc::new(SessionIndex::in_memory());
        let (hooks, outlet) = (Arc::new(hooks), Arc::new(FakeOutlet::default()));
        let agent = Agent::new(AgentOptions {
            hooks: Arc::clone(&hooks) as _,
            outlet: Arc::clone(&outlet) as _,
            registry,
            tools: loader.tools(&resources),
            resources,
            loader: Arc::new(loader),
            cwd,
            session,
            store: SessionStore::new(sessions, index, dir.path().join("subagents")),
            home: None,
            model: Some(model),
            default_model: None,
            thinking_level: None,
            default_thinking_level: None,
            steering_mode: QueueMode::OneAtATime,
            follow_up_mode: QueueMode::OneAtATime,
            scoped_models: Vec::new(),
            ui: Arc::new(NoUi),
            shell: Shell::new(None, None),
            performance: None,
            settings_file: None,
            names_sessions: false,
        });
        hooks.attach(&agent);
        Self { dir, agent, hooks, outlet }
    }

    fn file(&self, path: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn submit(&self, text: &str) {
        let submission = Submission {
            text: text.to_owned(),
            images: Vec::new(),
            kind: InputKind::Prompt { streaming_behavior: None },
            source: InputSource::Rpc,
        };
        self.agent.submit(submission).unwrap();
    }

    async fn prompt(&self, text: &str) {
        self.submit(text);
        within(self.agent.wait_idle()).await;
    }

    /// The conversation, as `role:text` or `call:name`.
    fn conversation(&self) -> Vec<String> {
        let messages = self.agent.messages();
        messages.iter().flat_map(|message| lines(&message.read().unwrap())).collect()
    }

    /// What the calls of a tool gave, in order.
    fn results(&self) -> Vec<String> {
        let all = self.conversation();
        let results = all.iter().filter_map(|line| line.strip_prefix("result:"));
        results.map(str::to_owned).collect()
    }

    /// What was told as `extension_error`: `event:error`.
    fn errors(&self) -> Vec<String> {
        let told = |event: Arc<Event>| match event.as_ref() {
            Event::ExtensionError { event, error, .. } => Some(format!("{event}:{error}")),
            _ => None,
        };
        self.outlet.events().into_iter().filter_map(told).collect()
    }
}

/// A test that waits for ever must fail, with its name.
async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.unwrap()
}

fn lines(message: &AgentMessage) -> Vec<String> {
    match message {
        AgentMessage::User(user) => vec![format!("user:{}", user.content.to_text())],
        AgentMessage::Assistant(assistant) => {
            let text = assistant.text();
            let said = match &assistant.error_message {
                Some(error) => Some(format!("error:{error}")),
                None => (!text.is_empty()).then(|| format!("assistant:{text}")),
            };
            let calls = assistant.tool_calls().map(|call| format!("call:{}", call.name));
            said.into_iter().chain(calls).collect()
        }
        AgentMessage::ToolResult(result) => {
            let text: Vec<_> = result.content.iter().filter_map(|block| block.as_text()).collect();
            vec![format!("result:{}", text.concat())]
        }
        AgentMessage::BashExecution(run) => {
            vec![format!("bash:{}:{}:{:?}", run.command, run.output, run.exit_code)]
        }
        AgentMessage::Custom(custom) => vec![format!("custom:{}", custom.content.to_text())],
        AgentMessage::BranchSummary(summary) => vec![format!("branch:{}", summary.summary)],
        AgentMessage::CompactionSummary(summary) => vec![format!("compacted:{}", summary.summary)],
    }
}

/// A line of a script that says something.
fn says(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// One that calls tools, with their arguments.
fn calls(list: &[(&str, Value)]) -> Value {
    let block = |(name, arguments): &(&str, Value)| json!({"type": "toolCall", "id": format!("id-{name}"), "name": name, "arguments": arguments});
    json!({"content": list.iter().map(block).collect::<Vec<_>>()})
}
