//! The tool `skill`.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;
use wharf_protocol::message::ContentBlock;

use super::{args, work};
use crate::tool::{Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};

#[derive(Debug)]
pub(super) struct Skill {
    spec: ToolSpec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    skill: String,
    #[serde(default)]
    args: String,
}

impl Skill {
    pub(super) fn new() -> Self {
        let spec = ToolSpec {
            name: "skill".to_owned(),
            label: "Skill".to_owned(),
            description: "Gives the instructions of a skill. Call it as soon as a task fits the \
                description of a skill in <available_skills>, before you begin, and then follow \
                what it says. Call it also when the person names a skill. Do not call it again for \
                a skill whose instructions are in the conversation already, unless with other \
                arguments."
                .to_owned(),
            parameters: args::object_schema(
                &["skill"],
                &json!({
                    "skill": { "type": "string", "description": "Name of the skill, as listed" },
                    "args": { "type": "string", "description": "Arguments, as words of a command line (default: none)" },
                }),
            ),
            prompt_snippet: Some("Get the instructions of a skill".to_owned()),
            prompt_guidelines: Vec::new(),
            sequential: false,
        };
        Self { spec }
    }

    async fn execute(&self, call: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let args: Args = args::parse(call.args)?;
        let session = Arc::clone(&call.session);
        work::run_cancellable(&call.cancel, move |_| {
            let text = session.skill(args.skill.trim(), &args.args).map_err(ToolFailure::new)?;
            Ok(ToolOutput { content: vec![ContentBlock::text(text)], details: None })
        })
        .await
    }
}

impl Tool for Skill {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: ToolCallContext) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(self.execute(call))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::{Bench, FakeSession};

    #[tokio::test]
    async fn the_body_is_the_result() {
        let session = FakeSession::with_skills(vec![("review", "Review")]);
        let bench = Bench::in_session(Arc::new(session));
        for (args, expect) in [
            (json!({"skill": "review"}), "Review []"),
            (json!({"skill": " review\n", "args": "a 'b c'"}), "Review [a 'b c']"),
        ] {
            assert_eq!(bench.text("skill", args).await, expect);
        }
        assert_eq!(
            bench.error("skill", json!({"skill": "other"})).await,
            "there is no skill \"other\"; there are review"
        );
    }

    #[tokio::test]
    async fn without_a_session_there_are_no_skills() {
        let error = Bench::new().error("skill", json!({"skill": "a"})).await;
        assert_eq!(error, "there is no skill \"a\": no skills are available");
    }
}
