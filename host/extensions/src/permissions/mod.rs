//! What a permission means: the patterns of files, hosts, programs and variables, as
//! data. Nothing is opened or asked here, and who was granted what is `grants`'.

mod describe;
mod files;
mod hosts;
mod programs;

use std::collections::BTreeSet;
use std::fmt;

pub(crate) use describe::describe;
pub(crate) use files::Base;
use files::FilePattern;
use hosts::HostPattern;
pub(crate) use hosts::{Refusal, parse_url, pattern_for};
use programs::ProgramPattern;
pub(crate) use programs::check_program;
use url::Url;

use crate::registration::Permission;

/// Why a pattern is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the permission {permission} is malformed: {problem}")]
pub(crate) struct Malformed {
    /// As [`Permission`] is written.
    permission: String,
    problem: String,
}

/// Whether a decision about `granted` is one about `asked`: only when they are the same.
/// That `docs/**` includes `docs/a.md` is for [`Rules`], where something is used.
pub(crate) fn covers(granted: &Permission, asked: &Permission) -> bool {
    granted == asked
}

/// Checks a pattern without keeping it.
pub(crate) fn check(permission: &Permission) -> Result<(), Malformed> {
    Rules::default().add(permission)
}

/// Permissions that are in force, ready to judge by.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    read: Vec<FilePattern>,
    write: Vec<FilePattern>,
    net: Vec<HostPattern>,
    exec: Vec<ProgramPattern>,
    env: BTreeSet<String>,
}

/// What a file is to be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileUse {
    Read,
    Write,
}

impl Rules {
    /// Those of `permissions` that are well formed: what a person wrote into the file of
    /// grants may not be.
    pub(crate) fn new<'a>(permissions: impl IntoIterator<Item = &'a Permission>) -> Self {
        let mut rules = Self::default();
        for permission in permissions {
            // A pattern that means nothing grants nothing.
            let _ = rules.add(permission);
        }
        rules
    }

    fn add(&mut self, permission: &Permission) -> Result<(), Malformed> {
        let result = check_text(permission).and_then(|()| match permission {
            Permission::FsRead(pattern) => FilePattern::parse(pattern).map(|p| self.read.push(p)),
            Permission::FsWrite(pattern) => FilePattern::parse(pattern).map(|p| self.write.push(p)),
            Permission::Net(pattern) => HostPattern::parse(pattern).map(|p| self.net.push(p)),
            Permission::Exec(words) => ProgramPattern::parse(words).map(|p| self.exec.push(p)),
            Permission::Env(name) => check_variable(name).map(|()| {
                self.env.insert(name.clone());
            }),
        });
        result.map_err(|problem| Malformed { permission: permission.to_string(), problem })
    }

    /// Whether the file may be used; `relative` is canonical, below `base`.
    pub(crate) fn file(&self, usage: FileUse, base: Base, relative: &std::path::Path) -> bool {
        self.files(usage).iter().any(|pattern| pattern.matches(base, relative))
    }

    /// Whether the folder may be looked into: a pattern for reading names something in it,
    /// or further below.
    pub(crate) fn folder(&self, base: Base, relative: &std::path::Path) -> bool {
        self.read.iter().any(|pattern| pattern.reaches_below(base, relative))
    }

    fn files(&self, usage: FileUse) -> &[FilePattern] {
        match usage {
            FileUse::Read => &self.read,
            FileUse::Write => &self.write,
        }
    }

    /// Whether the URL's host and port may be asked.
    pub(crate) fn host(&self, url: &Url) -> bool {
        self.net.iter().any(|pattern| pattern.matches(url))
    }

    pub(crate) fn program(&self, program: &str, arguments: &[String]) -> bool {
        self.exec.iter().any(|pattern| pattern.matches(program, arguments))
    }

    pub(crate) fn variable(&self, name: &str) -> bool {
        self.env.contains(name)
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.env.iter().map(String::as_str)
    }
}

/// As a person types it for `wharf extension grant`: `fs-read:docs/**`, `net:example.org`,
/// `exec:git status **`, `env:NAME`.
impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FsRead(pattern) => write!(f, "fs-read:{pattern}"),
            Self::FsWrite(pattern) => write!(f, "fs-write:{pattern}"),
            Self::Net(pattern) => write!(f, "net:{pattern}"),
            Self::Exec(words) => {
                f.write_str("exec:")?;
                for (index, word) in words.iter().enumerate() {
                    let separator = if index == 0 { "" } else { " " };
                    write!(f, "{separator}{}", quoted(word))?;
                }
                Ok(())
            }
            Self::Env(name) => write!(f, "env:{name}"),
        }
    }
}

/// One word of a list that is separated by spaces, in single quotes where it needs them.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !matches!(c, '\'' | '"' | '\\' | '#');
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// What a person is shown must look like what it is.
fn check_text(permission: &Permission) -> Result<(), String> {
    let check = |text: &str| match text.chars().find(|c| is_deceptive(*c)) {
        Some(c) => Err(format!("it holds the character {}", c.escape_unicode())),
        None => Ok(()),
    };
    match permission {
        Permission::FsRead(text)
        | Permission::FsWrite(text)
        | Permission::Net(text)
        | Permission::Env(text) => check(text),
        Permission::Exec(words) => words.iter().try_for_each(|word| check(word)),
    }
}

/// Control characters, and those that change the order of text or cannot be seen.
pub(crate) fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn check_variable(name: &str) -> Result<(), String> {
    let mut chars = name.chars();
    let starts_well = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if starts_well && chars.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        Ok(())
    } else {
        Err("a variable has a name of A-Z, a-z, 0-9 and _, not beginning with a digit".to_owned())
    }
}

/// A pattern in which `*` and `?` are the only special characters.
fn wildcard(pattern: &str) -> Result<globset::GlobMatcher, String> {
    let mut escaped = String::new();
    for c in pattern.chars() {
        match c {
            // Any run of stars is one star here.
            '*' if escaped.ends_with('*') => {}
            '[' | ']' | '{' | '}' => escaped.extend(['[', c, ']']),
            c => escaped.push(c),
        }
    }
    globset::GlobBuilder::new(&escaped)
        .literal_separator(false)
        .backslash_escape(false)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
