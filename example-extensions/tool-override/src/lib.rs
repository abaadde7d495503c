//! Stands in for the built-in `bash`: refuses what would wait for a terminal, and
//! otherwise has the built-in do the work and notes in the details how often it has.
//!
//! No permissions: the built-in runs what the model asked for, with the checks that it
//! would have passed anyway.

use std::cell::Cell;

use serde::{Deserialize, Serialize};
use wharf_sdk::serde_json::value::RawValue;
use wharf_sdk::{Extension, Json, Parameters, Registration, Result, ToolCtx, ToolOutput, ToolSpec};

/// Programs that take over the terminal.
const INTERACTIVE: [&str; 6] = ["vi", "vim", "nano", "less", "top", "man"];

#[derive(Serialize, Deserialize, Parameters)]
struct Bash {
    /// The command.
    command: String,
    /// Seconds until it is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<u32>,
}

/// Kept with the result; the model does not see it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    calls: u32,
    built_in: Option<&'a RawValue>,
}

#[derive(Default)]
struct ToolOverride {
    calls: Cell<u32>,
}

impl Extension for ToolOverride {
    fn register() -> Registration<Self> {
        let bash = ToolSpec::new("bash", "Runs a command in a shell that has no terminal.")
            .prompt_snippet("run shell commands, without a terminal")
            .overrides_builtin();
        Registration::new("tool-override", env!("CARGO_PKG_VERSION"))
            .description("A bash that refuses interactive programs.")
            .tool_with(bash, Self::bash)
    }
}

impl ToolOverride {
    async fn bash(&self, ctx: &ToolCtx, call: Bash) -> Result<ToolOutput> {
        let program = call.command.split_whitespace().next().unwrap_or_default();
        if INTERACTIVE.contains(&program) {
            return Ok(ToolOutput::error(format!("{program} needs a terminal; there is none")));
        }
        self.calls.set(self.calls.get() + 1);
        let output = ctx.call_built_in(&call).await?;
        let of_built_in = output.details.as_ref().map(Json::parse::<&RawValue>).transpose()?;
        let details = Json::of(&Details { calls: self.calls.get(), built_in: of_built_in })?;
        Ok(output.with_details(details))
    }
}

wharf_sdk::export!(ToolOverride);
