//! Lets extensions see, and change, what is about to be sent to a model.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use wharf_provider::{PayloadFilter, PayloadInfo};

use crate::agent::Agent;
use crate::hooks::{HookEvent, Hooks, ProviderRequestEvent};

/// The handlers of `before_provider_request`.
#[derive(Debug)]
struct HookFilter {
    hooks: Arc<dyn Hooks>,
    /// Of the run, or of the summary, that the request belongs to.
    cancel: CancellationToken,
}

impl PayloadFilter for HookFilter {
    fn filter(&self, info: PayloadInfo, payload: Value) -> BoxFuture<'_, Value> {
        let PayloadInfo { provider, model, api } = info;
        let event = ProviderRequestEvent { provider, model, api, payload };
        self.hooks.before_provider_request(event, &self.cancel)
    }
}

impl Agent {
    /// None where no extension wants to see requests: then nothing is made for them.
    pub(crate) fn payload_filter(
        &self,
        cancel: &CancellationToken,
    ) -> Option<Arc<dyn PayloadFilter>> {
        let hooks = &self.inner.hooks;
        if !hooks.subscribes(HookEvent::BeforeProviderRequest) {
            return None;
        }
        Some(Arc::new(HookFilter { hooks: Arc::clone(hooks), cancel: cancel.clone() }))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::time::Duration;

    use serde_json::json;
    use tokio_util::sync::CancellationToken;
    use wharf_protocol::ThinkingLevel;
    use wharf_provider::{Purpose, Registry};

    use crate::ask::Question;
    use crate::test_agent::{Change, TestAgent};

    fn agent(script: &str, change: Option<Change>) -> (TestAgent, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        std::fs::write(&path, script).unwrap();
        let mut registry = Registry::with_environment(|_| None);
        let model = registry.restore("scripted", path.to_str().unwrap()).unwrap();
        (TestAgent::new(registry, &model, change), dir)
    }

    const SCRIPT: &str = r#"
{"when":"^plain$","content":[{"type":"text","text":"as it was"}]}
{"when":"^changed$","content":[{"type":"text","text":"as it became"}]}
{"when":"again","error":{"status":529,"body":"busy"}}
{"when":"again","content":[{"type":"text","text":"at last"}]}
{"for":"summary","when":"^changed$","content":[{"type":"text","text":"summary"}]}
{"for":"title","when":"^changed$","content":[{"type":"text","text":"title"}]}
"#;

    #[tokio::test]
    async fn handlers_see_every_request_and_decide_what_is_sent() {
        let change: Change = |mut payload| {
            let last = payload["messages"].as_array().unwrap().last().unwrap().clone();
            if last["content"].to_string().contains("plain") {
                payload["messages"] = json!([{"role": "user", "content": "changed"}]);
            }
            Some(payload)
        };
        let (test, _dir) = agent(SCRIPT, Some(change));
        assert_eq!(test.reply("plain").await.text(), "as it became");
        let seen = test.seen();
        assert_eq!(seen.len(), 1);
        assert_eq!((&*seen[0].provider, &*seen[0].api), ("scripted", "scripted"));
        assert!(seen[0].model.ends_with("s.jsonl"), "{}", seen[0].model);
        assert_eq!(seen[0].payload["messages"][0]["role"], "user");
        // A retry asks again.
        assert_eq!(test.reply("again").await.text(), "at last");
        assert_eq!(test.seen().len(), 3);
        // So do questions that are no part of the conversation.
        let model = test.agent.state().model.clone().unwrap();
        for (purpose, expect) in [(Purpose::Summary, "summary"), (Purpose::Title, "title")] {
            let question = Question {
                purpose,
                model: &model,
                thinking_level: ThinkingLevel::Off,
                system_prompt: "",
                prompt: "plain".to_owned(),
                max_tokens: 100,
            };
            let answer = test.agent.ask(question, &CancellationToken::new()).await;
            assert_eq!(answer.as_deref(), Ok(expect));
        }
        assert_eq!(test.seen().len(), 5);

        let (test, _dir) = agent(SCRIPT, None);
        assert_eq!(test.reply("plain").await.text(), "as it was");
        assert_eq!(test.seen(), []);
    }

    #[tokio::test]
    async fn an_aborted_run_does_not_wait_for_handlers() {
        let (test, _dir) = agent(SCRIPT, Some(|_| None));
        test.prompt("plain");
        let asked = async {
            while test.seen().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let patience = Duration::from_secs(60);
        tokio::time::timeout(patience, asked).await.unwrap();
        test.agent.abort();
        tokio::time::timeout(patience, test.agent.wait_idle()).await.unwrap();
    }
}
