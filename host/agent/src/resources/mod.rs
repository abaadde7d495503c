//! Settings, trust, skills, prompt templates, context files, system prompt: what a run
//! takes from a person's files. Nothing here runs a tool or talks to a model.

pub mod context_files;
pub mod diagnostics;
pub mod dirs;
mod discovered;
mod discovery;
pub mod frontmatter;
pub mod location;
mod project;
pub mod settings;
pub mod settings_file;
pub mod skills;
pub mod substitution;
pub mod system_prompt;
pub mod templates;
mod text_file;
pub mod trust;
mod xml;

use std::path::PathBuf;

pub use context_files::ContextFile;
pub use diagnostics::Diagnostic;
pub use dirs::AgentDir;
pub use location::Location;
pub use project::ignored_content;
pub use settings::Settings;
pub use settings_file::{SettingsFile, SettingsWriteError};
pub use skills::{Skill, SkillError};
pub use system_prompt::SystemPrompt;
pub use templates::{Template, TemplateError};
pub use text_file::{TextFileError, read_regular};
pub use trust::{TrustError, TrustStore};

use crate::tool::ToolSpec;

/// Where to look, and what a person asked for.
#[derive(Debug, Clone)]
pub struct ResourceOptions {
    pub agent_dir: AgentDir,
    pub home: Option<PathBuf>,
    /// Absolute.
    pub cwd: PathBuf,
    /// Whether what `cwd` brings counts.
    pub trusted: bool,
    /// `--skill`: `~` is expanded, relative paths start at `cwd`. Also with `no_skills`.
    pub skill_paths: Vec<PathBuf>,
    /// `--prompt-template`, likewise.
    pub template_paths: Vec<PathBuf>,
    pub no_skills: bool,
    pub no_prompt_templates: bool,
    /// Takes the place of Wharf's own system prompt.
    pub system_prompt: Option<String>,
    pub append_system_prompt: Option<String>,
}

impl ResourceOptions {
    /// What a run without flags uses.
    pub fn new(agent_dir: AgentDir, home: Option<PathBuf>, cwd: PathBuf) -> Self {
        Self {
            agent_dir,
            home,
            cwd,
            trusted: false,
            skill_paths: Vec::new(),
            template_paths: Vec::new(),
            no_skills: false,
            no_prompt_templates: false,
            system_prompt: None,
            append_system_prompt: None,
        }
    }

    fn resolve(&self, path: &std::path::Path) -> PathBuf {
        dirs::resolve_path(path, &self.cwd, self.home.as_deref())
    }
}

/// What belongs into the system prompt of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelPrompt {
    /// Takes the place of Wharf's own.
    pub replace: Option<String>,
    pub append: Option<String>,
}

/// What was found. Problems are diagnostics: loading always succeeds.
#[derive(Debug)]
pub struct Resources {
    pub settings: Settings,
    pub skills: Vec<Skill>,
    pub templates: Vec<Template>,
    pub context_files: Vec<ContextFile>,
    pub diagnostics: Vec<Diagnostic>,
    options: ResourceOptions,
}

/// A skill or prompt template that was found at start-up cannot be read any more.
#[derive(Debug, thiserror::Error)]
pub enum ExpandError {
    #[error(transparent)]
    Skill(#[from] SkillError),
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// Why the model does not get a skill.
#[derive(Debug, thiserror::Error)]
pub enum ModelSkillError {
    #[error("there is no skill {name:?}; there are: {known}")]
    Unknown { name: String, known: String },
    #[error("only the person may use the skill {name:?}, with /skill:{name}")]
    PersonOnly { name: String },
    #[error(transparent)]
    Unreadable(#[from] SkillError),
}

impl Resources {
    pub fn load(options: ResourceOptions) -> Self {
        let mut diagnostics = Vec::new();
        if !options.trusted {
            diagnostics.extend(project::ignored_content(
                &options.cwd,
                &options.agent_dir,
                options.home.as_deref(),
            ));
        }
        let settings = Settings::load(
            &options.agent_dir,
            &options.cwd,
            options.home.as_deref(),
            options.trusted,
            &mut diagnostics,
        );
        let skills = load_skills(&options, &settings, &mut diagnostics);
        let templates = load_templates(&options, &settings, &mut diagnostics);
        let context_files =
            context_files::load(options.agent_dir.path(), &options.cwd, &mut diagnostics);
        Self { settings, skills, templates, context_files, diagnostics, options }
    }

    pub fn skill(&self, name: &str) -> Option<&Skill> {
        self.skills.iter().find(|skill| skill.name == name)
    }

    /// The skills that the model may use.
    pub fn skills_for_model(&self) -> impl Iterator<Item = &Skill> {
        self.skills.iter().filter(|skill| !skill.disable_model_invocation)
    }

    /// What the `skill` tool gives: the skill's text with its arguments put in.
    ///
    /// # Errors
    /// There is no such skill, only a person may use it, or it cannot be read any more.
    pub fn expand_for_model(
        &self,
        name: &str,
        arguments: &str,
        session_id: &str,
    ) -> Result<String, ModelSkillError> {
        match self.skill(name) {
            Some(skill) if skill.disable_model_invocation => {
                Err(ModelSkillError::PersonOnly { name: name.to_owned() })
            }
            Some(skill) => Ok(skill.expand(arguments, session_id)?),
            None => {
                let names: Vec<_> = self.skills_for_model().map(|known| &*known.name).collect();
                let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                Err(ModelSkillError::Unknown { name: name.to_owned(), known })
            }
        }
    }

    /// The skills that a person calls as `/skill:name`.
    pub fn skill_commands(&self) -> impl Iterator<Item = &Skill> {
        let are_offered = self.settings.enable_skill_commands;
        self.skills.iter().filter(move |skill| skill.user_invocable && are_offered)
    }

    pub fn template(&self, name: &str) -> Option<&Template> {
        self.templates.iter().find(|template| template.name == name)
    }

    /// What `/skill:name arguments` or `/template arguments` stands for. `None` when the
    /// text is neither, or names nothing that is known: it then goes on as it is.
    /// Skills that are not offered to people work all the same when they are named.
    pub fn expand_input(
        &self,
        text: &str,
        session_id: &str,
    ) -> Result<Option<String>, ExpandError> {
        let Some(command) = text.strip_prefix('/') else { return Ok(None) };
        let (name, arguments) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        if let Some(name) = name.strip_prefix("skill:") {
            let skill = self.skill(name).filter(|_| self.settings.enable_skill_commands);
            return Ok(skill.map(|skill| skill.expand(arguments, session_id)).transpose()?);
        }
        let template = self.template(name);
        Ok(template.map(|template| template.expand(arguments, session_id)).transpose()?)
    }

    /// The system prompt of a run with these tools. `date`: today, as `2026-01-31`. What
    /// the command line says goes over what the model's own says.
    pub fn system_prompt(&self, tools: &[&ToolSpec], date: &str, model: &ModelPrompt) -> String {
        let given = self.options.append_system_prompt.as_deref();
        let appended: Vec<&str> = model.append.as_deref().into_iter().chain(given).collect();
        let appended = appended.join("\n\n");
        SystemPrompt {
            replacement: self.options.system_prompt.as_deref().or(model.replace.as_deref()),
            tools,
            context_files: &self.context_files,
            skills: &self.skills,
            appended: Some(appended.as_str()).filter(|text| !text.is_empty()),
            date,
            cwd: &self.options.cwd,
        }
        .build()
    }
}

fn load_skills(
    options: &ResourceOptions,
    settings: &Settings,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Skill> {
    let mut loader = skills::SkillLoader::default();
    if !options.no_skills {
        loader.add_folder(&options.agent_dir.skills(), Location::User, diagnostics);
        if let Some(home) = &options.home {
            loader.add_folder(&home.join(project::AGENTS_SKILLS), Location::User, diagnostics);
        }
        if options.trusted {
            let own = options.cwd.join(dirs::PROJECT_DIR).join("skills");
            for folder in std::iter::once(own).chain(project::agents_skills(&options.cwd)) {
                loader.add_folder(&folder, Location::Project, diagnostics);
            }
        }
        for path in &settings.skills {
            loader.add_path(path, diagnostics);
        }
    }
    for path in &options.skill_paths {
        loader.add_path(&options.resolve(path), diagnostics);
    }
    loader.finish()
}

fn load_templates(
    options: &ResourceOptions,
    settings: &Settings,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Template> {
    let mut loader = templates::TemplateLoader::default();
    if !options.no_prompt_templates {
        if options.trusted {
            let own = options.cwd.join(dirs::PROJECT_DIR).join("prompts");
            loader.add_folder(&own, Location::Project, diagnostics);
        }
        loader.add_folder(&options.agent_dir.prompts(), Location::User, diagnostics);
        for path in &settings.prompts {
            loader.add_path(path, diagnostics);
        }
    }
    for path in &options.template_paths {
        loader.add_path(&options.resolve(path), diagnostics);
    }
    loader.finish()
}

#[cfg(test)]
mod tests;
