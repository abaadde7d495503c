//! Reload: finds the extensions anew and takes over what has changed. Everything is
//! loaded before anything is replaced, so a reload that is cancelled, or a component that
//! cannot be loaded, leaves what runs as it is.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use futures::future::join_all;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{HookEvent, ReloadedExtension};

use crate::actor::Actor;
use crate::ask;
use crate::bindings::types::Notification;
use crate::discovery::{DiscoveryError, Found, discover};
use crate::extension::{Extension, Message, NoteKind};
use crate::extension_host::{Inner, is_switched_off, registered};
use crate::limits::one_line;
use crate::loader::{LoadError, Loaded};
use crate::state::Services;

/// Why nothing was reloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReloadError {
    #[error("a reload is under way already")]
    Busy,
    #[error("the reload was cancelled; nothing has changed")]
    Cancelled,
    #[error("the extensions have been stopped")]
    Stopped,
}

/// What becomes of one extension that was found.
enum Fate {
    /// The same goes on, perhaps because its new content cannot be loaded.
    Kept {
        extension: Arc<Extension>,
        error: Option<String>,
    },
    /// A new one, perhaps in the place of an old one.
    New {
        extension: Arc<Extension>,
        mailbox: UnboundedReceiver<Message>,
        loaded: Box<Loaded>,
        old: Option<Arc<Extension>>,
    },
    /// One that never worked, and does not now.
    Failed {
        extension: Arc<Extension>,
        error: LoadError,
    },
    SwitchedOff(Arc<Extension>),
}

impl Fate {
    fn extension(&self) -> &Arc<Extension> {
        match self {
            Self::Kept { extension, .. }
            | Self::New { extension, .. }
            | Self::Failed { extension, .. }
            | Self::SwitchedOff(extension) => extension,
        }
    }
}

impl Inner {
    pub(crate) async fn reload(
        &self,
        cancel: &CancellationToken,
    ) -> Result<Vec<ReloadedExtension>, ReloadError> {
        let Ok(_turn) = self.reloading.try_lock() else { return Err(ReloadError::Busy) };
        let prepared = cancel.run_until_cancelled(self.prepare()).await;
        let (fates, errors) = prepared.ok_or(ReloadError::Cancelled)?;
        if cancel.is_cancelled() {
            return Err(ReloadError::Cancelled);
        }
        if self.has_shut_down.load(SeqCst) {
            return Err(ReloadError::Stopped);
        }
        errors.iter().for_each(|error| self.report_missing(error));
        Ok(self.take_over(fates))
    }

    /// Finds and loads; nothing that runs notices.
    async fn prepare(&self) -> (Vec<Fate>, Vec<DiscoveryError>) {
        self.ready().await;
        let asked = self.loadable.clone();
        let discovered = spawn_blocking(move || {
            let loadable = asked.ask();
            let discovered = discover(&loadable.sources);
            (loadable, discovered)
        });
        let (loadable, (found, errors)) = discovered.await.unwrap_or_default();
        let services = self.services.under(&loadable);
        let olds = self.extensions();
        let fates = found.into_iter().map(|found| {
            let old = olds.iter().find(|old| old.found.path == found.path).cloned();
            self.fate(found, old, Arc::clone(&services), &loadable.sources.disabled)
        });
        (join_all(fates).await, errors)
    }

    async fn fate(
        &self,
        found: Found,
        old: Option<Arc<Extension>>,
        services: Arc<Services>,
        disabled: &[String],
    ) -> Fate {
        let services = services.of(&found.name);
        let worked = old.clone().filter(|old| old.registration().is_some());
        let loaded = match self.loader.load(&found, &services).await {
            Ok(loaded) => {
                // What is in the cache may have been lost since it was asked.
                self.loader.code(&found, &loaded).await.map(|_| loaded)
            }
            Err(error) => Err(error),
        };
        let new = |services| Extension::new(found.clone(), services);
        match (loaded, worked) {
            (Err(error), Some(extension)) if !extension.is_disabled() => {
                Fate::Kept { extension, error: Some(one_line(&error.to_string())) }
            }
            (Err(error), _) => {
                let (extension, _) = new(services);
                extension.set_failed(error.to_string());
                Fate::Failed { extension, error }
            }
            (Ok(loaded), _) if is_switched_off(&found, &loaded.registration.id, disabled) => {
                let (extension, _) = new(services);
                extension.set_disabled();
                extension.set_status(crate::extension::Status::Failed);
                Fate::SwitchedOff(extension)
            }
            (Ok(loaded), worked) => {
                let (extension, mailbox) = new(services);
                registered(&extension, &loaded);
                match worked {
                    Some(old) if is_the_same(&old, &extension) => {
                        Fate::Kept { extension: old, error: None }
                    }
                    old => Fate::New { extension, mailbox, loaded: Box::new(loaded), old },
                }
            }
        }
    }

    /// The point of no return: quick, and without a wait.
    fn take_over(&self, fates: Vec<Fate>) -> Vec<ReloadedExtension> {
        let olds = self.extensions();
        let were_shadowed: HashSet<PathBuf> =
            olds.iter().filter(|old| old.is_shadowed()).map(|old| old.path().to_owned()).collect();
        let now: Vec<Arc<Extension>> = fates.iter().map(|fate| fate.extension().clone()).collect();
        let is_there = |old: &Arc<Extension>| now.iter().any(|new| Arc::ptr_eq(new, old));
        let retired: Vec<_> = olds.into_iter().filter(|old| !is_there(old)).collect();
        let has_started = self.session_has_started.load(SeqCst);
        for fate in &fates {
            // First in its mailbox, before anybody else finds it.
            if let Fate::New { extension, .. } = fate
                && has_started
            {
                start_session(extension);
            }
        }
        self.replace_extensions(now);
        // Before the new ones run: what an old one added must not be taken for theirs.
        for old in &retired {
            old.withdraw_offers();
            old.retire();
        }
        let paths: HashSet<PathBuf> =
            fates.iter().map(|fate| fate.extension().path().to_owned()).collect();
        let mut told = Vec::new();
        for fate in fates {
            if let Fate::Kept { extension, .. } = &fate
                && has_started
                && were_shadowed.contains(extension.path())
                && !extension.is_shadowed()
            {
                start_session(extension);
            }
            told.extend(self.settle_fate(fate, &retired));
        }
        let is_gone = |old: &&Arc<Extension>| !paths.contains(old.path());
        told.extend(retired.iter().filter(is_gone).filter_map(|old| gone(old)));
        // What was granted or revoked at the shell meanwhile counts from now on.
        self.services.permits.forget();
        self.extensions().iter().for_each(ask::start);
        told
    }

    /// Starts a new extension, reports one that failed, and says what became of it.
    fn settle_fate(&self, fate: Fate, retired: &[Arc<Extension>]) -> Option<ReloadedExtension> {
        let version = |extension: &Extension| {
            extension.registration().map(|registration| registration.version.clone())
        };
        let path = fate.extension().path().to_owned();
        let id = fate.extension().name().to_owned();
        let told = match fate {
            Fate::Kept { extension, error } => {
                let version = version(&extension);
                let changed = error.is_some();
                let old_version = version.clone();
                ReloadedExtension { id, path, old_version, new_version: version, changed, error }
            }
            Fate::New { extension, mailbox, loaded, old } => {
                let same = old.as_ref().is_some_and(|old| old.origin() == extension.origin());
                let told = ReloadedExtension {
                    id,
                    path,
                    old_version: old.as_deref().and_then(version),
                    new_version: version(&extension),
                    changed: !same,
                    error: None,
                };
                self.run(Actor::new(extension, Arc::clone(&self.loader), *loaded, mailbox));
                told
            }
            Fate::Failed { extension, error } => {
                extension.report_error(error.event(), &error.to_string());
                let error = Some(one_line(&error.to_string()));
                ReloadedExtension {
                    id,
                    path,
                    old_version: None,
                    new_version: None,
                    changed: true,
                    error,
                }
            }
            Fate::SwitchedOff(_) => {
                return retired.iter().find(|old| old.path() == path).and_then(|old| gone(old));
            }
        };
        Some(told)
    }
}

/// None: it never worked.
fn gone(old: &Extension) -> Option<ReloadedExtension> {
    let registration = old.registration()?;
    Some(ReloadedExtension {
        id: registration.id.clone(),
        path: old.path().to_owned(),
        old_version: Some(registration.version.clone()),
        new_version: None,
        changed: true,
        error: None,
    })
}

/// Nothing that an instance depends on is another one.
fn is_the_same(old: &Extension, new: &Extension) -> bool {
    old.found == new.found
        && old.origin() == new.origin()
        && old.limits() == new.limits()
        && !old.is_disabled()
}

/// One that has not subscribed passes it over.
fn start_session(extension: &Extension) {
    extension.notify(NoteKind::Hook(HookEvent::SessionStart), Arc::new(Notification::SessionStart));
}
