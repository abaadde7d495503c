//! Tells a web hook when a run has ended.
//!
//! Permissions: the variable `WHARF_WEBHOOK_URL`, which says where, and HTTP to this
//! machine and to `hooks.slack.com`. Other hosts: change the list below. A hook that
//! cannot be reached is a line in the log, and never disturbs the conversation.

use std::time::Duration;

use serde_json::json;
use wharf_sdk::{Ctx, Error, Event, Extension, Notification, Permission, Registration, Result};

const VARIABLE: &str = "WHARF_WEBHOOK_URL";
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Default)]
struct NotifyWebhook;

impl Extension for NotifyWebhook {
    fn register() -> Registration<Self> {
        Registration::new("notify-webhook", env!("CARGO_PKG_VERSION"))
            .description("Calls a web hook after each run.")
            .permission(Permission::env(VARIABLE))
            .permission(Permission::net("127.0.0.1:*"))
            .permission(Permission::net("hooks.slack.com"))
            .on_notification([Event::AgentEnd], Self::agent_end)
    }
}

impl NotifyWebhook {
    async fn agent_end(&self, ctx: &Ctx, _: Notification) -> Result<()> {
        if let Err(error) = notify(ctx).await {
            ctx.log().warn(format!("the web hook was not told: {error}"));
        }
        Ok(())
    }
}

async fn notify(ctx: &Ctx) -> Result<()> {
    let Some(url) = ctx.env(VARIABLE).await? else { return Ok(()) };
    let session = ctx.session().name().unwrap_or_else(|| ctx.session().id());
    let body = json!({"text": format!("Wharf is done with {session}")});
    let response = ctx.http().post(url).json(&body)?.timeout(LIMIT).send().await?;
    response.error_for_status().map_err(Error::from)?;
    Ok(())
}

wharf_sdk::export!(NotifyWebhook);
