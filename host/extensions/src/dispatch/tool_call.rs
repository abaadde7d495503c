//! `tool_call`: the one event that fails closed.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{HookEvent, RecheckInput, ToolCallEvent, ToolCallVerdict};
use wharf_agent::tool::ToolOutput;

use crate::bindings::types::{self as wit, ToolCallDecision};
use crate::call::Request;
use crate::convert;
use crate::extension::Extension;
use crate::state::CallKind;

/// Asks the subscribers in load order.
pub(crate) async fn tool_call(
    subscribers: &[Arc<Extension>],
    event: ToolCallEvent,
    recheck: RecheckInput<'_>,
    cancel: &CancellationToken,
) -> ToolCallVerdict {
    if subscribers.is_empty() {
        return ToolCallVerdict::Run(event.input);
    }
    let decide = |index: usize, event| {
        let extension = &subscribers[index];
        async move {
            let decision = decide(extension, event, cancel).await;
            decision.map_err(|problem| format!("extension {} failed: {problem}", extension.name()))
        }
    };
    combine(subscribers.len(), event, recheck, decide).await
}

/// The first block or answer ends the chain; replacements are validated again and
/// go on to the next handler. Handlers that came before the last replacement see the
/// final input once more, and can then only allow or block. An error of `decide`
/// blocks, with its text as the reason.
async fn combine<F>(
    handlers: usize,
    event: ToolCallEvent,
    recheck: RecheckInput<'_>,
    decide: impl Fn(usize, Arc<wit::ToolCallEvent>) -> F,
) -> ToolCallVerdict
where
    F: Future<Output = Result<Decision, String>>,
{
    let mut call = PendingCall::new(event);
    let mut last_change = 0;
    for index in 0..handlers {
        match decide(index, Arc::clone(&call.event)).await {
            Ok(Decision::Allow) => {}
            Ok(Decision::Block(reason)) | Err(reason) => return ToolCallVerdict::Block(reason),
            Ok(Decision::Answer { output, is_error }) => {
                return ToolCallVerdict::Answer { output, is_error };
            }
            Ok(Decision::Replace(input)) => {
                match recheck(&input) {
                    Ok(paths) => call.replace(input, &paths),
                    Err(problem) => return ToolCallVerdict::Block(problem),
                }
                last_change = index;
            }
        }
    }
    // Nothing changed after the first handler: all have seen what will run.
    if last_change > 0 {
        let event = wit::ToolCallEvent { final_check: true, ..(*call.event).clone() };
        let event = Arc::new(event);
        for index in 0..last_change {
            match decide(index, Arc::clone(&event)).await {
                Ok(Decision::Block(reason)) | Err(reason) => return ToolCallVerdict::Block(reason),
                Ok(_) => {}
            }
        }
    }
    ToolCallVerdict::Run(call.input)
}

/// A guest's decision, checked.
#[derive(Debug, Clone)]
enum Decision {
    Allow,
    Block(String),
    Replace(Map<String, Value>),
    Answer { output: ToolOutput, is_error: bool },
}

/// The call as it stands, and the same as guests see it.
struct PendingCall {
    input: Map<String, Value>,
    event: Arc<wit::ToolCallEvent>,
}

impl PendingCall {
    fn new(event: ToolCallEvent) -> Self {
        let guest = wit::ToolCallEvent {
            tool_call_id: event.tool_call_id,
            tool_name: event.tool_name,
            input: convert::to_json(&event.input),
            paths: to_paths(&event.paths),
            final_check: false,
        };
        Self { input: event.input, event: Arc::new(guest) }
    }

    fn replace(&mut self, input: Map<String, Value>, paths: &[PathBuf]) {
        self.event = Arc::new(wit::ToolCallEvent {
            tool_call_id: self.event.tool_call_id.clone(),
            tool_name: self.event.tool_name.clone(),
            input: convert::to_json(&input),
            paths: to_paths(paths),
            final_check: false,
        });
        self.input = input;
    }
}

fn to_paths(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

/// One handler's decision; an error is what went wrong.
async fn decide(
    extension: &Arc<Extension>,
    event: Arc<wit::ToolCallEvent>,
    cancel: &CancellationToken,
) -> Result<Decision, String> {
    let name = HookEvent::ToolCall.name();
    let waiter = extension.send(Request::ToolCall, (event,), CallKind::Event, name);
    let decision = match waiter.wait(cancel).await {
        Ok(Some(decision)) => decision?,
        Ok(None) => ToolCallDecision::Allow,
        Err(error) => return Err(error.to_string()),
    };
    Ok(match decision {
        ToolCallDecision::Allow => Decision::Allow,
        ToolCallDecision::Block(reason) => Decision::Block(reason),
        ToolCallDecision::Replace(input) => {
            Decision::Replace(convert::object("the replaced input", &input)?)
        }
        ToolCallDecision::Answer(output) => {
            let (output, is_error) = convert::tool_output(output)?;
            Decision::Answer { output, is_error }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;

    type Handler = fn(&str, bool) -> Result<Decision, String>;

    fn replace(text: &str) -> Decision {
        let Value::Object(input) = json!({ "command": text }) else { unreachable!() };
        Decision::Replace(input)
    }

    /// Runs handlers over a command; gives the verdict and what each handler saw.
    async fn check(handlers: &[Handler], command: &str) -> (String, Vec<String>) {
        let Value::Object(input) = json!({ "command": command }) else { unreachable!() };
        let event = ToolCallEvent {
            tool_call_id: "1".into(),
            tool_name: "bash".into(),
            input,
            paths: Vec::new(),
        };
        let seen = Mutex::new(Vec::new());
        let decide = |index: usize, event: Arc<wit::ToolCallEvent>| {
            let input: Value = serde_json::from_str(&event.input).unwrap_or_default();
            let command = input["command"].as_str().unwrap_or_default().to_owned();
            let note = format!("{index}:{command}{}", if event.final_check { "!" } else { "" });
            if let Ok(mut seen) = seen.lock() {
                seen.push(note);
            }
            std::future::ready(handlers[index](&command, event.final_check))
        };
        let recheck = |input: &Map<String, Value>| match input["command"].as_str() {
            Some("invalid") => Err("not valid".to_owned()),
            _ => Ok(Vec::new()),
        };
        let verdict = match combine(handlers.len(), event, &recheck, decide).await {
            ToolCallVerdict::Run(input) => format!("run {}", input["command"]),
            ToolCallVerdict::Block(reason) => format!("block {reason}"),
            ToolCallVerdict::Answer { .. } => "answer".to_owned(),
        };
        (verdict, seen.into_inner().unwrap_or_default())
    }

    const ALLOW: Handler = |_, _| Ok(Decision::Allow);
    const TO_B: Handler = |_, _| Ok(replace("b"));
    const BLOCK: Handler = |command, _| Ok(Decision::Block(format!("no {command}")));
    const BLOCK_B: Handler = |command, _| {
        Ok(if command == "b" { Decision::Block("no b".into()) } else { Decision::Allow })
    };

    #[tokio::test]
    async fn the_first_block_or_answer_ends_the_chain() {
        assert_eq!(
            check(&[ALLOW, BLOCK, ALLOW], "a").await,
            ("block no a".into(), vec!["0:a".into(), "1:a".into()])
        );
        let answer: Handler = |_, _| {
            let output = ToolOutput { content: Vec::new(), details: None };
            Ok(Decision::Answer { output, is_error: false })
        };
        assert_eq!(check(&[answer, BLOCK], "a").await, ("answer".into(), vec!["0:a".into()]));
        let fails: Handler = |_, _| Err("extension x failed: y".into());
        assert_eq!(check(&[fails, ALLOW], "a").await.0, "block extension x failed: y");
    }

    #[tokio::test]
    async fn replacements_chain_and_are_validated() {
        assert_eq!(
            check(&[TO_B, ALLOW], "a").await,
            ("run \"b\"".into(), vec!["0:a".into(), "1:b".into()])
        );
        let invalid: Handler = |_, _| Ok(replace("invalid"));
        assert_eq!(
            check(&[invalid, ALLOW], "a").await,
            ("block not valid".into(), vec!["0:a".into()])
        );
    }

    #[tokio::test]
    async fn earlier_handlers_see_a_later_replacement_once_more() {
        assert_eq!(
            check(&[ALLOW, TO_B, ALLOW], "a").await,
            ("run \"b\"".into(), vec!["0:a".into(), "1:a".into(), "2:b".into(), "0:b!".into()])
        );
        assert_eq!(check(&[BLOCK_B, TO_B], "a").await.0, "block no b");
        // In the final check a replacement counts as an allowance.
        let to_c: Handler = |_, _| Ok(replace("c"));
        assert_eq!(
            check(&[to_c, TO_B], "a").await,
            ("run \"b\"".into(), vec!["0:a".into(), "1:c".into(), "0:b!".into()])
        );
    }
}
