//! The registry as a whole: layers, keys, reading again, patterns.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::auth::KeySource;

/// A registry with files of its own and an environment that is fixed.
struct Bench {
    dir: TempDir,
    registry: Registry,
}

impl Bench {
    fn new(variables: &[(&str, &str)], models: &Value) -> Self {
        let bench = Self::with_problems(variables, &models.to_string());
        assert_eq!(bench.1, [], "{models}");
        bench.0
    }

    fn with_problems(variables: &[(&str, &str)], models: &str) -> (Self, Vec<Problem>) {
        let variables: HashMap<String, String> =
            variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let mut registry = Registry::with_environment(move |name| variables.get(name).cloned());
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.jsonl"), "{\"content\":[]}\n").unwrap();
        fs::write(dir.path().join("models.json"), models).unwrap();
        let problems = registry.load_models_file(&dir.path().join("models.json"));
        (Self { dir, registry }, problems)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn entry(&self, provider: &str) -> &ProviderEntry {
        self.registry.entry(provider).unwrap()
    }

    fn key(&self, provider: &str) -> KeySource {
        self.registry.key(self.entry(provider))
    }

    fn refs(models: &[Model]) -> Vec<String> {
        models.iter().map(|model| format!("{}/{}", model.provider, model.id)).collect()
    }
}

fn literal(text: &str) -> KeySource {
    KeySource::Literal(text.to_owned())
}

fn variable(name: &str, value: &str) -> KeySource {
    KeySource::Variable { name: name.to_owned(), value: value.to_owned() }
}

#[test]
fn scripted_runs_do_not_parse_the_catalogue() {
    let models = json!({"providers": {
        "mine": {"api": "scripted", "baseUrl": "a.jsonl", "models": [{"id": "one"}]},
        "openai": {"baseUrl": "http://127.0.0.1:1/v1", "models": [{"id": "m", "contextWindow": 1}]},
    }});
    let mut bench = Bench::new(&[], &models);
    let script = bench.path("a.jsonl").display().to_string();
    let registry = &mut bench.registry;
    let demo = registry.resolve(None, "scripted/demo").unwrap().model;
    assert!(registry.provider(&demo).is_some() && registry.has_credentials(&demo));
    assert_eq!(registry.resolve(Some("scripted"), "demo:high").unwrap().model, demo);
    assert_eq!(registry.resolve(Some("mine"), "one").unwrap().model.provider, "mine");
    assert!(registry.resolve(Some("scripted"), &script).is_ok());
    assert!(registry.restore("scripted", "demo").is_ok());
    assert!(registry.reload().is_empty());
    assert!(registry.prompt_override(&demo).is_none());
    assert_eq!(registry.catalog.get().map(|_| "parsed"), None);
    assert!(registry.models().len() > 50);
    assert!(registry.catalog.get().is_some());
}

#[test]
fn a_new_provider_has_all_its_fields_and_defaults() {
    let bench = Bench::new(
        &[("ACME_KEY", "from-env")],
        &json!({"providers": {"acme": {
        "baseUrl": "https://acme.example/v1/", "api": "openai-completions", "apiKey": "ACME_KEY",
        "headers": {"x-team": "ACME_KEY", "x-plain": "text", "x-made": "!make it"},
        "authHeader": true, "compat": {"a": 1, "b": 1},
        "models": [
            {"id": "plain"},
            {"id": "full", "name": "Full", "api": "anthropic-messages", "reasoning": true,
             "input": ["text", "image"], "contextWindow": 1000, "maxTokens": 10,
             "cost": {"input": 1, "output": 2.5, "cacheRead": 0.1, "cacheWrite": 3},
             "compat": {"b": 2}, "systemPrompt": "S", "appendSystemPrompt": "A"},
        ]}}}),
    );
    let plain = bench.registry.find("acme", "plain").unwrap();
    let expect = Model {
        id: "plain".to_owned(),
        name: "plain".to_owned(),
        api: "openai-completions".to_owned(),
        provider: "acme".to_owned(),
        base_url: "https://acme.example/v1".to_owned(),
        reasoning: false,
        input: vec!["text".to_owned()],
        context_window: 128_000,
        max_tokens: 16_384,
        cost: Default::default(),
    };
    assert_eq!(*plain, expect);
    let full = bench.registry.find("acme", "full").unwrap();
    assert_eq!(
        serde_json::to_value(full).unwrap(),
        json!({"id": "full", "name": "Full", "api": "anthropic-messages", "provider": "acme",
            "baseUrl": "https://acme.example/v1", "reasoning": true, "input": ["text", "image"],
            "contextWindow": 1000, "maxTokens": 10,
            "cost": {"input": 1.0, "output": 2.5, "cacheRead": 0.1, "cacheWrite": 3.0}})
    );
    let entry = bench.entry("acme");
    assert_eq!(entry.compat(entry.model("plain").unwrap()), json!({"a": 1, "b": 1}));
    assert_eq!(entry.compat(entry.model("full").unwrap()), json!({"a": 1, "b": 2}));
    assert_eq!(bench.registry.prompt_override(plain), None);
    let prompt =
        PromptOverride { system_prompt: Some("S".into()), append_system_prompt: Some("A".into()) };
    assert_eq!(bench.registry.prompt_override(full), Some(&prompt));

    let http = format!("{:?}", bench.registry.provider(full).unwrap());
    for part in [
        "AnthropicMessages",
        "provider: \"acme\"",
        "base_url: \"https://acme.example/v1\"",
        "key: Variable(\"ACME_KEY\")",
        "auth_header: true",
        "(\"x-made\", Command(\"make it\")), (\"x-plain\", Literal(..)), (\"x-team\", Variable(\"ACME_KEY\"))",
        "\"b\": Number(2)",
    ] {
        assert!(http.contains(part), "{part}: {http}");
    }
    assert!(!http.contains("from-env"));
}

#[test]
fn the_password_of_an_address_is_not_shown() {
    let url = "https://me:pass@acme.example/v1";
    let of = |models: Value| json!({"baseUrl": url, "api": "openai-completions", "apiKey": "k", "models": models});
    let bench = Bench::new(
        &[],
        &json!({"providers": {"acme": of(json!([{"id": "a"}])), "groq": of(json!([]))}}),
    );
    for provider in ["acme", "groq"] {
        let models: Vec<&Model> =
            bench.registry.models().iter().filter(|model| model.provider == provider).collect();
        assert!(!models.is_empty());
        for model in models {
            assert_eq!(model.base_url, "https://acme.example/v1");
            // Requests go to the address as it was written.
            let http = format!("{:?}", bench.registry.provider(model).unwrap());
            assert!(http.contains(&format!("base_url: {url:?}")), "{http}");
        }
    }
}

#[test]
fn a_built_in_provider_is_redirected_patched_and_added_to() {
    let bench = Bench::new(
        &[],
        &json!({"providers": {"anthropic": {
        "baseUrl": "https://proxy.example/a/", "headers": {"x-proxy": "1"},
        "models": [{"id": "claude-haiku-4-5", "name": "Mine"}, {"id": "extra"}],
        "modelOverrides": {
            "claude-opus-5": {"name": "Patched", "maxTokens": 9, "cost": {"input": 1.5},
                "input": ["text"], "reasoning": false, "appendSystemPrompt": "be brief"},
            "absent": {"name": "nobody"},
        }}}}),
    );
    let original = Registry::with_environment(|_| None);
    let (ours, built_in) = (bench.entry("anthropic"), original.entry("anthropic").unwrap());
    assert_eq!(ours.models.len(), built_in.models.len() + 1);
    assert_eq!(ours.models.last().unwrap().model.id, "extra");
    for (new, old) in ours.models.iter().zip(&built_in.models) {
        assert_eq!(new.model.id, old.model.id);
        assert_eq!(new.model.base_url, "https://proxy.example/a");
        assert_eq!(new.model.api, "anthropic-messages");
        let expect = match new.model.id.as_str() {
            "claude-opus-5" => Model {
                name: "Patched".to_owned(),
                max_tokens: 9,
                cost: wharf_protocol::model::ModelCost { input: 1.5, ..old.model.cost },
                input: vec!["text".to_owned()],
                reasoning: false,
                ..old.model.clone()
            },
            "claude-haiku-4-5" => Model {
                name: "Mine".to_owned(),
                context_window: 128_000,
                max_tokens: 16_384,
                cost: Default::default(),
                input: vec!["text".to_owned()],
                reasoning: false,
                ..old.model.clone()
            },
            _ => old.model.clone(),
        };
        assert_eq!(new.model, Model { base_url: new.model.base_url.clone(), ..expect });
    }
    let opus = bench.registry.find("anthropic", "claude-opus-5").unwrap();
    let prompt = bench.registry.prompt_override(opus).unwrap();
    assert_eq!(prompt.append_system_prompt.as_deref(), Some("be brief"));
    assert!(bench.registry.find("anthropic", "absent").is_none());
}

#[test]
fn scripts_of_models_json_stand_beside_it() {
    let (bench, problems) = Bench::with_problems(
        &[],
        r#"{"providers":{
            "mine":{"api":"scripted","baseUrl":"a.jsonl","models":[{"id":"one","reasoning":true}]},
            "lost":{"api":"scripted","baseUrl":"b.jsonl","models":[{"id":"two"}]},
            "groq":{"api":"scripted","baseUrl":"a.jsonl","models":[{"id":"three"}]}}}"#,
    );
    let seen: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].contains("models.json: providers.lost.baseUrl: failed to read script"));
    let one = bench.registry.find("mine", "one").unwrap();
    assert_eq!((one.api.as_str(), one.base_url.as_str()), ("scripted", "scripted:a.jsonl"));
    assert_eq!((one.context_window, one.input.len(), one.reasoning), (128_000, 2, true));
    assert!(bench.registry.has_credentials(one));
    assert!(bench.registry.find("lost", "two").is_none());
    let groq = bench.entry("groq");
    assert_eq!(groq.model("three").unwrap().model.api, "scripted");
    assert_eq!(groq.models[0].model.base_url, "https://api.groq.com/openai/v1");
}

#[test]
fn a_broken_file_leaves_the_built_ins() {
    let (bench, problems) = Bench::with_problems(&[], "{\n  \"providers\": {,}\n}");
    let seen = problems[0].to_string();
    assert!(seen.contains("models.json: key must be a string at line 2 column 17"), "{seen}");
    assert!(bench.registry.find("openai", "gpt-5.5").is_some());
}

#[test]
fn keys_come_in_their_order() {
    let variables = [("ANTHROPIC_API_KEY", "env"), ("GOOGLE_API_KEY", "g2"), ("GROQ_API_KEY", " ")];
    let mut bench = Bench::new(
        &variables,
        &json!({"providers": {
            "anthropic": {"apiKey": "from-models"},
            "openai": {"apiKey": "!print key"},
        }}),
    );
    fs::write(bench.path("auth.json"), r#"{"anthropic":{"type":"api_key","key":"from-auth"}}"#)
        .unwrap();
    bench.registry.load_auth_file(&bench.path("auth.json"));
    bench.registry.set_api_key("anthropic", "given");
    assert_eq!(bench.key("anthropic"), literal("given"));
    bench.registry.given_keys.clear();
    assert_eq!(bench.key("anthropic"), literal("from-auth"));
    bench.registry.file_keys.clear();
    assert_eq!(bench.key("anthropic"), literal("from-models"));
    bench.registry.from_file.clear();
    bench.registry.forget_entries();
    assert_eq!(bench.key("anthropic"), variable("ANTHROPIC_API_KEY", "env"));

    let bench = Bench::new(&variables, &json!({"providers": {"openai": {"apiKey": "!print key"}}}));
    assert_eq!(bench.key("openai"), KeySource::Command("print key".to_owned()));
    assert_eq!(bench.key("google"), variable("GOOGLE_API_KEY", "g2"));
    let bench = Bench::new(&[("GOOGLE_API_KEY", "2"), ("GEMINI_API_KEY", "1")], &json!({}));
    assert_eq!(bench.key("google"), variable("GEMINI_API_KEY", "1"));
    let KeySource::Missing(hint) = bench.key("groq") else { panic!("a key for groq") };
    let models = bench.path("models.json").display().to_string();
    for part in ["provider groq: set GROQ_API_KEY, or", "auth.json", &models, "--api-key"] {
        assert!(hint.contains(part), "{hint}");
    }
}

#[test]
fn a_key_goes_only_where_it_belongs() {
    let models = json!({"providers": {
        "anthropic": {"baseUrl": "https://proxy.example"},
        "other": {"baseUrl": "https://api.anthropic.com", "api": "anthropic-messages",
            "models": [{"id": "m"}]},
        "ollama": {"baseUrl": "http://localhost:11434/v1", "api": "openai-completions",
            "models": [{"id": "qwen3:8b"}]},
        "lan": {"baseUrl": "http://10.0.0.2/v1", "api": "openai-completions",
            "models": [{"id": "m"}]},
        "headed": {"baseUrl": "http://10.0.0.2/v1", "api": "openai-completions",
            "headers": {"Authorization": "Basic eA=="}, "models": [{"id": "m"}]},
        "openai": {"baseUrl": "http://127.0.0.1:8080/v1"},
    }});
    let bench = Bench::new(&[("ANTHROPIC_API_KEY", "k")], &models);
    assert_eq!(bench.key("anthropic"), variable("ANTHROPIC_API_KEY", "k"));
    for (provider, keyless) in
        [("other", false), ("ollama", true), ("lan", false), ("headed", true), ("openai", true)]
    {
        let expect = if keyless { "None" } else { "Missing" };
        let key = format!("{:?}", bench.key(provider));
        assert!(key.starts_with(expect), "{provider}: {key}");
        let model = &bench.entry(provider).models[0].model;
        assert_eq!(bench.registry.has_credentials(model), keyless, "{provider}");
    }
    let available = Bench::refs(&bench.registry.available());
    assert_eq!(available[0], "scripted/demo");
    assert!(available[1].starts_with("anthropic/"));
    assert!(available.iter().any(|name| name == "openai/gpt-5.5"));
    assert_eq!(available[available.len() - 2..], ["ollama/qwen3:8b", "headed/m"]);
    assert!(!available.iter().any(|name| name.starts_with("google/")));
}

#[test]
fn files_are_read_again_when_they_have_changed() {
    let model = |id: &str| {
        json!({"providers": {"mine": {"api": "scripted", "baseUrl": "a.jsonl",
            "models": [{"id": id}]}}})
    };
    let mut bench = Bench::new(&[], &model("first"));
    fs::write(bench.path("auth.json"), "{}").unwrap();
    bench.registry.load_auth_file(&bench.path("auth.json"));
    bench.registry.add_provider(offer("e", "added", &json!({}))).unwrap();
    let first = bench.registry.find("mine", "first").unwrap().clone();
    let player = bench.registry.provider(&first).unwrap();

    assert_eq!(bench.registry.reload(), []);
    assert!(bench.registry.providers.get().is_some(), "unchanged files cost no new entries");

    fs::write(bench.path("models.json"), model("second-one").to_string()).unwrap();
    fs::write(bench.path("auth.json"), r#"{"groq":{"type":"api_key","key":"k"}}"#).unwrap();
    let problems = bench.registry.reload();
    assert!(problems.iter().all(|problem| problem.path.ends_with("auth.json")), "{problems:?}");
    assert!(bench.registry.find("mine", "first").is_none());
    assert!(bench.registry.find("added", "m").is_some());
    assert_eq!(bench.key("groq"), literal("k"));
    // What was played stays played.
    let second = bench.registry.find("mine", "second-one").unwrap().clone();
    assert!(Arc::ptr_eq(&player, &bench.registry.provider(&second).unwrap()));

    fs::write(bench.path("models.json"), "{").unwrap();
    assert_eq!(bench.registry.reload().len(), 1);
    assert_eq!(bench.registry.reload(), []);
    fs::remove_file(bench.path("models.json")).unwrap();
    assert_eq!(bench.registry.reload(), []);
    assert!(bench.registry.find("mine", "second-one").is_none());
    assert!(bench.registry.find("added", "m").is_some());
}

#[test]
fn a_script_that_appears_is_found_by_the_next_reading() {
    let models = r#"{"providers":{"mine":{"api":"scripted","baseUrl":"late.jsonl","models":[{"id":"one"}]}}}"#;
    let (mut bench, problems) = Bench::with_problems(&[], models);
    assert_eq!(problems.len(), 1);
    fs::write(bench.path("late.jsonl"), "{}").unwrap();
    assert_eq!(bench.registry.reload(), []);
    assert!(bench.registry.find("mine", "one").is_some());
}

/// A provider of an extension with a model `m`; `config` goes over that.
fn offer(owner: &str, name: &str, config: &Value) -> OfferedProvider {
    let mut whole = json!({
        "baseUrl": "https://added.example/v1/",
        "api": "openai-responses",
        "models": [{"id": "m"}],
    });
    let fields = config.as_object().unwrap().clone();
    whole.as_object_mut().unwrap().extend(fields);
    OfferedProvider {
        owner: owner.to_owned(),
        name: name.to_owned(),
        config: whole.as_object().unwrap().clone(),
        source: None,
    }
}

#[test]
fn extensions_add_providers_replace_their_own_and_take_them_back() {
    let mut bench = Bench::new(&[], &json!({}));
    let registry = &mut bench.registry;
    let models = |ids: &[&str]| json!({"models": ids.iter().map(|id| json!({"id": id})).collect::<Vec<_>>()});
    registry.add_provider(offer("one", "first", &models(&["a", "b"]))).unwrap();
    registry.add_provider(offer("two", "second", &models(&["c"]))).unwrap();
    registry.add_provider(offer("one", "first", &models(&["d"]))).unwrap();
    let names = Bench::refs(registry.models());
    assert_eq!(names[names.len() - 2..], ["first/d", "second/c"]);
    let added = registry.find("first", "d").unwrap();
    assert_eq!(
        (added.api.as_str(), added.base_url.as_str()),
        ("openai-responses", "https://added.example/v1")
    );

    let error = registry.add_provider(offer("two", "first", &json!({}))).unwrap_err().to_string();
    assert_eq!(
        error,
        "provider \"first\" cannot be added: name: extension one has added \"first\""
    );
    assert!(!registry.remove_provider("two", "first"));
    assert!(registry.find("first", "d").is_some());
    let gone = registry.find("first", "d").unwrap().clone();
    assert!(registry.provider(&gone).is_some());
    assert!(registry.remove_provider("one", "first"));
    assert!(!registry.remove_provider("one", "first"));
    assert!(registry.provider(&gone).is_none());
    // Free again.
    registry.add_provider(offer("two", "first", &json!({}))).unwrap();
}

#[test]
fn what_extensions_may_not_add_is_named() {
    let file = json!({"providers": {
        "mine": {"baseUrl": "http://127.0.0.1", "api": "openai-responses", "models": [{"id": "m"}]},
    }});
    let mut bench = Bench::new(&[], &file);
    for name in ["openai", "OpenAI", "scripted", "mine", "Mine"] {
        let error = bench.registry.add_provider(offer("e", name, &json!({}))).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("name: a built-in provider has it") || error.contains("models.json")
        );
    }
    for name in ["", "new one", "a/b", "a\u{7}", &"n".repeat(65)] {
        let error = bench.registry.add_provider(offer("e", name, &json!({}))).unwrap_err();
        assert!(error.to_string().contains("name: 1 to 64 characters"), "{error}");
    }
    let many: Vec<_> = (0..=1024).map(|id| json!({"id": id.to_string()})).collect();
    for (config, expect) in [
        (json!({"baseUrl": null}), "new.baseUrl: missing; it is the server's address"),
        (json!({"baseUrl": "ftp://x"}), "new.baseUrl: \"ftp://x\" must begin with http"),
        (json!({"baseUrl": 1}), "new.baseUrl: invalid type: integer"),
        (json!({"api": "soap"}), "new.api: unknown API \"soap\""),
        (json!({"api": "extension"}), "new.api: unknown API \"extension\""),
        (json!({"api": null}), "new.models[0].api: missing here"),
        (json!({"api": "scripted", "baseUrl": "a.jsonl"}), "only models.json may name a script"),
        (json!({"apiKey": "!rm x"}), "only models.json may name a command"),
        (json!({"headers": {"x": " !rm x"}}), "only models.json may name a command"),
        (json!({"headers": {"x y": "1"}}), "new.headers.x y: this is no name"),
        (json!({"models": []}), "new.models: no model"),
        (json!({"models": [{"id": "m", "contextWindow": 0}]}), "new.models[0].contextWindow: it"),
        (json!({"models": [{"id": "m"}, {"name": "x"}]}), "new.models[1]: missing field `id`"),
        (json!({"models": many}), "models: there are more than 1024"),
        (json!({"compat": {"x": "y".repeat(1024 * 1024)}}), "config: it has more than 1048576"),
    ] {
        let error = bench.registry.add_provider(offer("e", "new", &config)).unwrap_err();
        assert!(error.to_string().contains(expect), "{error}");
    }
    assert!(bench.registry.entry("new").is_none());

    for number in 0..64 {
        let offer = offer("e", &format!("p{number}"), &json!({}));
        bench.registry.add_provider(offer).unwrap();
    }
    let error = bench.registry.add_provider(offer("e", "p64", &json!({}))).unwrap_err();
    assert!(error.to_string().contains("an extension may add 64 providers"), "{error}");
    bench.registry.add_provider(offer("e", "p63", &json!({}))).unwrap();
    bench.registry.add_provider(offer("other", "p64", &json!({}))).unwrap();
}

#[tokio::test]
async fn nothing_of_the_persons_goes_to_an_extensions_server() {
    let variables = [("MY_SECRET", "from-env"), ("OPENAI_API_KEY", "from-env")];
    let mut bench = Bench::new(&variables, &json!({}));
    fs::write(bench.path("auth.json"), r#"{"new":{"type":"api_key","key":"from-file"}}"#).unwrap();
    bench.registry.load_auth_file(&bench.path("auth.json"));
    let config = json!({"apiKey": "MY_SECRET", "headers": {"X-One": "OPENAI_API_KEY"}});
    bench.registry.add_provider(offer("e", "new", &config)).unwrap();
    assert_eq!(bench.key("new"), literal("MY_SECRET"));
    let model = bench.registry.find("new", "m").unwrap().clone();
    let provider = format!("{:?}", bench.registry.provider(&model).unwrap());
    assert!(provider.contains(r#"headers: [("x-one", Literal(..))]"#), "{provider}");

    // Without one of its own there is none.
    bench.registry.add_provider(offer("e", "new", &json!({}))).unwrap();
    let hint = bench.registry.missing_credentials(&model).unwrap();
    assert!(hint.starts_with("there is no API key for provider new: extension e, "), "{hint}");
    bench.registry.set_api_key("new", "given");
    assert_eq!(bench.key("new"), literal("given"));

    // A name that becomes the person's is the person's alone.
    let file = json!({"providers": {"new": {"baseUrl": "https://mine.example", "apiKey": "k",
        "api": "openai-completions", "models": [{"id": "own"}]}}});
    fs::write(bench.path("models.json"), file.to_string()).unwrap();
    assert_eq!(bench.registry.reload(), []);
    assert_eq!(bench.entry("new").base_url, "https://mine.example");
    assert!(bench.registry.find("new", "m").is_none());
    assert!(bench.registry.find("new", "own").is_some());
}

#[tokio::test]
async fn an_extension_answers_for_models_of_its_own() {
    use futures::StreamExt as _;

    let mut bench = Bench::new(&[], &json!({}));
    // What a server would need is neither needed nor used.
    let config = json!({
        "baseUrl": 5.to_string(), "api": "soap", "apiKey": "!x", "headers": {"x y": "!"},
        "models": [{"id": "m", "api": "nonsense", "compat": 1, "contextWindow": 9000,
            "reasoning": false}],
    });
    let source = Arc::new(ScriptedProvider::load(&bench.path("a.jsonl")).unwrap());
    let offer = OfferedProvider { source: Some(source), ..offer("e", "new", &config) };
    bench.registry.add_provider(offer.clone()).unwrap();
    let model = bench.registry.find("new", "m").unwrap().clone();
    assert_eq!((&*model.api, &*model.base_url), ("extension", "extension:e"));
    assert_eq!((model.context_window, model.max_tokens), (9000, 16_384));
    assert!(bench.registry.has_credentials(&model));
    let request = crate::conformance::request(model.clone(), Vec::new());
    let provider = bench.registry.provider(&model).unwrap();
    let events: Vec<_> = provider.stream(request).collect().await;
    assert!(matches!(events[..], [Ok(crate::ProviderEvent::Done { .. })]), "{events:?}");

    let bad = json!({"models": [{"id": "m", "input": ["smell"]}]});
    let bad = bad.as_object().unwrap().clone();
    let error = bench.registry.add_provider(OfferedProvider { config: bad, ..offer }).unwrap_err();
    assert!(error.to_string().contains("new.models[0].input: unknown kind \"smell\""), "{error}");
    // What was there stays.
    assert!(bench.registry.provider(&model).is_some());
}

/// Providers with models of all kinds; `keyed` has a key, `keyless` none.
fn matching_bench() -> Bench {
    let models = |ids: &[&str]| ids.iter().map(|id| json!({"id": id})).collect::<Vec<_>>();
    let provider = |key: Option<&str>, ids: &[&str]| {
        json!({"baseUrl": "https://h.example", "api": "openai-completions", "apiKey": key,
            "models": models(ids)})
    };
    Bench::new(
        &[],
        &json!({"providers": {
            "keyed": provider(Some("k"), &[
                "sonnet-4-20250514", "sonnet-4-5", "sonnet-4-5-20250929", "sonnet-4-10", "sonnet-latest",
                "only-20240101", "only-20240301", "shared", "qwen3:8b", "x/y:free", "anthropic/claude-opus-9",
                "both-here", "Cased",
            ]),
            "second": provider(Some("k"), &["both-there", "twice", "glob-a", "glob-b"]),
            "keyless": provider(None, &["shared", "sonnet-9", "lone", "twice-less", "bare"]),
            "bare": provider(None, &["bare"]),
        }}),
    )
}

/// `provider/id`, the thinking level, and a part of the warning; or a part of the error.
type Expect<'a> = Result<(&'a str, Option<&'a str>, Option<&'a str>), &'a str>;

#[test]
fn patterns_choose_models() {
    let mut bench = matching_bench();
    let dir = bench.dir.path().to_owned();
    let mut check = |provider: Option<&str>, pattern: &str, expect: Expect<'_>| {
        let seen = bench.registry.resolve(provider, pattern);
        match (seen, expect) {
            (Ok(choice), Ok((name, level, warning))) => {
                let model = format!("{}/{}", choice.model.provider, choice.model.id);
                assert_eq!(model, name, "{pattern}");
                assert_eq!(choice.thinking_level.map(ThinkingLevel::as_str), level, "{pattern}");
                match (&choice.warning, warning) {
                    (Some(seen), Some(part)) => assert!(seen.contains(part), "{seen}"),
                    (seen, part) => assert_eq!(seen.as_deref(), part, "{pattern}"),
                }
            }
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains(part), "{pattern}: {error}");
            }
            (seen, expect) => panic!("{pattern}: {seen:?} instead of {expect:?}"),
        }
    };
    // The provider and the id, in any case, with slashes and colons inside.
    check(None, "keyed/shared", Ok(("keyed/shared", None, None)));
    check(None, "KEYED/Shared:low", Ok(("keyed/shared", Some("low"), None)));
    check(None, "keyed/x/y:free", Ok(("keyed/x/y:free", None, None)));
    check(None, "keyed/x/y:free:HIGH", Ok(("keyed/x/y:free", Some("high"), None)));
    check(None, "x/y:free", Ok(("keyed/x/y:free", None, None)));
    check(None, "qwen3:8b", Ok(("keyed/qwen3:8b", None, None)));
    check(None, "qwen3:8b:xhigh", Ok(("keyed/qwen3:8b", Some("xhigh"), None)));
    check(Some("keyed"), "keyed/shared", Ok(("keyed/shared", None, None)));
    check(Some("Keyed"), "cased", Ok(("keyed/Cased", None, None)));
    // A slash that belongs to the id, though it looks like a built-in provider's.
    check(None, "anthropic/claude-opus-9", Ok(("keyed/anthropic/claude-opus-9", None, None)));
    // An exact id: the one with a key, whatever it costs to be exact.
    check(None, "shared", Ok(("keyed/shared", None, None)));
    check(None, "keyless/shared", Ok(("keyless/shared", None, None)));
    check(None, "bare", Err("\"bare\" matches several models: keyless/bare, bare/bare; name"));
    check(None, "lone", Ok(("keyless/lone", None, None)));
    check(None, "twice", Ok(("second/twice", None, None)));
    // Parts and globs: those with a key first, then all.
    check(None, "lon", Ok(("keyless/lone", None, None)));
    check(None, "L?ne", Ok(("keyless/lone", None, None)));
    check(None, "twi", Ok(("second/twice", None, None)));
    let several = "\"sonnet\" matched several models (keyed/sonnet-4-20250514, keyed/sonnet-4-5, \
        keyed/sonnet-4-5-20250929, keyed/sonnet-4-10, keyed/sonnet-latest); using keyed/sonnet-4-10";
    check(None, "sonnet", Ok(("keyed/sonnet-4-10", None, Some(several))));
    check(None, "sonnet*5*:high", Ok(("keyed/sonnet-4-5", Some("high"), Some("using"))));
    check(None, "keyless/sonnet", Ok(("keyless/sonnet-9", None, None)));
    check(None, "only", Ok(("keyed/only-20240301", None, Some("using keyed/only-20240301"))));
    check(None, "both", Err("matches several models: keyed/both-here, second/both-there; name"));
    check(Some("second"), "glob-[b-z]", Ok(("second/glob-b", None, None)));
    check(Some("second"), "second/glob-[b-z]", Ok(("second/glob-b", None, None)));
    check(None, "second/glob*", Ok(("second/glob-b", None, Some("using second/glob-b"))));
    // Levels that are none.
    let unusable = "\"lone:extreme\": \"extreme\" is no thinking level and is left out; valid ones are off, minimal, low, medium, high, xhigh";
    check(None, "lone:extreme", Ok(("keyless/lone", None, Some(unusable))));
    check(
        None,
        "sonnet:extreme",
        Ok(("keyed/sonnet-4-10", None, Some("sonnet-4-10; \"sonnet:extreme\""))),
    );
    // Nothing.
    check(
        None,
        "shared2",
        Err("no model matches \"shared2\"; similar ones: keyed/shared, keyless/shared"),
    );
    check(None, "zzzz-zz", Err("no model matches \"zzzz-zz\"; --list-models shows all"));
    check(None, "sonnett:high", Err("no model matches \"sonnett:high\"; similar ones: "));
    check(Some("bare"), "x", Err("no model matches \"bare/x\"; known models: bare/bare"));
    check(Some("nobody"), "x", Err("no provider \"nobody\"; there are scripted, anthropic, "));
    check(None, "", Err("no model matches \"\""));
    check(None, ":high", Err("no model matches \":high\""));
    check(None, "keyed/", Err("no model matches \"keyed/\""));
    // What only stands between letters and digits is no part of a name; a glob is one.
    for mark in ["/", "(", ".", ":", "-", " - ", "-:high"] {
        check(None, mark, Err("no model matches"));
        check(Some("keyed"), mark, Err("no model matches"));
        check(None, &format!("keyed/{mark}"), Err("no model matches"));
    }
    check(Some("bare"), "*", Ok(("bare/bare", None, None)));
    check(None, "second/*-*", Ok(("second/glob-b", None, Some("using second/glob-b"))));
    // Scripts by path.
    let script = dir.join("a.jsonl").display().to_string();
    let name = format!("scripted/{script}");
    check(Some("scripted"), &script, Ok((&name, None, None)));
    check(Some("scripted"), &format!("{script}:low"), Ok((&name, Some("low"), None)));
    check(None, &name, Ok((&name, None, None)));
    check(None, "scripted/absent.jsonl", Err("failed to read script absent.jsonl"));
    check(Some("keyed"), "absent.jsonl", Err("no model matches \"keyed/absent.jsonl\""));
}

#[test]
fn long_lists_are_cut() {
    let ids: Vec<_> = (0..25).map(|n| json!({"id": format!("many-{n}")})).collect();
    let provider = |ids: &[Value]| json!({"baseUrl": "https://h.example", "api": "openai-responses", "apiKey": "k", "models": ids});
    let models = json!({"providers": {"p": provider(&ids), "q": provider(&ids[..2])}});
    let mut bench = Bench::new(&[], &models);
    let error = bench.registry.resolve(None, "many").unwrap_err().to_string();
    assert!(error.contains("p/many-19 and 7 more; name one"), "{error}");
    assert_eq!(bench.registry.resolve(Some("p"), "many").unwrap().model.id, "many-24");
}

#[test]
fn the_catalogue_has_what_people_ask_for() {
    let mut registry =
        Registry::with_environment(|name| (name == "ANTHROPIC_API_KEY").then(|| "k".to_owned()));
    for pattern in ["opus", "sonnet:high", "haiku", "anthropic/opus", "claude-*"] {
        let choice = registry.resolve(None, pattern).unwrap();
        assert_eq!(choice.model.provider, "anthropic", "{pattern}");
        assert!(!choice.model.id.contains("-202"), "{pattern}: {}", choice.model.id);
    }
    assert_eq!(registry.resolve(None, "google/gemini").unwrap().model.provider, "google");
}

#[test]
fn sessions_get_their_very_model_again() {
    let mut bench = matching_bench();
    let script = bench.path("a.jsonl").display().to_string();
    assert_eq!(bench.registry.restore("keyless", "lone").unwrap().id, "lone");
    assert_eq!(bench.registry.restore("scripted", &script).unwrap().id, script);
    let error = bench.registry.restore("keyed", "sonnet").unwrap_err().to_string();
    assert!(
        error.starts_with("no model matches \"keyed/sonnet\"; similar ones: keyed/sonnet-"),
        "{error}"
    );
    assert!(bench.registry.restore("nobody", "x").is_err());
}

#[test]
fn scopes_keep_order_and_hold_each_model_once() {
    let bench = matching_bench();
    for (patterns, expect, warned) in [
        (vec!["glob*", "second/glob-a"], vec!["second/glob-a", "second/glob-b"], vec![]),
        (vec!["glob-b:low", "glob:high"], vec!["second/glob-b:low", "second/glob-a:high"], vec![]),
        (vec!["both"], vec!["keyed/both-here", "second/both-there"], vec![]),
        (vec!["shared", "qwen3:8b"], vec!["keyed/shared", "keyed/qwen3:8b"], vec![]),
        (vec!["/", "twice"], vec!["second/twice"], vec!["no model matches \"/\""]),
        (vec!["lone"], vec![], vec!["\"lone\" matches only models without a key: keyless/lone"]),
        (
            vec!["zzzz-zz", "twice:odd"],
            vec!["second/twice"],
            vec!["no model matches \"zzzz-zz\"", "\"twice:odd\": \"odd\" is no"],
        ),
    ] {
        let patterns: Vec<String> = patterns.into_iter().map(str::to_owned).collect();
        let (choices, warnings) = bench.registry.scoped(&patterns);
        let names: Vec<String> = choices
            .iter()
            .map(|ModelChoice { model, thinking_level, .. }| {
                let level = thinking_level.map(|level| format!(":{level}")).unwrap_or_default();
                format!("{}/{}{level}", model.provider, model.id)
            })
            .collect();
        assert_eq!(names, expect, "{patterns:?}");
        assert_eq!(warnings.len(), warned.len(), "{warnings:?}");
        for (warning, expect) in warnings.iter().zip(warned) {
            assert!(warning.starts_with(expect), "{warning}");
        }
    }
}

#[test]
fn listings_hold_every_word() {
    let bench = matching_bench();
    for (search, expect) in [
        (Some("SECOND glob"), vec!["second/glob-a", "second/glob-b"]),
        (Some("d/twice"), vec!["second/twice"]),
        (Some("Scripted replies"), vec!["scripted/demo"]),
        (Some("nothing-like-it"), vec![]),
    ] {
        assert_eq!(Bench::refs(&bench.registry.list(search)), expect, "{search:?}");
    }
    assert_eq!(bench.registry.list(None).len(), bench.registry.models().len());
}

#[tokio::test]
async fn a_request_without_a_key_says_what_to_do() {
    use futures::StreamExt as _;

    let bench = Bench::new(&[], &json!({}));
    let model = bench.registry.find("openai", "gpt-5.5").unwrap().clone();
    let request = crate::Request {
        model: model.clone(),
        purpose: crate::Purpose::Reply,
        thinking_level: ThinkingLevel::Off,
        thinking_budgets: crate::ThinkingBudgets::default(),
        system_prompt: "".into(),
        messages: Vec::new(),
        tools: Arc::new([]),
        max_tokens: None,
        session_id: None,
        filter: None,
    };
    let provider = bench.registry.provider(&model).unwrap();
    let error = provider.stream(request).next().await.unwrap().unwrap_err();
    assert_eq!(error.kind, crate::ErrorKind::Authentication);
    let expect = "there is no API key for provider openai: set OPENAI_API_KEY, or put one into";
    assert!(error.message.starts_with(expect), "{error}");
}
