//! The mock server beside the project drives the binary; skipped where it is missing.

use serde_json::{Value, json};
use wharf_tests::{Env, MockLlm, Wharf};

use crate::order::{assert_documented_order, count, text_of, texts};

/// Provider and path of an API that the mock speaks.
const APIS: [(&str, &str); 2] =
    [("mock-anthropic", "/v1/messages"), ("mock-openai", "/v1/chat/completions")];

fn start(mock: &MockLlm, provider: &str) -> (Env, Wharf) {
    mock.reset();
    let env = Env::new();
    env.write_agent("models.json", mock.models_json());
    env.write_agent("settings.json", r#"{"autoSessionName": false}"#);
    env.write("a.txt", "the file\n");
    let wharf = env.rpc(&["--model", &format!("{provider}/mock")]);
    (env, wharf)
}

#[test]
fn tool_calls_one_after_the_other() {
    let Some(mock) = MockLlm::start() else { return };
    for (provider, path) in APIS {
        let (_env, mut wharf) = start(&mock, provider);
        let run = wharf.run("[[mock tools=3 tool=read arg.path=a.txt deltas=5]]");
        assert_eq!(texts(&run, "toolResult"), ["the file\n"; 3], "{provider}");
        let text = "word ".repeat(5);
        assert_eq!(texts(&run, "assistant"), ["", "", "", text.as_str()], "{provider}");
        let state = wharf.data(json!({"type": "get_session_stats"}));
        assert_eq!((&state["toolCalls"], &state["toolResults"]), (&json!(3), &json!(3)));
        let stats = mock.stats();
        assert_eq!(stats["requests"], 4, "{provider}: {stats}");
        assert_eq!(stats["directive_requests"], 4, "{provider}");
        assert_eq!(stats["tool_calls"], 3, "{provider}");
        assert_eq!(stats["paths"], json!({path: 4}), "{provider}: no odd paths");
        let tools: Vec<&str> =
            stats["last_tools"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        for tool in ["read", "write", "edit", "bash", "grep", "find", "ls"] {
            assert!(tools.contains(&tool), "{provider}: {tools:?}");
        }
        // One of them is this look at the counters. The mock ends a body in a write of its
        // own: a request that is sent before it has come needs another connection.
        let connections = stats["connections"].as_u64().unwrap();
        assert!((2..=4).contains(&connections), "{provider}: none was used again: {stats}");
        assert_eq!(assert_documented_order(&run_only(&run)), 1);
        assert_eq!(wharf.finish().code, Some(0));
    }
}

/// Without what came before the run.
fn run_only(run: &[Value]) -> Vec<Value> {
    let start = run.iter().position(|line| line["type"] == "agent_start").unwrap();
    run[start..].to_vec()
}

#[test]
fn many_deltas_in_every_kind_of_write() {
    let Some(mock) = MockLlm::start() else { return };
    for (provider, _) in APIS {
        for batch in [1, 7, 64, 1000] {
            let (_env, mut wharf) = start(&mock, provider);
            let run = wharf.run(&format!("[[mock deltas=200 chunk=ab_ batch={batch}]]"));
            let text = "ab ".repeat(200);
            assert_eq!(texts(&run, "assistant"), [text.as_str()], "{provider} {batch}");
            let deltas: String = run
                .iter()
                .map(|line| &line["assistantMessageEvent"])
                .filter(|event| event["type"] == "text_delta")
                .map(|event| event["delta"].as_str().unwrap())
                .collect();
            assert_eq!(deltas, text, "{provider} {batch}");
            assert_eq!(mock.stats()["requests"], 1);
            assert_eq!(wharf.finish().code, Some(0));
        }
    }
}

#[test]
fn usage() {
    let Some(mock) = MockLlm::start() else { return };
    for (provider, _) in APIS {
        let (_env, mut wharf) = start(&mock, provider);
        let run = wharf.run("[[mock deltas=20]]");
        let end = run.iter().rfind(|line| line["type"] == "message_end").unwrap();
        let usage = &end["message"]["usage"];
        assert_eq!(text_of(&end["message"]), "word ".repeat(20));
        for (field, expected) in [
            ("input", 10),
            ("output", 20),
            ("cacheRead", 0),
            ("cacheWrite", 0),
            ("totalTokens", 30),
        ] {
            assert_eq!(usage[field], expected, "{provider}: {usage}");
        }
        // 1 and 2 dollars per million.
        let total = usage["cost"]["total"].as_f64().unwrap();
        assert!((total - 50e-6).abs() < 1e-12, "{provider}: {usage}");
        let stats = wharf.data(json!({"type": "get_session_stats"}));
        assert_eq!(stats["tokens"]["total"], 30, "{provider}: {stats}");
        assert_eq!(wharf.finish().code, Some(0));
    }
}

#[test]
fn a_background_request_has_no_tools() {
    let Some(mock) = MockLlm::start() else { return };
    for (provider, path) in APIS {
        let (env, wharf) = start(&mock, provider);
        drop(wharf);
        mock.reset();
        env.write_agent("settings.json", "{}");
        let mut wharf = env.rpc(&["--model", &format!("{provider}/mock")]);
        wharf.run("[[mock deltas=2]]");
        let named = wharf.wait_event("session_name_changed");
        assert_eq!(named["name"], "ok", "{provider}: what the mock says to it");
        let stats = mock.stats();
        assert_eq!((&stats["requests"], &stats["directive_requests"]), (&json!(2), &json!(1)));
        assert_eq!(stats["paths"], json!({path: 2}));
        let exit = wharf.finish();
        assert_eq!(count(&exit.all, "agent_end"), 1);
    }
}
