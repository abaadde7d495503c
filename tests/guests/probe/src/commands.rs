//! One command for each host function, and how its result is shown.

use std::io::Write as _;

use serde::Serialize;
use serde_json::{Value, json};
use wharf_sdk::{
    Ctx, CustomMessage, Delivery, Error, Json, Registration, Result, Switched, ToolInfo,
};

use crate::Probe;

/// Adds the commands; each is named like the host function that it calls.
pub(crate) fn add(registration: Registration<Probe>) -> Registration<Probe> {
    control(agent(session(registration)))
}

fn session(registration: Registration<Probe>) -> Registration<Probe> {
    registration
        .command("session-id", "", async |_: &Probe, ctx, _| {
            show(ctx, "session-id", ctx.session().id())
        })
        .command("session-file", "", async |_: &Probe, ctx, _| {
            show(ctx, "session-file", ctx.session().file())
        })
        .command("session-name", "", async |_: &Probe, ctx, _| {
            show(ctx, "session-name", ctx.session().name())
        })
        .command("session-header", "", async |_: &Probe, ctx, _| {
            show(ctx, "session-header", ctx.session().header().value()?)
        })
        .command("session-leaf", "", async |_: &Probe, ctx, _| {
            show(ctx, "session-leaf", ctx.session().leaf())
        })
        .command("session-entries", "", async |_: &Probe, ctx, _| {
            show(ctx, "session-entries", ctx.session().entries_json().value()?)
        })
        .command("session-branch", "", async |_: &Probe, ctx, _| {
            show(ctx, "session-branch", ctx.session().branch_json().value()?)
        })
        .command("session-label", "ENTRY", async |_: &Probe, ctx, args| {
            show(ctx, "session-label", ctx.session().label(args))
        })
        .command("session-append-entry", "TYPE [JSON]", async |_: &Probe, ctx, args| {
            let (custom_type, data) = two(args);
            let data: Value =
                if data.is_empty() { Value::Null } else { serde_json::from_str(data)? };
            let result = ctx.session().append_entry(custom_type, &data);
            report(ctx, "session-append-entry", result);
            Ok(())
        })
        .command("session-set-name", "NAME", async |_: &Probe, ctx, args| {
            report(ctx, "session-set-name", ctx.session().set_name(args));
            Ok(())
        })
        .command("session-set-label", "ENTRY [LABEL]", async |_: &Probe, ctx, args| {
            let (entry, label) = two(args);
            let label = Some(label).filter(|label| !label.is_empty());
            report(ctx, "session-set-label", ctx.session().set_label(entry, label));
            Ok(())
        })
}

fn agent(registration: Registration<Probe>) -> Registration<Probe> {
    registration
        .command("agent-is-idle", "", async |_: &Probe, ctx, _| {
            show(ctx, "agent-is-idle", ctx.agent().is_idle())
        })
        .command("agent-has-pending", "", async |_: &Probe, ctx, _| {
            show(ctx, "agent-has-pending", ctx.agent().has_pending_messages())
        })
        .command("agent-abort", "", async |_: &Probe, ctx, _| {
            ctx.agent().abort();
            show(ctx, "agent-abort", ())
        })
        .command("agent-cwd", "", async |_: &Probe, ctx, _| {
            show(ctx, "agent-cwd", ctx.agent().cwd())
        })
        .command("agent-system-prompt", "", async |_: &Probe, ctx, _| {
            show(ctx, "agent-system-prompt", ctx.agent().system_prompt())
        })
        .command("agent-tools", "", async |_: &Probe, ctx, _| {
            let tools: Result<Vec<Value>> = ctx.agent().tools().iter().map(tool).collect();
            show(ctx, "agent-tools", tools?)
        })
        .command("agent-model", "", async |_: &Probe, ctx, _| {
            let model = ctx.agent().model();
            show(ctx, "agent-model", model.as_ref().map(Json::value).transpose()?)
        })
        .command("agent-send-user-message", "DELIVERY TEXT", async |_: &Probe, ctx, args| {
            let (deliver, text) = two(args);
            let result = ctx.agent().send_user_message(text, Vec::new(), delivery(deliver)?);
            report(ctx, "agent-send-user-message", result);
            Ok(())
        })
        .command("agent-send-message", "DELIVERY TEXT", async |_: &Probe, ctx, args| {
            let (deliver, text) = two(args);
            let message = CustomMessage::new("probe", text);
            let result = ctx.agent().send_message(message, delivery(deliver)?, false);
            report(ctx, "agent-send-message", result);
            Ok(())
        })
        .command("agent-send-message-and-run", "DELIVERY TEXT", async |_: &Probe, ctx, args| {
            let (deliver, text) = two(args);
            let message = CustomMessage::new("probe", text);
            let result = ctx.agent().send_message(message, delivery(deliver)?, true);
            report(ctx, "agent-send-message-and-run", result);
            Ok(())
        })
}

fn control(registration: Registration<Probe>) -> Registration<Probe> {
    registration
        .command("control-wait-for-idle", "", async |_: &Probe, ctx, _| {
            report(ctx, "control-wait-for-idle", ctx.control().wait_for_idle().await);
            Ok(())
        })
        .command("control-new-session", "", async |_: &Probe, ctx, _| {
            let result = ctx.control().new_session().await;
            report(ctx, "control-new-session", result.map(switched));
            Ok(())
        })
        .command("control-switch-session", "FILE", async |_: &Probe, ctx, args| {
            let result = ctx.control().switch_session(args).await;
            report(ctx, "control-switch-session", result.map(switched));
            Ok(())
        })
        .command("log", "TEXT", async |_: &Probe, ctx, args| {
            ctx.log().debug(format!("debug {args}"));
            ctx.log().info(format!("info {args}"));
            ctx.log().warn(format!("warn {args}"));
            ctx.log().error(format!("error {args}"));
            show(ctx, "log", ())
        })
        .command("print", "TEXT", async |_: &Probe, ctx, args| {
            // What a careless dependency does.
            std::io::stdout().write_all(format!("{args}\n").as_bytes())?;
            std::io::stderr().write_all(format!("{args}\n").as_bytes())?;
            show(ctx, "print", ())
        })
        .command("ui-has-ui", "", async |_: &Probe, ctx, _| {
            show(ctx, "ui-has-ui", ctx.ui().has_ui())
        })
}

pub(crate) fn show<T: Serialize>(ctx: &Ctx, call: &str, result: T) -> Result<()> {
    report(ctx, call, Ok(result));
    Ok(())
}

/// Shows what a call gave, as one line of JSON.
pub(crate) fn report<T: Serialize>(ctx: &Ctx, call: &str, result: Result<T>) {
    let line = match result {
        Ok(value) => json!({"call": call, "result": value}),
        Err(error) => {
            let kind = match &error {
                Error::NotAllowed(_) => "not-allowed",
                Error::Invalid(_) => "invalid",
                Error::Failed(_) => "failed",
                _ => "other",
            };
            json!({"call": call, "error": {"kind": kind, "message": error.to_string()}})
        }
    };
    ctx.ui().notify(line.to_string());
}

const fn switched(switched: Switched) -> &'static str {
    match switched {
        Switched::Done => "done",
        Switched::Cancelled => "cancelled",
    }
}

fn tool(tool: &ToolInfo) -> Result<Value> {
    Ok(json!({
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters.value()?,
    }))
}

fn delivery(word: &str) -> Result<Delivery> {
    match word {
        "steer" => Ok(Delivery::Steer),
        "follow-up" => Ok(Delivery::FollowUp),
        "next-turn" => Ok(Delivery::NextTurn),
        _ => Err(format!("not a delivery: {word}").into()),
    }
}

/// The first word, and the rest.
pub(crate) fn two(args: &str) -> (&str, &str) {
    let (first, rest) = args.split_once(' ').unwrap_or((args, ""));
    (first, rest.trim())
}
