//! The session's task list, and what else tools do to the conversation that they run in.

use std::time::Duration;

use futures::future::BoxFuture;
use serde::Deserialize as _;
use tokio_util::sync::CancellationToken;
use wharf_protocol::{AgentMessage, Event, SessionTask};
use wharf_session::ContextMessage;

use crate::agent::Agent;
use crate::tool::ToolSession;
use crate::ui::{Dialog, DialogKind, DialogOutcome, Question};

/// The tool that replaces the list.
const TASKS_UPDATE: &str = "tasks_update";

/// The list as the conversation left it: a session that is opened again has it too.
pub(crate) fn of_messages(messages: &[ContextMessage]) -> Vec<SessionTask> {
    let mut results =
        messages.iter().rev().filter(|m| m.tool_name().is_some_and(|name| name == TASKS_UPDATE));
    let last = results.find_map(|message| match message.read()?.as_ref() {
        AgentMessage::ToolResult(result) if !result.is_error => {
            Some(Vec::deserialize(result.details.as_ref()?.get("tasks")?).ok())
        }
        _ => None,
    });
    last.flatten().unwrap_or_default()
}

impl ToolSession for Agent {
    fn ask(
        &self,
        question: Question,
        timeout: Option<Duration>,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, DialogOutcome> {
        self.inner.ui.dialog(Dialog { kind: DialogKind::Ask(question), timeout, cancel })
    }

    fn set_tasks(&self, tasks: Vec<SessionTask>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.state().tasks.clone_from(&tasks);
            self.emit(Event::TasksUpdate { tasks }).await;
        })
    }

    fn suggest_next(&self, command: String) -> BoxFuture<'_, ()> {
        Box::pin(self.emit(Event::SuggestNext { command }))
    }

    fn skill(&self, name: &str, args: &str) -> Result<String, String> {
        let session_id = self.session().id().to_owned();
        self.resources()
            .expand_for_model(name, args, &session_id)
            .map_err(|error| error.to_string())
    }

    fn stop_after_turn(&self) {
        self.state().stop_after_turn = true;
    }
}
