//! A whole agent for tests: it has a registry of the test's own, keeps nothing, and its
//! only hooks are `before_provider_request`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use wharf_protocol::{AgentMessage, AssistantMessage, Event, Model};
use wharf_provider::Registry;
use wharf_session::{Session, SessionDir, SessionIndex};

use crate::agent::{Agent, AgentOptions};
use crate::hooks::{
    BeforeAgentStartEvent, BeforeAgentStartVerdict, BeforeCompactEvent, BeforeCompactVerdict,
    BeforeTreeEvent, CommandLookup, DiscoverReason, DiscoveredResources, ExtensionCommand,
    ForkVerdict, HookEvent, HookNotification, Hooks, InputEvent, InputSource, InputVerdict,
    NoHooks, ProviderRequestEvent, RecheckInput, ReloadedExtension, SwitchReason, ToolCallEvent,
    ToolCallVerdict, ToolResultEvent, TreeVerdict, UserBashEvent, UserBashVerdict,
};
use crate::input::{InputKind, Submission};
use crate::inventory::SessionStore;
use crate::output::{AgentOutput, Outlet};
use crate::reload::ResourceLoader;
use crate::resources::settings::QueueMode;
use crate::resources::{AgentDir, ResourceOptions, Resources};
use crate::tool::Tool;
use crate::tools::Shell;
use crate::ui::NoUi;

/// Turns a wait that would never end into a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a handler of `before_provider_request` does; none: it waits for ever.
pub(crate) type Change = fn(Value) -> Option<Value>;

#[derive(Debug)]
pub(crate) struct TestHooks {
    /// None: nobody subscribes.
    change: Option<Change>,
    seen: Mutex<Vec<ProviderRequestEvent>>,
}

#[derive(Debug, Default)]
struct TestOutlet(Mutex<Vec<Arc<Event>>>);

impl Outlet for TestOutlet {
    fn try_send(&self, output: AgentOutput) -> Result<(), Box<AgentOutput>> {
        match output {
            AgentOutput::Event(event) => self.0.lock().unwrap().push(event),
            AgentOutput::Barrier(reached) => {
                let _ = reached.send(());
            }
            AgentOutput::Delta(_)
            | AgentOutput::Diagnostic { .. }
            | AgentOutput::ShutdownRequested => {}
        }
        Ok(())
    }

    fn send(&self, output: AgentOutput) -> BoxFuture<'_, ()> {
        let _ = self.try_send(output);
        Box::pin(std::future::ready(()))
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Resources without tools.
#[derive(Debug)]
struct Fixed(ResourceOptions);

impl ResourceLoader for Fixed {
    fn load(&self) -> Resources {
        Resources::load(self.0.clone())
    }

    fn tools(&self, _resources: &Resources) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }
}

pub(crate) struct TestAgent {
    pub(crate) agent: Agent,
    hooks: Arc<TestHooks>,
    outlet: Arc<TestOutlet>,
    _dir: TempDir,
}

impl TestAgent {
    pub(crate) fn new(registry: Registry, model: &Model, change: Option<Change>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().to_owned();
        std::fs::create_dir(cwd.join("agent")).unwrap();
        // Retries do not wait.
        let settings = r#"{"retry": {"baseDelayMs": 1}}"#;
        std::fs::write(cwd.join("agent/settings.json"), settings).unwrap();
        let agent_dir = AgentDir::new(cwd.join("agent"));
        let options = ResourceOptions::new(agent_dir, None, cwd.clone());
        let resources = Resources::load(options.clone());
        let hooks = Arc::new(TestHooks { change, seen: Mutex::default() });
        let outlet = Arc::new(TestOutlet::default());
        let sessions = SessionDir::Nested(cwd.join("sessions"));
        let index = Arc::new(SessionIndex::in_memory());
        let agent = Agent::new(AgentOptions {
            hooks: Arc::clone(&hooks) as _,
            outlet: Arc::clone(&outlet) as _,
            registry,
            resources,
            tools: Vec::new(),
            loader: Arc::new(Fixed(options)),
            session: Session::in_memory(&cwd),
            store: SessionStore::new(sessions, index, cwd.join("subagents")).in_memory(),
            cwd,
            home: None,
            model: Some(model.clone()),
            default_model: None,
            thinking_level: None,
            default_thinking_level: None,
            steering_mode: QueueMode::default(),
            follow_up_mode: QueueMode::default(),
            scoped_models: Vec::new(),
            ui: Arc::new(NoUi),
            shell: Shell::new(None, None),
            performance: None,
            settings_file: None,
            names_sessions: false,
        });
        Self { agent, hooks, outlet, _dir: dir }
    }

    /// Starts a run.
    pub(crate) fn prompt(&self, text: &str) {
        let kind = InputKind::Prompt { streaming_behavior: None };
        let text = text.to_owned();
        let source = InputSource::Rpc;
        self.agent.submit(Submission { text, images: Vec::new(), kind, source }).unwrap();
    }

    /// The run's last reply.
    pub(crate) async fn reply(&self, text: &str) -> AssistantMessage {
        self.prompt(text);
        tokio::time::timeout(PATIENCE, self.agent.wait_idle()).await.unwrap();
        let events = self.events();
        let messages = events.iter().rev().find_map(|event| match event.as_ref() {
            Event::AgentEnd { messages } => Some(messages.clone()),
            _ => None,
        });
        let last = messages.unwrap().last().unwrap().clone();
        let AgentMessage::Assistant(reply) = last.as_ref() else { panic!("{last:?}") };
        reply.clone()
    }

    pub(crate) fn events(&self) -> Vec<Arc<Event>> {
        self.outlet.0.lock().unwrap().clone()
    }

    /// The requests that handlers have seen.
    pub(crate) fn seen(&self) -> Vec<ProviderRequestEvent> {
        self.hooks.seen.lock().unwrap().clone()
    }
}

impl Hooks for TestHooks {
    fn subscribes(&self, event: HookEvent) -> bool {
        event == HookEvent::BeforeProviderRequest && self.change.is_some()
    }

    fn before_provider_request<'a>(
        &'a self,
        event: ProviderRequestEvent,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Value> {
        self.seen.lock().unwrap().push(event.clone());
        let changed = self.change.and_then(|change| change(event.payload));
        Box::pin(async move {
            match changed {
                Some(payload) => payload,
                None => std::future::pending().await,
            }
        })
    }

    // All others are those of an agent without extensions.

    fn ready(&self) -> BoxFuture<'_, ()> {
        NONE.ready()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        NONE.tools()
    }

    fn commands(&self) -> Vec<ExtensionCommand> {
        NONE.commands()
    }

    fn find_command(&self, name: &str) -> CommandLookup {
        NONE.find_command(name)
    }

    fn run_command(&self, name: String, arguments: String) -> BoxFuture<'static, ()> {
        NONE.run_command(name, arguments)
    }

    fn tool_call<'a>(
        &'a self,
        event: ToolCallEvent,
        recheck: RecheckInput<'a>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolCallVerdict> {
        NONE.tool_call(event, recheck, cancel)
    }

    fn tool_result<'a>(
        &'a self,
        event: ToolResultEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolResultEvent> {
        NONE.tool_result(event, cancel)
    }

    fn input<'a>(
        &'a self,
        event: InputEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, InputVerdict> {
        NONE.input(event, cancel)
    }

    fn before_agent_start<'a>(
        &'a self,
        event: BeforeAgentStartEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, BeforeAgentStartVerdict> {
        NONE.before_agent_start(event, cancel)
    }

    fn context<'a>(
        &'a self,
        messages: Vec<Arc<AgentMessage>>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Vec<Arc<AgentMessage>>> {
        NONE.context(messages, cancel)
    }

    fn user_bash<'a>(
        &'a self,
        event: UserBashEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, UserBashVerdict> {
        NONE.user_bash(event, cancel)
    }

    fn resources_discover(&self, reason: DiscoverReason) -> BoxFuture<'_, DiscoveredResources> {
        NONE.resources_discover(reason)
    }

    fn reload<'a>(
        &'a self,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<ReloadedExtension>, String>> {
        NONE.reload(cancel)
    }

    fn session_before_switch(
        &self,
        reason: SwitchReason,
        target: Option<PathBuf>,
    ) -> BoxFuture<'_, bool> {
        NONE.session_before_switch(reason, target)
    }

    fn session_before_fork(&self, entry_id: String) -> BoxFuture<'_, ForkVerdict> {
        NONE.session_before_fork(entry_id)
    }

    fn session_before_tree<'a>(
        &'a self,
        event: BeforeTreeEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, TreeVerdict> {
        NONE.session_before_tree(event, cancel)
    }

    fn session_directory(&self, cwd: PathBuf) -> BoxFuture<'_, Option<PathBuf>> {
        NONE.session_directory(cwd)
    }

    fn session_before_compact<'a>(
        &'a self,
        event: BeforeCompactEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, BeforeCompactVerdict> {
        NONE.session_before_compact(event, cancel)
    }

    fn notify(&self, notification: HookNotification) {
        NONE.notify(notification);
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        NONE.shutdown()
    }
}

static NONE: NoHooks = NoHooks;
