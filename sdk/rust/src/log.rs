//! Lines for the log file.

use crate::bindings::wharf::extension::log::{Level, write};

/// Writes to Wharf's log, which is never shown in the conversation.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Log;

impl Log {
    /// For the extension's author.
    pub fn debug(self, message: impl AsRef<str>) {
        write(Level::Debug, message.as_ref());
    }

    /// What happened.
    pub fn info(self, message: impl AsRef<str>) {
        write(Level::Info, message.as_ref());
    }

    /// Something is odd, and the work goes on.
    pub fn warn(self, message: impl AsRef<str>) {
        write(Level::Warn, message.as_ref());
    }

    /// Something failed.
    pub fn error(self, message: impl AsRef<str>) {
        write(Level::Error, message.as_ref());
    }
}
