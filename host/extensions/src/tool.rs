//! A tool of an extension, as the agent sees it.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use wharf_agent::tool::{Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};
use wharf_protocol::message::joined_text;

use crate::bindings::types::ToolInvocation;
use crate::call::Request;
use crate::convert;
use crate::extension::Extension;
use crate::state::CallKind;

#[derive(Debug)]
pub(crate) struct ExtensionTool {
    spec: ToolSpec,
    extension: Arc<Extension>,
}

impl ExtensionTool {
    pub(crate) const fn new(spec: ToolSpec, extension: Arc<Extension>) -> Self {
        Self { spec, extension }
    }

    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(crate) const fn extension(&self) -> &Arc<Extension> {
        &self.extension
    }

    fn failed(&self, problem: impl std::fmt::Display) -> ToolFailure {
        ToolFailure::new(format!("extension {} failed: {problem}", self.extension.name()))
    }
}

impl Tool for ExtensionTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: ToolCallContext) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        let invocation = ToolInvocation {
            tool_call_id: call.tool_call_id.clone(),
            tool_name: self.spec.name.clone(),
            input: Value::Object(call.args).to_string(),
        };
        let kind = CallKind::Tool {
            name: self.spec.name.clone(),
            id: call.tool_call_id,
            progress: call.progress,
        };
        let waiter = self.extension.send(Request::ExecuteTool, (invocation,), kind, "tool");
        Box::pin(async move {
            let answer = waiter.wait(&call.cancel).await.map_err(|error| self.failed(error))?;
            let Some(result) = answer else {
                return Err(self.failed("it does not export execute-tool"));
            };
            let output = result.map_err(ToolFailure::new)?;
            let (output, is_error) =
                convert::tool_output(output).map_err(|problem| self.failed(problem))?;
            if is_error {
                let message = joined_text(&output.content);
                return Err(ToolFailure { message, details: output.details });
            }
            Ok(output)
        })
    }
}
