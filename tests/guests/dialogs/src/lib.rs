//! Opens dialogs without end. `/in-turn N` opens N, each with no time to answer it;
//! `/at-once N` opens N at the same time. Both show how often each outcome came.

use std::collections::BTreeMap;
use std::time::Duration;

use outcome::show;
use wharf_sdk::{Answer, CommandCtx, Error, Extension, Registration, Result, join_all};

#[derive(Default)]
struct Dialogs;

impl Extension for Dialogs {
    fn register() -> Registration<Self> {
        Registration::new("dialogs", "0.1.0")
            .command("in-turn", "Opens dialogs one after the other", Self::in_turn)
            .command("at-once", "Opens dialogs at the same time", Self::at_once)
    }
}

impl Dialogs {
    async fn in_turn(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let ui = ctx.ui().with_timeout(Duration::ZERO);
        let mut outcomes = BTreeMap::<&str, u32>::new();
        for _ in 0..count(args)? {
            *outcomes.entry(outcome(ui.confirm("Yes?", "").await)).or_default() += 1;
        }
        show(ctx, "in-turn", &Ok(outcomes))
    }

    async fn at_once(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let all = (0..count(args)?).map(|_| ctx.ui().confirm("Yes?", ""));
        let mut outcomes = BTreeMap::<&str, u32>::new();
        for answer in join_all(all).await {
            *outcomes.entry(outcome(answer)).or_default() += 1;
        }
        show(ctx, "at-once", &Ok(outcomes))
    }
}

fn count(args: &str) -> Result<u32> {
    args.parse().map_err(|_| Error::from(format!("not a number of dialogs: {args}")))
}

const fn outcome(answer: Answer<bool>) -> &'static str {
    match answer {
        Answer::Answered(_) => "answered",
        Answer::Cancelled => "cancelled",
        Answer::TimedOut => "timed out",
        Answer::NoUi => "no UI",
    }
}

wharf_sdk::export!(Dialogs);
