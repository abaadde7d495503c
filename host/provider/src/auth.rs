//! Where keys and header values come from: a text, an environment variable, a command.
//! Which of them a provider uses is the registry's choice.

use std::collections::HashMap;
use std::fmt;
use std::process::Stdio;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::{ErrorKind, ProviderError};

/// How long a command may take to print a key. It may ask a person to unlock a vault.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// Bytes that are read of what a command prints; a key is far shorter.
const MAX_COMMAND_OUTPUT: u64 = 64 * 1024;

/// Looks up an environment variable.
pub(crate) type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where a key or a header's value comes from, as `models.json` and `auth.json` write it.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) enum KeySource {
    /// The server needs none.
    #[default]
    None,
    /// The server needs one and there is none; the text says what to do.
    Missing(String),
    Literal(String),
    /// An environment variable, and its value when the source was chosen.
    Variable {
        name: String,
        value: String,
    },
    /// What this prints, run through `sh -c`.
    Command(String),
}

impl fmt::Debug for KeySource {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Missing(hint) => f.debug_tuple("Missing").field(hint).finish(),
            Self::Literal(_) => f.write_str("Literal(..)"),
            Self::Variable { name, .. } => f.debug_tuple("Variable").field(name).finish(),
            Self::Command(command) => f.debug_tuple("Command").field(command).finish(),
        }
    }
}

impl KeySource {
    /// Reads `text` as the files mean it: `!command`, else the name of an environment
    /// variable that is set, else the value itself.
    pub(crate) fn from_text(text: &str, environment: &Environment) -> Self {
        let text = text.trim();
        if let Some(command) = text.strip_prefix('!') {
            return Self::Command(command.trim().to_owned());
        }
        Self::variable(text, environment).unwrap_or_else(|| Self::Literal(text.to_owned()))
    }

    /// The environment variable `name`, where it is set and not blank.
    pub(crate) fn variable(name: &str, environment: &Environment) -> Option<Self> {
        // Such names are none, and `std::env::var` may refuse them with a panic.
        if name.is_empty() || name.contains(['=', '\0']) {
            return None;
        }
        let value = environment(name)?.trim().to_owned();
        (!value.is_empty()).then(|| Self::Variable { name: name.to_owned(), value })
    }

    /// Whether the value is kept out of the files: whoever does that may not want it
    /// shown.
    pub(crate) fn is_kept_apart(&self) -> bool {
        matches!(self, Self::Variable { .. } | Self::Command(_))
    }

    /// The value; none where the server needs none.
    ///
    /// # Errors
    /// [`ErrorKind::Authentication`]: there is no key, or its command gives none.
    pub(crate) async fn resolve(&self, provider: &str) -> Result<Option<String>, ProviderError> {
        match self {
            Self::None => Ok(None),
            Self::Missing(hint) => Err(failure(hint.clone())),
            Self::Literal(value) | Self::Variable { value, .. } => Ok(Some(value.clone())),
            Self::Command(command) => cached(provider, command, COMMAND_LIMIT).await.map(Some),
        }
    }
}

fn failure(message: String) -> ProviderError {
    ProviderError::new(ErrorKind::Authentication, message)
}

/// What the command printed when it first succeeded; it is asked once a process, also
/// when several requests want it at once.
async fn cached(provider: &str, command: &str, limit: Duration) -> Result<String, ProviderError> {
    type Cells = Mutex<HashMap<String, Arc<OnceCell<String>>>>;
    static CELLS: OnceLock<Cells> = OnceLock::new();
    let cell = {
        let mut cells =
            CELLS.get_or_init(Cells::default).lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(cells.entry(command.to_owned()).or_default())
    };
    cell.get_or_try_init(|| async {
        run(command, limit).await.map_err(|problem| {
            failure(format!("provider {provider}: the command of its key, `{command}`, {problem}"))
        })
    })
    .await
    .cloned()
}

/// Runs a command and returns what it printed, trimmed.
async fn run(command: &str, limit: Duration) -> Result<String, String> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).kill_on_drop(true);
    shell.stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    shell.process_group(0);
    let mut child = shell.spawn().map_err(|error| format!("could not be started: {error}"))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    #[cfg(unix)]
    let mut group = Group::of(&child);
    let finished = tokio::time::timeout(limit, async {
        let (stdout, stderr) = tokio::join!(read(stdout), read(stderr));
        (child.wait().await, stdout, stderr)
    });
    let Ok((status, stdout, stderr)) = finished.await else {
        return Err(format!("took more than {} and was killed", seconds(limit)));
    };
    #[cfg(unix)]
    group.leader_has_ended();
    let status = status.map_err(|error| format!("was lost: {error}"))?;
    if !status.success() {
        let reason = stderr.lines().map(str::trim).find(|line| !line.is_empty());
        let reason = reason.map(|line| format!(": {line}")).unwrap_or_default();
        return Err(format!("failed ({status}){reason}"));
    }
    let value = stdout.trim();
    if value.is_empty() {
        return Err("printed nothing".to_owned());
    }
    Ok(value.to_owned())
}

fn seconds(limit: Duration) -> String {
    if limit.subsec_millis() == 0 {
        format!("{} s", limit.as_secs())
    } else {
        format!("{} ms", limit.as_millis())
    }
}

/// Reads to the end, and keeps the beginning: a command that prints more than that must
/// not be stuck on a full pipe.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let mut bytes = Vec::new();
    // A pipe that breaks has given what it had.
    let _ = (&mut pipe).take(MAX_COMMAND_OUTPUT).read_to_end(&mut bytes).await;
    let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The command's process group. Dropping it kills the group, unless its leader has been
/// waited for: from then on the number may be somebody else's.
#[cfg(unix)]
struct Group(Option<rustix::process::Pid>);

#[cfg(unix)]
impl Group {
    fn of(child: &tokio::process::Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(rustix::process::Pid::from_raw))
    }

    fn leader_has_ended(&mut self) {
        self.0 = None;
    }
}

#[cfg(unix)]
impl Drop for Group {
    fn drop(&mut self) {
        if let Some(id) = self.0 {
            // It fails when no process of the group is left.
            let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn environment() -> Environment {
        Arc::new(|name| match name {
            "MY_KEY" => Some(" from-env\n".to_owned()),
            "BLANK" => Some(" ".to_owned()),
            _ => None,
        })
    }

    #[test]
    fn a_text_is_a_command_or_a_variable_or_itself() {
        let literal = |text: &str| KeySource::Literal(text.to_owned());
        let variable =
            KeySource::Variable { name: "MY_KEY".to_owned(), value: "from-env".to_owned() };
        for (text, expect) in [
            ("!op read key", KeySource::Command("op read key".to_owned())),
            ("MY_KEY", variable.clone()),
            (" MY_KEY ", variable),
            ("OTHER_KEY", literal("OTHER_KEY")),
            ("BLANK", literal("BLANK")),
            ("sk-1=2", literal("sk-1=2")),
        ] {
            assert_eq!(KeySource::from_text(text, &environment()), expect, "{text}");
        }
    }

    #[test]
    fn debug_output_has_no_key() {
        for text in ["secret", "MY_KEY"] {
            let shown = format!("{:?}", KeySource::from_text(text, &environment()));
            assert!(!shown.contains("secret") && !shown.contains("from-env"), "{shown}");
        }
    }

    #[tokio::test]
    async fn sources_give_their_values() {
        let hint = "set X".to_owned();
        assert_eq!(KeySource::None.resolve("p").await, Ok(None));
        assert_eq!(KeySource::Literal("k".into()).resolve("p").await, Ok(Some("k".to_owned())));
        let error = KeySource::Missing(hint).resolve("p").await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Authentication, "set X"));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn commands_print_keys_or_say_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let count = dir.path().join("count");
        let command = format!("echo x >> '{}'; echo ' key '; echo noise >&2", count.display());
        for _ in 0..3 {
            let key = KeySource::Command(command.clone()).resolve("p").await;
            assert_eq!(key, Ok(Some("key".to_owned())));
        }
        assert_eq!(std::fs::read_to_string(&count).unwrap(), "x\n");

        for (command, expect) in [
            ("echo >&2; echo '  no vault' >&2; echo more >&2; exit 3", "3): no vault"),
            ("true", "`true`, printed nothing"),
            ("exit 4", "4)"),
        ] {
            let error = KeySource::Command(command.into()).resolve("acme").await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Authentication);
            assert!(error.message.starts_with("provider acme: the command of its key, `"));
            assert!(error.message.ends_with(expect), "{}", error.message);
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_failure_is_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let source = KeySource::Command(format!("cat '{}'", file.display()));
        assert!(source.resolve("p").await.is_err());
        std::fs::write(&file, "late\n").unwrap();
        assert_eq!(source.resolve("p").await, Ok(Some("late".to_owned())));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_slow_command_is_killed_with_its_group() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let command = format!("sleep 1000 & echo $! > '{}'; wait", pid.display());
        let error = cached("p", &command, Duration::from_millis(500)).await.unwrap_err();
        assert!(error.message.ends_with("took more than 500 ms and was killed"), "{error}");
        let pid: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        // Whoever adopts the orphan reaps it in its own time; until then it is a zombie.
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
            rustix::process::test_kill_process(pid).is_err()
                || stat.is_ok_and(|stat| stat.contains(") Z") || stat.contains(") X"))
        };
        for _ in 0..500 {
            if gone() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the group's process {pid:?} still runs");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn endless_output_does_not_fill_the_memory() {
        let key = run("head -c 1000000 /dev/zero | tr '\\0' k", COMMAND_LIMIT).await.unwrap();
        assert_eq!(key.len() as u64, MAX_COMMAND_OUTPUT);
    }
}
