//! A small HTTP server on this machine, for what extensions ask of the web: it
//! answers every request through one function. The servers of models are `llm`'s.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Nothing on this machine takes nearly that long.
const LIMIT: Duration = Duration::from_secs(60);

/// What was asked.
#[derive(Debug, Clone)]
pub struct WebRequest {
    pub method: String,
    /// With its query.
    pub path: String,
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// What is answered: a status, headers, a body.
#[derive(Debug, Clone)]
pub struct WebAnswer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl WebAnswer {
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: Vec::new(), body: body.into() }
    }

    pub fn redirect(status: u16, location: &str) -> Self {
        let headers = vec![("location".to_owned(), location.to_owned())];
        Self { status, headers, body: Vec::new() }
    }
}

#[derive(Debug)]
pub struct WebServer {
    address: SocketAddr,
    requests: Receiver<WebRequest>,
}

impl WebServer {
    /// Serves until the test process ends.
    pub fn start(answer: impl Fn(&WebRequest) -> WebAnswer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &answer, &sender);
            }
        });
        Self { address, requests }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// `http://127.0.0.1:PORT` and this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The next request that no wait has taken yet.
    pub fn wait(&self) -> WebRequest {
        self.requests.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("no request within {LIMIT:?}"))
    }

    /// Requests so far that no wait has taken.
    pub fn taken(&self) -> Vec<WebRequest> {
        self.requests.try_iter().collect()
    }
}

/// One request a connection. A client that goes away concerns nobody.
fn serve(
    stream: TcpStream,
    answer: &impl Fn(&WebRequest) -> WebAnswer,
    sender: &Sender<WebRequest>,
) -> Option<()> {
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request = WebRequest { method, path, headers, body };
    let WebAnswer { status, headers, body } = answer(&request);
    // Nobody may look at what was asked.
    let _ = sender.send(request);
    let mut head = format!("HTTP/1.1 {status} Answer\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    let mut stream = stream;
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(&body).ok()
}
