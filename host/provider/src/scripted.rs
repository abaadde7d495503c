//! The provider `scripted`: plays model replies from a JSONL file, through the
//! same stream as every other provider. It needs no key and no network, which
//! makes it the way to try Wharf and to test extensions against exact
//! conversations. It is never a fallback.
//!
//! One reply a line; empty lines and lines that start with `//` are skipped:
//!
//! - `content`: blocks as in assistant messages. `toolCall` blocks may leave out
//!   `id`; `argumentsText` in place of `arguments` sends that text as it is.
//! - `when`: a regular expression; the reply is played only when it matches the
//!   text of the last user message.
//! - `repeat`: true: the reply is not used up by being played.
//! - `stopReason`: `stop`, `length` or `toolUse`; by default what the content says.
//! - `usage`: as in assistant messages; zero by default.
//! - `chunkChars` (default 24): the size of a delta in characters; `delayMs`
//!   (default 0): the pause before each.
//! - `error`: `{"status", "body"}`: the reply fails with it, after its content;
//!   `retryAfterMs` is how long the server wants to be left alone.
//! - `drop`: true: the stream ends after the content as a torn connection's does,
//!   without its last event.
//! - `for`: what the line answers: `reply` (default, a turn of the conversation),
//!   `summary` (of compaction, or of a branch that was left) or `title` (a session's
//!   name).
//!
//! A request takes the first reply of its kind that is not used up and whose `when`
//! matches. The payload that a [`PayloadFilter`](crate::PayloadFilter) sees is
//! `{model, systemPrompt, messages, tools}`; of what it gives back, `messages` count.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};
use wharf_protocol::{AgentMessage, StopReason, StreamDelta, ToolCall, Usage, UserContent};

use crate::blocks::parse_arguments;
use crate::{ErrorKind, Provider, ProviderError, ProviderEvent, Purpose, Request};

/// How the embedded script is called in messages.
pub const DEMO_NAME: &str = "demo";

const DEMO: &str = include_str!("demo.jsonl");

/// A script that cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    #[error("failed to read script {}: {problem}", path.display())]
    Read { path: PathBuf, problem: String },
    #[error("script {script}, line {line}: {problem}")]
    Line { script: String, line: usize, problem: String },
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Reply {
    #[serde(default)]
    content: Vec<Block>,
    when: Option<String>,
    #[serde(default)]
    repeat: bool,
    stop_reason: Option<StopReason>,
    #[serde(default)]
    usage: Usage,
    #[serde(default = "default_chunk_chars")]
    chunk_chars: usize,
    #[serde(default)]
    delay_ms: u64,
    error: Option<ReplyError>,
    #[serde(default)]
    drop: bool,
    #[serde(default, rename = "for")]
    kind: Kind,
}

/// What a line answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    #[default]
    Reply,
    Summary,
    Title,
}

impl From<Purpose> for Kind {
    fn from(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Reply => Self::Reply,
            Purpose::Summary => Self::Summary,
            Purpose::Title => Self::Title,
        }
    }
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Summary => "summary",
            Self::Title => "title",
        }
    }
}

const fn default_chunk_chars() -> usize {
    24
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReplyError {
    status: u16,
    body: String,
    retry_after_ms: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
enum Block {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
        thinking_signature: Option<String>,
    },
    ToolCall {
        id: Option<String>,
        name: String,
        #[serde(default)]
        arguments: Map<String, Value>,
        arguments_text: Option<String>,
    },
}

#[derive(Debug)]
struct Line {
    reply: Reply,
    when: Option<Regex>,
    used: bool,
}

/// Plays one script; what was played is remembered for the life of the process.
#[derive(Debug, Clone)]
pub struct ScriptedProvider {
    name: Arc<str>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    lines: Vec<Line>,
    calls: u64,
}

impl ScriptedProvider {
    /// Reads a script file.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is not a reply.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let text = crate::read_file(path).map_err(|error| ScriptError::Read {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
        Self::parse(&path.display().to_string(), &text)
    }

    fn parse(script: &str, text: &str) -> Result<Self, ScriptError> {
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.trim_start().starts_with("//") {
                continue;
            }
            let fail = |problem: String| ScriptError::Line {
                script: script.to_owned(),
                line: number + 1,
                problem,
            };
            let reply: Reply =
                serde_json::from_str(line).map_err(|error| fail(error.to_string()))?;
            if reply.chunk_chars == 0 {
                return Err(fail("chunkChars must be at least 1".into()));
            }
            if reply.drop && reply.error.is_some() {
                return Err(fail("drop and error exclude each other".into()));
            }
            let when = match &reply.when {
                None => None,
                Some(pattern) => {
                    Some(Regex::new(pattern).map_err(|error| fail(format!("when: {error}")))?)
                }
            };
            lines.push(Line { reply, when, used: false });
        }
        Ok(Self::from_lines(script, lines))
    }

    fn from_lines(name: &str, lines: Vec<Line>) -> Self {
        Self { name: name.into(), state: Arc::new(Mutex::new(State { lines, calls: 0 })) }
    }

    fn next_reply(&self, kind: Kind, last_user_text: &str) -> Result<Vec<Step>, ProviderError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { lines, calls } = &mut *state;
        let of_kind = |line: &&Line| line.reply.kind == kind;
        let total = lines.iter().filter(of_kind).count();
        let used = lines.iter().filter(of_kind).filter(|line| line.used).count();
        let found = lines.iter_mut().find(|line| {
            line.reply.kind == kind
                && !line.used
                && line.when.as_ref().is_none_or(|when| when.is_match(last_user_text))
        });
        let Some(line) = found else {
            let shown: String = last_user_text.chars().take(80).collect();
            return Err(ProviderError::new(
                ErrorKind::Script,
                format!(
                    "script {}: no reply left for {shown:?} ({used} of {total} replies are used up); add one{}, or set \"repeat\": true",
                    self.name,
                    match kind {
                        Kind::Reply => String::new(),
                        Kind::Summary | Kind::Title => format!(" with \"for\": {:?}", kind.name()),
                    }
                ),
            ));
        };
        line.used = !line.reply.repeat;
        Ok(steps(&line.reply, calls))
    }
}

/// The embedded demo script. Most runs never play it, so it is read when a first
/// reply is asked for: start-up must not pay for its patterns.
#[derive(Debug, Default)]
pub struct DemoProvider {
    script: OnceLock<ScriptedProvider>,
}

impl Provider for DemoProvider {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<ProviderEvent, ProviderError>> {
        let read = || {
            // A test reads the script; here a fault would only mean an empty one.
            ScriptedProvider::parse(DEMO_NAME, DEMO)
                .unwrap_or_else(|_| ScriptedProvider::from_lines(DEMO_NAME, Vec::new()))
        };
        self.script.get_or_init(read).stream(request)
    }
}

/// What the stream does next.
#[derive(Debug)]
struct Step {
    delay: Duration,
    result: Result<ProviderEvent, ProviderError>,
}

fn steps(reply: &Reply, calls: &mut u64) -> Vec<Step> {
    let delay = Duration::from_millis(reply.delay_ms);
    let mut steps = Vec::new();
    let mut push = |delay: Duration, delta: StreamDelta| {
        steps.push(Step { delay, result: Ok(ProviderEvent::Delta(delta)) });
    };
    let mut has_call = false;
    for (index, block) in reply.content.iter().enumerate() {
        match block {
            Block::Text { text } => {
                push(Duration::ZERO, StreamDelta::TextStart { index });
                for delta in chunks(text, reply.chunk_chars) {
                    push(delay, StreamDelta::Text { index, delta });
                }
                push(Duration::ZERO, StreamDelta::TextEnd { index, signature: None });
            }
            Block::Thinking { thinking, thinking_signature } => {
                push(Duration::ZERO, StreamDelta::ThinkingStart { index });
                for delta in chunks(thinking, reply.chunk_chars) {
                    push(delay, StreamDelta::Thinking { index, delta });
                }
                let signature = thinking_signature.clone();
                push(
                    Duration::ZERO,
                    StreamDelta::ThinkingEnd { index, signature, redacted: false },
                );
            }
            Block::ToolCall { id, name, arguments, arguments_text } => {
                has_call = true;
                *calls += 1;
                let id = id.clone().unwrap_or_else(|| format!("call_{calls}"));
                push(
                    Duration::ZERO,
                    StreamDelta::ToolCallStart { index, id: id.clone(), name: name.clone() },
                );
                let text = arguments_text
                    .clone()
                    .unwrap_or_else(|| Value::Object(arguments.clone()).to_string());
                for delta in chunks(&text, reply.chunk_chars) {
                    push(delay, StreamDelta::ToolCall { index, delta });
                }
                let (arguments, problem) = parse_arguments(&text);
                let call = ToolCall { id, name: name.clone(), arguments, thought_signature: None };
                push(Duration::ZERO, StreamDelta::ToolCallEnd { index, call, problem });
            }
        }
    }
    if reply.drop {
        return steps;
    }
    let result = match &reply.error {
        Some(error) => {
            let retry_after = error.retry_after_ms.map(Duration::from_millis);
            let error = ProviderError::status(error.status, &error.body);
            Err(ProviderError { retry_after, ..error })
        }
        None => Ok(ProviderEvent::Done {
            stop_reason: reply.stop_reason.unwrap_or(if has_call {
                StopReason::ToolUse
            } else {
                StopReason::Stop
            }),
            usage: reply.usage,
        }),
    };
    steps.push(Step { delay: Duration::ZERO, result });
    steps
}

fn chunks(text: &str, size: usize) -> impl Iterator<Item = String> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.char_indices().nth(size).map_or(rest.len(), |(at, _)| at);
        let (chunk, tail) = rest.split_at(end);
        rest = tail;
        Some(chunk.to_owned())
    })
}

fn last_user_text(messages: &[Arc<AgentMessage>]) -> String {
    messages
        .iter()
        .rev()
        .find_map(|message| match message.as_ref() {
            AgentMessage::User(user) => Some(user.content.to_text()),
            _ => None,
        })
        .unwrap_or_default()
}

/// The same of a payload that others may have changed: empty where it has none.
fn last_user_text_in(payload: &Value) -> String {
    let messages = payload["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let last = messages.iter().rev().find(|message| message["role"] == "user");
    let content = last.map(|message| UserContent::deserialize(&message["content"]));
    content.and_then(Result::ok).map(|content| content.to_text()).unwrap_or_default()
}

impl Provider for ScriptedProvider {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<ProviderEvent, ProviderError>> {
        let script = self.clone();
        stream::once(async move {
            let text = if request.filter.is_some() {
                last_user_text_in(&request.filtered(request.plain_payload()).await)
            } else {
                last_user_text(&request.messages)
            };
            script.next_reply(request.purpose.into(), &text)
        })
        .flat_map(|reply| match reply {
            Err(error) => stream::iter([Err(error)]).boxed(),
            Ok(steps) => stream::iter(steps)
                .then(|step| async move {
                    if !step.delay.is_zero() {
                        tokio::time::sleep(step.delay).await;
                    }
                    step.result
                })
                .boxed(),
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use wharf_protocol::partial::ReplyOrigin;
    use wharf_protocol::{PartialMessage, UserMessage};

    use super::*;

    async fn play(provider: &ScriptedProvider, text: &str) -> Result<(String, StopReason), String> {
        play_for(provider, Purpose::Reply, text).await
    }

    fn request(purpose: Purpose, text: &str) -> Request {
        Request {
            model: crate::registry::testing::model("scripted", DEMO_NAME),
            thinking_level: wharf_protocol::ThinkingLevel::Off,
            system_prompt: "".into(),
            purpose,
            thinking_budgets: crate::ThinkingBudgets::default(),
            max_tokens: None,
            session_id: None,
            filter: None,
            messages: vec![Arc::new(AgentMessage::User(UserMessage {
                content: UserContent::Text(text.to_owned()),
                timestamp: 0,
            }))],
            tools: Arc::new([]),
        }
    }

    async fn play_for(
        provider: &ScriptedProvider,
        purpose: Purpose,
        text: &str,
    ) -> Result<(String, StopReason), String> {
        let mut partial = PartialMessage::new(ReplyOrigin::default());
        let mut stream = provider.stream(request(purpose, text));
        while let Some(event) = stream.next().await {
            match event.map_err(|error| error.to_string())? {
                ProviderEvent::Delta(delta) => partial.apply(&delta),
                ProviderEvent::Done { stop_reason, .. } => {
                    let content = serde_json::to_string(&partial.message().content).unwrap();
                    return Ok((content, stop_reason));
                }
            }
        }
        Err("the stream ended without a last event".into())
    }

    #[tokio::test]
    async fn replies_are_taken_in_order_where_they_match() {
        let script = ScriptedProvider::parse(
            "s",
            r#"
// a comment
{"when":"^list","content":[{"type":"toolCall","id":"c","name":"ls","arguments":{"path":"."}}]}
{"content":[{"type":"text","text":"héllo wörld"}],"chunkChars":1}
{"when":"again","repeat":true,"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"r"}],"stopReason":"length"}
{"when":"fail","error":{"status":529,"body":"overloaded"}}
"#,
        )
        .unwrap();
        let text = |t: &str| format!(r#"[{{"type":"text","text":"{t}"}}]"#);
        assert_eq!(play(&script, "hi").await, Ok((text("héllo wörld"), StopReason::Stop)));
        let call = r#"[{"type":"toolCall","id":"c","name":"ls","arguments":{"path":"."}}]"#;
        assert_eq!(play(&script, "list").await, Ok((call.to_owned(), StopReason::ToolUse)));
        for _ in 0..2 {
            assert_eq!(play(&script, "again").await.unwrap().1, StopReason::Length);
        }
        assert_eq!(play(&script, "fail").await, Err("529 overloaded".to_owned()));
        let error = play(&script, "fail").await.unwrap_err();
        assert!(
            error.contains("no reply left for \"fail\" (3 of 4 replies are used up)"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_request_is_answered_by_lines_of_its_kind() {
        let script = ScriptedProvider::parse(
            "s",
            r#"
{"for":"title","content":[{"type":"text","text":"T"}]}
{"for":"summary","content":[{"type":"text","text":"S"}],"repeat":true}
{"for":"reply","content":[{"type":"text","text":"R"}]}
{"content":[{"type":"text","text":"R2"}]}
"#,
        )
        .unwrap();
        let text = |t: &str| Ok((format!(r#"[{{"type":"text","text":"{t}"}}]"#), StopReason::Stop));
        assert_eq!(play(&script, "a").await, text("R"));
        for _ in 0..2 {
            assert_eq!(play_for(&script, Purpose::Summary, "a").await, text("S"));
        }
        assert_eq!(play(&script, "a").await, text("R2"));
        assert_eq!(play_for(&script, Purpose::Title, "a").await, text("T"));
        let error = play_for(&script, Purpose::Title, "a").await.unwrap_err();
        let expect =
            "no reply left for \"a\" (1 of 1 replies are used up); add one with \"for\": \"title\"";
        assert!(error.contains(expect), "{error}");
        let error = play(&script, "a").await.unwrap_err();
        assert!(error.contains("(2 of 2 replies are used up); add one, or"), "{error}");
    }

    #[tokio::test]
    async fn replies_may_be_torn_or_name_a_time_to_wait() {
        let script = ScriptedProvider::parse(
            "s",
            r#"
{"content":[{"type":"text","text":"half"}],"drop":true}
{"error":{"status":429,"body":"slow down","retryAfterMs":1500}}
"#,
        )
        .unwrap();
        let torn: Vec<_> = script.stream(request(Purpose::Reply, "")).collect().await;
        assert_eq!(torn.len(), 3);
        let end = Ok(ProviderEvent::Delta(StreamDelta::TextEnd { index: 0, signature: None }));
        assert_eq!(torn.last(), Some(&end));
        let failed: Vec<_> = script.stream(request(Purpose::Reply, "")).collect().await;
        let error = failed[0].as_ref().unwrap_err();
        assert_eq!(error.retry_after, Some(Duration::from_millis(1500)));
        assert_eq!(error.kind, ErrorKind::RateLimit);
    }

    #[tokio::test]
    async fn a_filter_sees_the_request_and_decides_what_patterns_match() {
        use serde_json::json;

        use crate::payload::testing::TestFilter;

        let line = r#"{"when":"^X$","repeat":true,"content":[{"type":"text","text":"x"}]}"#;
        let script = ScriptedProvider::parse("s", line).unwrap();
        let ask = async |change: fn(Value) -> Value| {
            let filter = TestFilter::new(change);
            let mut request = request(Purpose::Reply, "hello");
            request.system_prompt = "be brief".into();
            request.tools = Arc::new([crate::ToolDefinition {
                name: "ls".to_owned(),
                description: "lists".to_owned(),
                parameters: json!({"type": "object"}),
            }]);
            request.filter = Some(filter.clone());
            let events: Vec<_> = script.stream(request).collect().await;
            let seen = filter.seen();
            assert_eq!(seen.len(), 1);
            assert_eq!((&*seen[0].0.provider, &*seen[0].0.api), ("scripted", "scripted"));
            let payload = json!({
                "model": seen[0].0.model,
                "systemPrompt": "be brief",
                "messages": [{"role": "user", "content": "hello", "timestamp": 0}],
                "tools": [
                    {"name": "ls", "description": "lists", "parameters": {"type": "object"}},
                ],
            });
            assert_eq!(seen[0].1, payload);
            match events.into_iter().last().unwrap() {
                Ok(_) => "found".to_owned(),
                Err(error) => error.message,
            }
        };
        for change in [
            (|_| json!({"messages": [{"role": "user", "content": "X"}, {"role": "assistant"}]}))
                as fn(Value) -> Value,
            |_| json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "X"}]}]}),
        ] {
            assert_eq!(ask(change).await, "found");
        }
        for (change, text) in [
            ((|payload| payload) as fn(Value) -> Value, "hello"),
            (|_| json!({"messages": [{"role": "user", "content": "X"}, {"role": "user"}]}), ""),
            (|_| json!({"messages": "X"}), ""),
            (|_| json!([]), ""),
            (|_| Value::Null, ""),
        ] {
            let error = ask(change).await;
            assert!(error.contains(&format!("no reply left for {text:?} ")), "{error}");
        }
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, expect) in [
            ("{\"content\":[]}\n{\"contents\":[]}", "script s, line 2: unknown field `contents`"),
            ("{\"when\":\"(\"}", "script s, line 1: when: regex parse error"),
            ("{\"chunkChars\":0}", "script s, line 1: chunkChars must be at least 1"),
            ("{\"for\":\"fun\"}", "script s, line 1: unknown variant `fun`"),
            (
                "{\"drop\":true,\"error\":{\"status\":500,\"body\":\"\"}}",
                "script s, line 1: drop and error exclude each other",
            ),
        ] {
            let error = ScriptedProvider::parse("s", text).unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        }
    }

    #[test]
    fn the_embedded_script_is_sound() {
        let script = ScriptedProvider::parse(DEMO_NAME, DEMO).unwrap();
        assert!(!script.state.lock().unwrap().lines.is_empty());
    }
}
