//! How often a fuzz target runs, and with what. What it does is not here.
//!
//! A target runs a fixed number of cases, always the same ones. With
//! `WHARF_FUZZ_SECONDS=60` it runs new ones for so long instead, and with
//! `WHARF_FUZZ_SEED=7` only the one of that seed, which a failure names.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use fastrand::Rng;

/// Runs `case` again and again. What it panics at is a fault.
pub(crate) fn fuzz(count: u64, mut case: impl FnMut(Rng)) {
    let mut run = |seed: u64| {
        let rng = Rng::with_seed(seed);
        if catch_unwind(AssertUnwindSafe(|| case(rng))).is_err() {
            panic!("that was the case of seed {seed}: WHARF_FUZZ_SEED={seed} runs it alone");
        }
    };
    if let Some(seed) = number("WHARF_FUZZ_SEED") {
        run(seed);
    } else if let Some(seconds) = number("WHARF_FUZZ_SECONDS") {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut seed = fastrand::u64(..);
        while Instant::now() < end {
            run(seed);
            seed = seed.wrapping_add(1);
        }
    } else {
        (0..count).for_each(run);
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}
