//! Finds skill files in a skills folder, and template files in a prompts folder. What
//! the files say is read elsewhere.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::diagnostics::Diagnostic;

/// What makes a folder a skill.
pub(super) const SKILL_FILE: &str = "SKILL.md";

const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// Never holds a person's skills, often holds very many files.
const NODE_MODULES: &str = "node_modules";

/// Tells whether two paths lead to the same file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId(u64, u64);

impl FileId {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }
}

/// The skill files below a root, in the order of their names: the root's own `SKILL.md`
/// if it has one, else its direct `.md` files and the folders with a `SKILL.md` at any
/// depth. Such a folder is not searched further; hidden folders and those that an ignore
/// file of the tree names are skipped; a folder that links lead to again is searched once.
pub(super) fn skill_files(root: &Path, diagnostics: &mut Vec<Diagnostic>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut pending = vec![Folder { path: root.to_path_buf(), ignored: None }];
    while let Some(folder) = pending.pop() {
        let is_root = folder.path == root;
        let Some(listing) = Listing::read(&folder.path, diagnostics) else { continue };
        if let Some(skill) = listing.get(SKILL_FILE).filter(|entry| entry.is_file()) {
            found.push(skill.path());
            continue;
        }
        let ignored = folder.ignored_within(&listing, diagnostics);
        let mut children = Vec::new();
        for entry in listing.visible() {
            let Some(metadata) = entry.metadata_if(is_root) else { continue };
            let path = entry.path();
            if is_ignored(ignored.as_deref(), &path, metadata.is_dir()) {
                continue;
            }
            if metadata.is_dir() {
                if entry.name() != NODE_MODULES && seen.insert(FileId::of(&metadata)) {
                    children.push(Folder { path, ignored: ignored.clone() });
                }
            } else if is_root && metadata.is_file() && is_markdown(&path) {
                found.push(path);
            }
        }
        // The last one pushed is searched first.
        pending.extend(children.into_iter().rev());
    }
    found
}

/// The `.md` files directly in a folder, in the order of their names.
pub(super) fn template_files(root: &Path, diagnostics: &mut Vec<Diagnostic>) -> Vec<PathBuf> {
    let Some(listing) = Listing::read(root, diagnostics) else { return Vec::new() };
    let markdown = listing.visible().filter(|entry| is_markdown(Path::new(entry.name())));
    markdown.filter(|entry| entry.is_file()).map(Entry::path).collect()
}

fn is_markdown(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("md"))
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Rules of the folders above, within the root.
    ignored: Option<Rc<Rules>>,
}

/// One folder's ignore files, and those above it.
#[derive(Debug)]
struct Rules {
    own: Gitignore,
    above: Option<Rc<Rules>>,
}

impl Folder {
    fn ignored_within(
        &self,
        listing: &Listing,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Option<Rc<Rules>> {
        let files: Vec<_> = IGNORE_FILES
            .iter()
            .filter_map(|name| listing.get(name).filter(|entry| entry.is_file()))
            .map(Entry::path)
            .collect();
        if files.is_empty() {
            return self.ignored.clone();
        }
        let mut builder = GitignoreBuilder::new(&self.path);
        for file in files {
            if let Some(error) = builder.add(&file) {
                diagnostics.push(Diagnostic::new(file, error.to_string()));
            }
        }
        match builder.build() {
            Ok(own) => Some(Rc::new(Rules { own, above: self.ignored.clone() })),
            Err(error) => {
                diagnostics.push(Diagnostic::new(&self.path, error.to_string()));
                self.ignored.clone()
            }
        }
    }
}

/// The nearest folder with a rule for the path decides.
fn is_ignored(rules: Option<&Rules>, path: &Path, is_dir: bool) -> bool {
    let mut rules = rules;
    while let Some(current) = rules {
        let verdict = current.own.matched(path, is_dir);
        if !verdict.is_none() {
            return verdict.is_ignore();
        }
        rules = current.above.as_deref();
    }
    false
}

/// A folder's entries, sorted by name.
#[derive(Debug)]
struct Listing(Vec<Entry>);

#[derive(Debug)]
struct Entry(DirEntry, std::ffi::OsString);

impl Listing {
    /// `None` for a folder that does not exist, or cannot be read (which is reported).
    fn read(path: &Path, diagnostics: &mut Vec<Diagnostic>) -> Option<Self> {
        let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        match entries {
            Ok(entries) => {
                let mut entries: Vec<_> = entries
                    .into_iter()
                    .map(|e| {
                        let name = e.file_name();
                        Entry(e, name)
                    })
                    .collect();
                entries.sort_by(|a, b| a.1.cmp(&b.1));
                Some(Self(entries))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                diagnostics.push(Diagnostic::new(path, format!("cannot be read: {error}")));
                None
            }
        }
    }

    fn get(&self, name: &str) -> Option<&Entry> {
        let index = self.0.binary_search_by(|entry| entry.name().cmp(OsStr::new(name)));
        index.ok().map(|index| &self.0[index])
    }

    fn visible(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().filter(|entry| !entry.name().as_encoded_bytes().starts_with(b"."))
    }
}

impl Entry {
    fn name(&self) -> &OsStr {
        &self.1
    }

    fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Follows links; a broken one is no file.
    fn is_file(&self) -> bool {
        match self.0.file_type() {
            Ok(kind) if kind.is_symlink() => fs::metadata(self.path()).is_ok_and(|m| m.is_file()),
            Ok(kind) => kind.is_file(),
            Err(_) => false,
        }
    }

    /// What the entry or its link's target is; `None` for broken links, and for plain
    /// files unless they are asked for, which saves a system call for each.
    fn metadata_if(&self, files_too: bool) -> Option<Metadata> {
        let kind = self.0.file_type().ok()?;
        if kind.is_dir() || kind.is_symlink() || files_too {
            fs::metadata(self.path()).ok()
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::os::unix::fs::symlink;

    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Self {
            let root = tempfile::tempdir().unwrap();
            for (name, content) in files {
                let path = root.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            Self(root)
        }

        fn link(&self, target: &str, name: &str) {
            symlink(self.0.path().join(target), self.0.path().join(name)).unwrap();
        }

        #[track_caller]
        fn check(&self, expected: &[&str]) {
            let mut diagnostics = Vec::new();
            let found = skill_files(self.0.path(), &mut diagnostics);
            assert_eq!(diagnostics, []);
            let names: Vec<_> = found
                .iter()
                .map(|path| path.strip_prefix(self.0.path()).unwrap().to_str().unwrap())
                .collect();
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn direct_files_and_folders_at_any_depth() {
        let tree = Tree::new(&[
            ("b.md", ""),
            ("notes.txt", ""),
            ("a/SKILL.md", ""),
            ("a/inner/SKILL.md", ""),
            ("c/deep/er/SKILL.md", ""),
            ("c/loose.md", ""),
            ("empty/readme.txt", ""),
        ]);
        tree.check(&["b.md", "a/SKILL.md", "c/deep/er/SKILL.md"]);
    }

    #[test]
    fn a_root_with_a_skill_file_is_one_skill() {
        Tree::new(&[("SKILL.md", ""), ("x.md", ""), ("y/SKILL.md", "")]).check(&["SKILL.md"]);
    }

    #[test]
    fn hidden_and_ignored_folders_are_skipped() {
        let tree = Tree::new(&[
            (".hidden/SKILL.md", ""),
            (".hidden.md", ""),
            (".gitignore", "build/\nold.md\n*.tmp\n"),
            ("build/SKILL.md", ""),
            ("old.md", ""),
            ("a.tmp/SKILL.md", ""),
            ("node_modules/x/SKILL.md", ""),
            ("keep/.ignore", "no\n!a.tmp\n"),
            ("keep/no/SKILL.md", ""),
            ("keep/a.tmp/SKILL.md", ""),
            ("keep/yes/SKILL.md", ""),
        ]);
        tree.check(&["keep/a.tmp/SKILL.md", "keep/yes/SKILL.md"]);
    }

    #[test]
    fn rules_above_the_root_do_not_count() {
        let tree = Tree::new(&[(".gitignore", "*\n"), ("skills/a/SKILL.md", "")]);
        let found = skill_files(&tree.0.path().join("skills"), &mut Vec::new());
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn links_are_followed_once_and_loops_end() {
        let tree = Tree::new(&[("real/x/SKILL.md", ""), ("z/y/w.txt", "")]);
        tree.link("real", "again");
        tree.link(".", "z/loop");
        tree.link("z", "z/y/up");
        tree.link("absent", "broken");
        tree.link("absent.md", "broken.md");
        tree.check(&["again/x/SKILL.md"]);
    }

    #[test]
    fn a_linked_file_is_a_skill_and_an_odd_one_is_not() {
        let tree = Tree::new(&[("elsewhere/text", ""), ("odd/SKILL.md/file", "")]);
        tree.link("elsewhere/text", "linked.md");
        tree.check(&["linked.md"]);
    }

    #[test]
    fn an_absent_root_is_empty_and_an_unreadable_one_is_reported() {
        let tree = Tree::new(&[("file", "")]);
        let mut diagnostics = Vec::new();
        assert!(skill_files(&tree.0.path().join("absent"), &mut diagnostics).is_empty());
        assert_eq!(diagnostics, []);
        skill_files(&tree.0.path().join("file"), &mut diagnostics);
        assert_eq!(diagnostics.len(), 1);
    }

    #[test]
    fn templates_are_not_searched_for_in_subfolders() {
        let tree =
            Tree::new(&[("b.md", ""), ("a.md", ""), ("c/d.md", ""), (".e.md", ""), ("f", "")]);
        let found = template_files(tree.0.path(), &mut Vec::new());
        assert_eq!(found, [tree.0.path().join("a.md"), tree.0.path().join("b.md")]);
    }
}
