//! The seam at which others may see, and change, what is about to be sent. Who they are
//! is the agent's to know.

use std::fmt;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::Request;

/// What a payload belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadInfo {
    pub provider: String,
    /// The model's id.
    pub model: String,
    /// For example `anthropic-messages`.
    pub api: String,
}

/// Asked once for every request that is sent, a repeated one included.
pub trait PayloadFilter: Send + Sync + fmt::Debug {
    /// Gives the payload that is sent. It holds no key, and neither URL nor headers can be
    /// changed by it. Whatever comes back is sent as it is; the server judges it.
    fn filter(&self, info: PayloadInfo, payload: Value) -> BoxFuture<'_, Value>;
}

impl Request {
    /// The payload as the request's filter leaves it.
    pub(crate) async fn filtered(&self, payload: Value) -> Value {
        let Some(filter) = &self.filter else { return payload };
        let info = PayloadInfo {
            provider: self.model.provider.clone(),
            model: self.model.id.clone(),
            api: self.model.api.clone(),
        };
        filter.filter(info, payload).await
    }

    /// The payload of a provider that sends none: what a filter can see and change all
    /// the same.
    pub(crate) fn plain_payload(&self) -> Value {
        let tools: Vec<_> = self
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                })
            })
            .collect();
        json!({
            "model": self.model.id,
            "systemPrompt": self.system_prompt,
            "messages": self.messages,
            "tools": tools,
        })
    }
}

/// A filter of tests: notes what it sees, and changes it by a function.
#[cfg(test)]
pub(crate) mod testing {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    pub(crate) struct TestFilter {
        change: fn(Value) -> Value,
        seen: Mutex<Vec<(PayloadInfo, Value)>>,
    }

    impl fmt::Debug for TestFilter {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("TestFilter")
        }
    }

    impl TestFilter {
        pub(crate) fn new(change: fn(Value) -> Value) -> Arc<Self> {
            Arc::new(Self { change, seen: Mutex::default() })
        }

        pub(crate) fn seen(&self) -> Vec<(PayloadInfo, Value)> {
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    }

    impl PayloadFilter for TestFilter {
        fn filter(&self, info: PayloadInfo, payload: Value) -> BoxFuture<'_, Value> {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push((info, payload.clone()));
            Box::pin(std::future::ready((self.change)(payload)))
        }
    }
}
