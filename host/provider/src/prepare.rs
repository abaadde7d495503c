//! The conversation as one model's API may be sent it: what another model signed is
//! taken out, what stands together is put together.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::BoxStream;
use wharf_protocol::{
    AgentMessage, AssistantContent, AssistantMessage, ContentBlock, Model, ToolResultMessage,
    UserContent, UserMessage,
};

use crate::{Provider, ProviderError, ProviderEvent, Request};

/// Characters of a tool's name that every API takes.
const MAX_NAME: usize = 64;

/// Stands in the place of an image for a model that takes none.
const NO_IMAGES: &str = "[image left out: this model takes no images]";

/// The messages for `model`:
/// - a reply of another model keeps its text and its calls; its thinking and all of its
///   signatures go, since only the model that made them takes them back;
/// - a reply that says nothing (it was aborted early) goes: servers refuse empty ones;
/// - names of tools that a model made up get characters that servers take, and a result
///   has the name of its call;
/// - user messages that follow each other become one: some servers want the roles to
///   alternate;
/// - images become a remark where the model takes none.
pub(crate) fn messages(list: &[Arc<AgentMessage>], model: &Model) -> Vec<Arc<AgentMessage>> {
    let takes_images = model.input.iter().any(|kind| kind == "image");
    let mut sent: Vec<Arc<AgentMessage>> = Vec::with_capacity(list.len());
    // The names of the last reply's calls, by id.
    let mut names: HashMap<String, String> = HashMap::new();
    for message in list {
        let message = match message.as_ref() {
            AgentMessage::Assistant(reply) => {
                let own = is_own(reply, model);
                let mut reply = if own { Cow::Borrowed(reply) } else { Cow::Owned(foreign(reply)) };
                names.clear();
                clean_names(&mut reply, &mut names);
                if says_nothing(&reply) {
                    continue;
                }
                match reply {
                    Cow::Borrowed(_) => Arc::clone(message),
                    Cow::Owned(reply) => Arc::new(AgentMessage::Assistant(reply)),
                }
            }
            AgentMessage::ToolResult(result) => {
                let name = names.get(&result.tool_call_id).unwrap_or(&result.tool_name);
                let message = if *name == result.tool_name {
                    Arc::clone(message)
                } else {
                    let tool_name = name.clone();
                    let result = ToolResultMessage { tool_name, ..result.clone() };
                    Arc::new(AgentMessage::ToolResult(result))
                };
                if takes_images { message } else { without_images(&message) }
            }
            _ if !takes_images => without_images(message),
            _ => Arc::clone(message),
        };
        match (sent.last_mut(), message.as_ref()) {
            (Some(last), AgentMessage::User(user)) if matches!(**last, AgentMessage::User(_)) => {
                let AgentMessage::User(before) = Arc::make_mut(last) else { continue };
                let mut blocks = into_blocks(std::mem::replace(
                    &mut before.content,
                    UserContent::Blocks(Vec::new()),
                ));
                blocks.extend(into_blocks(user.content.clone()));
                before.content = UserContent::Blocks(blocks);
            }
            _ => sent.push(message),
        }
    }
    sent
}

/// A provider that gets its requests prepared, as those get them that are asked over HTTP.
#[derive(Debug)]
pub(crate) struct Prepared(pub(crate) Arc<dyn Provider>);

impl Provider for Prepared {
    fn stream(
        &self,
        mut request: Request,
    ) -> BoxStream<'static, Result<ProviderEvent, ProviderError>> {
        request.thinking_level = crate::thinking::clamp(request.thinking_level, &request.model);
        request.messages = messages(&request.messages, &request.model);
        self.0.stream(request)
    }
}

fn clean_names(reply: &mut Cow<'_, AssistantMessage>, names: &mut HashMap<String, String>) {
    let mut is_clean = true;
    for call in reply.tool_calls() {
        let name = function_name(&call.name);
        is_clean &= name == call.name;
        names.insert(call.id.clone(), name);
    }
    if is_clean {
        return;
    }
    for block in &mut reply.to_mut().content {
        if let AssistantContent::ToolCall(call) = block {
            call.name = function_name(&call.name);
        }
    }
}

/// A name that servers do not refuse to see again: letters, digits, `_` and `-`, the
/// first one a letter or `_`.
pub(crate) fn function_name(name: &str) -> String {
    let fitting = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().take(MAX_NAME).map(fitting).collect();
    match name.chars().next() {
        None => "unknown".to_owned(),
        // Google wants a letter or an underscore there.
        Some(first) if first.is_ascii_digit() || first == '-' => {
            format!("_{name}").chars().take(MAX_NAME).collect()
        }
        Some(_) => name,
    }
}

fn is_own(reply: &AssistantMessage, model: &Model) -> bool {
    reply.provider == model.provider && reply.api == model.api && reply.model == model.id
}

/// Nothing of it can be sent back: thinking alone is no reply without its signature.
fn says_nothing(reply: &AssistantMessage) -> bool {
    let is_empty = |signature: &Option<String>| signature.as_deref().is_none_or(str::is_empty);
    reply.content.iter().all(|block| match block {
        AssistantContent::Text(text) => {
            text.text.trim().is_empty() && is_empty(&text.text_signature)
        }
        AssistantContent::Thinking(thinking) => is_empty(&thinking.thinking_signature),
        AssistantContent::ToolCall(_) => false,
    })
}

/// A reply of another model.
fn foreign(reply: &AssistantMessage) -> AssistantMessage {
    let content: Vec<AssistantContent> = reply
        .content
        .iter()
        .filter_map(|block| match block.clone() {
            AssistantContent::Thinking(_) => None,
            AssistantContent::Text(mut text) => {
                text.text_signature = None;
                Some(AssistantContent::Text(text))
            }
            AssistantContent::ToolCall(mut call) => {
                call.thought_signature = None;
                Some(AssistantContent::ToolCall(call))
            }
        })
        .collect();
    AssistantMessage { content, ..reply.clone() }
}

fn into_blocks(content: UserContent) -> Vec<ContentBlock> {
    match content {
        UserContent::Text(text) => vec![ContentBlock::text(text)],
        UserContent::Blocks(blocks) => blocks,
    }
}

fn without_images(message: &Arc<AgentMessage>) -> Arc<AgentMessage> {
    let replaced = |blocks: &[ContentBlock]| {
        blocks.iter().any(|block| matches!(block, ContentBlock::Image(_))).then(|| {
            let replace = |block: &ContentBlock| match block {
                ContentBlock::Image(_) => ContentBlock::text(NO_IMAGES),
                ContentBlock::Text(_) => block.clone(),
            };
            blocks.iter().map(replace).collect::<Vec<_>>()
        })
    };
    match message.as_ref() {
        AgentMessage::User(UserMessage { content: UserContent::Blocks(blocks), timestamp }) => {
            replaced(blocks).map_or_else(
                || Arc::clone(message),
                |blocks| {
                    let content = UserContent::Blocks(blocks);
                    Arc::new(AgentMessage::User(UserMessage { content, timestamp: *timestamp }))
                },
            )
        }
        AgentMessage::ToolResult(result) => replaced(&result.content).map_or_else(
            || Arc::clone(message),
            |content| {
                let mut result = result.clone();
                result.content = content;
                Arc::new(AgentMessage::ToolResult(result))
            },
        ),
        _ => Arc::clone(message),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::{Value, json};

    use super::*;
    use crate::registry::testing::model;

    fn user(content: Value) -> Value {
        json!({"role": "user", "content": content, "timestamp": 1})
    }

    fn reply(of: &str, content: Value) -> Value {
        json!({
            "role": "assistant", "content": content, "api": "scripted", "provider": "p",
            "model": of, "stopReason": "stop", "timestamp": 1,
        })
    }

    fn result(content: Value) -> Value {
        json!({
            "role": "toolResult", "toolCallId": "c", "toolName": "read", "content": content,
            "isError": false, "timestamp": 1,
        })
    }

    /// Role and content of what is sent to the model `own` of the provider `p`.
    #[track_caller]
    fn check(list: &[Value], takes_images: bool, expect: &[(&str, Value)]) {
        let mut model = model("p", "own");
        if !takes_images {
            model.input.retain(|kind| kind != "image");
        }
        let list: Vec<Arc<AgentMessage>> =
            list.iter().map(|m| serde_json::from_value(m.clone()).unwrap()).collect();
        let before: Vec<Value> = list.iter().map(|m| serde_json::to_value(m).unwrap()).collect();
        let sent = messages(&list, &model);
        let seen: Vec<(String, Value)> = sent
            .iter()
            .map(|message| {
                let message = serde_json::to_value(message).unwrap();
                (message["role"].as_str().unwrap().to_owned(), message["content"].clone())
            })
            .collect();
        let seen: Vec<(&str, Value)> = seen.iter().map(|(r, c)| (r.as_str(), c.clone())).collect();
        assert_eq!(seen, expect);
        let after: Vec<Value> = list.iter().map(|m| serde_json::to_value(m).unwrap()).collect();
        assert_eq!(before, after, "the session's own messages have changed");
        assert_eq!(messages(&sent, &model), sent, "a second time changes something");
    }

    fn text(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    #[test]
    fn only_the_own_models_signatures_are_sent_back() {
        let signed = json!([
            {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"},
            {"type": "text", "text": "a", "textSignature": "s"},
            {"type": "toolCall", "id": "c", "name": "read", "arguments": {}, "thoughtSignature": "s"},
        ]);
        let bare = json!([
            text("a"),
            {"type": "toolCall", "id": "c", "name": "read", "arguments": {}},
        ]);
        let own = reply("own", signed.clone());
        check(std::slice::from_ref(&own), true, &[("assistant", signed.clone())]);
        for field in ["model", "provider", "api"] {
            let mut other = own.clone();
            other[field] = json!("other");
            check(&[other], true, &[("assistant", bare.clone())]);
        }
    }

    #[test]
    fn a_reply_that_says_nothing_goes_and_its_neighbours_meet() {
        let thinking = json!({"type": "thinking", "thinking": "hm"});
        let mut signed = thinking.clone();
        signed["thinkingSignature"] = json!("s");
        for content in [json!([]), json!([text(""), text(" \n")]), json!([thinking])] {
            let list = [user(json!("a")), reply("own", content), user(json!("b"))];
            check(&list, true, &[("user", json!([text("a"), text("b")]))]);
        }
        let list = [user(json!("a")), reply("other", json!([signed])), user(json!("b"))];
        check(&list, true, &[("user", json!([text("a"), text("b")]))]);
        check(&[reply("own", json!([signed]))], true, &[("assistant", json!([signed]))]);
        check(&[], true, &[]);
    }

    #[test]
    fn users_that_follow_each_other_become_one() {
        let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
        let list = [
            user(json!("a")),
            user(json!([text("b"), image])),
            user(json!("c")),
            reply("own", json!([text("r")])),
            user(json!("d")),
        ];
        check(
            &list,
            true,
            &[
                ("user", json!([text("a"), text("b"), image, text("c")])),
                ("assistant", json!([text("r")])),
                ("user", json!("d")),
            ],
        );
        let remark = text(NO_IMAGES);
        check(&list[..2], false, &[("user", json!([text("a"), text("b"), remark]))]);
    }

    #[test]
    fn images_become_a_remark_for_a_model_that_takes_none() {
        let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
        let list = [user(json!([image])), result(json!([text("x"), image])), result(json!([]))];
        let remark = text(NO_IMAGES);
        check(
            &list,
            false,
            &[
                ("user", json!([remark])),
                ("toolResult", json!([text("x"), remark])),
                ("toolResult", json!([])),
            ],
        );
        check(
            &list,
            true,
            &[
                ("user", json!([image])),
                ("toolResult", json!([text("x"), image])),
                ("toolResult", json!([])),
            ],
        );
    }

    #[test]
    fn names_become_such_that_servers_take_and_results_have_those_of_their_calls() {
        let list: Vec<Arc<AgentMessage>> = [
            reply(
                "own",
                json!([
                    {"type": "toolCall", "id": "c", "name": "functions.read", "arguments": {}},
                    {"type": "toolCall", "id": "d", "name": "ls", "arguments": {}},
                ]),
            ),
            result(json!([text("r")])),
        ]
        .iter()
        .map(|message| serde_json::from_value(message.clone()).unwrap())
        .collect();
        let sent = serde_json::to_value(messages(&list, &model("p", "own"))).unwrap();
        assert_eq!(sent[0]["content"][0]["name"], "functions_read");
        assert_eq!(sent[0]["content"][1]["name"], "ls");
        assert_eq!(sent[1]["toolName"], "functions_read");
        for (name, expect) in
            [("", "unknown"), ("1a", "_1a"), ("-a", "_-a"), ("_a-1", "_a-1"), ("läs!", "l_s_")]
        {
            assert_eq!(function_name(name), expect);
        }
        assert_eq!(function_name(&"9".repeat(80)).len(), 64);
    }
}
