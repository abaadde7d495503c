//! Write Wharf extensions in Rust.
//!
//! An extension is a type that implements [`Extension`]: it says in one
//! [`Registration`] what it offers, each offer with the method that serves it,
//! and [`export!`] makes a component of it.
//!
//! ```
//! use wharf_sdk::{CommandCtx, Extension, Registration, Result};
//!
//! #[derive(Default)]
//! struct Hello;
//!
//! impl Extension for Hello {
//!     fn register() -> Registration<Self> {
//!         Registration::new("hello", "0.1.0").command("hello", "Says hello", Self::hello)
//!     }
//! }
//!
//! impl Hello {
//!     async fn hello(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
//!         ctx.ui().notify(format!("Hello, {args}!"));
//!         Ok(())
//!     }
//! }
//!
//! wharf_sdk::export!(Hello);
//! # fn main() {}
//! ```
//!
//! Its `Cargo.toml` has `crate-type = ["cdylib"]`, and it is built with
//! `cargo build --release --target wasm32-wasip2`. For a small component use the
//! profile `opt-level = "s"`, `lto = true`, `codegen-units = 1`, `strip = true`,
//! `panic = "abort"`.
//!
//! # A tool
//!
//! A tool's parameters are a Rust type: its JSON Schema, which the model reads,
//! is derived, and the handler gets a value of it.
//!
//! ```
//! use wharf_sdk::{Extension, Parameters, Registration, Result, ToolCtx};
//!
//! #[derive(serde::Deserialize, Parameters)]
//! struct Greet {
//!     /// Who is greeted.
//!     name: String,
//! }
//!
//! #[derive(Default)]
//! struct Greeter;
//!
//! impl Extension for Greeter {
//!     fn register() -> Registration<Self> {
//!         Registration::new("greeter", "0.1.0").tool("greet", "Greets a person.", Self::greet)
//!     }
//! }
//!
//! impl Greeter {
//!     async fn greet(&self, _ctx: &ToolCtx, args: Greet) -> Result<String> {
//!         Ok(format!("Hello, {}!", args.name))
//!     }
//! }
//! # wharf_sdk::export!(Greeter);
//! # fn main() {}
//! ```
//!
//! A type that is too much for [`Parameters`]' own derive may have schemars'
//! `JsonSchema` instead, which makes the component larger.
//!
//! # A guard
//!
//! Handling an event is subscribing to it. A dialog's [`Answer`] tells "no" from
//! "nobody could be asked".
//!
//! ```
//! use wharf_sdk::{
//!     Answer, BuiltinCall, Ctx, Extension, Registration, Result, ToolCallDecision, ToolCallEvent,
//! };
//!
//! #[derive(Default)]
//! struct AskBeforePush;
//!
//! impl Extension for AskBeforePush {
//!     fn register() -> Registration<Self> {
//!         Registration::new("ask-before-push", "0.1.0").on_tool_call(Self::tool_call)
//!     }
//! }
//!
//! impl AskBeforePush {
//!     async fn tool_call(&self, ctx: &Ctx, event: ToolCallEvent) -> Result<ToolCallDecision> {
//!         let Some(BuiltinCall::Bash(bash)) = event.builtin()? else {
//!             return Ok(ToolCallDecision::Allow);
//!         };
//!         if !bash.command.contains("git push") {
//!             return Ok(ToolCallDecision::Allow);
//!         }
//!         Ok(match ctx.ui().confirm("Push?", bash.command).await {
//!             Answer::Answered(true) => ToolCallDecision::Allow,
//!             Answer::Answered(false) => ToolCallDecision::block("the person said no"),
//!             Answer::Cancelled => ToolCallDecision::block("the question was dismissed"),
//!             Answer::TimedOut => ToolCallDecision::block("nobody answered in time"),
//!             Answer::NoUi => ToolCallDecision::block("nobody could be asked"),
//!         })
//!     }
//! }
//! # wharf_sdk::export!(AskBeforePush);
//! # fn main() {}
//! ```
//!
//! # What needs a permission
//!
//! Files ([`Ctx::files`]), requests ([`Ctx::http`]), programs ([`Ctx::process`]) and
//! environment variables ([`Ctx::env`]) are there as far as the registration asks for
//! them and the person grants them. What is not granted is an [`AccessError::Denied`].
//!
//! ```
//! use wharf_sdk::{Ctx, Event, Extension, Notification, Permission, Registration, Result};
//!
//! #[derive(Default)]
//! struct Checkpoint;
//!
//! impl Extension for Checkpoint {
//!     fn register() -> Registration<Self> {
//!         Registration::new("checkpoint", "0.1.0")
//!             .permission(Permission::exec(["git", "stash", "create"]))
//!             .permission(Permission::net("hooks.example.org"))
//!             .on_notification([Event::TurnEnd], Self::turn_ended)
//!     }
//! }
//!
//! impl Checkpoint {
//!     async fn turn_ended(&self, ctx: &Ctx, _event: Notification) -> Result<()> {
//!         let output = ctx.process().exec("git", ["stash", "create"]).await?.success()?;
//!         let commit = output.stdout_text().trim().to_owned();
//!         ctx.session().append_entry("checkpoint", &commit)?;
//!         ctx.http().post("https://hooks.example.org/done").body(commit).send().await?;
//!         Ok(())
//!     }
//! }
//! # wharf_sdk::export!(Checkpoint);
//! # fn main() {}
//! ```
//!
//! An extension's own files need no permission: `std::fs` has a directory `/data` of
//! its own, which stays from run to run. Nothing else of `std` reaches the outside: it
//! has no network, no processes and no threads, and to sleep is [`Ctx::sleep`].
//!
//! # State
//!
//! The extension's value is made by [`Default`] before the first handler runs and
//! lives as long as the instance. Handlers take `&self`: while one waits, others
//! run, as tasks of one single-threaded program, so state sits in a
//! [`Cell`](std::cell::Cell) or [`RefCell`](std::cell::RefCell). Do not hold a
//! `RefCell` borrow across an `.await`.
//!
//! After a trap (a panic, too much memory, an exceeded budget) Wharf makes a new
//! instance, so what must survive belongs into the session:
//! [`Session::append_entry`], or the `details` of a tool's output.
#![warn(missing_docs)]

// The derive names this crate, also in this crate's own tests.
#[cfg(test)]
extern crate self as wharf_sdk;

mod agent;
mod builtin;
mod bus;
mod control;
mod ctx;
mod dynamic;
mod entry;
mod error;
mod event;
mod extension;
mod fields;
mod files;
mod handlers;
mod http;
mod json;
mod log;
mod model;
mod note;
mod notification;
mod parameters;
mod process;
mod reader;
mod registration;
mod reply;
mod request_event;
mod runtime;
mod session;
mod session_event;
mod spec;
mod task;
mod time;
mod tool;
mod ui;

/// Public only for what [`export!`] expands to, and not part of the API.
#[doc(hidden)]
pub mod rt;

/// Generated; public only for what [`export!`] expands to, and not part of the API.
#[doc(hidden)]
pub mod bindings;

pub use agent::{Agent, CommandInfo, CommandSource, ContextUsage, Delivery, FlagValue, ToolInfo};
pub use builtin::{
    BashCall, BuiltinCall, EditCall, FindCall, GrepCall, LsCall, ReadCall, TextReplacement,
    WriteCall,
};
pub use bus::{Bus, BusEvent};
pub use control::{Control, Forked, Navigate, Navigated, NewSession, ReloadedExtension, Switched};
pub use ctx::{CommandCtx, Ctx, ToolCtx};
pub use entry::{AssistantContent, Entry, Message};
pub use error::{AccessError, Error, Result};
pub use event::{
    BeforeAgentStart, BeforeAgentStartEvent, CustomMessage, InputDecision, InputEvent, InputSource,
    ToolCallDecision, ToolCallEvent, ToolResultEvent, ToolResultPatch,
};
pub use extension::Extension;
pub use files::{FileEntry, FileInfo, FileKind, Files};
pub use http::{Http, Request, Response};
pub use json::Json;
pub use log::Log;
pub use model::{Model, ModelConfig, ProviderConfig, ThinkingLevel};
pub use note::{
    LengthRetryNote, ModelSelectNote, ModelSource, SessionCompactNote, SessionForkNote,
    SessionTreeNote, StreamRetryNote,
};
pub use notification::{Event, Notification};
pub use parameters::Parameters;
pub use process::{Command, ExecOutput, Process};
pub use registration::Registration;
pub use reply::{ReplyEnd, ReplyFailure, ReplyRequest, ReplyStop, ReplyWriter};
pub use request_event::{
    ContextEvent, DiscoverReason, ProviderRequestEvent, Resources, ResourcesDiscoverEvent,
    UserBashDecision, UserBashEvent,
};
pub use session::Session;
pub use session_event::{
    CompactDecision, CompactionCause, ForkDecision, OwnSummary, SessionBeforeCompactEvent,
    SessionBeforeForkEvent, SessionBeforeSwitchEvent, SessionBeforeTreeEvent,
    SessionDirectoryEvent, SwitchDecision, SwitchReason, TextChange, TreeChanges, TreeDecision,
    TreeSummary,
};
pub use spec::{CommandSpec, Completion, FlagSpec, Permission, ShortcutSpec, ToolSpec};
pub use task::{join, join_all, spawn};
pub use tool::{Content, Image, ToolOutput};
pub use ui::{Answer, AskReply, NotifyKind, Question, Ui, WidgetPlacement};

/// Derives the trait of the same name.
pub use wharf_sdk_derive::Parameters;

// An extension may use these instead of dependencies of its own.
pub use schemars;
pub use serde;
pub use serde_json;

/// What [`export!`] and the derive expand to. Not part of the API.
#[doc(hidden)]
pub mod __private {
    pub use crate::parameters::{Describe, Object, schema_of};
    pub use crate::runtime::Component;
}

/// Makes a component of a type that implements [`Extension`]. Once per crate.
///
/// ```
/// # use wharf_sdk::{Extension, Registration};
/// #[derive(Default)]
/// struct Nothing;
///
/// impl Extension for Nothing {
///     fn register() -> Registration<Self> {
///         Registration::new("nothing", "0.1.0")
///     }
/// }
///
/// wharf_sdk::export!(Nothing);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export {
    ($extension:ty) => {
        #[doc(hidden)]
        type __WharfComponent = $crate::__private::Component<$extension>;
        $crate::bindings::export!(__WharfComponent with_types_in $crate::bindings);
    };
}
