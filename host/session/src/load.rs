//! Reads a session file of any version, whole or damaged. Writes nothing.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::Timestamp;
use crate::cursor::RawString;
use crate::entry::EntryId;
use crate::error::OpenError;
use crate::header::{FORMAT_VERSION, FoundHeader, SessionHeader};
use crate::ids::Ids;
use crate::json::{Fields, quote};
use crate::migrate::{assigned_id, migrate};
use crate::nodes::{FileEntries, Index, Parent};
use crate::parallel::{ParsedLine, for_each_line, read_whole};
use crate::regular::open_regular;
use crate::scan::{Envelope, OBJECT_START, ParentField, scan, trim};
use crate::tree::Tree;
use crate::warning::{WarningKind, Warnings};
use crate::writer::{Replacement, Stamp, TornTail};

const BYTE_ORDER_MARK: char = '\u{feff}';

#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) header: SessionHeader,
    pub(crate) tree: Tree,
    pub(crate) warnings: Warnings,
    /// What the first append writes instead of the file as it is.
    pub(crate) replacement: Option<Replacement>,
    /// A last line that holds no whole entry.
    pub(crate) torn_tail: Option<TornTail>,
    /// Which file it was, and how far it went.
    pub(crate) stamp: Stamp,
}

pub(crate) fn load(path: &Path) -> Result<Loaded, OpenError> {
    let (bytes, stamp) = read_regular(path)?;
    let source_len = bytes.len() as u64;
    let last_line = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end as u64 + 1);
    let mut warnings = Warnings::default();
    let mut text = decode(bytes, path, &mut warnings);

    if text.starts_with(BYTE_ORDER_MARK) {
        warnings.add(path, 1, WarningKind::ByteOrderMark);
        text.remove(0);
    }
    let found = find_header(&text, path);
    if let Some((found, _)) = &found
        && found.version > u64::from(FORMAT_VERSION)
    {
        let (path, version) = (path.to_owned(), found.version);
        return Err(OpenError::TooNew { path, version, supported: FORMAT_VERSION });
    }
    let blank = text.trim_matches(|c: char| c == '\0' || c.is_whitespace()).is_empty();
    if blank {
        warnings.add(path, 1, WarningKind::Empty);
        text.clear();
    }
    // Without a header nothing tells the version. The migration of version 1 leaves alone
    // what is newer.
    let version = found.as_ref().map_or(1, |(found, _)| found.version);
    let current = version == u64::from(FORMAT_VERSION);
    if !current {
        text = migrate(&text);
    }
    if !text.is_empty() && !text.ends_with('\n') {
        warnings.add(path, text.lines().count(), WarningKind::NoFinalNewline);
    }

    let header_line = found.as_ref().map(|(_, line)| *line);
    let text = Arc::new(text);
    let mut loader = Loader::new(path, &text, header_line, warnings);
    loader.read();
    if found.is_none() {
        if !blank && !loader.is_session && !is_torn_header(&text) {
            return Err(OpenError::NotASession { path: path.to_owned() });
        }
        if !blank {
            loader.warn(1, WarningKind::MissingHeader);
        }
    }
    let has_header = found.is_some();
    let header = found.map_or_else(
        || SessionHeader {
            // Nothing tells where the session was; it goes on here.
            cwd: std::env::current_dir().unwrap_or_default(),
            ..SessionHeader::from_file_name(path)
        },
        |(found, _)| found.header,
    );
    let torn_tail = loader.has_torn_tail.then_some(TornTail { start: last_line, source_len });
    let (tree, warnings) = loader.finish(header.timestamp);
    let replacement = (!current).then(|| Replacement {
        header: (!has_header).then(|| header.clone()),
        // The copy that is kept has the torn tail too.
        text: match torn_tail {
            Some(_) => Arc::new(text[..text.rfind('\n').map_or(0, |end| end + 1)].to_owned()),
            None => text,
        },
        source_len,
        backup: match (has_header, source_len) {
            (_, 0) => None,
            (true, _) => Some(format!(".v{version}.bak")),
            (false, _) => Some(".damaged.bak".to_owned()),
        },
    });
    Ok(Loaded { header, tree, warnings, replacement, torn_tail, stamp })
}

fn read_regular(path: &Path) -> Result<(Vec<u8>, Stamp), OpenError> {
    let fail = |error| OpenError::read(path, error);
    let Some((mut file, metadata)) = open_regular(path).map_err(fail)? else {
        return Err(OpenError::NotAFile { path: path.to_owned() });
    };
    let bytes = read_whole(&mut file, metadata.len()).map_err(fail)?;
    let stamp = Stamp::new(&metadata, &bytes);
    Ok((bytes, stamp))
}

/// Replaces bytes that are no UTF-8, so that they cost a character and not an entry.
fn decode(bytes: Vec<u8>, path: &Path, warnings: &mut Warnings) -> String {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) => return text,
        Err(error) => error.into_bytes(),
    };
    let mut text = String::with_capacity(bytes.len());
    let (mut line, mut warned) = (1, 0);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        line += chunk.valid().matches('\n').count();
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            if line != warned {
                warnings.add(path, line, WarningKind::InvalidUtf8);
                warned = line;
            }
        }
    }
    text
}

/// The session header and its line (from 1). It is the first line, but for damage.
fn find_header(text: &str, path: &Path) -> Option<(FoundHeader, usize)> {
    text.lines().enumerate().find_map(|(index, line)| {
        if !line.contains("\"session\"") {
            return None;
        }
        let found = FoundHeader::parse(trim(line), path).or_else(|| {
            let objects = scan(line).objects;
            let (range, _) = objects.into_iter().find(|(_, envelope)| envelope.is_header)?;
            FoundHeader::parse(&line[range], path)
        })?;
        Some((found, index + 1))
    })
}

/// Whether a file without header and entries is a new session whose writer was cut off.
fn is_torn_header(text: &str) -> bool {
    let start = format!("{OBJECT_START}session\"");
    text.starts_with(&start) || start.starts_with(text)
}

/// Bytes at the beginning of a file that tell how long its lines are.
const SAMPLE: usize = 1 << 20;

/// Bytes that the line of an entry takes at least, if a program wrote it.
const MIN_LINE: usize = 64;

/// How many entries the text may have, so that hardly anything grows, and is copied,
/// while it is read.
fn expected_entries(text: &str) -> usize {
    let sample = &text.as_bytes()[..text.len().min(SAMPLE)];
    let lines = memchr::memchr_iter(b'\n', sample).count() + 1;
    let line = (sample.len() / lines).max(MIN_LINE);
    text.len() / line + text.len() / line / 16 + 1
}

struct Loader<'a> {
    path: &'a Path,
    text: &'a Arc<String>,
    header_line: Option<usize>,
    warnings: Warnings,
    entries: FileEntries,
    by_id: Ids,
    /// Entries whose parent was not found before them, with their lines.
    strays: Vec<(Index, usize)>,
    /// Entries whose id is not the one that the file says.
    renamed: HashSet<Index>,
    /// Entries that name no parent and get the one before them.
    adopted: Vec<Index>,
    /// Of the last entry that had one.
    timestamp: Option<Timestamp>,
    /// How many entries at the beginning have none.
    untimed: Index,
    carriage_returns: bool,
    has_torn_tail: bool,
    /// At least one line is what only session files have.
    is_session: bool,
}

impl<'a> Loader<'a> {
    fn new(
        path: &'a Path,
        text: &'a Arc<String>,
        header_line: Option<usize>,
        warnings: Warnings,
    ) -> Self {
        let capacity = expected_entries(text);
        Self {
            path,
            text,
            header_line,
            warnings,
            entries: FileEntries::of_text(text, capacity),
            by_id: Ids::with_capacity(capacity),
            strays: Vec::new(),
            renamed: HashSet::new(),
            adopted: Vec::new(),
            timestamp: None,
            untimed: 0,
            carriage_returns: false,
            has_torn_tail: false,
            is_session: false,
        }
    }

    fn warn(&mut self, line: usize, kind: WarningKind) {
        self.warnings.add(self.path, line, kind);
    }

    fn read(&mut self) {
        let mut number = 0;
        for_each_line(self.text, |line| {
            number += 1;
            self.read_line(number, line);
        });
    }

    fn read_line(&mut self, number: usize, line: ParsedLine<'_>) {
        let ParsedLine { start, end, envelope } = line;
        let text = self.text;
        let line = &text[start..end];
        let trimmed = trim(line);
        if trimmed.is_empty() {
            return;
        }
        if line.ends_with('\r') && !self.carriage_returns {
            self.carriage_returns = true;
            self.warn(number, WarningKind::CarriageReturn);
        }
        if let Some(envelope) = envelope {
            let start = start + line.find('{').unwrap_or_default();
            self.add(number, start..start + trimmed.len(), &envelope);
            return;
        }
        let scan = scan(line);
        if scan.has_nul {
            self.warn(number, WarningKind::NulBytes);
        }
        let last = end == self.text.len();
        let found = scan.objects.len();
        self.has_torn_tail |= last && found == 0;
        if found > 1 {
            self.warn(number, WarningKind::SeveralEntries);
        }
        for (range, envelope) in scan.objects {
            self.add(number, start + range.start..start + range.end, &envelope);
        }
        if scan.damaged {
            self.warn(
                number,
                match (last, found) {
                    (true, 0) => WarningKind::TornTail,
                    (false, 0) => WarningKind::BadLine,
                    (_, _) => WarningKind::PartlyBad,
                },
            );
        }
    }

    fn add(&mut self, line: usize, place: Range<usize>, envelope: &Envelope<'_>) {
        self.is_session |= envelope.is_convincing();
        if envelope.is_header {
            if self.header_line != Some(line) {
                self.warn(line, WarningKind::ExtraHeader);
            }
            return;
        }
        let timestamp = envelope.timestamp.or(self.timestamp);
        self.timestamp = timestamp;
        let pushed = self.entries.push(place, envelope, timestamp.unwrap_or_default());
        let Some(index) = pushed else {
            self.warn(line, WarningKind::BadLine);
            return;
        };
        self.untimed += Index::from(timestamp.is_none());
        let parent = match envelope.parent {
            ParentField::Null => Parent::Root,
            ParentField::Missing => match index.checked_sub(1) {
                None => Parent::Root,
                Some(before) => {
                    self.adopted.push(index);
                    Parent::Entry(before)
                }
            },
            // An append-only file has parents first, mostly right before. The others are
            // looked up at the end.
            ParentField::Id(id) => self.place_of(&id.decode(), index).map_or_else(
                || {
                    self.strays.push((index, line));
                    Parent::Root
                },
                Parent::Entry,
            ),
        };
        self.entries.set_parent(index, parent);

        let id = envelope.id.map(RawString::decode);
        let id = id.unwrap_or_else(|| {
            self.warn(line, WarningKind::MissingId);
            let id = self.unused_id(index);
            self.rename(index, id.clone());
            Cow::Owned(id.to_string())
        });
        // Later references mean the later entry, so the earlier one gets another id.
        // Repairs depend on what precedes them only: an append doesn't change them.
        if let Some(earlier) = self.insert(&id, index) {
            let other = self.unused_id(earlier);
            self.rename(earlier, other.clone());
            self.insert(other.as_str(), earlier);
            self.warn(line, WarningKind::DuplicateId);
        }
    }

    /// Where an entry with this id is before `index`.
    fn place_of(&self, id: &str, index: Index) -> Option<Index> {
        let before = index.checked_sub(1).filter(|before| self.entries.id(*before) == id);
        before.or_else(|| self.find(id))
    }

    fn find(&self, id: &str) -> Option<Index> {
        self.by_id.find(id, |index| self.entries.id(index))
    }

    fn insert(&mut self, id: &str, index: Index) -> Option<Index> {
        self.by_id.insert(id, index, |index| self.entries.id(index))
    }

    fn rename(&mut self, index: Index, id: EntryId) {
        self.entries.set_id(index, id);
        self.renamed.insert(index);
    }

    fn unused_id(&self, index: Index) -> EntryId {
        assigned_id(index as usize, |id| self.find(id.as_str()).is_some())
    }

    /// `created` is the time for entries that have none and none before them.
    fn finish(mut self, created: Timestamp) -> (Tree, Warnings) {
        for index in 0..self.untimed {
            self.entries.set_timestamp(index, created);
        }
        self.find_strays();
        self.repair();
        (Tree::load(self.by_id, self.entries), self.warnings)
    }

    fn find_strays(&mut self) {
        let strays = std::mem::take(&mut self.strays);
        let mut forward = Vec::new();
        for &(index, line) in &strays {
            let parent = match Envelope::parse(self.entries.json(index)).map(|e| e.parent) {
                Some(ParentField::Id(id)) => self.find(&id.decode()),
                _ => None,
            };
            match parent {
                Some(parent) => {
                    self.entries.set_parent(index, Parent::Entry(parent));
                    // Every cycle has such an entry.
                    if parent >= index {
                        forward.push((index, line));
                    }
                }
                None => {
                    self.entries.set_parent(index, Parent::Severed(None));
                    self.warn(line, WarningKind::OrphanedParent);
                }
            }
        }
        if !forward.is_empty() && has_cycle(&self.entries) {
            for (index, line) in forward {
                self.entries.set_parent(index, Parent::Severed(None));
                self.warn(line, WarningKind::ParentCycle);
            }
        }
    }

    /// Brings the JSON of entries in line with the id and the parent that they have.
    fn repair(&mut self) {
        let mut repairs = std::mem::take(&mut self.adopted);
        if !self.renamed.is_empty() {
            let parent = |index: Index| self.entries.parent(index).in_tree();
            repairs.extend(self.renamed.iter().copied());
            repairs.extend((0..self.entries.next_index()).filter(|index| {
                parent(*index).is_some_and(|parent| self.renamed.contains(&parent))
            }));
            repairs.sort_unstable();
            repairs.dedup();
        }
        for index in repairs {
            let Some(mut fields) = Fields::parse(self.entries.json(index)) else { continue };
            let id = quote(self.entries.id(index));
            let parent = match self.entries.parent(index) {
                Parent::Root => Some("null".to_owned()),
                Parent::Entry(parent) => Some(quote(self.entries.id(parent))),
                Parent::Severed(_) => None,
            };
            fields.set(1, "id", id);
            if let Some(parent) = parent {
                fields.set(2, "parentId", parent);
            }
            let json = fields.to_text();
            self.entries.repair(index, &json);
        }
    }
}

fn has_cycle(entries: &FileEntries) -> bool {
    /// Of an entry that no walk came by; else the walk, by its first entry.
    const NEVER: Index = Index::MAX;
    let mut seen = vec![NEVER; entries.len()];
    for start in 0..entries.next_index() {
        let mut next = Some(start);
        while let Some(index) = next {
            match seen[index as usize] {
                NEVER => seen[index as usize] = start,
                walk if walk == start => return true,
                _ => break,
            }
            next = entries.parent(index).link();
        }
    }
    false
}
