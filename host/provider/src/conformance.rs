//! What the tests of every API share: random conversations to encode, and responses that
//! are cut at every place before they are decoded.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use wharf_protocol::partial::ReplyOrigin;
use wharf_protocol::{
    AgentMessage, AssistantContent, AssistantMessage, ContentBlock, ImageContent, Model,
    PartialMessage, StopReason, StreamDelta, TextContent, ThinkingContent, ThinkingLevel, ToolCall,
    ToolResultMessage, Usage, UserContent, UserMessage,
};

use crate::api::Api;
use crate::sse::SseParser;
use crate::{
    ErrorKind, ProviderError, ProviderEvent, Purpose, Request, ThinkingBudgets, ToolDefinition,
};

pub(crate) fn request(model: Model, messages: Vec<Arc<AgentMessage>>) -> Request {
    Request {
        model,
        purpose: Purpose::Reply,
        thinking_level: ThinkingLevel::Off,
        thinking_budgets: ThinkingBudgets::default(),
        system_prompt: "".into(),
        messages,
        tools: Arc::new([]),
        max_tokens: Some(32_000),
        session_id: None,
        filter: None,
    }
}

pub(crate) fn tool(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        description: format!("does {name}"),
        parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
    }
}

pub(crate) fn user(text: &str) -> Arc<AgentMessage> {
    let content = UserContent::Text(text.to_owned());
    Arc::new(AgentMessage::User(UserMessage { content, timestamp: 0 }))
}

pub(crate) fn user_blocks(blocks: Vec<ContentBlock>) -> Arc<AgentMessage> {
    let content = UserContent::Blocks(blocks);
    Arc::new(AgentMessage::User(UserMessage { content, timestamp: 0 }))
}

pub(crate) fn image(data: &str) -> ContentBlock {
    ContentBlock::Image(ImageContent { data: data.to_owned(), mime_type: "image/png".to_owned() })
}

/// A reply of `model`.
pub(crate) fn reply(model: &Model, content: Vec<AssistantContent>) -> Arc<AgentMessage> {
    Arc::new(AgentMessage::Assistant(AssistantMessage {
        content,
        api: model.api.clone(),
        provider: model.provider.clone(),
        model: model.id.clone(),
        usage: Usage::default(),
        stop_reason: StopReason::Stop,
        error_message: None,
        timestamp: 0,
    }))
}

pub(crate) fn text(text: &str, signature: Option<&str>) -> AssistantContent {
    let text_signature = signature.map(str::to_owned);
    AssistantContent::Text(TextContent { text: text.to_owned(), text_signature })
}

pub(crate) fn thinking(text: &str, signature: Option<&str>) -> AssistantContent {
    AssistantContent::Thinking(ThinkingContent {
        thinking: text.to_owned(),
        thinking_signature: signature.map(str::to_owned),
        redacted: false,
    })
}

pub(crate) fn call(id: &str, name: &str, signature: Option<&str>) -> AssistantContent {
    let mut arguments = Map::new();
    arguments.insert("path".to_owned(), json!("a"));
    AssistantContent::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments,
        thought_signature: signature.map(str::to_owned),
    })
}

pub(crate) fn result(id: &str, name: &str, content: Vec<ContentBlock>) -> Arc<AgentMessage> {
    Arc::new(AgentMessage::ToolResult(ToolResultMessage {
        tool_call_id: id.to_owned(),
        tool_name: name.to_owned(),
        content,
        details: None,
        is_error: name == "fail",
        timestamp: 0,
    }))
}

/// Conversations as the agent sends them: of this model and of others, with everything
/// that a session may hold, and every call's result directly after its reply. Prepared
/// as the driver does it.
pub(crate) fn conversation(model: Model) -> impl Strategy<Value = Vec<Arc<AgentMessage>>> {
    vec(message(), 0..10).prop_map(move |plan| {
        let mut messages = Vec::new();
        for (at, message) in plan.into_iter().enumerate() {
            match message {
                Planned::User(Ok(text)) => messages.push(user(text)),
                Planned::User(Err(blocks)) => messages.push(user_blocks(blocks)),
                Planned::Reply { is_own, blocks, results } => {
                    let mut from = model.clone();
                    if !is_own {
                        from.id = "another".to_owned();
                    }
                    let content: Vec<AssistantContent> = blocks
                        .into_iter()
                        .enumerate()
                        .map(|(block, content)| numbered(content, &format!("{at}x{block}")))
                        .collect();
                    let message = reply(&from, content);
                    messages.push(Arc::clone(&message));
                    let AgentMessage::Assistant(reply) = message.as_ref() else { continue };
                    for (call, content) in reply.tool_calls().zip(results.iter().cycle()) {
                        messages.push(result(&call.id, &call.name, content.clone()));
                    }
                }
            }
        }
        crate::prepare::messages(&messages, &model)
    })
}

#[derive(Debug, Clone)]
enum Planned {
    User(Result<&'static str, Vec<ContentBlock>>),
    Reply { is_own: bool, blocks: Vec<AssistantContent>, results: Vec<Vec<ContentBlock>> },
}

fn message() -> impl Strategy<Value = Planned> {
    prop_oneof![
        select(vec!["hi", "", "two\nlines"]).prop_map(|text| Planned::User(Ok(text))),
        blocks().prop_map(|blocks| Planned::User(Err(blocks))),
        (any::<bool>(), vec(reply_block(), 0..5), vec(blocks(), 1..3))
            .prop_map(|(is_own, blocks, results)| Planned::Reply { is_own, blocks, results }),
    ]
}

fn blocks() -> impl Strategy<Value = Vec<ContentBlock>> {
    let block = prop_oneof![
        select(vec!["", "text", "\u{e9}\n"]).prop_map(ContentBlock::text),
        select(vec!["", "AAAA"]).prop_map(image),
    ];
    vec(block, 0..3)
}

/// `#` in an id or a signature becomes a number that no other block has.
fn reply_block() -> impl Strategy<Value = AssistantContent> {
    let signature = || {
        select(vec![
            None,
            Some(r#"{"type":"reasoning","id":"rs_#","summary":[],"encrypted_content":"e"}"#),
            Some(r#"{"type":"reasoning","id":"rs_same","summary":[],"encrypted_content":"e"}"#),
            Some(r#"{"type":"reasoning","id":"rs_#","summary":[]}"#),
            Some(r#"{"v":1,"id":"msg_#","phase":"commentary"}"#),
            Some("msg_#"),
            Some("msg_same"),
            Some("c2ln"),
            Some("no base64!"),
        ])
    };
    let id = select(vec![
        "call_#|fc_#",
        "call_same|fc_#",
        "call_#|item_#",
        "toolu_#",
        "functions.read:#",
        "a very long id that no server would take because it has far too many characters #",
        "|#",
    ]);
    prop_oneof![
        (select(vec!["", "text"]), signature()).prop_map(|(t, s)| text(t, s)),
        (select(vec!["", "thought"]), signature()).prop_map(|(t, s)| thinking(t, s)),
        (id, select(vec!["read", "fail"]), signature()).prop_map(|(id, name, s)| call(id, name, s)),
    ]
}

fn numbered(content: AssistantContent, number: &str) -> AssistantContent {
    let set = |text: String| text.replace('#', number);
    match content {
        AssistantContent::Text(mut block) => {
            block.text_signature = block.text_signature.map(set);
            AssistantContent::Text(block)
        }
        AssistantContent::Thinking(mut block) => {
            block.thinking_signature = block.thinking_signature.map(set);
            AssistantContent::Thinking(block)
        }
        AssistantContent::ToolCall(mut call) => {
            call.id = set(call.id);
            call.thought_signature = call.thought_signature.map(set);
            AssistantContent::ToolCall(call)
        }
    }
}

/// What a response becomes: the steps, and the error that they end with if any.
pub(crate) type Decoded = (Vec<ProviderEvent>, Option<ProviderError>);

/// Decodes a body as the driver does it.
pub(crate) fn decode<'a>(
    api: &dyn Api,
    request: &Request,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Decoded {
    let mut parser = SseParser::default();
    let mut decoder = api.decoder(request);
    let mut out = Vec::new();
    let mut events = Vec::new();
    for chunk in chunks {
        parser.push(chunk, &mut events).unwrap();
    }
    parser.finish(&mut events);
    for event in &events {
        if let Err(error) = decoder.event(event, &mut out) {
            return (out, Some(error));
        }
        if matches!(out.last(), Some(ProviderEvent::Done { .. })) {
            return (out, None);
        }
    }
    let error = decoder.end(&mut out).err();
    (out, error)
}

/// The response, whole; checks on the way that it becomes the same however its bytes are
/// cut, and that a body that ends too early is told from a whole one.
/// `settle` makes equal what may differ from run to run.
pub(crate) fn decode_every_way(
    api: &dyn Api,
    request: &Request,
    body: &str,
    settle: impl Fn(Decoded) -> Decoded,
) -> Decoded {
    let bytes = body.as_bytes();
    let whole = settle(decode(api, request, [bytes]));
    for at in 0..=bytes.len() {
        let cut = settle(decode(api, request, [&bytes[..at], &bytes[at..]]));
        assert_eq!(cut, whole, "cut at byte {at}");
    }
    assert_eq!(settle(decode(api, request, bytes.chunks(1))), whole, "byte by byte");
    for end in 0..bytes.len() {
        check_torn(&settle(decode(api, request, [&bytes[..end]])), &whole);
    }
    whole
}

/// A response that ended too early is a beginning of the whole reply, and says so.
fn check_torn((torn, error): &Decoded, whole: &Decoded) {
    let is_whole =
        |events: &[ProviderEvent]| matches!(events.last(), Some(ProviderEvent::Done { .. }));
    match error {
        None => {
            assert!(is_whole(torn), "{torn:?}");
            let deltas = torn.len() - 1;
            assert_eq!(torn[..deltas], whole.0[..deltas]);
            assert_eq!(whole.0.len(), torn.len(), "what came after the end is new");
        }
        Some(error) => {
            assert!(whole.0.starts_with(torn), "{torn:?} does not begin {:?}", whole.0);
            assert!(!is_whole(torn));
            assert!(
                error.kind == ErrorKind::Dropped || Some(error) == whole.1.as_ref(),
                "{error:?}"
            );
        }
    }
}

/// The reply that the steps add up to.
pub(crate) fn reply_of(model: &Model, events: &[ProviderEvent]) -> Arc<AgentMessage> {
    let mut message = PartialMessage::new(ReplyOrigin {
        api: model.api.clone(),
        provider: model.provider.clone(),
        model: model.id.clone(),
        timestamp: 0,
    });
    for event in events {
        if let ProviderEvent::Delta(delta) = event {
            message.apply(delta);
        }
    }
    Arc::new(AgentMessage::Assistant(message.into_message()))
}

/// The content of the reply that the steps add up to, as a session has it.
pub(crate) fn content(events: &[ProviderEvent]) -> Value {
    let message = reply_of(&crate::registry::testing::model("p", "m"), events);
    serde_json::to_value(message).unwrap()["content"].take()
}

/// What is wrong with the calls of a reply.
pub(crate) fn problems(events: &[ProviderEvent]) -> Vec<&str> {
    let problem = |event| match event {
        &ProviderEvent::Delta(StreamDelta::ToolCallEnd { ref problem, .. }) => problem.as_deref(),
        _ => None,
    };
    events.iter().filter_map(problem).collect()
}

/// How the reply ended, if it did.
pub(crate) fn ended(events: &[ProviderEvent]) -> Option<(StopReason, Usage)> {
    match events.last() {
        Some(ProviderEvent::Done { stop_reason, usage }) => Some((*stop_reason, *usage)),
        _ => None,
    }
}
