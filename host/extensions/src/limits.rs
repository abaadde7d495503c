//! What a guest may take: memory, host-side tables, and the size of everything
//! that it hands to the host.

use std::time::Duration;

use wasmtime::ResourceLimiter;

/// Guest time of an event handler, by default.
pub const DEFAULT_EVENT_BUDGET: Duration = Duration::from_secs(5);
/// Guest time of a command or a tool call, by default.
pub const DEFAULT_CALL_BUDGET: Duration = Duration::from_secs(60);
/// All linear memories and tables of one extension together, by default.
pub const DEFAULT_MEMORY_BYTES: usize = 256 * 1024 * 1024;
/// Wall time for the return from a cancelled call, by default.
pub const DEFAULT_CANCEL_GRACE: Duration = Duration::from_secs(30);

/// The largest component file that is read.
pub(crate) const MAX_COMPONENT_BYTES: u64 = 256 * 1024 * 1024;
/// Data that one host call may take out of a guest. Everything below fits; more traps.
pub(crate) const MAX_HOST_CALL_BYTES: usize = 64 * 1024 * 1024;
/// Live resource handles and waitables of one instance.
pub(crate) const MAX_HANDLES: usize = 16 * 1024;
/// Entries of WASI's table (pollables, streams) of one instance.
pub(crate) const MAX_WASI_RESOURCES: usize = 4 * 1024;
/// Core instances, memories and tables of one extension. A component made from
/// Python needs several dozen.
const MAX_CORE_INSTANCES: usize = 1_000;
const MAX_TABLES: usize = 200;
const MAX_MEMORIES: usize = 100;
/// What one table element costs the host.
const TABLE_ELEMENT_BYTES: usize = 16;

/// Calls of one extension that run at the same time; later ones wait in order.
pub(crate) const MAX_IN_FLIGHT: usize = 256;
/// Calls of one extension that wait to be started; a call over this fails at once.
pub(crate) const MAX_WAITING_CALLS: usize = 4_096;
/// Notifications of one extension that wait. Fixed by the WIT contract.
pub(crate) const MAX_QUEUED_NOTIFICATIONS: usize = 1_024;
/// Cancelled calls that a guest does not return from, after which its instance is
/// dropped even while others wait for calls of it.
pub(crate) const MAX_STUCK_CALLS: usize = 32;
/// Dialogs of one extension that are open at the same time.
pub(crate) const MAX_OPEN_DIALOGS: usize = 64;

/// Text of a dialog, a notification, a status or an editor.
pub(crate) const MAX_UI_TEXT_BYTES: usize = 1024 * 1024;
/// Options of a `select`.
pub(crate) const MAX_DIALOG_OPTIONS: usize = 1_000;
/// Options of an `ask`, fixed by the protocol: none, or two to four.
pub(crate) const ASK_OPTIONS: std::ops::RangeInclusive<usize> = 2..=4;
/// Lines of a widget.
pub(crate) const MAX_WIDGET_LINES: usize = 1_000;
/// All content of a tool's output or a message, images included.
pub(crate) const MAX_CONTENT_BYTES: usize = 16 * 1024 * 1024;
/// Blocks of a tool's output or a message.
pub(crate) const MAX_CONTENT_BLOCKS: usize = 1_000;
/// `details` of a tool's output, a message or a session entry, as JSON text.
pub(crate) const MAX_DETAILS_BYTES: usize = 16 * 1024 * 1024;
/// Names, ids, labels, keys and titles.
pub(crate) const MAX_NAME_BYTES: usize = 4 * 1024;
/// A path that a guest names. Fixed by the WIT contract.
pub(crate) const MAX_PATH_BYTES: usize = 4 * 1024;
/// A system prompt, the text of a message, a summary, and instructions for one.
pub(crate) const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;
/// The messages that a summary is to be of, as JSON text. Fixed by the WIT contract.
pub(crate) const MAX_SUMMARIZED_BYTES: usize = 64 * 1024 * 1024;
/// A line of the log.
pub(crate) const MAX_LOG_LINE_BYTES: usize = 8 * 1024;
/// The end of a guest's stderr that is kept for error texts.
pub(crate) const STDERR_TAIL_BYTES: usize = 4 * 1024;
/// The text of an `extension_error`.
pub(crate) const MAX_ERROR_BYTES: usize = 2_000;
/// Offers of an argument completion.
pub(crate) const MAX_COMPLETIONS: usize = 1_000;

/// What one extension may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Guest time of one event handler, of `register` and of argument completion.
    pub event_budget: Duration,
    /// Guest time of one command or tool call.
    pub call_budget: Duration,
    /// All memories and tables together, in bytes.
    pub memory_bytes: usize,
    /// Wall time that a guest has to return from a cancelled call. Afterwards its
    /// instance is dropped as soon as nobody waits for another call of it. Also wall
    /// time that start-up waits for an answer to `session_directory`.
    pub cancel_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            event_budget: DEFAULT_EVENT_BUDGET,
            call_budget: DEFAULT_CALL_BUDGET,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            cancel_grace: DEFAULT_CANCEL_GRACE,
        }
    }
}

/// Counts the memories and tables of one store. A refused growth is visible to
/// the guest as a failed allocation.
#[derive(Debug)]
pub(crate) struct MemoryLimiter {
    used: usize,
    cap: usize,
}

impl MemoryLimiter {
    pub(crate) const fn new(cap: usize) -> Self {
        Self { used: 0, cap }
    }

    fn grow(&mut self, current: usize, desired: usize) -> bool {
        let total = self.used.saturating_add(desired.saturating_sub(current));
        if total > self.cap {
            return false;
        }
        self.used = total;
        true
    }
}

impl ResourceLimiter for MemoryLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(maximum.is_none_or(|maximum| desired <= maximum) && self.grow(current, desired))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let bytes = |elements: usize| elements.saturating_mul(TABLE_ELEMENT_BYTES);
        Ok(maximum.is_none_or(|maximum| desired <= maximum)
            && self.grow(bytes(current), bytes(desired)))
    }

    fn instances(&self) -> usize {
        MAX_CORE_INSTANCES
    }

    fn tables(&self) -> usize {
        MAX_TABLES
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES
    }
}

/// `text` if it is within `cap` bytes, else its beginning and a note.
pub(crate) fn truncated(mut text: String, cap: usize) -> String {
    if text.len() > cap {
        let dropped = text.len() - cut(&text, cap).len();
        text.truncate(text.len() - dropped);
        text.push_str(&format!(" [... {dropped} bytes over the limit of {cap} dropped]"));
    }
    text
}

/// The beginning of `text`: at most `cap` bytes, whole characters.
pub(crate) fn cut(text: &str, cap: usize) -> &str {
    &text[..text.floor_char_boundary(cap)]
}

/// `text` as one line of at most [`MAX_ERROR_BYTES`].
pub(crate) fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    truncated(line, MAX_ERROR_BYTES - 80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_share_one_cap() {
        let mut limiter = MemoryLimiter::new(1_000);
        assert!(limiter.memory_growing(0, 600, None).is_ok_and(|ok| ok));
        assert!(limiter.memory_growing(0, 401, None).is_ok_and(|ok| !ok));
        assert!(limiter.table_growing(0, 25, None).is_ok_and(|ok| ok));
        assert!(limiter.table_growing(25, 26, None).is_ok_and(|ok| !ok));
        assert!(limiter.memory_growing(600, 700, Some(650)).is_ok_and(|ok| !ok));
    }

    #[test]
    fn text_over_its_cap_is_cut_between_characters_and_says_so() {
        assert_eq!(truncated("abc".into(), 3), "abc");
        assert_eq!(truncated("aé-".into(), 2), "a [... 3 bytes over the limit of 2 dropped]");
        let line = one_line(&"word\n\t".repeat(2_000));
        assert!(line.len() <= MAX_ERROR_BYTES && !line.contains('\n'), "{}", line.len());
    }
}
