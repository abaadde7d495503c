//! Skills of the Agent Skills standard: what their front matter promises, and the text
//! that the model gets when one is used. Bodies are read then, not kept.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::diagnostics::Diagnostic;
use super::discovery::{self, FileId};
use super::frontmatter::{Document, FieldError, Fields};
use super::location::Location;
use super::substitution::{Arguments, Values, apply};
use super::text_file::{self, TextFileError};
use super::xml::escape;

/// Limits of the standard, in characters.
const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    pub name: String,
    pub description: String,
    pub argument_hint: Option<String>,
    /// Whether it is offered to people as a command; the model may use it anyway.
    pub user_invocable: bool,
    /// Only a person may use it.
    pub disable_model_invocation: bool,
    /// The skill's file.
    pub path: PathBuf,
    /// Where the skill's relative references start.
    pub dir: PathBuf,
    pub location: Location,
}

#[derive(Debug, thiserror::Error)]
#[error("failed to use skill {name}: {path} {source}", path = path.display())]
pub struct SkillError {
    pub name: String,
    pub path: PathBuf,
    pub source: TextFileError,
}

impl Skill {
    /// The skill's instructions for the model: its body without front matter, with the
    /// placeholders filled (`substitution`), or the arguments after it if it has no place
    /// for them.
    pub fn expand(&self, arguments: &str, session_id: &str) -> Result<String, SkillError> {
        let text = text_file::read(&self.path).map_err(|source| SkillError {
            name: self.name.clone(),
            path: self.path.clone(),
            source,
        })?;
        let dir = self.dir.to_string_lossy();
        let arguments = Arguments::split(arguments);
        let values = Values { arguments: &arguments, skill_dir: Some(&dir), session_id };
        let body = apply(&Document::split(&text).body(), values);
        Ok(format!(
            "<skill name=\"{name}\" location=\"{path}\">\nReferences are relative to {dir}.\n\n{body}\n</skill>",
            name = escape(&self.name),
            path = escape(&self.path.to_string_lossy()),
        ))
    }
}

/// Collects skills: the first one of a name stays, a second one is reported.
#[derive(Debug, Default)]
pub(super) struct SkillLoader {
    skills: Vec<Skill>,
    files: HashSet<FileId>,
}

impl SkillLoader {
    /// Goes on from skills that are loaded already.
    pub(super) fn of(skills: Vec<Skill>) -> Self {
        let id = |skill: &Skill| fs::metadata(&skill.path).ok().map(|m| FileId::of(&m));
        Self { files: skills.iter().filter_map(id).collect(), skills }
    }

    /// Adds a folder's skills. A folder that does not exist has none.
    pub(super) fn add_folder(
        &mut self,
        folder: &Path,
        location: Location,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        for file in discovery::skill_files(folder, diagnostics) {
            let own_folder = file.file_name() == Some(discovery::SKILL_FILE.as_ref());
            self.add_file(&file, own_folder, location, diagnostics);
        }
    }

    /// Adds what a person named: a skill's file or folder, or a folder of skills.
    pub(super) fn add_path(&mut self, path: &Path, diagnostics: &mut Vec<Diagnostic>) {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                self.add_folder(path, Location::Path, diagnostics);
            }
            Ok(_) => {
                let own_folder = path.file_name() == Some(discovery::SKILL_FILE.as_ref());
                self.add_file(path, own_folder, Location::Path, diagnostics);
            }
            Err(error) => diagnostics.push(Diagnostic::new(
                path,
                format!("skill path does not exist or cannot be read: {error}"),
            )),
        }
    }

    pub(super) fn finish(self) -> Vec<Skill> {
        self.skills
    }

    fn add_file(
        &mut self,
        path: &Path,
        own_folder: bool,
        location: Location,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        // The same file by two ways is one skill, not a clash.
        if fs::metadata(path).is_ok_and(|metadata| !self.files.insert(FileId::of(&metadata))) {
            return;
        }
        let Some(skill) = load(path, own_folder, location, diagnostics) else { return };
        match self.skills.iter().find(|earlier| earlier.name == skill.name) {
            None => self.skills.push(skill),
            Some(earlier) => diagnostics.push(Diagnostic::new(
                path,
                format!(
                    "skill {:?} is not loaded: {} has the same name and comes first",
                    skill.name,
                    earlier.path.display()
                ),
            )),
        }
    }
}

/// Reads one skill's front matter. `own_folder`: it is a `SKILL.md`, whose folder carries
/// the skill's name; otherwise the file itself does.
fn load(
    path: &Path,
    own_folder: bool,
    location: Location,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Skill> {
    let mut report = |message: String| diagnostics.push(Diagnostic::new(path, message));
    let fields = match text_file::read(path) {
        Ok(text) => Document::split(&text).fields(),
        Err(error) => {
            report(format!("skill is not loaded: the file {error}"));
            return None;
        }
    };
    let fields = match fields {
        Ok(fields) => fields,
        Err(error) => {
            report(format!("skill is not loaded: {error}"));
            return None;
        }
    };
    let dir = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let carrier = if own_folder { dir.file_name() } else { path.file_stem() };
    let carrier = carrier.map(|name| name.to_string_lossy().into_owned());
    let front = FrontMatter::read(&fields, &mut report);
    let name = front.name.or_else(|| carrier.clone()).unwrap_or_default();
    for problem in name_problems(&name, carrier.filter(|_| own_folder).as_deref()) {
        report(problem);
    }
    let Some(description) = front.description else {
        report("skill is not loaded: a description is required".to_owned());
        return None;
    };
    let length = description.chars().count();
    if length > MAX_DESCRIPTION {
        report(format!("description has {length} characters, more than {MAX_DESCRIPTION}"));
    }
    Some(Skill {
        name,
        description,
        argument_hint: front.argument_hint,
        user_invocable: front.user_invocable,
        disable_model_invocation: front.disable_model_invocation,
        path: path.to_path_buf(),
        dir,
        location,
    })
}

struct FrontMatter {
    name: Option<String>,
    description: Option<String>,
    argument_hint: Option<String>,
    user_invocable: bool,
    disable_model_invocation: bool,
}

impl FrontMatter {
    /// A field of a wrong kind is reported and counts as missing.
    fn read(fields: &Fields, report: &mut impl FnMut(String)) -> Self {
        fn or_report<T>(
            value: Result<Option<T>, FieldError>,
            report: &mut impl FnMut(String),
        ) -> Option<T> {
            value.unwrap_or_else(|error| {
                report(error.to_string());
                None
            })
        }
        Self {
            name: or_report(fields.text("name"), report),
            description: or_report(fields.text("description"), report),
            argument_hint: or_report(fields.text("argument-hint"), report),
            user_invocable: or_report(fields.flag("user-invocable"), report).unwrap_or(true),
            disable_model_invocation: or_report(fields.flag("disable-model-invocation"), report)
                .unwrap_or(false),
        }
    }
}

/// What the standard does not allow in a name. The skill is loaded anyway.
fn name_problems(name: &str, folder: Option<&str>) -> Vec<String> {
    let mut problems = Vec::new();
    let length = name.chars().count();
    if length > MAX_NAME {
        problems.push(format!("name has {length} characters, more than {MAX_NAME}"));
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(allowed) {
        problems.push(format!("name {name:?} must consist of a-z, 0-9 and hyphens"));
    }
    if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        problems.push(format!("name {name:?} may have single hyphens only, and none at its ends"));
    }
    if let Some(folder) = folder.filter(|folder| *folder != name) {
        problems.push(format!("name {name:?} does not match its folder {folder:?}"));
    }
    problems
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

        fn load(&self) -> (Vec<Skill>, Vec<String>) {
            load_from(self.0.path())
        }

        fn only(&self) -> Skill {
            let (mut skills, problems) = self.load();
            assert_eq!(problems, [] as [&str; 0]);
            assert_eq!(skills.len(), 1);
            skills.remove(0)
        }
    }

    fn load_from(root: &Path) -> (Vec<Skill>, Vec<String>) {
        let mut loader = SkillLoader::default();
        let mut diagnostics = Vec::new();
        loader.add_folder(root, Location::User, &mut diagnostics);
        let prefix = format!("{}/", root.display());
        let problems = diagnostics.iter().map(|d| d.to_string().replace(&prefix, "")).collect();
        (loader.finish(), problems)
    }

    #[test]
    fn reads_every_field() {
        let tree = Tree::new(&[(
            "review/SKILL.md",
            "---\nname: review\ndescription: >\n  Reviews\n  code.\nargument-hint: \"[file]\"\nuser-invocable: false\ndisable-model-invocation: true\nlicense: MIT\nmetadata: {a: b}\n---\nBody",
        )]);
        let skill = tree.only();
        assert_eq!(
            skill,
            Skill {
                name: "review".to_owned(),
                description: "Reviews code.".to_owned(),
                argument_hint: Some("[file]".to_owned()),
                user_invocable: false,
                disable_model_invocation: true,
                path: tree.path("review/SKILL.md"),
                dir: tree.path("review"),
                location: Location::User,
            }
        );
    }

    #[test]
    fn defaults() {
        let skill = Tree::new(&[("a/SKILL.md", "\u{feff}---\r\ndescription: d\r\n---")]).only();
        assert_eq!(skill.name, "a");
        assert!(skill.user_invocable && !skill.disable_model_invocation);
        assert_eq!(skill.argument_hint, None);
        let skill = Tree::new(&[("direct.md", "---\ndescription: d\n---\n")]).only();
        assert_eq!(skill.name, "direct");
        let skill = Tree::new(&[("file.md", "---\nname: other\ndescription: d\n---\n")]).only();
        assert_eq!(skill.name, "other", "a direct file has no folder of its own to match");
    }

    #[track_caller]
    fn check_problems(folder: &str, front_matter: &str, loads: bool, expected: &[&str]) {
        let file = format!("{folder}/SKILL.md");
        let tree = Tree::new(&[(&file, &format!("---\n{front_matter}\n---\nBody"))]);
        let (skills, problems) = tree.load();
        assert_eq!(skills.len(), usize::from(loads), "{problems:?}");
        let expected: Vec<_> = expected.iter().map(|text| format!("{file}: {text}")).collect();
        assert_eq!(problems, expected);
    }

    #[test]
    fn bad_names_warn_and_load() {
        let long = "a".repeat(65);
        let cases = [
            (long.as_str(), "name has 65 characters, more than 64"),
            ("Abc", "name \"Abc\" must consist of a-z, 0-9 and hyphens"),
            ("a_b", "name \"a_b\" must consist of a-z, 0-9 and hyphens"),
            ("a--b", "name \"a--b\" may have single hyphens only, and none at its ends"),
            ("-a", "name \"-a\" may have single hyphens only, and none at its ends"),
            ("a-", "name \"a-\" may have single hyphens only, and none at its ends"),
        ];
        for (name, problem) in cases {
            check_problems(name, &format!("name: {name}\ndescription: d"), true, &[problem]);
        }
        check_problems(
            "b",
            "name: a\ndescription: d",
            true,
            &["name \"a\" does not match its folder \"b\""],
        );
        check_problems("a-1", "name: a-1\ndescription: d", true, &[]);
        let longest = "a".repeat(64);
        check_problems(&longest, &format!("name: {longest}\ndescription: d"), true, &[]);
    }

    #[test]
    fn descriptions_are_required_and_limited() {
        let missing = ["skill is not loaded: a description is required"];
        check_problems("a", "name: a", false, &missing);
        check_problems("a", "name: a\ndescription:", false, &missing);
        check_problems("a", "name: a\ndescription: \"  \"", false, &missing);
        check_problems(
            "a",
            "name: a\ndescription: [x]",
            false,
            &["`description` must be a text", missing[0]],
        );
        check_problems("a", &format!("description: {}", "é".repeat(1024)), true, &[]);
        check_problems(
            "a",
            &format!("description: {}", "é".repeat(1025)),
            true,
            &["description has 1025 characters, more than 1024"],
        );
        check_problems(
            "a",
            "description: d\nuser-invocable: maybe",
            true,
            &["`user-invocable` must be true or false"],
        );
    }

    #[test]
    fn broken_yaml_names_file_and_line() {
        let (skills, problems) =
            Tree::new(&[("a/SKILL.md", "---\nname: a\ndescription: b: c\n---\n")]).load();
        assert!(skills.is_empty());
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].starts_with(
                "a/SKILL.md: skill is not loaded: the front matter is not valid YAML (line 3): "
            ),
            "{problems:?}"
        );
    }

    #[test]
    fn the_first_of_a_name_stays_and_a_warning_names_both() {
        let tree = Tree::new(&[
            ("x/same/SKILL.md", "---\ndescription: first\n---"),
            ("y/same/SKILL.md", "---\ndescription: second\n---"),
        ]);
        let (skills, problems) = tree.load();
        assert_eq!(skills.len(), 1);
        assert_eq!(skills[0].description, "first");
        assert_eq!(
            problems,
            [
                "y/same/SKILL.md: skill \"same\" is not loaded: x/same/SKILL.md has the same name and comes first"
            ]
        );
    }

    #[test]
    fn paths_may_name_a_file_a_skill_or_a_folder_of_skills() {
        let tree = Tree::new(&[
            ("all/a/SKILL.md", "---\ndescription: d\n---"),
            ("all/b/SKILL.md", "---\ndescription: d\n---"),
            ("c.md", "---\ndescription: d\n---"),
        ]);
        let mut loader = SkillLoader::default();
        let mut diagnostics = Vec::new();
        for name in ["all/b", "all/a/SKILL.md", "c.md", "all", "absent"] {
            loader.add_path(&tree.path(name), &mut diagnostics);
        }
        let skills = loader.finish();
        let names: Vec<_> = skills.iter().map(|skill| skill.name.as_str()).collect();
        assert_eq!(names, ["b", "a", "c"]);
        assert!(skills.iter().all(|skill| skill.location == Location::Path));
        assert_eq!(diagnostics.len(), 1);
        assert!(diagnostics[0].message.contains("does not exist"), "{diagnostics:?}");
    }

    #[test]
    fn expansion_fills_the_body() {
        let tree = Tree::new(&[(
            "a&b/SKILL.md",
            "---\ndescription: d\n---\n\nRun ${WHARF_SKILL_DIR}/x $1 for ${WHARF_SESSION_ID}.\r\nAll: $ARGUMENTS\n",
        )]);
        let (skills, _) = tree.load();
        let dir = tree.path("a&b");
        let dir = dir.to_str().unwrap();
        let escaped = dir.replace('&', "&amp;");
        assert_eq!(
            skills[0].expand("'$2 x' y", "s-1").unwrap(),
            format!(
                "<skill name=\"a&amp;b\" location=\"{escaped}/SKILL.md\">\nReferences are relative to {dir}.\n\nRun {dir}/x $2 x for s-1.\nAll: $2 x y\n</skill>"
            )
        );
    }

    #[test]
    fn arguments_without_a_place_are_appended() {
        let tree = Tree::new(&[("a/SKILL.md", "---\ndescription: d\n---\nBody")]);
        let text = tree.only().expand("it's  'x'", "s").unwrap();
        assert!(text.ends_with("\n\nBody\n\nit's  'x'\n</skill>"), "{text}");
        let text = tree.only().expand("", "s").unwrap();
        assert!(text.ends_with("\n\nBody\n</skill>"), "{text}");
    }

    #[test]
    fn the_body_is_that_of_the_moment_of_use() {
        let tree = Tree::new(&[("a/SKILL.md", "---\ndescription: d\n---\nOld")]);
        let skill = tree.only();
        fs::write(&skill.path, "---\ndescription: d\n---\nNew").unwrap();
        assert!(skill.expand("", "s").unwrap().contains("\n\nNew\n"));
        fs::remove_file(&skill.path).unwrap();
        let error = skill.expand("", "s").unwrap_err().to_string();
        assert!(error.starts_with("failed to use skill a: "), "{error}");
        assert!(error.contains(skill.path.to_str().unwrap()), "{error}");
    }
}
