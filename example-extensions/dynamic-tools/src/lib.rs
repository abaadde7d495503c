//! Tools that come and go while Wharf runs: `/teach NAME TEXT` gives the model a tool
//! that answers TEXT, `/forget NAME` takes it back.
//!
//! No permissions.

use std::cell::RefCell;

use serde::Deserialize;
use wharf_sdk::{
    CommandCtx, CommandSpec, Completion, Ctx, Error, Extension, Parameters, Registration, Result,
    ToolSpec,
};

#[derive(Deserialize, Parameters)]
struct NoArguments {}

#[derive(Default)]
struct DynamicTools {
    taught: RefCell<Vec<String>>,
}

impl Extension for DynamicTools {
    fn register() -> Registration<Self> {
        Registration::new("dynamic-tools", env!("CARGO_PKG_VERSION"))
            .description("Teaches the model tools while it runs.")
            .command_with(CommandSpec::new("teach", "Adds a tool").hint("NAME TEXT"), Self::teach)
            .command_with(
                CommandSpec::new("forget", "Takes a tool back").hint("NAME"),
                Self::forget,
            )
            .complete("forget", Self::known)
    }
}

impl DynamicTools {
    async fn teach(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let usage = || Error::from("say /teach NAME TEXT");
        let (name, text) = args.split_once(' ').ok_or_else(usage)?;
        let (name, text) = (name.to_owned(), text.trim().to_owned());
        let spec = ToolSpec::new(&name, format!("Tells what is known of {name}."));
        ctx.agent().register_tool(spec, async move |_, _: NoArguments| Ok(text.clone()))?;
        self.taught.borrow_mut().retain(|known| *known != name);
        ctx.ui().notify(format!("The model has a tool {name} now"));
        self.taught.borrow_mut().push(name);
        Ok(())
    }

    async fn forget(&self, ctx: &CommandCtx, name: &str) -> Result<()> {
        if !ctx.agent().unregister_tool(name) {
            return Err(Error::from(format!("there is no tool {name} that was taught")));
        }
        self.taught.borrow_mut().retain(|known| known != name);
        ctx.ui().notify(format!("{name} is forgotten"));
        Ok(())
    }

    async fn known(&self, _: &Ctx, prefix: &str) -> Result<Vec<Completion>> {
        let taught = self.taught.borrow();
        let fits = taught.iter().filter(|name| name.starts_with(prefix));
        Ok(fits.map(Completion::new).collect())
    }
}

wharf_sdk::export!(DynamicTools);
