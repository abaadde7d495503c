//! Offers a tool, `odd`, with any schema: `/schema JSON`.

use outcome::show;
use wharf_sdk::bindings::wharf::extension::{agent, types};
use wharf_sdk::{CommandCtx, Extension, Registration, Result};

#[derive(Default)]
struct Schemas;

impl Extension for Schemas {
    fn register() -> Registration<Self> {
        Registration::new("schemas", "0.1.0").command(
            "schema",
            "Offers a tool with this schema",
            Self::schema,
        )
    }
}

impl Schemas {
    async fn schema(&self, ctx: &CommandCtx, args: &str) -> Result<()> {
        let spec = types::ToolSpec {
            name: "odd".to_owned(),
            label: "odd".to_owned(),
            description: "Odd.".to_owned(),
            parameters: args.to_owned(),
            prompt_snippet: None,
            prompt_guidelines: Vec::new(),
            sequential: false,
            overrides: false,
        };
        show(ctx, "schema", &agent::register_tool(&spec).map_err(Into::into))
    }
}

wharf_sdk::export!(Schemas);
