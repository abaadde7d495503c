//! How guests tell a test what came of a call: a notice with
//! `{"call": NAME, "ok": VALUE}`, or `"error": {"kind", "message"}`.

use serde::Serialize;
use wharf_sdk::{AccessError, Ctx, Error, Json, Result};

#[derive(Serialize)]
struct Shown<'a, T> {
    call: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refusal>,
}

#[derive(Serialize)]
struct Refusal {
    kind: &'static str,
    message: String,
}

/// Shows what came of a call.
///
/// # Errors
/// When the value cannot be written as JSON.
pub fn show<T: Serialize>(ctx: &Ctx, call: &str, outcome: &Result<T>) -> Result<()> {
    let error = outcome.as_ref().err();
    let error = error.map(|error| Refusal { kind: kind(error), message: error.to_string() });
    let shown = Shown { call, ok: outcome.as_ref().ok(), error };
    ctx.ui().notify(Json::of(&shown)?.as_str());
    Ok(())
}

/// The name of an error's case, as the WIT has it.
#[must_use]
pub const fn kind(error: &Error) -> &'static str {
    match error {
        Error::NotAllowed(_) => "not-allowed",
        Error::Invalid(_) | Error::Access(AccessError::Invalid(_)) => "invalid",
        Error::Failed(_) | Error::Access(AccessError::Failed(_)) => "failed",
        Error::Access(AccessError::Denied(_)) => "denied",
        Error::Access(AccessError::NotFound(_)) => "not-found",
        Error::Access(AccessError::TimedOut(_)) => "timed-out",
        Error::Access(AccessError::Cancelled) => "cancelled",
        Error::Json(_) => "json",
        _ => "message",
    }
}
