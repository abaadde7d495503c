//! Commands that a client writes, one JSON object a line.
//!
//! The table at the end of this file is the one place where a command's name
//! and its parameters meet; the parser and the schema come from it.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::message::{ContentBlock, ImageContent};
use crate::model::ThinkingLevel;
use crate::response::Response;
use crate::surrogates::replace_lone_surrogates;
use crate::ui::UiResponse;

/// A line of the input that was understood.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    Rpc {
        /// Whatever JSON value the client gave; it comes back unchanged.
        id: Option<Value>,
        command: RpcCommand,
    },
    UiResponse(UiResponse),
}

/// A line that is no command; answered with [`CommandError::into_response`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct CommandError {
    pub id: Option<Value>,
    /// The command's name, or `parse` where it has none.
    pub command: String,
    pub error: String,
}

impl CommandError {
    fn parse(id: Option<Value>, problem: impl std::fmt::Display) -> Self {
        Self { id, command: "parse".into(), error: format!("Failed to parse command: {problem}") }
    }

    /// A line over the cap of `framing`.
    pub fn too_long(bytes: usize, cap: usize) -> Self {
        Self::parse(
            None,
            format_args!(
                "the line has {bytes} bytes, over the limit of {cap}; it was dropped, send it in smaller parts"
            ),
        )
    }

    pub fn into_response(self) -> Response {
        Response::failure(self.id, self.command, self.error)
    }
}

impl Command {
    /// Reads one line.
    ///
    /// # Errors
    /// No JSON, no object, no `type`, an unknown command, a field of a wrong type.
    pub fn parse(line: &[u8]) -> Result<Self, CommandError> {
        let value: Value = match serde_json::from_slice(line) {
            Ok(value) => value,
            // `JSON.stringify` writes half a pair where it cut a text inside an emoji.
            Err(error) => std::str::from_utf8(line)
                .ok()
                .and_then(replace_lone_surrogates)
                .and_then(|line| serde_json::from_str(&line).ok())
                .ok_or_else(|| CommandError::parse(None, error))?,
        };
        let Value::Object(mut fields) = value else {
            return Err(CommandError::parse(None, "expected a JSON object"));
        };
        let id = fields.remove("id");
        let kind = match fields.remove("type") {
            Some(Value::String(kind)) => kind,
            Some(_) => return Err(CommandError::parse(id, "\"type\" must be a string")),
            None => return Err(CommandError::parse(id, "missing field \"type\"")),
        };
        if kind == "extension_ui_response" {
            return match id {
                Some(Value::String(id)) => Ok(Self::UiResponse(UiResponse { id, fields })),
                id => Err(CommandError {
                    id,
                    command: kind,
                    error: "Invalid extension_ui_response: \"id\" must be the id of an extension_ui_request (a string)"
                        .into(),
                }),
            };
        }
        match RpcCommand::from_fields(&kind, fields) {
            Some(Ok(command)) => Ok(Self::Rpc { id, command }),
            Some(Err(problem)) => Err(CommandError {
                error: format!("Invalid {kind} command: {problem}"),
                id,
                command: kind,
            }),
            None => {
                Err(CommandError { error: format!("Unknown command: {kind}"), id, command: kind })
            }
        }
    }
}

/// What to do with a prompt while the agent is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum StreamingBehavior {
    #[serde(rename = "steer")]
    Steer,
    #[serde(rename = "followUp")]
    FollowUp,
}

/// An image of a prompt: `{"type": "image", "data", "mimeType"}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "ContentBlock")]
pub struct PromptImage(#[schemars(with = "ContentBlock")] pub ImageContent);

impl TryFrom<ContentBlock> for PromptImage {
    type Error = &'static str;

    fn try_from(block: ContentBlock) -> Result<Self, Self::Error> {
        match block {
            ContentBlock::Image(image) => Ok(Self(image)),
            ContentBlock::Text(_) => Err("an image must have \"type\": \"image\""),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptParams {
    pub message: String,
    #[serde(default)]
    pub images: Option<Vec<PromptImage>>,
    #[serde(default)]
    pub streaming_behavior: Option<StreamingBehavior>,
}

/// Parameters of `steer` and `follow_up`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct QueueParams {
    pub message: String,
    #[serde(default)]
    pub images: Option<Vec<PromptImage>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewSessionParams {
    #[serde(default)]
    pub parent_session: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SwitchSessionParams {
    pub session_path: String,
    /// True: open a copy of it, made for this directory, instead.
    #[serde(default)]
    pub fork: Option<bool>,
}

/// Parameters of `delete_session` and `import_session`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionPathParams {
    pub session_path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForkParams {
    /// A user message's entry.
    pub entry_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NavigateTreeParams {
    pub target_id: String,
    /// Have the model summarise the branch that is left.
    #[serde(default)]
    pub summarize: Option<bool>,
    #[serde(default)]
    pub custom_instructions: Option<String>,
    /// True: `customInstructions` stand in place of the summary's own instructions.
    #[serde(default)]
    pub replace_instructions: Option<bool>,
    /// For the summary's entry or, without a summary, for the target.
    #[serde(default)]
    pub label: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetLabelParams {
    pub entry_id: String,
    /// None, or an empty one, clears the label.
    #[serde(default)]
    pub label: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportHtmlParams {
    /// Where to; by default a file in the working directory.
    #[serde(default)]
    pub output_path: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct SetSessionNameParams {
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetModelParams {
    pub provider: String,
    pub model_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ResolveModelParams {
    /// `[provider/]pattern[:thinking]`
    pub pattern: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct SetThinkingLevelParams {
    pub level: ThinkingLevel,
}

/// How many queued messages are delivered at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QueueMode {
    All,
    #[default]
    OneAtATime,
}

impl QueueMode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::OneAtATime => "one-at-a-time",
        }
    }
}

/// Parameters of `set_steering_mode` and `set_follow_up_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct SetQueueModeParams {
    pub mode: QueueMode,
}

/// Parameters of `set_auto_compaction` and `set_auto_retry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct EnabledParams {
    pub enabled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompactParams {
    #[serde(default)]
    pub custom_instructions: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BashParams {
    pub command: String,
    /// True for what a person types as `!!command`: the model does not see it.
    #[serde(default)]
    pub exclude_from_context: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct CompleteArgumentParams {
    /// As `get_commands` names it, without the slash.
    pub command: String,
    /// What has been written of the argument.
    #[serde(default)]
    pub argument: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct NoParams {}

macro_rules! commands {
    ($($(#[$doc:meta])* $name:literal => $variant:ident($params:ty),)*) => {
        /// Every command of this version with its parameters.
        #[derive(Debug, Clone, PartialEq)]
        pub enum RpcCommand {
            $($(#[$doc])* $variant($params),)*
        }

        impl RpcCommand {
            /// Every command's name, in the table's order.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// The command's name on the wire.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }

            fn from_fields(kind: &str, fields: Map<String, Value>) -> Option<Result<Self, String>> {
                match kind {
                    $($name => Some(read::<$params>(fields).map(Self::$variant)),)*
                    _ => None,
                }
            }

            /// The JSON Schema of each command's parameters, by name.
            pub fn schemas() -> Map<String, Value> {
                let mut schemas = Map::new();
                $(schemas.insert($name.to_owned(), schemars::schema_for!($params).into());)*
                schemas
            }
        }
    };
}

commands! {
    "prompt" => Prompt(PromptParams),
    "steer" => Steer(QueueParams),
    "follow_up" => FollowUp(QueueParams),
    "abort" => Abort(NoParams),
    "new_session" => NewSession(NewSessionParams),
    "switch_session" => SwitchSession(SwitchSessionParams),
    "fork" => Fork(ForkParams),
    "get_fork_messages" => GetForkMessages(NoParams),
    "get_tree" => GetTree(NoParams),
    "navigate_tree" => NavigateTree(NavigateTreeParams),
    "set_label" => SetLabel(SetLabelParams),
    "list_sessions" => ListSessions(NoParams),
    "list_all_sessions" => ListAllSessions(NoParams),
    "delete_session" => DeleteSession(SessionPathParams),
    "import_session" => ImportSession(SessionPathParams),
    "export_html" => ExportHtml(ExportHtmlParams),
    "get_daily_cost" => GetDailyCost(NoParams),
    "get_state" => GetState(NoParams),
    "get_messages" => GetMessages(NoParams),
    "get_commands" => GetCommands(NoParams),
    "get_pending_messages" => GetPendingMessages(NoParams),
    "clear_pending_messages" => ClearPendingMessages(NoParams),
    "set_session_name" => SetSessionName(SetSessionNameParams),
    "set_model" => SetModel(SetModelParams),
    "resolve_model" => ResolveModel(ResolveModelParams),
    "cycle_model" => CycleModel(NoParams),
    "get_available_models" => GetAvailableModels(NoParams),
    "set_thinking_level" => SetThinkingLevel(SetThinkingLevelParams),
    "cycle_thinking_level" => CycleThinkingLevel(NoParams),
    "set_steering_mode" => SetSteeringMode(SetQueueModeParams),
    "set_follow_up_mode" => SetFollowUpMode(SetQueueModeParams),
    "compact" => Compact(CompactParams),
    "set_auto_compaction" => SetAutoCompaction(EnabledParams),
    "abort_compaction" => AbortCompaction(NoParams),
    "set_auto_retry" => SetAutoRetry(EnabledParams),
    "abort_retry" => AbortRetry(NoParams),
    "bash" => Bash(BashParams),
    "abort_bash" => AbortBash(NoParams),
    "get_session_stats" => GetSessionStats(NoParams),
    "get_performance_stats" => GetPerformanceStats(NoParams),
    "get_last_assistant_text" => GetLastAssistantText(NoParams),
    "get_version" => GetVersion(NoParams),
    "get_extensions" => GetExtensions(NoParams),
    "complete_argument" => CompleteArgument(CompleteArgumentParams),
    "reload" => Reload(NoParams),
}

/// Reads parameters and names the field that is wrong.
fn read<T: serde::de::DeserializeOwned>(fields: Map<String, Value>) -> Result<T, String> {
    serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner();
        if path == "." { problem.to_string() } else { format!("{path}: {problem}") }
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    fn failure(line: &str) -> Value {
        let error = Command::parse(line.as_bytes()).unwrap_err();
        serde_json::to_value(error.into_response()).unwrap()
    }

    #[test]
    fn bad_lines_say_what_is_wrong_and_keep_the_id() {
        for (line, command, error) in [
            (
                "{\"type\":",
                "parse",
                "Failed to parse command: EOF while parsing a value at line 1 column 8",
            ),
            ("", "parse", "Failed to parse command: EOF while parsing a value at line 1 column 0"),
            ("[1]", "parse", "Failed to parse command: expected a JSON object"),
            (r#"{"id":"a"}"#, "parse", "Failed to parse command: missing field \"type\""),
            (
                r#"{"id":"a","type":7}"#,
                "parse",
                "Failed to parse command: \"type\" must be a string",
            ),
            (r#"{"id":"a","type":"fly"}"#, "fly", "Unknown command: fly"),
            (
                r#"{"id":"a","type":"prompt"}"#,
                "prompt",
                "Invalid prompt command: missing field `message`",
            ),
            (
                r#"{"id":"a","type":"prompt","message":5}"#,
                "prompt",
                "Invalid prompt command: message: invalid type: integer `5`, expected a string",
            ),
            (
                r#"{"id":"a","type":"prompt","message":"m","streamingBehavior":"now"}"#,
                "prompt",
                "Invalid prompt command: streamingBehavior: unknown variant `now`, expected `steer` or `followUp`",
            ),
            (
                r#"{"id":"a","type":"prompt","message":"m","images":[{"type":"text","text":"x"}]}"#,
                "prompt",
                "Invalid prompt command: images[0]: an image must have \"type\": \"image\"",
            ),
            (
                r#"{"id":5,"type":"extension_ui_response"}"#,
                "extension_ui_response",
                "Invalid extension_ui_response: \"id\" must be the id of an extension_ui_request (a string)",
            ),
        ] {
            let response = failure(line);
            assert_eq!(response["command"], command, "{line}");
            assert_eq!(response["error"], error, "{line}");
            assert_eq!(response["success"], false, "{line}");
            let sent: Value = serde_json::from_str(line).unwrap_or_default();
            assert_eq!(response.get("id"), sent.get("id"), "{line}");
        }
    }

    #[test]
    fn a_separator_inside_a_string_is_kept() {
        let line = "{\"type\":\"prompt\",\"message\":\"a\u{2028}b\"}";
        let Command::Rpc { command: RpcCommand::Prompt(params), .. } =
            Command::parse(line.as_bytes()).unwrap()
        else {
            panic!("not a prompt");
        };
        assert_eq!(params.message, "a\u{2028}b");
    }

    #[test]
    fn half_a_surrogate_pair_costs_one_character() {
        for (text, expect) in [
            (r"cut \ud83d", "cut \u{fffd}"),
            (r"\ude00 whole \ud83d\ude00", "\u{fffd} whole \u{1f600}"),
            (r"\ud83d\ud83d\ude00 \\ud83d", "\u{fffd}\u{1f600} \\ud83d"),
        ] {
            let line = format!(r#"{{"id":1,"type":"steer","message":"{text}"}}"#);
            let Ok(Command::Rpc { command: RpcCommand::Steer(params), .. }) =
                Command::parse(line.as_bytes())
            else {
                panic!("{line}");
            };
            assert_eq!(params.message, expect);
        }
    }

    #[test]
    fn the_table_and_the_schemas_agree() {
        let schemas = RpcCommand::schemas();
        assert!(schemas.keys().map(String::as_str).eq(RpcCommand::NAMES.iter().copied()));
        assert_eq!(schemas["prompt"]["required"], json!(["message"]));
    }
}
