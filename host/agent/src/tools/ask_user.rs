//! The tool `ask_user`: a question to the person, and what the model is told of the answer.

use std::time::Duration;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use wharf_protocol::message::ContentBlock;

use super::{args, work};
use crate::tool::{Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};
use crate::ui::{DialogAnswer, DialogOutcome, Question};

/// Said above the question where the model gives no title.
const DEFAULT_TITLE: &str = "Question";

/// How many options a question has, if it has any.
const OPTIONS: std::ops::RangeInclusive<usize> = 2..=4;

#[derive(Debug)]
pub(super) struct AskUser {
    spec: ToolSpec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Args {
    question: String,
    title: Option<String>,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default = "yes")]
    allow_free_text: bool,
    #[serde(default)]
    multi_select: bool,
    #[serde(default)]
    multiline: bool,
    /// Seconds.
    timeout: Option<f64>,
}

const fn yes() -> bool {
    true
}

impl AskUser {
    pub(super) fn new() -> Self {
        let spec = ToolSpec {
            name: "ask_user".to_owned(),
            label: "Ask".to_owned(),
            description: "Asks the person a question and waits for the answer: options to choose \
                from, free text, or both. One question a call. Where the person does not answer, \
                your turn ends."
                .to_owned(),
            // How many options there may be is checked by the tool, whose error says what
            // to do about it.
            parameters: args::object_schema(
                &["question"],
                &json!({
                    "question": { "type": "string", "description": "The question with what is needed to decide, as Markdown" },
                    "title": { "type": "string", "description": "A few words above the question" },
                    "options": {
                        "type": "array",
                        "items": { "type": "string" },
                        "description": "2 to 4 different answers to choose from (default: none, free text only)",
                    },
                    "allowFreeText": { "type": "boolean", "description": "Whether the person may type an answer (default: true)" },
                    "multiSelect": { "type": "boolean", "description": "Whether several options may be chosen (default: false)" },
                    "multiline": { "type": "boolean", "description": "Whether the typed answer may have several lines (default: false)" },
                    "timeout": {
                        "type": "number",
                        "exclusiveMinimum": 0,
                        "description": "Seconds to wait for the answer (default: no limit)",
                    },
                }),
            ),
            prompt_snippet: Some("Ask the person a question".to_owned()),
            prompt_guidelines: vec![
                "Use ask_user when the answer changes what you do and you cannot find it out \
                 yourself; not for permission to go on."
                    .to_owned(),
            ],
            sequential: true,
        };
        Self { spec }
    }

    async fn execute(&self, call: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let args: Args = args::parse(call.args)?;
        // What does not fit a duration is no limit that anybody would see.
        let timeout = args.timeout.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
        let question = question(args).map_err(|problem| {
            ToolFailure::new(format!("the question was not asked: {problem}"))
        })?;
        let outcome = call.session.ask(question, timeout, call.cancel.clone()).await;
        if call.cancel.is_cancelled() {
            return Err(work::aborted());
        }
        let unanswered = match outcome {
            DialogOutcome::Answered(DialogAnswer::Ask { selected, custom_text }) => {
                let custom_text = custom_text.filter(|text| !text.trim().is_empty());
                if !selected.is_empty() || custom_text.is_some() {
                    return Ok(answer(&selected, custom_text));
                }
                "the person gave an empty answer"
            }
            DialogOutcome::Answered(_) | DialogOutcome::Cancelled => {
                "the person dismissed the question"
            }
            DialogOutcome::TimedOut => "the time for the answer has passed",
            DialogOutcome::NoUi => {
                return Err(ToolFailure::new(
                    "nobody can be asked in this run. Go on by yourself: make the most sensible \
                     assumption, and say in your reply what you assumed",
                ));
            }
        };
        call.session.stop_after_turn();
        Err(ToolFailure::new(format!(
            "the person did not answer: {unanswered}. The turn ends here; do not go on without an answer"
        )))
    }
}

impl Tool for AskUser {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: ToolCallContext) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(self.execute(call))
    }
}

/// What is shown; an error says what the model is to change.
fn question(args: Args) -> Result<Question, String> {
    let question = args.question.trim();
    if question.is_empty() {
        return Err("question is blank; say what you want to know".to_owned());
    }
    let options: Vec<String> = args.options.iter().map(|text| text.trim().to_owned()).collect();
    if let Some(index) = options.iter().position(String::is_empty) {
        return Err(format!("option {} is blank; give it a text or leave it out", index + 1));
    }
    let repeated = options.iter().enumerate().find(|(i, option)| options[..*i].contains(option));
    if let Some((_, option)) = repeated {
        return Err(format!("option {option:?} is there twice; make the options different"));
    }
    match options.len() {
        0 if !args.allow_free_text => {
            return Err("it has no options and takes no free text, so nobody could answer; \
                 give 2 to 4 options or set allowFreeText to true"
                .to_owned());
        }
        0 => {}
        count if OPTIONS.contains(&count) => {}
        count => {
            return Err(format!(
                "options has {count}, but must have 2 to 4; leave options out to ask for free text only"
            ));
        }
    }
    let title = args.title.as_deref().map(str::trim).filter(|title| !title.is_empty());
    Ok(Question {
        title: title.unwrap_or(DEFAULT_TITLE).to_owned(),
        question: question.to_owned(),
        options,
        allow_free_text: args.allow_free_text,
        multi_select: args.multi_select,
        multiline: args.multiline,
    })
}

fn answer(selected: &[String], custom_text: Option<String>) -> ToolOutput {
    let mut lines = Vec::new();
    if !selected.is_empty() {
        lines.push("The person selected:".to_owned());
        lines.extend(selected.iter().map(|option| format!("- {option}")));
    }
    let mut details = Map::new();
    details.insert("selected".to_owned(), json!(selected));
    if let Some(text) = custom_text {
        lines.push(format!("The person wrote:\n{text}"));
        details.insert("customText".to_owned(), Value::String(text));
    }
    ToolOutput {
        content: vec![ContentBlock::text(lines.join("\n"))],
        details: Some(Value::Object(details)),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;

    use super::*;
    use crate::tools::testing::{Bench, FakeSession};

    fn answered(selected: &[&str], custom_text: Option<&str>) -> DialogOutcome {
        DialogOutcome::Answered(DialogAnswer::Ask {
            selected: selected.iter().map(|&option| option.to_owned()).collect(),
            custom_text: custom_text.map(str::to_owned),
        })
    }

    async fn run(
        outcome: Option<DialogOutcome>,
        args: Value,
    ) -> (Result<ToolOutput, ToolFailure>, Arc<FakeSession>) {
        let session = Arc::new(FakeSession::answering(outcome));
        let bench = Bench::in_session(Arc::clone(&session) as _);
        (bench.run("ask_user", args).await, session)
    }

    #[tokio::test]
    async fn an_answer_is_the_result() {
        for (outcome, text, details) in [
            (answered(&["A"], None), "The person selected:\n- A", json!({"selected": ["A"]})),
            (
                answered(&[], Some("neither\nof them ")),
                "The person wrote:\nneither\nof them ",
                json!({"selected": [], "customText": "neither\nof them "}),
            ),
            (
                answered(&["A", "B"], Some("both")),
                "The person selected:\n- A\n- B\nThe person wrote:\nboth",
                json!({"selected": ["A", "B"], "customText": "both"}),
            ),
            (
                answered(&["B"], Some(" \n")),
                "The person selected:\n- B",
                json!({"selected": ["B"]}),
            ),
        ] {
            let args = json!({"question": "Which?", "options": ["A", "B"], "multiSelect": true});
            let (result, session) = run(Some(outcome), args).await;
            let output = result.unwrap();
            assert_eq!(output.content[0].as_text(), Some(text));
            assert_eq!(output.details, Some(details));
            assert!(!session.stopped());
        }
    }

    #[tokio::test]
    async fn the_question_is_asked_as_given() {
        let bare = Question {
            title: "Question".to_owned(),
            question: "Why?".to_owned(),
            options: Vec::new(),
            allow_free_text: true,
            multi_select: false,
            multiline: false,
        };
        let full = Question {
            title: "Storage".to_owned(),
            question: "**Which** one?".to_owned(),
            options: vec!["A".to_owned(), "a".to_owned(), "B".to_owned(), "C".to_owned()],
            allow_free_text: false,
            multi_select: true,
            multiline: true,
        };
        for (args, question, timeout) in [
            (json!({"question": "Why?\n"}), &bare, None),
            (
                json!({"question": "Why?", "options": [], "title": " ", "timeout": 1e300}),
                &bare,
                None,
            ),
            (
                json!({"question": "**Which** one?", "title": "Storage", "options": [" A", "a", "B", "C"],
                    "allowFreeText": false, "multiSelect": true, "multiline": true, "timeout": 1.5}),
                &full,
                Some(Duration::from_millis(1_500)),
            ),
        ] {
            let (result, session) = run(Some(answered(&["A"], None)), args).await;
            result.unwrap();
            assert_eq!(session.asked(), [(question.clone(), timeout)]);
        }
    }

    #[tokio::test]
    async fn no_answer_ends_the_turn() {
        for (outcome, expect) in [
            (DialogOutcome::Cancelled, "the person dismissed the question"),
            (DialogOutcome::TimedOut, "the time for the answer has passed"),
            (answered(&[], None), "the person gave an empty answer"),
            (answered(&[], Some(" ")), "the person gave an empty answer"),
            (
                DialogOutcome::Answered(DialogAnswer::Confirmed(true)),
                "the person dismissed the question",
            ),
        ] {
            let (result, session) = run(Some(outcome), json!({"question": "Why?"})).await;
            let error = result.unwrap_err();
            assert_eq!(
                error.message,
                format!(
                    "the person did not answer: {expect}. The turn ends here; do not go on without an answer"
                )
            );
            assert!(session.stopped());
        }
    }

    #[tokio::test]
    async fn without_anybody_to_ask_the_model_goes_on() {
        let (result, session) = run(None, json!({"question": "Why?"})).await;
        assert!(result.unwrap_err().message.contains("make the most sensible assumption"));
        assert!(!session.stopped());
        let error = Bench::new().error("ask_user", json!({"question": "Why?"})).await;
        assert!(error.starts_with("nobody can be asked"), "{error}");
    }

    #[tokio::test]
    async fn an_aborted_call_is_no_refusal() {
        let session = Arc::new(FakeSession::answering(Some(answered(&[], Some("late")))));
        let bench = Bench::in_session(Arc::clone(&session) as _);
        let call = bench.call(&json!({"question": "Why?"}));
        call.cancel.cancel();
        let error = bench.tool("ask_user").run(call).await.unwrap_err();
        assert_eq!(error, work::aborted());
        assert!(!session.stopped());
    }

    #[tokio::test]
    async fn a_question_that_cannot_be_answered_is_not_asked() {
        for (args, expect) in [
            (json!({"question": " "}), "question is blank"),
            (
                json!({"question": "Why?", "allowFreeText": false}),
                "give 2 to 4 options or set allowFreeText to true",
            ),
            (
                json!({"question": "Why?", "options": [], "allowFreeText": false}),
                "give 2 to 4 options or set allowFreeText to true",
            ),
            (
                json!({"question": "Why?", "options": ["A"]}),
                "options has 1, but must have 2 to 4; leave options out",
            ),
            (
                json!({"question": "Why?", "options": ["A", "B", "C", "D", "E"]}),
                "options has 5, but must have 2 to 4",
            ),
            (json!({"question": "Why?", "options": ["A", "\t"]}), "option 2 is blank"),
            (
                json!({"question": "Why?", "options": ["A", "B", "A "]}),
                "option \"A\" is there twice",
            ),
        ] {
            let (result, session) = run(Some(answered(&["A"], None)), args).await;
            let error = result.unwrap_err().message;
            assert!(error.starts_with("the question was not asked: "), "{error}");
            assert!(error.contains(expect), "{error}");
            assert_eq!(session.asked(), []);
            assert!(!session.stopped());
        }
    }

    #[test]
    fn the_schema_holds_the_types() {
        let schema = AskUser::new().spec.parameters;
        for wrong in [
            json!({}),
            json!({"question": 1}),
            json!({"question": "q", "options": "A"}),
            json!({"question": "q", "options": [1, 2]}),
            json!({"question": "q", "timeout": 0}),
            json!({"question": "q", "multiSelect": "yes"}),
            json!({"question": "q", "choices": []}),
        ] {
            assert!(!jsonschema::is_valid(&schema, &wrong), "{wrong}");
        }
    }
}
