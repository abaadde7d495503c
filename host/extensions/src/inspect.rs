//! What a component says of itself, without running any of its handlers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::spawn_blocking;
use wharf_agent::ui::NoUi;

use crate::ask::Permits;
use crate::discovery::{Scope, named};
use crate::limits::Limits;
use crate::loader::Loader;
use crate::log_file::LogFile;
use crate::places::Places;
use crate::registration::Registration;
use crate::report::{Report, Reporter};
use crate::state::Services;

/// What is known of a component before it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The component's canonical file.
    pub path: PathBuf,
    /// The folder's name, or the file's without `.wasm`: settings may call it so.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// `sha256:` and 64 hex digits.
    pub content_hash: String,
    /// The version of `wharf:extension` that it was built for.
    pub api_version: String,
    pub registration: Registration,
}

/// Compiles and links a component, and asks an instance that is then thrown away what it
/// offers; `cache_dir` as for [`crate::ExtensionHostOptions`]. A path is a component's
/// file, or a folder with `extension.wasm`.
///
/// # Errors
/// Says what is wrong with the file, in the words that a start of the host would use.
pub async fn inspect(path: &Path, cache_dir: &Path) -> Result<Inspection, String> {
    let asked = path.to_owned();
    let found = spawn_blocking(move || named(&asked, Scope::Explicit))
        .await
        .map_err(|error| error.to_string())?;
    let found = found.map_err(|error| error.to_string())?;
    let services = Arc::new(Services {
        ui: Arc::new(NoUi),
        api: Arc::default(),
        // What it prints is of no interest here.
        log: Arc::new(LogFile::new(PathBuf::new())),
        reporter: Arc::new(Silent),
        cwd: PathBuf::new(),
        permits: Arc::new(Permits::new(Places::new(PathBuf::new(), None, PathBuf::new()))),
        limits: Limits::default(),
        own_limits: Arc::default(),
        flags: Arc::default(),
        peers: Arc::default(),
        runtime: tokio::runtime::Handle::current(),
    });
    let loader = Arc::new(Loader::new(cache_dir.to_owned(), Arc::clone(&services)));
    let loaded = loader.load(&found, &services).await.map_err(|error| error.to_string())?;
    let code = loader.code(&found, &loaded).await.map_err(|error| error.to_string())?;
    Ok(Inspection {
        path: found.path,
        name: found.name,
        size: loaded.origin.size,
        content_hash: loaded.origin.content_hash,
        api_version: code.built_for.to_string(),
        registration: loaded.registration,
    })
}

/// Nothing is reported: errors are returned.
#[derive(Debug)]
struct Silent;

impl Reporter for Silent {
    fn report(&self, _report: Report) {}
}
