//! Progress of a running tool call, to whoever runs it.

use crate::bindings::progress::Host;
use crate::bindings::types::ToolOutput;
use crate::convert;
use crate::log_file::Level;
use crate::state::{CallKind, State};

impl Host for State {
    fn update(&mut self, tool_call_id: String, output: ToolOutput) {
        let running = self.calls.values().find_map(|call| match &call.kind {
            CallKind::Tool { id, progress, .. } if *id == tool_call_id => Some(progress.clone()),
            _ => None,
        });
        let Some(progress) = running else {
            let id = crate::limits::cut(&tool_call_id, 100);
            return self.log(Level::Warn, &format!("progress for {id:?}, which does not run"));
        };
        match convert::tool_output(output) {
            Ok((output, _)) => progress.report(output),
            Err(problem) => self.log(Level::Warn, &format!("progress was dropped: {problem}")),
        }
    }
}
