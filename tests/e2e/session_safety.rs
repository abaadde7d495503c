//! Session files and what happens to them: other processes, crashes, changes from
//! outside, damage, old versions. What is in a sound file is in `sessions`.

mod chain;
mod damage;
mod durability;
mod foreign;
mod hostile;
mod locks;
mod races;
mod versions;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wharf_tests::script::says;
use wharf_tests::{Env, Wharf};

/// xorshift64
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// A model that answers anything.
fn any_reply(env: &Env) -> String {
    let mut reply = says("ok");
    reply["repeat"] = json!(true);
    env.script(&[reply])
}

fn start(env: &Env, args: &[&str]) -> Wharf {
    let model = any_reply(env);
    env.rpc(&[&["--model", &model], args].concat())
}

fn open(env: &Env, file: &Path) -> Wharf {
    start(env, &["--session", file.to_str().unwrap()])
}

fn state(wharf: &mut Wharf) -> Value {
    wharf.data(json!({"type": "get_state"}))
}

fn session_file(wharf: &mut Wharf) -> PathBuf {
    PathBuf::from(state(wharf)["sessionFile"].as_str().unwrap())
}

fn messages(wharf: &mut Wharf) -> Vec<Value> {
    wharf.data(json!({"type": "get_messages"}))["messages"].as_array().unwrap().clone()
}

fn switch(wharf: &mut Wharf, file: &Path) -> Value {
    wharf.request(json!({"type": "switch_session", "sessionPath": file}))
}

/// The text of a user message or of a reply.
fn text_of(message: &Value) -> String {
    let content = &message["content"];
    let first = &content[0]["text"];
    content.as_str().or(first.as_str()).unwrap_or_default().to_owned()
}

fn texts(wharf: &mut Wharf) -> Vec<String> {
    messages(wharf).iter().map(text_of).collect()
}

fn end(wharf: Wharf) {
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}\n{}", exit.stderr, exit.transcript);
}

/// A session of one prompt and its answer; nobody has it open.
fn short_session(env: &Env, message: &str) -> PathBuf {
    let mut wharf = start(env, &[]);
    wharf.run(message);
    let file = session_file(&mut wharf);
    end(wharf);
    file
}

fn is_session_diagnostic(line: &Value) -> bool {
    line["type"] == "extension_error" && line["event"] == "session"
}

/// What of these lines tells of a session file.
fn diagnostics<'a>(lines: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    let told = lines.into_iter().filter(|line| is_session_diagnostic(line));
    told.map(|line| line["error"].as_str().unwrap().to_owned()).collect()
}

fn lock_of(file: &Path) -> PathBuf {
    PathBuf::from(format!("{}.lock", file.display()))
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", file.display()))
}

/// All files below a directory with their bytes.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(listing) = fs::read_dir(dir) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in listing {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            let bytes = fs::read(&path).unwrap();
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}

/// The session files below a directory.
fn session_files(dir: &Path) -> Vec<PathBuf> {
    let paths = contents(dir).into_iter().map(|(path, _)| path);
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl")).collect()
}

/// Every line is JSON, the first one a header, every id is used once and every parent
/// comes before its children. Roots there may be several.
#[track_caller]
fn sound_lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.ends_with('\n'), "{} ends within a line", file.display());
    let mut lines: Vec<Value> = Vec::new();
    let mut ids = std::collections::HashSet::new();
    for (at, line) in text.lines().enumerate() {
        let value: Value = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{}, line {}: {error}", file.display(), at + 1));
        if at == 0 {
            assert_eq!(value["type"], "session", "{}", file.display());
        } else {
            let parent = &value["parentId"];
            let is_known = parent.as_str().is_none_or(|parent| ids.contains(parent));
            assert!(is_known, "{}, line {}: no such parent", file.display(), at + 1);
            let id = value["id"].as_str().unwrap().to_owned();
            assert!(ids.insert(id), "{}, line {}: its id is used twice", file.display(), at + 1);
        }
        lines.push(value);
    }
    lines
}

/// The messages of a file, on all branches.
fn stored_messages(file: &Path) -> Vec<Value> {
    let lines = sound_lines(file);
    let entries = lines.iter().filter(|line| line["type"] == "message");
    entries.map(|entry| entry["message"].clone()).collect()
}

/// Whether permissions are no obstacle to the tester.
fn skips_for_root(why: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        wharf_tests::note(format_args!("skipped for root: {why}"));
    }
    is_root
}
