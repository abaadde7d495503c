//! `settings.json`: the agent directory's, and a trusted project's over it, key by key.
//! Keys that no type here knows stay in the raw objects for those who read them.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use wharf_protocol::ThinkingLevel;
pub use wharf_protocol::command::QueueMode;
use wharf_provider::ThinkingBudgets;
use wharf_session::Durability;

use super::diagnostics::Diagnostic;
use super::dirs::{AgentDir, PROJECT_DIR, expand_home, resolve_path};
use super::text_file;

/// Keys that only the agent directory's file may set: what a project brings must not
/// widen what is trusted, nor change an extension's limits.
const GLOBAL_ONLY: [&str; 3] = ["context", "subagentArbiter", "extensionSettings"];

/// Lists of paths, relative to the file that names them.
const PATH_LISTS: [&str; 3] = ["extensions", "skills", "prompts"];

/// The name in `extensionSettings` whose values hold for every extension.
const ANY_EXTENSION: &str = "*";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrySettings {
    pub enabled: bool,
    pub max_retries: u32,
    pub base_delay_ms: u64,
    pub max_delay_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionSettings {
    pub enabled: bool,
    pub reserve_tokens: u64,
    pub keep_recent_tokens: u64,
}

/// What settings say of one extension; `None` is not said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtensionSettings {
    pub disabled: Option<bool>,
    pub limits: ExtensionLimits,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtensionLimits {
    /// Guest time of one event handler call, in milliseconds.
    pub event_budget_ms: Option<NonZeroU64>,
    /// Guest time of one command or tool call, in milliseconds.
    pub command_budget_ms: Option<NonZeroU64>,
    /// Memory of all of the extension's instances, in MiB.
    pub memory_mb: Option<NonZeroU64>,
    /// Wall time for the return from a cancelled call, in milliseconds.
    pub cancel_grace_ms: Option<NonZeroU64>,
    /// Dialogs that are open at the same time.
    pub max_open_dialogs: Option<NonZeroU64>,
    /// Notifications that wait; further ones are dropped.
    pub max_queued_notifications: Option<NonZeroU64>,
    /// Calls that wait to be started; further ones fail.
    pub max_waiting_calls: Option<NonZeroU64>,
    /// Bytes that are kept of each output of a program that it runs.
    pub exec_output_bytes: Option<NonZeroU64>,
    /// Faults within a minute that disable it.
    pub faults_per_minute: Option<NonZeroU64>,
}

impl ExtensionLimits {
    /// These, and those of `any` where nothing is said here.
    const fn or(self, any: Self) -> Self {
        Self {
            event_budget_ms: own_or(self.event_budget_ms, any.event_budget_ms),
            command_budget_ms: own_or(self.command_budget_ms, any.command_budget_ms),
            memory_mb: own_or(self.memory_mb, any.memory_mb),
            cancel_grace_ms: own_or(self.cancel_grace_ms, any.cancel_grace_ms),
            max_open_dialogs: own_or(self.max_open_dialogs, any.max_open_dialogs),
            max_queued_notifications: own_or(
                self.max_queued_notifications,
                any.max_queued_notifications,
            ),
            max_waiting_calls: own_or(self.max_waiting_calls, any.max_waiting_calls),
            exec_output_bytes: own_or(self.exec_output_bytes, any.exec_output_bytes),
            faults_per_minute: own_or(self.faults_per_minute, any.faults_per_minute),
        }
    }
}

const fn own_or(own: Option<NonZeroU64>, any: Option<NonZeroU64>) -> Option<NonZeroU64> {
    if own.is_some() { own } else { any }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub default_provider: Option<String>,
    pub default_model: Option<String>,
    pub default_thinking_level: Option<ThinkingLevel>,
    pub thinking_budgets: ThinkingBudgets,
    /// Patterns of the models that cycling goes through, in its order; none: all models.
    pub enabled_models: Vec<String>,
    /// Whether a session without a name is given one after its first reply.
    pub auto_session_name: bool,
    pub steering_mode: QueueMode,
    pub follow_up_mode: QueueMode,
    pub retry: RetrySettings,
    pub compaction: CompactionSettings,
    /// Tokens that a branch's summary and what it is made from leave free.
    pub branch_summary_reserve_tokens: u64,
    /// `~` expanded; a bare name is looked up in `PATH`.
    pub shell_path: Option<PathBuf>,
    pub shell_command_prefix: Option<String>,
    /// `~` expanded; a relative path starts at the working directory.
    pub session_dir: Option<PathBuf>,
    /// When session files are made durable.
    pub session_sync: Durability,
    pub enable_skill_commands: bool,
    pub extensions: Vec<PathBuf>,
    pub skills: Vec<PathBuf>,
    pub prompts: Vec<PathBuf>,
    pub block_images: bool,
    /// Whether images that are too large for models are scaled down; else they are refused.
    pub auto_resize_images: bool,
    extension_settings: BTreeMap<String, ExtensionSettings>,
    /// The agent directory's object as it was read, unknown keys included.
    pub global: Map<String, Value>,
    /// What is in effect: both objects merged, without what a file may not set.
    pub merged: Map<String, Value>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::from_objects(Map::new(), Map::new(), None)
    }
}

impl Settings {
    /// Reads the agent directory's settings and, of a trusted project only, `cwd`'s. A
    /// broken file or value becomes a diagnostic; the rest stays usable.
    pub fn load(
        agent_dir: &AgentDir,
        cwd: &Path,
        home: Option<&Path>,
        trusted: bool,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Self {
        let file = agent_dir.settings_file();
        let global = read_object(&file, diagnostics);
        let mut merged = global.clone();
        Layer { file: &file, home, diagnostics }.clean(&mut merged);
        if trusted {
            let file = cwd.join(PROJECT_DIR).join("settings.json");
            let mut project = read_object(&file, diagnostics);
            let mut layer = Layer { file: &file, home, diagnostics };
            layer.drop_global_only(&mut project);
            layer.clean(&mut project);
            overlay(&mut merged, project);
        }
        Self::from_objects(global, merged, home)
    }

    /// Takes values out of an object that has been cleaned: what does not fit its type
    /// has been reported and removed before.
    fn from_objects(
        global: Map<String, Value>,
        merged: Map<String, Value>,
        home: Option<&Path>,
    ) -> Self {
        let paths = |key| get(&merged, key).unwrap_or_default();
        let path = |key| {
            let path = get::<PathBuf>(&merged, key).filter(|path| !path.as_os_str().is_empty());
            path.map(|path| expand_home(&path, home))
        };
        let budgets = ThinkingBudgets::default();
        Self {
            default_provider: get(&merged, "defaultProvider"),
            default_model: get(&merged, "defaultModel"),
            default_thinking_level: get(&merged, "defaultThinkingLevel"),
            thinking_budgets: ThinkingBudgets {
                minimal: get(&merged, "thinkingBudgets.minimal").unwrap_or(budgets.minimal),
                low: get(&merged, "thinkingBudgets.low").unwrap_or(budgets.low),
                medium: get(&merged, "thinkingBudgets.medium").unwrap_or(budgets.medium),
                high: get(&merged, "thinkingBudgets.high").unwrap_or(budgets.high),
            },
            enabled_models: get(&merged, "enabledModels").unwrap_or_default(),
            auto_session_name: get(&merged, "autoSessionName").unwrap_or(true),
            steering_mode: get(&merged, "steeringMode").unwrap_or_default(),
            follow_up_mode: get(&merged, "followUpMode").unwrap_or_default(),
            retry: RetrySettings {
                enabled: get(&merged, "retry.enabled").unwrap_or(true),
                max_retries: get(&merged, "retry.maxRetries").unwrap_or(3),
                base_delay_ms: get(&merged, "retry.baseDelayMs").unwrap_or(2_000),
                max_delay_ms: get(&merged, "retry.maxDelayMs").unwrap_or(60_000),
            },
            compaction: CompactionSettings {
                enabled: get(&merged, "compaction.enabled").unwrap_or(true),
                reserve_tokens: get(&merged, "compaction.reserveTokens").unwrap_or(16_384),
                keep_recent_tokens: get(&merged, "compaction.keepRecentTokens").unwrap_or(20_000),
            },
            branch_summary_reserve_tokens: get(&merged, "branchSummary.reserveTokens")
                .unwrap_or(16_384),
            shell_path: path("shellPath"),
            shell_command_prefix: get(&merged, "shellCommandPrefix"),
            session_dir: path("sessionDir"),
            session_sync: get(&merged, "sessionSync").unwrap_or_default(),
            enable_skill_commands: get(&merged, "enableSkillCommands").unwrap_or(true),
            extensions: paths("extensions"),
            skills: paths("skills"),
            prompts: paths("prompts"),
            block_images: get(&merged, "images.blockImages").unwrap_or(false),
            auto_resize_images: get(&merged, "images.autoResize").unwrap_or(true),
            extension_settings: get(&merged, "extensionSettings").unwrap_or_default(),
            global,
            merged,
        }
    }

    /// Names of extensions that are switched off.
    pub fn disabled_extensions(&self) -> Vec<String> {
        let disabled = self.extension_settings.iter().filter(|(_, own)| own.disabled == Some(true));
        disabled.map(|(name, _)| name.clone()).collect()
    }

    /// Names of extensions that settings say something of.
    pub fn limited_extensions(&self) -> impl Iterator<Item = &str> {
        self.extension_settings.keys().map(String::as_str).filter(|name| *name != ANY_EXTENSION)
    }

    /// What holds for the extension of this name: its own values over those of `"*"`.
    pub fn extension(&self, name: &str) -> ExtensionSettings {
        let named = |name| self.extension_settings.get(name).cloned().unwrap_or_default();
        let (own, any): (ExtensionSettings, ExtensionSettings) =
            (named(name), named(ANY_EXTENSION));
        ExtensionSettings {
            disabled: own.disabled.or(any.disabled),
            limits: own.limits.or(any.limits),
        }
    }
}

type Check = fn(&Value) -> Result<(), serde_json::Error>;

fn check<T: DeserializeOwned>(value: &Value) -> Result<(), serde_json::Error> {
    T::deserialize(value).map(drop)
}

/// Every typed key, an object before its members.
const KEYS: [(&str, Check); 36] = [
    ("defaultProvider", check::<String>),
    ("defaultModel", check::<String>),
    ("defaultThinkingLevel", check::<ThinkingLevel>),
    ("thinkingBudgets", check::<Map<String, Value>>),
    ("thinkingBudgets.minimal", check::<u64>),
    ("thinkingBudgets.low", check::<u64>),
    ("thinkingBudgets.medium", check::<u64>),
    ("thinkingBudgets.high", check::<u64>),
    ("enabledModels", check::<Vec<String>>),
    ("autoSessionName", check::<bool>),
    ("steeringMode", check::<QueueMode>),
    ("followUpMode", check::<QueueMode>),
    ("retry", check::<Map<String, Value>>),
    ("retry.enabled", check::<bool>),
    ("retry.maxRetries", check::<u32>),
    ("retry.baseDelayMs", check::<u64>),
    ("retry.maxDelayMs", check::<u64>),
    ("compaction", check::<Map<String, Value>>),
    ("compaction.enabled", check::<bool>),
    ("compaction.reserveTokens", check::<u64>),
    ("compaction.keepRecentTokens", check::<u64>),
    ("branchSummary", check::<Map<String, Value>>),
    ("branchSummary.reserveTokens", check::<u64>),
    ("shellPath", check::<String>),
    ("shellCommandPrefix", check::<String>),
    ("sessionDir", check::<String>),
    ("sessionSync", check::<Durability>),
    ("enableSkillCommands", check::<bool>),
    ("extensions", check::<Vec<String>>),
    ("skills", check::<Vec<String>>),
    ("prompts", check::<Vec<String>>),
    ("images", check::<Map<String, Value>>),
    ("images.autoResize", check::<bool>),
    ("images.blockImages", check::<bool>),
    ("extensionSettings", check::<Map<String, Value>>),
    ("subagentArbiter", check::<Map<String, Value>>),
];

/// The same for one extension's object.
const EXTENSION_KEYS: [(&str, Check); 11] = [
    ("disabled", check::<bool>),
    ("limits", check::<Map<String, Value>>),
    ("limits.eventBudgetMs", check::<NonZeroU64>),
    ("limits.commandBudgetMs", check::<NonZeroU64>),
    ("limits.memoryMb", check::<NonZeroU64>),
    ("limits.cancelGraceMs", check::<NonZeroU64>),
    ("limits.maxOpenDialogs", check::<NonZeroU64>),
    ("limits.maxQueuedNotifications", check::<NonZeroU64>),
    ("limits.maxWaitingCalls", check::<NonZeroU64>),
    ("limits.execOutputBytes", check::<NonZeroU64>),
    ("limits.faultsPerMinute", check::<NonZeroU64>),
];

/// One settings file while its object is prepared for merging.
struct Layer<'a> {
    file: &'a Path,
    home: Option<&'a Path>,
    diagnostics: &'a mut Vec<Diagnostic>,
}

impl Layer<'_> {
    /// Reports and removes values of a wrong type, and makes paths absolute.
    fn clean(&mut self, object: &mut Map<String, Value>) {
        self.remove_wrong(object, &KEYS, "");
        if let Some(Value::Object(extensions)) = object.get_mut("extensionSettings") {
            drop_nulls(extensions);
            let map_only: Check = check::<Map<String, Value>>;
            let names: Vec<String> = extensions.keys().cloned().collect();
            for name in names {
                self.remove_wrong_key(extensions, (&name, map_only), "extensionSettings.", &name);
                if let Some(Value::Object(extension)) = extensions.get_mut(&name) {
                    let prefix = format!("extensionSettings.{name}.");
                    self.remove_wrong(extension, &EXTENSION_KEYS, &prefix);
                    self.remove_unknown_limits(extension, &prefix);
                }
            }
        }
        let base = self.file.parent().unwrap_or(Path::new(""));
        for key in PATH_LISTS {
            let Some(Value::Array(paths)) = object.get_mut(key) else { continue };
            for path in paths {
                let resolved =
                    path.as_str().map(|path| resolve_path(Path::new(path), base, self.home));
                if let Some(resolved) = resolved {
                    *path = Value::String(resolved.to_string_lossy().into_owned());
                }
            }
        }
    }

    /// A limit that nothing enforces must not look as if it were one.
    fn remove_unknown_limits(&mut self, extension: &mut Map<String, Value>, prefix: &str) {
        let Some(Value::Object(limits)) = extension.get_mut("limits") else { return };
        let known = || EXTENSION_KEYS.iter().filter_map(|(key, _)| key.strip_prefix("limits."));
        let unknown: Vec<String> =
            limits.keys().filter(|key| !known().any(|known| known == *key)).cloned().collect();
        for key in unknown {
            limits.remove(&key);
            let known = known().collect::<Vec<_>>().join(", ");
            self.report(format!(
                "`{prefix}limits.{key}` is ignored: there is no such limit; there are {known}"
            ));
        }
    }

    fn drop_global_only(&mut self, object: &mut Map<String, Value>) {
        for key in GLOBAL_ONLY {
            if object.remove(key).is_some() {
                self.report(format!(
                    "`{key}` is ignored here: it counts only in the agent directory's settings"
                ));
            }
        }
    }

    fn remove_wrong(
        &mut self,
        object: &mut Map<String, Value>,
        keys: &[(&str, Check)],
        prefix: &str,
    ) {
        for (dotted, check) in keys {
            let (group, key) = dotted.rsplit_once('.').unwrap_or(("", dotted));
            let holder = if group.is_empty() {
                Some(&mut *object)
            } else {
                object.get_mut(group).and_then(Value::as_object_mut)
            };
            if let Some(holder) = holder {
                self.remove_wrong_key(holder, (dotted, *check), prefix, key);
            }
        }
    }

    fn remove_wrong_key(
        &mut self,
        holder: &mut Map<String, Value>,
        (dotted, check): (&str, Check),
        prefix: &str,
        key: &str,
    ) {
        // `null` is how other writers of this file say "not set".
        let Some(value) = holder.get(key).filter(|value| !value.is_null()) else { return };
        if let Err(error) = check(value) {
            self.report(format!("`{prefix}{dotted}` is ignored: {error}"));
            holder.remove(key);
        }
    }

    fn report(&mut self, message: String) {
        self.diagnostics.push(Diagnostic::new(self.file, message));
    }
}

/// The file's object; an absent file is an empty one, a broken one is reported.
fn read_object(file: &Path, diagnostics: &mut Vec<Diagnostic>) -> Map<String, Value> {
    let problem = match text_file::read(file) {
        Err(error) if error.is_not_found() => return Map::new(),
        Err(error) => error.to_string(),
        Ok(text) => match serde_json::from_str(&text) {
            Ok(Value::Object(object)) => return object,
            Ok(_) => "is not a JSON object".to_owned(),
            Err(error) => format!("is not valid JSON: {error}"),
        },
    };
    diagnostics.push(Diagnostic::new(file, format!("{problem}; none of it is used")));
    Map::new()
}

/// "Not set" in the words of other writers, which the derived types do not know.
fn drop_nulls(object: &mut Map<String, Value>) {
    object.retain(|_, value| !value.is_null());
    for value in object.values_mut().filter_map(Value::as_object_mut) {
        drop_nulls(value);
    }
}

/// Objects merge, everything else replaces.
fn overlay(below: &mut Map<String, Value>, above: Map<String, Value>) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => overlay(below, above),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

fn get<T: DeserializeOwned>(object: &Map<String, Value>, dotted: &str) -> Option<T> {
    let value = match dotted.split_once('.') {
        None => object.get(dotted)?,
        Some((group, key)) => object.get(group)?.get(key)?,
    };
    Option::<T>::deserialize(value).ok().flatten()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;

    use super::*;

    struct Setup {
        root: tempfile::TempDir,
    }

    impl Setup {
        fn new(global: &str, project: &str) -> Self {
            let root = tempfile::tempdir().unwrap();
            for (dir, content) in [("agent", global), ("project/.wharf", project)] {
                fs::create_dir_all(root.path().join(dir)).unwrap();
                if !content.is_empty() {
                    fs::write(root.path().join(dir).join("settings.json"), content).unwrap();
                }
            }
            Self { root }
        }

        fn load(&self, trusted: bool) -> (Settings, Vec<String>) {
            let mut diagnostics = Vec::new();
            let root = self.root.path();
            let settings = Settings::load(
                &AgentDir::new(root.join("agent")),
                &root.join("project"),
                Some(Path::new("/home/u")),
                trusted,
                &mut diagnostics,
            );
            let prefix = format!("{}/", root.display());
            let texts = diagnostics.iter().map(|d| d.to_string().replace(&prefix, "")).collect();
            (settings, texts)
        }
    }

    #[test]
    fn defaults_are_those_of_the_format() {
        let (settings, problems) = Setup::new("", "").load(true);
        assert_eq!(problems, [] as [&str; 0]);
        assert_eq!(settings, Settings::default());
        assert_eq!(settings.steering_mode.as_str(), "one-at-a-time");
        assert_eq!(
            settings.retry,
            RetrySettings {
                enabled: true,
                max_retries: 3,
                base_delay_ms: 2_000,
                max_delay_ms: 60_000
            }
        );
        assert_eq!(
            settings.compaction,
            CompactionSettings {
                enabled: true,
                reserve_tokens: 16_384,
                keep_recent_tokens: 20_000
            }
        );
        assert!(settings.enable_skill_commands);
        assert!(!settings.block_images);
        assert!(settings.auto_resize_images);
        assert_eq!(settings.thinking_budgets, ThinkingBudgets::default());
        assert_eq!(settings.enabled_models, [] as [&str; 0]);
        assert!(settings.auto_session_name);
    }

    #[test]
    fn every_key_is_read() {
        let setup = Setup::new(
            r#"{"defaultProvider": "p", "defaultModel": "m", "defaultThinkingLevel": "xhigh",
                "thinkingBudgets": {"minimal": 1, "low": 2, "medium": 3, "high": 4},
                "enabledModels": ["b/*", "a"], "autoSessionName": false,
                "steeringMode": "all", "followUpMode": "all",
                "retry": {"enabled": false, "maxRetries": 1, "baseDelayMs": 2, "maxDelayMs": 3},
                "compaction": {"enabled": false, "reserveTokens": 4, "keepRecentTokens": 5},
                "shellPath": "~/bin/zsh", "shellCommandPrefix": "set -e", "sessionDir": "s",
                "enableSkillCommands": false, "images": {"autoResize": false, "blockImages": true},
                "theme": "dark", "packages": [1]}"#,
            "",
        );
        let (settings, problems) = setup.load(false);
        assert_eq!(problems, [] as [&str; 0]);
        assert_eq!(settings.default_provider.as_deref(), Some("p"));
        assert_eq!(settings.default_model.as_deref(), Some("m"));
        assert_eq!(settings.default_thinking_level, Some(ThinkingLevel::Xhigh));
        assert_eq!(
            settings.thinking_budgets,
            ThinkingBudgets { minimal: 1, low: 2, medium: 3, high: 4 }
        );
        assert_eq!(settings.enabled_models, ["b/*", "a"]);
        assert!(!settings.auto_session_name);
        assert_eq!(
            (settings.steering_mode, settings.follow_up_mode),
            (QueueMode::All, QueueMode::All)
        );
        let retry = &settings.retry;
        assert_eq!(
            (retry.enabled, retry.max_retries, retry.base_delay_ms, retry.max_delay_ms),
            (false, 1, 2, 3)
        );
        let compaction = &settings.compaction;
        assert_eq!(
            (compaction.enabled, compaction.reserve_tokens, compaction.keep_recent_tokens),
            (false, 4, 5)
        );
        assert_eq!(settings.shell_path.as_deref(), Some(Path::new("/home/u/bin/zsh")));
        assert_eq!(settings.shell_command_prefix.as_deref(), Some("set -e"));
        assert_eq!(settings.session_dir.as_deref(), Some(Path::new("s")));
        assert!(!settings.enable_skill_commands);
        assert!(settings.block_images);
        assert!(!settings.auto_resize_images);
        assert_eq!(settings.global["theme"], "dark");
        assert_eq!(settings.merged["packages"], serde_json::json!([1]));
    }

    #[test]
    fn a_project_overrides_key_by_key_only_when_trusted() {
        let setup = Setup::new(
            r#"{"defaultModel": "a", "defaultProvider": "p", "retry": {"maxRetries": 9, "enabled": false},
                "thinkingBudgets": {"low": 5, "high": 7}, "enabledModels": ["a", "b"], "other": {"x": 1}}"#,
            r#"{"defaultModel": "b", "retry": {"maxRetries": 1}, "thinkingBudgets": {"low": 6},
                "enabledModels": ["c"], "other": {"y": 2}, "defaultProvider": null}"#,
        );
        let (settings, _) = setup.load(false);
        assert_eq!(settings.default_model.as_deref(), Some("a"));
        assert_eq!(settings.retry.max_retries, 9);

        let (settings, problems) = setup.load(true);
        assert_eq!(problems, [] as [&str; 0]);
        assert_eq!(settings.default_model.as_deref(), Some("b"));
        assert_eq!(settings.default_provider, None);
        assert_eq!((settings.retry.max_retries, settings.retry.enabled), (1, false));
        assert_eq!((settings.thinking_budgets.low, settings.thinking_budgets.high), (6, 7));
        assert_eq!(settings.enabled_models, ["c"]);
        assert_eq!(settings.merged["other"], serde_json::json!({"x": 1, "y": 2}));
        assert_eq!(settings.global["other"], serde_json::json!({"x": 1}));
    }

    #[test]
    fn a_project_cannot_set_what_is_global_only() {
        let setup = Setup::new(
            r#"{"extensionSettings": {"a": {"disabled": true}}, "context": {"autoLoadNested": false}}"#,
            r#"{"extensionSettings": {"a": {"disabled": false}}, "context": {"autoLoadNested": true}, "subagentArbiter": {}}"#,
        );
        let (settings, problems) = setup.load(true);
        assert_eq!(settings.extension("a").disabled, Some(true));
        assert_eq!(settings.merged["context"], serde_json::json!({"autoLoadNested": false}));
        assert!(!settings.merged.contains_key("subagentArbiter"));
        assert_eq!(problems.len(), 3);
        assert_eq!(
            problems[0],
            "project/.wharf/settings.json: `context` is ignored here: it counts only in the agent directory's settings"
        );
    }

    #[test]
    fn a_wrong_value_is_named_and_costs_only_itself() {
        let setup = Setup::new(
            r#"{"defaultThinkingLevel": "extreme", "steeringMode": 1, "followUpMode": "all",
                "retry": {"maxRetries": -1, "baseDelayMs": 7}, "compaction": true,
                "skills": ["a", 2], "prompts": "p", "defaultModel": null,
                "thinkingBudgets": {"low": "much", "medium": -1, "high": 9, "minimal": null},
                "enabledModels": "m", "autoSessionName": 1}"#,
            "",
        );
        let (settings, problems) = setup.load(false);
        assert_eq!(settings.default_thinking_level, None);
        assert_eq!(settings.follow_up_mode, QueueMode::All);
        assert_eq!((settings.retry.max_retries, settings.retry.base_delay_ms), (3, 7));
        assert!(settings.compaction.enabled);
        assert_eq!(
            settings.thinking_budgets,
            ThinkingBudgets { high: 9, ..ThinkingBudgets::default() }
        );
        assert_eq!(settings.enabled_models, [] as [&str; 0]);
        assert!(settings.auto_session_name);
        assert_eq!(
            problems,
            [
                "agent/settings.json: `defaultThinkingLevel` is ignored: unknown variant `extreme`, expected one of `off`, `minimal`, `low`, `medium`, `high`, `xhigh`",
                "agent/settings.json: `thinkingBudgets.low` is ignored: invalid type: string \"much\", expected u64",
                "agent/settings.json: `thinkingBudgets.medium` is ignored: invalid value: integer `-1`, expected u64",
                "agent/settings.json: `enabledModels` is ignored: invalid type: string \"m\", expected a sequence",
                "agent/settings.json: `autoSessionName` is ignored: invalid type: integer `1`, expected a boolean",
                "agent/settings.json: `steeringMode` is ignored: invalid type: integer `1`, expected string or map",
                "agent/settings.json: `retry.maxRetries` is ignored: invalid value: integer `-1`, expected u32",
                "agent/settings.json: `compaction` is ignored: invalid type: boolean `true`, expected a map",
                "agent/settings.json: `skills` is ignored: invalid type: integer `2`, expected a string",
                "agent/settings.json: `prompts` is ignored: invalid type: string \"p\", expected a sequence",
            ]
        );
        assert_eq!(settings.global["steeringMode"], 1, "the raw object is kept as it was");
    }

    #[test]
    fn a_wrong_value_of_a_project_leaves_the_global_one() {
        let setup = Setup::new(r#"{"retry": {"maxRetries": 5}}"#, r#"{"retry": 1}"#);
        let (settings, problems) = setup.load(true);
        assert_eq!(settings.retry.max_retries, 5);
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn a_broken_file_is_named_and_the_other_one_still_counts() {
        let setup = Setup::new("{\"defaultModel\": ", r#"{"defaultModel": "b"}"#);
        let (settings, problems) = setup.load(true);
        assert_eq!(settings.default_model.as_deref(), Some("b"));
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].starts_with("agent/settings.json: is not valid JSON: "),
            "{problems:?}"
        );
        let (_, problems) = Setup::new("[]", "").load(false);
        assert_eq!(problems, ["agent/settings.json: is not a JSON object; none of it is used"]);
    }

    #[test]
    fn paths_start_at_the_file_that_names_them() {
        let global =
            r#"{"skills": ["~/s", "more", "/abs"], "prompts": ["p"], "extensions": ["e"]}"#;
        let setup = Setup::new(global, r#"{"prompts": ["q", "../r"]}"#);
        let root = setup.root.path();
        let (settings, _) = setup.load(true);
        assert_eq!(
            settings.skills,
            [PathBuf::from("/home/u/s"), root.join("agent/more"), PathBuf::from("/abs")]
        );
        assert_eq!(settings.extensions, [root.join("agent/e")]);
        assert_eq!(
            settings.prompts,
            [root.join("project/.wharf/q"), root.join("project/.wharf/../r")]
        );
    }

    #[test]
    fn extension_settings_have_defaults_for_all() {
        let setup = Setup::new(
            r#"{"extensionSettings": {
                "*": {"disabled": true, "limits": {"eventBudgetMs": 10, "memoryMb": 64}},
                "a": {"disabled": false, "limits": {"eventBudgetMs": 20, "commandBudgetMs": 30}},
                "b": {"disabled": "yes", "limits": {"memoryMb": 0, "eventBudgetMs": 5, "files": 3}},
                "c": 1, "d": null, "e": {"limits": null}}}"#,
            "",
        );
        let (settings, problems) = setup.load(false);
        let values = |name| {
            let ExtensionSettings { disabled, limits } = settings.extension(name);
            let plain = |limit: Option<NonZeroU64>| limit.map(NonZeroU64::get);
            (
                disabled,
                plain(limits.event_budget_ms),
                plain(limits.command_budget_ms),
                plain(limits.memory_mb),
            )
        };
        assert_eq!(values("a"), (Some(false), Some(20), Some(30), Some(64)));
        assert_eq!(values("b"), (Some(true), Some(5), None, Some(64)));
        assert_eq!(values("other"), (Some(true), Some(10), None, Some(64)));
        assert_eq!(
            problems,
            [
                "agent/settings.json: `extensionSettings.b.disabled` is ignored: invalid type: string \"yes\", expected a boolean",
                "agent/settings.json: `extensionSettings.b.limits.memoryMb` is ignored: invalid value: integer `0`, expected a nonzero u64",
                "agent/settings.json: `extensionSettings.b.limits.files` is ignored: there is no such limit; there are eventBudgetMs, commandBudgetMs, memoryMb, cancelGraceMs, maxOpenDialogs, maxQueuedNotifications, maxWaitingCalls, execOutputBytes, faultsPerMinute",
                "agent/settings.json: `extensionSettings.c` is ignored: invalid type: integer `1`, expected a map",
            ]
        );
    }
}
