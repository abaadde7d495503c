//! Tries to get out of the folders that it was granted. `/file {"call", "path"}` calls
//! `read`, `write`, `list`, `stat` or `remove`; with `"times"` that many times, and then
//! shows how often each outcome came.

use std::collections::BTreeMap;

use outcome::{kind, show};
use serde::Deserialize;
use wharf_sdk::{CommandCtx, Ctx, Error, Extension, Json, Permission, Registration, Result};

#[derive(Default)]
struct Escapes;

#[derive(Deserialize)]
struct Call {
    call: String,
    path: String,
    times: Option<u32>,
}

impl Extension for Escapes {
    fn register() -> Registration<Self> {
        let patterns = ["docs/**", "~/notes/**", "@agent/**"];
        Registration::new("escapes", "0.1.0")
            .permissions(patterns.map(Permission::fs_read))
            .permissions(patterns.map(Permission::fs_write))
            .command("file", "Calls a function of files", Self::file)
    }
}

impl Escapes {
    async fn file(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let Call { call, path, times } = Json::read(args)?;
        let Some(times) = times else {
            return show(ctx, &call, &attempt(ctx, &call, &path).await);
        };
        let mut outcomes = BTreeMap::<String, u32>::new();
        for _ in 0..times {
            let outcome = attempt(ctx, &call, &path).await;
            let name = outcome.unwrap_or_else(|error| kind(&error).to_owned());
            *outcomes.entry(name).or_default() += 1;
        }
        show(ctx, &call, &Ok(outcomes))
    }
}

async fn attempt(ctx: &Ctx, call: &str, path: &str) -> Result<String> {
    let files = ctx.files();
    Ok(match call {
        "read" => files.read_to_string(path).await?,
        "write" => files.write(path, "by escapes").await.map(|()| "written".to_owned())?,
        "remove" => files.remove(path).await.map(|()| "removed".to_owned())?,
        "stat" => {
            let info = files.stat(path).await?;
            format!("{:?} of {}", info.kind, info.size)
        }
        "list" => {
            let names = files.list_directory(path).await?;
            names.into_iter().map(|entry| entry.name).collect::<Vec<_>>().join(" ")
        }
        other => return Err(Error::from(format!("there is no call {other}"))),
    })
}

wharf_sdk::export!(Escapes);
