//! The answers of `get_state` and `get_session_stats`.

use std::path::PathBuf;

use serde::Serialize;
use wharf_protocol::{AgentMessage, Cost, Model, SessionTask, ThinkingLevel};
use wharf_provider::ModelChoice;
use wharf_session::MessageRole;

use crate::agent::{Agent, State};
use crate::conversation::context_tokens;

/// `usingSubscription` is always false: keys are the only credentials that there are.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    pub model: Option<Model>,
    pub scoped_models: Vec<ScopedModel>,
    pub using_subscription: bool,
    pub tasks: Vec<SessionTask>,
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

/// A model of the scope, with the thinking level that its pattern asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopedModel {
    pub provider: String,
    pub id: String,
    pub name: String,
    pub reasoning: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<ThinkingLevel>,
}

impl ScopedModel {
    pub(crate) fn of(choice: &ModelChoice) -> Self {
        let Model { provider, id, name, reasoning, .. } = choice.model.clone();
        Self { provider, id, name, reasoning, thinking_level: choice.thinking_level }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextUsage {
    /// Null right after a compaction, until the next reply reports.
    pub tokens: Option<u64>,
    pub context_window: u64,
    /// 0 to 100 and over; null with `tokens`.
    pub percent: Option<f64>,
}

impl ContextUsage {
    /// None without a model, or where its context window is not known.
    pub(crate) fn of(state: &State) -> Option<Self> {
        let context_window = state.model.as_ref()?.context_window;
        if context_window == 0 {
            return None;
        }
        let tokens = context_tokens(&state.messages, state.compacted);
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let percent = tokens.map(|tokens| tokens as f64 * 100.0 / context_window as f64);
        Some(Self { tokens, context_window, percent })
    }
}

/// Sums over the messages of the current branch.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStats {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_file: Option<PathBuf>,
    pub session_id: String,
    pub user_messages: usize,
    pub assistant_messages: usize,
    pub tool_calls: usize,
    pub tool_results: usize,
    pub total_messages: usize,
    pub tokens: TokenTotals,
    /// US dollars.
    pub cost: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_usage: Option<ContextUsage>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenTotals {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub total: u64,
}

impl Agent {
    /// What `get_session_stats` tells.
    pub fn stats(&self) -> SessionStats {
        let state = self.state();
        let mut stats = SessionStats {
            session_file: state.session.file().map(std::path::Path::to_owned),
            session_id: state.session.id().to_owned(),
            total_messages: state.messages.len(),
            context_usage: ContextUsage::of(&state),
            ..SessionStats::default()
        };
        for message in &state.messages {
            match message.role() {
                MessageRole::User => stats.user_messages += 1,
                MessageRole::ToolResult => stats.tool_results += 1,
                MessageRole::Assistant => {
                    stats.assistant_messages += 1;
                    let Some(message) = message.read() else { continue };
                    let AgentMessage::Assistant(reply) = message.as_ref() else { continue };
                    stats.tool_calls += reply.tool_calls().count();
                    let usage = reply.usage;
                    stats.tokens.input += usage.input;
                    stats.tokens.output += usage.output;
                    stats.tokens.cache_read += usage.cache_read;
                    stats.tokens.cache_write += usage.cache_write;
                    let Cost { total, .. } = usage.cost;
                    stats.cost += total;
                }
                MessageRole::BashExecution
                | MessageRole::Custom
                | MessageRole::BranchSummary
                | MessageRole::CompactionSummary => {}
            }
        }
        let TokenTotals { input, output, cache_read, cache_write, .. } = stats.tokens;
        stats.tokens.total = input + output + cache_read + cache_write;
        stats
    }
}
