//! The agent: what it is doing, and messages for it.

use wharf_agent::host_api::Delivery as AgentDelivery;

use super::{bounded, no_agent};
use crate::bindings::agent::{Delivery, Host, ToolInfo};
use crate::bindings::types::{CustomMessage, HostError, Image};
use crate::convert;
use crate::limits::{MAX_NAME_BYTES, MAX_TEXT_BYTES};
use crate::state::State;

const fn delivery(delivery: Delivery) -> AgentDelivery {
    match delivery {
        Delivery::Steer => AgentDelivery::Steer,
        Delivery::FollowUp => AgentDelivery::FollowUp,
        Delivery::NextTurn => AgentDelivery::NextTurn,
    }
}

/// Before there is an agent it is idle, empty, and in the host's directory.
impl Host for State {
    fn is_idle(&mut self) -> bool {
        self.api().is_none_or(|api| api.is_idle())
    }

    fn has_pending_messages(&mut self) -> bool {
        self.api().is_some_and(|api| api.has_pending_messages())
    }

    fn abort(&mut self) {
        if let Some(api) = self.api() {
            api.abort();
        }
    }

    fn cwd(&mut self) -> String {
        let cwd = self.api().map_or_else(|| self.services.cwd.clone(), |api| api.cwd());
        cwd.to_string_lossy().into_owned()
    }

    fn system_prompt(&mut self) -> String {
        self.api().map(|api| api.system_prompt()).unwrap_or_default()
    }

    fn tools(&mut self) -> Vec<ToolInfo> {
        let tools = self.api().map(|api| api.tools()).unwrap_or_default();
        tools
            .into_iter()
            .map(|tool| ToolInfo {
                parameters: tool.parameters.to_string(),
                name: tool.name,
                description: tool.description,
            })
            .collect()
    }

    fn model(&mut self) -> Option<String> {
        serde_json::to_string(&self.api()?.model()?).ok()
    }

    fn send_user_message(
        &mut self,
        text: String,
        images: Vec<Image>,
        deliver: Delivery,
    ) -> Result<(), HostError> {
        let api = self.api().ok_or_else(no_agent)?;
        bounded("text", &text, MAX_TEXT_BYTES)?;
        let images = convert::images(images).map_err(HostError::Invalid)?;
        Ok(api.send_user_message(text, images, delivery(deliver))?)
    }

    fn send_message(
        &mut self,
        message: CustomMessage,
        deliver: Delivery,
        trigger_turn: bool,
    ) -> Result<(), HostError> {
        let api = self.api().ok_or_else(no_agent)?;
        bounded("custom-type", &message.custom_type, MAX_NAME_BYTES)?;
        let message = convert::custom_message(message).map_err(HostError::Invalid)?;
        Ok(api.send_message(message, delivery(deliver), trigger_turn)?)
    }
}
