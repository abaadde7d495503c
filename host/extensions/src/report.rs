//! What the extension host has to tell about an extension that misbehaves.

use std::fmt;
use std::path::PathBuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Something is not as the author meant it; the extension works.
    Warning,
    /// A handler, a command or the whole extension failed.
    Error,
}

/// One `extension_error` or diagnostic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub severity: Severity,
    /// The component's file, or the path that was looked for.
    pub extension_path: PathBuf,
    /// `load`, `register`, `command`, `tool`, or the event's name on the wire.
    pub event: String,
    /// One line, at most 2,000 bytes.
    pub error: String,
}

/// Takes reports. Called from any thread; must return at once.
pub trait Reporter: Send + Sync + fmt::Debug {
    fn report(&self, report: Report);
}
