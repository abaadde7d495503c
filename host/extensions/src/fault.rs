//! What a trap is called, and what repeated traps lead to.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wasmtime::{Trap, WasmBacktrace};

use crate::budget::BudgetExceeded;
use crate::limits::{MAX_ERROR_BYTES, MAX_FUNCTION_NAME_BYTES, cut, one_line};
use crate::state::State;

/// Faults within this time are counted together.
const FAULT_WINDOW: Duration = Duration::from_secs(60);
/// Rest after a first fault; each further one within the window doubles it.
const BACK_OFF: Duration = Duration::from_millis(50);

/// A trap as one line: the message of a panic first, and at the end the function of the
/// guest where it happened, if the component has names.
pub(crate) fn describe(error: &wasmtime::Error, state: &State) -> String {
    let mut line = one_line(&what(error, state));
    if let Some(function) = culprit(error) {
        // A text that fills the line leaves no room; it stays one line within its cap.
        let room = MAX_ERROR_BYTES.saturating_sub(MAX_FUNCTION_NAME_BYTES + 100);
        line.truncate(line.floor_char_boundary(room));
        line.push_str(" at ");
        line.push_str(&function);
    }
    line
}

fn what(error: &wasmtime::Error, state: &State) -> String {
    if let Some(exceeded) = error.downcast_ref::<BudgetExceeded>() {
        return format!("it {exceeded} without returning to the host");
    }
    let trap = match error.downcast_ref::<Trap>() {
        Some(trap) => trap.to_string(),
        None => {
            // The backtrace is one of the contexts, and is told elsewhere.
            let is_backtrace = |text: &String| text.contains("wasm backtrace:");
            let causes = error.chain().map(ToString::to_string).filter(|text| !is_backtrace(text));
            causes.collect::<Vec<_>>().join(": ")
        }
    };
    let said = state.stderr_tail();
    if said.is_empty() { trap } else { format!("{said} ({trap})") }
}

/// A trap for the log: what happened, and a line for each frame, the innermost first.
pub(crate) fn backtrace(about: &str, error: &wasmtime::Error, state: &State) -> String {
    let mut text = format!("{about} failed: {}", what(error, state));
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return text };
    text.push_str("\nbacktrace, the innermost frame first:");
    for (index, frame) in backtrace.frames().iter().enumerate() {
        let name = frame.func_name().map_or_else(
            || format!("function {} (the component has no names)", frame.func_index()),
            demangled,
        );
        text.push_str(&format!("\n{index:4}: {name}"));
    }
    text
}

/// The innermost function that is the guest's own.
fn culprit(error: &wasmtime::Error) -> Option<String> {
    let frames = error.downcast_ref::<WasmBacktrace>()?.frames();
    let names = frames.iter().filter_map(|frame| frame.func_name());
    names.map(demangled).find(|name| !is_runtime(name)).map(|name| plain(&name).to_owned())
}

fn demangled(name: &str) -> String {
    let name = format!("{:#}", rustc_demangle::demangle(name));
    cut(&name, MAX_FUNCTION_NAME_BYTES).to_owned()
}

/// Whether a function is the language's runtime, where a panic ends, or the SDK's.
fn is_runtime(name: &str) -> bool {
    const CRATES: [&str; 5] = ["core::", "std::", "alloc::", "wit_bindgen::", "wharf_sdk::"];
    let path = name.trim_start_matches(['<', '&', '(']);
    let path = path.strip_prefix("dyn ").unwrap_or(path);
    CRATES.iter().any(|krate| path.starts_with(krate))
        // `abort`, `__rust_start_panic`, `rust_begin_unwind`: all of a guest's own have a path.
        || !name.contains("::")
        || name.contains("__rust")
}

/// Without the closures that an `async fn` is made of.
fn plain(name: &str) -> &str {
    let mut name = name;
    loop {
        let shorter = name.strip_suffix("::{{closure}}").or_else(|| {
            let (path, last) = name.rsplit_once("::")?;
            last.starts_with("{closure#").then_some(path)
        });
        match shorter {
            Some(shorter) => name = shorter,
            None => return name,
        }
    }
}

/// The faults of one extension within the last minute.
#[derive(Debug, Default)]
pub(crate) struct Faults(VecDeque<Instant>);

impl Faults {
    /// How many there are now, with this one.
    pub(crate) fn record(&mut self, now: Instant) -> usize {
        self.0.push_back(now);
        while self.0.front().is_some_and(|first| now.duration_since(*first) > FAULT_WINDOW) {
            self.0.pop_front();
        }
        self.0.len()
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
    fn the_guests_own_functions_are_told_from_the_runtime() {
        for (name, own) in [
            ("_ZN4todo4list3add17h0123456789abcdefE", Some("todo::list::add")),
            (
                "_ZN4todo4list3add28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE",
                Some("todo::list::add"),
            ),
            ("_RNvNtCs1234_4todo4list3add", Some("todo::list::add")),
            ("_ZN4core9panicking9panic_fmt17h0123456789abcdefE", None),
            ("_ZN3std7process5abort17h0123456789abcdefE", None),
            ("_ZN9wharf_sdk7runtime3run17h0123456789abcdefE", None),
            ("__rust_start_panic", None),
            ("abort", None),
        ] {
            let name = demangled(name);
            let found = (!is_runtime(&name)).then(|| plain(&name));
            assert_eq!(found, own, "{name}");
        }
    }

    #[test]
    fn faults_of_a_minute_are_counted_and_rest_grows() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut faults = Faults::default();
        assert_eq!(faults.rest(start), Duration::ZERO);
        assert_eq!(faults.record(at(0)), 1);
        assert_eq!(faults.rest(at(0)), BACK_OFF);
        assert_eq!(faults.rest(at(1)), Duration::ZERO);
        assert_eq!(faults.record(at(30)), 2);
        assert_eq!(faults.rest(at(30)), BACK_OFF * 2);
        assert_eq!(faults.record(at(61)), 2, "the first is over a minute old");
        assert_eq!(faults.record(at(62)), 3);
    }
}
