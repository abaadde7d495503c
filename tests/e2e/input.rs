//! What becomes of a message before the model sees it: extension commands, then
//! `input` handlers, then skills and templates; and all of it without a model.

use std::fs;

use serde_json::{Value, json};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, PIXELS, Wharf};

use crate::order::{count, texts};

fn image(data: &str) -> Value {
    json!({"type": "image", "data": data, "mimeType": "image/png"})
}

/// An environment whose model answers everything.
fn answering() -> (Env, String) {
    let env = Env::new();
    let model = env.script(&[json!({"repeat": true, "content": [{"type": "text", "text": "ok"}]})]);
    (env, model)
}

/// The text that reaches the conversation when `message` is sent.
#[track_caller]
fn sent(wharf: &mut Wharf, message: &str) -> String {
    let run = wharf.run(message);
    let [text] = &texts(&run, "user")[..] else { panic!("{}", wharf.transcript()) };
    text.clone()
}

/// Waits until handled input has come back from its handler.
fn wait_idle(wharf: &mut Wharf) {
    while wharf.data(json!({"type": "get_state"}))["isStreaming"] == true {}
}

#[test]
fn handlers_transform_text_and_leave_images() {
    let (env, model) = answering();
    let mut wharf = env.rpc_with(&["probe"], &model);
    let images = [image(PIXELS[0]), image(PIXELS[1])];
    let command = json!({"type": "prompt", "message": "transform:loud", "images": images});
    assert_eq!(wharf.request(command)["success"], true);
    let run = wharf.take_until("agent_end");
    let user = run.iter().find(|line| line["type"] == "message_end").unwrap();
    let content = json!([{"type": "text", "text": "LOUD"}, images[0], images[1]]);
    assert_eq!(user["message"]["content"], content);
    assert_eq!(sent(&mut wharf, "transform"), "transform");
}

#[test]
fn handled_input_is_answered_and_starts_nothing() {
    let (env, model) = answering();
    let mut wharf = env.rpc_with(&["probe"], &model);
    wharf.prompt("handled:by the probe");
    assert_eq!(wharf.wait_notify(), "handled: by the probe");
    wait_idle(&mut wharf);
    assert_eq!(sent(&mut wharf, "hi"), "hi");
    let exit = wharf.finish();
    assert_eq!(count(&exit.all, "agent_start"), 1, "{}", exit.transcript);
}

#[test]
fn handlers_see_queued_messages_too() {
    let env = Env::new();
    let repeat = json!({"repeat": true, "content": [{"type": "text", "text": "ok"}]});
    let model = env.script(&[bash("while [ ! -e go ]; do sleep 0.01; done"), repeat]);
    let mut wharf = env.rpc_with(&["probe"], &model);
    wharf.prompt("hi");
    wharf.wait_event("tool_execution_start");
    for command in [
        json!({"type": "steer", "message": "transform:steered"}),
        json!({"type": "follow_up", "message": "transform:followed"}),
        json!({"type": "prompt", "message": "transform:too", "streamingBehavior": "followUp"}),
        json!({"type": "steer", "message": "handled:steered"}),
    ] {
        assert_eq!(wharf.request(command.clone())["success"], true, "{command}");
    }
    assert_eq!(wharf.wait_notify(), "handled: steered");
    env.write("go", "");
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "user"), ["hi", "STEERED", "FOLLOWED", "TOO"]);
}

#[test]
fn extension_commands_come_before_handlers_and_templates() {
    let (env, model) = answering();
    env.write_agent("prompts/beat.md", "A template of the same name");
    let mut wharf = env.rpc_with(&["probe", "heartbeat"], &model);
    // The command: no handler and no template sees it.
    wharf.prompt("/beat handled:no");
    assert_eq!(wharf.wait_notify(), "beat handled:no");
    wharf.prompt("/beat");
    assert_eq!(wharf.wait_notify(), "beat ");
    // A handler that makes a command of something else does not run it.
    wharf.prompt("handled:/beat 1");
    assert_eq!(wharf.wait_notify(), "handled: /beat 1");
    wait_idle(&mut wharf);
    assert_eq!(sent(&mut wharf, " /beat 2"), " /beat 2");
    assert_eq!(sent(&mut wharf, "/BEAT 2"), "/BEAT 2");
}

#[test]
fn skills_and_templates_expand_after_handlers() {
    let (env, model) = answering();
    // Upper case: what the handler makes of `transform:/shout x`.
    env.write_agent("prompts/SHOUT.md", "transform:not again, $1");
    let mut wharf = env.rpc_with(&["probe"], &model);
    assert_eq!(sent(&mut wharf, "transform:/shout x"), "transform:not again, X");
    assert_eq!(sent(&mut wharf, "/SHOUT y"), "transform:not again, y");
}

#[test]
fn templates_are_filled_in_one_pass() {
    let (env, model) = answering();
    env.write_agent(
        "prompts/fill.md",
        "---\ndescription: d\n---\n1=$1 2=$2 all=$@ also=$ARGUMENTS rest=${@:2} one=${@:2:1}",
    );
    env.write_agent("prompts/plain.md", "No place for arguments");
    let mut wharf = env.rpc_with(&[], &model);
    assert_eq!(
        sent(&mut wharf, "/fill a 'b c' d"),
        "1=a 2=b c all=a b c d also=a b c d rest=b c d one=b c"
    );
    assert_eq!(sent(&mut wharf, "/fill $2 $1"), "1=$2 2=$1 all=$2 $1 also=$2 $1 rest=$1 one=$1");
    assert_eq!(sent(&mut wharf, "/plain"), "No place for arguments");
    assert_eq!(sent(&mut wharf, "/plain a \"b"), "No place for arguments\n\na \"b");
    assert_eq!(sent(&mut wharf, "/unknown a b"), "/unknown a b");
    assert_eq!(sent(&mut wharf, "say /fill a"), "say /fill a");
    assert_eq!(sent(&mut wharf, "/"), "/");
}

#[test]
fn skills_expand_with_their_arguments() {
    let (env, model) = answering();
    env.write_agent(
        "skills/look/SKILL.md",
        "---\nname: look\ndescription: d\n---\nLook for $1 in ${WHARF_SKILL_DIR}.",
    );
    env.write_agent("skills/bare/SKILL.md", "---\nname: bare\ndescription: d\n---\nJust do it.");
    let mut wharf = env.rpc_with(&[], &model);
    let dir = env.agent_dir().join("skills/look").display().to_string();
    let text = sent(&mut wharf, "/skill:look '$2 it' other");
    assert!(text.contains(&format!("Look for $2 it in {dir}.")), "{text}");
    assert!(text.contains("<skill name=\"look\""), "{text}");
    assert!(!text.contains("description: d"), "the front matter is in it: {text}");
    let text = sent(&mut wharf, "/skill:bare these words");
    let body = text.find("Just do it.").unwrap();
    assert!(text.find("these words").is_some_and(|at| at > body), "arguments were dropped: {text}");
    assert_eq!(sent(&mut wharf, "/skill:nothing x"), "/skill:nothing x");
}

#[test]
fn images_go_with_an_expanded_message() {
    let (env, model) = answering();
    env.write_agent("prompts/see.md", "Look at $1");
    let mut wharf = env.rpc_with(&[], &model);
    let command = json!({"type": "prompt", "message": "/see this", "images": [image(PIXELS[0])]});
    assert_eq!(wharf.request(command)["success"], true);
    let run = wharf.take_until("agent_end");
    let user = run.iter().find(|line| line["type"] == "message_end").unwrap();
    let content = json!([{"type": "text", "text": "Look at this"}, image(PIXELS[0])]);
    assert_eq!(user["message"]["content"], content);
}

#[test]
fn an_image_that_no_provider_would_take_becomes_a_remark() {
    let (env, model) = answering();
    let mut wharf = env.rpc_with(&[], &model);
    let images = [image("aGVsbG8="), image(PIXELS[0])];
    let command = json!({"type": "prompt", "message": "look", "images": images});
    assert_eq!(wharf.request(command)["success"], true);
    let run = wharf.take_until("agent_end");
    let user = run.iter().find(|line| line["type"] == "message_end").unwrap();
    let content = &user["message"]["content"];
    assert_eq!(content[0]["text"], "look");
    let remark = content[1]["text"].as_str().unwrap();
    assert!(remark.contains("not an image that models take"), "{remark}");
    assert_eq!(content[2], images[1]);
}

#[test]
fn queued_messages_expand() {
    let env = Env::new();
    env.write_agent("prompts/do.md", "Do $1!");
    let repeat = json!({"repeat": true, "content": [{"type": "text", "text": "ok"}]});
    let model = env.script(&[bash("while [ ! -e go ]; do sleep 0.01; done"), repeat]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    wharf.wait_event("tool_execution_start");
    for (kind, message) in [("steer", "/do this"), ("follow_up", "/do that")] {
        assert_eq!(wharf.request(json!({"type": kind, "message": message}))["success"], true);
    }
    while wharf.data(json!({"type": "get_state"}))["pendingMessageCount"] != 2 {}
    let pending = wharf.data(json!({"type": "get_pending_messages"}));
    assert_eq!(
        (&pending["steering"], &pending["followUp"]),
        (&json!(["Do this!"]), &json!(["Do that!"]))
    );
    env.write("go", "");
    let run = wharf.take_until("agent_end");
    assert_eq!(texts(&run, "user"), ["hi", "Do this!", "Do that!"]);
}

#[test]
fn images_go_with_queued_messages() {
    let env = Env::new();
    let repeat = json!({"repeat": true, "content": [{"type": "text", "text": "ok"}]});
    let model = env.script(&[bash("while [ ! -e go ]; do sleep 0.01; done"), repeat]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("hi");
    wharf.wait_event("tool_execution_start");
    for (kind, data) in [("steer", PIXELS[0]), ("follow_up", PIXELS[1])] {
        let command = json!({"type": kind, "message": kind, "images": [image(data)]});
        assert_eq!(wharf.request(command)["success"], true);
    }
    env.write("go", "");
    let run = wharf.take_until("agent_end");
    let contents: Vec<&Value> = run
        .iter()
        .filter(|line| line["type"] == "message_end" && line["message"]["role"] == "user")
        .map(|line| &line["message"]["content"])
        .collect();
    assert_eq!(contents[1], &json!([{"type": "text", "text": "steer"}, image(PIXELS[0])]));
    assert_eq!(contents[2], &json!([{"type": "text", "text": "follow_up"}, image(PIXELS[1])]));
}

#[test]
fn handlers_are_told_the_source() {
    let (env, model) = answering();
    let mut wharf = env.rpc_with(&["probe"], &model);
    for command in [
        json!({"type": "prompt", "message": "source:"}),
        json!({"type": "steer", "message": "source:"}),
        json!({"type": "follow_up", "message": "source:"}),
    ] {
        assert_eq!(wharf.request(command.clone())["success"], true);
        assert_eq!(wharf.wait_notify(), "source: rpc", "{command}");
        wait_idle(&mut wharf);
    }
    wharf.prompt("/agent-send-user-message steer source:");
    wharf.wait_for("the source", |line| line["message"] == "source: extension");
}

#[test]
fn without_a_model_a_prompt_is_refused_and_says_how_to_choose_one() {
    for guests in [&[][..], &["probe"]] {
        let env = Env::new();
        let paths: Vec<String> =
            guests.iter().map(|name| wharf_tests::guest(name).display().to_string()).collect();
        let args: Vec<&str> = paths.iter().flat_map(|path| ["-e", path]).collect();
        let mut wharf = env.rpc(&args);
        for kind in ["prompt", "steer", "follow_up"] {
            let response = wharf.request(json!({"type": kind, "message": "hi"}));
            assert_eq!(response["success"], false, "{guests:?}: {response}");
            assert_eq!(response["command"], kind, "{guests:?}: {response}");
            let error = response["error"].as_str().unwrap();
            assert!(error.contains("--model") && error.contains("scripted/demo"), "{error}");
        }
        let state = wharf.data(json!({"type": "get_state"}));
        assert_eq!(state["model"], Value::Null);
        assert_eq!(state["messageCount"], 0);
        assert_eq!(state["isStreaming"], false);
        let file = state["sessionFile"].as_str().unwrap().to_owned();
        let exit = wharf.finish();
        assert_eq!(exit.code, Some(0), "{}", exit.stderr);
        assert_eq!(count(&exit.all, "agent_start"), 0, "{}", exit.transcript);
        assert!(!fs::exists(file).unwrap(), "a refused prompt left a session file");
    }
}

#[test]
fn without_a_model_commands_and_handled_input_work() {
    let env = Env::new();
    let paths = ["probe", "heartbeat"].map(|name| wharf_tests::guest(name).display().to_string());
    let mut wharf = env.rpc(&["-e", &paths[0], "-e", &paths[1]]);
    wharf.prompt("/beat 1");
    assert_eq!(wharf.wait_notify(), "beat 1");
    wharf.prompt("handled:without a model");
    assert_eq!(wharf.wait_notify(), "handled: without a model");
    wait_idle(&mut wharf);
    let refused = wharf.request(json!({"type": "prompt", "message": "transform:no"}));
    assert_eq!(refused["success"], false, "{refused}");
    wharf.prompt("/beat 2");
    assert_eq!(wharf.wait_notify(), "beat 2");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn a_setting_chooses_the_model() {
    let env = Env::new();
    env.write_agent("settings.json", r#"{"defaultProvider":"scripted","defaultModel":"demo"}"#);
    let state = env.rpc(&[]).data(json!({"type": "get_state"}));
    assert_eq!(state["model"]["provider"], "scripted");
    assert_eq!(state["model"]["id"], "demo");
}

#[test]
fn a_wrong_setting_leaves_rpc_mode_without_a_model() {
    let env = Env::new();
    env.write_agent("settings.json", r#"{"defaultProvider":"nobody","defaultModel":"nothing"}"#);
    let heartbeat = wharf_tests::guest("heartbeat");
    let mut wharf = env.rpc(&["-e", heartbeat.to_str().unwrap()]);
    assert_eq!(wharf.data(json!({"type": "get_state"}))["model"], Value::Null);
    wharf.prompt("/beat 1");
    assert_eq!(wharf.wait_notify(), "beat 1");
    let exit = wharf.finish();
    assert!(
        exit.stderr.contains("defaultModel") && exit.stderr.contains("nothing"),
        "{}",
        exit.stderr
    );
}

#[test]
fn a_reply_that_fails_ends_the_run_and_the_agent_goes_on() {
    let env = Env::new();
    let model = env.script(&[
        json!({"content": [{"type": "text", "text": "half"}], "error": {"status": 400, "body": "bad request"}}),
        says("again"),
    ]);
    let mut wharf = env.rpc_with(&[], &model);
    let run = wharf.run("hi");
    let message =
        run.iter().rfind(|line| line["type"] == "message_end").unwrap()["message"].clone();
    assert_eq!(message["stopReason"], "error");
    assert!(message["errorMessage"].as_str().unwrap().contains("bad request"), "{message}");
    let run = wharf.run("once more");
    assert_eq!(texts(&run, "assistant"), ["again"]);
}
