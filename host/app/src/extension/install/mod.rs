//! `wharf extension install`, `remove` and `update`: extensions from a path, a git
//! repository, npm or an OCI registry, each pinned to its content. Nothing of an extension
//! is run here but `register`, in its sandbox, and nothing is granted.

mod archive;
mod candidates;
mod git;
mod local;
mod npm;
mod oci;
mod place;
mod program;
mod source;
mod told;

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use sha2::{Digest as _, Sha256};
use wharf_agent::resources::{AgentDir, TrustStore, dirs};
use wharf_extensions::{Installed, InstalledEntry, Permission, inspect, is_content_hash};
use wharf_session::Timestamp;

use self::place::{Replace, is_intact, place};
use self::source::Source;
use self::told::plain;
use crate::report;
use crate::wiring::agent_dir;

/// Where extensions are installed.
#[derive(Debug, Clone, Args)]
pub(crate) struct TargetArgs {
    /// In the .wharf/extensions of this project instead of the person's own
    #[arg(long)]
    project: bool,
    /// Where settings, sessions, extensions and trust are kept [default: ~/.wharf/agent]
    #[arg(long, value_name = "DIR")]
    agent_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct InstallArgs {
    /// A .wasm file, a folder or a crate; git+URL[#REVISION] or URL.git; npm:NAME[@VERSION]; oci://REGISTRY/REPOSITORY:TAG
    source: String,
    #[command(flatten)]
    target: TargetArgs,
    /// Install nothing but this content
    #[arg(long, value_name = "sha256:HEX")]
    hash: Option<String>,
    /// Also replace an extension of the same id that came from elsewhere
    #[arg(long)]
    force: bool,
    /// Build a crate first; this runs its build scripts with your rights
    #[arg(long)]
    build: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RemoveArgs {
    /// The extension's id
    id: String,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UpdateArgs {
    /// The extensions' ids; without any, all that are installed there
    ids: Vec<String>,
    #[command(flatten)]
    target: TargetArgs,
    /// Build crates first; this runs their build scripts with your rights
    #[arg(long)]
    build: bool,
}

/// What a source gave.
#[derive(Debug)]
struct Fetched {
    component: Vec<u8>,
    /// A commit, a version or a digest.
    resolved: Option<String>,
}

/// A component that the host would accept.
#[derive(Debug)]
struct Arrival {
    source: Source,
    resolved: Option<String>,
    component: Vec<u8>,
    hash: String,
    id: String,
    version: String,
    permissions: Vec<Permission>,
}

impl Arrival {
    fn entry(&self) -> InstalledEntry {
        InstalledEntry {
            source: self.source.to_string(),
            resolved: self.resolved.clone(),
            hash: self.hash.clone(),
            version: self.version.clone(),
            installed_at: Timestamp::now().to_string(),
        }
    }
}

/// An extensions directory, and what is needed around it.
struct Target {
    agent_dir: AgentDir,
    cwd: PathBuf,
    directory: PathBuf,
    is_project: bool,
}

impl Target {
    fn new(args: &TargetArgs) -> anyhow::Result<Self> {
        let agent_dir = agent_dir(args.agent_dir.as_deref())?;
        let cwd = std::env::current_dir().context("the working directory cannot be read")?;
        let directory =
            if args.project { project_directory(&cwd)? } else { agent_dir.extensions() };
        Ok(Self { agent_dir, cwd, directory, is_project: args.project })
    }

    fn is_trusted(&self) -> anyhow::Result<bool> {
        Ok(TrustStore::load(self.agent_dir.trust_file())?.is_trusted(&self.cwd))
    }

    /// Fetches and inspects; `None` as `hash` takes any content.
    async fn fetch(
        &self,
        source: Source,
        hash: Option<&str>,
        build: bool,
    ) -> anyhow::Result<Arrival> {
        let Fetched { component, resolved } = match &source {
            Source::Path(path) => local::fetch(path, build).await?,
            Source::Git { url, revision } => git::fetch(url, revision.as_deref(), build).await?,
            Source::Npm { name, version } => npm::fetch(name, version.as_deref()).await?,
            Source::Oci(reference) => oci::fetch(reference).await?,
        };
        let actual = content_hash(&component);
        if let Some(wanted) = hash
            && wanted != actual
        {
            bail!("the component from {source} is {actual}, not {wanted}; nothing was installed");
        }
        let temp = tempfile::tempdir().context("failed to make a temporary directory")?;
        let file = temp.path().canonicalize()?.join("extension.wasm");
        std::fs::write(&file, &component)
            .with_context(|| format!("failed to write {}", file.display()))?;
        let cache = self.agent_dir.cache().join("components");
        let inspection = inspect(&file, &cache).await.map_err(|problem| {
            // The copy means nothing to a person.
            anyhow!(problem.replace(&file.display().to_string(), &source.to_string()))
        })?;
        ensure!(
            inspection.content_hash == actual,
            "the component from {source} was changed while it was inspected"
        );
        let registration = inspection.registration;
        Ok(Arrival {
            source,
            resolved,
            component,
            hash: actual,
            id: registration.id,
            version: registration.version,
            permissions: registration.permissions,
        })
    }
}

pub(crate) fn install(args: &InstallArgs) -> anyhow::Result<ExitCode> {
    if let Some(hash) = &args.hash {
        ensure!(is_content_hash(hash), "--hash {hash:?} is not sha256: and 64 digits of 0-9a-f");
    }
    let target = Target::new(&args.target)?;
    let source = Source::parse(&args.source, &target.cwd)?;
    let arrival = runtime()?.block_on(target.fetch(source, args.hash.as_deref(), args.build))?;
    let replace = if args.force { Replace::Anything } else { Replace::SameSource };
    let earlier = place(&target.directory, &arrival, replace)?;
    say(told::installed(&arrival, earlier.as_ref(), &target.directory))?;
    if target.is_project && !target.is_trusted()? {
        say("it is not loaded before this project is trusted: wharf trust")?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn remove(args: &RemoveArgs) -> anyhow::Result<ExitCode> {
    let target = Target::new(&args.target)?;
    let entry = place::remove(&target.directory, &args.id)?;
    say(format_args!("removed {} {}", args.id, plain(&entry.version)))?;
    say(format_args!(
        "what it was granted and its data stay; to take the grants back: wharf extension revoke {}",
        args.id
    ))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn update(args: &UpdateArgs) -> anyhow::Result<ExitCode> {
    let target = Target::new(&args.target)?;
    let installed = Installed::load(&target.directory)?;
    let ids: Vec<&str> = match &args.ids[..] {
        [] => installed.entries().keys().map(String::as_str).collect(),
        ids => ids.iter().map(String::as_str).collect(),
    };
    if ids.is_empty() {
        say(format_args!("nothing is installed in {}", target.directory.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    // Whoever wrote a project's list would say otherwise what this machine fetches.
    ensure!(
        !target.is_project || target.is_trusted()?,
        "the sources of this project's extensions are not followed before it is trusted: wharf trust"
    );
    let runtime = runtime()?;
    let mut code = ExitCode::SUCCESS;
    for id in ids {
        if let Err(error) = runtime.block_on(update_one(&target, &installed, id, args.build)) {
            report::failure(&error.context(format!("{} is not updated", plain(id))));
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

async fn update_one(
    target: &Target,
    installed: &Installed,
    id: &str,
    build: bool,
) -> anyhow::Result<()> {
    let entry = installed
        .entries()
        .get(id)
        .ok_or_else(|| anyhow!("it is not installed in {}", target.directory.display()))?;
    let source = Source::parse(&entry.source, Path::new("/"))
        .context("its source in installed.json is not understood")?;
    let arrival = target.fetch(source, None, build).await?;
    ensure!(
        arrival.id == id,
        "{} now holds the extension {}; install that one by itself",
        entry.source,
        arrival.id
    );
    let is_intact = is_intact(installed, id, &entry.hash)?;
    if is_intact && arrival.hash == entry.hash {
        say(format_args!("{id} {} is up to date", plain(&entry.version)))?;
        return Ok(());
    }
    // What an altered component says of itself is not what was known of it.
    let known = if is_intact { asked_by(target, &installed.component(id)).await } else { None };
    place(&target.directory, &arrival, Replace::Entry(entry))?;
    say(told::updated(&arrival, entry, known.as_deref()))
}

/// What an installed component asks for; none where it cannot be said any more.
async fn asked_by(target: &Target, component: &Path) -> Option<Vec<Permission>> {
    let cache = target.agent_dir.cache().join("components");
    Some(inspect(component, &cache).await.ok()?.registration.permissions)
}

/// `.wharf/extensions` of a project. A link in a hostile project could lead a write
/// anywhere.
fn project_directory(cwd: &Path) -> anyhow::Result<PathBuf> {
    let mut directory = cwd.to_owned();
    for name in [dirs::PROJECT_DIR, "extensions"] {
        directory.push(name);
        if directory.is_symlink() {
            bail!(
                "{} is a link: nothing of a project is installed through one",
                directory.display()
            );
        }
    }
    Ok(directory)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// `sha256:` and 64 hex digits.
fn content_hash(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

fn say(text: impl fmt::Display) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{text}").context("failed to write to standard output")
}
