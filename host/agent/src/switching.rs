//! Another session becomes the current one: `new_session`, `switch_session`, `fork` and
//! `import_session`.

use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

use serde::Serialize;
use wharf_protocol::Model;
use wharf_session::{
    ForkError, MessageRole, OpenError, Session, SessionContext, SessionOptions, WriteError,
};

use crate::agent::{Agent, Recorded, State};
use crate::hooks::{ForkVerdict, HookEvent, HookNotification, ModelSource, SwitchReason};
use crate::navigation::{before, editable_text};
use crate::output::{AgentOutput, deliver};

/// How a new session begins.
#[derive(Debug, Clone, Default)]
pub struct NewSession {
    /// Recorded in the header.
    pub parent_session: Option<String>,
}

/// What `fork` gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Forked {
    /// Of the message that the fork begins before.
    pub text: String,
    pub cancelled: bool,
}

/// Why a session could not become the current one. The old one stays.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    #[error("{}", chain(.0))]
    Open(#[from] OpenError),
    #[error("{}", chain(.0))]
    Fork(#[from] ForkError),
    #[error(
        "Invalid entry ID for forking: {0} is not a user message of this session; \
         get_fork_messages lists those that are"
    )]
    NoForkPoint(String),
    #[error("internal error: reading session {} failed; please report it", .0.display())]
    Reader(PathBuf),
}

/// An error and its causes in one line: `failed to read /x: permission denied`.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some errors show their cause themselves.
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// How a session came to be the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    New,
    Resumed,
    Forked,
}

/// A model that took another one's place.
pub(crate) type Selected = Option<(Box<Model>, Option<Box<Model>>)>;

impl Agent {
    /// Starts a fresh session; what the agent was doing is aborted first.
    /// True: an extension cancelled it.
    pub async fn new_session(&self, options: NewSession) -> bool {
        self.placed().await;
        let _one_at_a_time = self.inner.switching.lock().await;
        if self.is_switch_cancelled(SwitchReason::New, None).await {
            return true;
        }
        let options =
            SessionOptions { parent_session: options.parent_session, ..Default::default() };
        let session = match self.session_dir() {
            Some(dir) => Session::create(&dir, &self.inner.cwd, options),
            None => Session::in_memory(&self.inner.cwd),
        };
        self.swap(session, Arrival::New).await;
        false
    }

    /// Opens a session file, or a copy of it that is made for the working directory.
    /// True: an extension cancelled it.
    ///
    /// # Errors
    /// The file does not exist, is not a session, or another process has it open; nothing
    /// changes.
    pub async fn switch_session(&self, path: &Path, as_fork: bool) -> Result<bool, SwitchError> {
        self.placed().await;
        let path = self.resolve(path);
        let _one_at_a_time = self.inner.switching.lock().await;
        // It may be the one that is open: what is on its way must be in the file.
        self.flush_session(&self.session()).await;
        let source = path.clone();
        // Of what is copied nothing is made before extensions have agreed.
        let opened = blocking(&path, move || match as_fork {
            true => Session::open(&source),
            false => Session::open_to_write(&source),
        })
        .await??;
        if self.is_switch_cancelled(SwitchReason::Resume, Some(path.clone())).await {
            return Ok(true);
        }
        let session = if as_fork {
            drop(opened);
            let (source, cwd, dir) = (path.clone(), self.inner.cwd.clone(), self.inventory_dir());
            blocking(&path, move || Session::fork_from(&source, &cwd, &dir)).await??
        } else {
            opened
        };
        self.swap(session, Arrival::Resumed).await;
        Ok(false)
    }

    /// Makes a session of the branch before a user message the current one; what the agent
    /// was doing is aborted first.
    ///
    /// # Errors
    /// There is no such message, or the session could not be written; nothing changes.
    pub async fn fork(&self, entry_id: &str) -> Result<Forked, SwitchError> {
        self.placed().await;
        let no_fork_point = || SwitchError::NoForkPoint(entry_id.to_owned());
        let _one_at_a_time = self.inner.switching.lock().await;
        let session = self.session();
        let entry = session.entry(entry_id).ok_or_else(no_fork_point)?;
        if entry.role() != Some(MessageRole::User) {
            return Err(no_fork_point());
        }
        let text = editable_text(&entry).ok_or_else(no_fork_point)?;
        let hooks = &self.inner.hooks;
        let verdict = match hooks.subscribes(HookEvent::SessionBeforeFork) {
            true => {
                hooks.ready().await;
                hooks.session_before_fork(entry_id.to_owned()).await
            }
            false => ForkVerdict::Proceed,
        };
        let leaf = match verdict {
            ForkVerdict::Cancel => return Ok(Forked { text, cancelled: true }),
            ForkVerdict::Proceed => before(&session, entry_id),
            ForkVerdict::KeepConversation => session.leaf_id().map(|id| id.to_string()),
        };
        let (dir, file) =
            (self.inventory_dir(), session.file().unwrap_or(Path::new("")).to_owned());
        let forked =
            blocking(&file, move || session.create_branched_session(leaf.as_deref(), &dir))
                .await??;
        self.swap(forked, Arrival::Forked).await;
        Ok(Forked { text, cancelled: false })
    }

    /// Copies a session file that was made elsewhere into the store of the working
    /// directory, and opens it. None: an extension cancelled it; then the copy stays.
    ///
    /// # Errors
    /// The file does not exist or is not a session, or there is one with its id already;
    /// nothing changes.
    pub async fn import_session(&self, path: &Path) -> Result<Option<PathBuf>, SwitchError> {
        self.placed().await;
        let path = self.resolve(path);
        let _one_at_a_time = self.inner.switching.lock().await;
        let source = path.clone();
        drop(blocking(&path, move || Session::open(&source)).await??);
        if self.is_switch_cancelled(SwitchReason::Resume, Some(path.clone())).await {
            return Ok(None);
        }
        let (source, cwd, dir) = (path.clone(), self.inner.cwd.clone(), self.inventory_dir());
        let imported = blocking(&path, move || Session::import(&source, &cwd, &dir)).await??;
        let file = imported.file().map(Path::to_owned);
        self.swap(imported, Arrival::Resumed).await;
        Ok(file)
    }

    async fn is_switch_cancelled(&self, reason: SwitchReason, target: Option<PathBuf>) -> bool {
        let hooks = &self.inner.hooks;
        if !hooks.subscribes(HookEvent::SessionBeforeSwitch) {
            return false;
        }
        hooks.ready().await;
        hooks.session_before_switch(reason, target).await
    }

    async fn swap(&self, session: Session, arrival: Arrival) {
        session.set_durability(self.resources().settings.session_sync);
        // A copy is a new file: nobody else has it. Where there can be no lock, the first
        // append says so.
        let _ = session.claim();
        let mut context = session.build_context();
        let (previous, selected) = loop {
            self.abort_work();
            self.abort_user_bash();
            self.wait_idle().await;
            // A compaction that was aborted writes nothing any more once this is held.
            let _stage = self.inner.stage.lock().await;
            let mut state = self.state();
            if state.is_busy() {
                continue;
            }
            let previous = std::mem::replace(&mut state.session, session.clone());
            state.steering.clear();
            state.follow_up.clear();
            state.next_turn.clear();
            state.naming_tries = 0;
            let context = std::mem::take(&mut context);
            let selected = if arrival == Arrival::New {
                state.recorded = Recorded::of(&context);
                state.take_context(context);
                None
            } else {
                self.take_up(&mut state, context)
            };
            break (previous, selected);
        };
        self.report_warnings(&session).await;
        let previous_session_file = previous.file().map(Path::to_owned);
        self.inner.hooks.notify(match arrival {
            Arrival::New => {
                HookNotification::SessionSwitch { reason: SwitchReason::New, previous_session_file }
            }
            Arrival::Resumed => HookNotification::SessionSwitch {
                reason: SwitchReason::Resume,
                previous_session_file,
            },
            Arrival::Forked => HookNotification::SessionFork { previous_session_file },
        });
        self.notify_selected(selected);
        self.let_go(previous).await;
    }

    /// Is done with a session: others may write its file from now on, though an extension may
    /// still hold the handle. One that cannot be written now is kept, and tried again.
    async fn let_go(&self, session: Session) {
        self.save_left_sessions().await;
        match session.flush().await {
            Ok(()) => session.release(),
            Err(error) => {
                self.tell_of_session(&session, chain(&error)).await;
                self.unsaved().push(session);
            }
        }
    }

    fn unsaved(&self) -> MutexGuard<'_, Vec<Session>> {
        self.inner.unsaved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries again to write what could not be written when its session was left.
    pub(crate) async fn save_left_sessions(&self) {
        let left = std::mem::take(&mut *self.unsaved());
        for session in left {
            match session.flush().await {
                Ok(()) => session.release(),
                Err(_) => self.unsaved().push(session),
            }
        }
    }

    /// Writes everything, and lets others write the files. Gives what could not be written,
    /// and why: it is lost when the program ends.
    pub async fn close_sessions(&self) -> Vec<WriteError> {
        let mut errors = Vec::new();
        let mut sessions = std::mem::take(&mut *self.unsaved());
        sessions.push(self.session());
        for session in sessions {
            if let Err(error) = session.flush().await {
                errors.push(error);
            }
            session.release();
        }
        errors
    }

    /// The conversation, the model and the thinking level are those of `context` from now
    /// on.
    pub(crate) fn take_up(&self, state: &mut State, context: SessionContext) -> Selected {
        state.recorded = Recorded::of(&context);
        if let Some(level) = context.thinking_level {
            state.thinking_level = level;
        }
        let last = context.model.clone();
        state.take_context(context);
        let last = last?;
        match self.registry().restore(&last.provider, &last.id) {
            Ok(model) => {
                let previous = state.model.replace(model.clone());
                (previous.as_ref() != Some(&model))
                    .then(|| (Box::new(model), previous.map(Box::new)))
            }
            Err(error) => {
                state.unrestored = Some(error.to_string());
                None
            }
        }
    }

    pub(crate) fn notify_selected(&self, selected: Selected) {
        if let Some((model, previous)) = selected {
            let source = ModelSource::Restore;
            self.inner.hooks.notify(HookNotification::ModelSelect { model, previous, source });
        }
    }

    /// Waits until a session is on the disk; a failure is told.
    async fn flush_session(&self, session: &Session) {
        if let Err(error) = session.flush().await {
            self.tell_of_session(session, chain(&error)).await;
        }
    }

    /// Tells what was found damaged in a session that has just been opened, and why its
    /// model could not be taken up again.
    pub async fn report_warnings(&self, session: &Session) {
        self.report_unrestored(session).await;
        for text in session.warnings().texts() {
            self.tell_of_session(session, text).await;
        }
    }

    /// Tells why the model of the branch could not be taken up again.
    pub(crate) async fn report_unrestored(&self, session: &Session) {
        let unrestored = self.state().unrestored.take();
        if let Some(problem) = unrestored {
            let message = format!("the session's model cannot be used again: {problem}");
            self.tell_of_session(session, message).await;
        }
    }

    pub(crate) async fn tell_of_session(&self, session: &Session, message: String) {
        let path = session.file().unwrap_or(Path::new("")).to_owned();
        deliver(&*self.inner.outlet, AgentOutput::Diagnostic { path, message }).await;
    }
}

/// Runs what reads or writes a whole session off the loop; `path` is for the error.
async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SwitchError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| SwitchError::Reader(path.to_owned()))
}
