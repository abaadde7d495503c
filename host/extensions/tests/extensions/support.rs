//! A host with a front end, an agent and reports that tests can look into.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{
    CommandLookup, Hooks, ReloadedExtension, ToolCallEvent, ToolCallVerdict, TreeOptions,
};
use wharf_agent::host_api::{
    BuiltInCall, CommandInfo, CommandSource, Delivery, ExecError, ExecOutput, ExecRequest, HostApi,
    HostApiError, HttpError, HttpErrorKind, HttpRequest, HttpResponse, ProviderOffer,
};
use wharf_agent::tool::{ToolOutput, ToolSpec};
use wharf_agent::ui::{Dialog, DialogOutcome, NoUi, NotifyKind, Ui, UiUpdate};
use wharf_agent::{ContextUsage, Forked, Navigated};
use wharf_extensions::{
    ExtensionHost, ExtensionHostOptions, Limits, Loadable, Report, Reporter, Sources,
};
use wharf_protocol::message::CustomMessage;
use wharf_protocol::model::ModelCost;
use wharf_protocol::{ContentBlock, ImageContent, Model, ThinkingLevel};
use wharf_session::Session;

/// Nothing in these tests takes nearly that long; a test that hangs says so.
const PATIENCE: Duration = Duration::from_secs(120);

/// The component of a test guest.
pub(crate) fn guest(name: &str) -> PathBuf {
    component("WHARF_TEST_GUESTS", name)
}

/// Where `cargo xtask guests` puts components: test binaries are in `target/*/deps`.
fn built() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    exe.ancestors().nth(3).unwrap().join("guests/wasm32-wasip2/release")
}

fn component(variable: &str, name: &str) -> PathBuf {
    let directory = std::env::var_os(variable).map_or_else(built, PathBuf::from);
    let path = directory.join(format!("{}.wasm", name.replace('-', "_")));
    assert!(
        path.is_file(),
        "{} is missing: run `cargo xtask guests`, or set {variable}",
        path.display()
    );
    path
}

/// Something that happens, one at a time, in order.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    items: Mutex<VecDeque<T>>,
    added: Notify,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { items: Mutex::default(), added: Notify::new() }
    }
}

impl<T> Queue<T> {
    fn push(&self, item: T) {
        self.items.lock().unwrap().push_back(item);
        self.added.notify_one();
    }

    pub(crate) async fn next(&self) -> T {
        let wait = async {
            loop {
                if let Some(item) = self.items.lock().unwrap().pop_front() {
                    return item;
                }
                self.added.notified().await;
            }
        };
        patiently(wait).await
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.lock().unwrap().is_empty()
    }
}

pub(crate) async fn patiently<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it did not happen")
}

#[derive(Debug)]
pub(crate) struct OpenDialog {
    pub(crate) dialog: Dialog,
    answer: oneshot::Sender<DialogOutcome>,
}

impl OpenDialog {
    pub(crate) fn answer(self, outcome: DialogOutcome) {
        self.answer.send(outcome).expect("the dialog has been settled otherwise");
    }

    /// Completes when whoever asked no longer listens.
    pub(crate) async fn dropped(&mut self) {
        patiently(self.answer.closed()).await;
    }
}

/// A front end that shows `room` updates and then waits for more room.
#[derive(Debug)]
pub(crate) struct FakeUi {
    pub(crate) dialogs: Queue<OpenDialog>,
    updates: Queue<UiUpdate>,
    pub(crate) room: Semaphore,
}

impl FakeUi {
    pub(crate) async fn notified(&self) -> String {
        loop {
            if let UiUpdate::Notify { message, kind: NotifyKind::Info } = self.updates.next().await
            {
                return message;
            }
        }
    }

    /// The next notification of `probe`.
    pub(crate) async fn probed(&self) -> Value {
        serde_json::from_str(&self.notified().await).unwrap()
    }
}

impl Ui for FakeUi {
    fn has_ui(&self) -> bool {
        true
    }

    fn dialog(&self, dialog: Dialog) -> BoxFuture<'_, DialogOutcome> {
        let (answer, outcome) = oneshot::channel();
        self.dialogs.push(OpenDialog { dialog, answer });
        Box::pin(async move { outcome.await.unwrap_or(DialogOutcome::Cancelled) })
    }

    fn show(&self, update: UiUpdate) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.room.acquire().await.unwrap().forget();
            self.updates.push(update);
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Reports(pub(crate) Queue<Report>);

impl Reporter for Reports {
    fn report(&self, report: Report) {
        self.0.push(report);
    }
}

/// Status, headers, pieces of the body.
pub(crate) type FakeResponse = (u16, Vec<(&'static str, String)>, Vec<Vec<u8>>);
/// Answers a request.
pub(crate) type FakeWeb = fn(&HttpRequest) -> FakeResponse;

/// An idle agent with a session in memory. Programs that it is to run end at once.
#[derive(Debug)]
pub(crate) struct FakeApi {
    session: Session,
    web: Option<FakeWeb>,
    pub(crate) calls: mpsc::UnboundedSender<String>,
    /// Those that are registered now.
    pub(crate) providers: Mutex<Vec<ProviderOffer>>,
    /// Whose extensions it reloads.
    host: Arc<OnceLock<Weak<ExtensionHost>>>,
}

impl FakeApi {
    fn note(&self, call: impl Into<String>) {
        // A test that does not look has dropped the receiver.
        let _ = self.calls.send(call.into());
    }
}

impl HostApi for FakeApi {
    fn session(&self) -> Session {
        self.session.clone()
    }
    fn is_idle(&self) -> bool {
        true
    }
    fn has_pending_messages(&self) -> bool {
        false
    }
    fn abort(&self) {
        self.note("abort");
    }
    fn cwd(&self) -> PathBuf {
        PathBuf::from("/project")
    }
    fn system_prompt(&self) -> String {
        "be brief".into()
    }
    fn tools(&self) -> Vec<ToolSpec> {
        Vec::new()
    }
    fn model(&self) -> Option<Model> {
        None
    }
    fn send_user_message(
        &self,
        text: String,
        _images: Vec<ImageContent>,
        deliver: Delivery,
    ) -> Result<(), HostApiError> {
        self.note(format!("user {deliver:?} {text}"));
        Ok(())
    }
    fn send_message(
        &self,
        message: CustomMessage,
        deliver: Delivery,
        trigger_turn: bool,
    ) -> Result<(), HostApiError> {
        self.note(format!("{} {deliver:?} {trigger_turn}", message.custom_type));
        Ok(())
    }
    fn append_entry(
        &self,
        custom_type: String,
        data: Option<Value>,
    ) -> Result<String, HostApiError> {
        Ok(self.session.append_custom(&custom_type, data).0.to_string())
    }
    fn set_session_name(&self, name: String) -> Result<(), HostApiError> {
        self.session.append_session_info(&name);
        Ok(())
    }
    fn set_label(&self, entry: String, _label: Option<String>) -> Result<(), HostApiError> {
        Err(HostApiError::Invalid(format!("no entry {entry}")))
    }
    fn wait_for_idle(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
    fn new_session(&self) -> BoxFuture<'static, Result<bool, HostApiError>> {
        Box::pin(std::future::ready(Ok(true)))
    }
    fn switch_session(&self, file: PathBuf) -> BoxFuture<'static, Result<bool, HostApiError>> {
        let text = format!("no session {}", file.display());
        Box::pin(std::future::ready(Err(HostApiError::Failed(text))))
    }
    fn context_usage(&self) -> Option<ContextUsage> {
        None
    }
    fn compact(&self, _owner: PathBuf, instructions: Option<String>) {
        self.note(format!("compact {instructions:?}"));
    }
    fn shutdown(&self) {
        self.note("shutdown");
    }
    fn all_tools(&self) -> Vec<ToolSpec> {
        Vec::new()
    }
    fn active_tools(&self) -> Vec<String> {
        vec!["read".to_owned()]
    }
    fn set_active_tools(&self, names: Vec<String>) -> Result<(), HostApiError> {
        self.note(format!("active tools {names:?}"));
        Ok(())
    }
    fn call_built_in(
        &self,
        call: BuiltInCall,
    ) -> BoxFuture<'static, Result<(ToolOutput, bool), HostApiError>> {
        self.note(format!("built-in {} {}", call.tool_call_id, call.name));
        match call.input.get("command").and_then(Value::as_str) {
            Some("WAIT") => {
                return Box::pin(async move {
                    call.cancel.cancelled().await;
                    Err(HostApiError::Failed("it was cancelled".to_owned()))
                });
            }
            Some(command) => {
                let content = vec![ContentBlock::text(format!("ran {command}"))];
                let output = ToolOutput { content, details: Some(json!({"n": 1})) };
                return Box::pin(std::future::ready(Ok((output, true))));
            }
            None => {}
        }
        let text = format!("no built-in {}", call.name);
        Box::pin(std::future::ready(Err(HostApiError::NotAllowed(text))))
    }
    fn commands(&self) -> Vec<CommandInfo> {
        [CommandSource::Extension, CommandSource::Prompt, CommandSource::Skill]
            .map(|source| CommandInfo { name: "c".to_owned(), description: None, source })
            .into()
    }
    fn find_models(&self, pattern: &str) -> Vec<Model> {
        pattern.split_whitespace().map(model).collect()
    }
    fn set_model(&self, provider: &str, id: &str) -> Result<Model, HostApiError> {
        if provider == "p" {
            return Ok(model(id));
        }
        Err(HostApiError::Failed(format!("no model {provider}/{id}")))
    }
    fn thinking_level(&self) -> ThinkingLevel {
        ThinkingLevel::default()
    }
    fn set_thinking_level(&self, level: ThinkingLevel) -> ThinkingLevel {
        level
    }
    fn register_provider(&self, offer: ProviderOffer) -> Result<(), HostApiError> {
        self.note(format!("provider {} of {}", offer.name, offer.owner));
        if offer.config.contains_key("bad") {
            return Err(HostApiError::Invalid("bad is no key".to_owned()));
        }
        let mut providers = self.providers.lock().unwrap();
        providers.retain(|other| other.name != offer.name);
        providers.push(offer);
        Ok(())
    }
    fn unregister_provider(&self, owner: &str, name: &str) -> bool {
        let mut providers = self.providers.lock().unwrap();
        let count = providers.len();
        providers.retain(|offer| (offer.owner.as_str(), offer.name.as_str()) != (owner, name));
        providers.len() < count
    }
    fn fetch(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, HttpError>> {
        let headers: Vec<_> = request.headers.iter().map(|(n, v)| format!(" {n}={v}")).collect();
        let body = request.body.as_ref().map_or(0, Vec::len);
        self.note(format!("{} {}{} {body}", request.method, request.url, headers.concat()));
        let Some(web) = self.web else {
            let message = format!("no host of {}", request.url);
            let error = HttpError { kind: HttpErrorKind::Failed, message };
            return Box::pin(std::future::ready(Err(error)));
        };
        let (status, headers, pieces) = web(&request);
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let body = futures::stream::iter(pieces.into_iter().map(|piece| Ok(piece.into()))).boxed();
        Box::pin(std::future::ready(Ok(HttpResponse { status, headers, body })))
    }
    fn exec(&self, request: ExecRequest) -> BoxFuture<'static, Result<ExecOutput, ExecError>> {
        let ExecRequest { program, arguments, cwd, .. } = request;
        let name = program.file_name().unwrap().to_string_lossy();
        self.note(format!("{} {arguments:?} in {}", name, cwd.display()));
        let mut names: Vec<_> = request.environment.into_iter().map(|(name, _)| name).collect();
        names.sort();
        let output = ExecOutput {
            exit_code: Some(0),
            stdout: names.join(" ").into_bytes(),
            stderr: Vec::new(),
            truncated: false,
        };
        Box::pin(std::future::ready(Ok(output)))
    }
    fn new_session_with(
        &self,
        _parent_session: Option<String>,
    ) -> BoxFuture<'static, Result<bool, HostApiError>> {
        Box::pin(std::future::ready(Ok(true)))
    }
    fn fork(&self, entry: String) -> BoxFuture<'static, Result<Forked, HostApiError>> {
        Box::pin(std::future::ready(Err(HostApiError::Failed(format!("no entry {entry}")))))
    }
    fn navigate_tree(
        &self,
        target: String,
        _options: TreeOptions,
    ) -> BoxFuture<'static, Result<Navigated, HostApiError>> {
        Box::pin(std::future::ready(Err(HostApiError::Failed(format!("no entry {target}")))))
    }
    fn reload(&self) -> BoxFuture<'static, Result<Vec<ReloadedExtension>, HostApiError>> {
        let host = self.host.get().and_then(Weak::upgrade);
        Box::pin(async move {
            let Some(host) = host else { return Ok(Vec::new()) };
            host.reload(&CancellationToken::new()).await.map_err(HostApiError::Failed)
        })
    }
}

pub(crate) fn model(id: &str) -> Model {
    Model {
        id: id.to_owned(),
        name: id.to_owned(),
        api: "own".to_owned(),
        provider: "p".to_owned(),
        base_url: String::new(),
        reasoning: false,
        input: vec!["text".to_owned()],
        context_window: 1_000,
        max_tokens: 100,
        cost: ModelCost::default(),
    }
}

pub(crate) struct Fixture {
    /// What the host finds at its next reload.
    pub(crate) loadable: Arc<Mutex<Loadable>>,
    pub(crate) host: Arc<ExtensionHost>,
    pub(crate) ui: Arc<FakeUi>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) api: Arc<FakeApi>,
    pub(crate) api_calls: mpsc::UnboundedReceiver<String>,
    pub(crate) directory: Arc<TempDir>,
}

/// How a fixture differs from the usual one.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    pub(crate) own_limits: HashMap<String, Limits>,
    pub(crate) user_dir: Option<PathBuf>,
    pub(crate) disabled: Vec<String>,
    /// Of another fixture, for a second start with the same cache.
    pub(crate) directory: Option<Arc<TempDir>>,
    pub(crate) built_in_tools: Vec<String>,
    /// Updates that the front end takes before it is full.
    pub(crate) room: Option<usize>,
    pub(crate) flags: HashMap<String, Option<String>>,
    /// Where the project is, when a test needs one that is there.
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) web: Option<FakeWeb>,
    /// Nobody can be asked.
    pub(crate) no_ui: bool,
}

impl Fixture {
    pub(crate) async fn new(guests: &[&str]) -> Self {
        Self::with(guests, Setup::default()).await
    }

    pub(crate) async fn with(guests: &[&str], setup: Setup) -> Self {
        let paths = guests.iter().map(|name| guest(name)).collect();
        let fixture = Self::start(paths, setup);
        patiently(fixture.host.ready()).await;
        fixture
    }

    /// Does not wait until the extensions have registered.
    pub(crate) fn start(explicit: Vec<PathBuf>, setup: Setup) -> Self {
        let directory = setup.directory.unwrap_or_else(|| Arc::new(TempDir::new().unwrap()));
        let ui = Arc::new(FakeUi {
            dialogs: Queue::default(),
            updates: Queue::default(),
            room: Semaphore::new(setup.room.unwrap_or(Semaphore::MAX_PERMITS)),
        });
        let reports = Arc::new(Reports::default());
        let loadable = Arc::new(Mutex::new(Loadable {
            sources: Sources {
                explicit,
                user_dir: setup.user_dir,
                disabled: setup.disabled,
                ..Sources::default()
            },
            limits: setup.limits,
            own_limits: setup.own_limits,
        }));
        let asked = Arc::clone(&loadable);
        let host = ExtensionHost::start(ExtensionHostOptions {
            loadable: Arc::new(move || asked.lock().unwrap().clone()),
            cache_dir: directory.path().join("cache"),
            log_file: directory.path().join("extensions.log"),
            cwd: setup.cwd.unwrap_or_else(|| PathBuf::from("/project")),
            home: None,
            agent_dir: directory.path().join("agent"),
            flags: setup.flags,
            built_in_tools: setup.built_in_tools,
            ui: if setup.no_ui { Arc::new(NoUi) } else { Arc::clone(&ui) as Arc<dyn Ui> },
            reporter: Arc::clone(&reports) as Arc<dyn Reporter>,
            runtime: Handle::current(),
        });
        let (calls, api_calls) = mpsc::unbounded_channel();
        let session = Session::in_memory(Path::new("/project"));
        let this = Arc::new(OnceLock::from(Arc::downgrade(&host)));
        let (web, providers) = (setup.web, Mutex::default());
        let api = Arc::new(FakeApi { session, web, calls, providers, host: this });
        host.attach(Arc::clone(&api) as Arc<dyn HostApi>);
        Self { loadable, host, ui, reports, api, api_calls, directory }
    }

    /// Runs a command to its end.
    pub(crate) async fn command(&self, line: &str) {
        patiently(self.start_command(line)).await;
    }

    pub(crate) fn start_command(&self, line: &str) -> BoxFuture<'static, ()> {
        let (name, arguments) = line.split_once(' ').unwrap_or((line, ""));
        assert_eq!(self.host.find_command(name), CommandLookup::Found, "{name}");
        self.host.run_command(name.to_owned(), arguments.to_owned())
    }

    /// What the extensions make of a call of `bash`.
    pub(crate) async fn bash(&self, command: &str) -> ToolCallVerdict {
        self.bash_until(command, &CancellationToken::new()).await
    }

    pub(crate) async fn bash_until(
        &self,
        command: &str,
        cancel: &CancellationToken,
    ) -> ToolCallVerdict {
        let event = ToolCallEvent {
            tool_call_id: "call-1".into(),
            tool_name: "bash".into(),
            input: arguments(command),
            paths: Vec::new(),
        };
        let recheck = |input: &Map<String, Value>| match input["command"].as_str() {
            Some("") => Err("command must not be empty".to_owned()),
            _ => Ok(Vec::new()),
        };
        patiently(self.host.tool_call(event, &recheck, cancel)).await
    }

    /// The next report as `event: error`.
    pub(crate) async fn report(&self) -> String {
        let report = self.reports.0.next().await;
        format!("{}: {}", report.event, report.error)
    }

    /// What a reload makes of the extensions.
    pub(crate) async fn reload(&self) -> Vec<ReloadedExtension> {
        patiently(self.host.reload(&CancellationToken::new())).await.unwrap()
    }

    /// The log so far.
    pub(crate) async fn log(&self) -> String {
        patiently(self.host.shutdown()).await;
        std::fs::read_to_string(self.directory.path().join("extensions.log")).unwrap_or_default()
    }

    pub(crate) fn cached(&self, extension: &str) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.directory.path().join("cache")) else {
            return Vec::new();
        };
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect()
    }
}

pub(crate) fn arguments(command: &str) -> Map<String, Value> {
    let Value::Object(map) = json!({ "command": command }) else { unreachable!() };
    map
}

pub(crate) fn runs(command: &str) -> ToolCallVerdict {
    ToolCallVerdict::Run(arguments(command))
}

pub(crate) fn blocks(reason: &str) -> ToolCallVerdict {
    ToolCallVerdict::Block(reason.into())
}
