//! `session_directory`: all are asked at the same time, since start-up waits; the last
//! in load order that names a directory wins, and a failure names none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::join_all;
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::HookEvent;

use super::ask;
use crate::bindings::types as wit;
use crate::budget::in_words;
use crate::call::Request;
use crate::convert;
use crate::extension::Extension;
use crate::limits::MAX_PATH_BYTES;

/// The path as the extension wrote it.
pub(crate) async fn session_directory(
    subscribers: &[Arc<Extension>],
    cwd: &Path,
) -> Option<PathBuf> {
    let data = Arc::new(wit::SessionDirectoryEvent { cwd: cwd.to_string_lossy().into_owned() });
    let answers = join_all(subscribers.iter().map(|extension| one(extension, &data))).await;
    answers.into_iter().flatten().next_back()
}

async fn one(
    extension: &Arc<Extension>,
    data: &Arc<wit::SessionDirectoryEvent>,
) -> Option<PathBuf> {
    let kind = HookEvent::SessionDirectory;
    let report = |problem: &str| extension.report_error(kind.name(), problem);
    let grace = extension.limits().cancel_grace;
    let cancel = CancellationToken::new();
    let answer = ask(extension, kind, Request::SessionDirectory, data, &cancel);
    let Ok(answer) = tokio::time::timeout(grace, answer).await else {
        report(&format!("it did not answer within {}", in_words(grace)));
        return None;
    };
    let directory = answer.flatten()?;
    match check(&directory) {
        Ok(()) => Some(PathBuf::from(directory)),
        Err(problem) => {
            report(&problem);
            None
        }
    }
}

fn check(directory: &str) -> Result<(), String> {
    convert::check_text("the directory", directory, MAX_PATH_BYTES)?;
    if directory.contains('\0') {
        return Err("the directory has a NUL character".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_a_path_that_a_system_takes() {
        let long = "x".repeat(MAX_PATH_BYTES + 1);
        for (directory, expected) in [
            ("~/own sessions", Ok(())),
            (&long[1..], Ok(())),
            (&long, Err("the directory has 4097 bytes; the limit is 4096")),
            ("", Err("the directory is blank")),
            (" \n", Err("the directory is blank")),
            ("a\0b", Err("the directory has a NUL character")),
        ] {
            assert_eq!(
                check(directory).as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|e| *e)
            );
        }
    }
}
