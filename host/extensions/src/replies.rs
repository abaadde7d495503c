//! Replies of models that an extension answers for: the agent asks, the guest's
//! `stream-reply` answers. The pieces come through `host::replies`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wharf_agent::host_api::{
    ReplyEnd, ReplyFailure, ReplyPiece, ReplyRequest, ReplySource, ReplyStop,
};
use wharf_protocol::{AgentMessage, Usage};

use crate::bindings::types as wit;
use crate::call::{CallError, Request};
use crate::convert;
use crate::extension::Extension;
use crate::limits::{MAX_EVENT_DATA_BYTES, MAX_NAME_BYTES, truncated};
use crate::state::CallKind;

/// How reports name the call.
const EVENT: &str = "stream_reply";

/// Names a reply within one process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// An extension that answers for the models of its providers.
#[derive(Debug)]
pub(crate) struct ExtensionReplies {
    extension: Arc<Extension>,
}

impl ExtensionReplies {
    pub(crate) const fn new(extension: Arc<Extension>) -> Self {
        Self { extension }
    }
}

impl ReplySource for ExtensionReplies {
    fn reply(
        &self,
        request: ReplyRequest,
        pieces: mpsc::Sender<ReplyPiece>,
    ) -> BoxFuture<'static, Result<ReplyEnd, ReplyFailure>> {
        let extension = Arc::clone(&self.extension);
        Box::pin(async move {
            let id = format!("reply-{}", NEXT.fetch_add(1, Ordering::Relaxed));
            let request = to_guest(request, id.clone())?;
            let kind = CallKind::Reply { id, pieces, bytes: 0 };
            let waiter = extension.send(Request::StreamReply, (request,), kind, EVENT);
            // Dropping this future drops the waiter, which cancels the call.
            let name = extension.name();
            match waiter.wait(&CancellationToken::new()).await {
                Ok(Some(Ok(end))) => Ok(accept(end)),
                Ok(Some(Err(failure))) => Err(ReplyFailure {
                    message: truncated(failure.message, MAX_NAME_BYTES),
                    status: failure.status,
                    transient: failure.transient,
                }),
                Ok(None) => {
                    Err(failed(format!("the extension {name} does not export stream-reply")))
                }
                Err(error) => Err(ReplyFailure {
                    // Another one of its calls failed: this one may well work.
                    transient: matches!(error, CallError::Restarted(_)),
                    ..failed(format!("the extension {name} failed: {error}"))
                }),
            }
        })
    }
}

fn failed(message: String) -> ReplyFailure {
    ReplyFailure { message, status: None, transient: false }
}

fn to_guest(request: ReplyRequest, id: String) -> Result<wit::ReplyRequest, ReplyFailure> {
    let messages: Vec<_> =
        request.messages.iter().filter(|message| is_for_models(message)).collect();
    let tools: Vec<_> = request
        .tools
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            })
        })
        .collect();
    let messages = convert::to_json(&messages);
    if messages.len() > MAX_EVENT_DATA_BYTES {
        return Err(failed(format!(
            "the messages have {} bytes; an extension takes {MAX_EVENT_DATA_BYTES}",
            messages.len()
        )));
    }
    Ok(wit::ReplyRequest {
        id,
        provider: request.model.provider.to_string(),
        model: convert::to_json(&request.model),
        system_prompt: request.system_prompt.to_string(),
        messages,
        tools: convert::to_json(&tools),
        thinking_level: request.thinking_level.as_str().to_owned(),
        max_tokens: request.max_tokens,
    })
}

/// The agent has made all others into messages of the person.
const fn is_for_models(message: &AgentMessage) -> bool {
    match message {
        AgentMessage::User(_) | AgentMessage::Assistant(_) | AgentMessage::ToolResult(_) => true,
        AgentMessage::BashExecution(_)
        | AgentMessage::Custom(_)
        | AgentMessage::BranchSummary(_)
        | AgentMessage::CompactionSummary(_) => false,
    }
}

fn accept(end: wit::ReplyEnd) -> ReplyEnd {
    let wit::ReplyUsage { input, output, cache_read, cache_write } = end.usage;
    let parts = [input, output, cache_read, cache_write];
    ReplyEnd {
        stop: match end.stop {
            wit::ReplyStop::Stop => ReplyStop::Stop,
            wit::ReplyStop::Length => ReplyStop::Length,
            wit::ReplyStop::ToolUse => ReplyStop::ToolUse,
        },
        usage: Usage {
            input,
            output,
            cache_read,
            cache_write,
            total_tokens: parts.into_iter().fold(0, u64::saturating_add),
            ..Usage::default()
        },
    }
}
