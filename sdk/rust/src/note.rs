//! What the notifications tell that the WIT has no case for. They come as JSON text,
//! which takes room in a guest only when it is read.

use serde::{Deserialize, Deserializer};

use crate::fields::{Fields, read};
use crate::{Json, Result};

/// `session_fork`: a fork has become the current session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionForkNote {
    /// The file of the session before; none while that one is not kept in a file.
    pub previous_session_file: Option<String>,
}

/// `session_tree`: the leaf has moved to another entry of the session's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionTreeNote {
    /// Where the leaf is now; none: before the first entry.
    pub new_leaf_id: Option<String>,
    /// Where it was.
    pub old_leaf_id: Option<String>,
    /// The entry with the summary of the branch that was left, if there is one. Can be
    /// read as an [`Entry`](crate::Entry).
    pub summary_entry: Option<Json>,
    /// True: an extension wrote the summary.
    pub from_extension: bool,
}

/// `session_compact`: a summary has taken the place of messages, for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionCompactNote {
    /// The id of the session's entry with the summary.
    pub entry_id: String,
    /// The summary.
    pub summary: String,
    /// The first entry that the model still sees.
    pub first_kept_entry_id: String,
    /// Tokens of the context before; an estimate.
    pub tokens_before: u64,
    /// Data with the summary that the model never sees.
    pub details: Option<Json>,
    /// True: an extension wrote the summary.
    pub from_extension: bool,
}

/// `model_select`: another model became the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelSelectNote {
    /// The model, a JSON object as [`Agent::model`](crate::Agent::model) gives it.
    pub model: Json,
    /// The one before.
    pub previous_model: Option<Json>,
    /// How it came to be.
    pub source: ModelSource,
}

/// How a model became the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelSource {
    /// It was chosen.
    Set,
    /// It came next in the list of models.
    Cycle,
    /// It is the one of a session that was opened.
    Restore,
    /// A way that this version has no case for.
    Other,
}

/// `stream_retry`: a reply was torn and is asked for again.
///
/// ```
/// # use wharf_sdk::{Ctx, Notification, Result, StreamRetryNote};
/// async fn notified(ctx: &Ctx, notification: Notification) -> Result<()> {
///     if let Notification::StreamRetry { note } = notification {
///         let retry: StreamRetryNote = note.parse()?;
///         ctx.ui().notify(format!("Attempt {} of {}", retry.attempt, retry.max_attempts));
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamRetryNote {
    /// From 1.
    pub attempt: u32,
    /// How many there are at most.
    pub max_attempts: u32,
    /// Why the reply was torn.
    pub error_message: String,
}

/// `length_retry`: a reply hit its limit of tokens and is asked for again with more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LengthRetryNote {
    /// From 1.
    pub attempt: u32,
    /// Tokens that the reply was given.
    pub max_tokens: u64,
    /// Tokens that the next one is given.
    pub next_max_tokens: u64,
}

macro_rules! readable {
    ($($note:ident: $from:ident;)*) => {$(
        impl<'de> Deserialize<'de> for $note {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                read(deserializer, $from)
            }
        }
    )*};
}

readable! {
    SessionForkNote: session_fork;
    SessionTreeNote: session_tree;
    SessionCompactNote: session_compact;
    ModelSelectNote: model_select;
    StreamRetryNote: stream_retry;
    LengthRetryNote: length_retry;
}

fn session_fork(fields: Fields<'_>) -> Result<SessionForkNote> {
    Ok(SessionForkNote { previous_session_file: fields.optional("previousSessionFile")? })
}

fn session_tree(fields: Fields<'_>) -> Result<SessionTreeNote> {
    Ok(SessionTreeNote {
        new_leaf_id: fields.optional("newLeafId")?,
        old_leaf_id: fields.optional("oldLeafId")?,
        summary_entry: fields.optional("summaryEntry")?,
        from_extension: fields.required("fromExtension")?,
    })
}

fn session_compact(fields: Fields<'_>) -> Result<SessionCompactNote> {
    let result: Fields<'_> = fields.required("result")?;
    Ok(SessionCompactNote {
        entry_id: fields.required("entryId")?,
        summary: result.required("summary")?,
        first_kept_entry_id: result.required("firstKeptEntryId")?,
        tokens_before: result.required("tokensBefore")?,
        details: result.optional("details")?,
        from_extension: fields.required("fromExtension")?,
    })
}

fn model_select(fields: Fields<'_>) -> Result<ModelSelectNote> {
    let source: String = fields.required("source")?;
    Ok(ModelSelectNote {
        model: fields.required("model")?,
        previous_model: fields.optional("previousModel")?,
        source: match source.as_str() {
            "set" => ModelSource::Set,
            "cycle" => ModelSource::Cycle,
            "restore" => ModelSource::Restore,
            _ => ModelSource::Other,
        },
    })
}

fn stream_retry(fields: Fields<'_>) -> Result<StreamRetryNote> {
    Ok(StreamRetryNote {
        attempt: fields.required("attempt")?,
        max_attempts: fields.required("maxAttempts")?,
        error_message: fields.required("errorMessage")?,
    })
}

fn length_retry(fields: Fields<'_>) -> Result<LengthRetryNote> {
    Ok(LengthRetryNote {
        attempt: fields.required("attempt")?,
        max_tokens: fields.required("maxTokens")?,
        next_max_tokens: fields.required("nextMaxTokens")?,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;

    use super::*;

    fn check<T: DeserializeOwned + PartialEq + Debug>(text: &str, expected: T) {
        assert_eq!(serde_json::from_str::<T>(text).unwrap(), expected);
    }

    fn json(text: &str) -> Json {
        Json::from_host(text.into())
    }

    #[test]
    fn notes_are_read_and_unknown_fields_skipped() {
        check(
            r#"{"entryId":"e","result":{"summary":"s","firstKeptEntryId":"k","tokensBefore":9,"details":{"n":1}},"fromExtension":true}"#,
            SessionCompactNote {
                entry_id: "e".into(),
                summary: "s".into(),
                first_kept_entry_id: "k".into(),
                tokens_before: 9,
                details: Some(json(r#"{"n":1}"#)),
                from_extension: true,
            },
        );
        for (file, expected) in [("null", None), (r#""/s.jsonl""#, Some("/s.jsonl".to_owned()))] {
            check(
                &format!(r#"{{"previousSessionFile":{file},"more":[]}}"#),
                SessionForkNote { previous_session_file: expected },
            );
        }
        for (summary, expected) in
            [("", None), (r#""summaryEntry":{"id":"s"},"#, Some(json(r#"{"id":"s"}"#)))]
        {
            check(
                &format!(r#"{{"newLeafId":null,"oldLeafId":"o",{summary}"fromExtension":false}}"#),
                SessionTreeNote {
                    new_leaf_id: None,
                    old_leaf_id: Some("o".into()),
                    summary_entry: expected,
                    from_extension: false,
                },
            );
        }
        for (previous, source, expected, expected_source) in [
            ("null", "cycle", None, ModelSource::Cycle),
            (r#"{"id":"a"}"#, "novel", Some(json(r#"{"id":"a"}"#)), ModelSource::Other),
        ] {
            check(
                &format!(
                    r#"{{"model":{{"id":"b"}},"previousModel":{previous},"source":"{source}"}}"#
                ),
                ModelSelectNote {
                    model: json(r#"{"id":"b"}"#),
                    previous_model: expected,
                    source: expected_source,
                },
            );
        }
        check(
            r#"{"attempt":1,"maxAttempts":3,"errorMessage":"torn","more":0}"#,
            StreamRetryNote { attempt: 1, max_attempts: 3, error_message: "torn".into() },
        );
        check(
            r#"{"attempt":2,"maxTokens":100,"nextMaxTokens":200}"#,
            LengthRetryNote { attempt: 2, max_tokens: 100, next_max_tokens: 200 },
        );
    }
}
