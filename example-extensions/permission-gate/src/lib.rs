//! Asks before the model runs a dangerous shell command, and blocks it unless a
//! person says "Yes". Every way in which a dialog can end has a reason of its own,
//! so that the model can tell "no" from "nobody was there".
//!
//! What counts as dangerous is in `danger`.

mod danger;

use wharf_sdk::{
    Answer, BuiltinCall, Ctx, Extension, Registration, Result, ToolCallDecision, ToolCallEvent,
};

const YES: &str = "Yes";
const NO: &str = "No";

#[derive(Default)]
struct PermissionGate;

impl Extension for PermissionGate {
    fn register() -> Registration<Self> {
        Registration::new("permission-gate", env!("CARGO_PKG_VERSION"))
            .description("Asks before rm -rf, sudo and chmod 777.")
            .on_tool_call(Self::tool_call)
    }
}

impl PermissionGate {
    async fn tool_call(&self, ctx: &Ctx, event: ToolCallEvent) -> Result<ToolCallDecision> {
        let Some(BuiltinCall::Bash(bash)) = event.builtin()? else {
            return Ok(ToolCallDecision::Allow);
        };
        if !danger::is_dangerous(&bash.command) {
            return Ok(ToolCallDecision::Allow);
        }
        let title = format!("⚠️ Dangerous command:\n\n  {}\n\nAllow?", bash.command);
        Ok(match ctx.ui().select(title, [YES, NO]).await {
            Answer::Answered(choice) if choice == YES => ToolCallDecision::Allow,
            Answer::Answered(_) => ToolCallDecision::block("Blocked by user"),
            Answer::Cancelled => {
                ToolCallDecision::block("Dangerous command blocked (confirmation cancelled)")
            }
            Answer::TimedOut => {
                ToolCallDecision::block("Dangerous command blocked (confirmation timed out)")
            }
            Answer::NoUi => {
                ToolCallDecision::block("Dangerous command blocked (no UI for confirmation)")
            }
        })
    }
}

wharf_sdk::export!(PermissionGate);
