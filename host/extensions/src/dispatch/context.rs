//! `context`: replacements of the messages chain. They are made into JSON text once, and
//! read back only where somebody replaced them.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::HookEvent;
use wharf_protocol::AgentMessage;

use super::{ask, fits};
use crate::bindings::types as wit;
use crate::call::Request;
use crate::convert;
use crate::extension::Extension;
use crate::limits::MAX_EVENT_DATA_BYTES;

type Messages = Vec<Arc<AgentMessage>>;

pub(crate) async fn context(
    subscribers: &[Arc<Extension>],
    mut messages: Messages,
    cancel: &CancellationToken,
) -> Messages {
    if subscribers.is_empty() {
        return messages;
    }
    let kind = HookEvent::Context;
    let mut data = Arc::new(wit::ContextEvent { messages: convert::to_json(&messages) });
    if !fits(subscribers, kind, "the messages have", data.messages.len()) {
        return messages;
    }
    for extension in subscribers {
        let answer = ask(extension, kind, Request::Context, &data, cancel).await.flatten();
        match answer {
            None => {}
            Some(text) if text == data.messages => {}
            Some(text) => match accept(&text) {
                Ok(replaced) => {
                    messages = replaced;
                    data = Arc::new(wit::ContextEvent { messages: text });
                }
                Err(problem) => extension.report_error(kind.name(), &problem),
            },
        }
    }
    messages
}

/// An extension's messages. A request without any would be refused by every provider.
fn accept(text: &str) -> Result<Messages, String> {
    let bytes = text.len();
    if bytes > MAX_EVENT_DATA_BYTES {
        return Err(format!(
            "its messages have {bytes} bytes; the limit is {MAX_EVENT_DATA_BYTES}"
        ));
    }
    let messages: Messages = serde_json::from_str::<Vec<AgentMessage>>(text)
        .map_err(|error| format!("its answer is no JSON array of messages: {error}"))?
        .into_iter()
        .map(Arc::new)
        .collect();
    if messages.is_empty() {
        return Err("its answer has no message".to_owned());
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_an_array_of_messages() {
        let user = r#"{"role":"user","content":"hi","timestamp":1}"#;
        for (text, expected) in [
            (format!("[{user},{user}]"), Ok(2)),
            ("[]".to_owned(), Err("its answer has no message")),
            (
                user.to_owned(),
                Err(
                    "its answer is no JSON array of messages: invalid type: map, expected a sequence",
                ),
            ),
            (
                r#"[{"role":"system"}]"#.to_owned(),
                Err("its answer is no JSON array of messages: unknown variant `system`"),
            ),
            (
                r#"[{"role":"user"}]"#.to_owned(),
                Err("its answer is no JSON array of messages: missing field `content`"),
            ),
            (format!("[{user}"), Err("its answer is no JSON array of messages: EOF")),
        ] {
            match (accept(&text), expected) {
                (Ok(messages), Ok(count)) => assert_eq!(messages.len(), count, "{text}"),
                (Err(problem), Err(start)) => {
                    assert!(problem.starts_with(start), "{text}: {problem}");
                }
                (accepted, _) => panic!("{text}: {accepted:?}"),
            }
        }
    }
}
