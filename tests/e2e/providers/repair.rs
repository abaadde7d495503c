//! Session files whose conversation no server would take as it is: what is sent is
//! brought into order, and the file keeps what it had.

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, Api, LlmServer};
use wharf_tests::{Env, Wharf};

use super::{PNG, all_apis, finish, messages, model_id, name, serve};
use crate::order::texts;

fn user(content: impl Into<Value>) -> Value {
    json!({"role": "user", "content": content.into()})
}

fn reply_of(api: &str, provider: &str, model: &str, stop: &str, content: Value) -> Value {
    json!({
        "role": "assistant", "content": content, "api": api, "provider": provider,
        "model": model, "stopReason": stop,
        "usage": {
            "input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2,
            "cost": {"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0, "total": 0.0},
        },
    })
}

/// A reply of the model that is asked next: `OWN` stands for it.
fn reply(stop: &str, content: Value) -> Value {
    reply_of("OWN", "OWN", "OWN", stop, content)
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn call(id: &str) -> Value {
    json!({"type": "toolCall", "id": id, "name": "read", "arguments": {"path": "a.txt"}})
}

fn result(id: &str, content: Value) -> Value {
    json!({
        "role": "toolResult", "toolCallId": id, "toolName": "read", "content": content,
        "isError": false,
    })
}

fn thinking(text: &str, signature: Option<&str>) -> Value {
    let mut block = json!({"type": "thinking", "thinking": text});
    if let Some(signature) = signature {
        block["thinkingSignature"] = json!(signature);
    }
    block
}

/// Conversations by what is wrong with them.
fn cases() -> Vec<(&'static str, Vec<Value>)> {
    let a = || json!([text("A")]);
    let long = "x".repeat(400);
    vec![
        ("nothing at all", vec![]),
        (
            "a call without a result at the end",
            vec![user("hi"), reply("toolUse", json!([call("c1")]))],
        ),
        (
            "a call without a result in the middle",
            vec![
                user("hi"),
                reply("toolUse", json!([text("x"), call("c1")])),
                user("and?"),
                reply("stop", json!([text("yes")])),
            ],
        ),
        (
            "one of two results is missing",
            vec![
                user("hi"),
                reply("toolUse", json!([call("c1"), call("c2")])),
                result("c2", a()),
                reply("stop", json!([text("yes")])),
            ],
        ),
        (
            "a result without a call",
            vec![user("hi"), result("c9", a()), reply("stop", json!([text("yes")]))],
        ),
        ("a result first of all", vec![result("c9", a()), user("hi")]),
        (
            "a result for the call of an earlier reply",
            vec![
                user("hi"),
                reply("toolUse", json!([call("c1")])),
                result("c1", a()),
                reply("stop", json!([text("yes")])),
                result("c1", a()),
            ],
        ),
        (
            "a user between a call and its result",
            vec![
                user("hi"),
                reply("toolUse", json!([call("c1")])),
                user("hurry"),
                result("c1", a()),
                reply("stop", json!([text("yes")])),
            ],
        ),
        (
            "a shell command between a call and its result",
            vec![
                user("hi"),
                reply("toolUse", json!([call("c1")])),
                json!({
                    "role": "bashExecution", "command": "ls", "output": "a.txt", "exitCode": 0,
                    "cancelled": false, "truncated": false,
                }),
                result("c1", a()),
            ],
        ),
        (
            "results in another order, and one twice",
            vec![
                user("hi"),
                reply("toolUse", json!([call("c1"), call("c2")])),
                result("c2", a()),
                result("c1", a()),
                result("c1", a()),
            ],
        ),
        (
            "empty contents everywhere",
            vec![
                user(""),
                user(json!([])),
                user(json!([text("")])),
                reply("stop", json!([])),
                user(" \n"),
                reply("stop", json!([text("")])),
                reply("stop", json!([text(" \n ")])),
                user("hi"),
                reply("toolUse", json!([text(""), call("c1")])),
                result("c1", json!([])),
                reply("toolUse", json!([call("c2")])),
                result("c2", json!([text("")])),
                reply("toolUse", json!([thinking("", None), call("c3")])),
                result("c3", json!([{"type": "image", "data": PNG, "mimeType": "image/png"}])),
            ],
        ),
        (
            "aborted and failed replies",
            vec![
                user("hi"),
                reply("aborted", json!([text("I was"), thinking("hm", Some("c2ln")), call("c1")])),
                user("go on"),
                reply("error", json!([])),
                user("go on"),
                reply("error", json!([text("half"), call("c2")])),
                result("c2", a()),
                user("go on"),
                reply("aborted", json!([call("c3")])),
                result("c3", a()),
            ],
        ),
        (
            "thinking that is not signed, signed by nobody, empty, last or alone",
            vec![
                user("hi"),
                reply("stop", json!([thinking("hm", None), text("yes")])),
                user("hi"),
                reply("stop", json!([thinking("hm", Some("")), text("yes")])),
                user("hi"),
                reply("stop", json!([thinking("hm", Some("no base64, no JSON é")), text("yes")])),
                user("hi"),
                reply("stop", json!([thinking("", Some("c2ln"))])),
                user("hi"),
                reply("stop", json!([text("yes"), thinking("hm", Some("c2ln"))])),
                user("hi"),
                reply(
                    "toolUse",
                    json!([thinking("hm", Some("c2ln")), call("c1"), thinking("hm", Some("c2ln"))]),
                ),
                result("c1", a()),
            ],
        ),
        (
            "thinking of other providers",
            vec![
                user("hi"),
                reply_of(
                    "anthropic-messages",
                    "anthropic",
                    "claude-opus-4-6",
                    "toolUse",
                    json!([
                        thinking("hm", Some("EqQBCg==")),
                        {"type": "thinking", "thinking": "", "thinkingSignature": "ZW5j", "redacted": true},
                        call("toolu_01"),
                    ]),
                ),
                result("toolu_01", a()),
                reply_of(
                    "openai-responses",
                    "openai",
                    "gpt-5.2",
                    "toolUse",
                    json!([
                        thinking("hm", Some(r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"}"#)),
                        {"type": "text", "text": "x", "textSignature": "{\"v\":1,\"id\":\"msg_1\"}"},
                        call("call_1|fc_1"),
                    ]),
                ),
                result("call_1|fc_1", a()),
                reply_of(
                    "google-generative-ai",
                    "google",
                    "gemini-3-pro",
                    "toolUse",
                    json!([
                        {"type": "text", "text": "x", "textSignature": "c2ln"},
                        {"type": "toolCall", "id": "g1", "name": "read", "arguments": {"path": "a"}, "thoughtSignature": "c2ln"},
                    ]),
                ),
                result("g1", a()),
                reply_of(
                    "openai-completions",
                    "deepseek",
                    "r1",
                    "stop",
                    json!([thinking("hm", Some("reasoning_content")), text("x"),]),
                ),
            ],
        ),
        (
            "ids of calls that come twice",
            vec![
                user("hi"),
                reply("toolUse", json!([call("c1")])),
                result("c1", a()),
                reply("toolUse", json!([call("c1")])),
                result("c1", a()),
                reply("toolUse", json!([call("c1"), call("c2")])),
                result("c1", a()),
                result("c2", a()),
                user("more"),
                reply("toolUse", json!([call("c2")])),
                result("c2", a()),
            ],
        ),
        (
            "ids of calls that come twice in one reply",
            vec![
                user("hi"),
                reply("toolUse", json!([call("c1"), call("c1")])),
                result("c1", a()),
                result("c1", json!([text("B")])),
                reply("stop", json!([text("yes")])),
            ],
        ),
        (
            "ids that servers refuse",
            vec![
                user("hi"),
                reply(
                    "toolUse",
                    json!([
                        call(""),
                        call("functions.read:0"),
                        call(&long),
                        call("é ü"),
                        call("a|b|c")
                    ]),
                ),
                result("", a()),
                result("functions.read:0", a()),
                result(&long, a()),
                result("é ü", a()),
                result("a|b|c", a()),
            ],
        ),
        (
            "ids that become the same when they are cut",
            vec![
                user("hi"),
                reply(
                    "toolUse",
                    json!([call(&long), call(&format!("{long}y")), call("x|fc_1"), call("x|fc_2")]),
                ),
                result(&long, a()),
                result(&format!("{long}y"), a()),
                result("x|fc_1", a()),
                result("x|fc_2", a()),
            ],
        ),
        (
            "names that servers refuse",
            vec![
                user("hi"),
                reply(
                    "toolUse",
                    json!([
                        {"type": "toolCall", "id": "c1", "name": "read file!", "arguments": {}},
                        {"type": "toolCall", "id": "c2", "name": "", "arguments": {}},
                        {"type": "toolCall", "id": "c3", "name": long, "arguments": {}},
                    ]),
                ),
                result("c1", a()),
                result("c2", a()),
                result("c3", a()),
            ],
        ),
        (
            "a reply first, and two in a row",
            vec![
                reply("stop", json!([text("hello")])),
                reply("stop", json!([text("again")])),
                user("hi"),
                user("hi again"),
                reply("stop", json!([text("one")])),
                reply("toolUse", json!([text("two"), call("c1")])),
                result("c1", a()),
                reply("stop", json!([text("three")])),
            ],
        ),
        (
            "images in odd places",
            vec![
                user(json!([{"type": "image", "data": PNG, "mimeType": "image/png"}])),
                reply("toolUse", json!([call("c1"), call("c2")])),
                json!({
                    "role": "toolResult", "toolCallId": "c1", "toolName": "read", "isError": true,
                    "content": [{"type": "image", "data": PNG, "mimeType": "image/png"}],
                }),
                result("c2", json!([{"type": "image", "data": PNG, "mimeType": "image/tiff"}])),
                user(json!([{"type": "image", "data": "", "mimeType": "image/png"}])),
                user(json!([{"type": "image", "data": "", "mimeType": "image/png"}, text("")])),
            ],
        ),
        (
            "messages of other kinds",
            vec![
                json!({"role": "custom", "customType": "x", "content": "", "display": true}),
                user("hi"),
                reply("toolUse", json!([call("c1")])),
                json!({"role": "branchSummary", "summary": "S", "fromId": "00000001"}),
                result("c1", a()),
                json!({"role": "compactionSummary", "summary": "S", "tokensBefore": 1}),
                json!({
                    "role": "bashExecution", "command": "ls", "output": "", "exitCode": 1,
                    "cancelled": true, "truncated": true, "excludeFromContext": true,
                }),
            ],
        ),
    ]
}

/// Writes a session file by hand; `OWN` becomes what `api` is called here.
fn write_session(env: &Env, messages: &[Value], api: Api) -> String {
    let cwd = env.project().display().to_string();
    let mut lines = vec![json!({
        "type": "session", "version": 3, "id": "01234567-89ab-7cde-8f01-23456789abcd",
        "timestamp": "2026-01-01T00:00:00.000Z", "cwd": cwd,
    })];
    let mut parent = Value::Null;
    for (index, message) in messages.iter().enumerate() {
        let mut message = message.clone();
        message["timestamp"] = json!(1_767_225_600_000_u64 + index as u64);
        if message["model"] == "OWN" {
            message["api"] = json!(api.name());
            message["provider"] = json!(name(api));
            message["model"] = json!(model_id(api));
        }
        let id = format!("{:08x}", index + 1);
        lines.push(json!({
            "type": "message", "id": id, "parentId": parent,
            "timestamp": format!("2026-01-01T00:00:01.{index:03}Z"), "message": message,
        }));
        parent = json!(id);
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    env.write("session.jsonl", text).display().to_string()
}

fn open(env: &Env, file: &str, api: Api, level: &str) -> Wharf {
    let model = format!("{}/{}", name(api), model_id(api));
    env.rpc(&["--model", &model, "--thinking", level, "--session", file])
}

#[test]
fn every_server_takes_every_conversation() {
    let mut problems = Vec::new();
    for api in Api::ALL {
        for level in ["high", "off"] {
            for (what, conversation) in cases() {
                let extra = json!({"reasoning": true, "input": ["text", "image"]});
                let (env, servers) = serve(&[api], &extra);
                let server = &servers[0];
                let file = write_session(&env, &conversation, api);
                let before = std::fs::read_to_string(&file).unwrap();
                // All problems are told at once.
                server.expect_refusals();
                server.reply(Answer::calls("c1", "bash", &json!({"command": "echo on"})));
                server.reply(Answer::says("fine"));
                let mut wharf = open(&env, &file, api, level);
                let run = wharf.run("the next prompt");
                let mut problem =
                    |text: &str| problems.push(format!("{api:?} {level}: {what}: {text}"));
                for refusal in server.refusals() {
                    problem(&refusal);
                }
                if texts(&run, "assistant").last().is_none_or(|last| last != "fine") {
                    problem(&format!("{:?}", messages(&run, "assistant")));
                }
                let body = server.requests().last().unwrap().body.to_string();
                if !body.contains("the next prompt") {
                    problem("the prompt is not in the request");
                }
                let after = std::fs::read_to_string(&file).unwrap();
                if !after.starts_with(&before) {
                    problem("the file has lost what it had");
                }
                finish(wharf, 1);
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What two calls with one id were answered with is not lost where it can be told apart.
#[test]
fn results_stay_with_their_calls() {
    let conversation = vec![
        user("hi"),
        reply("toolUse", json!([call("c1")])),
        result("c1", json!([text("first")])),
        reply("toolUse", json!([call("c1"), call("c2")])),
        result("c2", json!([text("third")])),
        result("c1", json!([text("second")])),
        reply("toolUse", json!([call("c3")])),
    ];
    let (env, servers) = all_apis(&json!({}));
    for (at, api) in Api::ALL.into_iter().enumerate() {
        let file = write_session(&env, &conversation, api);
        servers[at].reply(Answer::says("fine"));
        let mut wharf = open(&env, &file, api, "off");
        wharf.run("next");
        let sent = super::replies::results(api, &servers[at].requests()[0].body);
        let texts: Vec<&str> = sent.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(&texts[..3], ["first", "second", "third"], "{api:?}");
        assert!(texts[3].to_lowercase().contains("no result"), "{api:?}: {texts:?}");
        assert_eq!(texts.len(), 4, "{api:?}");
        let mut ids: Vec<&String> = sent.iter().map(|(id, _)| id).collect();
        if matches!(api, Api::AnthropicMessages | Api::OpenaiResponses) {
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), 4, "{api:?}: these servers want each id once");
        }
        finish(wharf, 1);
    }
    servers.iter().for_each(LlmServer::verify);
}

/// A result that is not directly behind its call is a result all the same: the model
/// should see what its call gave, and not that there is none.
#[test]
fn a_result_behind_another_message_is_kept() {
    let between = [
        user("hurry"),
        json!({
            "role": "bashExecution", "command": "ls", "output": "a.txt", "exitCode": 0,
            "cancelled": false, "truncated": false,
        }),
    ];
    for between in between {
        let conversation = vec![
            user("hi"),
            reply("toolUse", json!([call("c1")])),
            between,
            result("c1", json!([text("what the call gave")])),
        ];
        let (env, servers) = all_apis(&json!({}));
        for (at, api) in Api::ALL.into_iter().enumerate() {
            let file = write_session(&env, &conversation, api);
            servers[at].reply(Answer::says("fine"));
            let mut wharf = open(&env, &file, api, "off");
            wharf.run("next");
            let body = servers[at].requests()[0].body.clone();
            let sent = super::replies::results(api, &body);
            assert_eq!(sent.len(), 1, "{api:?}: {body}");
            assert_eq!(sent[0].1, "what the call gave", "{api:?}");
            finish(wharf, 1);
        }
    }
}
