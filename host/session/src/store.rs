//! A session: its tree in memory and its file, kept in step.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use wharf_protocol::{AgentMessage, ThinkingLevel};

use crate::context::SessionContext;
use crate::directory::SessionDir;
use crate::durability::Durability;
use crate::entry::{
    BranchSummaryEntry, CompactionEntry, CustomEntry, CustomMessageEntry, Entry, EntryBase,
    EntryId, EntryKind, EntryType, Json, LabelEntry, ModelChangeEntry, SessionInfoEntry, Slice,
    ThinkingLevelChangeEntry,
};
use crate::error::{LockError, OpenError, UnknownEntry, WriteError};
use crate::header::{SessionHeader, SessionOptions};
use crate::load::load;
use crate::nodes::{Index, Nodes};
use crate::notice::Notice;
use crate::scan::Envelope;
use crate::shared::Shared;
use crate::tree::{Tree, TreeNode};
use crate::tree_json::tree_json;
use crate::warning::Warnings;
use crate::writer::{Lines, Receipt, Room, Snapshot, Start, Target, Writer};

/// A handle; clones share the session. Every method but [`flush`](Self::flush) is
/// synchronous and quick, and may be called from any thread. Dropping the last handle
/// waits until everything is on the disk.
///
/// An append makes its entry the leaf and queues its line; the [`Receipt`] tells
/// when the line is in the file. Nobody has to wait for it.
///
/// One process at a time writes a session file. A session takes the file's lock with its
/// first append, or with [`claim`](Self::claim), and keeps it until its last handle goes.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    warnings: Warnings,
    /// The writer thread has a weak one.
    state: Arc<Mutex<State>>,
}

/// Ends the writer while the tree, which it may need for its last lines, is still there.
impl Drop for Inner {
    fn drop(&mut self) {
        let output = std::mem::replace(&mut lock(&self.state).output, Output::Nowhere);
        drop(output);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Whoever panicked left the tree whole: it is only ever added to.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

struct State {
    tree: Tree,
    output: Output,
}

/// Where lines go.
enum Output {
    Nowhere,
    /// No file is touched yet: `lines` wait for the first message.
    Waiting {
        start: Start,
        lines: Vec<Arc<String>>,
    },
    Writing(Writer),
}

impl Session {
    /// A new session of `cwd`. Its file is created with its first message.
    pub fn create(dir: &SessionDir, cwd: &Path, options: SessionOptions) -> Self {
        let header = SessionHeader::new(cwd, options);
        let file = dir.folder(cwd).join(header.file_name());
        let start = Start { target: Target::New(header.clone()), stamp: None };
        let output = Output::Waiting { start, lines: Vec::new() };
        Self::assemble(header, Some(file), Tree::default(), output, Warnings::default())
    }

    /// Opens a session file of any version; writes nothing. What was wrong with the file
    /// is in [`warnings`](Self::warnings). The last entry is the leaf.
    ///
    /// # Errors
    /// If there is no such file, it can't be read, is newer than this program, or is
    /// no session file.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let loaded = load(path)?;
        let target =
            loaded.replacement.map_or(Target::Existing(loaded.torn_tail), Target::Replaced);
        let start = Start { target, stamp: Some(loaded.stamp) };
        let output = Output::Waiting { start, lines: Vec::new() };
        let file = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        Ok(Self::assemble(loaded.header, file, loaded.tree, output, loaded.warnings))
    }

    /// As [`open`](Self::open), for a session that is to be written: takes the file's lock,
    /// and what is read is the file as it is under that lock.
    ///
    /// # Errors
    /// Those of [`open`](Self::open); if another live process writes the file.
    pub fn open_to_write(path: &Path) -> Result<Self, OpenError> {
        /// Of a file that somebody without a lock changes all the time.
        const ATTEMPTS: usize = 8;
        // Read first: nothing is made beside a file that is no session.
        let mut session = Self::open(path)?;
        for _ in 1..ATTEMPTS {
            match session.claim() {
                // The old handle keeps nothing: the file is read under the lock.
                Err(LockError::Changed { .. }) => session = Self::open(path)?,
                result => return Ok(result.map(|()| session)?),
            }
        }
        session.claim()?;
        Ok(session)
    }

    /// Takes the lock of the session's file now, not with the first append; without a file
    /// it does nothing. Waits a fraction of a second at most.
    ///
    /// # Errors
    /// If another live process has it, or the file is no longer what was read: open it
    /// again then.
    pub fn claim(&self) -> Result<(), LockError> {
        let stamp = match &self.state().output {
            Output::Nowhere => return Ok(()),
            Output::Waiting { start, .. } => match (&start.target, &start.stamp) {
                (Target::New(_), _) => return Ok(()),
                (_, stamp) => stamp.clone(),
            },
            // The writer looks after the file from its first line on.
            Output::Writing(_) => None,
        };
        let shared = &self.inner.shared;
        shared.hold_lock()?;
        if stamp.is_some_and(|stamp| !stamp.is_whole_of(shared.path())) {
            shared.release_lock();
            return Err(LockError::Changed { path: shared.path().to_owned() });
        }
        Ok(())
    }

    /// Lets others write the file, for a session that is done with while handles of it may
    /// live on: [`flush`](Self::flush) it first. Another append takes the lock again.
    pub fn release(&self) {
        self.inner.shared.release_lock();
    }

    /// The pid of the live process that writes the session file at `path`, if there is one;
    /// it may be this one.
    pub fn owner(path: &Path) -> Option<u32> {
        crate::lock::owner(path)
    }

    /// Opens the session of `cwd` that was written last, to write it, or makes a new one.
    ///
    /// # Errors
    /// If the folder or that session can't be read, or another live process writes it.
    pub fn continue_recent(dir: &SessionDir, cwd: &Path) -> Result<Self, OpenError> {
        match dir.most_recent(cwd) {
            Ok(Some(path)) => Self::open_to_write(&path),
            Ok(None) => Ok(Self::create(dir, cwd, SessionOptions::default())),
            Err(source) => Err(OpenError::Read { path: dir.folder(cwd), source }),
        }
    }

    /// Keeps the session in another directory. Only as long as it has no file: false, and
    /// nothing happens, where it has one already or is in memory.
    pub fn relocate(&self, dir: &SessionDir) -> bool {
        let state = self.state();
        match &state.output {
            Output::Waiting { start, .. } if matches!(start.target, Target::New(_)) => {
                let header = self.header();
                let path = dir.folder(&header.cwd).join(header.file_name());
                self.inner.shared.relocate(path, header.clone());
                true
            }
            _ => false,
        }
    }

    /// A session without a file.
    pub fn in_memory(cwd: &Path) -> Self {
        let header = SessionHeader::new(cwd, SessionOptions::default());
        Self::assemble(header, None, Tree::default(), Output::Nowhere, Warnings::default())
    }

    fn assemble(
        header: SessionHeader,
        file: Option<PathBuf>,
        tree: Tree,
        output: Output,
        warnings: Warnings,
    ) -> Self {
        let state = Arc::new(Mutex::new(State { tree, output }));
        let shared = Arc::new(Shared::new(file, header));
        Self { inner: Arc::new(Inner { shared, warnings, state }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.inner.state)
    }

    pub fn id(&self) -> &str {
        &self.header().id
    }

    pub fn header(&self) -> &SessionHeader {
        &self.inner.shared.place().header
    }

    pub fn cwd(&self) -> &Path {
        &self.header().cwd
    }

    /// Where the session is stored, or will be with its first message; `None` in memory.
    ///
    /// It may change with any append, see [`Notice::Moved`]; with it may the
    /// [`id`](Self::id), if the old file still has that one.
    pub fn file(&self) -> Option<&Path> {
        self.inner.shared.place().path.as_deref()
    }

    /// What happened to the file since this was called last. What an append brought about is
    /// here when its receipt resolves.
    pub fn take_notices(&self) -> Vec<Notice> {
        self.inner.shared.take_notices()
    }

    /// What was wrong with the file when it was opened.
    pub fn warnings(&self) -> &Warnings {
        &self.inner.warnings
    }

    /// The display name, from the latest `session_info` entry.
    pub fn name(&self) -> Option<String> {
        self.state().tree.name().map(str::to_owned)
    }

    pub fn leaf_id(&self) -> Option<EntryId> {
        self.state().tree.leaf_id()
    }

    /// The current entry; none before the first one.
    pub fn leaf_entry(&self) -> Option<Arc<Entry>> {
        let state = self.state();
        let leaf = state.tree.leaf_id()?;
        state.tree.get(leaf.as_str())
    }

    /// All entries in the order of the file.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        let nodes = self.state().tree.nodes();
        nodes.indices().map(|index| nodes.entry(index)).collect()
    }

    pub fn entry_count(&self) -> usize {
        self.state().tree.entry_count()
    }

    /// How many `message` entries there are, on all branches.
    pub fn message_count(&self) -> usize {
        self.state().tree.message_count()
    }

    pub fn entry(&self, id: &str) -> Option<Arc<Entry>> {
        self.state().tree.get(id)
    }

    /// All entries with their parents, in the order of the file.
    pub fn tree(&self) -> Vec<TreeNode> {
        let snapshot = self.state().tree.snapshot();
        snapshot.listing()
    }

    /// The tree as `get_tree` answers with it: `{"roots": [...], "leafId": ...}`, the
    /// nodes nested. As deep as the longest branch, so it wants a reader that can do that.
    pub fn tree_json(&self) -> String {
        let snapshot = self.state().tree.snapshot();
        tree_json(&snapshot)
    }

    /// The entries right below `parent` (`None`: the roots, orphans too), oldest first.
    pub fn children(&self, parent: Option<&str>) -> Vec<Arc<Entry>> {
        self.state().tree.children(parent)
    }

    /// The entries from the root to the leaf. Where damage cut the branch off, it goes
    /// on with the entry before the damage.
    pub fn branch(&self) -> Vec<Arc<Entry>> {
        let (nodes, leaf) = self.nodes_and_leaf();
        entries_of(&nodes, leaf)
    }

    /// The entries from the root to `id`.
    ///
    /// # Errors
    /// If there is no such entry.
    pub fn branch_to(&self, id: &str) -> Result<Vec<Arc<Entry>>, UnknownEntry> {
        let (nodes, place) = self.nodes_and_place(id)?;
        Ok(entries_of(&nodes, Some(place)))
    }

    /// The label of an entry.
    pub fn label(&self, id: &str) -> Option<String> {
        self.state().tree.label(id).map(str::to_owned)
    }

    /// What the model sees of the current branch.
    pub fn build_context(&self) -> SessionContext {
        let (nodes, leaf) = self.nodes_and_leaf();
        SessionContext::of_branch(&nodes, &nodes.branch(leaf))
    }

    /// What the model sees of the branch to `id`.
    ///
    /// # Errors
    /// If there is no such entry.
    pub fn build_context_to(&self, id: &str) -> Result<SessionContext, UnknownEntry> {
        let (nodes, place) = self.nodes_and_place(id)?;
        Ok(SessionContext::of_branch(&nodes, &nodes.branch(Some(place))))
    }

    // Walks go over a snapshot, so that nobody who appends has to wait for them.

    fn nodes_and_leaf(&self) -> (Nodes, Option<Index>) {
        let state = self.state();
        (state.tree.nodes(), state.tree.leaf())
    }

    fn nodes_and_place(&self, id: &str) -> Result<(Nodes, Index), UnknownEntry> {
        let state = self.state();
        let place = state.tree.find(id)?;
        Ok((state.tree.nodes(), place))
    }

    /// Moves the leaf to an earlier entry; `None`: before the first. Files don't tell
    /// where the leaf is: what is appended next does.
    ///
    /// # Errors
    /// If there is no such entry.
    pub fn set_leaf(&self, id: Option<&str>) -> Result<(), UnknownEntry> {
        self.state().tree.set_leaf(id)
    }

    pub fn append_message(&self, message: Arc<AgentMessage>) -> (EntryId, Receipt) {
        self.append(EntryKind::Message(message))
    }

    pub fn append_model_change(&self, provider: &str, model_id: &str) -> (EntryId, Receipt) {
        let (provider, model_id) = (provider.to_owned(), model_id.to_owned());
        self.append(EntryKind::ModelChange(ModelChangeEntry { provider, model_id }))
    }

    pub fn append_thinking_level_change(&self, level: ThinkingLevel) -> (EntryId, Receipt) {
        let change = ThinkingLevelChangeEntry { thinking_level: level };
        self.append(EntryKind::ThinkingLevelChange(change))
    }

    pub fn append_compaction(&self, compaction: CompactionEntry) -> (EntryId, Receipt) {
        self.append(EntryKind::Compaction(compaction))
    }

    /// An extension's state, which no model sees.
    pub fn append_custom(&self, custom_type: &str, data: Option<Value>) -> (EntryId, Receipt) {
        let custom_type = custom_type.to_owned();
        self.append(EntryKind::Custom(CustomEntry { custom_type, data }))
    }

    /// An extension's message, which models see.
    pub fn append_custom_message(&self, message: CustomMessageEntry) -> (EntryId, Receipt) {
        self.append(EntryKind::CustomMessage(message))
    }

    /// Sets the display name; an empty one clears it.
    pub fn append_session_info(&self, name: &str) -> (EntryId, Receipt) {
        self.append(EntryKind::SessionInfo(SessionInfoEntry { name: Some(name.to_owned()) }))
    }

    /// Sets or clears the label of an entry.
    ///
    /// # Errors
    /// If there is no such entry.
    pub fn append_label(
        &self,
        target: &str,
        label: Option<&str>,
    ) -> Result<(EntryId, Receipt), UnknownEntry> {
        // Entries never go, so the target is still there below.
        self.state().tree.find(target)?;
        let (target_id, label) = (target.to_owned(), label.map(str::to_owned));
        Ok(self.append(EntryKind::Label(LabelEntry { target_id, label })))
    }

    /// Moves the leaf to `parent` (`None`: before the first entry) and appends the summary
    /// of the branch that was left.
    ///
    /// # Errors
    /// If there is no such entry.
    pub fn append_branch_summary(
        &self,
        parent: Option<&str>,
        summary: BranchSummaryEntry,
    ) -> Result<(EntryId, Receipt), UnknownEntry> {
        let kind = EntryKind::BranchSummary(summary);
        let body = kind.to_body();
        let mut state = self.state();
        state.tree.set_leaf(parent)?;
        Ok(self.append_locked(state, kind, body))
    }

    fn append(&self, kind: EntryKind) -> (EntryId, Receipt) {
        // Serialised before the lock is taken: a message may hold megabytes.
        let body = kind.to_body();
        self.append_locked(self.state(), kind, body)
    }

    fn append_locked(
        &self,
        mut state: MutexGuard<'_, State>,
        kind: EntryKind,
        body: Result<String, serde_json::Error>,
    ) -> (EntryId, Receipt) {
        let base = state.tree.next_base();
        let id = base.id.clone();
        let body = match body {
            Ok(body) => body,
            Err(error) => return (id, Receipt::known(Err(WriteError::Encode(Arc::new(error))))),
        };
        let (entry, line) = base.into_entry(kind, &body);
        let entry_type = entry.entry_type();
        let place = state.tree.entry_count();
        state.tree.push(entry);
        // Still under the lock, so that the file has the order of the tree.
        let line = NewLine { line, entry_type, place };
        let receipt = state.output.write(&self.inner, line);
        let room = state.output.room();
        // The writer thread may need the lock to go on.
        drop(state);
        if let Some(room) = room {
            room.wait();
        }
        (id, receipt)
    }

    /// What a loss of power may cost; see [`Durability`].
    pub fn set_durability(&self, durability: Durability) {
        self.inner.shared.set_durability(durability);
    }

    /// Asks for everything appended so far to be forced onto the disk (fsync), for the end
    /// of a turn. Nobody waits for it, not even the next append; an error comes with the
    /// next receipt or [`flush`](Self::flush).
    pub fn sync(&self) {
        if let Output::Writing(writer) = &self.state().output {
            writer.sync();
        }
    }

    /// Adds an entry of another session below the leaf; `json` is its line, and names the
    /// leaf as its parent.
    pub(crate) fn adopt(&self, entry: &Entry, json: &str) {
        let mut state = self.state();
        let base = EntryBase {
            id: entry.id().clone(),
            parent_id: state.tree.leaf_id(),
            timestamp: entry.timestamp(),
        };
        let line = Arc::new(format!("{json}\n"));
        let envelope = Envelope::parse(json);
        let json = Json {
            text: Slice::new(&line, 0, json.len()),
            has_lone_surrogates: envelope.as_ref().is_some_and(|e| e.has_lone_surrogates),
            message: envelope.and_then(|envelope| envelope.message),
        };
        let place = state.tree.entry_count();
        state.tree.push(base.into_loaded(entry.entry_type(), json));
        let line = NewLine { line, entry_type: entry.entry_type(), place };
        drop(state.output.write(&self.inner, line));
    }

    /// What was wrong with the file that this session was copied from. Call it before
    /// the handle is cloned.
    pub(crate) fn with_warnings(mut self, warnings: Warnings) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.warnings = warnings;
        }
        self
    }

    /// Resolves when everything appended so far is on the disk (fsync), with
    /// [`Durability::Never`] when it is in the file.
    ///
    /// # Errors
    /// If something couldn't be written. It is kept, and tried again with the next append
    /// or flush.
    pub async fn flush(&self) -> Result<(), WriteError> {
        let receipt = match &self.state().output {
            Output::Writing(writer) => writer.flush(),
            Output::Nowhere | Output::Waiting { .. } => Receipt::known(Ok(())),
        };
        receipt.await
    }
}

fn entries_of(nodes: &Nodes, from: Option<Index>) -> Vec<Arc<Entry>> {
    nodes.branch(from).into_iter().map(|index| nodes.entry(index)).collect()
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id())
            .field("file", &self.file())
            .finish_non_exhaustive()
    }
}

struct NewLine {
    line: Arc<String>,
    entry_type: EntryType,
    /// Of the entry, among all of the session.
    place: usize,
}

impl Output {
    fn write(&mut self, inner: &Inner, new: NewLine) -> Receipt {
        let NewLine { line, entry_type, place } = new;
        let (start, lines) = match self {
            Self::Nowhere => return Receipt::known(Ok(())),
            Self::Writing(writer) => {
                return writer.append(Lines { first: place, lines: vec![line] });
            }
            Self::Waiting { start, lines } => (start, lines),
        };
        lines.push(line);
        // No file exists before the first message of a new session.
        if matches!(start.target, Target::New(_)) && entry_type != EntryType::Message {
            return Receipt::known(Ok(()));
        }
        let first = place + 1 - lines.len();
        match Writer::spawn(&inner.shared, start.clone(), first, snapshot(&inner.state)) {
            // No thread to be had: the lines wait for the next append.
            Err(error) => Receipt::known(Err(WriteError::io(inner.shared.path(), error))),
            Ok(writer) => {
                let receipt = writer.append(Lines { first, lines: std::mem::take(lines) });
                *self = Self::Writing(writer);
                receipt
            }
        }
    }

    fn room(&self) -> Option<Arc<Room>> {
        match self {
            Self::Writing(writer) => Some(writer.room()),
            Self::Nowhere | Self::Waiting { .. } => None,
        }
    }
}

fn snapshot(state: &Arc<Mutex<State>>) -> Snapshot {
    let state = Arc::downgrade(state);
    Box::new(move || Some(lock(&*state.upgrade()?).tree.entries().collect()))
}
