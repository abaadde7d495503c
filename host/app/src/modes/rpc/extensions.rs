//! Commands about extensions: `get_extensions` and `complete_argument`.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::CommandLookup;
use wharf_extensions::ArgumentCompletion;
use wharf_protocol::Response;
use wharf_protocol::command::CompleteArgumentParams;

use super::Rpc;
use crate::extension::describe::{self, Described};

/// An offer for a command's argument.
#[derive(Serialize)]
struct Completion {
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

impl From<ArgumentCompletion> for Completion {
    fn from(offer: ArgumentCompletion) -> Self {
        Self { value: offer.value, description: offer.description }
    }
}

impl Rpc {
    pub(super) fn get_extensions(&mut self, id: Option<Value>) {
        let (extensions, loading) = (Arc::clone(&self.extensions), Arc::clone(&self.loading));
        let hooks = Arc::clone(&self.hooks);
        self.later(async move {
            hooks.ready().await;
            let infos = extensions.list();
            // It reads the settings and the grants.
            let described =
                tokio::task::spawn_blocking(move || describe::all(&infos, &loading)).await;
            match described {
                Ok(described) => {
                    let extensions: Vec<Described> = described.extensions;
                    let data = json!({ "extensions": extensions });
                    Response::with_data(id, "get_extensions", &data)
                }
                Err(error) => Response::failure(id, "get_extensions", error.to_string()),
            }
        });
    }

    pub(super) fn complete_argument(&mut self, id: Option<Value>, params: CompleteArgumentParams) {
        let CompleteArgumentParams { command, argument } = params;
        let (extensions, hooks) = (Arc::clone(&self.extensions), Arc::clone(&self.hooks));
        self.later(async move {
            hooks.ready().await;
            if hooks.find_command(&command) != CommandLookup::Found {
                let error = format!("No extension has the command \"/{command}\"");
                return Response::failure(id, "complete_argument", error);
            }
            // The client may ask for something else meanwhile; that is a request of its own.
            let cancel = CancellationToken::new();
            let offers = extensions.complete_argument(&command, argument, &cancel).await;
            let completions: Vec<Completion> = offers.into_iter().map(Into::into).collect();
            let data = json!({ "completions": completions });
            Response::with_data(id, "complete_argument", &data)
        });
    }
}
