//! The tool calls of one reply: preflight in source order, execution, results in
//! source order.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use wharf_protocol::{AgentMessage, ContentBlock, Event, ToolCall, ToolResultMessage};

use crate::agent::Agent;
use crate::hooks::{HookEvent, ToolCallEvent, ToolCallVerdict, ToolResultEvent};
use crate::output::{AgentOutput, deliver};
use crate::run::{Messages, RunContext, now_millis};
use crate::stream::BrokenCalls;
use crate::tool::{Progress, ToolCallContext, ToolFailure, ToolOutput};
use crate::toolbox::{OfferedTool, Running, RunningCall};

/// A link was swapped after a guard had judged its target.
pub(crate) const MOVED_TARGET: &str = "The call did not run: a path that it names has changed its target since it was checked. Send the call again.";

/// What became of a call before anything ran.
enum Preflight {
    Run {
        tool: OfferedTool,
        args: Map<String, Value>,
        /// The paths that handlers judged; none where nobody was asked.
        judged: Option<Vec<PathBuf>>,
    },
    /// Decided already: blocked, answered or invalid.
    Settled { args: Map<String, Value>, outcome: Outcome },
}

#[derive(Debug, Clone)]
struct Outcome {
    output: ToolOutput,
    is_error: bool,
    /// False for calls that never ran: `tool_result` is about what ran.
    ran: bool,
}

impl Outcome {
    fn refused(text: impl Into<String>) -> Self {
        Self { output: text_output(text, None), is_error: true, ran: false }
    }
}

fn text_output(text: impl Into<String>, details: Option<Value>) -> ToolOutput {
    ToolOutput { content: vec![ContentBlock::text(text)], details }
}

/// For the model, when a tool gave no result by a fault of ours.
pub(crate) fn panicked(tool: &str) -> ToolFailure {
    ToolFailure::new(format!("internal error: tool {tool} panicked; please report it"))
}

impl Agent {
    /// Runs the calls and records their results; gives the result messages.
    pub(crate) async fn run_calls(
        &self,
        calls: Vec<ToolCall>,
        broken: &BrokenCalls,
        context: &RunContext,
        recorded: &mut Messages,
    ) -> Messages {
        let mut plans = Vec::with_capacity(calls.len());
        for call in calls {
            self.emit(Event::ToolExecutionStart {
                tool_call_id: call.id.clone(),
                tool_name: call.name.clone(),
                args: call.arguments.clone(),
            })
            .await;
            let preflight = self.preflight(&call, broken, context).await;
            plans.push((call, preflight));
        }
        if plans.iter().any(|(_, preflight)| matches!(preflight, Preflight::Run { .. })) {
            self.announce_before_running(context).await;
        }
        let one_at_a_time = plans.iter().any(|(_, preflight)| {
            matches!(preflight, Preflight::Run { tool, .. } if tool.spec().sequential)
        });
        let mut results = Messages::new();
        if one_at_a_time {
            for (call, preflight) in plans {
                let done = self.execute(call, preflight, context).await;
                results.push(self.record_result(done, context, recorded).await);
            }
        } else {
            let mut running: FuturesOrdered<_> = plans
                .into_iter()
                .map(|(call, preflight)| self.execute(call, preflight, context))
                .collect();
            while let Some(done) = running.next().await {
                results.push(self.record_result(done, context, recorded).await);
            }
        }
        results
    }

    /// Editors read a file when they see `tool_execution_start`, to show a diff
    /// later: it must be on the pipe before the tool runs.
    async fn announce_before_running(&self, context: &RunContext) {
        let (written, wait) = oneshot::channel();
        let barrier = async {
            deliver(&*self.inner.outlet, AgentOutput::Barrier(written)).await;
            // An error means that the reader is gone: nobody waits for the line.
            let _ = wait.await;
        };
        tokio::select! {
            () = barrier => {}
            () = context.cancel.cancelled() => {}
        }
    }

    async fn preflight(
        &self,
        call: &ToolCall,
        broken: &BrokenCalls,
        context: &RunContext,
    ) -> Preflight {
        let settled = |outcome| Preflight::Settled { args: call.arguments.clone(), outcome };
        if context.cancel.is_cancelled() {
            return settled(Outcome::refused("Operation aborted"));
        }
        let Some(tool) = context.offer.tool(&call.name) else {
            let known: Vec<_> =
                context.offer.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
            return settled(Outcome::refused(format!(
                "Tool {} not found. Available tools: {}",
                call.name,
                known.join(", ")
            )));
        };
        if let Some(problem) = broken.get(&call.id) {
            return settled(Outcome::refused(format!(
                "The call of {} did not run: {problem}. Send the complete call again.",
                call.name
            )));
        }
        if let Err(problem) = self.inner.schemas.check(tool.spec(), &call.arguments) {
            return settled(Outcome::refused(problem));
        }
        if !self.inner.hooks.subscribes(HookEvent::ToolCall) {
            let args = call.arguments.clone();
            return Preflight::Run { tool: tool.clone(), args, judged: None };
        }
        let paths = tool.paths(&call.arguments, &self.inner.cwd);
        let event = ToolCallEvent {
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            input: call.arguments.clone(),
            paths: paths.clone(),
        };
        let recheck = |args: &Map<String, Value>| -> Result<Vec<PathBuf>, String> {
            self.inner.schemas.check(tool.spec(), args)?;
            Ok(tool.paths(args, &self.inner.cwd))
        };
        let verdict = self.inner.hooks.tool_call(event, &recheck, &context.cancel).await;
        // Nothing starts after an abort, whatever a handler said.
        if context.cancel.is_cancelled() {
            return settled(Outcome::refused("Operation aborted"));
        }
        match verdict {
            ToolCallVerdict::Run(args) => {
                let judged = Some(if args == call.arguments {
                    paths
                } else {
                    tool.paths(&args, &self.inner.cwd)
                });
                Preflight::Run { tool: tool.clone(), args, judged }
            }
            ToolCallVerdict::Block(reason) => settled(Outcome::refused(reason)),
            ToolCallVerdict::Answer { output, is_error } => {
                settled(Outcome { output, is_error, ran: false })
            }
        }
    }

    fn execute<'a>(
        &'a self,
        call: ToolCall,
        preflight: Preflight,
        context: &'a RunContext,
    ) -> BoxFuture<'a, (ToolCall, Map<String, Value>, Outcome)> {
        async move {
            match preflight {
                Preflight::Settled { args, outcome } => (call, args, outcome),
                Preflight::Run { tool, args, judged } => {
                    let now = || tool.paths(&args, &self.inner.cwd);
                    if judged.as_ref().is_some_and(|paths| *paths != now()) {
                        return (call, args, Outcome::refused(MOVED_TARGET));
                    }
                    let running = RunningCall {
                        id: call.id.clone(),
                        name: call.name.clone(),
                        args: args.clone(),
                        judged,
                        cancel: context.cancel.clone(),
                        progress: self.progress(&call, args.clone()),
                        built_in: tool.built_in.clone(),
                    };
                    let outcome = self.run_tool(&tool, running).await;
                    (call, args, outcome)
                }
            }
        }
        .boxed()
    }

    async fn run_tool(&self, tool: &OfferedTool, call: RunningCall) -> Outcome {
        if call.cancel.is_cancelled() {
            return Outcome::refused("Operation aborted");
        }
        if self.state().stop_after_turn {
            return Outcome::refused("Not run: the person gave no answer to a question before it");
        }
        let name = call.name.clone();
        let context = ToolCallContext {
            tool_call_id: call.id.clone(),
            args: call.args.clone(),
            cwd: self.inner.cwd.clone(),
            cancel: call.cancel.clone(),
            progress: call.progress.clone(),
            session: Arc::new(self.clone()),
        };
        let running = Running::begin(self, call);
        let result = AssertUnwindSafe(tool.tool.run(context)).catch_unwind().await;
        drop(running);
        let result = result.unwrap_or_else(|_| Err(panicked(&name)));
        match result {
            Ok(output) => Outcome { output, is_error: false, ran: true },
            Err(failure) => Outcome {
                output: text_output(failure.message, failure.details),
                is_error: true,
                ran: true,
            },
        }
    }

    /// Progress leaves when there is room; each report replaces the one before,
    /// so one that finds the queue full may be skipped.
    fn progress(&self, call: &ToolCall, args: Map<String, Value>) -> Progress {
        let (agent, id, name) = (self.clone(), call.id.clone(), call.name.clone());
        Progress::new(move |partial_result| {
            let event = Arc::new(Event::ToolExecutionUpdate {
                tool_call_id: id.clone(),
                tool_name: name.clone(),
                args: args.clone(),
                partial_result,
            });
            let sent = agent.inner.outlet.try_send(AgentOutput::Event(Arc::clone(&event)));
            if sent.is_ok() {
                agent.inner.hooks.notify(crate::hooks::HookNotification::Wire(event));
            }
        })
    }

    async fn record_result(
        &self,
        (call, args, outcome): (ToolCall, Map<String, Value>, Outcome),
        context: &RunContext,
        recorded: &mut Messages,
    ) -> Arc<AgentMessage> {
        let Outcome { mut output, mut is_error, ran } = outcome;
        if ran && self.inner.hooks.subscribes(HookEvent::ToolResult) {
            let event = ToolResultEvent {
                tool_call_id: call.id.clone(),
                tool_name: call.name.clone(),
                input: args,
                output,
                is_error,
            };
            let patched = self.inner.hooks.tool_result(event, &context.cancel).await;
            (output, is_error) = (patched.output, patched.is_error);
        }
        let message = self
            .append(AgentMessage::ToolResult(ToolResultMessage {
                tool_call_id: call.id.clone(),
                tool_name: call.name.clone(),
                content: output.content.clone(),
                details: output.details.clone(),
                is_error,
                timestamp: now_millis(),
            }))
            .await;
        recorded.push(Arc::clone(&message));
        self.emit(Event::ToolExecutionEnd {
            tool_call_id: call.id,
            tool_name: call.name,
            result: output,
            is_error,
        })
        .await;
        self.emit(Event::MessageStart { message: Arc::clone(&message) }).await;
        self.emit(Event::MessageEnd { message: Arc::clone(&message) }).await;
        message
    }
}
