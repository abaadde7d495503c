//! Wire types of Wharf: messages, events, commands, responses, dialogs, and the
//! LF framing that carries them. Nothing here performs I/O, knows the agent, or
//! depends on another crate of this workspace.

pub mod command;
pub mod event;
pub mod framing;
pub mod message;
pub mod model;
pub mod partial;
pub mod response;
pub mod surrogates;
pub mod ui;

pub use command::{Command, CommandError, RpcCommand, StreamingBehavior};
pub use event::{
    AssistantMessageEvent, CompactionReason, CompactionResult, Event, SessionTask, TaskStatus,
};
pub use message::{
    AgentMessage, AssistantContent, AssistantMessage, ContentBlock, Cost, ImageContent, StopReason,
    TextContent, ThinkingContent, ToolCall, ToolResultMessage, Usage, UserContent, UserMessage,
};
pub use model::{Model, ModelRef, ThinkingLevel};
pub use partial::{PartialMessage, StreamDelta};
pub use response::{LongResponse, Response};
