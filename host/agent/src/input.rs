//! The way in: from accepted text to a message in a run or in a queue.
//!
//! Order (extension-contract): extension commands are looked up by the front end
//! first; then `input` handlers see the raw text; then skills and templates
//! expand; then the message starts a run or waits in a queue. Inputs pass one
//! after the other, so that they arrive in the order in which they were accepted.

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use wharf_protocol::{Event, ImageContent, StreamingBehavior};

use crate::agent::{Agent, QueueFull, State};
use crate::hooks::{HookEvent, InputEvent, InputSource, InputVerdict};
use crate::queue::{PendingMessage, Queued, user_bytes};

/// How a message wants to be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// Starts a run; during one, `streaming_behavior` says what to do instead.
    Prompt {
        streaming_behavior: Option<StreamingBehavior>,
    },
    Steer,
    FollowUp,
}

#[derive(Debug)]
pub struct Submission {
    pub text: String,
    pub images: Vec<ImageContent>,
    pub kind: InputKind,
    pub source: InputSource,
}

/// Why a message was refused. Nothing of it was kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    #[error(
        "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message."
    )]
    Busy,
    #[error(
        "No model selected. Start wharf with --model PROVIDER/ID (scripted/demo needs no key), or set defaultProvider and defaultModel in settings.json of the agent directory."
    )]
    NoModel,
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
}

/// The answer to a submission that was not refused at once.
#[derive(Debug)]
pub enum Accepted {
    /// It will be served.
    Now,
    /// Whether it needs a model, and there is none, depends on `input` handlers.
    /// The answer comes when they have spoken.
    Later(oneshot::Receiver<Result<(), SubmitError>>),
}

/// Accepted input on its way through the handlers.
#[derive(Debug)]
pub(crate) struct Input {
    submission: Submission,
    verdict: Option<oneshot::Sender<Result<(), SubmitError>>>,
    pub(crate) cancel: CancellationToken,
    /// `clear_pending_messages` has given it back.
    is_cleared: bool,
}

impl Input {
    /// The size of its text and images.
    pub(crate) fn bytes(&self) -> usize {
        user_bytes(&self.submission.text, &self.submission.images)
    }

    /// What waits for its turn in a run, and in which queue it will be; none for a
    /// prompt that starts one.
    pub(crate) fn pending(&self) -> Option<(StreamingBehavior, PendingMessage)> {
        let Submission { text, images, kind, .. } = &self.submission;
        let behavior = match kind {
            InputKind::Steer => StreamingBehavior::Steer,
            InputKind::FollowUp => StreamingBehavior::FollowUp,
            InputKind::Prompt { streaming_behavior } => (*streaming_behavior)?,
        };
        (!self.is_cleared).then(|| (behavior, PendingMessage::new(text.clone(), images)))
    }

    /// Takes it back, if it is one that waits.
    pub(crate) fn clear(&mut self) {
        self.is_cleared |= self.pending().is_some();
    }
}

/// Whether skills and templates may expand it.
fn is_slash(text: &str) -> bool {
    text.starts_with('/')
}

impl Agent {
    /// Takes a message in. Never waits. Where no handler has to be asked the message
    /// is in its place when this returns; else that happens in a task.
    ///
    /// # Errors
    /// The agent is busy and the prompt does not say what to do then, there is no
    /// model, or too much waits already.
    pub fn submit(&self, submission: Submission) -> Result<Accepted, SubmitError> {
        let mut state = self.state();
        let prompt_now = submission.kind == InputKind::Prompt { streaming_behavior: None };
        if prompt_now && state.is_busy() {
            return Err(SubmitError::Busy);
        }
        state.check_room(user_bytes(&submission.text, &submission.images))?;
        let is_asked = self.inner.hooks.subscribes(HookEvent::Input);
        let waits = is_asked || (is_slash(&submission.text) && !self.has_discovered());
        let (verdict, accepted) = match (&state.model, is_asked) {
            (Some(_), _) => (None, Accepted::Now),
            (None, true) => {
                let (verdict, later) = oneshot::channel();
                (Some(verdict), Accepted::Later(later))
            }
            (None, false) => return Err(SubmitError::NoModel),
        };
        let cancel = CancellationToken::new();
        if !waits && !state.inputs_active {
            let Submission { text, images, kind, .. } = submission;
            let text = self.expand(text, state.session.id());
            self.place(&mut state, Queued::User { text, images }, kind, &cancel);
            return Ok(accepted);
        }
        state.inputs.push_back(Input { submission, verdict, cancel, is_cleared: false });
        self.inner.idle.send_replace(false);
        if !state.inputs_active {
            state.inputs_active = true;
            let agent = self.clone();
            tokio::spawn(async move { agent.work_through_inputs().await });
        }
        Ok(accepted)
    }

    /// Takes inputs through their handlers, one after the other, until none is left.
    async fn work_through_inputs(&self) {
        loop {
            let (event, cancel) = {
                let mut state = self.state();
                // The input stays in front while its handlers run, so that an abort
                // finds its token, and whoever asks finds the message.
                let Some(Input { submission, cancel, .. }) = state.inputs.front() else {
                    state.inputs_active = false;
                    self.settle_idle(&state);
                    return;
                };
                let Submission { text, images, source, .. } = submission;
                let (text, images) = (text.clone(), images.clone());
                (InputEvent { text, images, source: *source }, cancel.clone())
            };
            let verdict = self.ask_input_handlers(event, &cancel).await;
            if self.take_in(verdict) {
                return;
            }
        }
    }

    /// Puts the input in front where its handlers want it. True: it was the last, and
    /// whoever sees what comes of it finds nothing of it left here.
    fn take_in(&self, verdict: InputVerdict) -> bool {
        let mut state = self.state();
        let Some(input) = state.inputs.pop_front() else { return false };
        let was_last = state.inputs.is_empty();
        state.inputs_active = !was_last;
        let answer = match verdict {
            _ if input.is_cleared => Ok(()),
            InputVerdict::Handled => Ok(()),
            InputVerdict::Proceed { .. } if state.model.is_none() => Err(SubmitError::NoModel),
            InputVerdict::Proceed { text, images } => {
                let text = self.expand(text, state.session.id());
                let queued = Queued::User { text, images };
                self.place(&mut state, queued, input.submission.kind, &input.cancel);
                Ok(())
            }
        };
        self.settle_idle(&state);
        if let Some(verdict) = input.verdict {
            // The asker may be gone; then nobody needs the answer.
            let _ = verdict.send(answer);
        }
        was_last
    }

    async fn ask_input_handlers(
        &self,
        event: InputEvent,
        cancel: &CancellationToken,
    ) -> InputVerdict {
        let hooks = &self.inner.hooks;
        let verdict = if hooks.subscribes(HookEvent::Input) {
            tokio::select! {
                () = hooks.ready() => hooks.input(event, cancel).await,
                // Its run is aborted before it begins.
                () = cancel.cancelled() => {
                    InputVerdict::Proceed { text: event.text, images: event.images }
                }
            }
        } else {
            InputVerdict::Proceed { text: event.text, images: event.images }
        };
        // It may name a skill or a template that an extension is about to add.
        if matches!(&verdict, InputVerdict::Proceed { text, .. } if is_slash(text)) {
            cancel.run_until_cancelled(self.ready()).await;
        }
        verdict
    }

    /// `/skill:name args` and `/template args`; reads one small file. Text that cannot
    /// be expanded goes on as it is, and the reason is told.
    fn expand(&self, text: String, session_id: &str) -> String {
        match self.resources().expand_input(&text, session_id) {
            Ok(Some(expanded)) => expanded,
            Ok(None) => text,
            Err(error) => {
                let event = Event::ExtensionError {
                    extension_path: text.split_whitespace().next().unwrap_or_default().to_owned(),
                    event: "input".to_owned(),
                    error: error.to_string(),
                };
                let agent = self.clone();
                tokio::spawn(async move { agent.emit(event).await });
                text
            }
        }
    }

    /// Puts a message where it belongs now.
    pub(crate) fn place(
        &self,
        state: &mut State,
        queued: Queued,
        kind: InputKind,
        cancel: &CancellationToken,
    ) {
        if state.run.is_none() {
            self.start_run(state, vec![queued], cancel.clone());
            return;
        }
        match kind {
            InputKind::Steer
            | InputKind::Prompt { streaming_behavior: Some(StreamingBehavior::Steer) } => {
                state.steering.push(queued);
            }
            // A plain prompt comes here only when an extension's message started a
            // run meanwhile; it was accepted, so it waits for its turn.
            InputKind::FollowUp | InputKind::Prompt { .. } => state.follow_up.push(queued),
        }
    }

    /// Begins a run with these messages, as soon as the run before has left.
    pub(crate) fn start_run(
        &self,
        state: &mut State,
        messages: Vec<Queued>,
        cancel: CancellationToken,
    ) {
        state.run = Some(cancel.clone());
        self.inner.idle.send_replace(false);
        let agent = self.clone();
        tokio::spawn(async move { agent.run_to_end(messages, cancel).await });
    }

    /// Wakes those who wait for the agent to be idle, if it is.
    pub(crate) fn settle_idle(&self, state: &State) {
        let ending = self.inner.ending.load(std::sync::atomic::Ordering::SeqCst) > 0;
        if !state.is_busy() && !ending {
            self.inner.idle.send_replace(true);
        }
    }
}
