//! Spellings of hosts, where `127.0.0.1:*`, `127.0.0.9`, `example.org`,
//! `*.sub.example.org` and a name in another script were granted. Nothing here reaches
//! beyond this machine.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use serde_json::{Value, json};
use wharf_tests::Wharf;
use wharf_tests::web::{WebAnswer, WebServer};

use super::{
    HOST_MIB, assert_ends, assert_memory, assert_refused, assert_served, not_granted, outcome,
    start, with_limits,
};

fn fetch(wharf: &mut Wharf, url: &str) -> Value {
    fetch_with(wharf, json!({"url": url}))
}

fn fetch_with(wharf: &mut Wharf, call: Value) -> Value {
    outcome(wharf, &format!("/fetch {call}"))
}

/// `/to?URL` redirects there, everything else is fine.
fn server() -> WebServer {
    WebServer::start(|request| match request.path.split_once('?') {
        Some(("/to", url)) => WebAnswer::redirect(302, url),
        Some(("/keep", url)) => WebAnswer::redirect(307, url),
        _ => WebAnswer::ok("served"),
    })
}

/// A port that counts who connects.
pub(super) fn trap(address: &str) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    std::thread::spawn({
        let count = Arc::clone(&count);
        move || {
            for _ in listener.incoming() {
                count.fetch_add(1, SeqCst);
            }
        }
    });
    (port, count)
}

#[test]
fn no_spelling_of_a_host_is_another_host() {
    let env = with_limits(&json!({}));
    let mut wharf = start(&env, "tricks");
    let server = server();
    let port = server.port();
    let (closed, connections) = trap("127.0.0.1");
    let denied = [
        ("http://evil.test/", "evil.test"),
        ("http://example.org.evil.test/", "example.org.evil.test"),
        ("http://notexample.org/", "notexample.org"),
        ("http://sub.example.org/", "sub.example.org"),
        ("http://xsub.example.org/", "xsub.example.org"),
        ("http://example.org:8080/", "example.org:8080"),
        ("https://example.org:80/", "example.org:80"),
        ("http://example.org:443/", "example.org:443"),
        ("http://b\u{fc}cher.example/", "xn--bcher-kva.example"),
        ("http://ex\u{430}mple.org/", "xn--exmple-4nf.org"),
        // What follows a `#`, `?` or `\` is no host.
        (&format!("http://evil.test#@127.0.0.1:{port}/"), "evil.test"),
        (&format!("http://evil.test?@127.0.0.1:{port}/"), "evil.test"),
        (&format!("http://evil.test\\@127.0.0.1:{port}/"), "evil.test"),
        (&format!("http://evil.test/@127.0.0.1:{port}/"), "evil.test"),
        ("ht\ntp://evil.\ttest/", "evil.test"),
        ("  http://evil.test  ", "evil.test"),
        ("http:evil.test", "evil.test"),
        ("http:/\\/evil.test", "evil.test"),
        ("http:///evil.test/x", "evil.test"),
        ("HTTP://EVIL.TEST", "evil.test"),
        ("http://evil%2etest/", "evil.test"),
        // Other names of this machine.
        (&format!("http://localhost:{closed}/"), &format!("localhost:{closed}")),
        (&format!("http://0.0.0.0:{closed}/"), &format!("0.0.0.0:{closed}")),
        (&format!("http://0:{closed}/"), &format!("0.0.0.0:{closed}")),
        (&format!("http://[::1]:{closed}/"), &format!("[::1]:{closed}")),
        (&format!("http://[::ffff:127.0.0.1]:{closed}/"), &format!("[::ffff:7f00:1]:{closed}")),
        // Another port than the scheme's own.
        (&format!("http://127.0.0.9:{closed}/"), &format!("127.0.0.9:{closed}")),
        (&format!("http://0x7f.9:{closed}/"), &format!("127.0.0.9:{closed}")),
    ]
    .map(|(url, host): (&str, &str)| (url.to_owned(), host.to_owned()));
    for (url, host) in denied {
        let outcome = fetch(&mut wharf, &url);
        let text = not_granted("tricks", &format!("net:{host}"));
        assert_refused(&outcome, "denied", &text, &url);
    }
    for url in [
        &*format!("http://user@127.0.0.1:{port}/"),
        &format!("http://user:password@127.0.0.1:{port}/"),
        &format!("http://127.0.0.1:{port}@evil.test/"),
        "http://example.org%2f@evil.test/",
        "http://:secret@example.org/",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "data:text/plain,x",
        "ws://127.0.0.1/",
        "javascript:1",
        "unix:/run/docker.sock",
        "//127.0.0.1/",
        "/etc/passwd",
        "127.0.0.1",
        "",
        "http://",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:-1/",
        "http://127.0.0.1%00.evil.test/",
        "http://127.0.0.1.256/",
        "http://[::1/",
        "http://exa mple.org/",
    ] {
        assert_refused(&fetch(&mut wharf, url), "invalid", "url", url);
    }
    assert_eq!(connections.load(SeqCst), 0);
    assert!(server.taken().is_empty());
    // Another spelling of what was granted is what was granted.
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "2130706433",
        "017700000001",
        "127.0.0.1.",
        "%31%32%37.0.0.1",
    ] {
        let outcome = fetch(&mut wharf, &format!("http://{host}:{port}/x"));
        assert_eq!(outcome["ok"]["body"], "served", "{host}: {outcome}");
        let asked = server.wait();
        let host = asked.headers.iter().find(|(name, _)| name == "host").unwrap();
        assert_eq!(host.1, format!("127.0.0.1:{port}"));
    }
    assert_served(&mut wharf, "Ann");
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}

#[test]
fn every_hop_of_a_redirect_is_judged() {
    let env = with_limits(&json!({}));
    let mut wharf = start(&env, "tricks");
    let (server, other) = (server(), server());
    let port = server.port();
    let (closed, connections) = trap("127.0.0.1");
    for (target, words) in [
        (format!("http://localhost:{closed}/"), format!("net:localhost:{closed}")),
        (format!("//localhost:{closed}/"), format!("net:localhost:{closed}")),
        (format!("http://127.0.0.9:{closed}/"), format!("net:127.0.0.9:{closed}")),
        (format!("http://[::1]:{closed}/"), format!("net:[::1]:{closed}")),
        ("http://evil.test/".to_owned(), "net:evil.test".to_owned()),
        ("https:evil.test".to_owned(), "net:evil.test".to_owned()),
        ("\\\\evil.test\\".to_owned(), "net:evil.test".to_owned()),
        (format!("http://user@127.0.0.1:{port}/"), "redirect".to_owned()),
        ("file:///etc/passwd".to_owned(), "redirect".to_owned()),
        ("ftp://127.0.0.1/".to_owned(), "redirect".to_owned()),
    ] {
        let outcome = fetch(&mut wharf, &server.url(&format!("/to?{target}")));
        assert_refused(&outcome, "denied", &words, &target);
    }
    // Behind a granted one too.
    let hop = other.url(&format!("/to?http://localhost:{closed}/"));
    let outcome = fetch(&mut wharf, &server.url(&format!("/to?{hop}")));
    assert_refused(&outcome, "denied", &format!("net:localhost:{closed}"), "the second hop");
    assert_eq!(connections.load(SeqCst), 0);

    let looping = WebServer::start(|request| WebAnswer::redirect(302, &request.path));
    let outcome = fetch(&mut wharf, &looping.url("/round"));
    assert_refused(&outcome, "failed", "10", "a loop");
    assert_eq!(looping.taken().len(), 11);

    let outcome = fetch(&mut wharf, &server.url("/to?/fine"));
    assert_eq!(outcome["ok"], json!({"status": 200, "url": server.url("/fine"), "body": "served"}));
    // What was meant for one origin is not told another.
    let _ = other.taken();
    for way in ["to", "keep"] {
        let url = server.url(&format!("/{way}?{}", other.url("/there")));
        let headers =
            json!([["authorization", "Bearer secret"], ["cookie", "secret"], ["x-mine", "yes"]]);
        fetch_with(&mut wharf, json!({"url": url, "headers": headers}));
        let asked = other.wait();
        let has = |name: &str| asked.headers.iter().any(|(one, _)| one == name);
        assert!(!has("authorization") && !has("cookie") && has("x-mine"), "{asked:?}");
    }
    assert_served(&mut wharf, "Bea");
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}

/// A second request does not hide in the first.
#[test]
fn methods_and_headers_smuggle_nothing() {
    let env = with_limits(&json!({}));
    let mut wharf = start(&env, "tricks");
    let server = server();
    let url = server.url("/x");
    for method in ["GET / HTTP/1.1\r\nhost: evil.test\r\n\r\nGET", "G ET", "", "GET\n", "CONNECT"] {
        let outcome = fetch_with(&mut wharf, json!({"url": url, "method": method}));
        assert_refused(&outcome, "invalid", "method", method);
    }
    for (name, value) in [
        ("host", "evil.test"),
        ("Host", "evil.test"),
        ("content-length", "5"),
        ("Transfer-Encoding", "chunked"),
        ("connection", "upgrade"),
        ("upgrade", "h2c"),
        ("proxy-authorization", "Basic x"),
        ("x-a", "b\r\nhost: evil.test"),
        ("x-a", "b\nc"),
        ("x-a", "b\0c"),
        ("x-a\r\nhost", "evil.test"),
        ("host ", "evil.test"),
        ("x a", "b"),
        (":authority", "evil.test"),
        ("", "b"),
    ] {
        let outcome = fetch_with(&mut wharf, json!({"url": url, "headers": [[name, value]]}));
        assert_refused(&outcome, "invalid", "header", &format!("{name:?}: {value:?}"));
    }
    assert!(server.taken().is_empty());
    assert_served(&mut wharf, "Cleo");
    assert_ends(wharf);
}
