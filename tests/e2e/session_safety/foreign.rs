//! Files that change under a running session: nothing goes to the wrong file, nothing is
//! lost, and the client is told where the session is now.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, SessionFile};

use super::{
    contents, diagnostics, end, messages, open, session_file, short_session, skips_for_root, start,
    state, stored_messages, texts,
};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    /// The same place, and nothing to tell.
    Quiet,
    /// The same place, written again.
    Recreated,
    /// A new file beside it; what stands in the old place stays as it is.
    Moved,
}

/// Prompts, changes the file, prompts again; then looks at everything.
#[track_caller]
fn check(case: &str, expected: Outcome, change: impl FnOnce(&Env, &Path)) {
    let env = Env::new();
    let mut wharf = start(&env, &[]);
    wharf.run("first");
    let file = session_file(&mut wharf);
    let id = state(&mut wharf)["sessionId"].clone();
    change(&env, &file);
    let left = fs::read(&file).ok();
    let mut lines = wharf.run("second");
    lines.extend(wharf.run("third"));
    let told = diagnostics(&lines);
    let now = state(&mut wharf);
    let place = PathBuf::from(now["sessionFile"].as_str().unwrap());
    let kept = messages(&mut wharf);
    assert_eq!(texts(&mut wharf), ["first", "ok", "second", "ok", "third", "ok"], "{case}");
    match expected {
        Outcome::Quiet | Outcome::Recreated => {
            assert_eq!((&place, &now["sessionId"]), (&file, &id), "{case}: {told:?}");
        }
        Outcome::Moved => {
            assert_ne!(place, file, "{case}");
            assert_eq!(place.parent(), file.parent(), "{case}: beside it");
            assert_eq!(fs::read(&file).ok(), left, "{case}: it was written into");
        }
    }
    if expected == Outcome::Quiet {
        assert!(told.is_empty(), "{case}: {told:?}");
    } else {
        assert_eq!(told.len(), 1, "{case}: {told:?}");
        for path in [&file, &place] {
            assert!(told[0].contains(path.to_str().unwrap()), "{case}: {told:?}");
        }
    }
    end(wharf);
    // No lock is left anywhere that somebody could stumble over.
    let locks = contents(&env.agent_dir().join("sessions"));
    let locks: Vec<_> =
        locks.iter().filter(|(path, _)| path.to_string_lossy().ends_with(".lock")).collect();
    assert!(locks.is_empty(), "{case}: {locks:?}");

    assert_eq!(header_id(&place), now["sessionId"], "{case}");
    let mut again = open(&env, &place);
    assert_eq!(messages(&mut again), kept, "{case}");
    if expected != Outcome::Quiet {
        assert_eq!(diagnostics(again.passed()), [""; 0], "{case}");
    }
    end(again);
}

fn header_id(file: &Path) -> serde_json::Value {
    let bytes = fs::read(file).unwrap();
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap();
    let header: serde_json::Value = serde_json::from_slice(line).unwrap();
    header["id"].clone()
}

/// Puts a file in the place of another one.
fn replace(env: &Env, file: &Path, content: impl AsRef<[u8]>) {
    let new = env.write("new", content);
    fs::rename(new, file).unwrap();
}

fn append(file: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(file).unwrap().write_all(bytes).unwrap();
}

fn another_session(env: &Env) -> Vec<u8> {
    let env_of_another = Env::new();
    let content = fs::read(short_session(&env_of_another, "not mine")).unwrap();
    assert!(env.project() != env_of_another.project());
    content
}

#[test]
fn a_file_that_is_gone_is_written_again() {
    check("deleted", Outcome::Recreated, |_, file| fs::remove_file(file).unwrap());
    check("moved away", Outcome::Recreated, |env, file| {
        fs::rename(file, env.project().join("taken.jsonl")).unwrap();
    });
    check("folder deleted", Outcome::Recreated, |_, file| {
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
    });
    check("store deleted", Outcome::Recreated, |env, _| {
        fs::remove_dir_all(env.agent_dir()).unwrap();
    });
}

/// Its lock goes along and stays there: nobody can tell whose it is. It stops nobody.
#[test]
fn a_folder_that_was_renamed_is_made_again() {
    let env = Env::new();
    let mut wharf = start(&env, &[]);
    wharf.run("first");
    let file = session_file(&mut wharf);
    let away = env.agent_dir().join("sessions/away");
    fs::rename(file.parent().unwrap(), &away).unwrap();
    let taken = away.join(file.file_name().unwrap());
    let before = fs::read(&taken).unwrap();
    let told = diagnostics(&wharf.run("second"));
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(session_file(&mut wharf), file);
    assert_eq!(fs::read(&taken).unwrap(), before, "it was written into");
    // Both are sessions of their own now.
    let mut other = open(&env, &taken);
    assert_eq!(texts(&mut other), ["first", "ok"]);
    other.run("elsewhere");
    end(other);
    end(wharf);
    assert_eq!(stored_messages(&file).len(), 4);
    assert_eq!(stored_messages(&taken).len(), 4);
}

#[test]
fn a_file_in_its_place_is_left_alone() {
    check("another session", Outcome::Moved, |env, file| {
        let content = another_session(env);
        replace(env, file, content);
    });
    check("garbage", Outcome::Moved, |env, file| replace(env, file, "my notes\n"));
    check("nothing", Outcome::Moved, |env, file| replace(env, file, ""));
    check("a folder", Outcome::Moved, |_, file| {
        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
    });
    check("a link to another file", Outcome::Moved, |env, file| {
        let other = env.write("other", "precious\n");
        fs::remove_file(file).unwrap();
        std::os::unix::fs::symlink(other, file).unwrap();
    });
    check("a newer version", Outcome::Moved, |env, file| {
        replace(
            env,
            file,
            "{\"type\":\"session\",\"version\":4,\"id\":\"x\",\"timestamp\":\"2030-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n",
        );
    });
    check("its own beginning", Outcome::Moved, |env, file| {
        let content = fs::read_to_string(file).unwrap();
        let line = content.lines().next().unwrap();
        replace(env, file, format!("{line}\n"));
    });
}

#[test]
fn a_file_that_was_cut_or_written_anew_is_left_alone() {
    check("cut to nothing", Outcome::Moved, |_, file| {
        OpenOptions::new().write(true).open(file).unwrap().set_len(0).unwrap();
    });
    check("cut in a line", Outcome::Moved, |_, file| {
        let len = fs::metadata(file).unwrap().len();
        OpenOptions::new().write(true).open(file).unwrap().set_len(len - 20).unwrap();
    });
    check("cut at a line", Outcome::Moved, |_, file| {
        let content = fs::read_to_string(file).unwrap();
        let last = content.trim_end().rfind('\n').unwrap() as u64 + 1;
        OpenOptions::new().write(true).open(file).unwrap().set_len(last).unwrap();
    });
    check("written anew, shorter", Outcome::Moved, |_, file| fs::write(file, "notes\n").unwrap());
    check("written anew, longer", Outcome::Moved, |_, file| {
        fs::write(file, "notes\n".repeat(5000)).unwrap();
    });
    check("written anew as another session", Outcome::Moved, |env, file| {
        let mut content = another_session(env);
        let len = usize::try_from(fs::metadata(file).unwrap().len()).unwrap();
        content.extend(vec![b'\n'; len]);
        fs::write(file, content).unwrap();
    });
}

/// Only its bytes tell: neither its number nor its length has changed.
#[test]
fn a_file_that_was_written_anew_with_the_same_length_is_left_alone() {
    check("NULs", Outcome::Moved, |_, file| {
        let len = usize::try_from(fs::metadata(file).unwrap().len()).unwrap();
        fs::write(file, vec![0; len]).unwrap();
    });
}

/// An editor, a sync tool: it is the same session.
#[test]
fn a_file_that_was_saved_again_with_all_its_lines_goes_on() {
    check("by rename", Outcome::Quiet, |env, file| {
        let content = fs::read(file).unwrap();
        replace(env, file, content);
    });
    check("in place", Outcome::Quiet, |_, file| {
        let content = fs::read(file).unwrap();
        fs::write(file, content).unwrap();
    });
    check("behind a link", Outcome::Quiet, |env, file| {
        let moved = env.project().join("moved.jsonl");
        fs::rename(file, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, file).unwrap();
    });
}

#[test]
fn what_others_append_stays() {
    let foreign = |file: &Path| {
        let lines = fs::read_to_string(file).unwrap();
        let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        json!({"type": "message", "id": "f0f0f0f0", "parentId": last["id"],
            "timestamp": "2031-01-01T00:00:00.000Z",
            "message": {"role": "user", "content": "foreign", "timestamp": 1}})
    };
    check("a whole line", Outcome::Quiet, |_, file| {
        append(file, format!("{}\n", foreign(file)).as_bytes());
    });
    check("half a line", Outcome::Quiet, |_, file| {
        append(file, &foreign(file).to_string().as_bytes()[..40]);
    });
    check("a line without its end", Outcome::Quiet, |_, file| {
        append(file, foreign(file).to_string().as_bytes());
    });
    check("garbage", Outcome::Quiet, |_, file| append(file, b"\0\0garbage\n\xff\n"));

    let env = Env::new();
    let mut wharf = start(&env, &[]);
    wharf.run("first");
    let file = session_file(&mut wharf);
    let line = foreign(&file).to_string();
    append(&file, format!("{line}\n{}", &line[..40]).as_bytes());
    let with_theirs = fs::read(&file).unwrap();
    wharf.run("second");
    end(wharf);
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.starts_with(&with_theirs), "what somebody else appended has changed");
    let mut again = open(&env, &file);
    let torn = again.wait_for("the torn line", super::is_session_diagnostic);
    let number = with_theirs.split(|byte| *byte == b'\n').count();
    assert!(torn["error"].as_str().unwrap().contains(&format!("line {number}:")), "{torn}");
    assert_eq!(texts(&mut again), ["first", "ok", "second", "ok"]);
    let tree = again.data(json!({"type": "get_tree"})).to_string();
    assert!(tree.contains("foreign"), "{tree}");
    end(again);
}

/// The change comes from a tool, between two lines of one run.
#[test]
fn changes_in_the_middle_of_a_run_lose_nothing() {
    for (command, moved) in [
        ("rm -f sessions/*.jsonl", false),
        ("rm -rf sessions", false),
        ("mv sessions elsewhere", false),
        ("for f in sessions/*.jsonl; do echo notes > $f; done", true),
        ("for f in sessions/*.jsonl; do echo notes > n; mv n $f; done", true),
        ("for f in sessions/*.jsonl; do rm $f; mkdir $f; done", true),
        ("for f in sessions/*.jsonl; do truncate -s 30 $f; done", true),
    ] {
        let env = Env::new();
        let model = env.script(&[bash(command), bash("true"), says("done"), says("more")]);
        let mut wharf = env.rpc(&["--model", &model, "--session-dir", "sessions"]);
        let file = session_file(&mut wharf);
        let mut lines = wharf.run("first");
        lines.extend(wharf.run("second"));
        let announced: Vec<_> = lines
            .iter()
            .filter(|line| line["type"] == "message_end")
            .map(|line| line["message"].clone())
            .collect();
        assert_eq!(announced.len(), 8, "{command}");
        let told = diagnostics(&lines);
        assert_eq!(told.len(), 1, "{command}: {told:?}");
        let now = state(&mut wharf);
        let place = PathBuf::from(now["sessionFile"].as_str().unwrap());
        assert_eq!(place != file, moved, "{command}: {told:?}");
        assert_eq!(messages(&mut wharf), announced, "{command}");
        end(wharf);
        let session = SessionFile::read(&place);
        session.assert_linear();
        assert_eq!(session.header["id"], now["sessionId"], "{command}");
        assert_eq!(session.messages(), announced, "{command}");
    }
}

/// The session goes on from the new place as from any other: names, forks, other
/// processes, the way back.
#[test]
fn a_session_that_moved_is_a_session_like_any_other() {
    let env = Env::new();
    let mut wharf = start(&env, &[]);
    wharf.run("first");
    let old = session_file(&mut wharf);
    fs::write(&old, "notes\n").unwrap();
    wharf.run("second");
    let place = session_file(&mut wharf);
    // The old place is nobody's.
    let refused = super::switch(&mut wharf, &old);
    assert_eq!(refused["success"], false, "{refused}");
    let listed = wharf.data(json!({"type": "list_sessions"}));
    let paths: Vec<_> =
        listed["sessions"].as_array().unwrap().iter().map(|s| s["path"].clone()).collect();
    assert_eq!(paths, [place.to_str().unwrap()]);
    // The new one is locked.
    let model = super::any_reply(&env);
    let second = env
        .command()
        .args(["-p", "mine", "--model", &model, "--continue"])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&second.stderr);
    assert!(stderr.contains(&format!("process {}", wharf.pid())), "{stderr}");
    let active = wharf.request(json!({"type": "delete_session", "sessionPath": place}));
    assert_eq!(active["error"], "Cannot delete the currently active session");
    assert_eq!(super::switch(&mut wharf, &place)["success"], true);
    wharf.run("third");
    let from = wharf.data(json!({"type": "get_fork_messages"}));
    let entry = &from["messages"][2]["entryId"];
    wharf.data(json!({"type": "fork", "entryId": entry}));
    assert_eq!(texts(&mut wharf), ["first", "ok", "second", "ok"]);
    let fork = session_file(&mut wharf);
    end(wharf);
    assert_eq!(SessionFile::read(&fork).header["parentSession"], place.to_str().unwrap());
    assert_eq!(stored_messages(&place).len(), 6);
    assert_eq!(fs::read_to_string(&old).unwrap(), "notes\n");
    let again = start(&env, &["--continue"]);
    end(again);
}

/// A client has the path of the file from `get_state`; a run that ends as soon as the
/// change was noticed does not lose its last lines.
#[test]
fn the_one_shot_modes_tell_it_too() {
    for mode in [&["-p"][..], &["--mode", "json"]] {
        let env = Env::new();
        let command = "for f in sessions/*.jsonl; do echo notes > $f; done";
        let model = env.script(&[bash(command), says("done")]);
        let args = [mode, &["--model", &model, "--session-dir", "sessions", "go"]].concat();
        let output = env.command().args(args).stdin(std::process::Stdio::null()).output().unwrap();
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(0), "{err}");
        assert!(err.contains("was replaced or cut"), "{err}");
        if mode == ["--mode", "json"] {
            assert_eq!(out.matches("\"event\":\"session\"").count(), 1, "{out}");
        }
        let files = super::session_files(&env.project().join("sessions"));
        let whole: Vec<_> =
            files.iter().filter(|file| fs::read_to_string(file).unwrap() != "notes\n").collect();
        assert_eq!(whole.len(), 1, "{files:?}");
        assert_eq!(stored_messages(whole[0]).len(), 4);
    }
}

#[test]
fn a_file_that_became_read_only_is_told_and_written_when_it_can_be() {
    use std::os::unix::fs::PermissionsExt as _;
    if skips_for_root("a session file without write permission") {
        return;
    }
    let env = Env::new();
    let file = short_session(&env, "first");
    let mut wharf = open(&env, &file);
    state(&mut wharf);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
    let told = diagnostics(&wharf.run("second"));
    assert!(!told.is_empty() && told[0].contains("is not writable"), "{told:?}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    wharf.run("third");
    end(wharf);
    SessionFile::read(&file).assert_linear();
    assert_eq!(stored_messages(&file).len(), 6);
}
