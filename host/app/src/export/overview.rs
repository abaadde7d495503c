//! The first pass over the entries: totals for the head of the page, and a line for
//! each entry that the outline shows.

use std::collections::{BTreeMap, HashSet};

use wharf_protocol::{AgentMessage, StopReason, Usage};
use wharf_session::{EntryKind, Session, Timestamp};

use super::html::snippet;
use super::layout::Layout;

/// Characters of a line of the outline.
const LINE: usize = 90;
/// Characters of the title.
const TITLE: usize = 120;
/// More models than this are counted, not named.
const MAX_MODELS: usize = 12;

#[derive(Debug)]
pub(super) struct Overview {
    pub(super) title: String,
    pub(super) messages: usize,
    pub(super) prompts: usize,
    pub(super) replies: usize,
    pub(super) tool_calls: usize,
    pub(super) usage: Usage,
    /// Models and how many replies they gave.
    pub(super) models: BTreeMap<String, usize>,
    /// Replies of models that are not in `models`.
    pub(super) other_replies: usize,
    pub(super) last: Option<Timestamp>,
    /// By place, ascending.
    lines: Vec<(usize, Line)>,
}

#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) kind: LineKind,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    Prompt,
    Summary,
    /// What is only there for its label, or as the start of a branch.
    Other,
}

impl Overview {
    pub(super) fn new(session: &Session, layout: &Layout) -> Self {
        let heads: HashSet<usize> = (1..layout.chains.len()).map(|c| layout.head(c)).collect();
        let mut overview = Self {
            title: String::new(),
            messages: session.message_count(),
            prompts: 0,
            replies: 0,
            tool_calls: 0,
            usage: Usage::default(),
            models: BTreeMap::new(),
            other_replies: 0,
            last: None,
            lines: Vec::new(),
        };
        for (place, node) in layout.nodes.iter().enumerate() {
            overview.last = overview.last.max(Some(node.entry.timestamp()));
            let kind = node.entry.kind_once();
            if let EntryKind::Message(message) = kind.as_ref() {
                overview.count(message);
            }
            let line = line(&kind);
            let shown = line.kind != LineKind::Other
                || node.label.is_some()
                || heads.contains(&place)
                || layout.leaf == Some(place);
            if shown {
                overview.lines.push((place, line));
            }
        }
        overview.title = overview.name(session, layout);
        overview
    }

    /// As lists of sessions show it: the name, or else the first prompt.
    fn name(&self, session: &Session, layout: &Layout) -> String {
        if let Some(name) = session.name() {
            return snippet(&name, TITLE);
        }
        // The first of the current branch, or else of the file.
        let current = layout.chains.first().into_iter().flat_map(|chain| chain.segments.clone());
        let mut places = current.flat_map(|segment| layout.places(segment).iter().copied());
        let prompt = |place: usize| self.line(place).filter(|line| line.kind == LineKind::Prompt);
        let first = places
            .find_map(prompt)
            .or_else(|| self.lines.iter().find_map(|(place, _)| prompt(*place)));
        first.map_or_else(|| "Session without prompts".to_owned(), |line| line.text.clone())
    }

    fn count(&mut self, message: &AgentMessage) {
        match message {
            AgentMessage::User(_) => self.prompts += 1,
            AgentMessage::Assistant(reply) => {
                self.replies += 1;
                self.tool_calls += reply.tool_calls().count();
                self.add(&reply.usage);
                let model = model_name(&reply.provider, &reply.model);
                if self.models.len() < MAX_MODELS || self.models.contains_key(&model) {
                    *self.models.entry(model).or_default() += 1;
                } else {
                    self.other_replies += 1;
                }
            }
            AgentMessage::ToolResult(_)
            | AgentMessage::BashExecution(_)
            | AgentMessage::Custom(_)
            | AgentMessage::BranchSummary(_)
            | AgentMessage::CompactionSummary(_) => {}
        }
    }

    fn add(&mut self, usage: &Usage) {
        let total = &mut self.usage;
        for (sum, part) in [
            (&mut total.input, usage.input),
            (&mut total.output, usage.output),
            (&mut total.cache_read, usage.cache_read),
            (&mut total.cache_write, usage.cache_write),
        ] {
            // A file may hold any number.
            *sum = sum.saturating_add(part);
        }
        total.cost.total += usage.cost.total;
    }

    /// The outline's line for the entry at `place`, if it has one.
    pub(super) fn line(&self, place: usize) -> Option<&Line> {
        let found = self.lines.binary_search_by_key(&place, |(place, _)| *place).ok()?;
        Some(&self.lines[found].1)
    }
}

pub(super) fn model_name(provider: &str, model: &str) -> String {
    match (provider, model) {
        ("", "") => "unknown model".to_owned(),
        ("", model) => model.to_owned(),
        (provider, model) => format!("{provider}/{model}"),
    }
}

fn line(kind: &EntryKind) -> Line {
    let (kind, text) = match kind {
        EntryKind::Message(message) => match message.as_ref() {
            AgentMessage::User(user) => {
                let text = snippet(&user.content.to_text(), LINE);
                let text = if text.is_empty() { "(no text)".to_owned() } else { text };
                (LineKind::Prompt, text)
            }
            AgentMessage::BashExecution(run) => {
                (LineKind::Prompt, format!("! {}", snippet(&run.command, LINE)))
            }
            AgentMessage::Assistant(reply) => {
                let text = snippet(&reply.text(), LINE);
                let text = match reply.tool_calls().next() {
                    _ if !text.is_empty() => text,
                    Some(call) => format!("Reply: {}", snippet(&call.name, LINE)),
                    None if reply.stop_reason == StopReason::Error => "Failed reply".to_owned(),
                    None => "Reply without text".to_owned(),
                };
                (LineKind::Other, text)
            }
            AgentMessage::ToolResult(result) => {
                (LineKind::Other, format!("Result of {}", snippet(&result.tool_name, LINE)))
            }
            AgentMessage::Custom(custom) => {
                (LineKind::Other, format!("Message of {}", snippet(&custom.custom_type, LINE)))
            }
            AgentMessage::BranchSummary(_) => (LineKind::Summary, "Branch summary".to_owned()),
            AgentMessage::CompactionSummary(_) => (LineKind::Summary, "Compaction".to_owned()),
        },
        EntryKind::Compaction(_) => (LineKind::Summary, "Compaction".to_owned()),
        EntryKind::BranchSummary(_) => (LineKind::Summary, "Branch summary".to_owned()),
        EntryKind::CustomMessage(custom) => {
            (LineKind::Other, format!("Message of {}", snippet(&custom.custom_type, LINE)))
        }
        EntryKind::ModelChange(change) => {
            (LineKind::Other, format!("Model {}", snippet(&change.model_id, LINE)))
        }
        EntryKind::ThinkingLevelChange(change) => {
            (LineKind::Other, format!("Thinking {}", change.thinking_level.as_str()))
        }
        EntryKind::Custom(custom) => {
            (LineKind::Other, format!("State of {}", snippet(&custom.custom_type, LINE)))
        }
        EntryKind::Label(_) => (LineKind::Other, "Bookmark".to_owned()),
        EntryKind::SessionInfo(_) => (LineKind::Other, "Session name".to_owned()),
        EntryKind::Unknown(_) => (LineKind::Other, "Unknown entry".to_owned()),
    };
    Line { kind, text }
}
