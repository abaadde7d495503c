//! Which tools the model is offered, and the built-in behind one that overrides it.

use std::os::unix::fs::symlink;
use std::sync::Mutex;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use wharf_protocol::ContentBlock;

use super::fake::{FakeHooks, at_once, object, tool};
use super::*;
use crate::hooks::{BeforeAgentStartVerdict, ToolCallEvent, ToolCallVerdict};
use crate::host_api::{BuiltInCall, HostApi, HostApiError};
use crate::tool::{Progress, ToolCallContext, ToolOutput};

fn names(bench: &Bench) -> Vec<String> {
    HostApi::active_tools(&bench.agent)
}

#[tokio::test]
async fn only_active_tools_are_offered() {
    let hooks = FakeHooks::default();
    *hooks.tools.lock().unwrap() = vec![tool("own", |_| async { Ok("ran".to_owned()) })];
    let script = [calls(&[("own", json!({})), ("read", json!({"path": "x"}))]), says("end")];
    let bench = Bench::new(&script, hooks);
    let api: &dyn HostApi = &bench.agent;
    let all = api.active_tools();
    assert!(all.contains(&"own".to_owned()) && all.contains(&"bash".to_owned()));
    let unknown = api.set_active_tools(vec!["own".to_owned(), "nope".to_owned()]);
    assert!(matches!(unknown, Err(HostApiError::Invalid(text)) if text.contains("\"nope\"")));
    assert_eq!(api.active_tools(), all, "nothing has changed");
    api.set_active_tools(vec!["own".to_owned(), "ls".to_owned()]).unwrap();
    assert_eq!(api.active_tools(), ["ls", "own"]);
    assert_eq!(api.tools().len(), 2);
    assert_eq!(api.all_tools().len(), all.len());
    bench.prompt("go").await;
    assert_eq!(bench.results(), ["ran", "Tool read not found. Available tools: ls, own"]);
    let prompt = api.system_prompt();
    assert!(prompt.contains("- own: Does own.") && !prompt.contains("- bash:"), "{prompt}");
}

/// A tool's call changes the tools; the next request has others, and the calls of one reply
/// are resolved against the tools that its own request offered.
#[tokio::test]
async fn tools_may_change_during_a_run() {
    let mut hooks = FakeHooks::default();
    let api = hooks.api();
    hooks.before_agent_start =
        at_once(|event: crate::hooks::BeforeAgentStartEvent| BeforeAgentStartVerdict {
            messages: Vec::new(),
            system_prompt: format!("BEFORE {} AFTER", event.system_prompt),
        });
    let tools = Arc::clone(&hooks.tools);
    let change = tool("change", move |_| {
        tools.lock().unwrap().push(tool("added", |_| async { Ok("added ran".to_owned()) }));
        let changed = api.get().set_active_tools(["change", "added"].map(str::to_owned).to_vec());
        async move { changed.map(|()| "ok".to_owned()).map_err(|error| error.to_string()) }
    });
    let own = tool("own", |_| async { Ok("own ran".to_owned()) });
    *hooks.tools.lock().unwrap() = vec![change, own];
    let script = [
        calls(&[("change", json!({})), ("own", json!({})), ("added", json!({}))]),
        calls(&[("own", json!({})), ("added", json!({}))]),
        says("end"),
    ];
    let bench = Bench::new(&script, hooks);
    bench.prompt("go").await;
    let results = bench.results();
    assert_eq!(results[..2], ["ok", "own ran"]);
    assert!(results[2].starts_with("Tool added not found."), "{}", results[2]);
    assert_eq!(results[3], "Tool own not found. Available tools: change, added");
    assert_eq!(results[4], "added ran");
    let prompt = HostApi::system_prompt(&bench.agent);
    assert!(prompt.starts_with("BEFORE You are") && prompt.ends_with(" AFTER"), "{prompt}");
    assert!(prompt.contains("- added: Does added.") && !prompt.contains("- own:"), "{prompt}");
}

#[tokio::test]
async fn an_offer_that_is_the_same_is_not_made_anew() {
    let hooks = FakeHooks::default();
    let own = tool("own", |_| async { Ok(String::new()) });
    hooks.tools.lock().unwrap().push(Arc::clone(&own));
    let bench = Bench::new(&[], hooks);
    let offer = bench.agent.offer();
    assert!(bench.agent.renewed(&offer).is_none());
    bench.hooks.tools.lock().unwrap()[0] = tool("own", |_| async { Ok(String::new()) });
    assert!(bench.agent.renewed(&offer).is_some());
    bench.hooks.tools.lock().unwrap()[0] = own;
    assert!(bench.agent.renewed(&offer).is_none());
    within(bench.agent.reload(CancellationToken::new())).await.unwrap();
    assert!(bench.agent.renewed(&offer).is_some());
}

fn call_of(context: &ToolCallContext, input: Value) -> BuiltInCall {
    BuiltInCall {
        tool_call_id: context.tool_call_id.clone(),
        name: "bash".to_owned(),
        input: object(input),
        cancel: CancellationToken::new(),
    }
}

/// A tool that overrides `bash` and runs it with `input`; none: its own arguments.
fn overriding(hooks: &FakeHooks, input: Option<Value>) -> Arc<dyn Tool> {
    let api = hooks.api();
    tool("bash", move |context| {
        let (api, input) = (api.get(), input.clone());
        async move {
            let input = input.unwrap_or_else(|| Value::Object(context.args.clone()));
            match api.call_built_in(call_of(&context, input)).await {
                Ok((output, is_error)) => {
                    let text: Vec<_> =
                        output.content.iter().filter_map(ContentBlock::as_text).collect();
                    Ok(format!("{is_error}: {}", text.concat().trim_end()))
                }
                Err(HostApiError::NotAllowed(text)) => Ok(format!("not allowed: {text}")),
                Err(HostApiError::Invalid(text)) => Ok(format!("invalid: {text}")),
                Err(HostApiError::Failed(text)) => Ok(format!("failed: {text}")),
            }
        }
    })
}

/// What the override reads, and which commands `tool_call` handlers were asked about.
async fn check_built_in(
    input: Option<Value>,
    verdict: Option<fn(&ToolCallEvent) -> ToolCallVerdict>,
    result: &str,
    asked: &[&str],
) {
    let mut hooks = FakeHooks::default();
    let tool = overriding(&hooks, input);
    hooks.tools.lock().unwrap().push(tool);
    let seen = Arc::new(Mutex::new(Vec::new()));
    if let Some(verdict) = verdict {
        let seen = Arc::clone(&seen);
        hooks.tool_call = at_once(move |event: ToolCallEvent| {
            assert_eq!((&*event.tool_call_id, &*event.tool_name), ("id-bash", "bash"));
            seen.lock().unwrap().push(event.input["command"].as_str().unwrap().to_owned());
            verdict(&event)
        });
    }
    let script = [calls(&[("bash", json!({"command": "echo one"}))]), says("end")];
    let bench = Bench::new(&script, hooks);
    bench.prompt("go").await;
    assert!(bench.results()[0].contains(result), "{:?}", bench.results());
    assert_eq!(*seen.lock().unwrap(), asked);
    assert!(bench.agent.state().running_calls.is_empty());
}

#[tokio::test]
async fn an_override_runs_the_built_in() {
    let allow = |event: &ToolCallEvent| ToolCallVerdict::Run(event.input.clone());
    let guard = |event: &ToolCallEvent| match event.input["command"].as_str().unwrap() {
        "echo one" => ToolCallVerdict::Run(event.input.clone()),
        "answer" => ToolCallVerdict::Answer {
            output: ToolOutput { content: vec![ContentBlock::text("made up")], details: None },
            is_error: true,
        },
        "change" => ToolCallVerdict::Run(object(json!({"command": "echo changed"}))),
        _ => ToolCallVerdict::Block("no".to_owned()),
    };
    let command = |text: &str| Some(json!({ "command": text }));
    check_built_in(None, None, "false: one", &[]).await;
    // What was approved is not asked about again.
    check_built_in(None, Some(allow), "false: one", &["echo one"]).await;
    check_built_in(command("echo two"), None, "false: two", &[]).await;
    check_built_in(command("echo two"), Some(allow), "false: two", &["echo one", "echo two"]).await;
    check_built_in(command("rm x"), Some(guard), "not allowed: no", &["echo one", "rm x"]).await;
    check_built_in(command("answer"), Some(guard), "true: made up", &["echo one", "answer"]).await;
    let asked = ["echo one", "change"];
    check_built_in(command("change"), Some(guard), "false: changed", &asked).await;
    check_built_in(command("exit 3"), None, "true: ", &[]).await;
    let invalid = "invalid: Invalid arguments for tool bash";
    check_built_in(Some(json!({"cmd": "x"})), Some(allow), invalid, &["echo one"]).await;
}

#[tokio::test]
async fn only_a_running_call_of_an_override_runs_a_built_in() {
    let hooks = FakeHooks::default();
    let api = hooks.api();
    let own = tool("own", move |context| {
        let api = api.get();
        async move {
            let mut call = call_of(&context, json!({"command": "echo x"}));
            let other = api.call_built_in(call.clone()).await.unwrap_err();
            call.name = "own".to_owned();
            Ok(format!("{other}; {}", api.call_built_in(call).await.unwrap_err()))
        }
    });
    hooks.tools.lock().unwrap().push(own);
    let bench = Bench::new(&[calls(&[("own", json!({}))]), says("end")], hooks);
    bench.prompt("go").await;
    assert_eq!(
        bench.results(),
        [
            "no call \"id-own\" of the tool \"bash\" runs now; the tool \"own\" overrides no built-in"
        ]
    );
    let late = BuiltInCall {
        tool_call_id: "id-own".to_owned(),
        name: "own".to_owned(),
        input: object(json!({})),
        cancel: CancellationToken::new(),
    };
    let error = within(bench.agent.call_built_in(late)).await.unwrap_err();
    assert!(matches!(error, HostApiError::NotAllowed(text) if text.contains("runs now")));
}

/// The run's abort, and the end of the guest's own call.
#[tokio::test]
async fn a_built_in_is_cancelled_with_its_call() {
    for abort_run in [true, false] {
        let hooks = FakeHooks::default();
        let (api, cancel) = (hooks.api(), CancellationToken::new());
        let (told, begun) = (cancel.clone(), Arc::new(Notify::new()));
        let note = Arc::clone(&begun);
        let own = tool("bash", move |mut context| {
            let (api, cancel, note) = (api.get(), told.clone(), Arc::clone(&note));
            context.progress = Progress::ignored();
            async move {
                let input = Value::Object(context.args.clone());
                let call = BuiltInCall { cancel, ..call_of(&context, input) };
                let running = api.call_built_in(call);
                note.notify_one();
                let (output, is_error) = running.await.map_err(|error| error.to_string())?;
                Ok(format!("{is_error}: {output:?}"))
            }
        });
        hooks.tools.lock().unwrap().push(own);
        let script = [calls(&[("bash", json!({"command": "sleep 600"}))]), says("end")];
        let bench = Bench::new(&script, hooks);
        bench.submit("go");
        within(begun.notified()).await;
        if abort_run {
            bench.agent.abort();
        } else {
            cancel.cancel();
        }
        within(bench.agent.wait_idle()).await;
        assert!(bench.results()[0].to_lowercase().contains("abort"), "{:?}", bench.results());
    }
}

/// A guard is told the paths that the built-in behind an override would touch, and a link
/// that is swapped after that is noticed.
#[tokio::test]
async fn the_paths_of_an_override_are_the_built_ins() {
    let mut hooks = FakeHooks::default();
    let api = hooks.api();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    hooks.tool_call = at_once(move |event: ToolCallEvent| {
        note.lock().unwrap().extend(event.paths);
        ToolCallVerdict::Run(event.input)
    });
    let own = tool("read", move |context| {
        let api = api.get();
        async move {
            let link = context.cwd.join("link");
            fs::remove_file(&link).unwrap();
            symlink("/etc/passwd", &link).unwrap();
            let call = BuiltInCall {
                name: "read".to_owned(),
                ..call_of(&context, Value::Object(context.args.clone()))
            };
            Ok(api.call_built_in(call).await.unwrap_err().to_string())
        }
    });
    hooks.tools.lock().unwrap().push(own);
    let script = [calls(&[("read", json!({"path": "link"}))]), says("end")];
    let bench = Bench::new(&script, hooks);
    let target = bench.file("work/target", "x");
    symlink(&target, bench.dir.path().join("work/link")).unwrap();
    bench.prompt("go").await;
    assert_eq!(*seen.lock().unwrap(), [fs::canonicalize(target).unwrap()]);
    assert!(bench.results()[0].contains("changed its target"), "{:?}", bench.results());
}

#[tokio::test]
async fn a_tool_without_override_names_no_paths() {
    let hooks = FakeHooks::default();
    hooks.tools.lock().unwrap().push(tool("own", |_| async { Ok(String::new()) }));
    let bench = Bench::new(&[], hooks);
    assert_eq!(names(&bench).last().unwrap(), "own");
    let tools = bench.agent.all_tools();
    let own = tools.last().unwrap();
    assert!(own.built_in.is_none());
    assert!(own.paths(&object(json!({"path": "x"})), bench.dir.path()).is_empty());
}
