//! What an extension has added at run time: tools, and providers of models. It outlives
//! a faulty instance, and goes with the extension.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::extension::Extension;
use crate::limits::{MAX_PROVIDERS, MAX_RUNTIME_TOOLS};
use crate::registration::Tool;

#[derive(Debug, Default)]
pub(crate) struct Offers(Mutex<Added>);

#[derive(Debug, Default)]
struct Added {
    /// In the order in which they came.
    tools: Vec<Arc<Tool>>,
    /// By name.
    providers: Vec<String>,
    /// Nothing can be added any more.
    is_closed: bool,
}

impl Offers {
    fn lock(&self) -> MutexGuard<'_, Added> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tools(&self) -> Vec<Arc<Tool>> {
        self.lock().tools.clone()
    }

    /// Adds a tool, in the place of one of its name.
    pub(crate) fn add_tool(&self, tool: Tool) -> Result<(), String> {
        let mut added = self.lock();
        added.check_open()?;
        let tool = Arc::new(tool);
        if let Some(place) = added.tools.iter_mut().find(|other| other.name == tool.name) {
            *place = tool;
        } else if added.tools.len() < MAX_RUNTIME_TOOLS {
            added.tools.push(tool);
        } else {
            return Err(format!(
                "{MAX_RUNTIME_TOOLS} tools have been registered at run time, which is the limit"
            ));
        }
        Ok(())
    }

    /// False: there is none.
    pub(crate) fn remove_tool(&self, name: &str) -> bool {
        let mut added = self.lock();
        let count = added.tools.len();
        added.tools.retain(|tool| tool.name != name);
        added.tools.len() < count
    }

    /// Keeps a provider's name, so that it goes with the extension.
    pub(crate) fn add_provider(&self, name: &str) -> Result<(), String> {
        let mut added = self.lock();
        added.check_open()?;
        if added.providers.iter().any(|other| other == name) {
            return Ok(());
        }
        if added.providers.len() >= MAX_PROVIDERS {
            return Err(format!("it has {MAX_PROVIDERS} providers, which is the limit"));
        }
        added.providers.push(name.to_owned());
        Ok(())
    }

    pub(crate) fn has_provider(&self, name: &str) -> bool {
        self.lock().providers.iter().any(|other| other == name)
    }

    pub(crate) fn remove_provider(&self, name: &str) {
        self.lock().providers.retain(|other| other != name);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Takes back everything; the names of the providers.
    fn close(&self) -> Vec<String> {
        let mut added = self.lock();
        added.is_closed = true;
        added.tools.clear();
        std::mem::take(&mut added.providers)
    }
}

impl Added {
    fn check_open(&self) -> Result<(), String> {
        if self.is_closed {
            return Err("the extension is being unloaded".to_owned());
        }
        Ok(())
    }
}

impl Extension {
    /// Takes back what it has added at run time, for good: it is disabled, or another one
    /// takes its place.
    pub(crate) fn withdraw_offers(&self) {
        let providers = self.offers.close();
        if let Some(api) = self.services.api.get() {
            for name in providers {
                api.unregister_provider(self.name(), &name);
            }
        }
        if let Some(peers) = self.services.peers() {
            peers.tools_changed();
        }
    }
}
