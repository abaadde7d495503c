//! New sessions out of others: the whole tree, one branch, or a file made elsewhere.
//! What is copied stands in the new file as it stood in the old one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::directory::{SessionDir, create_private_dir};
use crate::entry::{Entry, EntryId, EntryKind, EntryType};
use crate::error::{ForkError, OpenError};
use crate::header::{SessionHeader, SessionOptions};
use crate::json::{Fields, quote};
use crate::listing::absolute;
use crate::listing::summary::header_text;
use crate::store::Session;
use crate::writer::{folder_of, write_session};

impl Session {
    /// A new session of `cwd` with the whole tree of the file `source`. It is on the disk
    /// when this returns; its warnings are those of the source, whose damaged parts are
    /// left out.
    ///
    /// # Errors
    /// If the source can't be opened or has no entries (nothing is created then), or the
    /// new file can't be written.
    pub fn fork_from(source: &Path, cwd: &Path, dir: &SessionDir) -> Result<Self, ForkError> {
        let original = open_with_entries(source)?;
        let header = SessionHeader::new(cwd, child_of(source));
        let line = header.to_line();
        write_and_open(dir, &header, line, &original)
    }

    /// A new session with the branch from the root to `leaf` (`None`: with nothing). Label
    /// entries on the way are left out; the labels that its entries have now, and the
    /// session's name, are appended. The file is on the disk when this returns if there is
    /// a message, else it comes with the first one. In memory if this session is.
    ///
    /// # Errors
    /// If there is no such entry, or the file can't be written.
    pub fn create_branched_session(
        &self,
        leaf: Option<&str>,
        dir: &SessionDir,
    ) -> Result<Self, ForkError> {
        let branch = leaf.map(|id| self.branch_to(id)).transpose()?.unwrap_or_default();
        let Some(file) = self.file() else {
            let session = Self::in_memory(self.cwd());
            self.copy_branch(&branch, &session);
            return Ok(session);
        };
        let options = child_of(file);
        if !branch.iter().any(|entry| entry.entry_type() == EntryType::Message) {
            let session = Self::create(dir, self.cwd(), options);
            self.copy_branch(&branch, &session);
            return Ok(session);
        }
        // Put together in memory, so that the file appears at once and whole.
        let draft = Self::in_memory(self.cwd());
        self.copy_branch(&branch, &draft);
        let header = SessionHeader::new(self.cwd(), options);
        let line = header.to_line();
        write_and_open(dir, &header, line, &draft)
    }

    /// Copies the session file `source`, made elsewhere, into the store as a session of
    /// `cwd`. It keeps its id and what else its header says.
    ///
    /// # Errors
    /// If the source can't be opened or has no entries, the store has a session with its
    /// id (nothing is created then), or the new file can't be written.
    pub fn import(source: &Path, cwd: &Path, dir: &SessionDir) -> Result<Self, ForkError> {
        let original = open_with_entries(source)?;
        let mut header = original.header().clone();
        cwd.clone_into(&mut header.cwd);
        if let Some(path) = dir.find_exact(&header.id)? {
            return Err(ForkError::Exists { id: header.id, path });
        }
        let text = header_text(source).map_err(|error| OpenError::read(source, error))?;
        let line = imported_header(&header, text.as_deref());
        // Ids of other programs may hold what is no part of a file name.
        header.id = header
            .id
            .chars()
            .take(MAX_ID_IN_NAME)
            .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' })
            .collect();
        write_and_open(dir, &header, line, &original)
    }

    /// Appends `branch`, a branch of this session, to the empty session `to`.
    fn copy_branch(&self, branch: &[Arc<Entry>], to: &Self) {
        let mut name = None;
        for (entry, json) in without_labels(branch) {
            to.adopt(entry, &json);
            if let EntryKind::SessionInfo(info) = entry.kind() {
                name = info.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
            }
        }
        let current = self.name();
        if current.as_deref() != name {
            drop(to.append_session_info(current.as_deref().unwrap_or_default()));
        }
        for entry in branch {
            if let Some(label) = self.label(entry.id().as_str()) {
                // Fails for a label on a label only: those entries are left out.
                drop(to.append_label(entry.id().as_str(), Some(&label)));
            }
        }
    }
}

/// A UUID has 36 characters.
const MAX_ID_IN_NAME: usize = 100;

fn child_of(file: &Path) -> SessionOptions {
    let parent_session = Some(absolute(file).to_string_lossy().into_owned());
    SessionOptions { parent_session, agent_type: None }
}

fn open_with_entries(source: &Path) -> Result<Session, ForkError> {
    let original = Session::open(source)?;
    if original.entry_count() == 0 {
        return Err(ForkError::Empty { path: source.to_owned() });
    }
    Ok(original)
}

/// The entries of a branch but for labels, with their lines: parents, and the first
/// entry that a compaction kept, are entries that are still there.
fn without_labels(branch: &[Arc<Entry>]) -> Vec<(&Entry, Cow<'_, str>)> {
    let mut next = None;
    // For each label the first kept entry after it.
    let mut successors: HashMap<&str, &EntryId> = HashMap::new();
    for entry in branch.iter().rev() {
        if entry.entry_type() != EntryType::Label {
            next = Some(entry.id());
        } else if let Some(next) = next {
            successors.insert(entry.id().as_str(), next);
        }
    }
    let mut parent: Option<&EntryId> = None;
    let mut kept = Vec::new();
    for entry in branch {
        if entry.entry_type() == EntryType::Label {
            continue;
        }
        let mut changes = Vec::new();
        if entry.parent_id() != parent {
            let id = parent.map_or("null".to_owned(), |id| quote(id.as_str()));
            changes.push((2, "parentId", id));
        }
        if let EntryKind::Compaction(compaction) = entry.kind()
            && let Some(id) = successors.get(compaction.first_kept_entry_id.as_str())
        {
            changes.push((5, "firstKeptEntryId", quote(id.as_str())));
        }
        kept.push((&**entry, changed(entry.json(), changes)));
        parent = Some(entry.id());
    }
    kept
}

fn changed<'a>(json: &'a str, changes: Vec<(usize, &'static str, String)>) -> Cow<'a, str> {
    if changes.is_empty() {
        return Cow::Borrowed(json);
    }
    let Some(mut fields) = Fields::parse(json) else { return Cow::Borrowed(json) };
    for (place, name, value) in changes {
        fields.set(place, name, value);
    }
    Cow::Owned(fields.to_text())
}

/// The header as it stands in the source, with what `header` says.
fn imported_header(
    header: &SessionHeader,
    text: Option<&str>,
) -> Result<String, serde_json::Error> {
    let own = header.to_line()?;
    let (Some(own_fields), Some(mut fields)) = (Fields::parse(&own), text.and_then(Fields::parse))
    else {
        return Ok(own);
    };
    for (place, name) in ["version", "id", "timestamp", "cwd"].into_iter().enumerate() {
        if let Some(value) = own_fields.get(name) {
            fields.set(place + 1, name, value.to_owned());
        }
    }
    Ok(format!("{}\n", fields.to_text()))
}

/// Writes the entries of `content` to the file that `header` names, below `header_line`.
fn write_and_open(
    dir: &SessionDir,
    header: &SessionHeader,
    header_line: serde_json::Result<String>,
    content: &Session,
) -> Result<Session, ForkError> {
    let path = dir.folder(&header.cwd).join(header.file_name());
    create_private_dir(folder_of(&path))
        .and_then(|()| write_session(&path, header_line, &content.entries()))
        .map_err(|source| ForkError::Write { path: path.clone(), source })?;
    Ok(Session::open(&path)?.with_warnings(content.warnings().clone()))
}
