//! The HTTP driver: sends what an API encodes, and feeds what comes back to its decoder.

use std::error::Error as _;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, ClientBuilder, Response, Url};
use serde_json::Value;

use crate::api::{Api, ApiKind, Decoder, Endpoint, HttpRequest};
use crate::auth::KeySource;
use crate::sse::{SseEvent, SseParser};
use crate::{ErrorKind, Provider, ProviderError, ProviderEvent, Request, prepare};

/// How long the connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server may be silent. Models think for minutes without a word; a
/// connection that is dead without saying so must still end some time.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(600);

/// How often a connection of HTTP/2 is tried while a reply is awaited, and how long the
/// answer may take: after a laptop's sleep, the connection may be dead without saying so.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes that are read of a failed response's body, and how long that may take: what it
/// is, the status says already.
const MAX_ERROR_BODY: usize = 64 * 1024;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of one response; far more than a reply of any model has.
const MAX_REPLY_BYTES: usize = 1024 * 1024 * 1024;

/// Bytes that are kept of a response's start, to say what it is if it is no stream.
const MAX_START: usize = 4096;

/// Characters of it that an error shows.
const MAX_START_SHOWN: usize = 200;

/// How long the rest of a response may take after the reply's end. It is read so that
/// the connection can be used again.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a reply that is complete waits for that.
const DRAIN_GRACE: Duration = Duration::from_millis(20);

/// One provider's way to serve one model, as the registry found it.
#[derive(Debug, Clone)]
pub(crate) struct HttpProvider {
    pub(crate) api: ApiKind,
    /// What `models.json` or the catalogue calls it; for error texts.
    pub(crate) provider: String,
    pub(crate) base_url: String,
    pub(crate) key: KeySource,
    pub(crate) auth_header: bool,
    /// Names and where their values come from; they go over the API's own headers.
    pub(crate) headers: Vec<(String, KeySource)>,
    pub(crate) compat: Value,
}

impl Provider for HttpProvider {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<ProviderEvent, ProviderError>> {
        self.stream_through(self.api.api(), request)
    }
}

impl HttpProvider {
    fn stream_through(
        &self,
        api: &'static dyn Api,
        request: Request,
    ) -> BoxStream<'static, Result<ProviderEvent, ProviderError>> {
        let provider = self.clone();
        stream::once(async move { provider.open(api, request).await })
            .flat_map(|opened| match opened {
                Ok(reply) => reply.into_stream(),
                Err(error) => stream::iter([Err(error)]).boxed(),
            })
            .boxed()
    }

    async fn open(self, api: &dyn Api, mut request: Request) -> Result<Reply, ProviderError> {
        let api_key = self.key.resolve(&self.provider).await?;
        let mut secrets = Secrets::default();
        secrets.add(api_key.as_deref().unwrap_or_default());
        let endpoint = Endpoint {
            base_url: self.base_url.trim_end_matches('/').to_owned(),
            api_key,
            auth_header: self.auth_header,
            compat: self.compat.clone(),
        };
        request.thinking_level = crate::thinking::clamp(request.thinking_level, &request.model);
        request.messages = prepare::messages(&request.messages, &request.model);
        let HttpRequest { url, headers, body } = api.encode(&request, &endpoint);
        let body = request.filtered(body).await;
        let mut map = HeaderMap::new();
        for (name, value) in &headers {
            insert(&mut map, name, value)?;
        }
        for (name, source) in &self.headers {
            if let Some(value) = source.resolve(&self.provider).await? {
                insert(&mut map, name, &value)?;
                secrets.add_header(name, source, &value);
            }
        }
        insert(&mut map, "content-type", "application/json")?;
        map.entry("accept").or_insert(HeaderValue::from_static("text/event-stream"));
        let body = serde_json::to_vec(&body).map_err(|error| {
            let text = format!("the request is no JSON: {error}");
            ProviderError::new(ErrorKind::InvalidRequest, text)
        })?;
        let server = format!("{} at {}", self.provider, public(&endpoint.base_url));
        let sent = client(&url)?.post(&url).headers(map).body(body).send().await;
        let response = sent.map_err(|error| secrets.hide(unreached(&server, error)))?;
        if !response.status().is_success() {
            return Err(secrets.hide(refused(response).await));
        }
        let content_type = response.headers().get(CONTENT_TYPE);
        Ok(Reply {
            content_type: content_type
                .and_then(|value| value.to_str().ok())
                .unwrap_or("nothing that it names")
                .to_owned(),
            server,
            secrets,
            body: response.bytes_stream().map(|bytes| bytes.map_err(|e| cause(&e))).boxed(),
            start: Vec::new(),
            has_event: false,
            bytes_left: MAX_REPLY_BYTES,
            parser: SseParser::default(),
            decoder: api.decoder(&request),
            events: Vec::new(),
            ready: Vec::new().into_iter(),
        })
    }
}

/// What no error may say, though a server does: some repeat the key that they refuse.
#[derive(Default)]
struct Secrets(Vec<String>);

impl Secrets {
    fn add(&mut self, value: &str) {
        // Shorter ones are no keys (local servers take any word), and part of other words.
        if value.trim().len() >= 8 {
            self.0.push(value.trim().to_owned());
        }
    }

    /// A header that the user has set: a secret if its name or its source says so.
    fn add_header(&mut self, name: &str, source: &KeySource, value: &str) {
        let name = name.to_lowercase();
        let named = ["auth", "key", "token", "secret", "cookie"];
        if !source.is_kept_apart() && !named.iter().any(|part| name.contains(part)) {
            return;
        }
        self.add(value);
        // A server may repeat `Bearer x`, or only `x`.
        if let Some((_scheme, rest)) = value.trim().split_once(' ') {
            self.add(rest);
        }
    }

    fn hide(&self, mut error: ProviderError) -> ProviderError {
        // The longest first: one may be a part of another.
        let mut secrets: Vec<&String> = self.0.iter().collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in secrets {
            if error.message.contains(secret) {
                error.message = error.message.replace(secret, "[key]");
            }
        }
        error
    }
}

/// A URL for people: without the name and the password that it may have, and without its
/// query, where some servers want their key.
fn public(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (host, path) = rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path)));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    let path = path.map(|path| format!("/{path}")).unwrap_or_default();
    format!("{scheme}{host}{path}")
}

fn insert(map: &mut HeaderMap, name: &str, value: &str) -> Result<(), ProviderError> {
    let bad = |problem: &str| {
        let text = format!("header {name:?} {problem}");
        ProviderError::new(ErrorKind::InvalidRequest, text)
    };
    let header: HeaderName = name
        .parse()
        .map_err(|_| bad("has a name that HTTP cannot carry; change it in models.json"))?;
    let value = value.trim();
    let mut value = HeaderValue::from_str(value).map_err(|_| {
        // The value itself may be a key.
        let is_cut = value.contains(['\n', '\r']);
        let what = if is_cut { "a line break" } else { "a control character" };
        bad(&format!(
            "has {what} in its value, which HTTP cannot carry; correct the key or the header in auth.json or models.json, or where they take it from"
        ))
    })?;
    value.set_sensitive(true);
    map.insert(header, value);
    Ok(())
}

/// The client for `url`. Both are made when the first request needs them, since loading
/// the system's certificates takes a while.
fn client(url: &str) -> Result<&'static Client, ProviderError> {
    static REMOTE: OnceLock<Result<Client, String>> = OnceLock::new();
    static LOCAL: OnceLock<Result<Client, String>> = OnceLock::new();
    let made = if is_local(url) {
        // The proxies of the environment cannot reach a server of this machine.
        LOCAL.get_or_init(|| build(Client::builder().no_proxy()))
    } else {
        REMOTE.get_or_init(|| build(Client::builder()))
    };
    made.as_ref().map_err(|problem| {
        ProviderError::new(ErrorKind::InvalidRequest, format!("no HTTP client: {problem}"))
    })
}

pub(crate) fn is_local(url: &str) -> bool {
    let url = Url::parse(url).ok();
    let Some(host) = url.as_ref().and_then(Url::host_str) else { return false };
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn build(builder: ClientBuilder) -> Result<Client, String> {
    // Err: something else in the process has installed one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    builder
        .user_agent(concat!("wharf/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(SILENCE_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .tcp_nodelay(true)
        // A key must not follow a redirect to another host.
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| cause(&error))
}

/// What is at the bottom of an error: `reqwest` itself only says that something failed.
pub(crate) fn cause(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut source = error.source();
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    if text.is_empty() {
        text = if error.is_timeout() { "timed out".to_owned() } else { error.to_string() };
    }
    text
}

fn unreached(server: &str, error: reqwest::Error) -> ProviderError {
    let error = error.without_url();
    let (kind, hint) = if error.is_builder() {
        (ErrorKind::InvalidRequest, "; check baseUrl in models.json")
    } else {
        (ErrorKind::Connection, "")
    };
    ProviderError::new(kind, format!("failed to reach {server}: {}{hint}", cause(&error)))
}

async fn refused(response: Response) -> ProviderError {
    let status = response.status();
    if status.is_redirection() {
        let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let text = format!(
            "{} the server redirects to {}; redirects are not followed, since the key would go along: set baseUrl in models.json",
            status.as_u16(),
            public(target.unwrap_or("somewhere else")),
        );
        return ProviderError::new(ErrorKind::InvalidRequest, text);
    }
    let retry_after = retry_after(response.headers());
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    let read = async {
        while body.len() < MAX_ERROR_BODY
            && let Some(Ok(chunk)) = chunks.next().await
        {
            body.extend_from_slice(&chunk[..chunk.len().min(MAX_ERROR_BODY - body.len())]);
        }
    };
    // What has come until then is enough.
    let _ = tokio::time::timeout(ERROR_BODY_TIMEOUT, read).await;
    let mut error = ProviderError::status(status.as_u16(), &String::from_utf8_lossy(&body));
    error.retry_after = retry_after.or(error.retry_after);
    error
}

/// `retry-after-ms`, or `retry-after` in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let seconds =
        |text: &str, unit: f64| Duration::try_from_secs_f64(text.parse::<f64>().ok()? * unit).ok();
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    if let Some(wait) = text("retry-after-ms").and_then(|text| seconds(text, 0.001)) {
        return Some(wait);
    }
    let value = text("retry-after")?;
    seconds(value, 1.0).or_else(|| date(value)?.duration_since(SystemTime::now()).ok())
}

/// A response that streams in.
struct Reply {
    /// Provider and URL, and what it says that it sends; for error texts.
    server: String,
    content_type: String,
    secrets: Secrets,
    body: BoxStream<'static, Result<Bytes, String>>,
    /// The first [`MAX_START`] bytes, until an event has come.
    start: Vec<u8>,
    has_event: bool,
    bytes_left: usize,
    parser: SseParser,
    decoder: Box<dyn Decoder>,
    events: Vec<SseEvent>,
    ready: std::vec::IntoIter<Result<ProviderEvent, ProviderError>>,
}

impl Reply {
    fn into_stream(self) -> BoxStream<'static, Result<ProviderEvent, ProviderError>> {
        stream::unfold(Some(self), |reply| async move {
            let mut reply = reply?;
            loop {
                if let Some(next) = reply.ready.next() {
                    let last = matches!(next, Err(_) | Ok(ProviderEvent::Done { .. }));
                    if matches!(next, Ok(ProviderEvent::Done { .. })) {
                        drain(reply.body).await;
                        return Some((next, None));
                    }
                    return Some((next, (!last).then_some(reply)));
                }
                reply.read().await;
            }
        })
        .boxed()
    }

    /// Waits for the next bytes, and makes of them what they are.
    async fn read(&mut self) {
        let mut out = Vec::new();
        let result = match self.body.next().await {
            Some(Ok(bytes)) => self.take(&bytes, &mut out),
            Some(Err(problem)) => self.end(&problem, &mut out),
            None => {
                self.parser.finish(&mut self.events);
                // An event that the end has cut off is none of the server's mistakes.
                match self.decode(&mut out) {
                    Err(error) if error.kind == ErrorKind::Protocol => {
                        Err(ProviderError::dropped(""))
                    }
                    Err(error) => Err(error),
                    Ok(()) => self.end("", &mut out),
                }
            }
        };
        let failure = result.err().map(|error| Err(self.secrets.hide(error)));
        let results: Vec<_> = out.into_iter().map(Ok).chain(failure).collect();
        self.ready = results.into_iter();
    }

    fn take(&mut self, bytes: &[u8], out: &mut Vec<ProviderEvent>) -> Result<(), ProviderError> {
        let protocol = |text: String| ProviderError::new(ErrorKind::Protocol, text);
        self.bytes_left = self.bytes_left.checked_sub(bytes.len()).ok_or_else(|| {
            protocol(format!("{} sent more than {MAX_REPLY_BYTES} bytes", self.server))
        })?;
        if !self.has_event {
            let room = MAX_START - self.start.len();
            self.start.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        // What was complete before an event that is too long still counts.
        let pushed = self.parser.push(bytes, &mut self.events);
        self.decode(out)?;
        if is_done(out) { Ok(()) } else { pushed.map_err(|error| protocol(error.to_string())) }
    }

    fn decode(&mut self, out: &mut Vec<ProviderEvent>) -> Result<(), ProviderError> {
        for event in self.events.drain(..) {
            if is_done(out) {
                break;
            }
            self.has_event = true;
            self.decoder.event(&event, out)?;
        }
        Ok(())
    }

    /// The body has ended; `problem`: not as HTTP has it. The reply may be whole all the
    /// same: some servers just hang up after it.
    fn end(&mut self, problem: &str, out: &mut Vec<ProviderEvent>) -> Result<(), ProviderError> {
        if is_done(out) {
            return Ok(());
        }
        if let Some(error) = self.no_stream() {
            return Err(error);
        }
        match self.decoder.end(out) {
            Ok(()) if is_done(out) => Ok(()),
            Err(error) if problem.is_empty() => Err(error),
            _ => Err(ProviderError::dropped(problem)),
        }
    }

    /// What to say of a response without any event, if it is not just one that was cut
    /// off early: a page of a proxy or of a wrong URL, a reply that is not streamed, an
    /// error under a status of success.
    fn no_stream(&self) -> Option<ProviderError> {
        if self.has_event {
            return None;
        }
        let start = String::from_utf8_lossy(&self.start);
        let start = start.trim_start_matches('\u{feff}').trim();
        let begins_event = |field: &&str| start.starts_with(*field) || field.starts_with(start);
        if ["data", "event", "id", "retry", ":"].iter().any(begins_event) {
            return None;
        }
        if serde_json::from_str::<Value>(start).is_ok_and(|json| json.get("error").is_some()) {
            return Some(ProviderError::in_stream("", "", start));
        }
        let shown: String = start.chars().take(MAX_START_SHOWN).collect();
        Some(ProviderError::new(
            ErrorKind::Protocol,
            format!(
                "{} sent no stream of events but {}; check baseUrl and api in models.json: {shown}",
                self.server, self.content_type
            ),
        ))
    }
}

fn is_done(out: &[ProviderEvent]) -> bool {
    matches!(out.last(), Some(ProviderEvent::Done { .. }))
}

/// Reads what is left after the reply's end: usually it is there already, and the next
/// request finds the connection free. Where it is not, in the background.
async fn drain(mut body: BoxStream<'static, Result<Bytes, String>>) {
    let mut rest = Box::pin(async move { while let Some(Ok(_)) = body.next().await {} });
    if tokio::time::timeout(DRAIN_GRACE, &mut rest).await.is_err() {
        tokio::spawn(async move {
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
        });
    }
}

#[cfg(test)]
mod tests;
