//! From the session's messages to what a model is sent, and how full its
//! context is.

use std::collections::HashMap;
use std::sync::Arc;

use wharf_protocol::message::{BashExecutionMessage, UserContent, UserMessage};
use wharf_protocol::{
    AgentMessage, AssistantContent, AssistantMessage, ContentBlock, StopReason, ToolResultMessage,
};
use wharf_session::ContextMessage;

/// Characters of text that count as one token where no usage is known.
const CHARS_PER_TOKEN: usize = 4;
/// Tokens that an image counts as where no usage is known.
const IMAGE_TOKENS: usize = 1200;

/// The messages as a provider may be sent them: user, assistant and tool-result
/// messages only, every call directly followed by its result, nothing empty.
pub(crate) fn for_model(messages: &[Arc<AgentMessage>]) -> Vec<Arc<AgentMessage>> {
    let mut sent: Vec<Arc<AgentMessage>> = Vec::with_capacity(messages.len());
    let mut ids = CallIds::default();
    for (index, message) in messages.iter().enumerate() {
        match message.as_ref() {
            AgentMessage::User(user) => {
                if !is_blank(&user.content) {
                    sent.push(Arc::clone(message));
                }
            }
            AgentMessage::Assistant(assistant) => {
                // What a person said or ran meanwhile may stand between.
                let results = messages[index + 1..]
                    .iter()
                    .take_while(|next| !matches!(next.as_ref(), AgentMessage::Assistant(_)))
                    .filter_map(|next| match next.as_ref() {
                        AgentMessage::ToolResult(result) => Some((next, result)),
                        _ => None,
                    })
                    .collect();
                push_turn(&mut sent, (message, assistant), results, &mut ids);
            }
            // Sent with its call. One whose call is not in the reply before it has none:
            // no provider takes it.
            AgentMessage::ToolResult(_) => {}
            AgentMessage::BashExecution(run) => {
                if run.exclude_from_context != Some(true) {
                    sent.push(user_text(bash_text(run), run.timestamp));
                }
            }
            AgentMessage::Custom(custom) => {
                if !is_blank(&custom.content) {
                    sent.push(user_message(custom.content.clone(), custom.timestamp));
                }
            }
            AgentMessage::BranchSummary(summary) => sent.push(user_text(
                format!(
                    "This conversation came back from another branch. Summary of that branch:\n\n<summary>\n{}\n</summary>",
                    summary.summary
                ),
                summary.timestamp,
            )),
            AgentMessage::CompactionSummary(summary) => sent.push(user_text(
                format!(
                    "The conversation before this point was compacted. Summary of it:\n\n<summary>\n{}\n</summary>",
                    summary.summary
                ),
                summary.timestamp,
            )),
        }
    }
    sent
}

/// The ids of calls, as they are sent: no two calls of a conversation have the same.
/// Some servers begin to count anew with every reply.
#[derive(Default)]
struct CallIds {
    /// How many calls have had an id.
    used: HashMap<String, u32>,
}

impl CallIds {
    /// The call's own id; of one that is used already, an id that is the same in every
    /// request.
    fn unique(&mut self, id: &str) -> String {
        let mut unique = id.to_owned();
        while self.used.contains_key(&unique) {
            let count = self.used.entry(id.to_owned()).or_default();
            *count += 1;
            unique = format!("{id}#{count}");
        }
        self.used.insert(unique.clone(), 1);
        unique
    }
}

/// An assistant message with the results of exactly its calls. A reply that
/// failed or was aborted takes its calls back; a call without a result gets one
/// that says so.
fn push_turn(
    sent: &mut Vec<Arc<AgentMessage>>,
    (message, assistant): (&Arc<AgentMessage>, &AssistantMessage),
    mut results: Vec<(&Arc<AgentMessage>, &ToolResultMessage)>,
    ids: &mut CallIds,
) {
    let complete = !matches!(assistant.stop_reason, StopReason::Error | StopReason::Aborted);
    let keep = |block: &AssistantContent| match block {
        AssistantContent::Text(text) => !text.text.trim().is_empty(),
        AssistantContent::Thinking(thinking) => {
            complete
                && (!thinking.thinking.trim().is_empty() || thinking.thinking_signature.is_some())
        }
        AssistantContent::ToolCall(_) => complete,
    };
    let mut outputs = Vec::new();
    let mut renamed = false;
    let mut sent_ids = Vec::new();
    for call in assistant.tool_calls().filter(|_| complete) {
        let id = ids.unique(&call.id);
        renamed |= id != call.id;
        // Calls with the same id take the results with it in their order.
        let at = results.iter().position(|(_, result)| result.tool_call_id == call.id);
        outputs.push(match at.map(|at| results.remove(at)) {
            Some((output, _)) if id == call.id => Arc::clone(output),
            Some((_, result)) => Arc::new(AgentMessage::ToolResult(ToolResultMessage {
                tool_call_id: id.clone(),
                ..result.clone()
            })),
            None => Arc::new(AgentMessage::ToolResult(ToolResultMessage {
                tool_call_id: id.clone(),
                tool_name: call.name.clone(),
                content: vec![ContentBlock::text("No result: the call was interrupted.")],
                details: None,
                is_error: true,
                timestamp: assistant.timestamp,
            })),
        });
        sent_ids.push(id);
    }
    if !renamed && assistant.content.iter().all(keep) {
        if !assistant.content.is_empty() {
            sent.push(Arc::clone(message));
        }
    } else {
        let mut content: Vec<_> = assistant.content.iter().filter(|b| keep(b)).cloned().collect();
        let calls = content.iter_mut().filter_map(|block| match block {
            AssistantContent::ToolCall(call) => Some(call),
            AssistantContent::Text(_) | AssistantContent::Thinking(_) => None,
        });
        for (call, id) in calls.zip(sent_ids) {
            call.id = id;
        }
        if !content.is_empty() {
            sent.push(Arc::new(AgentMessage::Assistant(AssistantMessage {
                content,
                ..assistant.clone()
            })));
        }
    }
    sent.extend(outputs);
}

/// What stands in the place of an image that settings keep from the model.
const BLOCKED_IMAGE: &str = "[image not sent: images.blockImages is set]";

/// The same messages without their images (`images.blockImages`).
pub(crate) fn without_images(messages: Vec<Arc<AgentMessage>>) -> Vec<Arc<AgentMessage>> {
    let is_image = |block: &ContentBlock| matches!(block, ContentBlock::Image(_));
    let replace = |blocks: &mut Vec<ContentBlock>| {
        for block in blocks.iter_mut().filter(|block| is_image(block)) {
            *block = ContentBlock::text(BLOCKED_IMAGE);
        }
    };
    let without = |message: Arc<AgentMessage>| match message.as_ref() {
        AgentMessage::User(UserMessage { content: UserContent::Blocks(blocks), timestamp })
            if blocks.iter().any(is_image) =>
        {
            let mut blocks = blocks.clone();
            replace(&mut blocks);
            user_message(UserContent::Blocks(blocks), *timestamp)
        }
        AgentMessage::ToolResult(result) if result.content.iter().any(is_image) => {
            let mut result = result.clone();
            replace(&mut result.content);
            Arc::new(AgentMessage::ToolResult(result))
        }
        _ => message,
    };
    messages.into_iter().map(without).collect()
}

fn is_blank(content: &UserContent) -> bool {
    match content {
        UserContent::Text(text) => text.trim().is_empty(),
        UserContent::Blocks(blocks) => {
            blocks.iter().all(|block| block.as_text().is_some_and(|text| text.trim().is_empty()))
        }
    }
}

fn user_message(content: UserContent, timestamp: u64) -> Arc<AgentMessage> {
    Arc::new(AgentMessage::User(UserMessage { content, timestamp }))
}

fn user_text(text: String, timestamp: u64) -> Arc<AgentMessage> {
    user_message(UserContent::Blocks(vec![ContentBlock::text(text)]), timestamp)
}

/// A command that the person ran, as rpc-mode.md words it for the model; what the
/// output does not show follows it.
fn bash_text(run: &BashExecutionMessage) -> String {
    let end = if run.output.ends_with('\n') { "" } else { "\n" };
    let mut text = format!("Ran `{}`\n```\n{}{end}```", run.command, run.output);
    if run.cancelled {
        text.push_str("\n\nThe command was cancelled.");
    } else if let Some(code) = run.exit_code.filter(|code| *code != 0) {
        text.push_str(&format!("\n\nThe command exited with code {code}."));
    }
    if run.truncated {
        text.push_str("\n\nOnly the end of the output is shown.");
        if let Some(path) = &run.full_output_path {
            text.push_str(&format!(" All of it: {path}"));
        }
    }
    text
}

/// The messages, parsed; those that lack what their role asks for are left out.
pub(crate) fn parsed(messages: &[ContextMessage]) -> Vec<Arc<AgentMessage>> {
    messages.iter().filter_map(|message| message.get().cloned()).collect()
}

/// Tokens that the conversation takes: what the last complete reply reported, and an
/// estimate of what came after it. The first `compacted` messages were there before the
/// last compaction: what they report is out of date. None: only such reports exist.
pub(crate) fn context_tokens(messages: &[ContextMessage], compacted: usize) -> Option<u64> {
    let mut estimate = 0;
    for message in messages.iter().skip(compacted).rev() {
        let Some(message) = message.read() else { continue };
        if let AgentMessage::Assistant(assistant) = message.as_ref()
            && !matches!(assistant.stop_reason, StopReason::Error | StopReason::Aborted)
            && assistant.usage.total_tokens > 0
        {
            return Some(assistant.usage.total_tokens + estimate);
        }
        estimate += estimate_tokens(&message);
    }
    (compacted == 0).then_some(estimate)
}

/// An estimate that no report goes into.
pub(crate) fn estimate_all(messages: &[ContextMessage]) -> u64 {
    messages.iter().filter_map(ContextMessage::read).map(|message| estimate_tokens(&message)).sum()
}

pub(crate) fn estimate_tokens(message: &AgentMessage) -> u64 {
    let blocks = |content: &[ContentBlock]| {
        content.iter().fold((0, 0), |(chars, images), block| match block {
            ContentBlock::Text(text) => (chars + text.text.chars().count(), images),
            ContentBlock::Image(_) => (chars, images + 1),
        })
    };
    let content = |content: &UserContent| match content {
        UserContent::Text(text) => (text.chars().count(), 0),
        UserContent::Blocks(list) => blocks(list),
    };
    let (chars, images) = match message {
        AgentMessage::User(user) => content(&user.content),
        AgentMessage::Custom(custom) => content(&custom.content),
        AgentMessage::ToolResult(result) => blocks(&result.content),
        AgentMessage::Assistant(assistant) => {
            let chars = assistant.content.iter().map(|block| match block {
                AssistantContent::Text(text) => text.text.chars().count(),
                AssistantContent::Thinking(thinking) => thinking.thinking.chars().count(),
                AssistantContent::ToolCall(call) => {
                    call.name.chars().count()
                        + serde_json::to_string(&call.arguments).map_or(0, |json| json.len())
                }
            });
            (chars.sum(), 0)
        }
        AgentMessage::BashExecution(run) => (run.command.len() + run.output.chars().count(), 0),
        AgentMessage::BranchSummary(summary) => (summary.summary.chars().count(), 0),
        AgentMessage::CompactionSummary(summary) => (summary.summary.chars().count(), 0),
    };
    (chars.div_ceil(CHARS_PER_TOKEN) + images * IMAGE_TOKENS) as u64
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::{Value, json};

    use super::*;

    fn messages(list: Value) -> Vec<Arc<AgentMessage>> {
        serde_json::from_value::<Vec<AgentMessage>>(list)
            .unwrap()
            .into_iter()
            .map(Arc::new)
            .collect()
    }

    /// What is sent, as `role:detail`.
    fn check(list: Value, expect: &[&str]) {
        let seen: Vec<String> = for_model(&messages(list))
            .iter()
            .map(|message| match message.as_ref() {
                AgentMessage::User(user) => format!("user:{}", user.content.to_text()),
                AgentMessage::Assistant(assistant) => {
                    let calls: Vec<_> = assistant.tool_calls().map(|c| c.id.as_str()).collect();
                    format!("assistant:{}:{}", assistant.text(), calls.join(","))
                }
                AgentMessage::ToolResult(result) => {
                    format!("result:{}:{}", result.tool_call_id, result.is_error)
                }
                other => panic!("{other:?} must not be sent"),
            })
            .collect();
        assert_eq!(seen, expect);
    }

    fn assistant(stop: &str, content: Value) -> Value {
        json!({"role": "assistant", "content": content, "stopReason": stop})
    }

    fn call(id: &str) -> Value {
        json!({"type": "toolCall", "id": id, "name": "ls", "arguments": {}})
    }

    fn result(id: &str) -> Value {
        json!({"role": "toolResult", "toolCallId": id, "toolName": "ls", "content": [], "isError": false})
    }

    #[test]
    fn calls_and_results_are_paired_in_either_direction() {
        check(
            json!([
                {"role": "user", "content": "a"},
                assistant("toolUse", json!([call("1"), call("2"), call("3")])),
                result("3"),
                result("9"),
                result("1"),
                {"role": "user", "content": "b"},
                result("2"),
            ]),
            &[
                "user:a",
                "assistant::1,2,3",
                "result:1:false",
                "result:2:false",
                "result:3:false",
                "user:b",
            ],
        );
        check(
            json!([
                assistant("toolUse", json!([call("1"), call("2")])),
                result("2"),
                assistant("stop", json!([{"type": "text", "text": "a"}])),
                result("1"),
            ]),
            &["assistant::1,2", "result:1:true", "result:2:false", "assistant:a:"],
        );
    }

    #[test]
    fn calls_with_the_same_id_are_told_apart() {
        check(
            json!([
                assistant("toolUse", json!([call("1"), call("1"), call("1#1")])),
                result("1"),
                result("1"),
                assistant("error", json!([call("1")])),
                assistant("toolUse", json!([call("1")])),
                result("1"),
            ]),
            &[
                "assistant::1,1#2,1#1",
                "result:1:false",
                "result:1#2:false",
                "result:1#1:true",
                "assistant::1#3",
                "result:1#3:false",
            ],
        );
    }

    #[test]
    fn an_aborted_reply_keeps_its_text_and_takes_its_calls_back() {
        check(
            json!([
                {"role": "user", "content": "a"},
                assistant("aborted", json!([{"type": "text", "text": "half"}, call("1")])),
                result("1"),
                assistant("error", json!([])),
                assistant("stop", json!([{"type": "text", "text": "  "}])),
            ]),
            &["user:a", "assistant:half:"],
        );
    }

    #[test]
    fn other_roles_become_user_messages() {
        check(
            json!([
                {"role": "user", "content": ""},
                {"role": "bashExecution", "command": "ls", "output": "x"},
                {"role": "bashExecution", "command": "id", "output": "x", "excludeFromContext": true},
                {"role": "custom", "customType": "t", "content": "c", "display": false},
            ]),
            &["user:Ran `ls`\n```\nx\n```", "user:c"],
        );
        check(
            json!([
                {"role": "bashExecution", "command": "a", "output": "x", "exitCode": 2, "truncated": true, "fullOutputPath": "/t"},
                {"role": "bashExecution", "command": "b", "output": "", "cancelled": true},
            ]),
            &[
                "user:Ran `a`\n```\nx\n```\n\nThe command exited with code 2.\n\nOnly the end of the output is shown. All of it: /t",
                "user:Ran `b`\n```\n\n```\n\nThe command was cancelled.",
            ],
        );
    }

    #[test]
    fn images_are_kept_from_the_model_where_settings_say_so() {
        let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
        let list = messages(json!([
            {"role": "user", "content": [{"type": "text", "text": "look"}, image]},
            {"role": "toolResult", "toolCallId": "1", "toolName": "read", "content": [image]},
        ]));
        let sent = serde_json::to_string(&without_images(list)).unwrap();
        assert!(!sent.contains("AA=="), "{sent}");
        assert_eq!(sent.matches(BLOCKED_IMAGE).count(), 2, "{sent}");
    }

    #[test]
    fn context_is_the_last_usage_and_an_estimate_of_the_rest() {
        let list = messages(json!([
            {"role": "user", "content": "ignored by what follows"},
            {"role": "assistant", "content": [], "stopReason": "stop", "usage": {"totalTokens": 100}},
            {"role": "user", "content": "12345"},
        ]));
        let list: Vec<ContextMessage> = list.into_iter().map(ContextMessage::from).collect();
        assert_eq!(context_tokens(&list, 0), Some(102));
        assert_eq!(context_tokens(&list, 2), None, "what is reported is of the time before");
        assert_eq!(context_tokens(&list[2..], 0), Some(2));
    }
}
