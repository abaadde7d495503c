//! How the answers of handlers combine, with real ones.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{
    BeforeAgentStartEvent, HookNotification, Hooks, InputEvent, InputSource, InputVerdict,
    SwitchReason, ToolCallVerdict, ToolResultEvent,
};
use wharf_agent::tool::ToolOutput;
use wharf_protocol::message::joined_text;
use wharf_protocol::{ContentBlock, Event};

use crate::support::{Fixture, arguments, blocks, runs};

#[tokio::test(flavor = "multi_thread")]
async fn tool_call_decisions() {
    let fixture = Fixture::new(&["probe", "waiter"]).await;
    assert_eq!(fixture.bash("ls").await, runs("ls"));
    assert_eq!(fixture.bash("REPLACE: pwd").await, runs("pwd"));
    assert_eq!(fixture.bash("REPLACE:").await, blocks("command must not be empty"));
    assert_eq!(fixture.bash("REPLACE: BLOCK").await, blocks("waiter says no"));
    assert_eq!(
        fixture.bash("FAIL").await,
        blocks("extension probe failed: probe fails on purpose")
    );
    let output = ToolOutput { content: vec![ContentBlock::text("42")], details: None };
    let answer = ToolCallVerdict::Answer { output, is_error: false };
    assert_eq!(fixture.bash("ANSWER: 42").await, answer);
    assert!(fixture.reports.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_results_are_patched() {
    let fixture = Fixture::new(&["probe"]).await;
    let patched = async |text: &str| {
        let event = ToolResultEvent {
            tool_call_id: "1".into(),
            tool_name: "bash".into(),
            input: arguments("x"),
            output: ToolOutput { content: vec![ContentBlock::text(text)], details: None },
            is_error: true,
        };
        let event = fixture.host.tool_result(event, &CancellationToken::new()).await;
        assert!(event.is_error);
        joined_text(&event.output.content)
    };
    assert_eq!(patched("x").await, "x");
    assert_eq!(patched("PATCHME").await, "PATCHME\n[seen by probe]");
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_transformed_or_handled() {
    let fixture = Fixture::new(&["probe"]).await;
    let verdict = async |text: &str| {
        let event = InputEvent { text: text.into(), images: Vec::new(), source: InputSource::Rpc };
        fixture.host.input(event, &CancellationToken::new()).await
    };
    let proceed = |text: &str| InputVerdict::Proceed { text: text.into(), images: Vec::new() };
    assert_eq!(verdict("x").await, proceed("x"));
    assert_eq!(verdict("transform:x").await, proceed("X"));
    assert_eq!(verdict("handled:x").await, InputVerdict::Handled);
    assert_eq!(fixture.ui.notified().await, "handled: x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_starts_with_injected_messages_and_another_system_prompt() {
    let fixture = Fixture::new(&["probe"]).await;
    let event = BeforeAgentStartEvent {
        prompt: "INJECT".into(),
        images: Vec::new(),
        system_prompt: "base".into(),
    };
    let verdict = fixture.host.before_agent_start(event, &CancellationToken::new()).await;
    assert_eq!(verdict.system_prompt, "base [probe]");
    assert_eq!(verdict.messages[0].content.to_text(), "injected by probe");
    assert_eq!(verdict.messages[0].custom_type, "probe");
    assert!(!fixture.host.session_before_switch(SwitchReason::New, None).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_arrive_once_each_and_before_what_comes_after_them() {
    let fixture = Fixture::new(&["probe"]).await;
    fixture.host.notify(HookNotification::SessionStart);
    for _ in 0..3 {
        fixture.host.notify(HookNotification::Wire(Arc::new(Event::TurnStart)));
    }
    let end = Event::AgentEnd { messages: Vec::new() };
    fixture.host.notify(HookNotification::Wire(Arc::new(end)));
    fixture.host.notify(HookNotification::Wire(Arc::new(Event::SessionNameChanged {
        name: "not for extensions".into(),
    })));
    // Notifications are handled one at a time, commands at once: wait for the last.
    loop {
        fixture.command("counts").await;
        let counts = fixture.ui.notified().await;
        if counts.contains("agent_end") {
            assert_eq!(counts, r#"{"agent_end":1,"session_start":1,"turn_start":3}"#);
            break;
        }
    }
}
