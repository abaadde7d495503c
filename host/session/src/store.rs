//! A session: its tree in memory and its file, kept in step.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use wharf_protocol::{AgentMessage, ThinkingLevel};

use crate::context::SessionContext;
use crate::directory::SessionDir;
use crate::entry::{
    BranchSummaryEntry, CompactionEntry, CustomEntry, CustomMessageEntry, Entry, EntryId,
    EntryKind, EntryType, LabelEntry, ModelChangeEntry, SessionInfoEntry, ThinkingLevelChangeEntry,
};
use crate::error::{OpenError, UnknownEntry, WriteError};
use crate::header::{SessionHeader, SessionOptions};
use crate::load::load;
use crate::tree::{Tree, TreeNode};
use crate::warning::Warnings;
use crate::writer::{Receipt, Target, Writer};

/// A handle; clones share the session. Every method but [`flush`](Self::flush) is
/// synchronous and quick, and may be called from any thread. Dropping the last handle
/// waits until everything is on the disk.
///
/// An append makes its entry the leaf and queues its line; the [`Receipt`] tells
/// when the line is in the file. Nobody has to wait for it.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    header: SessionHeader,
    file: Option<PathBuf>,
    warnings: Warnings,
    state: Mutex<State>,
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
        target: Target,
        lines: Vec<Arc<String>>,
    },
    Writing(Writer),
}

impl Session {
    /// A new session of `cwd`. Its file is created with its first message.
    pub fn create(dir: &SessionDir, cwd: &Path, options: SessionOptions) -> Self {
        let header = SessionHeader::new(cwd, options);
        let file = dir.folder(cwd).join(header.file_name());
        let target = Target::New(header.clone());
        let output = Output::Waiting { target, lines: Vec::new() };
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
        let output = Output::Waiting { target, lines: Vec::new() };
        let file = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        Ok(Self::assemble(loaded.header, file, loaded.tree, output, loaded.warnings))
    }

    /// Opens the session of `cwd` that was written last, or makes a new one.
    ///
    /// # Errors
    /// If the folder or that session can't be read.
    pub fn continue_recent(dir: &SessionDir, cwd: &Path) -> Result<Self, OpenError> {
        match dir.most_recent(cwd) {
            Ok(Some(path)) => Self::open(&path),
            Ok(None) => Ok(Self::create(dir, cwd, SessionOptions::default())),
            Err(source) => Err(OpenError::Read { path: dir.folder(cwd), source }),
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
        let state = Mutex::new(State { tree, output });
        Self { inner: Arc::new(Inner { header, file, warnings, state }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked left the tree whole: it is only ever added to.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn id(&self) -> &str {
        &self.inner.header.id
    }

    pub fn header(&self) -> &SessionHeader {
        &self.inner.header
    }

    pub fn cwd(&self) -> &Path {
        &self.inner.header.cwd
    }

    /// Where the session is stored, or will be with its first message; `None` in memory.
    pub fn file(&self) -> Option<&Path> {
        self.inner.file.as_deref()
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
        self.state().tree.leaf_id().cloned()
    }

    /// All entries in the order of the file.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.state().tree.entries().cloned().collect()
    }

    pub fn entry_count(&self) -> usize {
        self.state().tree.entries().len()
    }

    /// How many `message` entries there are, on all branches.
    pub fn message_count(&self) -> usize {
        self.state().tree.message_count()
    }

    pub fn entry(&self, id: &str) -> Option<Arc<Entry>> {
        self.state().tree.get(id).cloned()
    }

    /// All entries with their parents, in the order of the file.
    pub fn tree(&self) -> Vec<TreeNode> {
        self.state().tree.listing()
    }

    /// The entries from the root to the leaf. Where damage cut the branch off, it goes
    /// on with the entry before the damage.
    pub fn branch(&self) -> Vec<Arc<Entry>> {
        let state = self.state();
        state.tree.branch(state.tree.leaf())
    }

    /// The entries from the root to `id`.
    ///
    /// # Errors
    /// If there is no such entry.
    pub fn branch_to(&self, id: &str) -> Result<Vec<Arc<Entry>>, UnknownEntry> {
        let state = self.state();
        Ok(state.tree.branch(Some(state.tree.find(id)?)))
    }

    /// The label of an entry.
    pub fn label(&self, id: &str) -> Option<String> {
        self.state().tree.label(id).map(str::to_owned)
    }

    /// What the model sees of the current branch.
    pub fn build_context(&self) -> SessionContext {
        // Parses messages: not under the lock.
        SessionContext::of_branch(&self.branch())
    }

    /// What the model sees of the branch to `id`.
    ///
    /// # Errors
    /// If there is no such entry.
    pub fn build_context_to(&self, id: &str) -> Result<SessionContext, UnknownEntry> {
        Ok(SessionContext::of_branch(&self.branch_to(id)?))
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
        Ok(self.append_locked(&mut state, kind, body))
    }

    fn append(&self, kind: EntryKind) -> (EntryId, Receipt) {
        // Serialised before the lock is taken: a message may hold megabytes.
        let body = kind.to_body();
        self.append_locked(&mut self.state(), kind, body)
    }

    fn append_locked(
        &self,
        state: &mut State,
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
        state.tree.push(entry);
        // Still under the lock, so that the file has the order of the tree.
        let receipt = match &self.inner.file {
            Some(file) => state.output.write(file, line, entry_type),
            None => Receipt::known(Ok(())),
        };
        (id, receipt)
    }

    /// Resolves when everything appended so far is on the disk (fsync).
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

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.inner.header.id)
            .field("file", &self.inner.file)
            .finish_non_exhaustive()
    }
}

impl Output {
    fn write(&mut self, file: &Path, line: Arc<String>, entry_type: EntryType) -> Receipt {
        let (target, lines) = match self {
            Self::Nowhere => return Receipt::known(Ok(())),
            Self::Writing(writer) => return writer.append(vec![line]),
            Self::Waiting { target, lines } => (target, lines),
        };
        lines.push(line);
        // No file exists before the first message of a new session.
        if matches!(target, Target::New(_)) && entry_type != EntryType::Message {
            return Receipt::known(Ok(()));
        }
        match Writer::spawn(file, target.clone()) {
            // No thread to be had: the lines wait for the next append.
            Err(error) => Receipt::known(Err(WriteError::io(file, error))),
            Ok(writer) => {
                let receipt = writer.append(std::mem::take(lines));
                *self = Self::Writing(writer);
                receipt
            }
        }
    }
}
