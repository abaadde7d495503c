//! A running binary with none, one or three extensions that subscribe to every event, and
//! what they saw.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wharf_tests::llm::{Api, LlmServer};
use wharf_tests::{Env, Wharf, guest};

/// In load order; each is called by its last letter.
pub(super) const COMBINERS: [&str; 3] = ["combiner-a", "combiner-b", "combiner-c"];

/// What a test says for "no answer is set".
pub(super) const NOTHING: &str = "-";

/// An answer is set to this; it reads `<<x>>` where the event has letters.
pub(super) const LETTERS: &str = "<<x>>";

/// One line of an extension's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// Nanoseconds since 1970.
    pub at: u128,
    pub letter: char,
    pub event: String,
    pub what: String,
}

pub(super) struct Lab {
    pub env: Env,
    pub server: LlmServer,
    wharf: Option<Wharf>,
    subscribers: usize,
    /// What has come in since the case was begun.
    lines: Vec<Value>,
    next_id: u32,
}

/// The combiners, compiled once for all labs of a test.
pub(super) struct Compiled(Env);

impl Compiled {
    pub(super) fn new() -> Self {
        let env = Env::new();
        let mut wharf = env.rpc_with(&COMBINERS, "scripted/demo");
        // A run waits until all are loaded.
        wharf.run("hello");
        assert_eq!(wharf.finish().code, Some(0));
        Self(env)
    }
}

fn cache(env: &Env) -> PathBuf {
    env.agent_dir().join("cache/components")
}

fn copy_cache(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

impl Lab {
    /// With the first `subscribers` of the combiners. It is not started yet.
    pub(super) fn new(compiled: &Compiled, subscribers: usize) -> Self {
        let env = Env::new();
        let settings = json!({
            "autoSessionName": false,
            "retry": {"baseDelayMs": 1, "maxDelayMs": 1000},
            "compaction": {"reserveTokens": 1000, "keepRecentTokens": 20},
        });
        env.write_agent("settings.json", settings.to_string());
        let server = LlmServer::start();
        let model = json!({"contextWindow": 1_000_000, "maxTokens": 64_000});
        let models = server.models_json(Api::AnthropicMessages, &model);
        let mut models: Value = serde_json::from_str(&models).unwrap();
        let list = models["providers"]["fake"]["models"].as_array_mut().unwrap();
        let mut second = list[0].clone();
        second["id"] = json!("fake-2");
        list.push(second);
        env.write_agent("models.json", models.to_string());
        copy_cache(&cache(&compiled.0), &cache(&env));
        Self { env, server, wharf: None, subscribers, lines: Vec::new(), next_id: 0 }
    }

    pub(super) fn combiners(&self) -> &'static [&'static str] {
        &COMBINERS[..self.subscribers]
    }

    fn data(&self, combiner: &str, file: &str) -> PathBuf {
        self.env.agent_dir().join("extension-data").join(combiner).join(file)
    }

    /// Sets how each answers an event from now on. What they have seen is forgotten.
    pub(super) fn set(&mut self, event: &str, answers: &[&str]) {
        for (combiner, answer) in self.combiners().iter().zip(answers) {
            let file = self.data(combiner, event);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            let _ = fs::remove_file(&file);
            if *answer != NOTHING {
                fs::write(file, answer).unwrap();
            }
        }
        self.forget();
    }

    fn forget(&mut self) {
        if self.wharf.is_some() {
            self.barrier();
        }
        self.lines.clear();
        for combiner in self.combiners() {
            let _ = fs::remove_file(self.data(combiner, "seen"));
        }
    }

    /// Starts it, or starts it anew.
    pub(super) fn start(&mut self) {
        let paths = self.combiners().iter().map(|name| guest(name).display().to_string());
        let mut args = vec![
            "--model".to_owned(),
            "fake/fake-1".to_owned(),
            "--system-prompt".to_owned(),
            LETTERS.to_owned(),
        ];
        args.extend(paths.flat_map(|path| ["-e".to_owned(), path]));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.wharf = Some(self.env.rpc(&args));
    }

    fn wharf(&mut self) -> &mut Wharf {
        self.wharf.as_mut().unwrap()
    }

    /// Ends it in order; what it wrote in all its life.
    pub(super) fn finish(&mut self) -> Vec<Value> {
        let exit = self.wharf.take().unwrap().finish();
        assert_eq!(exit.code, Some(0), "{}", exit.transcript);
        self.lines.extend(exit.rest);
        exit.all
    }

    fn take(&mut self, what: &str, matches: impl Fn(&Value) -> bool) -> Vec<Value> {
        let lines = self.wharf().until(what, matches);
        self.lines.extend(lines.iter().cloned());
        lines
    }

    /// The response to a command.
    pub(super) fn ask(&mut self, mut command: Value) -> Value {
        self.next_id += 1;
        let id = json!(format!("lab-{}", self.next_id));
        command["id"] = id.clone();
        self.wharf().send(&command);
        self.take(&command.to_string(), |line| line["id"] == id).pop().unwrap()
    }

    /// Everything that had been written before has come in.
    pub(super) fn barrier(&mut self) -> Value {
        self.ask(json!({"type": "get_state"}))["data"].clone()
    }

    /// Prompts, and waits for the end of the run; its lines.
    pub(super) fn run(&mut self, message: &str) -> Vec<Value> {
        self.begin(message);
        self.end()
    }

    /// Begins a run.
    pub(super) fn begin(&mut self, message: &str) {
        let response = self.ask(json!({"type": "prompt", "message": message}));
        assert_eq!(response["success"], true, "{response}");
    }

    /// Waits for the end of the run; its lines.
    pub(super) fn end(&mut self) -> Vec<Value> {
        let lines = self.wait("agent_end");
        self.idle();
        lines
    }

    /// Everything up to an event of this kind.
    pub(super) fn wait(&mut self, kind: &str) -> Vec<Value> {
        self.take(kind, |line| line["type"] == kind)
    }

    /// Waits until nothing is under way, not even an input that nobody has decided about.
    pub(super) fn idle(&mut self) -> Value {
        for _ in 0..20_000 {
            let state = self.barrier();
            if state["isStreaming"] == false {
                return state;
            }
        }
        panic!("it is busy for ever");
    }

    /// What was seen since the case began, in order of time.
    pub(super) fn seen(&self) -> Vec<Seen> {
        let mut all = Vec::new();
        for combiner in self.combiners() {
            let text = fs::read_to_string(self.data(combiner, "seen")).unwrap_or_default();
            all.extend(text.lines().map(|line| {
                let mut words = line.splitn(3, ' ');
                let mut word = || words.next().unwrap().to_owned();
                Seen {
                    at: word().parse().unwrap(),
                    letter: combiner.chars().last().unwrap(),
                    event: word(),
                    what: word(),
                }
            }));
        }
        all.sort_by_key(|seen| seen.at);
        all
    }

    /// Who was reported, as `b`, and how often; for an event, or for all.
    pub(super) fn reported(&self, event: &str) -> BTreeMap<char, Vec<String>> {
        let mut all: BTreeMap<char, Vec<String>> = BTreeMap::new();
        for line in &self.lines {
            if line["type"] != "extension_error" || line["event"] != event {
                continue;
            }
            let path = line["extensionPath"].as_str().unwrap();
            let letter = path.trim_end_matches(".wasm").chars().last().unwrap();
            all.entry(letter).or_default().push(line["error"].as_str().unwrap().to_owned());
        }
        all
    }

    /// Reports of other events. A trap also ends the calls of its extension that were under
    /// way: whether there were any is a matter of time.
    pub(super) fn reported_otherwise(&self, event: &str) -> Vec<&Value> {
        let errors = self.lines.iter().filter(|line| line["type"] == "extension_error");
        let ended = |line: &Value| {
            line["error"].as_str().unwrap().starts_with("it was restarted while this call ran")
        };
        errors.filter(|line| line["event"] != event && !ended(line)).collect()
    }
}
