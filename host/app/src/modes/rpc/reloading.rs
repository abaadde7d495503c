//! Loading extensions and resources anew while the client goes on: the command `reload`,
//! `--watch`, and the project that is trusted during a run.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use wharf_agent::Agent;
use wharf_agent::host_api::HostApi;
use wharf_agent::output::AgentOutput;
use wharf_agent::ui::{Dialog, DialogAnswer, DialogKind, DialogOutcome, Ui};
use wharf_extensions::ExtensionHost;
use wharf_protocol::event::ReloadedExtension;
use wharf_protocol::{Event, Response};

use super::Rpc;
use crate::front::{Front, Wakeup};
use crate::loading::Loading;
use crate::report;

#[derive(Debug, Clone)]
pub(super) struct Reloader {
    pub(super) agent: Agent,
    pub(super) front: Front,
}

impl Reloader {
    /// Loads everything anew; what came of it has been told as an event by then.
    async fn reload(&self) -> Result<Vec<ReloadedExtension>, String> {
        let reloaded = HostApi::reload(&self.agent).await.map_err(|error| error.to_string())?;
        let extensions: Vec<_> = reloaded.into_iter().map(to_wire).collect();
        let event = Event::ExtensionsReloaded { extensions: extensions.clone() };
        self.front.wake(Wakeup::Output(AgentOutput::Event(Arc::new(event)))).await;
        Ok(extensions)
    }

    /// The same where no command waits for an answer.
    async fn reload_unasked(&self) {
        if let Err(error) = self.reload().await {
            self.failed(&HostApi::cwd(&self.agent), &error);
        }
    }

    fn failed(&self, path: &Path, error: &str) {
        report::warning(format_args!("{}: {error}", path.display()));
        self.front.extension_error(path.to_owned(), "reload", error.to_owned());
    }
}

fn to_wire(reloaded: wharf_agent::hooks::ReloadedExtension) -> ReloadedExtension {
    ReloadedExtension {
        id: reloaded.id,
        path: reloaded.path.display().to_string(),
        old_version: reloaded.old_version,
        new_version: reloaded.new_version,
        changed: reloaded.changed,
        error: reloaded.error,
    }
}

impl Rpc {
    /// What is written after it is meant for what it loads.
    pub(super) fn reload(&mut self, id: Option<Value>) {
        let reloader = Reloader { agent: self.agent.clone(), front: self.front.clone() };
        self.switch(async move {
            match reloader.reload().await {
                Ok(extensions) => {
                    Response::with_data(id, "reload", &json!({ "extensions": extensions }))
                }
                Err(error) => Response::failure(id, "reload", error),
            }
        });
    }
}

/// Reloads whenever files of extensions have changed.
pub(super) fn watch(extensions: &Arc<ExtensionHost>, reloader: Reloader) {
    let (changed, failing) = (Arc::new(Notify::new()), reloader.clone());
    tokio::spawn({
        let changed = Arc::clone(&changed);
        async move {
            loop {
                // What changes during a reload makes another one, after it.
                changed.notified().await;
                reloader.reload_unasked().await;
            }
        }
    });
    let extensions = Arc::clone(extensions);
    tokio::spawn(async move {
        if let Err(error) = extensions.watch(move || changed.notify_one()).await {
            failing.failed(&HostApi::cwd(&failing.agent), &error.to_string());
        }
    });
}

/// Asks, once in a run, whether the project is trusted. Nothing waits for the answer, and
/// without a yes the project stays as inert as it is.
pub(super) async fn ask_for_trust(ui: Arc<dyn Ui>, loading: Arc<Loading>, reloader: Reloader) {
    let cwd = loading.place().cwd.to_owned();
    let dialog = Dialog {
        kind: DialogKind::Confirm {
            title: "Trust this project?".to_owned(),
            message: format!(
                "{} brings settings, extensions, skills or prompt templates of its own. They take effect only if you trust it, now and in later runs (wharf untrust takes that back). What its extensions may reach is asked separately.",
                cwd.display()
            ),
        },
        timeout: None,
        cancel: CancellationToken::new(),
    };
    let outcome = ui.dialog(dialog).await;
    if outcome != DialogOutcome::Answered(DialogAnswer::Confirmed(true)) {
        return;
    }
    let trusted = tokio::task::spawn_blocking(move || loading.trust_project()).await;
    match trusted {
        Ok(Ok(())) => reloader.reload_unasked().await,
        Ok(Err(error)) => reloader.failed(&cwd, &error.to_string()),
        Err(error) => reloader.failed(&cwd, &error.to_string()),
    }
}
