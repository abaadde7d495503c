//! How a reply goes over the wire: whole or cut off, at once or byte by byte, and where
//! it waits.

use std::sync::Arc;

use super::answer::Answer;
use super::api::{Api, Asked, Failure};
use super::connection::Recorded;
use super::server::Shared;

/// Something that a reply waits for: the test opens it.
#[derive(Debug, Clone)]
pub struct Gate {
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
}

impl Gate {
    pub fn open(&self) {
        self.shared.lock().gates[self.index].open = true;
        self.shared.changed.notify_all();
    }

    /// Waits until a reply stands before it, everything before the gate written.
    pub fn wait_reached(&self) {
        self.shared
            .wait("a reply at the gate", |state| state.gates[self.index].reached.then_some(()));
    }
}

/// How the bytes of a body are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Chunking {
    /// One write an event.
    #[default]
    Events,
    /// Everything in one write, head and end included.
    Whole,
    /// One byte a write.
    Bytes,
    /// A write ends inside of every character that has more than one byte.
    InsideCharacters,
}

/// How a connection is closed before the response's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// As a server that ends: FIN.
    Clean,
    /// As one that crashes: RST.
    Reset,
}

#[derive(Debug, Clone, Copy)]
enum Point {
    Events(usize),
    Bytes(usize),
}

#[derive(Debug, Clone)]
enum Body {
    Answer(Answer),
    Events(Vec<Vec<u8>>),
    Failure(Failure),
    /// Sent with a length.
    Raw(Vec<u8>),
}

/// One scripted response.
#[derive(Debug, Clone)]
pub struct Reply {
    body: Body,
    status: u16,
    headers: Vec<(String, String)>,
    chunking: Chunking,
    before_head: Option<Gate>,
    holds: Vec<(Point, Gate)>,
    cut: Option<(Point, Close)>,
    error: Option<(usize, Failure)>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self::new(Body::Answer(answer), 200)
    }
}

impl From<Failure> for Reply {
    /// Status and body as the API that is asked words it.
    fn from(failure: Failure) -> Self {
        Self::new(Body::Failure(failure), 0)
    }
}

impl Reply {
    fn new(body: Body, status: u16) -> Self {
        Self {
            body,
            status,
            headers: Vec::new(),
            chunking: Chunking::default(),
            before_head: None,
            holds: Vec::new(),
            cut: None,
            error: None,
        }
    }

    /// A stream of these events, as they are.
    pub fn events(events: Vec<Vec<u8>>) -> Self {
        Self::new(Body::Events(events), 200)
    }

    /// A status and a body that is no stream.
    pub fn status(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::new(Body::Raw(body.into()), status)
    }

    /// Adds a header; `content-type` takes the place of the usual one.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn chunking(mut self, chunking: Chunking) -> Self {
        self.chunking = chunking;
        self
    }

    /// Not even the head is sent before the gate opens.
    pub fn hold(mut self, gate: &Gate) -> Self {
        self.before_head = Some(gate.clone());
        self
    }

    /// Waits after this many events; for ever, if nobody opens the gate.
    pub fn hold_after(mut self, events: usize, gate: &Gate) -> Self {
        self.holds.push((Point::Events(events), gate.clone()));
        self
    }

    /// Closes the connection after this many events.
    pub fn drop_after(mut self, events: usize, close: Close) -> Self {
        self.cut = Some((Point::Events(events), close));
        self
    }

    /// Closes the connection after this many bytes of the body.
    pub fn drop_after_bytes(mut self, bytes: usize, close: Close) -> Self {
        self.cut = Some((Point::Bytes(bytes), close));
        self
    }

    /// After this many events comes an event that says that the server has failed, and
    /// the stream's proper end.
    pub fn fail_after(mut self, events: usize, failure: Failure) -> Self {
        self.error = Some((events, failure));
        self
    }

    /// What to write for this request.
    pub(super) fn plan(&self, api: Api, request: &Recorded, number: usize) -> Plan {
        let mut status = self.status;
        let (mut pieces, is_stream) = match &self.body {
            Body::Answer(answer) => (api.stream(answer, &Asked::of(request, number)), true),
            Body::Events(events) => (events.clone(), true),
            Body::Raw(bytes) => (vec![bytes.clone()], false),
            Body::Failure(failure) => {
                let (code, name, message) = api.failure(*failure);
                status = code;
                (vec![api.error_body(code, name, message).to_string().into_bytes()], false)
            }
        };
        if let Some((after, failure)) = self.error {
            let (status, name, message) = api.failure(failure);
            pieces.truncate(after);
            pieces.push(api.error_event(status, name, message));
        }
        let ends: Vec<usize> = pieces
            .iter()
            .scan(0, |end, piece| {
                *end += piece.len();
                Some(*end)
            })
            .collect();
        let body = pieces.concat();
        let place = |point: Point| match point {
            Point::Events(0) => 0,
            Point::Events(count) => ends.get(count - 1).copied().unwrap_or(body.len()),
            Point::Bytes(count) => count.min(body.len()),
        };
        let cut = self.cut.map(|(point, close)| (place(point), close));
        let length = cut.map_or(body.len(), |(at, _)| at);
        let mut holds: Vec<(usize, Gate)> =
            self.holds.iter().map(|(point, gate)| (place(*point), gate.clone())).collect();
        holds.retain(|(at, _)| *at <= length);
        holds.sort_by_key(|(at, _)| *at);
        let mut borders: Vec<usize> = match self.chunking {
            Chunking::Events => ends,
            Chunking::Whole => Vec::new(),
            Chunking::Bytes => (1..length).collect(),
            Chunking::InsideCharacters => {
                (1..length).filter(|at| body[*at] & 0b1100_0000 == 0b1000_0000).collect()
            }
        };
        borders.extend(holds.iter().map(|(at, _)| *at));
        borders.push(length);
        borders.retain(|at| (1..=length).contains(at));
        borders.sort_unstable();
        borders.dedup();
        let mut parts = Vec::new();
        let mut from = 0;
        for to in borders {
            parts.push((from, body[from..to].to_vec()));
            from = to;
        }
        Plan {
            head: self.head(status, is_stream, body.len()),
            before_head: self.before_head.clone(),
            parts,
            holds,
            is_chunked: is_stream,
            at_once: self.chunking == Chunking::Whole,
            close: cut.map(|(_, close)| close),
        }
    }

    fn head(&self, status: u16, is_stream: bool, length: usize) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {status} Fake\r\nrequest-id: req_fake\r\n");
        let has_type = self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("content-type"));
        if !has_type {
            let kind =
                if is_stream { "text/event-stream; charset=utf-8" } else { "application/json" };
            head.push_str(&format!("content-type: {kind}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if is_stream {
            head.push_str("cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n");
        } else {
            head.push_str(&format!("content-length: {length}\r\n\r\n"));
        }
        head.into_bytes()
    }
}

/// A response in the bytes that are written.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) head: Vec<u8>,
    pub(super) before_head: Option<Gate>,
    /// Each with its place in the body.
    pub(super) parts: Vec<(usize, Vec<u8>)>,
    pub(super) holds: Vec<(usize, Gate)>,
    pub(super) is_chunked: bool,
    /// Nothing is written before everything is known, up to a gate.
    pub(super) at_once: bool,
    /// The connection is closed in place of the body's end.
    pub(super) close: Option<Close>,
}
