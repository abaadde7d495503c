#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use wharf_protocol::message::{UserContent, UserMessage};
use wharf_protocol::{AgentMessage, Event, StreamDelta, ThinkingLevel, ToolCall, Usage};
use wharf_provider::{Purpose, Registry, ThinkingBudgets, ToolDefinition};

use super::*;
use crate::host_api::HostApi;
use crate::test_agent::TestAgent;

/// Turns a wait that would never end into a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Gives the same pieces and the same end to every request.
#[derive(Debug)]
struct FakeSource {
    pieces: Vec<ReplyPiece>,
    /// None: it never comes.
    end: Option<Result<ReplyEnd, ReplyFailure>>,
    requests: Mutex<Vec<ReplyRequest>>,
    dropped: Arc<(AtomicBool, Notify)>,
}

impl FakeSource {
    fn new(pieces: Vec<ReplyPiece>, end: Option<Result<ReplyEnd, ReplyFailure>>) -> Arc<Self> {
        Arc::new(Self { pieces, end, requests: Mutex::default(), dropped: Arc::default() })
    }
}

/// Notes that the future it belongs to is gone.
struct Guard(Arc<(AtomicBool, Notify)>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::SeqCst);
        self.0.1.notify_one();
    }
}

impl ReplySource for FakeSource {
    fn reply(
        &self,
        request: ReplyRequest,
        pieces: mpsc::Sender<ReplyPiece>,
    ) -> BoxFuture<'static, Result<ReplyEnd, ReplyFailure>> {
        self.requests.lock().unwrap().push(request);
        let (mine, end) = (self.pieces.clone(), self.end.clone());
        let guard = Guard(Arc::clone(&self.dropped));
        Box::pin(async move {
            let _guard = guard;
            for piece in mine {
                // The reader may have had enough.
                if pieces.send(piece).await.is_err() {
                    break;
                }
            }
            match end {
                Some(end) => end,
                None => std::future::pending().await,
            }
        })
    }
}

fn text(text: &str) -> ReplyPiece {
    ReplyPiece::Text(text.to_owned())
}

fn thinking(text: &str) -> ReplyPiece {
    ReplyPiece::Thinking(text.to_owned())
}

fn call(id: &str, name: &str) -> ReplyPiece {
    ReplyPiece::ToolCall { id: id.to_owned(), name: name.to_owned() }
}

fn arguments(text: &str) -> ReplyPiece {
    ReplyPiece::ToolCallArguments(text.to_owned())
}

fn ends(stop: ReplyStop) -> Option<Result<ReplyEnd, ReplyFailure>> {
    Some(Ok(ReplyEnd { stop, usage: Usage { input: 3, output: 4, ..Usage::default() } }))
}

fn done(stop_reason: StopReason) -> Result<ProviderEvent, ProviderError> {
    let usage = Usage { input: 3, output: 4, ..Usage::default() };
    Ok(ProviderEvent::Done { stop_reason, usage })
}

fn offered(owner: &str, source: Option<Arc<FakeSource>>) -> OfferedProvider {
    let config = json!({"models": [{"id": "m", "maxTokens": 500, "reasoning": true}]});
    OfferedProvider {
        owner: owner.to_owned(),
        name: "acme".to_owned(),
        config: config.as_object().unwrap().clone(),
        source: source.map(|source| Arc::new(ExtensionProvider { source }) as _),
    }
}

fn registry(source: Arc<FakeSource>) -> Registry {
    let mut registry = Registry::with_environment(|_| None);
    registry.add_provider(offered("e", Some(source))).unwrap();
    registry
}

fn stream_of(source: &Arc<FakeSource>) -> BoxStream<'static, Result<ProviderEvent, ProviderError>> {
    let registry = registry(Arc::clone(source));
    let model = registry.find("acme", "m").unwrap();
    let user = |text: &str| {
        let content = UserContent::Text(text.to_owned());
        Arc::new(AgentMessage::User(UserMessage { content, timestamp: 0 }))
    };
    registry.provider(model).unwrap().stream(Request {
        model: model.clone(),
        purpose: Purpose::Reply,
        thinking_level: ThinkingLevel::Xhigh,
        thinking_budgets: ThinkingBudgets::default(),
        system_prompt: "be brief".into(),
        messages: vec![user("one"), user("two")],
        tools: Arc::new([ToolDefinition {
            name: "ls".to_owned(),
            description: "lists".to_owned(),
            parameters: json!({"type": "object"}),
        }]),
        max_tokens: None,
        session_id: None,
        filter: None,
    })
}

async fn events(
    pieces: Vec<ReplyPiece>,
    end: Option<Result<ReplyEnd, ReplyFailure>>,
) -> Vec<Result<ProviderEvent, ProviderError>> {
    let all = stream_of(&FakeSource::new(pieces, end)).collect();
    tokio::time::timeout(PATIENCE, all).await.unwrap()
}

#[tokio::test]
async fn pieces_become_blocks() {
    let pieces = vec![
        thinking("h"),
        thinking("m"),
        text(""),
        thinking("."),
        text("a"),
        text("b"),
        call("1", "ls"),
        arguments("{\"path\":"),
        arguments(""),
        arguments("\"x\"}"),
        call("2", "ls"),
        call("3", "ls"),
        arguments("{\"path"),
        text("c"),
    ];
    let events = events(pieces, ends(ReplyStop::Stop)).await;
    let call_end =
        |index: usize, id: &str, arguments: serde_json::Value| StreamDelta::ToolCallEnd {
            index,
            call: ToolCall {
                id: id.to_owned(),
                name: "ls".to_owned(),
                arguments: arguments.as_object().unwrap().clone(),
                thought_signature: None,
            },
            problem: None,
        };
    let call_start = |index: usize, id: &str| StreamDelta::ToolCallStart {
        index,
        id: id.to_owned(),
        name: "ls".to_owned(),
    };
    let piece = |index: usize, text: &str| (index, text.to_owned());
    let thought = |text: &str| {
        let (index, delta) = piece(0, text);
        StreamDelta::Thinking { index, delta }
    };
    let said = |index: usize, text: &str| {
        let (index, delta) = piece(index, text);
        StreamDelta::Text { index, delta }
    };
    let argued = |index: usize, text: &str| {
        let (index, delta) = piece(index, text);
        StreamDelta::ToolCall { index, delta }
    };
    let before = [
        StreamDelta::ThinkingStart { index: 0 },
        thought("h"),
        thought("m"),
        thought("."),
        StreamDelta::ThinkingEnd { index: 0, signature: None, redacted: false },
        StreamDelta::TextStart { index: 1 },
        said(1, "a"),
        said(1, "b"),
        StreamDelta::TextEnd { index: 1, signature: None },
        call_start(2, "1"),
        argued(2, "{\"path\":"),
        argued(2, "\"x\"}"),
        call_end(2, "1", json!({"path": "x"})),
        call_start(3, "2"),
        call_end(3, "2", json!({})),
        call_start(4, "3"),
        argued(4, "{\"path"),
    ];
    let count = before.len();
    assert_eq!(events[..count], before.map(|delta| Ok(ProviderEvent::Delta(delta))));
    // Broken arguments are told with their call.
    assert!(
        matches!(
            &events[count],
            Ok(ProviderEvent::Delta(StreamDelta::ToolCallEnd { index: 4, call, problem: Some(text) }))
                if call.arguments.is_empty() && text.starts_with("the arguments are not valid JSON")
        ),
        "{:?}",
        events[count]
    );
    let after = [
        StreamDelta::TextStart { index: 5 },
        said(5, "c"),
        StreamDelta::TextEnd { index: 5, signature: None },
    ];
    assert_eq!(events[count + 1..count + 4], after.map(|delta| Ok(ProviderEvent::Delta(delta))));
    // There are calls, so it is for them that the reply stopped.
    assert_eq!(events[count + 4..], [done(StopReason::ToolUse)]);
}

#[tokio::test]
async fn the_end_says_why_the_reply_stopped() {
    for (pieces, stop, expect) in [
        (vec![], ReplyStop::Stop, StopReason::Stop),
        (vec![text("a")], ReplyStop::ToolUse, StopReason::Stop),
        (vec![call("1", "ls")], ReplyStop::ToolUse, StopReason::ToolUse),
        (vec![call("1", "ls"), arguments("{}")], ReplyStop::Length, StopReason::Length),
    ] {
        let events = events(pieces, ends(stop)).await;
        assert_eq!(events.last(), Some(&done(expect)));
        // A call that may have been cut does not run.
        if expect == StopReason::Length {
            let cut = matches!(
                &events[events.len() - 2],
                Ok(ProviderEvent::Delta(StreamDelta::ToolCallEnd { problem: Some(_), .. }))
            );
            assert!(cut, "{events:?}");
        }
    }
}

#[tokio::test]
async fn the_extension_gets_the_request_as_the_model_can_take_it() {
    let source = FakeSource::new(vec![text("a")], ends(ReplyStop::Stop));
    let _: Vec<_> = stream_of(&source).collect().await;
    let requests = source.requests.lock().unwrap();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!((&*request.model.provider, &*request.model.id), ("acme", "m"));
    assert_eq!(&*request.system_prompt, "be brief");
    assert_eq!(request.max_tokens, 500);
    assert_eq!(request.thinking_level, ThinkingLevel::High);
    // Two prompts in a row became one.
    assert_eq!(request.messages.len(), 1);
    assert_eq!((request.tools.len(), &*request.tools[0].name), (1, "ls"));
    assert_eq!(request.tools[0].parameters, json!({"type": "object"}));
}

#[tokio::test]
async fn failures_are_what_they_say() {
    use ErrorKind::{
        Authentication, Connection, ContextOverflow, Dropped, InvalidRequest, Overloaded, Quota,
        RateLimit, Server,
    };

    let long = "x".repeat(5000);
    for (message, status, transient, begun, kind, shown) in [
        ("slow down", Some(429), false, false, RateLimit, "429 slow down"),
        ("", Some(500), false, false, Server, "500 the extension that answers for the model gave"),
        ("busy", Some(503), false, true, Overloaded, "503 busy"),
        ("no", Some(401), true, false, Authentication, "401 no"),
        ("no", Some(403), false, false, Authentication, "403 no"),
        ("pay", Some(402), false, false, Quota, "402 pay"),
        ("large", Some(413), false, false, ContextOverflow, "413 large"),
        ("prompt is too long", Some(400), false, false, ContextOverflow, "400 prompt is"),
        ("prompt is too long", None, false, false, ContextOverflow, "prompt is too long"),
        ("bad", Some(400), false, false, InvalidRequest, "400 bad"),
        ("odd", Some(200), true, false, Connection, "odd"),
        ("reset", None, true, false, Connection, "reset"),
        ("reset", None, true, true, Dropped, "reset"),
        ("bad", None, false, true, InvalidRequest, "bad"),
        (&*long, None, false, false, InvalidRequest, &long[..4096]),
    ] {
        let failure = ReplyFailure { message: message.to_owned(), status, transient };
        let pieces = if begun { vec![text("a")] } else { vec![] };
        let events = events(pieces, Some(Err(failure))).await;
        let error = events.last().unwrap().as_ref().unwrap_err();
        assert_eq!(error.kind, kind, "{message} {status:?}");
        assert!(error.message.starts_with(shown), "{error}");
        assert!(error.message.len() <= 4200, "{}", error.message.len());
        assert_eq!(events.len() > 1, begun);
    }
}

#[tokio::test]
async fn pieces_that_make_no_reply_end_it() {
    let big = text(&"x".repeat(1024 * 1024));
    for (pieces, problem) in [
        (vec![arguments("{}")], "arguments that follow no tool call"),
        (vec![call("1", "ls"), text("a"), arguments("{}")], "arguments that follow no tool call"),
        (vec![call("", "ls")], "a tool call without an id or a name"),
        (vec![call("1", " ")], "a tool call without an id or a name"),
        (vec![call("1", "ls"), call("1", "ls")], "two tool calls with the id \"1\""),
        (vec![big; 65], "more than 67108864 bytes"),
        ((0..140_000).map(|at| call(&at.to_string(), "ls")).collect(), "more than 67108864 bytes"),
    ] {
        // Also where the extension itself never comes to an end.
        for end in [None, ends(ReplyStop::Stop)] {
            let events = events(pieces.clone(), end).await;
            let error = events.last().unwrap().as_ref().unwrap_err();
            assert_eq!(error.kind, ErrorKind::Protocol);
            assert!(error.message.ends_with(problem), "{error}");
        }
    }
}

#[tokio::test]
async fn dropping_the_stream_cancels_and_a_slow_reader_is_waited_for() {
    let source = FakeSource::new(vec![text("a"); 10_000], None);
    let mut events = stream_of(&source);
    for _ in 0..3 {
        events.next().await.unwrap().unwrap();
    }
    assert!(!source.dropped.0.load(Ordering::SeqCst));
    drop(events);
    tokio::time::timeout(PATIENCE, source.dropped.1.notified()).await.unwrap();
}

fn agent_of(source: Arc<FakeSource>) -> (TestAgent, ProviderOffer) {
    let mut registry = registry(Arc::clone(&source));
    let model = registry.find("acme", "m").unwrap().clone();
    registry.remove_provider("e", "acme");
    let test = TestAgent::new(registry, &model, None);
    let OfferedProvider { owner, name, config, .. } = offered("e", None);
    (test, ProviderOffer { owner, name, config, source: Some(source) })
}

#[tokio::test]
async fn an_agent_uses_a_provider_as_long_as_it_is_there() {
    let source = FakeSource::new(vec![text("hello")], ends(ReplyStop::Stop));
    let (test, offer) = agent_of(source);
    let api: &dyn HostApi = &test.agent;
    api.register_provider(offer.clone()).unwrap();
    let reply = test.reply("hi").await;
    assert_eq!((reply.text().as_str(), reply.stop_reason), ("hello", StopReason::Stop));
    assert_eq!((reply.usage.total_tokens, &*reply.api), (7, "extension"));

    let other = ProviderOffer { owner: "other".to_owned(), ..offer.clone() };
    let refused = api.register_provider(other).unwrap_err();
    assert!(matches!(&refused, HostApiError::Invalid(text) if text.contains("extension e has")));
    assert!(!api.unregister_provider("other", "acme"));

    // What is said anew of the current model counts at once.
    let mut wider = offer;
    wider.config =
        json!({"models": [{"id": "m", "contextWindow": 9000}]}).as_object().unwrap().clone();
    api.register_provider(wider).unwrap();
    assert_eq!(api.model().unwrap().context_window, 9000);

    assert!(api.unregister_provider("e", "acme"));
    assert!(!api.unregister_provider("e", "acme"));
    let reply = test.reply("hi").await;
    assert_eq!(reply.stop_reason, StopReason::Error);
    assert_eq!(
        reply.error_message.as_deref(),
        Some("model acme/m has no provider; choose another")
    );
}

#[tokio::test]
async fn an_agent_repeats_what_may_work_the_next_time() {
    for (status, transient, requests) in [(Some(529), false, 4), (None, true, 4), (None, false, 1)]
    {
        let failure = ReplyFailure { message: "no".to_owned(), status, transient };
        let source = FakeSource::new(vec![], Some(Err(failure)));
        let (test, offer) = agent_of(Arc::clone(&source));
        HostApi::register_provider(&test.agent, offer).unwrap();
        let reply = test.reply("hi").await;
        assert_eq!(reply.stop_reason, StopReason::Error);
        assert_eq!(source.requests.lock().unwrap().len(), requests, "{status:?} {transient}");
    }
}

#[tokio::test]
async fn an_aborted_run_drops_the_reply() {
    let source = FakeSource::new(vec![text("a")], None);
    let (test, offer) = agent_of(Arc::clone(&source));
    HostApi::register_provider(&test.agent, offer).unwrap();
    test.prompt("hi");
    let begun = async {
        while !test.events().iter().any(|event| matches!(**event, Event::MessageStart { ref message } if matches!(**message, AgentMessage::Assistant(_)))) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, begun).await.unwrap();
    test.agent.abort();
    tokio::time::timeout(PATIENCE, source.dropped.1.notified()).await.unwrap();
    tokio::time::timeout(PATIENCE, test.agent.wait_idle()).await.unwrap();
}
