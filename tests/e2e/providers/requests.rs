//! What stands in a request beside the conversation: keys, headers, `compat`, images;
//! and the connections that requests share.

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Api, Close, LlmServer, Reply, Strictness};

use super::{Fake, PNG, finish, messages, png};
use crate::order::{text_of, texts};

/// The header of an API's own for the key, and its value.
const fn key_header(api: Api) -> (&'static str, &'static str) {
    match api {
        Api::AnthropicMessages => ("x-api-key", "fake-key"),
        Api::OpenaiCompletions | Api::OpenaiResponses => ("authorization", "Bearer fake-key"),
        Api::GoogleGenerativeAi => ("x-goog-api-key", "fake-key"),
    }
}

const KEY_HEADERS: [&str; 4] = ["x-api-key", "authorization", "x-goog-api-key", "api-key"];

#[test]
fn the_key_goes_into_the_apis_own_header() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        fake.server.reply(Answer::says("ok"));
        let mut wharf = fake.rpc();
        wharf.run("go");
        let request = fake.last_request();
        let (header, value) = key_header(api);
        for name in KEY_HEADERS {
            let expected = (name == header).then_some(value);
            assert_eq!(request.header(name), expected, "{api:?} {name}");
        }
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert!(!request.path.contains("fake-key"));
        finish(wharf, 1);
    }
}

#[test]
fn auth_header_is_a_bearer_token_and_nothing_else() {
    for api in Api::ALL {
        let fake = Fake::with(api, &json!({"authHeader": true}));
        fake.server.reply(Answer::says("ok"));
        let mut wharf = fake.rpc();
        wharf.run("go");
        let request = fake.last_request();
        for name in KEY_HEADERS {
            let expected = (name == "authorization").then_some("Bearer fake-key");
            assert_eq!(request.header(name), expected, "{api:?} {name}");
        }
        finish(wharf, 1);
    }
}

#[test]
fn keys_and_header_values_from_commands_the_environment_and_as_they_are() {
    for api in Api::ALL {
        let fake = Fake::with(
            api,
            &json!({
                "apiKey": "!printf 'key of a command\\n'; printf noise >&2",
                "headers": {"X-Plain": "plain", "X-Env": "SOME_VARIABLE", "X-Command": "!echo made"},
            }),
        );
        fake.server.reply(Answer::says("ok"));
        let mut command = fake.env.command();
        command
            .args(["--mode", "json", "--model", &fake.model, "go"])
            .env("SOME_VARIABLE", "of the environment");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let request = fake.last_request();
        let (header, value) = key_header(api);
        let expected = value.replace("fake-key", "key of a command");
        assert_eq!(request.header(header), Some(expected.as_str()), "{api:?}");
        assert_eq!(request.header("x-plain"), Some("plain"), "{api:?}");
        assert_eq!(request.header("x-env"), Some("of the environment"), "{api:?}");
        assert_eq!(request.header("x-command"), Some("made"), "{api:?}");
    }
}

#[test]
fn the_command_lines_key_goes_before_the_files() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        fake.server.reply(Answer::says("ok"));
        let mut wharf = fake.rpc_args(&["--api-key", "other-key"]);
        wharf.run("go");
        let (header, value) = key_header(api);
        let expected = value.replace("fake-key", "other-key");
        assert_eq!(fake.last_request().header(header), Some(expected.as_str()), "{api:?}");
        finish(wharf, 1);
    }
}

#[test]
fn a_key_command_that_fails_is_an_error_that_is_not_tried_again() {
    for api in Api::ALL {
        let fake = Fake::with(api, &json!({"apiKey": "!exit 3"}));
        let mut wharf = fake.rpc();
        let response = wharf.request(json!({"type": "prompt", "message": "go"}));
        if response["success"] == true {
            let run = wharf.take_until("agent_end");
            let reply = messages(&run, "assistant")[0];
            assert_eq!(reply["stopReason"], "error", "{api:?}: {reply}");
            assert!(!reply["errorMessage"].as_str().unwrap().is_empty());
            assert!(!run.iter().any(|line| line["type"] == "auto_retry_start"), "{run:?}");
        }
        assert!(fake.server.requests().is_empty(), "{api:?}");
    }
}

#[test]
fn compat_says_what_a_server_takes() {
    type Check = fn(&Value);
    let of: [(Value, Check); 8] = [
        (json!({"maxTokensField": "max_tokens"}), |body| {
            assert!(body["max_tokens"].is_u64() && body.get("max_completion_tokens").is_none());
        }),
        (json!({"maxTokensField": "max_completion_tokens"}), |body| {
            assert!(body["max_completion_tokens"].is_u64() && body.get("max_tokens").is_none());
        }),
        (json!({"supportsStore": false}), |body| assert!(body.get("store").is_none())),
        (json!({"supportsStore": true}), |body| assert_eq!(body["store"], false)),
        (json!({"supportsDeveloperRole": true}), |body| {
            assert_eq!(body["messages"][0]["role"], "developer");
        }),
        (json!({"supportsDeveloperRole": false}), |body| {
            assert_eq!(body["messages"][0]["role"], "system");
        }),
        (json!({"supportsUsageInStreaming": false}), |body| {
            assert!(body.get("stream_options").is_none());
        }),
        (
            json!({"supportsReasoningEffort": true, "reasoningEffortMap": {"high": "most"}}),
            |body| assert_eq!(body["reasoning_effort"], "most"),
        ),
    ];
    for (compat, check) in of {
        let extra = json!({"reasoning": true, "compat": compat});
        let fake = Fake::with(Api::OpenaiCompletions, &extra);
        fake.server.reply(Answer::says("ok"));
        let mut wharf = fake.rpc_args(&["--thinking", "high"]);
        wharf.run("go");
        check(&fake.last_request().body);
        finish(wharf, 1);
    }
}

#[test]
fn compat_for_what_follows_a_tool_result() {
    let compat = json!({
        "requiresToolResultName": true, "requiresAssistantAfterToolResult": true,
        "requiresThinkingAsText": true, "thinkingFormat": "qwen",
    });
    let fake = Fake::with(
        Api::OpenaiCompletions,
        &json!({"reasoning": true, "input": ["text", "image"], "compat": compat}),
    );
    fake.env.write("a.png", png());
    let read = json!({"path": "a.png"});
    fake.server.reply(Answer::default().thinking("hm", "").call("c", "read", &read));
    fake.server.reply(Answer::says("done"));
    let mut wharf = fake.rpc_args(&["--thinking", "high"]);
    wharf.run("go");
    let body = fake.last_request().body;
    assert_eq!(body["enable_thinking"], true);
    let roles: Vec<&Value> =
        body["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "user"]);
    assert_eq!(body["messages"][2]["content"], "hm");
    assert!(body["messages"][2].get("reasoning_content").is_none());
    assert_eq!(body["messages"][3]["name"], "read");
    finish(wharf, 1);
}

#[test]
fn servers_that_are_particular_get_what_they_take() {
    let strictness = Strictness {
        alternating_roles: true,
        no_store: true,
        no_developer_role: true,
        known_fields_only: true,
    };
    let extra = json!({"reasoning": true, "compat": {"requiresAssistantAfterToolResult": true}});
    let mut fake = Fake::with(Api::OpenaiCompletions, &extra);
    fake.server = LlmServer::with(strictness);
    let models = fake.server.models_json(fake.api, &extra);
    fake.env.write_agent("models.json", models);
    let slow = fake.server.gate();
    let command = json!({"command": "true"});
    fake.server.reply(Reply::from(Answer::calls("c", "bash", &command)).hold(&slow));
    fake.server.default_reply(Answer::says("ok"));
    let mut wharf = fake.rpc_args(&["--thinking", "high"]);
    wharf.prompt("one");
    slow.wait_reached();
    // Two users in a row, and one behind a tool result.
    for message in ["two", "three"] {
        assert_eq!(wharf.request(json!({"type": "steer", "message": message}))["success"], true);
    }
    slow.open();
    wharf.take_until("agent_end");
    wharf.run("four");
    finish(wharf, 2);
}

/// The images in a request, as base64, in order.
fn images(body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = vec![body];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(list) => rest.extend(list.iter().rev()),
            Value::Object(map) => {
                let url = value["image_url"].as_str().or(value["image_url"]["url"].as_str());
                if value["type"] == "base64" {
                    assert_eq!(value["media_type"], "image/png");
                    found.push(value["data"].as_str().unwrap().to_owned());
                } else if let Some(url) = url {
                    found.push(url.strip_prefix("data:image/png;base64,").unwrap().to_owned());
                } else if value["inlineData"].is_object() {
                    assert_eq!(value["inlineData"]["mimeType"], "image/png");
                    found.push(value["inlineData"]["data"].as_str().unwrap().to_owned());
                } else {
                    rest.extend(map.values().rev());
                }
            }
            _ => {}
        }
    }
    found
}

#[test]
fn images_of_prompts_and_of_read() {
    for api in Api::ALL {
        let fake = Fake::with(api, &json!({"input": ["text", "image"]}));
        fake.env.write("a.png", png());
        fake.env.write("b.txt", "B");
        // The image stands between two results: all results come before it.
        fake.server.reply(Answer::calls("c1", "read", &json!({"path": "a.png"})).call(
            "c2",
            "read",
            &json!({"path": "b.txt"}),
        ));
        fake.server.reply(Answer::says("one pixel"));
        let mut wharf = fake.rpc();
        wharf.data(json!({
            "type": "prompt", "message": "what is it?",
            "images": [{"type": "image", "data": PNG, "mimeType": "image/png"}],
        }));
        let run = wharf.take_until("agent_end");
        let requests = fake.server.requests();
        assert_eq!(images(&requests[0].body), [PNG], "{api:?}");
        assert_eq!(images(&requests[1].body), [PNG, PNG], "{api:?}");
        let result = messages(&run, "toolResult")[0];
        let image = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
        assert!(result["content"].as_array().unwrap().contains(&image), "{result}");
        assert_eq!(texts(&run, "assistant").last().unwrap(), "one pixel", "{api:?}");
        finish(wharf, 1);
    }
}

#[test]
fn a_model_without_images_is_told_that_there_was_one() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        fake.env.write("a.png", png());
        fake.server.reply(Answer::calls("c1", "read", &json!({"path": "a.png"})));
        fake.server.reply(Answer::says("ok"));
        let mut wharf = fake.rpc();
        wharf.data(json!({
            "type": "prompt", "message": "what is it?",
            "images": [{"type": "image", "data": PNG, "mimeType": "image/png"}],
        }));
        wharf.take_until("agent_end");
        for request in fake.server.requests() {
            assert_eq!(images(&request.body), Vec::<String>::new(), "{api:?}");
            assert!(request.body.to_string().contains("image left out"), "{api:?}");
        }
        finish(wharf, 1);
    }
}

#[test]
fn connections_serve_many_requests() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        fake.env.write("a.txt", "A");
        for _ in 0..3 {
            for id in ["c1", "c2", "c3"] {
                fake.server.reply(Answer::calls(id, "read", &json!({"path": "a.txt"})));
            }
            fake.server.reply(Answer::says("done"));
        }
        let mut wharf = fake.rpc();
        for _ in 0..3 {
            let run = wharf.run("go");
            assert_eq!(text_of(messages(&run, "assistant")[3]), "done");
        }
        let requests = fake.server.requests();
        assert_eq!(requests.len(), 12);
        // Whether one is back before the next request is a matter of microseconds, so now
        // and then another is made; never one for each request.
        let last = requests.iter().map(|request| request.connection).max().unwrap();
        assert!(last < requests.len() / 2, "{api:?}: {last}");
        finish(wharf, 3);
    }
}

#[test]
fn a_connection_that_the_server_has_closed_is_not_used_again() {
    for api in Api::ALL {
        let fake = Fake::start(api);
        let events = api.events(&Answer::says("one"));
        let count = events.len();
        for _ in 0..3 {
            fake.server.reply(Reply::events(events.clone()).drop_after(count, Close::Clean));
        }
        let mut wharf = fake.rpc();
        for _ in 0..3 {
            let run = wharf.run("go");
            assert_eq!(texts(&run, "assistant"), ["one"], "{api:?}");
            assert!(!run.iter().any(|line| line["type"].as_str().unwrap().contains("retry")));
        }
        assert_eq!(fake.server.requests().len(), 3, "{api:?}");
        finish(wharf, 3);
    }
}
