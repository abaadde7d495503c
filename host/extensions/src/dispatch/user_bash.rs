//! `user_bash`: what wraps the command chains; the first answer ends the chain.

use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{HookEvent, UserBashEvent, UserBashVerdict};

use super::ask;
use crate::bindings::types::{self as wit, UserBashDecision};
use crate::call::Request;
use crate::convert::check_text;
use crate::extension::Extension;
use crate::limits::{MAX_COMMAND_BYTES, MAX_TEXT_BYTES};

pub(crate) async fn user_bash(
    subscribers: &[Arc<Extension>],
    event: UserBashEvent,
    cwd: &Path,
    cancel: &CancellationToken,
) -> UserBashVerdict {
    if subscribers.is_empty() {
        return UserBashVerdict::Run(event.command);
    }
    let kind = HookEvent::UserBash;
    let to_guest = |command: String| {
        Arc::new(wit::UserBashEvent {
            command,
            exclude_from_context: event.exclude_from_context,
            cwd: cwd.to_string_lossy().into_owned(),
        })
    };
    let mut data = to_guest(event.command);
    for extension in subscribers {
        let accepted = match ask(extension, kind, Request::UserBash, &data, cancel).await {
            None | Some(UserBashDecision::Proceed) => continue,
            Some(UserBashDecision::Wrap(command)) => {
                check_command(&command).map(|()| data = to_guest(command))
            }
            Some(UserBashDecision::Answer(result)) => match check_output(&result.output) {
                Ok(()) => {
                    let wit::UserBashResult { output, exit_code } = result;
                    return UserBashVerdict::Answer { output, exit_code };
                }
                Err(problem) => Err(problem),
            },
        };
        if let Err(problem) = accepted {
            extension.report_error(kind.name(), &problem);
        }
    }
    UserBashVerdict::Run(data.command.clone())
}

fn check_command(command: &str) -> Result<(), String> {
    check_text("its command", command, MAX_COMMAND_BYTES)?;
    if command.contains('\0') {
        return Err("its command has a NUL character".to_owned());
    }
    Ok(())
}

fn check_output(output: &str) -> Result<(), String> {
    let bytes = output.len();
    if bytes > MAX_TEXT_BYTES {
        return Err(format!("its output has {bytes} bytes; the limit is {MAX_TEXT_BYTES}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_that_a_shell_takes() {
        let long = "x".repeat(MAX_COMMAND_BYTES + 1);
        for (command, expected) in [
            ("ls", Ok(())),
            (&long[1..], Ok(())),
            (&long, Err("its command has 1048577 bytes; the limit is 1048576")),
            (" ", Err("its command is blank")),
            ("a\0", Err("its command has a NUL character")),
        ] {
            let checked = check_command(command);
            assert_eq!(checked.as_ref().map_err(String::as_str), expected.as_ref().map_err(|e| *e));
        }
        assert!(check_output(&"x".repeat(MAX_TEXT_BYTES)).is_ok());
        assert!(check_output(&"x".repeat(MAX_TEXT_BYTES + 1)).is_err());
    }
}
