//! One reply of the model, however many attempts it takes: what is tried again, when,
//! and with what; and the message that comes of it in the end.
//!
//! Nothing of an attempt that is given up is recorded. Where its `message_start` had
//! left, `stream_retry` or `length_retry` tells that it is void.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use wharf_protocol::{
    AgentMessage, AssistantMessage, CompactionReason, Cost, Event, Model, StopReason, ToolCall,
    Usage,
};
use wharf_provider::{ErrorKind, Provider, ProviderError, Purpose, Request};

use crate::agent::Agent;
use crate::conversation::{context_tokens, estimate_all, for_model, parsed, without_images};
use crate::hooks::HookEvent;
use crate::retry::{self, MAX_STREAM_RETRIES};
use crate::run::{Messages, RunContext};
use crate::stream::{Attempt, BrokenCalls, End};

/// What an aborted reply says of itself, as the reference words it.
const ABORTED: &str = "Request was aborted";

/// Output tokens that are asked for however full the context seems to be: how full it
/// is, is an estimate.
const MIN_OUTPUT_TOKENS: u64 = 4096;

/// A reply that is recorded and announced.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) message: Arc<AgentMessage>,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) broken: BrokenCalls,
    /// It failed or was aborted: the run is over.
    pub(crate) failed: bool,
}

/// What follows a failed attempt.
enum Verdict {
    Again,
    /// How the reply stops, and why.
    GiveUp(StopReason, String),
}

/// How the attempts ended.
struct Outcome {
    retries: u32,
    problem: Option<String>,
}

/// What has been tried for one reply.
#[derive(Debug, Default)]
struct Tries {
    /// Retries after transient errors, announced by `auto_retry_start`.
    retries: u32,
    /// Torn streams in a row.
    drops: u32,
    lengths: u32,
    /// Output tokens of the next request, where a shorter reply hit its limit.
    max_tokens: Option<u64>,
    /// The context has been compacted because it was too large.
    overflowed: bool,
}

/// The automatic retry under way, as `get_state` tells it.
#[derive(Debug, Default)]
pub(crate) struct Retrying {
    /// From the first transient error until its reply has succeeded or failed for good.
    pub(crate) is_active: bool,
    /// The attempt that was announced last; zero before and after.
    pub(crate) attempt: u32,
    /// Ends the wait; what failed is not tried again.
    pub(crate) cancel: CancellationToken,
}

impl Agent {
    /// Asks the model, and records and announces its reply.
    pub(crate) async fn reply(&self, context: &mut RunContext, recorded: &mut Messages) -> Reply {
        let mut tries = Tries::default();
        let (message, broken, problem) = loop {
            let (model, request, provider) = match self.request(context, &tries).await {
                Ok(parts) => parts,
                Err(problem) => {
                    let message = self.failed_reply(&problem);
                    self.start_message(&message).await;
                    break (message, BrokenCalls::new(), Some(problem));
                }
            };
            let budget = request.output_budget();
            let (mut attempt, end) = self.attempt(&*provider, request, context).await;
            let mut started = attempt.started;
            let (message, broken, problem) = match end {
                End::Complete { stop_reason, usage } => {
                    let usage = priced(usage, &model);
                    self.log_performance(&model, stop_reason, usage.output, attempt.duration());
                    if stop_reason == StopReason::Length
                        && self.give_more_room(&mut tries, budget, &model, &usage).await
                    {
                        continue;
                    }
                    let (mut message, broken) = attempt.into_complete(stop_reason, usage);
                    if stop_reason == StopReason::Length {
                        message.error_message = Some(format!(
                            "the reply was cut off at the limit of {budget} output tokens of {}",
                            model.id
                        ));
                    }
                    (message, broken, None)
                }
                End::Aborted => {
                    let message = attempt.into_failed(StopReason::Aborted, ABORTED.to_owned());
                    (message, BrokenCalls::new(), Some(ABORTED.to_owned()))
                }
                End::Failed(error) => {
                    match self.handle_failure(&mut tries, &error, &mut attempt, context).await {
                        Verdict::Again => continue,
                        Verdict::GiveUp(stop_reason, problem) => {
                            started = attempt.started;
                            let message = attempt.into_failed(stop_reason, problem.clone());
                            (message, BrokenCalls::new(), Some(problem))
                        }
                    }
                }
            };
            if !started {
                self.start_message(&message).await;
            }
            break (message, broken, problem);
        };
        self.settle(message, broken, recorded, Outcome { retries: tries.retries, problem }).await
    }

    /// The request as the conversation and the tools are now.
    async fn request(
        &self,
        context: &mut RunContext,
        tries: &Tries,
    ) -> Result<(Model, Request, Arc<dyn Provider>), String> {
        let mut messages = parsed(&self.state().messages);
        let hooks = &self.inner.hooks;
        if hooks.subscribes(HookEvent::Context) {
            messages = hooks.context(messages, &context.cancel).await;
        }
        // After the handlers: what they change of the tools holds for this request.
        self.renew_offer(context);
        let mut messages = for_model(&messages);
        let settings = &context.offer.resources.settings;
        if settings.block_images {
            messages = without_images(messages);
        }
        let state = self.state();
        let model = state.model.clone().ok_or("no model is selected")?;
        let mut request = Request {
            model: model.clone(),
            purpose: Purpose::Reply,
            thinking_level: state.thinking_level,
            thinking_budgets: settings.thinking_budgets,
            system_prompt: Arc::clone(&context.system_prompt),
            messages,
            tools: Arc::clone(&context.offer.definitions),
            max_tokens: tries.max_tokens,
            session_id: Some(state.session.id().into()),
            filter: self.payload_filter(&context.cancel),
        };
        if model.context_window > 0 {
            let taken = context_tokens(&state.messages, state.compacted)
                .unwrap_or_else(|| estimate_all(&state.messages));
            let room = model.context_window.saturating_sub(taken).max(MIN_OUTPUT_TOKENS);
            request.max_tokens = Some(request.output_budget().min(room));
        }
        drop(state);
        let provider = self.registry().provider(&model).ok_or_else(|| {
            format!("model {}/{} has no provider; choose another", model.provider, model.id)
        })?;
        Ok((model, request, provider))
    }

    /// Asks for the reply again with more output tokens, where the model can give more.
    async fn give_more_room(
        &self,
        tries: &mut Tries,
        budget: u64,
        model: &Model,
        usage: &Usage,
    ) -> bool {
        let prompt = usage.input + usage.cache_read + usage.cache_write;
        let room = match model.context_window {
            0 => u64::MAX,
            window => window.saturating_sub(prompt),
        };
        let most = model.max_tokens.min(room);
        if budget >= most {
            return false;
        }
        let next = budget.saturating_mul(2).min(most);
        tries.lengths += 1;
        tries.max_tokens = Some(next);
        self.emit(Event::LengthRetry {
            attempt: tries.lengths,
            max_tokens: budget,
            next_max_tokens: next,
        })
        .await;
        true
    }

    async fn handle_failure(
        &self,
        tries: &mut Tries,
        error: &ProviderError,
        attempt: &mut Attempt,
        context: &RunContext,
    ) -> Verdict {
        let resources = self.resources();
        let settings = &resources.settings.retry;
        let (auto_retry, auto_compaction, is_over) = {
            let state = self.state();
            // `abort_retry` while the retry's own request was under way.
            let is_over = state.retrying.is_active && state.retrying.cancel.is_cancelled();
            (state.auto_retry, state.auto_compaction, is_over)
        };
        if is_over {
            return Verdict::GiveUp(StopReason::Error, retry_cancelled(error));
        }
        let give_up = |problem: String| Verdict::GiveUp(StopReason::Error, problem);
        match error.kind {
            ErrorKind::Dropped if tries.drops < MAX_STREAM_RETRIES => {
                tries.drops += 1;
                let cancel = CancellationToken::new();
                self.state().retrying.cancel = cancel.clone();
                self.void(attempt, tries.drops, MAX_STREAM_RETRIES, error).await;
                let wait = retry::stream_delay(settings, tries.drops);
                self.pause(wait, &cancel, context, error).await
            }
            ErrorKind::ContextOverflow if auto_compaction && !tries.overflowed => {
                tries.overflowed = true;
                if attempt.started {
                    self.void(attempt, 1, 1, error).await;
                }
                match self.auto_compact(context, CompactionReason::Overflow, true).await {
                    true => Verdict::Again,
                    false if context.cancel.is_cancelled() => {
                        Verdict::GiveUp(StopReason::Aborted, ABORTED.to_owned())
                    }
                    false => give_up(error.to_string()),
                }
            }
            kind if kind.is_transient() && auto_retry && tries.retries < settings.max_retries => {
                let wait = match retry::delay(settings, tries.retries + 1, error) {
                    Ok(wait) => wait,
                    Err(problem) => return give_up(problem),
                };
                tries.retries += 1;
                let cancel = CancellationToken::new();
                self.state().retrying =
                    Retrying { is_active: true, attempt: tries.retries, cancel: cancel.clone() };
                if attempt.started {
                    self.void(attempt, tries.retries, settings.max_retries, error).await;
                }
                self.emit(Event::AutoRetryStart {
                    attempt: tries.retries,
                    max_attempts: settings.max_retries,
                    delay_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                    error_message: error.to_string(),
                })
                .await;
                self.pause(wait, &cancel, context, error).await
            }
            _ => give_up(error.to_string()),
        }
    }

    /// Tells that what came of the reply does not count, and forgets it.
    async fn void(
        &self,
        voided: &mut Attempt,
        attempt: u32,
        max_attempts: u32,
        error: &ProviderError,
    ) {
        voided.started = false;
        let error_message = error.to_string();
        self.emit(Event::StreamRetry { attempt, max_attempts, error_message }).await;
    }

    async fn pause(
        &self,
        wait: Duration,
        cancel: &CancellationToken,
        context: &RunContext,
        error: &ProviderError,
    ) -> Verdict {
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => {
                Verdict::GiveUp(StopReason::Aborted, ABORTED.to_owned())
            }
            () = cancel.cancelled() => {
                Verdict::GiveUp(StopReason::Error, retry_cancelled(error))
            }
            () = tokio::time::sleep(wait) => Verdict::Again,
        }
    }

    /// Records the reply, and ends the retry that it took.
    async fn settle(
        &self,
        message: AssistantMessage,
        broken: BrokenCalls,
        recorded: &mut Messages,
        outcome: Outcome,
    ) -> Reply {
        let failed = matches!(message.stop_reason, StopReason::Error | StopReason::Aborted);
        let calls = if failed { Vec::new() } else { message.tool_calls().cloned().collect() };
        let message = self.record_reply(message, recorded).await;
        let Outcome { retries: attempt, problem } = outcome;
        self.state().retrying = Retrying::default();
        if attempt > 0 {
            let success = !failed;
            self.emit(Event::AutoRetryEnd { success, attempt, final_error: problem }).await;
        }
        Reply { message, calls, broken, failed }
    }
}

fn retry_cancelled(error: &ProviderError) -> String {
    format!("{error} (retry cancelled)")
}

/// Fills in the total and the cost where the provider gave none.
fn priced(mut usage: Usage, model: &Model) -> Usage {
    if usage.total_tokens == 0 {
        usage.total_tokens = usage.input + usage.output + usage.cache_read + usage.cache_write;
    }
    if usage.cost == Cost::default() {
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let price = |tokens: u64, per_million: f64| tokens as f64 * per_million / 1e6;
        let cost = Cost {
            input: price(usage.input, model.cost.input),
            output: price(usage.output, model.cost.output),
            cache_read: price(usage.cache_read, model.cost.cache_read),
            cache_write: price(usage.cache_write, model.cost.cache_write),
            total: 0.0,
        };
        usage.cost =
            Cost { total: cost.input + cost.output + cost.cache_read + cost.cache_write, ..cost };
    }
    usage
}
