//! Puts the parts together: directories, trust, settings, resources, models, the
//! session, the extensions, the agent.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;
use wharf_agent::hooks::{HookEvent, Hooks};
use wharf_agent::host_api::HostApi;
use wharf_agent::resources::{AgentDir, Settings, SettingsFile, dirs};
use wharf_agent::tools::{Shell, ToolOptions, builtin_tools};
use wharf_agent::ui::{NoUi, Ui};
use wharf_agent::{Agent, AgentOptions, PerformanceLog, ResourceLoader as _, SessionStore};
use wharf_extensions::{
    ExtensionHost, ExtensionHostOptions, ExtensionInfo, Limits, Report, Reporter, Severity, Sources,
};
use wharf_provider::{ModelChoice, Problem, Registry};
use wharf_session::SessionDir;

use crate::cli::{LoadArgs, Mode, RunArgs};
use crate::flags;
use crate::front::Front;
use crate::loading::{self, Loading};
use crate::report;
use crate::sessions::{self, Place};

/// How long an extension may take to say where sessions are kept, where a run cannot begin
/// without: nobody can answer a dialog of it then.
const DIRECTORY_LIMIT: Duration = Duration::from_secs(10);

/// A run's parts, as the modes use them.
pub(crate) struct Wired {
    pub(crate) agent: Agent,
    pub(crate) hooks: Arc<dyn Hooks>,
    pub(crate) extensions: Arc<ExtensionHost>,
    pub(crate) loading: Arc<Loading>,
    pub(crate) registered: Registered,
}

/// Tells when another extension has registered or failed.
#[derive(Debug)]
pub(crate) struct Registered(watch::Receiver<u64>);

impl Registered {
    pub(crate) async fn changed(&mut self) {
        // The extension host lives as long as the run; if it is gone, nothing
        // changes any more.
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The agent directory that a run uses.
pub(crate) fn agent_dir(explicit: Option<&Path>) -> anyhow::Result<AgentDir> {
    let cwd = std::env::current_dir().context("the working directory cannot be read")?;
    Ok(AgentDir::resolve(explicit, &cwd, |name| std::env::var_os(name))?)
}

pub(crate) async fn build(args: RunArgs, ui: Arc<dyn Ui>, front: &Front) -> anyhow::Result<Wired> {
    let cwd = std::env::current_dir().context("the working directory cannot be read")?;
    let home = dirs::home_dir(|name| std::env::var_os(name));
    let agent_dir = agent_dir(args.place.agent_dir.as_deref())?;
    let trusted = args.trust_project || is_trusted(&agent_dir, &cwd, front);
    let loading = Arc::new(Loading::of_run(&args, agent_dir.clone(), cwd.clone(), trusted));
    let resources = loading.resources();
    for diagnostic in &resources.diagnostics {
        tell(front, &diagnostic.path, &diagnostic.message);
    }
    let Models { registry, choice, scope } = models(&args, &agent_dir, &resources.settings, front)?;
    let place = Place { cwd: &cwd, home: home.as_deref(), agent_dir: &agent_dir };
    let shell = Shell::new(
        resources.settings.shell_path.clone(),
        resources.settings.shell_command_prefix.clone(),
    );
    loading.check_tool_names(&resources)?;
    let tools = loading.tools(&resources);
    let parts = HostParts {
        loading: Arc::clone(&loading),
        flags: args.flags.clone(),
        ui: Arc::clone(&ui),
        reporter: Arc::new(FrontReporter(front.clone())),
    };
    let host = start_extensions(tools.iter().map(|tool| tool.spec().name.clone()), parts);
    let registered = Registered(host.settled());
    let (session_dir, extensions_may_place) =
        session_dir(&args, &place, &resources.settings, &host).await;
    let index = place.index();
    let session = sessions::first(&args, &place, &session_dir, &index)?;
    session.set_durability(resources.settings.session_sync);
    // Of a copy that has just been made; where there can be no lock, the first append says so.
    let _ = session.claim();
    let mut store = SessionStore::new(session_dir, index, agent_dir.subagent_sessions());
    if args.no_session {
        store = store.in_memory();
    }
    // What the settings name is for sessions that have no model of their own.
    let is_asked_for = args.model.is_some() || args.provider.is_some();
    let (model, chosen_level) =
        choice.map_or((None, None), |choice| (Some(choice.model), choice.thinking_level));
    let (asked, default) = if is_asked_for { (model, None) } else { (None, model) };
    let asked_level = args.thinking.or(chosen_level.filter(|_| is_asked_for));
    let agent = Agent::new(AgentOptions {
        hooks: Arc::clone(&host) as _,
        outlet: Arc::new(front.clone()),
        registry,
        loader: Arc::clone(&loading) as _,
        tools,
        cwd,
        session: session.clone(),
        store,
        home: home.clone(),
        model: asked,
        default_model: default,
        thinking_level: asked_level,
        default_thinking_level: chosen_level.or(resources.settings.default_thinking_level),
        steering_mode: resources.settings.steering_mode,
        follow_up_mode: resources.settings.follow_up_mode,
        scoped_models: scope,
        ui,
        shell,
        performance: Some(PerformanceLog::new(agent_dir.performance_log())),
        settings_file: Some(SettingsFile::new(agent_dir.settings_file())),
        // A one-shot run is over before the name could come.
        names_sessions: resources.settings.auto_session_name && args.mode == Some(Mode::Rpc),
        resources,
    });
    host.attach(Arc::new(agent.clone()) as Arc<dyn HostApi>);
    if extensions_may_place {
        agent.place_sessions();
    }
    agent.announce_session_start();
    agent.discover_resources();
    agent.report_warnings(&session).await;
    tell_flag_clashes(Arc::clone(&host), front.clone());
    Ok(Wired { agent, hooks: Arc::clone(&host) as _, extensions: host, loading, registered })
}

/// Tells, once all extensions have registered, which of their flags nobody can give.
fn tell_flag_clashes(host: Arc<ExtensionHost>, front: Front) {
    tokio::spawn(async move {
        host.ready().await;
        for clash in flags::registered(&host.list()).clashes {
            tell(&front, &clash.extension_path, &clash.problem);
        }
    });
}

/// What a person and an RPC client are told of a problem that stops nothing.
fn tell(front: &Front, path: &Path, message: &str) {
    report::warning(format_args!("{}: {message}", path.display()));
    front.extension_error(path.to_owned(), "load", message.to_owned());
}

fn is_trusted(agent_dir: &AgentDir, cwd: &Path, front: &Front) -> bool {
    loading::is_trusted(agent_dir, cwd).unwrap_or_else(|error| {
        tell(front, &agent_dir.trust_file(), &error.to_string());
        false
    })
}

/// The models that there are, and what is wrong with the files that name them.
pub(crate) fn registry(agent_dir: &AgentDir) -> (Registry, Vec<Problem>) {
    let mut registry = Registry::builtin();
    let mut problems = registry.load_models_file(&agent_dir.models_file());
    problems.append(&mut registry.load_auth_file(&agent_dir.auth_file()));
    (registry, problems)
}

/// The models, and which of them a run uses.
struct Models {
    registry: Registry,
    choice: Option<ModelChoice>,
    /// Those that `cycle_model` goes through; empty: all.
    scope: Vec<ModelChoice>,
}

/// The models, and the one that was asked for: by flag or, without one, by settings.
/// A wrong flag is an error; a wrong setting must not keep extensions and their
/// commands from working.
fn models(
    args: &RunArgs,
    agent_dir: &AgentDir,
    settings: &Settings,
    front: &Front,
) -> anyhow::Result<Models> {
    let (mut registry, problems) = registry(agent_dir);
    for problem in problems {
        tell(front, &problem.path, &problem.message);
    }
    let choice = choice(args, agent_dir, settings, &mut registry, front)?;
    if let Some(warning) = choice.as_ref().and_then(|choice| choice.warning.as_ref()) {
        report::warning(warning);
    }
    if let Some(key) = &args.api_key {
        let choice =
            choice.as_ref().context("--api-key needs --model or --provider: whose key is it?")?;
        registry.set_api_key(&choice.model.provider, key);
    }
    let patterns = args.models.as_ref().unwrap_or(&settings.enabled_models);
    let (scope, warnings) = match patterns.is_empty() {
        true => (Vec::new(), Vec::new()),
        false => registry.scoped(patterns),
    };
    for warning in warnings {
        report::warning(warning);
    }
    Ok(Models { registry, choice, scope })
}

fn choice(
    args: &RunArgs,
    agent_dir: &AgentDir,
    settings: &Settings,
    registry: &mut Registry,
    front: &Front,
) -> anyhow::Result<Option<ModelChoice>> {
    if let Some(pattern) = &args.model {
        return Ok(Some(registry.resolve(args.provider.as_deref(), pattern)?));
    }
    if let Some(provider) = &args.provider {
        let offered = registry
            .list(None)
            .into_iter()
            .find(|model| model.provider.eq_ignore_ascii_case(provider));
        let model = offered.with_context(|| {
            format!("provider {provider} has no model here; see --list-models and models.json")
        })?;
        return Ok(Some(ModelChoice { model, thinking_level: None, warning: None }));
    }
    let (Some(provider), Some(id)) = (&settings.default_provider, &settings.default_model) else {
        return Ok(None);
    };
    match registry.resolve(Some(provider), id) {
        Ok(choice) => Ok(Some(choice)),
        Err(error) => {
            tell(
                front,
                &agent_dir.settings_file(),
                &format!("defaultModel {provider}/{id}: {error}"),
            );
            Ok(None)
        }
    }
}

/// Where session files are kept, and whether extensions may still say where.
async fn session_dir(
    args: &RunArgs,
    place: &Place<'_>,
    settings: &Settings,
    host: &ExtensionHost,
) -> (SessionDir, bool) {
    if let Some(dir) = place.chosen_dir(&args.place, settings) {
        return (dir, false);
    }
    let may_say = host.subscribes(HookEvent::SessionDirectory);
    // Only what is to be reopened has to be known at once: a start must not wait for a
    // compile that it does not need.
    if !may_say || !sessions::is_reopening(args) {
        return (place.default_dir(), may_say);
    }
    let said = ask_for_directory(place, host).await;
    (said.unwrap_or_else(|| place.default_dir()), false)
}

pub(crate) fn sources(
    args: &LoadArgs,
    place: &Place<'_>,
    settings: &Settings,
    trusted: bool,
) -> Sources {
    let explicit = args
        .extensions
        .iter()
        .map(|path| dirs::resolve_path(path, place.cwd, place.home))
        .collect();
    if args.no_extensions {
        return Sources { explicit, ..Sources::default() };
    }
    Sources {
        explicit,
        settings: settings.extensions.clone(),
        project_dir: trusted.then(|| place.cwd.join(dirs::PROJECT_DIR).join("extensions")),
        user_dir: Some(place.agent_dir.extensions()),
        disabled: settings.disabled_extensions(),
    }
}

/// What an extension host is made of.
pub(crate) struct HostParts {
    pub(crate) loading: Arc<Loading>,
    pub(crate) flags: HashMap<String, Option<String>>,
    pub(crate) ui: Arc<dyn Ui>,
    pub(crate) reporter: Arc<dyn Reporter>,
}

pub(crate) fn start_extensions(
    built_in_tools: impl Iterator<Item = String>,
    parts: HostParts,
) -> Arc<ExtensionHost> {
    let HostParts { loading, flags, ui, reporter } = parts;
    let place = loading.place();
    let loadable = {
        let loading = Arc::clone(&loading);
        Arc::new(move || loading.loadable())
    };
    ExtensionHost::start(ExtensionHostOptions {
        loadable,
        cache_dir: place.agent_dir.cache().join("components"),
        log_file: place.agent_dir.log_file(),
        cwd: place.cwd.to_owned(),
        home: place.home.map(Path::to_owned),
        agent_dir: place.agent_dir.path().to_owned(),
        flags,
        built_in_tools: built_in_tools.collect(),
        ui,
        reporter,
        runtime: tokio::runtime::Handle::current(),
    })
}

/// What there is once all extensions have registered, for runs that need no more of them.
/// In load order.
pub(crate) async fn registered(
    loading: Arc<Loading>,
    reporter: Arc<dyn Reporter>,
) -> Vec<ExtensionInfo> {
    let built_in = builtin_tools(ToolOptions {
        shell_path: None,
        shell_command_prefix: None,
        home: None,
        // Its name is taken also where it is not offered.
        has_skills: true,
        auto_resize_images: false,
    });
    let built_in = built_in.iter().map(|tool| tool.spec().name.clone());
    let parts = HostParts { loading, flags: HashMap::default(), ui: Arc::new(NoUi), reporter };
    let host = start_extensions(built_in, parts);
    host.ready().await;
    let infos = host.list();
    host.shutdown().await;
    infos
}

/// Where extensions want sessions kept, for runs that need nothing else of them.
pub(crate) fn dir_by_extensions(
    args: &LoadArgs,
    place: &Place<'_>,
    settings: &Settings,
    trusted: bool,
) -> anyhow::Result<Option<SessionDir>> {
    let (agent_dir, cwd) = (place.agent_dir.clone(), place.cwd.to_owned());
    let loading = Loading::of_extensions(args, agent_dir, cwd, trusted);
    let sources = loading.sources(settings);
    let is_there = |dir: &Option<PathBuf>| dir.as_ref().is_some_and(|dir| dir.is_dir());
    let some = !sources.explicit.is_empty()
        || !sources.settings.is_empty()
        || is_there(&sources.project_dir)
        || is_there(&sources.user_dir);
    if !some {
        return Ok(None);
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let said = runtime.block_on(async {
        let parts = HostParts {
            loading: Arc::new(loading),
            flags: HashMap::default(),
            ui: Arc::new(NoUi),
            reporter: Arc::new(ToStderr),
        };
        let host = start_extensions(std::iter::empty(), parts);
        let said = ask_for_directory(place, &host).await;
        host.shutdown().await;
        said
    });
    runtime.shutdown_timeout(crate::SHUTDOWN_LIMIT);
    Ok(said)
}

/// None: no extension says one.
async fn ask_for_directory(place: &Place<'_>, host: &ExtensionHost) -> Option<SessionDir> {
    host.ready().await;
    if !host.subscribes(HookEvent::SessionDirectory) {
        return None;
    }
    let asked = host.session_directory(place.cwd.to_owned());
    let said = tokio::time::timeout(DIRECTORY_LIMIT, asked).await.unwrap_or_else(|_| {
        report::warning("no extension said in time where sessions are kept; the default is taken");
        None
    });
    said.map(|dir| place.flat(&dir))
}

/// Reports of extensions as lines for people.
#[derive(Debug)]
struct ToStderr;

impl Reporter for ToStderr {
    fn report(&self, report: Report) {
        report::warning(format_args!("{}: {}", report.extension_path.display(), report.error));
    }
}

/// The limits of one extension; `*` is any that has none of its own.
pub(crate) fn limits(settings: &Settings, name: &str) -> Limits {
    let mut limits = Limits::default();
    let set = settings.extension(name).limits;
    for (limit, millis) in [
        (&mut limits.event_budget, set.event_budget_ms),
        (&mut limits.call_budget, set.command_budget_ms),
        (&mut limits.cancel_grace, set.cancel_grace_ms),
    ] {
        if let Some(millis) = millis {
            *limit = Duration::from_millis(millis.get());
        }
    }
    for (limit, number, unit) in [
        (&mut limits.memory_bytes, set.memory_mb, 1024 * 1024),
        (&mut limits.open_dialogs, set.max_open_dialogs, 1),
        (&mut limits.queued_notifications, set.max_queued_notifications, 1),
        (&mut limits.waiting_calls, set.max_waiting_calls, 1),
        (&mut limits.exec_output_bytes, set.exec_output_bytes, 1),
        (&mut limits.faults_per_minute, set.faults_per_minute, 1),
    ] {
        if let Some(number) = number {
            *limit = usize::try_from(number.get()).unwrap_or(usize::MAX).saturating_mul(unit);
        }
    }
    limits
}

/// Makes reports of extensions events, and lines for people.
#[derive(Debug)]
struct FrontReporter(Front);

impl Reporter for FrontReporter {
    fn report(&self, report: Report) {
        let Report { severity, extension_path, event, error } = report;
        if event == "load" || event == "register" || severity == Severity::Warning {
            report::warning(format_args!("{}: {error}", extension_path.display()));
        }
        self.0.extension_error(extension_path, &event, error);
    }
}
