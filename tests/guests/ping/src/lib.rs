//! Two extensions of one source, `ping` and `pong`, that answer each other's events.
//! `/serve-ping KIND` (or `-pong`) begins: with `one` each event is answered by one,
//! with `two` by two, and with `late` by one that a task sends after the handler has
//! answered. The first refusal is shown, and `/served-ping` shows how many came.

use std::cell::Cell;
use std::time::Duration;

use outcome::show;
use serde::{Deserialize, Serialize};
use wharf_sdk::{BusEvent, CommandCtx, Ctx, Extension, Registration, Result, spawn};

const NAME: &str = env!("CARGO_PKG_NAME");

#[derive(Default)]
struct Player {
    served: Cell<u32>,
    was_refused: Cell<bool>,
}

#[derive(Serialize, Deserialize)]
struct Ball {
    kind: String,
    hop: u32,
}

impl Extension for Player {
    fn register() -> Registration<Self> {
        Registration::new(NAME, "0.1.0")
            .command(format!("serve-{NAME}"), "Begins", Self::serve)
            .command(format!("served-{NAME}"), "Shows how many events came", Self::served)
            .on_bus(NAME, Self::ball)
    }
}

impl Player {
    async fn serve(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        hit(ctx, &Ball { kind: args.to_owned(), hop: 0 })
    }

    async fn served(&self, ctx: &CommandCtx, _args: &str) -> Result<()> {
        show(ctx, "served", &Ok(self.served.get()))
    }

    async fn ball(&self, ctx: &Ctx, event: BusEvent) -> Result<()> {
        self.served.set(self.served.get() + 1);
        let Ball { kind, hop } = event.data()?;
        let ball = Ball { kind, hop: hop + 1 };
        let outcome = match ball.kind.as_str() {
            "late" => {
                let ctx = *ctx;
                spawn(async move {
                    if ctx.sleep(Duration::from_millis(1)).await.is_ok() {
                        // Whether it is refused shows in how many come.
                        let _ = hit(&ctx, &ball);
                    }
                });
                return Ok(());
            }
            "two" => hit(ctx, &ball).and_then(|()| hit(ctx, &ball)),
            _ => hit(ctx, &ball),
        };
        if outcome.is_err() && !self.was_refused.replace(true) {
            show(ctx, &format!("hop {}", ball.hop), &outcome)?;
        }
        Ok(())
    }
}

/// Sends an event to the other one.
fn hit(ctx: &Ctx, ball: &Ball) -> Result<()> {
    ctx.bus().emit(if NAME == "ping" { "pong" } else { "ping" }, ball)
}

wharf_sdk::export!(Player);
