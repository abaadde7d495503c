//! The context that a branch gives a model.

use std::sync::Arc;

use wharf_protocol::message::{BranchSummaryMessage, CompactionSummaryMessage, CustomMessage};
use wharf_protocol::model::ModelRef;
use wharf_protocol::{AgentMessage, ThinkingLevel};

use crate::entry::{Entry, EntryKind};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionContext {
    pub messages: Vec<Arc<AgentMessage>>,
    /// How many of them, from the first one on, stand for what the last compaction found:
    /// its summary and what it kept. Token counts that these report are of the time before.
    pub compacted: usize,
    /// Of the branch's last model change or, where it has none, of its last assistant message.
    pub model: Option<ModelRef>,
    /// `None` where the branch does not say.
    pub thinking_level: Option<ThinkingLevel>,
}

impl SessionContext {
    /// `branch` runs from the root to the leaf.
    pub(crate) fn of_branch(branch: &[Arc<Entry>]) -> Self {
        let mut context = Self::default();
        let mut answered_by = None;
        let mut compaction = None;
        for (index, entry) in branch.iter().enumerate() {
            match entry.kind() {
                EntryKind::ModelChange(change) => {
                    context.model = Some(ModelRef {
                        provider: change.provider.clone(),
                        id: change.model_id.clone(),
                    });
                }
                EntryKind::ThinkingLevelChange(change) => {
                    context.thinking_level = Some(change.thinking_level);
                }
                EntryKind::Compaction(body) => compaction = Some((index, body)),
                EntryKind::Message(message) => {
                    if let AgentMessage::Assistant(message) = message.as_ref()
                        && !message.model.is_empty()
                    {
                        answered_by = Some(message);
                    }
                }
                EntryKind::BranchSummary(_)
                | EntryKind::Custom(_)
                | EntryKind::CustomMessage(_)
                | EntryKind::Label(_)
                | EntryKind::SessionInfo(_)
                | EntryKind::Unknown(_) => {}
            }
        }
        if context.model.is_none() {
            context.model = answered_by.map(|message| ModelRef {
                provider: message.provider.clone(),
                id: message.model.clone(),
            });
        }

        // Only the last compaction counts: its summary covers what the earlier ones did.
        let mut kept = branch;
        if let Some((index, body)) = compaction {
            context.messages.push(Arc::new(AgentMessage::CompactionSummary(
                CompactionSummaryMessage {
                    summary: body.summary.clone(),
                    tokens_before: body.tokens_before,
                    timestamp: branch[index].timestamp().unix_millis(),
                },
            )));
            let first_kept = branch[..index]
                .iter()
                .position(|entry| entry.id().as_str() == body.first_kept_entry_id)
                .unwrap_or(index);
            context.messages.extend(
                branch[first_kept..index].iter().filter_map(|entry| entry.context_message()),
            );
            context.compacted = context.messages.len();
            kept = &branch[index..];
        }
        context.messages.extend(kept.iter().filter_map(|entry| entry.context_message()));
        context
    }
}

impl Entry {
    /// What a model sees of this entry; none for a compaction, whose summary stands for
    /// what was before it.
    pub fn context_message(&self) -> Option<Arc<AgentMessage>> {
        let timestamp = self.timestamp().unix_millis();
        let message = match self.kind() {
            EntryKind::Message(message) => return Some(Arc::clone(message)),
            EntryKind::CustomMessage(body) => AgentMessage::Custom(CustomMessage {
                custom_type: body.custom_type.clone(),
                content: body.content.clone(),
                display: body.display,
                details: body.details.clone(),
                timestamp,
            }),
            EntryKind::BranchSummary(body) if !body.summary.is_empty() => {
                AgentMessage::BranchSummary(BranchSummaryMessage {
                    summary: body.summary.clone(),
                    from_id: body.from_id.clone(),
                    timestamp,
                })
            }
            EntryKind::BranchSummary(_)
            | EntryKind::Compaction(_)
            | EntryKind::ModelChange(_)
            | EntryKind::ThinkingLevelChange(_)
            | EntryKind::Custom(_)
            | EntryKind::Label(_)
            | EntryKind::SessionInfo(_)
            | EntryKind::Unknown(_) => return None,
        };
        Some(Arc::new(message))
    }
}
