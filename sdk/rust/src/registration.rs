//! What an extension offers, each offer with its handler; those for events about
//! sessions are in `session`, those about requests to the model in `request`. How the host's calls reach the handlers is in `runtime`.

mod request;
mod session;

use std::cell::OnceCell;
use std::fmt;

use serde::de::DeserializeOwned;

use crate::bindings::wharf::extension::types as wit;
use crate::error::text;
use crate::handlers::{
    self, Answer, BeforeAgentStart as BeforeAgentStartKind, Command, Completer, Follower, Input,
    Kind, Tool, ToolCall, ToolResult,
};
use crate::tool::{arguments, convert};
use crate::{
    BeforeAgentStart, BeforeAgentStartEvent, CommandCtx, CommandSpec, Completion, Ctx, Event,
    Extension, FlagSpec, InputDecision, InputEvent, Notification, Parameters, Permission, Result,
    ShortcutSpec, ToolCallDecision, ToolCallEvent, ToolCtx, ToolOutput, ToolResultEvent,
    ToolResultPatch, ToolSpec,
};

/// A handler and the extension that it is a method of, whose value is made when the
/// first handler runs.
struct Method<E: 'static, F> {
    extension: &'static OnceCell<E>,
    handler: F,
}

impl<E: Extension, F> Method<E, F> {
    fn extension(&self) -> &E {
        self.extension.get_or_init(E::default)
    }
}

/// Puts a handler into its table.
type Install<E> = Box<dyn FnOnce(&'static OnceCell<E>)>;

/// What an extension offers. Handlers are methods of the extension, named by
/// path: `Self::hello`.
///
/// A handler for an event is also the subscription to it; an event without a
/// handler never reaches the extension.
///
/// ```
/// # use wharf_sdk::{CommandCtx, Completion, Ctx, Result};
/// use wharf_sdk::{CommandSpec, Event, Extension, Notification, Registration};
///
/// # #[derive(Default)]
/// # struct Counter;
/// impl Extension for Counter {
///     fn register() -> Registration<Self> {
///         Registration::new("counter", env!("CARGO_PKG_VERSION"))
///             .description("Counts turns.")
///             .command("turns", "Shows how many turns there were", Self::turns)
///             .command_with(CommandSpec::new("count", "Starts at a number").hint("[from]"), Self::count)
///             .complete("count", Self::offers)
///             .on_notification([Event::TurnEnd], Self::turn_ended)
///     }
/// }
/// # impl Counter {
/// #     async fn turns(&self, _: &CommandCtx, _: &str) -> Result<()> { Ok(()) }
/// #     async fn count(&self, _: &CommandCtx, _: &str) -> Result<()> { Ok(()) }
/// #     async fn offers(&self, _: &Ctx, _: &str) -> Result<Vec<Completion>> { Ok(Vec::new()) }
/// #     async fn turn_ended(&self, _: &Ctx, _: Notification) -> Result<()> { Ok(()) }
/// # }
/// ```
pub struct Registration<E: 'static> {
    data: wit::Registration,
    installs: Vec<Install<E>>,
    has_reply_source: bool,
}

impl<E: Extension> Registration<E> {
    /// An extension that offers nothing yet. The id is stable, of `a-z 0-9 -`; the
    /// version is the extension's own.
    pub fn new(id: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            data: wit::Registration {
                id: id.into(),
                version: version.into(),
                description: String::new(),
                commands: Vec::new(),
                tools: Vec::new(),
                subscriptions: Vec::new(),
                flags: Vec::new(),
                shortcuts: Vec::new(),
                permissions: Vec::new(),
            },
            installs: Vec::new(),
            has_reply_source: false,
        }
    }

    /// Says in a line what the extension is for.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.data.description = description.into();
        self
    }

    /// Adds a command. The handler gets all text after the command's name, trimmed.
    #[must_use]
    pub fn command<F>(
        self,
        name: impl Into<String>,
        description: impl Into<String>,
        handler: F,
    ) -> Self
    where
        F: AsyncFn(&E, &CommandCtx, &str) -> Result<()> + 'static,
    {
        self.command_with(CommandSpec::new(name, description), handler)
    }

    /// Adds a command that says more than its name and description.
    ///
    /// # Panics
    /// When the extension has a command of that name.
    #[must_use]
    pub fn command_with<F>(mut self, spec: CommandSpec, handler: F) -> Self
    where
        F: AsyncFn(&E, &CommandCtx, &str) -> Result<()> + 'static,
    {
        let name = add_command(&mut self.data, spec);
        self.serve::<Command, _, _>(vec![name], handler, |method, args| async move {
            let done = (method.handler)(method.extension(), &CommandCtx::new(), &args).await;
            done.map_err(text)
        })
    }

    /// Offers values for the argument of a command that was added before. The
    /// handler gets what the person has written of it.
    ///
    /// # Panics
    /// When the extension has no command of that name.
    #[must_use]
    pub fn complete<F>(self, command: &str, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, &str) -> Result<Vec<Completion>> + 'static,
    {
        assert!(
            self.data.commands.iter().any(|candidate| candidate.name == command),
            "there is no command {command} to complete"
        );
        let name = command.to_owned();
        self.serve::<Completer, _, _>(vec![name], handler, |method, prefix| async move {
            let offers = (method.handler)(method.extension(), &Ctx::new(), &prefix).await;
            offers.map(convert).map_err(text)
        })
    }

    /// Adds a tool. Its JSON Schema is that of the handler's argument type, and the
    /// handler may give a `String` or a [`ToolOutput`]. An error becomes an error
    /// result that the model reads.
    #[must_use]
    pub fn tool<P, O, F>(
        self,
        name: impl Into<String>,
        description: impl Into<String>,
        handler: F,
    ) -> Self
    where
        P: DeserializeOwned + Parameters + 'static,
        O: Into<ToolOutput> + 'static,
        F: AsyncFn(&E, &ToolCtx, P) -> Result<O> + 'static,
    {
        self.tool_with(ToolSpec::new(name, description), handler)
    }

    /// Adds a tool that says more than its name and description.
    ///
    /// # Panics
    /// When the extension has a tool of that name.
    #[must_use]
    pub fn tool_with<P, O, F>(mut self, spec: ToolSpec, handler: F) -> Self
    where
        P: DeserializeOwned + Parameters + 'static,
        O: Into<ToolOutput> + 'static,
        F: AsyncFn(&E, &ToolCtx, P) -> Result<O> + 'static,
    {
        let name = add_tool(&mut self.data, spec.with_schema_of::<P>());
        self.serve::<Tool, _, _>(vec![name], handler, |method, call| async move {
            let (ctx, input) = ToolCtx::of_call(call);
            let args = arguments::<P>(&ctx, &input).map_err(text)?;
            let output = (method.handler)(method.extension(), &ctx, args).await;
            output.map(|output| output.into().into()).map_err(text)
        })
    }

    /// Decides on every tool call before it runs.
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_tool_call<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, ToolCallEvent) -> Result<ToolCallDecision> + 'static,
    {
        self.answer::<ToolCall, _, _, _>("tool_call", handler)
    }

    /// Changes the results of tools before anybody sees them.
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_tool_result<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, ToolResultEvent) -> Result<ToolResultPatch> + 'static,
    {
        self.answer::<ToolResult, _, _, _>("tool_result", handler)
    }

    /// Changes or takes over what a person or a program says to the model.
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_input<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, InputEvent) -> Result<InputDecision> + 'static,
    {
        self.answer::<Input, _, _, _>("input", handler)
    }

    /// Adds a message to a run that is about to start, or changes its system prompt.
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_before_agent_start<F>(self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, BeforeAgentStartEvent) -> Result<BeforeAgentStart> + 'static,
    {
        self.answer::<BeforeAgentStartKind, _, _, _>("before_agent_start", handler)
    }

    /// Follows notifications. Several handlers may follow the same one; they run
    /// in the order in which they were added.
    #[must_use]
    pub fn on_notification<F>(mut self, events: impl IntoIterator<Item = Event>, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, Notification) -> Result<()> + 'static,
    {
        let mut names: Vec<String> = Vec::new();
        for event in events {
            if !names.iter().any(|name| name == event.name()) {
                names.push(event.name().to_owned());
            }
        }
        for name in &names {
            subscribe(&mut self.data, name);
        }
        self.installs.push(Box::new(|_| handlers::tell_followers()));
        self.serve::<Follower, _, _>(names, handler, |method, event| async move {
            let done = (method.handler)(method.extension(), &Ctx::new(), event).await;
            done.map_err(text)
        })
    }

    /// Adds a command-line flag, whose value is [`Agent::flag`](crate::Agent::flag).
    ///
    /// ```
    /// # use wharf_sdk::Ctx;
    /// use wharf_sdk::{Extension, FlagSpec, Registration};
    ///
    /// # #[derive(Default)]
    /// # struct Plan;
    /// impl Extension for Plan {
    ///     fn register() -> Registration<Self> {
    ///         Registration::new("plan", "0.1.0")
    ///             .flag(FlagSpec::switch("plan", "Begins in plan mode"))
    ///             .flag(FlagSpec::value("plan-file", "Where the plan is kept"))
    ///     }
    /// }
    ///
    /// fn plan_file(ctx: &Ctx) -> String {
    ///     ctx.agent().flag("plan-file").value().unwrap_or_else(|| "PLAN.md".to_owned())
    /// }
    /// ```
    #[must_use]
    pub fn flag(mut self, flag: FlagSpec) -> Self {
        self.data.flags.push(flag.0);
        self
    }

    /// Adds a key binding.
    #[must_use]
    pub fn shortcut(mut self, shortcut: ShortcutSpec) -> Self {
        self.data.shortcuts.push(shortcut.0);
        self
    }

    /// Asks for a permission.
    #[must_use]
    pub fn permission(mut self, permission: Permission) -> Self {
        self.data.permissions.push(permission.into_wit());
        self
    }

    /// Asks for several permissions.
    #[must_use]
    pub fn permissions(self, permissions: impl IntoIterator<Item = Permission>) -> Self {
        permissions.into_iter().fold(self, Self::permission)
    }

    /// Takes a handler for what has these names.
    fn serve<K: Kind, F: 'static, A>(
        mut self,
        names: Vec<String>,
        handler: F,
        run: impl Fn(&'static Method<E, F>, K::Input) -> A + 'static,
    ) -> Self
    where
        A: Future<Output = Result<K::Output, String>> + 'static,
    {
        self.installs.push(Box::new(move |extension| {
            let method: &Method<E, F> = Box::leak(Box::new(Method { extension, handler }));
            let start = move |input| -> Answer<K::Output> { Box::pin(run(method, input)) };
            handlers::add::<K>(names, Box::leak(Box::new(start)));
        }));
        self
    }

    /// Takes the one handler of an event.
    fn answer<K, I, O, F>(self, event: &'static str, handler: F) -> Self
    where
        K: Kind<Input: Into<I>, Output: From<O>>,
        F: AsyncFn(&E, &Ctx, I) -> Result<O> + 'static,
        O: 'static,
    {
        self.answer_with::<K, I, O, F, _>(event, handler, K::Output::from)
    }

    /// Takes the one handler of an event, with a way to make its answer the host's.
    fn answer_with<K, I, O, F, C>(mut self, event: &'static str, handler: F, convert: C) -> Self
    where
        K: Kind<Input: Into<I>>,
        F: AsyncFn(&E, &Ctx, I) -> Result<O> + 'static,
        C: Fn(O) -> K::Output + Copy + 'static,
    {
        let is_handled = self.data.subscriptions.iter().any(|name| name == event);
        assert!(!is_handled, "{event} has two handlers");
        subscribe(&mut self.data, event);
        self.serve::<K, _, _>(vec![event.to_owned()], handler, move |method, event| async move {
            let answer = (method.handler)(method.extension(), &Ctx::new(), event.into()).await;
            answer.map(convert).map_err(text)
        })
    }

    pub(crate) fn into_data(self) -> wit::Registration {
        self.data
    }

    /// Puts the handlers into their tables. Once in the life of an instance, and for
    /// all of it.
    pub(crate) fn install(self) {
        let extension = Box::leak(Box::default());
        for install in self.installs {
            install(extension);
        }
        // To free it once would take a kilobyte of code.
        std::mem::forget(self.data);
    }
}

impl<E: 'static> fmt::Debug for Registration<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("id", &self.data.id)
            .field("version", &self.data.version)
            .finish_non_exhaustive()
    }
}

// Apart from the methods, which are compiled anew for each handler.

fn add_command(data: &mut wit::Registration, spec: CommandSpec) -> String {
    let name = spec.0.name.clone();
    assert!(
        !data.commands.iter().any(|command| command.name == name),
        "the command {name} is added twice"
    );
    data.commands.push(spec.0);
    name
}

fn add_tool(data: &mut wit::Registration, spec: ToolSpec) -> String {
    let name = spec.0.name.clone();
    assert!(!data.tools.iter().any(|tool| tool.name == name), "the tool {name} is added twice");
    data.tools.push(spec.0);
    name
}

fn subscribe(data: &mut wit::Registration, event: &str) {
    if !data.subscriptions.iter().any(|name| name == event) {
        data.subscriptions.push(event.to_owned());
    }
}
