//! One reply of the model: request, stream, and the message that comes of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use wharf_protocol::partial::ReplyOrigin;
use wharf_protocol::{
    AgentMessage, AssistantContent, AssistantMessage, AssistantMessageEvent, Cost, Event, Model,
    PartialMessage, StopReason, StreamDelta, Usage,
};
use wharf_provider::{ProviderEvent, Request};

use crate::agent::Agent;
use crate::conversation::{for_model, without_images};
use crate::hooks::{HookEvent, HookNotification};
use crate::output::{AgentOutput, deliver};
use crate::run::{RunContext, now_millis};

/// How often extensions hear of a growing message, at most.
const UPDATE_INTERVAL: Duration = Duration::from_millis(50);

/// What an aborted reply says of itself, as the reference words it.
const ABORTED: &str = "Request was aborted";

/// Calls whose arguments could not be read, by id, with the reason.
pub(crate) type BrokenCalls = HashMap<String, String>;

/// A reply under way.
struct Stream {
    partial: PartialMessage,
    /// Blocks that have ended; an aborted reply keeps no half of a call.
    ended: Vec<bool>,
    broken: BrokenCalls,
    started: bool,
    /// When extensions last heard of it; none where nobody listens.
    last_update: Option<Instant>,
}

impl Agent {
    /// Asks the model. The reply's `message_start` and updates leave here; its end
    /// is announced by the caller once it is recorded.
    pub(crate) async fn reply(&self, context: &RunContext) -> (AssistantMessage, BrokenCalls) {
        let Some((model, request)) = self.request(context) else {
            let reply = self.failed_reply("no model is selected");
            self.start_message(&reply).await;
            return (reply, BrokenCalls::new());
        };
        let provider = self.registry().provider(&model);
        let Some(provider) = provider else {
            let reply = self.failed_reply(&format!(
                "model {}/{} has no provider; choose another",
                model.provider, model.id
            ));
            self.start_message(&reply).await;
            return (reply, BrokenCalls::new());
        };
        let listening = self.inner.hooks.subscribes(HookEvent::MessageUpdate);
        let mut stream = Stream {
            partial: PartialMessage::new(ReplyOrigin {
                api: model.api.clone(),
                provider: model.provider.clone(),
                model: model.id.clone(),
                timestamp: now_millis(),
            }),
            ended: Vec::new(),
            broken: BrokenCalls::new(),
            started: false,
            last_update: listening.then(Instant::now),
        };
        let mut events = if context.cancel.is_cancelled() {
            futures::stream::empty().boxed()
        } else {
            provider.stream(request)
        };
        let end = loop {
            let event = tokio::select! {
                biased;
                () = context.cancel.cancelled() => break Err((StopReason::Aborted, ABORTED.to_owned())),
                event = events.next() => event,
            };
            match event {
                Some(Ok(ProviderEvent::Delta(delta))) => {
                    self.stream_delta(&mut stream, delta).await
                }
                Some(Ok(ProviderEvent::Done { stop_reason, usage })) => {
                    break Ok((stop_reason, priced(usage, &model)));
                }
                Some(Err(error)) => break Err((StopReason::Error, error.to_string())),
                None => {
                    break Err((StopReason::Error, "the stream ended before the reply".to_owned()));
                }
            }
        };
        self.finish(stream, end).await
    }

    fn request(&self, context: &RunContext) -> Option<(Model, Request)> {
        let state = self.state();
        let model = state.model.clone()?;
        let mut messages = for_model(&state.messages);
        if self.inner.resources.settings.block_images {
            messages = without_images(messages);
        }
        let request = Request {
            model: model.clone(),
            thinking_level: state.thinking_level,
            system_prompt: Arc::clone(&context.system_prompt),
            messages,
            tools: Arc::clone(&context.definitions),
        };
        Some((model, request))
    }

    async fn stream_delta(&self, stream: &mut Stream, delta: StreamDelta) {
        if !stream.started {
            stream.started = true;
            self.start_message(stream.partial.message()).await;
        }
        stream.partial.apply(&delta);
        match &delta {
            StreamDelta::TextStart { .. }
            | StreamDelta::ThinkingStart { .. }
            | StreamDelta::ToolCallStart { .. } => stream.ended.push(false),
            StreamDelta::TextEnd { index, .. } | StreamDelta::ThinkingEnd { index, .. } => {
                mark_ended(&mut stream.ended, *index);
            }
            StreamDelta::ToolCallEnd { index, call, problem } => {
                mark_ended(&mut stream.ended, *index);
                if let Some(problem) = problem {
                    stream.broken.insert(call.id.clone(), problem.clone());
                }
            }
            StreamDelta::Text { .. }
            | StreamDelta::Thinking { .. }
            | StreamDelta::ToolCall { .. } => {}
        }
        if let Some(last) = &mut stream.last_update
            && last.elapsed() >= UPDATE_INTERVAL
        {
            *last = Instant::now();
            self.notify_update(stream.partial.message(), &delta);
        }
        deliver(&*self.inner.outlet, AgentOutput::Delta(delta)).await;
    }

    /// Tells extensions of the message so far; front ends build their own.
    fn notify_update(&self, message: &AssistantMessage, delta: &StreamDelta) {
        let (content_index, delta) = match delta {
            StreamDelta::Text { index, delta } => (*index, delta.clone()),
            _ => return,
        };
        self.inner.hooks.notify(HookNotification::Wire(Arc::new(Event::MessageUpdate {
            message: Some(Arc::new(AgentMessage::Assistant(message.clone()))),
            assistant_message_event: AssistantMessageEvent::TextDelta {
                content_index,
                delta,
                partial: None,
            },
        })));
    }

    async fn start_message(&self, message: &AssistantMessage) {
        let message = Arc::new(AgentMessage::Assistant(message.clone()));
        self.emit(Event::MessageStart { message }).await;
    }

    async fn finish(
        &self,
        stream: Stream,
        end: Result<(StopReason, Usage), (StopReason, String)>,
    ) -> (AssistantMessage, BrokenCalls) {
        let Stream { partial, ended, broken, started, .. } = stream;
        let mut message = partial.into_message();
        match end {
            Ok((stop_reason, usage)) => {
                message.stop_reason = stop_reason;
                message.usage = usage;
            }
            Err((stop_reason, problem)) => {
                let mut index = 0;
                message.content.retain(|block| {
                    let whole = ended.get(index).copied().unwrap_or(false);
                    index += 1;
                    whole || !matches!(block, AssistantContent::ToolCall(_))
                });
                message.stop_reason = stop_reason;
                message.error_message = Some(problem);
            }
        }
        if !started {
            self.start_message(&message).await;
        }
        (message, broken)
    }
}

fn mark_ended(ended: &mut [bool], index: usize) {
    if let Some(flag) = ended.get_mut(index) {
        *flag = true;
    }
}

/// Fills in the total and the cost where the provider gave none.
fn priced(mut usage: Usage, model: &Model) -> Usage {
    if usage.total_tokens == 0 {
        usage.total_tokens = usage.input + usage.output + usage.cache_read + usage.cache_write;
    }
    if usage.cost == Cost::default() {
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let price = |tokens: u64, per_million: f64| tokens as f64 * per_million / 1e6;
        let cost = Cost {
            input: price(usage.input, model.cost.input),
            output: price(usage.output, model.cost.output),
            cache_read: price(usage.cache_read, model.cost.cache_read),
            cache_write: price(usage.cache_write, model.cost.cache_write),
            total: 0.0,
        };
        usage.cost =
            Cost { total: cost.input + cost.output + cost.cache_read + cost.cache_write, ..cost };
    }
    usage
}
