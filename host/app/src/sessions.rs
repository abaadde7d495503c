//! Sessions as the command line names them: which one a run begins with, the list of
//! `--resume`, and the runs that only export or import one.

use std::ffi::OsStr;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use wharf_agent::resources::{AgentDir, Settings, TrustStore, dirs};
use wharf_session::{Session, SessionDir, SessionIndex, SessionInfo, SessionOptions};

use crate::cli::{ImportArgs, LoadArgs, Mode, RunArgs, StoreArgs};
use crate::modes::FLUSH_GRACE;
use crate::plain::shown;
use crate::stdout::Stdout;
use crate::{export, report, wiring};

/// Characters of a session's name or first message in a list.
const TITLE_CHARS: usize = 60;

/// Characters of an id in a list; enough to tell sessions apart.
const ID_CHARS: usize = 8;

/// Where a run looks for sessions.
pub(crate) struct Place<'a> {
    pub(crate) cwd: &'a Path,
    pub(crate) home: Option<&'a Path>,
    pub(crate) agent_dir: &'a AgentDir,
}

impl Place<'_> {
    /// The directory of `--session-dir` or settings; none where neither says one.
    pub(crate) fn chosen_dir(&self, args: &StoreArgs, settings: &Settings) -> Option<SessionDir> {
        let dir = args.session_dir.as_ref().or(settings.session_dir.as_ref())?;
        Some(self.flat(dir))
    }

    pub(crate) fn default_dir(&self) -> SessionDir {
        SessionDir::Nested(self.agent_dir.sessions())
    }

    pub(crate) fn flat(&self, dir: &Path) -> SessionDir {
        SessionDir::Flat(self.resolve(dir))
    }

    /// As RPC commands resolve paths, so that a file is called the same everywhere.
    fn resolve(&self, path: &Path) -> PathBuf {
        dirs::normalised(&dirs::resolve_path(path, self.cwd, self.home))
    }

    pub(crate) fn index(&self) -> Arc<SessionIndex> {
        Arc::new(SessionIndex::new(self.agent_dir.cache().join("sessions.json")))
    }

    /// The file of a session that is named by its path, its id or the beginning of that.
    fn find(
        &self,
        dir: &SessionDir,
        index: &SessionIndex,
        named: &Path,
    ) -> anyhow::Result<PathBuf> {
        let path = self.resolve(named);
        match named.to_str() {
            Some(id) if !is_path(named) && !path.is_file() => Ok(dir.find(self.cwd, id, index)?),
            _ => Ok(path),
        }
    }
}

/// Whether it can only be a path: ids are made of hex digits and hyphens.
fn is_path(named: &Path) -> bool {
    named.components().count() != 1
        || named.extension() == Some(OsStr::new("jsonl"))
        || named.starts_with("~")
}

/// Whether a run begins with a session that there is already.
pub(crate) fn is_reopening(args: &RunArgs) -> bool {
    args.session.is_some() || args.fork.is_some() || args.continue_last || args.resume
}

/// The session that a run begins with.
pub(crate) fn first(
    args: &RunArgs,
    place: &Place<'_>,
    dir: &SessionDir,
    index: &SessionIndex,
) -> anyhow::Result<Session> {
    if args.no_session {
        return Ok(Session::in_memory(place.cwd));
    }
    // RPC mode starts all the same; whatever needs the directory fails, and says so.
    if args.mode != Some(Mode::Rpc) {
        check_dir(dir.root())?;
    }
    if let Some(named) = &args.session {
        return Ok(Session::open_to_write(&place.find(dir, index, named)?)?);
    }
    if let Some(named) = &args.fork {
        let source = place.find(dir, index, named)?;
        return Ok(Session::fork_from(&source, place.cwd, dir)?);
    }
    if args.resume {
        return Ok(Session::open_to_write(&choose(place, dir, index)?)?);
    }
    if args.continue_last {
        return Ok(Session::continue_recent(dir, place.cwd)?);
    }
    let options = SessionOptions {
        agent_type: args.agent_type.clone(),
        parent_session: args.parent_session.clone(),
    };
    Ok(Session::create(dir, place.cwd, options))
}

/// A place that can never hold sessions is told before a model has worked for them.
fn check_dir(dir: &Path) -> anyhow::Result<()> {
    match std::fs::metadata(dir) {
        Ok(found) => ensure!(found.is_dir(), "session directory {} is no directory", dir.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error)
                .with_context(|| format!("session directory {} cannot be used", dir.display()));
        }
    }
    Ok(())
}

/// What concerns session files only and needs no agent: the list of `--resume` without a
/// prompt, `--export`.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Option<ExitCode>> {
    if let Some(named) = &args.export {
        return export(args, named).map(Some);
    }
    if !args.resume {
        return Ok(None);
    }
    if matches!(args.mode, Some(Mode::Rpc | Mode::Json)) {
        report::error(
            "--resume shows a person a list; a program has list_sessions and switch_session, or --session ID",
        );
        return Ok(Some(ExitCode::from(2)));
    }
    if !args.messages.is_empty() && io::stdin().is_terminal() {
        return Ok(None);
    }
    with_store(StoreOf::run(args), |place, dir| {
        let sessions = list(place, dir, &place.index())?;
        if !args.messages.is_empty() {
            report::line(table(&sessions));
            bail!("nobody can choose a session here: name one with --session ID");
        }
        let out = Stdout::start()?;
        out.raw(table(&sessions).into_bytes());
        out.finish(FLUSH_GRACE);
        if !sessions.is_empty() {
            report::line("Reopen one with: wharf --session ID \"MESSAGE\"");
        }
        Ok(Some(ExitCode::SUCCESS))
    })
}

/// `wharf import FILE`
pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    with_store(
        StoreOf { place: &args.place, loaded: &args.loaded, trust_project: false },
        |place, dir| {
            let source = place.resolve(&args.file);
            let session = Session::import(&source, place.cwd, dir)?;
            print_path(session.file().unwrap_or(Path::new("")))
        },
    )
}

/// `wharf --export FILE|ID [OUTPUT]`
fn export(args: &RunArgs, named: &Path) -> anyhow::Result<ExitCode> {
    ensure!(args.messages.len() <= 1, "--export takes one session and at most one file to write");
    with_store(StoreOf::run(args), |place, dir| {
        let session = Session::open(&place.find(dir, &place.index(), named)?)?;
        for warning in session.warnings().texts() {
            report::warning(warning);
        }
        let output = match args.messages.first() {
            Some(output) => place.resolve(Path::new(output)),
            None => place.cwd.join(export::default_file_name(&session)),
        };
        export::write_file(&session, &output)?;
        print_path(&output)
    })
}

fn print_path(path: &Path) -> anyhow::Result<ExitCode> {
    let out = Stdout::start()?;
    out.raw(format!("{}\n", path.display()).into_bytes());
    out.finish(FLUSH_GRACE);
    Ok(ExitCode::SUCCESS)
}

/// What names a store.
struct StoreOf<'a> {
    place: &'a StoreArgs,
    loaded: &'a LoadArgs,
    trust_project: bool,
}

impl<'a> StoreOf<'a> {
    fn run(args: &'a RunArgs) -> Self {
        Self { place: &args.place, loaded: &args.loaded, trust_project: args.trust_project }
    }
}

/// Runs `work` with the store that flags, settings and extensions name; those of the
/// project count where it is trusted.
fn with_store<T>(
    args: StoreOf<'_>,
    work: impl FnOnce(&Place<'_>, &SessionDir) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let cwd = std::env::current_dir().context("the working directory cannot be read")?;
    let home = dirs::home_dir(|name| std::env::var_os(name));
    let agent_dir = wiring::agent_dir(args.place.agent_dir.as_deref())?;
    let place = Place { cwd: &cwd, home: home.as_deref(), agent_dir: &agent_dir };
    let trusted = args.trust_project || TrustStore::load(agent_dir.trust_file())?.is_trusted(&cwd);
    let mut diagnostics = Vec::new();
    let settings = Settings::load(&agent_dir, &cwd, place.home, trusted, &mut diagnostics);
    for diagnostic in diagnostics {
        report::warning(format_args!("{}: {}", diagnostic.path.display(), diagnostic.message));
    }
    let dir = match place.chosen_dir(args.place, &settings) {
        Some(dir) => Some(dir),
        None => wiring::dir_by_extensions(args.loaded, &place, &settings, trusted)?,
    };
    work(&place, &dir.unwrap_or_else(|| place.default_dir()))
}

fn list(
    place: &Place<'_>,
    dir: &SessionDir,
    index: &SessionIndex,
) -> anyhow::Result<Vec<SessionInfo>> {
    let listing = dir.list(place.cwd, index, &mut |_, _| {})?;
    for (path, problem) in &listing.problems {
        report::warning(format_args!("{}: {problem}", path.display()));
    }
    Ok(listing.sessions)
}

/// Has the person choose a session at the terminal.
fn choose(place: &Place<'_>, dir: &SessionDir, index: &SessionIndex) -> anyhow::Result<PathBuf> {
    let sessions = list(place, dir, index)?;
    ensure!(!sessions.is_empty(), "there is no session of this directory yet");
    report::line(table(&sessions));
    loop {
        report::line(format_args!("Which one (1 to {}, empty for none)?", sessions.len()));
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line).context("failed to read the answer")?;
        let answer = line.trim();
        ensure!(read > 0 && !answer.is_empty(), "no session was chosen");
        let number = answer.parse::<usize>().ok();
        if let Some(chosen) = number.and_then(|number| sessions.get(number.checked_sub(1)?)) {
            return Ok(chosen.path.clone());
        }
    }
}

/// One line a session: number, id, when it was modified, messages, name or first message.
fn table(sessions: &[SessionInfo]) -> String {
    if sessions.is_empty() {
        return "no session of this directory yet\n".to_owned();
    }
    let lines = sessions.iter().enumerate().map(|(at, session)| {
        let title = session.name.as_deref().unwrap_or(&session.first_message);
        let title: Vec<&str> = title.split_whitespace().collect();
        let title = shown(&title.join(" "), TITLE_CHARS);
        let id = shown(&session.id, ID_CHARS);
        format!(
            "{:>3}  {id:<ID_CHARS$}  {}  {:>5}  {title}\n",
            at + 1,
            session.modified,
            session.message_count
        )
    });
    format!("  #  {:<ID_CHARS$}  {:<24}  {:>5}  name or first message\n", "id", "modified", "msgs")
        + &lines.collect::<String>()
}
