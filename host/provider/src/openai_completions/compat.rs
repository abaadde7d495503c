//! What differs between the servers of this API: what `models.json` says under `compat`,
//! and what is known of a server by its address where it says nothing.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use wharf_protocol::{Model, ThinkingLevel};

/// `compat` of a provider or a model in `models.json`. Fields that nobody knows are left
/// alone; an absent one is filled in from the server's address.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Compat {
    supports_store: Option<bool>,
    supports_developer_role: Option<bool>,
    supports_reasoning_effort: Option<bool>,
    /// What a level is called; null: nothing is sent for it.
    reasoning_effort_map: BTreeMap<ThinkingLevel, Option<String>>,
    supports_usage_in_streaming: Option<bool>,
    max_tokens_field: Option<MaxTokensField>,
    requires_tool_result_name: Option<bool>,
    requires_assistant_after_tool_result: Option<bool>,
    requires_thinking_as_text: Option<bool>,
    thinking_format: Option<ThinkingFormat>,
    supports_strict_mode: Option<bool>,
    open_router_routing: Option<Map<String, Value>>,
    vercel_gateway_routing: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MaxTokensField {
    MaxCompletionTokens,
    MaxTokens,
}

impl MaxTokensField {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MaxTokens => "max_tokens",
        }
    }
}

/// How a server is told whether, and how much, to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ThinkingFormat {
    /// `reasoning_effort`
    #[serde(rename = "openai")]
    OpenAi,
    /// `reasoning {effort}`
    #[serde(rename = "openrouter")]
    OpenRouter,
    /// `thinking {type}`
    Zai,
    /// `enable_thinking`
    Qwen,
    /// `chat_template_kwargs {enable_thinking}`
    QwenChatTemplate,
}

/// Which ids of tool calls a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallIdForm {
    /// 1 to 40 letters, digits, `_` and `-`.
    Standard,
    /// Nine letters and digits: Mistral, whose chat templates want the same elsewhere.
    Nine,
}

/// Which messages must have `reasoning_content`, be it empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FillReasoning {
    None,
    /// Moonshot: "reasoning_content is missing in assistant tool call message".
    Calls,
    /// DeepSeek: "reasoning_content in the thinking mode must be passed back".
    Replies,
}

/// Everything that encoding a request for one model asks of its server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Profile {
    pub(super) store: bool,
    pub(super) developer_role: bool,
    pub(super) reasoning_effort: bool,
    /// Goes before the level's own name.
    pub(super) effort_map: BTreeMap<ThinkingLevel, Option<String>>,
    pub(super) usage_in_streaming: bool,
    pub(super) max_tokens_field: MaxTokensField,
    pub(super) tool_result_name: bool,
    pub(super) assistant_after_tool_result: bool,
    pub(super) thinking_as_text: bool,
    /// Thinking goes back in the field that it came in.
    pub(super) thinking_back: bool,
    pub(super) fill_reasoning: FillReasoning,
    pub(super) thinking_format: ThinkingFormat,
    pub(super) strict_mode: bool,
    pub(super) prompt_cache_key: bool,
    /// Claude behind OpenRouter caches only up to the parts that are marked.
    pub(super) cache_marks: bool,
    /// A conversation with calls must have `tools`, be it empty.
    pub(super) empty_tools: bool,
    pub(super) call_id_form: CallIdForm,
    pub(super) open_router_routing: Option<Map<String, Value>>,
    pub(super) vercel_gateway_routing: Option<Map<String, Value>>,
}

/// Reads `compat`, as far as this API knows it; null is none at all.
fn read(compat: &Value) -> Result<Compat, String> {
    if compat.is_null() {
        return Ok(Compat::default());
    }
    if !compat.is_object() {
        return Err("compat: it is not an object".to_owned());
    }
    serde_path_to_error::deserialize(compat)
        .map_err(|error| format!("compat.{}: {}", error.path(), error.inner()))
}

/// Says what is wrong with a `compat` of `models.json`, and names the field.
pub(crate) fn check(compat: &Value) -> Result<(), String> {
    read(compat).map(drop)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    OpenAi,
    Azure,
    OpenRouter,
    Groq,
    Xai,
    Mistral,
    DeepSeek,
    Moonshot,
    Cerebras,
    Zai,
    DashScope,
    /// Local ones and everything else.
    Unknown,
}

/// Hosts, their subdomains included. The names of providers are those in use for these
/// servers; `openai` is none of them: under this name stands many a redirected address.
const SERVERS: [(Server, &str, &[&str]); 14] = [
    (Server::OpenAi, "api.openai.com", &[]),
    (Server::Azure, "openai.azure.com", &[]),
    (Server::Azure, "cognitiveservices.azure.com", &[]),
    (Server::OpenRouter, "openrouter.ai", &["openrouter"]),
    (Server::Groq, "groq.com", &["groq"]),
    (Server::Xai, "x.ai", &["xai"]),
    (Server::Mistral, "mistral.ai", &["mistral"]),
    (Server::DeepSeek, "deepseek.com", &["deepseek"]),
    (Server::Moonshot, "moonshot.ai", &["moonshot", "moonshotai"]),
    (Server::Moonshot, "moonshot.cn", &["moonshotai-cn"]),
    (Server::Cerebras, "cerebras.ai", &["cerebras"]),
    (Server::Zai, "z.ai", &["zai"]),
    (Server::Zai, "bigmodel.cn", &["zhipu"]),
    (Server::DashScope, "aliyuncs.com", &["dashscope"]),
];

fn server(provider: &str, base_url: &str) -> Server {
    let rest = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host.split(':').next().unwrap_or_default().to_lowercase();
    let is_at = |domain: &str| {
        host.strip_suffix(domain).is_some_and(|front| front.is_empty() || front.ends_with('.'))
    };
    let provider = provider.to_lowercase();
    let by_host = SERVERS.iter().find(|(_, domain, _)| is_at(domain));
    let known =
        by_host.or_else(|| SERVERS.iter().find(|(_, _, names)| names.contains(&provider.as_str())));
    known.map_or(Server::Unknown, |(server, ..)| *server)
}

impl Profile {
    /// What `compat` says, and for the rest what is known of the server. A `compat` that
    /// is wrong says nothing: the registry has complained about it.
    pub(super) fn new(compat: &Value, model: &Model, base_url: &str) -> Self {
        let said = read(compat).unwrap_or_default();
        let mut profile = Self::detect(model, base_url);
        let set = |place: &mut bool, said: Option<bool>| *place = said.unwrap_or(*place);
        set(&mut profile.store, said.supports_store);
        set(&mut profile.developer_role, said.supports_developer_role);
        // Whoever says what the efforts are called says that there are some.
        let has_map = (!said.reasoning_effort_map.is_empty()).then_some(true);
        set(&mut profile.reasoning_effort, said.supports_reasoning_effort.or(has_map));
        set(&mut profile.usage_in_streaming, said.supports_usage_in_streaming);
        set(&mut profile.tool_result_name, said.requires_tool_result_name);
        set(&mut profile.assistant_after_tool_result, said.requires_assistant_after_tool_result);
        set(&mut profile.thinking_as_text, said.requires_thinking_as_text);
        set(&mut profile.strict_mode, said.supports_strict_mode);
        profile.effort_map.extend(said.reasoning_effort_map);
        profile.max_tokens_field = said.max_tokens_field.unwrap_or(profile.max_tokens_field);
        profile.thinking_format = said.thinking_format.unwrap_or(profile.thinking_format);
        profile.open_router_routing = said.open_router_routing;
        profile.vercel_gateway_routing = said.vercel_gateway_routing;
        profile
    }

    fn detect(model: &Model, base_url: &str) -> Self {
        use Server::{
            Azure, Cerebras, DashScope, DeepSeek, Groq, Mistral, Moonshot, OpenAi, OpenRouter,
            Unknown, Xai, Zai,
        };
        let server = server(&model.provider, base_url);
        let id = model.id.to_lowercase();
        let is_openai = matches!(server, OpenAi | Azure);
        let mistral_model =
            ["mistral", "mixtral", "ministral", "magistral", "devstral", "codestral"];
        Self {
            store: server == OpenAi,
            developer_role: is_openai,
            reasoning_effort: takes_effort(server, &id),
            effort_map: effort_map(server, &id),
            // Mistral refuses the option, and sends the usage all the same.
            usage_in_streaming: server != Mistral,
            max_tokens_field: match server {
                OpenAi | Azure | Groq | Cerebras | Xai => MaxTokensField::MaxCompletionTokens,
                _ => MaxTokensField::MaxTokens,
            },
            tool_result_name: server == Mistral,
            // "Unexpected role 'user' after role 'tool'"
            assistant_after_tool_result: server == Mistral,
            thinking_as_text: false,
            thinking_back: match server {
                // "property 'reasoning' is unsupported", but for the models by OpenAI.
                Groq => id.contains("gpt-oss"),
                OpenAi | Azure => false,
                OpenRouter | Xai | Mistral | DeepSeek | Moonshot | Cerebras | Zai | DashScope
                | Unknown => true,
            },
            fill_reasoning: match server {
                DeepSeek => FillReasoning::Replies,
                Moonshot => FillReasoning::Calls,
                _ => FillReasoning::None,
            },
            thinking_format: match server {
                OpenRouter => ThinkingFormat::OpenRouter,
                Zai | DeepSeek => ThinkingFormat::Zai,
                DashScope => ThinkingFormat::Qwen,
                _ => ThinkingFormat::OpenAi,
            },
            strict_mode: is_openai,
            prompt_cache_key: server == OpenAi,
            cache_marks: server == OpenRouter && id.starts_with("anthropic/"),
            // Claude behind a proxy; OpenAI and Mistral refuse an empty list.
            empty_tools: id.contains("claude"),
            call_id_form: if server == Mistral || mistral_model.iter().any(|name| id.contains(name))
            {
                CallIdForm::Nine
            } else {
                CallIdForm::Standard
            },
            open_router_routing: None,
            vercel_gateway_routing: None,
        }
    }
}

/// True where models that reason take `reasoning_effort`.
fn takes_effort(server: Server, id: &str) -> bool {
    match server {
        Server::OpenAi | Server::Azure | Server::Cerebras => true,
        Server::Groq => id.contains("gpt-oss") || id.contains("qwen3"),
        // The others: "Model grok-4 does not support parameter reasoningEffort".
        Server::Xai => {
            ["grok-3-mini", "grok-4.3", "multi-agent"].iter().any(|name| id.contains(name))
        }
        _ => false,
    }
}

/// Levels that the model does not know by their own names.
fn effort_map(server: Server, id: &str) -> BTreeMap<ThinkingLevel, Option<String>> {
    use ThinkingLevel::{High, Low, Medium, Minimal, Off};
    let name = id.rsplit('/').next().unwrap_or_default();
    let map: &[(ThinkingLevel, &str)] = match server {
        // `minimal` came with GPT-5 and went with GPT-5.1.
        Server::OpenAi | Server::Azure => {
            let has_minimal = name == "gpt-5"
                || ["gpt-5-2", "gpt-5-mini", "gpt-5-nano"].iter().any(|it| name.starts_with(it));
            if has_minimal { &[] } else { &[(Minimal, "low")] }
        }
        // Low and high are all there is.
        Server::Xai if id.contains("grok-3-mini") => &[(Minimal, "low"), (Medium, "high")],
        Server::Groq if id.contains("qwen3") => &[
            (Off, "none"),
            (Minimal, "default"),
            (Low, "default"),
            (Medium, "default"),
            (High, "default"),
        ],
        Server::Groq | Server::Cerebras | Server::Xai => &[(Minimal, "low")],
        // "Reasoning is mandatory for this endpoint and cannot be disabled": `minimal` is
        // the least that these take.
        Server::OpenRouter if always_thinks(name) => &[(Off, "minimal")],
        Server::OpenRouter => &[(Off, "none")],
        _ => &[],
    };
    map.iter().map(|(level, name)| (*level, Some((*name).to_owned()))).collect()
}

fn always_thinks(name: &str) -> bool {
    let starts = ["o1", "o3", "o4", "gpt-oss", "deepseek-r1", "minimax-m", "gemini-2.5-pro"];
    name == "gpt-5"
        || name.starts_with("gpt-5-")
        || name.contains("thinking")
        || (name.starts_with("gemini-3") && name.contains("pro"))
        || starts.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;
    use crate::registry::testing::model;

    #[test]
    fn a_wrong_field_is_named() {
        for (compat, expect) in [
            (json!(null), None),
            (json!({}), None),
            (json!({"someday": 1, "supportsStore": true}), None),
            (
                json!({
                    "supportsStore": false, "supportsDeveloperRole": true,
                    "supportsReasoningEffort": true,
                    "reasoningEffortMap": {"minimal": "low", "xhigh": null},
                    "supportsUsageInStreaming": false, "maxTokensField": "max_tokens",
                    "requiresToolResultName": true, "requiresAssistantAfterToolResult": true,
                    "requiresThinkingAsText": true, "thinkingFormat": "qwen-chat-template",
                    "supportsStrictMode": false, "openRouterRouting": {"only": ["a"]},
                    "vercelGatewayRouting": {"order": ["b"]},
                }),
                None,
            ),
            (json!([]), Some("compat: it is not an object")),
            (json!({"supportsStore": "yes"}), Some("compat.supportsStore: ")),
            (json!({"maxTokensField": "tokens"}), Some("compat.maxTokensField: unknown variant")),
            (json!({"thinkingFormat": "loud"}), Some("compat.thinkingFormat: unknown variant")),
            (json!({"reasoningEffortMap": {"huge": "x"}}), Some("compat.reasoningEffortMap")),
            (json!({"reasoningEffortMap": {"low": 1}}), Some("compat.reasoningEffortMap.")),
            (json!({"openRouterRouting": 3}), Some("compat.openRouterRouting: ")),
        ] {
            match (check(&compat), expect) {
                (Ok(()), None) => {}
                (Err(seen), Some(want)) => assert!(seen.starts_with(want), "{seen}"),
                (seen, want) => panic!("{compat}: {seen:?} instead of {want:?}"),
            }
        }
        for format in ["openai", "openrouter", "zai", "qwen", "qwen-chat-template"] {
            check(&json!({"thinkingFormat": format})).unwrap();
        }
    }

    #[test]
    fn servers_are_known_by_their_address_first() {
        for (provider, base_url, expect) in [
            ("openai", "https://api.openai.com/v1", Server::OpenAi),
            ("mine", "https://API.OpenAI.com:443/v1", Server::OpenAi),
            ("openai", "http://localhost:8080/v1", Server::Unknown),
            ("openai", "https://api.openai.com.example.org/v1", Server::Unknown),
            ("openai", "https://proxy.example.org/api.openai.com/v1", Server::Unknown),
            ("azure", "https://mine.openai.azure.com/openai/v1", Server::Azure),
            ("a", "https://openrouter.ai/api/v1", Server::OpenRouter),
            ("openrouter", "https://proxy.example.org/v1", Server::OpenRouter),
            ("openrouter", "https://api.groq.com/openai/v1", Server::Groq),
            ("xai", "https://api.x.ai/v1", Server::Xai),
            ("a", "https://max.ai/v1", Server::Unknown),
            ("a", "https://api.mistral.ai/v1", Server::Mistral),
            ("a", "https://api.deepseek.com", Server::DeepSeek),
            ("a", "https://api.moonshot.cn/v1", Server::Moonshot),
            ("a", "https://api.cerebras.ai/v1", Server::Cerebras),
            ("a", "https://api.z.ai/api/coding/paas/v4", Server::Zai),
            ("a", "https://me:pass@open.bigmodel.cn/api/paas/v4", Server::Zai),
            ("a", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", Server::DashScope),
            ("ollama", "http://127.0.0.1:11434/v1", Server::Unknown),
            ("a", "", Server::Unknown),
        ] {
            assert_eq!(server(provider, base_url), expect, "{provider} {base_url}");
        }
    }

    #[test]
    fn what_models_json_says_wins() {
        let openai = "https://api.openai.com/v1";
        let own = Profile::new(&Value::Null, &model("openai", "gpt-5.2"), openai);
        assert!(own.store && own.developer_role && own.strict_mode && own.reasoning_effort);
        let said = json!({"supportsStore": false, "supportsDeveloperRole": false,
            "supportsStrictMode": false, "supportsReasoningEffort": false,
            "maxTokensField": "max_tokens", "thinkingFormat": "qwen",
            "reasoningEffortMap": {"minimal": "tiny", "high": null}});
        let said = Profile::new(&said, &model("openai", "gpt-5.2"), openai);
        assert!(!said.store && !said.developer_role && !said.strict_mode && !said.reasoning_effort);
        assert_eq!(said.max_tokens_field, MaxTokensField::MaxTokens);
        assert_eq!(said.thinking_format, ThinkingFormat::Qwen);
        assert_eq!(said.effort_map[&ThinkingLevel::Minimal].as_deref(), Some("tiny"));
        assert_eq!(said.effort_map[&ThinkingLevel::High], None);
        // Fields that are not there stay as they were found.
        assert!(said.usage_in_streaming && said.prompt_cache_key);
        // A compat that is wrong is none.
        let wrong = json!({"supportsStore": 1});
        assert_eq!(Profile::new(&wrong, &model("openai", "gpt-5.2"), openai), own);
    }

    #[test]
    fn an_unknown_server_gets_what_everyone_understands() {
        let profile =
            Profile::new(&Value::Null, &model("mine", "some-model"), "http://localhost:1234/v1");
        assert!(!profile.store && !profile.developer_role && !profile.strict_mode);
        assert!(!profile.reasoning_effort && !profile.prompt_cache_key && !profile.empty_tools);
        assert!(!profile.tool_result_name && !profile.assistant_after_tool_result);
        assert!(profile.usage_in_streaming);
        assert_eq!(profile.max_tokens_field, MaxTokensField::MaxTokens);
    }
}
