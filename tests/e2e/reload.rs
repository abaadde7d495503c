//! Loading extensions anew: by command, by a file that changes, and what is said of it.

use serde_json::{Value, json};
use wharf_tests::{Env, Wharf, guest};

fn install(env: &Env, name: &str) {
    // By a rename, as a person's tools do it.
    let component = std::fs::read(guest(name)).unwrap();
    let temporary = env.write_agent("incoming", component);
    let extensions = env.agent_dir().join("extensions");
    std::fs::create_dir_all(&extensions).unwrap();
    std::fs::rename(temporary, extensions.join("x.wasm")).unwrap();
}

fn commands(wharf: &mut Wharf) -> Vec<String> {
    let data = wharf.data(json!({"type": "get_commands"}));
    let commands = data["commands"].as_array().unwrap();
    commands.iter().map(|command| command["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_reload_takes_up_what_changed_and_tells_it() {
    let env = Env::new();
    install(&env, "hello");
    let mut wharf = env.rpc(&[]);
    assert_eq!(commands(&mut wharf), ["hello"]);
    let unchanged = wharf.data(json!({"type": "reload"}));
    assert_eq!(unchanged["extensions"][0]["changed"], false);
    install(&env, "heartbeat");
    let data = wharf.data(json!({"type": "reload"}));
    let events: Vec<Value> =
        wharf.passed().filter(|line| line["type"] == "extensions_reloaded").cloned().collect();
    assert_eq!(events.len(), 2, "{}", wharf.transcript());
    assert_eq!(events[1]["extensions"], data["extensions"]);
    assert_eq!(commands(&mut wharf), ["beat"]);
    // A message written behind a reload is meant for what it loads.
    install(&env, "hello");
    wharf.send(&json!({"type": "reload"}));
    wharf.send(&json!({"type": "prompt", "message": "/hello Ada"}));
    assert_eq!(wharf.wait_notify(), "Hello, Ada!");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn a_file_that_changes_is_taken_up_where_it_is_watched() {
    let env = Env::new();
    install(&env, "hello");
    let mut wharf = env.rpc(&["--watch"]);
    assert_eq!(commands(&mut wharf), ["hello"]);
    install(&env, "heartbeat");
    wharf.wait_event("extensions_reloaded");
    assert_eq!(commands(&mut wharf), ["beat"]);
    let output = env.command().args(["--watch", "-p", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn extensions_are_listed_with_what_they_offer() {
    let env = Env::new();
    install(&env, "asks");
    let mut wharf = env.rpc(&[]);
    let data = wharf.data(json!({"type": "get_extensions"}));
    let asks = &data["extensions"][0];
    assert_eq!(asks["id"], "asks");
    assert_eq!(asks["version"], "0.1.0");
    assert_eq!(asks["scope"], "user");
    assert_eq!(asks["state"], "registered");
    assert_eq!(asks["commands"][0]["argumentHint"], "[one]");
    assert_eq!(asks["shortcuts"][0]["key"], "ctrl+f");
    assert_eq!(asks["flags"][0]["name"], "plan");
}

#[test]
fn arguments_are_completed_by_the_extension() {
    let env = Env::new();
    install(&env, "asks");
    let mut wharf = env.rpc(&[]);
    let mut complete = |command: &str, argument: &str| {
        wharf
            .request(json!({"type": "complete_argument", "command": command, "argument": argument}))
    };
    let offered = complete("flags", "de");
    assert_eq!(
        offered["data"],
        json!({"completions": [{"value": "depth", "description": "A flag"}]})
    );
    assert_eq!(complete("flags", "x")["data"], json!({"completions": []}));
    let unknown = complete("nobody", "");
    assert_eq!(unknown["success"], false);
    assert_eq!(unknown["error"], "No extension has the command \"/nobody\"");
}
