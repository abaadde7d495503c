//! The answers to events, and the counts of notifications.

use serde_json::json;
use wharf_sdk::{
    BeforeAgentStart, BeforeAgentStartEvent, BuiltinCall, CommandCtx, Content, Control, Ctx,
    CustomMessage, InputDecision, InputEvent, InputSource, Json, Notification, Result,
    ToolCallDecision, ToolCallEvent, ToolResultEvent, ToolResultPatch,
};

use crate::Probe;
use crate::commands::report;

impl Probe {
    pub(crate) async fn tool_call(
        &self,
        ctx: &Ctx,
        event: ToolCallEvent,
    ) -> Result<ToolCallDecision> {
        let Some(BuiltinCall::Bash(mut bash)) = event.builtin()? else {
            return Ok(ToolCallDecision::Allow);
        };
        if bash.command.contains("FAIL") {
            return Err("probe fails on purpose".into());
        }
        if bash.command.contains("CONTROL") {
            let result = Control::unchecked().wait_for_idle().await;
            report(ctx, "control-in-tool-call", result);
        }
        if let Some((_, text)) = bash.command.split_once("ANSWER:") {
            return Ok(ToolCallDecision::answer(text.trim()));
        }
        if let Some((_, rest)) = bash.command.split_once("REPLACE:") {
            bash.command = rest.trim().to_owned();
            return ToolCallDecision::replace(&bash);
        }
        Ok(ToolCallDecision::Allow)
    }

    pub(crate) async fn tool_result(
        &self,
        _ctx: &Ctx,
        event: ToolResultEvent,
    ) -> Result<ToolResultPatch> {
        if !event.text().contains("PATCHME") {
            return Ok(ToolResultPatch::none());
        }
        let mut content = event.output.content;
        content.push(Content::text("[seen by probe]"));
        Ok(ToolResultPatch::content(content))
    }

    pub(crate) async fn input(&self, ctx: &Ctx, event: InputEvent) -> Result<InputDecision> {
        if let Some(text) = event.text.strip_prefix("transform:") {
            let text = text.to_uppercase();
            return Ok(event.with_text(text));
        }
        if let Some(text) = event.text.strip_prefix("handled:") {
            ctx.ui().notify(format!("handled: {text}"));
            return Ok(InputDecision::Handled);
        }
        if event.text.starts_with("source:") {
            ctx.ui().notify(format!("source: {}", source(event.source)));
            return Ok(InputDecision::Handled);
        }
        Ok(InputDecision::Proceed)
    }

    pub(crate) async fn before_agent_start(
        &self,
        _ctx: &Ctx,
        event: BeforeAgentStartEvent,
    ) -> Result<BeforeAgentStart> {
        if !event.prompt.contains("INJECT") {
            return Ok(BeforeAgentStart::default());
        }
        let message = CustomMessage::new("probe", "injected by probe")
            .with_details(json!({"prompt": event.prompt}));
        Ok(BeforeAgentStart {
            message: Some(message),
            system_prompt: Some(event.system_prompt + " [probe]"),
        })
    }

    pub(crate) async fn count(&self, ctx: &Ctx, notification: Notification) -> Result<()> {
        if matches!(notification, Notification::SessionShutdown) {
            ctx.ui().notify(notification.name());
        }
        *self.counts.borrow_mut().entry(notification.name().to_owned()).or_default() += 1;
        Ok(())
    }

    pub(crate) async fn counts(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        ctx.ui().notify(Json::of(&*self.counts.borrow())?.as_str());
        Ok(())
    }
}

const fn source(source: InputSource) -> &'static str {
    match source {
        InputSource::Interactive => "interactive",
        InputSource::Rpc => "rpc",
        InputSource::Extension => "extension",
    }
}
