//! Which model answers: found, switched, cycled and scoped at run time, and what of it
//! stays in the session and in the settings.

use std::fs;

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, LlmServer};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, SessionFile, Wharf};

use crate::lab::{choices, done, error, serving, session_path, settings, state};
use crate::order::text_of;

fn ids(models: &Value) -> Vec<String> {
    let models = models.as_array().unwrap();
    models.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

fn available(wharf: &mut Wharf) -> Value {
    wharf.data(json!({"type": "get_available_models"}))["models"].clone()
}

fn set_model(id: &str) -> Value {
    json!({"type": "set_model", "provider": "fake", "modelId": id})
}

/// A server, and an environment with the models `one`, `two` and `three` at it.
fn three() -> (LlmServer, Env) {
    let server = LlmServer::start();
    server.default_reply(Answer::says("ok"));
    let env = serving(
        &server,
        &json!([
            {"id": "one"},
            {"id": "two", "reasoning": true, "compat": {"supportsReasoningEffort": true}},
            {"id": "three"},
        ]),
    );
    (server, env)
}

const ONE: [&str; 2] = ["--model", "fake/one"];

#[test]
fn a_model_is_told_in_full() {
    let server = LlmServer::start();
    let env = serving(
        &server,
        &json!([
            {"id": "plain"},
            {
                "id": "rich", "name": "The Rich One", "reasoning": true, "input": ["text", "image"],
                "contextWindow": 1000, "maxTokens": 500,
                "cost": {"input": 1.5, "output": 2, "cacheRead": 0.25, "cacheWrite": 3},
            },
        ]),
    );
    let url = format!("{}/v1", server.base_url());
    let plain = json!({
        "id": "plain", "name": "plain", "api": "openai-completions", "provider": "fake",
        "baseUrl": url, "reasoning": false, "input": ["text"], "contextWindow": 128_000,
        "maxTokens": 16_384,
        "cost": {"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0},
    });
    let rich = json!({
        "id": "rich", "name": "The Rich One", "api": "openai-completions", "provider": "fake",
        "baseUrl": url, "reasoning": true, "input": ["text", "image"], "contextWindow": 1000,
        "maxTokens": 500,
        "cost": {"input": 1.5, "output": 2.0, "cacheRead": 0.25, "cacheWrite": 3.0},
    });
    let mut wharf = env.rpc(&["--model", "fake/plain"]);
    let models = available(&mut wharf);
    let of_fake: Vec<&Value> =
        models.as_array().unwrap().iter().filter(|model| model["provider"] == "fake").collect();
    assert_eq!(of_fake, [&plain, &rich]);
    assert_eq!(state(&mut wharf)["model"], plain);
    let response = wharf.request(set_model("rich"));
    assert_eq!(
        response,
        json!({
            "type": "response", "id": response["id"], "command": "set_model", "success": true,
            "data": rich,
        })
    );
    assert_eq!(state(&mut wharf)["model"], rich);
    let resolved = wharf.data(json!({"type": "resolve_model", "pattern": "Rich One"}));
    assert_eq!(resolved, json!({"model": rich}));
    assert_eq!(wharf.data(json!({"type": "cycle_model"}))["model"]["provider"], "scripted");
}

#[test]
fn models_without_a_key_are_not_available() {
    let (_server, env) = three();
    let mut wharf = env.rpc(&ONE);
    assert_eq!(ids(&available(&mut wharf)), ["demo", "one", "two", "three"]);
}

#[test]
fn a_model_that_cannot_be_set_changes_nothing() {
    let (_server, env) = three();
    let mut wharf = env.rpc(&ONE);
    let before = (state(&mut wharf), settings(&env));
    for (provider, id) in
        [("invalid", "model"), ("fake", "none"), ("", ""), ("fake", "One"), ("fake", "on")]
    {
        let command = json!({"type": "set_model", "provider": provider, "modelId": id});
        assert_eq!(error(&mut wharf, &command), format!("Model not found: {provider}/{id}"));
    }
    let command =
        json!({"type": "set_model", "provider": "anthropic", "modelId": "claude-sonnet-4-6"});
    let problem = error(&mut wharf, &command);
    for part in ["anthropic", "ANTHROPIC_API_KEY", "auth.json", "models.json", "--api-key"] {
        assert!(problem.contains(part), "{part} is not in: {problem}");
    }
    assert_eq!((state(&mut wharf), settings(&env)), before);
}

#[test]
fn fields_of_wrong_types_are_named() {
    let (_server, env) = three();
    let mut wharf = env.rpc(&ONE);
    let wrong = [json!(5), json!(true), json!(null), json!(["one"]), json!({"id": "one"})];
    let mut cases = Vec::new();
    for (command, field, rest) in [
        ("set_model", "provider", json!({"modelId": "one"})),
        ("set_model", "modelId", json!({"provider": "fake"})),
        ("resolve_model", "pattern", json!({})),
        ("set_thinking_level", "level", json!({})),
        ("set_steering_mode", "mode", json!({})),
        ("set_follow_up_mode", "mode", json!({})),
        ("set_auto_compaction", "enabled", json!({})),
        ("set_auto_retry", "enabled", json!({})),
        ("bash", "command", json!({})),
    ] {
        cases.push((command, field, rest.clone()));
        for value in &wrong {
            if command.starts_with("set_auto") && value.is_boolean() {
                continue;
            }
            let mut fields = rest.clone();
            fields[field] = value.clone();
            cases.push((command, field, fields));
        }
    }
    for value in ["ultra", "High", "", " high"] {
        cases.push(("set_thinking_level", "level", json!({"level": value})));
    }
    for command in ["set_steering_mode", "set_follow_up_mode"] {
        for value in ["one", "All", "oneAtATime"] {
            cases.push((command, "mode", json!({"mode": value})));
        }
    }
    for command in ["set_auto_compaction", "set_auto_retry"] {
        for value in [json!("true"), json!(1)] {
            cases.push((command, "enabled", json!({"enabled": value})));
        }
    }
    for value in [json!("yes"), json!(1), json!({})] {
        cases.push((
            "bash",
            "excludeFromContext",
            json!({"command": "touch ran", "excludeFromContext": value}),
        ));
    }
    let before = (state(&mut wharf), settings(&env));
    for (command, field, mut fields) in cases {
        fields["type"] = json!(command);
        let problem = error(&mut wharf, &fields);
        assert!(
            problem.starts_with(&format!("Invalid {command} command: ")),
            "{fields}: {problem}"
        );
        assert!(problem.contains(field), "{fields}: the field is not named: {problem}");
    }
    assert_eq!((state(&mut wharf), settings(&env)), before);
    assert!(!fs::exists(env.project().join("ran")).unwrap());
}

#[test]
fn a_set_model_answers_the_next_prompt_and_is_kept() {
    let (server, env) = three();
    let text = r#"{"zebra": {"b": 1, "a": [1.0]}, "defaultModel": "old", "autoSessionName": false, "alpha": null}"#;
    env.write_agent("settings.json", text);
    let mut wharf = env.rpc(&ONE);
    let run = wharf.run("first");
    assert_eq!(run[0]["model"], json!({"provider": "fake", "id": "one"}));
    wharf.data(set_model("two"));
    let run = wharf.run("second");
    assert_eq!(run[0]["model"], json!({"provider": "fake", "id": "two"}));
    let requests = server.requests();
    let asked: Vec<&Value> = requests.iter().map(|request| &request.body["model"]).collect();
    assert_eq!(asked, ["one", "two"]);
    let file = session_path(&mut wharf);
    let session = SessionFile::read(&file);
    session.assert_linear();
    assert_eq!(
        choices(&session),
        ["fake/one", "off", "user", "assistant", "fake/two", "user", "assistant"]
    );
    assert_eq!(session.entries.last().unwrap()["message"]["model"], "two");
    // Unknown keys and the order of all are as they were.
    let kept = fs::read_to_string(env.agent_dir().join("settings.json")).unwrap();
    let expected = json!({
        "zebra": {"b": 1, "a": [1.0]}, "defaultModel": "two", "autoSessionName": false,
        "alpha": null, "defaultProvider": "fake",
    });
    assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), expected);
    let at = |key: &str| kept.find(&format!("\"{key}\"")).unwrap();
    let order = ["zebra", "defaultModel", "autoSessionName", "alpha", "defaultProvider"];
    assert!(order.map(at).is_sorted(), "{kept}");
    assert_eq!(wharf.finish().code, Some(0));
    // It is the default of the next run.
    let mut wharf = env.rpc(&[]);
    assert_eq!(state(&mut wharf)["model"]["id"], "two");
}

#[test]
fn a_flag_is_no_new_default() {
    let (_server, env) = three();
    let before = settings(&env);
    let mut wharf = env.rpc(&["--model", "fake/two:low", "--thinking", "high"]);
    wharf.run("hi");
    assert_eq!(state(&mut wharf)["thinkingLevel"], "high");
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(settings(&env), before);
}

#[test]
fn a_change_before_the_first_message_leaves_no_file() {
    let (_server, env) = three();
    let mut wharf = env.rpc(&ONE);
    wharf.data(set_model("two"));
    done(&mut wharf, &json!({"type": "set_thinking_level", "level": "high"}));
    let file = session_path(&mut wharf);
    assert!(!file.exists(), "a file without a message");
    wharf.run("hi");
    let choices = choices(&SessionFile::read(&file));
    assert!(choices.ends_with(&["high", "user", "assistant"].map(str::to_owned)), "{choices:?}");
}

#[test]
fn a_session_that_is_only_opened_stays_as_it_is() {
    let (_server, env) = three();
    let mut wharf = env.rpc(&["--model", "fake/two:low"]);
    wharf.run("hi");
    let file = session_path(&mut wharf);
    assert_eq!(wharf.finish().code, Some(0));
    let before = fs::read(&file).unwrap();
    let path = file.to_str().unwrap();
    for args in [&["--session", path][..], &["--session", path, "--model", "fake/one"], &["-c"]] {
        let mut wharf = env.rpc(args);
        let state = state(&mut wharf);
        if !args.contains(&"fake/one") {
            assert_eq!(
                (&state["model"]["id"], &state["thinkingLevel"]),
                (&json!("two"), &json!("low"))
            );
        }
        available(&mut wharf);
        wharf.data(json!({"type": "get_session_stats"}));
        wharf.data(json!({"type": "resolve_model", "pattern": "one"}));
        assert_eq!(wharf.finish().code, Some(0));
        assert_eq!(fs::read(&file).unwrap(), before, "{args:?} changed the file");
    }
}

#[test]
fn reopening_and_switching_take_up_the_last_choice() {
    let (_server, env) = three();
    let mut wharf = env.rpc(&ONE);
    wharf.run("hi");
    wharf.data(set_model("two"));
    done(&mut wharf, &json!({"type": "set_thinking_level", "level": "minimal"}));
    let first = session_path(&mut wharf);
    wharf.data(json!({"type": "new_session"}));
    wharf.data(set_model("three"));
    wharf.run("hi");
    let second = session_path(&mut wharf);
    let mut switch = |file: &std::path::Path| {
        let path = file.display().to_string();
        wharf.data(json!({"type": "switch_session", "sessionPath": path}));
        let state = state(&mut wharf);
        (state["model"]["id"].clone(), state["thinkingLevel"].clone())
    };
    assert_eq!(switch(&first), (json!("two"), json!("minimal")));
    assert_eq!(switch(&second), (json!("three"), json!("off")));
    assert_eq!(switch(&first), (json!("two"), json!("minimal")));
    assert_eq!(wharf.finish().code, Some(0));
    let mut wharf = env.rpc(&["--session", first.to_str().unwrap()]);
    let state = state(&mut wharf);
    assert_eq!(
        (&state["model"]["id"], &state["thinkingLevel"]),
        (&json!("two"), &json!("minimal"))
    );
}

#[test]
fn a_change_during_a_run_begins_with_its_next_request() {
    let (server, env) = three();
    let gate = server.gate();
    let call = Answer::calls("c", "bash", &json!({"command": "echo hi"}));
    server.reply(wharf_tests::llm::Reply::from(call).hold(&gate));
    let mut wharf = env.rpc(&ONE);
    wharf.prompt("go");
    gate.wait_reached();
    assert_eq!(wharf.data(set_model("two"))["id"], "two");
    done(&mut wharf, &json!({"type": "set_thinking_level", "level": "low"}));
    let now = state(&mut wharf);
    assert_eq!((&now["model"]["id"], &now["isStreaming"]), (&json!("two"), &json!(true)));
    gate.open();
    let run = wharf.take_until("agent_end");
    let replies: Vec<&Value> = run
        .iter()
        .filter(|line| line["type"] == "message_end" && line["message"]["role"] == "assistant")
        .map(|line| &line["message"]["model"])
        .collect();
    // The one under way is the model's that was asked.
    assert_eq!(replies, ["one", "two"]);
    let requests = server.requests();
    assert_eq!(requests[1].body["model"], "two");
    assert_eq!(requests[1].body["reasoning_effort"], "low");
    let session = SessionFile::read(&session_path(&mut wharf));
    session.assert_linear();
    // Whose reply it is stands in the reply; whether the change stands before or after it
    // is not fixed, but no entry parts a call from its result.
    let kinds: Vec<&Value> = session.entries.iter().map(|entry| &entry["type"]).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "model_change").count(), 2, "{kinds:?}");
    assert_eq!(choices(&session).last().unwrap(), "assistant");
}

#[test]
fn a_change_and_a_prompt_in_one_write() {
    let (server, env) = three();
    let mut wharf = env.rpc(&ONE);
    let lines = [
        set_model("two"),
        json!({"type": "set_thinking_level", "level": "medium"}),
        json!({"type": "prompt", "message": "hi"}),
        set_model("three"),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    wharf.send_raw(text.as_bytes());
    let run = wharf.until("agent_end", |line| line["type"] == "agent_end");
    let start = run.iter().find(|line| line["type"] == "agent_start").unwrap();
    assert!(start["thinkingLevel"].is_string(), "{start}");
    server.wait_for_requests(1);
    // The last change may come before or after the first request, never before the prompt.
    wharf.request(json!({"type": "get_version"}));
    wharf.run("again");
    assert_eq!(server.requests()[1].body["model"], "three");
    let session = SessionFile::read(&session_path(&mut wharf));
    session.assert_linear();
    let wanted = "fake/two";
    assert!(choices(&session).iter().any(|entry| entry == wanted), "{:?}", choices(&session));
}

#[test]
fn a_change_right_before_a_prompt() {
    let (server, env) = three();
    let mut wharf = env.rpc(&ONE);
    for (round, id) in ["two", "three", "one", "two"].into_iter().enumerate() {
        wharf.send_raw(
            format!("{}\n{}\n", set_model(id), json!({"type": "prompt", "message": "hi"}))
                .as_bytes(),
        );
        let run = wharf.take_until("agent_end");
        let start = run.iter().find(|line| line["type"] == "agent_start").unwrap();
        assert_eq!(start["model"]["id"], id);
        assert_eq!(server.requests()[round].body["model"], id);
    }
}

#[test]
fn resolving_changes_nothing_and_no_match_is_null() {
    let (_server, env) = three();
    env.write_agent("auth.json", "{}");
    let mut wharf = env.rpc(&ONE);
    let before = (state(&mut wharf), settings(&env));
    let mut resolve = |pattern: &str| {
        let response = wharf.request(json!({"type": "resolve_model", "pattern": pattern}));
        assert_eq!(response["command"], "resolve_model");
        assert!(response.get("data").is_some() || response["success"] == false, "{response}");
        response
    };
    for pattern in ["two", "fake/two", "FAKE/TWO", "tw", "fake/two:high", "two:high"] {
        let response = resolve(pattern);
        assert_eq!(response["data"]["model"]["id"], "two", "{pattern}: {response}");
        assert!(response["data"].get("warning").is_none(), "{pattern}: {response}");
    }
    for pattern in ["none-such", "fake/none-such", "", "  "] {
        let response = resolve(pattern);
        assert_eq!(
            (&response["success"], &response["data"]),
            (&json!(true), &Value::Null),
            "{pattern:?}"
        );
    }
    // A match that needed help carries a warning.
    for pattern in ["fake/t", "two:ultra"] {
        let response = resolve(pattern);
        assert!(response["data"]["model"].is_object(), "{pattern}: {response}");
        assert!(response["data"]["warning"].is_string(), "{pattern}: {response}");
    }
    assert_eq!((state(&mut wharf), settings(&env)), before);
}

#[test]
fn cycling_goes_round_and_ends_where_there_is_one() {
    let (server, env) = three();
    let mut wharf = env.rpc(&["--model", "fake/two:high"]);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let response = wharf.request(json!({"type": "cycle_model"}));
        let data = response["data"].clone();
        assert_eq!(data.as_object().unwrap().len(), 3, "{data}");
        assert_eq!(data["isScoped"], false);
        let now = state(&mut wharf);
        assert_eq!(
            (&data["model"], &data["thinkingLevel"]),
            (&now["model"], &now["thinkingLevel"])
        );
        seen.push(data["model"]["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(seen, ["three", "demo", "one", "two"]);
    assert_eq!(settings(&env)["defaultModel"], "two");
    // The wish survived the models that cannot think.
    assert_eq!(state(&mut wharf)["thinkingLevel"], "high");
    assert_eq!(wharf.finish().code, Some(0));
    assert!(server.requests().is_empty());

    let mut wharf = env.rpc(&["--model", "fake/two", "--models", "two"]);
    let response = wharf.request(json!({"type": "cycle_model"}));
    let expected = json!({
        "type": "response", "id": response["id"], "command": "cycle_model", "success": true,
        "data": null,
    });
    assert_eq!(response, expected);
}

#[test]
fn a_scope_of_the_command_line() {
    let (_server, env) = three();
    let mut wharf = env.rpc(&["--model", "fake/one", "--models", "three,fake/two:low"]);
    let scope = json!([
        {"provider": "fake", "id": "three", "name": "three", "reasoning": false},
        {"provider": "fake", "id": "two", "name": "two", "reasoning": true, "thinkingLevel": "low"},
    ]);
    assert_eq!(state(&mut wharf)["scopedModels"], scope);
    // The listing is not scoped.
    assert_eq!(ids(&available(&mut wharf)).len(), 4);
    let mut cycle = || {
        let data = wharf.data(json!({"type": "cycle_model"}));
        assert_eq!(data["isScoped"], true);
        (data["model"]["id"].clone(), data["thinkingLevel"].clone())
    };
    assert_eq!(cycle(), (json!("three"), json!("off")));
    assert_eq!(cycle(), (json!("two"), json!("low")));
    assert_eq!(cycle(), (json!("three"), json!("off")));
    // Outside of the scope a model can still be named.
    assert_eq!(wharf.data(set_model("one"))["id"], "one");
}

#[test]
fn a_scope_of_the_settings_gives_way_to_the_flag() {
    let (_server, env) = three();
    env.write_agent(
        "settings.json",
        json!({"autoSessionName": false, "enabledModels": ["fake/t*", "none-such"]}).to_string(),
    );
    let scope = |wharf: &mut Wharf| ids(&state(wharf)["scopedModels"]);
    let mut wharf = env.rpc(&ONE);
    assert_eq!(scope(&mut wharf), ["two", "three"]);
    let exit = wharf.finish();
    assert!(exit.stderr.contains("none-such"), "nobody was told: {}", exit.stderr);
    let mut wharf = env.rpc(&["--model", "fake/one", "--models", "one"]);
    assert_eq!(scope(&mut wharf), ["one"]);
    env.write_agent("settings.json", json!({"autoSessionName": false}).to_string());
    let mut wharf = env.rpc(&ONE);
    assert_eq!(state(&mut wharf)["scopedModels"], json!([]));
}

#[test]
fn a_run_without_a_model_has_none() {
    let (_server, env) = three();
    let mut wharf = env.rpc(&[]);
    let now = state(&mut wharf);
    assert_eq!((now.get("model"), &now["thinkingLevel"]), (Some(&Value::Null), &json!("off")));
    assert!(now.get("contextUsage").is_none(), "{now}");
    let stats = wharf.data(json!({"type": "get_session_stats"}));
    assert!(stats.get("contextUsage").is_none(), "{stats}");
    let levels = wharf.request(json!({"type": "cycle_thinking_level"}));
    assert_eq!(levels["data"], Value::Null);
    assert_eq!(levels["success"], true);
    let problem = error(&mut wharf, &json!({"type": "prompt", "message": "hi"}));
    assert!(problem.contains("--model") || problem.contains("set_model"), "{problem}");
    // Then it gets one.
    let data = wharf.data(json!({"type": "cycle_model"}));
    assert!(data["model"].is_object(), "{data}");
    wharf.data(set_model("one"));
    wharf.run("hi");
}

#[test]
fn a_broken_settings_file_is_told_and_the_change_works() {
    for broken in ["{\"defaultModel\": ", "[]", "\u{feff}{\"a\": 1}}", "{\"a\": \"\u{1}\"}"] {
        let (server, env) = three();
        env.write_agent("settings.json", broken);
        let mut wharf = env.rpc(&["--model", "fake/one", "--no-session"]);
        wharf.data(set_model("two"));
        done(&mut wharf, &json!({"type": "set_thinking_level", "level": "high"}));
        let now = state(&mut wharf);
        assert_eq!((&now["model"]["id"], &now["thinkingLevel"]), (&json!("two"), &json!("high")));
        wharf.run("hi");
        assert_eq!(server.requests()[0].body["model"], "two");
        let text = fs::read_to_string(env.agent_dir().join("settings.json")).unwrap();
        assert_eq!(text, broken, "the broken file was touched");
        let exit = wharf.finish();
        let told = exit.all.iter().any(|line| {
            line["type"] == "extension_error"
                && line["extensionPath"]
                    .as_str()
                    .is_some_and(|path| path.ends_with("settings.json"))
                && line["error"]
                    .as_str()
                    .is_some_and(|error| error.starts_with("Cannot write settings"))
        });
        assert!(told, "{broken}: {}", exit.transcript);
        assert_eq!(exit.code, Some(0));
    }
}

#[test]
fn a_settings_file_that_cannot_be_written() {
    let (_server, env) = three();
    let file = env.agent_dir().join("settings.json");
    let before = fs::read(&file).unwrap();
    let mut permissions = fs::metadata(&file).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&file, permissions).unwrap();
    let mut wharf = env.rpc(&ONE);
    wharf.data(set_model("two"));
    assert_eq!(state(&mut wharf)["model"]["id"], "two");
    let told = wharf.wait_extension_error("settings.json");
    let problem = told["error"].as_str().unwrap();
    assert!(problem.starts_with("Failed to persist settings: "), "{problem}");
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn changes_of_two_processes_both_stay() {
    let (_server, env) = three();
    let mut one = env.rpc(&ONE);
    let mut two = env.rpc(&ONE);
    one.data(set_model("two"));
    done(&mut two, &json!({"type": "set_steering_mode", "mode": "all"}));
    done(&mut one, &json!({"type": "set_auto_retry", "enabled": false}));
    let all = settings(&env);
    assert_eq!(all["defaultModel"], "two");
    assert_eq!(all["steeringMode"], "all");
    assert_eq!(all["retry"], json!({"baseDelayMs": 1, "enabled": false}));
}

#[test]
fn a_model_whose_window_is_too_small_is_seen_in_the_usage() {
    let server = LlmServer::start();
    server.default_reply(Answer::says("ok").usage(wharf_tests::llm::Usage {
        input: 100,
        output: 50,
        cache_read: 40,
        cache_write: 0,
        reasoning: 0,
    }));
    let cost =
        json!({"input": 1_000_000, "output": 2_000_000, "cacheRead": 500_000, "cacheWrite": 0});
    let env = serving(
        &server,
        &json!([{"id": "one", "contextWindow": 1900, "cost": cost}, {"id": "two", "contextWindow": 190_000}]),
    );
    env.write_agent(
        "settings.json",
        json!({"autoSessionName": false, "compaction": {"enabled": false}}).to_string(),
    );
    let mut wharf = env.rpc(&ONE);
    let stats = wharf.data(json!({"type": "get_session_stats"}));
    assert_eq!(stats["totalMessages"], 0);
    assert_eq!(
        stats["tokens"],
        json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0})
    );
    wharf.run("hi");
    let stats = wharf.data(json!({"type": "get_session_stats"}));
    let now = state(&mut wharf);
    let expected = json!({
        "sessionFile": now["sessionFile"], "sessionId": now["sessionId"],
        "userMessages": 1, "assistantMessages": 1, "toolCalls": 0, "toolResults": 0, "totalMessages": 2,
        "tokens": {"input": 100, "output": 50, "cacheRead": 40, "cacheWrite": 0, "total": 190},
        "cost": 220.0,
        "contextUsage": {"tokens": 190, "contextWindow": 1900, "percent": 10.0},
    });
    assert_eq!(stats, expected);
    assert_eq!(now["contextUsage"], stats["contextUsage"]);
    wharf.data(set_model("two"));
    let stats = wharf.data(json!({"type": "get_session_stats"}));
    assert_eq!(
        stats["contextUsage"],
        json!({"tokens": 190, "contextWindow": 190_000, "percent": 0.1})
    );
}

#[test]
fn stats_count_calls_and_a_session_without_a_file() {
    let env = Env::new();
    let model = env.script(&[bash("echo a"), says("done")]);
    let mut wharf = env.rpc(&["--model", &model, "--no-session"]);
    wharf.run("go");
    wharf.data(json!({"type": "bash", "command": "echo b"}));
    let stats = wharf.data(json!({"type": "get_session_stats"}));
    assert!(stats.get("sessionFile").is_none(), "{stats}");
    let counts: Vec<&Value> =
        ["userMessages", "assistantMessages", "toolCalls", "toolResults", "totalMessages"]
            .iter()
            .map(|field| &stats[field])
            .collect();
    assert_eq!(counts, [1, 2, 1, 1, 5]);
}

#[test]
fn performance_is_recorded_by_model() {
    let (_server, env) = three();
    let mut wharf = env.rpc(&ONE);
    let response = wharf.request(json!({"type": "get_performance_stats"}));
    assert_eq!(response["data"], json!({"models": []}));
    assert_eq!(wharf.finish().code, Some(0));
    let now = wharf_now();
    let line = |model: &str, at: &str, tps: f64| {
        json!({"timestamp": at, "sessionId": "s", "provider": "fake", "modelId": model,
            "outputTokens": 100, "durationMs": 1000, "tps": tps})
    };
    let lines = [
        line("one", &now, 10.0),
        line("one", &now, 20.0),
        line("one", &now, 60.0),
        line("two", &now, 5.0),
    ];
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    text.push_str("{\"torn\": \n");
    env.write_agent("performance.jsonl", text);
    let mut wharf = env.rpc(&ONE);
    let mut models = wharf.data(json!({"type": "get_performance_stats"}))["models"].clone();
    models.as_array_mut().unwrap().sort_by_key(|model| model["modelId"].to_string());
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!(models.as_array().unwrap().len(), 2, "{models}");
    assert_eq!(models[0].as_object().unwrap().len(), 5, "{}", models[0]);
    assert_eq!((number(&models[0]["median"]), number(&models[0]["mean"])), (20.0, 30.0));
    assert_eq!((&models[0]["provider"], &models[0]["count"]), (&json!("fake"), &json!(3)));
    assert_eq!((&models[1]["modelId"], &models[1]["count"]), (&json!("two"), &json!(1)));
}

/// The time as the log writes it.
fn wharf_now() -> String {
    let env = Env::new();
    let output =
        env.command().args(["--mode", "json", "--model", "scripted/demo", "hello"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    header["timestamp"].as_str().unwrap().to_owned()
}

#[test]
fn a_reply_is_recorded_as_documented() {
    let env = Env::new();
    // Slower than the 10 ms below which nothing is recorded.
    let model = env.script(&[json!({
        "delayMs": 20, "content": [{"type": "text", "text": "slowly"}], "usage": {"input": 1, "output": 40},
    })]);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.run("hi");
    let id = state(&mut wharf)["sessionId"].clone();
    let models = wharf.data(json!({"type": "get_performance_stats"}))["models"].clone();
    assert_eq!(
        (&models[0]["provider"], &models[0]["count"]),
        (&json!("scripted"), &json!(1)),
        "{models}"
    );
    assert_eq!(wharf.finish().code, Some(0));
    let text = fs::read_to_string(env.agent_dir().join("performance.jsonl")).unwrap();
    let line: Value = serde_json::from_str(text.trim()).unwrap();
    let mut keys: Vec<&String> = line.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(
        keys,
        ["durationMs", "modelId", "outputTokens", "provider", "sessionId", "timestamp", "tps"]
    );
    assert_eq!((&line["sessionId"], &line["outputTokens"]), (&id, &json!(40)));
    let (millis, tps) = (line["durationMs"].as_f64().unwrap(), line["tps"].as_f64().unwrap());
    assert!(millis >= 20.0 && (tps - 40_000.0 / millis).abs() < 1.0, "{line}");
}

#[test]
fn the_fastest_replies_and_failures_are_not_recorded() {
    let server = LlmServer::start();
    server.reply(wharf_tests::llm::Failure::Authentication);
    let env = serving(&server, &json!([{"id": "one"}]));
    let mut wharf = env.rpc(&ONE);
    let run = wharf.run("hi");
    let reply = run.iter().rfind(|line| line["type"] == "turn_end").unwrap();
    assert_eq!(reply["message"]["stopReason"], "error", "{reply}");
    assert_eq!(text_of(&reply["message"]), "");
    assert_eq!(wharf.data(json!({"type": "get_performance_stats"})), json!({"models": []}));
}
