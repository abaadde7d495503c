//! Asks before the session changes while the repository has uncommitted changes.
//!
//! Permission: `git status --porcelain`. Where it is denied, or there is no
//! repository, the switch goes on, and so it does where nobody can be asked.

use wharf_sdk::{
    Answer, Ctx, Extension, ForkDecision, Permission, Registration, Result, SessionBeforeForkEvent,
    SessionBeforeSwitchEvent, SwitchDecision,
};

#[derive(Default)]
struct DirtyRepoGuard;

impl Extension for DirtyRepoGuard {
    fn register() -> Registration<Self> {
        Registration::new("dirty-repo-guard", env!("CARGO_PKG_VERSION"))
            .description("Asks before the session changes with uncommitted work.")
            .permission(Permission::exec(["git", "status", "--porcelain"]))
            .on_session_before_switch(Self::before_switch)
            .on_session_before_fork(Self::before_fork)
    }
}

impl DirtyRepoGuard {
    async fn before_switch(
        &self,
        ctx: &Ctx,
        _: SessionBeforeSwitchEvent,
    ) -> Result<SwitchDecision> {
        Ok(match may_leave(ctx).await {
            true => SwitchDecision::Proceed,
            false => SwitchDecision::Cancel,
        })
    }

    async fn before_fork(&self, ctx: &Ctx, _: SessionBeforeForkEvent) -> Result<ForkDecision> {
        Ok(match may_leave(ctx).await {
            true => ForkDecision::Proceed,
            false => ForkDecision::Cancel,
        })
    }
}

async fn may_leave(ctx: &Ctx) -> bool {
    let status = match ctx.process().exec("git", ["status", "--porcelain"]).await {
        Ok(status) if status.is_success() => status.stdout_text(),
        Ok(_) => return true,
        Err(error) => {
            ctx.log().warn(format!("the repository was not looked at: {error}"));
            return true;
        }
    };
    let changed = status.lines().count();
    if changed == 0 {
        return true;
    }
    let question = format!("{changed} files have changes that are not committed. Go on?");
    match ctx.ui().confirm("Uncommitted changes", question).await {
        Answer::Answered(true) | Answer::NoUi => true,
        Answer::Answered(false) | Answer::Cancelled | Answer::TimedOut => {
            ctx.ui().notify("Commit your changes first");
            false
        }
    }
}

wharf_sdk::export!(DirtyRepoGuard);
