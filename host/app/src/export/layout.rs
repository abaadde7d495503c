//! The tree of entries as chains of segments. Knows nothing of HTML or of what is in
//! entries; nothing here recurses.
//!
//! A segment is a run of entries without a branch point in between. A chain is a run of
//! segments: the first one is the current branch, every other one starts at a branch
//! point and follows the youngest child to the end. So each entry is in exactly one
//! segment of one chain, and a long conversation without branches is one segment.

use std::ops::Range;
use std::sync::Arc;

use wharf_session::{Entry, Session, TreeNode};

#[derive(Debug)]
pub(super) struct Layout {
    pub(super) nodes: Vec<TreeNode>,
    /// Place of the current leaf.
    pub(super) leaf: Option<usize>,
    /// Places of entries, segment by segment.
    order: Vec<usize>,
    pub(super) segments: Vec<Segment>,
    /// In the order of the page: a chain comes after the one that it leaves.
    pub(super) chains: Vec<Chain>,
    /// The chains that start without a parent.
    pub(super) roots: Vec<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Segment {
    entries: Range<usize>,
    /// The segment that comes before it.
    pub(super) parent: Option<usize>,
    /// The next one in the same chain.
    pub(super) next: Option<usize>,
    /// Chains that leave after its last entry.
    pub(super) branches: Vec<usize>,
    /// On the way from the root to the current leaf.
    pub(super) current: bool,
}

#[derive(Debug)]
pub(super) struct Chain {
    pub(super) segments: Range<usize>,
    /// The segment that it leaves.
    pub(super) parent: Option<usize>,
}

/// Entries by the parent that they follow.
struct Children {
    /// Where the children of an entry start in `list`; one more than there are entries.
    starts: Vec<usize>,
    list: Vec<usize>,
    roots: Vec<usize>,
}

impl Children {
    fn new(parents: &[Option<usize>]) -> Self {
        let mut starts = vec![0; parents.len() + 1];
        for parent in parents.iter().flatten() {
            starts[parent + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut free = starts.clone();
        let mut list = vec![0; starts[parents.len()]];
        let mut roots = Vec::new();
        for (place, parent) in parents.iter().enumerate() {
            match parent {
                Some(parent) => {
                    list[free[*parent]] = place;
                    free[*parent] += 1;
                }
                None => roots.push(place),
            }
        }
        Self { starts, list, roots }
    }

    fn of(&self, place: usize) -> &[usize] {
        &self.list[self.starts[place]..self.starts[place + 1]]
    }
}

/// A chain to be laid out.
struct Start {
    first: usize,
    parent: Option<usize>,
}

impl Layout {
    pub(super) fn new(session: &Session) -> Self {
        let nodes = session.tree();
        let leaf_id = session.leaf_id();
        // Most often the last entry.
        let leaf = leaf_id.and_then(|id| nodes.iter().rposition(|node| *node.entry.id() == id));
        let parents: Vec<Option<usize>> =
            nodes.iter().enumerate().map(|(place, node)| link(node, place)).collect();

        let mut current = vec![false; nodes.len()];
        // Where the session is before its first entry, the latest branch is shown first.
        let mut next = leaf.or(nodes.len().checked_sub(1));
        while let Some(place) = next {
            if std::mem::replace(&mut current[place], true) {
                break;
            }
            next = parents[place];
        }
        let mut layout = Self {
            order: Vec::with_capacity(nodes.len()),
            nodes,
            leaf,
            segments: Vec::new(),
            chains: Vec::new(),
            roots: Vec::new(),
        };
        layout.fill(&Children::new(&parents), &current);
        layout
    }

    fn fill(&mut self, children: &Children, current: &[bool]) {
        let (first, others) = preferred(&children.roots, current);
        let starts = others.iter().copied().chain(first);
        let mut waiting: Vec<Start> = starts.map(|first| Start { first, parent: None }).collect();
        while let Some(start) = waiting.pop() {
            let chain = self.chains.len();
            match start.parent {
                Some(segment) => self.segments[segment].branches.push(chain),
                None => self.roots.push(chain),
            }
            let segments = self.segments.len();
            let parent = start.parent;
            let left = self.follow(start, children, current);
            self.chains.push(Chain { segments: segments..self.segments.len(), parent });
            // The first branch to be left is the first to be popped.
            waiting.extend(left.into_iter().rev());
        }
    }

    /// Lays out a chain; gives those that leave it.
    fn follow(&mut self, start: Start, children: &Children, current: &[bool]) -> Vec<Start> {
        let mut left = Vec::new();
        let mut parent = start.parent;
        let mut next = Some(start.first);
        let first_segment = self.segments.len();
        while let Some(first) = next {
            let segment = self.segments.len();
            if segment > first_segment {
                self.segments[segment - 1].next = Some(segment);
            }
            let begin = self.order.len();
            let mut last = first;
            self.order.push(first);
            while let [only] = children.of(last)
                && Some(last) != self.leaf
            {
                last = *only;
                self.order.push(last);
            }
            self.segments.push(Segment {
                entries: begin..self.order.len(),
                parent,
                current: current[first],
                ..Segment::default()
            });
            let (follows, others) = if Some(last) == self.leaf {
                (None, children.of(last).to_vec())
            } else {
                preferred(children.of(last), current)
            };
            left.extend(others.into_iter().map(|first| Start { first, parent: Some(segment) }));
            parent = Some(segment);
            next = follows;
        }
        left
    }

    /// Places of the entries of a segment.
    pub(super) fn places(&self, segment: usize) -> &[usize] {
        &self.order[self.segments[segment].entries.clone()]
    }

    pub(super) fn entry(&self, place: usize) -> &Arc<Entry> {
        &self.nodes[place].entry
    }

    /// The entry that a chain starts with.
    pub(super) fn head(&self, chain: usize) -> usize {
        self.places(self.chains[chain].segments.start)[0]
    }

    /// Whether the entry's parent is lost, and the entry before it stands in.
    pub(super) fn is_severed(&self, place: usize) -> bool {
        let node = &self.nodes[place];
        node.parent.is_none() && node.entry.parent_id().is_some()
    }
}

/// What an entry follows: as `Session::branch` has it, the entry before it where its
/// parent is lost.
fn link(node: &TreeNode, place: usize) -> Option<usize> {
    node.parent.or_else(|| node.entry.parent_id().and(place.checked_sub(1)))
}

/// The child to go on with, which is the current one or the youngest, and the others.
fn preferred(children: &[usize], current: &[bool]) -> (Option<usize>, Vec<usize>) {
    let chosen = children.iter().copied().find(|place| current[*place]);
    let chosen = chosen.or(children.last().copied());
    (chosen, children.iter().copied().filter(|place| Some(*place) != chosen).collect())
}

#[cfg(test)]
mod unit {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    /// Entries are letters, written with their parents: `b<a`, or `a` for a root.
    fn session(entries: &str, leaf: Option<&str>) -> Session {
        let mut text = String::from(
            r#"{"type":"session","version":3,"id":"s","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/x"}"#,
        );
        text.push('\n');
        for entry in entries.split_whitespace() {
            let (id, parent) = match entry.split_once('<') {
                Some((id, parent)) => (id, format!("\"{parent}\"")),
                None => (entry, "null".to_owned()),
            };
            text.push_str(&format!(
                r#"{{"type":"custom","id":"{id}","parentId":{parent},"timestamp":"2024-12-03T14:00:00.000Z","customType":"t"}}"#
            ));
            text.push('\n');
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        std::fs::write(&path, text).unwrap();
        let session = Session::open(&path).unwrap();
        if let Some(leaf) = leaf {
            session.set_leaf(Some(leaf).filter(|leaf| !leaf.is_empty())).unwrap();
        }
        session
    }

    /// Chains between `/`, segments between blanks, `*` after those of the current branch.
    fn drawn(layout: &Layout) -> String {
        let segment = |index: usize| {
            let mut text: String =
                layout.places(index).iter().map(|p| layout.entry(*p).id().as_str()).collect();
            if layout.segments[index].current {
                text.push('*');
            }
            text
        };
        let chains: Vec<String> = layout
            .chains
            .iter()
            .map(|chain| chain.segments.clone().map(segment).collect::<Vec<_>>().join(" "))
            .collect();
        chains.join(" / ")
    }

    #[test]
    fn chains() {
        for (entries, leaf, expect) in [
            ("", None, ""),
            ("a b<a c<b", None, "abc*"),
            ("a b<a c<b d<a e<d", None, "a* de* / bc"),
            ("a b<a c<b d<a e<d", Some("c"), "a* bc* / de"),
            ("a b<a c<b d<a e<d", Some("a"), "a* / bc / de"),
            ("a b<a c<b", Some("b"), "ab* / c"),
            ("a b<a c<a d<c e<c f<b g<b", None, "a* b* g* / c e / d / f"),
            ("a b<a c d<c", None, "cd* / ab"),
            ("a b<a c d<c", Some(""), "cd* / ab"),
            ("a b<a c<lost d<c", None, "abcd*"),
            ("a<b b", None, "b* / a"),
            ("a<b b", Some("a"), "ba*"),
            ("a<b b<a c<b", None, "abc*"),
        ] {
            assert_eq!(drawn(&Layout::new(&session(entries, leaf))), expect, "{entries} {leaf:?}");
        }
    }

    #[test]
    fn every_entry_is_somewhere_and_after_its_parent() {
        // A comb: every entry has a second child.
        let mut entries = String::from("e0");
        for n in 1..2000 {
            entries.push_str(&format!(" e{n}<e{}", (n - 1) / 2 * 2));
        }
        let layout = Layout::new(&session(&entries, None));
        let mut seen = vec![false; layout.nodes.len()];
        for (chain, range) in layout.chains.iter().map(|c| c.segments.clone()).enumerate() {
            assert!(layout.chains[chain].parent.is_none_or(|parent| parent < range.start));
            for segment in range {
                for place in layout.places(segment) {
                    assert!(!std::mem::replace(&mut seen[*place], true));
                    assert!(layout.nodes[*place].parent.is_none_or(|parent| seen[parent]));
                }
            }
        }
        assert!(seen.iter().all(|seen| *seen));
    }
}
