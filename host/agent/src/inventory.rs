//! The session files that there are: where they are kept, listing, deleting, and what
//! they cost today.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wharf_session::{
    DailyCost, DeleteError, DeleteMethod, ListError, Listing, Session, SessionDir, SessionIndex,
};

use crate::agent::Agent;
use crate::resources::dirs;

/// Where session files are, and what is remembered of them.
#[derive(Debug)]
pub struct SessionStore {
    dir: SessionDir,
    /// False: new sessions are kept in memory only; files that there are can be listed.
    persists: bool,
    index: Arc<SessionIndex>,
    subagents: PathBuf,
    daily_cost: Arc<Mutex<DailyCost>>,
}

impl SessionStore {
    /// `index` is where what is known of session files is kept; replies of subagents, in
    /// `subagents`, cost something too.
    pub fn new(dir: SessionDir, index: Arc<SessionIndex>, subagents: PathBuf) -> Self {
        let roots = vec![dir.root().to_owned(), subagents.clone()];
        let daily_cost = Arc::new(Mutex::new(DailyCost::new(roots)));
        Self { dir, persists: true, index, subagents, daily_cost }
    }

    /// New sessions are kept in memory only.
    pub fn in_memory(self) -> Self {
        Self { persists: false, ..self }
    }

    fn moved(&self, dir: SessionDir) -> Self {
        let persists = self.persists;
        Self { persists, ..Self::new(dir, Arc::clone(&self.index), self.subagents.clone()) }
    }
}

/// Why a session was not deleted. The texts that a client relies on are the reference's.
#[derive(Debug, thiserror::Error)]
pub enum DeleteSessionError {
    #[error("Cannot delete the currently active session")]
    Active,
    #[error("session {} is in use by process {pid}; end that one first", .path.display())]
    InUse { path: PathBuf, pid: u32 },
    #[error(transparent)]
    Delete(#[from] DeleteError),
    #[error("internal error: deleting {} failed; please report it", .0.display())]
    Worker(PathBuf),
}

impl Agent {
    /// Where session files are kept, also when this run keeps none.
    pub fn inventory_dir(&self) -> SessionDir {
        self.store().dir.clone()
    }

    /// Where new sessions are kept; none: in memory.
    pub(crate) fn session_dir(&self) -> Option<SessionDir> {
        let store = self.store();
        store.persists.then(|| store.dir.clone())
    }

    fn store(&self) -> MutexGuard<'_, SessionStore> {
        self.inner.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path that a client means: `~` is the home, a relative one starts at the working
    /// directory, `.` and `..` are taken out.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        let path = dirs::resolve_path(path, &self.inner.cwd, self.inner.home.as_deref());
        dirs::normalised(&path)
    }

    /// Has extensions say where session files are kept. Until they have, nothing is written
    /// and no session is opened; the session that there is moves with the first message.
    pub fn place_sessions(&self) {
        // Held first, so that no run and no switch comes before it.
        let Ok(stage) = Arc::clone(&self.inner.stage).try_lock_owned() else { return };
        self.inner.placed.send_replace(false);
        let agent = self.clone();
        tokio::spawn(async move {
            let hooks = &agent.inner.hooks;
            let ask = async {
                hooks.ready().await;
                hooks.session_directory(agent.inner.cwd.clone()).await
            };
            // Whoever aborts wants to wait no longer; the place is the default one then.
            let said = agent.inner.placing.run_until_cancelled(ask).await.flatten();
            if let Some(dir) = said {
                let dir = SessionDir::Flat(agent.resolve(&dir));
                let session = agent.session();
                session.relocate(&dir);
                let mut store = agent.store();
                *store = store.moved(dir);
            }
            agent.inner.placed.send_replace(true);
            agent.take_in_command_results().await;
            drop(stage);
        });
    }

    /// Waits until it is known where session files are kept.
    pub(crate) async fn placed(&self) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.inner.placed.subscribe().wait_for(|placed| *placed).await;
    }

    /// The sessions of the working directory, the one that was modified last first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn list_sessions(&self) -> Result<Listing, ListError> {
        let cwd = self.inner.cwd.clone();
        self.list(move |dir, index| dir.list(&cwd, index, &mut |_, _| {})).await
    }

    /// The sessions of all projects, in the same order.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn list_all_sessions(&self) -> Result<Listing, ListError> {
        self.list(|dir, index| dir.list_all(index, &mut |_, _| {})).await
    }

    async fn list(
        &self,
        read: impl FnOnce(&SessionDir, &SessionIndex) -> Result<Listing, ListError> + Send + 'static,
    ) -> Result<Listing, ListError> {
        self.placed().await;
        // Its last lines may be on their way.
        let _ = self.session().flush().await;
        let (dir, index) = {
            let store = self.store();
            (store.dir.clone(), Arc::clone(&store.index))
        };
        let listing = tokio::task::spawn_blocking(move || read(&dir, &index)).await;
        // A panic in there goes on here.
        listing.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    /// Moves a session file to the trash or, where there is none, deletes it.
    ///
    /// # Errors
    /// It is the current session, or one that another process has open, or no session file.
    pub async fn delete_session(&self, path: &Path) -> Result<DeleteMethod, DeleteSessionError> {
        let path = self.resolve(path);
        // Until it is deleted no switch makes it the current one.
        let _one_at_a_time = self.inner.switching.lock().await;
        if self.session().file().is_some_and(|current| is_same_file(current, &path)) {
            return Err(DeleteSessionError::Active);
        }
        let file = path.clone();
        let deleted = tokio::task::spawn_blocking(move || match Session::owner(&file) {
            Some(pid) => Err(DeleteSessionError::InUse { path: file, pid }),
            None => Ok(wharf_session::delete(&file)?),
        });
        deleted.await.map_err(|_| DeleteSessionError::Worker(path))?
    }

    /// What today's replies in all session files cost, in US dollars.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn daily_cost(&self) -> Result<f64, ListError> {
        self.placed().await;
        let _ = self.session().flush().await;
        let daily_cost = Arc::clone(&self.store().daily_cost);
        let cost = tokio::task::spawn_blocking(move || {
            let mut daily_cost = daily_cost.lock().unwrap_or_else(PoisonError::into_inner);
            daily_cost.refresh().map(|today| today.cost)
        })
        .await;
        cost.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

/// Whether both lead to the same file, which may not be there yet.
fn is_same_file(one: &Path, other: &Path) -> bool {
    one == other
        || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
