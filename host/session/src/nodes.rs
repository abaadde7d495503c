//! The entries of a session, held compactly, and the walks over them. Knows nothing of
//! the leaf, of labels or of writing.
//!
//! Those of a file are never taken apart: an entry is a [`Record`] of 32 bytes that says
//! where in the file's text it is. What somebody asks for is made from that when asked.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::Timestamp;
use crate::entry::{Entry, EntryBase, EntryId, EntryType, Json, MessageRole, Slice};
use crate::scan::{Envelope, ParentField};

/// An entry's place among its session's entries.
pub(crate) type Index = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parent {
    /// The first entry of a tree.
    Root,
    Entry(Index),
    /// A root because the file is damaged: its parent is lost. Branches still go on with
    /// the entry before it in the file, which nearly always is where its history is.
    Severed(Option<Index>),
}

impl Parent {
    /// Where a branch goes on.
    pub(crate) fn link(self) -> Option<Index> {
        match self {
            Self::Root => None,
            Self::Entry(index) => Some(index),
            Self::Severed(index) => index,
        }
    }

    /// The parent in the tree.
    pub(crate) fn in_tree(self) -> Option<Index> {
        match self {
            Self::Entry(index) => Some(index),
            Self::Root | Self::Severed(_) => None,
        }
    }
}

/// Where an entry of a file is, and what a walk over the tree has to know of it.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    /// In the text, in bytes.
    start: u64,
    timestamp: Timestamp,
    len: u32,
    /// [`Record::NO_PARENT`] for a root.
    parent: Index,
    /// Of the id within the entry; without a length the id is in [`FileEntries::odd_ids`].
    id_at: u8,
    id_len: u8,
    /// How much of the entry is before and behind the message. Nothing before it: there
    /// is no message, or the entry has to be read again for it.
    before_message: u8,
    behind_message: u8,
    entry_type: EntryType,
    role: Option<MessageRole>,
    is_severed: bool,
    flags: u8,
}

// What the crate's documentation promises.
const _: () = assert!(size_of::<Record>() == 32);

impl Record {
    const NO_PARENT: Index = Index::MAX;
    /// The entry is not as it stands in the file, but in [`FileEntries::repaired`].
    const IS_REPAIRED: u8 = 1;
    const HAS_LONE_SURROGATES: u8 = 2;

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The entries of a file. Nothing changes in here once the file is loaded.
#[derive(Debug, Default)]
pub(crate) struct FileEntries {
    text: Arc<String>,
    /// The entries whose id or parent is another one than the file says.
    repaired: Arc<String>,
    records: Vec<Record>,
    /// Ids that do not stand in the text as they are, or far from its beginning.
    odd_ids: HashMap<Index, EntryId>,
}

impl FileEntries {
    /// None yet, of a file with `text`, and room for `capacity`.
    pub(crate) fn of_text(text: &Arc<String>, capacity: usize) -> Self {
        let (text, records) = (Arc::clone(text), Vec::with_capacity(capacity));
        Self { text, records, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Of the entry that is added next.
    pub(crate) fn next_index(&self) -> Index {
        // `push` takes care of that.
        Index::try_from(self.records.len()).unwrap_or(Record::NO_PARENT)
    }

    fn record(&self, index: Index) -> &Record {
        &self.records[index as usize]
    }

    /// Adds the entry at `place` in the text. `None`, and nothing is added: no entry is
    /// as long as that, or there are too many.
    pub(crate) fn push(
        &mut self,
        place: Range<usize>,
        envelope: &Envelope<'_>,
        timestamp: Timestamp,
    ) -> Option<Index> {
        let index = self.next_index();
        let len = u32::try_from(place.len()).ok().filter(|_| index < Record::NO_PARENT)?;
        self.records.push(Record {
            start: place.start as u64,
            timestamp,
            len,
            parent: Record::NO_PARENT,
            id_at: 0,
            id_len: 0,
            before_message: 0,
            behind_message: 0,
            entry_type: envelope.entry_type,
            role: envelope.message.as_ref().and_then(|(_, role)| *role),
            is_severed: false,
            flags: if envelope.has_lone_surrogates { Record::HAS_LONE_SURROGATES } else { 0 },
        });
        self.locate(index, envelope);
        Some(index)
    }

    /// Notes where the envelope has the id and the message.
    fn locate(&mut self, index: Index, envelope: &Envelope<'_>) {
        let record = &mut self.records[index as usize];
        if let Some((range, _)) = &envelope.message
            && let Ok(before) = u8::try_from(range.start)
            && let Ok(behind) = u8::try_from(record.len as usize - range.end)
        {
            (record.before_message, record.behind_message) = (before, behind);
        }
        let Some(id) = envelope.id else { return };
        match (u8::try_from(id.at), u8::try_from(id.raw.len())) {
            (Ok(at), Ok(len)) if !id.is_escaped => {
                (record.id_at, record.id_len) = (at, len);
                self.odd_ids.remove(&index);
            }
            _ => drop(self.odd_ids.insert(index, EntryId::new(id.decode()))),
        }
    }

    pub(crate) fn set_id(&mut self, index: Index, id: EntryId) {
        self.records[index as usize].id_len = 0;
        self.odd_ids.insert(index, id);
    }

    pub(crate) fn set_timestamp(&mut self, index: Index, timestamp: Timestamp) {
        self.records[index as usize].timestamp = timestamp;
    }

    pub(crate) fn set_parent(&mut self, index: Index, parent: Parent) {
        let record = &mut self.records[index as usize];
        record.parent = parent.in_tree().unwrap_or(Record::NO_PARENT);
        record.is_severed = matches!(parent, Parent::Severed(_));
    }

    /// Takes `json` for what the file has.
    pub(crate) fn repair(&mut self, index: Index, json: &str) {
        let Some(envelope) = Envelope::parse(json) else { return };
        let Ok(len) = u32::try_from(json.len()) else { return };
        let repaired = Arc::make_mut(&mut self.repaired);
        let record = &mut self.records[index as usize];
        record.start = repaired.len() as u64;
        record.len = len;
        (record.before_message, record.behind_message) = (0, 0);
        record.flags |= Record::IS_REPAIRED;
        repaired.push_str(json);
        self.locate(index, &envelope);
    }

    pub(crate) fn finish(mut self) -> Arc<Self> {
        self.records.shrink_to_fit();
        Arc::make_mut(&mut self.repaired).shrink_to_fit();
        Arc::new(self)
    }

    pub(crate) fn parent(&self, index: Index) -> Parent {
        let record = self.record(index);
        match record.parent {
            Record::NO_PARENT if record.is_severed => Parent::Severed(index.checked_sub(1)),
            Record::NO_PARENT => Parent::Root,
            parent => Parent::Entry(parent),
        }
    }

    fn place(&self, index: Index) -> (&Arc<String>, Range<usize>) {
        let record = self.record(index);
        let text = match record.has(Record::IS_REPAIRED) {
            true => &self.repaired,
            false => &self.text,
        };
        // Places of a text that is in memory.
        #[expect(clippy::cast_possible_truncation, reason = "it was a usize")]
        let start = record.start as usize;
        (text, start..start + record.len as usize)
    }

    pub(crate) fn json(&self, index: Index) -> &str {
        let (text, range) = self.place(index);
        &text[range]
    }

    pub(crate) fn id(&self, index: Index) -> &str {
        let record = self.record(index);
        if record.id_len == 0 {
            return self.odd_ids.get(&index).map_or("", EntryId::as_str);
        }
        let start = record.id_at as usize;
        &self.json(index)[start..start + record.id_len as usize]
    }

    /// Where the message is in the JSON of a `message` entry.
    fn message_range(&self, index: Index) -> Option<Range<usize>> {
        let record = self.record(index);
        if record.entry_type != EntryType::Message {
            return None;
        }
        if record.before_message > 0 {
            let end = record.len as usize - record.behind_message as usize;
            return Some(record.before_message as usize..end);
        }
        Envelope::parse(self.json(index))?.message.map(|(range, _)| range)
    }

    pub(crate) fn message_json(&self, index: Index) -> Option<&str> {
        self.message_range(index).map(|range| &self.json(index)[range])
    }

    pub(crate) fn has_lone_surrogates(&self, index: Index) -> bool {
        self.record(index).has(Record::HAS_LONE_SURROGATES)
    }
}

/// An entry that came after the file was opened.
#[derive(Debug, Clone)]
struct Added {
    entry: Arc<Entry>,
    parent: Option<Index>,
}

/// All entries of a session, in the order of the file. A clone is a snapshot; it costs
/// what was added.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nodes {
    file: Arc<FileEntries>,
    added: Vec<Added>,
}

/// An entry, wherever it is.
enum Held<'a> {
    InFile(&'a Arc<FileEntries>),
    Added(&'a Added),
}

impl Nodes {
    pub(crate) fn of_file(file: Arc<FileEntries>) -> Self {
        Self { file, added: Vec::new() }
    }

    pub(crate) fn push(&mut self, entry: Entry, parent: Option<Index>) {
        self.added.push(Added { entry: Arc::new(entry), parent });
    }

    pub(crate) fn len(&self) -> usize {
        self.file.len() + self.added.len()
    }

    pub(crate) fn indices(&self) -> Range<Index> {
        // More entries than that fit into no memory.
        0..Index::try_from(self.len()).unwrap_or(Index::MAX)
    }

    fn held(&self, index: Index) -> Held<'_> {
        match (index as usize).checked_sub(self.file.len()) {
            None => Held::InFile(&self.file),
            Some(place) => Held::Added(&self.added[place]),
        }
    }

    pub(crate) fn id(&self, index: Index) -> &str {
        match self.held(index) {
            Held::InFile(file) => file.id(index),
            Held::Added(added) => added.entry.id().as_str(),
        }
    }

    pub(crate) fn parent(&self, index: Index) -> Parent {
        match self.held(index) {
            Held::InFile(file) => file.parent(index),
            Held::Added(added) => added.parent.map_or(Parent::Root, Parent::Entry),
        }
    }

    /// As the entry has it: of an orphan, an id that no entry has.
    pub(crate) fn parent_id(&self, index: Index) -> Option<Cow<'_, str>> {
        match self.parent(index) {
            Parent::Root => None,
            Parent::Entry(parent) => Some(Cow::Borrowed(self.id(parent))),
            Parent::Severed(_) => match Envelope::parse(self.json(index))?.parent {
                ParentField::Id(id) => Some(id.decode()),
                ParentField::Missing | ParentField::Null => None,
            },
        }
    }

    pub(crate) fn entry_type(&self, index: Index) -> EntryType {
        match self.held(index) {
            Held::InFile(file) => file.record(index).entry_type,
            Held::Added(added) => added.entry.entry_type(),
        }
    }

    pub(crate) fn role(&self, index: Index) -> Option<MessageRole> {
        match self.held(index) {
            Held::InFile(file) => file.record(index).role,
            Held::Added(added) => added.entry.role(),
        }
    }

    pub(crate) fn timestamp(&self, index: Index) -> Timestamp {
        match self.held(index) {
            Held::InFile(file) => file.record(index).timestamp,
            Held::Added(added) => added.entry.timestamp(),
        }
    }

    pub(crate) fn json(&self, index: Index) -> &str {
        match self.held(index) {
            Held::InFile(file) => file.json(index),
            Held::Added(added) => added.entry.json(),
        }
    }

    pub(crate) fn message_json(&self, index: Index) -> Option<&str> {
        match self.held(index) {
            Held::InFile(file) => file.message_json(index),
            Held::Added(added) => added.entry.message_json(),
        }
    }

    /// The file that an entry is in; none for one that was added.
    pub(crate) fn file_of(&self, index: Index) -> Option<&Arc<FileEntries>> {
        match self.held(index) {
            Held::InFile(file) => Some(file),
            Held::Added(_) => None,
        }
    }

    pub(crate) fn entry(&self, index: Index) -> Arc<Entry> {
        let file = match self.held(index) {
            Held::InFile(file) => file,
            Held::Added(added) => return Arc::clone(&added.entry),
        };
        let record = file.record(index);
        let base = EntryBase {
            id: EntryId::new(file.id(index)),
            parent_id: self.parent_id(index).map(EntryId::new),
            timestamp: record.timestamp,
        };
        let (text, range) = file.place(index);
        let json = Json {
            text: Slice::new(text, range.start, range.end),
            message: file.message_range(index).map(|range| (range, record.role)),
            has_lone_surrogates: file.has_lone_surrogates(index),
        };
        Arc::new(base.into_loaded(record.entry_type, json))
    }

    /// The entries from the root to `from`.
    pub(crate) fn branch(&self, from: Option<Index>) -> Vec<Index> {
        let mut branch = Vec::new();
        let mut next = from;
        while let Some(index) = next {
            branch.push(index);
            next = self.parent(index).link();
        }
        branch.reverse();
        branch
    }
}

/// The children of every entry, oldest first.
#[derive(Debug)]
pub(crate) struct Children {
    /// By the parent's index plus one; the roots' place is 0.
    ends: Vec<Option<(Index, Index)>>,
    /// The next one with the same parent.
    next: Vec<Option<Index>>,
}

impl Children {
    pub(crate) fn of(nodes: &Nodes) -> Self {
        let mut children =
            Self { ends: Vec::with_capacity(nodes.len() + 1), next: vec![None; nodes.len()] };
        children.ends.resize(nodes.len() + 1, None);
        let oldest_first = |index: &Index| nodes.timestamp(*index);
        if nodes.indices().is_sorted_by_key(|index| oldest_first(&index)) {
            nodes.indices().for_each(|index| children.link(nodes, index));
        } else {
            let mut order: Vec<Index> = nodes.indices().collect();
            order.sort_by_key(oldest_first);
            order.into_iter().for_each(|index| children.link(nodes, index));
        }
        children
    }

    /// Adds an entry that was appended: it is the newest.
    pub(crate) fn push(&mut self, nodes: &Nodes, index: Index) {
        self.ends.push(None);
        self.next.push(None);
        self.link(nodes, index);
    }

    fn place(parent: Option<Index>) -> usize {
        parent.map_or(0, |parent| parent as usize + 1)
    }

    fn link(&mut self, nodes: &Nodes, index: Index) {
        let ends = &mut self.ends[Self::place(nodes.parent(index).in_tree())];
        match ends {
            Some((_, last)) => {
                self.next[*last as usize] = Some(index);
                *last = index;
            }
            None => *ends = Some((index, index)),
        }
    }

    pub(crate) fn first(&self, parent: Option<Index>) -> Option<Index> {
        self.ends[Self::place(parent)].map(|(first, _)| first)
    }

    pub(crate) fn after(&self, sibling: Index) -> Option<Index> {
        self.next[sibling as usize]
    }

    pub(crate) fn list(&self, parent: Option<Index>) -> impl Iterator<Item = Index> {
        std::iter::successors(self.first(parent), |sibling| self.after(*sibling))
    }
}
