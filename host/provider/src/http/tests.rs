//! Tests of the driver against a server that is no more than a socket, with an API and
//! a decoder of their own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{ErrorKind as IoErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

use futures::StreamExt as _;
use serde_json::json;
use wharf_protocol::{AgentMessage, StopReason, StreamDelta, ThinkingLevel, Usage};

use super::*;
use crate::registry::testing::model;
use crate::{Purpose, ThinkingBudgets};

const KEY: &str = "sk-secret-0123456789";

/// Its events: `done`, `fail`, `junk`; everything else is text.
#[derive(Debug)]
struct TestApi;

struct TestDecoder {
    /// The server has said that nothing more comes.
    is_whole: bool,
}

impl Api for TestApi {
    fn encode(&self, request: &Request, endpoint: &Endpoint) -> HttpRequest {
        let mut headers = vec![("x-plain", "api".to_owned()), ("x-other", "api".to_owned())];
        if let Some(key) = &endpoint.api_key {
            let header = if endpoint.auth_header { "authorization" } else { "x-api-key" };
            headers.push((header, key.clone()));
        }
        HttpRequest {
            url: format!("{}/reply?version=1", endpoint.base_url),
            headers,
            body: json!({"level": request.thinking_level, "messages": request.messages.len()}),
        }
    }

    fn decoder(&self, _: &Request) -> Box<dyn Decoder> {
        Box::new(TestDecoder { is_whole: false })
    }
}

fn done() -> ProviderEvent {
    ProviderEvent::Done { stop_reason: StopReason::Stop, usage: Usage::default() }
}

fn text(delta: &str) -> ProviderEvent {
    ProviderEvent::Delta(StreamDelta::Text { index: 0, delta: delta.to_owned() })
}

impl Decoder for TestDecoder {
    fn event(
        &mut self,
        event: &SseEvent,
        out: &mut Vec<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        match event.data.as_str() {
            "done" => out.push(done()),
            "whole" => self.is_whole = true,
            "junk" => return Err(ProviderError::new(ErrorKind::Protocol, "junk")),
            data if data.starts_with("fail") => {
                return Err(ProviderError::in_stream("overloaded_error", data, "{}"));
            }
            data => out.push(text(data)),
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<ProviderEvent>) -> Result<(), ProviderError> {
        if !self.is_whole {
            return Err(ProviderError::dropped(""));
        }
        out.push(done());
        Ok(())
    }
}

/// The connection of one request.
struct Connection {
    stream: TcpStream,
    /// Counts the connections.
    number: usize,
    /// The head, in lower case, and the body.
    request: String,
}

impl Connection {
    fn write(&mut self, bytes: impl AsRef<[u8]>) {
        // The client may have gone; the test sees that elsewhere.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// A stream's head, for a body that ends with the connection.
    fn begin(&mut self) {
        self.write(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
        );
    }

    /// Waits until the client closes.
    fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0; 16]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == IoErrorKind::ConnectionReset,
        }
    }
}

/// A server that calls `answer` for each request; a connection stays as long as that
/// says so.
struct Server {
    url: String,
    requests: Receiver<String>,
}

impl Server {
    fn start(answer: impl Fn(&mut Connection) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/base", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        let answer = std::sync::Arc::new(answer);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let (answer, sender) = (std::sync::Arc::clone(&answer), sender.clone());
                std::thread::spawn(move || serve(stream, number, &*answer, &sender));
            }
        });
        Self { url, requests }
    }

    /// The next request that has come.
    fn request(&self) -> String {
        self.requests.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    /// Answers every request with these bytes and closes.
    fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |connection| {
            connection.write(&bytes);
            false
        })
    }
}

fn serve(
    stream: TcpStream,
    number: usize,
    answer: &dyn Fn(&mut Connection) -> bool,
    sender: &Sender<String>,
) {
    let mut connection = Connection { stream, number, request: String::new() };
    while let Some(request) = read_request(&mut connection.stream) {
        connection.request.clone_from(&request);
        let _ = sender.send(request);
        if !answer(&mut connection) {
            break;
        }
    }
    let _ = connection.stream.shutdown(Shutdown::Both);
}

fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).ok()?.to_lowercase();
    let length = head.split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(format!("{head}{}", String::from_utf8(body).ok()?))
}

fn provider(base_url: &str) -> HttpProvider {
    HttpProvider {
        api: ApiKind::OpenaiCompletions,
        provider: "fake".to_owned(),
        base_url: base_url.to_owned(),
        key: KeySource::Literal(KEY.to_owned()),
        auth_header: false,
        headers: Vec::new(),
        compat: Value::Null,
    }
}

fn request() -> Request {
    let user = |text: &str| json!({"role": "user", "content": text, "timestamp": 1});
    let message = |text| serde_json::from_value::<AgentMessage>(user(text)).unwrap().into();
    Request {
        model: model("fake", "fake-1"),
        purpose: Purpose::Reply,
        thinking_level: ThinkingLevel::Xhigh,
        thinking_budgets: ThinkingBudgets::default(),
        system_prompt: "".into(),
        messages: vec![message("one"), message("two")],
        tools: Vec::new().into(),
        max_tokens: None,
        session_id: None,
        filter: None,
    }
}

fn open(provider: &HttpProvider) -> BoxStream<'static, Result<ProviderEvent, ProviderError>> {
    provider.stream_through(&TestApi, request())
}

async fn collect(provider: &HttpProvider) -> Vec<Result<ProviderEvent, ProviderError>> {
    open(provider).collect().await
}

/// The only thing that comes is an error.
async fn failure(provider: &HttpProvider) -> ProviderError {
    let mut all = collect(provider).await;
    assert_eq!(all.len(), 1, "{all:?}");
    let error = all.remove(0).unwrap_err();
    assert!(!error.message.contains(KEY), "{error}");
    error
}

fn stream_of(body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn a_filter_decides_what_is_sent() {
    use crate::PayloadInfo;
    use crate::payload::testing::TestFilter;

    let server = Server::answering(stream_of("data: done\n\n"));
    for (change, body) in [
        ((|body| body) as fn(Value) -> Value, "{\"level\":\"high\",\"messages\":1}"),
        (
            |mut body| {
                body["extra"] = json!(true);
                body
            },
            "{\"level\":\"high\",\"messages\":1,\"extra\":true}",
        ),
        // No object: the server's to judge.
        (|_| json!(["x"]), "[\"x\"]"),
    ] {
        let filter = TestFilter::new(change);
        let request = Request { filter: Some(filter.clone()), ..request() };
        let events: Vec<_> =
            provider(&server.url).stream_through(&TestApi, request).collect().await;
        assert_eq!(events, [Ok(done())]);
        let sent = server.request();
        assert!(sent.ends_with(&format!("\r\n\r\n{body}")), "{sent}");
        assert!(sent.contains(&format!("content-length: {}\r\n", body.len())), "{sent}");
        let info = PayloadInfo {
            provider: "fake".to_owned(),
            model: "fake-1".to_owned(),
            api: "scripted".to_owned(),
        };
        // Neither key nor headers.
        assert_eq!(filter.seen(), [(info, json!({"level": "high", "messages": 1}))]);
    }
}

#[tokio::test]
async fn what_is_sent() {
    let server = Server::answering(stream_of("data: hi\n\ndata: done\n\n"));
    // A slash at the end is not doubled.
    let mut provider = provider(&format!("{}/", server.url));
    let literal = |text: &str| KeySource::Literal(text.to_owned());
    provider.headers = vec![
        ("X-Other".to_owned(), literal("  mine ")),
        ("User-Agent".to_owned(), literal("own/1")),
        ("Content-Type".to_owned(), literal("text/plain")),
        ("x-none".to_owned(), KeySource::None),
    ];
    assert_eq!(collect(&provider).await, [Ok(text("hi")), Ok(done())]);
    let request = server.request();
    for line in [
        "post /base/reply?version=1 http/1.1\r\n",
        "x-api-key: sk-secret-0123456789\r\n",
        "x-plain: api\r\n",
        "x-other: mine\r\n",
        "user-agent: own/1\r\n",
        "content-type: application/json\r\n",
        "accept: text/event-stream\r\n",
        // The model has no xhigh; two prompts in a row became one.
        "\r\n\r\n{\"level\":\"high\",\"messages\":1}",
    ] {
        assert!(request.contains(line), "{line} is missing in {request}");
    }
    for absent in ["x-other: api", "x-none", "authorization", "text/plain"] {
        assert!(!request.contains(absent), "{absent} is in {request}");
    }

    provider.headers.clear();
    provider.auth_header = true;
    collect(&provider).await;
    let request = server.request();
    assert!(request.contains("authorization: sk-secret") && !request.contains("x-api-key"));
    assert!(request.contains(concat!("user-agent: wharf/", env!("CARGO_PKG_VERSION"))));

    provider.key = KeySource::None;
    collect(&provider).await;
    let request = server.request();
    assert!(!request.contains("authorization") && !request.contains("x-api-key"), "{request}");
}

#[tokio::test]
async fn a_header_that_http_cannot_carry() {
    let server = Server::answering("");
    let value = |what: &str| {
        format!(
            "has {what} in its value, which HTTP cannot carry; correct the key or the header in auth.json or models.json, or where they take it from"
        )
    };
    let name = "has a name that HTTP cannot carry; change it in models.json".to_owned();
    for (header, text, problem) in [
        ("x y", "v", name.clone()),
        ("", "v", name),
        ("x-y", "sk-secret-0123456789\nx", value("a line break")),
        ("x-y", "sk-secret-0123456789\r\nx", value("a line break")),
        ("x-y", "sk-secret-0123456789\u{7f}", value("a control character")),
        ("x-y", "sk-secret-0123456789\0x", value("a control character")),
    ] {
        let mut provider = provider(&server.url);
        provider.headers = vec![(header.to_owned(), KeySource::Literal(text.to_owned()))];
        let error = failure(&provider).await;
        assert_eq!(error.kind, ErrorKind::InvalidRequest);
        assert_eq!(error.message, format!("header {header:?} {problem}"));
    }
    // The key itself, of whatever file.
    let mut provider = provider(&server.url);
    provider.key = KeySource::Literal(format!("{KEY}\n{KEY}"));
    let error = failure(&provider).await;
    assert_eq!(error.message, format!("header \"x-api-key\" {}", value("a line break")));
    assert!(server.requests.try_recv().is_err(), "nothing was sent");
}

#[tokio::test]
async fn no_key_follows_a_redirect() {
    let target = Server::answering(stream_of("data: done\n\n"));
    for status in [301, 302, 307, 308] {
        let url = target.url.replace("http://", "http://user:password@");
        let server = Server::answering(format!(
            "HTTP/1.1 {status} Moved\r\nlocation: {url}?key=k\r\ncontent-length: 0\r\n\r\n"
        ));
        let error = failure(&provider(&server.url)).await;
        assert_eq!(error.kind, ErrorKind::InvalidRequest);
        let expect = format!("{status} the server redirects to {};", target.url);
        assert!(error.message.starts_with(&expect), "{error}");
    }
    assert!(target.requests.try_recv().is_err(), "the redirect was followed");
}

#[tokio::test]
async fn a_refusal_keeps_its_status_its_body_and_its_wait() {
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(1000));
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    let seconds = |seconds| Some(Duration::from_secs(seconds)..=Duration::from_secs(seconds));
    for (status, headers, kind, wait) in [
        (429, "retry-after: 7", ErrorKind::RateLimit, seconds(7)),
        (529, "Retry-After:  7 \r\nretry-after-ms: 2000", ErrorKind::Overloaded, seconds(2)),
        (429, "retry-after: 1\r\nretry-after-ms: soon", ErrorKind::RateLimit, seconds(1)),
        (429, "retry-after: 1e999", ErrorKind::RateLimit, None),
        (429, "retry-after: -1", ErrorKind::RateLimit, None),
        (503, &format!("retry-after: {past}"), ErrorKind::Overloaded, None),
        (
            503,
            &format!("retry-after: {date}"),
            ErrorKind::Overloaded,
            // As long ago as a loaded machine may make it.
            Some(Duration::from_secs(1)..=Duration::from_secs(1000)),
        ),
        (401, "x: y", ErrorKind::Authentication, None),
        (500, "x: y", ErrorKind::Server, None),
    ] {
        // A server that repeats the key must not get it into a session file.
        let body = format!("{{\"error\":\"of {KEY}\"}}");
        let server = Server::answering(format!(
            "HTTP/1.1 {status} No\r\n{headers}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        let error = failure(&provider(&server.url)).await;
        assert_eq!(error.kind, kind, "{status}");
        assert_eq!(error.message, format!("{status} {{\"error\":\"of [key]\"}}"));
        match (error.retry_after, wait) {
            (None, None) => {}
            (Some(found), Some(wait)) => assert!(wait.contains(&found), "{headers}: {found:?}"),
            (found, wait) => panic!("{headers}: {found:?} instead of {wait:?}"),
        }
    }
}

#[tokio::test]
async fn a_refusal_without_a_whole_body() {
    // Cut off, endless, and of another encoding.
    let cut = "HTTP/1.1 500 No\r\ncontent-length: 100\r\n\r\nhalf".to_owned().into_bytes();
    let mut endless = b"HTTP/1.1 500 No\r\n\r\n".to_vec();
    endless.resize(10 * MAX_ERROR_BODY, b'x');
    let bytes = b"HTTP/1.1 500 No\r\ncontent-length: 1\r\n\r\n\xff".to_vec();
    for (answer, expect) in [(cut, "500 half"), (endless, "500 xxxxxx"), (bytes, "500 \u{fffd}")] {
        let error = failure(&provider(&Server::answering(answer).url)).await;
        assert_eq!(error.kind, ErrorKind::Server);
        assert!(error.message.starts_with(expect), "{error}");
        assert!(error.message.len() < 5000);
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = failure(&provider(&format!("http://me:{KEY}@{address}/base/?key={KEY}"))).await;
    assert_eq!(error.kind, ErrorKind::Connection);
    let expect = format!("failed to reach fake at http://{address}/base/: ");
    assert!(error.message.starts_with(&expect), "{error}");
    assert!(error.message.len() > expect.len(), "no reason in {error}");

    // One that closes without a word, and one that speaks no HTTP.
    for answer in ["", "220 smtp.example\r\n"] {
        let error = failure(&provider(&Server::answering(answer).url)).await;
        assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    }

    for url in ["example.com/v1", "ftp://127.0.0.1/", ""] {
        let error = failure(&provider(url)).await;
        assert_eq!(error.kind, ErrorKind::InvalidRequest, "{url}: {error}");
        assert!(error.message.contains("check baseUrl in models.json"), "{error}");
    }
}

#[tokio::test]
async fn a_missing_end_is_noticed() {
    let chunked = |body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n",
            body.len()
        )
    };
    let closed = |body: &str| format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}");
    let dropped = "the stream ended before the reply was complete";
    for answer in [
        chunked("data: hi\n\n"),
        chunked("data: hi\n\n") + "0\r\n\r\n",
        chunked("data: hi\n\ndata: mo"),
        closed("data: hi\n\n"),
        // The end cut off an event.
        closed("data: hi\n\ndata: junk"),
        stream_of("data: hi\n\ndata: done\n\n").replace("data: done\n\n", ""),
    ] {
        let all = collect(&provider(&Server::answering(answer.as_bytes()).url)).await;
        let [Ok(hi), Err(error)] = all.as_slice() else { panic!("{answer}: {all:?}") };
        assert_eq!((hi, error.kind), (&text("hi"), ErrorKind::Dropped), "{answer}");
        assert!(error.message.starts_with(dropped), "{error}");
    }
    // Nothing, or comments only.
    for answer in [stream_of(""), stream_of(": queued\n\n"), chunked("da"), closed("")] {
        let error = failure(&provider(&Server::answering(answer.as_bytes()).url)).await;
        assert_eq!(error.kind, ErrorKind::Dropped, "{answer}: {error}");
    }
    // The API knows that it has everything: also where the server just hangs up.
    for answer in [
        stream_of("data: hi\n\ndata: whole\n\n"),
        chunked("data: hi\n\ndata: whole\n\n"),
        closed("data: hi\n\ndata: done"),
    ] {
        let all = collect(&provider(&Server::answering(answer.as_bytes()).url)).await;
        assert_eq!(all, [Ok(text("hi")), Ok(done())], "{answer}");
    }
}

#[tokio::test]
async fn an_error_of_the_api_ends_the_stream() {
    let body = format!("data: hi\n\ndata: fail {KEY}\n\ndata: more\n\ndata: done\n\n");
    let server = Server::answering(stream_of(&body));
    let all = collect(&provider(&server.url)).await;
    let [Ok(hi), Err(error)] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((hi, error.kind), (&text("hi"), ErrorKind::Overloaded));
    assert_eq!(error.message, "overloaded_error: fail [key]");

    let server = Server::answering(stream_of("data: junk\n\ndata: done\n\n"));
    assert_eq!(failure(&provider(&server.url)).await.kind, ErrorKind::Protocol);
    // What stands behind the end is nobody's.
    let server = Server::answering(stream_of("data: done\n\ndata: junk\n\ndata: hi\n\n"));
    assert_eq!(collect(&provider(&server.url)).await, [Ok(done())]);
}

#[tokio::test]
async fn a_body_that_is_no_stream() {
    let page = "<!DOCTYPE html><html><title>Sign in</title></html>";
    let whole = r#"{"choices":[{"message":{"content":"not streamed"}}]}"#;
    let error = r#"{"error":{"type":"overloaded_error","message":"later"}}"#;
    for (kind, body, expect, say) in [
        ("text/html", page, ErrorKind::Protocol, "Sign in"),
        ("application/json", whole, ErrorKind::Protocol, "not streamed"),
        ("application/json", error, ErrorKind::Overloaded, "later"),
        // Whatever the header says.
        ("text/event-stream", page, ErrorKind::Protocol, "Sign in"),
        ("text/event-stream", error, ErrorKind::Overloaded, "later"),
    ] {
        // With its end, and torn.
        for length in [body.len(), body.len() + 1] {
            let server = Server::answering(format!(
                "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
            ));
            let error = failure(&provider(&server.url)).await;
            assert_eq!(error.kind, expect, "{error}");
            assert!(error.message.contains(say), "{error}");
            if expect == ErrorKind::Protocol {
                let expect =
                    format!("fake at {} sent no stream of events but {kind}; check", server.url);
                assert!(error.message.starts_with(&expect), "{error}");
            }
        }
    }
    let server = Server::answering(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(1 << 20)));
    let error = failure(&provider(&server.url)).await;
    assert!(error.message.contains("nothing that it names"), "{error}");
    assert!(error.message.len() < 500, "{error}");
    // A stream under a wrong name is one.
    let server = Server::answering(stream_of("data: done\n\n").replace("event-stream", "plain"));
    assert_eq!(collect(&provider(&server.url)).await, [Ok(done())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_stream_closes_the_connection() {
    let (sender, closed) = channel();
    let sender = std::sync::Mutex::new(sender);
    let server = Server::start(move |connection| {
        if connection.number > 0 {
            connection.begin();
            connection.write("data: hi\n\n");
        }
        let _ = sender.lock().unwrap().send(connection.is_closed());
        false
    });
    let wait = || closed.recv_timeout(Duration::from_secs(60)).unwrap();
    let provider = provider(&server.url);

    // Before the response's head.
    let mut stream = open(&provider);
    let polled = futures::poll!(stream.next());
    assert!(polled.is_pending());
    let arrived = async {
        loop {
            tokio::select! {
                _ = stream.next() => panic!("a reply came from nowhere"),
                () = tokio::task::yield_now() => if server.requests.try_recv().is_ok() { break },
            }
        }
    };
    arrived.await;
    drop(stream);
    tokio::task::block_in_place(|| assert!(wait()));

    // In the middle of the reply.
    let mut stream = open(&provider);
    assert_eq!(stream.next().await, Some(Ok(text("hi"))));
    drop(stream);
    tokio::task::block_in_place(|| assert!(wait()));
}

#[tokio::test]
async fn a_connection_is_used_again_after_the_end() {
    let (sender, numbers) = channel();
    let sender = std::sync::Mutex::new(sender);
    let server = Server::start(move |connection| {
        let _ = sender.lock().unwrap().send(connection.number);
        connection.write(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nc\r\ndata: done\n\n\r\n",
        );
        // What comes behind the end of the reply must be read away first.
        connection.write("8\r\n: bye\n\n\n\r\n0\r\n\r\n");
        true
    });
    let provider = provider(&server.url);
    let mut last = None;
    // The rest is read in the background: how soon, nobody knows.
    for _ in 0..1000 {
        assert_eq!(collect(&provider).await, [Ok(done())]);
        let number = numbers.recv_timeout(Duration::from_secs(60)).unwrap();
        if last.replace(number) == Some(number) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("each request had a connection of its own");
}

#[tokio::test]
async fn the_same_reply_however_it_is_cut() {
    let body = "\u{feff}event: x\r\ndata: h\u{e9}llo \u{1f600}\r\n\r\n: ping\n\ndata: a\ndata: b\n\ndata: done\n\n";
    let expect = [Ok(text("h\u{e9}llo \u{1f600}")), Ok(text("a\nb")), Ok(done())];
    let at = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::start(move |connection| {
        let at = at.fetch_add(1, std::sync::atomic::Ordering::Relaxed).min(body.len());
        let (first, second) = body.as_bytes().split_at(at);
        connection.write(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        );
        for part in [first, second].into_iter().filter(|part| !part.is_empty()) {
            connection.write(format!("{:x}\r\n", part.len()));
            connection.write(part);
            connection.write("\r\n");
        }
        connection.write("0\r\n\r\n");
        true
    });
    let provider = provider(&server.url);
    for at in 0..=body.len() {
        assert_eq!(collect(&provider).await, expect, "cut at {at}");
    }
}

#[tokio::test]
async fn an_endless_reply_is_given_up() {
    let reply = Reply {
        server: "fake".to_owned(),
        content_type: String::new(),
        secrets: Secrets::default(),
        body: stream::repeat_with(|| Ok(Bytes::from_static(b"data: hi\n\n"))).boxed(),
        start: Vec::new(),
        has_event: false,
        bytes_left: 25,
        parser: SseParser::default(),
        decoder: Box::new(TestDecoder { is_whole: false }),
        events: Vec::new(),
        ready: Vec::new().into_iter(),
    };
    let all: Vec<_> = reply.into_stream().collect().await;
    let [Ok(_), Ok(_), Err(error)] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(error.message.starts_with("fake sent more than"), "{error}");
}

#[test]
fn urls_for_people() {
    for (url, expect) in [
        ("https://api.example.com/v1", "https://api.example.com/v1"),
        ("https://me:secret@example.com:8080/v1?key=k#f", "https://example.com:8080/v1"),
        ("me:secret@example.com", "example.com"),
        ("https://a@b@example.com/x@y", "https://example.com/x@y"),
        ("/relative?key=k", "/relative"),
        ("", ""),
    ] {
        assert_eq!(public(url), expect);
    }
}

#[test]
fn servers_of_this_machine_take_no_proxy() {
    for (url, expect) in [
        ("http://localhost:11434/v1", true),
        ("http://127.0.0.1:1/v1", true),
        ("http://127.8.8.8/", true),
        ("http://[::1]:8080/v1", true),
        ("http://localhost.example.com/", false),
        ("http://192.168.0.1/", false),
        ("https://api.example.com/localhost", false),
        ("no url", false),
    ] {
        assert_eq!(is_local(url), expect, "{url}");
    }
}

#[test]
fn secrets_are_hidden_wherever_they_stand() {
    let mut secrets = Secrets::default();
    secrets.add("");
    secrets.add("none");
    secrets.add(KEY);
    let literal = KeySource::Literal(String::new());
    secrets.add_header("Authorization", &literal, "Bearer token-of-mine");
    secrets.add_header("anthropic-beta", &literal, "some-feature");
    let text = format!("{KEY}, {KEY} and token-of-mine: some-feature is none");
    let hidden = secrets.hide(ProviderError::new(ErrorKind::Server, text));
    assert_eq!(hidden.message, "[key], [key] and [key]: some-feature is none");
}

#[test]
fn headers_are_secret_by_their_name_or_their_source() {
    let literal = KeySource::Literal(String::new());
    let variable = KeySource::Variable { name: "V".to_owned(), value: String::new() };
    let command = KeySource::Command("print it".to_owned());
    for (name, source, value, message, expect) in [
        ("x-team", &variable, "of-a-variable", "bad of-a-variable", "bad [key]"),
        ("x-team", &command, " of-a-command\n", "bad of-a-command", "bad [key]"),
        ("x-team", &literal, "plain-text", "bad plain-text", "bad plain-text"),
        ("x-token", &literal, "plain-text", "bad plain-text", "bad [key]"),
        ("x-team", &variable, "Basic dXNlcjpw", "dXNlcjpw of Basic dXNlcjpw", "[key] of [key]"),
        // A part of another word.
        ("x-team", &variable, "prod", "bad product", "bad product"),
        // The driver's own key is the beginning of this value.
        ("x-team", &variable, "sk-secret-0123456789-more", "sk-secret-0123456789-more", "[key]"),
    ] {
        let mut secrets = Secrets::default();
        secrets.add(KEY);
        secrets.add_header(name, source, value);
        let hidden = secrets.hide(ProviderError::new(ErrorKind::Server, message));
        assert_eq!(hidden.message, expect, "{name} {source:?} {value}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_that_repeats_a_header_does_not_get_it_shown() {
    let body = "no team team-of-a-variable, no zone zone-of-a-command";
    let server = Server::answering(format!(
        "HTTP/1.1 400 No\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let mut provider = provider(&server.url);
    let team = "team-of-a-variable".to_owned();
    provider.headers = vec![
        ("x-team".to_owned(), KeySource::Variable { name: "TEAM".to_owned(), value: team }),
        ("x-zone".to_owned(), KeySource::Command("echo zone-of-a-command".to_owned())),
    ];
    let error = failure(&provider).await;
    assert_eq!(error.message, "400 no team [key], no zone [key]");
    let request = server.request();
    assert!(request.contains("x-team: team-of-a-variable\r\n"), "{request}");
    assert!(request.contains("x-zone: zone-of-a-command\r\n"), "{request}");
}
