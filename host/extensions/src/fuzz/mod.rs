//! Hostile data against what takes it from guests: registrations and answers to events.
//! What a whole component can do is in `tests/extensions/fuzz`.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod answers;
#[path = "../../tests/extensions/fuzz/cases.rs"]
mod cases;
mod data;
mod registrations;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::UnboundedReceiver;
use wharf_agent::ui::NoUi;

use crate::ask::Permits;
use crate::discovery::{Found, Scope};
use crate::extension::{Extension, Message, Status};
use crate::limits::Limits;
use crate::log_file::LogFile;
use crate::places::Places;
use crate::registration::Registration;
use crate::report::{Report, Reporter};
use crate::state::Services;

#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Report>>);

impl Reporter for Kept {
    fn report(&self, report: Report) {
        self.0.lock().unwrap().push(report);
    }
}

/// Must be called within a runtime.
fn services() -> (Arc<Services>, Arc<Kept>) {
    let kept = Arc::new(Kept::default());
    let services = Services {
        ui: Arc::new(NoUi),
        api: Arc::default(),
        log: Arc::new(LogFile::new(PathBuf::new())),
        reporter: Arc::clone(&kept) as Arc<dyn Reporter>,
        cwd: PathBuf::new(),
        permits: Arc::new(Permits::new(Places::new(PathBuf::new(), None, PathBuf::new()))),
        limits: Limits::default(),
        own_limits: Arc::default(),
        flags: Arc::default(),
        peers: Arc::default(),
        runtime: tokio::runtime::Handle::current(),
    };
    (Arc::new(services), kept)
}

/// An extension without an actor; its mailbox is the caller's.
fn extension(
    number: usize,
    registration: Registration,
    services: &Arc<Services>,
) -> (Arc<Extension>, UnboundedReceiver<Message>) {
    let found = Found {
        path: format!("/{number}.wasm").into(),
        name: number.to_string(),
        scope: Scope::User,
        pinned: None,
    };
    let (extension, mailbox) = Extension::new(found, Arc::clone(services));
    extension.set_status(Status::Registered(Arc::new(registration)));
    (extension, mailbox)
}
