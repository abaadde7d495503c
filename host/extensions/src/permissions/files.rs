//! Patterns of files: a base, and one pattern for each part of the path below it.

use std::ffi::OsStr;
use std::path::{Component, Path};

use globset::GlobMatcher;

use super::wildcard;

/// What a pattern is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    Project,
    Home,
    AgentDir,
}

impl Base {
    /// A path below it, as patterns and guests write it.
    pub(crate) fn written(self, relative: &Path) -> String {
        let relative = relative.display();
        match self {
            Self::Project => relative.to_string(),
            Self::Home => format!("~/{relative}"),
            Self::AgentDir => format!("@agent/{relative}"),
        }
    }

    /// The base of a path, and the rest of it.
    pub(crate) fn split(path: &str) -> (Self, &str) {
        if let Some(rest) = below(path, "~") {
            (Self::Home, rest)
        } else if let Some(rest) = below(path, "@agent") {
            (Self::AgentDir, rest)
        } else {
            (Self::Project, path)
        }
    }
}

/// What follows `prefix/`; nothing where the path is the prefix itself.
fn below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(prefix)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

#[derive(Debug)]
enum Part {
    /// `**`: any number of parts, also none.
    Any,
    Literal(String),
    Glob(GlobMatcher),
}

impl Part {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("it has an empty part: a leading, trailing or double /".to_owned()),
            "." | ".." => Err(format!("it has the part {text:?}")),
            "**" => Ok(Self::Any),
            text if text.contains("**") => {
                Err("`**` stands alone between slashes, as in a/**/b".to_owned())
            }
            text if text.contains(['*', '?']) => wildcard(text).map(Self::Glob),
            text => Ok(Self::Literal(text.to_owned())),
        }
    }

    fn matches(&self, name: &OsStr) -> bool {
        match self {
            Self::Any => true,
            Self::Literal(text) => name == text.as_str(),
            Self::Glob(glob) => glob.is_match(name),
        }
    }
}

#[derive(Debug)]
pub(super) struct FilePattern {
    base: Base,
    parts: Vec<Part>,
}

impl FilePattern {
    pub(super) fn parse(pattern: &str) -> Result<Self, String> {
        if pattern.starts_with('/') {
            return Err(
                "it is absolute: write it relative to the project, ~/ or @agent/".to_owned()
            );
        }
        let (base, rest) = Base::split(pattern);
        if base == Base::Project && rest.starts_with('~') {
            return Err("`~` stands for the own home only, as in ~/notes".to_owned());
        }
        let mut parts = rest.split('/').map(Part::parse).collect::<Result<Vec<_>, _>>()?;
        if matches!(parts.last(), Some(Part::Any)) {
            // All that is in a folder, but not the folder itself.
            parts.push(Part::Glob(wildcard("*")?));
        }
        Ok(Self { base, parts })
    }

    /// `relative` has no `..`.
    pub(super) fn matches(&self, base: Base, relative: &Path) -> bool {
        self.base == base && self.walk(relative).is_some_and(|at| at[self.parts.len()])
    }

    /// Whether there may be a match further below `relative`.
    pub(super) fn reaches_below(&self, base: Base, relative: &Path) -> bool {
        self.base == base
            && self.walk(relative).is_some_and(|at| at[..self.parts.len()].contains(&true))
    }

    /// Which numbers of parts can have been used up by the whole path.
    fn walk(&self, relative: &Path) -> Option<Vec<bool>> {
        let mut at = vec![false; self.parts.len() + 1];
        at[0] = true;
        self.skip_any(&mut at);
        for component in relative.components() {
            let name = match component {
                Component::Normal(name) => name,
                Component::CurDir => continue,
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
            };
            let mut next = vec![false; at.len()];
            for (index, part) in self.parts.iter().enumerate() {
                if at[index] && part.matches(name) {
                    next[if matches!(part, Part::Any) { index } else { index + 1 }] = true;
                }
            }
            self.skip_any(&mut next);
            at = next;
        }
        Some(at)
    }

    fn skip_any(&self, at: &mut [bool]) {
        for (index, part) in self.parts.iter().enumerate() {
            if at[index] && matches!(part, Part::Any) {
                at[index + 1] = true;
            }
        }
    }
}
