//! Lines for the log file.

use crate::bindings::log::{Host, Level as WitLevel};
use crate::log_file::Level;
use crate::state::State;

impl Host for State {
    fn write(&mut self, level: WitLevel, message: String) {
        let level = match level {
            WitLevel::Debug => Level::Debug,
            WitLevel::Info => Level::Info,
            WitLevel::Warn => Level::Warn,
            WitLevel::Error => Level::Error,
        };
        self.log(level, &message);
    }
}
