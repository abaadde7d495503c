//! Another session becomes the current one: `new_session` and `switch_session`.

use std::path::{Path, PathBuf};

use wharf_session::{OpenError, Session, SessionOptions};

use crate::agent::{Agent, Recorded};
use crate::hooks::{HookEvent, HookNotification, ModelSource, SwitchReason};
use crate::output::{AgentOutput, deliver};

/// How a new session begins.
#[derive(Debug, Clone, Default)]
pub struct NewSession {
    /// Recorded in the header.
    pub parent_session: Option<String>,
}

/// Why a session could not become the current one. The old one stays.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    #[error("{}", chain(.0))]
    Open(#[from] OpenError),
    #[error("internal error: reading session {} failed; please report it", .0.display())]
    Reader(PathBuf),
}

/// An error and its causes in one line: `failed to read /x: permission denied`.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

impl Agent {
    /// Starts a fresh session; what the agent was doing is aborted first.
    /// True: an extension cancelled it.
    pub async fn new_session(&self, options: NewSession) -> bool {
        let _one_at_a_time = self.inner.switching.lock().await;
        if self.is_switch_cancelled(SwitchReason::New, None).await {
            return true;
        }
        let options =
            SessionOptions { parent_session: options.parent_session, ..Default::default() };
        let session = match &self.inner.session_dir {
            Some(dir) => Session::create(dir, &self.inner.cwd, options),
            None => Session::in_memory(&self.inner.cwd),
        };
        self.swap(session, SwitchReason::New).await;
        false
    }

    /// Opens a session file. True: an extension cancelled it.
    ///
    /// # Errors
    /// The file does not exist or is not a session; nothing changes.
    pub async fn switch_session(&self, path: &Path) -> Result<bool, SwitchError> {
        let path = self.inner.cwd.join(path);
        let _one_at_a_time = self.inner.switching.lock().await;
        let file = path.clone();
        // A session may have a hundred thousand entries: read it off the loop.
        let session = tokio::task::spawn_blocking(move || Session::open(&file))
            .await
            .map_err(|_| SwitchError::Reader(path.clone()))??;
        if self.is_switch_cancelled(SwitchReason::Resume, Some(path)).await {
            return Ok(true);
        }
        self.swap(session, SwitchReason::Resume).await;
        Ok(false)
    }

    async fn is_switch_cancelled(&self, reason: SwitchReason, target: Option<PathBuf>) -> bool {
        let hooks = &self.inner.hooks;
        if !hooks.subscribes(HookEvent::SessionBeforeSwitch) {
            return false;
        }
        hooks.ready().await;
        hooks.session_before_switch(reason, target).await
    }

    async fn swap(&self, session: Session, reason: SwitchReason) {
        let context = session.build_context();
        let mut selected = None;
        let previous = loop {
            self.abort();
            self.abort_user_bash();
            self.wait_idle().await;
            // A compaction that was aborted writes nothing any more once this is held.
            let _stage = self.inner.stage.lock().await;
            let mut state = self.state();
            if state.is_busy() {
                continue;
            }
            let previous = std::mem::replace(&mut state.session, session.clone());
            state.take_context(&context);
            state.recorded = Recorded::of(&context);
            state.steering.clear();
            state.follow_up.clear();
            state.next_turn.clear();
            state.naming_tries = 0;
            if reason == SwitchReason::Resume {
                if let Some(last) = &context.model {
                    match self.registry().restore(&last.provider, &last.id) {
                        Ok(model) => {
                            let previous = state.model.replace(model.clone());
                            selected = (previous.as_ref() != Some(&model))
                                .then(|| (Box::new(model), previous.map(Box::new)));
                        }
                        Err(error) => state.unrestored = Some(error.to_string()),
                    }
                }
                if let Some(level) = context.thinking_level {
                    state.thinking_level = level;
                }
            }
            break previous;
        };
        self.report_warnings(&session).await;
        self.inner.hooks.notify(HookNotification::SessionSwitch {
            reason,
            previous_session_file: previous.file().map(Path::to_owned),
        });
        if let Some((model, previous)) = selected {
            let source = ModelSource::Restore;
            self.inner.hooks.notify(HookNotification::ModelSelect { model, previous, source });
        }
        if let Err(error) = previous.flush().await {
            let path = previous.file().unwrap_or(Path::new("")).to_owned();
            let message = chain(&error);
            deliver(&*self.inner.outlet, AgentOutput::Diagnostic { path, message }).await;
        }
    }

    /// Tells what was found damaged in a session that has just been opened, and why its
    /// model could not be taken up again.
    pub async fn report_warnings(&self, session: &Session) {
        let path = session.file().unwrap_or(Path::new("")).to_owned();
        let unrestored = self.state().unrestored.take();
        if let Some(problem) = unrestored {
            let path = path.clone();
            let message = format!("the session's model cannot be used again: {problem}");
            deliver(&*self.inner.outlet, AgentOutput::Diagnostic { path, message }).await;
        }
        for warning in session.warnings().list() {
            let (path, message) = (path.clone(), warning.to_string());
            deliver(&*self.inner.outlet, AgentOutput::Diagnostic { path, message }).await;
        }
    }
}
