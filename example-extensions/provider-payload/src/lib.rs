//! Looks at the requests that go to the model, and changes them: `/payload` tells the
//! last one's size, and `--temperature N` goes into each.
//!
//! No permissions: the body of a request holds no key.

use std::cell::Cell;
use std::collections::BTreeMap;

use wharf_sdk::serde_json::value::{RawValue, to_raw_value};
use wharf_sdk::{
    CommandCtx, Ctx, Error, Extension, FlagSpec, Json, ProviderRequestEvent, Registration, Result,
};

#[derive(Default)]
struct ProviderPayload {
    requests: Cell<u32>,
    bytes: Cell<usize>,
}

impl Extension for ProviderPayload {
    fn register() -> Registration<Self> {
        Registration::new("provider-payload", env!("CARGO_PKG_VERSION"))
            .description("Shows and changes what is sent to the model.")
            .command("payload", "Shows how large the last request was", Self::show)
            .flag(FlagSpec::value("temperature", "Temperature of every request"))
            .on_before_provider_request(Self::request)
    }
}

impl ProviderPayload {
    async fn show(&self, ctx: &CommandCtx, _: &str) -> Result<()> {
        let (requests, bytes) = (self.requests.get(), self.bytes.get());
        ctx.ui().notify(format!("{requests} requests; the last one had {bytes} bytes"));
        Ok(())
    }

    async fn request(&self, ctx: &Ctx, event: ProviderRequestEvent) -> Result<Option<Json>> {
        self.requests.set(self.requests.get() + 1);
        self.bytes.set(event.payload.as_str().len());
        let Some(temperature) = ctx.agent().flag("temperature").value() else { return Ok(None) };
        let temperature: f64 = temperature
            .parse()
            .map_err(|_| Error::from(format!("--temperature {temperature:?} is no number")))?;
        // Only the outermost object is looked into: it may be megabytes.
        let temperature = to_raw_value(&temperature)?;
        let mut payload: BTreeMap<String, &RawValue> = event.payload.parse()?;
        payload.insert("temperature".to_owned(), &temperature);
        Json::of(&payload).map(Some)
    }
}

wharf_sdk::export!(ProviderPayload);
