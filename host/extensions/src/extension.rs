//! The handle of one extension: what is known of it, and how calls and
//! notifications get into its mailbox. The actor at the other end owns the store.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::HookEvent;

use crate::bindings::types::Notification;
use crate::call::{Answer, Call, CallError, CallMeta, Reply, Request};
use crate::discovery::Found;
use crate::limits::{MAX_QUEUED_NOTIFICATIONS, MAX_STUCK_CALLS, MAX_WAITING_CALLS, one_line};
use crate::registration::Registration;
use crate::report::{Report, Severity};
use crate::state::{CallKind, Services};

/// What an actor can be told. Bounded by the counters of [`Extension`], because a
/// notification must never wait and a call must never be overtaken.
#[derive(Debug)]
pub(crate) enum Message {
    Call(Request),
    Notification(HookEvent, Arc<Notification>),
    /// Somebody will call soon: the instance is made now.
    Warm,
    /// Answered when every notification before it has been handled.
    Drain(oneshot::Sender<()>),
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
    mailbox: mpsc::UnboundedSender<Message>,
    /// Calls in the mailbox.
    waiting_calls: AtomicUsize,
    /// Notifications in the mailbox and behind it.
    queued_notifications: AtomicUsize,
    overflowed: AtomicBool,
    /// An extension with the same id comes before it; it takes part in nothing.
    shadowed: AtomicBool,
    /// Calls that somebody waits for.
    live_calls: AtomicUsize,
    /// Cancelled calls that the guest has not returned from in time.
    stuck_calls: AtomicUsize,
    recycle: Notify,
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
            mailbox,
            waiting_calls: AtomicUsize::new(0),
            queued_notifications: AtomicUsize::new(0),
            overflowed: AtomicBool::new(false),
            shadowed: AtomicBool::new(false),
            live_calls: AtomicUsize::new(0),
            stuck_calls: AtomicUsize::new(0),
            recycle: Notify::new(),
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

    /// None while it is loading.
    pub(crate) fn status(&self) -> Option<&Status> {
        self.status.get()
    }

    pub(crate) fn set_status(&self, status: Status) {
        // Set once, by the task that loads it.
        let _ = self.status.set(status);
    }

    pub(crate) fn set_shadowed(&self) {
        self.shadowed.store(true, SeqCst);
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
        let cancel = CancellationToken::new();
        self.live_calls.fetch_add(1, SeqCst);
        let waiter = Waiter {
            receiver: Some(receiver),
            cancel: cancel.clone(),
            extension: Arc::clone(self),
        };
        if self.waiting_calls.fetch_add(1, SeqCst) >= MAX_WAITING_CALLS {
            self.waiting_calls.fetch_sub(1, SeqCst);
            reply.settle(Err(CallError::Busy(MAX_WAITING_CALLS)));
            return waiter;
        }
        let call = Call { params, reply, meta: CallMeta { kind, event, cancel } };
        if let Err(refused) = self.mailbox.send(Message::Call(wrap(call)))
            && let Message::Call(request) = refused.0
        {
            request.fail(CallError::Stopped);
        }
        waiter
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
    pub(crate) fn notify(&self, event: HookEvent, notification: Arc<Notification>) {
        if self.queued_notifications.fetch_add(1, SeqCst) >= MAX_QUEUED_NOTIFICATIONS {
            self.queued_notifications.fetch_sub(1, SeqCst);
            if !self.overflowed.swap(true, SeqCst) {
                self.report_error(
                    event.name(),
                    &format!(
                        "its queue of {MAX_QUEUED_NOTIFICATIONS} notifications is full; further ones are dropped until it catches up"
                    ),
                );
            }
            return;
        }
        if self.mailbox.send(Message::Notification(event, notification)).is_err() {
            self.queued_notifications.fetch_sub(1, SeqCst);
        }
    }

    /// The actor has started a notification, or passed it over.
    pub(crate) fn notification_taken(&self) {
        self.queued_notifications.fetch_sub(1, SeqCst);
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
                result.unwrap_or(Err(CallError::Stopped))
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
    let grace = extension.services.limits.cancel_grace;
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
