//! A component out of a git repository, by the git program. Nothing is checked out, so no
//! hook, filter or link of the repository takes effect, except for `--build`.

use std::path::Path;

use anyhow::{Context as _, bail};
use tokio::process::Command;
use wharf_extensions::MAX_COMPONENT_BYTES;

use super::candidates::{MANIFEST, MAX_MANIFEST_BYTES, choose};
use super::source::Source;
use super::{Fetched, local, program};

/// Bytes of a repository's list of files.
const MAX_TREE: u64 = 64 << 20;

/// Variables by which whoever calls wharf may have bound git to another repository.
const BINDINGS: [&str; 6] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
];

/// A regular file of a commit.
#[derive(Debug, PartialEq, Eq)]
struct File<'a> {
    path: &'a str,
    object: &'a str,
    bytes: u64,
}

pub(super) async fn fetch(
    url: &str,
    revision: Option<&str>,
    build: bool,
) -> anyhow::Result<Fetched> {
    let temp = tempfile::tempdir().context("failed to make a temporary directory")?;
    let repository = temp.path().join("repository");
    // An empty template holds no hooks.
    let mut init = git(temp.path());
    init.args(["init", "--quiet", "--template="]).arg(&repository);
    program::output(init, MAX_TREE).await?;
    let mut download = git(&repository);
    // Not even by a redirect anything else.
    download.env("GIT_ALLOW_PROTOCOL", Source::git_scheme(url));
    download.args(["fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules"]);
    download.args(["--end-of-options", url, revision.unwrap_or("HEAD")]);
    program::output(download, MAX_TREE).await.with_context(|| match revision {
        Some(revision) => {
            format!("failed to fetch {revision} of {url} (a branch, a tag or a whole commit id)")
        }
        None => format!("failed to fetch {url}"),
    })?;
    let mut resolve = git(&repository);
    resolve.args(["rev-parse", "--verify", "FETCH_HEAD^{commit}"]);
    let commit = String::from_utf8(program::output(resolve, 200).await?)
        .context("git names no commit")?
        .trim()
        .to_owned();
    let mut list = git(&repository);
    list.args(["ls-tree", "-r", "-z", "--long", "--full-tree", &commit]);
    let tree = program::output(list, MAX_TREE).await?;
    let files = regular_files(&tree);
    let component = match find(&repository, &files).await? {
        Some(component) => component,
        None => built(&repository, &commit, &files, build).await?,
    };
    Ok(Fetched { component, resolved: Some(commit) })
}

async fn find(repository: &Path, files: &[File<'_>]) -> anyhow::Result<Option<Vec<u8>>> {
    let manifest = match files.iter().find(|file| file.path == MANIFEST) {
        Some(file) => Some(content(repository, file, MAX_MANIFEST_BYTES).await?),
        None => None,
    };
    let names: Vec<&str> = files.iter().map(|file| file.path).collect();
    let chosen = choose(&names, manifest.as_deref())
        .context("the repository has no component that could be chosen")?;
    match files.iter().find(|file| Some(file.path) == chosen) {
        Some(file) => Ok(Some(content(repository, file, MAX_COMPONENT_BYTES).await?)),
        None => Ok(None),
    }
}

async fn content(repository: &Path, file: &File<'_>, limit: u64) -> anyhow::Result<Vec<u8>> {
    if file.bytes > limit {
        bail!("{} in the repository has more than {limit} bytes", super::plain(file.path));
    }
    let mut cat = git(repository);
    cat.args(["cat-file", "blob", file.object]);
    program::output(cat, limit).await
}

/// Checks the commit out and builds the crate at its root.
async fn built(
    repository: &Path,
    commit: &str,
    files: &[File<'_>],
    build: bool,
) -> anyhow::Result<Vec<u8>> {
    if !files.iter().any(|file| file.path == "Cargo.toml") {
        bail!("the repository has no component: no extension.wasm, no other .wasm file");
    }
    if !build {
        bail!(
            "the repository has no component, only its source: --build builds it, which runs its build scripts and macros with all of your rights"
        );
    }
    let mut checkout = git(repository);
    checkout.args(["checkout", "--quiet", "--detach", commit]);
    program::output(checkout, MAX_TREE).await?;
    // In the temporary directory, wherever builds of the person go.
    let target = repository.join("target");
    local::read(&local::of_crate(repository, true, Some(&target)).await?)
}

/// The lines of `git ls-tree -r -z --long` that are regular files with UTF-8 names.
fn regular_files(tree: &[u8]) -> Vec<File<'_>> {
    tree.split(|byte| *byte == 0)
        .filter_map(|line| {
            let (entry, path) = std::str::from_utf8(line).ok()?.split_once('\t')?;
            let [mode, "blob", object, bytes] =
                entry.split_ascii_whitespace().collect::<Vec<_>>()[..]
            else {
                return None;
            };
            let is_regular = matches!(mode, "100644" | "100755");
            is_regular.then_some(File { path, object, bytes: bytes.parse().ok()? })
        })
        .collect()
}

/// Asks for nothing and runs no hook.
fn git(directory: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(directory)
        .args(["-c", "core.hooksPath=/dev/null", "-c", "credential.interactive=never"])
        .env("GIT_TERMINAL_PROMPT", "0")
        // Programs that would open a window.
        .env("GIT_ASKPASS", "")
        .env("SSH_ASKPASS", "")
        .env("GIT_LFS_SKIP_SMUDGE", "1");
    if std::env::var_os("GIT_SSH_COMMAND").is_none() {
        git.env("GIT_SSH_COMMAND", "ssh -o BatchMode=yes");
    }
    for variable in BINDINGS {
        git.env_remove(variable);
    }
    git
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::fs;

    use super::*;

    /// A repository of this test, and its URL.
    fn repository(files: &[(&str, &str)]) -> (tempfile::TempDir, String) {
        let temp = tempfile::tempdir().unwrap();
        run(temp.path(), &["init", "--quiet", "--initial-branch=main"]);
        commit(temp.path(), files);
        let url = format!("file://{}", temp.path().display());
        (temp, url)
    }

    fn commit(folder: &Path, files: &[(&str, &str)]) -> String {
        for (name, content) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        run(folder, &["add", "--all"]);
        run(folder, &["commit", "--quiet", "--message=x"]);
        run(folder, &["rev-parse", "HEAD"])
    }

    fn run(folder: &Path, args: &[&str]) -> String {
        let output = std::process::Command::new("git")
            .current_dir(folder)
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(["-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[tokio::test]
    async fn the_newest_commit_a_branch_a_tag_and_a_commit_are_fetched() {
        let (temp, url) = repository(&[("extension.wasm", "one")]);
        let first = run(temp.path(), &["rev-parse", "HEAD"]);
        run(temp.path(), &["tag", "v1"]);
        run(temp.path(), &["branch", "old"]);
        let second = commit(temp.path(), &[("extension.wasm", "two")]);
        for (revision, component, commit) in [
            (None, "two", &second),
            (Some("main"), "two", &second),
            (Some("old"), "one", &first),
            (Some("v1"), "one", &first),
            (Some(first.as_str()), "one", &first),
        ] {
            let fetched = fetch(&url, revision, false).await.unwrap();
            assert_eq!(fetched.component, component.as_bytes(), "{revision:?}");
            assert_eq!(fetched.resolved.as_ref(), Some(commit), "{revision:?}");
        }
        let error = fetch(&url, Some("none"), false).await.unwrap_err().to_string();
        assert!(error.contains("failed to fetch none"), "{error}");
        let nowhere = fetch("file:///nowhere/at/all", None, false).await;
        assert!(nowhere.unwrap_err().to_string().contains("failed to fetch file:///nowhere"));
    }

    #[tokio::test]
    async fn the_manifest_names_the_component_and_links_are_none() {
        let manifest = r#"{"wharf": {"extension": "dist/a.wasm"}}"#;
        let (_temp, url) = repository(&[("package.json", manifest), ("dist/a.wasm", "named")]);
        assert_eq!(fetch(&url, None, false).await.unwrap().component, b"named");

        let (temp, url) = repository(&[("readme", "x")]);
        std::os::unix::fs::symlink("/etc/passwd", temp.path().join("extension.wasm")).unwrap();
        commit(temp.path(), &[]);
        let error = fetch(&url, None, false).await.unwrap_err().to_string();
        assert!(error.contains("has no component"), "{error}");
    }

    #[tokio::test]
    async fn source_alone_is_not_built_unasked() {
        let (_temp, url) = repository(&[("Cargo.toml", "[package]")]);
        let error = fetch(&url, None, false).await.unwrap_err().to_string();
        assert!(error.contains("--build builds it"), "{error}");
    }

    #[tokio::test]
    async fn source_is_built_when_that_is_asked_for() {
        let manifest = "[package]\nname = \"my-one\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"cdylib\"]\n[workspace]\n";
        let (_temp, url) = repository(&[("Cargo.toml", manifest), ("src/lib.rs", "")]);
        let fetched = fetch(&url, None, true).await.unwrap();
        assert!(fetched.component.starts_with(b"\0asm\x0d"), "no component");
        let (_temp, url) = repository(&[("Cargo.toml", manifest), ("src/lib.rs", "not rust")]);
        let error = fetch(&url, None, true).await.unwrap_err().to_string();
        assert!(error.contains("cargo failed"), "{error}");
    }

    #[test]
    fn the_list_of_files_is_read() {
        let tree = b"100644 blob aa      12\ta b.wasm\x00120000 blob bb       3\tlink.wasm\x00160000 commit cc       -\tsub\x00100755 blob dd 7\td/e\x00100644 blob ee -\todd\x00";
        let expect = [
            File { path: "a b.wasm", object: "aa", bytes: 12 },
            File { path: "d/e", object: "dd", bytes: 7 },
        ];
        assert_eq!(regular_files(tree), expect);
    }
}
