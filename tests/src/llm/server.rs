//! The server that a test holds: its script, its records, and what it found wrong.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api::{Api, Refusal, Strictness};
use super::connection::{self, Recorded};
use super::reply::{Gate, Plan, Reply};

/// Longer than anything takes on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// How a response has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was written.
    Sent,
    /// The connection was closed, as the script has it.
    Cut,
    /// The client has closed the connection before the end.
    ClientClosed,
}

#[derive(Debug, Default)]
pub(super) struct GateState {
    pub(super) open: bool,
    pub(super) reached: bool,
}

/// Replies in turn, and one for when they are used up.
#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<Reply>,
    default: Option<Reply>,
}

impl Lane {
    fn take(&mut self) -> Option<Reply> {
        self.queue.pop_front().or_else(|| self.default.clone())
    }
}

type Predicate = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

pub(super) struct State {
    requests: Vec<Recorded>,
    outcomes: Vec<Option<Outcome>>,
    replies: Lane,
    /// None: background requests are answered as all others.
    summaries: Option<Lane>,
    is_summary: Predicate,
    strictness: Strictness,
    faults: Vec<String>,
    expects_refusals: bool,
    pub(super) gates: Vec<GateState>,
    streams: HashMap<usize, Weak<TcpStream>>,
    closed: HashSet<usize>,
    stopping: bool,
}

/// What the threads of a server share. One condition variable tells of every change.
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) changed: Condvar,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `found` gives something.
    pub(super) fn wait<T>(&self, what: &str, found: impl Fn(&State) -> Option<T>) -> T {
        let end = Instant::now() + LIMIT;
        let mut state = self.lock();
        loop {
            if let Some(value) = found(&state) {
                return value;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "no {what} within {LIMIT:?}; {} requests, faults: {:?}",
                state.requests.len(),
                state.faults
            );
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// False where the server is about to stop.
    pub(super) fn connected(&self, number: usize, stream: &Arc<TcpStream>) -> bool {
        let mut state = self.lock();
        state.streams.insert(number, Arc::downgrade(stream));
        !state.stopping
    }

    pub(super) fn client_closed(&self, connection: usize) {
        self.lock().closed.insert(connection);
        self.changed.notify_all();
    }

    pub(super) fn fault(&self, text: String) {
        self.lock().faults.push(text);
        self.changed.notify_all();
    }

    /// Waits at a gate; false where the client has gone meanwhile.
    pub(super) fn pass(&self, gate: &Gate, connection: usize) -> bool {
        let mut state = self.lock();
        state.gates[gate.index].reached = true;
        self.changed.notify_all();
        while !state.gates[gate.index].open {
            if state.stopping || state.closed.contains(&connection) {
                return false;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Records a request, checks it, and says what to answer.
    pub(super) fn take(&self, request: Recorded) -> (usize, Plan) {
        let mut state = self.lock();
        let number = state.requests.len();
        let problem = match request.api {
            None => Some(Refusal {
                status: 404,
                message: format!("no such path: {} {}", request.method, request.path),
            }),
            Some(_) if !request.body.is_object() => {
                Some("We could not parse the JSON body of your request.".into())
            }
            Some(api) => api.check(&request, state.strictness).err(),
        };
        let api = request.api.unwrap_or(Api::OpenaiCompletions);
        let refuse = |refusal: Refusal| {
            let code = api.refusal_code(refusal.status);
            let body = api.error_body(refusal.status, code, &refusal.message);
            Reply::status(refusal.status, body.to_string())
        };
        let is_summary = state.summaries.is_some() && (state.is_summary)(&request.body);
        let reply = match problem {
            Some(refusal) => {
                state.faults.push(format!(
                    "request {number} ({} {}): {}",
                    request.method, request.path, refusal.message
                ));
                refuse(refusal)
            }
            None => {
                let taken = match &mut state.summaries {
                    Some(lane) if is_summary => lane.take(),
                    _ => state.replies.take(),
                };
                taken.unwrap_or_else(|| {
                    let message = format!("no reply is scripted for request {number}");
                    state.faults.push(format!("{message}: {}", request.body));
                    refuse(message.into())
                })
            }
        };
        let plan = reply.plan(api, &request, number);
        state.requests.push(request);
        state.outcomes.push(None);
        self.changed.notify_all();
        (number, plan)
    }

    pub(super) fn answered(&self, number: usize, outcome: Outcome) {
        self.lock().outcomes[number] = Some(outcome);
        self.changed.notify_all();
    }
}

/// A running server. Dropping it fails the test if a request was faulty.
#[derive(Debug)]
pub struct LlmServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: Option<JoinHandle<()>>,
}

impl LlmServer {
    pub fn start() -> Self {
        Self::with(Strictness::default())
    }

    /// A server that is this particular about chat completions.
    pub fn with(strictness: Strictness) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                requests: Vec::new(),
                outcomes: Vec::new(),
                replies: Lane::default(),
                summaries: None,
                is_summary: Arc::new(|body| body["tools"].as_array().is_none_or(Vec::is_empty)),
                strictness,
                faults: Vec::new(),
                expects_refusals: false,
                gates: Vec::new(),
                streams: HashMap::new(),
                closed: HashSet::new(),
                stopping: false,
            }),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        let listener = std::thread::spawn(move || {
            let mut connections = Vec::new();
            for (number, stream) in listener.incoming().flatten().enumerate() {
                if accepting.lock().stopping {
                    break;
                }
                let shared = Arc::clone(&accepting);
                connections.push(std::thread::spawn(move || {
                    connection::serve(&shared, number, stream);
                }));
            }
            for connection in connections {
                let _ = connection.join();
            }
        });
        Self { shared, address, listener: Some(listener) }
    }

    /// `http://127.0.0.1:PORT`
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next reply.
    pub fn reply(&self, reply: impl Into<Reply>) {
        self.shared.lock().replies.queue.push_back(reply.into());
    }

    /// The reply to everything that no other one is for.
    pub fn default_reply(&self, reply: impl Into<Reply>) {
        self.shared.lock().replies.default = Some(reply.into());
    }

    /// The next reply to a background request (a title, a summary): one without tools,
    /// if [`LlmServer::summaries_are`] says nothing else.
    pub fn on_summary(&self, reply: impl Into<Reply>) {
        let mut state = self.shared.lock();
        state.summaries.get_or_insert_default().queue.push_back(reply.into());
    }

    /// The reply to all further background requests.
    pub fn default_summary(&self, reply: impl Into<Reply>) {
        self.shared.lock().summaries.get_or_insert_default().default = Some(reply.into());
    }

    /// Which requests are background requests, by their bodies.
    pub fn summaries_are(&self, matches: impl Fn(&Value) -> bool + Send + Sync + 'static) {
        self.shared.lock().is_summary = Arc::new(matches);
    }

    /// A new gate, closed.
    pub fn gate(&self) -> Gate {
        let mut state = self.shared.lock();
        state.gates.push(GateState::default());
        Gate { shared: Arc::clone(&self.shared), index: state.gates.len() - 1 }
    }

    /// Everything that has come in, faulty requests too.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.lock().requests.clone()
    }

    /// Waits until there are so many requests, and gives all that there are.
    pub fn wait_for_requests(&self, count: usize) -> Vec<Recorded> {
        self.shared.wait(&format!("request number {count}"), |state| {
            (state.requests.len() >= count).then(|| state.requests.clone())
        })
    }

    /// Waits for the end of the response to a request, counted from 0.
    pub fn wait_outcome(&self, request: usize) -> Outcome {
        self.shared.wait(&format!("end of response {request}"), |state| {
            state.outcomes.get(request).copied().flatten()
        })
    }

    /// The test sends faulty requests, and means to.
    pub fn expect_refusals(&self) {
        self.shared.lock().expects_refusals = true;
    }

    /// What was wrong with the requests so far.
    pub fn refusals(&self) -> Vec<String> {
        self.shared.lock().faults.clone()
    }

    /// Waits until something was wrong.
    pub fn wait_for_refusal(&self) -> Vec<String> {
        self.shared
            .wait("refusal", |state| (!state.faults.is_empty()).then(|| state.faults.clone()))
    }

    /// Panics if a request was faulty.
    pub fn verify(&self) {
        let state = self.shared.lock();
        if !state.expects_refusals {
            assert!(
                state.faults.is_empty(),
                "the server had to refuse requests:\n{}",
                state.faults.join("\n")
            );
        }
    }

    /// A `models.json` with one provider, `fake`, at this server, and one model,
    /// `fake-1`. Fields of `extra` go to the provider where they are a provider's
    /// (`apiKey`, `authHeader`, `baseUrl`, `headers`, `modelOverrides`), else to the model.
    pub fn models_json(&self, api: Api, extra: &Value) -> String {
        let mut provider = json!({
            "baseUrl": format!("{}{}", self.base_url(), api.base_path()),
            "api": api.name(),
            "apiKey": "fake-key",
        });
        let mut model = json!({"id": "fake-1"});
        for (field, value) in extra.as_object().into_iter().flatten() {
            let of_provider = ["apiKey", "authHeader", "baseUrl", "headers", "modelOverrides"]
                .contains(&field.as_str());
            let target = if of_provider { &mut provider } else { &mut model };
            target[field] = value.clone();
        }
        provider["models"] = json!([model]);
        json!({"providers": {"fake": provider}}).to_string()
    }
}

impl Drop for LlmServer {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.stopping = true;
            for stream in state.streams.values().filter_map(Weak::upgrade) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        if !std::thread::panicking() {
            self.verify();
        }
    }
}
