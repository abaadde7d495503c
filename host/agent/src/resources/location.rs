//! Where a skill or prompt template was loaded from, in the words of the wire.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// The agent directory, or `~/.agents`.
    User,
    /// `.wharf` or `.agents` of a trusted project.
    Project,
    /// A path given on the command line or in settings.
    Path,
}

impl Location {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::Path => "path",
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
