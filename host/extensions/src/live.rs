//! How many actors and stores there are, so that a leak shows as a number.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The counters of one extension host.
#[derive(Debug, Default)]
pub(crate) struct Live {
    actors: Arc<AtomicUsize>,
    stores: Arc<AtomicUsize>,
}

impl Live {
    pub(crate) fn actor(&self) -> Alive {
        Alive::new(&self.actors)
    }

    pub(crate) fn store(&self) -> Alive {
        Alive::new(&self.stores)
    }

    /// Actors and stores.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.actors.load(SeqCst), self.stores.load(SeqCst))
    }
}

/// Counts as long as it lives.
#[derive(Debug)]
pub(crate) struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, SeqCst);
        Self(Arc::clone(counter))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
