//! Which files `grep` and `find` see, and how they name them.
//!
//! Hidden files are seen, `.git` is not entered. `.gitignore`, `.ignore` and
//! `.git/info/exclude` count, also outside of a repository; a person's global ignore
//! file does not, so that a result depends on the project alone. Links are named but
//! not followed: everything seen lies below the path that a guard judged.

use std::path::Path;

use ignore::{Walk, WalkBuilder};

/// Everything below `root`, in the order of paths.
pub(super) fn walk(root: &Path) -> Walk {
    WalkBuilder::new(root)
        .hidden(false)
        .git_global(false)
        .require_git(false)
        .follow_links(false)
        .sort_by_file_path(Path::cmp)
        .filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git")
        .build()
}

/// `path` relative to the canonical `cwd` if it lies in it, so that other tools take it
/// as it is.
pub(super) fn display(path: &Path, cwd: &Path) -> String {
    match path.strip_prefix(cwd) {
        Ok(relative) if relative.as_os_str().is_empty() => ".".to_owned(),
        Ok(relative) => relative.to_string_lossy().into_owned(),
        Err(_) => path.to_string_lossy().into_owned(),
    }
}
