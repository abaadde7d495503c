//! `tool_result`: patches chain.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{HookEvent, ToolResultEvent};

use super::ask;
use crate::bindings::types::{self as wit, ToolResultPatch};
use crate::call::Request;
use crate::convert;
use crate::extension::Extension;

/// Each handler sees the result with the patches of those before it.
pub(crate) async fn tool_result(
    subscribers: &[Arc<Extension>],
    mut event: ToolResultEvent,
    cancel: &CancellationToken,
) -> ToolResultEvent {
    if subscribers.is_empty() {
        return event;
    }
    let input = convert::to_json(&event.input);
    let mut data = Arc::new(to_guest(&event, &input));
    for extension in subscribers {
        let kind = HookEvent::ToolResult;
        let Some(patch) = ask(extension, kind, Request::ToolResult, &data, cancel).await else {
            continue;
        };
        match apply(&mut event, patch) {
            Ok(false) => {}
            Ok(true) => data = Arc::new(to_guest(&event, &input)),
            Err(problem) => extension.report_error(kind.name(), &problem),
        }
    }
    event
}

fn to_guest(event: &ToolResultEvent, input: &str) -> wit::ToolResultEvent {
    wit::ToolResultEvent {
        tool_call_id: event.tool_call_id.clone(),
        tool_name: event.tool_name.clone(),
        input: input.to_owned(),
        output: convert::to_tool_output(&event.output, event.is_error),
    }
}

/// All of a patch or, when a part is not acceptable, nothing; true when it changed something.
fn apply(event: &mut ToolResultEvent, patch: ToolResultPatch) -> Result<bool, String> {
    let changes = patch.content.is_some() || patch.details.is_some() || patch.is_error.is_some();
    let content = patch.content.map(convert::content).transpose()?;
    let details = patch.details.map(|text| convert::json("details", &text)).transpose()?;
    if let Some(content) = content {
        event.output.content = content;
    }
    if let Some(details) = details {
        event.output.details = Some(details);
    }
    if let Some(is_error) = patch.is_error {
        event.is_error = is_error;
    }
    Ok(changes)
}
