//! The current session: reading, and the entries that an extension may add.

use serde::Serialize;

use super::{bounded, no_agent, parse_json};
use crate::bindings::session::Host;
use crate::bindings::types::HostError;
use crate::limits::{MAX_DETAILS_BYTES, MAX_NAME_BYTES};
use crate::log_file::Level;
use crate::state::State;

impl State {
    fn to_json(&self, what: &str, value: &impl Serialize, fallback: &str) -> String {
        serde_json::to_string(value).unwrap_or_else(|error| {
            self.log(Level::Error, &format!("{what} cannot be written as JSON: {error}"));
            fallback.to_owned()
        })
    }
}

/// Before there is an agent there is no session: reading gives nothing.
impl Host for State {
    fn id(&mut self) -> String {
        self.api().map(|api| api.session().id().to_string()).unwrap_or_default()
    }

    fn file(&mut self) -> Option<String> {
        let session = self.api()?.session();
        session.file().map(|file| file.to_string_lossy().into_owned())
    }

    fn name(&mut self) -> Option<String> {
        self.api()?.session().name()
    }

    fn header(&mut self) -> String {
        match self.api() {
            Some(api) => self.to_json("the session's header", api.session().header(), "{}"),
            None => "{}".to_owned(),
        }
    }

    fn leaf(&mut self) -> Option<String> {
        self.api()?.session().leaf_id().map(|id| id.to_string())
    }

    fn entries(&mut self) -> String {
        match self.api() {
            Some(api) => self.to_json("the session's entries", &api.session().entries(), "[]"),
            None => "[]".to_owned(),
        }
    }

    fn branch(&mut self) -> String {
        match self.api() {
            Some(api) => self.to_json("the session's branch", &api.session().branch(), "[]"),
            None => "[]".to_owned(),
        }
    }

    fn label(&mut self, entry: String) -> Option<String> {
        self.api()?.session().label(&entry)
    }

    fn append_entry(
        &mut self,
        custom_type: String,
        data: Option<String>,
    ) -> Result<String, HostError> {
        let api = self.api().ok_or_else(no_agent)?;
        if custom_type.is_empty() {
            return Err(HostError::Invalid("custom-type is empty".to_owned()));
        }
        bounded("custom-type", &custom_type, MAX_NAME_BYTES)?;
        let data = data.map(|data| parse_json("data", &data, MAX_DETAILS_BYTES)).transpose()?;
        Ok(api.append_entry(custom_type, data)?)
    }

    fn set_name(&mut self, name: String) -> Result<(), HostError> {
        let api = self.api().ok_or_else(no_agent)?;
        bounded("name", &name, MAX_NAME_BYTES)?;
        Ok(api.set_session_name(name)?)
    }

    fn set_label(&mut self, entry: String, label: Option<String>) -> Result<(), HostError> {
        let api = self.api().ok_or_else(no_agent)?;
        bounded("entry", &entry, MAX_NAME_BYTES)?;
        bounded("label", label.as_deref().unwrap_or_default(), MAX_NAME_BYTES)?;
        Ok(api.set_label(entry, label)?)
    }
}
