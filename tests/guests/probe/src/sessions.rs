//! The answers to events about sessions, and what their notifications said.

use std::future::pending;

use serde_json::{Map, Value, json};
use wharf_sdk::{
    CommandCtx, Ctx, Error, ForkDecision, Result, SessionBeforeForkEvent, SessionBeforeTreeEvent,
    SessionDirectoryEvent, SessionForkNote, SessionTreeNote, TextChange, TreeChanges, TreeDecision,
    TreeSummary,
};

use crate::Probe;
use crate::commands::{report, show, two};

const FAILS: &str = "probe fails on purpose";

impl Probe {
    pub(crate) async fn set_fork(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        *self.fork.borrow_mut() = args.to_owned();
        show(ctx, "before-fork", ())
    }

    pub(crate) async fn before_fork(
        &self,
        ctx: &Ctx,
        event: SessionBeforeForkEvent,
    ) -> Result<ForkDecision> {
        Ok(match self.fork.borrow().as_str() {
            "CANCEL" => ForkDecision::Cancel,
            "KEEP" => ForkDecision::KeepConversation,
            "FAIL" => return Err(FAILS.into()),
            "SHOW" => {
                report(ctx, "session-before-fork", Ok(json!({"entryId": event.entry_id})));
                ForkDecision::Proceed
            }
            _ => ForkDecision::Proceed,
        })
    }

    pub(crate) async fn set_tree(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        *self.tree.borrow_mut() = args.to_owned();
        show(ctx, "before-tree", ())
    }

    pub(crate) async fn before_tree(
        &self,
        ctx: &Ctx,
        event: SessionBeforeTreeEvent,
    ) -> Result<TreeDecision> {
        let set = self.tree.borrow().clone();
        let instructions = event.custom_instructions.as_deref().unwrap_or_default();
        let (word, rest) = two(if set.is_empty() { instructions } else { &set });
        Ok(match word {
            "CANCEL" => TreeDecision::Cancel,
            "FAIL" => return Err(FAILS.into()),
            "CHANGE" => changes(rest)?.into(),
            "SHOW" => {
                let shown = json!({
                    "targetId": event.target_id,
                    "oldLeafId": event.old_leaf_id,
                    "commonAncestorId": event.common_ancestor_id,
                    "abandoned": event.abandoned.value()?,
                    "summarize": event.summarize,
                    "customInstructions": event.custom_instructions,
                    "replaceInstructions": event.replace_instructions,
                    "label": event.label,
                });
                report(ctx, "session-before-tree", Ok(shown));
                TreeDecision::proceed()
            }
            _ => TreeDecision::proceed(),
        })
    }

    pub(crate) async fn directory(
        &self,
        ctx: &Ctx,
        event: SessionDirectoryEvent,
    ) -> Result<Option<String>> {
        let (word, rest) = two(event.cwd.rsplit('/').next().unwrap_or_default());
        match word {
            "DIRECTORY" => return Ok(Some(rest.replace('%', "/"))),
            "BLANK" => return Ok(Some(" ".to_owned())),
            "LONG" => return Ok(Some("x".repeat(5_000))),
            "FAIL" => return Err(FAILS.into()),
            "HANG" => pending().await,
            "ASK" => {
                let answer = ctx.ui().confirm("Where?", "Here?").await;
                ctx.ui().notify(format!("directory: {answer:?}"));
            }
            "SHOW" => report(ctx, "session-directory", Ok(json!({"cwd": event.cwd}))),
            _ => {}
        }
        Ok(None)
    }

    pub(crate) async fn forked(&self, _ctx: &Ctx, note: SessionForkNote) -> Result<()> {
        self.typed.borrow_mut().push(format!("fork {:?}", note.previous_session_file));
        Ok(())
    }

    pub(crate) async fn moved(&self, _ctx: &Ctx, note: SessionTreeNote) -> Result<()> {
        let SessionTreeNote { new_leaf_id, old_leaf_id, summary_entry, from_extension, .. } = note;
        let line =
            format!("tree {old_leaf_id:?} {new_leaf_id:?} {summary_entry:?} {from_extension}");
        self.typed.borrow_mut().push(line);
        Ok(())
    }
}

/// An object whose fields are the changes; a text that is `null` is cleared.
fn changes(text: &str) -> Result<TreeChanges> {
    let fields: Map<String, Value> = serde_json::from_str(text)?;
    let change = |name: &str| match fields.get(name) {
        None => Ok(TextChange::Keep),
        Some(Value::Null) => Ok(TextChange::Clear),
        Some(Value::String(text)) => Ok(TextChange::Set(text.clone())),
        Some(other) => Err(Error::from(format!("{name} is no text: {other}"))),
    };
    let summary = fields.get("summary").and_then(Value::as_str).map(|text| {
        let summary = TreeSummary::new(text);
        match fields.get("details") {
            Some(details) => summary.with_details(details.clone()),
            None => summary,
        }
    });
    Ok(TreeChanges {
        summary,
        custom_instructions: change("customInstructions")?,
        replace_instructions: fields.get("replaceInstructions").and_then(Value::as_bool),
        label: change("label")?,
    })
}
