//! The smallest useful extension: a command that shows a message, and a tool whose
//! parameters are a Rust type.

use serde::Deserialize;
use wharf_sdk::{CommandCtx, CommandSpec, Extension, Parameters, Registration, Result, ToolCtx};

#[derive(Default)]
struct Hello;

#[derive(Deserialize, Parameters)]
struct Greet {
    /// Who is greeted.
    name: String,
}

impl Extension for Hello {
    fn register() -> Registration<Self> {
        Registration::new("hello", env!("CARGO_PKG_VERSION"))
            .description("Greets people.")
            .command_with(CommandSpec::new("hello", "Says hello").hint("[name]"), Self::hello)
            .tool("greet", "Greets a person by name.", Self::greet)
    }
}

impl Hello {
    async fn hello(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let name = if args.is_empty() { "world" } else { args };
        ctx.ui().notify(format!("Hello, {name}!"));
        Ok(())
    }

    async fn greet(&self, _ctx: &ToolCtx, args: Greet) -> Result<String> {
        Ok(format!("Hello, {}!", args.name))
    }
}

wharf_sdk::export!(Hello);
