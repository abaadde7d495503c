//! One connection: HTTP/1.1 as far as clients of models use it.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use super::api::Api;
use super::reply::{Close, Gate, Plan};
use super::server::{Outcome, Shared};

/// Bytes of a request; more is a fault of the client.
const MAX_REQUEST: u64 = 256 * 1024 * 1024;

/// A request that has come in.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Counts the connections; the same number twice: it was used again.
    pub connection: usize,
    pub method: String,
    pub path: String,
    pub query: Option<String>,
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
    /// Null where it is no JSON.
    pub body: Value,
    /// None for a path of no API.
    pub api: Option<Api>,
}

impl Recorded {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Serves a connection to its end.
pub(super) fn serve(shared: &Arc<Shared>, number: usize, stream: TcpStream) {
    let stream = Arc::new(stream);
    // Small writes must not wait for each other.
    let _ = stream.set_nodelay(true);
    if !shared.connected(number, &stream) {
        return;
    }
    let (sender, requests) = channel();
    let reader = std::thread::spawn({
        let (shared, stream) = (Arc::clone(shared), Arc::clone(&stream));
        move || {
            let mut input = BufReader::new(&*stream);
            loop {
                match read_request(&mut input, number) {
                    Ok(Some(request)) => {
                        if sender.send(request).is_err() {
                            break;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        // A client may reset an idle connection.
                        if error.kind() == io::ErrorKind::InvalidData {
                            shared.fault(format!("no HTTP request: {error}"));
                        }
                        break;
                    }
                }
            }
            // Wakes the replies that wait at a gate.
            shared.client_closed(number);
        }
    });
    let close = answer_all(shared, number, &stream, &requests);
    drop(requests);
    if close == Close::Reset {
        // With this, closing sends RST; the reader must have let go of the socket.
        let linger = Some(std::time::Duration::ZERO);
        if let Err(error) = rustix::net::sockopt::set_socket_linger(&*stream, linger) {
            shared.fault(format!("failed to reset a connection: {error}"));
        }
        let _ = stream.shutdown(Shutdown::Read);
    } else {
        let _ = stream.shutdown(Shutdown::Both);
    }
    let _ = reader.join();
}

/// How the connection is to be closed.
fn answer_all(
    shared: &Shared,
    connection: usize,
    stream: &TcpStream,
    requests: &Receiver<Recorded>,
) -> Close {
    for request in requests {
        let (number, plan) = shared.take(request);
        let outcome = match write(shared, connection, stream, &plan) {
            Ok(true) if plan.close.is_some() => Outcome::Cut,
            Ok(true) => Outcome::Sent,
            Ok(false) | Err(_) => Outcome::ClientClosed,
        };
        shared.answered(number, outcome);
        match (outcome, plan.close) {
            (Outcome::Sent, _) => {}
            (Outcome::Cut, Some(close)) => return close,
            _ => return Close::Clean,
        }
    }
    Close::Clean
}

/// False where the client has gone while the reply was waiting.
fn write(
    shared: &Shared,
    connection: usize,
    mut stream: &TcpStream,
    plan: &Plan,
) -> io::Result<bool> {
    let pass = |gate: &Gate| shared.pass(gate, connection);
    if plan.before_head.as_ref().is_some_and(|gate| !pass(gate)) {
        return Ok(false);
    }
    let mut pending = plan.head.clone();
    let mut holds = plan.holds.iter().peekable();
    for (at, bytes) in &plan.parts {
        if !plan.at_once {
            stream.write_all(&std::mem::take(&mut pending))?;
        }
        while let Some((_, gate)) = holds.next_if(|(hold, _)| hold <= at) {
            stream.write_all(&std::mem::take(&mut pending))?;
            if !pass(gate) {
                return Ok(false);
            }
        }
        if plan.is_chunked {
            pending.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
            pending.extend_from_slice(bytes);
            pending.extend_from_slice(b"\r\n");
        } else {
            pending.extend_from_slice(bytes);
        }
    }
    for (_, gate) in holds {
        stream.write_all(&std::mem::take(&mut pending))?;
        if !pass(gate) {
            return Ok(false);
        }
    }
    if plan.is_chunked && plan.close.is_none() {
        pending.extend_from_slice(b"0\r\n\r\n");
    }
    stream.write_all(&pending)?;
    Ok(true)
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

fn read_line(input: &mut impl io::BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    if input.take(64 * 1024).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let line = line.strip_suffix(b"\r\n").ok_or_else(|| invalid("a line without CRLF"))?;
    String::from_utf8(line.to_vec()).map(Some).map_err(|_| invalid("a line that is no UTF-8"))
}

/// None where the client has closed the connection.
fn read_request(
    input: &mut BufReader<&TcpStream>,
    connection: usize,
) -> io::Result<Option<Recorded>> {
    let Some(line) = read_line(input)? else { return Ok(None) };
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(invalid(format!("no request line: {line:?}")));
    };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target, None),
    };
    let mut headers = Vec::new();
    loop {
        let line = read_line(input)?.ok_or_else(|| invalid("the head is cut off"))?;
        if line.is_empty() {
            break;
        }
        let (name, value) =
            line.split_once(':').ok_or_else(|| invalid(format!("no header: {line:?}")))?;
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let mut request = Recorded {
        connection,
        method: method.to_owned(),
        path: path.to_owned(),
        query,
        headers,
        body: Value::Null,
        api: (method == "POST").then(|| Api::of_path(path)).flatten(),
    };
    let body = if request.header("transfer-encoding").is_some_and(|value| value == "chunked") {
        read_chunks(input)?
    } else {
        let length = request.header("content-length").unwrap_or("0");
        read_bytes(input, length.parse().map_err(|_| invalid(format!("a length of {length:?}")))?)?
    };
    request.body = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Some(request))
}

fn read_chunks(input: &mut BufReader<&TcpStream>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(input)?.ok_or_else(|| invalid("the body is cut off"))?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16)
            .map_err(|_| invalid(format!("no size of a chunk: {line:?}")))?;
        body.extend(read_bytes(input, size)?);
        // The end of a chunk, or of the (empty) trailers.
        if read_line(input)?.is_none_or(|line| !line.is_empty()) {
            return Err(invalid("a chunk does not end where it says"));
        }
        if size == 0 {
            return Ok(body);
        }
    }
}

fn read_bytes(input: &mut BufReader<&TcpStream>, length: u64) -> io::Result<Vec<u8>> {
    if length > MAX_REQUEST {
        return Err(invalid(format!("a body of {length} bytes")));
    }
    let mut body = Vec::new();
    input.take(length).read_to_end(&mut body)?;
    if body.len() as u64 == length { Ok(body) } else { Err(invalid("the body is cut off")) }
}
