//! Calls every host function, and answers every event in every way, so that tests
//! see what the host makes of it.
//!
//! - Commands `/session-id`, `/agent-cwd` and so on call one host function each and
//!   show `{"call": NAME, "result": VALUE}`, or `"error": {"kind", "message"}`.
//! - A shell command that contains a word in capitals steers the `tool_call`
//!   handler: `REPLACE:rest` runs the rest, `ANSWER:text` is the result, `FAIL` is an
//!   error, `CONTROL` calls a function that is only allowed in commands.
//! - Output that contains `PATCHME` gets a piece of text more.
//! - Input `transform:text` becomes upper case; `handled:text` is dealt with;
//!   `source:` too, and shows where it came from.
//! - A prompt that contains `INJECT` gets a custom message and a longer system prompt.
//! - The first word of a compaction's instructions steers `session_before_compact`:
//!   `CANCEL`, `FAIL`, `REPLACE text`, `KEEP id` (an own summary that keeps the entries
//!   from that one on); `SHOW` shows the event as `{"call": "compact", "result"}`.
//! - `/before-fork WORD` says what `session_before_fork` answers from then on: `CANCEL`,
//!   `KEEP` (the conversation), `FAIL`; `SHOW` shows the event as
//!   `{"call": "session-before-fork", "result"}`. Without a word it proceeds.
//! - `/before-tree WORD` says so of `session_before_tree`; without a word the custom
//!   instructions do: `CANCEL`, `FAIL`, `SHOW`, and `CHANGE {...}` with any of `summary`,
//!   `details`, `customInstructions`, `replaceInstructions` and `label`, where a text
//!   that is `null` is cleared.
//! - The first word of the working directory's own name steers `session_directory`:
//!   `DIRECTORY path` (`%` stands for `/`), `BLANK`, `LONG`, `FAIL`, `HANG` (never
//!   answers), `ASK` (opens a dialog and shows what came of it), `SHOW`.
//! - `/counts` shows how often each notification arrived; `session_shutdown` is
//!   shown when it arrives. `/typed` shows those that the SDK reads out of the WIT's
//!   `other`, in order; `fork FILE` and `tree OLD NEW SUMMARY FROM-EXTENSION` among them.
//! - `/print text` writes to standard output and standard error.

mod commands;
mod events;
mod sessions;

use std::cell::RefCell;
use std::collections::BTreeMap;

use wharf_sdk::{Event, Extension, Registration};

#[derive(Default)]
struct Probe {
    counts: RefCell<BTreeMap<String, u64>>,
    typed: RefCell<Vec<String>>,
    /// How forks and moves in the tree are answered.
    fork: RefCell<String>,
    tree: RefCell<String>,
}

impl Extension for Probe {
    fn register() -> Registration<Self> {
        let registration = Registration::new("probe", "0.1.0")
            .on_tool_call(Self::tool_call)
            .on_tool_result(Self::tool_result)
            .on_input(Self::input)
            .on_before_agent_start(Self::before_agent_start)
            .on_session_before_fork(Self::before_fork)
            .on_session_before_tree(Self::before_tree)
            .on_session_directory(Self::directory)
            .on_session_before_compact(Self::compact)
            .on_notification(Event::ALL, Self::count)
            .on_notification(
                [Event::SessionCompact, Event::ModelSelect, Event::StreamRetry, Event::LengthRetry],
                Self::read,
            )
            .on_session_fork(Self::forked)
            .on_session_tree(Self::moved)
            .command("before-fork", "Says how forks are answered", Self::set_fork)
            .command("before-tree", "Says how moves in the tree are answered", Self::set_tree)
            .command("typed", "Shows what some notifications said", Self::typed)
            .command("counts", "Shows how often each notification arrived", Self::counts);
        commands::add(registration)
    }
}

wharf_sdk::export!(Probe);
