//! HTTP requests to hosts that are granted.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::wharf::extension::http as wit;
use crate::time::millis;
use crate::{AccessError, Json, Result, reader};

/// HTTP, from [`Ctx::http`](crate::Ctx::http), to the hosts that are granted
/// ([`Permission::net`](crate::Permission::net)).
///
/// ```
/// # use wharf_sdk::{Ctx, Result};
/// #[derive(serde::Deserialize)]
/// struct Release {
///     tag_name: String,
/// }
///
/// async fn newest(ctx: &Ctx) -> Result<String> {
///     let request = ctx.http().get("https://api.example.org/releases/latest");
///     let response = request.header("accept", "application/json").send().await?;
///     let release: Release = response.error_for_status()?.json().await?;
///     Ok(release.tag_name)
/// }
///
/// async fn tell(ctx: &Ctx, text: &str) -> Result<()> {
///     let body = serde_json::json!({ "text": text });
///     let response = ctx.http().post("https://hooks.example.org/abc").json(&body)?.send().await?;
///     response.error_for_status()?;
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Http;

impl Http {
    /// A `GET` request.
    pub fn get(self, url: impl Into<String>) -> Request {
        self.request("GET", url)
    }

    /// A `POST` request.
    pub fn post(self, url: impl Into<String>) -> Request {
        self.request("POST", url)
    }

    /// A request of any method. The URL is `https://` or `http://`, without a user or
    /// password.
    pub fn request(self, method: impl Into<String>, url: impl Into<String>) -> Request {
        Request(wit::Request {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: None,
            timeout_ms: None,
        })
    }
}

/// A request that is being put together. Nothing happens before
/// [`send`](Self::send).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a request does nothing before it is sent"]
pub struct Request(wit::Request);

impl Request {
    /// Adds a header. `host`, `content-length`, `transfer-encoding`, `connection` and
    /// the like are the host's own.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body, at most 16 MiB.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.0.body = Some(body.into());
        self
    }

    /// Sets a JSON body and its `content-type`.
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    pub fn json<T: Serialize + ?Sized>(self, body: &T) -> Result<Self> {
        let body = Json::of(body)?.into_string();
        Ok(self.header("content-type", "application/json").body(body))
    }

    /// How long it may take until the head of the response is there; and then how long
    /// between two pieces of the body. In whole milliseconds, 60 s without it, at most
    /// 10 minutes.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout_ms = Some(millis(timeout));
        self
    }

    /// Sends it and waits for the head of the response. Redirects are followed, at most
    /// 10; one to a host that is not granted is `Denied`. A status of 400 or more is no
    /// error; see [`Response::error_for_status`]. At most 16 responses are open at a
    /// time.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub async fn send(self) -> Result<Response, AccessError> {
        Ok(Response(wit::fetch(self.0).await?))
    }
}

/// A response whose head has arrived. Dropping it ends the connection.
#[derive(Debug)]
pub struct Response(wit::Response);

impl Response {
    /// For example 200.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.0.status
    }

    /// True for 200 to 299.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self.0.status, 200..300)
    }

    /// The address that answered, after redirects.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// All headers.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The first header of a name; upper and lower case are the same.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The response, if its status is below 400.
    ///
    /// # Errors
    /// `Failed` with the address and the status.
    pub fn error_for_status(self) -> Result<Self, AccessError> {
        if self.0.status < 400 {
            return Ok(self);
        }
        let status = self.0.status.to_string();
        Err(AccessError::Failed([self.url(), " answered ", &status].concat()))
    }

    /// The next piece of the body, at most 64 KiB; none at its end. At most 1 GiB in
    /// all.
    ///
    /// ```
    /// # use wharf_sdk::{AccessError, Ctx};
    /// async fn size(ctx: &Ctx, url: &str) -> Result<usize, AccessError> {
    ///     let mut response = ctx.http().get(url).send().await?;
    ///     let mut size = 0;
    ///     while let Some(chunk) = response.chunk().await? {
    ///         size += chunk.len();
    ///     }
    ///     Ok(size)
    /// }
    /// ```
    ///
    /// # Errors
    /// `Failed` when the connection is lost, `TimedOut` when it is silent too long.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, AccessError> {
        Ok(self.0.body.read().await?)
    }

    /// The rest of the body. It is held in memory: read a large one by
    /// [`chunk`](Self::chunk).
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub async fn bytes(mut self) -> Result<Vec<u8>, AccessError> {
        let mut bytes = Vec::new();
        while let Some(mut chunk) = self.chunk().await? {
            bytes.append(&mut chunk);
        }
        Ok(bytes)
    }

    /// The rest of the body as text; what is not UTF-8 is replaced by `U+FFFD`.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub async fn text(self) -> Result<String, AccessError> {
        Ok(lossy(self.bytes().await?))
    }

    /// The rest of the body, read as JSON.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk); `Json` when it does not have the shape of `T`.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T> {
        Ok(reader::read(&self.text().await?)?)
    }
}

/// Text of bytes, without a copy when they are UTF-8.
pub(crate) fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
