//! The session store: append-only JSONL files whose entries form a tree.
//!
//! Here are the entries, the tree with its leaf, the one writer thread per
//! session, the reading of older and of damaged files, the context that a branch
//! gives a model, and the store as a whole: listing, finding, forking, deleting, cost.
//! Not here: the agent, RPC shapes, providers, settings.
//!
//! Invariants:
//! - A file is only appended to, in whole lines. The one exception is a file that
//!   is no valid version 3 file: its first append replaces it and keeps a copy.
//! - Opening a file writes nothing.
//! - One process at a time writes a file, and only while the file is the one that has
//!   the session's entries: a file that was deleted is written again, one that was
//!   replaced or cut is left alone, and the session goes on in a new one.
//! - Whatever is not understood is kept as it stands in the file.
//! - Memory: an open file takes its size and at most 48 bytes an entry. Its text stays in
//!   memory on purpose: who truncates the file takes nothing from the session. What damage
//!   makes to be repaired is held once more. What was appended is held as it was given.

mod context;
mod cursor;
mod daily_cost;
mod delete;
mod directory;
mod durability;
mod entry;
mod error;
mod find;
mod fork;
mod header;
mod ids;
mod json;
mod listing;
mod load;
mod lock;
mod migrate;
mod nodes;
mod notice;
mod parallel;
mod preview;
mod regular;
mod scan;
mod shared;
mod store;
mod timestamp;
mod tree;
mod tree_json;
mod warning;
mod writer;

pub use context::{ContextMessage, SessionContext};
pub use daily_cost::{CostToday, DailyCost};
pub use delete::{DeleteMethod, delete};
pub use directory::SessionDir;
pub use durability::Durability;
pub use entry::{
    BranchSummaryEntry, CompactionEntry, CustomEntry, CustomMessageEntry, Entry, EntryId,
    EntryKind, EntryType, LabelEntry, MessageRole, ModelChangeEntry, SessionInfoEntry,
    ThinkingLevelChangeEntry,
};
pub use error::{
    DeleteError, FindError, ForkError, ListError, LockError, OpenError, UnknownEntry, WriteError,
};
pub use header::{FORMAT_VERSION, SessionHeader, SessionOptions};
pub use json::Verbatim;
pub use listing::{Listing, Progress, SessionIndex, SessionInfo};
pub use notice::Notice;
pub use store::Session;
pub use timestamp::Timestamp;
pub use tree::TreeNode;
pub use warning::{Warning, WarningKind, Warnings};
pub use writer::Receipt;
