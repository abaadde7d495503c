//! A mode for planning: `/plan` leaves the model only tools that read, and `bash` only
//! with commands that do. `--plan` begins in it. The mode is kept in the session.
//!
//! No permissions.

use std::cell::RefCell;

use wharf_sdk::{
    BuiltinCall, CommandCtx, Ctx, Entry, Event, Extension, FlagSpec, Notification, Registration,
    Result, ShortcutSpec, ToolCallDecision, ToolCallEvent,
};

/// What the model may use while it plans.
const READING: [&str; 6] = ["read", "grep", "find", "ls", "bash", "ask_user"];

/// Commands that only look, by their first word.
const LOOKING: [&str; 14] = [
    "cat", "cd", "diff", "du", "echo", "file", "find", "grep", "head", "ls", "pwd", "rg", "tail",
    "wc",
];

const MODE: &str = "plan-mode";

#[derive(Default)]
struct PlanMode {
    /// The tools from before, while the mode is on.
    before: RefCell<Option<Vec<String>>>,
}

impl Extension for PlanMode {
    fn register() -> Registration<Self> {
        Registration::new("plan-mode", env!("CARGO_PKG_VERSION"))
            .description("Plans without changing anything.")
            .command("plan", "Turns the planning mode on or off", Self::toggle)
            .shortcut(ShortcutSpec::new("ctrl+alt+p", "Planning mode", "plan"))
            .flag(FlagSpec::switch("plan", "Begin in planning mode"))
            .on_notification(
                [Event::SessionStart, Event::SessionSwitch, Event::SessionFork, Event::SessionTree],
                Self::session,
            )
            .on_tool_call(Self::tool_call)
    }
}

impl PlanMode {
    fn is_on(&self) -> bool {
        self.before.borrow().is_some()
    }

    async fn toggle(&self, ctx: &CommandCtx, _: &str) -> Result<()> {
        let on = !self.is_on();
        self.set(ctx, on, None)?;
        // With the tools of before: after a reload only the session knows them.
        ctx.session().append_entry(MODE, &*self.before.borrow())?;
        ctx.ui().notify(if on { "Planning: nothing is changed" } else { "Planning is over" });
        Ok(())
    }

    async fn session(&self, ctx: &Ctx, _: Notification) -> Result<()> {
        let (mut on, mut before) = (ctx.agent().flag("plan").is_set(), None);
        for entry in ctx.session().branch()? {
            if let Entry::Custom { custom_type, data: Some(data), .. } = entry
                && custom_type == MODE
            {
                before = data.parse::<Option<Vec<String>>>()?;
                on = before.is_some();
            }
        }
        self.set(ctx, on, before)
    }

    /// `before`: the tools that there are without the mode, where that is known.
    fn set(&self, ctx: &Ctx, on: bool, before: Option<Vec<String>>) -> Result<()> {
        if on == self.is_on() {
            return Ok(());
        }
        let agent = ctx.agent();
        if on {
            let before = before.unwrap_or_else(|| agent.active_tools());
            let reading = before.iter().filter(|name| READING.contains(&name.as_str()));
            agent.set_active_tools(reading.cloned())?;
            ctx.ui().set_status(MODE, "planning");
            *self.before.borrow_mut() = Some(before);
        } else {
            let before = self.before.take().unwrap_or_default();
            agent.set_active_tools(before)?;
            ctx.ui().clear_status(MODE);
        }
        Ok(())
    }

    async fn tool_call(&self, _: &Ctx, event: ToolCallEvent) -> Result<ToolCallDecision> {
        if !self.is_on() {
            return Ok(ToolCallDecision::Allow);
        }
        Ok(match event.builtin()? {
            Some(BuiltinCall::Bash(bash)) if !only_looks(&bash.command) => {
                ToolCallDecision::block("planning mode: this command may change something")
            }
            _ if READING.contains(&event.tool_name.as_str()) => ToolCallDecision::Allow,
            _ => ToolCallDecision::block("planning mode: only tools that read are there"),
        })
    }
}

/// True for a plain list or pipe of commands that only look. Anything that the shell
/// would expand or redirect is taken for a change.
fn only_looks(command: &str) -> bool {
    let plain = !command.contains(['>', '<', '`', '$', '(', '{', '\n', '\\', '\'', '"']);
    let mut parts = command.split([';', '|', '&']).map(str::trim).filter(|part| !part.is_empty());
    plain
        && parts.all(|part| {
            let mut words = part.split_whitespace();
            let first = words.next().unwrap_or_default();
            let acts = |word: &str| {
                matches!(word, "-exec" | "-execdir" | "-delete" | "-ok" | "--pre")
                    || word.starts_with("-fprint")
                    || word == "-fls"
                    || word.starts_with("--pre=")
                    || word.starts_with("--hostname-bin")
            };
            LOOKING.contains(&first) && !words.any(acts)
        })
}

wharf_sdk::export!(PlanMode);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_may_change_something_are_told_from_those_that_look() {
        for command in ["ls -la", "cat a | grep b", "cd src && rg todo; pwd"] {
            assert!(only_looks(command), "{command}");
        }
        for command in [
            "rm a",
            "ls > a",
            "echo $(rm a)",
            "find . -delete",
            "find . -exec rm {} +",
            "ls; rm a",
            "ls\nrm a",
            "rg --pre=sh x",
            "sudo ls",
            "find . \"-delete\"",
            "find . -fls a",
        ] {
            assert!(!only_looks(command), "{command}");
        }
    }
}
