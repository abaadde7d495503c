//! Moving about in the session's tree: `navigate_tree`, labels, and what forks may begin
//! from. What a branch that is left is summarised to is in `branch_summary`.

use std::sync::Arc;

use serde::Serialize;
use tokio_util::sync::CancellationToken;
use wharf_protocol::model::ModelRef;
use wharf_protocol::{AgentMessage, Model, ThinkingLevel};
use wharf_session::{BranchSummaryEntry, Entry, EntryKind, MessageRole, Session};

use crate::agent::Agent;
use crate::ask::AskError;
use crate::compaction::Compacting;
use crate::hooks::{BeforeTreeEvent, HookEvent, HookNotification, TreeOptions, TreeVerdict};
use crate::models::Kept;
use crate::switching::Selected;

/// Where the leaf is now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Navigated {
    /// An extension cancelled it, or its summary was aborted. Nothing has changed then.
    pub cancelled: bool,
    /// The text of the message that was chosen, to be written again: the leaf is before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub editor_text: Option<String>,
}

impl Navigated {
    fn cancelled() -> Self {
        Self { cancelled: true, editor_text: None }
    }
}

/// Why the leaf could not be moved. The texts are the reference's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NavigateError {
    #[error(
        "Cannot navigate the session tree while the agent is streaming. Abort or wait for idle first."
    )]
    Streaming,
    #[error(
        "Cannot navigate the session tree while summarization or compaction is in progress. Wait for idle first."
    )]
    Summarizing,
    #[error("Entry {0} not found")]
    NotFound(String),
    #[error("No model available for summarization")]
    NoModel,
    #[error("Branch summarization failed: {0}")]
    Failed(String),
}

/// A user message that a fork may begin from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForkMessage {
    pub entry_id: String,
    pub text: String,
}

/// The text of a message that can be written again.
pub(crate) fn editable_text(entry: &Entry) -> Option<String> {
    match entry.kind() {
        EntryKind::Message(message) => match message.as_ref() {
            AgentMessage::User(user) => Some(user.content.to_text()),
            _ => None,
        },
        EntryKind::CustomMessage(message) => Some(message.content.to_text()),
        _ => None,
    }
}

/// The entry before another one on its branch; none before the first. An entry that lost
/// its parent names one that is not there, or one that is below it.
pub(crate) fn before(session: &Session, id: &str) -> Option<String> {
    let branch = session.branch_to(id).unwrap_or_default();
    branch.iter().rev().nth(1).map(|entry| entry.id().to_string())
}

/// A move that is under way.
struct Move {
    session: Session,
    target: Arc<Entry>,
    cancel: CancellationToken,
    /// Model and thinking level when it was asked for.
    chosen: (Option<ModelRef>, ThinkingLevel),
}

impl Agent {
    /// The user messages of all branches, in the order in which they were written.
    pub fn fork_messages(&self) -> Vec<ForkMessage> {
        let text = |entry: &Arc<Entry>| match entry.message()?.as_ref() {
            AgentMessage::User(user) => {
                Some(ForkMessage { entry_id: entry.id().to_string(), text: user.content.to_text() })
            }
            _ => None,
        };
        self.session()
            .entries()
            .iter()
            .filter(|entry| entry.role() == Some(MessageRole::User))
            .filter_map(text)
            .collect()
    }

    /// Sets or clears (none, or blank) the label of an entry. It has the label when this
    /// returns; the future completes when that is written.
    ///
    /// # Errors
    /// There is no such entry.
    pub fn set_label(&self, entry: &str, label: Option<&str>) -> Result<Kept, NavigateError> {
        let label = label.map(str::trim).filter(|label| !label.is_empty());
        let (_, receipt) = self
            .session()
            .append_label(entry, label)
            .map_err(|_| NavigateError::NotFound(entry.to_owned()))?;
        let agent = self.clone();
        Ok(Box::pin(async move { agent.written(receipt).await }))
    }

    /// Moves the leaf to another entry of the session; to before it, where it is a message
    /// that can be written again. It is under way from this call on, not only once the
    /// future is polled: what is prompted after it belongs to the new branch.
    ///
    /// # Errors
    /// The agent is busy, there is no such entry, or there is no summary to be had. Nothing
    /// has changed then.
    pub fn navigate_tree(
        &self,
        target: &str,
        options: TreeOptions,
    ) -> Result<impl Future<Output = Result<Navigated, NavigateError>> + Send + use<>, NavigateError>
    {
        if self.is_streaming() {
            return Err(NavigateError::Streaming);
        }
        if !self.state().compacting.is_empty() {
            return Err(NavigateError::Summarizing);
        }
        let session = self.session();
        let target =
            session.entry(target).ok_or_else(|| NavigateError::NotFound(target.to_owned()))?;
        let chosen = {
            let state = self.state();
            (state.model.as_ref().map(Model::reference), state.thinking_level)
        };
        if options.summarize && chosen.0.is_none() {
            return Err(NavigateError::NoModel);
        }
        let cancel = CancellationToken::new();
        let compacting = Compacting::begin(self, cancel.clone());
        let line = self.stage_in_line();
        Ok(async move {
            let stage = line.await;
            let agent = &compacting.agent;
            let moved = agent.navigate(Move { session, target, cancel, chosen }, options).await;
            agent.take_in_command_results().await;
            drop(stage);
            moved
        })
    }

    /// The stage is held.
    async fn navigate(
        &self,
        Move { session, target, cancel, chosen }: Move,
        options: TreeOptions,
    ) -> Result<Navigated, NavigateError> {
        // Another session may have become the current one while this waited.
        if cancel.is_cancelled() || self.session().id() != session.id() {
            return Ok(Navigated::cancelled());
        }
        let old_leaf_id = session.leaf_id().map(|id| id.to_string());
        let editor_text = editable_text(&target);
        let new_leaf_id = match editor_text {
            Some(_) => before(&session, target.id().as_str()),
            None => Some(target.id().to_string()),
        };
        if editor_text.is_none() && old_leaf_id == new_leaf_id && options.label.is_none() {
            return Ok(Navigated::default());
        }
        let left = Abandoned::of(&session, new_leaf_id.as_deref());
        let (options, own_summary) =
            match self.ask_before_tree(&target, &left, options, &cancel).await {
                TreeVerdict::Cancel => return Ok(Navigated::cancelled()),
                TreeVerdict::Proceed { options, summary } => (options, summary),
            };
        let from_extension = own_summary.is_some();
        let summary = match own_summary {
            Some(own) => Some((own.summary, own.details)),
            None if options.summarize && left.has_messages() => {
                match self.summarise_branch(&left.entries, &options, &cancel).await {
                    Ok((summary, details)) => Some((summary, Some(details))),
                    Err(AskError::Aborted) => return Ok(Navigated::cancelled()),
                    Err(AskError::Failed(problem)) => return Err(NavigateError::Failed(problem)),
                }
            }
            None => None,
        };
        if cancel.is_cancelled() {
            return Ok(Navigated::cancelled());
        }
        let unknown = |_| NavigateError::NotFound(target.id().to_string());
        let label = options.label.as_deref().map(str::trim).filter(|label| !label.is_empty());
        let mut labelled = target.id().to_string();
        let mut summary_entry = None;
        match summary {
            Some((summary, details)) => {
                let body = BranchSummaryEntry {
                    from_id: old_leaf_id.clone().unwrap_or_default(),
                    summary,
                    details,
                    from_hook: from_extension.then_some(true),
                };
                let (id, receipt) =
                    session.append_branch_summary(new_leaf_id.as_deref(), body).map_err(unknown)?;
                self.written(receipt).await;
                summary_entry = session.entry(id.as_str());
                labelled = id.to_string();
            }
            None => session.set_leaf(new_leaf_id.as_deref()).map_err(unknown)?,
        }
        if let Some(label) = label {
            let (_, receipt) = session.append_label(&labelled, Some(label)).map_err(unknown)?;
            self.written(receipt).await;
        }
        let selected = self.take_up_after_move(&session, &chosen);
        self.inner.hooks.notify(HookNotification::SessionTree {
            new_leaf_id: session.leaf_id().map(|id| id.to_string()),
            old_leaf_id,
            summary_entry,
            from_extension,
        });
        self.notify_selected(selected);
        self.report_unrestored(&session).await;
        Ok(Navigated { cancelled: false, editor_text })
    }

    /// Model and thinking level are those of the new branch, unless somebody has chosen
    /// others since the move was asked for: the branch goes on with these.
    fn take_up_after_move(
        &self,
        session: &Session,
        (model, level): &(Option<ModelRef>, ThinkingLevel),
    ) -> Selected {
        let context = session.build_context();
        let mut state = self.state();
        let (now_model, now_level) = (state.model.clone(), state.thinking_level);
        let mut selected = self.take_up(&mut state, context);
        let is_other_model = now_model.as_ref().map(Model::reference) != *model;
        let is_other_level = now_level != *level;
        if is_other_model {
            // It was told when it was chosen.
            (state.model, state.unrestored, selected) = (now_model, None, None);
        }
        if is_other_level {
            state.thinking_level = now_level;
        }
        drop(state);
        if is_other_model || is_other_level {
            self.record_model();
        }
        selected
    }

    async fn ask_before_tree(
        &self,
        target: &Entry,
        left: &Abandoned,
        options: TreeOptions,
        cancel: &CancellationToken,
    ) -> TreeVerdict {
        let hooks = &self.inner.hooks;
        if !hooks.subscribes(HookEvent::SessionBeforeTree) {
            return TreeVerdict::Proceed { options, summary: None };
        }
        hooks.ready().await;
        let event = BeforeTreeEvent {
            target_id: target.id().to_string(),
            old_leaf_id: left.leaf_id.clone(),
            common_ancestor_id: left.common_ancestor_id.clone(),
            abandoned: left.entries.iter().filter_map(|entry| entry.context_message()).collect(),
            options,
        };
        hooks.session_before_tree(event, cancel).await
    }
}

/// The branch that a move leaves.
struct Abandoned {
    leaf_id: Option<String>,
    common_ancestor_id: Option<String>,
    /// From below the common ancestor to the leaf.
    entries: Vec<Arc<Entry>>,
}

impl Abandoned {
    /// Whether there is anything to summarise.
    fn has_messages(&self) -> bool {
        self.entries.iter().any(|entry| entry.context_message().is_some())
    }

    /// `new_leaf` is where the branch that is taken up ends: a message that is to be written
    /// again is on the branch that is left, so its summary knows what was asked there.
    fn of(session: &Session, new_leaf: Option<&str>) -> Self {
        let mut entries = session.branch();
        let taken = new_leaf.and_then(|leaf| session.branch_to(leaf).ok()).unwrap_or_default();
        let common =
            entries.iter().zip(&taken).take_while(|(left, right)| left.id() == right.id()).count();
        Self {
            leaf_id: entries.last().map(|entry| entry.id().to_string()),
            common_ancestor_id: common.checked_sub(1).map(|at| taken[at].id().to_string()),
            entries: entries.split_off(common),
        }
    }
}
