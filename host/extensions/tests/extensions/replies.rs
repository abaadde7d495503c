//! Replies of models that an extension answers for.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::mpsc;
use wharf_agent::host_api::{
    ReplyEnd, ReplyFailure, ReplyPiece, ReplyRequest, ReplySource, ReplyStop,
};
use wharf_agent::tool::ToolSpec;
use wharf_protocol::{AgentMessage, ThinkingLevel};

use crate::support::{Fixture, model, patiently};

async fn source(fixture: &Fixture) -> Arc<dyn ReplySource> {
    fixture.command("first call register-provider p streams {}").await;
    assert_eq!(fixture.ui.notified().await, "first register-provider null");
    let providers = fixture.api.providers.lock().unwrap();
    Arc::clone(providers[0].source.as_ref().unwrap())
}

fn request(id: &str) -> ReplyRequest {
    let messages = json!([
        {"role": "user", "content": "hi", "timestamp": 1},
        {"role": "custom", "customType": "x", "content": "no", "display": true, "timestamp": 1},
    ]);
    let messages: Vec<AgentMessage> = serde_json::from_value(messages).unwrap();
    ReplyRequest {
        model: model(id),
        system_prompt: "be brief".into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: vec![ToolSpec {
            name: "t".into(),
            label: "T".into(),
            description: "d".into(),
            parameters: json!({"type": "object"}),
            prompt_snippet: None,
            prompt_guidelines: Vec::new(),
            sequential: false,
        }],
        thinking_level: ThinkingLevel::Low,
        max_tokens: 9,
    }
}

/// A whole reply, read through a channel that holds one piece.
async fn reply(
    source: &Arc<dyn ReplySource>,
    id: &str,
) -> (Result<ReplyEnd, ReplyFailure>, Vec<ReplyPiece>) {
    let (sender, mut receiver) = mpsc::channel(1);
    let reply = source.reply(request(id), sender);
    let read = async {
        let mut pieces = Vec::new();
        while let Some(piece) = receiver.recv().await {
            pieces.push(piece);
        }
        pieces
    };
    patiently(async { tokio::join!(reply, read) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_comes_piece_by_piece() {
    let fixture = Fixture::new(&["first"]).await;
    let source = source(&fixture).await;
    let (end, pieces) = reply(&source, "talks").await;
    let end = end.unwrap();
    assert_eq!(end.stop, ReplyStop::ToolUse);
    assert_eq!((end.usage.input, end.usage.output, end.usage.cache_read), (1, 2, 3));
    assert_eq!(end.usage.total_tokens, u64::MAX);
    assert_eq!(
        pieces,
        [
            ReplyPiece::Thinking("hm".into()),
            ReplyPiece::Text(r#"[{"role":"user","content":"hi","timestamp":1}]"#.into()),
            ReplyPiece::ToolCall { id: "c".into(), name: "t".into() },
            ReplyPiece::ToolCallArguments("{}".into()),
        ]
    );
    assert_eq!(
        fixture.ui.notified().await,
        r#"first asked p be brief [{"name":"t","description":"d","parameters":{"type":"object"}}] low 9"#
    );
    let big = fixture.ui.notified().await;
    assert!(big.contains("piece has 1048577 bytes; the limit is 1048576"), "{big}");
    let gone = fixture.ui.notified().await;
    assert!(gone.contains("NotAllowed") && gone.contains("is not asked for"), "{gone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_and_a_fault_are_told_to_whoever_asked() {
    let fixture = Fixture::new(&["first"]).await;
    let source = source(&fixture).await;
    let failure = reply(&source, "fails").await.0.unwrap_err();
    let expected =
        ReplyFailure { message: "overloaded".into(), status: Some(529), transient: true };
    assert_eq!(failure, expected);
    let failure = reply(&source, "none").await.0.unwrap_err();
    assert!(failure.message.starts_with("the extension first failed: "), "{failure:?}");
    assert!(!failure.transient);
    assert!(fixture.report().await.starts_with("stream_reply: "));
    let (end, _) = reply(&source, "talks").await;
    assert!(end.is_ok(), "a new instance answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_nobody_wants_any_more_is_cancelled() {
    let fixture = Fixture::new(&["first"]).await;
    let source = source(&fixture).await;
    let (sender, _receiver) = mpsc::channel(1);
    let reply = tokio::spawn(source.reply(request("waits"), sender));
    assert_eq!(fixture.ui.notified().await, "first waits");
    reply.abort();
    assert_eq!(fixture.ui.notified().await, "first ended false true true");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_slows_the_extension_down_and_a_reply_has_an_end() {
    let fixture = Fixture::new(&["first"]).await;
    let source = source(&fixture).await;
    let (end, pieces) = reply(&source, "floods").await;
    let failure = end.unwrap_err();
    assert!(failure.message.contains("the limit is 67108864"), "{failure:?}");
    assert_eq!(pieces.len(), 63);
}
