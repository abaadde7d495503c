//! The answer of `get_state`.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use wharf_protocol::{AgentMessage, Model, ThinkingLevel};

use crate::conversation::context_tokens;

/// Fields of the reference that this version has nothing to say about are false
/// or empty: there is no scope of models, no subscription, no task list, no retry
/// and no compaction yet.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    pub model: Option<Model>,
    pub scoped_models: Vec<Value>,
    pub using_subscription: bool,
    pub tasks: Vec<Value>,
    pub thinking_level: ThinkingLevel,
    pub is_streaming: bool,
    pub is_retrying: bool,
    pub retry_attempt: u32,
    pub is_compacting: bool,
    pub steering_mode: &'static str,
    pub follow_up_mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_file: Option<PathBuf>,
    pub session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_name: Option<String>,
    pub auto_compaction_enabled: bool,
    pub message_count: usize,
    pub pending_message_count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_usage: Option<ContextUsage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextUsage {
    pub tokens: u64,
    pub context_window: u64,
    /// 0 to 100 and over.
    pub percent: f64,
}

impl ContextUsage {
    pub(crate) fn of(model: &Model, messages: &[Arc<AgentMessage>]) -> Option<Self> {
        if model.context_window == 0 {
            return None;
        }
        let tokens = context_tokens(messages);
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let percent = tokens as f64 * 100.0 / model.context_window as f64;
        Some(Self { tokens, context_window: model.context_window, percent })
    }
}
