//! A trap at each point of an extension's life: it is told, what it was asked counts as
//! documented, and everything else goes on.

use serde_json::{Value, json};
use wharf_tests::guest;
use wharf_tests::script::{bash, call, says};

use super::{HOST_MIB, assert_ends, assert_memory, assert_served, with_limits};

/// Points that come so often in the tour that the extension is off in the end. Its guard
/// then blocks.
const NOISY: [&str; 11] = [
    "context",
    "before_provider_request",
    "before_agent_start",
    "input",
    "session_start",
    "agent_start",
    "agent_end",
    "turn_start",
    "turn_end",
    "message_start",
    "message_end",
];

fn pad(text: &str) -> String {
    format!("{text:.<40}")
}

fn text_of(line: &Value) -> &str {
    line["result"]["content"][0]["text"].as_str().unwrap()
}

/// Goes through everything that an extension is asked and told.
fn tour(point: &str) {
    let env = with_limits(&json!({}));
    let mut again = says(&pad("again"));
    again["repeat"] = json!(true);
    let mut summary = says("a summary");
    summary["for"] = json!("summary");
    let trap = call("trap", &json!({}));
    let model = env.script(&[bash("echo calm"), trap, says("done"), again, summary]);
    let mut args = vec!["--model", &model, "--trap", point];
    let paths = ["traps", "hello"].map(|name| guest(name).display().to_string());
    for path in &paths {
        args.extend(["-e", path]);
    }
    let mut wharf = env.rpc(&args);
    assert_served(&mut wharf, "Ann");
    let is_quiet = !NOISY.contains(&point);

    wharf.request(json!({"type": "complete_argument", "command": "trap", "argument": "x"}));
    wharf.prompt("/trap");
    assert_served(&mut wharf, "Bea");

    let run = wharf.run(&pad("first"));
    let ends: Vec<&Value> =
        run.iter().filter(|line| line["type"] == "tool_execution_end").collect();
    let [bash, tool] = ends[..] else { panic!("{point}: {ends:?}") };
    if point == "tool_call" {
        for end in [bash, tool] {
            assert_eq!(end["isError"], true, "{end}");
            let text = text_of(end);
            assert!(text.contains("traps failed") && !text.contains("denied"), "{text}");
        }
        let executed = run.iter().any(|line| line["type"] == "tool_execution_update");
        assert!(!executed, "the call ran");
    } else if is_quiet {
        assert_eq!(text_of(bash), "calm\n", "{point}");
        assert_eq!(tool["isError"], point == "tool", "{point}: {tool}");
    }
    let last = wharf.data(json!({"type": "get_last_assistant_text"}));
    assert_eq!(last["text"], "done", "{point}");

    let output = wharf.data(json!({"type": "bash", "command": "echo mine"}));
    assert_eq!(output["output"], "mine\n", "{point}");
    wharf.run(&pad("second"));
    wharf.run(&pad("third"));
    let messages = wharf.data(json!({"type": "get_fork_messages"}));
    let entry = |at: usize| messages["messages"][at]["entryId"].clone();
    let moved = wharf.data(json!({"type": "navigate_tree", "targetId": entry(2)}));
    assert_eq!(moved["cancelled"], false, "{point}");
    let compacted = wharf.request(json!({"type": "compact"}));
    assert_eq!(compacted["success"], true, "{point}: {compacted}");
    let forked = wharf.data(json!({"type": "fork", "entryId": entry(1)}));
    assert_eq!(forked["cancelled"], false, "{point}");
    assert_served(&mut wharf, "Cleo");
    let new = wharf.data(json!({"type": "new_session"}));
    assert_eq!(new["cancelled"], false, "{point}");

    // Its own model is there unless it never got to add it.
    let select = json!({"type": "set_model", "provider": "traps", "modelId": "half"});
    let selected = wharf.request(select)["success"] == true;
    if is_quiet {
        assert!(selected, "{point}");
    }
    if selected {
        wharf.request(json!({"type": "set_auto_retry", "enabled": false}));
        let run = wharf.run("fourth");
        let end = run
            .iter()
            .rfind(|line| line["type"] == "message_end" && line["message"]["role"] == "assistant");
        let message = &end.unwrap()["message"];
        if point == "stream_reply" {
            assert_eq!(message["stopReason"], "error", "{message}");
        } else if is_quiet {
            assert_eq!(message["content"][0]["text"], "Half of a reply", "{point}: {message}");
        }
    }
    assert_served(&mut wharf, "Dana");
    assert_memory(&wharf, HOST_MIB);
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{point}: {}", exit.stderr);
    let errors: Vec<&Value> =
        exit.all.iter().filter(|line| line["type"] == "extension_error").collect();
    assert!(errors.iter().any(|error| error["event"] == point), "{point}: {errors:?}");
    // One that is off says so whenever it is asked.
    assert!(!is_quiet || errors.len() <= 12, "{point}: {errors:?}");
    for error in errors {
        assert!(error["extensionPath"].as_str().unwrap().ends_with("/traps.wasm"), "{error}");
        assert!(!error["error"].as_str().unwrap().contains('\n'), "{error}");
    }
}

#[test]
fn in_calls() {
    for point in ["command", "tool", "complete_argument", "stream_reply", "bus:traps"] {
        tour(point);
    }
}

#[test]
fn in_guards_and_inputs() {
    for point in ["tool_call", "tool_result", "input", "before_agent_start", "user_bash"] {
        tour(point);
    }
}

#[test]
fn in_requests() {
    for point in ["context", "before_provider_request", "resources_discover", "session_directory"] {
        tour(point);
    }
}

#[test]
fn before_sessions_change() {
    for point in [
        "session_before_switch",
        "session_before_fork",
        "session_before_tree",
        "session_before_compact",
    ] {
        tour(point);
    }
}

#[test]
fn in_notifications_of_sessions() {
    for point in [
        "session_start",
        "session_switch",
        "session_fork",
        "session_tree",
        "session_compact",
        "session_shutdown",
        "model_select",
    ] {
        tour(point);
    }
}

/// Not in `message_update`: whether one comes before its message ends is a matter of time.
#[test]
fn in_notifications_of_runs() {
    for point in [
        "agent_start",
        "agent_end",
        "turn_start",
        "turn_end",
        "message_start",
        "message_end",
        "tool_execution_start",
        "tool_execution_end",
    ] {
        tour(point);
    }
}

/// Before anything of it is known: it is no extension then.
#[test]
fn in_the_start_code() {
    let env = with_limits(&json!({}));
    let mut wharf = env.rpc_with(&["traps-start", "hello"], "scripted/demo");
    let error = wharf.wait_extension_error("traps_start.wasm");
    assert!(["load", "register"].contains(&error["event"].as_str().unwrap()), "{error}");
    assert_served(&mut wharf, "Eve");
    let lines = assert_ends(wharf);
    assert!(lines.iter().all(|line| line["type"] != "extension_error"), "told twice: {lines:?}");
}
