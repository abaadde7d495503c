//! The HTTP driver: sends what an API encodes, and feeds what comes back to its decoder.

use std::error::Error as _;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response};
use serde_json::Value;

use crate::api::{ApiKind, Decoder, Endpoint, HttpRequest};
use crate::auth::KeySource;
use crate::sse::{SseEvent, SseParser};
use crate::{ErrorKind, Provider, ProviderError, ProviderEvent, Request, prepare};

/// How long the connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server may be silent. Models think for minutes without a word; a
/// connection that is dead without saying so must still end some time.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(600);

/// Bytes that are read of a failed response's body.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// How long the rest of a response may take after the reply's end. It is read so that
/// the connection can be used again.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

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
        let provider = self.clone();
        stream::once(async move { provider.open(request).await })
            .flat_map(|opened| match opened {
                Ok(reply) => reply.into_stream(),
                Err(error) => stream::iter([Err(error)]).boxed(),
            })
            .boxed()
    }
}

impl HttpProvider {
    async fn open(self, mut request: Request) -> Result<Reply, ProviderError> {
        let key = self.key.clone();
        let api_key = key.resolve(&self.provider).await?;
        let endpoint = Endpoint {
            base_url: self.base_url.trim_end_matches('/').to_owned(),
            api_key,
            auth_header: self.auth_header,
            compat: self.compat.clone(),
        };
        request.thinking_level = crate::thinking::clamp(request.thinking_level, &request.model);
        request.messages = prepare::messages(&request.messages, &request.model);
        let api = self.api.api();
        let HttpRequest { url, headers, body } = api.encode(&request, &endpoint);
        let mut map = HeaderMap::new();
        for (name, value) in &headers {
            insert(&mut map, name, value)?;
        }
        for (name, source) in self.headers {
            if let Some(value) = source.resolve(&self.provider).await? {
                insert(&mut map, &name, &value)?;
            }
        }
        insert(&mut map, "content-type", "application/json")?;
        map.entry("accept").or_insert(HeaderValue::from_static("text/event-stream"));
        let body = serde_json::to_vec(&body).map_err(|error| {
            ProviderError::new(
                ErrorKind::InvalidRequest,
                format!("the request is no JSON: {error}"),
            )
        })?;
        // The message of a connection error must not carry the query of a URL: some
        // servers want their key there.
        let sent = client()?.post(&url).headers(map).body(body).send().await;
        let response =
            sent.map_err(|error| connection(&self.provider, &endpoint.base_url, error))?;
        if !response.status().is_success() {
            return Err(refused(response).await);
        }
        Ok(Reply {
            body: response.bytes_stream().map(|bytes| bytes.map_err(|e| cause(&e))).boxed(),
            parser: SseParser::default(),
            decoder: api.decoder(&request),
            events: Vec::new(),
            ready: Vec::new().into_iter(),
        })
    }
}

fn insert(map: &mut HeaderMap, name: &str, value: &str) -> Result<(), ProviderError> {
    let bad = || {
        ProviderError::new(
            ErrorKind::InvalidRequest,
            format!(
                "header {name:?} has a name or a value that HTTP cannot carry; see models.json"
            ),
        )
    };
    let name: HeaderName = name.parse().map_err(|_| bad())?;
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| bad())?;
    value.set_sensitive(true);
    map.insert(name, value);
    Ok(())
}

/// The one client of the process; made when the first request needs it, since loading
/// the system's certificates takes a while.
fn client() -> Result<&'static Client, ProviderError> {
    static CLIENT: OnceLock<Result<Client, String>> = OnceLock::new();
    let made = CLIENT.get_or_init(|| {
        // Err: something else in the process has installed one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Client::builder()
            .user_agent(concat!("wharf/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_TIMEOUT)
            .tcp_nodelay(true)
            // A key must not follow a redirect to another host.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| cause(&error))
    });
    made.as_ref().map_err(|problem| {
        ProviderError::new(ErrorKind::InvalidRequest, format!("no HTTP client: {problem}"))
    })
}

/// What is at the bottom of an error: `reqwest` itself only says that something failed.
fn cause(error: &reqwest::Error) -> String {
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

fn connection(provider: &str, base_url: &str, error: reqwest::Error) -> ProviderError {
    let error = error.without_url();
    let kind = if error.is_builder() { ErrorKind::InvalidRequest } else { ErrorKind::Connection };
    let hint = if error.is_builder() {
        "; check baseUrl in models.json".to_owned()
    } else {
        String::new()
    };
    ProviderError::new(
        kind,
        format!("failed to reach {provider} at {base_url}: {}{hint}", cause(&error)),
    )
}

async fn refused(response: Response) -> ProviderError {
    let status = response.status().as_u16();
    let retry_after = retry_after(response.headers());
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(Ok(chunk)) = chunks.next().await {
        body.extend_from_slice(&chunk[..chunk.len().min(MAX_ERROR_BODY - body.len())]);
        if body.len() >= MAX_ERROR_BODY {
            break;
        }
    }
    let mut error = ProviderError::status(status, &String::from_utf8_lossy(&body));
    error.retry_after = retry_after;
    error
}

/// `retry-after-ms`, or `retry-after` in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok();
    if let Some(millis) = text("retry-after-ms").and_then(number) {
        return Duration::try_from_secs_f64(millis / 1000.0).ok();
    }
    let value = text("retry-after")?;
    match number(value) {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => httpdate::parse_http_date(value).ok()?.duration_since(SystemTime::now()).ok(),
    }
}

/// A response that streams in.
struct Reply {
    body: BoxStream<'static, Result<Bytes, String>>,
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
                        drain(reply.body);
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
        let chunk = self.body.next().await;
        let ended = !matches!(chunk, Some(Ok(_)));
        let mut torn = String::new();
        let mut failure = None;
        match chunk {
            Some(Ok(bytes)) => {
                if let Err(error) = self.parser.push(&bytes, &mut self.events) {
                    failure = Some(ProviderError::new(ErrorKind::Protocol, error.to_string()));
                }
            }
            Some(Err(problem)) => torn = problem,
            None => self.parser.finish(&mut self.events),
        }
        let is_done =
            |out: &[ProviderEvent]| matches!(out.last(), Some(ProviderEvent::Done { .. }));
        for event in self.events.drain(..) {
            if failure.is_some() || is_done(&out) {
                break;
            }
            failure = self.decoder.event(&event, &mut out).err();
        }
        if ended && failure.is_none() && !is_done(&out) {
            failure = if torn.is_empty() {
                self.decoder.end(&mut out).err()
            } else {
                Some(ProviderError::dropped(&torn))
            };
            if failure.is_none() && !is_done(&out) {
                failure = Some(ProviderError::dropped(""));
            }
        }
        let results: Vec<_> = out.into_iter().map(Ok).chain(failure.map(Err)).collect();
        self.ready = results.into_iter();
    }
}

/// Reads what is left after the reply's end, in the background.
fn drain(mut body: BoxStream<'static, Result<Bytes, String>>) {
    let rest = async move { while let Some(Ok(_)) = body.next().await {} };
    tokio::spawn(async move {
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
    });
}
