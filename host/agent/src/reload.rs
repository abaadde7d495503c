//! What an agent takes from a person's files, in a form that can be exchanged at run
//! time: at the start, when extensions have named more of it, and by `reload`.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use tokio_util::sync::CancellationToken;
use wharf_protocol::Event;

use crate::agent::Agent;
use crate::hooks::{DiscoverReason, DiscoveredResources, HookEvent, ReloadedExtension};
use crate::output::{AgentOutput, deliver};
use crate::resources::{Diagnostic, Resources};
use crate::tool::Tool;
use crate::tools::Shell;

/// Reads a person's files again, as the start did.
pub trait ResourceLoader: Send + Sync + fmt::Debug {
    /// Settings, skills, templates, context files. It may block.
    fn load(&self) -> Resources;

    /// The built-in tools that are switched on, as `resources` want them.
    fn tools(&self, resources: &Resources) -> Vec<Arc<dyn Tool>>;
}

/// What belongs together, and is exchanged as a whole.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) resources: Arc<Resources>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) shell: Shell,
}

/// A reload under way, for as long as it lives; an abort finds it.
struct Reloading {
    agent: Agent,
    cancel: Arc<CancellationToken>,
}

impl Reloading {
    fn begin(agent: &Agent, cancel: &CancellationToken) -> Self {
        let cancel = Arc::new(cancel.child_token());
        agent.state().reloads.push(Arc::clone(&cancel));
        Self { agent: agent.clone(), cancel }
    }
}

impl Drop for Reloading {
    fn drop(&mut self) {
        self.agent.state().reloads.retain(|other| !Arc::ptr_eq(other, &self.cancel));
    }
}

/// The answer to a reload that was aborted.
const CANCELLED: &str = "Reload cancelled";

impl Agent {
    fn loaded(&self) -> Arc<Loaded> {
        Arc::clone(&self.inner.loaded.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// As they are now; a reload exchanges them.
    pub fn resources(&self) -> Arc<Resources> {
        Arc::clone(&self.loaded().resources)
    }

    pub(crate) fn builtin_tools(&self) -> Vec<Arc<dyn Tool>> {
        self.loaded().tools.clone()
    }

    pub(crate) fn shell(&self) -> Shell {
        self.loaded().shell.clone()
    }

    fn exchange(&self, loaded: Loaded) {
        *self.inner.loaded.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
        self.forget_system_prompt();
    }

    /// Has extensions name skills and prompt templates, in the background. Call it once,
    /// when their host knows the agent.
    pub fn discover_resources(&self) {
        if !self.inner.hooks.subscribes(HookEvent::ResourcesDiscover) {
            return;
        }
        // Held first, so that no reload comes before it.
        let Ok(one_at_a_time) = Arc::clone(&self.inner.reloading).try_lock_owned() else { return };
        self.inner.discovered.send_replace(false);
        let asking = Reloading::begin(self, &CancellationToken::new());
        tokio::spawn(async move {
            let Reloading { agent, cancel } = &asking;
            let mut asked = std::pin::pin!(async {
                agent.inner.hooks.ready().await;
                agent.ask_for_resources(DiscoverReason::Startup).await
            });
            let found = tokio::select! {
                biased;
                found = &mut asked => found,
                // Whoever aborts wants to wait no longer; what comes later is late.
                () = cancel.cancelled() => {
                    agent.inner.discovered.send_replace(true);
                    asked.await
                }
            };
            if found != DiscoveredResources::default() {
                let Loaded { resources, tools, shell } = &*agent.loaded();
                let (before, had_skills) = (Arc::clone(resources), has_skills(resources));
                let extended = tokio::task::spawn_blocking(move || before.with_discovered(&found));
                if let Ok(mut extended) = extended.await {
                    let problems = std::mem::take(&mut extended.diagnostics);
                    agent.tell_problems(HookEvent::ResourcesDiscover.name(), problems).await;
                    // The tools stay the same ones, unless there is one more.
                    let tools = match has_skills(&extended) == had_skills {
                        true => tools.clone(),
                        false => agent.inner.loader.tools(&extended),
                    };
                    let shell = shell.clone();
                    agent.exchange(Loaded { resources: Arc::new(extended), tools, shell });
                }
            }
            agent.inner.discovered.send_replace(true);
            drop(one_at_a_time);
        });
    }

    /// Waits until every extension has registered or failed, and has named its skills and
    /// prompt templates.
    pub async fn ready(&self) {
        self.inner.hooks.ready().await;
        // The sender lives in `self`, so this cannot fail.
        let _ = self.inner.discovered.subscribe().wait_for(|discovered| *discovered).await;
    }

    pub(crate) fn has_discovered(&self) -> bool {
        *self.inner.discovered.borrow()
    }

    async fn ask_for_resources(&self, reason: DiscoverReason) -> DiscoveredResources {
        let hooks = &self.inner.hooks;
        match hooks.subscribes(HookEvent::ResourcesDiscover) {
            true => hooks.resources_discover(reason).await,
            false => DiscoveredResources::default(),
        }
    }

    /// Reads settings, skills, prompt templates, context files and models again, and loads
    /// the extensions anew whose content has changed. Session, queues, model and what runs
    /// go on; what is new holds from the next request on. One at a time: a second one comes
    /// after it. It can be aborted from this call on, not only once the future is polled.
    ///
    /// # Errors
    /// It was cancelled, or the extensions could not be looked for. Nothing has changed
    /// then.
    pub fn reload(
        &self,
        cancel: CancellationToken,
    ) -> impl Future<Output = Result<Vec<ReloadedExtension>, String>> + Send + use<> {
        let reloading = Reloading::begin(self, &cancel);
        async move {
            let Reloading { agent, cancel } = &reloading;
            let line = Arc::clone(&agent.inner.reloading).lock_owned();
            let _one_at_a_time =
                cancel.run_until_cancelled(line).await.ok_or_else(|| CANCELLED.to_owned())?;
            agent.reload_now(cancel).await
        }
    }

    async fn reload_now(
        &self,
        cancel: &CancellationToken,
    ) -> Result<Vec<ReloadedExtension>, String> {
        let loader = Arc::clone(&self.inner.loader);
        let mut resources = tokio::task::spawn_blocking(move || loader.load())
            .await
            .map_err(|_| "internal error: reading the settings failed; please report it")?;
        if cancel.is_cancelled() {
            return Err(CANCELLED.to_owned());
        }
        let reloaded = self.inner.hooks.reload(cancel).await?;
        // Extensions are the new ones from here on, so an abort leaves out no more than what
        // they would add.
        let found = cancel.run_until_cancelled(self.ask_for_resources(DiscoverReason::Reload));
        let found = found.await.unwrap_or_default();
        let mut problems = std::mem::take(&mut resources.diagnostics);
        let loader = Arc::clone(&self.inner.loader);
        let (loaded, added) = tokio::task::spawn_blocking(move || {
            let mut resources = resources.with_discovered(&found);
            let added = std::mem::take(&mut resources.diagnostics);
            let shell = Shell::new(
                resources.settings.shell_path.clone(),
                resources.settings.shell_command_prefix.clone(),
            );
            let tools = loader.tools(&resources);
            (Loaded { resources: Arc::new(resources), tools, shell }, added)
        })
        .await
        .map_err(|_| "internal error: finding skills failed; please report it")?;
        problems.extend(added);
        self.take_up_settings(&loaded.resources);
        self.exchange(loaded);
        self.reload_models();
        self.tell_problems("reload", problems).await;
        Ok(reloaded)
    }

    /// What is in effect by other means than the file stays, unless the file says something
    /// else than it did.
    fn take_up_settings(&self, resources: &Resources) {
        let before = self.resources();
        let (old, new) = (&before.settings, &resources.settings);
        let mut state = self.state();
        if new.retry.enabled != old.retry.enabled {
            state.auto_retry = new.retry.enabled;
        }
        if new.compaction.enabled != old.compaction.enabled {
            state.auto_compaction = new.compaction.enabled;
        }
    }

    async fn tell_problems(&self, event: &str, problems: Vec<Diagnostic>) {
        for Diagnostic { path, message } in problems {
            self.tell_extension_error(&path, event, message).await;
        }
    }

    /// Tells of a problem that no extension's handler has told.
    pub(crate) async fn tell_extension_error(&self, path: &Path, event: &str, error: String) {
        let event = Event::ExtensionError {
            extension_path: path.display().to_string(),
            event: event.to_owned(),
            error,
        };
        deliver(&*self.inner.outlet, AgentOutput::Event(Arc::new(event))).await;
    }
}

fn has_skills(resources: &Resources) -> bool {
    resources.skills_for_model().next().is_some()
}
