//! For benches: `/calls KIND N` makes one kind of host call N times, `/fill N` gives the
//! session N entries, `/reload` reloads all extensions. Each ends with a notification.

use std::time::Duration;

use wharf_sdk::{AccessError, CommandCtx, Extension, Permission, Registration, Result};

#[derive(Default)]
struct BenchCalls;

impl Extension for BenchCalls {
    fn register() -> Registration<Self> {
        Registration::new("bench-calls", "0.1.0")
            .permission(Permission::fs_read("granted.txt"))
            .command("calls", "Calls the host", Self::calls)
            .command("fill", "Adds entries to the session", Self::fill)
            .command("reload", "Reloads all extensions", Self::reload)
    }
}

impl BenchCalls {
    async fn calls(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let Some((kind, count)) = args.split_once(' ') else {
            return Err("say which kind, and how many".into());
        };
        for _ in 0..count.parse::<u32>().map_err(|error| error.to_string())? {
            call(ctx, kind).await?;
        }
        ctx.ui().notify("done");
        Ok(())
    }

    async fn fill(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        for number in 0..args.parse::<u32>().map_err(|error| error.to_string())? {
            ctx.session().append_entry("bench", &number)?;
        }
        ctx.ui().notify("done");
        Ok(())
    }

    async fn reload(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        let all = ctx.control().reload().await?;
        let changed = all.iter().filter(|extension| extension.changed).count();
        ctx.ui().notify(format!("{changed} changed"));
        Ok(())
    }
}

async fn call(ctx: &CommandCtx, kind: &str) -> Result<()> {
    match kind {
        "none" => {}
        "session.id" => {
            std::hint::black_box(ctx.session().id());
        }
        "session.entries" => {
            std::hint::black_box(ctx.session().entries_json());
        }
        "call.sleep" => ctx.sleep(Duration::ZERO).await?,
        "log.write" => ctx.log().info("a line of a usual length, which says what was done"),
        "bus.emit" => ctx.bus().emit("bench", &1)?,
        "files.read-granted" => {
            ctx.files().read("granted.txt").await?;
        }
        "files.read-denied" => match ctx.files().read("denied.txt").await {
            Err(AccessError::Denied(_)) => {}
            other => return Err(format!("not denied: {other:?}").into()),
        },
        _ => return Err(format!("there is no kind {kind}").into()),
    }
    Ok(())
}

wharf_sdk::export!(BenchCalls);
