//! What one extension may reach now, and how much of it at a time. Host functions judge
//! by it; `ask` sees to it that it gets decided.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::bindings::types::AccessError;
use crate::limits::{MAX_EXEC_RUNNING, MAX_FILE_OPERATIONS, MAX_HELD_BYTES, MAX_OPEN_RESPONSES};
use crate::permissions::Rules;
use crate::places::Places;
use crate::registration::Permission;

/// What is in force, and whether somebody is still being asked for more.
#[derive(Debug, Clone)]
struct Decided {
    rules: Arc<Rules>,
    is_final: bool,
}

/// The access of one extension; its instances share it.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) id: String,
    /// `sha256:` and 64 hex digits.
    pub(crate) content_hash: String,
    pub(crate) places: Arc<Places>,
    decided: watch::Sender<Decided>,
    asking: Mutex<Option<AbortHandle>>,
    /// File calls that work at the same time; others wait.
    pub(crate) file_work: Arc<Semaphore>,
    pub(crate) programs: Arc<Semaphore>,
    pub(crate) responses: Arc<Semaphore>,
    /// Bytes of arguments that calls under way hold.
    held: AtomicUsize,
}

/// Bytes that a call under way holds.
#[derive(Debug)]
pub(crate) struct Held {
    access: Arc<Access>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.access.held.fetch_sub(self.bytes, SeqCst);
    }
}

impl Access {
    /// Nothing is granted yet, and more may be.
    pub(crate) fn new(id: String, content_hash: String, places: Arc<Places>) -> Arc<Self> {
        Arc::new(Self {
            id,
            content_hash,
            places,
            decided: watch::Sender::new(Decided { rules: Arc::default(), is_final: false }),
            asking: Mutex::default(),
            file_work: Arc::new(Semaphore::new(MAX_FILE_OPERATIONS)),
            programs: Arc::new(Semaphore::new(MAX_EXEC_RUNNING)),
            responses: Arc::new(Semaphore::new(MAX_OPEN_RESPONSES)),
            held: AtomicUsize::new(0),
        })
    }

    /// These permissions are in force; `is_final`: nobody is asked for more.
    pub(crate) fn decide<'a>(
        &self,
        granted: impl IntoIterator<Item = &'a Permission>,
        is_final: bool,
    ) {
        let rules = Arc::new(Rules::new(granted));
        self.decided.send_replace(Decided { rules, is_final });
    }

    /// Somebody asks now, in place of whoever did.
    pub(crate) fn set_asking(&self, task: AbortHandle) {
        let old = self.asking.lock().unwrap_or_else(PoisonError::into_inner).replace(task);
        if let Some(old) = old {
            old.abort();
        }
    }

    /// Tries with what is in force, and once more with every decision that is still to
    /// come while the answer is `denied`. An attempt that is denied has done nothing.
    pub(crate) async fn attempt<T, F>(
        &self,
        caller: &Caller,
        attempt: impl Fn(Arc<Rules>) -> F,
    ) -> Result<T, AccessError>
    where
        F: Future<Output = Result<T, AccessError>>,
    {
        let mut decided = self.decided.subscribe();
        loop {
            let Decided { rules, is_final } = decided.borrow_and_update().clone();
            let result = tokio::select! {
                biased;
                () = caller.cancel.cancelled() => return Err(AccessError::Cancelled),
                result = attempt(rules) => result,
            };
            // Start-up waits for nobody, and nobody could answer yet.
            if is_final || caller.is_start_up || !matches!(result, Err(AccessError::Denied(_))) {
                return result;
            }
            tokio::select! {
                biased;
                () = caller.cancel.cancelled() => return Err(AccessError::Cancelled),
                changed = decided.changed() => if changed.is_err() { return result },
            }
        }
    }

    /// Counts an argument against what the host keeps for one extension at a time.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held, AccessError> {
        let before = self.held.fetch_add(bytes, SeqCst);
        let held = Held { access: Arc::clone(self), bytes };
        if before.saturating_add(bytes) > MAX_HELD_BYTES {
            return Err(AccessError::Failed(format!(
                "calls under way hold {before} bytes already; all together may hold {MAX_HELD_BYTES}"
            )));
        }
        Ok(held)
    }

    /// What a guest reads whose permission is missing.
    pub(crate) fn denied(&self, missing: &Permission) -> AccessError {
        AccessError::Denied(format!(
            "{missing} is not granted; grant what it asks for with: wharf extension grant {}",
            self.id
        ))
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        let asking = self.asking.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = asking {
            task.abort();
        }
    }
}

/// The call that a host function works for.
#[derive(Debug)]
pub(crate) struct Caller {
    /// Fires when nobody waits for the call any more.
    pub(crate) cancel: CancellationToken,
    pub(crate) is_start_up: bool,
}
