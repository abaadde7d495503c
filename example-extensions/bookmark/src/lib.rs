//! Bookmarks in the session's tree: `/bookmark NAME` labels where the conversation
//! stands, `/bookmarks` lists them, `/goto NAME` moves back to one.
//!
//! No permissions: labels are part of the session, where every front end sees them.

use wharf_sdk::{
    CommandCtx, CommandSpec, Completion, Ctx, Entry, Error, Extension, Navigate, Navigated,
    Registration, Result,
};

#[derive(Default)]
struct Bookmark;

impl Extension for Bookmark {
    fn register() -> Registration<Self> {
        Registration::new("bookmark", env!("CARGO_PKG_VERSION"))
            .description("Labels places of the conversation.")
            .command_with(CommandSpec::new("bookmark", "Labels this place").hint("NAME"), Self::set)
            .command("bookmarks", "Lists the bookmarks", Self::list)
            .command_with(CommandSpec::new("goto", "Goes to a bookmark").hint("NAME"), Self::go)
            .complete("goto", Self::names)
    }
}

impl Bookmark {
    async fn set(&self, ctx: &CommandCtx, name: &str) -> Result<()> {
        if name.is_empty() {
            return Err(Error::from("say /bookmark NAME"));
        }
        let leaf = ctx.session().leaf().ok_or_else(|| Error::from("nothing has been said yet"))?;
        ctx.session().set_label(leaf, Some(name))?;
        ctx.ui().notify(format!("Bookmarked as {name}"));
        Ok(())
    }

    async fn list(&self, ctx: &CommandCtx, _: &str) -> Result<()> {
        let names: Vec<String> = bookmarks(ctx)?.into_iter().map(|(name, _)| name).collect();
        ctx.ui().notify(match names.is_empty() {
            true => "There are no bookmarks".to_owned(),
            false => names.join(", "),
        });
        Ok(())
    }

    async fn go(&self, ctx: &CommandCtx, name: &str) -> Result<()> {
        let bookmarks = bookmarks(ctx)?;
        let (_, entry) = bookmarks
            .into_iter()
            .find(|(known, _)| known == name)
            .ok_or_else(|| Error::from(format!("there is no bookmark {name:?}")))?;
        ctx.control().wait_for_idle().await?;
        match ctx.control().navigate_tree(entry, Navigate::new()).await? {
            Navigated::Done { .. } => ctx.ui().notify(format!("At {name}")),
            _ => ctx.ui().notify("Nothing has moved"),
        }
        Ok(())
    }

    async fn names(&self, ctx: &Ctx, prefix: &str) -> Result<Vec<Completion>> {
        let names = bookmarks(ctx)?.into_iter().map(|(name, _)| name);
        Ok(names.filter(|name| name.starts_with(prefix)).map(Completion::new).collect())
    }
}

/// Names and entries, in the order in which the labels were set; a label that was
/// cleared or set anew is not among them.
fn bookmarks(ctx: &Ctx) -> Result<Vec<(String, String)>> {
    let mut bookmarks: Vec<(String, String)> = Vec::new();
    for entry in ctx.session().entries()? {
        if let Entry::Label { target_id, label, .. } = entry {
            bookmarks.retain(|(name, entry)| *entry != target_id && Some(name) != label.as_ref());
            bookmarks.extend(label.map(|label| (label, target_id)));
        }
    }
    Ok(bookmarks)
}

wharf_sdk::export!(Bookmark);
