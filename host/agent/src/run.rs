//! One run: from `agent_start` to `agent_end`, turn by turn.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;
use wharf_protocol::message::{CustomMessage, UserContent};
use wharf_protocol::{
    AgentMessage, AssistantMessage, CompactionReason, Event, ImageContent, StopReason, Usage,
};
use wharf_session::{CustomMessageEntry, Timestamp};

use crate::agent::Agent;
use crate::hooks::{BeforeAgentStartEvent, HookEvent, HookNotification};
use crate::images;
use crate::output::AgentOutput;
use crate::queue::Queued;
use crate::reply::Reply;
use crate::toolbox::Offer;

/// The messages of a run, in the order in which they were recorded.
pub(crate) type Messages = Vec<Arc<AgentMessage>>;

/// What a run's requests are made of, besides the conversation.
#[derive(Debug)]
pub(crate) struct RunContext {
    /// Of the last request; its calls are resolved against it.
    pub(crate) offer: Offer,
    /// The offer's, or what extensions made of it.
    pub(crate) system_prompt: Arc<str>,
    pub(crate) cancel: CancellationToken,
}

/// The date in UTC, as `2026-01-31`.
pub(crate) fn today() -> String {
    Timestamp::now().to_string().split('T').next().unwrap_or_default().to_owned()
}

pub(crate) fn now_millis() -> u64 {
    Timestamp::now().unix_millis()
}

impl Agent {
    /// Plays a run. Whatever happens in it, it ends with one `agent_end`, and the
    /// agent can be used again.
    pub(crate) async fn run_to_end(&self, first: Vec<Queued>, cancel: CancellationToken) {
        let stage = self.inner.stage.lock().await;
        let mut recorded = Messages::new();
        let played =
            AssertUnwindSafe(self.play(first, &cancel, &mut recorded)).catch_unwind().await;
        // What a person's command gave at the last moment.
        self.take_in_command_results().await;
        if played.is_err() {
            // A fault of ours (the panic's text is on stderr); the person is told
            // in the conversation, and the session goes on.
            self.state().run = None;
            self.inner.ending.fetch_add(1, Ordering::SeqCst);
            let message = self.failed_reply("internal error: the run panicked; please report it");
            self.record(AgentMessage::Assistant(message), &mut recorded).await;
        }
        self.name_session(&recorded);
        self.save_left_sessions().await;
        self.leave(Event::AgentEnd { messages: recorded }).await;
        drop(stage);
    }

    /// Lets the run's last event go. Whoever sees it finds the agent idle, and whoever
    /// finds the agent idle has the event before the answer: both happen under the lock.
    async fn leave(&self, event: Event) {
        let event = Arc::new(event);
        self.inner.hooks.notify(HookNotification::Wire(Arc::clone(&event)));
        let mut output = AgentOutput::Event(event);
        loop {
            {
                let state = self.state();
                match self.inner.outlet.try_send(output) {
                    Ok(()) => {
                        self.inner.ending.fetch_sub(1, Ordering::SeqCst);
                        self.settle_idle(&state);
                        return;
                    }
                    Err(unsent) => output = *unsent,
                }
            }
            self.inner.outlet.room().await;
        }
    }

    async fn play(&self, first: Vec<Queued>, cancel: &CancellationToken, recorded: &mut Messages) {
        // A guard that is still being compiled must not be missed.
        tokio::select! {
            () = self.ready() => {}
            () = cancel.cancelled() => {}
        }
        let (model, thinking_level) = {
            let mut state = self.state();
            state.stop_after_turn = false;
            (state.model.as_ref().map(wharf_protocol::Model::reference), state.effective_level())
        };
        let (mut context, injected) = self.prepare(&first, cancel).await;
        self.emit(Event::AgentStart { model, thinking_level }).await;
        self.take_in_command_results().await;
        // A session that was left full, or a model with a smaller window.
        let mut compacts = true;
        if self.is_over_threshold() {
            compacts = self.auto_compact(&context, CompactionReason::Threshold, true).await;
        }
        self.emit(Event::TurnStart).await;
        self.record_model();
        for queued in first {
            self.record_queued(queued, recorded).await;
        }
        for message in injected {
            self.record(AgentMessage::Custom(message), recorded).await;
        }
        loop {
            let Reply { message, calls, broken, failed } = self.reply(&mut context, recorded).await;
            let called = !calls.is_empty();
            let tool_results = self.run_calls(calls, &broken, &context, recorded).await;
            self.session().sync();
            self.emit(Event::TurnEnd { message, tool_results }).await;
            self.take_in_command_results().await;
            let stop = failed || cancel.is_cancelled() || self.state().stop_after_turn;
            if compacts && !stop && self.is_over_threshold() {
                let goes_on = called || self.has_due_messages();
                // One that failed would fail again, and cost as much.
                compacts = self.auto_compact(&context, CompactionReason::Threshold, goes_on).await;
            }
            let Some(next) = self.next_messages(called, stop || cancel.is_cancelled()) else {
                return;
            };
            for queued in next {
                self.record_queued(queued, recorded).await;
            }
            self.emit(Event::TurnStart).await;
        }
    }

    fn has_due_messages(&self) -> bool {
        let state = self.state();
        !state.steering.is_empty() || !state.follow_up.is_empty()
    }

    /// What the next turn begins with: steering messages, or, where the run would
    /// stop, follow-up messages. None: the run is over; from then on a prompt is
    /// free to start the next one.
    fn next_messages(&self, called: bool, stop: bool) -> Option<Vec<Queued>> {
        let mut state = self.state();
        if !stop {
            let steering = state.steering.take_due();
            if called || !steering.is_empty() {
                return Some(steering);
            }
            let follow_up = state.follow_up.take_due();
            if !follow_up.is_empty() {
                return Some(follow_up);
            }
        }
        state.run = None;
        self.inner.ending.fetch_add(1, Ordering::SeqCst);
        None
    }

    /// The system prompt and the messages that extensions add to this run.
    async fn prepare(
        &self,
        first: &[Queued],
        cancel: &CancellationToken,
    ) -> (RunContext, Vec<CustomMessage>) {
        let offer = self.offer();
        let mut system_prompt = Arc::clone(&offer.system_prompt);
        let mut injected = std::mem::take(&mut self.state().next_turn);
        if self.inner.hooks.subscribes(HookEvent::BeforeAgentStart) {
            let (prompt, images) = prompt_of(first);
            let system_prompt_now = system_prompt.to_string();
            let event = BeforeAgentStartEvent { prompt, images, system_prompt: system_prompt_now };
            let verdict = self.inner.hooks.before_agent_start(event, cancel).await;
            system_prompt = verdict.system_prompt.into();
            injected.extend(verdict.messages);
        }
        self.state().system_prompt = Arc::clone(&system_prompt);
        (RunContext { offer, system_prompt, cancel: cancel.clone() }, injected)
    }

    /// Makes the offer that of now. What extensions made of the system prompt at the
    /// beginning of the run stays around the part that is the host's.
    pub(crate) fn renew_offer(&self, context: &mut RunContext) {
        let Some(offer) = self.renewed(&context.offer) else { return };
        let before = &*context.offer.system_prompt;
        context.system_prompt =
            context.system_prompt.replacen(before, &offer.system_prompt, 1).into();
        context.offer = offer;
        self.state().system_prompt = Arc::clone(&context.system_prompt);
    }

    async fn record_queued(&self, queued: Queued, recorded: &mut Messages) {
        let message = match queued {
            Queued::User { text, images } => {
                AgentMessage::User(Queued::user_message(text, images, now_millis()))
            }
            Queued::Custom(custom) => AgentMessage::Custom(custom),
        };
        self.record(message, recorded).await;
    }

    /// Appends a message to the session and then announces it.
    pub(crate) async fn record(
        &self,
        message: AgentMessage,
        recorded: &mut Messages,
    ) -> Arc<AgentMessage> {
        let message = self.append(message).await;
        recorded.push(Arc::clone(&message));
        self.emit(Event::MessageStart { message: Arc::clone(&message) }).await;
        self.emit(Event::MessageEnd { message: Arc::clone(&message) }).await;
        message
    }

    /// The same for a reply, whose `message_start` has left already.
    pub(crate) async fn record_reply(
        &self,
        reply: AssistantMessage,
        recorded: &mut Messages,
    ) -> Arc<AgentMessage> {
        let message = self.append(AgentMessage::Assistant(reply)).await;
        recorded.push(Arc::clone(&message));
        self.emit(Event::MessageEnd { message: Arc::clone(&message) }).await;
        message
    }

    /// Appends a message, its images made fit, and waits until it is written.
    pub(crate) async fn append(&self, message: AgentMessage) -> Arc<AgentMessage> {
        let auto_resize = self.resources().settings.auto_resize_images;
        let message = Arc::new(images::admit(message, auto_resize).await);
        let receipt = {
            let mut state = self.state();
            state.messages.push(Arc::clone(&message).into());
            match message.as_ref() {
                AgentMessage::Custom(custom) => {
                    state.session.append_custom_message(CustomMessageEntry {
                        custom_type: custom.custom_type.clone(),
                        content: custom.content.clone(),
                        display: custom.display,
                        details: custom.details.clone(),
                    })
                }
                _ => state.session.append_message(Arc::clone(&message)),
            }
            .1
        };
        self.written(receipt).await;
        message
    }

    /// A reply that only says what went wrong.
    pub(crate) fn failed_reply(&self, problem: &str) -> AssistantMessage {
        let model = self.state().model.clone();
        let (api, provider, id) =
            model.map_or_else(Default::default, |model| (model.api, model.provider, model.id));
        AssistantMessage {
            content: Vec::new(),
            api,
            provider,
            model: id,
            usage: Usage::default(),
            stop_reason: StopReason::Error,
            error_message: Some(problem.to_owned()),
            timestamp: now_millis(),
        }
    }
}

fn prompt_of(first: &[Queued]) -> (String, Vec<ImageContent>) {
    let mut texts = Vec::new();
    let mut all_images = Vec::new();
    for queued in first {
        match queued {
            Queued::User { text, images } => {
                texts.push(text.clone());
                all_images.extend(images.iter().cloned());
            }
            Queued::Custom(custom) => texts.push(match &custom.content {
                UserContent::Text(text) => text.clone(),
                blocks @ UserContent::Blocks(_) => blocks.to_text(),
            }),
        }
    }
    (texts.join("\n"), all_images)
}
