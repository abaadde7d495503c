//! What the benches need of the inside of this crate. For nobody else.

use std::path::Path;

use crate::permissions::{Base, FileUse, Rules, parse_url};
use crate::registration::Permission;

/// Permissions that are in force.
#[derive(Debug)]
pub struct Judge(Rules);

impl Judge {
    pub fn new(granted: &[Permission]) -> Self {
        Self(Rules::new(granted))
    }

    /// `path`: below the project, resolved.
    pub fn reads(&self, path: &Path) -> bool {
        self.0.file(FileUse::Read, Base::Project, path)
    }

    pub fn connects(&self, url: &str) -> bool {
        parse_url(url, None).is_ok_and(|url| self.0.host(&url))
    }

    pub fn runs(&self, program: &str, arguments: &[String]) -> bool {
        self.0.program(program, arguments)
    }
}
