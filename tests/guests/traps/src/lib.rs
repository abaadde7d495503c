//! Traps at one point of its life, which the flag `--trap POINT` names: a command, a
//! tool, a completion, a reply, or an event by its name. Everywhere else it does nothing.

use wharf_sdk::{
    BeforeAgentStart, BeforeAgentStartEvent, BusEvent, CommandCtx, CommandSpec, CompactDecision,
    Completion, ContextEvent, Ctx, Event, Extension, FlagSpec, ForkDecision, InputDecision,
    InputEvent, Json, ModelConfig, Notification, Parameters, ProviderConfig, ProviderRequestEvent,
    Registration, ReplyEnd, ReplyFailure, ReplyRequest, ReplyWriter, Resources,
    ResourcesDiscoverEvent, Result, SessionBeforeCompactEvent, SessionBeforeForkEvent,
    SessionBeforeSwitchEvent, SessionBeforeTreeEvent, SessionDirectoryEvent, SwitchDecision,
    ToolCallDecision, ToolCallEvent, ToolCtx, ToolResultEvent, ToolResultPatch, TreeDecision,
    UserBashDecision, UserBashEvent,
};

#[derive(Default)]
struct Traps;

#[derive(serde::Deserialize, Parameters)]
struct Nothing {}

impl Extension for Traps {
    fn register() -> Registration<Self> {
        Registration::new("traps", "0.1.0")
            .flag(FlagSpec::value("trap", "Where to trap"))
            .command_with(CommandSpec::new("trap", "Traps"), Self::command)
            .complete("trap", Self::complete)
            .tool("trap", "Traps.", Self::tool)
            .reply_source(Self::reply)
            .on_tool_call(async |_, ctx: &Ctx, _: ToolCallEvent| {
                at(ctx, "tool_call");
                Ok(ToolCallDecision::Allow)
            })
            .on_tool_result(async |_, ctx: &Ctx, _: ToolResultEvent| {
                at(ctx, "tool_result");
                Ok(ToolResultPatch::none())
            })
            .on_input(async |_, ctx: &Ctx, _: InputEvent| {
                at(ctx, "input");
                Ok(InputDecision::Proceed)
            })
            .on_before_agent_start(async |_, ctx: &Ctx, _: BeforeAgentStartEvent| {
                at(ctx, "before_agent_start");
                Ok(BeforeAgentStart::default())
            })
            .on_context(async |_, ctx: &Ctx, _: ContextEvent| {
                at(ctx, "context");
                Ok(None::<Json>)
            })
            .on_before_provider_request(async |_, ctx: &Ctx, _: ProviderRequestEvent| {
                at(ctx, "before_provider_request");
                Ok(None::<Json>)
            })
            .on_resources_discover(async |_, ctx: &Ctx, _: ResourcesDiscoverEvent| {
                at(ctx, "resources_discover");
                Ok(Resources::new())
            })
            .on_user_bash(async |_, ctx: &Ctx, _: UserBashEvent| {
                at(ctx, "user_bash");
                Ok(UserBashDecision::Proceed)
            })
            .on_session_before_switch(async |_, ctx: &Ctx, _: SessionBeforeSwitchEvent| {
                at(ctx, "session_before_switch");
                Ok(SwitchDecision::Proceed)
            })
            .on_session_before_fork(async |_, ctx: &Ctx, _: SessionBeforeForkEvent| {
                at(ctx, "session_before_fork");
                Ok(ForkDecision::Proceed)
            })
            .on_session_before_tree(async |_, ctx: &Ctx, _: SessionBeforeTreeEvent| {
                at(ctx, "session_before_tree");
                Ok(TreeDecision::proceed())
            })
            .on_session_before_compact(async |_, ctx: &Ctx, _: SessionBeforeCompactEvent| {
                at(ctx, "session_before_compact");
                Ok(CompactDecision::Proceed)
            })
            .on_session_directory(async |_, ctx: &Ctx, _: SessionDirectoryEvent| {
                at(ctx, "session_directory");
                Ok(None::<String>)
            })
            .on_notification(Event::ALL, Self::notified)
            .on_bus("traps", async |_, ctx: &Ctx, _: BusEvent| {
                at(ctx, "bus:traps");
                Ok(())
            })
    }
}

impl Traps {
    async fn command(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        at(ctx, "command");
        // It comes back as an event.
        ctx.bus().emit("traps", "now")
    }

    async fn complete(&self, ctx: &Ctx, _prefix: &str) -> Result<Vec<Completion>> {
        at(ctx, "complete_argument");
        Ok(vec![Completion::new("offered")])
    }

    async fn tool(&self, ctx: &ToolCtx, _args: Nothing) -> Result<String> {
        at(ctx, "tool");
        Ok("nothing was done".to_owned())
    }

    async fn reply(
        &self,
        ctx: &Ctx,
        _request: ReplyRequest,
        reply: ReplyWriter,
    ) -> Result<ReplyEnd, ReplyFailure> {
        reply.text("Half of ").await?;
        at(ctx, "stream_reply");
        reply.text("a reply").await?;
        Ok(ReplyEnd::stop())
    }

    async fn notified(&self, ctx: &Ctx, event: Notification) -> Result<()> {
        at(ctx, event.name());
        if matches!(event, Notification::SessionStart) {
            let config =
                ProviderConfig::new().model(ModelConfig::new("half").context_window(9_000));
            ctx.agent().register_streaming_provider("traps", config).await?;
        }
        Ok(())
    }
}

/// Traps, without a word, where the flag says so.
fn at(ctx: &Ctx, point: &str) {
    if ctx.agent().flag("trap").value().is_some_and(|named| named == point) {
        std::process::abort();
    }
}

wharf_sdk::export!(Traps);
