//! `session_before_compact`: the first that cancels or gives a summary of its own
//! wins; a failure proceeds.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{BeforeCompactEvent, BeforeCompactVerdict, HookEvent};
use wharf_protocol::CompactionResult;

use super::{ask, can_be_sent};
use crate::bindings::types::{self as wit, CompactDecision};
use crate::call::Request;
use crate::convert;
use crate::extension::Extension;
use crate::limits::{MAX_NAME_BYTES, MAX_TEXT_BYTES, cut};

pub(crate) async fn session_before_compact(
    subscribers: &[Arc<Extension>],
    event: BeforeCompactEvent,
    cancel: &CancellationToken,
) -> BeforeCompactVerdict {
    if subscribers.is_empty() {
        return BeforeCompactVerdict::Proceed;
    }
    let kind = HookEvent::SessionBeforeCompact;
    let data = Arc::new(to_guest(event));
    if !can_be_sent(subscribers, kind, data.messages.len() + data.turn_prefix.len()) {
        return BeforeCompactVerdict::Proceed;
    }
    for extension in subscribers {
        match ask(extension, kind, Request::SessionBeforeCompact, &data, cancel).await {
            None | Some(CompactDecision::Proceed) => {}
            Some(CompactDecision::Cancel) => return BeforeCompactVerdict::Cancel,
            Some(CompactDecision::Replace(own)) => {
                match accept(own, &data, |id| is_on_branch(extension, id)) {
                    Ok(result) => return BeforeCompactVerdict::Replace(result),
                    Err(problem) => extension.report_error(kind.name(), &problem),
                }
            }
        }
    }
    BeforeCompactVerdict::Proceed
}

fn to_guest(event: BeforeCompactEvent) -> wit::SessionBeforeCompactEvent {
    wit::SessionBeforeCompactEvent {
        cause: convert::to_cause(event.cause),
        first_kept_entry_id: event.first_kept_entry_id,
        tokens_before: event.tokens_before,
        previous_summary: event.previous_summary,
        messages: convert::to_json(&event.messages),
        turn_prefix: convert::to_json(&event.turn_prefix),
        details: convert::to_json(&event.details),
        instructions: event.instructions,
    }
}

/// An entry that is elsewhere would have the model see nothing but the summary.
fn is_on_branch(extension: &Extension, id: &str) -> bool {
    let Some(api) = extension.services.api.get() else { return false };
    api.session().branch().iter().any(|entry| entry.id().as_str() == id)
}

/// An extension's summary, checked, and completed from the event.
fn accept(
    own: wit::OwnSummary,
    event: &wit::SessionBeforeCompactEvent,
    is_on_branch: impl Fn(&str) -> bool,
) -> Result<CompactionResult, String> {
    convert::check_text("the summary", &own.summary, MAX_TEXT_BYTES)?;
    let first_kept_entry_id = match own.first_kept_entry_id {
        None => event.first_kept_entry_id.clone(),
        Some(id) if id.len() <= MAX_NAME_BYTES && is_on_branch(&id) => id,
        Some(id) => {
            let id = cut(&id, 100);
            return Err(format!(
                "first-kept-entry-id {id:?} is no entry of the session's current branch"
            ));
        }
    };
    Ok(CompactionResult {
        summary: own.summary,
        first_kept_entry_id,
        tokens_before: event.tokens_before,
        details: own.details.map(|details| convert::json("details", &details)).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(own: wit::OwnSummary, expected: Result<CompactionResult, &str>) {
        let event = wit::SessionBeforeCompactEvent {
            cause: wit::CompactionCause::Manual,
            first_kept_entry_id: "host".into(),
            tokens_before: 9,
            previous_summary: None,
            messages: "[]".into(),
            turn_prefix: "[]".into(),
            details: r#"{"readFiles":["a"],"modifiedFiles":[]}"#.into(),
            instructions: None,
        };
        let accepted = accept(own, &event, |id| id == "own");
        assert_eq!(accepted.as_ref().map_err(String::as_str), expected.as_ref().map_err(|e| *e));
    }

    fn own(summary: &str, first_kept: Option<&str>, details: Option<&str>) -> wit::OwnSummary {
        wit::OwnSummary {
            summary: summary.into(),
            first_kept_entry_id: first_kept.map(Into::into),
            details: details.map(Into::into),
        }
    }

    #[test]
    fn what_an_own_summary_leaves_out_is_the_hosts_and_what_it_says_is_checked() {
        let result = |first_kept: &str, details| CompactionResult {
            summary: "s".into(),
            first_kept_entry_id: first_kept.into(),
            tokens_before: 9,
            details,
        };
        check(own("s", None, None), Ok(result("host", None)));
        check(own("s", Some("own"), Some(r#"{"n":1}"#)), Ok(result("own", Some(json!({"n": 1})))));
        check(own(" \n", None, None), Err("the summary is blank"));
        check(
            own(&"x".repeat(MAX_TEXT_BYTES + 1), None, None),
            Err("the summary has 16777217 bytes; the limit is 16777216"),
        );
        check(
            own("s", Some("gone"), None),
            Err("first-kept-entry-id \"gone\" is no entry of the session's current branch"),
        );
        check(
            own("s", None, Some("{")),
            Err("details is no JSON: EOF while parsing an object at line 1 column 1"),
        );
    }
}
