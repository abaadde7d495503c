//! `session_before_tree`: the first cancel wins, changes of the options chain, the
//! first own summary wins; a failure changes nothing.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{BeforeTreeEvent, HookEvent, TreeOptions, TreeSummary, TreeVerdict};

use super::{ask, can_be_sent};
use crate::bindings::types::{self as wit, TextChange, TreeDecision};
use crate::call::Request;
use crate::convert;
use crate::extension::Extension;
use crate::limits::{MAX_NAME_BYTES, MAX_TEXT_BYTES};

pub(crate) async fn session_before_tree(
    subscribers: &[Arc<Extension>],
    event: BeforeTreeEvent,
    cancel: &CancellationToken,
) -> TreeVerdict {
    let kind = HookEvent::SessionBeforeTree;
    if subscribers.is_empty() {
        return TreeVerdict::Proceed { options: event.options, summary: None };
    }
    let mut data = Arc::new(to_guest(event));
    let mut summary = None;
    if can_be_sent(subscribers, kind, data.abandoned.len()) {
        for extension in subscribers {
            match ask(extension, kind, Request::SessionBeforeTree, &data, cancel).await {
                None => {}
                Some(TreeDecision::Cancel) => return TreeVerdict::Cancel,
                Some(TreeDecision::Proceed(changes)) => {
                    for problem in apply(changes, &mut data, &mut summary) {
                        extension.report_error(kind.name(), &problem);
                    }
                }
            }
        }
    }
    TreeVerdict::Proceed { options: options(&data), summary }
}

fn to_guest(event: BeforeTreeEvent) -> wit::SessionBeforeTreeEvent {
    let TreeOptions { summarize, custom_instructions, replace_instructions, label } = event.options;
    wit::SessionBeforeTreeEvent {
        target_id: event.target_id,
        old_leaf_id: event.old_leaf_id,
        common_ancestor_id: event.common_ancestor_id,
        abandoned: convert::to_json(&event.abandoned),
        summarize,
        custom_instructions,
        replace_instructions,
        label,
    }
}

fn options(event: &wit::SessionBeforeTreeEvent) -> TreeOptions {
    TreeOptions {
        summarize: event.summarize,
        custom_instructions: event.custom_instructions.clone(),
        replace_instructions: event.replace_instructions,
        label: event.label.clone(),
    }
}

/// Makes one extension's changes, for the next one to see. What is not acceptable stays
/// as it was, and the problems are given back.
fn apply(
    changes: wit::TreeChanges,
    data: &mut Arc<wit::SessionBeforeTreeEvent>,
    summary: &mut Option<TreeSummary>,
) -> Vec<String> {
    let wit::TreeChanges { summary: own, custom_instructions, replace_instructions, label } =
        changes;
    let mut problems = Vec::new();
    if let Some(own) = own.filter(|_| data.summarize && summary.is_none()) {
        match accept(own) {
            Ok(own) => *summary = Some(own),
            Err(problem) => problems.push(problem),
        }
    }
    let custom_instructions = change("custom-instructions", custom_instructions, MAX_TEXT_BYTES);
    let label = change("label", label, MAX_NAME_BYTES);
    if let Ok(None) = custom_instructions
        && let Ok(None) = label
        && replace_instructions.is_none()
    {
        return problems;
    }
    // Copies the messages only while a guest that failed still holds the event.
    let event = Arc::make_mut(data);
    match custom_instructions {
        Ok(Some(text)) => event.custom_instructions = text,
        Ok(None) => {}
        Err(problem) => problems.push(problem),
    }
    match label {
        Ok(Some(text)) => event.label = text,
        Ok(None) => {}
        Err(problem) => problems.push(problem),
    }
    if let Some(replace) = replace_instructions {
        event.replace_instructions = replace;
    }
    problems
}

/// None: as it is.
fn change(field: &str, change: TextChange, cap: usize) -> Result<Option<Option<String>>, String> {
    match change {
        TextChange::Keep => Ok(None),
        TextChange::Clear => Ok(Some(None)),
        TextChange::Set(text) => {
            convert::check_text(field, &text, cap)?;
            Ok(Some(Some(text)))
        }
    }
}

fn accept(own: wit::TreeSummary) -> Result<TreeSummary, String> {
    convert::check_text("the summary", &own.summary, MAX_TEXT_BYTES)?;
    let details = own.details.map(|details| convert::json("details", &details)).transpose()?;
    Ok(TreeSummary { summary: own.summary, details })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(summarize: bool) -> Arc<wit::SessionBeforeTreeEvent> {
        Arc::new(wit::SessionBeforeTreeEvent {
            target_id: "t".into(),
            old_leaf_id: None,
            common_ancestor_id: None,
            abandoned: "[]".into(),
            summarize,
            custom_instructions: Some("i".into()),
            replace_instructions: true,
            label: None,
        })
    }

    fn own(summary: &str, details: Option<&str>) -> wit::TreeChanges {
        let details = details.map(Into::into);
        wit::TreeChanges {
            summary: Some(wit::TreeSummary { summary: summary.into(), details }),
            ..none()
        }
    }

    fn none() -> wit::TreeChanges {
        wit::TreeChanges {
            summary: None,
            custom_instructions: TextChange::Keep,
            replace_instructions: None,
            label: TextChange::Keep,
        }
    }

    /// The options and the summary after these answers, and what was wrong with them.
    fn after(
        answers: impl IntoIterator<Item = wit::TreeChanges>,
    ) -> (TreeOptions, Option<TreeSummary>, Vec<String>) {
        let (mut data, mut summary) = (event(true), None);
        let problems = answers
            .into_iter()
            .flat_map(|changes| apply(changes, &mut data, &mut summary))
            .collect();
        (options(&data), summary, problems)
    }

    #[test]
    fn the_first_summary_that_is_acceptable_is_taken_where_one_is_wanted() {
        let long = "x".repeat(MAX_TEXT_BYTES + 1);
        let (options, summary, problems) = after([
            own(" ", None),
            own(&long, None),
            own("s", Some("{")),
            own("s", Some("[1]")),
            own("later", None),
            own("", None),
        ]);
        assert_eq!(options, self::options(&event(true)));
        assert_eq!(summary, Some(TreeSummary { summary: "s".into(), details: Some(json!([1])) }));
        assert_eq!(
            problems,
            [
                "the summary is blank",
                "the summary has 16777217 bytes; the limit is 16777216",
                "details is no JSON: EOF while parsing an object at line 1 column 1",
            ],
            "what comes after it is not looked at"
        );
        let mut summary = None;
        assert_eq!(apply(own("", None), &mut event(false), &mut summary), Vec::<String>::new());
        assert_eq!(summary, None);
    }

    #[test]
    fn changes_chain_and_what_is_not_acceptable_stays() {
        let set = |text: &str| TextChange::Set(text.to_owned());
        let check =
            |answers: Vec<wit::TreeChanges>, instructions, replace, label, wrong: &[&str]| {
                let (options, _, problems) = after(answers);
                let expected = (instructions, replace, label);
                let texts = (options.custom_instructions.as_deref(), options.label.as_deref());
                assert_eq!((texts.0, options.replace_instructions, texts.1), expected);
                assert_eq!(problems, wrong);
            };
        check(vec![none()], Some("i"), true, None, &[]);
        let first = wit::TreeChanges {
            custom_instructions: set("a"),
            replace_instructions: Some(false),
            label: set("l"),
            ..none()
        };
        let cleared = wit::TreeChanges {
            custom_instructions: TextChange::Clear,
            label: TextChange::Clear,
            ..none()
        };
        check(vec![first.clone()], Some("a"), false, Some("l"), &[]);
        check(vec![first.clone(), none()], Some("a"), false, Some("l"), &[]);
        check(vec![first.clone(), cleared.clone()], None, false, None, &[]);
        check(vec![cleared, first.clone()], Some("a"), false, Some("l"), &[]);
        let bad = wit::TreeChanges {
            custom_instructions: set(&"x".repeat(MAX_TEXT_BYTES + 1)),
            label: set("\n"),
            replace_instructions: Some(true),
            ..none()
        };
        let wrong =
            ["custom-instructions has 16777217 bytes; the limit is 16777216", "label is blank"];
        check(vec![first, bad], Some("a"), true, Some("l"), &wrong);
    }
}
