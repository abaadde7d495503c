//! Events that a handler answers, and the answers. Those about sessions are in
//! `session_event`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::wharf::extension::types as wit;
use crate::tool::convert;
use crate::{BuiltinCall, Content, Image, Json, Result, ToolOutput};

/// `tool_call`: the model wants to run a tool; nothing has run yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallEvent {
    /// The id that the model gave to the call.
    pub tool_call_id: String,
    /// The tool's name.
    pub tool_name: String,
    /// The arguments, a JSON object, valid against the tool's schema.
    pub input: Json,
    /// For the built-in file tools: the canonical paths that the call would touch
    /// (`..` and links resolved). Empty for every other tool.
    pub paths: Vec<String>,
    /// True when this handler allowed the call before, and a later handler
    /// replaced the input: `Replace` and `Answer` then count as `Allow`.
    pub final_check: bool,
}

impl ToolCallEvent {
    /// The arguments of a built-in tool; none for any other tool.
    ///
    /// # Errors
    /// When the tool has a built-in's name and arguments of another shape, as a
    /// tool that replaces a built-in may have. A guard passes the error on with
    /// `?`, and the call is blocked.
    pub fn builtin(&self) -> Result<Option<BuiltinCall>> {
        BuiltinCall::parse(&self.tool_name, &self.input)
    }
}

/// What a `tool_call` handler decides. An error blocks the call, as does a trap
/// and an exceeded budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolCallDecision {
    /// The call runs.
    Allow,
    /// The call does not run; the model reads the reason.
    Block(String),
    /// The call runs with these arguments instead; they are validated again.
    Replace(Json),
    /// The call does not run, and this is its result.
    Answer(ToolOutput),
}

impl ToolCallDecision {
    /// Blocks the call for a reason that the model reads.
    pub fn block(reason: impl Into<String>) -> Self {
        Self::Block(reason.into())
    }

    /// Runs the call with other arguments.
    ///
    /// # Errors
    /// When the arguments cannot be written as JSON.
    pub fn replace<T: Serialize + ?Sized>(input: &T) -> Result<Self> {
        Ok(Self::Replace(Json::of(input)?))
    }

    /// Answers in the tool's place.
    pub fn answer(output: impl Into<ToolOutput>) -> Self {
        Self::Answer(output.into())
    }
}

/// `tool_result`: a tool has run; nobody has seen its result yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResultEvent {
    /// The id that the model gave to the call.
    pub tool_call_id: String,
    /// The tool's name.
    pub tool_name: String,
    /// The arguments that it ran with, a JSON object.
    pub input: Json,
    /// What it gave back.
    pub output: ToolOutput,
}

impl ToolResultEvent {
    /// The text of the output, its pieces joined by a line feed.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self.output.content.iter().filter_map(Content::as_text).collect();
        texts.join("\n")
    }

    /// The details of the output as a `T`; none when there are none.
    ///
    /// # Errors
    /// When the details do not have the shape of `T`.
    pub fn details<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        self.output.details.as_ref().map(Json::parse).transpose()
    }
}

/// Changes to a tool's result; what is none stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolResultPatch {
    /// Other content.
    pub content: Option<Vec<Content>>,
    /// Other details.
    pub details: Option<Json>,
    /// Whether the call counts as failed.
    pub is_error: Option<bool>,
}

impl ToolResultPatch {
    /// No change.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Other content, nothing else.
    #[must_use]
    pub fn content(content: Vec<Content>) -> Self {
        Self { content: Some(content), ..Self::default() }
    }
}

/// Where an input came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputSource {
    /// A person at a terminal.
    Interactive,
    /// A program over RPC.
    Rpc,
    /// An extension's [`send_user_message`](crate::Agent::send_user_message).
    Extension,
}

/// `input`: text on its way to the model, before skills and templates expand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputEvent {
    /// The text.
    pub text: String,
    /// The pictures with it.
    pub images: Vec<Image>,
    /// Where it came from.
    pub source: InputSource,
}

impl InputEvent {
    /// Goes on with another text and the same pictures.
    pub fn with_text(self, text: impl Into<String>) -> InputDecision {
        InputDecision::Transform { text: text.into(), images: self.images }
    }
}

/// What an `input` handler decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputDecision {
    /// Goes on unchanged.
    Proceed,
    /// Goes on with this text and these pictures.
    Transform {
        /// The text instead.
        text: String,
        /// The pictures instead.
        images: Vec<Image>,
    },
    /// The extension dealt with it; nothing is sent to the model.
    Handled,
}

/// `before_agent_start`: a run is about to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeforeAgentStartEvent {
    /// The prompt, expanded.
    pub prompt: String,
    /// The pictures with it.
    pub images: Vec<Image>,
    /// The system prompt so far.
    pub system_prompt: String,
}

/// What a `before_agent_start` handler adds to the run. The default adds nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BeforeAgentStart {
    /// Put into the conversation after the person's message.
    pub message: Option<CustomMessage>,
    /// The system prompt, for this run only.
    pub system_prompt: Option<String>,
}

/// A message of an extension's own kind that takes part in the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomMessage {
    /// The kind; by custom the extension's id.
    pub custom_type: String,
    /// What the model reads.
    pub content: Vec<Content>,
    /// True: front ends show it.
    pub display: bool,
    /// Data that the model never sees.
    pub details: Option<Json>,
}

impl CustomMessage {
    /// A message of one text that front ends show.
    pub fn new(custom_type: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            custom_type: custom_type.into(),
            content: vec![Content::text(text)],
            display: true,
            details: None,
        }
    }

    /// Only the model sees it.
    #[must_use]
    pub const fn hidden(mut self) -> Self {
        self.display = false;
        self
    }

    /// Adds data that the model never sees.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<Json>) -> Self {
        self.details = Some(details.into());
        self
    }
}

// ---- conversions -----------------------------------------------------------

impl From<wit::ToolCallEvent> for ToolCallEvent {
    fn from(event: wit::ToolCallEvent) -> Self {
        Self {
            tool_call_id: event.tool_call_id,
            tool_name: event.tool_name,
            input: Json::from_host(event.input),
            paths: event.paths,
            final_check: event.final_check,
        }
    }
}

impl From<ToolCallDecision> for wit::ToolCallDecision {
    fn from(decision: ToolCallDecision) -> Self {
        match decision {
            ToolCallDecision::Allow => Self::Allow,
            ToolCallDecision::Block(reason) => Self::Block(reason),
            ToolCallDecision::Replace(input) => Self::Replace(input.into_string()),
            ToolCallDecision::Answer(output) => Self::Answer(output.into()),
        }
    }
}

impl From<wit::ToolResultEvent> for ToolResultEvent {
    fn from(event: wit::ToolResultEvent) -> Self {
        Self {
            tool_call_id: event.tool_call_id,
            tool_name: event.tool_name,
            input: Json::from_host(event.input),
            output: event.output.into(),
        }
    }
}

impl From<ToolResultPatch> for wit::ToolResultPatch {
    fn from(patch: ToolResultPatch) -> Self {
        Self {
            content: patch.content.map(convert),
            details: patch.details.map(Json::into_string),
            is_error: patch.is_error,
        }
    }
}

impl From<wit::InputEvent> for InputEvent {
    fn from(event: wit::InputEvent) -> Self {
        Self {
            text: event.text,
            images: convert(event.images),
            source: match event.source {
                wit::InputSource::Interactive => InputSource::Interactive,
                wit::InputSource::Rpc => InputSource::Rpc,
                wit::InputSource::Extension => InputSource::Extension,
            },
        }
    }
}

impl From<InputDecision> for wit::InputDecision {
    fn from(decision: InputDecision) -> Self {
        match decision {
            InputDecision::Proceed => Self::Proceed,
            InputDecision::Transform { text, images } => {
                Self::Transform(wit::InputReplacement { text, images: convert(images) })
            }
            InputDecision::Handled => Self::Handled,
        }
    }
}

impl From<wit::BeforeAgentStartEvent> for BeforeAgentStartEvent {
    fn from(event: wit::BeforeAgentStartEvent) -> Self {
        Self {
            prompt: event.prompt,
            images: convert(event.images),
            system_prompt: event.system_prompt,
        }
    }
}

impl From<BeforeAgentStart> for wit::BeforeAgentStartAnswer {
    fn from(answer: BeforeAgentStart) -> Self {
        Self { message: answer.message.map(Into::into), system_prompt: answer.system_prompt }
    }
}

impl From<CustomMessage> for wit::CustomMessage {
    fn from(message: CustomMessage) -> Self {
        Self {
            custom_type: message.custom_type,
            content: convert(message.content),
            display: message.display,
            details: message.details.map(Json::into_string),
        }
    }
}
