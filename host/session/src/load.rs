//! Reads a session file of any version, whole or damaged. Writes nothing.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use crate::entry::{EntryBase, EntryId, EntryType, Slice};
use crate::error::OpenError;
use crate::header::{FORMAT_VERSION, FoundHeader, SessionHeader};
use crate::json::{Fields, quote};
use crate::migrate::{assigned_id, migrate};
use crate::scan::{Envelope, OBJECT_START, ParentField, scan, trim};
use crate::tree::{Index, Parent, Tree};
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
    let (tree, warnings) = loader.finish(&header);
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

/// Reads the file. A FIFO or a device is refused: reading it could wait for ever, and
/// the first append would put a file in its place.
fn read_regular(path: &Path) -> Result<(Vec<u8>, Stamp), OpenError> {
    let fail = |error| OpenError::read(path, error);
    let mut options = fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.bits().cast_signed(),
    );
    let mut file = options.open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if !metadata.is_file() {
        return Err(OpenError::NotAFile { path: path.to_owned() });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    file.read_to_end(&mut bytes).map_err(fail)?;
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

struct Draft {
    id: EntryId,
    /// As the file says; [`Draft::parent`] is what it comes to.
    parent_id: Option<EntryId>,
    parent: Option<Parent>,
    timestamp: Option<crate::Timestamp>,
    entry_type: EntryType,
    start: usize,
    end: usize,
    line: usize,
    /// The id is not the one that the file says.
    renamed: bool,
}

struct Loader<'a> {
    path: &'a Path,
    text: &'a Arc<String>,
    header_line: Option<usize>,
    warnings: Warnings,
    drafts: Vec<Draft>,
    by_id: HashMap<EntryId, Index>,
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
        Self {
            path,
            text,
            header_line,
            warnings,
            drafts: Vec::new(),
            by_id: HashMap::new(),
            carriage_returns: false,
            has_torn_tail: false,
            is_session: false,
        }
    }

    fn warn(&mut self, line: usize, kind: WarningKind) {
        self.warnings.add(self.path, line, kind);
    }

    fn read(&mut self) {
        let text = self.text.as_str();
        let (mut start, mut line) = (0, 0);
        while start < text.len() {
            line += 1;
            let end = text[start..].find('\n').map_or(text.len(), |offset| start + offset);
            self.read_line(line, start, end);
            start = end + 1;
        }
    }

    fn read_line(&mut self, number: usize, start: usize, end: usize) {
        let line = &self.text[start..end];
        let trimmed = trim(line);
        if trimmed.is_empty() {
            return;
        }
        if line.ends_with('\r') && !self.carriage_returns {
            self.carriage_returns = true;
            self.warn(number, WarningKind::CarriageReturn);
        }
        if let Some(envelope) = Envelope::parse(trimmed) {
            let start = start + line.find('{').unwrap_or_default();
            self.add(number, start, start + trimmed.len(), envelope);
            return;
        }
        let scan = scan(line);
        if scan.has_nul {
            self.warn(number, WarningKind::NulBytes);
        }
        let last = end == self.text.len();
        self.has_torn_tail |= last && scan.objects.is_empty();
        for (range, envelope) in scan.objects {
            self.add(number, start + range.start, start + range.end, envelope);
        }
        if scan.damaged {
            self.warn(number, if last { WarningKind::TornTail } else { WarningKind::BadLine });
        }
    }

    fn add(&mut self, line: usize, start: usize, end: usize, envelope: Envelope) {
        self.is_session |= envelope.is_convincing();
        if envelope.is_header {
            if self.header_line != Some(line) {
                self.warn(line, WarningKind::ExtraHeader);
            }
            return;
        }
        let index = self.drafts.len();
        let renamed = envelope.id.is_none();
        if renamed {
            self.warn(line, WarningKind::MissingId);
        }
        let id = envelope.id.unwrap_or_else(|| self.unused_id(index));
        let (parent_id, parent) = match envelope.parent {
            ParentField::Null => (None, Some(Parent::Root)),
            ParentField::Missing => {
                (None, Some(index.checked_sub(1).map_or(Parent::Root, Parent::Entry)))
            }
            // An append-only file has parents first. The others are looked up at the end.
            ParentField::Id(id) => {
                let parent = self.by_id.get(&id).map(|&index| Parent::Entry(index));
                (Some(id), parent)
            }
        };
        // Later references mean the later entry, so the earlier one gets another id.
        // Repairs depend on what precedes them only: an append doesn't change them.
        if let Some(earlier) = self.by_id.insert(id.clone(), index) {
            let other = self.unused_id(earlier);
            self.by_id.insert(other.clone(), earlier);
            self.drafts[earlier].id = other;
            self.drafts[earlier].renamed = true;
            self.warn(line, WarningKind::DuplicateId);
        }
        self.drafts.push(Draft {
            id,
            parent_id,
            parent,
            timestamp: envelope.timestamp,
            entry_type: envelope.entry_type,
            start,
            end,
            line,
            renamed,
        });
    }

    fn unused_id(&self, ordinal: usize) -> EntryId {
        assigned_id(ordinal, |id| self.by_id.contains_key(id))
    }

    fn finish(mut self, header: &SessionHeader) -> (Tree, Warnings) {
        let parents = self.resolve_parents();
        let ids: Vec<Option<EntryId>> = self
            .drafts
            .iter()
            .zip(&parents)
            .map(|(draft, parent)| match parent {
                Parent::Root => None,
                Parent::Entry(index) => Some(self.drafts[*index].id.clone()),
                Parent::Severed(_) => draft.parent_id.clone(),
            })
            .collect();
        let mut timestamp = header.timestamp;
        let text = self.text;
        let entries = self.drafts.into_iter().zip(ids).zip(parents).map(|((draft, id), parent)| {
            timestamp = draft.timestamp.unwrap_or(timestamp);
            let json = if draft.renamed || draft.parent_id != id {
                repaired(&text[draft.start..draft.end], &draft.id, id.as_ref())
            } else {
                Slice::new(text, draft.start, draft.end)
            };
            let base = EntryBase { id: draft.id, parent_id: id, timestamp };
            (base.into_loaded(draft.entry_type, json), parent)
        });
        (Tree::load(self.by_id, entries), self.warnings)
    }

    fn resolve_parents(&mut self) -> Vec<Parent> {
        let mut parents = Vec::with_capacity(self.drafts.len());
        let mut forward = false;
        for index in 0..self.drafts.len() {
            let draft = &self.drafts[index];
            let line = draft.line;
            let known = draft.parent.or_else(|| {
                let id = draft.parent_id.as_ref()?;
                self.by_id.get(id).map(|&parent| Parent::Entry(parent))
            });
            parents.push(known.unwrap_or_else(|| {
                self.warnings.add(self.path, line, WarningKind::OrphanedParent);
                Parent::Severed(index.checked_sub(1))
            }));
            forward |= points_forward(&parents, index);
        }
        if forward && has_cycle(&parents) {
            for index in 0..parents.len() {
                if points_forward(&parents, index) {
                    parents[index] = Parent::Severed(index.checked_sub(1));
                    self.warn(self.drafts[index].line, WarningKind::ParentCycle);
                }
            }
        }
        parents
    }
}

/// Every cycle has such an entry.
fn points_forward(parents: &[Parent], index: Index) -> bool {
    parents[index].link().is_some_and(|parent| parent >= index)
}

fn has_cycle(parents: &[Parent]) -> bool {
    /// The walk, by its first entry, that came by.
    const NEVER: usize = usize::MAX;
    let mut seen = vec![NEVER; parents.len()];
    for start in 0..parents.len() {
        let mut next = Some(start);
        while let Some(index) = next {
            match seen[index] {
                NEVER => seen[index] = start,
                walk if walk == start => return true,
                _ => break,
            }
            next = parents[index].link();
        }
    }
    false
}

/// The entry's JSON with the id and the parent that it has in memory.
fn repaired(text: &str, id: &EntryId, parent: Option<&EntryId>) -> Slice {
    let json = match Fields::parse(text) {
        Some(mut fields) => {
            fields.set(1, "id", quote(id.as_str()));
            fields.set(2, "parentId", parent.map_or("null".to_owned(), |id| quote(id.as_str())));
            fields.to_text()
        }
        None => text.to_owned(),
    };
    let end = json.len();
    Slice::new(&Arc::new(json), 0, end)
}
