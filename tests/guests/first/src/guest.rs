//! An extension whose answers a test chooses. All that it shows begins with its id.
//!
//! - `/ID set EVENT WORD TEXT` says how it answers `context`, `payload`
//!   (`before_provider_request`), `resources` or `bash` (`user_bash`) from then on: `FAIL`,
//!   `TRAP`, or what is at the event's function below. Each event is shown.
//! - `/ID call FUNCTION ARGUMENTS` calls a host function and shows what it gave; a first
//!   argument `BLANK` is an empty text.
//! - Its tool `ID-tool`, and every tool that it adds, calls the built-in of its name with
//!   the same arguments, and a second time as the call `other`.
//! - It subscribes to `bus:news`, which it shows, and to `bus:loop`, which it sends on;
//!   `session_start` adds the tool `ID-started`.
//! - Its replies are steered by the model's id, see `stream_reply`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::ID;

mod bindings {
    wit_bindgen::generate!({ path: "../../../wit/0.1.1", world: "extension" });
}

use bindings::exports::wharf::extension::handlers::Guest;
use bindings::wharf::extension::agent::{self, FlagValue};
use bindings::wharf::extension::types::*;
use bindings::wharf::extension::ui::{self, DialogOptions, NotifyKind};
use bindings::wharf::extension::{bus, call, replies};

struct First;

thread_local! {
    static ANSWERS: RefCell<BTreeMap<String, String>> = const { RefCell::new(BTreeMap::new()) };
    static LOOPS: Cell<u32> = const { Cell::new(0) };
}

fn show(what: &str, text: &str) {
    ui::notify(&format!("{ID} {what} {text}"), NotifyKind::Info);
}

/// The answer to an event: its first word, and the rest.
fn answer(event: &str) -> Result<(String, String), String> {
    let answer = ANSWERS.with_borrow(|answers| answers.get(event).cloned()).unwrap_or_default();
    let (word, rest) = two(&answer);
    match word {
        "FAIL" => Err("it fails on purpose".to_owned()),
        "TRAP" => panic!("it panics on purpose"),
        _ => Ok((word.to_owned(), rest.to_owned())),
    }
}

fn two(text: &str) -> (&str, &str) {
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    (first, rest.trim())
}

fn lines(text: &str) -> Vec<String> {
    text.split_whitespace().map(|word| word.replace("BLANK", "")).collect()
}

fn tool(name: &str, overrides: bool) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        label: String::new(),
        description: format!("{name} of {ID}"),
        parameters: r#"{"type":"object"}"#.to_owned(),
        prompt_snippet: None,
        prompt_guidelines: Vec::new(),
        sequential: false,
        overrides,
    }
}

impl Guest for First {
    fn register() -> Registration {
        let flag = |name: &str, takes_value| FlagSpec {
            name: name.to_owned(),
            description: String::new(),
            takes_value,
        };
        Registration {
            id: ID.to_owned(),
            version: "0.1.0".to_owned(),
            description: String::new(),
            commands: vec![CommandSpec {
                name: ID.to_owned(),
                description: String::new(),
                argument_hint: None,
            }],
            tools: vec![tool(&format!("{ID}-tool"), true)],
            subscriptions: [
                "context",
                "before_provider_request",
                "resources_discover",
                "user_bash",
                "session_start",
                "bus:news",
                "bus:loop",
            ]
            .map(str::to_owned)
            .to_vec(),
            flags: vec![flag(&format!("{ID}-flag"), false), flag(&format!("{ID}-value"), true)],
            shortcuts: Vec::new(),
            permissions: Vec::new(),
        }
    }

    async fn run_command(_name: String, arguments: String) -> Result<(), String> {
        let (word, rest) = two(&arguments);
        let (what, rest) = two(rest);
        match word {
            "set" => {
                ANSWERS.with_borrow_mut(|answers| answers.insert(what.into(), rest.into()));
            }
            "call" => {
                let shown = function(what, rest).await;
                let shown = shown.unwrap_or_else(|error| json!({ "error": format!("{error:?}") }));
                show(what, &shown.to_string());
            }
            "die" => panic!("it panics on purpose"),
            _ => return Err(format!("not a word: {word}")),
        }
        Ok(())
    }

    async fn complete_argument(_command: String, _prefix: String) -> Vec<Completion> {
        Vec::new()
    }

    async fn execute_tool(call: ToolInvocation) -> Result<ToolOutput, String> {
        let other = agent::call_built_in("other".into(), call.input.clone()).await;
        show("other", &format!("{:?}", other.map(|_| ())));
        let output = agent::call_built_in(call.tool_call_id, call.input).await;
        output.map_err(|error| format!("{error:?}"))
    }

    async fn on_tool_call(_: ToolCallEvent) -> Result<ToolCallDecision, String> {
        Ok(ToolCallDecision::Allow)
    }

    async fn on_tool_result(_: ToolResultEvent) -> Result<ToolResultPatch, String> {
        Ok(ToolResultPatch { content: None, details: None, is_error: None })
    }

    async fn on_input(_: InputEvent) -> Result<InputDecision, String> {
        Ok(InputDecision::Proceed)
    }

    async fn on_before_agent_start(
        _: BeforeAgentStartEvent,
    ) -> Result<BeforeAgentStartAnswer, String> {
        Ok(BeforeAgentStartAnswer { message: None, system_prompt: None })
    }

    async fn on_session_before_switch(
        _: SessionBeforeSwitchEvent,
    ) -> Result<SwitchDecision, String> {
        Ok(SwitchDecision::Proceed)
    }

    async fn on_session_before_fork(_: SessionBeforeForkEvent) -> Result<ForkDecision, String> {
        Ok(ForkDecision::Proceed)
    }

    async fn on_session_before_tree(_: SessionBeforeTreeEvent) -> Result<TreeDecision, String> {
        Ok(TreeDecision::Cancel)
    }

    async fn on_session_directory(_: SessionDirectoryEvent) -> Result<Option<String>, String> {
        Ok(None)
    }

    async fn on_session_before_compact(
        _: SessionBeforeCompactEvent,
    ) -> Result<CompactDecision, String> {
        Ok(CompactDecision::Proceed)
    }

    /// `REPLACE JSON`
    async fn on_context(event: ContextEvent) -> Result<Option<String>, String> {
        show("context", &event.messages);
        let (word, rest) = answer("context")?;
        Ok((word == "REPLACE").then_some(rest))
    }

    /// `REPLACE JSON`
    async fn on_before_provider_request(
        event: ProviderRequestEvent,
    ) -> Result<Option<String>, String> {
        let ProviderRequestEvent { provider, model, api, payload } = event;
        show("payload", &format!("{provider} {model} {api} {payload}"));
        let (word, rest) = answer("payload")?;
        Ok((word == "REPLACE").then_some(rest))
    }

    /// `SKILLS PATH ...` and `PROMPTS PATH ...`; `BLANK` is an empty one. `SLOW` waits for
    /// a dialog first.
    async fn on_resources_discover(
        event: ResourcesDiscoverEvent,
    ) -> Result<DiscoveredResources, String> {
        show("resources", &format!("{} {:?}", event.cwd, event.reason));
        let (word, rest) = answer("resources")?;
        if word == "SLOW" {
            let options = DialogOptions { timeout_ms: None };
            ui::confirm(ID.to_owned(), String::new(), options).await;
        }
        let list = |wanted: bool| if wanted { lines(&rest) } else { Vec::new() };
        Ok(DiscoveredResources {
            skill_paths: list(word == "SKILLS" || word == "SLOW"),
            prompt_paths: list(word == "PROMPTS"),
        })
    }

    /// `WRAP COMMAND`, where `%` is the command; `ANSWER OUTPUT`.
    async fn on_user_bash(event: UserBashEvent) -> Result<UserBashDecision, String> {
        show("bash", &format!("{} {} {}", event.cwd, event.exclude_from_context, event.command));
        let (word, rest) = answer("bash")?;
        Ok(match word.as_str() {
            "WRAP" => UserBashDecision::Wrap(rest.replace('%', &event.command)),
            "ANSWER" => {
                UserBashDecision::Answer(UserBashResult { output: rest, exit_code: Some(3) })
            }
            _ => UserBashDecision::Proceed,
        })
    }

    async fn stream_reply(request: ReplyRequest) -> Result<ReplyEnd, ReplyFailure> {
        let model: Value = serde_json::from_str(&request.model).unwrap_or_default();
        let push = async |piece| replies::push(request.id.clone(), piece).await;
        let usage = ReplyUsage { input: 1, output: 2, cache_read: 3, cache_write: u64::MAX };
        match model["id"].as_str().unwrap_or_default() {
            "talks" => {
                show(
                    "asked",
                    &format!(
                        "{} {} {} {} {}",
                        request.provider,
                        request.system_prompt,
                        request.tools,
                        request.thinking_level,
                        request.max_tokens,
                    ),
                );
                let head = ToolCallHead { id: "c".into(), name: "t".into() };
                for piece in [
                    ReplyPiece::Thinking("hm".into()),
                    ReplyPiece::Text(request.messages.clone()),
                    ReplyPiece::ToolCall(head),
                    ReplyPiece::ToolCallArguments("{}".into()),
                ] {
                    let pushed = push(piece).await;
                    pushed.map_err(|error| failure(&format!("{error:?}"), None))?;
                }
                let big = push(ReplyPiece::Text("x".repeat(1024 * 1024 + 1))).await;
                show("big", &format!("{big:?}"));
                let gone = replies::push("gone".into(), ReplyPiece::Text("x".into())).await;
                show("gone", &format!("{gone:?}"));
                Ok(ReplyEnd { stop: ReplyStop::ToolUse, usage })
            }
            "waits" => {
                ui::notify(&format!("{ID} waits"), NotifyKind::Info);
                let waited = call::sleep(u64::MAX).await;
                call::wait_cancelled().await;
                let pushed = push(ReplyPiece::Text("late".into())).await;
                let cancelled = call::is_cancelled();
                show("ended", &format!("{waited} {cancelled} {:?}", pushed.is_err()));
                Err(failure("cancelled", None))
            }
            "floods" => {
                let text = "x".repeat(1024 * 1024);
                for _ in 0..100 {
                    if let Err(error) = push(ReplyPiece::Text(text.clone())).await {
                        return Err(failure(&format!("{error:?}"), None));
                    }
                }
                Ok(ReplyEnd { stop: ReplyStop::Stop, usage })
            }
            "fails" => Err(failure("overloaded", Some(529))),
            _ => panic!("no such model"),
        }
    }

    async fn on_notification(event: Notification) -> Result<(), String> {
        match event {
            Notification::SessionStart => {
                agent::register_tool(&tool(&format!("{ID}-started"), false))
                    .map_err(|error| format!("{error:?}"))
            }
            Notification::Other(note) if note.name == "bus:news" => {
                show("news", &note.fields);
                Ok(())
            }
            Notification::Other(note) if note.name == "bus:loop" => {
                LOOPS.set(LOOPS.get() + 1);
                bus::emit("loop", "null").map_err(|error| format!("{error:?}"))
            }
            _ => Ok(()),
        }
    }
}

fn failure(message: &str, status: Option<u16>) -> ReplyFailure {
    ReplyFailure { message: message.to_owned(), status, transient: true }
}

/// Calls a host function.
async fn function(name: &str, arguments: &str) -> Result<Value, HostError> {
    let (first, rest) = two(arguments);
    let first = if first == "BLANK" { "" } else { first };
    Ok(match name {
        "compact" => {
            let instructions = Some(arguments).filter(|text| !text.is_empty());
            agent::compact(instructions).map(|()| Value::Null)?
        }
        "shutdown" => {
            agent::shutdown();
            Value::Null
        }
        "all-tools" => agent::all_tools().into_iter().map(|tool| json!(tool.name)).collect(),
        "active-tools" => json!(agent::active_tools()),
        "set-active-tools" => {
            let names: Vec<_> = arguments.split_whitespace().map(str::to_owned).collect();
            agent::set_active_tools(&names).map(|()| Value::Null)?
        }
        "register-tool" => {
            agent::register_tool(&tool(first, rest == "overrides")).map(|()| Value::Null)?
        }
        "register-tools" => {
            let count: usize = first.parse().unwrap_or_default();
            for n in 0..count {
                agent::register_tool(&tool(&format!("{ID}-{n}"), false))?;
            }
            Value::Null
        }
        "unregister-tool" => json!(agent::unregister_tool(first)),
        "call-built-in" => {
            agent::call_built_in(first.into(), rest.into()).await.map(|_| Value::Null)?
        }
        "commands" => agent::commands()
            .into_iter()
            .map(|command| json!([command.name, format!("{:?}", command.source)]))
            .collect(),
        "find-models" => json!(agent::find_models(arguments)),
        "set-model" => json!(agent::set_model(first, rest)?),
        "thinking-level" => json!(agent::thinking_level()),
        "set-thinking-level" => json!(agent::set_thinking_level(first)?),
        "flag" => match agent::flag(first) {
            FlagValue::Absent => json!("absent"),
            FlagValue::Present => json!("present"),
            FlagValue::Value(value) => json!({ "value": value }),
        },
        "register-provider" => {
            let (config, streams) = match rest.strip_prefix("streams ") {
                Some(config) => (config, true),
                None => (rest, false),
            };
            agent::register_provider(first.into(), config.into(), streams)
                .await
                .map(|()| Value::Null)?
        }
        "unregister-provider" => json!(agent::unregister_provider(first)),
        "emit" => bus::emit(first, rest).map(|()| Value::Null)?,
        "emit-big" => {
            let size: usize = rest.parse().unwrap_or_default();
            bus::emit(first, &format!("\"{}\"", "x".repeat(size - 2))).map(|()| Value::Null)?
        }
        "flood" => {
            let text = format!("\"{}\"", "x".repeat(rest.parse().unwrap_or_default()));
            for _ in 0..first.parse().unwrap_or(0) {
                bus::emit("loop", &text)?;
            }
            Value::Null
        }
        "loops" => json!(LOOPS.get()),
        "sleep" => json!(call::sleep(first.parse().unwrap_or_default()).await),
        "is-cancelled" => json!(call::is_cancelled()),
        "wait-cancelled" => {
            call::wait_cancelled().await;
            json!([call::is_cancelled(), call::sleep(60_000).await])
        }
        _ => Value::from("no such function"),
    })
}

bindings::export!(First with_types_in bindings);
