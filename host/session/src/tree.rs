//! The tree of entries in memory, with its leaf, labels and name. Knows nothing of files;
//! every walk is iterative, so a chain may be as long as memory allows.

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::entry::{Entry, EntryBase, EntryId, EntryKind, EntryType};
use crate::ids::Ids;
use crate::nodes::{Children, FileEntries, Index, Nodes};
use crate::{Timestamp, UnknownEntry};

/// One entry in the listing of a whole tree, see [`Session::tree`](crate::Session::tree).
#[derive(Debug, Clone)]
pub struct TreeNode {
    pub entry: Arc<Entry>,
    /// Place of the parent in the same listing; `None` for a root. An orphan is a root
    /// whose [`Entry::parent_id`] names no entry.
    pub parent: Option<usize>,
    pub label: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: Nodes,
    by_id: Ids,
    leaf: Option<Index>,
    labels: Labels,
    name: Option<String>,
    message_count: usize,
    last_timestamp: Option<Timestamp>,
    /// Made when first asked for.
    children: Option<Children>,
}

/// The labels that entries have now.
pub(crate) type Labels = HashMap<EntryId, String>;

/// The tree as it was at one time, to be walked while it goes on.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) nodes: Nodes,
    pub(crate) labels: Labels,
    pub(crate) leaf: Option<Index>,
}

impl Tree {
    /// A tree of entries in file order, the last of which is the leaf. `by_id` has the
    /// place of every one of them.
    pub(crate) fn load(by_id: Ids, file: FileEntries) -> Self {
        let mut tree = Self { nodes: Nodes::of_file(file.finish()), by_id, ..Self::default() };
        for index in tree.nodes.indices() {
            let entry_type = tree.nodes.entry_type(index);
            // The others say nothing of the tree.
            if let EntryType::Label | EntryType::SessionInfo = entry_type {
                let kind = EntryKind::parse(entry_type, tree.nodes.json(index));
                tree.take_note_of(&kind);
            }
            tree.message_count += usize::from(entry_type == EntryType::Message);
            tree.last_timestamp = tree.last_timestamp.max(Some(tree.nodes.timestamp(index)));
            tree.leaf = Some(index);
        }
        tree
    }

    /// Adds an entry below the leaf and makes it the leaf.
    pub(crate) fn push(&mut self, entry: Entry) {
        let index = self.nodes.indices().end;
        self.take_note_of(entry.kind());
        self.message_count += usize::from(entry.entry_type() == EntryType::Message);
        self.last_timestamp = self.last_timestamp.max(Some(entry.timestamp()));
        let id = entry.id().clone();
        self.nodes.push(entry, self.leaf);
        self.by_id.insert(id.as_str(), index, |index| self.nodes.id(index));
        if let Some(children) = &mut self.children {
            children.push(&self.nodes, index);
        }
        self.leaf = Some(index);
    }

    fn take_note_of(&mut self, kind: &EntryKind) {
        match kind {
            EntryKind::Label(change) => {
                let target = EntryId::new(&change.target_id);
                match change.label.as_deref() {
                    Some(label) if !label.is_empty() => {
                        self.labels.insert(target, label.to_owned());
                    }
                    _ => drop(self.labels.remove(&target)),
                }
            }
            EntryKind::SessionInfo(info) => {
                let name = info.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
                self.name = name.map(str::to_owned);
            }
            EntryKind::Message(_)
            | EntryKind::ModelChange(_)
            | EntryKind::ThinkingLevelChange(_)
            | EntryKind::Compaction(_)
            | EntryKind::BranchSummary(_)
            | EntryKind::Custom(_)
            | EntryKind::CustomMessage(_)
            | EntryKind::Unknown(_) => {}
        }
    }

    /// Identity for an entry to be added below the leaf.
    pub(crate) fn next_base(&self) -> EntryBase {
        let id = loop {
            // The first field of a version 4 UUID is wholly random.
            let id = EntryId::new(format!("{:08x}", Uuid::new_v4().as_fields().0));
            if self.place_of(id.as_str()).is_none() {
                break id;
            }
        };
        let timestamp = Timestamp::after(self.last_timestamp);
        EntryBase { id, parent_id: self.leaf_id(), timestamp }
    }

    fn place_of(&self, id: &str) -> Option<Index> {
        self.by_id.find(id, |index| self.nodes.id(index))
    }

    pub(crate) fn find(&self, id: &str) -> Result<Index, UnknownEntry> {
        self.place_of(id).ok_or_else(|| UnknownEntry(id.into()))
    }

    pub(crate) fn set_leaf(&mut self, id: Option<&str>) -> Result<(), UnknownEntry> {
        self.leaf = id.map(|id| self.find(id)).transpose()?;
        Ok(())
    }

    pub(crate) fn leaf(&self) -> Option<Index> {
        self.leaf
    }

    pub(crate) fn leaf_id(&self) -> Option<EntryId> {
        self.leaf.map(|index| EntryId::new(self.nodes.id(index)))
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Entry>> {
        self.place_of(id).map(|index| self.nodes.entry(index))
    }

    /// Oldest first. No parent: the roots.
    pub(crate) fn children(&mut self, parent: Option<&str>) -> Vec<Arc<Entry>> {
        let parent = match parent.map(|id| self.place_of(id)) {
            // Nobody is the child of an entry that is not there.
            Some(None) => return Vec::new(),
            Some(place) => place,
            None => None,
        };
        let Self { nodes, children, .. } = self;
        let children = children.get_or_insert_with(|| Children::of(nodes));
        children.list(parent).map(|index| nodes.entry(index)).collect()
    }

    /// The entries as they are now, for walks that need not keep others waiting.
    pub(crate) fn nodes(&self) -> Nodes {
        self.nodes.clone()
    }

    /// In the order of the file.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Arc<Entry>> {
        self.nodes.indices().map(|index| self.nodes.entry(index))
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { nodes: self.nodes.clone(), labels: self.labels.clone(), leaf: self.leaf }
    }

    pub(crate) fn entry_count(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn label(&self, id: &str) -> Option<&str> {
        self.place_of(id)?;
        self.labels.get(id).map(String::as_str)
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn message_count(&self) -> usize {
        self.message_count
    }
}

impl Snapshot {
    pub(crate) fn label(&self, index: Index) -> Option<&str> {
        if self.labels.is_empty() {
            return None;
        }
        self.labels.get(self.nodes.id(index)).map(String::as_str)
    }

    pub(crate) fn listing(&self) -> Vec<TreeNode> {
        let node = |index| TreeNode {
            entry: self.nodes.entry(index),
            parent: self.nodes.parent(index).in_tree().map(|parent| parent as usize),
            label: self.label(index).map(str::to_owned),
        };
        self.nodes.indices().map(node).collect()
    }
}
