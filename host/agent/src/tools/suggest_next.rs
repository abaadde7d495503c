//! The tool `suggest_next`.

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;
use wharf_protocol::message::ContentBlock;

use super::args;
use crate::tool::{Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};

/// Longest suggestion, in characters. A front end puts it into one input line.
const MAX_CHARS: usize = 2_000;

#[derive(Debug)]
pub(super) struct SuggestNext {
    spec: ToolSpec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    command: String,
}

impl SuggestNext {
    pub(super) fn new() -> Self {
        let spec = ToolSpec {
            name: "suggest_next".to_owned(),
            label: "Suggest Next".to_owned(),
            description: "Suggests to the person what to type next: a slash command or a prompt, \
                ready to be sent. It is shown to them, nothing runs. A new suggestion replaces \
                the one before."
                .to_owned(),
            parameters: args::object_schema(
                &["command"],
                &json!({
                    "command": {
                        "type": "string",
                        "description": "The whole input as the person would type it: one line, at most 2,000 characters",
                    },
                }),
            ),
            prompt_snippet: Some("Suggest what the person may type next".to_owned()),
            prompt_guidelines: vec![
                "Use suggest_next at the end of a piece of work, only where one next step is obvious."
                    .to_owned(),
            ],
            sequential: false,
        };
        Self { spec }
    }

    async fn execute(&self, call: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let Args { command } = args::parse(call.args)?;
        let command = command.trim();
        let problem = if command.is_empty() {
            Some("it is blank".to_owned())
        } else if command.contains(char::is_control) {
            Some("it must be one line of plain text, without control characters".to_owned())
        } else {
            let length = command.chars().count();
            (length > MAX_CHARS)
                .then(|| format!("it has {length} characters; the limit is {MAX_CHARS}"))
        };
        if let Some(problem) = problem {
            return Err(ToolFailure::new(format!("failed to suggest the command: {problem}")));
        }
        call.session.suggest_next(command.to_owned()).await;
        Ok(ToolOutput {
            content: vec![ContentBlock::text(format!("Suggested to the person: {command}"))],
            details: Some(json!({ "command": command })),
        })
    }
}

impl Tool for SuggestNext {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: ToolCallContext) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(self.execute(call))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tools::testing::{Bench, FakeSession};

    #[tokio::test]
    async fn a_line_is_suggested() {
        let longest = "ü".repeat(MAX_CHARS);
        for (command, expect) in [
            ("/review src", "/review src"),
            (" run the tests\n", "run the tests"),
            (&longest, &longest),
        ] {
            let session = Arc::new(FakeSession::default());
            let bench = Bench::in_session(Arc::clone(&session) as _);
            let output = bench.output("suggest_next", json!({ "command": command })).await;
            assert_eq!(
                output.content[0].as_text(),
                Some(&*format!("Suggested to the person: {expect}"))
            );
            assert_eq!(output.details, Some(json!({ "command": expect })));
            assert_eq!(session.suggested(), [expect]);
            assert!(!session.stopped());
        }
    }

    #[tokio::test]
    async fn what_is_no_line_is_refused() {
        let long = "x".repeat(MAX_CHARS + 1);
        for (command, expect) in [
            ("", "it is blank"),
            (" \n ", "it is blank"),
            ("a\nb", "one line"),
            ("a\rb", "one line"),
            ("\u{1b}[31mred", "control characters"),
            (&long, "it has 2001 characters; the limit is 2000"),
        ] {
            let session = Arc::new(FakeSession::default());
            let bench = Bench::in_session(Arc::clone(&session) as _);
            let error = bench.error("suggest_next", json!({ "command": command })).await;
            assert!(error.starts_with("failed to suggest the command: "), "{error}");
            assert!(error.contains(expect), "{error}");
            assert_eq!(session.suggested(), [] as [&str; 0]);
        }
    }
}
