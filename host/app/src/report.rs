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
