//! Plain HTTP requests, for callers that decide themselves which hosts may be asked:
//! one hop, no redirect is followed, nothing is kept from one request to the next but
//! connections. Requests to models are `http`'s.
//!
//! A proxy that the environment names is used, except for this machine: the person who
//! set it has no other way out.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, ClientBuilder, Method, Url};

use crate::http::{cause, is_local};

/// Connections to one host that are kept for the next request.
const MAX_IDLE: usize = 4;

/// What says how a message is framed, where it goes and how it gets there: only the
/// client may say it. A `host` of the caller's own would reach another site than the one
/// that was judged.
const RESERVED: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// One request.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    pub method: String,
    /// `http` or `https`.
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
    /// Until the response's head is there, and between two pieces of its body.
    pub timeout: Duration,
}

/// A response's body, piece by piece. Dropping it ends the connection.
pub type HttpBody = BoxStream<'static, Result<Bytes, HttpError>>;

/// What came back.
pub struct HttpResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: HttpBody,
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpErrorKind {
    /// The request cannot be sent as it is.
    Invalid,
    TimedOut,
    /// The connection could not be made, or broke.
    Failed,
}

/// Why there is no response, or no more of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HttpError {
    pub kind: HttpErrorKind,
    pub message: String,
}

impl HttpError {
    fn invalid(message: impl Into<String>) -> Self {
        Self { kind: HttpErrorKind::Invalid, message: message.into() }
    }

    fn failed(message: String) -> Self {
        Self { kind: HttpErrorKind::Failed, message }
    }

    fn timed_out(what: &str, limit: Duration) -> Self {
        Self { kind: HttpErrorKind::TimedOut, message: format!("{what} within {limit:?}") }
    }
}

/// Sends one request. A redirect is a response like any other. Dropping the future ends
/// the request.
///
/// Names of response headers are in lower case; bytes of values that are no UTF-8 are
/// replaced. A body comes as it was sent: what is compressed stays so.
pub fn fetch(request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, HttpError>> {
    async move {
        let HttpRequest { method, url, headers, body, timeout } = request;
        let url = checked_url(&url)?;
        let method = checked_method(&method)?;
        let headers = checked_headers(headers)?;
        // Without anything that may be secret in it.
        let host = url.host_str().unwrap_or_default().to_owned();
        let mut builder = client(&url)?.request(method, url).headers(headers);
        if let Some(body) = body {
            builder = builder.body(body);
        }
        let sent = tokio::time::timeout(timeout, builder.send()).await;
        let response = sent
            .map_err(|_| HttpError::timed_out(&format!("{host} did not answer"), timeout))?
            .map_err(|error| unreached(&host, error))?;
        let status = response.status().as_u16();
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = response.headers().iter();
        let headers =
            headers.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        let pieces = response.bytes_stream();
        let body = stream::unfold(Some((pieces, host)), move |rest| async move {
            let (mut pieces, host) = rest?;
            match tokio::time::timeout(timeout, pieces.next()).await {
                Ok(None) => None,
                Ok(Some(Ok(piece))) => Some((Ok(piece), Some((pieces, host)))),
                Ok(Some(Err(error))) => {
                    let text = format!("the connection to {host} broke: {}", cause(&error));
                    Some((Err(HttpError::failed(text)), None))
                }
                Err(_) => {
                    let what = format!("{host} sent no more of the body");
                    Some((Err(HttpError::timed_out(&what, timeout)), None))
                }
            }
        });
        Ok(HttpResponse { status, headers, body: body.boxed() })
    }
    .boxed()
}

fn checked_url(text: &str) -> Result<Url, HttpError> {
    let url =
        Url::parse(text).map_err(|error| HttpError::invalid(format!("url is none: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(HttpError::invalid("url must begin with http:// or https:// and a host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(HttpError::invalid("url must have no user and no password"));
    }
    Ok(url)
}

fn checked_method(text: &str) -> Result<Method, HttpError> {
    match Method::from_bytes(text.as_bytes()) {
        // It asks a proxy for a tunnel, which is no request to the host.
        Ok(Method::CONNECT) => Err(HttpError::invalid("method must not be CONNECT")),
        Ok(method) => Ok(method),
        Err(_) => Err(HttpError::invalid(format!("method {text:?} is none"))),
    }
}

fn checked_headers(headers: Vec<(String, String)>) -> Result<HeaderMap, HttpError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let bad = |problem: &str| HttpError::invalid(format!("headers: {name:?} {problem}"));
        let header: HeaderName = name.parse().map_err(|_| bad("is no name that HTTP can carry"))?;
        if RESERVED.contains(&header.as_str()) {
            return Err(bad("is the host's own"));
        }
        let value = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_| bad("has a value that HTTP cannot carry"))?;
        map.try_append(header, value).map_err(|_| bad("is one too many"))?;
    }
    Ok(map)
}

fn unreached(host: &str, error: reqwest::Error) -> HttpError {
    let error = error.without_url();
    if error.is_builder() {
        return HttpError::invalid(format!("the request cannot be sent: {}", cause(&error)));
    }
    let kind = if error.is_timeout() { HttpErrorKind::TimedOut } else { HttpErrorKind::Failed };
    HttpError { kind, message: format!("failed to reach {host}: {}", cause(&error)) }
}

/// The client for `url`; none of those that carry keys to models. Both are made when the
/// first request needs them.
fn client(url: &Url) -> Result<&'static Client, HttpError> {
    static REMOTE: OnceLock<Result<Client, String>> = OnceLock::new();
    static LOCAL: OnceLock<Result<Client, String>> = OnceLock::new();
    let made = if is_local(url.as_str()) {
        LOCAL.get_or_init(|| build(Client::builder().no_proxy()))
    } else {
        REMOTE.get_or_init(|| build(Client::builder()))
    };
    made.as_ref().map_err(|problem| HttpError::failed(format!("no HTTP client: {problem}")))
}

fn build(builder: ClientBuilder) -> Result<Client, String> {
    // Err: something else in the process has installed one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    builder
        .user_agent(concat!("wharf/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        // Also where another crate switches these on for all.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        // A request that may have been carried out is the caller's to repeat.
        .retry(reqwest::retry::never())
        .pool_max_idle_per_host(MAX_IDLE)
        .tcp_nodelay(true)
        .build()
        .map_err(|error| cause(&error))
}

#[cfg(test)]
mod tests;
