//! Tool calls of a run as a client sees them: the order of events, what is on the
//! pipe before a tool runs, and calls that do not run.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use wharf_tests::script::{bash, call, says};
use wharf_tests::{Env, guest};

use crate::order::{assert_documented_order, count, outline, text_of};

fn shell(id: &str, command: &str) -> Value {
    json!({"type": "toolCall", "id": id, "name": "bash", "arguments": {"command": command}})
}

fn reply(calls: &[Value]) -> Value {
    json!({"content": calls})
}

#[test]
fn parallel_calls_run_at_once_and_end_in_source_order() {
    let env = Env::new();
    // The first call cannot end before the last one has begun.
    let calls = [
        shell("one", "while [ ! -e mark ]; do sleep 0.01; done; echo 1"),
        shell("two", "echo 2"),
        shell("three", "touch mark; echo 3"),
    ];
    let model = env.script(&[reply(&calls), says("done")]);
    let mut wharf = env.rpc_with(&[], &model);
    let run = wharf.run("go");
    assert_eq!(
        outline(&run),
        [
            "agent_start",
            "turn_start",
            "user: go",
            "assistant: ",
            "tool_execution_start one",
            "tool_execution_start two",
            "tool_execution_start three",
            "tool_execution_end one",
            "toolResult: 1\n",
            "tool_execution_end two",
            "toolResult: 2\n",
            "tool_execution_end three",
            "toolResult: 3\n",
            "turn_end",
            "turn_start",
            "assistant: done",
            "turn_end",
            "agent_end",
        ]
    );
    assert_eq!(assert_documented_order(&run), 1);
    let end = run.iter().find(|line| line["type"] == "turn_end").unwrap();
    let ids: Vec<&Value> =
        end["toolResults"].as_array().unwrap().iter().map(|result| &result["toolCallId"]).collect();
    assert_eq!(ids, ["one", "two", "three"]);
    assert_eq!(end["message"]["content"], json!(calls));
}

#[test]
fn the_events_of_a_call() {
    let env = Env::new();
    let model = env.script(&[reply(&[shell("c", "echo out")]), says("done")]);
    let mut wharf = env.rpc_with(&[], &model);
    let run = wharf.run("go");
    let find = |kind: &str| run.iter().find(|line| line["type"] == kind).unwrap();
    let start = json!({
        "type": "tool_execution_start", "toolCallId": "c", "toolName": "bash",
        "args": {"command": "echo out"},
    });
    assert_eq!(*find("tool_execution_start"), start);
    let end = json!({
        "type": "tool_execution_end", "toolCallId": "c", "toolName": "bash",
        "result": {
            "content": [{"type": "text", "text": "out\n"}],
            "details": {"truncation": null, "fullOutputPath": null},
        },
        "isError": false,
    });
    assert_eq!(*find("tool_execution_end"), end);
    let agent_start = json!({"type": "agent_start", "model": {"provider": "scripted",
        "id": model.strip_prefix("scripted/").unwrap()}, "thinkingLevel": "off"});
    assert_eq!(*find("agent_start"), agent_start);
    assert_eq!(*find("turn_start"), json!({"type": "turn_start"}));
}

#[test]
fn progress_carries_the_output_so_far() {
    let env = Env::new();
    let command = "echo first; while [ ! -e go ]; do sleep 0.01; done; echo second";
    let model = env.script(&[reply(&[shell("c", command)]), says("done")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("go");
    // It comes while the tool still runs: only now may the tool go on.
    let update = wharf.wait_event("tool_execution_update");
    env.write("go", "");
    let expected = json!({
        "type": "tool_execution_update", "toolCallId": "c", "toolName": "bash",
        "args": {"command": command},
        "partialResult": {
            "content": [{"type": "text", "text": "first\n"}],
            "details": {"truncation": null, "fullOutputPath": null},
        },
    });
    assert_eq!(update, expected);
    let run = wharf.take_until("agent_end");
    let updates = run.iter().filter(|line| line["type"] == "tool_execution_update");
    for update in updates {
        let text = update["partialResult"]["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("first\n"), "not the whole output so far: {update}");
    }
}

#[test]
fn the_start_is_on_the_pipe_while_the_tool_waits_for_its_reader() {
    let env = Env::new();
    let model =
        env.script(&[bash("while [ ! -e seen ]; do sleep 0.01; done; echo seen"), says("ok")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("go");
    wharf.wait_event("tool_execution_start");
    env.write("seen", "");
    let run = wharf.take_until("agent_end");
    let end = run.iter().find(|line| line["type"] == "tool_execution_end").unwrap();
    assert_eq!(end["result"]["content"][0]["text"], "seen\n");
}

/// The reader takes nothing until it looks whether the tool has run: with a full
/// pipe its start cannot be on it.
#[test]
fn no_tool_runs_before_its_start_is_on_the_pipe() {
    let env = Env::new();
    let text = "x".repeat(500_000);
    let model = env.script(&[
        json!({"chunkChars": 100_000, "content": [
            {"type": "text", "text": text},
            {"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": "touch ran"}},
        ]}),
        says("ok"),
    ]);
    let mut child = env
        .command()
        .args(["--mode", "rpc", "--model", &model])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"type\":\"prompt\",\"message\":\"go\"}\n").unwrap();
    // Time for a tool that does not wait to give itself away; one that waits passes
    // however long this takes.
    std::thread::sleep(Duration::from_millis(700));
    let ran = env.project().join("ran");
    assert!(!fs::exists(&ran).unwrap(), "the tool ran before its start could be read");
    let mut has_started = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        has_started |= line["type"] == "tool_execution_start";
        if line["type"] == "agent_end" {
            break;
        }
    }
    assert!(has_started && fs::exists(&ran).unwrap());
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// One call that must not run: its error, told alike by the event, the message, the
/// turn's end and the session file.
#[track_caller]
fn refused(guests: &[&str], call: &Value) -> String {
    let env = Env::new();
    let model = env.script(&[reply(std::slice::from_ref(call)), says("understood")]);
    let mut wharf = env.rpc_with(guests, &model);
    let run = wharf.run("go");
    assert_eq!(assert_documented_order(&run), 1);
    assert!(!fs::exists(env.project().join("ran")).unwrap(), "it ran");
    let find = |kind: &str| run.iter().find(|line| line["type"] == kind).unwrap();
    assert_eq!(find("tool_execution_start")["toolName"], call["name"]);
    let end = find("tool_execution_end");
    assert_eq!(end["isError"], true, "{end}");
    let text = text_of(&end["result"]);
    let message = run
        .iter()
        .find(|line| line["type"] == "message_end" && line["message"]["role"] == "toolResult")
        .map(|line| &line["message"])
        .unwrap();
    assert_eq!(message["isError"], true, "{message}");
    assert_eq!(message["content"], end["result"]["content"]);
    assert_eq!(find("turn_end")["toolResults"], json!([message]));
    let last = run.iter().rfind(|line| line["type"] == "turn_end").unwrap();
    assert_eq!(text_of(&last["message"]), "understood", "the run did not go on");
    let file = wharf.data(json!({"type": "get_state"}))["sessionFile"].clone();
    assert_eq!(wharf.finish().code, Some(0));
    let stored = fs::read_to_string(file.as_str().unwrap()).unwrap();
    let stored = stored
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|entry| entry["message"]["role"] == "toolResult")
        .unwrap();
    assert_eq!(stored["message"], *message);
    text
}

#[test]
fn a_blocked_call() {
    let text = refused(&["waiter"], &shell("c", "touch ran; echo BLOCK"));
    assert_eq!(text, "waiter says no");
}

#[test]
fn a_call_whose_guard_fails() {
    let text = refused(&["probe"], &shell("c", "touch ran; echo FAIL"));
    assert!(text.contains("failed") && text.contains("probe fails on purpose"), "{text}");
    assert!(!text.contains("denied"), "{text}");
}

#[test]
fn a_call_with_wrong_arguments() {
    for (arguments, named) in [
        (json!({}), "command"),
        (json!({"command": 5}), "command"),
        (json!({"command": null}), "command"),
        (json!({"command": ["touch ran"]}), "command"),
        (json!({"command": "touch ran", "timeout": "soon"}), "timeout"),
        (json!({"command": "touch ran", "timeout": -1}), "timeout"),
        (json!({"command": "touch ran", "shell": "zsh"}), "shell"),
    ] {
        let call = json!({"type": "toolCall", "id": "c", "name": "bash", "arguments": arguments});
        let text = refused(&[], &call);
        assert!(text.contains("bash") && text.contains(named), "{arguments}: {text}");
    }
}

#[test]
fn a_call_of_an_unknown_tool() {
    let call = json!({"type": "toolCall", "id": "c", "name": "shell", "arguments": {"command": "touch ran"}});
    let text = refused(&[], &call);
    assert!(text.contains("shell") && text.contains("bash"), "no other tool is named: {text}");
}

#[test]
fn a_call_with_broken_json() {
    for arguments in [
        "{\"command\":\"touch ran\"",
        "{\"command\":\"touch ran",
        "{\"command\":\"touch ran\"} and more",
        "[\"touch ran\"]",
        "\"touch ran\"",
        "null",
        "",
    ] {
        let call =
            json!({"type": "toolCall", "id": "c", "name": "bash", "argumentsText": arguments});
        let text = refused(&[], &call);
        assert!(text.contains("bash"), "{arguments}: {text}");
    }
}

#[test]
fn a_refused_call_among_others_stops_only_itself() {
    let env = Env::new();
    let calls = [
        shell("a", "echo a"),
        shell("b", "touch ran; echo BLOCK"),
        json!({"type": "toolCall", "id": "c", "name": "nothing", "arguments": {}}),
        json!({"type": "toolCall", "id": "d", "name": "bash", "argumentsText": "{"}),
        shell("e", "echo e"),
    ];
    let model = env.script(&[reply(&calls), says("done")]);
    let mut wharf = env.rpc_with(&["waiter"], &model);
    let run = wharf.run("go");
    assert_eq!(assert_documented_order(&run), 1);
    let ends: Vec<(&str, bool)> = run
        .iter()
        .filter(|line| line["type"] == "tool_execution_end")
        .map(|line| (line["toolCallId"].as_str().unwrap(), line["isError"].as_bool().unwrap()))
        .collect();
    assert_eq!(ends, [("a", false), ("b", true), ("c", true), ("d", true), ("e", false)]);
    assert!(!fs::exists(env.project().join("ran")).unwrap());
}

#[test]
fn a_patched_result_is_the_same_for_event_message_and_model() {
    let env = Env::new();
    let model = env.script(&[bash("echo PATCHME"), says("done")]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    let run = wharf.run("go");
    let end = run.iter().find(|line| line["type"] == "tool_execution_end").unwrap();
    let content = json!([
        {"type": "text", "text": "PATCHME\n"}, {"type": "text", "text": "[seen by probe]"},
    ]);
    assert_eq!(end["result"]["content"], content);
    let messages = wharf.data(json!({"type": "get_messages"}));
    assert_eq!(messages["messages"][2]["content"], content);
}

#[test]
fn a_replaced_and_an_answered_call() {
    let env = Env::new();
    let model = env.script(&[
        bash("touch ran # REPLACE:echo instead"),
        bash("touch ran # ANSWER:from the guard"),
        says("done"),
    ]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    let run = wharf.run("go");
    let ends: Vec<(String, &Value)> = run
        .iter()
        .filter(|line| line["type"] == "tool_execution_end")
        .map(|line| (text_of(&line["result"]), &line["isError"]))
        .collect();
    let no = json!(false);
    assert_eq!(ends, [("instead\n".to_owned(), &no), ("from the guard".to_owned(), &no)]);
    assert!(!fs::exists(env.project().join("ran")).unwrap());
}

#[test]
fn a_tool_of_an_extension() {
    let env = Env::new();
    let model = env.script(&[
        call("greet", &json!({"name": "Ada"})),
        call("greet", &json!({"nom": "Ada"})),
        says("done"),
    ]);
    let mut wharf = env.rpc_with(&["hello"], &model);
    let run = wharf.run("go");
    let ends: Vec<&Value> =
        run.iter().filter(|line| line["type"] == "tool_execution_end").collect();
    assert_eq!(text_of(&ends[0]["result"]), "Hello, Ada!");
    assert_eq!(ends[0]["isError"], false);
    assert_eq!(ends[1]["isError"], true, "{}", ends[1]);
    assert!(text_of(&ends[1]["result"]).contains("name"), "{}", ends[1]);
}

#[test]
fn a_prompt_waits_for_guards_that_still_load() {
    // The first run of a component compiles it; the gate must not be missed.
    let env = Env::new();
    let model = env.script(&[bash("touch ran; sudo true"), says("done")]);
    let gate = guest("permission-gate");
    let mut wharf = env.rpc(&["--model", &model, "-e", gate.to_str().unwrap()]);
    wharf.prompt("go");
    let dialog = wharf.wait_ui("select");
    wharf.answer(&dialog, json!({"value": "No"}));
    let run = wharf.take_until("agent_end");
    assert_eq!(count(&run, "tool_execution_end"), 1);
    assert!(!fs::exists(env.project().join("ran")).unwrap(), "it ran before it was asked about");
}
