//! What a compaction summarises and what it keeps. Pure: a branch in, a plan out.

use std::collections::HashMap;
use std::sync::Arc;

use wharf_protocol::AgentMessage;
use wharf_session::{CompactionEntry, Entry, EntryKind, EntryType};

use super::files::FileOperations;
use crate::conversation::estimate_tokens;

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) first_kept_entry_id: String,
    /// Of the compaction before, which the new summary carries on.
    pub(crate) previous_summary: Option<String>,
    /// Whole turns to summarise.
    pub(crate) history: Vec<Arc<AgentMessage>>,
    /// The beginning of the turn that the cut goes through; what follows of it is kept.
    pub(crate) turn_prefix: Vec<Arc<AgentMessage>>,
    /// Of everything that is summarised now or was before.
    pub(crate) files: FileOperations,
}

/// Why there is nothing to do. The texts are the reference's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NothingToDo {
    #[error("Already compacted")]
    AlreadyCompacted,
    #[error("Nothing to compact (session too small)")]
    TooSmall,
}

impl Plan {
    /// `branch` runs from the root to the leaf. About `keep_recent` tokens stay.
    pub(crate) fn of_branch(branch: &[Arc<Entry>], keep_recent: u64) -> Result<Self, NothingToDo> {
        let is_compaction = |entry: &Entry| entry.entry_type() == EntryType::Compaction;
        let previous =
            branch.iter().enumerate().rev().find_map(|(at, entry)| {
                match is_compaction(entry).then(|| entry.kind())? {
                    EntryKind::Compaction(body) => Some((at, body)),
                    _ => None,
                }
            });
        let start = previous.map_or(0, |(at, body)| first_kept(&branch[..at], body).unwrap_or(at));
        let items: Vec<Item<'_>> = branch[start..]
            .iter()
            .filter_map(|entry| Some(Item { entry, message: entry.context_message()? }))
            .collect();
        if let Some((at, _)) = previous
            && branch[at..].iter().all(|entry| entry.context_message().is_none())
        {
            return Err(NothingToDo::AlreadyCompacted);
        }
        let possible = possible_cuts(&items);
        let cut = cut_point(&items, &possible, keep_recent).ok_or(NothingToDo::TooSmall)?;
        let turn_start = match items[cut].message.as_ref() {
            AgentMessage::Assistant(_) => {
                // A message that came between a call and its result begins no turn.
                let whole = |at: &usize| *at == 0 || possible.contains(at);
                let begins = |at: &usize| begins_turn(&items[*at].message) && whole(at);
                (0..cut).rev().find(begins).unwrap_or(cut)
            }
            _ => cut,
        };
        let mut files = previous.map_or_else(FileOperations::default, |(_, body)| {
            FileOperations::carried_over(body.details.as_ref(), body.from_hook)
        });
        for item in &items[..cut] {
            files.add_message(&item.message);
            if item.entry.entry_type() == EntryType::BranchSummary
                && let EntryKind::BranchSummary(body) = item.entry.kind()
            {
                files.join(FileOperations::carried_over(body.details.as_ref(), body.from_hook));
            }
        }
        let messages =
            |items: &[Item<'_>]| items.iter().map(|item| Arc::clone(&item.message)).collect();
        Ok(Self {
            first_kept_entry_id: items[cut].entry.id().to_string(),
            previous_summary: previous.map(|(_, body)| body.summary.clone()),
            history: messages(&items[..turn_start]),
            turn_prefix: messages(&items[turn_start..cut]),
            files,
        })
    }
}

/// An entry that the model sees something of.
struct Item<'a> {
    entry: &'a Arc<Entry>,
    message: Arc<AgentMessage>,
}

fn first_kept(before: &[Arc<Entry>], body: &CompactionEntry) -> Option<usize> {
    before.iter().position(|entry| entry.id().as_str() == body.first_kept_entry_id)
}

fn begins_turn(message: &AgentMessage) -> bool {
    !matches!(message, AgentMessage::Assistant(_) | AgentMessage::ToolResult(_))
}

/// The first item that is kept: about `keep_recent` tokens from the end, never a tool
/// result, and never between a call and its result, whatever stands between the two.
fn cut_point(items: &[Item<'_>], possible: &[usize], keep_recent: u64) -> Option<usize> {
    let mut kept = 0;
    let wanted = (0..items.len()).rev().find(|at| {
        kept += estimate_tokens(&items[*at].message);
        kept >= keep_recent
    })?;
    let later = possible.iter().copied().find(|at| *at >= wanted);
    later.or_else(|| possible.iter().copied().rev().find(|at| *at < wanted))
}

/// Where a branch may be cut; not before its first item: that would summarise nothing.
fn possible_cuts(items: &[Item<'_>]) -> Vec<usize> {
    let last_results: HashMap<&str, usize> = items
        .iter()
        .enumerate()
        .filter_map(|(at, item)| match item.message.as_ref() {
            AgentMessage::ToolResult(result) => Some((result.tool_call_id.as_str(), at)),
            _ => None,
        })
        .collect();
    // Where the last result stands of the calls so far.
    let mut bound = 0;
    let mut cuts = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let is_result = matches!(item.message.as_ref(), AgentMessage::ToolResult(_));
        if at > bound && !is_result {
            cuts.push(at);
        }
        if let AgentMessage::Assistant(reply) = item.message.as_ref() {
            let results = reply.tool_calls().filter_map(|call| last_results.get(call.id.as_str()));
            bound = results.copied().fold(bound, usize::max);
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use wharf_session::Session;

    use super::*;

    /// A message by a word: `u` user, `a` reply, `c1,2` reply with calls, `r1` result,
    /// `b` bash, `x` custom; each of about ten tokens.
    fn append(session: &Session, word: &str) {
        let text = "x".repeat(40);
        let (kind, ids) = word.split_at(1);
        let message = match kind {
            "u" => json!({"role": "user", "content": text}),
            "a" => {
                json!({"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": "stop"})
            }
            "c" => {
                let calls: Vec<Value> = ids
                    .split(',')
                    .map(|id| json!({"type": "toolCall", "id": id, "name": "read", "arguments": {"path": format!("/f{id}")}}))
                    .collect();
                json!({"role": "assistant", "content": calls, "stopReason": "toolUse"})
            }
            "r" => {
                json!({"role": "toolResult", "toolCallId": ids, "toolName": "read", "content": [{"type": "text", "text": text}]})
            }
            "b" => json!({"role": "bashExecution", "command": "ls", "output": text}),
            "x" => json!({"role": "custom", "customType": "t", "content": text, "display": true}),
            other => panic!("{other}"),
        };
        session.append_message(Arc::new(serde_json::from_value(message).unwrap()));
    }

    fn session(words: &str) -> Session {
        let session = Session::in_memory(std::path::Path::new("/"));
        words.split_whitespace().for_each(|word| append(&session, word));
        session
    }

    /// History, turn prefix and what is kept, in messages.
    fn check(words: &str, keep_recent: u64, expect: Result<(usize, usize, usize), NothingToDo>) {
        let branch = session(words).branch();
        let seen = Plan::of_branch(&branch, keep_recent).map(|plan| {
            let cut = branch.iter().position(|e| e.id().as_str() == plan.first_kept_entry_id);
            let cut = cut.unwrap();
            (plan.history.len(), plan.turn_prefix.len(), branch.len() - cut)
        });
        assert_eq!(seen, expect, "{words}");
    }

    #[test]
    fn a_cut_keeps_what_is_recent_and_parts_no_call_from_its_result() {
        use NothingToDo::TooSmall;
        check("u a u a", 20, Ok((2, 0, 2)));
        check("u a u a", 10, Ok((2, 1, 1)));
        check("u a u a", 1000, Err(TooSmall));
        check("u", 1, Err(TooSmall));
        check("", 1, Err(TooSmall));
        // The wanted place is a result: the next one that will do.
        check("u c1 r1 a u a", 30, Ok((0, 3, 3)));
        // None follows: the one before.
        check("u a u c1 r1", 10, Ok((2, 1, 2)));
        // A message of an extension stands between a call and its result.
        check("u c1,2 r1 x r2 a", 20, Ok((0, 5, 1)));
        // A call whose result never came binds nothing.
        check("u c1 u a", 20, Ok((2, 0, 2)));
        check("u a b a", 20, Ok((2, 0, 2)));
    }

    #[test]
    fn a_second_compaction_carries_on_where_the_first_one_left() {
        let session = session("u c1 r1 a u a u a");
        let first = Plan::of_branch(&session.branch(), 40).unwrap();
        assert_eq!(first.history.len(), 4);
        let files = first.files.details();
        assert_eq!(files["readFiles"], json!(["/f1"]));
        let entry = CompactionEntry {
            summary: "S1".to_owned(),
            first_kept_entry_id: first.first_kept_entry_id.clone(),
            tokens_before: 1,
            details: Some(files),
            from_hook: None,
        };
        session.append_compaction(entry);
        assert_eq!(Plan::of_branch(&session.branch(), 10), Err(NothingToDo::AlreadyCompacted));
        session.append_session_info("a name is nothing that a model sees");
        assert_eq!(Plan::of_branch(&session.branch(), 10), Err(NothingToDo::AlreadyCompacted));
        for word in ["u", "c2", "r2", "a"] {
            append(&session, word);
        }
        let second = Plan::of_branch(&session.branch(), 20).unwrap();
        assert_eq!(second.previous_summary.as_deref(), Some("S1"));
        // What the first one kept is summarised now, and nothing of it twice.
        assert_eq!((second.history.len(), second.turn_prefix.len()), (4, 3));
        assert_eq!(second.files.details()["readFiles"], json!(["/f1", "/f2"]));
    }

    proptest! {
        #[test]
        fn no_cut_ever_parts_a_call_from_its_result(
            words in prop::collection::vec(prop_oneof![
                Just("u"), Just("a"), Just("c1"), Just("c1,2"), Just("c3"), Just("r1"), Just("r2"),
                Just("r3"), Just("x"), Just("b"),
            ], 0..25),
            keep_recent in 1u64..300,
        ) {
            // Ids are used once: the nth call of a kind and its result have a number.
            let mut turn = 0;
            let words: Vec<String> = words.iter().map(|word| {
                if word.starts_with('c') { turn += 1; }
                match word.split_at(1) {
                    ("c", ids) => {
                        let ids: Vec<_> = ids.split(',').map(|id| format!("{id}_{turn}")).collect();
                        format!("c{}", ids.join(","))
                    }
                    ("r", id) => format!("r{id}_{turn}"),
                    _ => (*word).to_owned(),
                }
            }).collect();
            let session = session(&words.join(" "));
            let branch = session.branch();
            if let Ok(plan) = Plan::of_branch(&branch, keep_recent) {
                let cut = branch.iter().position(|e| e.id().as_str() == plan.first_kept_entry_id).unwrap();
                prop_assert!(cut > 0);
                prop_assert_eq!(plan.history.len() + plan.turn_prefix.len(), cut);
                let messages: Vec<_> = branch.iter().filter_map(|e| e.context_message()).collect();
                prop_assert!(!matches!(*messages[cut], AgentMessage::ToolResult(_)));
                for message in &messages[..cut] {
                    if let AgentMessage::Assistant(reply) = message.as_ref() {
                        for call in reply.tool_calls() {
                            let parted = messages[cut..].iter().any(|later| matches!(later.as_ref(),
                                AgentMessage::ToolResult(r) if r.tool_call_id == call.id));
                            prop_assert!(!parted);
                        }
                    }
                }
            }
        }
    }
}
