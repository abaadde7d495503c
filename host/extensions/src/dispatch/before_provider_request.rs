//! `before_provider_request`: replacements of the request's body chain.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{HookEvent, ProviderRequestEvent};

use super::{ask, fits};
use crate::bindings::types as wit;
use crate::call::Request;
use crate::convert;
use crate::extension::Extension;
use crate::limits::MAX_EVENT_DATA_BYTES;

pub(crate) async fn before_provider_request(
    subscribers: &[Arc<Extension>],
    event: ProviderRequestEvent,
    cancel: &CancellationToken,
) -> Value {
    if subscribers.is_empty() {
        return event.payload;
    }
    let ProviderRequestEvent { provider, model, api, mut payload } = event;
    let kind = HookEvent::BeforeProviderRequest;
    let mut data = Arc::new(wit::ProviderRequestEvent {
        provider,
        model,
        api,
        payload: convert::to_json(&payload),
    });
    if !fits(subscribers, kind, "the request has", data.payload.len()) {
        return payload;
    }
    for extension in subscribers {
        let answer = ask(extension, kind, Request::ProviderPayload, &data, cancel).await.flatten();
        match answer {
            None => {}
            Some(text) if text == data.payload => {}
            Some(text) => match accept(&text) {
                Ok(replaced) => {
                    payload = replaced;
                    data = Arc::new(wit::ProviderRequestEvent {
                        provider: data.provider.clone(),
                        model: data.model.clone(),
                        api: data.api.clone(),
                        payload: text,
                    });
                }
                Err(problem) => extension.report_error(kind.name(), &problem),
            },
        }
    }
    payload
}

fn accept(text: &str) -> Result<Value, String> {
    let bytes = text.len();
    if bytes > MAX_EVENT_DATA_BYTES {
        return Err(format!("its payload has {bytes} bytes; the limit is {MAX_EVENT_DATA_BYTES}"));
    }
    serde_json::from_str(text).map_err(|error| format!("its payload is no JSON: {error}"))
}
