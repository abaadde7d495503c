//! Extensions, tools and a front end that do what a test wants.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wharf_protocol::{AgentMessage, ContentBlock, Event};

use crate::Agent;
use crate::hooks::*;
use crate::host_api::HostApi;
use crate::output::{AgentOutput, Outlet};
use crate::tool::{Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};

/// What answers an event; none: nobody subscribes to it.
type Handler<In, Out> =
    Option<Box<dyn Fn(In, CancellationToken) -> BoxFuture<'static, Out> + Send + Sync>>;

/// A handler that answers at once.
pub(super) fn at_once<In: 'static, Out: Send + 'static>(
    answer: impl Fn(In) -> Out + Send + Sync + 'static,
) -> Handler<In, Out> {
    Some(Box::new(move |event, _| std::future::ready(answer(event)).boxed()))
}

/// One that may wait.
pub(super) fn waiting<In: 'static, Out: 'static, F>(
    answer: impl Fn(In, CancellationToken) -> F + Send + Sync + 'static,
) -> Handler<In, Out>
where
    F: Future<Output = Out> + Send + 'static,
{
    Some(Box::new(move |event, cancel| answer(event, cancel).boxed()))
}

#[derive(Default)]
pub(super) struct FakeHooks {
    pub(super) tool_call: Handler<ToolCallEvent, ToolCallVerdict>,
    pub(super) context: Handler<Vec<Arc<AgentMessage>>, Vec<Arc<AgentMessage>>>,
    pub(super) before_agent_start: Handler<BeforeAgentStartEvent, BeforeAgentStartVerdict>,
    pub(super) user_bash: Handler<UserBashEvent, UserBashVerdict>,
    pub(super) resources_discover: Handler<DiscoverReason, DiscoveredResources>,
    pub(super) reload: Handler<(), Result<Vec<ReloadedExtension>, String>>,
    pub(super) before_switch: Handler<SwitchReason, bool>,
    pub(super) tools: Arc<Mutex<Vec<Arc<dyn Tool>>>>,
    pub(super) commands: Vec<ExtensionCommand>,
    pub(super) is_loading: watch::Sender<bool>,
    pub(super) agent: Arc<OnceLock<Agent>>,
}

impl fmt::Debug for FakeHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeHooks")
    }
}

/// How handlers and tools get at the agent, which is made after them.
#[derive(Debug, Clone, Default)]
pub(super) struct Api(Arc<OnceLock<Agent>>);

impl Api {
    pub(super) fn get(&self) -> Arc<dyn HostApi> {
        Arc::new(self.0.get().unwrap().clone())
    }
}

impl FakeHooks {
    pub(super) fn api(&self) -> Api {
        Api(Arc::clone(&self.agent))
    }

    pub(super) fn attach(&self, agent: &Agent) {
        self.agent.set(agent.clone()).unwrap();
    }
}

impl Hooks for FakeHooks {
    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.is_loading.subscribe().wait_for(|loading| !loading).await.unwrap();
        })
    }

    fn subscribes(&self, event: HookEvent) -> bool {
        match event {
            HookEvent::ToolCall => self.tool_call.is_some(),
            HookEvent::Context => self.context.is_some(),
            HookEvent::BeforeAgentStart => self.before_agent_start.is_some(),
            HookEvent::UserBash => self.user_bash.is_some(),
            HookEvent::ResourcesDiscover => self.resources_discover.is_some(),
            HookEvent::SessionBeforeSwitch => self.before_switch.is_some(),
            _ => false,
        }
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.lock().unwrap().clone()
    }

    fn commands(&self) -> Vec<ExtensionCommand> {
        self.commands.clone()
    }

    fn find_command(&self, name: &str) -> CommandLookup {
        NoHooks.find_command(name)
    }

    fn run_command(&self, name: String, arguments: String) -> BoxFuture<'static, ()> {
        NoHooks.run_command(name, arguments)
    }

    fn tool_call<'a>(
        &'a self,
        event: ToolCallEvent,
        recheck: RecheckInput<'a>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolCallVerdict> {
        match &self.tool_call {
            Some(handler) => handler(event, cancel.clone()),
            None => NoHooks.tool_call(event, recheck, cancel),
        }
    }

    fn tool_result<'a>(
        &'a self,
        event: ToolResultEvent,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolResultEvent> {
        std::future::ready(event).boxed()
    }

    fn input<'a>(
        &'a self,
        event: InputEvent,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, InputVerdict> {
        let InputEvent { text, images, .. } = event;
        std::future::ready(InputVerdict::Proceed { text, images }).boxed()
    }

    fn before_agent_start<'a>(
        &'a self,
        event: BeforeAgentStartEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, BeforeAgentStartVerdict> {
        self.before_agent_start.as_ref().unwrap()(event, cancel.clone())
    }

    fn context<'a>(
        &'a self,
        messages: Vec<Arc<AgentMessage>>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Vec<Arc<AgentMessage>>> {
        self.context.as_ref().unwrap()(messages, cancel.clone())
    }

    fn before_provider_request<'a>(
        &'a self,
        event: ProviderRequestEvent,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Value> {
        std::future::ready(event.payload).boxed()
    }

    fn user_bash<'a>(
        &'a self,
        event: UserBashEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, UserBashVerdict> {
        self.user_bash.as_ref().unwrap()(event, cancel.clone())
    }

    fn resources_discover(&self, reason: DiscoverReason) -> BoxFuture<'_, DiscoveredResources> {
        self.resources_discover.as_ref().unwrap()(reason, CancellationToken::new())
    }

    fn reload<'a>(
        &'a self,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<ReloadedExtension>, String>> {
        match &self.reload {
            Some(handler) => handler((), cancel.clone()),
            None => std::future::ready(Ok(Vec::new())).boxed(),
        }
    }

    fn session_before_switch(
        &self,
        reason: SwitchReason,
        _target: Option<std::path::PathBuf>,
    ) -> BoxFuture<'_, bool> {
        self.before_switch.as_ref().unwrap()(reason, CancellationToken::new())
    }

    fn session_before_fork(&self, _entry_id: String) -> BoxFuture<'_, ForkVerdict> {
        std::future::ready(ForkVerdict::Proceed).boxed()
    }

    fn session_before_tree<'a>(
        &'a self,
        event: BeforeTreeEvent,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, TreeVerdict> {
        std::future::ready(TreeVerdict::Proceed { options: event.options, summary: None }).boxed()
    }

    fn session_directory(
        &self,
        _cwd: std::path::PathBuf,
    ) -> BoxFuture<'_, Option<std::path::PathBuf>> {
        std::future::ready(None).boxed()
    }

    fn session_before_compact<'a>(
        &'a self,
        _event: BeforeCompactEvent,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, BeforeCompactVerdict> {
        std::future::ready(BeforeCompactVerdict::Proceed).boxed()
    }

    fn notify(&self, _notification: HookNotification) {}

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// Keeps what leaves.
#[derive(Debug, Default)]
pub(super) struct FakeOutlet {
    events: Mutex<Vec<Arc<Event>>>,
    pub(super) shutdown_requested: AtomicBool,
}

impl FakeOutlet {
    pub(super) fn events(&self) -> Vec<Arc<Event>> {
        self.events.lock().unwrap().clone()
    }
}

impl Outlet for FakeOutlet {
    fn try_send(&self, output: AgentOutput) -> Result<(), Box<AgentOutput>> {
        match output {
            AgentOutput::Event(event) => self.events.lock().unwrap().push(event),
            AgentOutput::Barrier(written) => written.send(()).unwrap_or_default(),
            AgentOutput::ShutdownRequested => {
                self.shutdown_requested.store(true, Ordering::SeqCst);
            }
            AgentOutput::Delta(_) | AgentOutput::Diagnostic { .. } => {}
        }
        Ok(())
    }

    fn send(&self, output: AgentOutput) -> BoxFuture<'_, ()> {
        self.try_send(output).unwrap();
        std::future::ready(()).boxed()
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

type Run =
    dyn Fn(ToolCallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> + Send + Sync;

pub(super) struct FakeTool {
    spec: ToolSpec,
    run: Box<Run>,
}

impl fmt::Debug for FakeTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spec.name)
    }
}

/// A tool that takes any arguments; an error is what the model reads.
pub(super) fn tool<F>(
    name: &str,
    run: impl Fn(ToolCallContext) -> F + Send + Sync + 'static,
) -> Arc<dyn Tool>
where
    F: Future<Output = Result<String, String>> + Send + 'static,
{
    let spec = ToolSpec {
        name: name.to_owned(),
        label: name.to_owned(),
        description: format!("Does {name}."),
        parameters: json!({"type": "object"}),
        prompt_snippet: None,
        prompt_guidelines: Vec::new(),
        sequential: false,
    };
    let run = Box::new(move |call| {
        let running = run(call);
        async move {
            let text = running.await.map_err(ToolFailure::new)?;
            Ok(ToolOutput { content: vec![ContentBlock::text(text)], details: None })
        }
        .boxed()
    });
    Arc::new(FakeTool { spec, run })
}

impl Tool for FakeTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: ToolCallContext) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        (self.run)(call)
    }
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}
