//! The task that owns an extension's store: it starts calls in the order in which
//! they came, lets them overlap, and replaces the instance after a fault.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use wasmtime::component::{Accessor, ComponentNamedList, Lift, Lower, TypedFunc};
use wasmtime::{AsContextMut, Store};
use wharf_agent::hooks::HookEvent;

use crate::bindings::types::Notification;
use crate::budget::{GuestClock, in_words, metered};
use crate::call::{Answer, Call, CallError, CallMeta, Fail, Request};
use crate::code::Exports;
use crate::extension::{Extension, Message};
use crate::fault::{Faults, describe};
use crate::limits::MAX_IN_FLIGHT;
use crate::loader::{Loaded, Loader};
use crate::state::{CallKind, CallRecord, Mode, State, root_task};

/// Work of the guest that no call asked for.
const BACKGROUND: &str = "background";

pub(crate) struct Actor {
    pub(crate) extension: Arc<Extension>,
    pub(crate) loader: Arc<Loader>,
    pub(crate) loaded: Loaded,
    pub(crate) mailbox: mpsc::UnboundedReceiver<Message>,
    subscriptions: Vec<HookEvent>,
    /// Notifications that wait for the one that is being handled.
    backlog: VecDeque<(HookEvent, Arc<Notification>)>,
    drains: Vec<oneshot::Sender<()>>,
    /// `session_start` has been handed to an instance, so a new one gets it again.
    session_started: bool,
    faults: Faults,
    is_disabled: bool,
}

/// How an instance came to its end.
enum End {
    Fault(wasmtime::Error),
    /// It held cancelled calls and did not let go.
    Stuck,
    /// Nobody can send any more.
    Closed,
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
        Self {
            extension,
            loader,
            loaded,
            mailbox,
            subscriptions,
            backlog: VecDeque::new(),
            drains: Vec::new(),
            session_started: false,
            faults: Faults::default(),
            is_disabled: false,
        }
    }

    /// Runs until nobody can send any more; the host aborts it at shutdown.
    pub(crate) async fn run(mut self) {
        while let Some(message) = self.mailbox.recv().await {
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
                if meta.cancel.is_cancelled() {
                    reply.fail(CallError::Cancelled);
                    return None;
                }
                if self.is_disabled {
                    reply.fail(CallError::Disabled);
                    return None;
                }
                Some(request)
            }
            Message::Notification(event, notification) => {
                let wanted = self.subscriptions.contains(&event)
                    && !self.is_disabled
                    && !self.extension.is_shadowed();
                if wanted {
                    self.backlog.push_back((event, notification));
                } else {
                    self.extension.notification_taken();
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
            tokio::time::sleep(rest).await;
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
            Mode::Serving,
            Arc::clone(&clock),
        );
        let instantiate = code.instantiate(&mut store);
        let exports = metered(Arc::clone(&clock), Arc::clone(&runtime.ticker), instantiate).await;
        let exports = match exports {
            Ok(exports) => exports,
            Err(error) => {
                let text = format!("its instance cannot start: {}", describe(&error, store.data()));
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
        for _ in self.backlog.drain(..) {
            self.extension.notification_taken();
        }
    }

    /// After the end of an instance: reports it, fails its calls, and counts.
    fn bury(&mut self, mut store: Store<State>, end: End) {
        let (culprit, error) = match end {
            End::Closed => return,
            End::Fault(error) => {
                let culprit = root_task(&mut store.as_context_mut());
                (culprit, describe(&error, store.data()))
            }
            End::Stuck => {
                let grace = self.extension.services.limits.cancel_grace;
                let error =
                    format!("it did not return within {} of being cancelled", in_words(grace));
                let stuck = &store.data().calls;
                (
                    stuck.iter().find(|(_, call)| call.cancel.is_cancelled()).map(|(id, _)| *id),
                    error,
                )
            }
        };
        let calls = std::mem::take(&mut store.data_mut().calls);
        let (event, text) = match culprit.and_then(|id| calls.get(&id)) {
            Some(call) => (call.event, call.kind.about(&error)),
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
        if self.faults.record(Instant::now()) {
            self.is_disabled = true;
            self.forget_backlog();
            self.extension.report_error(
                "load",
                "it is disabled after three faults within a minute; restart wharf to try again",
            );
        }
    }

    /// Starts what comes and settles what ends, until the store is dropped.
    async fn serve(
        &mut self,
        accessor: &Accessor<State>,
        exports: Exports,
        first: Option<Request>,
    ) {
        let mut running = FuturesUnordered::new();
        let mut is_notifying = false;
        if self.session_started && self.subscriptions.contains(&HookEvent::SessionStart) {
            is_notifying = true;
            let note = Arc::new(Notification::SessionStart);
            running.push(self.notification(accessor, exports, HookEvent::SessionStart, note));
        }
        let mut next = first;
        loop {
            if let Some(request) = next.take() {
                running.push(begin(accessor, exports, request));
            }
            if !is_notifying && let Some((event, note)) = self.backlog.pop_front() {
                self.extension.notification_taken();
                self.session_started |= event == HookEvent::SessionStart;
                is_notifying = true;
                running.push(self.notification(accessor, exports, event, note));
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
        event: HookEvent,
        notification: Arc<Notification>,
    ) -> BoxFuture<'a, Finished> {
        let record = CallMeta {
            kind: CallKind::Event,
            event: event.name(),
            cancel: CancellationToken::new(),
        };
        let call =
            start(accessor, exports.on_notification, (notification,), record, Arc::new(Nobody));
        let extension = Arc::clone(&self.extension);
        Box::pin(async move {
            if let Ok(Some(Err(error))) = call.await {
                extension.report_error(event.name(), &error);
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
            state.calls.insert(call.task(), CallRecord { kind, event, budget, cancel, reply });
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
