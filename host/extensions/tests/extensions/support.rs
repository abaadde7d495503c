//! A host with a front end, an agent and reports that tests can look into.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{CommandLookup, Hooks, ToolCallEvent, ToolCallVerdict};
use wharf_agent::host_api::{Delivery, HostApi, HostApiError};
use wharf_agent::tool::ToolSpec;
use wharf_agent::ui::{Dialog, DialogOutcome, NotifyKind, Ui, UiUpdate};
use wharf_extensions::{ExtensionHost, ExtensionHostOptions, Limits, Report, Reporter, Sources};
use wharf_protocol::message::CustomMessage;
use wharf_protocol::{ImageContent, Model};
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

/// An idle agent with a session in memory.
#[derive(Debug)]
pub(crate) struct FakeApi {
    session: Session,
    pub(crate) calls: mpsc::UnboundedSender<String>,
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
}

pub(crate) struct Fixture {
    pub(crate) host: Arc<ExtensionHost>,
    pub(crate) ui: Arc<FakeUi>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) api_calls: mpsc::UnboundedReceiver<String>,
    pub(crate) directory: Arc<TempDir>,
}

/// How a fixture differs from the usual one.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    /// Of another fixture, for a second start with the same cache.
    pub(crate) directory: Option<Arc<TempDir>>,
    pub(crate) built_in_tools: Vec<String>,
    /// Updates that the front end takes before it is full.
    pub(crate) room: Option<usize>,
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
        let host = ExtensionHost::start(ExtensionHostOptions {
            sources: Sources { explicit, ..Sources::default() },
            cache_dir: directory.path().join("cache"),
            log_file: directory.path().join("extensions.log"),
            cwd: PathBuf::from("/project"),
            limits: setup.limits,
            own_limits: std::collections::HashMap::default(),
            built_in_tools: setup.built_in_tools,
            ui: Arc::clone(&ui) as Arc<dyn Ui>,
            reporter: Arc::clone(&reports) as Arc<dyn Reporter>,
            runtime: Handle::current(),
        });
        let (calls, api_calls) = mpsc::unbounded_channel();
        let session = Session::in_memory(Path::new("/project"));
        host.attach(Arc::new(FakeApi { session, calls }));
        Self { host, ui, reports, api_calls, directory }
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
