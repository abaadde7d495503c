//! How guest time is measured and ended: the ticker thread, the clock of one
//! store, and the budget of one call.
//!
//! Guest time is what passes while a store's future is being polled. Waiting for
//! the host (a dialog, a queue, another call) happens between polls and costs
//! nothing.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use wasmtime::Engine;

/// How often a spinning guest is interrupted to yield.
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// Ticks without a running guest after which the ticker sleeps for good.
const IDLE_TICKS: u32 = 10;

/// One thread that advances the engine's epoch while a guest runs.
#[derive(Debug)]
pub(crate) struct Ticker {
    shared: Arc<TickerShared>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct TickerShared {
    running: AtomicUsize,
    parked: AtomicBool,
    stopped: AtomicBool,
}

impl Ticker {
    pub(crate) fn start(engine: &Engine) -> std::io::Result<Self> {
        let shared = Arc::new(TickerShared::default());
        let handle: JoinHandle<()> = thread::Builder::new().name("wharf-epoch".into()).spawn({
            let shared = Arc::clone(&shared);
            let engine = engine.clone();
            move || shared.run(&engine)
        })?;
        Ok(Self { shared, thread: handle.thread().clone() })
    }

    fn enter(&self) {
        self.shared.running.fetch_add(1, SeqCst);
        if self.shared.parked.swap(false, SeqCst) {
            self.thread.unpark();
        }
    }

    fn leave(&self) {
        self.shared.running.fetch_sub(1, SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stopped.store(true, SeqCst);
        self.thread.unpark();
    }
}

impl TickerShared {
    fn run(&self, engine: &Engine) {
        let mut idle = 0;
        while !self.stopped.load(SeqCst) {
            if idle >= IDLE_TICKS {
                self.parked.store(true, SeqCst);
                // Whoever enters after the store sees `parked` and wakes this thread.
                if self.running.load(SeqCst) == 0 && !self.stopped.load(SeqCst) {
                    thread::park();
                }
                self.parked.store(false, SeqCst);
                idle = 0;
            }
            thread::sleep(TICK);
            if self.running.load(SeqCst) > 0 {
                engine.increment_epoch();
                idle = 0;
            } else {
                idle += 1;
            }
        }
    }
}

/// How long the future of one store has been running, in all.
#[derive(Debug)]
pub(crate) struct GuestClock {
    origin: Instant,
    /// Nanoseconds of finished polls.
    finished: AtomicU64,
    /// When the current poll began, in nanoseconds after `origin`; 0: none.
    entered: AtomicU64,
}

impl GuestClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            origin: Instant::now(),
            finished: AtomicU64::new(0),
            entered: AtomicU64::new(0),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// All guest time so far.
    pub(crate) fn total(&self) -> Duration {
        let current = match self.entered.load(SeqCst) {
            0 => 0,
            entered => self.now() - entered,
        };
        Duration::from_nanos(self.finished.load(SeqCst) + current)
    }
}

/// Leaves the clock and the ticker also when a poll unwinds.
struct Running<'a> {
    clock: &'a GuestClock,
    ticker: &'a Ticker,
}

impl<'a> Running<'a> {
    fn enter(clock: &'a GuestClock, ticker: &'a Ticker) -> Self {
        ticker.enter();
        clock.entered.store(clock.now(), SeqCst);
        Self { clock, ticker }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let entered = self.clock.entered.swap(0, SeqCst);
        self.clock.finished.fetch_add(self.clock.now() - entered, SeqCst);
        self.ticker.leave();
    }
}

/// Runs `future`, which runs a guest, under the clock and the ticker.
pub(crate) async fn metered<F: Future>(
    clock: Arc<GuestClock>,
    ticker: Arc<Ticker>,
    future: F,
) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _running = Running::enter(&clock, &ticker);
        future.as_mut().poll(context)
    })
    .await
}

/// A call has used up its guest time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("used more than {} of CPU time", in_words(*.limit))]
pub(crate) struct BudgetExceeded {
    pub(crate) limit: Duration,
}

/// Whole seconds as such, else milliseconds.
pub(crate) fn in_words(limit: Duration) -> String {
    if limit.subsec_millis() == 0 {
        format!("{} s", limit.as_secs())
    } else {
        format!("{} ms", limit.as_millis())
    }
}

/// What is left of a call's guest time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    limit: Duration,
    spent: Duration,
}

impl Budget {
    pub(crate) const fn new(limit: Duration) -> Self {
        Self { limit, spent: Duration::ZERO }
    }

    pub(crate) fn charge(&mut self, time: Duration) -> Result<(), BudgetExceeded> {
        self.spent += time;
        if self.spent > self.limit { Err(BudgetExceeded { limit: self.limit }) } else { Ok(()) }
    }
}

/// Guest time that belongs to no call: instantiation, and what a guest goes on doing
/// after a call has returned. It refills with wall time, so that background work may
/// take a small share of one core for as long as it likes, and no more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BackgroundBudget {
    budget: Budget,
    charged: Instant,
}

impl BackgroundBudget {
    /// One part of guest time per so many parts of wall time.
    const SHARE: u32 = 20;

    pub(crate) const fn new(burst: Duration, now: Instant) -> Self {
        Self { budget: Budget::new(burst), charged: now }
    }

    pub(crate) fn charge(&mut self, time: Duration, now: Instant) -> Result<(), BudgetExceeded> {
        let refill = now.saturating_duration_since(self.charged) / Self::SHARE;
        self.budget.spent = self.budget.spent.saturating_sub(refill);
        self.charged = now;
        self.budget.charge(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_work_may_go_on_at_a_small_share() {
        let start = Instant::now();
        let mut budget = BackgroundBudget::new(TICK * 10, start);
        let mut now = start;
        for _ in 0..1_000 {
            now += TICK * BackgroundBudget::SHARE;
            assert!(budget.charge(TICK, now).is_ok());
        }
        let mut budget = BackgroundBudget::new(TICK * 10, now);
        let spinning = (0..1_000).position(|_| {
            now += TICK;
            budget.charge(TICK, now).is_err()
        });
        assert_eq!(spinning, Some(10));
    }

    #[test]
    fn a_budget_is_spent_by_what_is_charged() {
        let mut budget = Budget::new(Duration::from_millis(25));
        assert!(budget.charge(TICK).is_ok());
        assert!(budget.charge(TICK).is_ok());
        let error = budget.charge(TICK);
        assert_eq!(
            error.map_err(|e| e.to_string()),
            Err("used more than 25 ms of CPU time".to_owned())
        );
        assert_eq!(
            BudgetExceeded { limit: Duration::from_secs(5) }.to_string(),
            "used more than 5 s of CPU time"
        );
    }

    #[test]
    fn the_clock_counts_polls_only() {
        let clock = GuestClock::new();
        thread::sleep(Duration::from_millis(2));
        assert_eq!(clock.total(), Duration::ZERO);
        clock.entered.store(clock.now(), SeqCst);
        thread::sleep(Duration::from_millis(2));
        assert!(clock.total() >= Duration::from_millis(2));
    }
}
