//! Sessions as the command line names them. Where they are kept is in `session_places`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use wharf_tests::{Env, SessionFile, binary, note};

use crate::session_store::{
    any_reply, file_of, files, folder_of, header, lines, old_session, put, stored, user, uuid,
};

/// A run without a terminal.
pub(crate) fn run_in(env: &Env, cwd: &Path, args: &[&str]) -> Output {
    fs::create_dir_all(cwd).unwrap();
    env.command().current_dir(cwd).args(args).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn run(env: &Env, args: &[&str]) -> Output {
    run_in(env, &env.project(), args)
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A run that must succeed; gives its output.
pub(crate) fn done(env: &Env, args: &[&str]) -> String {
    let output = run(env, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
    stdout(&output)
}

/// A run that must fail; gives what it tells.
fn fails(env: &Env, args: &[&str], code: i32) -> String {
    let output = run(env, args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    assert_eq!(stdout(&output), "", "{args:?}");
    stderr(&output)
}

/// The file of the session that RPC mode opens with these arguments.
pub(crate) fn opened(env: &Env, args: &[&str]) -> PathBuf {
    let mut wharf = env.rpc(args);
    let file = file_of(&mut wharf);
    assert_eq!(wharf.finish().code, Some(0));
    file
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn sessions(env: &Env) -> Vec<PathBuf> {
    files(&env.agent_dir().join("sessions"))
}

/// A session with an id of its own choice.
fn with_id(folder: &Path, id: &str, cwd: &Path, minute: u32, said: &str) -> PathBuf {
    let time = |second: u32| format!("2024-01-15T10:{minute:02}:{second:02}.000Z");
    let values = [header(id, cwd, &time(0)), user(1, None, &time(1), json!(said))];
    put(folder, &format!("2024-01-15T10-{minute:02}-00-000Z_{id}.jsonl"), &lines(&values))
}

const TAIL: &str = "-0000-4000-8000-000000000000";

#[test]
fn an_id_or_its_beginning_names_a_session() {
    let env = Env::new();
    let other = env.home().join("other");
    let (mine_dir, other_dir) = (folder_of(&env, &env.project()), folder_of(&env, &other));
    let id = |start: &str| format!("{start}{TAIL}");
    let mine = with_id(&mine_dir, &id("abc00001"), &env.project(), 1, "mine");
    let theirs = with_id(&other_dir, &id("abc00002"), &other, 9, "theirs");
    // Of another directory that shares the folder of this one.
    let sharing = with_id(&mine_dir, &id("def00003"), &other, 9, "sharing");
    let renamed = put(&other_dir, "renamed.jsonl", &fs::read_to_string(&theirs).unwrap());
    let text_of = fs::read_to_string(&renamed).unwrap().replace("abc00002", "fed00004");
    fs::write(&renamed, text_of).unwrap();
    // Not written by a person's agent, but named by a person.
    let mut child = header(&id("cab00005"), &env.project(), "2024-01-15T10:00:00.000Z");
    child["agentType"] = json!("reviewer");
    let child = lines(&[child, user(1, None, "2024-01-15T10:00:01.000Z", json!("child"))]);
    let child =
        put(&mine_dir, &format!("2024-01-15T10-00-00-000Z_{}.jsonl", id("cab00005")), &child);
    for (named, file) in [
        (id("abc00001"), &mine),
        (id("abc00002"), &theirs),
        ("abc00002".to_owned(), &theirs),
        ("ABC00002".to_owned(), &theirs),
        // One of this directory comes first.
        ("abc".to_owned(), &mine),
        ("a".to_owned(), &mine),
        ("d".to_owned(), &sharing),
        // Its name does not tell the id.
        ("fed".to_owned(), &renamed),
        ("cab".to_owned(), &child),
    ] {
        assert_eq!(opened(&env, &["--session", &named]), *file, "{named}");
    }
    // Reading them has written nothing.
    assert_eq!(sessions(&env).len(), 5);

    // What is there as a file is meant as a file.
    let file = env.write("abc", fs::read(&theirs).unwrap());
    assert_eq!(opened(&env, &["--session", "abc"]), file);
    // The session of another directory goes on where it lies.
    let model = any_reply(&env);
    done(&env, &["-p", "--model", &model, "--session", "abc00002", "more"]);
    assert_eq!(SessionFile::read(&theirs).messages().len(), 3);
    assert_eq!(SessionFile::read(&theirs).header["cwd"], json!(other));
    assert_eq!(sessions(&env).len(), 5);
}

#[test]
fn an_id_that_names_several_sessions_is_refused_with_their_list() {
    let env = Env::new();
    let mine_dir = folder_of(&env, &env.project());
    let id = |start: &str| format!("{start}{TAIL}");
    for (number, said) in ["first\nof all", "second"].into_iter().enumerate() {
        let minute = u32::try_from(number).unwrap();
        with_id(&mine_dir, &id(&format!("abc0000{number}")), &env.project(), minute, said);
    }
    let project = env.project().display().to_string();
    for flag in ["--session", "--fork", "--export"] {
        let told = fails(&env, &["--mode", "rpc", flag, "abc"], 1);
        let mut expected: Vec<String> =
            told.lines().filter(|line| line.contains(TAIL)).map(str::to_owned).collect();
        // The order is that in which the files were written.
        expected.sort();
        let line = |start: &str, said: &str| format!("  {}  {project}  {said}", id(start));
        assert_eq!(expected, [line("abc00000", "first of all"), line("abc00001", "second")]);
        assert!(told.starts_with("error: 2 sessions match \"abc\""), "{told}");
        // The whole id is enough.
        assert!(told.contains("name more of the id"), "{told}");
    }
    assert!(files(&env.project()).is_empty());
    // A copy has the same id: then their paths are told.
    let other = env.home().join("other");
    with_id(&folder_of(&env, &other), &id("eee00000"), &other, 1, "there");
    let third = env.home().join("third");
    with_id(&folder_of(&env, &third), &id("eee00000"), &third, 1, "here");
    let told = fails(&env, &["--mode", "rpc", "--session", &id("eee00000")], 1);
    assert_eq!(told.matches(".jsonl").count(), 2, "{told}");
    // A long list ends.
    for number in 0..12 {
        with_id(&mine_dir, &id(&format!("bbb000{number:02}")), &env.project(), 5, "many");
    }
    let told = fails(&env, &["--mode", "rpc", "--session", "bbb"], 1);
    assert_eq!(told.matches(TAIL).count(), 10, "{told}");
    assert!(told.contains("12 sessions match") && told.contains("and 2 more"), "{told}");
}

#[test]
fn what_names_no_session_is_an_error_that_creates_nothing() {
    let env = Env::new();
    stored(&folder_of(&env, &env.project()), 1, &env.project(), 1, "there");
    let before = sessions(&env);
    let sessions_dir = env.agent_dir().join("sessions");
    for flag in ["--session", "--fork", "--export"] {
        for named in ["ffff", "00000001-0000-4000-8000-00000000000f", "no such", "*"] {
            let told = fails(&env, &["--mode", "rpc", flag, named], 1);
            assert!(told.contains(&format!("{named:?}")), "{told}");
            assert!(told.contains(text(&sessions_dir)), "{told}");
        }
        // What can only be a path is one.
        for (named, path) in [
            ("missing.jsonl", env.project().join("missing.jsonl")),
            ("./00000001", PathBuf::from("00000001")),
            ("no/such", env.project().join("no/such")),
            ("~/00000001", env.home().join("00000001")),
            ("/00000001", PathBuf::from("/00000001")),
        ] {
            let told = fails(&env, &["--mode", "rpc", flag, named], 1);
            assert!(told.contains("does not exist"), "{told}");
            assert!(told.contains(text(&path)), "{told}");
        }
        fails(&env, &["--mode", "rpc", flag, "."], 1);
        // clap's own error.
        fails(&env, &["--mode", "rpc", flag, ""], 2);
        fails(&env, &["--mode", "rpc", flag], 2);
    }
    assert_eq!(sessions(&env), before);
    assert!(files(&env.project()).is_empty());
    assert!(files(&env.home()).is_empty());
}

#[test]
fn flags_that_say_different_sessions_exclude_each_other() {
    let env = Env::new();
    let flags = [
        &["--session", "x"][..],
        &["--continue"],
        &["--resume"],
        &["--fork", "x"],
        &["--no-session"],
    ];
    for one in flags {
        for other in flags {
            if one != other {
                let args = [&["--mode", "rpc"], one, other].concat();
                let told = fails(&env, &args, 2);
                assert!(told.contains("cannot be used with"), "{told}");
            }
        }
    }
    assert!(!env.agent_dir().join("sessions").exists());
}

#[test]
fn continue_goes_on_with_a_session_of_a_person_only() {
    let env = Env::new();
    let model = any_reply(&env);
    let folder = folder_of(&env, &env.project());
    let mine = stored(&folder, 1, &env.project(), 1, "mine");
    done(&env, &["-p", "--model", &model, "--agent-type", "reviewer", "as a subagent"]);
    put(&folder, "notes.jsonl", "Some text.\n");
    put(&folder, "zzz.txt", "x");
    let before = sessions(&env);
    assert_eq!(before.len(), 4);
    assert_eq!(opened(&env, &["--continue"]), mine);
    // A subagent's session is in no list.
    let mut wharf = env.rpc(&["--continue"]);
    for command in ["list_sessions", "list_all_sessions"] {
        let data = wharf.data(json!({"type": command}));
        let found: Vec<&Value> =
            data["sessions"].as_array().unwrap().iter().map(|session| &session["path"]).collect();
        assert_eq!(found, [&json!(mine)]);
    }
    // The one that is open is open already.
    let pid = wharf.pid();
    let told = fails(&env, &["--mode", "rpc", "-c"], 1);
    assert!(told.contains(&format!("process {pid}")) && told.contains(text(&mine)), "{told}");
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(sessions(&env), before);
    assert_eq!(done(&env, &["-p", "-c", "--model", &model, "on"]), "ok\n");
    assert_eq!(SessionFile::read(&mine).messages().len(), 4);
}

/// Its lines, without what differs from run to run.
#[test]
fn resume_without_a_terminal_lists_the_sessions_of_this_directory() {
    let env = Env::new();
    let empty = "no session of this directory yet\n";
    assert_eq!(done(&env, &["--resume"]), empty);
    let folder = folder_of(&env, &env.project());
    stored(&folder, 1, &env.project(), 7, "Help me\n\n  refactor\tthis");
    stored(&folder, 2, &env.project(), 9, &"word ".repeat(40));
    let hostile = "\u{1b}[31mred\u{1b}[0m \u{9b}31m\u{7} end";
    stored(&folder, 3, &env.project(), 8, hostile);
    let other = env.home().join("other");
    stored(&folder_of(&env, &other), 4, &other, 9, "other");
    let before = sessions(&env);
    let words = "word ".repeat(12);
    let expected = format!(
        "  #  id        modified                   msgs  name or first message\n  \
         1  00000002  2024-01-15T10:09:02.000Z      2  {}\n  \
         2  00000003  2024-01-15T10:08:02.000Z      2  [31mred[0m 31m end\n  \
         3  00000001  2024-01-15T10:07:02.000Z      2  Help me refactor this\n",
        words
    );
    let trimmed =
        |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    for args in [&["--resume"][..], &["-r"], &["-r", "-p"], &["-r", "--mode", "text"]] {
        assert_eq!(trimmed(&done(&env, args)), trimmed(&expected), "{args:?}");
    }
    // Nobody can choose where there is a prompt.
    let output = run(&env, &["-r", "go on"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).contains("00000001  2024-01-15T10:07:02.000Z"), "{output:?}");
    assert!(stderr(&output).contains("--session ID"), "{output:?}");
    // And a program asks otherwise.
    for mode in ["rpc", "json"] {
        for messages in [&[][..], &["go on"]] {
            let told = fails(&env, &[&["--mode", mode, "-r"], messages].concat(), 2);
            assert!(told.contains("list_sessions") && told.contains("--session"), "{told}");
        }
    }
    assert_eq!(sessions(&env), before);
}

/// At a terminal one of them is chosen by its number.
#[test]
fn resume_at_a_terminal_goes_on_with_the_session_that_is_chosen() {
    if Command::new("script").arg("--version").output().is_err() {
        note("skipped: `script`, which makes a terminal, is not installed");
        return;
    }
    let env = Env::new();
    let model = any_reply(&env);
    let folder = folder_of(&env, &env.project());
    let old = stored(&folder, 1, &env.project(), 1, "old");
    let new = stored(&folder, 2, &env.project(), 2, "new");
    let choose = |answers: &str| {
        let quoted = format!("'{}' -r -p --model '{model}' 'go on'", binary().display());
        let made = env.command();
        let mut command = Command::new("script");
        command.current_dir(env.project()).env_clear();
        command.envs(made.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child = command
            .args(["-qec", &quoted, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), answers.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    // What is no number of the list is asked for again.
    let output = choose("x\n0\n3\n-1\n2\n");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(SessionFile::read(&old).messages().len(), 4, "{output:?}");
    assert_eq!(SessionFile::read(&new).messages().len(), 2);
    let output = choose("\n");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).contains("no session was chosen"), "{output:?}");
    assert_eq!(sessions(&env), [old, new]);
}

#[test]
fn fork_begins_with_a_copy_that_has_a_life_of_its_own() {
    let env = Env::new();
    let model = any_reply(&env);
    let other = env.home().join("other");
    let theirs = stored(&folder_of(&env, &other), 1, &other, 1, "theirs");
    let mine = stored(&folder_of(&env, &env.project()), 2, &env.project(), 2, "mine");
    let old = env.write("old.jsonl", old_session(&other));
    let contents = [&theirs, &mine, &old].map(|path| fs::read_to_string(path).unwrap());
    // One that is in use can be copied.
    let owner = env.rpc(&["--session", "00000002"]);
    for (named, source, first) in [
        ("00000001", &theirs, "theirs"),
        ("00000002", &mine, "mine"),
        (text(&theirs), &theirs, "theirs"),
        ("old.jsonl", &old, "old question"),
        ("./../project/old.jsonl", &old, "old question"),
    ] {
        let mut wharf = env.rpc(&["--model", &model, "--fork", named]);
        let copy = file_of(&mut wharf);
        assert_eq!(copy.parent().unwrap(), folder_of(&env, &env.project()), "{named}");
        wharf.run("on");
        assert_eq!(wharf.finish().code, Some(0));
        let session = SessionFile::read(&copy);
        session.assert_linear();
        assert_eq!(session.messages().len(), 4);
        assert_eq!(session.messages()[0]["content"], first);
        assert_eq!(session.header["cwd"], json!(env.project()));
        let parent = Path::new(session.header["parentSession"].as_str().unwrap());
        assert!(parent.is_absolute());
        assert_eq!(parent.canonicalize().unwrap(), *source);
    }
    assert_eq!(owner.finish().code, Some(0));
    for (path, content) in [&theirs, &mine, &old].into_iter().zip(contents) {
        assert_eq!(fs::read_to_string(path).unwrap(), content);
    }
    assert_eq!(files(&env.project()), [old]);
    assert_eq!(done(&env, &["-p", "--model", &model, "--fork", "00000001", "hi"]), "ok\n");

    // There is nothing to copy in a session without entries.
    let there = sessions(&env);
    let empty = header(&uuid(9), &env.project(), "2024-01-15T10:00:00.000Z");
    let empty = env.write("empty.jsonl", lines(&[empty]));
    let told = fails(&env, &["--mode", "rpc", "--fork", "empty.jsonl"], 1);
    assert!(told.contains(text(&empty)) && told.contains("no entries"), "{told}");
    assert_eq!(sessions(&env), there);
}

#[test]
fn export_writes_a_page_and_prints_its_path() {
    let env = Env::new();
    let other = env.home().join("other");
    let mine = stored(&folder_of(&env, &env.project()), 1, &env.project(), 1, "<b>mine</b>");
    let theirs = stored(&folder_of(&env, &other), 2, &other, 2, "theirs");
    let here = env.write("here.jsonl", fs::read(&mine).unwrap());
    let default = |file: &Path| {
        let stem = file.file_stem().unwrap().to_str().unwrap();
        env.project().join(format!("wharf-session-{stem}.html"))
    };
    fs::create_dir(env.project().join("out")).unwrap();
    // It is only read: one that is in use, too.
    let owner = env.rpc(&["--session", text(&mine)]);
    for (args, page, said) in [
        (&["--export", text(&mine)][..], default(&mine), "&lt;b&gt;mine&lt;/b&gt;"),
        (&["--export", "00000001"], default(&mine), "&lt;b&gt;mine&lt;/b&gt;"),
        (&["--export", "00000002"], default(&theirs), "theirs"),
        (&["--export", "here.jsonl", "out/x.html"], env.project().join("out/x.html"), "mine"),
        (&["--export", "00000002", "~/y"], env.home().join("y"), "theirs"),
        (&["--mode", "rpc", "--export", "2f", "z.html"], env.project().join("z.html"), ""),
    ] {
        if said.is_empty() {
            fails(&env, args, 1);
            assert!(!page.exists());
            continue;
        }
        let output = run(&env, args);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(stdout(&output), format!("{}\n", page.display()));
        assert_eq!(stderr(&output), "");
        let html = fs::read_to_string(&page).unwrap();
        assert!(html.starts_with("<!doctype html>") || html.starts_with("<!DOCTYPE html>"));
        assert!(html.contains(said), "{args:?}");
        assert!(html.trim_end().ends_with("</html>"));
        assert!(!html.contains("src=\"http"), "it needs no network");
    }
    assert_eq!(owner.finish().code, Some(0));
    // What is there is replaced as a whole.
    fs::write(env.home().join("y"), "x".repeat(10_000_000)).unwrap();
    done(&env, &["--export", "00000002", "~/y"]);
    assert!(fs::read_to_string(env.home().join("y")).unwrap().trim_end().ends_with("</html>"));
    assert_eq!(fs::read(&mine).unwrap(), fs::read(&here).unwrap());
    assert_eq!(sessions(&env).len(), 2);
    let leftovers: Vec<PathBuf> = files(&env.project())
        .into_iter()
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with('.'))
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[test]
fn export_never_costs_what_is_there() {
    let env = Env::new();
    let session = stored(&env.project(), 1, &env.project(), 1, "mine");
    let content = fs::read_to_string(&session).unwrap();
    let name = session.file_name().unwrap().to_str().unwrap().to_owned();
    std::os::unix::fs::symlink(&session, env.project().join("link.html")).unwrap();
    fs::create_dir(env.project().join("folder")).unwrap();
    let fifo = env.project().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let there = files(&env.project());
    let roundabout = format!("folder/../{name}");
    for (output, word) in [
        (name.as_str(), "own file"),
        (&roundabout, "own file"),
        (text(&session), "own file"),
        ("link.html", "own file"),
        ("fifo", "no file"),
        ("/dev/null", "no file"),
        ("folder", "folder"),
        ("folder/", "folder"),
        (".", "folder"),
        ("missing/page.html", "missing"),
        ("fifo/page.html", "fifo"),
    ] {
        let told = fails(&env, &["--export", &name, output], 1);
        assert!(told.contains(word), "{output}: {told}");
        let mut wharf = env.rpc(&["--session", text(&session)]);
        let response = wharf.request(json!({"type": "export_html", "outputPath": output}));
        assert_eq!(response["success"], false, "{output}: {response}");
        assert!(response["error"].as_str().unwrap().contains(word), "{output}: {response}");
        assert_eq!(wharf.finish().code, Some(0));
    }
    assert_eq!(files(&env.project()), there);
    assert_eq!(fs::read_to_string(&session).unwrap(), content);
    assert!(!fifo.metadata().unwrap().is_file());
    let told = fails(&env, &["--export", &name, "a.html", "b.html"], 1);
    assert!(told.contains("at most one file"), "{told}");
}

#[test]
fn a_damaged_session_is_exported_and_its_damage_is_told() {
    let env = Env::new();
    let source = stored(&env.project(), 1, &env.project(), 1, "whole");
    let whole = fs::read_to_string(&source).unwrap();
    let (head, rest) = whole.split_once('\n').unwrap();
    for (damaged, lines) in [
        (whole.clone(), &[][..]),
        (whole.clone() + "{\"type\":\"message\",\"id\":\"0", &[4]),
        (whole.trim_end().to_owned(), &[3]),
        (format!("{head}\ngarbage\n{rest}"), &[2]),
        (format!("{head}\n\0\0\0\0\n{rest}"), &[2]),
        (rest.to_owned(), &[1]),
        (whole.replace('\n', "\r\n"), &[1]),
        (format!("\u{feff}{whole}"), &[1]),
        (whole.replace("\"parentId\":\"00000001\"", "\"parentId\":\"00000009\""), &[3]),
        (whole.replace("\"parentId\":null", "\"parentId\":\"00000002\""), &[2]),
    ] {
        let file = env.write("damaged.jsonl", &damaged);
        let output = run(&env, &["--export", "damaged.jsonl", "page.html"]);
        assert_eq!(output.status.code(), Some(0), "{damaged}: {output:?}");
        let told = stderr(&output);
        let start = format!("warning: session {}, line ", file.display());
        let mut found: Vec<u32> = told
            .lines()
            .map(|line| line.strip_prefix(&start).unwrap().split_once(':').unwrap().0)
            .map(|number| number.parse().unwrap())
            .collect();
        found.dedup();
        assert_eq!(found, lines, "{damaged}: {told}");
        // A line is one of them.
        assert!(!told.contains("it is whole") || !told.contains("cut off"), "{told}");
        let page = fs::read_to_string(env.project().join("page.html")).unwrap();
        assert!(page.contains("whole") && page.contains("answer 2"), "{damaged}");
        assert_eq!(fs::read_to_string(&file).unwrap(), damaged, "it was only read");
        fs::remove_file(env.project().join("page.html")).unwrap();
    }
    // An old one is not brought to the current format by a look at it.
    let old = old_session(&env.project());
    let file = env.write("old.jsonl", &old);
    done(&env, &["--export", "old.jsonl", "page.html"]);
    assert_eq!(fs::read_to_string(file).unwrap(), old);
    let there = ["damaged.jsonl", "old.jsonl", "page.html"].map(|name| env.project().join(name));
    let mut expected = vec![source];
    expected.extend(there);
    assert_eq!(files(&env.project()), expected);
    // What is none is none.
    env.write("notes.jsonl", "These are\nmy notes.\n");
    let newer = json!({"type": "session", "version": 99, "id": "x", "cwd": "/"});
    env.write("newer.jsonl", lines(&[newer]));
    for (name, word) in [("notes.jsonl", "no session file"), ("newer.jsonl", "99")] {
        let told = fails(&env, &["--export", name, "other.html"], 1);
        assert!(told.contains(name) && told.contains(word), "{told}");
    }
    assert!(!env.project().join("other.html").exists());
}

#[test]
fn import_copies_a_file_into_the_sessions_of_this_directory() {
    let env = Env::new();
    let other = env.home().join("other");
    let source = stored(&env.home(), 1, &other, 1, "made elsewhere");
    let before = fs::read_to_string(&source).unwrap();
    let name = source.file_name().unwrap().to_str().unwrap();
    let printed = done(&env, &["import", &format!("~/{name}")]);
    let copy = folder_of(&env, &env.project()).join(name);
    assert_eq!(printed, format!("{}\n", copy.display()));
    assert_eq!(SessionFile::read(&copy).header["cwd"], json!(env.project()));
    assert_eq!(sessions(&env), std::slice::from_ref(&copy), "and no lock stays");
    assert_eq!(opened(&env, &["--continue"]), copy);
    assert_eq!(opened(&env, &["--session", "00000001"]), copy);

    let told = fails(&env, &["import", text(&source)], 1);
    assert!(told.contains(&uuid(1)) && told.contains(text(&copy)), "{told}");
    // Another store has another one.
    let flat = env.home().join("flat");
    let printed = done(&env, &["import", text(&source), "--session-dir", "~/flat"]);
    assert_eq!(printed, format!("{}\n", flat.join(name).display()));
    let agent_dir = env.home().join("agent");
    done(&env, &["import", text(&source), "--agent-dir", text(&agent_dir)]);
    assert_eq!(files(&agent_dir.join("sessions")).len(), 1);
    let settings = json!({"sessionDir": "~/set"});
    env.write_agent("settings.json", settings.to_string());
    done(&env, &["import", text(&source)]);
    assert_eq!(files(&env.home().join("set")).len(), 1);
    env.write_agent("settings.json", "{}");

    let old = env.write("old.jsonl", old_session(&other));
    let printed = done(&env, &["import", "old.jsonl"]);
    let session = SessionFile::read(Path::new(printed.trim_end()));
    session.assert_linear();
    assert_eq!(session.header["id"], json!(uuid(77)));
    assert_eq!(session.messages().len(), 2);
    assert_eq!(fs::read_to_string(old).unwrap(), old_session(&other));

    let there = sessions(&env);
    env.write("notes.jsonl", "These are\nmy notes.\n");
    for (named, word) in [
        ("missing.jsonl", "does not exist"),
        ("notes.jsonl", "no session file"),
        (".", "not a regular file"),
        // An id names what is in the store already.
        ("00000001", "does not exist"),
    ] {
        let told = fails(&env, &["import", named], 1);
        assert!(told.contains(word), "{named}: {told}");
    }
    fails(&env, &["import"], 2);
    fails(&env, &["import", "a", "b"], 2);
    assert_eq!(sessions(&env), there);
    assert_eq!(fs::read_to_string(&source).unwrap(), before);
}

#[test]
fn an_imported_id_that_is_no_file_name_leads_nowhere_else() {
    let env = Env::new();
    let time = "2024-01-15T10:00:00.000Z";
    for (number, id) in
        ["../../../owned", "/tmp/owned", "a\0b\nc", &"x".repeat(5000)].into_iter().enumerate()
    {
        let content = lines(&[header(id, &env.home(), time), user(1, None, time, json!("hi"))]);
        let source = env.write(&format!("{number}.jsonl"), content);
        let printed = done(&env, &["import", text(&source)]);
        let copy = Path::new(printed.trim_end()).to_owned();
        assert_eq!(copy.parent().unwrap(), folder_of(&env, &env.project()));
        let first = fs::read_to_string(&copy).unwrap();
        let header: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
        assert_eq!(header["id"], id);
        let told = fails(&env, &["import", text(&source)], 1);
        assert!(told.contains(copy.to_str().unwrap()), "{told}");
    }
    assert_eq!(sessions(&env).len(), 4);
}

#[test]
fn the_header_says_what_kind_of_agent_wrote_a_session() {
    let env = Env::new();
    let model = any_reply(&env);
    let args = ["-p", "--model", &model, "--agent-type", "feature-dev", "hi"];
    done(&env, &args);
    let found = sessions(&env);
    let [file] = &found[..] else { panic!("{found:?}") };
    let header = SessionFile::read(file).header;
    assert_eq!(header["agentType"], "feature-dev");
    assert_eq!(done(&env, &["-r"]), "no session of this directory yet\n");
    // A copy is a person's session again.
    let copy = opened(&env, &["--fork", text(file)]);
    let header = SessionFile::read(&copy).header;
    assert!(header.get("agentType").is_none(), "{header}");
    assert!(done(&env, &["-r"]).contains(&header["id"].as_str().unwrap()[..8]));
}

/// So that a client finds the session that is open in the list.
#[test]
fn a_session_is_called_the_same_however_its_path_was_written() {
    let env = Env::new();
    let folder = folder_of(&env, &env.project());
    let file = stored(&folder, 1, &env.project(), 1, "mine");
    let relative = "../agent/sessions/./".to_owned()
        + folder.file_name().unwrap().to_str().unwrap()
        + "/"
        + file.file_name().unwrap().to_str().unwrap();
    let mut wharf = env.rpc(&["--session", &relative]);
    let listed = wharf.data(json!({"type": "list_sessions"}))["sessions"][0]["path"].clone();
    assert_eq!(listed, json!(file));
    assert_eq!(wharf.data(json!({"type": "get_state"}))["sessionFile"], listed);
    assert_eq!(wharf.finish().code, Some(0));
    assert_eq!(opened(&env, &["--session-dir", text(&folder), "-c"]), file);
    let roundabout = format!("{}/../{}", folder.display(), folder.file_name().unwrap().display());
    assert_eq!(opened(&env, &["--session-dir", &roundabout, "-c"]), file);
    let page = done(&env, &["--export", &relative, "../project/./page.html"]);
    assert_eq!(page, format!("{}\n", env.project().join("page.html").display()));
}
