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
use crate::queue::{Queued, user_bytes};

/// How a message wants to be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// Starts a run; during one, `streaming_behavior` says what to do instead.
    Prompt { streaming_behavior: Option<StreamingBehavior> },
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

#[derive(Debug)]
pub(crate) struct Input {
    submission: Submission,
    verdict: Option<oneshot::Sender<Result<(), SubmitError>>>,
    pub(crate) cancel: CancellationToken,
    bytes: usize,
}

impl Input {
    /// The size of its text and images, which may be with a handler just now.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Agent {
    /// Takes a message in. Never waits; what follows happens in a task.
    ///
    /// # Errors
    /// The agent is busy and the prompt does not say what to do then, or there is
    /// no model.
    pub fn submit(&self, submission: Submission) -> Result<Accepted, SubmitError> {
        let mut state = self.state();
        let prompt_now =
            submission.kind == InputKind::Prompt { streaming_behavior: None };
        if prompt_now && state.is_busy() {
            return Err(SubmitError::Busy);
        }
        let bytes = user_bytes(&submission.text, &submission.images);
        state.check_room(bytes)?;
        let (verdict, accepted) = if state.model.is_some() {
            (None, Accepted::Now)
        } else if self.inner.hooks.subscribes(HookEvent::Input) {
            let (verdict, later) = oneshot::channel();
            (Some(verdict), Accepted::Later(later))
        } else {
            return Err(SubmitError::NoModel);
        };
        let cancel = CancellationToken::new();
        state.inputs.push_back(Input { submission, verdict, cancel, bytes });
        self.inner.idle.send_replace(false);
        if !state.inputs_active {
            state.inputs_active = true;
            let agent = self.clone();
            tokio::spawn(async move { agent.work_through_inputs().await });
        }
        Ok(accepted)
    }

    async fn work_through_inputs(&self) {
        loop {
            let (event, cancel) = {
                let mut state = self.state();
                let Some(input) = state.inputs.front_mut() else {
                    state.inputs_active = false;
                    self.settle_idle(&state);
                    return;
                };
                // The input stays in front while its handlers run, so that an
                // abort finds its token.
                let event = InputEvent {
                    text: std::mem::take(&mut input.submission.text),
                    images: std::mem::take(&mut input.submission.images),
                    source: input.submission.source,
                };
                (event, input.cancel.clone())
            };
            let verdict = self.ask_input_handlers(event, &cancel).await;
            let queued = match verdict {
                InputVerdict::Handled => None,
                InputVerdict::Proceed { text, images } => {
                    Some(Queued::User { text: self.expand(text).await, images })
                }
            };
            let mut state = self.state();
            let Some(input) = state.inputs.pop_front() else { continue };
            let answer = match queued {
                None => Ok(()),
                Some(_) if state.model.is_none() => Err(SubmitError::NoModel),
                Some(queued) => {
                    self.place(&mut state, queued, input.submission.kind, &input.cancel);
                    Ok(())
                }
            };
            if let Some(verdict) = input.verdict {
                // The asker may be gone; then nobody needs the answer.
                let _ = verdict.send(answer);
            }
        }
    }

    async fn ask_input_handlers(
        &self,
        event: InputEvent,
        cancel: &CancellationToken,
    ) -> InputVerdict {
        let hooks = &self.inner.hooks;
        if !hooks.subscribes(HookEvent::Input) {
            return InputVerdict::Proceed { text: event.text, images: event.images };
        }
        hooks.ready().await;
        hooks.input(event, cancel).await
    }

    /// `/skill:name args` and `/template args`. Text that cannot be expanded goes
    /// on as it is, and the reason is told.
    async fn expand(&self, text: String) -> String {
        if !text.starts_with('/') {
            return text;
        }
        let session = self.session();
        match self.inner.resources.expand_input(&text, session.id()) {
            Ok(Some(expanded)) => expanded,
            Ok(None) => text,
            Err(error) => {
                self.emit(Event::ExtensionError {
                    extension_path: text.split_whitespace().next().unwrap_or_default().to_owned(),
                    event: "input".to_owned(),
                    error: error.to_string(),
                })
                .await;
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
