//! Tests against servers that are no more than sockets on 127.0.0.1.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use super::*;

/// No test waits longer.
const LIMIT: Duration = Duration::from_secs(60);

/// Serves connections one after the other with `serve`, which gets what was sent.
fn server(serve: impl Fn(&mut TcpStream, String) + Send + 'static) -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, closed) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let Some(request) = read_request(&mut stream) else { continue };
            serve(&mut stream, request);
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    (url, closed)
}

/// The head, and as much of a body as it names.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        bytes.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let lower = head.to_lowercase();
    let length = lower.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).ok()?;
    Some(format!("{head}{}", String::from_utf8_lossy(&body)))
}

fn get(url: &str) -> HttpRequest {
    HttpRequest {
        method: "GET".to_owned(),
        url: url.to_owned(),
        headers: Vec::new(),
        body: None,
        timeout: LIMIT,
    }
}

async fn text(mut body: HttpBody) -> Result<String, HttpError> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn a_request_goes_out_as_it_is_and_a_response_comes_back_as_it_is() {
    let (url, _closed) = server(|stream, request| {
        let length = request.len();
        stream
            .write_all(b"HTTP/1.1 207 Odd\r\nX-Name: a\r\nx-name: b\xff\r\nSet-Cookie: c=1\r\n")
            .unwrap();
        let rest = format!("connection: close\r\ncontent-length: {length}\r\n\r\n{request}");
        stream.write_all(rest.as_bytes()).unwrap();
    });
    let headers = [("X-One", "1"), ("x-one", "2"), ("x-text", "é")];
    let request = HttpRequest {
        method: "REPORT".to_owned(),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        body: Some(b"body".to_vec()),
        ..get(&format!("{url}/a%20b?c=d#e"))
    };
    let response = fetch(request).await.unwrap();
    assert_eq!(response.status, 207);
    let of = |name: &str| -> Vec<String> {
        let found = response.headers.iter().filter(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).collect()
    };
    assert_eq!(of("x-name"), ["a", "b\u{fffd}"]);
    let sent = text(response.body).await.unwrap();
    assert!(sent.starts_with("REPORT /a%20b?c=d HTTP/1.1\r\n"), "{sent}");
    for line in ["x-one: 1\r\n", "x-one: 2\r\n", "x-text: é\r\n", "content-length: 4\r\n"] {
        assert!(sent.contains(line), "{line} is missing in {sent}");
    }
    assert!(!sent.to_lowercase().contains("accept-encoding"), "{sent}");
    assert!(sent.ends_with("\r\n\r\nbody"), "{sent}");
    // No cookie is kept for the next one.
    let again = text(fetch(get(&url)).await.unwrap().body).await.unwrap();
    assert!(!again.to_lowercase().contains("cookie"), "{again}");
}

#[tokio::test]
async fn a_redirect_is_a_response() {
    let (url, _closed) = server(|stream, _| {
        stream
            .write_all(
                b"HTTP/1.1 302 Found\r\nlocation: /other\r\nconnection: close\r\ncontent-length: 4\r\n\r\nhere",
            )
            .unwrap();
    });
    let response = fetch(get(&url)).await.unwrap();
    assert_eq!(response.status, 302);
    assert!(response.headers.contains(&("location".to_owned(), "/other".to_owned())));
    assert_eq!(text(response.body).await.unwrap(), "here");
}

#[tokio::test]
async fn a_compressed_body_stays_so() {
    let (url, _closed) = server(|stream, _| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc")
            .unwrap();
    });
    let response = fetch(get(&url)).await.unwrap();
    assert!(response.headers.contains(&("content-encoding".to_owned(), "gzip".to_owned())));
    assert_eq!(text(response.body).await.unwrap(), "abc");
}

#[tokio::test]
async fn requests_that_cannot_be_sent_are_refused_before() {
    let url = "http://127.0.0.1:9/";
    let with_header = |name: &str, value: &str| HttpRequest {
        headers: vec![(name.to_owned(), value.to_owned())],
        ..get(url)
    };
    let with_method = |method: &str| HttpRequest { method: method.to_owned(), ..get(url) };
    for (request, expect) in [
        (get("nothing"), "url is none: relative URL"),
        (get("ftp://127.0.0.1/"), "url must begin with http:// or https:// and a host"),
        (get("file:///etc/passwd"), "url must begin with"),
        (get("http://me:pw@127.0.0.1/"), "url must have no user and no password"),
        (get("http://me@127.0.0.1/"), "url must have no user and no password"),
        (with_method("connect "), "method \"connect \" is none"),
        (with_method(""), "method \"\" is none"),
        (with_method("CONNECT"), "method must not be CONNECT"),
        (with_method("GET / HTTP/1.1\r\nx: y\r\n\r\n"), "method"),
        (with_header("x y", "1"), "headers: \"x y\" is no name"),
        (with_header("", "1"), "headers: \"\" is no name"),
        (with_header("x", "1\r\ny: 2"), "headers: \"x\" has a value"),
        (with_header("Host", "other.example"), "headers: \"Host\" is the host's own"),
        (with_header("content-Length", "0"), "headers: \"content-Length\" is the host's own"),
        (with_header("transfer-encoding", "chunked"), "headers: \"transfer-encoding\" is"),
    ] {
        let error = fetch(request).await.unwrap_err();
        assert_eq!(error.kind, HttpErrorKind::Invalid, "{error}");
        assert!(error.message.starts_with(expect), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_is_silent_or_hangs_up_is_told() {
    // Nobody listens there any more.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = fetch(get(&format!("http://{free}/?token=secret"))).await.unwrap_err();
    assert_eq!(error.kind, HttpErrorKind::Failed);
    assert!(error.message.starts_with("failed to reach 127.0.0.1: "), "{error}");
    assert!(!error.message.contains("secret"), "{error}");

    let (url, _closed) = server(|stream, _| {
        // Until the client goes.
        let _ = stream.read(&mut [0]);
    });
    let short = Duration::from_millis(50);
    let error = fetch(HttpRequest { timeout: short, ..get(&url) }).await.unwrap_err();
    assert_eq!(error.kind, HttpErrorKind::TimedOut);
    assert_eq!(error.message, "127.0.0.1 did not answer within 50ms");

    let (url, _closed) = server(|stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").unwrap();
        let _ = stream.read(&mut [0]);
    });
    // Long enough for the head on a busy machine.
    let timeout = Duration::from_secs(2);
    let mut response = fetch(HttpRequest { timeout, ..get(&url) }).await.unwrap();
    assert_eq!(response.body.next().await.unwrap().unwrap(), "half");
    let error = response.body.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind, HttpErrorKind::TimedOut);
    assert_eq!(error.message, "127.0.0.1 sent no more of the body within 2s");
    assert!(response.body.next().await.is_none());

    let (url, _closed) = server(|stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").unwrap();
    });
    let error = text(fetch(get(&url)).await.unwrap().body).await.unwrap_err();
    assert_eq!(error.kind, HttpErrorKind::Failed);
    assert!(error.message.starts_with("the connection to 127.0.0.1 broke: "), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_body_or_a_request_ends_the_connection() {
    let (url, closed) = server(|stream, request| {
        if request.contains("/body") {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nbegin").unwrap();
        }
        // Nothing more comes from the client: it returns when the client has gone.
        let _ = stream.read(&mut [0]);
    });
    let mut response = fetch(get(&format!("{url}/body"))).await.unwrap();
    assert_eq!(response.body.next().await.unwrap().unwrap(), "begin");
    drop(response);
    closed.recv_timeout(LIMIT).unwrap();

    let request = fetch(get(&format!("{url}/silent")));
    let limited = tokio::time::timeout(Duration::from_millis(200), request).await;
    assert!(limited.is_err());
    // Whether the connection had been made by then or not, the next one is served.
    let response = fetch(get(&format!("{url}/body"))).await.unwrap();
    drop(response);
    closed.recv_timeout(LIMIT).unwrap();
}

#[tokio::test]
async fn a_large_body_comes_in_pieces() {
    const SIZE: usize = 20_000_000;
    let (url, _closed) = server(|stream, _| {
        let head =
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {SIZE}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        for _ in 0..SIZE / 100_000 {
            stream.write_all(&[b'x'; 100_000]).unwrap();
        }
    });
    let mut body = fetch(get(&url)).await.unwrap().body;
    let (mut total, mut largest) = (0, 0);
    while let Some(piece) = body.next().await {
        let length = piece.unwrap().len();
        total += length;
        largest = largest.max(length);
    }
    assert_eq!(total, SIZE);
    assert!(largest < 1_000_000, "{largest}");
}
