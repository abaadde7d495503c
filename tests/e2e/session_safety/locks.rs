//! One writer: what a second process is told, when it gets the file, and lock files
//! that are left over.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, SessionFile, Wharf};

use super::{
    any_reply, contents, diagnostics, end, lock_of, messages, open, session_file, short_session,
    skips_for_root, start, state, stored_messages, switch, texts,
};
use crate::processes::signal;

fn sessions(env: &Env) -> Vec<(PathBuf, Vec<u8>)> {
    contents(&env.agent_dir().join("sessions"))
}

fn once(env: &Env, args: &[&str]) -> Output {
    let model = any_reply(env);
    let mut command = env.command();
    command.args(["--model", &model]).args(args).stdin(Stdio::null());
    command.output().unwrap()
}

/// The error says who has the file and what to do about it.
#[track_caller]
fn names_owner(text: &str, file: &Path, pid: u32) {
    let who = format!("in use by process {pid};");
    for part in [who.as_str(), file.to_str().unwrap(), "--fork"] {
        assert!(text.contains(part), "no {part:?} in {text:?}");
    }
}

#[test]
fn a_second_process_is_told_who_has_the_file_in_every_mode() {
    let env = Env::new();
    let mut first = start(&env, &[]);
    first.run("first");
    let file = session_file(&mut first);
    let id = state(&mut first)["sessionId"].as_str().unwrap().to_owned();
    let before = sessions(&env);
    let path = file.to_str().unwrap();
    for named in [vec!["--session", path], vec!["--session", &id], vec!["--continue"]] {
        for mode in [&["--mode", "rpc"][..], &["--mode", "json", "mine"], &["-p", "mine"]] {
            let output = once(&env, &[mode, &named].concat());
            assert_eq!(output.status.code(), Some(1), "{named:?} {mode:?}");
            names_owner(&String::from_utf8_lossy(&output.stderr), &file, first.pid());
            let stdout = String::from_utf8(output.stdout).unwrap();
            // The stream of JSON mode begins and ends as always; no run is in it.
            let lines: Vec<Value> =
                stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let kinds: Vec<&str> =
                lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
            let is_json = mode.contains(&"json");
            assert_eq!(kinds, if is_json { &["session", "agent_end"][..] } else { &[] });
            assert_eq!(sessions(&env), before, "{named:?} {mode:?}");
        }
    }
    first.run("second");
    assert_eq!(messages(&mut first).len(), 4);
    end(first);
    SessionFile::read(&file).assert_linear();
    assert_eq!(stored_messages(&file).len(), 4);
}

#[test]
fn switching_to_a_file_of_another_process_changes_nothing_and_a_fork_of_it_works() {
    let env = Env::new();
    let mut first = start(&env, &[]);
    first.run("first");
    let file = session_file(&mut first);
    let mut second = start(&env, &[]);
    second.run("own");
    let own = session_file(&mut second);
    let before = fs::read(&file).unwrap();

    let refused = switch(&mut second, &file);
    assert_eq!(refused["success"], false, "{refused}");
    names_owner(refused["error"].as_str().unwrap(), &file, first.pid());
    assert_eq!(session_file(&mut second), own);
    second.run("still here");
    assert_eq!(texts(&mut second), ["own", "ok", "still here", "ok"]);
    // Nor can it be deleted.
    let kept = second.request(json!({"type": "delete_session", "sessionPath": file}));
    assert_eq!(kept["success"], false, "{kept}");
    assert!(kept["error"].as_str().unwrap().contains(&first.pid().to_string()), "{kept}");

    let forked = json!({"type": "switch_session", "sessionPath": file, "fork": true});
    assert_eq!(second.data(forked), json!({"cancelled": false}));
    let copy = session_file(&mut second);
    assert!(copy != file && copy != own);
    assert_eq!(texts(&mut second), ["first", "ok"]);
    second.run("in the copy");
    assert_eq!(fs::read(&file).unwrap(), before);
    first.run("in the original");
    end(second);
    end(first);
    let header = SessionFile::read(&copy).header;
    assert_eq!(header["parentSession"], file.to_str().unwrap());
    assert_eq!(stored_messages(&copy).len(), 4);
    assert_eq!(stored_messages(&file).len(), 4);
    assert_eq!(stored_messages(&own).len(), 4);
}

/// A session whose run is in a tool until `go` is opened for writing.
struct Busy {
    wharf: Wharf,
    file: PathBuf,
    announced: Vec<Value>,
    go: PathBuf,
}

impl Busy {
    fn start(env: &Env) -> Self {
        let go = env.project().join("go");
        if !go.exists() {
            assert!(std::process::Command::new("mkfifo").arg(&go).status().unwrap().success());
        }
        let model = env.script(&[bash("cat go"), says("done"), says("more")]);
        let mut wharf = env.rpc(&["--model", &model]);
        let file = session_file(&mut wharf);
        wharf.prompt("work");
        let lines = wharf.take_until("tool_execution_start");
        let ends = lines.iter().filter(|line| line["type"] == "message_end");
        let announced = ends.map(|line| line["message"].clone()).collect();
        Self { wharf, file, announced, go }
    }
}

#[test]
fn a_copy_of_a_session_in_use_has_all_that_was_announced() {
    let env = Env::new();
    let Busy { mut wharf, file, announced, go } = Busy::start(&env);
    assert_eq!(announced.len(), 2);
    let before = fs::read(&file).unwrap();
    let mut copy = start(&env, &["--fork", file.to_str().unwrap()]);
    assert_eq!(messages(&mut copy), announced);
    copy.run("in the copy");
    let copied = session_file(&mut copy);
    end(copy);
    assert_eq!(fs::read(&file).unwrap(), before);
    let stored = stored_messages(&copied);
    assert!(stored.starts_with(&announced) && stored.len() > announced.len());

    fs::OpenOptions::new().write(true).open(&go).unwrap().write_all(b"go\n").unwrap();
    wharf.wait_event("agent_end");
    assert_eq!(messages(&mut wharf).len(), 4);
    end(wharf);
    SessionFile::read(&file).assert_linear();
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    OfInput,
    Terminated,
    Killed,
}

#[test]
fn the_second_gets_the_file_when_the_first_has_ended_however_it_did() {
    for how in [End::OfInput, End::Terminated, End::Killed] {
        for busy in [false, true] {
            if busy && how == End::OfInput {
                // What was accepted is finished first, and this run never ends.
                continue;
            }
            let case = format!("{how:?}, busy: {busy}");
            let env = Env::new();
            let (mut wharf, file, announced) = if busy {
                let Busy { wharf, file, announced, .. } = Busy::start(&env);
                (wharf, file, announced)
            } else {
                let mut wharf = start(&env, &[]);
                wharf.run("first");
                let file = session_file(&mut wharf);
                let announced = messages(&mut wharf);
                (wharf, file, announced)
            };
            assert!(lock_of(&file).exists(), "{case}");
            match how {
                End::OfInput => wharf.close_stdin(),
                End::Terminated => signal(wharf.pid(), Signal::TERM),
                End::Killed => wharf.kill(),
            }
            let code = wharf.wait_exit().code;
            let expected = match how {
                End::OfInput => Some(0),
                End::Terminated => Some(143),
                End::Killed => None,
            };
            assert_eq!(code, expected, "{case}");
            // Of one that was killed it stays, and nobody minds.
            assert_eq!(lock_of(&file).exists(), how == End::Killed, "{case}");
            let mut second = open(&env, &file);
            assert!(messages(&mut second).starts_with(&announced), "{case}");
            second.run("goes on");
            let told: Vec<String> = diagnostics(second.passed());
            assert!(told.is_empty(), "{case}: {told:?}");
            end(second);
            assert!(!lock_of(&file).exists(), "{case}");
            SessionFile::read(&file).assert_linear();
        }
    }
}

#[test]
fn a_left_over_lock_file_stops_nobody() {
    let dead = {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    };
    let alive = std::process::id();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[19].parse().unwrap();
    for content in [
        String::new(),
        "garbage".to_owned(),
        "\0".repeat(4096),
        "{\"pid\":".to_owned(),
        "x".repeat(1 << 20),
        "{\"pid\":-1}".to_owned(),
        "{\"pid\":18446744073709551615,\"host\":7}".to_owned(),
        dead.to_string(),
        json!({"pid": dead, "host": host}).to_string(),
        // These run, but none of them holds the file.
        alive.to_string(),
        json!({"pid": alive}).to_string(),
        json!({"pid": alive, "host": host}).to_string(),
        json!({"pid": alive, "host": host, "startTicks": ticks}).to_string(),
        json!({"pid": 1, "host": host}).to_string(),
        json!({"pid": 7, "host": "elsewhere"}).to_string(),
    ] {
        let env = Env::new();
        let file = short_session(&env, "first");
        fs::write(lock_of(&file), &content).unwrap();
        let mut wharf = start(&env, &["--continue"]);
        let shown: String = content.chars().take(60).collect();
        assert_eq!(session_file(&mut wharf), file, "{shown}");
        wharf.run("second");
        let second = once(&env, &["-p", "mine", "--session", file.to_str().unwrap()]);
        assert_eq!(second.status.code(), Some(1), "{shown}");
        names_owner(&String::from_utf8_lossy(&second.stderr), &file, wharf.pid());
        end(wharf);
        assert!(!lock_of(&file).exists(), "{shown}");
        assert_eq!(stored_messages(&file).len(), 4, "{shown}");
    }
}

/// What cannot be locked is used without a lock; what stands in its place stays.
#[test]
fn something_else_in_the_place_of_the_lock_file_stops_nobody() {
    for what in ["folder", "link", "fifo"] {
        let env = Env::new();
        let file = short_session(&env, "first");
        let (lock, precious) = (lock_of(&file), env.write("precious", "mine"));
        match what {
            "folder" => fs::create_dir(&lock).unwrap(),
            "link" => std::os::unix::fs::symlink(&precious, &lock).unwrap(),
            _ => {
                let made = std::process::Command::new("mkfifo").arg(&lock).status();
                assert!(made.unwrap().success());
            }
        }
        let mut wharf = open(&env, &file);
        wharf.run("second");
        end(wharf);
        assert_eq!(stored_messages(&file).len(), 4, "{what}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_no_obstacle_to_reading() {
    use std::os::unix::fs::PermissionsExt as _;
    if skips_for_root("a lock in a read-only folder") {
        return;
    }
    let env = Env::new();
    let file = short_session(&env, "first");
    let folder = file.parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o500)).unwrap();
    let mut wharf = open(&env, &file);
    assert_eq!(texts(&mut wharf), ["first", "ok"]);
    // The file itself can be written.
    wharf.run("second");
    end(wharf);
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(stored_messages(&file).len(), 4);
}

#[test]
fn leaving_a_session_gives_its_file_to_others() {
    let env = Env::new();
    for leave in ["new_session", "switch_session", "fork"] {
        let other = short_session(&env, "other");
        let mut first = start(&env, &[]);
        first.run("first");
        let file = session_file(&mut first);
        let command = match leave {
            "fork" => {
                let from = first.data(json!({"type": "get_fork_messages"}));
                json!({"type": "fork", "entryId": from["messages"][0]["entryId"]})
            }
            "switch_session" => json!({"type": leave, "sessionPath": other}),
            _ => json!({"type": leave}),
        };
        assert_eq!(first.data(command)["cancelled"], false);
        // Its answer says that the file is free.
        assert!(!lock_of(&file).exists(), "{leave}");
        let mut second = open(&env, &file);
        second.run("second");
        // And there is no way back for the first.
        let refused = switch(&mut first, &file);
        assert_eq!(refused["success"], false, "{leave}: {refused}");
        names_owner(refused["error"].as_str().unwrap(), &file, second.pid());
        first.run("elsewhere");
        let elsewhere = session_file(&mut first);
        assert_ne!(elsewhere, file);
        end(second);
        assert_eq!(switch(&mut first, &file)["success"], true);
        assert_eq!(texts(&mut first), ["first", "ok", "second", "ok"]);
        end(first);
        assert!(stored_messages(&elsewhere).iter().any(|message| {
            message["content"] == "elsewhere" || message["content"][0]["text"] == "elsewhere"
        }));
        assert_eq!(stored_messages(&file).len(), 4, "{leave}");
    }
}

#[test]
fn a_session_that_cannot_be_switched_to_is_not_held() {
    let env = Env::new();
    let newer = env.write(
        "newer.jsonl",
        "{\"type\":\"session\",\"version\":4,\"id\":\"x\",\"timestamp\":\"2030-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n",
    );
    let notes = env.write("notes.jsonl", "my notes\n");
    let mut wharf = start(&env, &[]);
    wharf.run("first");
    for path in [&newer, &notes, &env.project().join("missing.jsonl")] {
        assert_eq!(switch(&mut wharf, path)["success"], false);
        assert!(!lock_of(path).exists());
    }
    end(wharf);
}

/// By every name that leads to it.
#[test]
fn switching_to_the_session_that_is_open_keeps_it_and_its_lock() {
    let env = Env::new();
    let mut wharf = start(&env, &[]);
    wharf.run("0");
    let file = session_file(&mut wharf);
    let link = env.project().join("link.jsonl");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let dotted = file.parent().unwrap().join("x/../.").join(file.file_name().unwrap());
    for (round, path) in [&file, &link, &dotted, &file].into_iter().enumerate() {
        let switched = switch(&mut wharf, path);
        assert_eq!(switched["data"], json!({"cancelled": false}), "{switched}");
        assert_eq!(messages(&mut wharf).len(), 2 * (round + 1));
        let refused = once(&env, &["-p", "mine", "--session", file.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(1), "{}", path.display());
        names_owner(&String::from_utf8_lossy(&refused.stderr), &file, wharf.pid());
        wharf.run(&(round + 1).to_string());
    }
    let told = diagnostics(wharf.passed());
    end(wharf);
    assert!(told.is_empty(), "{told:?}");
    assert!(!lock_of(&file).exists());
    SessionFile::read(&file).assert_linear();
    assert_eq!(stored_messages(&file).len(), 10);
    assert_eq!(fs::read_link(&link).unwrap(), file);
}

/// Who has removed the lock file and taken the session over wins; the first one keeps
/// what it has to say, is told, and writes when it may.
#[test]
fn a_lock_file_that_was_removed_never_leads_to_a_torn_file() {
    let env = Env::new();
    let mut first = start(&env, &[]);
    first.run("first");
    let file = session_file(&mut first);
    fs::remove_file(lock_of(&file)).unwrap();
    let mut second = open(&env, &file);
    second.run("second");
    let lines = first.run("third");
    let theirs = lines.iter().filter(|line| line["type"] == "message_end").count();
    assert_eq!(theirs, 2);
    second.run("fourth");
    end(second);
    end(first);
    let stored = stored_messages(&file);
    let mut found: Vec<String> = stored.iter().map(super::text_of).collect();
    found.retain(|text| text != "ok");
    found.sort();
    assert_eq!(found, ["first", "fourth", "second", "third"]);
    assert_eq!(stored.len(), 8);
    let mut again = open(&env, &file);
    assert!(diagnostics(again.passed()).is_empty());
    state(&mut again);
    end(again);
}
