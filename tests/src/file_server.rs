//! A server on 127.0.0.1 with fixed answers: stands in for registries of packages.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Bytes of a request's head.
const MAX_HEAD: u64 = 64 * 1024;

/// What a path is answered with.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Given only to requests with this `Authorization`; others get `challenge`.
    pub authorization: Option<String>,
}

impl Answer {
    pub fn new(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("Content-Type".to_owned(), content_type.to_owned())];
        Self { status: 200, headers, body: body.into(), authorization: None }
    }

    pub fn json(body: &serde_json::Value) -> Self {
        Self::new("application/json", body.to_string())
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

/// A request that has come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// With the query.
    pub path: String,
    pub authorization: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    answers: HashMap<String, Answer>,
    /// The value of `WWW-Authenticate` for requests without the right authorization.
    challenge: Option<String>,
    requests: Vec<Request>,
}

/// A running server; stops when it is dropped.
#[derive(Debug)]
pub struct FileServer {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl Default for FileServer {
    fn default() -> Self {
        Self::start()
    }
}

impl FileServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (state, stopping) = (Arc::clone(&state), Arc::clone(&stopping));
            move || {
                for stream in listener.incoming().flatten() {
                    if stopping.load(Ordering::SeqCst) {
                        break;
                    }
                    let state = Arc::clone(&state);
                    // Ends with its connection, which serves one request.
                    std::thread::spawn(move || serve(&state, &stream));
                }
            }
        });
        Self { state, address, stopping, listener: Some(thread) }
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers GET and HEAD of a path, over what it was answered with before.
    pub fn put(&self, path: &str, answer: Answer) {
        lock(&self.state).answers.insert(path.to_owned(), answer);
    }

    pub fn challenge(&self, challenge: impl Into<String>) {
        lock(&self.state).challenge = Some(challenge.into());
    }

    pub fn requests(&self) -> Vec<Request> {
        lock(&self.state).requests.clone()
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(state: &Mutex<State>, stream: &TcpStream) {
    let mut head = BufReader::new(stream.take(MAX_HEAD)).lines().map_while(Result::ok);
    let Some(line) = head.next() else { return };
    let mut words = line.split(' ').map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return };
    let authorization = head
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':').map(|(n, v)| (n.to_owned(), v.trim().to_owned())))
        .find(|(name, _)| name.eq_ignore_ascii_case("authorization"))
        .map(|(_, value)| value);
    let answer = {
        let mut state = lock(state);
        let known = state.answers.get(path.split('?').next().unwrap_or_default());
        let answer = match known {
            Some(answer)
                if answer.authorization.is_some() && answer.authorization != authorization =>
            {
                let challenge = state.challenge.clone().unwrap_or_default();
                Answer { status: 401, ..Answer::new("application/json", "{}") }
                    .header("WWW-Authenticate", challenge)
            }
            Some(answer) => answer.clone(),
            None => Answer { status: 404, ..Answer::new("application/json", "{}") },
        };
        state.requests.push(Request { method: method.clone(), path, authorization });
        answer
    };
    let mut text = format!("HTTP/1.1 {} Status\r\n", answer.status);
    for (name, value) in &answer.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\nConnection: close\r\n\r\n", answer.body.len()));
    let mut bytes = text.into_bytes();
    if method != "HEAD" {
        bytes.extend(&answer.body);
    }
    // A client may have had enough.
    let _ = (&*stream).write_all(&bytes);
}
