//! Programs and environment variables that are granted. The agent runs the programs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use wasmtime::component::Accessor;
use wharf_agent::host_api::{ExecError, ExecRequest};

use super::{at_most, files, granted};
use crate::access::Access;
use crate::bindings::process::{ExecOptions, ExecOutput, Host, HostWithStore};
use crate::bindings::types::AccessError;
use crate::limits::{
    DEFAULT_EXEC_TIMEOUT, MAX_ARGUMENT_BYTES, MAX_EXEC_RUNNING, MAX_FILE_BYTES, MAX_NAME_BYTES,
    MAX_PATH_BYTES, cut,
};
use crate::permissions::{Rules, check_program};
use crate::places::Places;
use crate::registration::Permission;
use crate::state::{Interfaces, State};

/// What every program inherits.
const ENVIRONMENT: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TERM", "TMPDIR"];

impl Host for State {}

impl HostWithStore<State> for Interfaces {
    async fn exec(
        accessor: &Accessor<State, Self>,
        program: String,
        arguments: Vec<String>,
        options: ExecOptions,
    ) -> Result<ExecOutput, AccessError> {
        check_arguments(&program, &arguments, &options)?;
        let (access, caller) = granted(accessor)?;
        let api = super::agent_of(accessor)?;
        let stdin = options.stdin.unwrap_or_default();
        let _held = access.hold(stdin.len())?;
        let wanted = Arc::new(Wanted { program, arguments, cwd: options.cwd });
        let prepared = access.attempt(&caller, |rules| {
            let (access, wanted) = (Arc::clone(&access), Arc::clone(&wanted));
            async move {
                spawn_blocking(move || wanted.prepare(&access, &rules))
                    .await
                    .unwrap_or_else(|error| Err(AccessError::Failed(error.to_string())))
            }
        });
        let Prepared { program, cwd, environment } = prepared.await?;
        let Ok(_running) = Arc::clone(&access.programs).try_acquire_owned() else {
            return Err(AccessError::Failed(format!("{MAX_EXEC_RUNNING} programs run already")));
        };
        // Also ends when the instance does.
        let cancel = caller.cancel.child_token();
        let _guard = cancel.clone().drop_guard();
        let timeout =
            options.timeout_ms.map_or(DEFAULT_EXEC_TIMEOUT, |ms| Duration::from_millis(ms.into()));
        let output_bytes =
            accessor.with(|mut access| access.get().services.limits.exec_output_bytes);
        let request = ExecRequest {
            program,
            arguments: wanted.arguments.clone(),
            cwd,
            environment,
            stdin,
            timeout,
            output_bytes,
            cancel,
        };
        match api.exec(request).await {
            Ok(output) => Ok(ExecOutput {
                exit_code: output.exit_code,
                stdout: output.stdout,
                stderr: output.stderr,
                truncated: output.truncated,
            }),
            Err(ExecError::Failed(text)) => Err(AccessError::Failed(text)),
            Err(error @ ExecError::TimedOut(_)) => Err(AccessError::TimedOut(error.to_string())),
            Err(ExecError::Cancelled) => Err(AccessError::Cancelled),
        }
    }

    async fn env(
        accessor: &Accessor<State, Self>,
        name: String,
    ) -> Result<Option<String>, AccessError> {
        at_most("name", name.len(), MAX_NAME_BYTES)?;
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(AccessError::Invalid("name is none of a variable".to_owned()));
        }
        let (access, caller) = granted(accessor)?;
        let attempt = async |rules: Arc<Rules>| {
            if rules.variable(&name) {
                return Ok(());
            }
            Err(access.denied(&Permission::Env(cut(&name, 300).to_owned())))
        };
        access.attempt(&caller, attempt).await?;
        match std::env::var(&name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(AccessError::Failed(format!("the value of {name} is no Unicode")))
            }
        }
    }
}

fn check_arguments(
    program: &str,
    arguments: &[String],
    options: &ExecOptions,
) -> Result<(), AccessError> {
    at_most("program", program.len(), MAX_PATH_BYTES)?;
    at_most("arguments", arguments.iter().map(|a| a.len() + 1).sum(), MAX_ARGUMENT_BYTES)?;
    at_most("stdin", options.stdin.as_ref().map_or(0, Vec::len), MAX_FILE_BYTES)?;
    at_most("cwd", options.cwd.as_ref().map_or(0, String::len), MAX_PATH_BYTES)?;
    check_program(program).map_err(AccessError::Invalid)?;
    if arguments.iter().any(|argument| argument.contains('\0')) {
        return Err(AccessError::Invalid("arguments hold a NUL".to_owned()));
    }
    Ok(())
}

/// What a guest wants to run.
struct Wanted {
    program: String,
    arguments: Vec<String>,
    cwd: Option<String>,
}

/// What will run.
struct Prepared {
    program: PathBuf,
    cwd: PathBuf,
    environment: Vec<(String, String)>,
}

impl Wanted {
    fn prepare(&self, access: &Access, rules: &Rules) -> Result<Prepared, AccessError> {
        if !rules.program(&self.program, &self.arguments) {
            let words = std::iter::once(&self.program).chain(&self.arguments);
            let mut room = 1_000_usize;
            // A text for people; what is longer cannot be pasted anyway.
            let words = words.take_while(|word| {
                room = room.saturating_sub(word.len());
                room > 0
            });
            return Err(access.denied(&Permission::Exec(words.cloned().collect())));
        }
        let cwd = files::working_folder(access, rules, self.cwd.as_deref())?;
        let program = if self.program.starts_with('/') {
            PathBuf::from(&self.program)
        } else {
            let path = std::env::var_os("PATH").unwrap_or_default();
            look_up(&self.program, &path, &access.places).ok_or_else(|| {
                AccessError::NotFound(format!("{} is not on the PATH", self.program))
            })?
        };
        if !is_program(&program) {
            let text = format!("{} is no program", program.display());
            return Err(AccessError::NotFound(text));
        }
        Ok(Prepared { program, cwd, environment: environment(rules) })
    }
}

fn environment(rules: &Rules) -> Vec<(String, String)> {
    let granted = rules.variables().filter(|name| !ENVIRONMENT.contains(name));
    let names = ENVIRONMENT.into_iter().chain(granted);
    names.filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect()
}

/// Where a shell would find the program, but never in the project: what an agent writes
/// there must not run under a name that was granted for something else.
fn look_up(name: &str, path: &std::ffi::OsStr, places: &Places) -> Option<PathBuf> {
    let project = places.project().ok();
    let is_in_project = |path: &Path| {
        project.is_some_and(|project| path.canonicalize().is_ok_and(|p| p.starts_with(project)))
    };
    std::env::split_paths(path)
        .filter(|folder| folder.is_absolute() && !is_in_project(folder))
        .map(|folder| folder.join(name))
        .find(|file| is_program(file) && !is_in_project(file))
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::fs;

    use super::*;

    #[test]
    fn a_program_of_the_project_is_never_found_by_its_name() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for (file, mode) in [
            ("project/bin/tool", 0o755),
            ("first/tool", 0o644),
            ("second/tool", 0o755),
            ("project/run", 0o755),
        ] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(root.join("first/folder")).unwrap();
        std::os::unix::fs::symlink(root.join("project/run"), root.join("second/run")).unwrap();
        std::os::unix::fs::symlink(root.join("project/bin"), root.join("linked")).unwrap();
        let places = Places::new(root.join("project"), None, root.join("agent"));
        let folders = ["project/bin", "linked", "none", "first", "second"];
        let path = std::env::join_paths(
            folders.iter().map(|f| root.join(f)).chain([PathBuf::from("."), PathBuf::new()]),
        )
        .unwrap();
        assert_eq!(look_up("tool", &path, &places), Some(root.join("second/tool")));
        for name in ["run", "folder", "none"] {
            assert_eq!(look_up(name, &path, &places), None, "{name}");
        }
    }
}
