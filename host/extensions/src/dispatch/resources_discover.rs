//! `resources_discover`: all are asked at the same time, since start-up waits; what they
//! know of is added in load order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::join_all;
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{DiscoverReason, DiscoveredResources, HookEvent};

use super::ask;
use crate::bindings::types as wit;
use crate::budget::in_words;
use crate::call::Request;
use crate::convert;
use crate::extension::Extension;
use crate::limits::{MAX_DISCOVERED_PATHS, MAX_PATH_BYTES};

pub(crate) async fn resources_discover(
    subscribers: &[Arc<Extension>],
    cwd: &Path,
    reason: DiscoverReason,
) -> DiscoveredResources {
    let mut all = DiscoveredResources::default();
    if subscribers.is_empty() {
        return all;
    }
    let data = Arc::new(wit::ResourcesDiscoverEvent {
        cwd: cwd.to_string_lossy().into_owned(),
        reason: match reason {
            DiscoverReason::Startup => wit::DiscoverReason::Startup,
            DiscoverReason::Reload => wit::DiscoverReason::Reload,
        },
    });
    let answers = join_all(subscribers.iter().map(|extension| one(extension, &data))).await;
    for found in answers.into_iter().flatten() {
        all.skill_paths.extend(found.skill_paths);
        all.prompt_paths.extend(found.prompt_paths);
    }
    all
}

async fn one(
    extension: &Arc<Extension>,
    data: &Arc<wit::ResourcesDiscoverEvent>,
) -> Option<DiscoveredResources> {
    let kind = HookEvent::ResourcesDiscover;
    let grace = extension.services.limits.cancel_grace;
    let cancel = CancellationToken::new();
    let answer = ask(extension, kind, Request::ResourcesDiscover, data, &cancel);
    let Ok(answer) = tokio::time::timeout(grace, answer).await else {
        let problem = format!("it did not answer within {}", in_words(grace));
        extension.report_error(kind.name(), &problem);
        return None;
    };
    match accept(answer?) {
        Ok(found) => Some(found),
        Err(problem) => {
            extension.report_error(kind.name(), &problem);
            None
        }
    }
}

/// All of an answer or, when a part is not acceptable, nothing.
fn accept(found: wit::DiscoveredResources) -> Result<DiscoveredResources, String> {
    Ok(DiscoveredResources {
        skill_paths: paths("skill-paths", found.skill_paths)?,
        prompt_paths: paths("prompt-paths", found.prompt_paths)?,
    })
}

fn paths(field: &str, paths: Vec<String>) -> Result<Vec<PathBuf>, String> {
    let count = paths.len();
    if count > MAX_DISCOVERED_PATHS {
        return Err(format!("{field} has {count} paths; the limit is {MAX_DISCOVERED_PATHS}"));
    }
    let one = |path: String| {
        convert::check_text(&format!("a path of {field}"), &path, MAX_PATH_BYTES)?;
        if path.contains('\0') {
            return Err(format!("a path of {field} has a NUL character"));
        }
        Ok(PathBuf::from(path))
    };
    paths.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_few_and_short_and_say_something() {
        let long = "x".repeat(MAX_PATH_BYTES + 1);
        for (given, expected) in [
            (vec!["a", "~/b"], Ok(2)),
            (vec!["a"; MAX_DISCOVERED_PATHS], Ok(256)),
            (vec!["a"; 257], Err("skill-paths has 257 paths; the limit is 256")),
            (vec!["a", " "], Err("a path of skill-paths is blank")),
            (vec![&long], Err("a path of skill-paths has 4097 bytes; the limit is 4096")),
            (vec!["a\0"], Err("a path of skill-paths has a NUL character")),
        ] {
            let found = wit::DiscoveredResources {
                skill_paths: given.into_iter().map(str::to_owned).collect(),
                prompt_paths: Vec::new(),
            };
            let accepted = accept(found).map(|found| found.skill_paths.len());
            assert_eq!(
                accepted.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|e| *e)
            );
        }
    }
}
