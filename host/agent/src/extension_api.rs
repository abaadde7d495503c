//! What extensions ask of the agent, answered.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use wharf_protocol::message::CustomMessage;
use wharf_protocol::{AgentMessage, ImageContent, Model, UserMessage};
use wharf_session::Session;

use crate::agent::{Agent, MAX_EXTENSION_ENTRY_BYTES};
use crate::hooks::InputSource;
use crate::host_api::{Delivery, HostApi, HostApiError};
use crate::input::{InputKind, Submission, SubmitError};
use crate::queue::{Queued, custom_bytes, user_bytes};
use crate::run::{Messages, now_millis, today};
use crate::switching::NewSession;
use crate::tool::ToolSpec;

/// What an entry takes in memory besides its content, in bytes, roughly.
const ENTRY_OVERHEAD: usize = 512;

fn failed(error: impl std::fmt::Display) -> HostApiError {
    HostApiError::Failed(error.to_string())
}

impl Agent {
    /// Counts what extensions add to sessions: it stays in memory, so it has an end.
    fn charge_entry(&self, bytes: usize) -> Result<(), HostApiError> {
        let added = bytes.saturating_add(ENTRY_OVERHEAD);
        let before = self.inner.extension_bytes.fetch_add(added, Ordering::SeqCst);
        if before.saturating_add(added) <= MAX_EXTENSION_ENTRY_BYTES {
            return Ok(());
        }
        self.inner.extension_bytes.fetch_sub(added, Ordering::SeqCst);
        Err(HostApiError::Failed(format!(
            "extensions may add {MAX_EXTENSION_ENTRY_BYTES} bytes of entries in one run; that is used up"
        )))
    }
}

impl HostApi for Agent {
    fn session(&self) -> Session {
        Self::session(self)
    }

    fn is_idle(&self) -> bool {
        !self.is_streaming()
    }

    fn has_pending_messages(&self) -> bool {
        let state = self.state();
        !state.steering.is_empty() || !state.follow_up.is_empty()
    }

    fn abort(&self) {
        Self::abort(self);
    }

    fn cwd(&self) -> PathBuf {
        self.inner.cwd.clone()
    }

    fn system_prompt(&self) -> String {
        let current = self.state().system_prompt.to_string();
        if !current.is_empty() {
            return current;
        }
        let tools = self.all_tools();
        let specs: Vec<_> = tools.iter().map(|tool| tool.spec()).collect();
        self.inner.resources.system_prompt(&specs, &today(), &self.model_prompt())
    }

    fn tools(&self) -> Vec<ToolSpec> {
        self.all_tools().iter().map(|tool| tool.spec().clone()).collect()
    }

    fn model(&self) -> Option<Model> {
        self.state().model.clone()
    }

    fn send_user_message(
        &self,
        text: String,
        images: Vec<ImageContent>,
        deliver: Delivery,
    ) -> Result<(), HostApiError> {
        let kind = match deliver {
            Delivery::Steer => InputKind::Steer,
            Delivery::FollowUp => InputKind::FollowUp,
            Delivery::NextTurn => {
                let bytes = user_bytes(&text, &images);
                let UserMessage { content, timestamp } =
                    Queued::user_message(text, images, now_millis());
                let mut state = self.state();
                state.check_room(bytes).map_err(failed)?;
                state.next_turn.push(CustomMessage {
                    custom_type: "user".to_owned(),
                    content,
                    display: true,
                    details: None,
                    timestamp,
                });
                return Ok(());
            }
        };
        let source = InputSource::Extension;
        self.submit(Submission { text, images, kind, source }).map(drop).map_err(failed)
    }

    fn send_message(
        &self,
        message: CustomMessage,
        deliver: Delivery,
        trigger_turn: bool,
    ) -> Result<(), HostApiError> {
        let bytes = custom_bytes(&message);
        let mut state = self.state();
        state.check_room(bytes).map_err(failed)?;
        let queued = Queued::Custom(message.clone());
        match deliver {
            Delivery::NextTurn => state.next_turn.push(message),
            Delivery::Steer if state.run.is_some() => state.steering.push(queued),
            Delivery::FollowUp if state.run.is_some() => state.follow_up.push(queued),
            Delivery::Steer | Delivery::FollowUp if trigger_turn => {
                if state.model.is_none() {
                    return Err(failed(SubmitError::NoModel));
                }
                self.start_run(&mut state, vec![queued], CancellationToken::new());
            }
            Delivery::Steer | Delivery::FollowUp => {
                self.charge_entry(bytes)?;
                let agent = self.clone();
                tokio::spawn(async move {
                    // In its place between runs, never inside one.
                    let _stage = agent.inner.stage.lock().await;
                    agent.record(AgentMessage::Custom(message), &mut Messages::new()).await;
                    agent.take_in_command_results().await;
                });
            }
        }
        Ok(())
    }

    fn append_entry(
        &self,
        custom_type: String,
        data: Option<Value>,
    ) -> Result<String, HostApiError> {
        if custom_type.is_empty() {
            return Err(HostApiError::Invalid("custom-type must not be empty".to_owned()));
        }
        let bytes = data.as_ref().map_or(0, |data| data.to_string().len());
        self.charge_entry(custom_type.len() + bytes)?;
        Ok(Self::session(self).append_custom(&custom_type, data).0.to_string())
    }

    fn set_session_name(&self, name: String) -> Result<(), HostApiError> {
        self.charge_entry(name.len())?;
        let named = Self::set_session_name(self, &name);
        let announced = named.map_err(|error| HostApiError::Invalid(error.to_string()))?;
        tokio::spawn(announced);
        Ok(())
    }

    fn set_label(&self, entry: String, label: Option<String>) -> Result<(), HostApiError> {
        self.charge_entry(label.as_ref().map_or(0, String::len))?;
        Self::session(self)
            .append_label(&entry, label.as_deref())
            .map(drop)
            .map_err(|error| HostApiError::Invalid(error.to_string()))
    }

    fn wait_for_idle(&self) -> BoxFuture<'static, ()> {
        let agent = self.clone();
        Box::pin(async move { agent.wait_idle().await })
    }

    fn new_session(&self) -> BoxFuture<'static, Result<bool, HostApiError>> {
        let agent = self.clone();
        Box::pin(async move { Ok(Self::new_session(&agent, NewSession::default()).await) })
    }

    fn switch_session(&self, file: PathBuf) -> BoxFuture<'static, Result<bool, HostApiError>> {
        let agent = self.clone();
        Box::pin(async move {
            Self::switch_session(&agent, &file, false)
                .await
                .map_err(|error| HostApiError::Failed(error.to_string()))
        })
    }
}
