//! From the host's calls to an extension's handlers. Host interfaces are elsewhere.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::bindings::exports::wharf::extension::handlers::Guest;
use crate::bindings::wharf::extension::types as wit;
use crate::{Extension, handlers};

/// The component's exports, served by an extension of type `E`.
#[derive(Debug)]
pub struct Component<E>(PhantomData<E>);

impl<E: Extension> Component<E> {
    /// Puts the handlers into their tables, before the first of them is looked for.
    fn prepare() {
        thread_local! {
            static PREPARED: Cell<bool> = const { Cell::new(false) };
        }
        if !PREPARED.replace(true) {
            E::register().install();
        }
    }
}

impl<E: Extension> Guest for Component<E> {
    fn register() -> wit::Registration {
        // Made anew: to keep the data and clone it would take more code.
        E::register().into_data()
    }

    async fn run_command(name: String, arguments: String) -> Result<(), String> {
        Self::prepare();
        match handlers::run::<handlers::Command>(&name, arguments).await {
            Some(result) => result,
            None => Err(format!("this extension has no command {name}")),
        }
    }

    async fn complete_argument(command: String, prefix: String) -> Vec<wit::Completion> {
        Self::prepare();
        match handlers::run::<handlers::Completer>(&command, prefix).await {
            Some(Ok(offers)) => offers,
            Some(Err(error)) => {
                crate::Ctx::new().log().warn(format!("completing /{command} failed: {error}"));
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    async fn execute_tool(call: wit::ToolInvocation) -> Result<wit::ToolOutput, String> {
        Self::prepare();
        let name = call.tool_name.clone();
        match handlers::run::<handlers::Tool>(&name, call).await {
            Some(result) => result,
            None => Err(format!("this extension has no tool {name}")),
        }
    }

    async fn on_tool_call(event: wit::ToolCallEvent) -> Result<wit::ToolCallDecision, String> {
        Self::prepare();
        let answer = handlers::run::<handlers::ToolCall>("tool_call", event).await;
        answer.unwrap_or(Ok(wit::ToolCallDecision::Allow))
    }

    async fn on_tool_result(event: wit::ToolResultEvent) -> Result<wit::ToolResultPatch, String> {
        Self::prepare();
        let answer = handlers::run::<handlers::ToolResult>("tool_result", event).await;
        answer.unwrap_or(Ok(wit::ToolResultPatch { content: None, details: None, is_error: None }))
    }

    async fn on_input(event: wit::InputEvent) -> Result<wit::InputDecision, String> {
        Self::prepare();
        let answer = handlers::run::<handlers::Input>("input", event).await;
        answer.unwrap_or(Ok(wit::InputDecision::Proceed))
    }

    async fn on_before_agent_start(
        event: wit::BeforeAgentStartEvent,
    ) -> Result<wit::BeforeAgentStartAnswer, String> {
        Self::prepare();
        let answer = handlers::run::<handlers::BeforeAgentStart>("before_agent_start", event).await;
        answer.unwrap_or(Ok(wit::BeforeAgentStartAnswer { message: None, system_prompt: None }))
    }

    async fn on_session_before_switch(
        event: wit::SessionBeforeSwitchEvent,
    ) -> Result<wit::SwitchDecision, String> {
        Self::prepare();
        let answer =
            handlers::run::<handlers::SessionBeforeSwitch>("session_before_switch", event).await;
        answer.unwrap_or(Ok(wit::SwitchDecision::Proceed))
    }

    async fn on_session_before_fork(
        event: wit::SessionBeforeForkEvent,
    ) -> Result<wit::ForkDecision, String> {
        Self::prepare();
        let answer =
            handlers::run::<handlers::SessionBeforeFork>("session_before_fork", event).await;
        answer.unwrap_or(Ok(wit::ForkDecision::Proceed))
    }

    async fn on_session_before_tree(
        event: wit::SessionBeforeTreeEvent,
    ) -> Result<wit::TreeDecision, String> {
        Self::prepare();
        let answer =
            handlers::run::<handlers::SessionBeforeTree>("session_before_tree", event).await;
        answer.unwrap_or(Ok(wit::TreeDecision::Proceed(wit::TreeChanges {
            summary: None,
            custom_instructions: wit::TextChange::Keep,
            replace_instructions: None,
            label: wit::TextChange::Keep,
        })))
    }

    async fn on_session_directory(
        event: wit::SessionDirectoryEvent,
    ) -> Result<Option<String>, String> {
        Self::prepare();
        let answer = handlers::run::<handlers::SessionDirectory>("session_directory", event).await;
        answer.unwrap_or(Ok(None))
    }

    async fn on_session_before_compact(
        event: wit::SessionBeforeCompactEvent,
    ) -> Result<wit::CompactDecision, String> {
        Self::prepare();
        let answer =
            handlers::run::<handlers::SessionBeforeCompact>("session_before_compact", event).await;
        answer.unwrap_or(Ok(wit::CompactDecision::Proceed))
    }

    async fn on_notification(event: wit::Notification) -> Result<(), String> {
        Self::prepare();
        handlers::run::<handlers::Notified>("", event).await.unwrap_or(Ok(()))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panic")]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        BuiltinCall, CommandCtx, CommandSpec, Completion, Ctx, Error, Event, Notification,
        Permission, Registration, Result, ToolCallDecision, ToolCallEvent, ToolCtx, ToolOutput,
        ToolSpec,
    };

    /// Which unit the sum is shown in.
    #[derive(Debug, serde::Deserialize, crate::Parameters)]
    #[serde(rename_all = "lowercase")]
    enum Unit {
        Metre,
        Foot,
    }

    #[derive(Debug, serde::Deserialize, crate::Parameters)]
    struct Add {
        /// The summands.
        numbers: Vec<i32>,
        unit: Option<Unit>,
    }

    /// Adds, and counts what reaches it.
    #[derive(Default)]
    struct Adder {
        seen: Cell<u32>,
    }

    impl Extension for Adder {
        fn register() -> Registration<Self> {
            Registration::new("adder", "0.1.0")
                .command_with(
                    CommandSpec::new("seen", "Fails if nothing was seen").hint("[n]"),
                    Self::seen,
                )
                .complete("seen", Self::offers)
                .tool_with(ToolSpec::new("add", "Adds.").label("Add").sequential(), Self::add)
                .on_tool_call(Self::tool_call)
                .on_notification([Event::TurnEnd, Event::Other("novel".into())], Self::notified)
                .on_notification([Event::TurnEnd, Event::SessionStart], Self::notified_again)
                .permission(Permission::Env("HOME".into()))
        }
    }

    impl Adder {
        async fn seen(&self, _ctx: &CommandCtx, args: &str) -> Result<()> {
            let wanted: u32 = args.parse().map_err(|_| Error::from("not a number"))?;
            if self.seen.get() == wanted { Ok(()) } else { Err(self.seen.get().to_string().into()) }
        }

        async fn offers(&self, _ctx: &Ctx, prefix: &str) -> Result<Vec<Completion>> {
            Ok(vec![Completion::new(format!("{prefix}1"))])
        }

        async fn add(&self, ctx: &ToolCtx, args: Add) -> Result<ToolOutput> {
            let sum: i32 = args.numbers.iter().sum();
            let output = ToolOutput::text(sum.to_string());
            Ok(match args.unit {
                Some(unit) => {
                    output.with_details(json!(format!("{}: {unit:?}", ctx.tool_call_id())))
                }
                None => output,
            })
        }

        async fn tool_call(&self, _ctx: &Ctx, event: ToolCallEvent) -> Result<ToolCallDecision> {
            Ok(match event.builtin()? {
                Some(BuiltinCall::Bash(_)) => ToolCallDecision::block("no shell"),
                _ => ToolCallDecision::Allow,
            })
        }

        async fn notified(&self, _ctx: &Ctx, _notification: Notification) -> Result<()> {
            self.seen.set(self.seen.get() + 1);
            Ok(())
        }

        async fn notified_again(&self, _ctx: &Ctx, _notification: Notification) -> Result<()> {
            self.seen.set(self.seen.get() * 10);
            Ok(())
        }
    }

    /// Runs a handler that does not wait.
    fn run<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("the handler waits"),
        }
    }

    fn call(tool: &str, input: Value) -> wit::ToolInvocation {
        wit::ToolInvocation {
            tool_call_id: "c1".into(),
            tool_name: tool.into(),
            input: input.to_string(),
        }
    }

    fn event(tool: &str, input: Value) -> wit::ToolCallEvent {
        wit::ToolCallEvent {
            tool_call_id: "c1".into(),
            tool_name: tool.into(),
            input: input.to_string(),
            paths: Vec::new(),
            final_check: false,
        }
    }

    fn turn_end() -> wit::Notification {
        wit::Notification::TurnEnd(wit::TurnEndNote {
            message: "{}".into(),
            tool_results: "[]".into(),
        })
    }

    #[test]
    fn handlers_are_subscriptions_and_each_name_stands_once() {
        let registration = Component::<Adder>::register();
        assert_eq!(registration.subscriptions, ["tool_call", "turn_end", "novel", "session_start"]);
        assert_eq!(registration.commands[0].argument_hint.as_deref(), Some("[n]"));
        assert!(matches!(&registration.permissions[..], [wit::PermissionRequest::Env(_)]));
    }

    #[test]
    fn a_tools_schema_is_that_of_its_arguments() {
        let registration = Component::<Adder>::register();
        let [tool] = &registration.tools[..] else { panic!("{registration:?}") };
        assert_eq!((tool.label.as_str(), tool.sequential), ("Add", true));
        let schema: Value = serde_json::from_str(&tool.parameters).unwrap();
        assert_eq!(
            schema,
            json!({
                "type": "object",
                "properties": {
                    "numbers": {
                        "description": "The summands.",
                        "type": "array",
                        "items": {
                            "type": "integer",
                            "minimum": i32::MIN,
                            "maximum": i32::MAX,
                        },
                    },
                    "unit": {
                        "description": "Which unit the sum is shown in.",
                        "type": ["string", "null"],
                        "enum": ["metre", "foot", null],
                    },
                },
                "required": ["numbers"],
            })
        );
    }

    #[test]
    fn tools_get_typed_arguments() {
        let add = |input| run(Component::<Adder>::execute_tool(call("add", input)));
        let output = add(json!({"numbers": [1, 2], "unit": "foot"})).unwrap();
        assert!(matches!(&output.content[..], [wit::Content::Text(text)] if text == "3"));
        assert_eq!(output.details.as_deref(), Some(r#""c1: Foot""#));

        let error = add(json!({"numbers": 1})).unwrap_err();
        assert!(error.starts_with("invalid arguments for add: "), "{error}");
        run(Component::<Adder>::execute_tool(call("sub", json!({})))).unwrap_err();
    }

    #[test]
    fn a_guard_blocks_by_decision_and_by_error() {
        let decide = |input| run(Component::<Adder>::on_tool_call(event("bash", input)));
        let decision = decide(json!({"command": "ls"})).unwrap();
        assert!(matches!(decision, wit::ToolCallDecision::Block(reason) if reason == "no shell"));
        decide(json!({"script": "ls"})).unwrap_err();
        let other = run(Component::<Adder>::on_tool_call(event("greet", json!({})))).unwrap();
        assert!(matches!(other, wit::ToolCallDecision::Allow));
    }

    #[test]
    fn an_event_without_a_handler_changes_nothing() {
        let event = wit::InputEvent {
            text: "hi".into(),
            images: Vec::new(),
            source: wit::InputSource::Rpc,
        };
        let decision = run(Component::<Adder>::on_input(event)).unwrap();
        assert!(matches!(decision, wit::InputDecision::Proceed));

        let event = wit::SessionBeforeForkEvent { entry_id: "e".into() };
        let decision = run(Component::<Adder>::on_session_before_fork(event)).unwrap();
        assert!(matches!(decision, wit::ForkDecision::Proceed));

        let event = wit::SessionBeforeTreeEvent {
            target_id: "t".into(),
            old_leaf_id: None,
            common_ancestor_id: None,
            abandoned: "[]".into(),
            summarize: true,
            custom_instructions: None,
            replace_instructions: false,
            label: None,
        };
        let decision = run(Component::<Adder>::on_session_before_tree(event)).unwrap();
        assert_eq!(decision, crate::TreeDecision::proceed().into());

        let event = wit::SessionDirectoryEvent { cwd: "/".into() };
        assert_eq!(run(Component::<Adder>::on_session_directory(event)).unwrap(), None);
    }

    // The instance lives in a thread-local, and each test has its own thread.
    #[test]
    fn notifications_reach_the_followers_of_one_shared_instance_in_order() {
        run(Component::<Adder>::on_notification(turn_end())).unwrap();
        run(Component::<Adder>::on_notification(wit::Notification::SessionStart)).unwrap();
        run(Component::<Adder>::on_notification(wit::Notification::TurnStart)).unwrap();
        run(Component::<Adder>::run_command("seen".into(), "100".into())).unwrap();
        run(Component::<Adder>::run_command("unseen".into(), String::new())).unwrap_err();
        let offers = run(Component::<Adder>::complete_argument("seen".into(), "2".into()));
        assert_eq!(offers[0].value, "21");
    }
}
