//! The extensions of one process: loads them in the background and answers the
//! agent's hooks.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, join_all};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle, spawn_blocking};
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{
    BeforeAgentStartEvent, BeforeAgentStartVerdict, BeforeCompactEvent, BeforeCompactVerdict,
    BeforeTreeEvent, CommandLookup, ExtensionCommand, ForkVerdict, HookEvent, HookNotification,
    Hooks, InputEvent, InputVerdict, RecheckInput, SwitchReason, ToolCallEvent, ToolCallVerdict,
    ToolResultEvent, TreeVerdict,
};
use wharf_agent::host_api::HostApi;
use wharf_agent::tool::Tool;
use wharf_agent::ui::Ui;

use crate::actor::Actor;
use crate::bindings::types::Notification;
use crate::call::Request;
use crate::discovery::{Sources, discover};
use crate::dispatch::{self, MessageUpdateThrottle, report_call_error};
use crate::extension::{Extension, Status};
use crate::limits::{Limits, MAX_COMPLETIONS, MAX_QUEUED_NOTIFICATIONS, one_line};
use crate::loader::Loader;
use crate::log_file::LogFile;
use crate::registry::Registry;
use crate::report::{Report, Reporter, Severity};
use crate::state::{CallKind, Services};

/// Wall time that `session_shutdown` handlers, and everything queued before them, get.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Wall time for the stores to go after that.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// What an extension host is made of.
#[derive(Debug)]
pub struct ExtensionHostOptions {
    pub sources: Sources,
    /// Compiled code and registrations. Created with mode 0700 when it is needed.
    pub cache_dir: PathBuf,
    /// What guests print and log. Created with the first line.
    pub log_file: PathBuf,
    pub cwd: PathBuf,
    pub limits: Limits,
    /// Limits of extensions that have their own, by name (file stem or folder).
    pub own_limits: HashMap<String, Limits>,
    /// Names that an extension's tool takes only with `overrides`.
    pub built_in_tools: Vec<String>,
    pub ui: Arc<dyn Ui>,
    pub reporter: Arc<dyn Reporter>,
    pub runtime: Handle,
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
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtensionState {
    Loading,
    Registered {
        id: String,
        version: String,
        description: String,
    },
    /// A report has told why.
    Failed,
}

/// All extensions. Dropping it stops them.
#[derive(Debug)]
pub struct ExtensionHost {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    services: Arc<Services>,
    loader: Arc<Loader>,
    built_in_tools: Vec<String>,
    /// Names and ids that settings switch off.
    disabled: Vec<String>,
    loading: Mutex<Loading>,
    /// Counts extensions that have registered or failed, plus one for the discovery.
    settled: watch::Sender<u64>,
    is_ready: AtomicBool,
    clashes_told: AtomicBool,
    updates: MessageUpdateThrottle,
    /// `session_shutdown` has been sent, by the agent or by [`Hooks::shutdown`].
    shutdown_told: AtomicBool,
    has_shut_down: AtomicBool,
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
            cwd: options.cwd,
            limits: options.limits,
            own_limits: Arc::new(options.own_limits),
            runtime: options.runtime.clone(),
        });
        let inner = Arc::new(Inner {
            loader: Arc::new(Loader::new(options.cache_dir, Arc::clone(&services))),
            services,
            built_in_tools: options.built_in_tools,
            disabled: options.sources.disabled.clone(),
            loading: Mutex::default(),
            settled: watch::Sender::new(0),
            is_ready: AtomicBool::new(false),
            clashes_told: AtomicBool::new(false),
            updates: MessageUpdateThrottle::default(),
            shutdown_told: AtomicBool::new(false),
            has_shut_down: AtomicBool::new(false),
            tasks: Mutex::default(),
        });
        let discovery = options.runtime.spawn(Arc::clone(&inner).discover(options.sources));
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
            Some(Status::Failed) => ExtensionState::Failed,
            Some(Status::Registered(registration)) => ExtensionState::Registered {
                id: registration.id.clone(),
                version: registration.version.clone(),
                description: registration.description.clone(),
            },
        },
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Loading> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, task: JoinHandle<()>) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    fn take_tasks(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Finds the extensions and starts a task for each.
    async fn discover(self: Arc<Self>, sources: Sources) {
        let discovered = spawn_blocking(move || discover(&sources)).await;
        let (found, errors) = discovered.unwrap_or_default();
        for error in errors {
            self.services.reporter.report(Report {
                severity: Severity::Error,
                extension_path: error.path().to_owned(),
                event: "load".to_owned(),
                error: one_line(&error.to_string()),
            });
        }
        let mut extensions = Vec::new();
        let mut mailboxes = Vec::new();
        for found in found {
            let services = self.services.of(&found.name);
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
                extension.notify(*event, Arc::clone(notification));
            }
            let this = Arc::clone(&self);
            self.keep(self.services.runtime.spawn(async move {
                let Some(actor) = this.load(extension, mailbox).await else { return };
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
        mailbox: tokio::sync::mpsc::UnboundedReceiver<crate::extension::Message>,
    ) -> Option<Actor> {
        let loaded = self.loader.load(&extension.found).await;
        let actor = match loaded {
            Ok(loaded) if self.is_switched_off(&extension, &loaded.registration.id) => {
                extension.set_status(Status::Failed);
                None
            }
            Ok(loaded) => {
                extension.set_status(Status::Registered(Arc::new(loaded.registration.clone())));
                Some(Actor::new(extension, Arc::clone(&self.loader), loaded, mailbox))
            }
            Err(error) => {
                extension.set_status(Status::Failed);
                extension.report_error(error.event(), &error.to_string());
                None
            }
        };
        self.settle(true);
        actor
    }

    /// Settings switch off by the file's name, which the discovery looks at, or by the
    /// id. What was named explicitly is loaded all the same.
    fn is_switched_off(&self, extension: &Extension, id: &str) -> bool {
        !extension.found.is_explicit && self.disabled.iter().any(|name| name == id)
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
            for clash in &self.registry().clashes {
                clash.extension.report(Severity::Warning, "load", &clash.problem);
            }
            self.is_ready.store(true, SeqCst);
        }
        self.settled.send_modify(|count| *count += 1);
    }

    fn extensions(&self) -> Vec<Arc<Extension>> {
        self.lock().extensions.clone().unwrap_or_default()
    }

    fn registry(&self) -> Arc<Registry> {
        let mut loading = self.lock();
        if let Some(registry) = &loading.registry {
            return Arc::clone(registry);
        }
        let extensions = loading.extensions.as_deref().unwrap_or_default();
        let registry = Arc::new(Registry::build(extensions, &self.built_in_tools));
        loading.registry = Some(Arc::clone(&registry));
        registry
    }

    async fn ready(&self) {
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
                    if loading.early.len() < MAX_QUEUED_NOTIFICATIONS {
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
            extension.notify(event, Arc::clone(&data));
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
