//! Handlers of events about sessions.

use super::Registration;
use crate::handlers::{
    SessionBeforeCompact, SessionBeforeFork, SessionBeforeSwitch, SessionBeforeTree,
    SessionDirectory,
};
use crate::{
    CompactDecision, Ctx, Event, Extension, ForkDecision, Notification, Result,
    SessionBeforeCompactEvent, SessionBeforeForkEvent, SessionBeforeSwitchEvent,
    SessionBeforeTreeEvent, SessionDirectoryEvent, SessionForkNote, SessionTreeNote,
    SwitchDecision, TreeDecision,
};

impl<E: Extension> Registration<E> {
    /// Decides whether another session may become the current one.
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_session_before_switch<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, SessionBeforeSwitchEvent) -> Result<SwitchDecision> + 'static,
    {
        self.answer::<SessionBeforeSwitch, _, _, _>("session_before_switch", handler)
    }

    /// Decides whether a fork may be made, and whether it takes the conversation back.
    ///
    /// ```
    /// # use wharf_sdk::Ctx;
    /// use wharf_sdk::{Extension, ForkDecision, Registration, Result, SessionBeforeForkEvent};
    ///
    /// /// Forks are copies.
    /// #[derive(Default)]
    /// struct Copies;
    ///
    /// impl Extension for Copies {
    ///     fn register() -> Registration<Self> {
    ///         Registration::new("copies", "0.1.0").on_session_before_fork(Self::fork)
    ///     }
    /// }
    ///
    /// impl Copies {
    ///     async fn fork(&self, _ctx: &Ctx, _event: SessionBeforeForkEvent) -> Result<ForkDecision> {
    ///         Ok(ForkDecision::KeepConversation)
    ///     }
    /// }
    /// ```
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_session_before_fork<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, SessionBeforeForkEvent) -> Result<ForkDecision> + 'static,
    {
        self.answer::<SessionBeforeFork, _, _, _>("session_before_fork", handler)
    }

    /// Decides whether the leaf may move to another entry of the session's tree, and how
    /// the branch that is left is summarised and labelled.
    ///
    /// ```
    /// # use wharf_sdk::Ctx;
    /// use wharf_sdk::{
    ///     Extension, Registration, Result, SessionBeforeTreeEvent, TreeChanges, TreeDecision,
    /// };
    ///
    /// /// Every move has a label, and summaries are short.
    /// #[derive(Default)]
    /// struct Terse;
    ///
    /// impl Extension for Terse {
    ///     fn register() -> Registration<Self> {
    ///         Registration::new("terse", "0.1.0").on_session_before_tree(Self::tree)
    ///     }
    /// }
    ///
    /// impl Terse {
    ///     async fn tree(&self, _ctx: &Ctx, event: SessionBeforeTreeEvent) -> Result<TreeDecision> {
    ///         let mut changes = TreeChanges::none();
    ///         if event.custom_instructions.is_none() {
    ///             changes = changes.with_instructions("Three sentences at most.");
    ///         }
    ///         if event.label.is_none() {
    ///             changes = changes.with_label("moved");
    ///         }
    ///         Ok(changes.into())
    ///     }
    /// }
    /// ```
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_session_before_tree<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, SessionBeforeTreeEvent) -> Result<TreeDecision> + 'static,
    {
        self.answer::<SessionBeforeTree, _, _, _>("session_before_tree", handler)
    }

    /// Says which directory session files are kept in, where neither the command line
    /// nor settings do; none: no opinion. A relative path is relative to the working
    /// directory, and `~` at its beginning is the person's home. Not blank, at most
    /// 4 KiB. The last extension that names one wins.
    ///
    /// Start-up may wait for the answer: there may be no session and no agent yet, and
    /// nobody can be asked.
    ///
    /// ```
    /// # use wharf_sdk::Ctx;
    /// use wharf_sdk::{Extension, Registration, Result, SessionDirectoryEvent};
    ///
    /// /// Sessions of a scratch directory stay in it.
    /// #[derive(Default)]
    /// struct Scratch;
    ///
    /// impl Extension for Scratch {
    ///     fn register() -> Registration<Self> {
    ///         Registration::new("scratch", "0.1.0").on_session_directory(Self::directory)
    ///     }
    /// }
    ///
    /// impl Scratch {
    ///     async fn directory(
    ///         &self,
    ///         _ctx: &Ctx,
    ///         event: SessionDirectoryEvent,
    ///     ) -> Result<Option<String>> {
    ///         Ok(event.cwd.ends_with("/scratch").then(|| "sessions".to_owned()))
    ///     }
    /// }
    /// ```
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_session_directory<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, SessionDirectoryEvent) -> Result<Option<String>> + 'static,
    {
        self.answer::<SessionDirectory, _, _, _>("session_directory", handler)
    }

    /// Cancels a compaction, or writes its summary in the model's place.
    ///
    /// ```
    /// # use wharf_sdk::Ctx;
    /// use wharf_sdk::{
    ///     CompactDecision, CompactionCause, Extension, Registration, Result,
    ///     SessionBeforeCompactEvent,
    /// };
    ///
    /// /// Compacts only when it must.
    /// #[derive(Default)]
    /// struct Late;
    ///
    /// impl Extension for Late {
    ///     fn register() -> Registration<Self> {
    ///         Registration::new("late", "0.1.0").on_session_before_compact(Self::compact)
    ///     }
    /// }
    ///
    /// impl Late {
    ///     async fn compact(
    ///         &self,
    ///         _ctx: &Ctx,
    ///         event: SessionBeforeCompactEvent,
    ///     ) -> Result<CompactDecision> {
    ///         Ok(match event.cause {
    ///             CompactionCause::Threshold => CompactDecision::Cancel,
    ///             CompactionCause::Manual | CompactionCause::Overflow => CompactDecision::Proceed,
    ///         })
    ///     }
    /// }
    /// ```
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_session_before_compact<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, SessionBeforeCompactEvent) -> Result<CompactDecision> + 'static,
    {
        self.answer::<SessionBeforeCompact, _, _, _>("session_before_compact", handler)
    }

    /// Follows forks: one has become the current session. A follower like those of
    /// [`on_notification`](Self::on_notification).
    ///
    /// ```
    /// # use wharf_sdk::Ctx;
    /// use wharf_sdk::{Extension, Registration, Result, SessionForkNote};
    ///
    /// #[derive(Default)]
    /// struct TellsForks;
    ///
    /// impl Extension for TellsForks {
    ///     fn register() -> Registration<Self> {
    ///         Registration::new("tells-forks", "0.1.0").on_session_fork(Self::forked)
    ///     }
    /// }
    ///
    /// impl TellsForks {
    ///     async fn forked(&self, ctx: &Ctx, note: SessionForkNote) -> Result<()> {
    ///         let from = note.previous_session_file.unwrap_or_else(|| "memory".to_owned());
    ///         ctx.ui().notify(format!("Forked from {from}"));
    ///         Ok(())
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn on_session_fork<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, SessionForkNote) -> Result<()> + 'static,
    {
        let follower = async move |extension: &E, ctx: &Ctx, notification: Notification| {
            let Notification::SessionFork { note } = notification else { return Ok(()) };
            handler(extension, ctx, note.parse()?).await
        };
        self.on_notification([Event::SessionFork], follower)
    }

    /// Follows moves of the leaf to other entries of the session's tree. A follower like
    /// those of [`on_notification`](Self::on_notification).
    ///
    /// ```
    /// # use wharf_sdk::Ctx;
    /// use wharf_sdk::{Entry, Extension, Registration, Result, SessionTreeNote};
    ///
    /// #[derive(Default)]
    /// struct ShowsSummaries;
    ///
    /// impl Extension for ShowsSummaries {
    ///     fn register() -> Registration<Self> {
    ///         Registration::new("shows-summaries", "0.1.0").on_session_tree(Self::moved)
    ///     }
    /// }
    ///
    /// impl ShowsSummaries {
    ///     async fn moved(&self, ctx: &Ctx, note: SessionTreeNote) -> Result<()> {
    ///         if let Some(entry) = note.summary_entry
    ///             && let Entry::BranchSummary { summary, .. } = entry.parse()?
    ///         {
    ///             ctx.ui().notify(summary);
    ///         }
    ///         Ok(())
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn on_session_tree<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, SessionTreeNote) -> Result<()> + 'static,
    {
        let follower = async move |extension: &E, ctx: &Ctx, notification: Notification| {
            let Notification::SessionTree { note } = notification else { return Ok(()) };
            handler(extension, ctx, note.parse()?).await
        };
        self.on_notification([Event::SessionTree], follower)
    }
}
