//! Skills and prompt templates that extensions know of, added behind what files and
//! settings name. Who is asked for them, and when, is elsewhere.

use std::path::{Component, Path, PathBuf};

use super::diagnostics::Diagnostic;
use super::dirs::{PROJECT_DIR, repository_root};
use super::{ResourceOptions, Resources, project, skills, templates};
use crate::hooks::DiscoveredResources;

impl Resources {
    /// The same with what extensions have named. `diagnostics` are only those of the
    /// addition.
    pub fn with_discovered(&self, discovered: &DiscoveredResources) -> Self {
        let Self { options, .. } = self;
        let mut diagnostics = Vec::new();
        let mut skill_loader = skills::SkillLoader::of(self.skills.clone());
        if !options.no_skills {
            for path in permitted(&discovered.skill_paths, options, &mut diagnostics) {
                skill_loader.add_path(&path, &mut diagnostics);
            }
        }
        let mut template_loader = templates::TemplateLoader::of(self.templates.clone());
        if !options.no_prompt_templates {
            for path in permitted(&discovered.prompt_paths, options, &mut diagnostics) {
                template_loader.add_path(&path, &mut diagnostics);
            }
        }
        Self {
            settings: self.settings.clone(),
            skills: skill_loader.finish(),
            templates: template_loader.finish(),
            context_files: self.context_files.clone(),
            diagnostics,
            options: options.clone(),
        }
    }
}

/// The paths, absolute, without those that lie in a project that is not trusted: an
/// extension must not bring in what the person has not agreed to.
fn permitted(
    paths: &[PathBuf],
    options: &ResourceOptions,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<PathBuf> {
    let mut permitted = Vec::new();
    for path in paths.iter().map(|path| options.resolve(path)) {
        if !options.trusted && is_project_content(&path, options) {
            diagnostics.push(Diagnostic::new(
                &path,
                "is not loaded: an extension names it, but the project is not trusted".to_owned(),
            ));
        } else {
            permitted.push(path);
        }
    }
    permitted
}

/// Whether a path leads into a folder that counts only with trust in the project. The
/// person's own folders may lie where a project's would (`cwd` is the home directory).
fn is_project_content(path: &Path, options: &ResourceOptions) -> bool {
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = canonical(path);
    let own = [
        Some(options.agent_dir.path().to_owned()),
        options.home.as_ref().map(|home| home.join(project::AGENTS_SKILLS)),
    ];
    if own.iter().flatten().any(|own| path.starts_with(canonical(own))) {
        return false;
    }
    let cwd = canonical(&options.cwd);
    let root = repository_root(&cwd).unwrap_or(&cwd);
    let agents_dir = Path::new(project::AGENTS_SKILLS).iter().next();
    path.strip_prefix(root).is_ok_and(|inside| {
        inside.components().any(|part| match part {
            Component::Normal(name) => name == PROJECT_DIR || Some(name) == agents_dir,
            _ => false,
        })
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;

    use super::*;
    use crate::resources::AgentDir;

    const FILES: [(&str, &str); 8] = [
        ("home/agent/skills/one/SKILL.md", "---\ndescription: own\n---\n"),
        ("home/agent/prompts/p.md", "own"),
        ("work/ext/one/SKILL.md", "---\ndescription: of an extension\n---\n"),
        ("work/ext/two/SKILL.md", "---\ndescription: of an extension\n---\n"),
        ("work/ext/prompts/p.md", "of an extension"),
        ("work/ext/prompts/q.md", "of an extension"),
        ("work/.wharf/skills/three/SKILL.md", "---\ndescription: of the project\n---\n"),
        ("home/.agents/skills/four/SKILL.md", "---\ndescription: own\n---\n"),
    ];

    /// `name:description` of skills, then of templates; then how many diagnostics.
    #[track_caller]
    fn check(
        change: impl FnOnce(&mut ResourceOptions),
        (skill_paths, prompt_paths): (&[&str], &[&str]),
        (skills, templates, problems): (&[&str], &[&str], &[&str]),
    ) {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in FILES {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        std::os::unix::fs::symlink(
            dir.path().join("work/.wharf/skills"),
            dir.path().join("work/link"),
        )
        .unwrap();
        let home = dir.path().join("home");
        let agent_dir = AgentDir::new(home.join("agent"));
        let mut options = ResourceOptions::new(agent_dir, Some(home), dir.path().join("work"));
        change(&mut options);
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        let found = Resources::load(options).with_discovered(&DiscoveredResources {
            skill_paths: paths(skill_paths),
            prompt_paths: paths(prompt_paths),
        });
        let names: Vec<_> =
            found.skills.iter().map(|s| format!("{}:{}", s.name, s.description)).collect();
        assert_eq!(names, skills);
        let names: Vec<_> =
            found.templates.iter().map(|t| format!("{}:{}", t.name, t.description)).collect();
        assert_eq!(names, templates);
        let told: Vec<_> = found.diagnostics.iter().map(|d| &*d.message).collect();
        assert_eq!(told.len(), problems.len(), "{told:?}");
        for (told, problem) in told.iter().zip(problems) {
            assert!(told.contains(problem), "{told}");
        }
    }

    #[test]
    fn they_come_behind_and_the_first_of_a_name_stays() {
        check(
            |_| {},
            (&["ext", "ext/two"], &["ext/prompts"]),
            (
                &["one:own", "four:own", "two:of an extension"],
                &["p:own", "q:of an extension"],
                &["has the same name and comes first", "has the same name and comes first"],
            ),
        );
        check(
            |_| {},
            (&["~/agent/skills/one", "absent"], &[]),
            (&["one:own", "four:own"], &["p:own"], &["does not exist"]),
        );
    }

    #[test]
    fn switches_of_the_command_line_hold() {
        check(
            |options| options.no_skills = true,
            (&["ext/two"], &["ext/prompts/q.md"]),
            (&[], &["p:own", "q:of an extension"], &[]),
        );
        check(
            |options| options.no_prompt_templates = true,
            (&["ext/two"], &["ext/prompts/q.md"]),
            (&["one:own", "four:own", "two:of an extension"], &[], &[]),
        );
    }

    #[test]
    fn a_project_that_is_not_trusted_stays_inert() {
        let own: &[&str] = &["one:own", "four:own"];
        for path in [".wharf/skills", ".wharf/skills/three/SKILL.md", "link", "ext/../.wharf"] {
            check(|_| {}, (&[path], &[]), (own, &["p:own"], &["is not trusted"]));
        }
        check(
            |options| options.trusted = true,
            (&[".wharf/skills"], &[]),
            (&["one:own", "four:own", "three:of the project"], &["p:own"], &[]),
        );
        // The home directory as the project: these are the person's own.
        check(
            |options| options.cwd = options.home.clone().unwrap(),
            (&[".agents/skills", "agent/skills"], &[]),
            (own, &["p:own"], &[]),
        );
    }
}
