//! The cache of compiled code and registrations.

use std::fs;
use std::sync::Arc;

use wharf_agent::hooks::Hooks;

use crate::support::{Fixture, Setup};

async fn again(first: &Fixture, guests: &[&str]) -> Fixture {
    let directory = Some(Arc::clone(&first.directory));
    Fixture::with(guests, Setup { directory, ..Setup::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_start_needs_no_code_until_something_is_called() {
    let first = Fixture::new(&["heartbeat"]).await;
    let code = first.cached("cwasm");
    assert_eq!((code.len(), first.cached("json").len()), (1, 1));
    fs::remove_file(&code[0]).unwrap();

    let second = again(&first, &["heartbeat"]).await;
    assert_eq!(second.host.commands().len(), 1);
    assert!(second.cached("cwasm").is_empty(), "nothing was compiled");
    second.command("beat 1").await;
    assert_eq!(second.ui.notified().await, "beat 1");
    assert_eq!(second.cached("cwasm"), code, "compiled when it was needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_code_is_used_as_it_is_and_damaged_code_is_compiled_again() {
    let first = Fixture::new(&["heartbeat"]).await;
    let code = first.cached("cwasm").remove(0);
    let written = fs::metadata(&code).unwrap().modified().unwrap();
    again(&first, &["heartbeat"]).await.command("beat 1").await;
    assert_eq!(fs::metadata(&code).unwrap().modified().unwrap(), written);

    let good = fs::read(&code).unwrap();
    // A new file: the old one is still mapped.
    fs::remove_file(&code).unwrap();
    fs::write(&code, &good[..good.len() / 2]).unwrap();
    let third = again(&first, &["heartbeat"]).await;
    third.command("beat 1").await;
    assert_eq!(third.ui.notified().await, "beat 1");
    assert_eq!(fs::metadata(&code).unwrap().len(), good.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_cannot_be_written_costs_time_only() {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    fs::write(directory.path().join("cache"), b"a file where the directory should be").unwrap();
    let setup = Setup { directory: Some(directory), ..Setup::default() };
    let fixture = Fixture::with(&["heartbeat"], setup).await;
    fixture.command("beat 1").await;
    assert_eq!(fixture.ui.notified().await, "beat 1");
    assert!(fixture.reports.0.is_empty());
}
