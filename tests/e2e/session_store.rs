//! The files of sessions that there are: listing, deleting, switching and importing. What
//! the command line makes of them is in `session_cli`, what they cost in `daily_cost`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use insta::assert_snapshot;
use serde_json::{Value, json};
use wharf_tests::script::says;
use wharf_tests::{Env, SessionFile, Wharf};

/// A model that always answers.
pub(crate) fn any_reply(env: &Env) -> String {
    let mut reply = says("ok");
    reply["repeat"] = json!(true);
    env.script(&[reply])
}

pub(crate) fn file_of(wharf: &mut Wharf) -> PathBuf {
    let state = wharf.data(json!({"type": "get_state"}));
    PathBuf::from(state["sessionFile"].as_str().unwrap())
}

/// RPC mode in another working directory.
pub(crate) fn rpc_in(env: &Env, cwd: &Path, args: &[&str]) -> Wharf {
    fs::create_dir_all(cwd).unwrap();
    let mut command = env.command();
    command.current_dir(cwd).args(["--mode", "rpc"]).args(args);
    Wharf::start(command, env.names())
}

/// All files and links below a directory.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(listing) = fs::read_dir(dir) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in listing {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

/// The default folder for the sessions of a working directory.
pub(crate) fn folder_of(env: &Env, cwd: &Path) -> PathBuf {
    let cwd = cwd.display().to_string();
    let name = format!("--{}--", cwd.trim_start_matches('/').replace('/', "-"));
    env.agent_dir().join("sessions").join(name)
}

pub(crate) fn uuid(number: u32) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}

pub(crate) fn header(id: &str, cwd: &Path, created: &str) -> Value {
    json!({"type": "session", "version": 3, "id": id, "timestamp": created, "cwd": cwd})
}

fn entry(number: u32, parent: Option<u32>, time: &str, kind: &str) -> Value {
    let id = |number: u32| format!("{number:08x}");
    json!({"type": kind, "id": id(number), "parentId": parent.map(id), "timestamp": time})
}

pub(crate) fn user(number: u32, parent: Option<u32>, time: &str, content: Value) -> Value {
    let mut entry = entry(number, parent, time, "message");
    entry["message"] = json!({"role": "user", "content": content, "timestamp": 1});
    entry
}

pub(crate) fn reply(number: u32, parent: Option<u32>, time: &str, cost: f64) -> Value {
    let mut entry = entry(number, parent, time, "message");
    entry["message"] = json!({
        "role": "assistant", "content": [{"type": "text", "text": format!("answer {number}")}],
        "api": "scripted", "provider": "scripted", "model": "demo", "stopReason": "stop",
        "usage": {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2,
            "cost": {"input": 0, "output": cost, "cacheRead": 0, "cacheWrite": 0, "total": cost}},
        "timestamp": 1,
    });
    entry
}

fn named(number: u32, parent: Option<u32>, time: &str, name: &str) -> Value {
    let mut entry = entry(number, parent, time, "session_info");
    entry["name"] = json!(name);
    entry
}

pub(crate) fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

/// Puts a file into a folder, with its folders.
pub(crate) fn put(folder: &Path, name: &str, content: &str) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    path
}

/// A session of one question and its answer, said at 10:`minute` of a day long ago.
pub(crate) fn stored(folder: &Path, number: u32, cwd: &Path, minute: u32, text: &str) -> PathBuf {
    let time = |second: u32| format!("2024-01-15T10:{minute:02}:{second:02}.000Z");
    let values = [
        header(&uuid(number), cwd, &time(0)),
        user(1, None, &time(1), json!(text)),
        reply(2, Some(1), &time(2), 0.0),
    ];
    let name = format!("2024-01-15T10-{minute:02}-00-000Z_{}.jsonl", uuid(number));
    put(folder, &name, &lines(&values))
}

fn list(wharf: &mut Wharf, command: &str) -> Vec<Value> {
    let data = wharf.data(json!({"type": command}));
    assert_eq!(data.as_object().unwrap().len(), 1, "{data}");
    data["sessions"].as_array().unwrap().clone()
}

fn field<'a>(sessions: &'a [Value], name: &str) -> Vec<&'a Value> {
    sessions.iter().map(|session| &session[name]).collect()
}

fn command_error(wharf: &mut Wharf, command: Value) -> String {
    let response = wharf.request(command);
    assert_eq!(response["success"], false, "{response}");
    assert!(response.get("data").is_none(), "{response}");
    response["error"].as_str().unwrap().to_owned()
}

pub(crate) fn delete(wharf: &mut Wharf, path: impl AsRef<Path>) -> Value {
    wharf.data(json!({"type": "delete_session", "sessionPath": path.as_ref()}))
}

fn not_deleted(wharf: &mut Wharf, path: impl AsRef<Path>) -> String {
    command_error(wharf, json!({"type": "delete_session", "sessionPath": path.as_ref()}))
}

fn not_switched(wharf: &mut Wharf, path: impl AsRef<Path>, fork: bool) -> String {
    let command = json!({"type": "switch_session", "sessionPath": path.as_ref(), "fork": fork});
    command_error(wharf, command)
}

pub(crate) fn switch(wharf: &mut Wharf, path: impl AsRef<Path>, fork: bool) {
    let command = json!({"type": "switch_session", "sessionPath": path.as_ref(), "fork": fork});
    assert_eq!(wharf.data(command), json!({"cancelled": false}));
}

fn texts(wharf: &mut Wharf) -> Vec<String> {
    let data = wharf.data(json!({"type": "get_messages"}));
    let messages = data["messages"].as_array().unwrap().iter();
    messages
        .map(|message| match &message["content"] {
            Value::String(text) => text.clone(),
            content => content[0]["text"].as_str().unwrap_or_default().to_owned(),
        })
        .collect()
}

#[test]
fn the_commands_about_files_as_they_stand_on_the_wire() {
    let env = Env::new();
    let folder = folder_of(&env, &env.project());
    let kept = stored(&folder, 1, &env.project(), 1, "kept");
    let other = stored(&folder, 2, &env.project(), 2, "other");
    let mine = stored(&env.project(), 3, &env.project(), 3, "mine");
    let mut wharf = env.rpc(&["--session", kept.to_str().unwrap()]);
    let path = |path: &Path| json!(path);
    for mut command in [
        json!({"type": "list_sessions"}),
        json!({"type": "delete_session", "sessionPath": path(&kept)}),
        json!({"type": "delete_session", "sessionPath": "evil.txt"}),
        json!({"type": "delete_session", "sessionPath": "missing.jsonl"}),
        json!({"type": "delete_session", "sessionPath": path(&other)}),
        json!({"type": "switch_session", "sessionPath": path(&other)}),
        json!({"type": "switch_session"}),
        json!({"type": "import_session", "sessionPath": path(&mine)}),
        json!({"type": "import_session", "sessionPath": path(&mine)}),
        json!({"type": "switch_session", "sessionPath": path(&kept)}),
        json!({"type": "new_session", "parentSession": path(&kept)}),
        json!({"type": "list_all_sessions"}),
        json!({"type": "get_daily_cost"}),
        json!({"type": "export_html", "outputPath": "no/page.html"}),
        json!({"type": "export_html", "outputPath": "page.html"}),
    ] {
        let id = command["type"].as_str().unwrap().to_owned();
        command["id"] = json!(id);
        wharf.send(&command);
        wharf.wait_for("its response", |line| line["id"] == id.as_str());
    }
    // The folder's name is made of a path that differs from run to run.
    let name = folder.file_name().unwrap().to_str().unwrap();
    assert_snapshot!("session_files", wharf.finish().transcript.replace(name, "[FOLDER]"));
}

/// Every field of every kind of session that there is, and what lies beside them.
#[test]
fn a_list_tells_every_field_and_no_file_that_is_no_session() {
    let env = Env::new();
    let cwd = env.project();
    let folder = folder_of(&env, &cwd);
    let time = |minute: u32| format!("2024-01-15T10:{minute:02}:00.000Z");

    // Two branches, of which all messages count; the last name counts.
    let tree = lines(&[
        header(&uuid(1), &cwd, &time(0)),
        user(1, None, &time(1), json!([{"type": "text", "text": "Help me\nrefactor"}])),
        reply(2, Some(1), &time(2), 0.0),
        named(3, Some(2), &time(3), "first name"),
        user(4, Some(2), &time(4), json!("one way")),
        user(5, Some(2), &time(5), json!("another way")),
        reply(6, Some(5), &time(40), 0.0),
        named(7, Some(6), &time(30), "  feature-work "),
    ]);
    let tree = put(&folder, "tree.jsonl", &tree);
    // The first message that has text, not longer than 1,000 characters; a name that is
    // taken back is none.
    let long = lines(&[
        header(&uuid(2), &cwd, &time(10)),
        user(1, None, &time(11), json!([{"type": "image", "data": "", "mimeType": "image/png"}])),
        named(2, Some(1), &time(12), "gone"),
        user(3, Some(2), &time(13), json!("\u{e9}".repeat(1500))),
        named(4, Some(3), &time(50), ""),
    ]);
    let long = put(&folder, "long.jsonl", &long);
    // Nobody said anything.
    let silent = lines(&[header(&uuid(3), &cwd, &time(20)), reply(1, None, &time(21), 0.0)]);
    let silent = put(&folder, "silent.jsonl", &silent);
    let empty = put(&folder, "empty.jsonl", &lines(&[header(&uuid(4), &cwd, &time(6))]));
    // A bad line costs itself, and so does a torn one.
    let hurt = lines(&[header(&uuid(5), &cwd, &time(0)), user(1, None, &time(1), json!("hurt"))])
        + "garbage\n"
        + &lines(&[reply(2, Some(1), &time(2), 0.0)])
        + "{\"type\":\"message\",\"id\":\"00000003\",\"par";
    let hurt = put(&folder, "hurt.jsonl", &hurt);

    // None of these is one.
    put(&folder, "notes.txt", "{}");
    put(&folder, "foreign.jsonl", "{\"type\":\"message\"}\n{\"a\":1}\n");
    put(&folder, "text.jsonl", "Some text.\n");
    put(&folder, "tree.jsonl.torn", "{\"type\":\"mess");
    put(&folder, "tree.jsonl.v1.bak", &fs::read_to_string(&tree).unwrap());
    put(&folder, "tree.jsonl.lock", "{}");
    put(&folder.join("folder.jsonl"), "in.jsonl", &fs::read_to_string(&tree).unwrap());
    std::os::unix::fs::symlink("nowhere", folder.join("dangling.jsonl")).unwrap();
    let fifo = folder.join("fifo.jsonl");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut subagent = header(&uuid(6), &cwd, &time(0));
    subagent["agentType"] = json!("reviewer");
    put(&folder, "agent.jsonl", &lines(&[subagent, user(1, None, &time(1), json!("sub"))]));
    let mut newer = header(&uuid(7), &cwd, &time(0));
    newer["version"] = json!(99);
    let newer = put(&folder, "newer.jsonl", &lines(&[newer]));
    let before = files(&folder).len();

    let expected = json!([
        {"path": long, "id": uuid(2), "cwd": cwd, "created": time(10), "modified": time(50),
            "messageCount": 2, "firstMessage": "\u{e9}".repeat(1000)},
        {"path": tree, "id": uuid(1), "cwd": cwd, "name": "feature-work", "created": time(0),
            "modified": time(40), "messageCount": 5, "firstMessage": "Help me\nrefactor"},
        {"path": silent, "id": uuid(3), "cwd": cwd, "created": time(20), "modified": time(21),
            "messageCount": 1, "firstMessage": "(no messages)"},
        {"path": empty, "id": uuid(4), "cwd": cwd, "created": time(6), "modified": time(6),
            "messageCount": 0, "firstMessage": "(no messages)"},
        {"path": hurt, "id": uuid(5), "cwd": cwd, "created": time(0), "modified": time(2),
            "messageCount": 2, "firstMessage": "hurt"},
    ]);
    let mut wharf = env.rpc(&[]);
    // The second time from what is remembered.
    for command in ["list_sessions", "list_all_sessions", "list_sessions"] {
        assert_eq!(json!(list(&mut wharf, command)), expected, "{command}");
        let told = wharf.wait_extension_error("newer.jsonl");
        assert_eq!(told["extensionPath"], json!(newer));
        assert_eq!(told["event"], "session");
        assert!(told["error"].as_str().unwrap().contains("99"), "{told}");
    }
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0));
    assert!(exit.rest.iter().all(|line| line["event"] != "session"), "{}", exit.transcript);
    assert_eq!(files(&folder).len(), before, "a list changes nothing there");
}

#[test]
fn sessions_of_the_same_time_stand_in_the_order_of_their_paths() {
    let env = Env::new();
    let cwd = env.project();
    let folder = folder_of(&env, &cwd);
    let mut paths: Vec<PathBuf> =
        [3, 1, 2].iter().map(|number| stored(&folder, *number, &cwd, 5, "same")).collect();
    paths.sort();
    let later = stored(&folder, 9, &cwd, 6, "later");
    // The time of the file itself, which a copy or a restore changes, says nothing.
    let old = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::options().append(true).open(&later).unwrap().set_modified(old).unwrap();
    paths.insert(0, later);
    let mut wharf = env.rpc(&[]);
    for command in ["list_sessions", "list_all_sessions"] {
        let sessions = list(&mut wharf, command);
        let expected: Vec<Value> = paths.iter().map(|path| json!(path)).collect();
        assert_eq!(field(&sessions, "path"), expected.iter().collect::<Vec<_>>());
    }
}

/// `/x/y` and `/x-y` share a folder.
#[test]
fn directories_that_share_a_folder_do_not_share_sessions() {
    let env = Env::new();
    let model = any_reply(&env);
    let cwds = [env.home().join("x/y"), env.home().join("x-y")];
    assert_eq!(folder_of(&env, &cwds[0]), folder_of(&env, &cwds[1]));
    let mut paths = Vec::new();
    for cwd in &cwds {
        let mut wharf = rpc_in(&env, cwd, &["--model", &model]);
        wharf.run("hi");
        paths.push(file_of(&mut wharf));
        assert_eq!(wharf.finish().code, Some(0));
    }
    assert_eq!(paths[0].parent(), paths[1].parent());
    for (cwd, path) in cwds.iter().zip(&paths) {
        let mut wharf = rpc_in(&env, cwd, &["--continue"]);
        assert_eq!(file_of(&mut wharf), *path);
        let sessions = list(&mut wharf, "list_sessions");
        assert_eq!(field(&sessions, "path"), [&json!(path)]);
        assert_eq!(field(&sessions, "cwd"), [&json!(cwd)]);
        assert_eq!(list(&mut wharf, "list_all_sessions").len(), 2);
        assert_eq!(wharf.finish().code, Some(0));
    }
    let mut wharf = env.rpc(&[]);
    assert_eq!(list(&mut wharf, "list_sessions"), [Value::Null; 0]);
    assert_eq!(list(&mut wharf, "list_all_sessions").len(), 2);
}

#[test]
fn an_empty_store_is_an_empty_list_and_stays_as_it_is() {
    let env = Env::new();
    let mut wharf = env.rpc(&[]);
    for command in ["list_sessions", "list_all_sessions"] {
        assert_eq!(list(&mut wharf, command), [Value::Null; 0]);
    }
    assert_eq!(wharf.data(json!({"type": "get_daily_cost"}))["cost"], 0.0);
    assert_eq!(wharf.finish().code, Some(0));
    assert!(!env.agent_dir().join("sessions").exists());
}

/// Which is told apart from one that is empty.
#[test]
fn a_store_that_cannot_be_read_is_an_error() {
    let env = Env::new();
    let sessions = env.agent_dir().join("sessions");
    let mut wharf = env.rpc(&[]);
    let place = |wharf: &mut Wharf, command: &str, path: &Path, cause: &str| {
        let error = command_error(wharf, json!({"type": command}));
        assert!(error.contains(path.to_str().unwrap()), "{command}: {error}");
        assert!(error.to_lowercase().contains(cause), "{command}: {error}");
    };

    fs::write(&sessions, "a file").unwrap();
    place(&mut wharf, "list_sessions", &sessions, "not a directory");
    place(&mut wharf, "list_all_sessions", &sessions, "not a directory");
    place(&mut wharf, "get_daily_cost", &sessions, "not a directory");

    fs::remove_file(&sessions).unwrap();
    std::os::unix::fs::symlink("sessions", &sessions).unwrap();
    place(&mut wharf, "list_sessions", &sessions, "symbolic link");
    place(&mut wharf, "list_all_sessions", &sessions, "symbolic link");

    // The folder of this directory only.
    fs::remove_file(&sessions).unwrap();
    let other = env.home().join("other");
    stored(&folder_of(&env, &other), 1, &other, 0, "there");
    let folder = folder_of(&env, &env.project());
    fs::write(&folder, "a file").unwrap();
    place(&mut wharf, "list_sessions", &folder, "not a directory");

    fs::remove_file(&folder).unwrap();
    assert_eq!(list(&mut wharf, "list_sessions"), [Value::Null; 0]);
    assert_eq!(list(&mut wharf, "list_all_sessions").len(), 1);
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn a_flat_directory_lists_the_sessions_of_all_projects() {
    let env = Env::new();
    let dir = env.home().join("flat");
    let other = env.home().join("other");
    stored(&dir, 1, &env.project(), 1, "mine");
    stored(&dir, 2, &other, 2, "other");
    // Only what lies directly in it.
    stored(&dir.join("deeper"), 3, &env.project(), 3, "deeper");
    // And nothing of the default store.
    stored(&folder_of(&env, &env.project()), 4, &env.project(), 4, "default");
    for extra in [&[][..], &["--no-session"]] {
        let mut args = vec!["--session-dir", "~/flat"];
        args.extend(extra);
        let mut wharf = env.rpc(&args);
        for command in ["list_sessions", "list_all_sessions"] {
            let sessions = list(&mut wharf, command);
            assert_eq!(field(&sessions, "firstMessage"), ["other", "mine"], "{command}");
            assert_eq!(field(&sessions, "cwd"), [&json!(other), &json!(env.project())]);
        }
        assert_eq!(wharf.finish().code, Some(0));
    }
}

#[test]
fn without_a_session_of_its_own_a_run_lists_those_that_there_are() {
    let env = Env::new();
    let path = stored(&folder_of(&env, &env.project()), 1, &env.project(), 1, "kept");
    let model = any_reply(&env);
    let mut wharf = env.rpc(&["--no-session", "--model", &model]);
    wharf.run("not kept");
    for command in ["list_sessions", "list_all_sessions"] {
        assert_eq!(field(&list(&mut wharf, command), "path"), [&json!(path)]);
    }
    // One that is opened is written all the same.
    switch(&mut wharf, &path, false);
    wharf.run("kept");
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(SessionFile::read(&path).messages().len(), 4);
}

/// It is a cache and nothing more.
#[test]
fn whatever_becomes_of_the_index_a_list_is_right() {
    let env = Env::new();
    let folder = folder_of(&env, &env.project());
    let path = stored(&folder, 1, &env.project(), 1, "one");
    stored(&folder, 2, &env.project(), 2, "two");
    let index = env.agent_dir().join("cache/sessions.json");
    let listed = || {
        let mut wharf = env.rpc(&[]);
        let sessions = list(&mut wharf, "list_sessions");
        assert_eq!(list(&mut wharf, "list_all_sessions"), sessions);
        (sessions, wharf.finish())
    };
    let (expected, _) = listed();
    assert_eq!(field(&expected, "firstMessage"), ["two", "one"]);
    let sound = fs::read_to_string(&index).unwrap();
    let other_version = sound.replacen("\"version\":1", "\"version\":2", 1);
    let emptied = "{\"version\":1,\"files\":{}}";
    let odd = format!("{{\"version\":1,\"files\":{{\"{}\":{{}}}}}}", path.display());
    let half = &sound[..sound.len() / 2];
    for garbage in ["", "\0\0\0", "[]", "null", half, &other_version, emptied, &odd] {
        fs::write(&index, garbage).unwrap();
        let (sessions, exit) = listed();
        assert_eq!(sessions, expected, "{garbage:?}");
        assert!(exit.rest.is_empty(), "{}", exit.transcript);
    }
    // What it says of a file that is another one by now does not count.
    fs::write(&index, &sound).unwrap();
    stored(&folder, 1, &env.project(), 1, "eno");
    let (sessions, _) = listed();
    assert_eq!(field(&sessions, "firstMessage"), ["two", "eno"]);
    stored(&folder, 1, &env.project(), 1, "one");

    fs::remove_file(&index).unwrap();
    assert_eq!(listed().0, expected);
    // Where none can be written: a folder in its place, a file in its folder's place.
    fs::remove_file(&index).unwrap();
    fs::create_dir_all(index.join("sub")).unwrap();
    let (sessions, exit) = listed();
    assert_eq!(sessions, expected);
    assert!(exit.transcript.contains("cache/sessions.json"), "it is told: {}", exit.transcript);
    fs::remove_dir_all(index.parent().unwrap()).unwrap();
    fs::write(index.parent().unwrap(), "a file").unwrap();
    assert_eq!(listed().0, expected);
}

#[test]
fn a_list_shows_what_another_process_has_written_meanwhile() {
    let env = Env::new();
    let folder = folder_of(&env, &env.project());
    let old = stored(&folder, 1, &env.project(), 1, "old");
    let new = stored(&folder, 2, &env.project(), 2, "new");
    let model = any_reply(&env);
    let mut watcher = env.rpc(&[]);
    assert_eq!(field(&list(&mut watcher, "list_sessions"), "path"), [&json!(new), &json!(old)]);

    let mut writer = env.rpc(&["--model", &model, "--session", old.to_str().unwrap()]);
    writer.run("more");
    let sessions = list(&mut watcher, "list_sessions");
    assert_eq!(field(&sessions, "path"), [&json!(old), &json!(new)]);
    assert_eq!(field(&sessions, "messageCount"), [4, 2]);
    // Its own too, up to the last message.
    assert_eq!(list(&mut writer, "list_sessions"), sessions);
    writer.data(json!({"type": "set_session_name", "name": "Renamed"}));
    writer.run("even more");
    for wharf in [&mut writer, &mut watcher] {
        let sessions = list(wharf, "list_all_sessions");
        assert_eq!(field(&sessions, "name"), [&json!("Renamed"), &Value::Null]);
        assert_eq!(field(&sessions, "messageCount"), [6, 2]);
    }
    assert_eq!(writer.finish().code, Some(0));

    // A shorter file in its place, and none.
    fs::write(&old, fs::read_to_string(&new).unwrap()).unwrap();
    assert_eq!(field(&list(&mut watcher, "list_sessions"), "messageCount"), [2, 2]);
    fs::remove_file(&old).unwrap();
    assert_eq!(field(&list(&mut watcher, "list_all_sessions"), "path"), [&json!(new)]);
}

/// The texts are the reference's, and the first that applies is told.
#[test]
fn what_must_not_be_deleted_is_refused() {
    const ACTIVE: &str = "Cannot delete the currently active session";
    let env = Env::new();
    let model = any_reply(&env);
    let other = stored(&env.home(), 1, &env.project(), 1, "other");
    let evil = env.write("evil.txt", "x");
    fs::create_dir(env.project().join("folder.jsonl")).unwrap();
    let mut wharf = env.rpc(&["--model", &model]);
    // Also one that has no file yet.
    let unwritten = file_of(&mut wharf);
    assert_eq!(not_deleted(&mut wharf, &unwritten), ACTIVE);
    wharf.run("hi");
    let active = file_of(&mut wharf);
    assert_eq!(active, unwritten);

    // Whatever it is called.
    let name = active.file_name().unwrap();
    let folder = active.parent().unwrap();
    let link = env.project().join("link.jsonl");
    std::os::unix::fs::symlink(&active, &link).unwrap();
    std::os::unix::fs::symlink(folder, env.project().join("folder")).unwrap();
    let roundabout = folder.join("nowhere/../.").join(name);
    let relative = Path::new("../agent/sessions").join(folder.file_name().unwrap()).join(name);
    let through_folder = Path::new("folder").join(name);
    let from_home = Path::new("~/..").join(relative.strip_prefix("..").unwrap());
    let bare_link = Path::new("link.jsonl");
    for path in
        [&*active, &*link, &*roundabout, &*relative, &*through_folder, &*from_home, bare_link]
    {
        assert_eq!(not_deleted(&mut wharf, path), ACTIVE, "{}", path.display());
    }

    let at = |path: &str| env.project().join(path).display().to_string();
    let no_session = |path: &str| format!("Not a session file (expected .jsonl): {path}");
    for (path, expected) in [
        (at("evil.txt"), no_session(&at("evil.txt"))),
        ("evil.txt".to_owned(), no_session(&at("evil.txt"))),
        ("a/./../evil.txt".to_owned(), no_session(&at("evil.txt"))),
        // Before whether there is one.
        (at("missing.txt"), no_session(&at("missing.txt"))),
        (at("x.JSONL"), no_session(&at("x.JSONL"))),
        (String::new(), no_session(&env.project().display().to_string())),
        (at("missing.jsonl"), format!("session file {} does not exist", at("missing.jsonl"))),
        (
            at("no/folder/missing.jsonl"),
            format!("session file {} does not exist", at("no/folder/missing.jsonl")),
        ),
        (
            at("folder.jsonl"),
            format!("{} is a directory; name a session file (.jsonl)", at("folder.jsonl")),
        ),
    ] {
        assert_eq!(not_deleted(&mut wharf, &path), expected);
    }
    for odd in [json!(5), Value::Null, json!(["x.jsonl"])] {
        command_error(&mut wharf, json!({"type": "delete_session", "sessionPath": odd}));
    }
    command_error(&mut wharf, json!({"type": "delete_session"}));
    wharf.run("still here");
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(SessionFile::read(&active).messages().len(), 4);
    assert!(evil.exists() && other.exists() && env.project().join("folder.jsonl").exists());

    // That it is the active one comes before its name.
    let text = env.project().join("session.txt");
    fs::copy(&active, &text).unwrap();
    let mut wharf = env.rpc(&["--session", "./session.txt"]);
    assert_eq!(not_deleted(&mut wharf, &text), ACTIVE);
}

#[test]
fn a_session_is_deleted_into_the_trash() {
    let env = Env::new();
    let other = env.home().join("other");
    let folder = folder_of(&env, &env.project());
    let mine = stored(&folder, 1, &env.project(), 1, "mine");
    let content = fs::read_to_string(&mine).unwrap();
    let theirs = stored(&folder_of(&env, &other), 2, &other, 2, "theirs");
    let at_home = stored(&env.home(), 3, &other, 3, "at home");
    put(&folder, &format!("{}.lock", mine.file_name().unwrap().to_str().unwrap()), "{}");
    let mut wharf = env.rpc(&[]);
    assert_eq!(list(&mut wharf, "list_all_sessions").len(), 2);
    let trash = env.home().join(".local/share/Trash/files");
    let home_name = Path::new("~").join(at_home.file_name().unwrap());
    for (path, file) in [(&mine, &mine), (&theirs, &theirs), (&home_name, &at_home)] {
        assert_eq!(delete(&mut wharf, path), json!({"method": "trash"}));
        assert!(!file.exists());
        assert!(trash.join(file.file_name().unwrap()).is_file(), "{:?}", files(&env.home()));
        assert!(not_deleted(&mut wharf, path).ends_with(" does not exist"));
    }
    assert_eq!(fs::read_to_string(trash.join(mine.file_name().unwrap())).unwrap(), content);
    assert_eq!(list(&mut wharf, "list_all_sessions"), [Value::Null; 0]);
    assert!(files(&folder).is_empty(), "its lock went too: {:?}", files(&folder));
}

#[test]
fn without_a_trash_a_session_is_deleted_for_good() {
    let env = Env::new();
    fs::write(env.home().join(".local"), "a file").unwrap();
    let path = stored(&folder_of(&env, &env.project()), 1, &env.project(), 1, "mine");
    // Of a link the link goes.
    let link = env.project().join("link.jsonl");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut wharf = env.rpc(&[]);
    assert_eq!(delete(&mut wharf, "link.jsonl"), json!({"method": "unlink"}));
    assert!(link.symlink_metadata().is_err() && path.exists());
    assert_eq!(delete(&mut wharf, &path), json!({"method": "unlink"}));
    assert!(!path.exists());
}

#[test]
fn a_session_that_another_process_has_open_is_neither_deleted_nor_opened() {
    let env = Env::new();
    let model = any_reply(&env);
    let folder = folder_of(&env, &env.project());
    let path = stored(&folder, 1, &env.project(), 1, "shared");
    let link = env.project().join("link.jsonl");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut owner = env.rpc(&["--model", &model, "--session", path.to_str().unwrap()]);
    let pid = owner.pid().to_string();
    owner.run("mine");
    let before = fs::read_to_string(&path).unwrap();

    let mut wharf = env.rpc(&["--model", &model]);
    wharf.run("own");
    let own = file_of(&mut wharf);
    let there = files(&folder);
    for spelling in [&path, &link] {
        for error in [not_deleted(&mut wharf, spelling), not_switched(&mut wharf, spelling, false)]
        {
            assert!(error.contains(spelling.to_str().unwrap()), "{error}");
            assert!(error.contains(&format!("process {pid}")), "{error}");
        }
    }
    assert_eq!(file_of(&mut wharf), own);
    assert_eq!(files(&folder), there);
    assert_eq!(fs::read_to_string(&path).unwrap(), before);

    // A copy can be worked on, by both at the same time.
    switch(&mut wharf, &path, true);
    let copy = file_of(&mut wharf);
    assert!(copy != path && copy != own);
    wharf.run("in the copy");
    owner.run("in the original");
    assert_eq!(texts(&mut wharf), ["shared", "answer 2", "mine", "ok", "in the copy", "ok"]);
    assert_eq!(texts(&mut owner), ["shared", "answer 2", "mine", "ok", "in the original", "ok"]);

    // And when its owner has gone.
    assert_eq!(owner.finish().code, Some(0));
    switch(&mut wharf, &path, false);
    assert_eq!(file_of(&mut wharf), path);
    switch(&mut wharf, &own, false);
    assert_eq!(delete(&mut wharf, &path)["method"], "trash");
    assert_eq!(wharf.finish().code, Some(0));
    SessionFile::read(&copy).assert_linear();
}

#[test]
fn switch_session_takes_paths_as_people_write_them() {
    let env = Env::new();
    let at_home = stored(&env.home().join("kept"), 1, &env.project(), 1, "at home");
    let here = stored(&env.project(), 2, &env.project(), 2, "here");
    let home_name = at_home.file_name().unwrap().to_str().unwrap();
    let name = here.file_name().unwrap().to_str().unwrap();
    let mut wharf = env.rpc(&[]);
    for (path, file, first) in [
        (format!("~/kept/{home_name}"), &at_home, "at home"),
        (name.to_owned(), &here, "here"),
        (format!("~/../home/./kept/{home_name}"), &at_home, "at home"),
        (format!("no/such/../../{name}"), &here, "here"),
    ] {
        switch(&mut wharf, &path, false);
        assert_eq!(file_of(&mut wharf), *file, "{path}");
        assert_eq!(texts(&mut wharf)[0], first, "{path}");
    }
    let error = not_switched(&mut wharf, format!("~/{home_name}"), false);
    assert!(error.contains(&env.home().join(home_name).display().to_string()), "{error}");
}

/// The one that is open already is read again, and goes on in the same file.
#[test]
fn a_switch_to_the_own_file_keeps_everything() {
    let env = Env::new();
    let model = any_reply(&env);
    let mut wharf = env.rpc(&["--model", &model]);
    let path = file_of(&mut wharf);
    // There is none yet.
    assert!(not_switched(&mut wharf, &path, false).contains(path.to_str().unwrap()));
    assert!(files(&env.agent_dir().join("sessions")).is_empty());
    wharf.run("one");
    let link = env.project().join("link.jsonl");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for (number, spelling) in [&path, &link, &path].into_iter().enumerate() {
        switch(&mut wharf, spelling, false);
        assert_eq!(texts(&mut wharf).len(), 2 * (number + 1));
        wharf.run("more");
    }
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(files(&env.agent_dir().join("sessions")), std::slice::from_ref(&path));
    assert!(link.is_symlink());
    let session = SessionFile::read(&path);
    session.assert_linear();
    assert_eq!(session.messages().len(), 8);
}

#[test]
fn a_switch_with_fork_copies_a_session_of_anywhere_into_this_directory() {
    let env = Env::new();
    let model = any_reply(&env);
    let other = env.home().join("other");
    let source = stored(&folder_of(&env, &other), 1, &other, 1, "theirs");
    let before = fs::read_to_string(&source).unwrap();
    let mut wharf = env.rpc(&["--model", &model]);
    switch(&mut wharf, &source, true);
    let copy = file_of(&mut wharf);
    assert_eq!(copy.parent().unwrap(), folder_of(&env, &env.project()));
    assert_eq!(texts(&mut wharf), ["theirs", "answer 2"]);
    wharf.run("mine");
    // Of its own, too.
    switch(&mut wharf, &copy, true);
    let second = file_of(&mut wharf);
    wharf.run("again");
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(fs::read_to_string(&source).unwrap(), before);
    for (file, parent, messages) in [(&copy, &source, 4), (&second, &copy, 6)] {
        let session = SessionFile::read(file);
        session.assert_linear();
        assert_eq!(session.messages().len(), messages);
        assert_eq!(session.header["cwd"], json!(env.project()));
        assert_eq!(session.header["parentSession"], json!(parent));
        assert_ne!(session.header["id"], json!(uuid(1)));
    }
    let text = fs::read_to_string(&second).unwrap();
    let entries: String = before.split_inclusive('\n').skip(1).collect();
    assert!(text.contains(&entries), "entries stand as they stood");
}

#[test]
fn what_cannot_be_copied_creates_nothing() {
    let env = Env::new();
    let newer = "{\"type\":\"session\",\"version\":4,\"id\":\"x\",\"timestamp\":\"2030-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n";
    env.write("newer.jsonl", newer);
    env.write("notes.jsonl", "These are\nmy notes.\n");
    let empty = [header(&uuid(1), &env.project(), "2024-01-15T10:00:00.000Z")];
    env.write("empty.jsonl", lines(&empty));
    let there = files(&env.project());
    let model = any_reply(&env);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.run("first");
    let own = file_of(&mut wharf);
    let kept = files(&env.agent_dir().join("sessions"));
    for (path, word) in [
        ("missing.jsonl", "does not exist"),
        ("no/folder/missing.jsonl", "does not exist"),
        ("notes.jsonl", "no session file"),
        ("newer.jsonl", "version 4"),
        ("empty.jsonl", "no entries"),
        (".", "regular file"),
    ] {
        let full = env.project().join(path);
        let full = if path == "." { env.project() } else { full };
        let command = json!({"type": "import_session", "sessionPath": path});
        for error in [not_switched(&mut wharf, path, true), command_error(&mut wharf, command)] {
            assert!(error.contains(full.to_str().unwrap()), "{error}");
            assert!(error.contains(word), "{error}");
        }
    }
    for odd in [json!("yes"), json!(1)] {
        let command = json!({"type": "switch_session", "sessionPath": own, "fork": odd});
        command_error(&mut wharf, command);
    }
    assert_eq!(file_of(&mut wharf), own);
    assert_eq!(files(&env.agent_dir().join("sessions")), kept);
    assert_eq!(files(&env.project()), there);
    assert_eq!(fs::read_to_string(env.project().join("newer.jsonl")).unwrap(), newer);
}

#[test]
fn new_session_records_its_parent_and_nothing_else() {
    let env = Env::new();
    let model = any_reply(&env);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.run("first");
    let first = file_of(&mut wharf);
    for odd in [json!(5), json!({}), json!(["x"])] {
        command_error(&mut wharf, json!({"type": "new_session", "parentSession": odd}));
        assert_eq!(file_of(&mut wharf), first);
    }
    let mut parents = Vec::new();
    for parent in [json!(first), json!("~/not/there.jsonl"), Value::Null] {
        let data = wharf.data(json!({"type": "new_session", "parentSession": parent}));
        assert_eq!(data, json!({"cancelled": false}));
        assert_eq!(texts(&mut wharf), [""; 0]);
        wharf.run("hi");
        let header = SessionFile::read(&file_of(&mut wharf)).header;
        parents.push(header.get("parentSession").cloned());
    }
    let not_there = Some(json!("~/not/there.jsonl"));
    assert_eq!(parents, [Some(json!(first)), not_there, None]);
    assert_eq!(SessionFile::read(&first).messages().len(), 2);
}

#[test]
fn an_imported_session_is_a_copy_with_its_id() {
    let env = Env::new();
    let model = any_reply(&env);
    let other = env.home().join("other");
    let source = stored(&env.home(), 1, &other, 1, "made elsewhere");
    let name = source.file_name().unwrap().to_str().unwrap().to_owned();
    let before = fs::read_to_string(&source).unwrap();
    let import = |path: &str| json!({"type": "import_session", "sessionPath": path});
    let mut wharf = env.rpc(&["--model", &model]);
    let data = wharf.data(import(&format!("~/{name}")));
    let copy = file_of(&mut wharf);
    assert_eq!(data, json!({"cancelled": false, "sessionFile": copy}));
    assert_eq!(copy, folder_of(&env, &env.project()).join(&name));
    assert_eq!(texts(&mut wharf), ["made elsewhere", "answer 2"]);
    assert_eq!(wharf.data(json!({"type": "get_state"}))["sessionId"], json!(uuid(1)));

    // Twice, another file with the same id, and the copy itself.
    let same_id = stored(&env.project(), 1, &env.project(), 2, "another");
    for path in [&source, &same_id, &copy] {
        let error = command_error(&mut wharf, import(path.to_str().unwrap()));
        assert!(error.contains(&uuid(1)), "{error}");
        assert!(error.contains(copy.to_str().unwrap()), "{error}");
    }
    wharf.run("goes on");
    assert_eq!(field(&list(&mut wharf, "list_sessions"), "messageCount"), [4]);
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(fs::read_to_string(&source).unwrap(), before);
    let session = SessionFile::read(&copy);
    session.assert_linear();
    assert_eq!(session.header["cwd"], json!(env.project()));
    assert_eq!(session.messages().len(), 4);

    // Also where it is in the store for another directory.
    let cwd = env.home().join("third");
    let mut wharf = rpc_in(&env, &cwd, &[]);
    let error = command_error(&mut wharf, import(source.to_str().unwrap()));
    assert!(error.contains(copy.to_str().unwrap()), "{error}");
    assert!(!folder_of(&env, &cwd).exists());
}

/// No version, no ids; compactions by index.
pub(crate) fn old_session(cwd: &Path) -> String {
    let mut values = vec![header(&uuid(77), cwd, "2024-01-15T10:00:00.000Z")];
    values[0].as_object_mut().unwrap().remove("version");
    let time = |second: u32| format!("2024-01-15T10:00:{second:02}.000Z");
    values.push(user(0, None, &time(1), json!("old question")));
    values.push(reply(0, None, &time(2), 0.0));
    for value in &mut values[1..] {
        let value = value.as_object_mut().unwrap();
        value.remove("id");
        value.remove("parentId");
    }
    lines(&values)
}

#[test]
fn an_old_file_is_imported_in_the_current_format() {
    let env = Env::new();
    let model = any_reply(&env);
    let source = env.write("old.jsonl", old_session(&env.home()));
    let before = fs::read_to_string(&source).unwrap();
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.data(json!({"type": "import_session", "sessionPath": "old.jsonl"}));
    assert_eq!(texts(&mut wharf), ["old question", "answer 0"]);
    let copy = file_of(&mut wharf);
    SessionFile::read(&copy).assert_linear();
    wharf.run("goes on");
    assert_eq!(wharf.finish().code, Some(0));
    let session = SessionFile::read(&copy);
    session.assert_linear();
    assert_eq!(session.header["id"], json!(uuid(77)));
    assert_eq!(session.messages().len(), 4);
    assert_eq!(fs::read_to_string(&source).unwrap(), before);
    assert_eq!(files(&env.project()), [source]);
    assert_eq!(files(&env.agent_dir().join("sessions")), [copy]);
}

/// A damaged one is imported but for its damage, which is told.
#[test]
fn of_a_damaged_file_what_is_whole_is_imported() {
    let env = Env::new();
    let source = stored(&env.project(), 1, &env.project(), 1, "whole");
    let text = fs::read_to_string(&source).unwrap() + "garbage\n{\"type\":\"message\",\"id\":\"0";
    fs::write(&source, &text).unwrap();
    let mut wharf = env.rpc(&[]);
    wharf.data(json!({"type": "import_session", "sessionPath": source}));
    let told = wharf.wait_for("the damage", |line| line["event"] == "session");
    assert!(told["error"].as_str().unwrap().contains('4'), "its line is named: {told}");
    let copy = file_of(&mut wharf);
    assert_eq!(SessionFile::read(&copy).messages().len(), 2);
    assert_eq!(fs::read_to_string(&source).unwrap(), text);
}

/// A switch, and in the same write a command that is meant for the session after it.
fn switch_and(wharf: &mut Wharf, file: &Path, then: Value) -> Value {
    let mut then = then;
    then["id"] = json!("then");
    let switch = json!({"id": "switch", "type": "switch_session", "sessionPath": file});
    wharf.send_raw(format!("{switch}\n{then}\n").as_bytes());
    let switched = wharf.wait_for("the switch", |line| line["id"] == "switch");
    assert_eq!(switched["success"], true, "{switched}");
    wharf.wait_for("what came after it", |line| line["id"] == "then")
}

#[test]
fn what_is_written_after_a_switch_is_meant_for_the_session_after_it() {
    let env = Env::new();
    let model = env.script(&[says("ok")]);
    let mut wharf = env.rpc(&["--model", &model]);
    wharf.run("of the first session");
    let path = |wharf: &mut Wharf| {
        PathBuf::from(wharf.data(json!({"type": "get_state"}))["sessionFile"].as_str().unwrap())
    };
    let first = path(&mut wharf);
    wharf.data(json!({"type": "new_session"}));
    wharf.run("of the second session");
    let second = path(&mut wharf);

    let deleted =
        switch_and(&mut wharf, &first, json!({"type": "delete_session", "sessionPath": first}));
    assert_eq!(deleted["error"], "Cannot delete the currently active session");
    let page = env.project().join("page.html");
    let exported =
        switch_and(&mut wharf, &second, json!({"type": "export_html", "outputPath": page}));
    assert_eq!(exported["success"], true, "{exported}");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("of the second session") && !html.contains("of the first session"));

    // A page takes no session's place, nor that of what lies beside one.
    let contents = || [&first, &second].map(|file| fs::read(file).unwrap());
    let before = contents();
    let lock = PathBuf::from(format!("{}.lock", second.display()));
    for place in [&first, &second, &lock] {
        let command = json!({"type": "export_html", "outputPath": place});
        let error = command_error(&mut wharf, command);
        assert!(error.contains(place.to_str().unwrap()), "{error}");
    }
    assert_eq!(contents(), before);
    assert_eq!(wharf.finish().code, Some(0));
}
