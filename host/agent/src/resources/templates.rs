//! Prompt templates: Markdown files whose name is a command. Bodies are read when used.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::diagnostics::Diagnostic;
use super::discovery::{self, FileId};
use super::frontmatter::{Document, Fields};
use super::location::Location;
use super::substitution::{Arguments, Values, apply};
use super::text_file::{self, TextFileError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The file's name without `.md`.
    pub name: String,
    /// The front matter's, else the body's first line; empty for an empty file.
    pub description: String,
    pub argument_hint: Option<String>,
    pub path: PathBuf,
    pub location: Location,
}

#[derive(Debug, thiserror::Error)]
#[error("failed to use prompt template {name}: {path} {source}", path = path.display())]
pub struct TemplateError {
    pub name: String,
    pub path: PathBuf,
    pub source: TextFileError,
}

impl Template {
    /// The prompt: the body without front matter, filled as a skill's is; arguments that
    /// it has no place for follow it.
    pub fn expand(&self, arguments: &str, session_id: &str) -> Result<String, TemplateError> {
        let text = text_file::read(&self.path).map_err(|source| TemplateError {
            name: self.name.clone(),
            path: self.path.clone(),
            source,
        })?;
        let arguments = Arguments::split(arguments);
        let values = Values { arguments: &arguments, skill_dir: None, session_id };
        Ok(apply(&Document::split(&text).body(), values))
    }
}

/// Collects templates: the first one of a name stays.
#[derive(Debug, Default)]
pub(super) struct TemplateLoader {
    templates: Vec<Template>,
    files: HashSet<FileId>,
}

impl TemplateLoader {
    /// Goes on from templates that are loaded already.
    pub(super) fn of(templates: Vec<Template>) -> Self {
        let id = |template: &Template| fs::metadata(&template.path).ok().map(|m| FileId::of(&m));
        Self { files: templates.iter().filter_map(id).collect(), templates }
    }

    /// Adds a folder's templates. A folder that does not exist has none.
    pub(super) fn add_folder(
        &mut self,
        folder: &Path,
        location: Location,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        for file in discovery::template_files(folder, diagnostics) {
            self.add_file(&file, location, diagnostics);
        }
    }

    /// Adds what a person named: a template's file, or a folder of templates.
    pub(super) fn add_path(&mut self, path: &Path, diagnostics: &mut Vec<Diagnostic>) {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                self.add_folder(path, Location::Path, diagnostics);
            }
            Ok(_) => self.add_file(path, Location::Path, diagnostics),
            Err(error) => diagnostics.push(Diagnostic::new(
                path,
                format!("prompt template path does not exist or cannot be read: {error}"),
            )),
        }
    }

    pub(super) fn finish(self) -> Vec<Template> {
        self.templates
    }

    fn add_file(&mut self, path: &Path, location: Location, diagnostics: &mut Vec<Diagnostic>) {
        // The same file by two ways is one template, not a clash.
        if fs::metadata(path).is_ok_and(|metadata| !self.files.insert(FileId::of(&metadata))) {
            return;
        }
        let Some(template) = load(path, location, diagnostics) else { return };
        match self.templates.iter().find(|earlier| earlier.name == template.name) {
            None => self.templates.push(template),
            // A project's template is there to take the place of a person's own.
            Some(earlier)
                if earlier.location == Location::Project && location == Location::User => {}
            Some(earlier) => diagnostics.push(Diagnostic::new(
                path,
                format!(
                    "prompt template {:?} is not loaded: {} has the same name and comes first",
                    template.name,
                    earlier.path.display()
                ),
            )),
        }
    }
}

fn load(path: &Path, location: Location, diagnostics: &mut Vec<Diagnostic>) -> Option<Template> {
    let mut report = |message: String| diagnostics.push(Diagnostic::new(path, message));
    let text = match text_file::read(path) {
        Ok(text) => text,
        Err(error) => {
            report(format!("prompt template is not loaded: the file {error}"));
            return None;
        }
    };
    let document = Document::split(&text);
    let fields = document.fields().unwrap_or_else(|error| {
        report(format!("{error}; the prompt template is loaded without it"));
        Fields::default()
    });
    let mut text_field = |field| {
        fields.text(field).unwrap_or_else(|error| {
            report(error.to_string());
            None
        })
    };
    let description = text_field("description");
    let argument_hint = text_field("argument-hint");
    let first_line = || document.body().lines().next().unwrap_or_default().trim().to_owned();
    Some(Template {
        name: path.file_stem()?.to_string_lossy().into_owned(),
        description: description.unwrap_or_else(first_line),
        argument_hint,
        path: path.to_path_buf(),
        location,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for (name, content) in files {
                let path = tree.path(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            tree
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn load(&self, roots: &[(&str, Location)]) -> (Vec<Template>, Vec<Diagnostic>) {
            let mut loader = TemplateLoader::default();
            let mut diagnostics = Vec::new();
            for (root, location) in roots {
                loader.add_folder(&self.path(root), *location, &mut diagnostics);
            }
            (loader.finish(), diagnostics)
        }
    }

    #[track_caller]
    fn check(content: &str, description: &str, arguments: &str, expanded: &str) {
        let tree = Tree::new(&[("fix.md", content)]);
        let (templates, diagnostics) = tree.load(&[("", Location::User)]);
        assert_eq!(diagnostics, []);
        assert_eq!(templates[0].name, "fix");
        assert_eq!(templates[0].description, description);
        assert_eq!(templates[0].expand(arguments, "s-1").unwrap(), expanded);
    }

    #[test]
    fn front_matter_is_optional() {
        check("---\ndescription: Fixes\n---\nFix $1.\n", "Fixes", "a b", "Fix a.");
        check("\n\n  Fix it.\nNow: $@\n", "Fix it.", "a b", "Fix it.\nNow: a b");
        check("---\nargument-hint: x\n---\n\nFix ${1:-all}", "Fix ${1:-all}", "", "Fix all");
        check("", "", "", "");
    }

    #[test]
    fn the_rules_are_those_of_skills() {
        check(
            "$0 ${WHARF_SESSION_ID} $ARGUMENTS",
            "$0 ${WHARF_SESSION_ID} $ARGUMENTS",
            "a b",
            "a s-1 a b",
        );
        check("${WHARF_SKILL_DIR}", "${WHARF_SKILL_DIR}", "", "${WHARF_SKILL_DIR}");
        check("Plan.", "Plan.", "it's for x", "Plan.\n\nit's for x");
    }

    #[test]
    fn a_project_comes_before_the_person_without_a_word() {
        let tree = Tree::new(&[
            ("project/a.md", "project's"),
            ("user/a.md", "user's"),
            ("user/b.md", "user's"),
            ("more/b.md", "more"),
        ]);
        let (templates, diagnostics) = tree.load(&[
            ("project", Location::Project),
            ("user", Location::User),
            ("more", Location::Path),
        ]);
        let found: Vec<_> = templates
            .iter()
            .map(|t| (t.name.as_str(), t.description.as_str(), t.location))
            .collect();
        assert_eq!(found, [("a", "project's", Location::Project), ("b", "user's", Location::User)]);
        assert_eq!(diagnostics.len(), 1);
        assert_eq!(diagnostics[0].path, tree.path("more/b.md"));
        assert!(diagnostics[0].message.contains(tree.path("user/b.md").to_str().unwrap()));
    }

    #[test]
    fn broken_front_matter_is_reported_and_the_body_still_works() {
        let tree = Tree::new(&[("a.md", "---\nx: [\n---\nBody $1")]);
        let (templates, diagnostics) = tree.load(&[("", Location::User)]);
        assert_eq!(diagnostics.len(), 1);
        assert!(diagnostics[0].message.contains("not valid YAML (line "), "{diagnostics:?}");
        assert_eq!(templates[0].description, "Body $1");
        assert_eq!(templates[0].expand("x", "s").unwrap(), "Body x");
    }

    #[test]
    fn explicit_paths_may_be_files_or_folders() {
        let tree = Tree::new(&[("dir/a.md", "A"), ("b.md", "B")]);
        let mut loader = TemplateLoader::default();
        let mut diagnostics = Vec::new();
        for name in ["b.md", "dir", "dir/a.md", "absent.md"] {
            loader.add_path(&tree.path(name), &mut diagnostics);
        }
        let names: Vec<_> = loader.finish().into_iter().map(|template| template.name).collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!(diagnostics.len(), 1);
        assert_eq!(diagnostics[0].path, tree.path("absent.md"));
    }

    #[test]
    fn a_template_that_is_gone_is_an_error_with_its_path() {
        let tree = Tree::new(&[("a.md", "A")]);
        let (templates, _) = tree.load(&[("", Location::User)]);
        fs::remove_file(tree.path("a.md")).unwrap();
        let error = templates[0].expand("", "s").unwrap_err().to_string();
        assert!(error.contains(tree.path("a.md").to_str().unwrap()), "{error}");
    }
}
