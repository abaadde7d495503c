//! `session_before_fork`: the first cancel wins, then any that keeps the conversation;
//! a failure proceeds.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{ForkVerdict, HookEvent};

use super::ask;
use crate::bindings::types::{self as wit, ForkDecision};
use crate::call::Request;
use crate::extension::Extension;

pub(crate) async fn session_before_fork(
    subscribers: &[Arc<Extension>],
    entry_id: String,
) -> ForkVerdict {
    let data = Arc::new(wit::SessionBeforeForkEvent { entry_id });
    // A fork has no run that could be aborted.
    let cancel = CancellationToken::new();
    let mut verdict = ForkVerdict::Proceed;
    for extension in subscribers {
        let kind = HookEvent::SessionBeforeFork;
        match ask(extension, kind, Request::SessionBeforeFork, &data, &cancel).await {
            None | Some(ForkDecision::Proceed) => {}
            Some(ForkDecision::KeepConversation) => verdict = ForkVerdict::KeepConversation,
            Some(ForkDecision::Cancel) => return ForkVerdict::Cancel,
        }
    }
    verdict
}
