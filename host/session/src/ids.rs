//! Finds entries by their id. Holds no id itself: four bytes an entry, and some room.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher as _;

use crate::nodes::Index;

#[derive(Debug, Default)]
pub(crate) struct Ids {
    table: HashTable<Index>,
    hashes: DefaultHashBuilder,
}

impl Ids {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { table: HashTable::with_capacity(capacity), hashes: DefaultHashBuilder::default() }
    }

    /// `id_of` tells the id of an entry, here and below.
    pub(crate) fn find<'a>(&self, id: &str, id_of: impl Fn(Index) -> &'a str) -> Option<Index> {
        self.table.find(self.hashes.hash_one(id), |index| id_of(*index) == id).copied()
    }

    /// Makes `id` lead to `index`. Tells where it led before.
    pub(crate) fn insert<'a>(
        &mut self,
        id: &str,
        index: Index,
        id_of: impl Fn(Index) -> &'a str,
    ) -> Option<Index> {
        let Self { table, hashes } = self;
        let hash = hashes.hash_one(id);
        if let Some(known) = table.find_mut(hash, |known| id_of(*known) == id) {
            return Some(std::mem::replace(known, index));
        }
        table.insert_unique(hash, index, |known| hashes.hash_one(id_of(*known)));
        None
    }
}
