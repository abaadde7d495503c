//! HTTP requests to hosts that are granted. One hop at a time is sent by the agent;
//! redirects are followed and judged here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use tokio::sync::{Mutex, OwnedSemaphorePermit};
use url::Url;
use wasmtime::component::{Accessor, Resource};
use wharf_agent::host_api::{HttpBody, HttpError, HttpErrorKind, HttpRequest, HttpResponse};

use super::{at_most, granted};
use crate::access::{Access, Caller};
use crate::bindings::http::{Host, HostBody, HostBodyWithStore, HostWithStore, Request, Response};
use crate::bindings::types::AccessError;
use crate::limits::{
    DEFAULT_HTTP_TIMEOUT, MAX_BODY_BYTES, MAX_BODY_PIECE, MAX_FILE_BYTES, MAX_HEADER_BYTES,
    MAX_HEADERS, MAX_HTTP_TIMEOUT, MAX_OPEN_RESPONSES, MAX_REDIRECTS, MAX_URL_BYTES, cut,
};
use crate::permissions::{Refusal, parse_url, pattern_for};
use crate::registration::Permission;
use crate::state::{Interfaces, State};

/// Headers that the host sets, or that change what a connection is.
const OWN_HEADERS: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Headers that another origin does not get.
const SECRET_HEADERS: [&str; 2] = ["authorization", "cookie"];
/// Headers that go with a body.
const BODY_HEADERS: [&str; 4] =
    ["content-encoding", "content-language", "content-location", "content-type"];

/// A response's body that a guest reads. Public for what `bindgen!` makes; the module
/// above is not.
#[derive(Debug)]
pub struct Body(Arc<Mutex<Reading>>);

struct Reading {
    stream: HttpBody,
    /// What came with the last piece and was too much.
    rest: Bytes,
    /// Bytes that were read.
    total: u64,
    has_ended: bool,
    /// One of the responses that may be open.
    _open: OwnedSemaphorePermit,
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading").field("total", &self.total).finish_non_exhaustive()
    }
}

impl Host for State {}

impl HostBody for State {
    fn drop(&mut self, body: Resource<Body>) -> wasmtime::Result<()> {
        self.table_mut().delete(body)?;
        Ok(())
    }
}

impl HostBodyWithStore<State> for Interfaces {
    async fn read(
        accessor: &Accessor<State, Self>,
        body: Resource<Body>,
    ) -> Result<Option<Vec<u8>>, AccessError> {
        let reading = accessor.with(|mut access| {
            let body = access.get().table_mut().get(&body);
            body.map(|body| Arc::clone(&body.0))
        });
        let reading = reading.map_err(|error| AccessError::Invalid(format!("body: {error}")))?;
        let (_, caller) = granted(accessor)?;
        tokio::select! {
            biased;
            () = caller.cancel.cancelled() => Err(AccessError::Cancelled),
            piece = async { reading.lock().await.next().await } => piece,
        }
    }
}

impl Reading {
    /// Loses nothing when it is dropped half-way.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, AccessError> {
        while self.rest.is_empty() {
            if self.has_ended {
                return Ok(None);
            }
            match self.stream.next().await {
                Some(Ok(piece)) => self.rest = piece,
                Some(Err(error)) => {
                    self.end();
                    return Err(failure(error));
                }
                None => self.end(),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(MAX_BODY_PIECE));
        self.total += piece.len() as u64;
        if self.total > MAX_BODY_BYTES {
            self.end();
            self.rest.clear();
            let text = format!("the body has more than {MAX_BODY_BYTES} bytes");
            return Err(AccessError::Failed(text));
        }
        Ok(Some(piece.to_vec()))
    }

    /// Lets the connection go.
    fn end(&mut self) {
        self.has_ended = true;
        self.stream = futures::stream::empty().boxed();
    }
}

impl HostWithStore<State> for Interfaces {
    async fn fetch(
        accessor: &Accessor<State, Self>,
        request: Request,
    ) -> Result<Response, AccessError> {
        let timeout = timeout(request.timeout_ms)?;
        let mut hop = Hop::new(request)?;
        let (access, caller) = granted(accessor)?;
        net_grant_for(accessor, hop.url.as_str()).await?;
        let _held = access.hold(hop.body.as_ref().map_or(0, Vec::len))?;
        let Ok(open) = Arc::clone(&access.responses).try_acquire_owned() else {
            return Err(AccessError::Failed(format!(
                "{MAX_OPEN_RESPONSES} responses are open already: read them to their end and drop them"
            )));
        };
        let fetched = async {
            for _ in 0..=MAX_REDIRECTS {
                judge(&access, &caller, &hop.url).await?;
                let response = send(accessor, &hop, timeout).await?;
                match hop.redirect(&response)? {
                    Some(next) => hop = next,
                    None => return Ok((hop.url, response)),
                }
            }
            Err(AccessError::Failed(format!("there are more than {MAX_REDIRECTS} redirects")))
        };
        // Each hop has the time too; all of them together have no more.
        let (url, response) = tokio::select! {
            biased;
            () = caller.cancel.cancelled() => return Err(AccessError::Cancelled),
            fetched = tokio::time::timeout(timeout, fetched) => fetched.unwrap_or_else(|_| {
                let text = format!("no response within {} ms", timeout.as_millis());
                Err(AccessError::TimedOut(text))
            })?,
        };
        let HttpResponse { status, headers, body } = response;
        let reading =
            Reading { stream: body, rest: Bytes::new(), total: 0, has_ended: false, _open: open };
        let body = accessor
            .with(|mut access| access.get().table_mut().push(Body(Arc::new(Mutex::new(reading)))))
            .map_err(|error| AccessError::Failed(format!("no room for the response: {error}")))?;
        Ok(Response { status, url: url.into(), headers, body })
    }
}

/// One request on its way.
#[derive(Clone)]
struct Hop {
    method: String,
    url: Url,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Hop {
    fn new(request: Request) -> Result<Self, AccessError> {
        let Request { method, url, headers, body, timeout_ms: _ } = request;
        at_most("url", url.len(), MAX_URL_BYTES)?;
        at_most("body", body.as_ref().map_or(0, Vec::len), MAX_FILE_BYTES)?;
        check_method(&method)?;
        check_headers(&headers)?;
        let url = parse_url(&url, None).map_err(|error| AccessError::Invalid(error.to_string()))?;
        Ok(Self { method, url, headers, body })
    }

    /// The request that a response sends on to.
    fn redirect(&self, response: &HttpResponse) -> Result<Option<Self>, AccessError> {
        if !matches!(response.status, 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let location = response.headers.iter().find(|(name, _)| is(name, "location"));
        let Some((_, location)) = location else { return Ok(None) };
        let target = (location.len() <= MAX_URL_BYTES).then_some(location.as_str());
        let target = target.ok_or_else(|| {
            AccessError::Failed(format!("a redirect is longer than {MAX_URL_BYTES} bytes"))
        })?;
        let url = parse_url(target, Some(&self.url)).map_err(|error| {
            let text = format!("a redirect to {:?} is not followed: {error}", cut(target, 200));
            match error {
                Refusal::Unparsable(_) => AccessError::Failed(text),
                Refusal::Scheme(_) | Refusal::UserInfo => AccessError::Denied(text),
            }
        })?;
        let mut next = self.clone();
        if url.origin() != self.url.origin() {
            next.headers.retain(|(name, _)| !SECRET_HEADERS.iter().any(|secret| is(name, secret)));
        }
        if matches!(response.status, 301..=303) && !is(&self.method, "HEAD") {
            next.method = "GET".to_owned();
            next.body = None;
            next.headers.retain(|(name, _)| !BODY_HEADERS.iter().any(|body| is(name, body)));
        }
        next.url = url;
        Ok(Some(next))
    }
}

fn is(name: &str, other: &str) -> bool {
    name.eq_ignore_ascii_case(other)
}

/// Names of methods and headers, as RFC 9110 has them.
fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

fn check_method(method: &str) -> Result<(), AccessError> {
    // They make another thing of the connection, or give away headers.
    let is_odd = ["CONNECT", "TRACE", "TRACK"].iter().any(|odd| is(method, odd));
    if is_token(method) && method.len() <= 32 && !is_odd {
        Ok(())
    } else {
        Err(AccessError::Invalid(format!("method {:?} is not one to send", cut(method, 40))))
    }
}

fn check_headers(headers: &[(String, String)]) -> Result<(), AccessError> {
    if headers.len() > MAX_HEADERS {
        let text = format!("headers: there are {}; the limit is {MAX_HEADERS}", headers.len());
        return Err(AccessError::Invalid(text));
    }
    at_most("headers", headers.iter().map(|(n, v)| n.len() + v.len()).sum(), MAX_HEADER_BYTES)?;
    for (name, value) in headers {
        let shown = cut(name, 40);
        if !is_token(name) {
            return Err(AccessError::Invalid(format!("headers: {shown:?} is no name")));
        }
        if OWN_HEADERS.iter().any(|own| is(name, own)) {
            return Err(AccessError::Invalid(format!("headers: {shown} is the host's own")));
        }
        if value.bytes().any(|byte| byte == 0x7f || (byte < 0x20 && byte != b'\t')) {
            let text = format!("headers: the value of {shown} holds a control character");
            return Err(AccessError::Invalid(text));
        }
    }
    Ok(())
}

fn timeout(ms: Option<u32>) -> Result<Duration, AccessError> {
    let timeout = ms.map_or(DEFAULT_HTTP_TIMEOUT, |ms| Duration::from_millis(ms.into()));
    if timeout > MAX_HTTP_TIMEOUT {
        let text = format!("timeout-ms is over {}", MAX_HTTP_TIMEOUT.as_millis());
        return Err(AccessError::Invalid(text));
    }
    Ok(timeout)
}

/// Waits for a decision that is still to come.
async fn judge(access: &Access, caller: &Caller, url: &Url) -> Result<(), AccessError> {
    let attempt = async |rules: Arc<crate::permissions::Rules>| {
        if rules.host(url) {
            return Ok(());
        }
        Err(access.denied(&Permission::Net(pattern_for(url))))
    };
    access.attempt(caller, attempt).await
}

/// Whether the extension may ask an address; `denied` names the grant that is missing.
pub(super) async fn net_grant_for(
    accessor: &Accessor<State, Interfaces>,
    url: &str,
) -> Result<Url, AccessError> {
    at_most("url", url.len(), MAX_URL_BYTES)?;
    let url = parse_url(url, None).map_err(|error| AccessError::Invalid(error.to_string()))?;
    let (access, caller) = granted(accessor)?;
    judge(&access, &caller, &url).await?;
    Ok(url)
}

async fn send(
    accessor: &Accessor<State, Interfaces>,
    hop: &Hop,
    timeout: Duration,
) -> Result<HttpResponse, AccessError> {
    let api = super::agent_of(accessor)?;
    let request = HttpRequest {
        method: hop.method.clone(),
        url: hop.url.to_string(),
        headers: hop.headers.clone(),
        body: hop.body.clone(),
        timeout,
    };
    api.fetch(request).await.map_err(failure)
}

fn failure(error: HttpError) -> AccessError {
    match error.kind {
        HttpErrorKind::Invalid => AccessError::Invalid(error.message),
        HttpErrorKind::TimedOut => AccessError::TimedOut(error.message),
        HttpErrorKind::Failed => AccessError::Failed(error.message),
    }
}
