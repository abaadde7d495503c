//! `get_tree` and `set_label`: how a session's entries are shown, and ways for other tests
//! to look at trees. Moves in the tree are in `navigation`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wharf_tests::llm::{Answer, LlmServer, Reply};
use wharf_tests::script::says;
use wharf_tests::{Env, PIXELS, Wharf};

use crate::lab::error;
use crate::order::text_of;
use crate::story::{accept, get_messages, rpc_over, session_file, settings, state};

pub(crate) const SESSION_ID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

pub(crate) fn tree(wharf: &mut Wharf) -> Value {
    wharf.data(json!({"type": "get_tree"}))
}

pub(crate) fn leaf(wharf: &mut Wharf) -> Value {
    tree(wharf)["leafId"].clone()
}

/// All nodes of a tree, parents first; without their children.
pub(crate) fn nodes(tree: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    let mut next: Vec<&Value> = tree["roots"].as_array().unwrap().iter().rev().collect();
    while let Some(node) = next.pop() {
        let mut plain = node.clone();
        plain.as_object_mut().unwrap().remove("children");
        found.push(plain);
        next.extend(node["children"].as_array().unwrap().iter().rev());
    }
    found
}

/// The id of the one entry with this preview.
#[track_caller]
pub(crate) fn id_of(wharf: &mut Wharf, preview: &str) -> String {
    let tree = tree(wharf);
    let nodes = nodes(&tree);
    let found: Vec<&Value> = nodes.iter().filter(|node| node["preview"] == preview).collect();
    let [node] = found[..] else { panic!("{} entries are {preview:?}: {tree}", found.len()) };
    node["id"].as_str().unwrap().to_owned()
}

/// The conversation in a few words a message: `user: first`.
pub(crate) fn told(wharf: &mut Wharf) -> Vec<String> {
    let messages = get_messages(wharf);
    assert_eq!(state(wharf)["messageCount"], messages.len());
    messages.iter().map(line).collect()
}

fn line(message: &Value) -> String {
    let field = |name: &str| message[name].as_str().map(str::to_owned);
    let text = field("summary").or_else(|| field("command")).unwrap_or_else(|| text_of(message));
    format!("{}: {text}", message["role"].as_str().unwrap())
}

/// The entries of a session file, which may have several roots.
#[track_caller]
pub(crate) fn entries(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(lines.next().unwrap()["type"], "session");
    let entries: Vec<Value> = lines.collect();
    for (at, entry) in entries.iter().enumerate() {
        let parent = &entry["parentId"];
        let is_known = parent.is_null() || entries[..at].iter().any(|one| one["id"] == *parent);
        assert!(is_known, "its parent is no earlier entry: {entry}");
        assert!(at == 0 || entries[at - 1]["timestamp"].as_str() < entry["timestamp"].as_str());
    }
    entries
}

#[track_caller]
pub(crate) fn entry<'a>(entries: &'a [Value], id: &str) -> &'a Value {
    entries.iter().find(|entry| entry["id"] == id).unwrap_or_else(|| panic!("no entry {id}"))
}

/// A session of these prompts, each answered by `re: PROMPT`, that is still open.
pub(crate) fn talked(env: &Env, args: &[&str], prompts: &[&str]) -> Wharf {
    let replies: Vec<Value> = prompts.iter().map(|prompt| reply_to(prompt)).collect();
    let mut rest = says("ok");
    rest["repeat"] = json!(true);
    let model = env.script(&[replies, vec![rest]].concat());
    let mut wharf = env.rpc(&[&["--model", &model], args].concat());
    for prompt in prompts {
        wharf.run(prompt);
    }
    wharf
}

fn reply_to(prompt: &str) -> Value {
    let mut reply = says(&format!("re: {prompt}"));
    reply["when"] = json!(format!("^{prompt}$"));
    reply
}

/// The same session, opened again.
pub(crate) fn reopen(env: &Env, wharf: Wharf, file: &Path) -> Wharf {
    assert_eq!(wharf.finish().code, Some(0));
    let mut reply = says("ok");
    reply["repeat"] = json!(true);
    let model = env.script(&[reply]);
    env.rpc(&["--model", &model, "--session", file.to_str().unwrap()])
}

/// A session file in the making; an entry gets its line's time.
pub(crate) struct Draft {
    lines: Vec<Value>,
}

impl Draft {
    pub(crate) fn new(env: &Env) -> Self {
        let header = json!({"type": "session", "version": 3, "id": SESSION_ID,
            "timestamp": "2024-12-03T14:00:00.000Z", "cwd": env.project()});
        Self { lines: vec![header] }
    }

    /// Adds an entry; `parent` is empty for a root.
    pub(crate) fn add(&mut self, id: &str, parent: &str, kind: &str, body: Value) {
        let parent = if parent.is_empty() { Value::Null } else { json!(parent) };
        let seconds = self.lines.len();
        let mut entry = json!({"type": kind, "id": id, "parentId": parent,
            "timestamp": format!("2024-12-03T14:00:{seconds:02}.000Z")});
        entry.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        self.lines.push(entry);
    }

    pub(crate) fn message(&mut self, id: &str, parent: &str, mut message: Value) {
        message["timestamp"] = json!(1_733_234_400_000_u64 + 1000 * self.lines.len() as u64);
        self.add(id, parent, "message", json!({"message": message}));
    }

    pub(crate) fn write(&self, env: &Env) -> PathBuf {
        let lines: Vec<String> = self.lines.iter().map(|line| format!("{line}\n")).collect();
        env.write("drafted.jsonl", lines.concat())
    }
}

pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub(crate) fn assistant(content: Value) -> Value {
    json!({"role": "assistant", "content": content, "api": "scripted", "provider": "scripted",
        "model": "demo", "stopReason": "stop",
        "usage": {"input": 3, "output": 2, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 5,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}}})
}

pub(crate) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Every type of entry and of message, two branches below `a0000004`, labels that were set
/// and cleared, an orphan, and an entry of a type that nobody knows.
pub(crate) fn every_entry(env: &Env) -> Draft {
    let call = |id: &str, name: &str| json!({"type": "toolCall", "id": id, "name": name, "arguments": {"path": "a.rs"}});
    let image = json!({"type": "image", "data": PIXELS[0], "mimeType": "image/png"});
    let mut draft = Draft::new(env);
    draft.message("a0000001", "", user("Help me\n\n\trefactor   the auth module "));
    let calls =
        json!([{"type": "thinking", "thinking": "hm"}, call("c1", "read"), call("c2", "ls")]);
    draft.message("a0000002", "a0000001", assistant(calls));
    for (id, parent, number, tool, content) in [
        ("a0000003", "a0000002", "c1", "read", text("fn main() {\n}\n")),
        ("a0000013", "a0000003", "c2", "ls", image.clone()),
    ] {
        let result = json!({"role": "toolResult", "toolCallId": number, "toolName": tool,
            "content": [content], "isError": false});
        draft.message(id, parent, result);
    }
    let sure = json!([text("Sure \u{2014} let's look"), text("at the\u{a0}middleware first.")]);
    draft.message("a0000004", "a0000013", assistant(sure));
    let shell = json!({"role": "bashExecution", "command": "npm  test", "output": "ok",
        "exitCode": 0, "cancelled": false, "truncated": false});
    draft.message("a0000005", "a0000004", shell);
    draft.add(
        "a0000006",
        "a0000005",
        "model_change",
        json!({"provider": "scripted", "modelId": "demo"}),
    );
    draft.add("a0000007", "a0000006", "thinking_level_change", json!({"thinkingLevel": "high"}));
    draft.add("a0000008", "a0000007", "custom", json!({"customType": "todo", "data": {"n": 1}}));
    let note = json!({"customType": "todo", "content": [text("Remember"), image, text("the milk")],
        "display": true, "details": {"n": 2}});
    draft.add("a0000009", "a0000008", "custom_message", note);
    draft.add(
        "a000000a",
        "a0000009",
        "compaction",
        json!({"summary": "Talked.",
        "firstKeptEntryId": "a0000004", "tokensBefore": 50_000}),
    );
    draft.add(
        "b0000001",
        "a0000004",
        "branch_summary",
        json!({"fromId": "a000000a",
        "summary": "Tried\napproach A."}),
    );
    draft.message(
        "b0000002",
        "b0000001",
        json!({"role": "user", "content": [text("another \"way\"")]}),
    );
    draft.add("b0000003", "b0000002", "session_info", json!({"name": "Auth"}));
    draft.message("c0000001", "deadbeef", user("lost"));
    draft.add("b0000004", "b0000003", "label", json!({"targetId": "a0000001", "label": "start"}));
    draft.add("b0000005", "b0000004", "label", json!({"targetId": "b0000002", "label": "brief"}));
    draft.add("b0000006", "b0000005", "label", json!({"targetId": "b0000002"}));
    draft.add("b0000007", "b0000006", "hologram", json!({"beam": 1}));
    let mut failed = assistant(json!([]));
    failed["stopReason"] = json!("error");
    failed["errorMessage"] = json!("no\nway");
    draft.message("b0000008", "b0000007", failed);
    draft
}

#[test]
fn a_tree_of_every_type_of_entry() {
    let env = Env::new();
    let file = every_entry(&env).write(&env);
    let before = fs::read(&file).unwrap();
    let mut wharf = env.rpc(&["--model", "scripted/demo", "--session", file.to_str().unwrap()]);
    let response = wharf.request(json!({"type": "get_tree"}));
    let expected = json!({"id": response["id"], "type": "response", "command": "get_tree",
        "success": true, "data": response["data"]});
    assert_eq!(response, expected);
    let data = &response["data"];
    insta::assert_snapshot!("every_entry", serde_json::to_string_pretty(data).unwrap());

    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(data), ["roots", "leafId"]);
    let nodes = nodes(data);
    assert_eq!(nodes.len(), 20);
    for node in &nodes {
        let is_message = node["type"] == "message";
        assert_eq!(node.get("role").is_some(), is_message, "{node}");
        assert_eq!(node.get("label").is_some(), node["id"] == "a0000001", "{node}");
        let preview = node["preview"].as_str().unwrap();
        assert!(!preview.contains(['\n', '\t']) && preview.chars().count() <= 200, "{preview}");
    }
    // Looking writes nothing, and asking again gives the same.
    assert_eq!(tree(&mut wharf), *data);
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn a_session_without_entries_has_no_leaf() {
    let empty = json!({"roots": [], "leafId": null});
    let env = Env::new();
    for args in [&["--no-session"][..], &[]] {
        let mut wharf = talked(&env, args, &[]);
        assert_eq!(tree(&mut wharf), empty);
        wharf.run("first");
        assert_ne!(tree(&mut wharf), empty);
        wharf.data(json!({"type": "new_session"}));
        assert_eq!(tree(&mut wharf), empty);
        assert_eq!(wharf.data(json!({"type": "get_fork_messages"})), json!({"messages": []}));
        assert_eq!(wharf.finish().code, Some(0));
    }
}

#[test]
fn a_tree_has_what_the_file_has() {
    let env = Env::new();
    let mut wharf = talked(&env, &[], &["first", "second"]);
    wharf.data(json!({"type": "set_session_name", "name": "A name"}));
    accept(&mut wharf, json!({"type": "bash", "command": "echo  hi"}));
    let file = session_file(&mut wharf);
    let stored = entries(&file);
    let tree = tree(&mut wharf);
    let nodes = nodes(&tree);
    assert_eq!(nodes.len(), stored.len());
    for (node, entry) in nodes.iter().zip(&stored) {
        for field in ["id", "parentId", "type", "timestamp"] {
            assert_eq!(node[field], entry[field], "{field}");
        }
        assert_eq!(node.get("role"), entry["message"].get("role"));
    }
    assert_eq!(tree["roots"].as_array().unwrap().len(), 1, "exactly one root");
    assert_eq!(tree["leafId"], stored.last().unwrap()["id"]);
    assert_eq!(nodes.last().unwrap()["preview"], "[bash]: echo hi");
}

#[test]
fn previews_are_one_line_of_at_most_200_characters() {
    let env = Env::new();
    let cases = [
        ("\u{e9} ".repeat(500), "\u{e9} ".repeat(100).trim_end().to_owned()),
        ("x".repeat(200), "x".repeat(200)),
        ("x".repeat(201), "x".repeat(200)),
        ("\u{1f600}".repeat(300), "\u{1f600}".repeat(200)),
        (" a\r\n\u{2028}b\u{3000}\tc ".to_owned(), "a b c".to_owned()),
        ("\\ \" </script> \u{1}".to_owned(), "\\ \" </script> \u{1}".to_owned()),
    ];
    let mut wharf = talked(&env, &[], &[]);
    for (prompt, preview) in cases {
        wharf.run(&prompt);
        let nodes = nodes(&tree(&mut wharf));
        let last = nodes.iter().rfind(|node| node["role"] == "user").unwrap();
        let shown = last["preview"].as_str().unwrap();
        assert!(shown.chars().count() <= 200, "{shown}");
        // Where it is cut, there may be a space.
        assert_eq!(shown.trim_end_matches(' '), preview, "{prompt:?}");
    }
    let image = json!({"type": "image", "data": PIXELS[0], "mimeType": "image/png"});
    wharf.data(json!({"type": "prompt", "message": "look", "images": [image]}));
    wharf.take_until("agent_end");
    id_of(&mut wharf, "look");
}

/// What has been written so far, and no more.
#[test]
fn a_tree_during_a_run() {
    let env = Env::new();
    settings(&env, json!({}));
    let server = LlmServer::start();
    let gate = server.gate();
    server.reply(Reply::from(Answer::says("hello")).hold_after(3, &gate));
    let mut wharf = rpc_over(&env, &server, &[]);
    wharf.prompt("first");
    gate.wait_reached();
    let first = id_of(&mut wharf, "first");
    assert_eq!(leaf(&mut wharf), *first);
    // A label goes in between, and the conversation goes on below it.
    accept(&mut wharf, json!({"type": "set_label", "entryId": first, "label": "here"}));
    gate.open();
    wharf.wait_event("agent_end");
    assert_eq!(told(&mut wharf), ["user: first", "assistant: hello"]);
    let hello = id_of(&mut wharf, "hello");
    assert_eq!(leaf(&mut wharf), *hello);
    let file = session_file(&mut wharf);
    let stored = entries(&file);
    let label = stored.iter().find(|entry| entry["type"] == "label").unwrap();
    assert_eq!(label["parentId"], *first);
    assert_eq!(entry(&stored, &hello)["parentId"], label["id"]);
}

#[track_caller]
fn label_of(wharf: &mut Wharf, id: &str) -> Option<String> {
    let nodes = nodes(&tree(wharf));
    entry(&nodes, id).get("label").map(|label| label.as_str().unwrap().to_owned())
}

#[test]
fn labels_are_set_changed_and_cleared() {
    let env = Env::new();
    let mut wharf = talked(&env, &[], &["first", "second"]);
    let file = session_file(&mut wharf);
    let (first, second) = (id_of(&mut wharf, "first"), id_of(&mut wharf, "re: second"));
    let messages = get_messages(&mut wharf);
    for (label, expected) in [
        (json!("start"), Some("start")),
        (json!(" \"other\"\u{e9} "), Some("\"other\"\u{e9}")),
        (Value::Null, None),
        (json!("again"), Some("again")),
        (json!(""), None),
        (json!("x"), Some("x")),
        (json!(" \n"), None),
        (json!("kept"), Some("kept")),
    ] {
        let command = json!({"type": "set_label", "entryId": first, "label": label});
        let response = wharf.request(command);
        let success = json!({"id": response["id"], "type": "response", "command": "set_label",
            "success": true});
        assert_eq!(response, success);
        assert_eq!(label_of(&mut wharf, &first).as_deref(), expected, "{label}");
        assert_eq!(label_of(&mut wharf, &second), None);
        let stored = entries(&file);
        let last = stored.last().unwrap();
        assert_eq!((&last["type"], &last["targetId"]), (&json!("label"), &json!(first)));
        // A label that is cleared is none at all.
        assert_eq!(last.get("label"), expected.map(Value::from).as_ref(), "{last}");
    }
    // Without the field, too.
    accept(&mut wharf, json!({"type": "set_label", "entryId": second, "label": "gone"}));
    accept(&mut wharf, json!({"type": "set_label", "entryId": second}));
    assert_eq!(label_of(&mut wharf, &second), None);
    assert_eq!(get_messages(&mut wharf), messages, "labels are no messages");
    let before = tree(&mut wharf);
    let mut wharf = reopen(&env, wharf, &file);
    assert_eq!(tree(&mut wharf), before);
    assert_eq!(label_of(&mut wharf, &first).as_deref(), Some("kept"));
}

#[test]
fn labels_that_cannot_be_set() {
    let env = Env::new();
    let mut wharf = talked(&env, &[], &["first"]);
    let file = session_file(&mut wharf);
    let first = id_of(&mut wharf, "first");
    let before = fs::read(&file).unwrap();
    let unknown = json!({"type": "set_label", "entryId": "zzz", "label": "a"});
    assert_eq!(error(&mut wharf, &unknown), "Entry zzz not found");
    for command in [
        json!({"type": "set_label", "label": "a"}),
        json!({"type": "set_label", "entryId": 5, "label": "a"}),
        json!({"type": "set_label", "entryId": null, "label": "a"}),
        json!({"type": "set_label", "entryId": first, "label": 5}),
        json!({"type": "set_label", "entryId": first, "label": ["a"]}),
    ] {
        error(&mut wharf, &command);
    }
    assert_eq!(fs::read(&file).unwrap(), before);
}
