//! One module per mode, and what they share.

pub(crate) mod once;
pub(crate) mod rpc;

use std::time::{Duration, Instant};

/// How long a reader that does not read may hold the exit.
pub(crate) const FLUSH_GRACE: Duration = Duration::from_secs(30);

/// What a signal leaves for aborting, for `session_shutdown` and for flushing, each;
/// clients send SIGKILL after a second.
const SIGNAL_GRACE: Duration = Duration::from_millis(250);

/// How often it is looked whether standard output still has a reader, where nothing else
/// would tell: a client that died has closed everything, and a run that prints nothing
/// would not find out.
const READER_CHECK: Duration = Duration::from_millis(500);

/// The name and the arguments of a message that may call an extension's command.
fn slash_command(message: &str) -> Option<(&str, &str)> {
    let rest = message.strip_prefix('/')?;
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    // With a slash in it it is a path: no extension may have such a name.
    (!name.is_empty() && !name.contains('/')).then(|| (name, arguments.trim()))
}

/// The command of a message that a person means for the shell: `!command`, or
/// `!!command`, which the model does not see. True: the latter.
fn shell_command(message: &str) -> Option<(&str, bool)> {
    let rest = message.strip_prefix('!')?;
    let (command, hidden) = match rest.strip_prefix('!') {
        Some(command) => (command.trim(), true),
        None => (rest.trim(), false),
    };
    (!command.is_empty()).then_some((command, hidden))
}

/// Completes at `due`; at once where nothing is.
async fn sleep_until(due: Option<Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due.into()).await;
    }
}
