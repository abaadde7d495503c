//! Keeps a checkpoint of the working tree with every prompt, and offers to put the
//! files back when the conversation goes back: by a fork or by a move in the tree.
//!
//! Permissions: `git stash create` makes a commit of the changes without touching
//! them, `git rev-parse HEAD` names the commit where there are none, and
//! `git checkout COMMIT -- .` puts the files back. Files that git does not know are
//! neither kept nor removed.
//!
//! A checkpoint is made before a run, which waits for it: a notification would come too
//! late. The message that it belongs to has no entry yet then, so that is looked up later.

use std::cell::RefCell;

use serde::{Deserialize, Serialize};
use wharf_sdk::{
    AccessError, Answer, BeforeAgentStart, BeforeAgentStartEvent, Ctx, Entry, Error, Event,
    Extension, ForkDecision, Message, Notification, Permission, Registration, Result,
    SessionBeforeForkEvent, SessionBeforeTreeEvent, TreeDecision,
};

/// The kind of the session's entries that say which commit belongs to which message.
const CHECKPOINT: &str = "git-checkpoint";

#[derive(Serialize, Deserialize)]
struct Checkpoint {
    /// That of the person's message.
    entry: String,
    commit: String,
}

/// A commit whose message is not known yet.
struct Pending {
    /// Entries that the session had.
    entries: usize,
    commit: String,
}

#[derive(Default)]
struct GitCheckpoint {
    pending: RefCell<Option<Pending>>,
}

impl Extension for GitCheckpoint {
    fn register() -> Registration<Self> {
        Registration::new("git-checkpoint", env!("CARGO_PKG_VERSION"))
            .description("Puts files back when the conversation goes back.")
            .permission(Permission::exec(["git", "stash", "create"]))
            .permission(Permission::exec(["git", "rev-parse", "HEAD"]))
            .permission(Permission::exec(["git", "checkout", "*", "--", "."]))
            .on_before_agent_start(Self::before_run)
            .on_notification([Event::AgentEnd], Self::after_run)
            .on_session_before_fork(Self::before_fork)
            .on_session_before_tree(Self::before_tree)
    }
}

impl GitCheckpoint {
    async fn before_run(&self, ctx: &Ctx, _: BeforeAgentStartEvent) -> Result<BeforeAgentStart> {
        self.settle(ctx)?;
        let entries = ctx.session().entries()?.len();
        let commit = working_tree(ctx).await?;
        *self.pending.borrow_mut() = commit.map(|commit| Pending { entries, commit });
        Ok(BeforeAgentStart::default())
    }

    async fn after_run(&self, ctx: &Ctx, _: Notification) -> Result<()> {
        self.settle(ctx)
    }

    /// Keeps the last checkpoint with the first message that came after it.
    fn settle(&self, ctx: &Ctx) -> Result<()> {
        let Some(Pending { entries, commit }) = self.pending.take() else { return Ok(()) };
        let asked =
            ctx.session().entries()?.into_iter().skip(entries).find_map(|entry| match entry {
                Entry::Message { id, message: Message::User { .. }, .. } => Some(id),
                _ => None,
            });
        if let Some(entry) = asked {
            ctx.session().append_entry(CHECKPOINT, &Checkpoint { entry, commit })?;
        }
        Ok(())
    }

    async fn before_fork(&self, ctx: &Ctx, event: SessionBeforeForkEvent) -> Result<ForkDecision> {
        self.offer(ctx, &event.entry_id).await?;
        Ok(ForkDecision::Proceed)
    }

    async fn before_tree(&self, ctx: &Ctx, event: SessionBeforeTreeEvent) -> Result<TreeDecision> {
        self.offer(ctx, &event.target_id).await?;
        Ok(TreeDecision::proceed())
    }

    /// Asks whether the files are to be as they were at `entry`. Where nobody can be
    /// asked they stay as they are.
    async fn offer(&self, ctx: &Ctx, entry: &str) -> Result<()> {
        self.settle(ctx)?;
        let Some(commit) = checkpoint(ctx, entry)? else { return Ok(()) };
        let question = "The conversation goes back. Put the files back as well?";
        if ctx.ui().confirm("Restore files?", question).await != Answer::Answered(true) {
            return Ok(());
        }
        let restored = ctx.process().exec("git", ["checkout", commit.as_str(), "--", "."]).await?;
        restored.success()?;
        ctx.ui().notify(format!("Files are as they were at {}", short(&commit)));
        Ok(())
    }
}

/// A commit of the files as they are now; none outside a repository with a commit.
async fn working_tree(ctx: &Ctx) -> Result<Option<String>> {
    for arguments in [["stash", "create"], ["rev-parse", "HEAD"]] {
        let output = match ctx.process().exec("git", arguments).await {
            Ok(output) => output,
            Err(AccessError::Cancelled) => return Ok(None),
            Err(error) => return Err(Error::from(error)),
        };
        let commit = output.stdout_text().trim().to_owned();
        if output.is_success() && !commit.is_empty() {
            return Ok(Some(commit));
        }
    }
    Ok(None)
}

/// The commit that was made at an entry, the last one if there are several.
fn checkpoint(ctx: &Ctx, wanted: &str) -> Result<Option<String>> {
    let mut found = None;
    for entry in ctx.session().entries()? {
        if let Entry::Custom { custom_type, data: Some(data), .. } = entry
            && custom_type == CHECKPOINT
        {
            let checkpoint: Checkpoint = data.parse()?;
            if checkpoint.entry == wanted {
                found = Some(checkpoint.commit);
            }
        }
    }
    Ok(found)
}

fn short(commit: &str) -> &str {
    commit.get(..8).unwrap_or(commit)
}

wharf_sdk::export!(GitCheckpoint);
