#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::*;

/// A home, an agent directory in it and a project in a repository, all temporary.
struct Setup(tempfile::TempDir);

impl Setup {
    fn new(files: &[(&str, &str)]) -> Self {
        let setup = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(setup.path("home/repo/.git")).unwrap();
        fs::create_dir_all(setup.path("home/repo/project")).unwrap();
        for (name, content) in files {
            let path = setup.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        setup
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn options(&self) -> ResourceOptions {
        let agent_dir = AgentDir::new(self.path("home/.wharf/agent"));
        ResourceOptions::new(agent_dir, Some(self.path("home")), self.path("home/repo/project"))
    }

    fn trusted(&self) -> ResourceOptions {
        ResourceOptions { trusted: true, ..self.options() }
    }
}

fn skill_file(name: &str) -> String {
    format!("---\nname: {name}\ndescription: Skill {name}.\n---\nDo {name} with $1.")
}

/// One skill or template in every place there is.
fn everywhere() -> Setup {
    let s = skill_file;
    Setup::new(&[
        ("home/.wharf/agent/skills/agent/SKILL.md", &s("agent")),
        ("home/.wharf/agent/skills/twice/SKILL.md", &s("twice")),
        ("home/.agents/skills/home/SKILL.md", &s("home")),
        ("home/repo/project/.wharf/skills/project/SKILL.md", &s("project")),
        ("home/repo/project/.wharf/skills/twice/SKILL.md", &s("twice")),
        ("home/repo/project/.agents/skills/nearest/SKILL.md", &s("nearest")),
        ("home/repo/.agents/skills/root/SKILL.md", &s("root")),
        ("home/set/settings/SKILL.md", &s("settings")),
        ("home/repo/project/flag/SKILL.md", &s("flag")),
        (
            "home/.wharf/agent/settings.json",
            r#"{"skills": ["~/set"], "prompts": ["more/c.md"], "defaultModel": "agent's"}"#,
        ),
        ("home/repo/project/.wharf/settings.json", r#"{"defaultModel": "project's"}"#),
        ("home/.wharf/agent/prompts/a.md", "user's a $1"),
        ("home/.wharf/agent/prompts/b.md", "user's b"),
        ("home/.wharf/agent/more/c.md", "settings' c"),
        ("home/repo/project/.wharf/prompts/a.md", "project's a $1"),
        ("home/repo/project/d.md", "flag's d"),
        ("home/.wharf/agent/AGENTS.md", "agent's rules"),
        ("home/repo/project/AGENTS.md", "project's rules"),
    ])
}

fn names(resources: &Resources) -> Vec<(&str, &str)> {
    resources.skills.iter().map(|s| (s.name.as_str(), s.location.as_str())).collect()
}

#[test]
fn skills_come_from_all_places_in_order() {
    let setup = everywhere();
    let options = ResourceOptions { skill_paths: vec!["flag".into()], ..setup.trusted() };
    let resources = Resources::load(options);
    assert_eq!(
        names(&resources),
        [
            ("agent", "user"),
            ("twice", "user"),
            ("home", "user"),
            ("project", "project"),
            ("nearest", "project"),
            ("root", "project"),
            ("settings", "path"),
            ("flag", "path"),
        ]
    );
    assert_eq!(resources.settings.default_model.as_deref(), Some("project's"));
    assert_eq!(resources.diagnostics.len(), 1, "{:?}", resources.diagnostics);
    let clash = &resources.diagnostics[0];
    assert_eq!(clash.path, setup.path("home/repo/project/.wharf/skills/twice/SKILL.md"));
    let first = setup.path("home/.wharf/agent/skills/twice/SKILL.md");
    assert!(clash.message.contains(first.to_str().unwrap()), "{clash}");
}

#[test]
fn an_untrusted_project_is_inert_with_one_diagnostic() {
    let setup = everywhere();
    let resources = Resources::load(setup.options());
    assert_eq!(
        names(&resources),
        [("agent", "user"), ("twice", "user"), ("home", "user"), ("settings", "path")]
    );
    assert_eq!(resources.settings.default_model.as_deref(), Some("agent's"));
    assert_eq!(resources.template("a").unwrap().location, Location::User);
    assert_eq!(resources.diagnostics.len(), 1, "{:?}", resources.diagnostics);
    assert_eq!(resources.diagnostics[0].path, setup.path("home/repo/project"));
    assert!(resources.diagnostics[0].message.contains("wharf trust "));
}

#[test]
fn templates_of_a_project_come_first() {
    let setup = everywhere();
    let options = ResourceOptions { template_paths: vec!["d.md".into()], ..setup.trusted() };
    let resources = Resources::load(options);
    let found: Vec<_> = resources
        .templates
        .iter()
        .map(|t| (t.name.as_str(), t.description.as_str(), t.location))
        .collect();
    assert_eq!(
        found,
        [
            ("a", "project's a $1", Location::Project),
            ("b", "user's b", Location::User),
            ("c", "settings' c", Location::Path),
            ("d", "flag's d", Location::Path),
        ]
    );
}

#[test]
fn switched_off_leaves_only_what_flags_name() {
    let setup = everywhere();
    let resources = Resources::load(ResourceOptions {
        no_skills: true,
        no_prompt_templates: true,
        skill_paths: vec!["flag/SKILL.md".into(), "~/.agents/skills".into(), "absent".into()],
        template_paths: vec!["d.md".into()],
        ..setup.trusted()
    });
    assert_eq!(names(&resources), [("flag", "path"), ("home", "path")]);
    assert_eq!(resources.templates.len(), 1);
    assert_eq!(resources.diagnostics.len(), 1);
    assert_eq!(resources.diagnostics[0].path, setup.path("home/repo/project/absent"));
}

#[test]
fn input_is_expanded_only_when_it_names_something() {
    let setup = everywhere();
    let resources = Resources::load(setup.trusted());
    let expand = |text: &str| resources.expand_input(text, "s-1").unwrap();
    let text = expand("/skill:agent 'x y' z").unwrap();
    assert!(text.contains("\nDo agent with x y.\n"), "{text}");
    assert!(expand("/skill:agent\nx").unwrap().contains("Do agent with x."));
    assert!(expand("/skill:agent").unwrap().contains("Do agent with ."));
    assert_eq!(expand("/a x").as_deref(), Some("project's a x"));
    for text in
        ["", "/", "a", "/absent x", "/skill:", "/skill:absent x", " /a x", "/A", "skill:agent"]
    {
        assert_eq!(expand(text), None, "{text:?}");
    }
    fs::remove_file(setup.path("home/repo/project/.wharf/prompts/a.md")).unwrap();
    assert!(matches!(resources.expand_input("/a", "s"), Err(ExpandError::Template(_))));
}

#[test]
fn skill_commands_can_be_switched_off() {
    let setup = Setup::new(&[
        ("home/.wharf/agent/settings.json", r#"{"enableSkillCommands": false}"#),
        ("home/.wharf/agent/skills/a/SKILL.md", &skill_file("a")),
    ]);
    let resources = Resources::load(setup.options());
    assert_eq!(resources.expand_input("/skill:a x", "s").unwrap(), None);
    assert!(resources.skill("a").is_some(), "the model can still use it");
}

#[test]
fn the_system_prompt_has_the_parts_that_were_loaded() {
    let setup = everywhere();
    let resources = Resources::load(ResourceOptions {
        system_prompt: Some("Own base.".to_owned()),
        append_system_prompt: Some("Appended.".to_owned()),
        ..setup.options()
    });
    let prompt = resources.system_prompt(&[], "2026-01-31", &ModelPrompt::default());
    let places: Vec<_> =
        ["Own base.", "agent's rules", "project's rules", "Appended.", "2026-01-31"]
            .iter()
            .map(|part| prompt.find(part))
            .collect();
    assert!(places.iter().all(Option::is_some), "{prompt}");
    assert!(places.is_sorted(), "{prompt}");
    assert!(prompt.ends_with(setup.path("home/repo/project").to_str().unwrap()));
}

#[test]
fn nothing_at_all_is_fine() {
    let root = tempfile::tempdir().unwrap();
    let options = ResourceOptions::new(
        AgentDir::new(root.path().join("absent")),
        None,
        root.path().to_path_buf(),
    );
    let resources = Resources::load(options);
    assert!(resources.skills.is_empty() && resources.templates.is_empty());
    assert_eq!(resources.settings, Settings::default());
}

/// Skill fixtures of the reference format, which a checkout may lack.
fn reference_skills() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/skills");
    dir.canonicalize().ok()
}

#[test]
fn the_reference_s_own_skills_load_as_it_says() {
    let Some(folder) = reference_skills() else {
        writeln!(std::io::stderr(), "skipped: the reference's skill fixtures are not here")
            .unwrap();
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let mut options = ResourceOptions::new(
        AgentDir::new(root.path().join("agent")),
        None,
        root.path().to_path_buf(),
    );
    options.skill_paths.push(folder.clone());
    let resources = Resources::load(options);
    let names: Vec<_> = resources.skills.iter().map(|skill| skill.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "disable-model-invocation",
            "multiline-description",
            "different-name",
            "child-skill",
            "not-user-invocable",
            "substitution-test",
            "valid-skill",
        ]
    );
    let problems: Vec<_> = resources
        .diagnostics
        .iter()
        .map(|d| d.path.strip_prefix(&folder).unwrap().parent().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(
        problems,
        ["invalid-yaml", "missing-description", "name-mismatch", "no-frontmatter"]
    );
    assert!(resources.skill("disable-model-invocation").unwrap().disable_model_invocation);
    assert!(!resources.skill("not-user-invocable").unwrap().user_invocable);
    assert_eq!(
        resources.skill("multiline-description").unwrap().description,
        "This is a multiline description.\nIt spans multiple lines.\nAnd should be normalized."
    );
    let text = resources.expand_input("/skill:substitution-test 'a b' c", "s-1").unwrap().unwrap();
    let dir = folder.join("substitution-test");
    assert!(
        text.contains(&format!(
            "Review a b in a b c.\nFirst arg: a b, second arg: c.\nSkill dir: {}.\nSession: s-1.",
            dir.display()
        )),
        "{text}"
    );
}

#[test]
fn the_model_gets_the_skills_that_it_may_use() {
    let hidden = "---\nname: b\ndescription: B.\ndisable-model-invocation: true\n---\nDo b.";
    let setup = Setup::new(&[
        ("home/.wharf/agent/skills/a/SKILL.md", &skill_file("a")),
        ("home/.wharf/agent/skills/b/SKILL.md", hidden),
        ("home/.wharf/agent/skills/c/SKILL.md", &skill_file("c")),
    ]);
    let resources = Resources::load(setup.options());
    let names: Vec<_> = resources.skills_for_model().map(|skill| &*skill.name).collect();
    assert_eq!(names, ["a", "c"]);
    let text = resources.expand_for_model("a", "'x y' z", "s").unwrap();
    assert!(text.contains("Do a with x y."), "{text}");
    fs::remove_file(setup.path("home/.wharf/agent/skills/c/SKILL.md")).unwrap();
    for (name, expect) in [
        ("d", "there is no skill \"d\"; there are: a, c"),
        ("b", "only the person may use the skill \"b\", with /skill:b"),
        ("c", "failed to use skill c: "),
    ] {
        let error = resources.expand_for_model(name, "", "s").unwrap_err().to_string();
        assert!(error.starts_with(expect), "{error}");
    }
    let none = Resources::load(ResourceOptions { no_skills: true, ..setup.options() });
    let error = none.expand_for_model("a", "", "s").unwrap_err().to_string();
    assert_eq!(error, "there is no skill \"a\"; there are: none");
}
