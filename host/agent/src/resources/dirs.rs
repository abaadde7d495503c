//! Names of the agent directory's and the project's files. Nothing here reads them.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// A project's own folder.
pub const PROJECT_DIR: &str = ".wharf";

/// Names the agent directory, below `--agent-dir`.
pub const AGENT_DIR_VARIABLE: &str = "WHARF_AGENT_DIR";

/// The directory of a person's settings, skills, sessions and grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentDir(PathBuf);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentDirError {
    #[error("no agent directory: set HOME or {AGENT_DIR_VARIABLE}, or pass --agent-dir")]
    NoHome,
}

impl AgentDir {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The explicit directory, else that of `WHARF_AGENT_DIR`, else `$HOME/.wharf/agent`.
    /// `~` is expanded, a relative path starts at `cwd`; an empty variable counts as unset.
    pub fn resolve(
        explicit: Option<&Path>,
        cwd: &Path,
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, AgentDirError> {
        let home = home_dir(&env);
        if let Some(path) = explicit {
            return Ok(Self(resolve_path(path, cwd, home.as_deref())));
        }
        if let Some(path) = env(AGENT_DIR_VARIABLE).filter(|value| !value.is_empty()) {
            return Ok(Self(resolve_path(Path::new(&path), cwd, home.as_deref())));
        }
        match home {
            Some(home) => Ok(Self(home.join(PROJECT_DIR).join("agent"))),
            None => Err(AgentDirError::NoHome),
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn settings_file(&self) -> PathBuf {
        self.0.join("settings.json")
    }

    pub fn models_file(&self) -> PathBuf {
        self.0.join("models.json")
    }

    pub fn auth_file(&self) -> PathBuf {
        self.0.join("auth.json")
    }

    pub fn performance_log(&self) -> PathBuf {
        self.0.join("performance.jsonl")
    }

    pub fn trust_file(&self) -> PathBuf {
        self.0.join("trusted.json")
    }

    pub fn log_file(&self) -> PathBuf {
        self.0.join("wharf.log")
    }

    pub fn skills(&self) -> PathBuf {
        self.0.join("skills")
    }

    pub fn prompts(&self) -> PathBuf {
        self.0.join("prompts")
    }

    pub fn extensions(&self) -> PathBuf {
        self.0.join("extensions")
    }

    pub fn sessions(&self) -> PathBuf {
        self.0.join("sessions")
    }

    /// Transcripts of subagents, which are no sessions of their own.
    pub fn subagent_sessions(&self) -> PathBuf {
        self.0.join("subagent-sessions")
    }

    pub fn cache(&self) -> PathBuf {
        self.0.join("cache")
    }
}

/// `$HOME`, unless it is unset or empty.
pub fn home_dir(env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    env("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// Replaces a leading `~` by the home directory. `~other` names a file, not a user.
pub fn expand_home(path: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) if rest.as_os_str().is_empty() => home.to_path_buf(),
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_path_buf(),
    }
}

/// `~` expanded; a path that is still relative starts at `base`.
pub fn resolve_path(path: &Path, base: &Path, home: Option<&Path>) -> PathBuf {
    base.join(expand_home(path, home))
}

/// `.` and `..` taken out of an absolute path, by its text alone.
pub fn normalised(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// The nearest directory at or above `cwd` that holds `.git` (a folder, or a file in
/// worktrees and submodules).
pub fn repository_root(cwd: &Path) -> Option<&Path> {
    cwd.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn env<'a>(pairs: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
    }

    fn resolve(explicit: Option<&str>, pairs: &[(&str, &str)]) -> Result<AgentDir, AgentDirError> {
        AgentDir::resolve(explicit.map(Path::new), Path::new("/cwd"), env(pairs))
    }

    #[test]
    fn flag_then_variable_then_home() {
        let all = [("HOME", "/home/u"), (AGENT_DIR_VARIABLE, "/env")];
        assert_eq!(resolve(Some("/flag"), &all).unwrap().path(), Path::new("/flag"));
        assert_eq!(resolve(None, &all).unwrap().path(), Path::new("/env"));
        assert_eq!(
            resolve(None, &all[..1]).unwrap().settings_file(),
            Path::new("/home/u/.wharf/agent/settings.json")
        );
    }

    #[test]
    fn empty_variables_are_unset_and_no_home_is_an_error() {
        let empty = [("HOME", ""), (AGENT_DIR_VARIABLE, "")];
        let error = resolve(None, &empty).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no agent directory: set HOME or WHARF_AGENT_DIR, or pass --agent-dir"
        );
        assert_eq!(resolve(Some("x"), &empty).unwrap().path(), Path::new("/cwd/x"));
    }

    #[test]
    fn home_is_expanded_only_as_a_whole_component() {
        let home = Some(Path::new("/home/u"));
        assert_eq!(expand_home(Path::new("~"), home), Path::new("/home/u"));
        assert_eq!(expand_home(Path::new("~/a/b"), home), Path::new("/home/u/a/b"));
        assert_eq!(expand_home(Path::new("~other/a"), home), Path::new("~other/a"));
        assert_eq!(expand_home(Path::new("a/~"), home), Path::new("a/~"));
        assert_eq!(expand_home(Path::new("~/a"), None), Path::new("~/a"));
        let dir = resolve(Some("~/agent"), &[("HOME", "/home/u")]).unwrap();
        assert_eq!(dir.path(), Path::new("/home/u/agent"));
    }

    #[test]
    fn the_nearest_repository_counts() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        std::fs::create_dir_all(inner.join("c")).unwrap();
        std::fs::create_dir(dir.path().join(".git")).unwrap();
        assert_eq!(repository_root(&inner.join("c")), Some(dir.path()));
        std::fs::write(inner.join(".git"), "gitdir: elsewhere").unwrap();
        assert_eq!(repository_root(&inner.join("c")), Some(inner.as_path()));
    }
}
