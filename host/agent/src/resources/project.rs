//! What a project directory brings along, and where. Whether it counts is a matter of
//! trust, which is decided elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use super::diagnostics::Diagnostic;
use super::dirs::{AgentDir, PROJECT_DIR, repository_root};

/// Skills folder of the Agent Skills standard, in projects and in the home directory.
pub(super) const AGENTS_SKILLS: &str = ".agents/skills";

/// `.agents/skills` of `cwd` and its ancestors up to the repository root, the nearest
/// first. Outside of a repository only `cwd` counts: above it may be anyone's files.
pub(super) fn agents_skills(cwd: &Path) -> Vec<PathBuf> {
    let root = repository_root(cwd).unwrap_or(cwd);
    let up_to_root = cwd.ancestors().take_while(|dir| dir.starts_with(root));
    up_to_root.map(|dir| dir.join(AGENTS_SKILLS)).collect()
}

/// The one diagnostic about a project that is not trusted but brings something. The
/// person's own folders may lie where a project's would (`cwd` is the home directory);
/// they do not count.
pub fn ignored_content(
    cwd: &Path,
    agent_dir: &AgentDir,
    home: Option<&Path>,
) -> Option<Diagnostic> {
    let own_skills = home.map(|home| home.join(AGENTS_SKILLS));
    let in_project_dir =
        entries(&cwd.join(PROJECT_DIR)).any(|entry| !is_same(&entry, Some(agent_dir.path())));
    let brings_something = in_project_dir
        || agents_skills(cwd).iter().any(|folder| {
            entries(folder).next().is_some() && !is_same(folder, own_skills.as_deref())
        });
    brings_something.then(|| {
        let dir = cwd.display();
        Diagnostic::new(
            cwd,
            format!(
                "the project is not trusted, so its settings, extensions, skills and prompt templates are ignored; run `wharf trust {dir}` or pass --trust-project if you trust {dir}"
            ),
        )
    })
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn is_same(path: &Path, other: Option<&Path>) -> bool {
    let Some(other) = other else { return false };
    let same_place = || Some(path.canonicalize().ok()? == other.canonicalize().ok()?);
    path == other || same_place().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    struct Setup(tempfile::TempDir);

    impl Setup {
        fn new(dirs: &[&str]) -> Self {
            let root = tempfile::tempdir().unwrap();
            for dir in dirs {
                fs::create_dir_all(root.path().join(dir)).unwrap();
            }
            Self(root)
        }

        fn ignored(&self, cwd: &str) -> Option<Diagnostic> {
            let home = self.0.path().join("home");
            let agent_dir = AgentDir::new(home.join(".wharf/agent"));
            ignored_content(&self.0.path().join(cwd), &agent_dir, Some(&home))
        }
    }

    #[test]
    fn a_project_that_brings_something_is_named_with_the_way_out() {
        let setup = Setup::new(&["home/p/.wharf/skills", "home/q/.agents/skills/x", "home/r"]);
        let diagnostic = setup.ignored("home/p").unwrap();
        let dir = setup.0.path().join("home/p");
        assert_eq!(diagnostic.path, dir);
        assert!(diagnostic.message.contains(&format!("`wharf trust {}`", dir.display())));
        assert!(diagnostic.message.contains("--trust-project"));
        assert!(setup.ignored("home/q").is_some());
        assert_eq!(setup.ignored("home/r"), None);
    }

    #[test]
    fn empty_folders_and_the_person_s_own_are_nothing() {
        let setup = Setup::new(&[
            "home/.wharf/agent/skills",
            "home/.agents/skills/x",
            "p/.wharf",
            "p/.agents/skills",
        ]);
        assert_eq!(setup.ignored("p"), None);
        assert_eq!(setup.ignored("home"), None);
        fs::write(setup.0.path().join("home/.wharf/settings.json"), "{}").unwrap();
        assert!(setup.ignored("home").is_some());
    }

    #[test]
    fn ancestors_count_up_to_the_repository_root() {
        let setup = Setup::new(&["x/.agents/skills/s", "x/repo/.git", "x/repo/a/b"]);
        let root = setup.0.path().join("x/repo");
        assert_eq!(
            agents_skills(&root.join("a/b")),
            ["a/b", "a", ""].map(|dir| root.join(dir).join(AGENTS_SKILLS))
        );
        assert_eq!(setup.ignored("x/repo/a/b"), None);
        fs::create_dir_all(root.join(".agents/skills/s")).unwrap();
        assert!(setup.ignored("x/repo/a/b").is_some());
        fs::remove_dir(root.join(".git")).unwrap();
        assert_eq!(agents_skills(&root.join("a")), [root.join("a").join(AGENTS_SKILLS)]);
    }
}
