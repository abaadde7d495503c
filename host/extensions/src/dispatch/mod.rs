//! How the answers of several extensions combine, one file per event. Handlers run
//! in load order; each event is made into guest data once for all of them.

mod before_agent_start;
mod before_provider_request;
mod context;
mod input;
mod notification;
mod resources_discover;
mod session_before_compact;
mod session_before_fork;
mod session_before_switch;
mod session_before_tree;
mod session_directory;
mod tool_call;
mod tool_result;
mod user_bash;

pub(crate) use before_agent_start::before_agent_start;
pub(crate) use before_provider_request::before_provider_request;
pub(crate) use context::context;
pub(crate) use input::input;
pub(crate) use notification::{MessageUpdateThrottle, event_of, notification};
pub(crate) use resources_discover::resources_discover;
pub(crate) use session_before_compact::session_before_compact;
pub(crate) use session_before_fork::session_before_fork;
pub(crate) use session_before_switch::session_before_switch;
pub(crate) use session_before_tree::session_before_tree;
pub(crate) use session_directory::session_directory;
pub(crate) use tool_call::tool_call;
pub(crate) use tool_result::tool_result;
pub(crate) use user_bash::user_bash;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::HookEvent;

use crate::call::{CallError, EventCall, Request};
use crate::extension::Extension;
use crate::limits::MAX_EVENT_DATA_BYTES;
use crate::state::CallKind;

/// One extension's answer to an event whose errors do not stop the run: None when it
/// has nothing to say. An error has been reported.
async fn ask<E, R>(
    extension: &Arc<Extension>,
    event: HookEvent,
    wrap: fn(EventCall<E, R>) -> Request,
    data: &Arc<E>,
    cancel: &CancellationToken,
) -> Option<R>
where
    R: Send + 'static,
{
    let kind = match event {
        HookEvent::SessionDirectory => CallKind::StartUp,
        _ => CallKind::Event,
    };
    let waiter = extension.send(wrap, (Arc::clone(data),), kind, event.name());
    match waiter.wait(cancel).await {
        Ok(None) => None,
        Ok(Some(Ok(answer))) => Some(answer),
        Ok(Some(Err(error))) => {
            extension.report_error(event.name(), &error);
            None
        }
        Err(error) => {
            report_call_error(extension, event.name(), &error);
            None
        }
    }
}

/// Whether messages that a summary is to be of are within their cap.
fn can_be_sent(subscribers: &[Arc<Extension>], event: HookEvent, bytes: usize) -> bool {
    fits(subscribers, event, "the messages have", bytes)
}

/// Whether an event's data is within its cap. If not, nobody is asked, and all who would
/// have been are reported. `what` is its subject and verb.
fn fits(subscribers: &[Arc<Extension>], event: HookEvent, what: &str, bytes: usize) -> bool {
    if bytes > MAX_EVENT_DATA_BYTES {
        let problem =
            format!("it is not asked: {what} {bytes} bytes; the limit is {MAX_EVENT_DATA_BYTES}");
        subscribers.iter().for_each(|extension| extension.report_error(event.name(), &problem));
        return false;
    }
    true
}

/// Reports a call that failed, unless that has been done.
pub(crate) fn report_call_error(extension: &Extension, event: &str, error: &CallError) {
    if !error.is_reported() {
        extension.report_error(event, &error.to_string());
    }
}
