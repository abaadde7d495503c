//! A tool of an extension that overrides a built-in runs the built-in.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt as _;
use serde_json::{Map, Value};
use wharf_protocol::ContentBlock;

use crate::agent::Agent;
use crate::calls::{MOVED_TARGET, panicked};
use crate::hooks::{HookEvent, ToolCallEvent, ToolCallVerdict};
use crate::host_api::{BuiltInCall, HostApiError};
use crate::tool::{Tool, ToolCallContext, ToolOutput};
use crate::toolbox::RunningCall;

/// What may run, and the paths that it was allowed for.
struct Approved {
    args: Map<String, Value>,
    /// None: nobody was asked.
    judged: Option<Vec<PathBuf>>,
}

/// What became of the question whether it may run.
enum Verdict {
    Run(Approved),
    Answered(ToolOutput, bool),
}

impl Agent {
    /// Gives the output, and whether it is an error of the built-in.
    ///
    /// # Errors
    /// No such call runs, the arguments do not fit, or a handler refused them.
    pub(crate) async fn run_built_in(
        &self,
        call: BuiltInCall,
    ) -> Result<(ToolOutput, bool), HostApiError> {
        let (running, tool) = self.overriding_call(&call)?;
        self.inner.schemas.check(tool.spec(), &call.input).map_err(HostApiError::Invalid)?;
        let approved = if call.input == running.args {
            Approved { args: call.input, judged: running.judged.clone() }
        } else {
            match self.ask_about_built_in(&running, tool.as_ref(), call.input).await? {
                Verdict::Run(approved) => approved,
                Verdict::Answered(output, is_error) => return Ok((output, is_error)),
            }
        };
        let Approved { args, judged } = approved;
        if judged.is_some_and(|paths| paths != tool.paths(&args, &self.inner.cwd)) {
            return Err(HostApiError::NotAllowed(MOVED_TARGET.to_owned()));
        }
        if running.cancel.is_cancelled() || call.cancel.is_cancelled() {
            return Err(HostApiError::Failed("Operation aborted".to_owned()));
        }
        let stop = running.cancel.child_token();
        let run = tool.run(ToolCallContext {
            tool_call_id: running.id.clone(),
            args,
            cwd: self.inner.cwd.clone(),
            cancel: stop.clone(),
            progress: running.progress.clone(),
            session: Arc::new(self.clone()),
        });
        let mut run = std::pin::pin!(AssertUnwindSafe(run).catch_unwind());
        let result = tokio::select! {
            result = &mut run => result,
            () = call.cancel.cancelled() => {
                stop.cancel();
                run.await
            }
        };
        Ok(match result.unwrap_or_else(|_| Err(panicked(&running.name))) {
            Ok(output) => (output, false),
            Err(failure) => {
                let content = vec![ContentBlock::text(failure.message)];
                (ToolOutput { content, details: failure.details }, true)
            }
        })
    }

    /// The call that runs, and the built-in that its tool overrides. Of calls with the same
    /// id, which some servers give, the one with these arguments is meant.
    fn overriding_call(
        &self,
        call: &BuiltInCall,
    ) -> Result<(Arc<RunningCall>, Arc<dyn Tool>), HostApiError> {
        let state = self.state();
        let mut named = state
            .running_calls
            .iter()
            .filter(|running| running.id == call.tool_call_id && running.name == call.name)
            .peekable();
        let first = named.peek().map(|first| Arc::clone(first));
        let same = named.find(|running| running.args == call.input).map(Arc::clone);
        let running = same.or(first).ok_or_else(|| {
            HostApiError::NotAllowed(format!(
                "no call {:?} of the tool {:?} runs now",
                call.tool_call_id, call.name
            ))
        })?;
        let built_in = running.built_in.clone().ok_or_else(|| {
            HostApiError::NotAllowed(format!("the tool {:?} overrides no built-in", call.name))
        })?;
        Ok((running, built_in))
    }

    async fn ask_about_built_in(
        &self,
        running: &RunningCall,
        tool: &dyn Tool,
        input: Map<String, Value>,
    ) -> Result<Verdict, HostApiError> {
        let hooks = &self.inner.hooks;
        if !hooks.subscribes(HookEvent::ToolCall) {
            return Ok(Verdict::Run(Approved { args: input, judged: None }));
        }
        let cwd = &self.inner.cwd;
        let paths = tool.paths(&input, cwd);
        let event = ToolCallEvent {
            tool_call_id: running.id.clone(),
            tool_name: running.name.clone(),
            input: input.clone(),
            paths: paths.clone(),
        };
        let recheck = |args: &Map<String, Value>| -> Result<Vec<PathBuf>, String> {
            self.inner.schemas.check(tool.spec(), args)?;
            Ok(tool.paths(args, cwd))
        };
        match hooks.tool_call(event, &recheck, &running.cancel).await {
            ToolCallVerdict::Run(args) => {
                let judged = if args == input { paths } else { tool.paths(&args, cwd) };
                Ok(Verdict::Run(Approved { args, judged: Some(judged) }))
            }
            ToolCallVerdict::Block(reason) => Err(HostApiError::NotAllowed(reason)),
            ToolCallVerdict::Answer { output, is_error } => Ok(Verdict::Answered(output, is_error)),
        }
    }
}
