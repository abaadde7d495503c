//! What extensions ask of the agent, answered.

use std::path::PathBuf;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use wharf_protocol::message::CustomMessage;
use wharf_protocol::{AgentMessage, Event, ImageContent, Model};
use wharf_session::Session;

use crate::agent::Agent;
use crate::hooks::InputSource;
use crate::host_api::{Delivery, HostApi, HostApiError};
use crate::input::{InputKind, Submission};
use crate::queue::Queued;
use crate::run::{Messages, now_millis, today};
use crate::switching::NewSession;
use crate::tool::ToolSpec;

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
        self.inner.resources.system_prompt(&specs, &today())
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
                let mut message = Queued::user_message(text, images, now_millis());
                let content = std::mem::replace(
                    &mut message.content,
                    wharf_protocol::UserContent::Text(String::new()),
                );
                self.state().next_turn.push(CustomMessage {
                    custom_type: "user".to_owned(),
                    content,
                    display: true,
                    details: None,
                    timestamp: message.timestamp,
                });
                return Ok(());
            }
        };
        let source = InputSource::Extension;
        self.submit(Submission { text, images, kind, source })
            .map(drop)
            .map_err(|error| HostApiError::Failed(error.to_string()))
    }

    fn send_message(
        &self,
        message: CustomMessage,
        deliver: Delivery,
        trigger_turn: bool,
    ) -> Result<(), HostApiError> {
        let mut state = self.state();
        let queued = Queued::Custom(message.clone());
        match deliver {
            Delivery::NextTurn => state.next_turn.push(message),
            Delivery::Steer if state.run.is_some() => state.steering.push(queued),
            Delivery::FollowUp if state.run.is_some() => state.follow_up.push(queued),
            Delivery::Steer | Delivery::FollowUp if trigger_turn => {
                if state.model.is_none() {
                    return Err(HostApiError::Failed(crate::SubmitError::NoModel.to_string()));
                }
                self.start_run(&mut state, vec![queued], CancellationToken::new());
            }
            Delivery::Steer | Delivery::FollowUp => {
                let agent = self.clone();
                tokio::spawn(async move {
                    // In its place between runs, never inside one.
                    let _stage = agent.inner.stage.lock().await;
                    agent.record(AgentMessage::Custom(message), &mut Messages::new()).await;
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
        Ok(Self::session(self).append_custom(&custom_type, data).0.to_string())
    }

    fn set_session_name(&self, name: String) -> Result<(), HostApiError> {
        if name.trim().is_empty() {
            return Err(HostApiError::Invalid(crate::EmptyName.to_string()));
        }
        let agent = self.clone();
        Self::session(self).append_session_info(name.trim());
        tokio::spawn(async move {
            agent.emit(Event::SessionNameChanged { name: name.trim().to_owned() }).await;
        });
        Ok(())
    }

    fn set_label(&self, entry: String, label: Option<String>) -> Result<(), HostApiError> {
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
            Self::switch_session(&agent, &file)
                .await
                .map_err(|error| HostApiError::Failed(error.to_string()))
        })
    }
}
