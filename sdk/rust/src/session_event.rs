//! Events about sessions that a handler answers, and the answers.

use crate::bindings::wharf::extension::types as wit;
use crate::entry;
use crate::{Json, Message, Result};

/// Why another session becomes the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchReason {
    /// A new session.
    New,
    /// A session that exists.
    Resume,
}

/// `session_before_switch`: another session is about to become the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionBeforeSwitchEvent {
    /// Why.
    pub reason: SwitchReason,
    /// The file that would be opened; none for a new session.
    pub target_session_file: Option<String>,
}

/// What a `session_before_switch` handler decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchDecision {
    /// The switch goes on.
    Proceed,
    /// The session stays.
    Cancel,
}

/// `session_before_fork`: a new session is about to be made of the branch up to a
/// message of the person, and to become the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionBeforeForkEvent {
    /// The entry of that message.
    pub entry_id: String,
}

/// What a `session_before_fork` handler decides. The first extension that cancels
/// wins; where nobody cancels, one that keeps the conversation is enough. An error
/// counts as `Proceed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkDecision {
    /// The fork ends before the message, which the person can write anew.
    Proceed,
    /// The fork gets the whole current branch: the conversation is not taken back.
    /// For an extension that puts something else back, such as files.
    KeepConversation,
    /// The session stays the current one; nothing is made.
    Cancel,
}

/// `session_before_tree`: the leaf is about to move to another entry of the session's
/// tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionBeforeTreeEvent {
    /// The entry that was asked for. The leaf goes to the entry before it when it is a
    /// message of the person or of an extension, which can be written anew.
    pub target_id: String,
    /// Where the leaf is; none: before the first entry.
    pub old_leaf_id: Option<String>,
    /// The last entry that is on the branch that is left and on the one that is taken
    /// up; none: they have none in common.
    pub common_ancestor_id: Option<String>,
    /// The messages after that entry on the branch that is left, a JSON array.
    pub abandoned: Json,
    /// Those messages are to be summarised, for the model to read on the branch that is
    /// taken up.
    pub summarize: bool,
    /// What the summary is to look at, as asked for or as the handler before left it.
    /// So are the two that follow.
    pub custom_instructions: Option<String>,
    /// The custom instructions stand in place of the host's own, not beside them.
    pub replace_instructions: bool,
    /// For the entry with the summary or, without one, for the target.
    pub label: Option<String>,
}

impl SessionBeforeTreeEvent {
    /// The messages on the branch that is left, in the order of the conversation.
    ///
    /// # Errors
    /// When a message does not have the shape of one, which only a fault of the host
    /// can cause.
    pub fn abandoned_messages(&self) -> Result<Vec<Message>> {
        entry::messages(&self.abandoned)
    }
}

/// What a `session_before_tree` handler decides. The first extension that cancels
/// wins; what one changes is what the next one sees; the first summary wins. An error
/// changes nothing.
///
/// ```
/// # use wharf_sdk::{Result, SessionBeforeTreeEvent, TreeChanges, TreeDecision, TreeSummary};
/// fn decide(event: SessionBeforeTreeEvent) -> Result<TreeDecision> {
///     let count = event.abandoned_messages()?.len();
///     if count == 0 {
///         return Ok(TreeDecision::proceed());
///     }
///     let summary = TreeSummary::new(format!("{count} messages, all about boats."));
///     Ok(TreeChanges::none().with_summary(summary).with_label("boats").into())
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeDecision {
    /// The leaf moves.
    Proceed(TreeChanges),
    /// The leaf stays.
    Cancel,
}

impl TreeDecision {
    /// The leaf moves as it was asked for.
    #[must_use]
    pub fn proceed() -> Self {
        Self::Proceed(TreeChanges::none())
    }
}

/// How a move differs from what the event says. The default changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeChanges {
    /// This is the summary; the model is not asked for one. Left out where the event's
    /// `summarize` is false: then nobody wants one.
    pub summary: Option<TreeSummary>,
    /// At most 16 MiB.
    pub custom_instructions: TextChange,
    /// None: as it is.
    pub replace_instructions: Option<bool>,
    /// At most 4 KiB.
    pub label: TextChange,
}

impl TreeChanges {
    /// No change.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Gives a summary in the model's place.
    #[must_use]
    pub fn with_summary(mut self, summary: TreeSummary) -> Self {
        self.summary = Some(summary);
        self
    }

    /// Has the model write the summary by these instructions beside the host's own.
    #[must_use]
    pub fn with_instructions(mut self, instructions: impl Into<String>) -> Self {
        self.custom_instructions = TextChange::Set(instructions.into());
        self.replace_instructions = Some(false);
        self
    }

    /// Has the model write the summary by these instructions and not by the host's own.
    #[must_use]
    pub fn with_only_instructions(mut self, instructions: impl Into<String>) -> Self {
        self.custom_instructions = TextChange::Set(instructions.into());
        self.replace_instructions = Some(true);
        self
    }

    /// Sets the label.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = TextChange::Set(label.into());
        self
    }
}

impl From<TreeChanges> for TreeDecision {
    fn from(changes: TreeChanges) -> Self {
        Self::Proceed(changes)
    }
}

/// What becomes of a text that may be absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TextChange {
    /// As it is.
    #[default]
    Keep,
    /// There is none.
    Clear,
    /// This; not blank.
    Set(String),
}

/// A summary of a branch by an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeSummary {
    /// What the model reads of the branch: not blank, at most 16 MiB.
    pub summary: String,
    /// Data that is kept with the summary and that the model never sees.
    pub details: Option<Json>,
}

impl TreeSummary {
    /// A summary without details.
    pub fn new(summary: impl Into<String>) -> Self {
        Self { summary: summary.into(), details: None }
    }

    /// Sets the details.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<Json>) -> Self {
        self.details = Some(details.into());
        self
    }
}

/// `session_directory`: Wharf starts, and neither the command line nor settings say
/// where session files are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionDirectoryEvent {
    /// The working directory, an absolute path.
    pub cwd: String,
}

/// What a compaction was begun by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionCause {
    /// A person or a program asked for it.
    Manual,
    /// The context is getting large.
    Threshold,
    /// The provider refused the context as too large.
    Overflow,
}

/// `session_before_compact`: messages of the session are about to be replaced, for
/// the model, by a summary of them. The session keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionBeforeCompactEvent {
    /// What it was begun by.
    pub cause: CompactionCause,
    /// The id of the first entry that stays as it is.
    pub first_kept_entry_id: String,
    /// Tokens of the context as it is now; an estimate.
    pub tokens_before: u64,
    /// The summary of the compaction before, which the new one carries on.
    pub previous_summary: Option<String>,
    /// The messages of the turns that are to be summarised, a JSON array.
    pub messages: Json,
    /// The beginning of a turn whose end stays, a JSON array; it comes after
    /// `messages`. Empty when whole turns stay.
    pub turn_prefix: Json,
    /// `{readFiles, modifiedFiles}`: paths that the summarised messages read and
    /// changed, those of earlier compactions among them.
    pub details: Json,
    /// What the person asks the summary to look at.
    pub instructions: Option<String>,
}

impl SessionBeforeCompactEvent {
    /// All messages that are to be summarised, in the order of the conversation.
    ///
    /// # Errors
    /// When a message does not have the shape of one, which only a fault of the host
    /// can cause.
    pub fn all_messages(&self) -> Result<Vec<Message>> {
        let mut messages = entry::messages(&self.messages)?;
        messages.append(&mut entry::messages(&self.turn_prefix)?);
        Ok(messages)
    }
}

/// What a `session_before_compact` handler decides. The first extension that cancels
/// or replaces wins; an error counts as `Proceed`.
///
/// ```
/// # use wharf_sdk::{CompactDecision, OwnSummary, Result, SessionBeforeCompactEvent};
/// fn decide(event: SessionBeforeCompactEvent) -> Result<CompactDecision> {
///     let count = event.all_messages()?.len();
///     if count == 0 {
///         return Ok(CompactDecision::Proceed);
///     }
///     let summary = OwnSummary::new(format!("{count} messages, all about boats."));
///     Ok(summary.with_details(event.details).into())
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactDecision {
    /// The model writes the summary.
    Proceed,
    /// The session stays as it is.
    Cancel,
    /// This is the summary; the model is not asked for one.
    Replace(OwnSummary),
}

/// A summary by an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSummary {
    /// What the model reads in place of the messages; not blank. What it does not
    /// carry on of the event's `previous_summary` is lost.
    pub summary: String,
    /// The first entry that stays, an id on the session's current branch; none: the
    /// one of the event.
    pub first_kept_entry_id: Option<String>,
    /// Data that is kept with the summary and that the model never sees.
    pub details: Option<Json>,
}

impl OwnSummary {
    /// A summary in place of the event's messages, without details.
    pub fn new(summary: impl Into<String>) -> Self {
        Self { summary: summary.into(), first_kept_entry_id: None, details: None }
    }

    /// Keeps the entries from this one on, in place of those that the event names.
    #[must_use]
    pub fn keeping_from(mut self, entry: impl Into<String>) -> Self {
        self.first_kept_entry_id = Some(entry.into());
        self
    }

    /// Sets the details.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<Json>) -> Self {
        self.details = Some(details.into());
        self
    }
}

impl From<OwnSummary> for CompactDecision {
    fn from(summary: OwnSummary) -> Self {
        Self::Replace(summary)
    }
}

// ---- conversions -----------------------------------------------------------

impl From<wit::SwitchReason> for SwitchReason {
    fn from(reason: wit::SwitchReason) -> Self {
        match reason {
            wit::SwitchReason::New => Self::New,
            wit::SwitchReason::Resume => Self::Resume,
        }
    }
}

impl From<wit::SessionBeforeSwitchEvent> for SessionBeforeSwitchEvent {
    fn from(event: wit::SessionBeforeSwitchEvent) -> Self {
        Self { reason: event.reason.into(), target_session_file: event.target_session_file }
    }
}

impl From<SwitchDecision> for wit::SwitchDecision {
    fn from(decision: SwitchDecision) -> Self {
        match decision {
            SwitchDecision::Proceed => Self::Proceed,
            SwitchDecision::Cancel => Self::Cancel,
        }
    }
}

impl From<wit::SessionBeforeForkEvent> for SessionBeforeForkEvent {
    fn from(event: wit::SessionBeforeForkEvent) -> Self {
        Self { entry_id: event.entry_id }
    }
}

impl From<ForkDecision> for wit::ForkDecision {
    fn from(decision: ForkDecision) -> Self {
        match decision {
            ForkDecision::Proceed => Self::Proceed,
            ForkDecision::KeepConversation => Self::KeepConversation,
            ForkDecision::Cancel => Self::Cancel,
        }
    }
}

impl From<wit::SessionBeforeTreeEvent> for SessionBeforeTreeEvent {
    fn from(event: wit::SessionBeforeTreeEvent) -> Self {
        Self {
            target_id: event.target_id,
            old_leaf_id: event.old_leaf_id,
            common_ancestor_id: event.common_ancestor_id,
            abandoned: Json::from_host(event.abandoned),
            summarize: event.summarize,
            custom_instructions: event.custom_instructions,
            replace_instructions: event.replace_instructions,
            label: event.label,
        }
    }
}

impl From<TreeDecision> for wit::TreeDecision {
    fn from(decision: TreeDecision) -> Self {
        match decision {
            TreeDecision::Proceed(changes) => Self::Proceed(changes.into()),
            TreeDecision::Cancel => Self::Cancel,
        }
    }
}

impl From<TreeChanges> for wit::TreeChanges {
    fn from(changes: TreeChanges) -> Self {
        Self {
            summary: changes.summary.map(|own| wit::TreeSummary {
                summary: own.summary,
                details: own.details.map(Json::into_string),
            }),
            custom_instructions: changes.custom_instructions.into(),
            replace_instructions: changes.replace_instructions,
            label: changes.label.into(),
        }
    }
}

impl From<TextChange> for wit::TextChange {
    fn from(change: TextChange) -> Self {
        match change {
            TextChange::Keep => Self::Keep,
            TextChange::Clear => Self::Clear,
            TextChange::Set(text) => Self::Set(text),
        }
    }
}

impl From<wit::SessionDirectoryEvent> for SessionDirectoryEvent {
    fn from(event: wit::SessionDirectoryEvent) -> Self {
        Self { cwd: event.cwd }
    }
}

impl From<wit::SessionBeforeCompactEvent> for SessionBeforeCompactEvent {
    fn from(event: wit::SessionBeforeCompactEvent) -> Self {
        Self {
            cause: match event.cause {
                wit::CompactionCause::Manual => CompactionCause::Manual,
                wit::CompactionCause::Threshold => CompactionCause::Threshold,
                wit::CompactionCause::Overflow => CompactionCause::Overflow,
            },
            first_kept_entry_id: event.first_kept_entry_id,
            tokens_before: event.tokens_before,
            previous_summary: event.previous_summary,
            messages: Json::from_host(event.messages),
            turn_prefix: Json::from_host(event.turn_prefix),
            details: Json::from_host(event.details),
            instructions: event.instructions,
        }
    }
}

impl From<CompactDecision> for wit::CompactDecision {
    fn from(decision: CompactDecision) -> Self {
        match decision {
            CompactDecision::Proceed => Self::Proceed,
            CompactDecision::Cancel => Self::Cancel,
            CompactDecision::Replace(own) => Self::Replace(wit::OwnSummary {
                summary: own.summary,
                first_kept_entry_id: own.first_kept_entry_id,
                details: own.details.map(Json::into_string),
            }),
        }
    }
}
