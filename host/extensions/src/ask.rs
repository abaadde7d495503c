//! Decides what extensions may reach: from `grants.json`, and by asking the person about
//! what is not decided there.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use wharf_agent::ui::{Dialog, DialogAnswer, DialogKind, DialogOutcome};

use crate::access::Access;
use crate::extension::{Extension, Status};
use crate::grants::{GrantError, GrantStore, Subject};
use crate::limits::{one_line, truncated};
use crate::permissions::{describe, is_deceptive};
use crate::places::Places;
use crate::registration::{Permission, Registration};
use crate::report::{Report, Reporter, Severity};

/// The event of the reports.
const EVENT: &str = "permissions";
/// Lines of one dialog; a person reads no more.
const MAX_LINES: usize = 100;
/// Bytes of one of its lines.
const MAX_LINE_BYTES: usize = 300;

/// What the extensions of a host share.
#[derive(Debug)]
pub(crate) struct Permits {
    pub(crate) places: Arc<Places>,
    file: PathBuf,
    grants: Mutex<Grants>,
    /// One dialog at a time, in the order of registration.
    turn: tokio::sync::Mutex<()>,
    /// True once every extension that was found has registered: only then is it known
    /// which one is shadowed by another.
    all_registered: watch::Sender<bool>,
}

#[derive(Debug, Default)]
enum Grants {
    #[default]
    Unread,
    Read(GrantStore),
    /// Has been reported.
    Unreadable,
}

impl Permits {
    pub(crate) fn new(places: Places) -> Self {
        Self {
            file: places.agent_dir().join("grants.json"),
            places: Arc::new(places),
            grants: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            all_registered: watch::Sender::new(false),
        }
    }

    /// Every extension has registered, or failed.
    pub(crate) fn all_registered(&self) {
        self.all_registered.send_replace(true);
    }

    /// The file is read again when somebody needs it.
    pub(crate) fn forget(&self) {
        *self.grants.lock().unwrap_or_else(PoisonError::into_inner) = Grants::Unread;
    }

    /// What is granted to the subject, and what of `asked` nobody has decided; None: the
    /// grants cannot be read. Blocks.
    fn look_up(
        &self,
        subject: &Subject,
        asked: &[Permission],
        reporter: &dyn Reporter,
    ) -> Option<(Vec<Permission>, Vec<Permission>)> {
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*grants, Grants::Unread) {
            *grants = match GrantStore::load(&self.file) {
                Ok(store) => Grants::Read(store),
                Err(error) => {
                    reporter.report(Report {
                        severity: Severity::Error,
                        extension_path: self.file.clone(),
                        event: EVENT.to_owned(),
                        error: one_line(&error.to_string()),
                    });
                    Grants::Unreadable
                }
            };
        }
        let Grants::Read(store) = &*grants else { return None };
        let grant = store.find(subject);
        let mut undecided = Vec::new();
        for permission in asked {
            let is_decided = grant.is_some_and(|grant| grant.decision(permission).is_some());
            if !is_decided && !undecided.contains(permission) {
                undecided.push(permission.clone());
            }
        }
        Some((grant.map(|grant| grant.granted.clone()).unwrap_or_default(), undecided))
    }

    /// Keeps an answer. Blocks.
    fn keep(
        &self,
        subject: Subject,
        permissions: Vec<Permission>,
        is_granted: bool,
    ) -> Result<(), GrantError> {
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever asked has read them.
        let Grants::Read(store) = &mut *grants else { return Ok(()) };
        if is_granted {
            store.decide(subject, permissions, Vec::new())
        } else {
            store.decide(subject, Vec::new(), permissions)
        }
    }
}

/// Starts to decide what an extension may reach, also when it was decided before.
pub(crate) fn start(extension: &Arc<Extension>) {
    let Some(Status::Registered(registration)) = extension.status() else { return };
    let Some(access) = extension.access() else { return };
    let subject = Subject {
        id: registration.id.clone(),
        path: extension.path().to_owned(),
        content_hash: access.content_hash.clone(),
    };
    let services = &extension.services;
    let question = Question {
        permits: Arc::clone(&services.permits),
        subject,
        registration: Arc::clone(registration),
        extension: Arc::downgrade(extension),
        access: Arc::downgrade(access),
    };
    access.set_asking(services.runtime.spawn(question.settle()).abort_handle());
}

/// Holds nothing alive that is gone: an extension that was replaced asks no more.
struct Question {
    permits: Arc<Permits>,
    subject: Subject,
    registration: Arc<Registration>,
    extension: Weak<Extension>,
    access: Weak<Access>,
}

impl Question {
    fn decide(&self, granted: &[Permission], is_final: bool) {
        if let Some(access) = self.access.upgrade() {
            access.decide(granted, is_final);
        }
    }

    async fn settle(self) {
        let Some((granted, undecided)) = self.look_up().await else {
            return self.decide(&[], true);
        };
        self.decide(&granted, undecided.is_empty());
        if undecided.is_empty() {
            return;
        }
        let mut all_registered = self.permits.all_registered.subscribe();
        // The sender is in `permits`.
        let _ = all_registered.wait_for(|all| *all).await;
        let permits = Arc::clone(&self.permits);
        let _turn = permits.turn.lock().await;
        let more = self.ask(&undecided).await;
        let granted: Vec<_> = granted.into_iter().chain(more).collect();
        self.decide(&granted, true);
    }

    async fn look_up(&self) -> Option<(Vec<Permission>, Vec<Permission>)> {
        let permits = Arc::clone(&self.permits);
        let subject = self.subject.clone();
        let registration = Arc::clone(&self.registration);
        let reporter = Arc::clone(&self.extension.upgrade()?.services.reporter);
        let asked = move || permits.look_up(&subject, &registration.permissions, &*reporter);
        spawn_blocking(asked).await.ok().flatten()
    }

    /// Asks the person; gives what is granted.
    async fn ask(&self, undecided: &[Permission]) -> Vec<Permission> {
        let Some(extension) = self.extension.upgrade() else { return Vec::new() };
        if extension.is_shadowed() {
            return Vec::new();
        }
        let ui = Arc::clone(&extension.services.ui);
        drop(extension);
        let dialog = Dialog {
            kind: DialogKind::Confirm { title: self.title(), message: self.message(undecided) },
            timeout: None,
            cancel: CancellationToken::new(),
        };
        let is_granted = match ui.dialog(dialog).await {
            DialogOutcome::Answered(DialogAnswer::Confirmed(yes)) => yes,
            DialogOutcome::NoUi => {
                self.report(Severity::Warning, &self.nobody_to_ask(undecided));
                return Vec::new();
            }
            DialogOutcome::Answered(_) | DialogOutcome::Cancelled | DialogOutcome::TimedOut => {
                return Vec::new();
            }
        };
        let permits = Arc::clone(&self.permits);
        let subject = self.subject.clone();
        let permissions = undecided.to_vec();
        let kept = spawn_blocking(move || permits.keep(subject, permissions, is_granted)).await;
        if let Ok(Err(error)) = kept {
            let text = format!("the answer counts for this run only: {error}");
            self.report(Severity::Error, &text);
        }
        if is_granted { undecided.to_vec() } else { Vec::new() }
    }

    fn report(&self, severity: Severity, text: &str) {
        if let Some(extension) = self.extension.upgrade() {
            extension.report(severity, EVENT, text);
        }
    }

    fn title(&self) -> String {
        let version = clean(&self.registration.version);
        let path = clean(&self.subject.path.to_string_lossy());
        format!("Grant permissions to the extension {} {version} ({path})?", self.subject.id)
    }

    fn message(&self, undecided: &[Permission]) -> String {
        let mut lines = vec![format!("{} asks to:", self.subject.id)];
        let shown = undecided.iter().take(MAX_LINES);
        lines.extend(shown.map(|p| format!("- {}", truncated(describe(p), MAX_LINE_BYTES))));
        if undecided.len() > MAX_LINES {
            lines.push(format!(
                "- and {} more permissions: see `wharf extension inspect {}`",
                undecided.len() - MAX_LINES,
                self.subject.id
            ));
        }
        lines.join("\n")
    }

    fn nobody_to_ask(&self, undecided: &[Permission]) -> String {
        let id = &self.subject.id;
        let list: Vec<String> = undecided.iter().map(ToString::to_string).collect();
        // First what to do: the text has a limit.
        format!(
            "nobody has decided on permissions that {id} asks for, and nobody can be asked, so they are denied; grant them with: wharf extension grant {id}; they are: {}",
            list.join(", ")
        )
    }
}

/// A guest's own text, within a line.
fn clean(text: &str) -> String {
    truncated(text.chars().filter(|c| !is_deceptive(*c)).collect(), MAX_LINE_BYTES)
}
