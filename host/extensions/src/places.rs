//! The three directories that file patterns are relative to: where a path that a guest
//! names really leads, and how exactly that is opened. Whether it may be is
//! `permissions`'; what of the agent directory nobody may reach is decided here.

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use cap_fs_ext::{DirExt as _, FollowSymlinks, OpenOptionsFollowExt as _, OpenOptionsSyncExt as _};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions};

use crate::permissions::{Base, FileUse};

/// Of the agent directory: keys, grants, trust, and what is installed. Neither read nor
/// written, whatever is granted.
const CLOSED: [&str; 7] = [
    "auth.json",
    "cache",
    "extension-data",
    "extensions",
    "grants.json",
    // May hold keys.
    "models.json",
    "trusted.json",
];
/// Of the agent directory: what decides how the next run goes, and what was said. Read
/// only, whatever is granted.
const UNCHANGEABLE: [&str; 3] = ["sessions", "settings.json", "subagent-sessions"];

/// The directories of one host.
#[derive(Debug)]
pub(crate) struct Places {
    project: Root,
    home: Option<Root>,
    agent_dir: Root,
}

/// A directory, as it was when it was first needed: what takes its name later is not it.
#[derive(Debug)]
struct Root {
    named: PathBuf,
    opened: OnceLock<Opened>,
}

#[derive(Debug)]
struct Opened {
    canonical: PathBuf,
    dir: Dir,
}

impl Root {
    fn new(named: PathBuf) -> Self {
        Self { named, opened: OnceLock::new() }
    }

    fn open(&self) -> io::Result<&Opened> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let canonical = self.named.canonicalize()?;
        let dir = Dir::open_ambient_dir(&canonical, ambient_authority())?;
        Ok(self.opened.get_or_init(|| Opened { canonical, dir }))
    }
}

/// Where a path leads.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// Absolute, without links and `..`.
    pub(crate) path: PathBuf,
    /// Why it cannot be followed to its end: mostly because there is nothing.
    pub(crate) problem: Option<io::Error>,
}

/// Whether the last part of a path is followed where it is a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastLink {
    Follow,
    Keep,
}

impl Places {
    pub(crate) fn new(project: PathBuf, home: Option<PathBuf>, agent_dir: PathBuf) -> Self {
        Self {
            project: Root::new(project),
            home: home.map(Root::new),
            agent_dir: Root::new(agent_dir),
        }
    }

    pub(crate) fn agent_dir(&self) -> &Path {
        &self.agent_dir.named
    }

    /// The project's canonical path.
    pub(crate) fn project(&self) -> io::Result<&Path> {
        Ok(&self.project.open()?.canonical)
    }

    fn roots(&self) -> impl Iterator<Item = (Base, &Opened)> {
        let all = [
            (Base::Project, Some(&self.project)),
            (Base::Home, self.home.as_ref()),
            (Base::AgentDir, Some(&self.agent_dir)),
        ];
        all.into_iter().filter_map(|(base, root)| Some((base, root?.open().ok()?)))
    }

    /// The bases that a canonical path is below, with the rest of it.
    pub(crate) fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = (Base, &'a Path)> {
        self.roots()
            .filter_map(|(base, root)| Some((base, path.strip_prefix(&root.canonical).ok()?)))
    }

    /// Where a path leads that a guest names. The text says what is wrong with it.
    pub(crate) fn resolve(&self, path: &str, last: LastLink) -> Result<Resolved, String> {
        if path.is_empty() {
            return Err("path is empty".to_owned());
        }
        if path.contains('\0') {
            return Err("path holds a NUL".to_owned());
        }
        let absolute = if path.starts_with('/') {
            PathBuf::from(path)
        } else {
            let (base, rest) = Base::split(path);
            let root = match base {
                Base::Project => &self.project,
                Base::Home => {
                    self.home.as_ref().ok_or("path is in the home, and HOME is not set")?
                }
                Base::AgentDir => &self.agent_dir,
            };
            // `~//x` must not become `/x`.
            root.named.join(rest.trim_start_matches('/'))
        };
        match (last, absolute.file_name(), absolute.parent()) {
            (LastLink::Keep, Some(name), Some(parent)) => {
                let mut resolved = resolve_absolute(parent);
                resolved.path.push(name);
                Ok(resolved)
            }
            _ => Ok(resolve_absolute(&absolute)),
        }
    }

    /// Whether the agent directory keeps a canonical path to itself.
    pub(crate) fn is_protected(&self, path: &Path, usage: FileUse) -> bool {
        let agent_dir = match self.agent_dir.open() {
            Ok(opened) => opened.canonical.clone(),
            // It may come to be by what is judged here.
            Err(_) => resolve_absolute(&self.agent_dir.named).path,
        };
        let names = CLOSED
            .iter()
            .chain(UNCHANGEABLE.iter().filter(|_| usage == FileUse::Write))
            .copied()
            .map(OsStr::new);
        if let Ok(relative) = path.strip_prefix(&agent_dir)
            && let Some(Component::Normal(first)) = relative.components().next()
        {
            // Temporary files of the above begin with a dot. Some file systems do not
            // tell upper from lower case.
            let is_hidden = first.as_encoded_bytes().starts_with(b".");
            return is_hidden || names.into_iter().any(|name| first.eq_ignore_ascii_case(name));
        }
        // One of them may be a link to somewhere else.
        names.into_iter().any(|name| {
            let protected = agent_dir.join(name);
            protected.canonicalize().is_ok_and(|real| path.starts_with(real))
        })
    }

    /// The folder that holds the last part of a canonical path, and that part; None: the
    /// path is the base itself. Missing folders are made where `make` says so.
    pub(crate) fn folder_of<'a>(
        &self,
        base: Base,
        relative: &'a Path,
        make: bool,
    ) -> io::Result<(Dir, Option<&'a OsStr>)> {
        let mut folder = self.open_base(base)?;
        let Some(name) = relative.file_name() else { return Ok((folder, None)) };
        for component in relative.parent().unwrap_or(Path::new("")).components() {
            let Component::Normal(part) = component else {
                return Err(io::Error::from(io::ErrorKind::InvalidInput));
            };
            folder = match folder.open_dir_nofollow(part) {
                Err(error) if make && error.kind() == io::ErrorKind::NotFound => {
                    match folder.create_dir(part) {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                            return Err(error);
                        }
                        _ => folder.open_dir_nofollow(part)?,
                    }
                }
                opened => opened?,
            };
        }
        Ok((folder, Some(name)))
    }

    fn open_base(&self, base: Base) -> io::Result<Dir> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let root = match base {
            Base::Project => &self.project,
            Base::Home => self.home.as_ref().ok_or_else(missing)?,
            Base::AgentDir => &self.agent_dir,
        };
        root.open()?.dir.try_clone()
    }
}

/// Opens a regular file for reading, and nothing that merely has its name: no link, no
/// pipe and no device is opened, nor waited for.
pub(crate) fn open_regular(folder: &Dir, name: &OsStr) -> io::Result<File> {
    let odd = || io::Error::other("it is no regular file");
    if !folder.symlink_metadata(name)?.is_file() {
        return Err(odd());
    }
    let mut options = OpenOptions::new();
    options.read(true).follow(FollowSymlinks::No).nonblock(true);
    let file = folder.open_with(name, &options)?;
    // It may have been another one a moment ago.
    if file.metadata()?.is_file() { Ok(file) } else { Err(odd()) }
}

/// Follows a path as far as it goes; what is not there keeps its name.
fn resolve_absolute(absolute: &Path) -> Resolved {
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut problem = None;
    let mut existing = absolute;
    loop {
        match existing.canonicalize() {
            Ok(mut path) => {
                path.extend(missing.iter().rev());
                return Resolved { path, problem };
            }
            Err(error) => problem = problem.or(Some(error)),
        }
        match (existing.components().next_back(), existing.parent()) {
            // A `..` behind a folder that is not there stays: no pattern matches it.
            (Some(last), Some(parent)) => {
                missing.push(last.as_os_str());
                existing = parent;
            }
            _ => return Resolved { path: absolute.to_owned(), problem },
        }
    }
}
