//! Events between extensions.

use wharf_agent::hooks::{HookNotification, Hooks};

use crate::support::{Fixture, patiently};

#[tokio::test(flavor = "multi_thread")]
async fn an_event_reaches_every_subscriber_with_its_source() {
    let fixture = Fixture::new(&["first", "second", "heartbeat"]).await;
    fixture.command(r#"first call emit news  {"a": [1, "x"]} "#).await;
    let mut lines = Vec::new();
    for _ in 0..3 {
        lines.push(fixture.ui.notified().await);
    }
    lines.sort();
    assert_eq!(
        lines,
        [
            "first emit null",
            r#"first news {"topic":"news","source":"first","data":{"a": [1, "x"]}}"#,
            r#"second news {"topic":"news","source":"first","data":{"a": [1, "x"]}}"#,
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_event_is_refused() {
    let fixture = Fixture::new(&["first"]).await;
    let long = "x".repeat(65);
    for (arguments, expected) in [
        ("emit a/b null", "must be 1 to 64 characters of a-z, A-Z, 0-9, _, - and ."),
        (&format!("emit {long} null"), "must be 1 to 64 characters"),
        ("emit BLANK null", "must be 1 to 64 characters"),
        ("emit nobody.hears-THIS_1 {", "data is no JSON"),
        ("emit nobody.hears-THIS_1 null", "first emit null"),
        ("emit-big nobody 1048577", "data has 1048577 bytes; the limit is 1048576"),
        ("emit-big nobody 1048576", "first emit-big null"),
    ] {
        fixture.command(&format!("first call {arguments}")).await;
        let shown = fixture.ui.notified().await;
        assert!(shown.contains(expected), "{arguments}: {shown}");
    }
}

/// Both send on what both hear, so that the number of events doubles with every hop.
#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_events_ends_at_its_limit() {
    let fixture = Fixture::new(&["first"]).await;
    fixture.command("first call emit loop null").await;
    assert_eq!(fixture.ui.notified().await, "first emit null");
    let report = fixture.report().await;
    assert!(report.starts_with("bus:loop: HostError::NotAllowed"), "{report}");
    assert!(report.contains("event 16 of a chain"), "{report}");
    fixture.command("first call loops").await;
    assert_eq!(fixture.ui.notified().await, "first loops 15");
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_answer_each_other_end_and_the_host_goes_on() {
    let fixture = Fixture::new(&["first", "second", "heartbeat"]).await;
    fixture.command("first call emit loop null").await;
    assert_eq!(fixture.ui.notified().await, "first emit null");
    let report = fixture.report().await;
    assert!(
        report.contains("event 16 of a chain") || report.contains("notifications is full"),
        "{report}"
    );
    fixture.command("beat 1").await;
    assert_eq!(fixture.ui.notified().await, "beat 1");
    patiently(fixture.host.shutdown()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_dropped_and_told_once_and_its_sender_does_not_wait() {
    let fixture = Fixture::new(&["first", "heartbeat"]).await;
    // A plain command: nothing of it is handled before it has returned.
    fixture.command("first call flood 5000 10").await;
    assert_eq!(fixture.ui.notified().await, "first flood null");
    assert_eq!(
        fixture.report().await,
        "bus:loop: its queue of 1024 notifications is full; further ones are dropped until it catches up"
    );
    fixture.command("beat 1").await;
    assert_eq!(fixture.ui.notified().await, "beat 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_a_queue_is_capped_in_bytes() {
    let fixture = Fixture::new(&["first"]).await;
    fixture.command("first call flood 40 1000000").await;
    assert_eq!(fixture.ui.notified().await, "first flood null");
    assert_eq!(
        fixture.report().await,
        "bus:loop: 16777216 bytes of events of extensions wait for it; further ones are dropped until it catches up"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_disabled_hears_nothing() {
    let fixture = Fixture::new(&["first", "second"]).await;
    fixture.host.notify(HookNotification::SessionStart);
    for _ in 0..3 {
        fixture.command("second die").await;
        assert!(fixture.report().await.starts_with("command: /second: "), "it panics");
    }
    assert!(fixture.report().await.contains("disabled"));
    fixture.command("first call emit news 1").await;
    let mut lines = [fixture.ui.notified().await, fixture.ui.notified().await];
    lines.sort();
    assert_eq!(
        lines,
        ["first emit null", r#"first news {"topic":"news","source":"first","data":1}"#]
    );
    patiently(fixture.host.shutdown()).await;
    assert!(fixture.reports.0.is_empty());
}
