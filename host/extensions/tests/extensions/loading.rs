//! Files that are no extensions of this host, names that clash, and what happens
//! while extensions load.

use std::fs;
use std::path::PathBuf;

use wharf_agent::hooks::{CommandLookup, HookEvent, HookNotification, Hooks};
use wharf_extensions::{ExtensionState, Severity};

use crate::support::{Fixture, Setup, guest, patiently};

async fn failing(name: &str, content: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, content).unwrap();
    let fixture = Fixture::start(vec![path], Setup::default());
    patiently(fixture.host.ready()).await;
    let report = fixture.reports.0.next().await;
    assert_eq!(report.severity, Severity::Error);
    assert_eq!(report.event, "load");
    assert!(report.error.contains(name), "{} does not name the file", report.error);
    assert!(matches!(fixture.host.list()[0].state, ExtensionState::Failed { .. }));
    report.error
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_no_extension_are_told_apart() {
    let component = fs::read(guest("heartbeat")).unwrap();
    for (name, content, expected) in [
        ("text.wasm", b"hello".as_slice(), "is no WebAssembly file"),
        ("module.wasm", b"\0asm\x01\0\0\0", "is a core WebAssembly module, not a component"),
        (
            "half.wasm",
            &component[..component.len() / 2],
            "is no valid component, perhaps truncated",
        ),
        (
            "empty.wasm",
            b"\0asm\x0d\0\x01\0",
            "is a WebAssembly component but not a Wharf extension",
        ),
    ] {
        let error = failing(name, content).await;
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_api_is_named_with_what_this_host_supports() {
    let error = failing("newer_api.wasm", &fs::read(guest("newer-api")).unwrap()).await;
    let expected =
        "extension newer_api is built for wharf:extension@0.9.0; this host supports 0.1.0 to 0.1.1";
    assert!(error.ends_with(expected), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_named_and_is_missing_is_reported() {
    let fixture = Fixture::start(vec![PathBuf::from("/no/such/x.wasm")], Setup::default());
    patiently(fixture.host.ready()).await;
    let report = fixture.report().await;
    assert!(report.starts_with("load: there is no extension at /no/such/x.wasm"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_extension_with_an_id_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy.wasm");
    fs::copy(guest("heartbeat"), &copy).unwrap();
    let fixture = Fixture::start(vec![guest("heartbeat"), copy.clone()], Setup::default());
    patiently(fixture.host.ready()).await;
    let report = fixture.reports.0.next().await;
    assert_eq!(
        (report.severity, report.extension_path),
        (Severity::Warning, copy.canonicalize().unwrap())
    );
    assert!(report.error.starts_with("its id \"heartbeat\" is taken by "), "{}", report.error);
    assert_eq!(fixture.host.commands().len(), 1);
    fixture.command("beat 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_loading_everything_is_possible_and_nothing_is_missed() {
    let fixture = Fixture::start(vec![guest("probe")], Setup::default());
    fixture.host.notify(HookNotification::SessionStart);
    assert!(fixture.host.subscribes(HookEvent::ToolCall));
    let mut settled = fixture.host.settled();
    let mut lookups = vec![fixture.host.find_command("counts")];
    while lookups.last() == Some(&CommandLookup::Loading) {
        patiently(settled.changed()).await.unwrap();
        lookups.push(fixture.host.find_command("counts"));
    }
    assert_eq!(lookups.first(), Some(&CommandLookup::Loading));
    assert_eq!(lookups.last(), Some(&CommandLookup::Found));
    fixture.command("counts").await;
    assert_eq!(fixture.ui.notified().await, r#"{"session_start":1}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_extensions_everything_is_ready_soon() {
    let fixture = Fixture::start(Vec::new(), Setup::default());
    patiently(fixture.host.ready()).await;
    assert!(!fixture.host.subscribes(HookEvent::ToolCall));
    assert_eq!(fixture.host.find_command("x"), CommandLookup::Unknown);
    assert!(fixture.cached("cwasm").is_empty());
    patiently(fixture.host.shutdown()).await;
}
