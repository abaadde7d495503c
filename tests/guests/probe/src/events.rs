//! The answers to events, and the counts of notifications.

use serde_json::json;
use wharf_sdk::{
    BeforeAgentStart, BeforeAgentStartEvent, BuiltinCall, CommandCtx, CompactDecision, Content,
    Control, Ctx, CustomMessage, InputDecision, InputEvent, InputSource, Json, LengthRetryNote,
    ModelSelectNote, Notification, OwnSummary, Result, SessionBeforeCompactEvent,
    SessionCompactNote, StreamRetryNote, ToolCallDecision, ToolCallEvent, ToolResultEvent,
    ToolResultPatch,
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

    pub(crate) async fn compact(
        &self,
        ctx: &Ctx,
        event: SessionBeforeCompactEvent,
    ) -> Result<CompactDecision> {
        let instructions = event.instructions.as_deref().unwrap_or_default();
        let (word, rest) = instructions.split_once(' ').unwrap_or((instructions, ""));
        Ok(match word {
            "CANCEL" => CompactDecision::Cancel,
            "FAIL" => return Err("probe fails on purpose".into()),
            "REPLACE" => OwnSummary::new(rest).with_details(event.details).into(),
            "KEEP" => OwnSummary::new("kept more").keeping_from(rest).into(),
            "SHOW" => {
                let shown = json!({
                    "cause": format!("{:?}", event.cause),
                    "firstKeptEntryId": event.first_kept_entry_id,
                    "tokensBefore": event.tokens_before,
                    "previousSummary": event.previous_summary,
                    "messages": event.messages.value()?,
                    "turnPrefix": event.turn_prefix.value()?,
                    "details": event.details.value()?,
                    "instructions": instructions,
                });
                report(ctx, "compact", Ok(shown));
                CompactDecision::Proceed
            }
            _ => CompactDecision::Proceed,
        })
    }

    pub(crate) async fn read(&self, _ctx: &Ctx, notification: Notification) -> Result<()> {
        let line = match notification {
            Notification::SessionCompact { note } => {
                let note: SessionCompactNote = note.parse()?;
                format!("compact {} {:?} {}", note.summary, note.details, note.from_extension)
            }
            Notification::ModelSelect { note } => {
                let note: ModelSelectNote = note.parse()?;
                let had = note.previous_model.is_some();
                format!("model {} {had} {:?}", note.model.value()?["id"], note.source)
            }
            Notification::StreamRetry { note } => {
                let note: StreamRetryNote = note.parse()?;
                format!("stream {}/{} {}", note.attempt, note.max_attempts, note.error_message)
            }
            Notification::LengthRetry { note } => {
                let note: LengthRetryNote = note.parse()?;
                format!("length {} {} {}", note.attempt, note.max_tokens, note.next_max_tokens)
            }
            other => format!("untyped {}", other.name()),
        };
        self.typed.borrow_mut().push(line);
        Ok(())
    }

    pub(crate) async fn typed(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        ctx.ui().notify(Json::of(&*self.typed.borrow())?.as_str());
        Ok(())
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
