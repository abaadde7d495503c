//! Notifications, made into guest data once for all subscribers.

use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use wharf_agent::hooks::{HookEvent, HookNotification};
use wharf_protocol::Event;
use wharf_session::Entry;

use crate::bindings::types as wit;
use crate::convert::{to_json, to_reason};

/// `message_update` reaches extensions at most twenty times a second; the last
/// state is in `message_end`.
const MESSAGE_UPDATE_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct MessageUpdateThrottle(Mutex<Option<Instant>>);

impl MessageUpdateThrottle {
    /// True when an update at `now` is to be delivered.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| now.duration_since(last) >= MESSAGE_UPDATE_INTERVAL);
        if due {
            *last = Some(now);
        }
        due
    }
}

/// Which event a notification is; None for events that only front ends see.
pub(crate) fn event_of(notification: &HookNotification) -> Option<HookEvent> {
    match notification {
        HookNotification::SessionStart => Some(HookEvent::SessionStart),
        HookNotification::SessionSwitch { .. } => Some(HookEvent::SessionSwitch),
        HookNotification::SessionFork { .. } => Some(HookEvent::SessionFork),
        HookNotification::SessionTree { .. } => Some(HookEvent::SessionTree),
        HookNotification::SessionCompact { .. } => Some(HookEvent::SessionCompact),
        HookNotification::ModelSelect { .. } => Some(HookEvent::ModelSelect),
        HookNotification::SessionShutdown => Some(HookEvent::SessionShutdown),
        HookNotification::Wire(event) => {
            HookEvent::ALL.into_iter().find(|known| known.name() == event.name())
        }
    }
}

/// The guest's form; None when there is nothing to tell.
pub(crate) fn notification(notification: &HookNotification) -> Option<wit::Notification> {
    Some(match notification {
        HookNotification::SessionStart => wit::Notification::SessionStart,
        HookNotification::SessionSwitch { reason, previous_session_file } => {
            wit::Notification::SessionSwitch(wit::SessionSwitchNote {
                reason: to_reason(*reason),
                previous_session_file: to_text(previous_session_file.as_deref()),
            })
        }
        HookNotification::SessionFork { previous_session_file } => other(
            HookEvent::SessionFork.name(),
            &json!({ "previousSessionFile": to_text(previous_session_file.as_deref()) }),
        ),
        HookNotification::SessionTree {
            new_leaf_id,
            old_leaf_id,
            summary_entry,
            from_extension,
        } => {
            let note = SessionTreeNote {
                new_leaf_id: new_leaf_id.as_deref(),
                old_leaf_id: old_leaf_id.as_deref(),
                summary_entry: summary_entry.as_deref(),
                from_extension: *from_extension,
            };
            other(HookEvent::SessionTree.name(), &note)
        }
        HookNotification::SessionCompact { entry_id, result, from_extension } => other(
            HookEvent::SessionCompact.name(),
            &json!({ "entryId": entry_id, "result": result, "fromExtension": from_extension }),
        ),
        HookNotification::ModelSelect { model, previous, source } => other(
            HookEvent::ModelSelect.name(),
            &json!({ "model": model, "previousModel": previous, "source": source.as_str() }),
        ),
        HookNotification::SessionShutdown => wit::Notification::SessionShutdown,
        HookNotification::Wire(event) => return wire(event),
    })
}

/// What a move in the tree tells. The entry goes out as its own text.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionTreeNote<'a> {
    new_leaf_id: Option<&'a str>,
    old_leaf_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary_entry: Option<&'a Entry>,
    from_extension: bool,
}

fn to_text(path: Option<&Path>) -> Option<String> {
    path.map(|path| path.to_string_lossy().into_owned())
}

/// What the WIT has no case for.
fn other(name: &str, fields: &impl Serialize) -> wit::Notification {
    wit::Notification::Other(wit::OtherNote { name: name.to_owned(), fields: to_json(fields) })
}

fn wire(event: &Event) -> Option<wit::Notification> {
    Some(match event {
        Event::AgentStart { model, thinking_level } => {
            wit::Notification::AgentStart(wit::AgentStartNote {
                model: model.as_ref().map(|model| format!("{}/{}", model.provider, model.id)),
                thinking_level: thinking_level.as_str().to_owned(),
            })
        }
        Event::AgentEnd { messages } => wit::Notification::AgentEnd(to_json(messages)),
        Event::TurnStart => wit::Notification::TurnStart,
        Event::TurnEnd { message, tool_results } => wit::Notification::TurnEnd(wit::TurnEndNote {
            message: to_json(message),
            tool_results: to_json(tool_results),
        }),
        Event::MessageStart { message } => wit::Notification::MessageStart(to_json(message)),
        // The lean form, which has no message, is a front end's.
        Event::MessageUpdate { message, .. } => {
            let message = to_json(message.as_ref()?);
            wit::Notification::MessageUpdate(wit::MessageUpdateNote { message })
        }
        Event::MessageEnd { message } => wit::Notification::MessageEnd(to_json(message)),
        Event::ToolExecutionStart { tool_call_id, tool_name, args } => {
            wit::Notification::ToolExecutionStart(wit::ToolStartNote {
                tool_call_id: tool_call_id.clone(),
                tool_name: tool_name.clone(),
                args: to_json(args),
            })
        }
        Event::ToolExecutionUpdate { tool_call_id, tool_name, args, partial_result } => {
            wit::Notification::ToolExecutionUpdate(wit::ToolUpdateNote {
                tool_call_id: tool_call_id.clone(),
                tool_name: tool_name.clone(),
                args: to_json(args),
                partial_result: to_json(partial_result),
            })
        }
        Event::ToolExecutionEnd { tool_call_id, tool_name, result, is_error } => {
            wit::Notification::ToolExecutionEnd(wit::ToolEndNote {
                tool_call_id: tool_call_id.clone(),
                tool_name: tool_name.clone(),
                result: to_json(result),
                is_error: *is_error,
            })
        }
        Event::StreamRetry { attempt, max_attempts, error_message } => other(
            event.name(),
            &json!({
                "attempt": attempt,
                "maxAttempts": max_attempts,
                "errorMessage": error_message,
            }),
        ),
        Event::LengthRetry { attempt, max_tokens, next_max_tokens } => other(
            event.name(),
            &json!({
                "attempt": attempt,
                "maxTokens": max_tokens,
                "nextMaxTokens": next_max_tokens,
            }),
        ),
        Event::AutoRetryStart { .. }
        | Event::AutoRetryEnd { .. }
        | Event::AutoCompactionStart { .. }
        | Event::AutoCompactionEnd { .. }
        | Event::SessionNameChanged { .. }
        | Event::TasksUpdate { .. }
        | Event::SuggestNext { .. }
        | Event::ExtensionsReloaded { .. }
        | Event::ExtensionError { .. }
        | Event::ExtensionUiRequest(_)
        | Event::ExtensionUiResponseHandled { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_thinned_to_twenty_a_second() {
        let throttle = MessageUpdateThrottle::default();
        let start = Instant::now();
        let admitted =
            (0..1_000).filter(|ms| throttle.admits(start + Duration::from_millis(*ms))).count();
        assert_eq!(admitted, 20);
    }
}
