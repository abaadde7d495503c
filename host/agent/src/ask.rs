//! Questions to the model that are no part of the conversation: summaries and titles.

use std::sync::Arc;

use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;
use wharf_protocol::partial::ReplyOrigin;
use wharf_protocol::{
    AgentMessage, Model, PartialMessage, StopReason, ThinkingLevel, UserContent, UserMessage,
};
use wharf_provider::{ErrorKind, Provider, ProviderError, ProviderEvent, Purpose, Request};

use crate::agent::Agent;
use crate::retry::{self, MAX_STREAM_RETRIES};
use crate::run::now_millis;

/// One question.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    pub(crate) purpose: Purpose,
    pub(crate) model: &'a Model,
    pub(crate) thinking_level: ThinkingLevel,
    pub(crate) system_prompt: &'a str,
    pub(crate) prompt: String,
    pub(crate) max_tokens: u64,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AskError {
    Aborted,
    Failed(String),
}

impl Agent {
    /// Asks, with the same retries as the conversation has, but silently.
    pub(crate) async fn ask(
        &self,
        question: Question<'_>,
        cancel: &CancellationToken,
    ) -> Result<String, AskError> {
        let model = question.model;
        let provider = self.registry().provider(model).ok_or_else(|| {
            AskError::Failed(format!("model {}/{} has no provider", model.provider, model.id))
        })?;
        let resources = self.resources();
        let settings = &resources.settings;
        let request = Request {
            model: model.clone(),
            purpose: question.purpose,
            thinking_level: question.thinking_level,
            thinking_budgets: settings.thinking_budgets,
            system_prompt: question.system_prompt.into(),
            messages: vec![Arc::new(AgentMessage::User(UserMessage {
                content: UserContent::Text(question.prompt),
                timestamp: now_millis(),
            }))],
            tools: Arc::new([]),
            max_tokens: Some(question.max_tokens),
            session_id: None,
            filter: self.payload_filter(cancel),
        };
        let mut attempt = 0;
        loop {
            let answered = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(AskError::Aborted),
                answered = answer(&*provider, request.clone()) => answered,
            };
            let error = match answered {
                Ok(text) => return Ok(text),
                Err(error) => error,
            };
            attempt += 1;
            let again = match error.kind {
                ErrorKind::Dropped => attempt <= MAX_STREAM_RETRIES,
                kind if kind.is_transient() => {
                    self.state().auto_retry && attempt <= settings.retry.max_retries
                }
                _ => false,
            };
            if !again {
                return Err(AskError::Failed(error.to_string()));
            }
            let wait = retry::delay(&settings.retry, attempt, &error).map_err(AskError::Failed)?;
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(AskError::Aborted),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

/// The text of one reply.
async fn answer(provider: &dyn Provider, request: Request) -> Result<String, ProviderError> {
    let mut partial = PartialMessage::new(ReplyOrigin::default());
    let mut events = provider.stream(request);
    while let Some(event) = events.next().await {
        match event? {
            ProviderEvent::Delta(delta) => partial.apply(&delta),
            ProviderEvent::Done { stop_reason, .. } => {
                let text = partial.message().text();
                if text.trim().is_empty() {
                    let problem = "the model gave no text";
                    return Err(ProviderError::new(ErrorKind::Protocol, problem));
                }
                return match stop_reason {
                    StopReason::Length => Err(ProviderError::new(
                        ErrorKind::Protocol,
                        "the model's answer was cut off at its token limit",
                    )),
                    _ => Ok(text),
                };
            }
        }
    }
    Err(ProviderError::dropped(""))
}
