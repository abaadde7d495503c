//! `AGENTS.md` files: instructions that go with every conversation.

use std::path::{Path, PathBuf};

use super::diagnostics::Diagnostic;
use super::text_file;

/// In order of preference: the second one counts where the first one is missing.
const NAMES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextFile {
    pub path: PathBuf,
    pub content: String,
}

/// The agent directory's file, then one of each directory from the file-system root down
/// to `cwd`, so that the nearest one is read last.
pub(super) fn load(
    agent_dir: &Path,
    cwd: &Path,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<ContextFile> {
    let mut ancestors: Vec<_> = cwd.ancestors().filter(|dir| *dir != agent_dir).collect();
    ancestors.reverse();
    let dirs = std::iter::once(agent_dir).chain(ancestors);
    dirs.filter_map(|dir| load_from(dir, diagnostics)).collect()
}

fn load_from(dir: &Path, diagnostics: &mut Vec<Diagnostic>) -> Option<ContextFile> {
    for name in NAMES {
        let path = dir.join(name);
        match text_file::read(&path) {
            Ok(content) => return Some(ContextFile { path, content }),
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                diagnostics.push(Diagnostic::new(path, format!("context file {error}")));
                return None;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;

    use super::*;

    /// The files found below the temporary directory, which may itself lie below others.
    fn found(root: &Path, cwd: &str) -> (Vec<(String, String)>, Vec<Diagnostic>) {
        let mut diagnostics = Vec::new();
        let files = load(&root.join("agent"), &root.join(cwd), &mut diagnostics);
        let within = |path: &Path| path.strip_prefix(root).ok().map(|p| p.display().to_string());
        let files = files
            .into_iter()
            .filter_map(|file| Some((within(&file.path)?, file.content)))
            .collect();
        (files, diagnostics)
    }

    #[test]
    fn the_agent_directory_comes_first_and_the_nearest_last() {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("agent/AGENTS.md", "agent"),
            ("AGENTS.md", "top"),
            ("a/CLAUDE.md", "claude"),
            ("a/b/AGENTS.md", "\u{feff}both"),
            ("a/b/CLAUDE.md", "not read"),
            ("a/other/AGENTS.md", "not above"),
        ] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        fs::create_dir_all(root.path().join("a/b/c")).unwrap();
        let (files, diagnostics) = found(root.path(), "a/b/c");
        let files: Vec<_> = files.iter().map(|(p, c)| (p.as_str(), c.as_str())).collect();
        assert_eq!(
            files,
            [
                ("agent/AGENTS.md", "agent"),
                ("AGENTS.md", "top"),
                ("a/CLAUDE.md", "claude"),
                ("a/b/AGENTS.md", "both"),
            ]
        );
        assert_eq!(diagnostics, []);
        let (files, _) = found(root.path(), "agent");
        assert_eq!(files.len(), 2, "the agent directory is not read twice");
    }

    #[test]
    fn an_unreadable_file_is_reported_and_not_replaced() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/AGENTS.md")).unwrap();
        fs::write(root.path().join("a/CLAUDE.md"), "x").unwrap();
        let (files, diagnostics) = found(root.path(), "a");
        assert_eq!(files, []);
        assert_eq!(diagnostics.len(), 1);
        assert_eq!(
            diagnostics[0].to_string(),
            format!("{}/a/AGENTS.md: context file is not a regular file", root.path().display())
        );
    }
}
