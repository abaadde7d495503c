//! The agent: what it is doing, messages for it, its tools and models, and what an
//! extension adds to them.

use std::sync::Arc;

use serde_json::{Map, Value};
use wasmtime::component::Accessor;
use wharf_agent::host_api::{
    BuiltInCall, CommandSource as AgentCommandSource, Delivery as AgentDelivery, HostApi,
    ProviderOffer, ReplySource,
};
use wharf_agent::tool::ToolSpec as AgentToolSpec;
use wharf_protocol::ThinkingLevel;

use super::http::net_grant_for;
use super::{bounded, no_agent, parse_json};
use crate::bindings::agent::{
    CommandInfo, CommandSource, ContextInfo, Delivery, FlagValue, Host, HostWithStore, ToolInfo,
};
use crate::bindings::types::{AccessError, CustomMessage, HostError, Image, ToolOutput, ToolSpec};
use crate::convert;
use crate::extension::Extension;
use crate::limits::{
    MAX_ACTIVE_TOOLS, MAX_DETAILS_BYTES, MAX_NAME_BYTES, MAX_PROVIDER_CONFIG_BYTES, MAX_TEXT_BYTES,
    cut,
};
use crate::registration::Tool;
use crate::replies::ExtensionReplies;
use crate::state::{CallKind, Interfaces, State};

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
        tool_infos(self.api().map(|api| api.tools()).unwrap_or_default())
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

    fn context_usage(&mut self) -> Option<ContextInfo> {
        let usage = self.api()?.context_usage()?;
        Some(ContextInfo { tokens: usage.tokens, context_window: usage.context_window })
    }

    fn compact(&mut self, instructions: Option<String>) -> Result<(), HostError> {
        let (api, extension) = self.agent()?;
        bounded("instructions", instructions.as_deref().unwrap_or_default(), MAX_TEXT_BYTES)?;
        api.compact(extension.path().to_owned(), instructions);
        Ok(())
    }

    fn shutdown(&mut self) {
        if let Some(api) = self.api() {
            api.shutdown();
        }
    }

    fn all_tools(&mut self) -> Vec<ToolInfo> {
        tool_infos(self.api().map(|api| api.all_tools()).unwrap_or_default())
    }

    fn active_tools(&mut self) -> Vec<String> {
        self.api().map(|api| api.active_tools()).unwrap_or_default()
    }

    fn set_active_tools(&mut self, names: Vec<String>) -> Result<(), HostError> {
        let api = self.api().ok_or_else(no_agent)?;
        if names.len() > MAX_ACTIVE_TOOLS {
            let count = names.len();
            let text = format!("names has {count} names; the limit is {MAX_ACTIVE_TOOLS}");
            return Err(HostError::Invalid(text));
        }
        for name in &names {
            bounded("a name of names", name, MAX_NAME_BYTES)?;
        }
        Ok(api.set_active_tools(names)?)
    }

    fn register_tool(&mut self, spec: ToolSpec) -> Result<(), HostError> {
        let extension = self.own().ok_or_else(no_agent)?;
        let tool = Tool::from_guest(spec).map_err(|error| HostError::Invalid(error.to_string()))?;
        let peers = self.services.peers().ok_or_else(no_agent)?;
        if let Some(problem) = peers.tool_clash(extension, &tool) {
            return Err(HostError::Invalid(problem));
        }
        extension.offers.add_tool(tool).map_err(HostError::NotAllowed)?;
        peers.tools_changed();
        Ok(())
    }

    fn unregister_tool(&mut self, name: String) -> bool {
        let Some(extension) = self.own() else { return false };
        let is_gone = extension.offers.remove_tool(&name);
        if is_gone && let Some(peers) = self.services.peers() {
            peers.tools_changed();
        }
        is_gone
    }

    fn commands(&mut self) -> Vec<CommandInfo> {
        let commands = self.api().map(|api| api.commands()).unwrap_or_default();
        commands
            .into_iter()
            .map(|command| CommandInfo {
                name: command.name,
                description: command.description,
                source: match command.source {
                    AgentCommandSource::Extension => CommandSource::Extension,
                    AgentCommandSource::Prompt => CommandSource::Prompt,
                    AgentCommandSource::Skill => CommandSource::Skill,
                },
            })
            .collect()
    }

    fn find_models(&mut self, pattern: String) -> Vec<String> {
        // No model has a name that long.
        if pattern.len() > MAX_NAME_BYTES {
            return Vec::new();
        }
        let models = self.api().map(|api| api.find_models(&pattern)).unwrap_or_default();
        models.iter().map(convert::to_json).collect()
    }

    fn set_model(&mut self, provider: String, id: String) -> Result<String, HostError> {
        let api = self.api().ok_or_else(no_agent)?;
        bounded("provider", &provider, MAX_NAME_BYTES)?;
        bounded("id", &id, MAX_NAME_BYTES)?;
        Ok(convert::to_json(&api.set_model(&provider, &id)?))
    }

    fn thinking_level(&mut self) -> String {
        let level = self.api().map(|api| api.thinking_level()).unwrap_or_default();
        level.as_str().to_owned()
    }

    fn set_thinking_level(&mut self, level: String) -> Result<String, HostError> {
        let api = self.api().ok_or_else(no_agent)?;
        let Some(level) = ThinkingLevel::ALL.into_iter().find(|known| known.as_str() == level)
        else {
            let all = ThinkingLevel::ALL.map(ThinkingLevel::as_str).join(", ");
            let level = cut(&level, 100);
            return Err(HostError::Invalid(format!("level {level:?} is none of {all}")));
        };
        Ok(api.set_thinking_level(level).as_str().to_owned())
    }

    fn flag(&mut self, name: String) -> FlagValue {
        let registration = self.own().and_then(|extension| extension.registration());
        let is_own = registration.is_some_and(|r| r.flags.iter().any(|flag| flag.name == name));
        match self.services.flags.get(&name) {
            Some(Some(value)) if is_own => FlagValue::Value(value.clone()),
            Some(None) if is_own => FlagValue::Present,
            _ => FlagValue::Absent,
        }
    }

    fn unregister_provider(&mut self, name: String) -> bool {
        let Ok((api, extension)) = self.agent() else { return false };
        extension.offers.remove_provider(&name);
        api.unregister_provider(extension.name(), &name)
    }
}

impl HostWithStore<State> for Interfaces {
    async fn call_built_in(
        accessor: &Accessor<State, Self>,
        tool_call_id: String,
        input: String,
    ) -> Result<ToolOutput, HostError> {
        let call = accessor.with(|mut access| access.get().built_in_call(tool_call_id, &input));
        let (api, call) = call?;
        let (output, is_error) = api.call_built_in(call).await?;
        Ok(convert::to_tool_output(&output, is_error))
    }

    async fn register_provider(
        accessor: &Accessor<State, Self>,
        name: String,
        config: String,
        streams: bool,
    ) -> Result<(), HostError> {
        let (api, extension) = accessor.with(|mut access| access.get().agent())?;
        let offer = provider_offer(&extension, name, &config, streams)?;
        if offer.source.is_none() {
            let url = base_url(&offer.config)?;
            net_grant_for(accessor, &url).await.map_err(refused)?;
        }
        let name = offer.name.clone();
        let was_there = extension.offers.has_provider(&name);
        extension.offers.add_provider(&name).map_err(HostError::NotAllowed)?;
        if let Err(error) = api.register_provider(offer) {
            if !was_there {
                extension.offers.remove_provider(&name);
            }
            return Err(error.into());
        }
        // It was withdrawn meanwhile, and must not come back.
        if extension.offers.is_closed() {
            api.unregister_provider(extension.name(), &name);
        }
        Ok(())
    }
}

impl State {
    /// The agent, and the extension that talks to it.
    fn agent(&self) -> Result<(Arc<dyn HostApi>, Arc<Extension>), HostError> {
        let api = self.api().ok_or_else(no_agent)?;
        let extension = self.own().ok_or_else(no_agent)?;
        Ok((Arc::clone(api), Arc::clone(extension)))
    }

    /// A call of the built-in tool that the tool overrides whose call runs.
    fn built_in_call(
        &self,
        tool_call_id: String,
        input: &str,
    ) -> Result<(Arc<dyn HostApi>, BuiltInCall), HostError> {
        let (api, extension) = self.agent()?;
        let running = self.calls.values().find_map(|call| match &call.kind {
            CallKind::Tool { id, name, .. } if *id == tool_call_id => {
                Some((name, call.life.token()))
            }
            _ => None,
        });
        let Some((name, cancel)) = running else {
            return Err(HostError::NotAllowed(format!(
                "the call {:?} does not run: call-built-in may be called only while execute-tool of that call runs",
                cut(&tool_call_id, 100)
            )));
        };
        if !extension.has_override(name) {
            return Err(HostError::NotAllowed(format!(
                "the tool {name:?} overrides no built-in tool"
            )));
        }
        let Value::Object(input) = parse_json("input", input, MAX_DETAILS_BYTES)? else {
            return Err(HostError::Invalid("input is no JSON object".to_owned()));
        };
        Ok((api, BuiltInCall { tool_call_id, name: name.clone(), input, cancel }))
    }
}

/// A refusal of what needs a grant, where the contract has no other error.
fn refused(error: AccessError) -> HostError {
    match error {
        AccessError::Denied(text) => HostError::NotAllowed(text),
        AccessError::Invalid(text) => HostError::Invalid(text),
        AccessError::NotFound(text) | AccessError::Failed(text) | AccessError::TimedOut(text) => {
            HostError::Failed(text)
        }
        AccessError::Cancelled => HostError::Failed("the call was cancelled".to_owned()),
    }
}

fn provider_offer(
    extension: &Arc<Extension>,
    name: String,
    config: &str,
    streams: bool,
) -> Result<ProviderOffer, HostError> {
    bounded("name", &name, MAX_NAME_BYTES)?;
    if name.trim().is_empty() {
        return Err(HostError::Invalid("name is blank".to_owned()));
    }
    let config = parse_json("config", config, MAX_PROVIDER_CONFIG_BYTES)?;
    let Value::Object(config) = config else {
        return Err(HostError::Invalid("config is no JSON object".to_owned()));
    };
    let source = streams
        .then(|| Arc::new(ExtensionReplies::new(Arc::clone(extension))) as Arc<dyn ReplySource>);
    Ok(ProviderOffer { owner: extension.name().to_owned(), name, config, source })
}

/// Where the host is to send the requests of a provider. A path of a script is none.
fn base_url(config: &Map<String, Value>) -> Result<String, HostError> {
    let url = config.get("baseUrl").and_then(Value::as_str).unwrap_or_default();
    if url.starts_with("https://") || url.starts_with("http://") {
        return Ok(url.to_owned());
    }
    let text = "config.baseUrl is no address of http or https, and the provider does not stream";
    Err(HostError::Invalid(text.to_owned()))
}

fn tool_infos(tools: Vec<AgentToolSpec>) -> Vec<ToolInfo> {
    tools
        .into_iter()
        .map(|tool| ToolInfo {
            parameters: tool.parameters.to_string(),
            name: tool.name,
            description: tool.description,
        })
        .collect()
}
