//! What an extension offers, each offer with its handler. How the host's calls
//! reach the handlers is in `runtime`.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::bindings::wharf::extension::types as wit;
use crate::error::invalid_arguments;
use crate::{
    BeforeAgentStart, BeforeAgentStartEvent, CommandCtx, CommandSpec, Completion, Ctx, Event,
    FlagSpec, InputDecision, InputEvent, Json, Notification, Permission, Result,
    SessionBeforeSwitchEvent, ShortcutSpec, SwitchDecision, ToolCallDecision, ToolCallEvent,
    ToolCtx, ToolOutput, ToolResultEvent, ToolResultPatch, ToolSpec,
};

/// A handler whose future's type is forgotten: takes the extension and an input.
pub(crate) type Handler<E, I, O> =
    Box<dyn Fn(Rc<E>, I) -> Pin<Box<dyn Future<Output = Result<O>>>>>;

pub(crate) struct Command<E> {
    pub(crate) spec: CommandSpec,
    pub(crate) run: Handler<E, String, ()>,
    pub(crate) complete: Option<Handler<E, String, Vec<Completion>>>,
}

pub(crate) struct Tool<E> {
    pub(crate) spec: ToolSpec,
    pub(crate) execute: Handler<E, (ToolCtx, Json), ToolOutput>,
}

pub(crate) struct Follower<E> {
    pub(crate) events: Vec<Event>,
    pub(crate) notify: Handler<E, Notification, ()>,
}

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
pub struct Registration<E> {
    id: String,
    version: String,
    description: String,
    pub(crate) commands: Vec<Command<E>>,
    pub(crate) tools: Vec<Tool<E>>,
    pub(crate) followers: Vec<Follower<E>>,
    pub(crate) tool_call: Option<Handler<E, ToolCallEvent, ToolCallDecision>>,
    pub(crate) tool_result: Option<Handler<E, ToolResultEvent, ToolResultPatch>>,
    pub(crate) input: Option<Handler<E, InputEvent, InputDecision>>,
    pub(crate) before_agent_start: Option<Handler<E, BeforeAgentStartEvent, BeforeAgentStart>>,
    pub(crate) session_before_switch: Option<Handler<E, SessionBeforeSwitchEvent, SwitchDecision>>,
    flags: Vec<FlagSpec>,
    shortcuts: Vec<ShortcutSpec>,
    permissions: Vec<Permission>,
}

impl<E: 'static> Registration<E> {
    /// An extension that offers nothing yet. The id is stable, of `a-z 0-9 -`; the
    /// version is the extension's own.
    pub fn new(id: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            version: version.into(),
            description: String::new(),
            commands: Vec::new(),
            tools: Vec::new(),
            followers: Vec::new(),
            tool_call: None,
            tool_result: None,
            input: None,
            before_agent_start: None,
            session_before_switch: None,
            flags: Vec::new(),
            shortcuts: Vec::new(),
            permissions: Vec::new(),
        }
    }

    /// Says in a line what the extension is for.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
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
        assert!(
            !self.commands.iter().any(|command| command.spec.name == spec.name),
            "the command {} is added twice",
            spec.name
        );
        let handler = Rc::new(handler);
        let run: Handler<E, String, ()> = Box::new(move |extension, args| {
            let handler = Rc::clone(&handler);
            Box::pin(async move { handler(&extension, &CommandCtx::new(), &args).await })
        });
        self.commands.push(Command { spec, run, complete: None });
        self
    }

    /// Offers values for the argument of a command that was added before. The
    /// handler gets what the person has written of it.
    ///
    /// # Panics
    /// When the extension has no command of that name.
    #[must_use]
    pub fn complete<F>(mut self, command: &str, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, &str) -> Result<Vec<Completion>> + 'static,
    {
        let found = self.commands.iter_mut().find(|candidate| candidate.spec.name == command);
        let Some(found) = found else { panic!("there is no command {command} to complete") };
        let handler = Rc::new(handler);
        found.complete = Some(Box::new(move |extension, prefix| {
            let handler = Rc::clone(&handler);
            Box::pin(async move { handler(&extension, &Ctx::new(), &prefix).await })
        }));
        self
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
        P: DeserializeOwned + JsonSchema + 'static,
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
        P: DeserializeOwned + JsonSchema + 'static,
        O: Into<ToolOutput> + 'static,
        F: AsyncFn(&E, &ToolCtx, P) -> Result<O> + 'static,
    {
        assert!(
            !self.tools.iter().any(|tool| tool.spec.name == spec.name),
            "the tool {} is added twice",
            spec.name
        );
        let handler = Rc::new(handler);
        let execute: Handler<E, (ToolCtx, Json), ToolOutput> =
            Box::new(move |extension, (ctx, input)| {
                let handler = Rc::clone(&handler);
                Box::pin(async move {
                    let args = input
                        .parse::<P>()
                        .map_err(|error| invalid_arguments(ctx.tool_name(), &error))?;
                    Ok(handler(&extension, &ctx, args).await?.into())
                })
            });
        self.tools.push(Tool { spec: spec.with_schema_of::<P>(), execute });
        self
    }

    /// Decides on every tool call before it runs.
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_tool_call<F>(mut self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, ToolCallEvent) -> Result<ToolCallDecision> + 'static,
    {
        set_once(&mut self.tool_call, "tool_call", event_handler(handler));
        self
    }

    /// Changes the results of tools before anybody sees them.
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_tool_result<F>(mut self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, ToolResultEvent) -> Result<ToolResultPatch> + 'static,
    {
        set_once(&mut self.tool_result, "tool_result", event_handler(handler));
        self
    }

    /// Changes or takes over what a person or a program says to the model.
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_input<F>(mut self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, InputEvent) -> Result<InputDecision> + 'static,
    {
        set_once(&mut self.input, "input", event_handler(handler));
        self
    }

    /// Adds a message to a run that is about to start, or changes its system prompt.
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_before_agent_start<F>(mut self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, BeforeAgentStartEvent) -> Result<BeforeAgentStart> + 'static,
    {
        set_once(&mut self.before_agent_start, "before_agent_start", event_handler(handler));
        self
    }

    /// Decides whether another session may become the current one.
    ///
    /// # Panics
    /// When there is a handler already.
    #[must_use]
    pub fn on_session_before_switch<F>(mut self, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, SessionBeforeSwitchEvent) -> Result<SwitchDecision> + 'static,
    {
        set_once(&mut self.session_before_switch, "session_before_switch", event_handler(handler));
        self
    }

    /// Follows notifications. Several handlers may follow the same one; they run
    /// in the order in which they were added.
    #[must_use]
    pub fn on_notification<F>(mut self, events: impl IntoIterator<Item = Event>, handler: F) -> Self
    where
        F: AsyncFn(&E, &Ctx, Notification) -> Result<()> + 'static,
    {
        let events = events.into_iter().collect();
        self.followers.push(Follower { events, notify: event_handler(handler) });
        self
    }

    /// Adds a command-line flag.
    #[must_use]
    pub fn flag(mut self, flag: FlagSpec) -> Self {
        self.flags.push(flag);
        self
    }

    /// Adds a key binding.
    #[must_use]
    pub fn shortcut(mut self, shortcut: ShortcutSpec) -> Self {
        self.shortcuts.push(shortcut);
        self
    }

    /// Asks for a permission.
    #[must_use]
    pub fn permission(mut self, permission: Permission) -> Self {
        self.permissions.push(permission);
        self
    }

    /// Names of the events that have a handler, each once.
    fn subscriptions(&self) -> Vec<String> {
        let mut names: Vec<&str> = Vec::new();
        let answered = [
            ("tool_call", self.tool_call.is_some()),
            ("tool_result", self.tool_result.is_some()),
            ("input", self.input.is_some()),
            ("before_agent_start", self.before_agent_start.is_some()),
            ("session_before_switch", self.session_before_switch.is_some()),
        ];
        names.extend(answered.into_iter().filter(|(_, handled)| *handled).map(|(name, _)| name));
        for event in self.followers.iter().flat_map(|follower| &follower.events) {
            if !names.contains(&event.name()) {
                names.push(event.name());
            }
        }
        names.into_iter().map(str::to_owned).collect()
    }

    pub(crate) fn into_wit(self) -> wit::Registration {
        wit::Registration {
            subscriptions: self.subscriptions(),
            id: self.id,
            version: self.version,
            description: self.description,
            commands: self.commands.into_iter().map(|command| command.spec.into_wit()).collect(),
            tools: self.tools.into_iter().map(|tool| tool.spec.into_wit()).collect(),
            flags: self.flags.into_iter().map(FlagSpec::into_wit).collect(),
            shortcuts: self.shortcuts.into_iter().map(ShortcutSpec::into_wit).collect(),
            permissions: self.permissions.into_iter().map(Permission::into_wit).collect(),
        }
    }
}

impl<E> fmt::Debug for Registration<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("id", &self.id)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

fn event_handler<E, I, O, F>(handler: F) -> Handler<E, I, O>
where
    E: 'static,
    I: 'static,
    O: 'static,
    F: AsyncFn(&E, &Ctx, I) -> Result<O> + 'static,
{
    let handler = Rc::new(handler);
    Box::new(move |extension, event| {
        let handler = Rc::clone(&handler);
        Box::pin(async move { handler(&extension, &Ctx::new(), event).await })
    })
}

fn set_once<T>(slot: &mut Option<T>, event: &str, handler: T) {
    assert!(slot.is_none(), "{event} has two handlers");
    *slot = Some(handler);
}
