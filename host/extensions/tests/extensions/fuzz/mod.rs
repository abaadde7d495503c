//! Components whose bytes were changed, through the host: from the file to what they
//! register and, of those that still do, to what their handlers answer.

mod bytes;
mod cases;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{
    HookNotification, Hooks, InputEvent, InputSource, SwitchReason, ToolCallEvent,
};
use wharf_extensions::{ExtensionState, Limits};

use self::bytes::mutate;
use self::cases::fuzz;
use crate::support::{Fixture, Setup, guest, patiently};

const CASES: u64 = 150;

/// What one component may take of the host's memory, all in all.
const MAX_GROWTH_BYTES: u64 = 1 << 30;

/// Small ones, one of which was built for an older version.
const GUESTS: [&str; 4] = ["older-api", "subscriber", "heartbeat", "spins"];

/// Short, because a changed guest may well spin.
fn limits() -> Limits {
    Limits {
        event_budget: Duration::from_millis(200),
        call_budget: Duration::from_millis(200),
        cancel_grace: Duration::from_millis(100),
        ..Limits::default()
    }
}

#[test]
fn changed_components_are_refused_or_work() {
    let guests: Vec<Vec<u8>> =
        GUESTS.iter().map(|name| std::fs::read(guest(name)).unwrap()).collect();
    let runtime = Runtime::new().unwrap();
    let before = peak_bytes();
    fuzz(CASES, |mut rng| {
        let component = mutate(&mut rng, &guests);
        runtime.block_on(check(&component));
        let growth = peak_bytes().saturating_sub(before);
        assert!(growth < MAX_GROWTH_BYTES, "it took {growth} bytes");
    });
}

async fn check(component: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("changed.wasm");
    std::fs::write(&path, component).unwrap();
    let fixture = Fixture::start(vec![path], Setup { limits: limits(), ..Setup::default() });
    patiently(fixture.host.ready()).await;
    let extensions = fixture.host.list();
    assert_eq!(extensions.len(), 1);
    match &extensions[0].state {
        ExtensionState::Registered => use_it(&fixture).await,
        state => assert!(matches!(state, ExtensionState::Failed { .. }), "{state:?}"),
    }
    patiently(fixture.host.shutdown()).await;
    while !fixture.reports.0.is_empty() {
        let report = fixture.reports.0.next().await;
        // How the loader's threads tell of a panic.
        assert!(!report.error.contains("panicked"), "{report:?}");
    }
}

/// Whatever the answers are, they come.
async fn use_it(fixture: &Fixture) {
    fixture.host.notify(HookNotification::SessionStart);
    let cancel = CancellationToken::new();
    let abort = cancel.clone();
    let timer = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        abort.cancel();
    });
    let event = ToolCallEvent {
        tool_call_id: "1".to_owned(),
        tool_name: "bash".to_owned(),
        input: [("command".to_owned(), Value::from("ls"))].into_iter().collect(),
        paths: vec![PathBuf::from("/project/a")],
    };
    let recheck = |_: &Map<String, Value>| Ok(Vec::new());
    patiently(fixture.host.tool_call(event, &recheck, &cancel)).await;
    let event = InputEvent { text: "hi".to_owned(), images: Vec::new(), source: InputSource::Rpc };
    patiently(fixture.host.input(event, &cancel)).await;
    for command in fixture.host.commands() {
        let run = fixture.host.run_command(command.name, "1".to_owned());
        // A guest may wait for as long as it likes where nobody cancels it.
        let _ = tokio::time::timeout(Duration::from_secs(1), run).await;
    }
    let switch = fixture.host.session_before_switch(SwitchReason::New, None);
    let _ = tokio::time::timeout(Duration::from_secs(1), switch).await;
    timer.abort();
}

/// The most memory that this process has had; zero where the system does not tell.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or_default() * 1024
}
