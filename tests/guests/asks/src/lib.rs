//! Registers one of everything that a person sees before it runs: flags, a shortcut,
//! permissions, a command with completions.
//!
//! - `/flags` shows `plan: PRESENT, depth: VALUE` as they stood on the command line.
//! - The description of the flag `depth` tries to move the terminal's cursor.

use wharf_sdk::{
    CommandCtx, CommandSpec, Completion, Ctx, Extension, FlagSpec, FlagValue, Permission,
    Registration, Result, ShortcutSpec,
};

#[derive(Default)]
struct Asks;

impl Extension for Asks {
    fn register() -> Registration<Self> {
        Registration::new("asks", "0.1.0")
            .description("Asks for \u{1b}[31mmuch.")
            .command_with(CommandSpec::new("flags", "Shows flags").hint("[one]"), Self::flags)
            .complete("flags", Self::offers)
            .flag(FlagSpec::switch("plan", "Plans only"))
            .flag(FlagSpec::value("depth", "How \u{1b}[2Jdeep"))
            .flag(FlagSpec::switch("model", "Is Wharf's own"))
            .shortcut(ShortcutSpec::new("ctrl+f", "Shows flags", "flags"))
            .permission(Permission::exec(["git", "status", "**"]))
            .permission(Permission::net("example.org"))
    }
}

impl Asks {
    async fn flags(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        let shown = |name: &str| match ctx.agent().flag(name) {
            FlagValue::Absent => "absent".to_owned(),
            FlagValue::Present => "present".to_owned(),
            FlagValue::Value(value) => value,
        };
        ctx.ui().notify(format!("plan: {}, depth: {}", shown("plan"), shown("depth")));
        Ok(())
    }

    async fn offers(&self, _ctx: &Ctx, prefix: &str) -> Result<Vec<Completion>> {
        let names = ["plan", "depth"].into_iter().filter(|name| name.starts_with(prefix));
        Ok(names.map(|name| Completion::new(name).description("A flag")).collect())
    }
}

wharf_sdk::export!(Asks);
