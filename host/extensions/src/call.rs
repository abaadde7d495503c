//! One call of an export: its parameters, its reply, and how it can fail.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::bindings::types::{
    BeforeAgentStartAnswer, BeforeAgentStartEvent, CompactDecision, Completion, ContextEvent,
    DiscoveredResources, ForkDecision, InputDecision, InputEvent, ProviderRequestEvent, ReplyEnd,
    ReplyFailure, ReplyRequest, ResourcesDiscoverEvent, SessionBeforeCompactEvent,
    SessionBeforeForkEvent, SessionBeforeSwitchEvent, SessionBeforeTreeEvent,
    SessionDirectoryEvent, SwitchDecision, ToolCallDecision, ToolCallEvent, ToolInvocation,
    ToolOutput, ToolResultEvent, ToolResultPatch, TreeDecision, UserBashDecision, UserBashEvent,
};
use crate::state::CallKind;

/// Why a call gave no answer. Guests' own errors are values, not among these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// This call trapped or used up its budget. Has been reported.
    #[error("{0}")]
    Trapped(String),
    /// Another call of the same instance trapped. The trap has been reported, what
    /// became of this call has not.
    #[error("it was restarted while this call ran, because another of its calls failed: {0}")]
    Restarted(String),
    #[error("the call was cancelled")]
    Cancelled,
    #[error("{}", disabled(*.0))]
    Disabled(usize),
    /// Its extension was reloaded, or its file is gone.
    #[error("it was reloaded or removed before this call was through")]
    Retired,
    #[error("{0} of its calls wait already")]
    Busy(usize),
    #[error("the extensions have been stopped")]
    Stopped,
    /// Its code could not be loaded or instantiated.
    #[error("{0}")]
    Unavailable(String),
}

impl CallError {
    /// True when an `extension_error` has told it already, or when there is nothing
    /// to tell.
    pub(crate) const fn is_reported(&self) -> bool {
        match self {
            Self::Trapped(_) | Self::Cancelled | Self::Stopped => true,
            Self::Restarted(_)
            | Self::Disabled(_)
            | Self::Retired
            | Self::Busy(_)
            | Self::Unavailable(_) => false,
        }
    }
}

/// What is said of an extension after so many faults within a minute.
pub(crate) fn disabled(faults: usize) -> String {
    let faults = match faults {
        1 => "a fault".to_owned(),
        2 => "two faults".to_owned(),
        3 => "three faults".to_owned(),
        more => format!("{more} faults"),
    };
    format!("it is disabled after {faults} within a minute; reload to try again")
}

/// What comes back from a call: `None` where the component has no such export.
pub(crate) type Answer<R> = Result<Option<R>, CallError>;

/// The way back to whoever waits for a call. Settles once.
pub(crate) struct Reply<R>(Mutex<Option<oneshot::Sender<Answer<R>>>>);

impl<R> Reply<R> {
    pub(crate) fn new() -> (Arc<Self>, oneshot::Receiver<Answer<R>>) {
        let (sender, receiver) = oneshot::channel();
        (Arc::new(Self(Mutex::new(Some(sender)))), receiver)
    }

    pub(crate) fn settle(&self, result: Answer<R>) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // Whoever asked may have gone.
            let _ = sender.send(result);
        }
    }
}

impl<R> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

/// A reply whatever its type, for the moment when all of them fail.
pub(crate) trait Fail: Send + Sync + fmt::Debug {
    fn fail(&self, error: CallError);
}

impl<R: Send> Fail for Reply<R> {
    fn fail(&self, error: CallError) {
        self.settle(Err(error));
    }
}

/// What decides how a call is run, whatever it calls.
#[derive(Debug)]
pub(crate) struct CallMeta {
    pub(crate) kind: CallKind,
    /// `command`, `tool`, or the event's name.
    pub(crate) event: Cow<'static, str>,
    /// Its dialogs settle as cancelled when it fires; the guest goes on.
    pub(crate) cancel: CancellationToken,
}

/// A call on its way to an actor.
#[derive(Debug)]
pub(crate) struct Call<P, R> {
    pub(crate) params: P,
    pub(crate) reply: Arc<Reply<R>>,
    pub(crate) meta: CallMeta,
}

/// A call whose event is shared by all extensions that it goes to.
pub(crate) type EventCall<E, R> = Call<(Arc<E>,), Result<R, String>>;

/// Every export that the host calls for somebody who waits.
#[derive(Debug)]
pub(crate) enum Request {
    RunCommand(Call<(String, String), Result<(), String>>),
    CompleteArgument(Call<(String, String), Vec<Completion>>),
    ExecuteTool(Call<(ToolInvocation,), Result<ToolOutput, String>>),
    ToolCall(EventCall<ToolCallEvent, ToolCallDecision>),
    ToolResult(EventCall<ToolResultEvent, ToolResultPatch>),
    Input(EventCall<InputEvent, InputDecision>),
    BeforeAgentStart(EventCall<BeforeAgentStartEvent, BeforeAgentStartAnswer>),
    SessionBeforeSwitch(EventCall<SessionBeforeSwitchEvent, SwitchDecision>),
    SessionBeforeFork(EventCall<SessionBeforeForkEvent, ForkDecision>),
    SessionBeforeTree(EventCall<SessionBeforeTreeEvent, TreeDecision>),
    SessionDirectory(EventCall<SessionDirectoryEvent, Option<String>>),
    SessionBeforeCompact(EventCall<SessionBeforeCompactEvent, CompactDecision>),
    Context(EventCall<ContextEvent, Option<String>>),
    ProviderPayload(EventCall<ProviderRequestEvent, Option<String>>),
    ResourcesDiscover(EventCall<ResourcesDiscoverEvent, DiscoveredResources>),
    UserBash(EventCall<UserBashEvent, UserBashDecision>),
    StreamReply(Call<(ReplyRequest,), Result<ReplyEnd, ReplyFailure>>),
}

impl<P, R: Send + 'static> Call<P, R> {
    fn parts(&self) -> (&CallMeta, Arc<dyn Fail>) {
        (&self.meta, Arc::clone(&self.reply) as Arc<dyn Fail>)
    }
}

impl Request {
    pub(crate) fn parts(&self) -> (&CallMeta, Arc<dyn Fail>) {
        match self {
            Self::RunCommand(call) => call.parts(),
            Self::CompleteArgument(call) => call.parts(),
            Self::ExecuteTool(call) => call.parts(),
            Self::ToolCall(call) => call.parts(),
            Self::ToolResult(call) => call.parts(),
            Self::Input(call) => call.parts(),
            Self::BeforeAgentStart(call) => call.parts(),
            Self::SessionBeforeSwitch(call) => call.parts(),
            Self::SessionBeforeFork(call) => call.parts(),
            Self::SessionBeforeTree(call) => call.parts(),
            Self::SessionDirectory(call) => call.parts(),
            Self::SessionBeforeCompact(call) => call.parts(),
            Self::Context(call) => call.parts(),
            Self::ProviderPayload(call) => call.parts(),
            Self::ResourcesDiscover(call) => call.parts(),
            Self::UserBash(call) => call.parts(),
            Self::StreamReply(call) => call.parts(),
        }
    }

    pub(crate) fn fail(&self, error: CallError) {
        self.parts().1.fail(error);
    }
}
