//! Environments whose models are at the fake server, and short ways to look at what
//! they were asked.

use std::path::PathBuf;

use serde_json::{Value, json};
use wharf_tests::llm::{Api, LlmServer, Recorded};
use wharf_tests::{Env, SessionFile, Wharf};

/// Settings that send no request but those of the test.
pub(crate) fn quiet() -> Value {
    json!({"autoSessionName": false, "retry": {"baseDelayMs": 1}})
}

/// An environment with these settings and, at the server, the provider `fake` with these
/// models; the API is chat completions.
pub(crate) fn serving(server: &LlmServer, models: &Value) -> Env {
    let env = Env::new();
    env.write_agent("settings.json", quiet().to_string());
    env.write_agent(
        "models.json",
        json!({"providers": {"fake": provider(server, models)}}).to_string(),
    );
    env
}

/// An entry of `models.json`.
pub(crate) fn provider(server: &LlmServer, models: &Value) -> Value {
    let api = Api::OpenaiCompletions;
    json!({
        "baseUrl": format!("{}{}", server.base_url(), api.base_path()),
        "api": api.name(), "apiKey": "fake-key", "models": models,
    })
}

pub(crate) fn state(wharf: &mut Wharf) -> Value {
    wharf.data(json!({"type": "get_state"}))
}

pub(crate) fn settings(env: &Env) -> Value {
    let text = std::fs::read_to_string(env.agent_dir().join("settings.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub(crate) fn session_path(wharf: &mut Wharf) -> PathBuf {
    PathBuf::from(state(wharf)["sessionFile"].as_str().unwrap())
}

/// The response's error; panics where there is none.
#[track_caller]
pub(crate) fn error(wharf: &mut Wharf, command: &Value) -> String {
    let response = wharf.request(command.clone());
    assert_eq!(response["success"], false, "{response}");
    assert_eq!(response["command"], command["type"], "{response}");
    assert!(response.get("data").is_none(), "{response}");
    response["error"].as_str().unwrap().to_owned()
}

/// A response without data, whole.
#[track_caller]
pub(crate) fn done(wharf: &mut Wharf, command: &Value) {
    let response = wharf.request(command.clone());
    let expected = json!({
        "type": "response", "id": response["id"], "command": command["type"], "success": true,
    });
    assert_eq!(response, expected);
}

/// The texts that a request has of one role, in their order.
pub(crate) fn sent(request: &Recorded, role: &str) -> Vec<String> {
    let messages = request.body["messages"].as_array().unwrap();
    messages
        .iter()
        .filter(|message| message["role"] == role)
        .flat_map(|message| match &message["content"] {
            Value::String(text) => vec![text.clone()],
            Value::Array(parts) => {
                parts.iter().filter_map(|part| Some(part["text"].as_str()?.to_owned())).collect()
            }
            _ => Vec::new(),
        })
        .collect()
}

/// What the session file says of models and levels, in its order.
pub(crate) fn choices(session: &SessionFile) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    session
        .entries
        .iter()
        .filter_map(|entry| match entry["type"].as_str().unwrap() {
            "model_change" => {
                Some(format!("{}/{}", text(&entry["provider"]), text(&entry["modelId"])))
            }
            "thinking_level_change" => Some(text(&entry["thinkingLevel"])),
            "message" => Some(text(&entry["message"]["role"])),
            _ => None,
        })
        .collect()
}
