//! Tools that come and go while the extension runs, and their handlers.

use std::cell::RefCell;
use std::rc::Rc;

use serde::de::DeserializeOwned;

use crate::bindings::wharf::extension::{agent, types as wit};
use crate::error::text;
use crate::handlers::{self, Answer, DynamicTool};
use crate::tool::arguments;
use crate::{Agent, Parameters, Result, ToolCtx, ToolOutput, ToolSpec};

type Start = Rc<dyn Fn(wit::ToolInvocation) -> Answer<wit::ToolOutput>>;

thread_local! {
    static TOOLS: RefCell<Vec<(String, Start)>> = const { RefCell::new(Vec::new()) };
}

impl Agent {
    /// Adds a tool now; its JSON Schema is that of the handler's argument type, unless
    /// the [`ToolSpec`] has one. It is there until
    /// [`unregister_tool`](Self::unregister_tool), or until the extension is reloaded.
    /// One of that name that was added before is replaced. At most 256 tools.
    ///
    /// Wharf makes a new instance after a fault, whose handler must be there again:
    /// add tools when [`Event::SessionStart`](crate::Event::SessionStart) arrives.
    ///
    /// ```
    /// # use wharf_sdk::{Ctx, Result, ToolSpec};
    /// #[derive(serde::Deserialize, wharf_sdk::Parameters)]
    /// struct Echo {
    ///     text: String,
    /// }
    ///
    /// fn add_echo(ctx: &Ctx, times: usize) -> Result<()> {
    ///     let spec = ToolSpec::new("echo", "Gives the text back.");
    ///     ctx.agent().register_tool(spec, async move |_ctx, args: Echo| Ok(args.text.repeat(times)))
    /// }
    /// ```
    ///
    /// # Errors
    /// `Invalid` when another tool has the name, or the host does not accept the
    /// description.
    pub fn register_tool<P, O, F>(self, spec: ToolSpec, handler: F) -> Result<()>
    where
        P: DeserializeOwned + Parameters + 'static,
        O: Into<ToolOutput> + 'static,
        F: AsyncFn(&ToolCtx, P) -> Result<O> + 'static,
    {
        let handler = Rc::new(handler);
        let start: Start = Rc::new(move |call| {
            let handler = Rc::clone(&handler);
            Box::pin(async move {
                let (ctx, input) = ToolCtx::of_call(call);
                let args = arguments::<P>(&ctx, &input).map_err(text)?;
                handler(&ctx, args).await.map(|output| output.into().into()).map_err(text)
            })
        });
        register(spec.with_schema_of::<P>(), start)
    }

    /// Takes back a tool that was added at run time. False: there is none of that name.
    /// A call that runs goes on.
    pub fn unregister_tool(self, name: impl AsRef<str>) -> bool {
        let name = name.as_ref();
        forget(name);
        agent::unregister_tool(name)
    }
}

fn register(spec: ToolSpec, start: Start) -> Result<()> {
    agent::register_tool(&spec.0)?;
    serve(spec.0.name, start);
    Ok(())
}

fn serve(name: String, start: Start) {
    handlers::add_once::<DynamicTool>(&|call| run(call));
    forget(&name);
    TOOLS.with_borrow_mut(|tools| tools.push((name, start)));
}

fn forget(name: &str) {
    // Dropped outside of the borrow: what a handler owns may come back to here.
    let gone: Vec<_> =
        TOOLS.with_borrow_mut(|tools| tools.extract_if(.., |(other, _)| other == name).collect());
    drop(gone);
}

fn run(call: wit::ToolInvocation) -> Answer<wit::ToolOutput> {
    let start = TOOLS.with_borrow(|tools| {
        let found = tools.iter().find(|(name, _)| *name == call.tool_name);
        found.map(|(_, start)| Rc::clone(start))
    });
    match start {
        Some(start) => start(call),
        None => Box::pin(async move { Err(handlers::no_tool(&call.tool_name)) }),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use std::cell::Cell;

    use futures::FutureExt;

    use super::*;

    fn call(name: &str) -> Result<wit::ToolOutput, String> {
        let call = wit::ToolInvocation {
            tool_call_id: "c1".into(),
            tool_name: name.into(),
            input: "{}".into(),
        };
        let running = handlers::run::<DynamicTool>("", call);
        running.now_or_never().unwrap().unwrap_or_else(|| Err("no table".into()))
    }

    struct Dropped(Rc<Cell<u32>>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn the_newest_tool_of_a_name_runs_and_one_that_is_gone_is_freed() {
        let dropped = Rc::new(Cell::new(0));
        let tool = |said: &'static str| -> Start {
            let owned = Dropped(Rc::clone(&dropped));
            Rc::new(move |_| {
                let _ = &owned;
                Box::pin(async move { Ok(ToolOutput::text(said).into()) })
            })
        };
        assert_eq!(call("a").unwrap_err(), "no table");
        serve("a".into(), tool("first"));
        serve("b".into(), tool("other"));
        assert_eq!(call("a").unwrap(), ToolOutput::text("first").into());
        serve("a".into(), tool("second"));
        assert_eq!(dropped.get(), 1);
        assert_eq!(call("a").unwrap(), ToolOutput::text("second").into());
        assert_eq!(call("b").unwrap(), ToolOutput::text("other").into());
        forget("a");
        assert_eq!(dropped.get(), 2);
        assert_eq!(call("a").unwrap_err(), "this extension has no tool a");
    }
}
