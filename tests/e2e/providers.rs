//! The four APIs over HTTP, each against the fake server: what is sent, what comes of
//! the answers, and what is done about the ones that fail. The APIs' own details are
//! unit tests of the provider crate.

mod aborts;
mod arguments;
mod drops;
mod errors;
mod golden;
mod lengths;
mod repair;
mod replies;
mod requests;
mod retries;
mod switching;

use serde_json::{Value, json};
use wharf_tests::llm::{Api, LlmServer, Recorded};
use wharf_tests::{Env, Exit, SessionFile, Wharf};

use crate::order::{assert_documented_order, count};

/// A fake server of one API, and an environment whose only provider it is.
struct Fake {
    env: Env,
    server: LlmServer,
    api: Api,
    /// `fake/...`
    model: String,
}

impl Fake {
    fn start(api: Api) -> Self {
        Self::with(api, &json!({}))
    }

    /// `extra` as [`LlmServer::models_json`] takes it.
    fn with(api: Api, extra: &Value) -> Self {
        let fake = Self {
            env: Env::new(),
            server: LlmServer::start(),
            api,
            model: format!("fake/{}", extra["id"].as_str().unwrap_or("fake-1")),
        };
        fake.env.write_agent("models.json", fake.server.models_json(api, extra));
        fake.settings(&json!({}));
        fake
    }

    /// Writes `settings.json`: these, and those that every test here wants.
    fn settings(&self, extra: &Value) {
        let mut settings = json!({"autoSessionName": false, "retry": {"baseDelayMs": 0}});
        for (key, value) in extra.as_object().into_iter().flatten() {
            settings[key] = value.clone();
        }
        self.env.write_agent("settings.json", settings.to_string());
    }

    fn rpc(&self) -> Wharf {
        self.rpc_args(&[])
    }

    fn rpc_args(&self, args: &[&str]) -> Wharf {
        let mut all = vec!["--model", &self.model];
        all.extend(args);
        self.env.rpc(&all)
    }

    fn last_request(&self) -> Recorded {
        self.server.requests().pop().unwrap()
    }
}

/// A server of each API under its own provider name, as [`name`] gives it, and one
/// `models.json` for all of them. `extra` goes into each model.
fn all_apis(extra: &Value) -> (Env, Vec<LlmServer>) {
    serve(&Api::ALL, extra)
}

fn serve(apis: &[Api], extra: &Value) -> (Env, Vec<LlmServer>) {
    let env = Env::new();
    let mut providers = json!({});
    let mut servers = Vec::new();
    for api in apis {
        let server = LlmServer::start();
        let mut extra = extra.clone();
        extra["id"] = json!(model_id(*api));
        let file: Value = serde_json::from_str(&server.models_json(*api, &extra)).unwrap();
        providers[name(*api)] = file["providers"]["fake"].clone();
        servers.push(server);
    }
    env.write_agent("models.json", json!({"providers": providers}).to_string());
    let settings = json!({"autoSessionName": false, "retry": {"baseDelayMs": 0}});
    env.write_agent("settings.json", settings.to_string());
    (env, servers)
}

const fn name(api: Api) -> &'static str {
    match api {
        Api::AnthropicMessages => "fake-anthropic",
        Api::OpenaiCompletions => "fake-completions",
        Api::OpenaiResponses => "fake-responses",
        Api::GoogleGenerativeAi => "fake-google",
    }
}

/// Of families whose servers are the most particular about thinking.
const fn model_id(api: Api) -> &'static str {
    match api {
        Api::AnthropicMessages => "claude-sonnet-4-5",
        Api::OpenaiCompletions => "fake-1",
        Api::OpenaiResponses => "gpt-5",
        Api::GoogleGenerativeAi => "gemini-3-flash-preview",
    }
}

/// The messages of this role that a run announced.
fn messages<'a>(run: &'a [Value], role: &str) -> Vec<&'a Value> {
    let ends = run.iter().filter(|line| line["type"] == "message_end");
    ends.map(|line| &line["message"]).filter(|message| message["role"] == role).collect()
}

/// The one reply of a run.
#[track_caller]
fn only_reply(run: &[Value]) -> &Value {
    let replies = messages(run, "assistant");
    assert_eq!(replies.len(), 1, "{replies:?}");
    replies[0]
}

fn events<'a>(run: &'a [Value], kind: &str) -> Vec<&'a Value> {
    run.iter().filter(|line| line["type"] == kind).collect()
}

/// All deltas of this kind in a row: `text_delta`, `thinking_delta`, `toolcall_delta`.
fn deltas(run: &[Value], kind: &str) -> String {
    let events = run.iter().map(|line| &line["assistantMessageEvent"]);
    let deltas = events.filter(|event| event["type"] == kind);
    deltas.map(|event| event["delta"].as_str().unwrap()).collect()
}

fn blocks<'a>(message: &'a Value, kind: &str) -> Vec<&'a Value> {
    message["content"].as_array().unwrap().iter().filter(|block| block["type"] == kind).collect()
}

/// Ends the process: it was well to the end, and each run was as documented.
#[track_caller]
fn finish(wharf: Wharf, runs: usize) -> Exit {
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(assert_documented_order(&exit.all), runs, "{}", exit.transcript);
    assert_eq!(count(&exit.all, "agent_end"), runs, "{}", exit.transcript);
    exit
}

/// The session file of a process that still runs.
fn session_file(wharf: &mut Wharf) -> SessionFile {
    let state = wharf.data(json!({"type": "get_state"}));
    SessionFile::read(std::path::Path::new(state["sessionFile"].as_str().unwrap()))
}

/// The base64 of a picture of one pixel, and the picture.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";

fn png() -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = PNG.bytes().filter(|byte| *byte != b'=').map(digit).collect();
    let mut bytes = Vec::new();
    for group in digits.chunks(4) {
        let bits = group.iter().fold(0u32, |bits, digit| bits << 6 | u32::from(*digit));
        let bits = bits << (6 * (4 - group.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}
