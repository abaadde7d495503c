//! Where the component's exports find their handlers.
//!
//! A component exports a function for every kind of handler, and an extension has
//! a few of them. Each kind has a table of its own here, filled only by code that
//! the extension's own registration names ([`Registration::on_input`] fills that of
//! [`Input`]). So the optimiser sees that the other tables stay empty, and leaves
//! out what would run a handler and carry its answer to the host: some 20 kB of a
//! guest. Handlers in fields of one registration would hide that from it.
//!
//! [`Registration::on_input`]: crate::Registration::on_input

use std::cell::Cell;
use std::future::poll_fn;
use std::iter;
use std::pin::Pin;
use std::task::Poll;
use std::thread::LocalKey;

use crate::Notification;
use crate::bindings::wharf::extension::types as wit;

/// A running handler. Its error is the text that the host is told.
pub(crate) type Answer<O> = Pin<Box<dyn Future<Output = Result<O, String>>>>;

/// Starts a handler, whose own type and whose extension's are forgotten. It lives as
/// long as the instance.
pub(crate) type Handler<I, O> = &'static dyn Fn(I) -> Answer<O>;

/// Handlers, the newest first. A list without a lock or a borrow flag, which the
/// optimiser would have to see through.
pub(crate) type Table<I, O> = Cell<Option<&'static Served<I, O>>>;

/// A handler with the name of what it serves.
pub(crate) struct Served<I: 'static, O: 'static> {
    name: String,
    handler: Handler<I, O>,
    before: Option<&'static Self>,
}

/// A kind of handler.
pub(crate) trait Kind {
    type Input: 'static;
    type Output: 'static;

    fn table() -> &'static LocalKey<Table<Self::Input, Self::Output>>;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $input:ty => $output:ty;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $kind;

        impl Kind for $kind {
            type Input = $input;
            type Output = $output;

            fn table() -> &'static LocalKey<Table<$input, $output>> {
                thread_local! {
                    static TABLE: Table<$input, $output> = const { Cell::new(None) };
                }
                &TABLE
            }
        }
    )*};
}

kinds! {
    /// By the command's name.
    Command: String => ();
    /// By the command's name.
    Completer: String => Vec<wit::Completion>;
    /// By the tool's name.
    Tool: wit::ToolInvocation => wit::ToolOutput;
    /// There is one, without a name, when there are tools that came at run time.
    DynamicTool: wit::ToolInvocation => wit::ToolOutput;
    /// By the event's name; several may have the same.
    Follower: Notification => ();
    /// There is one, without a name, when there are followers.
    Notified: wit::Notification => ();
    ToolCall: wit::ToolCallEvent => wit::ToolCallDecision;
    ToolResult: wit::ToolResultEvent => wit::ToolResultPatch;
    Input: wit::InputEvent => wit::InputDecision;
    BeforeAgentStart: wit::BeforeAgentStartEvent => wit::BeforeAgentStartAnswer;
    SessionBeforeSwitch: wit::SessionBeforeSwitchEvent => wit::SwitchDecision;
    SessionBeforeFork: wit::SessionBeforeForkEvent => wit::ForkDecision;
    SessionBeforeTree: wit::SessionBeforeTreeEvent => wit::TreeDecision;
    SessionDirectory: wit::SessionDirectoryEvent => Option<String>;
    SessionBeforeCompact: wit::SessionBeforeCompactEvent => wit::CompactDecision;
    Context: wit::ContextEvent => Option<String>;
    BeforeProviderRequest: wit::ProviderRequestEvent => Option<String>;
    ResourcesDiscover: wit::ResourcesDiscoverEvent => wit::DiscoveredResources;
    UserBash: wit::UserBashEvent => wit::UserBashDecision;
    /// There is at most one, without a name. It is never an error of the kind that the
    /// others have.
    Reply: wit::ReplyRequest => Result<wit::ReplyEnd, wit::ReplyFailure>;
}

/// Adds a handler of all that has these names.
pub(crate) fn add<K: Kind>(names: Vec<String>, handler: Handler<K::Input, K::Output>) {
    for name in names {
        let before = K::table().get();
        K::table().set(Some(Box::leak(Box::new(Served { name, handler, before }))));
    }
}

fn all<K: Kind>() -> impl Iterator<Item = &'static Served<K::Input, K::Output>> {
    iter::successors(K::table().get(), |served| served.before)
}

/// Whether there is any handler of a kind.
fn any<K: Kind>() -> bool {
    K::table().get().is_some()
}

/// Whether there is a handler of a name.
pub(crate) fn has<K: Kind>(name: &str) -> bool {
    all::<K>().any(|served| served.name == name)
}

/// Runs the newest handler of a name; none when there is no such handler.
pub(crate) fn run<K: Kind>(
    name: &str,
    input: K::Input,
) -> impl Future<Output = Option<Result<K::Output, String>>> + use<K> {
    let served = all::<K>().find(|served| served.name == name);
    finish::<K>(served.map(|served| (served.handler)(input)))
}

/// Waits for what a handler of this kind has begun, if there was any.
fn finish<K: Kind>(
    mut running: Option<Answer<K::Output>>,
) -> impl Future<Output = Option<Result<K::Output, String>>> {
    poll_fn(move |context| match &mut running {
        // Looked up again, since the optimiser does not see that nothing is running
        // when there is no handler.
        Some(answer) if any::<K>() => answer.as_mut().poll(context).map(Some),
        _ => Poll::Ready(None),
    })
}

/// Adds the one handler of a kind, without a name, unless it is there.
pub(crate) fn add_once<K: Kind>(handler: Handler<K::Input, K::Output>) {
    if !any::<K>() {
        add::<K>(vec![String::new()], handler);
    }
}

/// Makes a handler of all notifications, which hands them on to the followers.
pub(crate) fn tell_followers() {
    add_once::<Notified>(&|event| Box::pin(tell(event.into())));
}

/// What the host is told when it calls a tool that is not there.
pub(crate) fn no_tool(name: &str) -> String {
    ["this extension has no tool ", name].concat()
}

/// One follower after the other, in the order in which they were added.
async fn tell(event: Notification) -> Result<(), String> {
    let mut followers: Vec<_> =
        all::<Follower>().filter(|served| served.name == event.name()).collect();
    let mut failures = Vec::new();
    while let Some(follower) = followers.pop() {
        failures.extend((follower.handler)(event.clone()).await.err());
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}
