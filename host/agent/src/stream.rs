//! One attempt at a reply: the request, the stream, and the message so far.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use wharf_protocol::partial::ReplyOrigin;
use wharf_protocol::{
    AgentMessage, AssistantContent, AssistantMessage, AssistantMessageEvent, Event, Model,
    PartialMessage, StopReason, StreamDelta, Usage,
};
use wharf_provider::{Provider, ProviderError, ProviderEvent, Request};

use crate::agent::Agent;
use crate::hooks::{HookEvent, HookNotification};
use crate::output::{AgentOutput, deliver};
use crate::run::{RunContext, now_millis};

/// How often extensions hear of a growing message, at most.
const UPDATE_INTERVAL: Duration = Duration::from_millis(50);

/// Calls whose arguments could not be read, by id, with the reason.
pub(crate) type BrokenCalls = HashMap<String, String>;

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum End {
    Complete { stop_reason: StopReason, usage: Usage },
    Failed(ProviderError),
    Aborted,
}

/// A reply under way, and then what came of it.
#[derive(Debug)]
pub(crate) struct Attempt {
    partial: PartialMessage,
    /// Blocks that have ended; a reply that broke off keeps no half of a call.
    ended: Vec<bool>,
    pub(crate) broken: BrokenCalls,
    /// `message_start` has left, and nothing has made it void.
    pub(crate) started: bool,
    begun: Instant,
    /// When extensions last heard of it; none where nobody listens.
    last_update: Option<Instant>,
}

impl Attempt {
    pub(crate) fn new(model: &Model, listening: bool) -> Self {
        Self {
            partial: PartialMessage::new(ReplyOrigin {
                api: model.api.clone(),
                provider: model.provider.clone(),
                model: model.id.clone(),
                timestamp: now_millis(),
            }),
            ended: Vec::new(),
            broken: BrokenCalls::new(),
            started: false,
            begun: Instant::now(),
            last_update: listening.then(Instant::now),
        }
    }

    /// Since the request was sent.
    pub(crate) fn duration(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn into_complete(
        self,
        stop_reason: StopReason,
        usage: Usage,
    ) -> (AssistantMessage, BrokenCalls) {
        let mut message = self.partial.into_message();
        message.stop_reason = stop_reason;
        message.usage = usage;
        (message, self.broken)
    }

    /// What is left of a reply that broke off: whole blocks, and the text so far; nothing
    /// of one that is void.
    pub(crate) fn into_failed(self, stop_reason: StopReason, problem: String) -> AssistantMessage {
        let mut message = self.partial.into_message();
        if !self.started {
            message.content.clear();
        }
        let mut whole = self.ended.into_iter().chain(std::iter::repeat(false));
        message.content.retain(|block| {
            whole.next() == Some(true) || !matches!(block, AssistantContent::ToolCall(_))
        });
        message.stop_reason = stop_reason;
        message.error_message = Some(problem);
        message
    }

    fn note(&mut self, delta: &StreamDelta) {
        self.partial.apply(delta);
        match delta {
            StreamDelta::TextStart { .. }
            | StreamDelta::ThinkingStart { .. }
            | StreamDelta::ToolCallStart { .. } => self.ended.push(false),
            StreamDelta::TextEnd { index, .. } | StreamDelta::ThinkingEnd { index, .. } => {
                self.mark_ended(*index);
            }
            StreamDelta::ToolCallEnd { index, call, problem } => {
                self.mark_ended(*index);
                if let Some(problem) = problem {
                    self.broken.insert(call.id.clone(), problem.clone());
                }
            }
            StreamDelta::Text { .. }
            | StreamDelta::Thinking { .. }
            | StreamDelta::ToolCall { .. } => {}
        }
    }

    fn mark_ended(&mut self, index: usize) {
        if let Some(flag) = self.ended.get_mut(index) {
            *flag = true;
        }
    }
}

/// What front ends call a piece of a reply; none: it adds nothing.
fn update_of(delta: &StreamDelta) -> Option<AssistantMessageEvent> {
    let partial = None;
    Some(match delta {
        StreamDelta::Text { index, delta } => AssistantMessageEvent::TextDelta {
            content_index: *index,
            delta: delta.clone(),
            partial,
        },
        StreamDelta::Thinking { index, delta } => AssistantMessageEvent::ThinkingDelta {
            content_index: *index,
            delta: delta.clone(),
            partial,
        },
        StreamDelta::ToolCall { index, delta, .. } => AssistantMessageEvent::ToolCallDelta {
            content_index: *index,
            delta: delta.clone(),
            partial,
        },
        _ => return None,
    })
}

impl Agent {
    /// Sends a request and streams what comes: `message_start` with the first piece, and
    /// the updates, leave here.
    pub(crate) async fn attempt(
        &self,
        provider: &dyn Provider,
        request: Request,
        context: &RunContext,
    ) -> (Attempt, End) {
        let listening = self.inner.hooks.subscribes(HookEvent::MessageUpdate);
        let mut attempt = Attempt::new(&request.model, listening);
        if context.cancel.is_cancelled() {
            return (attempt, End::Aborted);
        }
        let mut events = provider.stream(request);
        loop {
            let event = tokio::select! {
                biased;
                () = context.cancel.cancelled() => return (attempt, End::Aborted),
                event = events.next() => event,
            };
            match event {
                Some(Ok(ProviderEvent::Delta(delta))) => {
                    self.stream_delta(&mut attempt, delta).await;
                }
                Some(Ok(ProviderEvent::Done { stop_reason, usage })) => {
                    return (attempt, End::Complete { stop_reason, usage });
                }
                Some(Err(error)) => return (attempt, End::Failed(error)),
                None => return (attempt, End::Failed(ProviderError::dropped(""))),
            }
        }
    }

    async fn stream_delta(&self, attempt: &mut Attempt, delta: StreamDelta) {
        if !attempt.started {
            attempt.started = true;
            self.start_message(attempt.partial.message()).await;
        }
        attempt.note(&delta);
        // Only what adds to the message takes a slot: the beginning of a block must not
        // swallow what follows it.
        if let Some(last) = &mut attempt.last_update
            && last.elapsed() >= UPDATE_INTERVAL
            && let Some(event) = update_of(&delta)
        {
            *last = Instant::now();
            self.notify_update(attempt.partial.message(), event);
        }
        deliver(&*self.inner.outlet, AgentOutput::Delta(delta)).await;
    }

    /// Tells extensions of the message so far; front ends build their own.
    fn notify_update(&self, message: &AssistantMessage, event: AssistantMessageEvent) {
        self.inner.hooks.notify(HookNotification::Wire(Arc::new(Event::MessageUpdate {
            message: Some(Arc::new(AgentMessage::Assistant(message.clone()))),
            assistant_message_event: event,
        })));
    }

    pub(crate) async fn start_message(&self, message: &AssistantMessage) {
        let message = Arc::new(AgentMessage::Assistant(message.clone()));
        self.emit(Event::MessageStart { message }).await;
    }
}
