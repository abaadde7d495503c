//! Hands the host more than anybody needs: `/giant IMPORT KIND SIZE` calls one import
//! with one argument made large, and shows what it answered.
//!
//! KIND is `text` (SIZE bytes of `x`), `json` (a JSON string of that size), `numbers` (a
//! JSON array of SIZE bytes, which is many times larger once it is parsed) or `list` (a
//! list of SIZE bytes in the guest's memory, of empty items).

mod calls;

use outcome::show;
use wharf_sdk::{CommandCtx, Error, Extension, Parameters, Registration, Result, ToolCtx};

#[derive(Default)]
struct Giants;

#[derive(serde::Deserialize, Parameters)]
struct Giant {
    import: String,
    kind: String,
    size: usize,
}

impl Extension for Giants {
    fn register() -> Registration<Self> {
        Registration::new("giants", "0.1.0")
            .command("giant", "Calls an import with a giant", Self::giant)
            .tool("giant", "Calls an import with a giant.", Self::tool)
    }
}

impl Giants {
    async fn giant(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let mut words = args.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let (import, kind) = (word(), word());
        let size = word().parse().map_err(|_| Error::from("no size".to_owned()))?;
        let outcome = calls::call(import, "", kind, size).await;
        show(ctx, import, &outcome)
    }

    async fn tool(&self, ctx: &ToolCtx, args: Giant) -> Result<String> {
        let id = ctx.tool_call_id();
        calls::call(&args.import, id, &args.kind, args.size).await
    }
}

wharf_sdk::export!(Giants);
