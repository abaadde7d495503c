//! The handle of one extension: what is known of it, and how calls and
//! notifications get into its mailbox. The actor at the other end owns the store.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::HookEvent;

use crate::access::Access;
use crate::bindings::types::Notification;
use crate::call::{Answer, Call, CallError, CallMeta, Reply, Request};
use crate::discovery::Found;
use crate::limits::{Limits, MAX_QUEUED_BUS_BYTES, MAX_STUCK_CALLS, one_line};
use crate::loader::Origin;
use crate::offers::Offers;
use crate::registration::Registration;
use crate::report::{Report, Severity};
use crate::state::{CallKind, Services};

/// What an actor can be told. Bounded by the counters of [`Extension`], because a
/// notification must never wait and a call must never be overtaken.
#[derive(Debug)]
pub(crate) enum Message {
    Call(Box<Request>),
    Notification(NoteKind, Arc<Notification>),
    /// Somebody will call soon: the instance is made now.
    Warm,
    /// Answered when every notification before it has been handled.
    Drain(oneshot::Sender<()>),
}

/// What a notification is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoteKind {
    Hook(HookEvent),
    /// An event of an extension.
    Bus(Arc<BusEvent>),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BusEvent {
    /// `bus:TOPIC`
    pub(crate) name: String,
    /// Which one it is of a chain of events, each sent by a handler of the one before;
    /// from 1.
    pub(crate) hop: u8,
    /// What it takes in a queue.
    pub(crate) bytes: usize,
}

impl NoteKind {
    pub(crate) fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Hook(event) => Cow::Borrowed(event.name()),
            Self::Bus(event) => Cow::Owned(event.name.clone()),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Hook(_) => 0,
            Self::Bus(event) => event.bytes,
        }
    }
}

/// Whether an extension offers something yet.
#[derive(Debug, Clone)]
pub(crate) enum Status {
    Registered(Arc<Registration>),
    Failed,
}

#[derive(Debug)]
pub(crate) struct Extension {
    pub(crate) found: Found,
    pub(crate) services: Arc<Services>,
    status: OnceLock<Status>,
    /// Its own limits, where settings name it by its id.
    limits: OnceLock<Limits>,
    /// What it was loaded from; none until it has been.
    origin: OnceLock<Origin>,
    /// Why it does not take part, for lists.
    problem: OnceLock<String>,
    /// Switched off by settings, or after too many faults.
    disabled: AtomicBool,
    /// Another instance has taken its place, or its file is gone.
    retired: CancellationToken,
    access: OnceLock<Arc<Access>>,
    mailbox: mpsc::UnboundedSender<Message>,
    /// Calls in the mailbox.
    waiting_calls: AtomicUsize,
    /// Notifications in the mailbox and behind it.
    queued_notifications: AtomicUsize,
    /// What the bus events among them take.
    queued_bus_bytes: AtomicUsize,
    overflowed: AtomicBool,
    /// An extension with the same id comes before it; it takes part in nothing.
    shadowed: AtomicBool,
    /// Calls that somebody waits for.
    live_calls: AtomicUsize,
    /// Cancelled calls that the guest has not returned from in time.
    stuck_calls: AtomicUsize,
    recycle: Notify,
    /// What it has added at run time.
    pub(crate) offers: Offers,
}

impl Extension {
    pub(crate) fn new(
        found: Found,
        services: Arc<Services>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Message>) {
        let (mailbox, messages) = mpsc::unbounded_channel();
        let extension = Self {
            found,
            services,
            status: OnceLock::new(),
            limits: OnceLock::new(),
            origin: OnceLock::new(),
            problem: OnceLock::new(),
            disabled: AtomicBool::new(false),
            retired: CancellationToken::new(),
            access: OnceLock::new(),
            mailbox,
            waiting_calls: AtomicUsize::new(0),
            queued_notifications: AtomicUsize::new(0),
            queued_bus_bytes: AtomicUsize::new(0),
            overflowed: AtomicBool::new(false),
            shadowed: AtomicBool::new(false),
            live_calls: AtomicUsize::new(0),
            stuck_calls: AtomicUsize::new(0),
            recycle: Notify::new(),
            offers: Offers::default(),
        };
        (Arc::new(extension), messages)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.found.path
    }

    /// How texts name it: its id, or its file's name before it has registered.
    pub(crate) fn name(&self) -> &str {
        match self.status.get() {
            Some(Status::Registered(registration)) => &registration.id,
            _ => &self.found.name,
        }
    }

    /// Whether its tool of this name, as it is now, overrides a built-in one.
    pub(crate) fn has_override(&self, tool: &str) -> bool {
        let added = self.offers.tools();
        let registered = || self.registration().into_iter().flat_map(|r| r.tools.iter());
        let named = |other: &&crate::registration::Tool| other.name == tool;
        added
            .iter()
            .map(|added| &**added)
            .find(named)
            .or_else(|| registered().find(named))
            .is_some_and(|tool| tool.overrides)
    }

    /// None while it is loading.
    pub(crate) fn status(&self) -> Option<&Status> {
        self.status.get()
    }

    /// None unless it has registered.
    pub(crate) fn registration(&self) -> Option<&Arc<Registration>> {
        match self.status.get() {
            Some(Status::Registered(registration)) => Some(registration),
            Some(Status::Failed) | None => None,
        }
    }

    pub(crate) fn set_status(&self, status: Status) {
        if let Status::Registered(registration) = &status
            && let Some(limits) = self.services.own_limits.get(&registration.id)
        {
            let _ = self.limits.set(*limits);
        }
        // Set once, by the task that loads it.
        let _ = self.status.set(status);
    }

    /// By its id where settings have some for it, else by its file's name.
    pub(crate) fn limits(&self) -> &Limits {
        self.limits.get().unwrap_or(&self.services.limits)
    }

    pub(crate) fn set_origin(&self, origin: Origin) {
        // Set once, by the task that loads it.
        let _ = self.origin.set(origin);
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.get()
    }

    /// It could not be loaded.
    pub(crate) fn set_failed(&self, problem: String) {
        let _ = self.problem.set(problem);
        self.set_status(Status::Failed);
    }

    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.get().map(String::as_str)
    }

    pub(crate) fn set_disabled(&self) {
        self.disabled.store(true, SeqCst);
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.disabled.load(SeqCst)
    }

    /// Its place is taken, or its file is gone: no call begins any more, what runs is
    /// cancelled, and its actor ends.
    pub(crate) fn retire(&self) {
        self.retired.cancel();
    }

    /// Cancelled when the extension is retired.
    pub(crate) const fn retired(&self) -> &CancellationToken {
        &self.retired
    }

    /// None until it has registered.
    pub(crate) fn access(&self) -> Option<&Arc<Access>> {
        self.access.get()
    }

    /// It has registered: what it may reach can be decided.
    pub(crate) fn set_access(&self, content_hash: String) {
        let places = Arc::clone(&self.services.permits.places);
        // Set once, as the status is.
        let _ = self.access.set(Access::new(self.name().to_owned(), content_hash, places));
    }

    pub(crate) fn set_shadowed(&self, is_shadowed: bool) {
        self.shadowed.store(is_shadowed, SeqCst);
    }

    pub(crate) fn is_shadowed(&self) -> bool {
        self.shadowed.load(SeqCst)
    }

    pub(crate) fn report(&self, severity: Severity, event: &str, error: &str) {
        self.services.reporter.report(Report {
            severity,
            extension_path: self.found.path.clone(),
            event: event.to_owned(),
            error: one_line(error),
        });
    }

    pub(crate) fn report_error(&self, event: &str, error: &str) {
        self.report(Severity::Error, event, error);
    }

    /// Puts a call into the mailbox. Calls start in the order of these sends.
    pub(crate) fn send<P, R>(
        self: &Arc<Self>,
        wrap: fn(Call<P, R>) -> Request,
        params: P,
        kind: CallKind,
        event: &'static str,
    ) -> Waiter<R>
    where
        R: Send + 'static,
    {
        let (reply, receiver) = Reply::new();
        let cancel = self.retired.child_token();
        self.live_calls.fetch_add(1, SeqCst);
        let waiter = Waiter {
            receiver: Some(receiver),
            cancel: cancel.clone(),
            extension: Arc::clone(self),
        };
        if self.retired.is_cancelled() {
            reply.settle(Err(CallError::Retired));
            return waiter;
        }
        let most = self.limits().waiting_calls;
        if self.waiting_calls.fetch_add(1, SeqCst) >= most {
            self.waiting_calls.fetch_sub(1, SeqCst);
            reply.settle(Err(CallError::Busy(most)));
            return waiter;
        }
        let meta = CallMeta { kind, event: Cow::Borrowed(event), cancel };
        let call = Call { params, reply, meta };
        if let Err(refused) = self.mailbox.send(Message::Call(Box::new(wrap(call))))
            && let Message::Call(request) = refused.0
        {
            request.fail(self.ended());
        }
        waiter
    }

    /// Why an actor takes no calls any more.
    pub(crate) fn ended(&self) -> CallError {
        if self.retired.is_cancelled() { CallError::Retired } else { CallError::Stopped }
    }

    /// Has the instance made, if there is none, before somebody waits for it.
    pub(crate) fn warm(&self) {
        // An actor that has ended makes no instance.
        let _ = self.mailbox.send(Message::Warm);
    }

    /// The actor has taken a call out of the mailbox.
    pub(crate) fn call_taken(&self) {
        self.waiting_calls.fetch_sub(1, SeqCst);
    }

    /// Queues a notification; never waits.
    pub(crate) fn notify(&self, kind: NoteKind, notification: Arc<Notification>) {
        let bytes = kind.bytes();
        let most = self.limits().queued_notifications;
        let count = self.queued_notifications.fetch_add(1, SeqCst);
        let before = self.queued_bus_bytes.fetch_add(bytes, SeqCst);
        let problem = if count >= most {
            Some(format!("its queue of {most} notifications is full"))
        } else if bytes > 0 && before.saturating_add(bytes) > MAX_QUEUED_BUS_BYTES {
            Some(format!("{MAX_QUEUED_BUS_BYTES} bytes of events of extensions wait for it"))
        } else {
            None
        };
        if let Some(problem) = problem {
            self.notification_taken(&kind);
            if !self.overflowed.swap(true, SeqCst) {
                let problem = format!("{problem}; further ones are dropped until it catches up");
                self.report_error(&kind.name(), &problem);
            }
            return;
        }
        if let Err(refused) = self.mailbox.send(Message::Notification(kind, notification))
            && let Message::Notification(kind, _) = refused.0
        {
            self.notification_taken(&kind);
        }
    }

    /// The actor has started a notification, or passed it over.
    pub(crate) fn notification_taken(&self, kind: &NoteKind) {
        self.queued_notifications.fetch_sub(1, SeqCst);
        self.queued_bus_bytes.fetch_sub(kind.bytes(), SeqCst);
    }

    /// Completes when every notification so far has been handled.
    pub(crate) async fn drained(&self) {
        let (sender, receiver) = oneshot::channel();
        if self.mailbox.send(Message::Drain(sender)).is_ok() {
            // An actor that has ended has nothing left to handle.
            let _ = receiver.await;
        }
    }

    /// A new instance begins: what was said of the old one no longer counts.
    pub(crate) fn forget_recycling(&self) {
        // Whoever still finds a stuck call says so again.
        let _ = self.recycle.notified().now_or_never();
    }

    /// Completes when the instance holds cancelled calls that it does not return from
    /// and nobody else needs it.
    pub(crate) async fn must_be_recycled(&self) {
        loop {
            self.recycle.notified().await;
            let stuck = self.stuck_calls.load(SeqCst);
            if stuck >= MAX_STUCK_CALLS || (stuck > 0 && self.live_calls.load(SeqCst) == 0) {
                return;
            }
        }
    }
}

/// Waits for one call. Dropping it cancels the call: its dialogs settle, and the
/// guest is given time to return.
#[derive(Debug)]
pub(crate) struct Waiter<R: Send + 'static> {
    receiver: Option<oneshot::Receiver<Answer<R>>>,
    cancel: CancellationToken,
    extension: Arc<Extension>,
}

impl<R: Send + 'static> Waiter<R> {
    /// `Ok(None)`: the component does not export this function.
    pub(crate) async fn wait(mut self, cancel: &CancellationToken) -> Answer<R> {
        let Some(receiver) = &mut self.receiver else { return Err(CallError::Stopped) };
        tokio::select! {
            biased;
            result = receiver => {
                self.receiver = None;
                result.unwrap_or_else(|_| Err(self.extension.ended()))
            }
            () = cancel.cancelled() => Err(CallError::Cancelled),
        }
    }
}

impl<R: Send + 'static> Drop for Waiter<R> {
    fn drop(&mut self) {
        let extension = &self.extension;
        let others = extension.live_calls.fetch_sub(1, SeqCst) - 1;
        if others == 0 && extension.stuck_calls.load(SeqCst) > 0 {
            extension.recycle.notify_one();
        }
        if let Some(receiver) = self.receiver.take() {
            self.cancel.cancel();
            let reaper = reap(Arc::clone(extension), receiver);
            extension.services.runtime.spawn(reaper);
        }
    }
}

/// Sees to it that a cancelled call ends, by itself or with its instance.
async fn reap<R>(extension: Arc<Extension>, mut receiver: oneshot::Receiver<R>) {
    let grace = extension.limits().cancel_grace;
    let mut is_stuck = false;
    while tokio::time::timeout(grace, &mut receiver).await.is_err() {
        if !is_stuck {
            is_stuck = true;
            extension.stuck_calls.fetch_add(1, SeqCst);
        }
        extension.recycle.notify_one();
    }
    if is_stuck {
        extension.stuck_calls.fetch_sub(1, SeqCst);
    }
}
