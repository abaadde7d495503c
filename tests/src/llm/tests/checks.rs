//! Each check takes a good request and refuses each fault.

use serde_json::{Value, json};

use super::super::{Answer, Api, LlmServer, Strictness};
use super::{Client, good, headers, target};

/// Sends a good request that `spoil` has changed, and expects the real server's words.
#[track_caller]
fn refuses(api: Api, expect: &str, spoil: impl FnOnce(&mut Value)) {
    refuses_strictly(api, Strictness::default(), expect, spoil);
}

#[track_caller]
fn refuses_strictly(
    api: Api,
    strictness: Strictness,
    expect: &str,
    spoil: impl FnOnce(&mut Value),
) {
    let mut body = good(api);
    spoil(&mut body);
    refuses_request(api, strictness, (target(api), headers(api), &body), expect);
}

type Parts<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a Value);

#[track_caller]
fn refuses_request(
    api: Api,
    strictness: Strictness,
    (target, headers, body): Parts<'_>,
    expect: &str,
) {
    let server = LlmServer::with(strictness);
    server.expect_refusals();
    server.default_reply(Answer::says("accepted"));
    let mut client = Client::new(&server);
    client.post(target, headers, body);
    let response = client.response();
    let text = response.text();
    assert!((400..405).contains(&response.status), "{api:?}: not refused: {text}");
    let error: Value = serde_json::from_str(&text).unwrap();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains(expect), "{message:?} instead of {expect:?}");
    let refusals = server.refusals();
    assert!(refusals.len() == 1 && refusals[0].contains(expect), "{refusals:?}");
}

#[test]
fn good_requests_are_accepted() {
    let strict = Strictness {
        alternating_roles: true,
        no_store: true,
        no_developer_role: true,
        known_fields_only: true,
    };
    for strictness in [Strictness::default(), strict] {
        let server = LlmServer::with(strictness);
        server.default_reply(Answer::says("accepted"));
        for api in Api::ALL {
            let mut client = Client::new(&server);
            let response = client.ask(api);
            assert_eq!(response.status, 200, "{}", response.text());
        }
        server.verify();
        assert_eq!(server.requests().len(), 4);
    }
}

#[test]
fn anthropic_refuses() {
    let refuses = |expect: &str, spoil: &dyn Fn(&mut Value)| {
        refuses(Api::AnthropicMessages, expect, spoil);
    };
    refuses("top_q: Extra inputs", &|body| body["top_q"] = json!(1));
    refuses("context_management: Extra", &|body| body["context_management"] = json!({}));
    refuses("model: Field required", &|body| body["model"] = json!(""));
    refuses("max_tokens", &|body| body["max_tokens"] = json!(0));
    refuses("only streams", &|body| body["stream"] = json!(false));
    refuses("budget_tokens: Input should be", &|body| {
        body["thinking"]["budget_tokens"] = json!(1023)
    });
    refuses("greater than `thinking.budget_tokens`", &|body| body["max_tokens"] = json!(1024));
    refuses("expected tags", &|body| body["thinking"]["type"] = json!("on"));
    refuses("temperature", &|body| body["temperature"] = json!(0.5));
    refuses("tool_choice forces", &|body| body["tool_choice"] = json!({"type": "any"}));
    refuses("tools.0.custom.name", &|body| body["tools"][0]["name"] = json!("a.b"));
    refuses("input_schema.type", &|body| body["tools"][0]["input_schema"] = json!({}));
    refuses("must be unique", &|body| body["tools"][1]["name"] = json!("read"));
    refuses("system: text", &|body| body["system"][0]["text"] = json!(""));
    refuses("at least one message", &|body| body["messages"] = json!([]));
    refuses("first message", &|body| {
        body["messages"].as_array_mut().unwrap().remove(0);
    });
    refuses("roles must alternate", &|body| {
        body["messages"].as_array_mut().unwrap().push(json!({"role": "user", "content": "x"}));
    });
    refuses("end with a user message", &|body| {
        body["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": "x"}));
    });
    refuses("non-empty content", &|body| body["messages"][0]["content"] = json!(""));
    refuses("must be non-empty", &|body| body["messages"][1]["content"][2]["text"] = json!(""));
    refuses("non-whitespace", &|body| body["messages"][2]["content"][2]["text"] = json!(" \n"));
    refuses("signature: Field required", &|body| {
        body["messages"][1]["content"][0].as_object_mut().unwrap().remove("signature");
    });
    refuses("redacted_thinking.data", &|body| {
        body["messages"][1]["content"][1]["data"] = json!("");
    });
    refuses("thinking.cache_control", &|body| {
        body["messages"][1]["content"][0]["cache_control"] = json!({"type": "ephemeral"});
    });
    refuses("Found 5", &|body| {
        for at in 0..2 {
            body["messages"][2]["content"][at]["cache_control"] = json!({"type": "ephemeral"});
        }
    });
    refuses("tool_use.id", &|body| {
        body["messages"][1]["content"][3]["id"] = json!("call|1");
        body["messages"][2]["content"][1]["tool_use_id"] = json!("call|1");
    });
    refuses("tool_use.name", &|body| body["messages"][1]["content"][3]["name"] = json!(""));
    refuses("valid dictionary", &|body| body["messages"][1]["content"][3]["input"] = json!("{}"));
    refuses("ids must be unique", &|body| body["messages"][1]["content"][4]["id"] = json!("a"));
    refuses("without `tool_result` blocks immediately after: b", &|body| {
        body["messages"][2]["content"].as_array_mut().unwrap().remove(0);
    });
    refuses("unexpected `tool_use_id`", &|body| {
        body["messages"][2]["content"][0]["tool_use_id"] = json!("c");
    });
    refuses("multiple `tool_result`", &|body| {
        body["messages"][2]["content"][2] =
            json!({"type": "tool_result", "tool_use_id": "a", "content": "x"});
    });
    refuses("behind other content", &|body| {
        body["messages"][2]["content"].as_array_mut().unwrap().swap(0, 2);
    });
    refuses("`is_error` is true", &|body| {
        body["messages"][2]["content"][1]["is_error"] = json!(true);
    });
    refuses("known type", &|body| {
        body["messages"][2]["content"][1]["content"][1]["source"]["media_type"] =
            json!("image/bmp");
    });
    refuses("does not match any", &|body| {
        body["messages"][2]["content"][2]["type"] = json!("tool_use");
    });
}

#[test]
fn keys_and_versions_are_wanted() {
    let api = Api::AnthropicMessages;
    let body = good(api);
    let check = |headers: &[(&str, &str)], expect: &str| {
        refuses_request(api, Strictness::default(), (target(api), headers, &body), expect);
    };
    let version = ("anthropic-version", "2023-06-01");
    check(&[version], "x-api-key header is required");
    check(&[version, ("x-api-key", "k"), ("authorization", "Bearer k")], "both");
    check(&[("x-api-key", "k")], "anthropic-version");

    let api = Api::OpenaiResponses;
    refuses_request(api, Strictness::default(), (target(api), &[], &good(api)), "Missing bearer");

    let api = Api::GoogleGenerativeAi;
    let body = good(api);
    let check = |query: &str, headers: &[(&str, &str)], expect: &str| {
        let target = format!("/v1beta/models/g:streamGenerateContent{query}");
        refuses_request(api, Strictness::default(), (&target, headers, &body), expect);
    };
    check("?alt=sse&key=k", &[], "stands in the URL");
    check("", &[("x-goog-api-key", "k")], "alt=sse is missing");
    check("?alt=sse", &[], "unregistered callers");
    check("?alt=sse", &[("x-goog-api-key", "k"), ("authorization", "k")], "both");
}

#[test]
fn completions_refuse() {
    let api = Api::OpenaiCompletions;
    let refuses = |expect: &str, spoil: &dyn Fn(&mut Value)| refuses(api, expect, spoil);
    refuses("provide a model", &|body| body["model"] = json!(null));
    refuses("'stream_options' parameter", &|body| body["stream"] = json!(false));
    refuses("at the same time", &|body| body["max_tokens"] = json!(1));
    refuses("Invalid 'tools': empty array", &|body| body["tools"] = json!([]));
    refuses("tools[0].type", &|body| body["tools"][0]["type"] = json!("x"));
    refuses("tools[0].function.name", &|body| body["tools"][0]["function"]["name"] = json!("a b"));
    refuses("Duplicate function", &|body| {
        let tool = body["tools"][0].clone();
        body["tools"].as_array_mut().unwrap().push(tool);
    });
    refuses("Invalid 'messages'", &|body| body["messages"] = json!([]));
    refuses("Invalid value: 'bash'", &|body| body["messages"][1]["role"] = json!("bash"));
    refuses("did not have response messages: a", &|body| {
        body["messages"].as_array_mut().unwrap().remove(4);
    });
    refuses("did not have response messages: a", &|body| {
        body["messages"].as_array_mut().unwrap().truncate(4);
    });
    refuses("preceding message", &|body| body["messages"][3]["tool_call_id"] = json!("c"));
    refuses("preceding message", &|body| body["messages"][4]["tool_call_id"] = json!("b"));
    refuses("expected a string, got null", &|body| body["messages"][3]["content"] = json!(null));
    refuses("expected a string, got null", &|body| body["messages"][5]["content"] = json!(null));
    refuses("is not empty", &|body| body["messages"][1]["content"] = json!([]));
    refuses("is not empty", &|body| body["messages"][6]["content"] = json!(""));
    refuses("tool_calls': empty", &|body| body["messages"][5]["tool_calls"] = json!([]));
    refuses("Missing required", &|body| {
        body["messages"][2]["tool_calls"][0]["type"] = json!(null);
    });
    refuses("too long", &|body| {
        body["messages"][2]["tool_calls"][0]["id"] = json!("x".repeat(41));
    });
    refuses("expected a string", &|body| {
        body["messages"][2]["tool_calls"][0]["function"]["arguments"] = json!({});
    });
    refuses("no JSON object", &|body| {
        body["messages"][2]["tool_calls"][0]["function"]["arguments"] = json!("{");
    });
    refuses("two calls", &|body| body["messages"][2]["tool_calls"][1]["id"] = json!("a"));

    let only = Strictness::default();
    let strict = Strictness { no_store: true, ..only };
    refuses_strictly(api, strict, "store", |body| body["store"] = json!(false));
    let strict = Strictness { no_developer_role: true, ..only };
    refuses_strictly(api, strict, "role: developer", |body| {
        body["messages"][0]["role"] = json!("developer");
    });
    let strict = Strictness { known_fields_only: true, ..only };
    refuses_strictly(api, strict, "supplied: thinking", |body| body["thinking"] = json!({}));
    let strict = Strictness { alternating_roles: true, ..only };
    refuses_strictly(api, strict, "must alternate", |body| {
        body["messages"].as_array_mut().unwrap().remove(5);
    });
}

#[test]
fn responses_refuse() {
    let refuses =
        |expect: &str, spoil: &dyn Fn(&mut Value)| refuses(Api::OpenaiResponses, expect, spoil);
    refuses("Unknown parameter: 'messages'", &|body| body["messages"] = json!([]));
    refuses("'model'", &|body| body["model"] = json!(null));
    refuses("only streams", &|body| body["stream"] = json!(null));
    refuses("store must be false", &|body| body["store"] = json!(true));
    refuses(">= 16", &|body| body["max_output_tokens"] = json!(15));
    refuses("tools[0].name", &|body| {
        body["tools"][0] = json!({"type": "function", "function": {}})
    });
    refuses("'input'", &|body| body["input"] = json!([]));
    refuses("Invalid value: 'text'", &|body| {
        body["input"][1]["content"][0]["type"] = json!("text")
    });
    refuses("Invalid value: 'input_text'", &|body| {
        body["input"][3]["content"][0]["type"] = json!("input_text");
    });
    refuses("input[1].content", &|body| body["input"][1]["content"] = json!([]));
    refuses("Empty 'input[1]", &|body| body["input"][1]["content"][0]["text"] = json!(""));
    refuses("Invalid value: 'tool' for 'input[1].role'", &|body| {
        body["input"][1]["role"] = json!("tool");
    });
    refuses("Invalid value: 'x'", &|body| body["input"][4]["type"] = json!("x"));
    refuses("begins with 'msg'", &|body| body["input"][3]["id"] = json!("abc"));
    refuses("begins with 'fc'", &|body| body["input"][4]["id"] = json!("call_1"));
    refuses("maximum length 64", &|body| body["input"][4]["id"] = json!("fc".repeat(33)));
    refuses("Duplicate item", &|body| body["input"][5]["id"] = json!("fc_1"));
    refuses("No tool output found for function call a", &|body| {
        body["input"].as_array_mut().unwrap().remove(7);
    });
    refuses("No tool call found", &|body| {
        body["input"].as_array_mut().unwrap().remove(4);
    });
    refuses("No tool call found", &|body| {
        body["input"].as_array_mut().unwrap().swap(4, 7);
    });
    refuses("Duplicate function call", &|body| body["input"][5]["call_id"] = json!("a"));
    refuses("input[4].arguments", &|body| body["input"][4]["arguments"] = json!({}));
    refuses("input[4].name", &|body| body["input"][4]["name"] = json!(""));
    refuses("input[4].call_id", &|body| body["input"][4]["call_id"] = json!("x".repeat(65)));
    refuses("input[6].output", &|body| body["input"][6]["output"] = json!(null));
    refuses("Items are not persisted", &|body| body["input"][2]["encrypted_content"] = json!(null));
    refuses("input[2].summary", &|body| body["input"][2]["summary"] = json!(null));
    refuses("required following item", &|body| {
        body["input"][3] = json!({"role": "user", "content": "x"});
    });
    refuses("required following item", &|body| {
        body["input"].as_array_mut().unwrap().truncate(3);
    });
}

#[test]
fn google_refuses() {
    let api = Api::GoogleGenerativeAi;
    let refuses = |expect: &str, spoil: &dyn Fn(&mut Value)| refuses(api, expect, spoil);
    refuses("Unknown name \"messages\"", &|body| body["messages"] = json!([]));
    refuses("Unknown name \"additionalProperties\"", &|body| {
        body["tools"][0]["functionDeclarations"][0]["parameters"]["additionalProperties"] =
            json!(false);
    });
    refuses("Unknown name \"const\"", &|body| {
        body["tools"][0]["functionDeclarations"][0]["parameters"]["properties"]["path"]["const"] =
            json!("x");
    });
    refuses("not repeating", &|body| {
        body["tools"][0]["functionDeclarations"][0]["parameters"]["type"] = json!(["object"]);
    });
    refuses("Invalid function name", &|body| {
        body["tools"][0]["functionDeclarations"][0]["name"] = json!("");
    });
    refuses("Duplicate function", &|body| {
        body["tools"][0]["functionDeclarations"][1]["name"] = json!("read");
    });
    refuses("contents is not specified", &|body| body["contents"] = json!([]));
    refuses("begin with a user", &|body| body["contents"][0]["role"] = json!("model"));
    refuses("valid role", &|body| body["contents"][1]["role"] = json!("assistant"));
    refuses("alternate between", &|body| body["contents"][1]["role"] = json!("user"));
    refuses("end with a user role", &|body| {
        body["contents"].as_array_mut().unwrap().truncate(2);
    });
    refuses("must not be empty", &|body| body["contents"][0]["parts"] = json!([]));
    refuses("must not be empty", &|body| body["systemInstruction"] = json!({"parts": []}));
    refuses("empty or doubled part", &|body| body["contents"][0]["parts"][0]["text"] = json!(""));
    refuses("empty or doubled part", &|body| body["contents"][1]["parts"][1]["text"] = json!("x"));
    refuses("function_call.args", &|body| {
        body["contents"][1]["parts"][1]["functionCall"]["args"] = json!("{}");
    });
    refuses("function_response.response", &|body| {
        body["contents"][2]["parts"][0]["functionResponse"]["response"] = json!("x");
    });
    refuses("number of function response parts", &|body| {
        body["contents"][2]["parts"].as_array_mut().unwrap().remove(0);
    });
    refuses("immediately after a function call", &|body| {
        body["contents"][1]["parts"] = json!([{"text": "x"}]);
    });
    refuses("the calls of ls, read", &|body| {
        body["contents"][2]["parts"][0]["functionResponse"]["name"] = json!("ls");
    });

    let mut body = good(api);
    body["contents"][1]["parts"][1].as_object_mut().unwrap().remove("thoughtSignature");
    let target = "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse";
    refuses_request(
        api,
        Strictness::default(),
        (target, headers(api), &body),
        "missing a thought_signature",
    );
}

#[test]
fn what_is_no_request_of_an_api_is_refused() {
    let server = LlmServer::start();
    server.expect_refusals();
    let mut client = Client::new(&server);
    client.post("/v1/embeddings", &[], &json!({}));
    assert_eq!(client.response().status, 404);
    client.send(b"GET /v1/messages HTTP/1.1\r\n\r\n");
    assert_eq!(client.response().status, 404);
    client.post("/v1/chat/completions", &[], &json!([]));
    assert_eq!(client.response().status, 400);
    client.post("/v1/models/:streamGenerateContent", &[], &json!({}));
    assert_eq!(client.response().status, 404);
    let refusals = server.refusals();
    for (refusal, expect) in refusals.iter().zip(["POST /v1/embeddings", "GET", "parse", "POST"]) {
        assert!(refusal.contains(expect), "{refusals:?}");
    }
    assert_eq!(refusals.len(), 4, "{refusals:?}");
}

#[test]
fn a_fault_fails_the_test_that_holds_the_server() {
    let fails = |act: fn(&LlmServer)| {
        let result = std::thread::spawn(move || act(&LlmServer::start())).join();
        *result.unwrap_err().downcast::<String>().unwrap()
    };
    let message = fails(|server| {
        Client::new(server).post("/x", &[], &json!({}));
        server.wait_for_requests(1);
    });
    assert!(message.contains("no such path: POST /x"), "{message}");
    let message = fails(|server| {
        Client::new(server).ask(Api::AnthropicMessages);
    });
    assert!(message.contains("no reply is scripted for request 0"), "{message}");
    let message = fails(|server| {
        Client::new(server).send(b"no HTTP at all\r\n\r\n");
        server.wait_for_refusal();
    });
    assert!(message.contains("no request line"), "{message}");
}
