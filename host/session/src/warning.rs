//! What was wrong with a file that could be read all the same.

use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WarningKind {
    /// The last line ends in the middle of an entry.
    TornTail,
    BadLine,
    /// There is an entry in the line, and something else.
    PartlyBad,
    SeveralEntries,
    NulBytes,
    InvalidUtf8,
    ByteOrderMark,
    CarriageReturn,
    NoFinalNewline,
    Empty,
    MissingHeader,
    ExtraHeader,
    MissingId,
    DuplicateId,
    OrphanedParent,
    ParentCycle,
}

impl WarningKind {
    const fn text(self) -> &'static str {
        match self {
            Self::TornTail => "the last line is cut off; what is left of it is skipped",
            Self::BadLine => "the line is no valid entry; it is skipped",
            Self::PartlyBad => "a part of the line is no valid entry; that part is skipped",
            Self::SeveralEntries => "the line holds more than one entry; all of them are taken",
            Self::NulBytes => "the line holds NUL bytes; they are skipped",
            Self::InvalidUtf8 => "the line is not valid UTF-8; the bytes concerned are replaced",
            Self::ByteOrderMark => "the file starts with a byte order mark",
            Self::CarriageReturn => "lines end in CR LF",
            Self::NoFinalNewline => "the last line has no line feed",
            Self::Empty => "the file is empty",
            Self::MissingHeader => "the session header is missing or damaged",
            Self::ExtraHeader => "a second session header; it is skipped",
            Self::MissingId => "the entry has no id; it gets one",
            Self::DuplicateId => "the id was used before; the earlier entry gets another",
            Self::OrphanedParent => {
                "the entry's parent is missing; its branch goes on with the entry before it"
            }
            Self::ParentCycle => {
                "the entry is its own ancestor; its branch goes on with the entry before it"
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
    pub kind: WarningKind,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}, line {}: {}", self.file.display(), self.line, self.kind.text())
    }
}

/// All warnings are counted; the first [`Warnings::KEPT`] are kept.
#[derive(Debug, Clone, Default)]
pub struct Warnings {
    list: Vec<Warning>,
    total: usize,
}

impl Warnings {
    /// A wholly garbled file of a million lines needs no million warnings.
    pub const KEPT: usize = 100;

    pub(crate) fn add(&mut self, file: &Path, line: usize, kind: WarningKind) {
        self.total += 1;
        if self.list.len() < Self::KEPT {
            self.list.push(Warning { file: file.to_owned(), line, kind });
        }
    }

    pub fn list(&self) -> &[Warning] {
        &self.list
    }

    pub fn total(&self) -> usize {
        self.total
    }

    /// Of all of them, those that are kept and a last line that counts the others.
    pub fn texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = self.list.iter().map(ToString::to_string).collect();
        let others = self.total - self.list.len();
        if let (Some(last), true) = (self.list.last(), others > 0) {
            let (file, line) = (last.file.display(), last.line);
            texts.push(format!("session {file}: {others} more such warnings from line {line} on"));
        }
        texts
    }

    pub fn is_empty(&self) -> bool {
        self.total == 0
    }
}
