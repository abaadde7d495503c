//! Events, as they leave on stdout in RPC and JSON mode.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::message::{AgentMessage, AssistantMessage, ContentBlock, ToolCall, ToolResultMessage};
use crate::model::{ModelRef, ThinkingLevel};

/// What a tool gave back, as events carry it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ToolOutput {
    pub content: Vec<ContentBlock>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

/// An item of the session's task list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionTask {
    pub id: String,
    pub title: String,
    pub status: TaskStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    Pending,
    InProgress,
    Completed,
}

/// Why a compaction began by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompactionReason {
    /// The context is getting large.
    Threshold,
    /// The provider refused it as too large.
    Overflow,
}

/// What a compaction gave.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompactionResult {
    pub summary: String,
    /// Entries from here on are still sent as they are.
    pub first_kept_entry_id: String,
    /// Tokens of the context before.
    pub tokens_before: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

/// What a reload did to one extension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReloadedExtension {
    pub id: String,
    pub path: String,
    /// Not there: the extension is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_version: Option<String>,
    /// Not there: the extension is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_version: Option<String>,
    /// Its content is another one than before.
    pub changed: bool,
    /// Why the new content is not used; the old one goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Event {
    AgentStart {
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<ModelRef>,
        thinking_level: ThinkingLevel,
    },
    AgentEnd {
        messages: Vec<Arc<AgentMessage>>,
    },
    TurnStart,
    TurnEnd {
        message: Arc<AgentMessage>,
        tool_results: Vec<Arc<AgentMessage>>,
    },
    MessageStart {
        message: Arc<AgentMessage>,
    },
    MessageUpdate {
        /// Left out in the lean form (`--ui dashboard`).
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<Arc<AgentMessage>>,
        assistant_message_event: AssistantMessageEvent,
    },
    MessageEnd {
        message: Arc<AgentMessage>,
    },
    ToolExecutionStart {
        tool_call_id: String,
        tool_name: String,
        args: Map<String, Value>,
    },
    ToolExecutionUpdate {
        tool_call_id: String,
        tool_name: String,
        args: Map<String, Value>,
        partial_result: ToolOutput,
    },
    ToolExecutionEnd {
        tool_call_id: String,
        tool_name: String,
        result: ToolOutput,
        is_error: bool,
    },
    /// The reply's stream was torn. What came of the reply is void; a new
    /// `message_start` follows when it begins again.
    StreamRetry {
        /// From 1.
        attempt: u32,
        max_attempts: u32,
        error_message: String,
    },
    /// The reply hit its token limit. It is void, and asked for again with more.
    LengthRetry {
        /// From 1.
        attempt: u32,
        /// Output tokens that the reply was given.
        max_tokens: u64,
        /// Those that the next one is given.
        next_max_tokens: u64,
    },
    AutoRetryStart {
        /// From 1.
        attempt: u32,
        max_attempts: u32,
        delay_ms: u64,
        error_message: String,
    },
    AutoRetryEnd {
        success: bool,
        attempt: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        final_error: Option<String>,
    },
    AutoCompactionStart {
        reason: CompactionReason,
    },
    AutoCompactionEnd {
        /// Null where it was aborted or failed.
        result: Option<CompactionResult>,
        aborted: bool,
        /// Another request to the model follows at once.
        will_retry: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        error_message: Option<String>,
    },
    SessionNameChanged {
        name: String,
    },
    TasksUpdate {
        tasks: Vec<SessionTask>,
    },
    SuggestNext {
        command: String,
    },
    ExtensionError {
        extension_path: String,
        event: String,
        error: String,
    },
    /// Extensions and resources have been loaded anew.
    ExtensionsReloaded {
        /// All that were found, and those that are gone.
        extensions: Vec<ReloadedExtension>,
    },
    ExtensionUiRequest(crate::ui::UiRequest),
    ExtensionUiResponseHandled {
        id: String,
    },
}

impl Event {
    /// The event's name on the wire.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AgentStart { .. } => "agent_start",
            Self::AgentEnd { .. } => "agent_end",
            Self::TurnStart => "turn_start",
            Self::TurnEnd { .. } => "turn_end",
            Self::MessageStart { .. } => "message_start",
            Self::MessageUpdate { .. } => "message_update",
            Self::MessageEnd { .. } => "message_end",
            Self::ToolExecutionStart { .. } => "tool_execution_start",
            Self::ToolExecutionUpdate { .. } => "tool_execution_update",
            Self::ToolExecutionEnd { .. } => "tool_execution_end",
            Self::StreamRetry { .. } => "stream_retry",
            Self::LengthRetry { .. } => "length_retry",
            Self::AutoRetryStart { .. } => "auto_retry_start",
            Self::AutoRetryEnd { .. } => "auto_retry_end",
            Self::AutoCompactionStart { .. } => "auto_compaction_start",
            Self::AutoCompactionEnd { .. } => "auto_compaction_end",
            Self::SessionNameChanged { .. } => "session_name_changed",
            Self::TasksUpdate { .. } => "tasks_update",
            Self::SuggestNext { .. } => "suggest_next",
            Self::ExtensionError { .. } => "extension_error",
            Self::ExtensionsReloaded { .. } => "extensions_reloaded",
            Self::ExtensionUiRequest(_) => "extension_ui_request",
            Self::ExtensionUiResponseHandled { .. } => "extension_ui_response_handled",
        }
    }
}

/// What a `message_update` tells. `partial` is the message so far; the lean form
/// leaves it out. `P` lets a
/// writer that serialised the message already put it in as it is.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum AssistantMessageEvent<P = Arc<AgentMessage>> {
    TextStart {
        content_index: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        partial: Option<P>,
    },
    TextDelta {
        content_index: usize,
        delta: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        partial: Option<P>,
    },
    TextEnd {
        content_index: usize,
        content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        partial: Option<P>,
    },
    ThinkingStart {
        content_index: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        partial: Option<P>,
    },
    ThinkingDelta {
        content_index: usize,
        delta: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        partial: Option<P>,
    },
    ThinkingEnd {
        content_index: usize,
        content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        partial: Option<P>,
    },
    #[serde(rename = "toolcall_start")]
    ToolCallStart {
        content_index: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        partial: Option<P>,
    },
    #[serde(rename = "toolcall_delta")]
    ToolCallDelta {
        content_index: usize,
        delta: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        partial: Option<P>,
    },
    #[serde(rename = "toolcall_end")]
    ToolCallEnd {
        content_index: usize,
        tool_call: ToolCallObject,
        #[serde(skip_serializing_if = "Option::is_none")]
        partial: Option<P>,
    },
}

/// A tool call with its `type`, as a content block has it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename = "toolCall")]
pub struct ToolCallObject {
    #[serde(flatten)]
    pub call: ToolCall,
}

/// Shorthands for the two message kinds that events carry most.
impl From<AssistantMessage> for AgentMessage {
    fn from(message: AssistantMessage) -> Self {
        Self::Assistant(message)
    }
}

impl From<ToolResultMessage> for AgentMessage {
    fn from(message: ToolResultMessage) -> Self {
        Self::ToolResult(message)
    }
}
