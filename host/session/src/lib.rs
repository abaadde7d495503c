//! The session store: append-only JSONL files whose entries form a tree.
//!
//! Here are the entries, the tree with its leaf, the one writer thread per
//! session, the reading of older and of damaged files, and the context that a
//! branch gives a model. Not here: the agent, RPC shapes, providers, settings.
//!
//! Invariants:
//! - A file is only appended to, in whole lines. The one exception is a file that
//!   is no valid version 3 file: its first append replaces it and keeps a copy.
//! - Opening a file writes nothing.
//! - Whatever is not understood is kept as it stands in the file.

mod context;
mod directory;
mod entry;
mod error;
mod header;
mod json;
mod load;
mod migrate;
mod scan;
mod store;
mod timestamp;
mod tree;
mod warning;
mod writer;

pub use context::SessionContext;
pub use directory::SessionDir;
pub use entry::{
    BranchSummaryEntry, CompactionEntry, CustomEntry, CustomMessageEntry, Entry, EntryId,
    EntryKind, EntryType, LabelEntry, ModelChangeEntry, SessionInfoEntry, ThinkingLevelChangeEntry,
};
pub use error::{OpenError, UnknownEntry, WriteError};
pub use header::{FORMAT_VERSION, SessionHeader, SessionOptions};
pub use store::Session;
pub use timestamp::Timestamp;
pub use tree::TreeNode;
pub use warning::{Warning, WarningKind, Warnings};
pub use writer::Receipt;
