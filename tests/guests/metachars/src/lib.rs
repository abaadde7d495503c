//! Runs programs whose names and arguments would mean something to a shell: `/exec
//! {"program", "args"}`, with `cwd` and `timeoutMs` where they matter, and with `times`
//! that many at once, of which it then shows the outcomes. `/env NAME` reads a variable.

use std::collections::BTreeMap;
use std::time::Duration;

use outcome::{kind, show};
use serde::{Deserialize, Serialize};
use wharf_sdk::{CommandCtx, Ctx, Extension, Json, Permission, Registration, Result, join_all};

#[derive(Default)]
struct Metachars;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Call {
    program: String,
    #[serde(default)]
    args: Vec<String>,
    cwd: Option<String>,
    timeout_ms: Option<u64>,
    times: Option<usize>,
}

#[derive(Serialize)]
struct Output {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Extension for Metachars {
    fn register() -> Registration<Self> {
        let any = ["echo", "tool", "sleep", "git"].map(|program| match program {
            "git" => Permission::exec(["git", "status", "--*"]),
            program => Permission::exec([program, "**"]),
        });
        Registration::new("metachars", "0.1.0")
            .permissions(any)
            .permissions([Permission::exec(["env"]), Permission::exec(["pwd"])])
            .permission(Permission::env("GRANTED"))
            .command("exec", "Runs a program", Self::exec)
            .command("env", "Reads a variable", Self::env)
    }
}

impl Metachars {
    async fn exec(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let call: Call = Json::read(args)?;
        let Some(times) = call.times else { return show(ctx, "exec", &exec(ctx, &call).await) };
        let mut outcomes = BTreeMap::<&str, u32>::new();
        for outcome in join_all((0..times).map(|_| exec(ctx, &call))).await {
            *outcomes.entry(outcome.as_ref().map_or_else(kind, |_| "ok")).or_default() += 1;
        }
        show(ctx, "exec", &Ok(outcomes))
    }

    async fn env(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        show(ctx, "env", &ctx.env(args).await.map_err(Into::into))
    }
}

async fn exec(ctx: &Ctx, call: &Call) -> Result<Output> {
    let mut command = ctx.process().command(&call.program).args(&call.args);
    if let Some(cwd) = &call.cwd {
        command = command.cwd(cwd);
    }
    if let Some(timeout) = call.timeout_ms {
        command = command.timeout(Duration::from_millis(timeout));
    }
    let output = command.output().await?;
    let (stdout, stderr) = (output.stdout_text(), output.stderr_text());
    Ok(Output { code: output.exit_code, stdout, stderr })
}

wharf_sdk::export!(Metachars);
