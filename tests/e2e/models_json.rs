//! `models.json`: what each of its fields does to the requests and to what a client is
//! told; and what becomes of a file that is wrong.

use std::fs;

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Api, LlmServer, Recorded};
use wharf_tests::{Env, Wharf};

use crate::lab::{quiet, sent};
use crate::order::texts;

/// An environment whose `models.json` has these providers.
fn with(providers: &Value) -> Env {
    let env = Env::new();
    env.write_agent("settings.json", quiet().to_string());
    env.write_agent("models.json", json!({ "providers": providers }).to_string());
    env
}

fn answering() -> LlmServer {
    let server = LlmServer::start();
    server.default_reply(Answer::says("ok"));
    server
}

fn url(server: &LlmServer, api: Api) -> String {
    format!("{}{}", server.base_url(), api.base_path())
}

/// Sends one prompt with these arguments, and gives the request.
#[track_caller]
fn asked(env: &Env, server: &LlmServer, args: &[&str]) -> Recorded {
    let mut all = vec!["--no-session"];
    all.extend(args);
    let mut wharf = env.rpc(&all);
    let run = wharf.run("hi");
    assert_eq!(texts(&run, "assistant"), ["ok"], "{}", wharf.transcript());
    server.requests().pop().unwrap()
}

fn models(wharf: &mut Wharf, provider: &str) -> Vec<Value> {
    let data = wharf.data(json!({"type": "get_available_models"}));
    data["models"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|model| model["provider"] == provider)
        .cloned()
        .collect()
}

#[test]
fn each_api_carries_the_key_in_its_own_header_or_as_bearer_never_in_both() {
    for api in Api::ALL {
        for bearer in [false, true] {
            let server = answering();
            let env = with(&json!({"mine": {
                "baseUrl": url(&server, api), "api": api.name(), "apiKey": "sk-secret",
                "authHeader": bearer, "models": [{"id": "m"}],
            }}));
            let request = asked(&env, &server, &["--model", "mine/m"]);
            let own = match api {
                Api::AnthropicMessages => Some("x-api-key"),
                Api::GoogleGenerativeAi => Some("x-goog-api-key"),
                Api::OpenaiCompletions | Api::OpenaiResponses => None,
            };
            let context = format!("{} {bearer}: {:?}", api.name(), request.headers);
            let is_bearer = bearer || own.is_none();
            let authorization = is_bearer.then_some("Bearer sk-secret");
            assert_eq!(request.header("authorization"), authorization, "{context}");
            if let Some(own) = own {
                assert_eq!(request.header(own), (!bearer).then_some("sk-secret"), "{context}");
            }
            assert!(
                request.query.as_deref().is_none_or(|query| !query.contains("secret")),
                "{context}"
            );
        }
    }
}

/// Whoever writes a key into the headers means that one.
#[test]
fn a_key_among_the_headers_takes_the_place_of_all_others() {
    for header in ["Authorization", "x-api-key"] {
        let server = answering();
        let env = with(&json!({"anthropic": {
            "baseUrl": server.base_url(), "headers": {header: "Bearer of-header"},
        }}));
        let mut command = env.command();
        command.args(["--mode", "rpc", "--no-session", "--model", "anthropic/claude-opus-4-8"]);
        command.env("ANTHROPIC_API_KEY", "of-environment");
        let mut wharf = Wharf::start(command, env.names());
        wharf.run("hi");
        let request = server.requests().pop().unwrap();
        assert_eq!(request.header(&header.to_lowercase()), Some("Bearer of-header"));
        let values = request.headers.iter().filter(|(_, value)| value.contains("of-")).count();
        assert_eq!(values, 1, "{:?}", request.headers);
    }
}

#[test]
fn a_slash_at_the_end_of_an_address_is_no_matter() {
    for api in Api::ALL {
        let server = answering();
        let env = with(&json!({"mine": {
            "baseUrl": format!("{}/", url(&server, api)), "api": api.name(), "apiKey": "k",
            "models": [{"id": "m"}],
        }}));
        let request = asked(&env, &server, &["--model", "mine/m"]);
        assert!(!request.path.contains("//"), "{}", request.path);
    }
}

#[test]
fn a_built_in_provider_is_redirected() {
    let server = answering();
    let env = with(&json!({"anthropic": {
        "baseUrl": server.base_url(), "apiKey": "k", "headers": {"X-Team": "blue"},
    }}));
    let mut wharf = env.rpc(&["--model", "anthropic/claude-opus-4-8", "--no-session"]);
    let of_it = models(&mut wharf, "anthropic");
    assert!(of_it.len() > 5, "{of_it:?}");
    assert!(of_it.iter().all(|model| model["baseUrl"] == server.base_url()), "{of_it:?}");
    wharf.run("hi");
    let request = server.requests().pop().unwrap();
    assert_eq!(request.body["model"], "claude-opus-4-8");
    assert_eq!((request.header("x-team"), request.header("x-api-key")), (Some("blue"), Some("k")));
}

#[test]
fn models_are_added_to_a_built_in_provider_and_replace_those_of_the_same_id() {
    let server = answering();
    let env = with(&json!({"anthropic": {
        "baseUrl": server.base_url(), "apiKey": "k",
        "models": [{"id": "claude-opus-4-8", "name": "Mine"}, {"id": "new-one", "maxTokens": 77}],
        "modelOverrides": {
            "claude-opus-4-7": {"name": "Patched", "contextWindow": 5000, "cost": {"output": 9}},
            "unknown": {"name": "Nobody"},
        },
    }}));
    let mut wharf = env.rpc(&["--model", "anthropic/new-one", "--no-session"]);
    let of_it = models(&mut wharf, "anthropic");
    let find = |id: &str| {
        let mut found = of_it.iter().filter(|model| model["id"] == id);
        let model = found.next().unwrap();
        assert!(found.next().is_none(), "{id} stands twice");
        model.clone()
    };
    // A replaced one keeps nothing of the built-in.
    let mine = find("claude-opus-4-8");
    assert_eq!((&mine["name"], &mine["contextWindow"]), (&json!("Mine"), &json!(128_000)));
    assert_eq!((&mine["reasoning"], &mine["input"]), (&json!(false), &json!(["text"])));
    assert_eq!(find("new-one")["api"], "anthropic-messages");
    // A patched one keeps the rest.
    let patched = find("claude-opus-4-7");
    assert_eq!((&patched["name"], &patched["contextWindow"]), (&json!("Patched"), &json!(5000)));
    assert_eq!(patched["reasoning"], true);
    assert_eq!(patched["cost"]["output"], 9.0);
    assert!(patched["cost"]["input"].as_f64().unwrap() > 0.0, "{patched}");
    assert!(of_it.iter().all(|model| model["id"] != "unknown"));
    wharf.run("hi");
    assert_eq!(server.requests()[0].body["max_tokens"], 77);
    let exit = wharf.finish();
    assert!(exit.all.iter().all(|line| line["type"] != "extension_error"), "{}", exit.transcript);
}

#[test]
fn the_api_of_a_model_goes_before_its_providers() {
    let server = answering();
    let env = with(&json!({"mine": {
        "baseUrl": format!("{}/v1", server.base_url()), "api": "openai-completions", "apiKey": "k",
        "models": [{"id": "a"}, {"id": "b", "api": "openai-responses"}, {"id": "c", "api": "anthropic-messages"}],
    }}));
    for (id, path) in [("a", "/chat/completions"), ("b", "/responses"), ("c", "/messages")] {
        let request = asked(&env, &server, &["--model", &format!("mine/{id}")]);
        assert!(request.path.ends_with(path), "{id}: {}", request.path);
    }
}

#[test]
fn headers_are_literals_variables_and_commands() {
    let server = answering();
    let env = with(&json!({"mine": {
        "baseUrl": url(&server, Api::OpenaiCompletions), "api": "openai-completions",
        "apiKey": "!echo ran >> key-runs; echo '  from-command  '",
        "headers": {
            "x-literal": "plain text", "x-variable": "TEST_HEADER", "x-unset": "TEST_UNSET",
            "x-command": "!printf 'a b'",
        },
        "models": [{"id": "m"}],
    }}));
    let mut command = env.command();
    command.args(["--mode", "rpc", "--no-session", "--model", "mine/m"]);
    command.env("TEST_HEADER", "value of it");
    let mut wharf = Wharf::start(command, env.names());
    // Nothing is run to list models.
    models(&mut wharf, "mine");
    assert!(!fs::exists(env.project().join("key-runs")).unwrap(), "a listing ran the command");
    wharf.run("hi");
    wharf.run("again");
    let request = server.requests().pop().unwrap();
    let header = |name: &str| request.header(name).map(str::to_owned).unwrap_or_default();
    assert_eq!(header("x-literal"), "plain text");
    assert_eq!(header("x-variable"), "value of it");
    assert_eq!(header("x-unset"), "TEST_UNSET");
    assert_eq!(header("x-command"), "a b");
    assert_eq!(header("authorization"), "Bearer from-command");
    assert_eq!(fs::read_to_string(env.project().join("key-runs")).unwrap(), "ran\n");
}

#[test]
fn a_key_command_that_fails_is_told_without_what_it_printed() {
    for (command, told) in [
        ("!echo sk-half; exit 3", "exit"),
        ("!true", "nothing"),
        ("!no-such-command-here", "no-such-command-here"),
    ] {
        let server = answering();
        let env = with(&json!({"mine": {
            "baseUrl": url(&server, Api::OpenaiCompletions), "api": "openai-completions",
            "apiKey": command, "models": [{"id": "m"}],
        }}));
        let mut wharf = env.rpc(&["--model", "mine/m"]);
        let run = wharf.run("hi");
        let reply = run.iter().rfind(|line| line["type"] == "turn_end").unwrap();
        let problem = reply["message"]["errorMessage"].as_str().unwrap();
        assert!(problem.contains("mine") && problem.contains(told), "{command}: {problem}");
        assert!(server.requests().is_empty());
        let exit = wharf.finish();
        assert!(
            !exit.transcript.contains("\"sk-half") && exit.code == Some(0),
            "{}",
            exit.transcript
        );
    }
}

/// Whether a request is as it should be.
type Fits = fn(&Value) -> bool;

/// The request of a conversation with a call, its result and thinking, at a server with
/// this `compat`.
fn shaped(compat: &Value, level: &str) -> Value {
    let server = LlmServer::start();
    server.reply(Answer::default().thinking("hm", "").call(
        "call_1",
        "bash",
        &json!({"command": "echo hi"}),
    ));
    server.default_reply(Answer::says("ok"));
    let env = with(&json!({"mine": {
        "baseUrl": url(&server, Api::OpenaiCompletions), "api": "openai-completions", "apiKey": "k",
        "models": [{"id": "m", "reasoning": true, "maxTokens": 1000, "compat": compat}],
    }}));
    let mut wharf = env.rpc(&["--no-session", "--model", "mine/m", "--thinking", level]);
    wharf.run("hi");
    wharf.run("again");
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    requests[2].body.clone()
}

#[test]
fn compat_shapes_the_request() {
    let role = |body: &Value, role: &str| {
        body["messages"].as_array().unwrap().iter().any(|message| message["role"] == role)
    };
    let body = shaped(&json!({"supportsStore": true, "supportsDeveloperRole": true}), "low");
    assert_eq!(body["store"], false);
    assert!(role(&body, "developer") && !role(&body, "system"), "{body}");
    let body = shaped(&json!({"supportsStore": false, "supportsDeveloperRole": false}), "low");
    assert!(body.get("store").is_none());
    assert!(role(&body, "system") && !role(&body, "developer"), "{body}");

    let body = shaped(&json!({"supportsReasoningEffort": true}), "low");
    assert_eq!(body["reasoning_effort"], "low");
    let body = shaped(&json!({"supportsReasoningEffort": false}), "low");
    assert!(body.get("reasoning_effort").is_none(), "{body}");
    let map = json!({"reasoningEffortMap": {"low": "tiny", "high": null}});
    assert_eq!(shaped(&map, "low")["reasoning_effort"], "tiny");
    assert!(shaped(&map, "high").get("reasoning_effort").is_none());

    let body = shaped(&json!({}), "off");
    assert_eq!(body["stream_options"]["include_usage"], true);
    let body = shaped(&json!({"supportsUsageInStreaming": false}), "off");
    assert!(body.get("stream_options").is_none(), "{body}");

    for field in ["max_tokens", "max_completion_tokens"] {
        let body = shaped(&json!({"maxTokensField": field}), "off");
        assert_eq!(body[field], 1000, "{body}");
        let both = body.get("max_tokens").is_some() && body.get("max_completion_tokens").is_some();
        assert!(!both, "{body}");
    }

    let result = |body: &Value| {
        let messages = body["messages"].as_array().unwrap();
        let at = messages.iter().position(|message| message["role"] == "tool").unwrap();
        (messages[at].clone(), messages[at + 1].clone())
    };
    let (message, _) = result(&shaped(&json!({"requiresToolResultName": true}), "off"));
    assert_eq!(message["name"], "bash");
    let (message, _) = result(&shaped(&json!({"requiresToolResultName": false}), "off"));
    assert!(message.get("name").is_none(), "{message}");
    let (_, next) = result(&shaped(&json!({"requiresAssistantAfterToolResult": true}), "off"));
    assert_eq!(next["role"], "assistant");

    let body = shaped(&json!({"requiresThinkingAsText": true}), "low");
    let call = body["messages"].as_array().unwrap().iter().find(|m| m["tool_calls"].is_array());
    assert!(call.unwrap()["content"].to_string().contains("hm"), "{body}");

    let formats: [(&str, Fits); 5] = [
        ("openai", |body| {
            body["reasoning_effort"] == "low" || body.get("reasoning_effort").is_none()
        }),
        ("openrouter", |body| body["reasoning"]["effort"] == "low"),
        ("zai", |body| body["thinking"]["type"] == "enabled"),
        ("qwen", |body| body["enable_thinking"] == true),
        ("qwen-chat-template", |body| body["chat_template_kwargs"]["enable_thinking"] == true),
    ];
    for (format, fits) in formats {
        let body = shaped(&json!({"thinkingFormat": format}), "low");
        assert!(fits(&body), "{format}: {body}");
    }

    let strict = |body: &Value| body["tools"][0]["function"].get("strict").cloned();
    assert!(strict(&shaped(&json!({"supportsStrictMode": true}), "off")).is_some());
    assert_eq!(strict(&shaped(&json!({"supportsStrictMode": false}), "off")), None);

    let routing = json!({"only": ["a"], "order": ["b"]});
    // Each belongs to one server; elsewhere it may be left out, but never garbled.
    let body = shaped(&json!({"openRouterRouting": routing}), "off");
    assert!(body.get("provider").is_none_or(|sent| *sent == routing), "{body}");
    let body = shaped(&json!({"vercelGatewayRouting": routing}), "off");
    let sent = body.get("providerOptions").map(|options| options["gateway"].clone());
    assert!(sent.is_none_or(|sent| sent == routing), "{body}");
}

#[test]
fn compat_of_a_model_goes_over_its_providers() {
    let server = answering();
    let env = with(&json!({"mine": {
        "baseUrl": url(&server, Api::OpenaiCompletions), "api": "openai-completions", "apiKey": "k",
        "compat": {"maxTokensField": "max_tokens", "supportsUsageInStreaming": false},
        "models": [{"id": "a"}, {"id": "b", "compat": {"maxTokensField": "max_completion_tokens"}}],
    }}));
    let request = asked(&env, &server, &["--model", "mine/a"]);
    assert!(request.body.get("max_tokens").is_some(), "{}", request.body);
    let request = asked(&env, &server, &["--model", "mine/b"]);
    assert!(request.body.get("max_completion_tokens").is_some(), "{}", request.body);
    assert!(request.body.get("stream_options").is_none(), "{}", request.body);
}

/// The system prompt that a model is given.
fn system_prompt(env: &Env, server: &LlmServer, args: &[&str]) -> String {
    let request = asked(env, server, args);
    let mut text = sent(&request, "system");
    text.extend(sent(&request, "developer"));
    text.join("\n")
}

#[test]
fn a_model_may_have_its_own_system_prompt() {
    let server = answering();
    let env = with(&json!({"mine": {
        "baseUrl": url(&server, Api::OpenaiCompletions), "api": "openai-completions", "apiKey": "k",
        "models": [
            {"id": "a"}, {"id": "b", "systemPrompt": "BE SHORT"}, {"id": "c", "appendSystemPrompt": "AND KIND"},
            {"id": "d", "systemPrompt": "BE SHORT"},
        ],
    }}));
    let mut settings = quiet();
    settings["modelSettings"] = json!({
        "mine/d": {"systemPrompt": "BE LONG"}, "mine/c": {"appendSystemPrompt": "OR NOT"},
        "mine/none": {"systemPrompt": "NEVER"},
    });
    env.write_agent("settings.json", settings.to_string());
    let usual = system_prompt(&env, &server, &["--model", "mine/a"]);
    assert!(usual.len() > 100, "{usual}");
    let of_b = system_prompt(&env, &server, &["--model", "mine/b"]);
    assert!(of_b.starts_with("BE SHORT") && !of_b.contains(&usual[..40]), "{of_b}");
    let of_c = system_prompt(&env, &server, &["--model", "mine/c"]);
    assert!(of_c.starts_with(&usual[..40]), "{of_c}");
    // The settings go before the file.
    assert!(of_c.contains("OR NOT"), "{of_c}");
    let of_d = system_prompt(&env, &server, &["--model", "mine/d"]);
    assert!(of_d.contains("BE LONG") && !of_d.contains("BE SHORT"), "{of_d}");
    // What a person asks for goes before all.
    let flag = system_prompt(&env, &server, &["--model", "mine/d", "--system-prompt", "MINE"]);
    assert!(flag.contains("MINE") && !flag.contains("BE LONG"), "{flag}");
}

#[test]
fn a_switch_of_the_model_switches_its_system_prompt_too() {
    let server = answering();
    let env = with(&json!({"mine": {
        "baseUrl": url(&server, Api::OpenaiCompletions), "api": "openai-completions", "apiKey": "k",
        "models": [{"id": "a", "systemPrompt": "I AM A"}, {"id": "b", "systemPrompt": "I AM B"}],
    }}));
    let mut wharf = env.rpc(&["--no-session", "--model", "mine/a"]);
    wharf.run("hi");
    wharf.data(json!({"type": "set_model", "provider": "mine", "modelId": "b"}));
    wharf.run("hi");
    let requests = server.requests();
    let first: Vec<String> =
        requests.iter().map(|r| r.body["messages"][0]["content"].to_string()).collect();
    assert!(first[0].contains("I AM A"), "{first:?}");
    assert!(first[1].contains("I AM B") && !first[1].contains("I AM A"), "{first:?}");
}

#[test]
fn the_file_is_read_again_with_each_listing() {
    let server = answering();
    let entry = |ids: &[&str]| {
        let models: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
        json!({"providers": {"mine": {
            "baseUrl": url(&server, Api::OpenaiCompletions), "api": "openai-completions", "apiKey": "k",
            "models": models,
        }}})
        .to_string()
    };
    let env = with(&json!({}));
    env.write_agent("models.json", entry(&["a"]));
    let mut wharf = env.rpc(&["--no-session", "--model", "mine/a"]);
    let ids = |wharf: &mut Wharf| -> Vec<String> {
        models(wharf, "mine").iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&mut wharf), ["a"]);
    env.write_agent("models.json", entry(&["a", "b"]));
    assert_eq!(ids(&mut wharf), ["a", "b"]);
    env.write_agent("models.json", entry(&["a", "b", "c"]));
    assert_eq!(
        wharf.data(json!({"type": "set_model", "provider": "mine", "modelId": "c"}))["id"],
        "c"
    );
    // Broken meanwhile: told with the place, once; the built-ins stay.
    env.write_agent("models.json", "{\"providers\": {\n\"mine\": ");
    assert_eq!(ids(&mut wharf), Vec::<String>::new());
    let told = wharf.wait_extension_error("models.json");
    assert!(told["error"].as_str().unwrap().contains("line 2"), "{told}");
    assert!(!models(&mut wharf, "scripted").is_empty());
    wharf.data(json!({"type": "get_version"}));
    assert!(wharf.passed().all(|line| line["type"] != "extension_error"), "told twice");
    env.write_agent("models.json", entry(&["c", "d"]));
    assert_eq!(ids(&mut wharf), ["c", "d"]);
    wharf.run("hi");
    assert_eq!(server.requests()[0].body["model"], "c");
    fs::remove_file(env.agent_dir().join("models.json")).unwrap();
    assert_eq!(ids(&mut wharf), Vec::<String>::new());
}

/// The model in use has gone from the file: a prompt fails and says so, and a new choice
/// works.
#[test]
fn the_model_in_use_may_go_from_the_file() {
    let server = answering();
    let env = with(&json!({"mine": {
        "baseUrl": url(&server, Api::OpenaiCompletions), "api": "openai-completions", "apiKey": "k",
        "models": [{"id": "a"}],
    }}));
    let mut wharf = env.rpc(&["--no-session", "--model", "mine/a"]);
    wharf.run("hi");
    env.write_agent("models.json", "{}");
    assert!(models(&mut wharf, "mine").is_empty());
    let response = wharf.request(json!({"type": "prompt", "message": "hi"}));
    if response["success"] == true {
        let run = wharf.take_until("agent_end");
        let reply = run.iter().rfind(|line| line["type"] == "turn_end").unwrap();
        let problem = reply["message"]["errorMessage"].as_str().unwrap_or_default();
        assert!(problem.contains("mine/a"), "{reply}");
    } else {
        assert!(response["error"].as_str().unwrap().contains("mine/a"), "{response}");
    }
    wharf.data(json!({"type": "set_model", "provider": "scripted", "modelId": "demo"}));
    wharf.run("hello");
}

#[test]
fn a_broken_part_is_told_with_its_place_and_costs_itself_only() {
    let server = answering();
    let good = json!({
        "baseUrl": url(&server, Api::OpenaiCompletions), "api": "openai-completions", "apiKey": "k",
        "models": [{"id": "good"}, {"id": "bad", "contextWindow": "big"}, {"id": "good-2"}],
    });
    for (broken, place) in [
        (json!({"baseUrl": 5}), "providers.broken.baseUrl"),
        (
            json!({"baseUrl": "ftp://x", "api": "openai-completions", "models": [{"id": "m"}]}),
            "providers.broken.baseUrl",
        ),
        (
            json!({"baseUrl": "http://x", "api": "soap", "models": [{"id": "m"}]}),
            "providers.broken.api",
        ),
        (
            json!({"baseUrl": "http://x", "api": "openai-completions", "models": {}}),
            "providers.broken.models",
        ),
        (
            json!({"baseUrl": "http://x", "api": "openai-completions", "headers": {"a b": "c"}, "models": [{"id": "m"}]}),
            "providers.broken.headers",
        ),
        (
            json!({"baseUrl": "http://x", "api": "openai-completions", "compat": {"maxTokensField": "max"}, "models": [{"id": "m"}]}),
            "providers.broken.compat",
        ),
        (json!([]), "providers.broken"),
    ] {
        let env = with(&json!({"broken": broken, "mine": good}));
        let mut wharf = env.rpc(&["--no-session", "--model", "mine/good"]);
        let ids: Vec<Value> = models(&mut wharf, "mine").iter().map(|m| m["id"].clone()).collect();
        assert_eq!(ids, ["good", "good-2"]);
        let exit = wharf.finish();
        let errors: Vec<&str> = exit
            .all
            .iter()
            .filter(|line| line["type"] == "extension_error")
            .map(|line| line["error"].as_str().unwrap())
            .collect();
        for place in [place, "providers.mine.models[1].contextWindow"] {
            assert!(errors.iter().any(|error| error.contains(place)), "{place}: {errors:?}");
            assert!(exit.stderr.contains(place), "{place}: {}", exit.stderr);
        }
        assert_eq!(exit.code, Some(0));
    }
}

#[test]
fn a_file_that_is_no_json_leaves_the_built_ins() {
    for (text, told) in
        [("{\n\"providers\": {,}}", "line 2"), ("[1]", "providers"), ("\u{0}", "models.json")]
    {
        let env = Env::new();
        env.write_agent("models.json", text);
        let mut wharf = env.rpc(&["--no-session", "--model", "scripted/demo"]);
        wharf.run("hello");
        assert!(!models(&mut wharf, "scripted").is_empty());
        let exit = wharf.finish();
        assert!(
            exit.stderr.contains("models.json") && exit.stderr.contains(told),
            "{}",
            exit.stderr
        );
        assert_eq!(exit.code, Some(0));
    }
}

#[test]
fn a_scripted_provider_of_the_file() {
    let env = with(
        &json!({"play": {"api": "scripted", "baseUrl": "replies.jsonl", "models": [{"id": "one"}, {"id": "two"}]}}),
    );
    env.write_agent(
        "replies.jsonl",
        json!({"repeat": true, "content": [{"type": "text", "text": "played"}]}).to_string(),
    );
    let mut wharf = env.rpc(&["--no-session", "--model", "play/one"]);
    let run = wharf.run("hi");
    assert_eq!(texts(&run, "assistant"), ["played"]);
    assert_eq!(models(&mut wharf, "play").len(), 2);
}
