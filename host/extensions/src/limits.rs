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
/// Dialogs of one extension that are open at the same time, by default.
pub const DEFAULT_OPEN_DIALOGS: usize = 64;
/// Notifications of one extension that wait, by default.
pub const DEFAULT_QUEUED_NOTIFICATIONS: usize = 1_024;
/// Calls of one extension that wait to be started, by default.
pub const DEFAULT_WAITING_CALLS: usize = 4_096;
/// What is kept of each output of a program that an extension runs, by default, in bytes.
pub const DEFAULT_EXEC_OUTPUT_BYTES: usize = 1024 * 1024;
/// Faults within a minute that disable an extension, by default.
pub const DEFAULT_FAULTS_PER_MINUTE: usize = 3;

const MEBIBYTE: usize = 1024 * 1024;

/// The largest component file that is read.
pub const MAX_COMPONENT_BYTES: u64 = 256 * 1024 * 1024;
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
/// Cancelled calls that a guest does not return from, after which its instance is
/// dropped even while others wait for calls of it.
pub(crate) const MAX_STUCK_CALLS: usize = 32;

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
/// Values in the JSON text of a guest. A value of two bytes (`0,`) takes the host some 70
/// once it is parsed, one of eight (`{"":0},`) some 700.
pub(crate) const MAX_JSON_VALUES: usize = 250_000;
/// Names, ids, labels, keys and titles.
pub(crate) const MAX_NAME_BYTES: usize = 4 * 1024;
/// A path that a guest names. Fixed by the WIT contract.
pub(crate) const MAX_PATH_BYTES: usize = 4 * 1024;
/// A system prompt, the text of a message, a summary, and instructions for one.
pub(crate) const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;
/// Messages or a provider's payload, as the JSON text of an event or of its answer. Fixed
/// by the WIT contract.
pub(crate) const MAX_EVENT_DATA_BYTES: usize = 64 * 1024 * 1024;
/// Skills, and prompt templates, that one answer to `resources_discover` names. Fixed by
/// the WIT contract.
pub(crate) const MAX_DISCOVERED_PATHS: usize = 256;
/// A shell command. Fixed by the WIT contract.
pub(crate) const MAX_COMMAND_BYTES: usize = 1024 * 1024;
/// Data of an event between extensions. Fixed by the WIT contract.
pub(crate) const MAX_BUS_DATA_BYTES: usize = 1024 * 1024;
/// Events of other extensions that wait for one extension, in bytes.
pub(crate) const MAX_QUEUED_BUS_BYTES: usize = 16 * 1024 * 1024;
/// The first event of a chain, each sent by a handler of the one before, that is refused.
/// Fixed by the WIT contract.
pub(crate) const MAX_BUS_HOPS: u8 = 16;
/// Tools that one extension has registered at run time. Fixed by the WIT contract.
pub(crate) const MAX_RUNTIME_TOOLS: usize = 256;
/// Names of `set-active-tools`.
pub(crate) const MAX_ACTIVE_TOOLS: usize = 4_096;
/// Providers of one extension.
pub(crate) const MAX_PROVIDERS: usize = 64;
/// The configuration of a provider, as JSON text.
pub(crate) const MAX_PROVIDER_CONFIG_BYTES: usize = 1024 * 1024;
/// A piece of a reply. Fixed by the WIT contract.
pub(crate) const MAX_REPLY_PIECE_BYTES: usize = 1024 * 1024;
/// All pieces of one reply, [`REPLY_PIECE_OVERHEAD`] for each included.
pub(crate) const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;
/// What a piece of a reply costs besides its text.
pub(crate) const REPLY_PIECE_OVERHEAD: usize = 64;
/// The longest `sleep`. Fixed by the WIT contract.
pub(crate) const MAX_SLEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// A line of the log.
pub(crate) const MAX_LOG_LINE_BYTES: usize = 8 * 1024;
/// The end of a guest's stderr that is kept for error texts.
pub(crate) const STDERR_TAIL_BYTES: usize = 4 * 1024;
/// Frames of a trap's backtrace.
pub(crate) const MAX_BACKTRACE_FRAMES: usize = 64;
/// The name of a function, in an error or a backtrace.
pub(crate) const MAX_FUNCTION_NAME_BYTES: usize = 200;
/// The text of an `extension_error`.
pub(crate) const MAX_ERROR_BYTES: usize = 2_000;
/// A file that is read or written, the body of a request, the input of a program. Fixed by
/// the WIT contract.
pub(crate) const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;
/// Entries of a folder. Fixed by the WIT contract.
pub(crate) const MAX_FOLDER_ENTRIES: usize = 100_000;
/// File calls of one extension that work at the same time; others wait.
pub(crate) const MAX_FILE_OPERATIONS: usize = 4;
/// Contents, bodies and inputs that calls of one extension hold at the same time.
pub(crate) const MAX_HELD_BYTES: usize = 64 * 1024 * 1024;
/// Programs of one extension that run at the same time. Fixed by the WIT contract.
pub(crate) const MAX_EXEC_RUNNING: usize = 16;
/// Arguments of a program, all together; systems take about that much.
pub(crate) const MAX_ARGUMENT_BYTES: usize = 1024 * 1024;
/// Time of a program that names none. Fixed by the WIT contract.
pub(crate) const DEFAULT_EXEC_TIMEOUT: Duration = Duration::from_secs(60);
/// Responses of one extension that are open at the same time. Fixed by the WIT contract.
pub(crate) const MAX_OPEN_RESPONSES: usize = 16;
/// Redirects of one request that are followed. Fixed by the WIT contract.
pub(crate) const MAX_REDIRECTS: usize = 10;
/// Time of a request that names none, and the most that it may name. Fixed by the WIT
/// contract.
pub(crate) const DEFAULT_HTTP_TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const MAX_HTTP_TIMEOUT: Duration = Duration::from_secs(600);
/// Headers of a request: how many, and their names and values together.
pub(crate) const MAX_HEADERS: usize = 100;
pub(crate) const MAX_HEADER_BYTES: usize = 64 * 1024;
/// A URL that a guest or a redirect names.
pub(crate) const MAX_URL_BYTES: usize = 16 * 1024;
/// One piece of a response's body, and all of it. Fixed by the WIT contract.
pub(crate) const MAX_BODY_PIECE: usize = 64 * 1024;
pub(crate) const MAX_BODY_BYTES: u64 = 1024 * 1024 * 1024;
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
    /// time that start-up waits for an answer to `session_directory`, and that calls of
    /// a replaced instance have left.
    pub cancel_grace: Duration,
    /// Dialogs that are open at the same time; one more answers that there is no UI.
    pub open_dialogs: usize,
    /// Notifications that wait; further ones are dropped, and that is told.
    pub queued_notifications: usize,
    /// Calls that wait to be started; one more fails at once.
    pub waiting_calls: usize,
    /// Bytes that are kept of each output of a program that it runs.
    pub exec_output_bytes: usize,
    /// Faults within a minute that disable it.
    pub faults_per_minute: usize,
}

impl Limits {
    /// By their names in the settings, in words for people.
    pub fn describe(&self) -> Vec<(&'static str, String)> {
        vec![
            ("eventBudgetMs", milliseconds(self.event_budget)),
            ("commandBudgetMs", milliseconds(self.call_budget)),
            ("memoryMb", format!("{} MiB", self.memory_bytes / MEBIBYTE)),
            ("cancelGraceMs", milliseconds(self.cancel_grace)),
            ("maxOpenDialogs", self.open_dialogs.to_string()),
            ("maxQueuedNotifications", self.queued_notifications.to_string()),
            ("maxWaitingCalls", self.waiting_calls.to_string()),
            ("execOutputBytes", format!("{} bytes", self.exec_output_bytes)),
            ("faultsPerMinute", self.faults_per_minute.to_string()),
        ]
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            event_budget: DEFAULT_EVENT_BUDGET,
            call_budget: DEFAULT_CALL_BUDGET,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            cancel_grace: DEFAULT_CANCEL_GRACE,
            open_dialogs: DEFAULT_OPEN_DIALOGS,
            queued_notifications: DEFAULT_QUEUED_NOTIFICATIONS,
            waiting_calls: DEFAULT_WAITING_CALLS,
            exec_output_bytes: DEFAULT_EXEC_OUTPUT_BYTES,
            faults_per_minute: DEFAULT_FAULTS_PER_MINUTE,
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
