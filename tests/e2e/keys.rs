//! Where a provider's key comes from, which one wins, and that it is never shown.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Api, Failure, LlmServer};
use wharf_tests::{Env, Wharf};

use crate::lab::quiet;

/// The built-in provider `groq` at this server, with this key in `models.json`.
fn redirected(server: &LlmServer, key: Option<&str>) -> Env {
    let env = Env::new();
    env.write_agent("settings.json", quiet().to_string());
    let mut entry =
        json!({"baseUrl": format!("{}/v1", server.base_url()), "models": [{"id": "m"}]});
    if let Some(key) = key {
        entry["apiKey"] = json!(key);
    }
    env.write_agent("models.json", json!({"providers": {"groq": entry}}).to_string());
    env
}

fn auth(env: &Env, mode: u32, text: &str) {
    let path = env.write_agent("auth.json", text);
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn start(env: &Env, args: &[&str], variables: &[(&str, &str)]) -> Wharf {
    let mut command = env.command();
    command.args(["--mode", "rpc"]).args(args);
    for (name, value) in variables {
        command.env(name, value);
    }
    Wharf::start(command, env.names())
}

fn bearer(server: &LlmServer) -> Option<String> {
    let request = server.requests().pop().unwrap();
    Some(request.header("authorization")?.strip_prefix("Bearer ").unwrap().to_owned())
}

#[test]
fn the_flag_goes_before_auth_json_before_models_json_before_the_environment() {
    let of_auth = json!({"groq": {"type": "api_key", "key": "of-auth"}}).to_string();
    let variables = [("GROQ_API_KEY", "of-environment")];
    let flag = ["--model", "groq/m", "--api-key", "of-flag"];
    let plain = &flag[..2];
    for (has_auth, models_key, args, variables, expect) in [
        (true, Some("of-models"), &flag[..], &variables[..], Some("of-flag")),
        (true, Some("of-models"), plain, &variables, Some("of-auth")),
        (false, Some("of-models"), plain, &variables, Some("of-models")),
        (false, None, plain, &variables, Some("of-environment")),
        // A server of this machine needs none.
        (false, None, plain, &[], None),
        (false, None, plain, &[("GROQ_API_KEY", "  ")], None),
        (false, Some("GROQ_API_KEY"), plain, &variables, Some("of-environment")),
    ] {
        let server = LlmServer::start();
        server.default_reply(Answer::says("ok"));
        let env = redirected(&server, models_key);
        if has_auth {
            auth(&env, 0o600, &of_auth);
        }
        let mut wharf = start(&env, args, variables);
        wharf.run("hi");
        assert_eq!(bearer(&server).as_deref(), expect, "{args:?} {models_key:?} {variables:?}");
    }
}

#[test]
fn keys_of_auth_json_come_in_the_same_forms() {
    for (key, expect) in
        [("literal", "literal"), ("!echo ordered", "ordered"), ("MY_KEY", "of-mine")]
    {
        let server = LlmServer::start();
        server.default_reply(Answer::says("ok"));
        let env = redirected(&server, None);
        auth(&env, 0o600, &json!({"groq": {"type": "api_key", "key": key}}).to_string());
        let mut wharf = start(&env, &["--model", "groq/m"], &[("MY_KEY", "of-mine")]);
        wharf.run("hi");
        assert_eq!(bearer(&server).as_deref(), Some(expect));
    }
}

#[test]
fn a_key_that_comes_during_a_run_of_the_program_is_found() {
    let env = Env::new();
    env.write_agent("settings.json", quiet().to_string());
    let mut wharf = env.rpc(&["--no-session"]);
    let count = |wharf: &mut Wharf| {
        let data = wharf.data(json!({"type": "get_available_models"}));
        data["models"].as_array().unwrap().iter().filter(|m| m["provider"] == "groq").count()
    };
    assert_eq!(count(&mut wharf), 0);
    auth(&env, 0o600, &json!({"groq": {"type": "api_key", "key": "k"}}).to_string());
    assert!(count(&mut wharf) > 0);
    auth(&env, 0o600, "{}");
    assert_eq!(count(&mut wharf), 0);
}

#[test]
fn a_file_that_others_may_read_is_told_and_used() {
    for (mode, is_told) in [(0o644, true), (0o640, true), (0o600, false)] {
        let server = LlmServer::start();
        server.default_reply(Answer::says("ok"));
        let env = redirected(&server, None);
        auth(&env, mode, &json!({"groq": {"type": "api_key", "key": "sk-open"}}).to_string());
        let mut wharf = start(&env, &["--model", "groq/m"], &[]);
        wharf.run("hi");
        assert_eq!(bearer(&server).as_deref(), Some("sk-open"));
        let exit = wharf.finish();
        assert_eq!(exit.stderr.contains("chmod 600"), is_told, "{mode:o}: {}", exit.stderr);
        let event = exit.all.iter().any(|line| {
            line["type"] == "extension_error"
                && line["error"].as_str().unwrap().contains("chmod 600")
        });
        assert_eq!(event, is_told, "{mode:o}");
        assert!(!exit.stderr.contains("sk-open"));
    }
}

#[test]
fn a_broken_auth_json_is_told_without_its_keys() {
    for text in [
        "{\"groq\": {\"type\": \"api_key\", \"key\": \"sk-hidden\"",
        "\"sk-hidden\"",
        "[\"sk-hidden\"]",
        "{\"groq\": \"sk-hidden\"}",
        "{\"groq\": {\"key\": \"sk-hidden\"}}",
        "{\"groq\": {\"type\": \"api_key\", \"key\": [\"sk-hidden\"]}}",
    ] {
        let env = Env::new();
        auth(&env, 0o600, text);
        let mut wharf = env.rpc(&["--no-session", "--model", "scripted/demo"]);
        wharf.run("hello");
        let exit = wharf.finish();
        assert_eq!(exit.code, Some(0));
        assert!(exit.stderr.contains("auth.json"), "{text}: nobody was told: {}", exit.stderr);
        let shown = format!("{}{}", exit.stderr, exit.transcript);
        assert!(!shown.contains("sk-hidden"), "{text}: the key is shown: {shown}");
    }
}

/// A key in a place where none belongs: an easy mistake to make.
#[test]
fn a_key_in_a_wrong_place_of_models_json_is_told_without_it() {
    for (field, value) in [
        ("authHeader", json!("Bearer sk-hidden")),
        ("headers", json!("Authorization: Bearer sk-hidden")),
        ("headers", json!(["Authorization: sk-hidden"])),
        ("headers", json!({"authorization": ["sk-hidden"]})),
        ("headers", json!({"authorization: sk-hidden": "x"})),
        ("apiKey", json!(["sk-hidden"])),
        ("apiKey", json!({"key": "sk-hidden"})),
    ] {
        let env = Env::new();
        let mut entry = json!({"baseUrl": "http://127.0.0.1:9", "api": "openai-completions", "models": [{"id": "m"}]});
        entry[field] = value.clone();
        env.write_agent("models.json", json!({"providers": {"mine": entry}}).to_string());
        let mut wharf = env.rpc(&["--no-session", "--model", "scripted/demo"]);
        wharf.data(json!({"type": "get_available_models"}));
        let exit = wharf.finish();
        assert!(
            exit.stderr.contains(&format!("providers.mine.{field}")),
            "{value}: {}",
            exit.stderr
        );
        let shown = format!("{}{}", exit.stderr, exit.transcript);
        // The name of a header is no secret in itself.
        if !value.is_object() || value.get("authorization: sk-hidden").is_none() {
            assert!(
                !shown.contains("sk-hidden"),
                "{field}: {value}: the key is shown: {}",
                exit.stderr
            );
        }
    }
}

#[test]
fn entries_of_other_kinds_are_left_alone() {
    let env = Env::new();
    let text = json!({"anthropic": {"type": "oauth", "refresh": "r", "access": "a", "expires": 1}})
        .to_string();
    auth(&env, 0o600, &text);
    let mut wharf = env.rpc(&["--no-session", "--model", "scripted/demo"]);
    wharf.run("hello");
    let exit = wharf.finish();
    assert!(!exit.stderr.contains("auth.json"), "{}", exit.stderr);
    assert_eq!(fs::read_to_string(env.agent_dir().join("auth.json")).unwrap(), text);
}

#[test]
fn a_key_of_the_command_line_needs_somebody_whose_it_is() {
    let env = Env::new();
    for mode in ["text", "json", "rpc"] {
        let args = ["--mode", mode, "--api-key", "sk-flag", "hi"];
        let output = env.command().args(args).stdin(std::process::Stdio::null()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0), "{mode}");
        assert!(
            told.contains("--api-key") && told.contains("--model") && told.contains("--provider"),
            "{told}"
        );
        assert!(!told.contains("sk-flag"), "{told}");
    }
}

#[test]
fn a_key_with_a_provider_alone() {
    let server = LlmServer::start();
    server.default_reply(Answer::says("ok"));
    let env = redirected(&server, None);
    let mut wharf = start(&env, &["--provider", "groq", "--api-key", "of-flag"], &[]);
    wharf.run("hi");
    assert_eq!(bearer(&server).as_deref(), Some("of-flag"));
}

/// All files below a directory whose content holds the text.
fn holding(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else if String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(text) {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

#[test]
fn a_key_is_never_shown() {
    const KEY: &str = "sk-very-secret-0123456789";
    for api in Api::ALL {
        for (failure, key_in) in [
            (Some(Failure::Authentication), "auth"),
            (Some(Failure::Internal), "models"),
            (None, "flag"),
            (Some(Failure::Authentication), "header"),
        ] {
            let server = LlmServer::start();
            let env = Env::new();
            let mut settings = quiet();
            settings["retry"]["maxRetries"] = json!(1);
            env.write_agent("settings.json", settings.to_string());
            let mut entry = json!({
                "baseUrl": format!("{}{}", server.base_url(), api.base_path()), "api": api.name(),
                "models": [{"id": "m"}],
            });
            match key_in {
                "models" => entry["apiKey"] = json!(KEY),
                "header" => {
                    entry["apiKey"] = json!("other");
                    entry["headers"] = json!({"x-extra": KEY});
                }
                _ => {}
            }
            env.write_agent("models.json", json!({"providers": {"mine": entry}}).to_string());
            if key_in == "auth" {
                auth(&env, 0o600, &json!({"mine": {"type": "api_key", "key": KEY}}).to_string());
            }
            match failure {
                Some(failure) => server.default_reply(failure),
                None => server.default_reply(Answer::says("ok")),
            }
            let mut args = vec!["--model", "mine/m", "--verbose"];
            args.pop();
            if key_in == "flag" {
                args.extend(["--api-key", KEY]);
            }
            let mut wharf = env.rpc(&args);
            wharf.run("hi");
            for command in
                ["get_state", "get_messages", "get_available_models", "get_session_stats"]
            {
                wharf.data(json!({"type": command}));
            }
            wharf.data(json!({"type": "set_model", "provider": "mine", "modelId": "m"}));
            wharf.data(json!({"type": "resolve_model", "pattern": "mine/m"}));
            let exit = wharf.finish();
            let shown = format!("{}{}", exit.stderr, exit.transcript);
            assert!(!shown.contains(KEY), "{} {key_in}: {shown}", api.name());
            let mut files = holding(&env.agent_dir(), KEY);
            files.retain(|name| name != "auth.json" && name != "models.json");
            assert!(files.is_empty(), "{} {key_in}: {files:?}", api.name());
            assert!(
                server.requests().iter().any(|r| r.headers.iter().any(|(_, v)| v.contains(KEY)))
            );
        }
    }
}

/// A server that repeats the key in its error text.
#[test]
fn a_key_that_a_server_repeats_is_not_passed_on() {
    const KEY: &str = "sk-echoed-0123456789abcdef";
    let server = LlmServer::start();
    let body = json!({"error": {"message": format!("Incorrect API key provided: {KEY}."), "type": "invalid_request_error"}});
    server.default_reply(wharf_tests::llm::Reply::status(401, body.to_string()));
    let env = redirected(&server, Some(KEY));
    let mut wharf = start(&env, &["--model", "groq/m"], &[]);
    wharf.run("hi");
    let messages: Value = wharf.data(json!({"type": "get_messages"}));
    let problem = messages["messages"][1]["errorMessage"].as_str().unwrap();
    assert!(problem.contains("Incorrect API key"), "{problem}");
    let exit = wharf.finish();
    assert!(!exit.transcript.contains(KEY), "{problem}");
    let mut files = holding(&env.agent_dir(), KEY);
    files.retain(|name| name != "models.json");
    assert!(files.is_empty(), "{files:?}");
}

#[test]
fn without_a_key_the_prompt_says_what_to_do() {
    let env = Env::new();
    let mut wharf = env.rpc(&["--no-session", "--provider", "groq"]);
    let response = wharf.request(json!({"type": "prompt", "message": "hi"}));
    let problem = if response["success"] == true {
        let run = wharf.take_until("agent_end");
        let reply = run.iter().rfind(|line| line["type"] == "turn_end").unwrap();
        reply["message"]["errorMessage"].as_str().unwrap().to_owned()
    } else {
        response["error"].as_str().unwrap().to_owned()
    };
    for part in ["groq", "GROQ_API_KEY", "auth.json", "--api-key"] {
        assert!(problem.contains(part), "{part} is not in: {problem}");
    }
}
