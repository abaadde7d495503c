//! Asks hosts by all kinds of spellings: `/fetch {"url"}`, with `method`, `headers` and
//! `body` where they matter.

use outcome::show;
use serde::{Deserialize, Serialize};
use wharf_sdk::{CommandCtx, Ctx, Extension, Json, Permission, Registration, Result};

#[derive(Default)]
struct Tricks;

#[derive(Deserialize)]
struct Call {
    url: String,
    method: Option<String>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    body: Option<String>,
}

#[derive(Serialize)]
struct Answer {
    status: u16,
    url: String,
    body: String,
}

impl Extension for Tricks {
    fn register() -> Registration<Self> {
        let hosts = [
            "127.0.0.1:*",
            "127.0.0.9",
            "example.org",
            "*.sub.example.org",
            "b\u{fc}cher.example:8443",
        ];
        Registration::new("tricks", "0.1.0").permissions(hosts.map(Permission::net)).command(
            "fetch",
            "Sends a request",
            Self::fetch,
        )
    }
}

impl Tricks {
    async fn fetch(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let call: Call = Json::read(args)?;
        show(ctx, "fetch", &fetch(ctx, call).await)
    }
}

async fn fetch(ctx: &Ctx, call: Call) -> Result<Answer> {
    let method = call.method.unwrap_or_else(|| "GET".to_owned());
    let mut request = ctx.http().request(method, call.url);
    for (name, value) in call.headers {
        request = request.header(name, value);
    }
    if let Some(body) = call.body {
        request = request.body(body);
    }
    let response = request.send().await?;
    let (status, url) = (response.status(), response.url().to_owned());
    Ok(Answer { status, url, body: response.text().await? })
}

wharf_sdk::export!(Tricks);
