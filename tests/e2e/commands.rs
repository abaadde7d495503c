//! What each command answers, field by field. What prompts and queues do is in
//! `queueing`, what is answered to wrong fields in `protocol`.

use std::fs;

use serde_json::{Value, json};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, Wharf, guest};

use crate::order::count;

fn image() -> Value {
    json!({"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"})
}

/// The names of an object's fields.
fn fields(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[track_caller]
fn assert_plain_success(response: &Value, command: &str) {
    let id = &response["id"];
    let expected = json!({"id": id, "type": "response", "command": command, "success": true});
    assert_eq!(*response, expected);
}

#[test]
fn state_without_a_model() {
    let env = Env::new();
    let mut wharf = env.rpc(&[]);
    let state = wharf.data(json!({"type": "get_state"}));
    let file = state["sessionFile"].as_str().unwrap();
    let id = state["sessionId"].as_str().unwrap();
    let project = env.project().display().to_string().replace('/', "-");
    let dir =
        format!("{}/sessions/--{}--/", env.agent_dir().display(), project.trim_start_matches('-'));
    assert!(file.starts_with(&dir), "{file} is not in {dir}");
    assert!(file.ends_with(&format!("_{id}.jsonl")), "{file}");
    assert!(!fs::exists(file).unwrap(), "a session file before the first message");
    let expected = json!({
        "model": null,
        "scopedModels": [],
        "usingSubscription": false,
        "tasks": [],
        "thinkingLevel": "off",
        "isStreaming": false,
        "isRetrying": false,
        "retryAttempt": 0,
        "isCompacting": false,
        "steeringMode": "one-at-a-time",
        "followUpMode": "one-at-a-time",
        "sessionFile": file,
        "sessionId": id,
        "autoCompactionEnabled": true,
        "messageCount": 0,
        "pendingMessageCount": 0,
    });
    assert_eq!(state, expected);
}

#[test]
fn state_with_a_model_and_a_conversation() {
    let env = Env::new();
    env.write_agent("settings.json", r#"{"steeringMode":"all","followUpMode":"all"}"#);
    let usage = json!({"input": 100, "output": 50, "totalTokens": 150});
    let mut reply = says("hello");
    reply["usage"] = usage;
    let model = env.script(&[reply]);
    let mut wharf = env.rpc(&["--model", &model, "--thinking", "high"]);
    wharf.data(json!({"type": "set_session_name", "name": "feature work"}));
    wharf.run("hi");
    let state = wharf.data(json!({"type": "get_state"}));
    let model = &state["model"];
    assert_eq!(
        fields(model),
        [
            "id",
            "name",
            "api",
            "provider",
            "baseUrl",
            "reasoning",
            "input",
            "contextWindow",
            "maxTokens",
            "cost"
        ]
    );
    assert_eq!(model["provider"], "scripted");
    assert_eq!(model["api"], "scripted");
    assert!(model["input"].as_array().unwrap().contains(&json!("text")), "{model}");
    assert_eq!(
        model["cost"],
        json!({"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0})
    );
    assert_eq!(state["thinkingLevel"], "high");
    assert_eq!(state["steeringMode"], "all");
    assert_eq!(state["followUpMode"], "all");
    assert_eq!(state["sessionName"], "feature work");
    assert_eq!(state["messageCount"], 2);
    assert_eq!(state["isStreaming"], false);
    let window = model["contextWindow"].as_f64().unwrap();
    assert_eq!(state["contextUsage"]["tokens"], 150);
    assert_eq!(state["contextUsage"]["contextWindow"].as_f64(), Some(window));
    let percent = state["contextUsage"]["percent"].as_f64().unwrap();
    assert!((percent - 150.0 * 100.0 / window).abs() < 1e-9, "{percent}");
    assert!(fs::exists(state["sessionFile"].as_str().unwrap()).unwrap());
}

#[test]
fn state_without_a_session_file() {
    let env = Env::new();
    let model = env.script(&[says("hello")]);
    let mut wharf = env.rpc(&["--no-session", "--model", &model]);
    wharf.run("hi");
    let state = wharf.data(json!({"type": "get_state"}));
    assert!(state.get("sessionFile").is_none(), "{state}");
    assert_eq!(state["messageCount"], 2);
    assert_eq!(wharf.finish().code, Some(0));
    assert!(!fs::exists(env.agent_dir().join("sessions")).unwrap());
}

#[test]
fn state_while_a_run_is_under_way() {
    let env = Env::new();
    let model = env.script(&[bash("while [ ! -e go ]; do sleep 0.01; done"), says("done")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(state["isStreaming"], true);
    wharf.wait_event("tool_execution_start");
    let steer = json!({"type": "steer", "message": "a"});
    assert_plain_success(&wharf.request(steer), "steer");
    let follow_up = json!({"type": "follow_up", "message": "b"});
    assert_plain_success(&wharf.request(follow_up), "follow_up");
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(state["isStreaming"], true);
    assert_eq!(state["pendingMessageCount"], 2);
    wharf.data(json!({"type": "clear_pending_messages"}));
    env.write("go", "");
    wharf.wait_event("agent_end");
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(state["isStreaming"], false, "after agent_end");
    assert_eq!(state["pendingMessageCount"], 0);
    assert_eq!(state["messageCount"], 4);
}

#[test]
fn commands_of_extensions_prompts_and_skills() {
    let env = Env::new();
    env.write_agent("extensions/hello.wasm", fs::read(guest("hello")).unwrap());
    env.write_agent("prompts/fix.md", "---\ndescription: Fix it\nargument-hint: WHAT\n---\nFix $1");
    env.write_agent("prompts/plain.md", "\nThe first line says it.\nMore.");
    env.write(".wharf/prompts/project.md", "Of the project");
    env.write_agent(
        "skills/search/SKILL.md",
        "---\nname: search\ndescription: Searches\n---\nBody",
    );
    env.write_agent(
        "skills/secret/SKILL.md",
        "---\nname: secret\ndescription: Not for people\nuser-invocable: false\n---\nBody",
    );
    env.write(".wharf/skills/build/SKILL.md", "---\nname: build\ndescription: Builds\n---\nBody");
    let named =
        env.write("elsewhere/named/SKILL.md", "---\nname: named\ndescription: By path\n---\nBody");
    let skill = named.display().to_string();
    let heartbeat = guest("heartbeat");
    let mut wharf =
        env.rpc(&["--trust-project", "--skill", &skill, "-e", heartbeat.to_str().unwrap()]);
    let data = wharf.data(json!({"type": "get_commands"}));
    let commands = data["commands"].as_array().unwrap();
    let agent = env.agent_dir().display().to_string();
    let project = env.project().display().to_string();
    let expected = [
        json!({"name": "hello", "description": "Says hello", "argumentHint": "[name]",
            "source": "extension", "path": format!("{agent}/extensions/hello.wasm")}),
        json!({"name": "beat", "description": "Shows a beat", "source": "extension",
            "path": heartbeat.canonicalize().unwrap()}),
        json!({"name": "fix", "description": "Fix it", "argumentHint": "WHAT", "source": "prompt",
            "location": "user", "path": format!("{agent}/prompts/fix.md")}),
        json!({"name": "plain", "description": "The first line says it.", "source": "prompt",
            "location": "user", "path": format!("{agent}/prompts/plain.md")}),
        json!({"name": "project", "description": "Of the project", "source": "prompt",
            "location": "project", "path": format!("{project}/.wharf/prompts/project.md")}),
        json!({"name": "skill:search", "description": "Searches", "source": "skill",
            "location": "user", "path": format!("{agent}/skills/search/SKILL.md")}),
        json!({"name": "skill:build", "description": "Builds", "source": "skill",
            "location": "project", "path": format!("{project}/.wharf/skills/build/SKILL.md")}),
        json!({"name": "skill:named", "description": "By path", "source": "skill",
            "location": "path", "path": skill}),
    ];
    for command in &expected {
        assert!(commands.contains(command), "{command} is not in {data:#}");
    }
    assert_eq!(commands.len(), expected.len(), "{data:#}");
}

#[test]
fn messages_are_those_of_the_run_and_of_the_file() {
    let env = Env::new();
    let model = env.script(&[bash("echo out"), says("done")]);
    let mut wharf = env.rpc_with(&[], &model);
    assert_eq!(wharf.data(json!({"type": "get_messages"})), json!({"messages": []}));
    let run = wharf.run("hi");
    let messages = wharf.data(json!({"type": "get_messages"}))["messages"].clone();
    assert_eq!(run.last().unwrap()["messages"], messages);
    let [user, call, result, answer] = &messages.as_array().unwrap()[..] else {
        panic!("{messages}")
    };
    assert_eq!(fields(user), ["role", "content", "timestamp"]);
    assert_eq!(user["role"], "user");
    assert_eq!(user["content"], json!([{"type": "text", "text": "hi"}]));
    let assistant =
        ["role", "content", "api", "provider", "model", "usage", "stopReason", "timestamp"];
    assert_eq!(fields(call), assistant);
    assert_eq!(call["stopReason"], "toolUse");
    assert_eq!(
        call["content"],
        json!([{
            "type": "toolCall", "id": call["content"][0]["id"], "name": "bash",
            "arguments": {"command": "echo out"},
        }])
    );
    let usage = ["input", "output", "cacheRead", "cacheWrite", "totalTokens", "cost"];
    assert_eq!(fields(&call["usage"]), usage);
    assert_eq!(
        fields(&call["usage"]["cost"]),
        ["input", "output", "cacheRead", "cacheWrite", "total"]
    );
    assert_eq!(
        fields(result),
        ["role", "toolCallId", "toolName", "content", "details", "isError", "timestamp"]
    );
    assert_eq!(result["toolCallId"], call["content"][0]["id"]);
    assert_eq!(result["toolName"], "bash");
    assert_eq!(result["content"], json!([{"type": "text", "text": "out\n"}]));
    assert_eq!(result["details"], json!({"truncation": null, "fullOutputPath": null}));
    assert_eq!(result["isError"], false);
    assert_eq!(fields(answer), assistant);
    assert_eq!(answer["stopReason"], "stop");
    assert_eq!(answer["content"], json!([{"type": "text", "text": "done"}]));

    let state = wharf.data(json!({"type": "get_state"}));
    let file = fs::read_to_string(state["sessionFile"].as_str().unwrap()).unwrap();
    let stored: Vec<Value> = file
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|entry| entry["type"] == "message")
        .map(|entry| entry["message"].clone())
        .collect();
    assert_eq!(Value::Array(stored), messages);
}

#[test]
fn pending_messages_are_shown_and_cleared_with_their_images() {
    let env = Env::new();
    let model = env.script(&[bash("while [ ! -e go ]; do sleep 0.01; done"), says("done")]);
    let mut wharf = env.rpc_with(&[], &model);
    let empty = json!({
        "steering": [], "followUp": [], "steeringMessages": [], "followUpMessages": [],
    });
    assert_eq!(wharf.data(json!({"type": "get_pending_messages"})), empty);
    assert_eq!(wharf.data(json!({"type": "clear_pending_messages"})), empty);
    wharf.prompt("hi");
    wharf.wait_event("tool_execution_start");
    for command in [
        json!({"type": "steer", "message": "with", "images": [image()]}),
        json!({"type": "steer", "message": "without"}),
        json!({"type": "follow_up", "message": "later", "images": [image(), image()]}),
        json!({"type": "prompt", "message": "steered", "streamingBehavior": "steer"}),
        json!({"type": "prompt", "message": "followed", "streamingBehavior": "followUp",
            "images": [image()]}),
    ] {
        assert_eq!(wharf.request(command.clone())["success"], true, "{command}");
    }
    let pending = json!({
        "steering": ["with", "without", "steered"],
        "followUp": ["later", "followed"],
        "steeringMessages": [
            {"text": "with", "images": [image()]}, {"text": "without"}, {"text": "steered"},
        ],
        "followUpMessages": [
            {"text": "later", "images": [image(), image()]}, {"text": "followed", "images": [image()]},
        ],
    });
    assert_eq!(wharf.data(json!({"type": "get_pending_messages"})), pending);
    assert_eq!(wharf.data(json!({"type": "get_pending_messages"})), pending, "shown, not cleared");
    assert_eq!(wharf.data(json!({"type": "clear_pending_messages"})), pending);
    assert_eq!(wharf.data(json!({"type": "get_pending_messages"})), empty);
    env.write("go", "");
    let run = wharf.take_until("agent_end");
    let messages = run.last().unwrap()["messages"].as_array().unwrap().len();
    assert_eq!(messages, 4, "a cleared message was delivered: {run:?}");
}

#[test]
fn a_session_name_is_set_announced_and_kept() {
    let env = Env::new();
    let model = env.script(&[says("done")]);
    let mut wharf = env.rpc_with(&[], &model);
    let response = wharf.request(json!({"type": "set_session_name", "name": "my work"}));
    assert_plain_success(&response, "set_session_name");
    let event = wharf.wait_event("session_name_changed");
    assert_eq!(event, json!({"type": "session_name_changed", "name": "my work"}));
    assert_eq!(wharf.data(json!({"type": "get_state"}))["sessionName"], "my work");
    for name in ["", "   ", "\t\n"] {
        let response = wharf.request(json!({"type": "set_session_name", "name": name}));
        assert_eq!(response["success"], false, "{response}");
        assert_eq!(response["error"], "Session name cannot be empty");
    }
    assert_eq!(wharf.data(json!({"type": "get_state"}))["sessionName"], "my work");
    wharf.run("hi");
    let file = wharf.data(json!({"type": "get_state"}))["sessionFile"].clone();
    let exit = wharf.finish();
    assert_eq!(count(&exit.all, "session_name_changed"), 1, "{}", exit.transcript);
    let mut wharf = env.rpc(&["--session", file.as_str().unwrap()]);
    assert_eq!(wharf.data(json!({"type": "get_state"}))["sessionName"], "my work");
}

#[test]
fn the_last_assistant_text() {
    let env = Env::new();
    let blocks = json!({"content": [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "one"},
        {"type": "text", "text": "two"},
    ]});
    let model = env.script(&[says("first"), blocks]);
    let mut wharf = env.rpc_with(&[], &model);
    let command = json!({"type": "get_last_assistant_text"});
    assert_eq!(wharf.data(command.clone()), json!({"text": null}));
    wharf.run("hi");
    assert_eq!(wharf.data(command.clone()), json!({"text": "first"}));
    wharf.run("again");
    let text = wharf.data(command)["text"].clone();
    assert!(text.as_str().unwrap().starts_with("one"), "{text}");
    assert!(text.as_str().unwrap().ends_with("two"), "{text}");
    assert!(!text.as_str().unwrap().contains("hm"), "{text}");
}

#[test]
fn the_version_is_that_of_the_command_line() {
    let env = Env::new();
    let data = env.rpc(&[]).data(json!({"type": "get_version"}));
    let output = env.command().arg("--version").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, format!("wharf {}\n", data["version"].as_str().unwrap()));
    assert_eq!(fields(&data), ["version"]);
}

#[test]
fn abort_without_a_run_only_answers() {
    let env = Env::new();
    let mut wharf = env.rpc(&[]);
    assert_plain_success(&wharf.request(json!({"type": "abort"})), "abort");
    let exit = wharf.finish();
    assert_eq!(exit.all.len(), 1, "{}", exit.transcript);
}

#[test]
fn a_new_session_is_empty_and_names_its_parent() {
    let env = Env::new();
    let model = env.script(&[says("one"), says("two")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.run("first");
    let before = wharf.data(json!({"type": "get_state"}));
    let parent = before["sessionFile"].clone();
    let data = wharf.data(json!({"type": "new_session", "parentSession": parent}));
    assert_eq!(data, json!({"cancelled": false}));
    let after = wharf.data(json!({"type": "get_state"}));
    assert_ne!(after["sessionId"], before["sessionId"]);
    assert_ne!(after["sessionFile"], before["sessionFile"]);
    assert_eq!(after["messageCount"], 0);
    assert_eq!(after["model"], before["model"]);
    assert_eq!(wharf.data(json!({"type": "get_messages"})), json!({"messages": []}));
    let file = after["sessionFile"].as_str().unwrap();
    assert!(!fs::exists(file).unwrap(), "a session file before the first message");
    wharf.run("second");
    let text = fs::read_to_string(file).unwrap();
    let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(header["parentSession"], parent);
    assert_eq!(header["id"], after["sessionId"]);
    assert!(!text.contains("first"), "{text}");
    let old = fs::read_to_string(parent.as_str().unwrap()).unwrap();
    assert!(!old.contains("second"), "{old}");
}

/// A finished conversation; gives its file.
fn conversation(env: &Env, prompt: &str) -> String {
    let model = env.script(&[says(&format!("answer to {prompt}"))]);
    let mut wharf = env.rpc(&["--model", &model, "--thinking", "low"]);
    wharf.data(json!({"type": "set_session_name", "name": format!("about {prompt}")}));
    wharf.run(prompt);
    let file = wharf.data(json!({"type": "get_state"}))["sessionFile"].clone();
    assert_eq!(wharf.finish().code, Some(0));
    file.as_str().unwrap().to_owned()
}

#[test]
fn a_session_is_switched_to() {
    let env = Env::new();
    let file = conversation(&env, "old");
    let model = env.script(&[says("new answer"), says("more")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.run("new");
    let command = json!({"type": "switch_session", "sessionPath": file});
    assert_eq!(wharf.data(command), json!({"cancelled": false}));
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(state["sessionFile"], file.as_str());
    assert_eq!(state["sessionName"], "about old");
    assert_eq!(state["messageCount"], 2);
    assert_eq!(state["thinkingLevel"], "low", "the level of the branch's last entries");
    let text = wharf.data(json!({"type": "get_last_assistant_text"}));
    assert_eq!(text, json!({"text": "answer to old"}));
    wharf.run("on");
    let messages = wharf.data(json!({"type": "get_messages"}));
    assert_eq!(messages["messages"].as_array().unwrap().len(), 4);
    assert!(fs::read_to_string(&file).unwrap().contains("\"on\""));
}

#[test]
fn a_session_is_switched_to_by_a_relative_path() {
    let env = Env::new();
    let file = conversation(&env, "old");
    fs::copy(&file, env.project().join("copy.jsonl")).unwrap();
    let mut wharf = env.rpc(&[]);
    let command = json!({"type": "switch_session", "sessionPath": "copy.jsonl"});
    assert_eq!(wharf.data(command), json!({"cancelled": false}));
    let state = wharf.data(json!({"type": "get_state"}));
    assert_eq!(state["sessionFile"], env.project().join("copy.jsonl").display().to_string());
}

#[track_caller]
fn switch_fails(wharf: &mut Wharf, path: &str) {
    let before = wharf.data(json!({"type": "get_state"}));
    let response = wharf.request(json!({"type": "switch_session", "sessionPath": path}));
    assert_eq!(response["success"], false, "{response}");
    assert_eq!(response["command"], "switch_session");
    let error = response["error"].as_str().unwrap();
    assert!(error.contains(path), "the error does not name {path}: {error}");
    assert_eq!(wharf.data(json!({"type": "get_state"})), before);
}

#[test]
fn a_switch_to_what_is_no_session_is_an_error_that_names_it() {
    let env = Env::new();
    let model = env.script(&[says("one"), says("two")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.run("hi");
    let missing = env.project().join("no/such.jsonl");
    switch_fails(&mut wharf, missing.to_str().unwrap());
    assert!(!fs::exists(env.project().join("no")).unwrap(), "something was created");
    switch_fails(&mut wharf, "missing.jsonl");
    assert!(!fs::exists(env.project().join("missing.jsonl")).unwrap());
    let folder = env.project();
    switch_fails(&mut wharf, folder.to_str().unwrap());
    for (name, content) in [
        ("text.jsonl", "hello\n"),
        ("entry.jsonl", "{\"type\":\"message\",\"id\":\"a1b2c3d4\",\"parentId\":null}\n"),
    ] {
        let path = env.write(name, content);
        switch_fails(&mut wharf, path.to_str().unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), content, "{name} was changed");
    }
    wharf.run("still here");
    assert_eq!(wharf.data(json!({"type": "get_state"}))["messageCount"], 4);
}

#[test]
fn an_extension_may_cancel_a_switch() {
    let env = Env::new();
    let file = conversation(&env, "old");
    let model = env.script(&[says("new answer")]);
    let mut wharf = env.rpc_with(&["confirm-switch"], &model);
    wharf.run("new");
    let before = wharf.data(json!({"type": "get_state"}));

    wharf.send(&json!({"id": "n", "type": "new_session"}));
    let dialog = wharf.wait_ui("confirm");
    wharf.answer(&dialog, json!({"confirmed": false}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "n");
    let cancelled = json!({"id": "n", "type": "response", "command": "new_session",
        "success": true, "data": {"cancelled": true}});
    assert_eq!(response, cancelled);
    assert_eq!(wharf.data(json!({"type": "get_state"})), before);

    wharf.send(&json!({"id": "s", "type": "switch_session", "sessionPath": file}));
    let dialog = wharf.wait_ui("select");
    wharf.answer(&dialog, json!({"value": "No"}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "s");
    let cancelled = json!({"id": "s", "type": "response", "command": "switch_session",
        "success": true, "data": {"cancelled": true}});
    assert_eq!(response, cancelled);
    assert_eq!(wharf.data(json!({"type": "get_state"})), before);

    wharf.send(&json!({"id": "y", "type": "switch_session", "sessionPath": file}));
    let dialog = wharf.wait_ui("select");
    wharf.answer(&dialog, json!({"value": "Yes"}));
    let response = wharf.wait_for("the answer", |line| line["id"] == "y");
    assert_eq!(response["data"], json!({"cancelled": false}));
    assert_eq!(wharf.data(json!({"type": "get_state"}))["sessionFile"], file.as_str());
}
