//! What extensions ask of the agent, answered.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use wharf_protocol::message::CustomMessage;
use wharf_protocol::{AgentMessage, ImageContent, Model, ThinkingLevel, UserMessage};
use wharf_session::Session;

use crate::agent::{Agent, MAX_EXTENSION_ENTRY_BYTES};
use crate::exec;
use crate::hooks::{InputSource, ReloadedExtension, TreeOptions};
use crate::host_api::{
    BuiltInCall, CommandInfo, CommandSource, Delivery, ExecError, ExecOutput, ExecRequest, HostApi,
    HostApiError, HttpError, HttpRequest, HttpResponse, ProviderOffer,
};
use crate::input::{InputKind, Submission, SubmitError};
use crate::models::SetModelError;
use crate::navigation::{NavigateError, Navigated};
use crate::output::AgentOutput;
use crate::queue::{Queued, custom_bytes, json_bytes, user_bytes};
use crate::run::{Messages, now_millis};
use crate::snapshot::ContextUsage;
use crate::switching::{Forked, NewSession, SwitchError};
use crate::tool::{ToolOutput, ToolSpec};
use crate::toolbox::OfferedTool;

/// What an entry takes in memory besides its content, in bytes, roughly.
const ENTRY_OVERHEAD: usize = 512;

fn failed(error: impl std::fmt::Display) -> HostApiError {
    HostApiError::Failed(error.to_string())
}

/// Does it in a task: an instance that ends meanwhile must not leave it half done. It
/// begins now, not only once the future is polled.
fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, HostApiError>> + Send + 'static,
) -> BoxFuture<'static, Result<T, HostApiError>> {
    let task = tokio::spawn(work);
    Box::pin(async move {
        task.await.unwrap_or_else(|error| {
            let what = if error.is_panic() {
                "internal error; please report it"
            } else {
                "the program ends"
            };
            Err(failed(what))
        })
    })
}

fn specs(tools: &[OfferedTool]) -> Vec<ToolSpec> {
    tools.iter().map(|tool| tool.spec().clone()).collect()
}

impl From<SwitchError> for HostApiError {
    fn from(error: SwitchError) -> Self {
        match error {
            SwitchError::NoForkPoint(_) => Self::Invalid(error.to_string()),
            SwitchError::Open(_) | SwitchError::Fork(_) | SwitchError::Reader(_) => failed(error),
        }
    }
}

impl From<NavigateError> for HostApiError {
    fn from(error: NavigateError) -> Self {
        match error {
            NavigateError::NotFound(_) => Self::Invalid(error.to_string()),
            NavigateError::Streaming
            | NavigateError::Summarizing
            | NavigateError::NoModel
            | NavigateError::Failed(_) => failed(error),
        }
    }
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
        self.offer().system_prompt.to_string()
    }

    fn tools(&self) -> Vec<ToolSpec> {
        specs(&Self::active_tools(self))
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
        let bytes = data.as_ref().map_or(0, json_bytes);
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
        self.new_session_with(None)
    }

    fn switch_session(&self, file: PathBuf) -> BoxFuture<'static, Result<bool, HostApiError>> {
        let agent = self.clone();
        detached(async move { Ok(Self::switch_session(&agent, &file, false).await?) })
    }

    fn context_usage(&self) -> Option<ContextUsage> {
        ContextUsage::of(&self.state())
    }

    fn compact(&self, owner: PathBuf, instructions: Option<String>) {
        let (agent, compacted) = (self.clone(), Self::compact(self, instructions));
        tokio::spawn(async move {
            if let Err(error) = compacted.await {
                agent.tell_extension_error(&owner, "compact", error.to_string()).await;
            }
        });
    }

    fn shutdown(&self) {
        if let Err(output) = self.inner.outlet.try_send(AgentOutput::ShutdownRequested) {
            let outlet = Arc::clone(&self.inner.outlet);
            tokio::spawn(async move { outlet.send(*output).await });
        }
    }

    fn all_tools(&self) -> Vec<ToolSpec> {
        specs(&Self::all_tools(self))
    }

    fn active_tools(&self) -> Vec<String> {
        Self::active_tools(self).iter().map(|tool| tool.spec().name.clone()).collect()
    }

    fn set_active_tools(&self, names: Vec<String>) -> Result<(), HostApiError> {
        Self::set_active_tools(self, names)
    }

    fn call_built_in(
        &self,
        call: BuiltInCall,
    ) -> BoxFuture<'static, Result<(ToolOutput, bool), HostApiError>> {
        let agent = self.clone();
        Box::pin(async move { agent.run_built_in(call).await })
    }

    fn commands(&self) -> Vec<CommandInfo> {
        let resources = self.resources();
        let extensions = self.extension_commands().into_iter().map(|command| CommandInfo {
            name: command.name,
            description: Some(command.description).filter(|text| !text.is_empty()),
            source: CommandSource::Extension,
        });
        let templates = resources.templates.iter().map(|template| CommandInfo {
            name: template.name.clone(),
            description: Some(template.description.clone()),
            source: CommandSource::Prompt,
        });
        let skills = resources.skill_commands().map(|skill| CommandInfo {
            name: format!("skill:{}", skill.name),
            description: Some(skill.description.clone()),
            source: CommandSource::Skill,
        });
        extensions.chain(templates).chain(skills).collect()
    }

    fn find_models(&self, pattern: &str) -> Vec<Model> {
        let available = self.available_models();
        if pattern.trim().is_empty() {
            return available;
        }
        let (choices, _) = self.registry().scoped(&[pattern.to_owned()]);
        choices.into_iter().map(|choice| choice.model).collect()
    }

    fn set_model(&self, provider: &str, id: &str) -> Result<Model, HostApiError> {
        self.use_model(provider, id).map_err(|error| match error {
            SetModelError::NotFound(_) => HostApiError::Invalid(error.to_string()),
            SetModelError::NoCredentials(_) => failed(error),
        })
    }

    fn thinking_level(&self) -> ThinkingLevel {
        self.state().effective_level()
    }

    fn set_thinking_level(&self, level: ThinkingLevel) -> ThinkingLevel {
        self.use_thinking_level(level);
        self.state().effective_level()
    }

    fn register_provider(&self, offer: ProviderOffer) -> Result<(), HostApiError> {
        Self::register_provider(self, offer)
    }

    fn unregister_provider(&self, owner: &str, name: &str) -> bool {
        self.registry().remove_provider(owner, name)
    }

    fn fetch(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, HttpError>> {
        wharf_provider::fetch::fetch(request)
    }

    fn exec(&self, request: ExecRequest) -> BoxFuture<'static, Result<ExecOutput, ExecError>> {
        Box::pin(exec::run(request))
    }

    fn new_session_with(
        &self,
        parent_session: Option<String>,
    ) -> BoxFuture<'static, Result<bool, HostApiError>> {
        let agent = self.clone();
        detached(async move { Ok(Self::new_session(&agent, NewSession { parent_session }).await) })
    }

    fn fork(&self, entry: String) -> BoxFuture<'static, Result<Forked, HostApiError>> {
        let agent = self.clone();
        detached(async move { Ok(Self::fork(&agent, &entry).await?) })
    }

    fn navigate_tree(
        &self,
        target: String,
        options: TreeOptions,
    ) -> BoxFuture<'static, Result<Navigated, HostApiError>> {
        let moved = Self::navigate_tree(self, &target, options);
        detached(async move { Ok(moved?.await?) })
    }

    fn reload(&self) -> BoxFuture<'static, Result<Vec<ReloadedExtension>, HostApiError>> {
        let reloaded = Self::reload(self, CancellationToken::new());
        detached(async move { reloaded.await.map_err(HostApiError::Failed) })
    }
}
