//! The task that owns an extension's store: it starts calls in the order in which
//! they came, lets them overlap, and replaces the instance after a fault.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use wasmtime::component::{Accessor, ComponentNamedList, Lift, Lower, TypedFunc};
use wasmtime::{AsContextMut, Store};
use wharf_agent::hooks::HookEvent;

use crate::bindings::types::Notification;
use crate::budget::{GuestClock, in_words, metered};
use crate::call::{Answer, Call, CallError, CallMeta, Fail, Request, disabled};
use crate::code::Exports;
use crate::extension::{Extension, Message, NoteKind};
use crate::fault::{Faults, backtrace, describe};
use crate::limits::MAX_IN_FLIGHT;
use crate::live::Alive;
use crate::loader::{Loaded, Loader};
use crate::log_file::Level;
use crate::state::{CallKind, CallRecord, Life, Mode, State, root_task};

/// Work of the guest that no call asked for.
const BACKGROUND: &str = "background";

pub(crate) struct Actor {
    pub(crate) extension: Arc<Extension>,
    pub(crate) loader: Arc<Loader>,
    pub(crate) loaded: Loaded,
    pub(crate) mailbox: mpsc::UnboundedReceiver<Message>,
    subscriptions: Vec<HookEvent>,
    /// `bus:TOPIC`, as it subscribes to them.
    topics: Vec<String>,
    /// Notifications that wait for the one that is being handled.
    backlog: VecDeque<(NoteKind, Arc<Notification>)>,
    drains: Vec<oneshot::Sender<()>>,
    /// `session_start` has been handed to an instance, so a new one gets it again.
    session_started: bool,
    faults: Faults,
    is_disabled: bool,
    _alive: Alive,
}

/// How an instance came to its end.
enum End {
    Fault(wasmtime::Error),
    /// It held cancelled calls and did not let go.
    Stuck,
    /// Nobody can send any more, or it was retired and its calls have returned.
    Closed,
    /// It was retired, and calls did not return.
    Retired,
}

/// A finished call or notification.
enum Finished {
    Call,
    Notification,
}

impl Actor {
    pub(crate) fn new(
        extension: Arc<Extension>,
        loader: Arc<Loader>,
        loaded: Loaded,
        mailbox: mpsc::UnboundedReceiver<Message>,
    ) -> Self {
        let subscriptions = loaded.registration.events().0;
        let topics =
            loaded.registration.topics().into_iter().map(|topic| format!("bus:{topic}")).collect();
        let alive = loader.live.actor();
        Self {
            extension,
            loader,
            loaded,
            mailbox,
            subscriptions,
            topics,
            backlog: VecDeque::new(),
            drains: Vec::new(),
            session_started: false,
            faults: Faults::default(),
            is_disabled: false,
            _alive: alive,
        }
    }

    /// Runs until the extension is retired; the host aborts it at shutdown.
    pub(crate) async fn run(mut self) {
        self.work().await;
        self.mailbox.close();
        while let Ok(message) = self.mailbox.try_recv() {
            if let Some(request) = self.accept(message) {
                request.fail(self.extension.ended());
            }
        }
        self.forget_backlog();
        self.answer_drains();
    }

    async fn work(&mut self) {
        let retired = self.extension.retired().clone();
        loop {
            let message = tokio::select! {
                biased;
                () = retired.cancelled() => return,
                message = self.mailbox.recv() => match message {
                    Some(message) => message,
                    None => return,
                },
            };
            let warm = matches!(message, Message::Warm) && !self.is_disabled;
            let call = self.accept(message);
            if call.is_none() && self.backlog.is_empty() && !warm {
                self.answer_drains();
                continue;
            }
            self.live(call).await;
        }
    }

    /// Sorts a message: the call to start now, if it is one.
    fn accept(&mut self, message: Message) -> Option<Request> {
        match message {
            Message::Call(request) => {
                self.extension.call_taken();
                let (meta, reply) = request.parts();
                if self.extension.retired().is_cancelled() {
                    reply.fail(CallError::Retired);
                    return None;
                }
                if meta.cancel.is_cancelled() {
                    reply.fail(CallError::Cancelled);
                    return None;
                }
                if self.is_disabled {
                    reply.fail(CallError::Disabled(self.extension.limits().faults_per_minute));
                    return None;
                }
                Some(*request)
            }
            Message::Notification(kind, notification) => {
                let subscribed = match &kind {
                    NoteKind::Hook(event) => self.subscriptions.contains(event),
                    NoteKind::Bus(event) => self.topics.contains(&event.name),
                };
                let wanted = subscribed
                    && !self.is_disabled
                    && !self.extension.retired().is_cancelled()
                    && !self.extension.is_shadowed();
                if wanted {
                    self.backlog.push_back((kind, notification));
                } else {
                    self.extension.notification_taken(&kind);
                }
                None
            }
            Message::Warm => None,
            Message::Drain(done) => {
                self.drains.push(done);
                None
            }
        }
    }

    fn answer_drains(&mut self) {
        for done in self.drains.drain(..) {
            // Whoever waited may have given up.
            let _ = done.send(());
        }
    }

    /// One life of an instance, from the call or notification that needs it to its end.
    async fn live(&mut self, first: Option<Request>) {
        let rest = self.faults.rest(Instant::now());
        if !rest.is_zero() {
            let rest = tokio::time::sleep(rest);
            // Whoever is retired makes no instance any more.
            if self.extension.retired().run_until_cancelled(rest).await.is_none() {
                if let Some(request) = first {
                    request.fail(CallError::Retired);
                }
                return;
            }
        }
        self.extension.forget_recycling();
        let code = match self.loader.code(&self.extension.found, &self.loaded).await {
            Ok(code) => code,
            Err(error) => return self.give_up(first, error.event(), &error.to_string()),
        };
        let runtime = match self.loader.runtime.get() {
            Ok(runtime) => runtime,
            Err(error) => return self.give_up(first, "load", &error),
        };
        let clock = GuestClock::new();
        let mut store = State::store(
            &runtime,
            // Its limits go by the name of its file or by its id.
            self.extension.services.of(self.extension.name()),
            self.extension.name().into(),
            Mode::Serving(Arc::clone(&self.extension)),
            Arc::clone(&clock),
        );
        store.data_mut().background_cancel = self.extension.retired().child_token();
        let instantiate = code.instantiate(&mut store);
        let exports = metered(Arc::clone(&clock), Arc::clone(&runtime.ticker), instantiate).await;
        let exports = match exports {
            Ok(exports) => exports,
            Err(error) => {
                let text = format!("its instance cannot start: {}", describe(&error, store.data()));
                store.data().log_block(Level::Error, &backtrace("load", &error, store.data()));
                self.give_up(first, "load", &text);
                return self.record_fault();
            }
        };
        let extension = Arc::clone(&self.extension);
        let end = {
            let serve = async |accessor: &Accessor<State>| {
                self.serve(accessor, exports, first).await;
            };
            let run = metered(clock, Arc::clone(&runtime.ticker), store.run_concurrent(serve));
            tokio::select! {
                biased;
                result = run => match result {
                    Ok(()) => End::Closed,
                    Err(error) => End::Fault(error),
                },
                () = extension.must_be_recycled() => End::Stuck,
                () = async {
                    extension.retired().cancelled().await;
                    tokio::time::sleep(extension.limits().cancel_grace).await;
                } => End::Retired,
            }
        };
        self.bury(store, end);
    }

    /// Nothing can be run: whoever waits is told, and so is the person.
    fn give_up(&mut self, first: Option<Request>, event: &str, error: &str) {
        self.extension.report_error(event, error);
        if let Some(request) = first {
            request.fail(CallError::Trapped(error.to_owned()));
        }
        self.forget_backlog();
        self.answer_drains();
    }

    fn forget_backlog(&mut self) {
        for (kind, _) in self.backlog.drain(..) {
            self.extension.notification_taken(&kind);
        }
    }

    /// After the end of an instance: reports it, fails its calls, and counts.
    fn bury(&mut self, mut store: Store<State>, end: End) {
        let mut frames = None;
        let (culprit, error) = match end {
            End::Closed => return,
            End::Retired => {
                let calls = std::mem::take(&mut store.data_mut().calls);
                drop(store);
                calls.values().for_each(|call| call.reply.fail(CallError::Retired));
                return;
            }
            End::Fault(error) => {
                let culprit = root_task(&mut store.as_context_mut());
                let about = culprit
                    .and_then(|id| store.data().calls.get(&id))
                    .map_or_else(|| BACKGROUND.to_owned(), |call| call.kind.about(&call.event));
                frames = Some(backtrace(&about, &error, store.data()));
                (culprit, describe(&error, store.data()))
            }
            End::Stuck => {
                let grace = self.extension.limits().cancel_grace;
                let error =
                    format!("it did not return within {} of being cancelled", in_words(grace));
                let stuck = &store.data().calls;
                (
                    stuck.iter().find(|(_, call)| call.cancel.is_cancelled()).map(|(id, _)| *id),
                    error,
                )
            }
        };
        if let Some(frames) = frames {
            store.data().log_block(Level::Error, &frames);
        }
        let calls = std::mem::take(&mut store.data_mut().calls);
        let (event, text) = match culprit.and_then(|id| calls.get(&id)) {
            Some(call) => (&*call.event, call.kind.about(&error)),
            None => (BACKGROUND, error.clone()),
        };
        self.extension.report_error(event, &text);
        self.record_fault();
        // Its open dialogs settle before anybody hears that the calls have failed.
        drop(store);
        for (id, call) in calls {
            call.reply.fail(if Some(id) == culprit {
                CallError::Trapped(error.clone())
            } else {
                CallError::Restarted(error.clone())
            });
        }
        self.answer_drains_if_idle();
    }

    fn answer_drains_if_idle(&mut self) {
        if self.backlog.is_empty() {
            self.answer_drains();
        }
    }

    fn record_fault(&mut self) {
        let most = self.extension.limits().faults_per_minute;
        if self.faults.record(Instant::now()) >= most {
            self.is_disabled = true;
            self.extension.set_disabled();
            self.forget_backlog();
            self.extension.withdraw_offers();
            self.extension.report_error("load", &disabled(most));
        }
    }

    /// Starts what comes and settles what ends, until the store is dropped.
    async fn serve(
        &mut self,
        accessor: &Accessor<State>,
        exports: Exports,
        first: Option<Request>,
    ) {
        let retired = self.extension.retired().clone();
        let mut running = FuturesUnordered::new();
        let mut is_notifying = false;
        if self.session_started && self.subscriptions.contains(&HookEvent::SessionStart) {
            is_notifying = true;
            let note = Arc::new(Notification::SessionStart);
            running.push(self.notification(
                accessor,
                exports,
                NoteKind::Hook(HookEvent::SessionStart),
                note,
            ));
        }
        let mut next = first;
        loop {
            if let Some(request) = next.take() {
                running.push(begin(accessor, exports, request));
            }
            if retired.is_cancelled() {
                self.forget_backlog();
                if running.is_empty() {
                    return;
                }
            }
            if !is_notifying && let Some((kind, note)) = self.backlog.pop_front() {
                self.extension.notification_taken(&kind);
                self.session_started |= kind == NoteKind::Hook(HookEvent::SessionStart);
                is_notifying = true;
                running.push(self.notification(accessor, exports, kind, note));
            }
            if !is_notifying {
                self.answer_drains();
            }
            tokio::select! {
                biased;
                Some(finished) = running.next(), if !running.is_empty() => {
                    if matches!(finished, Finished::Notification) {
                        is_notifying = false;
                    }
                }
                () = retired.cancelled(), if !retired.is_cancelled() => {}
                message = self.mailbox.recv(), if running.len() < MAX_IN_FLIGHT => match message {
                    Some(message) => next = self.accept(message),
                    None => return,
                },
            }
        }
    }

    /// Hands a notification to the guest; reports what it gives back.
    fn notification<'a>(
        &self,
        accessor: &'a Accessor<State>,
        exports: Exports,
        kind: NoteKind,
        notification: Arc<Notification>,
    ) -> BoxFuture<'a, Finished> {
        let event = kind.name();
        let record = CallMeta {
            kind: match &kind {
                NoteKind::Hook(_) => CallKind::Event,
                NoteKind::Bus(event) => CallKind::Bus { hop: event.hop },
            },
            event: event.clone(),
            cancel: self.extension.retired().child_token(),
        };
        let call =
            start(accessor, exports.on_notification, (notification,), record, Arc::new(Nobody));
        let extension = Arc::clone(&self.extension);
        Box::pin(async move {
            if let Ok(Some(Err(error))) = call.await {
                extension.report_error(&event, &error);
            }
            Finished::Notification
        })
    }
}

/// For notifications, which nobody waits for.
#[derive(Debug)]
struct Nobody;

impl Fail for Nobody {
    fn fail(&self, _error: CallError) {}
}

fn begin(
    accessor: &Accessor<State>,
    exports: Exports,
    request: Request,
) -> BoxFuture<'_, Finished> {
    match request {
        Request::RunCommand(call) => begin_call(accessor, exports.run_command, call),
        Request::CompleteArgument(call) => begin_call(accessor, exports.complete_argument, call),
        Request::ExecuteTool(call) => begin_call(accessor, exports.execute_tool, call),
        Request::ToolCall(call) => begin_call(accessor, exports.on_tool_call, call),
        Request::ToolResult(call) => begin_call(accessor, exports.on_tool_result, call),
        Request::Input(call) => begin_call(accessor, exports.on_input, call),
        Request::BeforeAgentStart(call) => {
            begin_call(accessor, exports.on_before_agent_start, call)
        }
        Request::SessionBeforeSwitch(call) => {
            begin_call(accessor, exports.on_session_before_switch, call)
        }
        Request::SessionBeforeFork(call) => {
            begin_call(accessor, exports.on_session_before_fork, call)
        }
        Request::SessionBeforeTree(call) => {
            begin_call(accessor, exports.on_session_before_tree, call)
        }
        Request::SessionDirectory(call) => begin_call(accessor, exports.on_session_directory, call),
        Request::SessionBeforeCompact(call) => {
            begin_call(accessor, exports.on_session_before_compact, call)
        }
        Request::Context(call) => begin_call(accessor, exports.on_context, call),
        Request::ProviderPayload(call) => {
            begin_call(accessor, exports.on_before_provider_request, call)
        }
        Request::ResourcesDiscover(call) => {
            begin_call(accessor, exports.on_resources_discover, call)
        }
        Request::UserBash(call) => begin_call(accessor, exports.on_user_bash, call),
        Request::StreamReply(call) => begin_call(accessor, exports.stream_reply, call),
    }
}

fn begin_call<P, R>(
    accessor: &Accessor<State>,
    function: Option<TypedFunc<P, (R,)>>,
    call: Call<P, R>,
) -> BoxFuture<'_, Finished>
where
    P: ComponentNamedList + Lower + Send + Sync + 'static,
    R: Send + Sync + 'static,
    (R,): ComponentNamedList + Lift,
{
    let Call { params, reply, meta } = call;
    let fail = Arc::clone(&reply) as Arc<dyn Fail>;
    let call = start(accessor, function, params, meta, fail);
    Box::pin(async move {
        reply.settle(call.await);
        Finished::Call
    })
}

/// Queues the guest call now; the future completes when the guest has returned. A
/// fault drops the future, and the record's `reply` is what is left of the call.
fn start<'a, P, R>(
    accessor: &'a Accessor<State>,
    function: Option<TypedFunc<P, (R,)>>,
    params: P,
    meta: CallMeta,
    reply: Arc<dyn Fail>,
) -> impl Future<Output = Answer<R>> + Send + use<'a, P, R>
where
    P: ComponentNamedList + Lower + Send + Sync + 'static,
    R: Send + Sync + 'static,
    (R,): ComponentNamedList + Lift,
{
    let started = function.map(|function| {
        accessor.with(|mut access| {
            let call = function.start_call_concurrent(access.as_context_mut(), params)?;
            let state = access.data_mut();
            let CallMeta { kind, event, cancel } = meta;
            let budget = kind.budget(&state.services.limits);
            let life = Life::of(&cancel);
            let record = CallRecord { kind, event, budget, cancel, reply, life };
            state.calls.insert(call.task(), record);
            Ok::<_, wasmtime::Error>((function, call))
        })
    });
    async move {
        let (function, call) = match started {
            None => return Ok(None),
            Some(Ok(started)) => started,
            Some(Err(error)) => return Err(CallError::Unavailable(format!("{error:#}"))),
        };
        let task = call.task();
        let result = function.finish_call_concurrent(accessor, call).await;
        accessor.with(|mut access| access.data_mut().calls.remove(&task));
        match result {
            Ok((value,)) => Ok(Some(value)),
            Err(error) => Err(CallError::Unavailable(format!("{error:#}"))),
        }
    }
}
