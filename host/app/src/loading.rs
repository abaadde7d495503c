//! Where a run looks for what it loads, at its start and at every reload, and whether the
//! project's part of it counts. What is found there is read by the agent's `resources`
//! and by the extension host.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde::Serialize;
use wharf_agent::ResourceLoader;
use wharf_agent::resources::{
    AgentDir, Diagnostic, ResourceOptions, Resources, Settings, TrustError, TrustStore, dirs,
};
use wharf_agent::tool::Tool;
use wharf_agent::tools::{ToolOptions, builtin_tools};
use wharf_extensions::{Loadable, Sources};

use crate::cli::{LoadArgs, RunArgs};
use crate::sessions::Place;
use crate::wiring;

/// What an extension was found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    /// `-e`
    Explicit,
    /// A path in settings.
    Settings,
    Project,
    User,
}

impl Scope {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Settings => "settings",
            Self::Project => "project",
            Self::User => "user",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Loading {
    /// Its `trusted` is not looked at.
    options: ResourceOptions,
    loaded: LoadArgs,
    /// The built-in tools that are switched on; none: all.
    tools: Option<Vec<String>>,
    trusted: AtomicBool,
}

impl Loading {
    /// What a run with these arguments loads.
    pub(crate) fn of_run(args: &RunArgs, agent_dir: AgentDir, cwd: PathBuf, trusted: bool) -> Self {
        let home = dirs::home_dir(|name| std::env::var_os(name));
        let options = ResourceOptions {
            skill_paths: args.skills.clone(),
            template_paths: args.prompt_templates.clone(),
            no_skills: args.no_skills,
            no_prompt_templates: args.no_prompt_templates,
            system_prompt: args.system_prompt.clone(),
            append_system_prompt: args.append_system_prompt.clone(),
            ..ResourceOptions::new(agent_dir, home, cwd)
        };
        let tools = if args.no_tools { Some(Vec::new()) } else { args.tools.clone() };
        Self { options, loaded: args.loaded.clone(), tools, trusted: trusted.into() }
    }

    /// What a run without other arguments loads.
    pub(crate) fn of_extensions(
        loaded: &LoadArgs,
        agent_dir: AgentDir,
        cwd: PathBuf,
        trusted: bool,
    ) -> Self {
        let home = dirs::home_dir(|name| std::env::var_os(name));
        let options = ResourceOptions::new(agent_dir, home, cwd);
        Self { options, loaded: loaded.clone(), tools: None, trusted: trusted.into() }
    }

    /// The same, and this file as if it were named with `-e`.
    pub(crate) fn and(&self, path: PathBuf) -> Self {
        let mut loaded = self.loaded.clone();
        loaded.extensions.push(path);
        let (options, tools) = (self.options.clone(), self.tools.clone());
        Self { options, loaded, tools, trusted: self.is_trusted().into() }
    }

    pub(crate) fn place(&self) -> Place<'_> {
        Place {
            cwd: &self.options.cwd,
            home: self.options.home.as_deref(),
            agent_dir: &self.options.agent_dir,
        }
    }

    pub(crate) fn is_trusted(&self) -> bool {
        self.trusted.load(SeqCst)
    }

    /// The project counts from the next reload on, and in later runs.
    ///
    /// # Errors
    /// The decision cannot be kept; nothing has changed then.
    pub(crate) fn trust_project(&self) -> Result<(), TrustError> {
        TrustStore::load(self.options.agent_dir.trust_file())?.trust(&self.options.cwd)?;
        self.trusted.store(true, SeqCst);
        Ok(())
    }

    /// Whether the project brings something that trust would open.
    pub(crate) fn ignores_project(&self) -> bool {
        let place = self.place();
        !self.is_trusted()
            && wharf_agent::resources::ignored_content(place.cwd, place.agent_dir, place.home)
                .is_some()
    }

    pub(crate) fn resources(&self) -> Resources {
        Resources::load(ResourceOptions { trusted: self.is_trusted(), ..self.options.clone() })
    }

    pub(crate) fn settings(&self, diagnostics: &mut Vec<Diagnostic>) -> Settings {
        let place = self.place();
        Settings::load(place.agent_dir, place.cwd, place.home, self.is_trusted(), diagnostics)
    }

    pub(crate) fn sources(&self, settings: &Settings) -> Sources {
        wiring::sources(&self.loaded, &self.place(), settings, self.is_trusted())
    }

    /// What the extension host asks for at its start and at each reload. What is wrong with
    /// the settings is told where they are read as resources.
    pub(crate) fn loadable(&self) -> Loadable {
        let settings = self.settings(&mut Vec::new());
        let own = settings.limited_extensions();
        Loadable {
            limits: wiring::limits(&settings, "*"),
            own_limits: own
                .map(|name| (name.to_owned(), wiring::limits(&settings, name)))
                .collect(),
            sources: self.sources(&settings),
        }
    }

    /// What the extension of this canonical file was found by.
    pub(crate) fn scope(&self, sources: &Sources, path: &Path) -> Scope {
        let is = |named: &PathBuf| {
            let Ok(named) = named.canonicalize() else { return false };
            named == path || path.parent() == Some(&named)
        };
        if sources.explicit.iter().any(is) {
            return Scope::Explicit;
        }
        if sources.settings.iter().any(is) {
            return Scope::Settings;
        }
        // What a link in the project's folder leads to comes from the project, too; only
        // what is certain to be the person's own is the person's.
        let is_users = || Some(path.starts_with(sources.user_dir.as_ref()?.canonicalize().ok()?));
        let is_projects =
            || Some(path.starts_with(sources.project_dir.as_ref()?.canonicalize().ok()?));
        match (is_projects(), is_users()) {
            (Some(true), _) => Scope::Project,
            (_, Some(true)) => Scope::User,
            _ if sources.project_dir.as_ref().is_some_and(|dir| dir.is_dir()) => Scope::Project,
            _ => Scope::User,
        }
    }
}

impl Loading {
    fn all_tools(&self, resources: &Resources) -> Vec<Arc<dyn Tool>> {
        builtin_tools(ToolOptions {
            shell_path: resources.settings.shell_path.clone(),
            shell_command_prefix: resources.settings.shell_command_prefix.clone(),
            home: self.options.home.clone(),
            has_skills: resources.skills_for_model().next().is_some(),
            auto_resize_images: resources.settings.auto_resize_images,
        })
    }

    /// # Errors
    /// `--tools` names one that there is not.
    pub(crate) fn check_tool_names(&self, resources: &Resources) -> anyhow::Result<()> {
        let all = self.all_tools(resources);
        let known: Vec<&str> = all.iter().map(|tool| tool.spec().name.as_str()).collect();
        for name in self.tools.iter().flatten() {
            anyhow::ensure!(
                // Offered only where there are skills; asking for it is no mistake.
                known.contains(&name.as_str()) || name == "skill",
                "--tools: there is no built-in tool {name:?}; there are {}",
                known.join(", ")
            );
        }
        Ok(())
    }
}

impl ResourceLoader for Loading {
    fn load(&self) -> Resources {
        self.resources()
    }

    fn tools(&self, resources: &Resources) -> Vec<Arc<dyn Tool>> {
        let mut tools = self.all_tools(resources);
        if let Some(names) = &self.tools {
            tools.retain(|tool| names.contains(&tool.spec().name));
        }
        tools
    }
}

/// Whether a person trusts the directory; where the list cannot be read, nobody does.
pub(crate) fn is_trusted(agent_dir: &AgentDir, cwd: &Path) -> Result<bool, TrustError> {
    Ok(TrustStore::load(agent_dir.trust_file())?.is_trusted(cwd))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::fs;

    use super::*;

    #[test]
    fn a_scope_is_what_names_the_file_first() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let touch = |name: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let user = touch("agent/extensions/u.wasm");
        let project = touch("p/.wharf/extensions/p/extension.wasm");
        let set = touch("set/extension.wasm");
        let linked = touch("elsewhere/l.wasm");
        let explicit = touch("agent/extensions/e.wasm");
        let args = LoadArgs { extensions: vec![explicit.clone()], no_extensions: false };
        let agent_dir = AgentDir::new(root.join("agent"));
        let loading = Loading::of_extensions(&args, agent_dir, root.join("p"), true);
        fs::write(root.join("agent/settings.json"), r#"{"extensions": ["../set"]}"#).unwrap();
        let settings = loading.settings(&mut Vec::new());
        let sources = loading.sources(&settings);
        for (path, expect) in [
            (&user, Scope::User),
            (&project, Scope::Project),
            (&set, Scope::Settings),
            (&explicit, Scope::Explicit),
            (&linked, Scope::Project),
        ] {
            assert_eq!(loading.scope(&sources, path), expect, "{}", path.display());
        }
    }
}
