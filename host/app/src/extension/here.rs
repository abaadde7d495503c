//! What a run in the working directory would find: the extensions, and what was decided
//! about them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail};
use wharf_agent::resources::{Settings, dirs};
use wharf_extensions::{ExtensionInfo, Inspection, Report, Reporter};

use super::HereArgs;
use crate::loading::{self, Loading};
use crate::plain::one_line;
use crate::{report, wiring};

/// Characters of a report that is shown.
const REPORT_CHARS: usize = 2_000;

pub(super) struct Here {
    pub(super) loading: Arc<Loading>,
    pub(super) settings: Settings,
}

/// The extensions that register here, and what there is to say about them.
pub(super) struct Loaded {
    pub(super) infos: Vec<ExtensionInfo>,
    pub(super) reports: Vec<Report>,
}

impl Here {
    pub(super) fn new(args: &HereArgs) -> anyhow::Result<Self> {
        let agent_dir = wiring::agent_dir(args.agent_dir.as_deref())?;
        let cwd = std::env::current_dir().context("the working directory cannot be read")?;
        let trusted = args.trust_project || loading::is_trusted(&agent_dir, &cwd)?;
        let loading = Loading::of_extensions(&args.loaded, agent_dir, cwd, trusted);
        let mut diagnostics = Vec::new();
        let settings = loading.settings(&mut diagnostics);
        for diagnostic in diagnostics {
            report::warning(diagnostic);
        }
        if loading.ignores_project() {
            report::warning(format_args!(
                "{}: the project is not trusted, so what it brings is not looked at",
                loading.place().cwd.display()
            ));
        }
        Ok(Self { loading: Arc::new(loading), settings })
    }

    /// Loads what a run here would load, up to the registrations.
    pub(super) fn load(&self) -> anyhow::Result<Loaded> {
        load(Arc::clone(&self.loading))
    }

    /// The same, and this file as if it were named with `-e`.
    pub(super) fn load_also(&self, path: PathBuf) -> anyhow::Result<Loaded> {
        load(Arc::new(self.loading.and(path)))
    }

    /// The file that a person means: a path, or the id of an extension that loads here.
    pub(super) fn find(&self, named: &str) -> anyhow::Result<PathBuf> {
        let place = self.loading.place();
        let path = dirs::normalised(&dirs::resolve_path(Path::new(named), place.cwd, place.home));
        let is_path = named.contains('/') || named.ends_with(".wasm");
        if is_path || path.is_file() {
            return Ok(path);
        }
        let loaded = self.load()?;
        let has_id = |info: &&ExtensionInfo| {
            info.registration.as_ref().is_some_and(|registration| registration.id == named)
        };
        match loaded.infos.iter().find(has_id) {
            Some(info) => Ok(info.path.clone()),
            None if path.is_dir() => Ok(path),
            None => {
                let known: Vec<&str> = loaded
                    .infos
                    .iter()
                    .filter_map(|info| Some(info.registration.as_ref()?.id.as_str()))
                    .collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                bail!(
                    "no extension that loads here has the id {named:?}; there are: {known}. A file can be named by its path"
                )
            }
        }
    }

    pub(super) fn inspect(&self, path: &Path) -> anyhow::Result<Inspection> {
        let cache = self.loading.place().agent_dir.cache().join("components");
        inspect(path, &cache)
    }
}

/// What a component says of itself; `cache` holds compiled code.
pub(super) fn inspect(path: &Path, cache: &Path) -> anyhow::Result<Inspection> {
    block_on(wharf_extensions::inspect(path, cache))?.map_err(anyhow::Error::msg)
}

fn load(loading: Arc<Loading>) -> anyhow::Result<Loaded> {
    let reports = Arc::new(Kept::default());
    let infos = block_on(wiring::registered(loading, Arc::clone(&reports) as _))?;
    let reports = std::mem::take(&mut *reports.lock());
    // What nobody has granted yet is shown where it belongs.
    let reports = reports.into_iter().filter(|report| report.event != "permissions").collect();
    Ok(Loaded { infos, reports })
}

/// A report as a line for people.
pub(super) fn line(report: &Report) -> String {
    let Report { extension_path, error, .. } = report;
    format!(
        "{}: {}",
        one_line(&extension_path.display().to_string(), REPORT_CHARS),
        one_line(error, REPORT_CHARS)
    )
}

fn block_on<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(crate::SHUTDOWN_LIMIT);
    Ok(result)
}

#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Report>>);

impl Kept {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Report>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reporter for Kept {
    fn report(&self, report: Report) {
        self.lock().push(report);
    }
}
