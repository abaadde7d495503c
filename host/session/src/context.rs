//! The context that a branch gives a model. Messages are told, not read: most of what
//! asks for a context needs few of them.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Serialize, Serializer};
use wharf_protocol::message::{BranchSummaryMessage, CompactionSummaryMessage, CustomMessage};
use wharf_protocol::model::ModelRef;
use wharf_protocol::{AgentMessage, ThinkingLevel};

use crate::cursor::{Cursor, RawString};
use crate::entry::{CompactionEntry, Entry, EntryKind, EntryType, MessageRole, body, sound};
use crate::json::Verbatim;
use crate::nodes::{FileEntries, Index, Nodes};

/// A message of a context: one that stands in the session's file and is parsed when it is
/// asked for, or one in memory. Clones are cheap.
#[derive(Clone)]
pub struct ContextMessage {
    role: MessageRole,
    /// None for one in memory, which is in `parsed`.
    stored: Option<(Arc<FileEntries>, Index)>,
    /// Holds nothing where the message has not the shape that its role asks for.
    parsed: OnceLock<Option<Arc<AgentMessage>>>,
}

impl ContextMessage {
    pub fn role(&self) -> MessageRole {
        self.role
    }

    /// The message, which is parsed once and kept. `None`: it lacks what a message of its
    /// role has.
    pub fn get(&self) -> Option<&Arc<AgentMessage>> {
        self.parsed.get_or_init(|| self.parse()).as_ref()
    }

    /// The message, parsed for this one use unless it is kept already: for walks over a
    /// whole conversation.
    pub fn read(&self) -> Option<Arc<AgentMessage>> {
        self.parsed.get().map_or_else(|| self.parse(), Option::clone)
    }

    /// The tool of a tool result; nothing more is read for it.
    pub fn tool_name(&self) -> Option<Cow<'_, str>> {
        if self.role != MessageRole::ToolResult {
            return None;
        }
        if let Some(Some(message)) = self.parsed.get() {
            return match &**message {
                AgentMessage::ToolResult(result) => Some(Cow::Borrowed(&result.tool_name)),
                _ => None,
            };
        }
        let (file, index) = self.stored.as_ref()?;
        let mut name = None;
        // Ends early, by `None`, once the name is found.
        let _ = Cursor::new(file.message_json(*index)?).object(|key, cursor| match key.raw {
            "toolName" => {
                name = cursor.string_value()?;
                None
            }
            _ => cursor.value().map(drop),
        });
        name.map(RawString::decode)
    }

    /// Bytes of its JSON; a guess for one that is not in a file.
    pub fn json_size(&self) -> usize {
        const MADE_HERE: usize = 512;
        let stored = self.stored.as_ref().and_then(|(file, index)| file.message_json(*index));
        stored.map_or(MADE_HERE, str::len)
    }

    fn parse(&self) -> Option<Arc<AgentMessage>> {
        let (file, index) = self.stored.as_ref()?;
        body::<AgentMessage>(file.message_json(*index)?).map(Arc::new)
    }

    /// The message's JSON as it stands in the file; half surrogate pairs, at which many a
    /// reader of JSON fails, are replaced. None for one in memory.
    fn stored_json(&self) -> Option<Cow<'_, str>> {
        let (file, index) = self.stored.as_ref()?;
        Some(sound(file.message_json(*index)?, file.has_lone_surrogates(*index)))
    }

    fn of_entry(nodes: &Nodes, index: Index) -> Option<Self> {
        match (nodes.entry_type(index), nodes.file_of(index)) {
            (EntryType::Message, Some(file)) => Some(Self {
                role: nodes.role(index)?,
                stored: Some((Arc::clone(file), index)),
                parsed: OnceLock::new(),
            }),
            (EntryType::Message | EntryType::CustomMessage | EntryType::BranchSummary, _) => {
                nodes.entry(index).context_message().map(Self::from)
            }
            _ => None,
        }
    }
}

impl From<Arc<AgentMessage>> for ContextMessage {
    fn from(message: Arc<AgentMessage>) -> Self {
        let role = MessageRole::of(&message);
        Self { role, stored: None, parsed: OnceLock::from(Some(message)) }
    }
}

impl fmt::Debug for ContextMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.stored_json(), self.parsed.get()) {
            (Some(json), _) => f.write_str(&json),
            (None, message) => message.fmt(f),
        }
    }
}

/// As it stands in the file, so that nothing is parsed and unknown fields are kept. For
/// `serde_json` only.
impl Serialize for ContextMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.stored_json() {
            Some(json) => Verbatim(&json).serialize(serializer),
            None => self.get().serialize(serializer),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct SessionContext {
    pub messages: Vec<ContextMessage>,
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
    pub(crate) fn of_branch(nodes: &Nodes, branch: &[Index]) -> Self {
        let mut context =
            Self {
                model: model(nodes, branch),
                thinking_level: last(nodes, branch, EntryType::ThinkingLevelChange, |_, kind| {
                    match kind {
                        EntryKind::ThinkingLevelChange(change) => Some(change.thinking_level),
                        _ => None,
                    }
                }),
                ..Self::default()
            };
        // Only the last compaction counts: its summary covers what the earlier ones did.
        let compaction = last(nodes, branch, EntryType::Compaction, |place, kind| match kind {
            EntryKind::Compaction(body) => Some((place, body)),
            _ => None,
        });
        let mut kept = branch;
        if let Some((place, body)) = compaction {
            context.compact(nodes, (&branch[..place], branch[place]), body);
            kept = &branch[place..];
        }
        context.extend(nodes, kept);
        context
    }

    fn compact(
        &mut self,
        nodes: &Nodes,
        (before, compaction): (&[Index], Index),
        body: CompactionEntry,
    ) {
        let summary = AgentMessage::CompactionSummary(CompactionSummaryMessage {
            summary: body.summary,
            tokens_before: body.tokens_before,
            timestamp: nodes.timestamp(compaction).unix_millis(),
        });
        self.messages.push(Arc::new(summary).into());
        let is_first_kept = |index: &Index| nodes.id(*index) == body.first_kept_entry_id;
        if let Some(first_kept) = before.iter().position(is_first_kept) {
            self.extend(nodes, &before[first_kept..]);
        }
        self.compacted = self.messages.len();
    }

    fn extend(&mut self, nodes: &Nodes, entries: &[Index]) {
        self.messages.reserve(entries.len());
        let messages = entries.iter().filter_map(|index| ContextMessage::of_entry(nodes, *index));
        self.messages.extend(messages);
    }
}

/// The last entry of a type, as far as `pick` takes it, with its place in the branch.
fn last<T>(
    nodes: &Nodes,
    branch: &[Index],
    entry_type: EntryType,
    pick: impl Fn(usize, EntryKind) -> Option<T>,
) -> Option<T> {
    branch.iter().enumerate().rev().find_map(|(place, index)| {
        if nodes.entry_type(*index) != entry_type {
            return None;
        }
        pick(place, EntryKind::parse(entry_type, nodes.json(*index)))
    })
}

fn model(nodes: &Nodes, branch: &[Index]) -> Option<ModelRef> {
    let chosen = last(nodes, branch, EntryType::ModelChange, |_, kind| match kind {
        EntryKind::ModelChange(change) => {
            Some(ModelRef { provider: change.provider, id: change.model_id })
        }
        _ => None,
    });
    chosen.or_else(|| {
        let replies =
            branch.iter().rev().filter(|i| nodes.role(**i) == Some(MessageRole::Assistant));
        replies.copied().find_map(|index| match body::<AgentMessage>(nodes.message_json(index)?)? {
            AgentMessage::Assistant(reply) if !reply.model.is_empty() => {
                Some(ModelRef { provider: reply.provider, id: reply.model })
            }
            _ => None,
        })
    })
}

impl Entry {
    /// What a model sees of this entry; none for a compaction, whose summary stands for
    /// what was before it.
    pub fn context_message(&self) -> Option<Arc<AgentMessage>> {
        let timestamp = self.timestamp().unix_millis();
        // Nothing else is parsed.
        if !matches!(
            self.entry_type(),
            EntryType::Message | EntryType::CustomMessage | EntryType::BranchSummary
        ) {
            return None;
        }
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
