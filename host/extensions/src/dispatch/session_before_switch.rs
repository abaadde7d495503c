//! `session_before_switch`: the first cancel wins; a failure proceeds.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{HookEvent, SwitchReason};

use super::ask;
use crate::bindings::types::{self as wit, SwitchDecision};
use crate::call::Request;
use crate::convert;
use crate::extension::Extension;

/// True: an extension cancelled the switch.
pub(crate) async fn session_before_switch(
    subscribers: &[Arc<Extension>],
    reason: SwitchReason,
    target: Option<PathBuf>,
) -> bool {
    if subscribers.is_empty() {
        return false;
    }
    let data = Arc::new(wit::SessionBeforeSwitchEvent {
        reason: convert::to_reason(reason),
        target_session_file: target.map(|file| file.to_string_lossy().into_owned()),
    });
    // A switch has no run that could be aborted.
    let cancel = CancellationToken::new();
    for extension in subscribers {
        let kind = HookEvent::SessionBeforeSwitch;
        let answer = ask(extension, kind, Request::SessionBeforeSwitch, &data, &cancel).await;
        if matches!(answer, Some(SwitchDecision::Cancel)) {
            return true;
        }
    }
    false
}
