//! The current session: its entries, its name, and entries of the extension's own.

use serde::Serialize;

use crate::bindings::wharf::extension::session;
use crate::entry::entries;
use crate::{Entry, Json, Result};

/// The current session, from [`Ctx::session`](crate::Ctx::session).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Session;

impl Session {
    /// The session's id.
    #[must_use]
    pub fn id(self) -> String {
        session::id()
    }

    /// The session's file; none while it is not kept in one.
    #[must_use]
    pub fn file(self) -> Option<String> {
        session::file()
    }

    /// The name that a person or an extension gave it.
    #[must_use]
    pub fn name(self) -> Option<String> {
        session::name()
    }

    /// The session's header, a JSON object.
    #[must_use]
    pub fn header(self) -> Json {
        Json::from_host(session::header())
    }

    /// The id of the entry that the conversation stands at.
    #[must_use]
    pub fn leaf(self) -> Option<String> {
        session::leaf()
    }

    /// All entries in file order, also of branches that were left.
    ///
    /// # Errors
    /// When an entry lacks a field that its type needs.
    pub fn entries(self) -> Result<Vec<Entry>> {
        entries(&self.entries_json())
    }

    /// [`entries`](Self::entries) as a JSON array.
    #[must_use]
    pub fn entries_json(self) -> Json {
        Json::from_host(session::entries())
    }

    /// The entries from the root to the leaf.
    ///
    /// # Errors
    /// When an entry lacks a field that its type needs.
    pub fn branch(self) -> Result<Vec<Entry>> {
        entries(&self.branch_json())
    }

    /// [`branch`](Self::branch) as a JSON array.
    #[must_use]
    pub fn branch_json(self) -> Json {
        Json::from_host(session::branch())
    }

    /// The label of an entry.
    #[must_use]
    pub fn label(self, entry: impl AsRef<str>) -> Option<String> {
        session::label(entry.as_ref())
    }

    /// Appends an entry that the model never sees, and gives its id. Data that
    /// is `null` as JSON, such as `()`, is left out.
    ///
    /// # Errors
    /// When the data cannot be written as JSON, or the host cannot append it.
    pub fn append_entry<T: Serialize + ?Sized>(
        self,
        custom_type: impl AsRef<str>,
        data: &T,
    ) -> Result<String> {
        let data = Json::of(data)?;
        let data = Some(data.as_str()).filter(|text| *text != "null");
        Ok(session::append_entry(custom_type.as_ref(), data)?)
    }

    /// Names the session.
    ///
    /// # Errors
    /// When the host cannot write it.
    pub fn set_name(self, name: impl AsRef<str>) -> Result<()> {
        Ok(session::set_name(name.as_ref())?)
    }

    /// Labels an entry; none clears the label.
    ///
    /// # Errors
    /// When there is no such entry, or the host cannot write it.
    pub fn set_label(self, entry: impl AsRef<str>, label: Option<&str>) -> Result<()> {
        Ok(session::set_label(entry.as_ref(), label)?)
    }
}
