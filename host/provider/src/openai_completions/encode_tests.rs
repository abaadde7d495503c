//! Bodies of requests, rule by rule and server by server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use serde_json::{Value, json};
use wharf_protocol::{AgentMessage, Model, ThinkingLevel};

use crate::api::{Api as _, Endpoint, HttpRequest};
use crate::openai_completions::OpenAiCompletions;
use crate::registry::testing::model;
use crate::{Purpose, Request, ThinkingBudgets, ToolDefinition};

const LOCAL: &str = "http://127.0.0.1:8080/v1";
const OPENAI: &str = "https://api.openai.com/v1";
const OPENROUTER: &str = "https://openrouter.ai/api/v1";
const MISTRAL: &str = "https://api.mistral.ai/v1";
const DEEPSEEK: &str = "https://api.deepseek.com";

/// A request of a model of the provider `p` whose id is `m`, at this address.
struct Case {
    model: Model,
    base_url: &'static str,
    compat: Value,
    level: ThinkingLevel,
    system: &'static str,
    messages: Value,
    tools: bool,
}

impl Case {
    fn new(base_url: &'static str, id: &str) -> Self {
        Self {
            model: Model { api: "openai-completions".to_owned(), ..model("p", id) },
            base_url,
            compat: Value::Null,
            level: ThinkingLevel::Off,
            system: "",
            messages: json!([{"role": "user", "content": "hi"}]),
            tools: false,
        }
    }

    fn request(&self) -> HttpRequest {
        let tool = ToolDefinition {
            name: "ls".to_owned(),
            description: "Lists".to_owned(),
            parameters: json!({"type": "object"}),
        };
        let messages: Vec<AgentMessage> = serde_json::from_value(self.messages.clone()).unwrap();
        let request = Request {
            model: self.model.clone(),
            purpose: Purpose::Reply,
            thinking_level: self.level,
            thinking_budgets: ThinkingBudgets::default(),
            system_prompt: self.system.into(),
            messages: messages.into_iter().map(Arc::new).collect(),
            tools: if self.tools { [tool].into() } else { [].into() },
            max_tokens: Some(100),
            session_id: Some("session".into()),
            filter: None,
        };
        let endpoint = Endpoint {
            base_url: self.base_url.to_owned(),
            api_key: Some("KEY".to_owned()),
            auth_header: false,
            compat: self.compat.clone(),
        };
        OpenAiCompletions.encode(&request, &endpoint)
    }

    fn body(&self) -> Value {
        self.request().body
    }

    fn messages(base_url: &'static str, compat: Value, messages: Value) -> Value {
        let case = Self { compat, messages, ..Self::new(base_url, "m") };
        case.body()["messages"].clone()
    }
}

fn assistant(content: &Value) -> Value {
    json!({"role": "assistant", "content": content, "api": "openai-completions", "provider": "p", "model": "m", "stopReason": "stop"})
}

fn result(id: &str, content: &Value) -> Value {
    json!({"role": "toolResult", "toolCallId": id, "toolName": "ls", "content": content})
}

#[test]
fn whole_bodies() {
    let mut case = Case { system: "Be brief.", tools: true, ..Case::new(OPENAI, "gpt-5.2") };
    case.level = ThinkingLevel::High;
    let request = case.request();
    assert_eq!(request.url, "https://api.openai.com/v1/chat/completions");
    assert_eq!(request.headers, [("authorization", "Bearer KEY".to_owned())]);
    assert_eq!(
        request.body,
        json!({
            "model": "gpt-5.2",
            "tools": [{"type": "function", "function": {"name": "ls", "description": "Lists", "parameters": {"type": "object"}, "strict": false}}],
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_completion_tokens": 100,
            "store": false,
            "prompt_cache_key": "session",
            "reasoning_effort": "high",
            "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        })
    );
    let case = Case {
        system: "Be brief.",
        tools: true,
        level: ThinkingLevel::High,
        ..Case::new(LOCAL, "m")
    };
    assert_eq!(
        case.body(),
        json!({
            "model": "m",
            "tools": [{"type": "function", "function": {"name": "ls", "description": "Lists", "parameters": {"type": "object"}}}],
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_tokens": 100,
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        })
    );
    let mut plain = Case { system: "Be brief.", ..Case::new(OPENAI, "gpt-4.1") };
    plain.model.reasoning = false;
    assert_eq!(plain.body()["messages"][0]["role"], "system");
    assert_eq!(plain.body().get("reasoning_effort"), None);
}

#[test]
fn a_server_without_a_key_gets_none() {
    let case = Case::new(LOCAL, "m");
    let endpoint = Endpoint {
        base_url: LOCAL.to_owned(),
        api_key: None,
        auth_header: false,
        compat: Value::Null,
    };
    let request = Request {
        model: case.model,
        purpose: Purpose::Reply,
        thinking_level: ThinkingLevel::Off,
        thinking_budgets: ThinkingBudgets::default(),
        system_prompt: "".into(),
        messages: Vec::new(),
        tools: [].into(),
        max_tokens: None,
        session_id: None,
        filter: None,
    };
    let sent = OpenAiCompletions.encode(&request, &endpoint);
    assert!(sent.headers.is_empty());
    assert_eq!(sent.body["messages"], json!([]));
}

/// Fields of a body whose messages do not matter; null: the field is not there.
#[test]
fn fields_by_server_and_compat() {
    use ThinkingLevel::{High, Low, Medium, Minimal, Off, Xhigh};
    let none = Value::Null;
    for (base_url, id, level, compat, field, expect) in [
        // Where each setting goes.
        (
            LOCAL,
            "m",
            Off,
            json!({"maxTokensField": "max_completion_tokens"}),
            "max_completion_tokens",
            json!(100),
        ),
        (
            LOCAL,
            "m",
            Off,
            json!({"maxTokensField": "max_completion_tokens"}),
            "max_tokens",
            json!(null),
        ),
        (LOCAL, "m", Off, json!({"supportsStore": true}), "store", json!(false)),
        (
            LOCAL,
            "m",
            Off,
            json!({"supportsUsageInStreaming": false}),
            "stream_options",
            json!(null),
        ),
        (MISTRAL, "m", Off, none.clone(), "stream_options", json!(null)),
        (
            MISTRAL,
            "m",
            Off,
            json!({"supportsUsageInStreaming": true}),
            "stream_options",
            json!({"include_usage": true}),
        ),
        (
            "https://api.groq.com/openai/v1",
            "m",
            Off,
            none.clone(),
            "max_completion_tokens",
            json!(100),
        ),
        (
            LOCAL,
            "m",
            Off,
            json!({"openRouterRouting": {"only": ["a"]}}),
            "provider",
            json!({"only": ["a"]}),
        ),
        (
            LOCAL,
            "m",
            Off,
            json!({"vercelGatewayRouting": {"order": ["b"]}}),
            "providerOptions",
            json!({"gateway": {"order": ["b"]}}),
        ),
        // reasoning_effort
        (OPENAI, "gpt-5.2", Off, none.clone(), "reasoning_effort", json!(null)),
        (
            OPENAI,
            "gpt-5.2",
            Off,
            json!({"reasoningEffortMap": {"off": "none"}}),
            "reasoning_effort",
            json!("none"),
        ),
        (OPENAI, "gpt-5.2", Minimal, none.clone(), "reasoning_effort", json!("low")),
        (OPENAI, "gpt-5-mini", Minimal, none.clone(), "reasoning_effort", json!("minimal")),
        (OPENAI, "o3", Minimal, none.clone(), "reasoning_effort", json!("low")),
        (OPENAI, "gpt-5.2", Xhigh, none.clone(), "reasoning_effort", json!("xhigh")),
        (
            OPENAI,
            "gpt-5.2",
            Low,
            json!({"supportsReasoningEffort": false}),
            "reasoning_effort",
            json!(null),
        ),
        (
            LOCAL,
            "m",
            Low,
            json!({"supportsReasoningEffort": true}),
            "reasoning_effort",
            json!("low"),
        ),
        (
            LOCAL,
            "m",
            Low,
            json!({"reasoningEffortMap": {"low": "little", "high": null}}),
            "reasoning_effort",
            json!("little"),
        ),
        (
            LOCAL,
            "m",
            High,
            json!({"reasoningEffortMap": {"low": "little", "high": null}}),
            "reasoning_effort",
            json!(null),
        ),
        ("https://api.x.ai/v1", "grok-4", High, none.clone(), "reasoning_effort", json!(null)),
        (
            "https://api.x.ai/v1",
            "grok-4.3",
            Minimal,
            none.clone(),
            "reasoning_effort",
            json!("low"),
        ),
        (
            "https://api.x.ai/v1",
            "grok-3-mini",
            Medium,
            none.clone(),
            "reasoning_effort",
            json!("high"),
        ),
        (
            "https://api.groq.com/openai/v1",
            "qwen/qwen3-32b",
            High,
            none.clone(),
            "reasoning_effort",
            json!("default"),
        ),
        (
            "https://api.groq.com/openai/v1",
            "qwen/qwen3-32b",
            Off,
            none.clone(),
            "reasoning_effort",
            json!("none"),
        ),
        (
            "https://api.groq.com/openai/v1",
            "openai/gpt-oss-120b",
            High,
            none.clone(),
            "reasoning_effort",
            json!("high"),
        ),
        (
            "https://api.cerebras.ai/v1",
            "gpt-oss-120b",
            Minimal,
            none.clone(),
            "reasoning_effort",
            json!("low"),
        ),
        // Other ways to say it
        (
            OPENROUTER,
            "anthropic/claude-opus-4.6",
            High,
            none.clone(),
            "reasoning",
            json!({"effort": "high"}),
        ),
        (
            OPENROUTER,
            "anthropic/claude-opus-4.6",
            Off,
            none.clone(),
            "reasoning",
            json!({"effort": "none"}),
        ),
        (OPENROUTER, "openai/gpt-5", Off, none.clone(), "reasoning", json!({"effort": "minimal"})),
        (OPENROUTER, "m", High, none.clone(), "reasoning_effort", json!(null)),
        (
            OPENROUTER,
            "m",
            Off,
            json!({"reasoningEffortMap": {"off": null}}),
            "reasoning",
            json!(null),
        ),
        (
            "https://api.z.ai/api/paas/v4",
            "glm-4.7",
            High,
            none.clone(),
            "thinking",
            json!({"type": "enabled"}),
        ),
        (
            "https://api.z.ai/api/paas/v4",
            "glm-4.7",
            Off,
            none.clone(),
            "thinking",
            json!({"type": "disabled"}),
        ),
        (DEEPSEEK, "deepseek-v4-pro", High, none.clone(), "thinking", json!({"type": "enabled"})),
        (LOCAL, "m", Low, json!({"thinkingFormat": "zai"}), "thinking", json!({"type": "enabled"})),
        (LOCAL, "m", Low, json!({"thinkingFormat": "qwen"}), "enable_thinking", json!(true)),
        (LOCAL, "m", Off, json!({"thinkingFormat": "qwen"}), "enable_thinking", json!(false)),
        (
            LOCAL,
            "m",
            Low,
            json!({"thinkingFormat": "qwen-chat-template"}),
            "chat_template_kwargs",
            json!({"enable_thinking": true}),
        ),
        (LOCAL, "m", Off, json!({"thinkingFormat": "openrouter"}), "reasoning", json!(null)),
    ] {
        let case = Case { level, compat, ..Case::new(base_url, id) };
        let body = case.body();
        assert_eq!(
            body.get(field).unwrap_or(&Value::Null),
            &expect,
            "{base_url} {id} {level} {}",
            case.compat
        );
        // A model that does not reason is told nothing of it.
        let mut plain = Case::new(base_url, id);
        plain.model.reasoning = false;
        let body = plain.body();
        for field in
            ["reasoning_effort", "reasoning", "thinking", "enable_thinking", "chat_template_kwargs"]
        {
            assert_eq!(body.get(field), None, "{base_url} {id}");
        }
    }
}

#[test]
fn tools_are_left_out_when_there_are_none() {
    let used = json!([
        {"role": "user", "content": "hi"},
        assistant(&json!([{"type": "toolCall", "id": "a", "name": "ls", "arguments": {}}])),
        result("a", &json!([])),
    ]);
    for (base_url, id, messages, expect) in [
        (LOCAL, "m", json!([]), None),
        (LOCAL, "m", used.clone(), None),
        (OPENAI, "gpt-5", used.clone(), None),
        (LOCAL, "claude-sonnet-4-5", used.clone(), Some(json!([]))),
        (LOCAL, "claude-sonnet-4-5", json!([]), None),
    ] {
        let case = Case { messages, ..Case::new(base_url, id) };
        assert_eq!(case.body().get("tools"), expect.as_ref(), "{base_url} {id}");
    }
    let strict =
        Case { tools: true, compat: json!({"supportsStrictMode": true}), ..Case::new(LOCAL, "m") };
    assert_eq!(strict.body()["tools"][0]["function"]["strict"], json!(false));
}

#[test]
fn user_messages() {
    let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
    let url = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
    for (content, expect) in [
        (json!("a"), json!("a")),
        (json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), json!("a\n\nb")),
        (
            json!([{"type": "text", "text": "a"}, image]),
            json!([{"type": "text", "text": "a"}, url]),
        ),
        (json!([image]), json!([url])),
        (json!(" "), json!("(empty message)")),
        (json!([]), json!("(empty message)")),
    ] {
        let sent =
            Case::messages(LOCAL, Value::Null, json!([{"role": "user", "content": content}]));
        assert_eq!(sent, json!([{"role": "user", "content": expect}]));
    }
    // What stands between two of them may be left out: they are one then.
    let messages = json!([
        {"role": "user", "content": "a"},
        assistant(&json!([{"type": "thinking", "thinking": "t"}, {"type": "text", "text": " "}])),
        {"role": "user", "content": "b"},
    ]);
    assert_eq!(
        Case::messages(LOCAL, Value::Null, messages),
        json!([{"role": "user", "content": "a\n\nb"}])
    );
}

#[test]
fn assistant_messages() {
    let thinking =
        |field: &str| json!({"type": "thinking", "thinking": "t", "thinkingSignature": field});
    let unsigned = json!({"type": "thinking", "thinking": "t"});
    let words = json!({"type": "text", "text": "a"});
    let made = json!({"type": "toolCall", "id": "c", "name": "ls", "arguments": {"p": [1]}});
    let sent_call = json!([{"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{\"p\":[1]}"}}]);
    let as_text = json!({"requiresThinkingAsText": true});
    let none = Value::Null;
    for (base_url, compat, content, expect) in [
        (LOCAL, none.clone(), json!([words, words]), json!({"content": "a\na"})),
        (LOCAL, none.clone(), json!([made]), json!({"content": null, "tool_calls": sent_call})),
        (
            LOCAL,
            none.clone(),
            json!([words, made]),
            json!({"content": "a", "tool_calls": sent_call}),
        ),
        (LOCAL, none.clone(), json!([unsigned, words]), json!({"content": "a"})),
        (LOCAL, none.clone(), json!([thinking("other"), words]), json!({"content": "a"})),
        (
            LOCAL,
            none.clone(),
            json!([thinking("reasoning_content"), words]),
            json!({"content": "a", "reasoning_content": "t"}),
        ),
        (
            LOCAL,
            none.clone(),
            json!([thinking("reasoning"), words, thinking("reasoning")]),
            json!({"content": "a", "reasoning": "t\nt"}),
        ),
        (
            LOCAL,
            none.clone(),
            json!([thinking("reasoning_text"), made]),
            json!({"content": null, "reasoning_text": "t", "tool_calls": sent_call}),
        ),
        (LOCAL, as_text.clone(), json!([thinking("reasoning"), words]), json!({"content": "t\na"})),
        (LOCAL, as_text.clone(), json!([unsigned]), json!({"content": "t"})),
        // Servers that want it in their own way, or not at all.
        (OPENAI, none.clone(), json!([thinking("reasoning"), words]), json!({"content": "a"})),
        (
            "https://api.groq.com/openai/v1",
            none.clone(),
            json!([thinking("reasoning"), words]),
            json!({"content": "a"}),
        ),
        (
            MISTRAL,
            none.clone(),
            json!([thinking("content"), words]),
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, words]}),
        ),
        (
            DEEPSEEK,
            none.clone(),
            json!([thinking("reasoning_content"), words]),
            json!({"content": "a", "reasoning_content": "t"}),
        ),
        (DEEPSEEK, none.clone(), json!([words]), json!({"content": "a", "reasoning_content": ""})),
        ("https://api.moonshot.ai/v1", none.clone(), json!([words]), json!({"content": "a"})),
    ] {
        let sent = Case::messages(
            base_url,
            compat.clone(),
            json!([{"role": "user", "content": "hi"}, assistant(&content)]),
        );
        let mut expect = expect;
        expect["role"] = json!("assistant");
        assert_eq!(sent[1], expect, "{base_url} {compat} {content}");
    }
}

#[test]
fn details_go_back_with_the_ids_of_their_calls() {
    let odd = "tool:0";
    let details = json!([{"type": "reasoning.encrypted", "id": odd, "data": "D"}, {"type": "reasoning.text", "text": "t", "signature": "S"}, 3]);
    let content = json!([
        {"type": "thinking", "thinking": "t", "thinkingSignature": "reasoning"},
        {"type": "toolCall", "id": odd, "name": "ls", "arguments": {}, "thoughtSignature": details.to_string()},
        {"type": "toolCall", "id": "b", "name": "ls", "arguments": {}, "thoughtSignature": "no JSON"},
    ]);
    let messages = json!([assistant(&content), result(odd, &json!([])), result("b", &json!([]))]);
    let sent = Case::messages(OPENROUTER, Value::Null, messages);
    let id = sent[0]["tool_calls"][0]["id"].clone();
    assert_ne!(id, odd);
    assert_eq!(sent[1]["tool_call_id"], id);
    assert_eq!(
        sent[0]["reasoning_details"],
        json!([{"type": "reasoning.encrypted", "id": id, "data": "D"}, {"type": "reasoning.text", "text": "t", "signature": "S"}])
    );
    assert_eq!(sent[0].get("reasoning"), None);
}

#[test]
fn tool_results() {
    let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
    let url = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
    let made = |id: &str| json!({"type": "toolCall", "id": id, "name": "l s", "arguments": {}});
    let messages = json!([
        {"role": "user", "content": "hi"},
        assistant(&json!([made("a"), made("b"), made("c")])),
        result("a", &json!([{"type": "text", "text": "x"}, image])),
        result("b", &json!([image])),
        result("c", &json!([{"type": "text", "text": ""}])),
        {"role": "user", "content": "and?"},
    ]);
    let sent = Case::messages(LOCAL, Value::Null, messages.clone());
    assert_eq!(sent[1]["tool_calls"][0]["function"]["name"], "l_s");
    let remark = "[the image of this result is in the next user message]";
    assert_eq!(
        json!(sent.as_array().unwrap()[2..]),
        json!([
            {"role": "tool", "tool_call_id": "a", "content": format!("x\n{remark}")},
            {"role": "tool", "tool_call_id": "b", "content": remark},
            {"role": "tool", "tool_call_id": "c", "content": "(no output)"},
            {"role": "user", "content": [
                {"type": "text", "text": "[result of ls, call a:]"}, url,
                {"type": "text", "text": "[result of ls, call b:]"}, url,
                {"type": "text", "text": "and?"},
            ]},
        ])
    );
    // The images do not wait for somebody to say something.
    let mut silent = messages.clone();
    silent.as_array_mut().unwrap().pop();
    let sent = Case::messages(LOCAL, Value::Null, silent);
    assert_eq!(sent[5]["content"].as_array().unwrap().len(), 4);
    // What some servers want besides.
    let compat = json!({"requiresToolResultName": true, "requiresAssistantAfterToolResult": true});
    let sent = Case::messages(LOCAL, compat, messages.clone());
    assert_eq!(sent[2]["name"], "ls");
    assert_eq!(
        sent[5],
        json!({"role": "assistant", "content": "I have the results of the tools."})
    );
    assert_eq!(sent[6]["role"], "user");
    let sent = Case::messages(MISTRAL, Value::Null, messages);
    assert_eq!(sent[2]["tool_call_id"].as_str().unwrap().len(), 9);
    assert_eq!([&sent[5]["role"], &sent[6]["role"]], ["assistant", "user"]);
}

#[test]
fn claude_behind_openrouter_is_told_what_to_cache() {
    let messages = json!([
        {"role": "user", "content": "hi"},
        assistant(&json!([{"type": "toolCall", "id": "a", "name": "ls", "arguments": {}}])),
        result("a", &json!([])),
    ]);
    let case = Case {
        system: "Be brief.",
        messages,
        ..Case::new(OPENROUTER, "anthropic/claude-opus-4.6")
    };
    let marked = |text: &str| json!([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]);
    let sent = &case.body()["messages"];
    assert_eq!([&sent[0]["content"], &sent[1]["content"]], [&marked("Be brief."), &marked("hi")]);
}
