//! The conversation as one model's API may be sent it: what another model signed is
//! taken out, what stands together is put together.

use std::sync::Arc;

use wharf_protocol::{
    AgentMessage, AssistantContent, AssistantMessage, ContentBlock, Model, UserContent, UserMessage,
};

/// Stands in the place of an image for a model that takes none.
const NO_IMAGES: &str = "[image left out: this model takes no images]";

/// The messages for `model`:
/// - a reply of another model keeps its text and its calls; its thinking and all of its
///   signatures go, since only the model that made them takes them back;
/// - user messages that follow each other become one: some servers want the roles to
///   alternate;
/// - images become a remark where the model takes none.
pub(crate) fn messages(list: &[Arc<AgentMessage>], model: &Model) -> Vec<Arc<AgentMessage>> {
    let takes_images = model.input.iter().any(|kind| kind == "image");
    let mut sent: Vec<Arc<AgentMessage>> = Vec::with_capacity(list.len());
    for message in list {
        let message = match message.as_ref() {
            AgentMessage::Assistant(reply) if !is_own(reply, model) => match foreign(reply) {
                Some(reply) => Arc::new(AgentMessage::Assistant(reply)),
                None => continue,
            },
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

fn is_own(reply: &AssistantMessage, model: &Model) -> bool {
    reply.provider == model.provider && reply.api == model.api && reply.model == model.id
}

/// A reply of another model; none where nothing of it is left.
fn foreign(reply: &AssistantMessage) -> Option<AssistantMessage> {
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
    (!content.is_empty()).then(|| AssistantMessage { content, ..reply.clone() })
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
