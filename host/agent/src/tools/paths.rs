//! From the text of a path argument to the one canonical path that a call touches.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use serde_json::{Map, Value};

use crate::tool::ToolFailure;

/// Links followed before a path counts as a loop; Linux stops at the same number.
const MAX_LINKS: usize = 40;

/// Too many symbolic links, or a loop of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("too many symbolic links in {}", .0.display())]
pub struct LinkLoop(pub PathBuf);

/// The absolute path that `text` names: `~` and `~/x` lie in `home`, other relative
/// paths in `cwd`. `..` and links stay as they are; see [`canonical_path`].
pub fn resolve_path(cwd: &Path, home: Option<&Path>, text: &str) -> PathBuf {
    if let Some(home) = home {
        if text == "~" {
            return home.to_path_buf();
        }
        if let Some(rest) = text.strip_prefix("~/") {
            // Else `~//etc` would be absolute and leave the home directory.
            return home.join(rest.trim_start_matches('/'));
        }
    }
    cwd.join(text)
}

/// Where a read or write of the absolute `path` ends up: `..` and links resolved as
/// the system resolves them, dangling links followed to where a write would land.
/// Parts that do not exist are kept, and a `..` after them takes one away.
pub fn canonical_path(path: &Path) -> Result<PathBuf, LinkLoop> {
    if let Ok(canonical) = fs::canonicalize(path) {
        return Ok(canonical);
    }
    let mut pending: VecDeque<OsString> = VecDeque::new();
    let mut resolved = PathBuf::new();
    let mut links = 0;
    push_front(&mut pending, &mut resolved, path);
    while let Some(part) = pending.pop_front() {
        if part == ".." {
            resolved.pop();
            continue;
        }
        let next = resolved.join(&part);
        match fs::read_link(&next) {
            Ok(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(LinkLoop(path.to_path_buf()));
                }
                push_front(&mut pending, &mut resolved, &target);
            }
            // Not a link, not there, or not to be looked at.
            Err(_) => resolved = next,
        }
    }
    Ok(with_true_case(resolved))
}

/// Puts the parts of `path` before `pending`; an absolute one starts over.
fn push_front(pending: &mut VecDeque<OsString>, resolved: &mut PathBuf, path: &Path) {
    let mut parts: Vec<OsString> = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir => *resolved = PathBuf::from("/"),
            Component::ParentDir => parts.push(OsString::from("..")),
            Component::Normal(name) => parts.push(name.to_os_string()),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    for part in parts.into_iter().rev() {
        pending.push_front(part);
    }
}

/// On file systems that ignore case, the existing part's own spelling.
fn with_true_case(path: PathBuf) -> PathBuf {
    for ancestor in path.ancestors().skip(1) {
        if let Ok(real) = fs::canonicalize(ancestor) {
            return match path.strip_prefix(ancestor) {
                Ok(rest) => real.join(rest),
                Err(_) => path,
            };
        }
    }
    path
}

/// Resolves path arguments for one home directory.
#[derive(Debug, Clone)]
pub(super) struct Paths {
    home: Option<PathBuf>,
}

impl Paths {
    pub(super) fn new(home: Option<PathBuf>) -> Self {
        Self { home }
    }

    pub(super) fn canonical(&self, cwd: &Path, text: &str) -> Result<PathBuf, ToolFailure> {
        canonical_path(&resolve_path(cwd, self.home.as_deref(), text))
            .map_err(|error| ToolFailure::new(error.to_string()))
    }

    /// For [`Tool::paths`](crate::tool::Tool::paths): what a call with `args` touches,
    /// given that a missing `path` means the cwd.
    pub(super) fn touched(&self, args: &Map<String, Value>, cwd: &Path) -> Vec<PathBuf> {
        let text = args.get("path").and_then(Value::as_str).unwrap_or(".");
        let path = resolve_path(cwd, self.home.as_deref(), text);
        // A loop is refused when the call runs, so its name is all there is to judge.
        vec![canonical_path(&path).unwrap_or(path)]
    }
}

/// A failure to do something with a path, as the model reads it.
pub(super) fn io_failure(action: &str, path: &str, error: &io::Error) -> ToolFailure {
    ToolFailure::new(format!("failed to {action} {path}: {error}"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    fn check(cwd: &Path, text: &str, expected: &str) {
        let path = resolve_path(cwd, Some(&cwd.join("home")), text);
        assert_eq!(canonical_path(&path).unwrap(), cwd.join(expected), "{text}");
    }

    #[test]
    fn links_and_dots_resolve_to_what_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(cwd.join("sub/deep")).unwrap();
        fs::create_dir_all(cwd.join("home")).unwrap();
        fs::create_dir_all(cwd.join(".git")).unwrap();
        fs::write(cwd.join(".env"), "secret").unwrap();
        fs::write(cwd.join("sub/ünï 文.txt"), "").unwrap();
        symlink(".env", cwd.join("x")).unwrap();
        symlink("x", cwd.join("x2")).unwrap();
        symlink("sub/deep", cwd.join("into")).unwrap();
        symlink("sub/none/new.txt", cwd.join("dangling")).unwrap();
        symlink(cwd.join(".env.new"), cwd.join("sub/absolute")).unwrap();
        symlink("../../.env.new", cwd.join("sub/deep/up")).unwrap();

        check(&cwd, "x", ".env");
        check(&cwd, "./x2", ".env");
        check(&cwd, "sub/../x", ".env");
        check(&cwd, ".git/config", ".git/config");
        check(&cwd, "node_modules/../.git/config", ".git/config");
        check(&cwd, "a/b/../../c/./d", "c/d");
        // `..` after a link leaves the link's target, as for the system.
        check(&cwd, "into/../y", "sub/y");
        check(&cwd, "into/y", "sub/deep/y");
        check(&cwd, "dangling", "sub/none/new.txt");
        check(&cwd, "dangling/../z", "sub/none/z");
        check(&cwd, "sub/absolute", ".env.new");
        check(&cwd, "into/up", ".env.new");
        check(&cwd, "missing/../into/up", ".env.new");
        check(&cwd, "sub/ünï 文.txt", "sub/ünï 文.txt");
        check(&cwd, "~", "home");
        check(&cwd, "~/a.txt", "home/a.txt");
        check(&cwd, "~//a.txt", "home/a.txt");
        check(&cwd, "~other/a.txt", "~other/a.txt");
        check(&cwd, "", "");
        // A file is no directory: the call fails, or touches what was judged.
        check(&cwd, ".env/../x", ".env");
        assert_eq!(canonical_path(Path::new("/../..")).unwrap(), Path::new("/"));
    }

    #[test]
    fn loops_and_long_chains_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path();
        symlink("b", cwd.join("a")).unwrap();
        symlink("a", cwd.join("b")).unwrap();
        assert_eq!(canonical_path(&cwd.join("a")), Err(LinkLoop(cwd.join("a"))));
        // The system would follow the rest of the chain from where judging stopped.
        symlink(".env", cwd.join("l0")).unwrap();
        for n in 1..60 {
            symlink(format!("l{}", n - 1), cwd.join(format!("l{n}"))).unwrap();
        }
        assert_eq!(canonical_path(&cwd.join("l59")), Err(LinkLoop(cwd.join("l59"))));
        assert!(canonical_path(&cwd.join("l20")).is_ok());
    }

    proptest! {
        /// Writing to the canonical path and reading by the given one meet in one file.
        #[test]
        fn what_exists_agrees_with_the_system(parts in proptest::collection::vec(
            prop_oneof![Just("d"), Just("e"), Just(".."), Just("."), Just("link"), Just("up")], 0..8,
        )) {
            let dir = tempfile::tempdir().unwrap();
            let cwd = fs::canonicalize(dir.path()).unwrap();
            fs::create_dir_all(cwd.join("w/d/e")).unwrap();
            symlink("d/e", cwd.join("w/link")).unwrap();
            symlink("../d", cwd.join("w/d/up")).unwrap();
            let path = cwd.join("w").join(parts.join("/"));
            let canonical = canonical_path(&path).unwrap();
            match fs::canonicalize(&path) {
                Ok(real) => prop_assert_eq!(&canonical, &real),
                Err(_) => prop_assert_eq!(canonical_path(&canonical).unwrap(), canonical.clone()),
            }
            for component in canonical.components() {
                prop_assert!(!matches!(component, Component::ParentDir | Component::CurDir));
            }
        }
    }
}
