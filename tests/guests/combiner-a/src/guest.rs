//! An extension that subscribes to every event. A test tells it, by files in its `/data`,
//! how to answer, and reads there what it was asked and told:
//!
//! - `/data/EVENT` holds the answer to an event, a word: `fail`, `trap`, or one of those
//!   at the event's function below. Without the file it changes nothing. A notification
//!   has the answers `fail` and `trap` only; `trap once` removes the file first.
//! - `/data/seen` has a line for each event: nanoseconds since 1970, the event's name, and
//!   what there is to see of it.
//!
//! What it changes are the letters in the last `<<letters>>` of the event: it adds its own,
//! so that the result tells who has had a part in it, and in which order.

use std::fs;
use std::io::Write as _;
use std::time::SystemTime;

use crate::ID;

mod bindings {
    wit_bindgen::generate!({ path: "../../../wit/0.1.1", world: "extension" });
}

use bindings::exports::wharf::extension::handlers::Guest;
use bindings::wharf::extension::types::*;

const SUBSCRIPTIONS: [&str; 32] = [
    "tool_call",
    "tool_result",
    "input",
    "before_agent_start",
    "context",
    "before_provider_request",
    "user_bash",
    "resources_discover",
    "session_directory",
    "session_before_switch",
    "session_before_fork",
    "session_before_tree",
    "session_before_compact",
    "session_start",
    "session_switch",
    "session_fork",
    "session_tree",
    "session_compact",
    "session_shutdown",
    "model_select",
    "stream_retry",
    "length_retry",
    "agent_start",
    "agent_end",
    "turn_start",
    "turn_end",
    "message_start",
    "message_update",
    "message_end",
    "tool_execution_start",
    "tool_execution_update",
    "tool_execution_end",
];

struct Combiner;

/// The last letter of the id.
fn own() -> &'static str {
    ID.rsplit('-').next().unwrap_or(ID)
}

/// Notes what was seen of an event, and gives the answer to it.
fn asked(event: &str, seen: &str) -> Result<String, String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let line = format!("{} {event} {seen}\n", now.map_or(0, |now| now.as_nanos()));
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open("/data/seen")
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(|error| format!("/data/seen: {error}"))?;
    let file = format!("/data/{event}");
    let answer = fs::read_to_string(&file).unwrap_or_default();
    match answer.trim() {
        "fail" => Err(format!("{} fails on purpose", own())),
        "trap" => panic!("{} panics on purpose", own()),
        "trap once" => {
            fs::remove_file(file).map_err(|error| error.to_string())?;
            panic!("{} panics on purpose", own())
        }
        answer => Ok(answer.to_owned()),
    }
}

/// Where the letters of the last `<<letters>>` of a text end.
fn place(text: &str) -> Option<(usize, usize)> {
    let start = text.rfind("<<")? + 2;
    Some((start, start + text[start..].find(">>")?))
}

fn letters(text: &str) -> &str {
    place(text).map_or("", |(start, end)| &text[start..end])
}

/// The text with the own letter added.
fn changed(text: &str) -> String {
    match place(text) {
        Some((_, end)) => format!("{}{}{}", &text[..end], own(), &text[end..]),
        None => format!("{text} <<{}>>", own()),
    }
}

fn output(text: &str, is_error: bool) -> ToolOutput {
    ToolOutput { content: vec![Content::Text(text.to_owned())], details: None, is_error }
}

fn text_of(content: &[Content]) -> &str {
    content
        .iter()
        .find_map(|part| match part {
            Content::Text(text) => Some(text.as_str()),
            Content::Image(_) => None,
        })
        .unwrap_or_default()
}

impl Guest for Combiner {
    fn register() -> Registration {
        Registration {
            id: ID.to_owned(),
            version: "0.1.0".to_owned(),
            description: String::new(),
            commands: Vec::new(),
            tools: Vec::new(),
            subscriptions: SUBSCRIPTIONS.map(str::to_owned).to_vec(),
            flags: Vec::new(),
            shortcuts: Vec::new(),
            permissions: Vec::new(),
        }
    }

    async fn run_command(name: String, _arguments: String) -> Result<(), String> {
        Err(format!("it has no command {name}"))
    }

    async fn complete_argument(_command: String, _prefix: String) -> Vec<Completion> {
        Vec::new()
    }

    async fn execute_tool(call: ToolInvocation) -> Result<ToolOutput, String> {
        Err(format!("it has no tool {}", call.tool_name))
    }

    async fn stream_reply(_request: ReplyRequest) -> Result<ReplyEnd, ReplyFailure> {
        let message = "it has no model".to_owned();
        Err(ReplyFailure { message, status: None, transient: false })
    }

    /// `block`, `replace`, `replace badly` (with what the schema forbids), `answer`
    async fn on_tool_call(event: ToolCallEvent) -> Result<ToolCallDecision, String> {
        let again = if event.final_check { " again" } else { "" };
        let answer = asked("tool_call", &format!("{}{again}", letters(&event.input)))?;
        Ok(match answer.as_str() {
            "block" => ToolCallDecision::Block(format!("{} says no", own())),
            "replace" => ToolCallDecision::Replace(changed(&event.input)),
            "replace badly" => ToolCallDecision::Replace("{}".to_owned()),
            "answer" => ToolCallDecision::Answer(output(&format!("answer of {}", own()), false)),
            _ => ToolCallDecision::Allow,
        })
    }

    /// `text`, `details`, `error`
    async fn on_tool_result(event: ToolResultEvent) -> Result<ToolResultPatch, String> {
        let text = text_of(&event.output.content);
        let error = if event.output.is_error { " error" } else { "" };
        let answer = asked("tool_result", &format!("{}{error}", letters(text)))?;
        let mut patch = ToolResultPatch { content: None, details: None, is_error: None };
        match answer.as_str() {
            "text" => patch.content = Some(vec![Content::Text(changed(text))]),
            "details" => patch.details = Some(format!("\"details of {}\"", own())),
            "error" => patch.is_error = Some(true),
            _ => {}
        }
        Ok(patch)
    }

    /// `transform`, `handled`
    async fn on_input(event: InputEvent) -> Result<InputDecision, String> {
        let answer = asked("input", letters(&event.text))?;
        Ok(match answer.as_str() {
            "transform" => InputDecision::Transform(InputReplacement {
                text: changed(&event.text),
                images: event.images,
            }),
            "handled" => InputDecision::Handled,
            _ => InputDecision::Proceed,
        })
    }

    /// `message`, `system prompt`
    async fn on_before_agent_start(
        event: BeforeAgentStartEvent,
    ) -> Result<BeforeAgentStartAnswer, String> {
        let answer = asked("before_agent_start", letters(&event.system_prompt))?;
        let message = (answer == "message").then(|| CustomMessage {
            custom_type: "combiner".to_owned(),
            content: vec![Content::Text(format!("message of {}", own()))],
            display: true,
            details: None,
        });
        let system_prompt = (answer == "system prompt").then(|| changed(&event.system_prompt));
        Ok(BeforeAgentStartAnswer { message, system_prompt })
    }

    /// `replace`, `replace badly`
    async fn on_context(event: ContextEvent) -> Result<Option<String>, String> {
        let answer = asked("context", letters(&event.messages))?;
        Ok(match answer.as_str() {
            "replace" => Some(changed(&event.messages)),
            "replace badly" => Some("[]".to_owned()),
            _ => None,
        })
    }

    /// `replace`, `replace badly`
    async fn on_before_provider_request(
        event: ProviderRequestEvent,
    ) -> Result<Option<String>, String> {
        let answer = asked("before_provider_request", letters(&event.payload))?;
        Ok(match answer.as_str() {
            "replace" => Some(changed(&event.payload)),
            "replace badly" => Some("{".to_owned()),
            _ => None,
        })
    }

    /// `add`: the skills of `skills-LETTER` and the prompt templates of `prompts-LETTER`
    async fn on_resources_discover(
        _event: ResourcesDiscoverEvent,
    ) -> Result<DiscoveredResources, String> {
        let answer = asked("resources_discover", "")?;
        let add = |kind: &str| {
            let path = format!("{kind}-{}", own());
            if answer == "add" { vec![path] } else { Vec::new() }
        };
        Ok(DiscoveredResources { skill_paths: add("skills"), prompt_paths: add("prompts") })
    }

    /// `wrap`, `answer`
    async fn on_user_bash(event: UserBashEvent) -> Result<UserBashDecision, String> {
        let answer = asked("user_bash", letters(&event.command))?;
        Ok(match answer.as_str() {
            "wrap" => UserBashDecision::Wrap(changed(&event.command)),
            "answer" => UserBashDecision::Answer(UserBashResult {
                output: format!("answer of {}", own()),
                exit_code: Some(0),
            }),
            _ => UserBashDecision::Proceed,
        })
    }

    /// `cancel`
    async fn on_session_before_switch(
        event: SessionBeforeSwitchEvent,
    ) -> Result<SwitchDecision, String> {
        let reason = match event.reason {
            SwitchReason::New => "new",
            SwitchReason::Resume => "resume",
        };
        let answer = asked("session_before_switch", reason)?;
        Ok(if answer == "cancel" { SwitchDecision::Cancel } else { SwitchDecision::Proceed })
    }

    /// `cancel`, `keep`
    async fn on_session_before_fork(
        _event: SessionBeforeForkEvent,
    ) -> Result<ForkDecision, String> {
        let answer = asked("session_before_fork", "")?;
        Ok(match answer.as_str() {
            "cancel" => ForkDecision::Cancel,
            "keep" => ForkDecision::KeepConversation,
            _ => ForkDecision::Proceed,
        })
    }

    /// `cancel`, `summary`, `instructions`, `label`
    async fn on_session_before_tree(event: SessionBeforeTreeEvent) -> Result<TreeDecision, String> {
        let instructions = event.custom_instructions.unwrap_or_default();
        let label = event.label.unwrap_or_default();
        let seen = format!("{} {}", letters(&instructions), letters(&label));
        let answer = asked("session_before_tree", seen.trim())?;
        let mut changes = TreeChanges {
            summary: None,
            custom_instructions: TextChange::Keep,
            replace_instructions: None,
            label: TextChange::Keep,
        };
        match answer.as_str() {
            "cancel" => return Ok(TreeDecision::Cancel),
            "summary" => {
                let summary = format!("summary of {}", own());
                changes.summary = Some(TreeSummary { summary, details: None });
            }
            "instructions" => changes.custom_instructions = TextChange::Set(changed(&instructions)),
            "label" => changes.label = TextChange::Set(changed(&label)),
            _ => {}
        }
        Ok(TreeDecision::Proceed(changes))
    }

    /// `directory`: `sessions-LETTER`
    async fn on_session_directory(_event: SessionDirectoryEvent) -> Result<Option<String>, String> {
        let answer = asked("session_directory", "")?;
        Ok((answer == "directory").then(|| format!("sessions-{}", own())))
    }

    /// `cancel`, `summary`
    async fn on_session_before_compact(
        event: SessionBeforeCompactEvent,
    ) -> Result<CompactDecision, String> {
        let cause = match event.cause {
            CompactionCause::Manual => "manual",
            CompactionCause::Threshold => "threshold",
            CompactionCause::Overflow => "overflow",
        };
        let answer = asked("session_before_compact", cause)?;
        Ok(match answer.as_str() {
            "cancel" => CompactDecision::Cancel,
            "summary" => CompactDecision::Replace(OwnSummary {
                summary: format!("summary of {}", own()),
                first_kept_entry_id: None,
                details: None,
            }),
            _ => CompactDecision::Proceed,
        })
    }

    async fn on_notification(event: Notification) -> Result<(), String> {
        let note = |name: &str, seen: &str| asked(name, seen).map(|_| ());
        match event {
            Notification::SessionStart => note("session_start", ""),
            Notification::SessionSwitch(_) => note("session_switch", ""),
            Notification::SessionShutdown => note("session_shutdown", ""),
            Notification::AgentStart(_) => note("agent_start", ""),
            Notification::AgentEnd(messages) => note("agent_end", &messages),
            Notification::TurnStart => note("turn_start", ""),
            Notification::TurnEnd(turn) => note("turn_end", &turn.message),
            Notification::MessageStart(message) => note("message_start", &message),
            Notification::MessageUpdate(_) => note("message_update", ""),
            Notification::MessageEnd(message) => note("message_end", &message),
            Notification::ToolExecutionStart(tool) => {
                note("tool_execution_start", &tool.tool_call_id)
            }
            Notification::ToolExecutionUpdate(tool) => {
                note("tool_execution_update", &tool.tool_call_id)
            }
            Notification::ToolExecutionEnd(tool) => note("tool_execution_end", &tool.tool_call_id),
            Notification::Other(other) => note(&other.name, &other.fields),
        }
    }
}

bindings::export!(Combiner with_types_in bindings);
