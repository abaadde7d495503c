//! Compaction: the older part of a conversation becomes a summary, so that the rest fits
//! the model's context window. `plan` decides what, `summary` has the words, `files`
//! remembers what was read and modified; here is when, and what comes of it.

pub(crate) mod files;
mod plan;
pub(crate) mod summary;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_protocol::{AgentMessage, CompactionReason, CompactionResult, Event, Model};
use wharf_provider::Purpose;
use wharf_session::CompactionEntry;

use crate::agent::Agent;
use crate::ask::{AskError, Question};
use crate::conversation::{context_tokens, estimate_all};
use crate::hooks::{
    BeforeCompactEvent, BeforeCompactVerdict, CompactionCause, HookEvent, HookNotification,
};
use crate::resources::settings::CompactionSettings;
use crate::run::RunContext;
use plan::{NothingToDo, Plan};

/// Why nothing was compacted. The texts that a client sees are the reference's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompactError {
    /// By the person, or by an extension.
    #[error("Compaction cancelled")]
    Cancelled,
    #[error("No model selected")]
    NoModel,
    #[error("{0}")]
    Nothing(String),
    #[error("Compaction failed: {0}")]
    Failed(String),
}

impl From<NothingToDo> for CompactError {
    fn from(reason: NothingToDo) -> Self {
        Self::Nothing(reason.to_string())
    }
}

impl From<AskError> for CompactError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Aborted => Self::Cancelled,
            AskError::Failed(problem) => Self::Failed(problem),
        }
    }
}

/// Tokens that are left free, and that stay, in a context window.
struct Limits {
    reserve: u64,
    keep_recent: u64,
}

impl Limits {
    /// What settings say is meant for windows of 100,000 tokens and more. In a smaller one
    /// at most half is left free, and at most half of the rest stays.
    fn of(settings: &CompactionSettings, model: &Model) -> Self {
        let window = model.context_window;
        if window == 0 {
            return Self {
                reserve: settings.reserve_tokens,
                keep_recent: settings.keep_recent_tokens,
            };
        }
        let reserve = settings.reserve_tokens.min(window / 2);
        Self { reserve, keep_recent: settings.keep_recent_tokens.min((window - reserve) / 2) }
    }
}

/// Marks the agent as compacting, or as moving in the session's tree, for as long as it
/// lives. One that is asked for may wait for one of a run that it has aborted, so there may
/// be two.
pub(crate) struct Compacting {
    pub(crate) agent: Agent,
    cancel: Arc<CancellationToken>,
}

impl Compacting {
    pub(crate) fn begin(agent: &Agent, cancel: CancellationToken) -> Self {
        let cancel = Arc::new(cancel);
        agent.state().compacting.push(Arc::clone(&cancel));
        Self { agent: agent.clone(), cancel }
    }
}

impl Drop for Compacting {
    fn drop(&mut self) {
        self.agent.state().compacting.retain(|other| !Arc::ptr_eq(other, &self.cancel));
    }
}

impl Agent {
    /// Compacts now; what the agent was doing is aborted first. It is under way, and can
    /// be aborted, from this call on, not only once the future is polled.
    ///
    /// # Errors
    /// There is nothing to compact, no model, or it was cancelled or failed. Nothing has
    /// changed then.
    pub fn compact(
        &self,
        instructions: Option<String>,
    ) -> impl Future<Output = Result<CompactionResult, CompactError>> + Send + use<> {
        self.abort_work();
        let cancel = CancellationToken::new();
        let compacting = Compacting::begin(self, cancel.clone());
        // The run that was aborted leaves first, and one that is asked for after this begins
        // when the compaction is done.
        let line = self.stage_in_line();
        async move {
            let stage = line.await;
            let agent = &compacting.agent;
            let result = agent.compact_with(CompactionCause::Manual, instructions, &cancel).await;
            agent.take_in_command_results().await;
            drop(stage);
            result
        }
    }

    /// Ends the compaction under way, if there is one.
    pub fn abort_compaction(&self) {
        self.state().compacting.iter().for_each(|compacting| compacting.cancel());
    }

    /// Compacts inside a run, with its events. True: the context is smaller now.
    pub(crate) async fn auto_compact(
        &self,
        context: &RunContext,
        reason: CompactionReason,
        will_retry: bool,
    ) -> bool {
        let cancel = context.cancel.child_token();
        let cause = match reason {
            CompactionReason::Threshold => CompactionCause::Threshold,
            CompactionReason::Overflow => CompactionCause::Overflow,
        };
        let compacting = Compacting::begin(self, cancel.clone());
        self.emit(Event::AutoCompactionStart { reason }).await;
        let compacted = self.compact_with(cause, None, &cancel).await;
        drop(compacting);
        let is_compacted = compacted.is_ok();
        // A run that goes on asks the model again whether or not this helped; only what
        // the provider refused as too large does not.
        let goes_on = is_compacted || reason == CompactionReason::Threshold;
        let will_retry = will_retry && goes_on && !context.cancel.is_cancelled();
        self.emit(match compacted {
            Ok(result) => Event::AutoCompactionEnd {
                result: Some(result),
                aborted: false,
                will_retry,
                error_message: None,
            },
            Err(CompactError::Cancelled) => Event::AutoCompactionEnd {
                result: None,
                aborted: true,
                will_retry,
                error_message: None,
            },
            Err(error) => Event::AutoCompactionEnd {
                result: None,
                aborted: false,
                will_retry,
                error_message: Some(error.to_string()),
            },
        })
        .await;
        is_compacted
    }

    /// Whether the context is so full that it should be compacted before the next request.
    pub(crate) fn is_over_threshold(&self) -> bool {
        let state = self.state();
        let Some(model) = &state.model else { return false };
        if !state.auto_compaction || model.context_window == 0 {
            return false;
        }
        let Limits { reserve, .. } = Limits::of(&self.resources().settings.compaction, model);
        context_tokens(&state.messages, state.compacted)
            .is_some_and(|tokens| tokens > model.context_window - reserve)
    }

    async fn compact_with(
        &self,
        cause: CompactionCause,
        instructions: Option<String>,
        cancel: &CancellationToken,
    ) -> Result<CompactionResult, CompactError> {
        let (session, model, tokens_before) = {
            let state = self.state();
            let tokens = context_tokens(&state.messages, state.compacted)
                .unwrap_or_else(|| estimate_all(&state.messages));
            (state.session.clone(), state.model.clone(), tokens)
        };
        let model = model.ok_or(CompactError::NoModel)?;
        let limits = Limits::of(&self.resources().settings.compaction, &model);
        let plan = Plan::of_branch(&session.branch(), limits.keep_recent)?;
        let hooks = &self.inner.hooks;
        let verdict = if hooks.subscribes(HookEvent::SessionBeforeCompact) {
            hooks.ready().await;
            let event = BeforeCompactEvent {
                cause,
                first_kept_entry_id: plan.first_kept_entry_id.clone(),
                tokens_before,
                previous_summary: plan.previous_summary.clone(),
                messages: plan.history.clone(),
                turn_prefix: plan.turn_prefix.clone(),
                details: plan.files.details(),
                instructions: instructions.clone(),
            };
            hooks.session_before_compact(event, cancel).await
        } else {
            BeforeCompactVerdict::Proceed
        };
        if cancel.is_cancelled() {
            return Err(CompactError::Cancelled);
        }
        let (result, from_extension) = match verdict {
            BeforeCompactVerdict::Cancel => return Err(CompactError::Cancelled),
            BeforeCompactVerdict::Replace(result) => (result, true),
            BeforeCompactVerdict::Proceed => {
                let summary =
                    self.summarise(&plan, &model, instructions.as_deref(), cancel).await?;
                let result = CompactionResult {
                    summary,
                    first_kept_entry_id: plan.first_kept_entry_id,
                    tokens_before,
                    details: Some(plan.files.details()),
                };
                (result, false)
            }
        };
        if session.entry(&result.first_kept_entry_id).is_none() {
            return Err(CompactError::Failed(format!(
                "there is no entry {} to keep the conversation from",
                result.first_kept_entry_id
            )));
        }
        let (entry_id, receipt) = session.append_compaction(CompactionEntry {
            summary: result.summary.clone(),
            first_kept_entry_id: result.first_kept_entry_id.clone(),
            tokens_before: result.tokens_before,
            details: result.details.clone(),
            from_hook: from_extension.then_some(true),
        });
        self.written(receipt).await;
        let context = session.build_context();
        {
            let mut state = self.state();
            state.messages = context.messages;
            state.compacted = context.compacted;
        }
        hooks.notify(HookNotification::SessionCompact {
            entry_id: entry_id.to_string(),
            result: result.clone(),
            from_extension,
        });
        Ok(result)
    }

    /// The new summary: of the turns that go, and of the beginning of the turn that the
    /// cut goes through.
    async fn summarise(
        &self,
        plan: &Plan,
        model: &Model,
        instructions: Option<&str>,
        cancel: &CancellationToken,
    ) -> Result<String, CompactError> {
        let resources = self.resources();
        let settings = &resources.settings.compaction;
        let limits = Limits::of(settings, model);
        // Four fifths of what is left free: the summary has to fit in there later.
        let max_tokens = (limits.reserve * 4 / 5).max(1024);
        let room = summary::room(model.context_window, max_tokens);
        let thinking_level = self.state().thinking_level;
        let ask = |prompt: String| {
            let question = Question {
                purpose: Purpose::Summary,
                model,
                thinking_level,
                system_prompt: summary::SYSTEM_PROMPT,
                prompt,
                max_tokens,
            };
            self.ask(question, cancel)
        };
        let text = |messages: &[Arc<AgentMessage>]| summary::conversation_text(messages, room);
        let history = match (&plan.history[..], plan.previous_summary.as_deref()) {
            ([], previous) => previous.map(str::to_owned),
            (history, previous) => {
                Some(ask(summary::history_prompt(&text(history), previous, instructions)).await?)
            }
        };
        let prefix = match &plan.turn_prefix[..] {
            [] => None,
            prefix => Some(ask(summary::prefix_prompt(&text(prefix), instructions)).await?),
        };
        // Earlier summaries end with lists of files, too: those here take their place.
        let merged = summary::without_file_lists(&summary::merged(history, prefix));
        Ok(format!("{merged}{}", plan.files.as_text()))
    }
}
