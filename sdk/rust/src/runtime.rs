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
        if handlers::has::<handlers::Tool>(&name) {
            if let Some(result) = handlers::run::<handlers::Tool>(&name, call).await {
                return result;
            }
        } else if let Some(result) = handlers::run::<handlers::DynamicTool>("", call).await {
            return result;
        }
        Err(handlers::no_tool(&name))
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

    async fn on_context(event: wit::ContextEvent) -> Result<Option<String>, String> {
        Self::prepare();
        handlers::run::<handlers::Context>("context", event).await.unwrap_or(Ok(None))
    }

    async fn on_before_provider_request(
        event: wit::ProviderRequestEvent,
    ) -> Result<Option<String>, String> {
        Self::prepare();
        let answer =
            handlers::run::<handlers::BeforeProviderRequest>("before_provider_request", event)
                .await;
        answer.unwrap_or(Ok(None))
    }

    async fn on_resources_discover(
        event: wit::ResourcesDiscoverEvent,
    ) -> Result<wit::DiscoveredResources, String> {
        Self::prepare();
        let answer =
            handlers::run::<handlers::ResourcesDiscover>("resources_discover", event).await;
        answer.unwrap_or(Ok(wit::DiscoveredResources {
            skill_paths: Vec::new(),
            prompt_paths: Vec::new(),
        }))
    }

    async fn on_user_bash(event: wit::UserBashEvent) -> Result<wit::UserBashDecision, String> {
        Self::prepare();
        let answer = handlers::run::<handlers::UserBash>("user_bash", event).await;
        answer.unwrap_or(Ok(wit::UserBashDecision::Proceed))
    }

    async fn stream_reply(request: wit::ReplyRequest) -> Result<wit::ReplyEnd, wit::ReplyFailure> {
        Self::prepare();
        let message = match handlers::run::<handlers::Reply>("", request).await {
            Some(Ok(end)) => return end,
            Some(Err(message)) => message,
            None => "this extension answers for no model".to_owned(),
        };
        Err(wit::ReplyFailure { message, status: None, transient: false })
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
        BuiltinCall, CommandCtx, CommandSpec, Completion, Ctx, Error, Event, Json, Notification,
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

        let event = wit::ContextEvent { messages: "[]".into() };
        assert_eq!(run(Component::<Adder>::on_context(event)).unwrap(), None);
        assert_eq!(run(Component::<Adder>::on_before_provider_request(payload())).unwrap(), None);
        let found = run(Component::<Adder>::on_resources_discover(discover())).unwrap();
        assert_eq!(found, crate::Resources::new().into());
        let decision = run(Component::<Adder>::on_user_bash(user_bash("ls"))).unwrap();
        assert_eq!(decision, wit::UserBashDecision::Proceed);
        let failure = run(Component::<Adder>::stream_reply(reply_request("m"))).unwrap_err();
        assert_eq!(failure.message, "this extension answers for no model");
    }

    fn payload() -> wit::ProviderRequestEvent {
        wit::ProviderRequestEvent {
            provider: "p".into(),
            model: "m".into(),
            api: "a".into(),
            payload: r#"{"n":1}"#.into(),
        }
    }

    fn discover() -> wit::ResourcesDiscoverEvent {
        wit::ResourcesDiscoverEvent { cwd: "/".into(), reason: wit::DiscoverReason::Reload }
    }

    fn user_bash(command: &str) -> wit::UserBashEvent {
        wit::UserBashEvent { command: command.into(), exclude_from_context: false, cwd: "/".into() }
    }

    fn reply_request(model: &str) -> wit::ReplyRequest {
        wit::ReplyRequest {
            id: "r1".into(),
            provider: "p".into(),
            model: json!({"provider": "p", "id": model}).to_string(),
            system_prompt: String::new(),
            messages: r#"[{"role":"user","content":"hi","timestamp":1}]"#.into(),
            tools: "[]".into(),
            thinking_level: "high".into(),
            max_tokens: 9,
        }
    }

    fn bus_event(topic: &str, data: &str) -> wit::Notification {
        let fields = format!(r#"{{"topic":"{topic}","source":"other","data":{data}}}"#);
        wit::Notification::Other(wit::OtherNote { name: format!("bus:{topic}"), fields })
    }

    /// Handles what stands between the session and the model.
    #[derive(Default)]
    struct Between {
        heard: Cell<u32>,
    }

    impl Extension for Between {
        fn register() -> Registration<Self> {
            Registration::new("between", "0.1.0")
                .on_context(Self::context)
                .on_before_provider_request(Self::request)
                .on_resources_discover(Self::discover)
                .on_user_bash(Self::bash)
                .on_bus("wind", Self::wind)
                .on_bus("rain", Self::wind)
                .reply_source(Self::reply)
                .permissions([
                    Permission::exec(["git", "status", "**"]),
                    Permission::net("*.example.org"),
                    Permission::fs_read("a/**"),
                    Permission::fs_write("~/b"),
                    Permission::env("HOME"),
                ])
        }
    }

    impl Between {
        async fn context(&self, _: &Ctx, event: crate::ContextEvent) -> Result<Option<Json>> {
            event.retain(|message| matches!(message, crate::Message::User { .. }))
        }

        async fn request(
            &self,
            _: &Ctx,
            event: crate::ProviderRequestEvent,
        ) -> Result<Option<Json>> {
            let mut payload = event.payload.value()?;
            payload["model"] = event.model.into();
            Ok(Some(payload.into()))
        }

        async fn discover(
            &self,
            _: &Ctx,
            event: crate::ResourcesDiscoverEvent,
        ) -> Result<crate::Resources> {
            assert_eq!(event.reason, crate::DiscoverReason::Reload);
            Ok(crate::Resources::new().skill("s").prompt("p").prompt("q"))
        }

        async fn bash(
            &self,
            _: &Ctx,
            event: crate::UserBashEvent,
        ) -> Result<crate::UserBashDecision> {
            Ok(match event.command.as_str() {
                "ls" => crate::UserBashDecision::answer("a", 0),
                "rm" => return Err("no".into()),
                command => crate::UserBashDecision::wrap(format!("nice {command}")),
            })
        }

        async fn wind(&self, _: &Ctx, event: crate::BusEvent) -> Result<()> {
            assert_eq!(event.source, "other");
            let knots: Option<u32> = event.data()?;
            self.heard.set(self.heard.get() + knots.unwrap_or(1000));
            if self.heard.get() == 1003 { Err("done".into()) } else { Ok(()) }
        }

        async fn reply(
            &self,
            _: &Ctx,
            request: crate::ReplyRequest,
            _: crate::ReplyWriter,
        ) -> Result<crate::ReplyEnd, crate::ReplyFailure> {
            assert_eq!(request.thinking_level, crate::ThinkingLevel::High);
            assert_eq!(request.messages()?.len(), 1);
            match request.model.parse::<crate::Model>()?.id.as_str() {
                "busy" => Err(crate::ReplyFailure::new("too busy").with_status(429)),
                "lost" => Err(crate::AccessError::Failed("torn".into()))?,
                _ => Ok(crate::ReplyEnd::tool_use().with_usage(3, 4)),
            }
        }
    }

    #[test]
    fn what_stands_between_the_session_and_the_model_can_be_changed() {
        let messages = r#"[{"role":"user","content":"hi"},{"role":"custom","customType":"c","content":[],"display":true}]"#;
        let event = wit::ContextEvent { messages: messages.into() };
        let kept = run(Component::<Between>::on_context(event)).unwrap();
        assert_eq!(kept.as_deref(), Some(r#"[{"role":"user","content":"hi"}]"#));

        let body = run(Component::<Between>::on_before_provider_request(payload())).unwrap();
        let body: Value = serde_json::from_str(&body.unwrap()).unwrap();
        assert_eq!(body, json!({"n": 1, "model": "m"}));

        let found = run(Component::<Between>::on_resources_discover(discover())).unwrap();
        assert_eq!((found.skill_paths.len(), found.prompt_paths.len()), (1, 2));

        let bash = |command| run(Component::<Between>::on_user_bash(user_bash(command)));
        let answer = wit::UserBashResult { output: "a".into(), exit_code: Some(0) };
        assert_eq!(bash("ls").unwrap(), wit::UserBashDecision::Answer(answer));
        assert_eq!(bash("du").unwrap(), wit::UserBashDecision::Wrap("nice du".into()));
        assert_eq!(bash("rm").unwrap_err(), "no");
    }

    #[test]
    fn a_reply_ends_with_its_tokens_or_says_whether_to_try_again() {
        let reply = |model| run(Component::<Between>::stream_reply(reply_request(model)));
        let end = reply("m").unwrap();
        assert_eq!((end.stop, end.usage.input, end.usage.output), (wit::ReplyStop::ToolUse, 3, 4));
        let busy = reply("busy").unwrap_err();
        assert_eq!((busy.status, busy.transient), (Some(429), false));
        let lost = reply("lost").unwrap_err();
        assert_eq!((lost.message.as_str(), lost.status, lost.transient), ("torn", None, true));
    }

    #[test]
    fn events_of_extensions_reach_the_handlers_of_their_topic() {
        let data = Component::<Between>::register();
        assert!(data.subscriptions.contains(&"bus:wind".to_owned()), "{:?}", data.subscriptions);
        assert_eq!(data.permissions.len(), 5);
        let tell = |topic, data| run(Component::<Between>::on_notification(bus_event(topic, data)));
        tell("wind", "1").unwrap();
        tell("rain", "2").unwrap();
        tell("snow", "4").unwrap();
        assert_eq!(tell("wind", "null").unwrap_err(), "done", "null is a value");
        assert!(tell("wind", "\"no\"").unwrap_err().starts_with("invalid JSON: found a string"));
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
