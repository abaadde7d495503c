//! The tree of entries in memory, with its leaf. Knows nothing of files; every
//! walk is iterative, so a chain may be as long as memory allows.

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::entry::{Entry, EntryBase, EntryId, EntryKind, EntryType};
use crate::{Timestamp, UnknownEntry};

/// An entry's place among its session's entries.
pub(crate) type Index = usize;

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
}

#[derive(Debug)]
struct Node {
    entry: Arc<Entry>,
    parent: Parent,
}

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
    nodes: Vec<Node>,
    by_id: HashMap<EntryId, Index>,
    leaf: Option<Index>,
    labels: HashMap<EntryId, String>,
    name: Option<String>,
    message_count: usize,
    last_timestamp: Option<Timestamp>,
}

impl Tree {
    /// A tree of entries in file order, the last of which is the leaf. `by_id` has the
    /// place of every one of them.
    pub(crate) fn load(
        by_id: HashMap<EntryId, Index>,
        entries: impl ExactSizeIterator<Item = (Entry, Parent)>,
    ) -> Self {
        let nodes = Vec::with_capacity(entries.len());
        let mut tree = Self { nodes, by_id, ..Self::default() };
        for (entry, parent) in entries {
            tree.add_node(Arc::new(entry), parent);
        }
        tree
    }

    /// Adds an entry below the leaf, and makes it the leaf.
    pub(crate) fn push(&mut self, entry: Entry) {
        self.by_id.insert(entry.id().clone(), self.nodes.len());
        self.add_node(Arc::new(entry), self.leaf.map_or(Parent::Root, Parent::Entry));
    }

    fn add_node(&mut self, entry: Arc<Entry>, parent: Parent) {
        match entry.entry_type() {
            EntryType::Message => self.message_count += 1,
            EntryType::Label => self.apply_label(entry.kind()),
            EntryType::SessionInfo => {
                if let EntryKind::SessionInfo(info) = entry.kind() {
                    self.name = info
                        .name
                        .as_deref()
                        .map(str::trim)
                        .filter(|n| !n.is_empty())
                        .map(str::to_owned);
                }
            }
            EntryType::ModelChange
            | EntryType::ThinkingLevelChange
            | EntryType::Compaction
            | EntryType::BranchSummary
            | EntryType::Custom
            | EntryType::CustomMessage
            | EntryType::Unknown => {}
        }
        self.last_timestamp = self.last_timestamp.max(Some(entry.timestamp()));
        self.leaf = Some(self.nodes.len());
        self.nodes.push(Node { entry, parent });
    }

    fn apply_label(&mut self, kind: &EntryKind) {
        if let EntryKind::Label(change) = kind {
            let target = EntryId::new(&change.target_id);
            match &change.label {
                Some(label) => self.labels.insert(target, label.clone()),
                None => self.labels.remove(&target),
            };
        }
    }

    /// Identity for an entry to be added below the leaf.
    pub(crate) fn next_base(&self) -> EntryBase {
        let id = loop {
            // The first field of a version 4 UUID is wholly random.
            let id = EntryId::new(format!("{:08x}", Uuid::new_v4().as_fields().0));
            if !self.by_id.contains_key(&id) {
                break id;
            }
        };
        let timestamp = Timestamp::after(self.last_timestamp);
        EntryBase { id, parent_id: self.leaf_id().cloned(), timestamp }
    }

    pub(crate) fn find(&self, id: &str) -> Result<Index, UnknownEntry> {
        self.by_id.get(id).copied().ok_or_else(|| UnknownEntry(id.into()))
    }

    pub(crate) fn set_leaf(&mut self, id: Option<&str>) -> Result<(), UnknownEntry> {
        self.leaf = id.map(|id| self.find(id)).transpose()?;
        Ok(())
    }

    pub(crate) fn leaf_id(&self) -> Option<&EntryId> {
        self.leaf.map(|index| self.nodes[index].entry.id())
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Arc<Entry>> {
        self.by_id.get(id).map(|&index| &self.nodes[index].entry)
    }

    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = &Arc<Entry>> {
        self.nodes.iter().map(|node| &node.entry)
    }

    pub(crate) fn listing(&self) -> Vec<TreeNode> {
        self.nodes
            .iter()
            .map(|node| TreeNode {
                entry: Arc::clone(&node.entry),
                parent: match node.parent {
                    Parent::Entry(index) => Some(index),
                    Parent::Root | Parent::Severed(_) => None,
                },
                label: self.labels.get(node.entry.id()).cloned(),
            })
            .collect()
    }

    /// The entries from the root to `from`.
    pub(crate) fn branch(&self, from: Option<Index>) -> Vec<Arc<Entry>> {
        let mut branch = Vec::new();
        let mut next = from;
        while let Some(index) = next {
            let node = &self.nodes[index];
            branch.push(Arc::clone(&node.entry));
            next = node.parent.link();
        }
        branch.reverse();
        branch
    }

    pub(crate) fn leaf(&self) -> Option<Index> {
        self.leaf
    }

    pub(crate) fn label(&self, id: &str) -> Option<&str> {
        self.labels.get(id).map(String::as_str)
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn message_count(&self) -> usize {
        self.message_count
    }
}
