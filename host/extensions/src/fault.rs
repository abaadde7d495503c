//! What a trap is called, and what repeated traps lead to.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wasmtime::Trap;

use crate::budget::BudgetExceeded;
use crate::limits::one_line;
use crate::state::State;

/// This many faults ...
const MAX_FAULTS: usize = 3;
/// ... within this time disable an extension.
const FAULT_WINDOW: Duration = Duration::from_secs(60);
/// Rest after a first fault; each further one within the window doubles it.
const BACK_OFF: Duration = Duration::from_millis(50);

/// A trap as one line, with the message of a panic first.
pub(crate) fn describe(error: &wasmtime::Error, state: &State) -> String {
    if let Some(exceeded) = error.downcast_ref::<BudgetExceeded>() {
        return format!("it {exceeded} without returning to the host");
    }
    let trap = match error.downcast_ref::<Trap>() {
        Some(trap) => trap.to_string(),
        None => format!("{:#}", error),
    };
    let said = state.stderr_tail();
    one_line(&if said.is_empty() { trap } else { format!("{said} ({trap})") })
}

/// The faults of one extension within the last minute.
#[derive(Debug, Default)]
pub(crate) struct Faults(VecDeque<Instant>);

impl Faults {
    /// True when this one is one too many.
    pub(crate) fn record(&mut self, now: Instant) -> bool {
        self.0.push_back(now);
        while self.0.front().is_some_and(|first| now.duration_since(*first) > FAULT_WINDOW) {
            self.0.pop_front();
        }
        self.0.len() >= MAX_FAULTS
    }

    /// How long the next instance has to wait.
    pub(crate) fn rest(&self, now: Instant) -> Duration {
        let Some(last) = self.0.back() else { return Duration::ZERO };
        let doublings = u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX);
        let rest = BACK_OFF * 2_u32.saturating_pow(doublings);
        (*last + rest).saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_faults_in_a_minute_are_too_many_and_rest_grows() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut faults = Faults::default();
        assert_eq!(faults.rest(start), Duration::ZERO);
        assert!(!faults.record(at(0)));
        assert_eq!(faults.rest(at(0)), BACK_OFF);
        assert_eq!(faults.rest(at(1)), Duration::ZERO);
        assert!(!faults.record(at(30)));
        assert_eq!(faults.rest(at(30)), BACK_OFF * 2);
        assert!(!faults.record(at(61)), "the first is over a minute old");
        assert!(faults.record(at(62)));
    }
}
