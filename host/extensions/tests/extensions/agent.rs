//! What extensions add to the agent at run time and ask of it, and waiting in a call.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf_agent::hooks::{HookNotification, Hooks};
use wharf_agent::tool::{NoSession, Progress, Tool, ToolCallContext, ToolFailure, ToolOutput};

use crate::support::{Fixture, Setup, arguments, model, patiently};

/// What `/first call ...` shows.
async fn call(fixture: &Fixture, line: &str) -> Value {
    fixture.command(&format!("first call {line}")).await;
    result(&fixture.ui.notified().await)
}

fn result(shown: &str) -> Value {
    let (_, text) = shown.split_once(' ').unwrap();
    let (_, text) = text.split_once(' ').unwrap();
    serde_json::from_str(text).unwrap()
}

fn tools(fixture: &Fixture) -> Vec<String> {
    fixture.host.tools().iter().map(|tool| tool.spec().name.clone()).collect()
}

fn error(value: &Value) -> &str {
    value["error"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_does_what_it_is_asked() {
    let mut fixture = Fixture::new(&["first"]).await;
    let found = serde_json::to_string(&model("m")).unwrap();
    for (line, expected) in [
        ("compact look at x", Value::Null),
        ("shutdown", Value::Null),
        ("all-tools", json!([])),
        ("active-tools", json!(["read"])),
        ("set-active-tools read bash", Value::Null),
        (
            "commands",
            json!([
                ["c", "CommandSource::Extension"],
                ["c", "CommandSource::Prompt"],
                ["c", "CommandSource::Skill"]
            ]),
        ),
        ("find-models m", json!([found])),
        ("set-model p m", json!(found)),
        ("set-model q m", json!({"error": "HostError::Failed(\"no model q/m\")"})),
        ("thinking-level", json!("off")),
        ("set-thinking-level high", json!("high")),
    ] {
        assert_eq!(call(&fixture, line).await, expected, "{line}");
    }
    let refused = call(&fixture, "set-thinking-level huge").await;
    assert!(error(&refused).contains("is none of off, minimal, low"), "{refused}");
    let many = format!("set-active-tools{}", " x".repeat(4_097));
    let refused = call(&fixture, &many).await;
    assert!(error(&refused).contains("4097 names; the limit is 4096"), "{refused}");
    for expected in ["compact Some(\"look at x\")", "shutdown", "active tools [\"read\", \"bash\"]"]
    {
        assert_eq!(fixture.api_calls.recv().await.unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flag_is_there_for_the_extension_that_registered_it() {
    let flags = HashMap::from([
        ("first-flag".to_owned(), None),
        ("first-value".to_owned(), Some("x".to_owned())),
        ("second-flag".to_owned(), None),
    ]);
    let fixture = Fixture::with(&["first"], Setup { flags, ..Setup::default() }).await;
    for (name, expected) in [
        ("first-flag", json!("present")),
        ("first-value", json!({"value": "x"})),
        ("second-flag", json!("absent")),
    ] {
        assert_eq!(call(&fixture, &format!("flag {name}")).await, expected, "{name}");
    }
    let fixture = Fixture::new(&["first"]).await;
    assert_eq!(call(&fixture, "flag first-flag").await, "absent");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_run_time_follow_the_rules_of_registered_ones() {
    let setup = Setup { built_in_tools: vec!["bash".into()], ..Setup::default() };
    let fixture = Fixture::with(&["first", "second"], setup).await;
    assert_eq!(tools(&fixture), ["first-tool", "second-tool"]);
    assert_eq!(call(&fixture, "register-tool new").await, Value::Null);
    assert_eq!(call(&fixture, "register-tool bash overrides").await, Value::Null);
    assert_eq!(call(&fixture, "register-tool new").await, Value::Null, "replaces its own");
    assert_eq!(tools(&fixture), ["first-tool", "new", "bash", "second-tool"]);
    fixture.command("second call register-tool new").await;
    let refused = result(&fixture.ui.notified().await);
    assert_eq!(
        error(&refused),
        "HostError::Invalid(\"there is a tool \\\"new\\\" of the extension first\")"
    );
    for (line, expected) in [
        ("register-tool second-tool", "of the extension second"),
        ("register-tool bash", "is the name of a built-in tool, and `overrides` is not set"),
        ("register-tool a.b", "1 to 64 characters of a-z"),
    ] {
        let refused = call(&fixture, line).await;
        assert!(error(&refused).contains(expected), "{line}: {refused}");
    }
    assert_eq!(call(&fixture, "unregister-tool new").await, true);
    assert_eq!(call(&fixture, "unregister-tool new").await, false);
    assert_eq!(call(&fixture, "unregister-tool first-tool").await, false);
    assert_eq!(tools(&fixture), ["first-tool", "bash", "second-tool"]);
    let refused = call(&fixture, "register-tools 256").await;
    assert!(error(&refused).contains("256 tools have been registered at run time"), "{refused}");
    assert_eq!(tools(&fixture).len(), 2 + 256);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_and_providers_of_run_time_outlive_a_fault_and_go_with_the_extension() {
    let fixture = Fixture::new(&["first"]).await;
    fixture.host.notify(HookNotification::SessionStart);
    call(&fixture, "register-tool new").await;
    assert_eq!(call(&fixture, "register-provider p streams {}").await, Value::Null);
    fixture.command("first die").await;
    assert!(fixture.report().await.contains("it panics on purpose"));
    assert_eq!(call(&fixture, "loops").await, 0, "there is a new instance");
    assert_eq!(tools(&fixture), ["first-tool", "first-started", "new"]);
    assert_eq!(fixture.api.providers.lock().unwrap().len(), 1);
    for _ in 0..2 {
        fixture.command("first die").await;
        assert!(fixture.report().await.contains("it panics on purpose"));
    }
    assert!(fixture.report().await.contains("disabled"));
    assert_eq!(tools(&fixture), ["first-tool"]);
    assert!(fixture.api.providers.lock().unwrap().is_empty());
}

async fn run(
    tool: &Arc<dyn Tool>,
    command: &str,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolFailure> {
    let context = ToolCallContext {
        tool_call_id: "call-1".into(),
        args: arguments(command),
        cwd: "/project".into(),
        cancel: cancel.clone(),
        progress: Progress::ignored(),
        session: Arc::new(NoSession),
    };
    patiently(tool.run(context)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_built_in_is_called_by_the_call_of_the_tool_that_overrides_it() {
    let setup = Setup { built_in_tools: vec!["bash".into()], ..Setup::default() };
    let mut fixture = Fixture::with(&["first"], setup).await;
    call(&fixture, "register-tool bash overrides").await;
    call(&fixture, "register-tool plain").await;
    let tools = fixture.host.tools();
    let cancel = CancellationToken::new();
    let failure = run(&tools[1], "ls", &cancel).await.unwrap_err();
    assert_eq!((failure.message, failure.details), ("ran ls".into(), Some(json!({"n": 1}))));
    let other = fixture.ui.notified().await;
    assert!(other.contains("call \\\"other\\\" does not run"), "{other}");
    assert_eq!(fixture.api_calls.recv().await.unwrap(), "built-in call-1 bash");

    let failure = run(&tools[2], "ls", &cancel).await.unwrap_err();
    assert!(failure.message.contains("overrides no built-in tool"), "{failure}");
    assert!(fixture.ui.notified().await.starts_with("first other "));
    let outside = call(&fixture, "call-built-in call-1 {}").await;
    assert!(
        error(&outside).contains("does not run: call-built-in may be called only"),
        "{outside}"
    );

    let waiting = CancellationToken::new();
    let (failure, ()) = tokio::join!(run(&tools[1], "WAIT", &waiting), async {
        assert_eq!(fixture.api_calls.recv().await.unwrap(), "built-in call-1 bash");
        waiting.cancel();
    });
    assert!(failure.unwrap_err().message.contains("the call was cancelled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn providers_are_checked_and_need_a_grant_unless_they_stream() {
    let fixture = Fixture::new(&["first"]).await;
    for (line, expected) in [
        ("register-provider p streams []", "config is no JSON object"),
        ("register-provider p streams {", "config is no JSON"),
        ("register-provider BLANK streams {}", "name is blank"),
        ("register-provider p streams {\"bad\":1}", "bad is no key"),
        ("register-provider p {}", "config.baseUrl is no address"),
        ("register-provider p {\"baseUrl\":\"/etc/passwd\"}", "config.baseUrl is no address"),
        (
            "register-provider p {\"baseUrl\":\"https://x.example/v1\"}",
            "net:x.example is not granted; grant what it asks for with: wharf extension grant first",
        ),
    ] {
        let refused = call(&fixture, line).await;
        assert!(error(&refused).contains(expected), "{line}: {refused}");
    }
    assert!(fixture.api.providers.lock().unwrap().is_empty());
    assert_eq!(call(&fixture, "register-provider p streams {}").await, Value::Null);
    assert_eq!(call(&fixture, "register-provider p streams {\"n\":1}").await, Value::Null);
    assert_eq!(fixture.api.providers.lock().unwrap().len(), 1);
    assert_eq!(call(&fixture, "unregister-provider q").await, false);
    assert_eq!(call(&fixture, "unregister-provider p").await, true);
    for n in 0..64 {
        call(&fixture, &format!("register-provider p{n} streams {{}}")).await;
    }
    let refused = call(&fixture, "register-provider p streams {}").await;
    assert!(error(&refused).contains("it has 64 providers"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_with_the_call() {
    let fixture = Fixture::new(&["first"]).await;
    assert_eq!(call(&fixture, "sleep 1").await, true);
    assert_eq!(call(&fixture, "is-cancelled").await, false);
    let sleeping = tokio::spawn(fixture.start_command("first call sleep 18446744073709551615"));
    let waiting = tokio::spawn(fixture.start_command("first call wait-cancelled"));
    // Both are under way when one that came later has returned.
    assert_eq!(call(&fixture, "is-cancelled").await, false);
    sleeping.abort();
    assert_eq!(fixture.ui.notified().await, "first sleep false");
    waiting.abort();
    assert_eq!(fixture.ui.notified().await, "first wait-cancelled [true,false]");
}
