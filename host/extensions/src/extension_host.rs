//! The extensions of one process: loads them in the background and answers the
//! agent's hooks.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, join_all};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle, spawn_blocking};
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{
    BeforeAgentStartEvent, BeforeAgentStartVerdict, BeforeCompactEvent, BeforeCompactVerdict,
    BeforeTreeEvent, CommandLookup, DiscoverReason, DiscoveredResources, ExtensionCommand,
    ForkVerdict, HookEvent, HookNotification, Hooks, InputEvent, InputVerdict,
    ProviderRequestEvent, RecheckInput, ReloadedExtension, SwitchReason, ToolCallEvent,
    ToolCallVerdict, ToolResultEvent, TreeVerdict, UserBashEvent, UserBashVerdict,
};
use wharf_agent::host_api::HostApi;
use wharf_agent::tool::Tool;
use wharf_agent::ui::Ui;
use wharf_protocol::AgentMessage;

use crate::actor::Actor;
use crate::ask::{self, Permits};
use crate::bindings::types::Notification;
use crate::call::Request;
use crate::discovery::{DiscoveryError, Found, Sources, discover};
use crate::dispatch::{self, MessageUpdateThrottle, report_call_error};
use crate::extension::{Extension, Message, NoteKind, Status};
use crate::limits::{DEFAULT_QUEUED_NOTIFICATIONS, Limits, MAX_COMPLETIONS, one_line};
use crate::loader::{Loaded, Loader};
use crate::log_file::LogFile;
use crate::peers::Peers;
use crate::places::Places;
use crate::registration::{self, Registration};
use crate::registry::{Clash, Registry};
use crate::report::{Report, Reporter, Severity};
use crate::state::{CallKind, Services};
use crate::watch::{WatchError, Watcher};

/// Wall time that `session_shutdown` handlers, and everything queued before them, get.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Wall time for the stores to go after that.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// What settings and the command line say of extensions.
#[derive(Debug, Clone, Default)]
pub struct Loadable {
    pub sources: Sources,
    pub limits: Limits,
    /// Limits of extensions that have their own, by id, or by name (file stem or folder).
    pub own_limits: HashMap<String, Limits>,
}

/// Gives what there is to load now.
#[derive(Clone)]
pub(crate) struct AskLoadable(Arc<dyn Fn() -> Loadable + Send + Sync>);

impl AskLoadable {
    /// Reads files; only for blocking threads.
    pub(crate) fn ask(&self) -> Loadable {
        (self.0)()
    }
}

impl fmt::Debug for AskLoadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AskLoadable")
    }
}

/// What an extension host is made of.
pub struct ExtensionHostOptions {
    /// Asked at the start and at each reload, on a blocking thread.
    pub loadable: Arc<dyn Fn() -> Loadable + Send + Sync>,
    /// Compiled code and registrations. Created with mode 0700 when it is needed.
    pub cache_dir: PathBuf,
    /// What guests print and log. Created with the first line.
    pub log_file: PathBuf,
    pub cwd: PathBuf,
    /// The person's home, for paths with `~`.
    pub home: Option<PathBuf>,
    /// Holds `grants.json`, and the extensions' own directories in `extension-data/`.
    pub agent_dir: PathBuf,
    /// Flags of the command line by name; None: present without a value.
    pub flags: HashMap<String, Option<String>>,
    /// Names that an extension's tool takes only with `overrides`.
    pub built_in_tools: Vec<String>,
    pub ui: Arc<dyn Ui>,
    pub reporter: Arc<dyn Reporter>,
    pub runtime: Handle,
}

impl fmt::Debug for ExtensionHostOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtensionHostOptions").field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

/// An offer for a command's argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentCompletion {
    pub value: String,
    pub description: Option<String>,
}

/// An extension, for lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionInfo {
    pub path: PathBuf,
    /// The folder's name, or the file's without `.wasm`.
    pub name: String,
    pub state: ExtensionState,
    /// What it offers, once it has said so: id, version, description and all the rest.
    pub registration: Option<Arc<Registration>>,
    /// `sha256:` and 64 hex digits, once the file has been read.
    pub content_hash: Option<String>,
    /// Bytes.
    pub size: Option<u64>,
    pub limits: Limits,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtensionState {
    Loading,
    Registered,
    /// A report has told it too.
    Failed {
        error: String,
    },
    /// By settings, or after too many faults.
    Disabled,
    /// Another one of the same id comes before it.
    Shadowed,
}

/// All extensions. Dropping it stops them.
#[derive(Debug)]
pub struct ExtensionHost {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// With the limits of the start; an extension has its own, see [`Services::under`].
    pub(crate) services: Arc<Services>,
    pub(crate) loader: Arc<Loader>,
    pub(crate) loadable: AskLoadable,
    built_in_tools: Vec<String>,
    loading: Mutex<Loading>,
    /// Held by the one reload that is under way.
    pub(crate) reloading: tokio::sync::Mutex<()>,
    /// New instances get it then.
    pub(crate) session_has_started: AtomicBool,
    /// Counts extensions that have registered or failed, plus one for the discovery.
    settled: watch::Sender<u64>,
    is_ready: AtomicBool,
    clashes_told: AtomicBool,
    /// Clashes as they were told last: the extension and what it is.
    clashes: Mutex<HashSet<(PathBuf, String)>>,
    updates: MessageUpdateThrottle,
    /// `session_shutdown` has been sent, by the agent or by [`Hooks::shutdown`].
    shutdown_told: AtomicBool,
    pub(crate) has_shut_down: AtomicBool,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// How far loading has come.
#[derive(Debug, Default)]
struct Loading {
    /// In load order; None until the discovery is through.
    extensions: Option<Vec<Arc<Extension>>>,
    pending: usize,
    /// Notifications that came before the discovery was through.
    early: Vec<(HookEvent, Arc<Notification>)>,
    /// None: an extension has registered since it was built.
    registry: Option<Arc<Registry>>,
}

impl ExtensionHost {
    /// Returns at once; everything else happens on `options.runtime`.
    pub fn start(options: ExtensionHostOptions) -> Arc<Self> {
        let services = Arc::new(Services {
            ui: options.ui,
            api: Arc::default(),
            log: Arc::new(LogFile::new(options.log_file)),
            reporter: options.reporter,
            permits: Arc::new(Permits::new(Places::new(
                options.cwd.clone(),
                options.home,
                options.agent_dir,
            ))),
            cwd: options.cwd,
            limits: Limits::default(),
            own_limits: Arc::default(),
            flags: Arc::new(options.flags),
            peers: Arc::default(),
            runtime: options.runtime.clone(),
        });
        let inner = Arc::new(Inner {
            loader: Arc::new(Loader::new(options.cache_dir, Arc::clone(&services))),
            services,
            built_in_tools: options.built_in_tools,
            loadable: AskLoadable(options.loadable),
            loading: Mutex::default(),
            reloading: tokio::sync::Mutex::default(),
            session_has_started: AtomicBool::new(false),
            settled: watch::Sender::new(0),
            is_ready: AtomicBool::new(false),
            clashes_told: AtomicBool::new(false),
            clashes: Mutex::default(),
            updates: MessageUpdateThrottle::default(),
            shutdown_told: AtomicBool::new(false),
            has_shut_down: AtomicBool::new(false),
            tasks: Mutex::default(),
        });
        let peers: Weak<dyn Peers> = Arc::downgrade(&inner) as Weak<Inner>;
        // Set once, here.
        let _ = inner.services.peers.set(peers);
        let discovery = options.runtime.spawn(Arc::clone(&inner).discover());
        inner.keep(discovery);
        Arc::new(Self { inner })
    }

    /// Gives the extensions their agent. Host calls before this answer that there is none.
    pub fn attach(&self, api: Arc<dyn HostApi>) {
        // The first agent stays: a host has one.
        let _ = self.inner.services.api.set(api);
    }

    /// Changes whenever another extension has registered or failed, so that whoever
    /// found [`CommandLookup::Loading`] can look again.
    pub fn settled(&self) -> watch::Receiver<u64> {
        self.inner.settled.subscribe()
    }

    /// All extensions that were found so far, in load order.
    pub fn list(&self) -> Vec<ExtensionInfo> {
        self.inner.extensions().iter().map(|extension| info(extension)).collect()
    }

    /// How many actors and stores there are: one actor for each extension that has
    /// registered, and a store where it has been needed.
    pub fn live(&self) -> (usize, usize) {
        self.inner.loader.live.count()
    }

    /// Calls back when a component has been made, changed, replaced or removed where
    /// extensions are looked for, once things have been quiet for a moment. Ends with
    /// the host.
    ///
    /// # Errors
    /// The system cannot watch files.
    pub async fn watch(
        self: &Arc<Self>,
        on_change: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), WatchError> {
        let watcher = Watcher::start(self.inner.loadable.clone()).await?;
        self.inner.keep(self.inner.services.runtime.spawn(watcher.run(on_change)));
        Ok(())
    }

    /// Offers values for the argument of a command, as [`Hooks::find_command`] names it.
    pub async fn complete_argument(
        &self,
        command: &str,
        prefix: String,
        cancel: &CancellationToken,
    ) -> Vec<ArgumentCompletion> {
        let registry = self.inner.registry();
        let Some(command) = registry.command(command) else { return Vec::new() };
        let event = "complete_argument";
        let params = (command.own_name.clone(), prefix);
        let extension = &command.extension;
        let waiter = extension.send(Request::CompleteArgument, params, CallKind::Event, event);
        match waiter.wait(cancel).await {
            Ok(offers) => offers
                .into_iter()
                .flatten()
                .take(MAX_COMPLETIONS)
                .map(|offer| ArgumentCompletion {
                    value: offer.value,
                    description: offer.description,
                })
                .collect(),
            Err(error) => {
                report_call_error(extension, event, &error);
                Vec::new()
            }
        }
    }

    /// Reads `grants.json` again and applies it to every extension, which asks anew for
    /// what is not decided.
    pub fn review_permissions(&self) {
        self.inner.services.permits.forget();
        self.inner.extensions().iter().for_each(ask::start);
    }

    fn subscribers(&self, event: HookEvent) -> Vec<Arc<Extension>> {
        self.inner.registry().subscribers(event).to_vec()
    }
}

impl Drop for ExtensionHost {
    fn drop(&mut self) {
        for task in self.inner.take_tasks() {
            task.abort();
        }
    }
}

fn info(extension: &Extension) -> ExtensionInfo {
    ExtensionInfo {
        path: extension.path().to_owned(),
        name: extension.found.name.clone(),
        state: match extension.status() {
            None => ExtensionState::Loading,
            _ if extension.is_disabled() => ExtensionState::Disabled,
            Some(Status::Failed) => {
                ExtensionState::Failed { error: extension.problem().unwrap_or_default().to_owned() }
            }
            Some(Status::Registered(_)) if extension.is_shadowed() => ExtensionState::Shadowed,
            Some(Status::Registered(_)) => ExtensionState::Registered,
        },
        registration: extension.registration().cloned(),
        content_hash: extension.origin().map(|origin| origin.content_hash.clone()),
        size: extension.origin().map(|origin| origin.size),
        limits: *extension.limits(),
    }
}

/// Settings switch off by the file's name, which the discovery looks at, or by the
/// id. What was named explicitly is loaded all the same.
pub(crate) fn is_switched_off(found: &Found, id: &str, disabled: &[String]) -> bool {
    !found.is_explicit() && disabled.iter().any(|name| name == id)
}

/// An extension is what its component said.
pub(crate) fn registered(extension: &Extension, loaded: &Loaded) {
    extension.set_origin(loaded.origin.clone());
    extension.set_status(Status::Registered(Arc::new(loaded.registration.clone())));
    extension.set_access(loaded.origin.content_hash.clone());
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Loading> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, task: JoinHandle<()>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of extensions that a reload has replaced.
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    fn take_tasks(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Finds the extensions and starts a task for each.
    async fn discover(self: Arc<Self>) {
        let asked = self.loadable.clone();
        let discovered = spawn_blocking(move || {
            let loadable = asked.ask();
            let discovered = discover(&loadable.sources);
            (loadable, discovered)
        });
        let (loadable, (found, errors)) = discovered.await.unwrap_or_default();
        errors.iter().for_each(|error| self.report_missing(error));
        let services = self.services.under(&loadable);
        let disabled: Arc<[String]> = loadable.sources.disabled.into();
        let mut extensions = Vec::new();
        let mut mailboxes = Vec::new();
        for found in found {
            let services = services.of(&found.name);
            let (extension, mailbox) = Extension::new(found, services);
            extensions.push(Arc::clone(&extension));
            mailboxes.push((extension, mailbox));
        }
        let early = {
            let mut loading = self.lock();
            loading.pending = extensions.len();
            loading.extensions = Some(extensions);
            loading.registry = None;
            std::mem::take(&mut loading.early)
        };
        for (extension, mailbox) in mailboxes {
            for (event, notification) in &early {
                extension.notify(NoteKind::Hook(*event), Arc::clone(notification));
            }
            let this = Arc::clone(&self);
            let disabled = Arc::clone(&disabled);
            self.keep(self.services.runtime.spawn(async move {
                let Some(actor) = this.load(extension, mailbox, &disabled).await else { return };
                // The actor outlives the host's own handle only until it is aborted.
                drop(this);
                actor.run().await;
            }));
        }
        self.settle(false);
    }

    /// Loads one extension; its actor, if it has one.
    async fn load(
        &self,
        extension: Arc<Extension>,
        mailbox: UnboundedReceiver<Message>,
        disabled: &[String],
    ) -> Option<Actor> {
        let loaded = self.loader.load(&extension.found, &extension.services).await;
        let actor = match loaded {
            Ok(loaded) if is_switched_off(&extension.found, &loaded.registration.id, disabled) => {
                extension.set_disabled();
                extension.set_status(Status::Failed);
                None
            }
            Ok(loaded) => {
                registered(&extension, &loaded);
                ask::start(&extension);
                Some(Actor::new(extension, Arc::clone(&self.loader), loaded, mailbox))
            }
            Err(error) => {
                extension.set_failed(error.to_string());
                extension.report_error(error.event(), &error.to_string());
                None
            }
        };
        self.settle(true);
        actor
    }

    pub(crate) fn report_missing(&self, error: &DiscoveryError) {
        self.services.reporter.report(Report {
            severity: Severity::Error,
            extension_path: error.path().to_owned(),
            event: "load".to_owned(),
            error: one_line(&error.to_string()),
        });
    }

    /// Runs the actor of an extension that a reload has brought.
    pub(crate) fn run(&self, actor: Actor) {
        self.keep(self.services.runtime.spawn(actor.run()));
    }

    /// Something has been found out: the discovery is through, or an extension has
    /// registered or failed.
    fn settle(&self, is_extension: bool) {
        let last = {
            let mut loading = self.lock();
            loading.registry = None;
            if is_extension {
                loading.pending -= 1;
            }
            loading.pending == 0
        };
        if last && !self.clashes_told.swap(true, SeqCst) {
            self.tell_clashes();
            self.is_ready.store(true, SeqCst);
            self.services.permits.all_registered();
        }
        self.settled.send_modify(|count| *count += 1);
    }

    /// Tells those that were not there when it was called last.
    pub(crate) fn tell_clashes(&self) {
        let registry = self.registry();
        let key = |clash: &Clash| (clash.extension.path().to_owned(), clash.problem.clone());
        let now: HashSet<_> = registry.clashes.iter().map(key).collect();
        let mut told = self.clashes.lock().unwrap_or_else(PoisonError::into_inner);
        for clash in registry.clashes.iter().filter(|clash| !told.contains(&key(clash))) {
            clash.extension.report(Severity::Warning, "load", &clash.problem);
        }
        *told = now;
    }

    pub(crate) fn extensions(&self) -> Vec<Arc<Extension>> {
        self.lock().extensions.clone().unwrap_or_default()
    }

    /// From here on these are the extensions, in load order.
    pub(crate) fn replace_extensions(&self, extensions: Vec<Arc<Extension>>) {
        {
            let mut loading = self.lock();
            loading.extensions = Some(extensions);
            loading.registry = None;
        }
        self.tell_clashes();
        self.settled.send_modify(|count| *count += 1);
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        let mut loading = self.lock();
        if let Some(registry) = &loading.registry {
            return Arc::clone(registry);
        }
        let extensions = loading.extensions.as_deref().unwrap_or_default();
        let registry = Arc::new(Registry::build(extensions, &self.built_in_tools));
        loading.registry = Some(Arc::clone(&registry));
        registry
    }

    pub(crate) async fn ready(&self) {
        let mut settled = self.settled.subscribe();
        while !self.is_ready.load(SeqCst) {
            if settled.changed().await.is_err() {
                return;
            }
        }
    }

    /// Those who may want an event: subscribers, and who is still loading. None while
    /// nobody is known.
    fn targets(&self, event: HookEvent) -> Option<Vec<Arc<Extension>>> {
        if self.is_ready.load(SeqCst) {
            return Some(self.registry().subscribers(event).to_vec());
        }
        let loading = self.lock();
        let extensions = loading.extensions.as_ref()?;
        let may_want = |extension: &&Arc<Extension>| match extension.status() {
            None => true,
            Some(Status::Failed) => false,
            Some(Status::Registered(registration)) => registration.events().0.contains(&event),
        };
        Some(extensions.iter().filter(may_want).cloned().collect())
    }

    fn notify(&self, notification: &HookNotification) {
        let Some(event) = dispatch::event_of(notification) else { return };
        if event == HookEvent::SessionShutdown && self.shutdown_told.swap(true, SeqCst) {
            return;
        }
        if event == HookEvent::SessionStart {
            self.session_has_started.store(true, SeqCst);
        }
        let targets = self.targets(event);
        if targets.as_ref().is_some_and(Vec::is_empty)
            || (event == HookEvent::MessageUpdate && !self.updates.admits(Instant::now()))
        {
            return;
        }
        let Some(data) = dispatch::notification(notification).map(Arc::new) else { return };
        let targets = match targets {
            Some(targets) => targets,
            None => {
                let mut loading = self.lock();
                if loading.extensions.is_none() {
                    if loading.early.len() < DEFAULT_QUEUED_NOTIFICATIONS {
                        loading.early.push((event, data));
                    }
                    return;
                }
                drop(loading);
                // The discovery came through meanwhile.
                self.targets(event).unwrap_or_default()
            }
        };
        for extension in targets {
            extension.notify(NoteKind::Hook(event), Arc::clone(&data));
        }
    }

    async fn shutdown(&self) {
        if self.has_shut_down.swap(true, SeqCst) {
            return;
        }
        self.notify(&HookNotification::SessionShutdown);
        let registered =
            |extension: &Arc<Extension>| matches!(extension.status(), Some(Status::Registered(_)));
        let extensions = self.extensions();
        let drained = extensions.iter().filter(|e| registered(e)).map(|e| e.drained());
        // Whoever is late is stopped all the same.
        let _ = tokio::time::timeout(SHUTDOWN_GRACE, join_all(drained)).await;
        let tasks = self.take_tasks();
        let handles: Vec<AbortHandle> = tasks.iter().map(JoinHandle::abort_handle).collect();
        for handle in handles {
            handle.abort();
        }
        // A guest that spins is stopped at its next tick.
        let _ = tokio::time::timeout(STOP_GRACE, join_all(tasks)).await;
        // A disk that does not answer must not keep the process.
        let _ = tokio::time::timeout(STOP_GRACE, self.services.log.flushed()).await;
    }
}

impl Peers for Inner {
    fn bus_targets(&self, topic: &str) -> Vec<Arc<Extension>> {
        let registry = self.registry();
        if self.is_ready.load(SeqCst) {
            return registry.bus_subscribers(topic).to_vec();
        }
        // One that is still loading sorts out what it has not subscribed to.
        let may_want = |extension: &Arc<Extension>| match extension.status() {
            None => true,
            Some(Status::Failed) => false,
            Some(Status::Registered(registration)) => {
                !extension.is_shadowed() && registration.topics().contains(&topic)
            }
        };
        self.extensions().into_iter().filter(may_want).collect()
    }

    fn tool_clash(&self, extension: &Arc<Extension>, tool: &registration::Tool) -> Option<String> {
        self.registry().clash(extension, tool, &self.built_in_tools)
    }

    fn tools_changed(&self) {
        self.lock().registry = None;
    }
}

impl Hooks for ExtensionHost {
    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.inner.ready())
    }

    fn subscribes(&self, event: HookEvent) -> bool {
        self.inner.targets(event).is_none_or(|targets| !targets.is_empty())
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let registry = self.inner.registry();
        registry.tools.iter().map(|tool| Arc::clone(tool) as Arc<dyn Tool>).collect()
    }

    fn commands(&self) -> Vec<ExtensionCommand> {
        self.inner.registry().commands.iter().map(|command| command.public.clone()).collect()
    }

    fn find_command(&self, name: &str) -> CommandLookup {
        // Before the lookup: an extension may register in between.
        let is_ready = self.inner.is_ready.load(SeqCst);
        if self.inner.registry().command(name).is_some() {
            CommandLookup::Found
        } else if is_ready {
            CommandLookup::Unknown
        } else {
            CommandLookup::Loading
        }
    }

    fn run_command(&self, name: String, arguments: String) -> BoxFuture<'static, ()> {
        let registry = self.inner.registry();
        let Some(command) = registry.command(&name) else {
            return Box::pin(std::future::ready(()));
        };
        let extension = Arc::clone(&command.extension);
        let params = (command.own_name.clone(), arguments.trim().to_owned());
        let kind = CallKind::Command { name: name.clone() };
        // Sent now, not when the future is polled: commands start in the order of these calls.
        let waiter = extension.send(Request::RunCommand, params, kind, "command");
        Box::pin(async move {
            let report =
                |error: &str| extension.report_error("command", &format!("/{name}: {error}"));
            match waiter.wait(&CancellationToken::new()).await {
                Ok(Some(Ok(()))) => {}
                Ok(Some(Err(error))) => report(&error),
                Ok(None) => report("the component does not export run-command"),
                Err(error) if error.is_reported() => {}
                Err(error) => report(&error.to_string()),
            }
        })
    }

    fn tool_call<'a>(
        &'a self,
        event: ToolCallEvent,
        recheck: RecheckInput<'a>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolCallVerdict> {
        Box::pin(async move {
            self.inner.ready().await;
            let subscribers = self.subscribers(HookEvent::ToolCall);
            dispatch::tool_call(&subscribers, event, recheck, cancel).await
        })
    }

    fn tool_result<'a>(
        &'a self,
        event: ToolResultEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolResultEvent> {
        Box::pin(async move {
            let subscribers = self.subscribers(HookEvent::ToolResult);
            dispatch::tool_result(&subscribers, event, cancel).await
        })
    }

    fn input<'a>(
        &'a self,
        event: InputEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, InputVerdict> {
        Box::pin(async move {
            self.inner.ready().await;
            let subscribers = self.subscribers(HookEvent::Input);
            dispatch::input(&subscribers, event, cancel).await
        })
    }

    fn before_agent_start<'a>(
        &'a self,
        event: BeforeAgentStartEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, BeforeAgentStartVerdict> {
        Box::pin(async move {
            self.inner.ready().await;
            // A run is about to start: its first tool call should find instances.
            for event in [HookEvent::ToolCall, HookEvent::ToolResult] {
                self.subscribers(event).iter().for_each(|extension| extension.warm());
            }
            let subscribers = self.subscribers(HookEvent::BeforeAgentStart);
            dispatch::before_agent_start(&subscribers, event, cancel).await
        })
    }

    fn context<'a>(
        &'a self,
        messages: Vec<Arc<AgentMessage>>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Vec<Arc<AgentMessage>>> {
        Box::pin(async move {
            self.inner.ready().await;
            let subscribers = self.subscribers(HookEvent::Context);
            dispatch::context(&subscribers, messages, cancel).await
        })
    }

    fn before_provider_request<'a>(
        &'a self,
        event: ProviderRequestEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Value> {
        Box::pin(async move {
            self.inner.ready().await;
            let subscribers = self.subscribers(HookEvent::BeforeProviderRequest);
            dispatch::before_provider_request(&subscribers, event, cancel).await
        })
    }

    fn user_bash<'a>(
        &'a self,
        event: UserBashEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, UserBashVerdict> {
        Box::pin(async move {
            self.inner.ready().await;
            let subscribers = self.subscribers(HookEvent::UserBash);
            let cwd = &self.inner.services.cwd;
            dispatch::user_bash(&subscribers, event, cwd, cancel).await
        })
    }

    fn resources_discover(&self, reason: DiscoverReason) -> BoxFuture<'_, DiscoveredResources> {
        Box::pin(async move {
            self.inner.ready().await;
            let subscribers = self.subscribers(HookEvent::ResourcesDiscover);
            dispatch::resources_discover(&subscribers, &self.inner.services.cwd, reason).await
        })
    }

    fn reload<'a>(
        &'a self,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<ReloadedExtension>, String>> {
        Box::pin(async move { self.inner.reload(cancel).await.map_err(|error| error.to_string()) })
    }

    fn session_before_switch(
        &self,
        reason: SwitchReason,
        target: Option<PathBuf>,
    ) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            self.inner.ready().await;
            let subscribers = self.subscribers(HookEvent::SessionBeforeSwitch);
            dispatch::session_before_switch(&subscribers, reason, target).await
        })
    }

    fn session_before_fork(&self, entry_id: String) -> BoxFuture<'_, ForkVerdict> {
        Box::pin(async move {
            self.inner.ready().await;
            let subscribers = self.subscribers(HookEvent::SessionBeforeFork);
            dispatch::session_before_fork(&subscribers, entry_id).await
        })
    }

    fn session_before_tree<'a>(
        &'a self,
        event: BeforeTreeEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, TreeVerdict> {
        Box::pin(async move {
            self.inner.ready().await;
            let subscribers = self.subscribers(HookEvent::SessionBeforeTree);
            dispatch::session_before_tree(&subscribers, event, cancel).await
        })
    }

    fn session_directory(&self, cwd: PathBuf) -> BoxFuture<'_, Option<PathBuf>> {
        Box::pin(async move {
            self.inner.ready().await;
            let subscribers = self.subscribers(HookEvent::SessionDirectory);
            dispatch::session_directory(&subscribers, &cwd).await
        })
    }

    fn session_before_compact<'a>(
        &'a self,
        event: BeforeCompactEvent,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, BeforeCompactVerdict> {
        Box::pin(async move {
            self.inner.ready().await;
            let subscribers = self.subscribers(HookEvent::SessionBeforeCompact);
            dispatch::session_before_compact(&subscribers, event, cancel).await
        })
    }

    fn notify(&self, notification: HookNotification) {
        self.inner.notify(&notification);
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.inner.shutdown())
    }
}
