//! What every server of this API asks of a conversation, checked on random ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use wharf_protocol::{AgentMessage, Model, ThinkingLevel};

use crate::api::{Api as _, Endpoint};
use crate::openai_completions::OpenAiCompletions;
use crate::registry::testing::model;
use crate::{Purpose, Request, ThinkingBudgets, prepare};

fn check_parts(content: &Value, kinds: &[&str]) {
    let parts = content.as_array().unwrap();
    assert!(!parts.is_empty());
    for part in parts {
        let kind = part["type"].as_str().unwrap();
        assert!(kinds.contains(&kind), "{part}");
        match kind {
            "text" => assert!(!part["text"].as_str().unwrap().trim().is_empty()),
            "image_url" => {
                assert!(part["image_url"]["url"].as_str().unwrap().starts_with("data:image/"));
            }
            _ => check_parts(&part["thinking"], &["text"]),
        }
    }
}

/// Panics where a server might refuse the conversation.
fn check(messages: &[Value], nine: bool, assistant_after_result: bool) {
    // Ids of the calls that still want a result.
    let mut open: Vec<&str> = Vec::new();
    let mut before = "";
    for message in messages {
        let role = message["role"].as_str().unwrap();
        let content = &message["content"];
        if role != "tool" {
            assert!(open.is_empty(), "not answered: {open:?}");
        }
        match role {
            "system" | "developer" => {
                assert_eq!(before, "");
                assert!(!content.as_str().unwrap().is_empty());
            }
            "user" => {
                assert_ne!(before, "user");
                assert!(before != "tool" || !assistant_after_result);
                match content {
                    Value::String(text) => assert!(!text.trim().is_empty()),
                    _ => check_parts(content, &["text", "image_url"]),
                }
            }
            "assistant" => {
                let calls = message.get("tool_calls").map(|calls| calls.as_array().unwrap());
                match content {
                    Value::Null => assert!(calls.is_some()),
                    Value::String(text) => assert!(!text.trim().is_empty()),
                    _ => check_parts(content, &["text", "thinking"]),
                }
                for call in calls.into_iter().flatten() {
                    let id = call["id"].as_str().unwrap();
                    if nine {
                        assert!(id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()));
                    } else {
                        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
                        assert!((1..=40).contains(&id.len()) && id.chars().all(fits), "{id}");
                    }
                    assert_eq!(call["type"], "function");
                    let name = call["function"]["name"].as_str().unwrap();
                    assert!((1..=64).contains(&name.len()) && name.is_ascii());
                    let arguments = call["function"]["arguments"].as_str().unwrap();
                    assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object());
                    open.push(id);
                }
                assert_eq!(open.iter().collect::<HashSet<_>>().len(), open.len(), "{open:?}");
                assert!(calls.is_none_or(|calls| !calls.is_empty()));
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap();
                let at = open.iter().position(|call| *call == id);
                open.remove(at.unwrap_or_else(|| panic!("{id} answers no call")));
                assert!(!content.as_str().unwrap().trim().is_empty());
            }
            other => panic!("role {other}"),
        }
        before = role;
    }
    assert!(open.is_empty(), "not answered: {open:?}");
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just(" \n".to_owned()), "[a-zé]{1,6}"]
}

fn blocks() -> impl Strategy<Value = Value> {
    let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
    let block = prop_oneof![
        3 => text().prop_map(|text| json!({"type": "text", "text": text})),
        1 => Just(image),
    ];
    prop::collection::vec(block, 0..3).prop_map(Value::Array)
}

fn call_id() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9]{9}",
        "call_[a-z]{1,3}",
        "call_[ab]\\|fc_[ab]",
        "functions\\.[ab]:[0-3]",
        Just(String::new()),
        Just("x".repeat(400)),
        ".{1,60}",
    ]
}

fn assistant_block() -> impl Strategy<Value = Value> {
    let fields = vec!["reasoning_content", "reasoning", "reasoning_text", "content", "other"];
    prop_oneof![
        2 => text().prop_map(|text| json!({"type": "text", "text": text})),
        2 => (text(), prop::sample::select(fields), any::<bool>()).prop_map(|(text, field, redacted)| {
            json!({"type": "thinking", "thinking": text, "thinkingSignature": field, "redacted": redacted})
        }),
        3 => (call_id(), "[a-z. ]{0,5}", any::<bool>()).prop_map(|(id, name, signed)| {
            let signature = signed.then_some(r#"[{"type":"reasoning.encrypted","data":"D","id":"call_a"}]"#);
            json!({"type": "toolCall", "id": id, "name": name, "arguments": {"a": 1}, "thoughtSignature": signature})
        }),
    ]
}

/// A user message, or a reply with the results of its calls directly after it: what the
/// agent sends.
fn turn() -> impl Strategy<Value = Vec<Value>> {
    let user = prop_oneof![text().prop_map(Value::String), blocks()]
        .prop_map(|content| vec![json!({"role": "user", "content": content})]);
    let reply = (
        prop::collection::vec(assistant_block(), 0..5),
        prop::collection::vec(blocks(), 5),
        any::<bool>(),
    )
        .prop_map(|(mut content, results, own)| {
            // Two calls of one reply never have the same id.
            let mut seen = HashSet::new();
            content.retain(|block| {
                block["type"] != "toolCall" || seen.insert(block["id"].as_str().unwrap().to_owned())
            });
            let calls: Vec<Value> =
                content.iter().filter(|block| block["type"] == "toolCall").cloned().collect();
            let provider = if own { "p" } else { "q" };
            let mut turn = vec![json!({"role": "assistant", "content": content, "api": "openai-completions",
                "provider": provider, "model": "m", "stopReason": "stop"})];
            turn.extend(calls.iter().zip(results).map(|(call, result)| {
                json!({"role": "toolResult", "toolCallId": call["id"], "toolName": call["name"], "content": result})
            }));
            turn
        });
    prop_oneof![user, reply]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn no_conversation_is_refused(
        turns in prop::collection::vec(turn(), 0..8),
        base_url in prop::sample::select(vec![
            "http://localhost/v1", "https://api.openai.com/v1", "https://api.mistral.ai/v1",
            "https://openrouter.ai/api/v1", "https://api.deepseek.com", "https://api.groq.com/openai/v1",
        ]),
        as_text in any::<bool>(),
        images in any::<bool>(),
    ) {
        let mut model = Model { api: "openai-completions".to_owned(), ..model("p", "m") };
        if !images {
            model.input = vec!["text".to_owned()];
        }
        let list: Vec<AgentMessage> = serde_json::from_value(turns.concat().into()).unwrap();
        let list: Vec<Arc<AgentMessage>> = list.into_iter().map(Arc::new).collect();
        let endpoint = Endpoint {
            base_url: base_url.to_owned(),
            api_key: None,
            auth_header: false,
            compat: json!({"requiresThinkingAsText": as_text}),
        };
        let request = |messages: &[Arc<AgentMessage>]| Request {
            model: model.clone(),
            purpose: Purpose::Reply,
            thinking_level: ThinkingLevel::High,
            thinking_budgets: ThinkingBudgets::default(),
            system_prompt: "s".into(),
            messages: prepare::messages(messages, &model),
            tools: [].into(),
            max_tokens: None,
            session_id: None,
            filter: None,
        };
        let sent = OpenAiCompletions.encode(&request(&list), &endpoint).body;
        let messages = sent["messages"].as_array().unwrap();
        let is_mistral = base_url.contains("mistral");
        check(messages, is_mistral, is_mistral);
        // The same conversation gives the same body, also when it has grown: what was
        // sent before is what a prompt cache knows.
        prop_assert_eq!(&OpenAiCompletions.encode(&request(&list), &endpoint).body, &sent);
        let ids = |messages: &[Value]| -> Vec<Value> {
            let calls = messages.iter().filter_map(|message| message.get("tool_calls")?.as_array());
            calls.flatten().map(|call| call["id"].clone()).collect()
        };
        let mut grown = list.clone();
        grown.push(Arc::new(serde_json::from_value(json!({"role": "user", "content": "more"})).unwrap()));
        let grown = OpenAiCompletions.encode(&request(&grown), &endpoint).body;
        prop_assert_eq!(ids(grown["messages"].as_array().unwrap()), ids(messages));
    }
}
