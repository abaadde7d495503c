//! What people read on standard error.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Writes a line for people. Standard error may be closed; nothing depends on it.
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

pub(crate) fn warning(text: impl Display) {
    line(format_args!("warning: {text}"));
}

pub(crate) fn error(text: impl Display) {
    line(format_args!("error: {text}"));
}

/// An error with its causes. Many errors tell their cause in their own text, and then it
/// is not told again.
pub(crate) fn failure(failure: &anyhow::Error) {
    error(with_causes(failure));
}

pub(crate) fn with_causes(failure: &anyhow::Error) -> String {
    let mut text = failure.to_string();
    for cause in failure.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot trust /x: {source}; look again")]
    struct TellsItsCause {
        source: io::Error,
    }

    #[test]
    fn every_cause_is_told_once() {
        let cause = || io::Error::other("not there");
        let told = || TellsItsCause { source: cause() };
        for (failure, expect) in [
            (anyhow!("no prompt"), "no prompt"),
            (anyhow!(cause()).context("failed to read /x"), "failed to read /x: not there"),
            (anyhow!(told()), "cannot trust /x: not there; look again"),
            (
                anyhow!(told()).context("failed to start"),
                "failed to start: cannot trust /x: not there; look again",
            ),
        ] {
            assert_eq!(with_causes(&failure), expect);
        }
    }
}
