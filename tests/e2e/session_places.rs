//! Where sessions are kept: settings, a project's settings, an extension, and their order.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use wharf_tests::{Env, SessionFile, Wharf, guest};

use crate::session_cli::{done, opened, run, run_in, stdout, text};
use crate::session_store::{any_reply, file_of, files, folder_of, rpc_in, stored};

#[test]
fn settings_say_where_sessions_are_kept() {
    let env = Env::new();
    let model = any_reply(&env);
    let absolute = env.home().join("absolute");
    let global = |value: Value| {
        env.write_agent("settings.json", json!({"sessionDir": value}).to_string());
    };
    let default = folder_of(&env, &env.project());
    for (value, dir) in [
        (json!("~/set"), env.home().join("set")),
        (json!("kept/here"), env.project().join("kept/here")),
        (json!(absolute), absolute.clone()),
        (json!(5), default.clone()),
        (json!(""), default.clone()),
        (Value::Null, default.clone()),
    ] {
        global(value.clone());
        let mut wharf = env.rpc(&["--model", &model]);
        wharf.run("hi");
        let file = file_of(&mut wharf);
        assert_eq!(file.parent().unwrap(), dir, "{value}");
        let exit = wharf.finish();
        let is_told = exit.transcript.contains("sessionDir");
        assert_eq!(is_told, value.is_number(), "{value}: {}", exit.transcript);
        // What only looks at sessions looks there, too.
        assert_eq!(opened(&env, &["-c"]), file);
        let id = SessionFile::read(&file).header["id"].as_str().unwrap()[..8].to_owned();
        assert!(done(&env, &["-r"]).contains(&id), "{value}");
        done(&env, &["--export", &id, "page.html"]);
        fs::remove_file(&file).unwrap();
    }
    // The project's, once it is trusted, comes first; the flag before both.
    global(json!("~/set"));
    env.write(".wharf/settings.json", json!({"sessionDir": "own"}).to_string());
    let told = run(&env, &["-r"]);
    assert_eq!(stdout(&told), "no session of this directory yet\n");
    let place = |args: &[&str]| {
        let args = [&["--model", model.as_str()], args].concat();
        opened(&env, &args).parent().unwrap().to_owned()
    };
    assert_eq!(place(&[]), env.home().join("set"));
    assert_eq!(place(&["--trust-project"]), env.project().join("own"));
    assert!(run(&env, &["trust"]).status.success());
    assert_eq!(place(&[]), env.project().join("own"));
    assert_eq!(place(&["--session-dir", "~/flag"]), env.home().join("flag"));
    stored(&env.project().join("own"), 1, &env.home(), 1, "own");
    assert!(done(&env, &["-r"]).contains("00000001"));
}

/// Trust for this run only counts for what a list shows as well.
#[test]
fn a_list_and_an_export_of_a_project_that_is_trusted_for_the_run_are_those_of_its_settings() {
    let env = Env::new();
    env.write(".wharf/settings.json", json!({"sessionDir": "own"}).to_string());
    stored(&env.project().join("own"), 1, &env.project(), 1, "own");
    assert!(opened(&env, &["--trust-project", "--continue"]).starts_with(env.project()));
    let listed = done(&env, &["--trust-project", "-r"]);
    assert!(listed.contains("00000001"), "{listed}");
    done(&env, &["--trust-project", "--export", "00000001", "page.html"]);
}

/// A directory in which the probe says where sessions are kept.
struct Probed {
    env: Env,
    cwd: PathBuf,
    probe: String,
}

impl Probed {
    fn new(name: &str) -> Self {
        let env = Env::new();
        let cwd = env.home().join(name);
        Self { env, cwd, probe: guest("probe").display().to_string() }
    }

    fn rpc(&self, args: &[&str]) -> Wharf {
        rpc_in(&self.env, &self.cwd, &[&["-e", &self.probe], args].concat())
    }

    /// The file of a first message in a run with these arguments, and what was told.
    fn first_file(&self, args: &[&str]) -> (PathBuf, Vec<Value>) {
        let model = any_reply(&self.env);
        let mut wharf = self.rpc(&[&["--model", model.as_str()], args].concat());
        wharf.run("hi");
        let file = file_of(&mut wharf);
        let exit = wharf.finish();
        assert_eq!(exit.code, Some(0), "{}", exit.transcript);
        let told = exit.all.into_iter().filter(|line| line["type"] == "extension_error");
        (file, told.collect())
    }
}

#[test]
fn an_extension_says_where_sessions_are_kept() {
    for (name, place) in [
        ("DIRECTORY ~%kept", "home/kept"),
        ("DIRECTORY own%place", "home/DIRECTORY own%place/own/place"),
    ] {
        let probed = Probed::new(name);
        let root = probed.env.home().parent().unwrap().to_owned();
        let place = root.join(place);
        let model = any_reply(&probed.env);
        let mut wharf = probed.rpc(&["--model", &model]);
        wharf.run("first");
        let first = file_of(&mut wharf);
        assert_eq!(first.parent().unwrap(), place, "{name}");
        wharf.data(json!({"type": "new_session"}));
        wharf.run("second");
        let second = file_of(&mut wharf);
        assert_eq!(second.parent().unwrap(), place);
        for command in ["list_sessions", "list_all_sessions"] {
            let data = wharf.data(json!({"type": command}));
            let sessions = data["sessions"].as_array().unwrap();
            let paths: Vec<&Value> = sessions.iter().map(|session| &session["path"]).collect();
            assert_eq!(paths, [&json!(second), &json!(first)]);
        }
        let messages = wharf.data(json!({"type": "get_fork_messages"}));
        let entry = &messages["messages"][0]["entryId"];
        wharf.data(json!({"type": "fork", "entryId": entry}));
        wharf.run("third");
        let third = file_of(&mut wharf);
        assert_eq!(third.parent().unwrap(), place);
        wharf.data(json!({"type": "switch_session", "sessionPath": first, "fork": true}));
        let fourth = file_of(&mut wharf);
        assert_eq!(fourth.parent().unwrap(), place);
        assert_eq!(wharf.finish().code, Some(0));
        for file in [&first, &second, &third, &fourth] {
            SessionFile::read(file);
        }
        assert!(!probed.env.agent_dir().join("sessions").exists());

        // What is reopened is looked for there.
        let mut wharf = probed.rpc(&["--model", &model, "--session", text(&second)]);
        wharf.run("more");
        assert_eq!(wharf.finish().code, Some(0));
        let mut wharf = probed.rpc(&["--continue"]);
        assert_eq!(file_of(&mut wharf), second);
        assert_eq!(wharf.finish().code, Some(0));
        let id = SessionFile::read(&first).header["id"].as_str().unwrap()[..13].to_owned();
        let mut wharf = probed.rpc(&["--session", &id]);
        assert_eq!(file_of(&mut wharf), first);
        assert_eq!(wharf.finish().code, Some(0));
        let mut wharf = probed.rpc(&["--fork", &id]);
        assert_eq!(file_of(&mut wharf).parent().unwrap(), place);
        assert_eq!(wharf.finish().code, Some(0));
        assert!(!probed.env.agent_dir().join("sessions").exists());
    }
}

#[test]
fn flags_and_settings_come_before_an_extension() {
    let probed = Probed::new("DIRECTORY ~%kept");
    let home = probed.env.home();
    let (file, _) = probed.first_file(&["--session-dir", "~/flag"]);
    assert_eq!(file.parent().unwrap(), home.join("flag"));
    let (file, _) = probed.first_file(&["--session-dir", "~/flag", "--continue"]);
    assert_eq!(file.parent().unwrap(), home.join("flag"));
    probed.env.write_agent("settings.json", json!({"sessionDir": "~/set"}).to_string());
    for args in [&[][..], &["--continue"]] {
        let (file, _) = probed.first_file(args);
        assert_eq!(file.parent().unwrap(), home.join("set"));
    }
    assert!(!home.join("kept").exists());
    assert!(!probed.env.agent_dir().join("sessions").exists());
    // Without a file of its own nothing is kept there.
    probed.env.write_agent("settings.json", "{}");
    let model = any_reply(&probed.env);
    let mut wharf = probed.rpc(&["--model", &model, "--no-session"]);
    wharf.run("hi");
    assert_eq!(wharf.data(json!({"type": "get_state"}))["sessionFile"], Value::Null);
    assert_eq!(wharf.finish().code, Some(0));
    assert!(!home.join("kept").exists());
}

#[test]
fn an_extension_that_says_no_place_leaves_the_default() {
    for (name, problem) in [
        ("SHOW", None),
        ("BLANK", Some("blank")),
        ("LONG", Some("5000 bytes")),
        ("FAIL", Some("probe fails on purpose")),
    ] {
        let probed = Probed::new(name);
        let default = folder_of(&probed.env, &probed.cwd);
        let mut last = None;
        for args in [&[][..], &["--continue"], &["--continue"]] {
            let (file, told) = probed.first_file(args);
            assert_eq!(file.parent().unwrap(), default, "{name} {args:?}");
            let told: Vec<&Value> =
                told.iter().filter(|line| line["event"] == "session_directory").collect();
            match problem {
                None => assert!(told.is_empty(), "{told:?}"),
                Some(problem) => {
                    assert_eq!(told.len(), 1, "{name} {args:?}: {told:?}");
                    assert!(told[0]["extensionPath"].as_str().unwrap().contains("probe"));
                    assert!(told[0]["error"].as_str().unwrap().contains(problem), "{told:?}");
                }
            }
            if !args.is_empty() {
                assert_eq!(last, Some(file.clone()), "{name}");
            }
            last = Some(file);
        }
    }
    // It is asked once, and of the right directory.
    let probed = Probed::new("SHOW");
    let mut wharf = probed.rpc(&["--model", &any_reply(&probed.env)]);
    wharf.run("hi");
    wharf.data(json!({"type": "new_session"}));
    wharf.run("hi");
    let exit = wharf.finish();
    let shown: Vec<&Value> = exit
        .all
        .iter()
        .filter(|line| line["message"].as_str().is_some_and(|it| it.contains("session-directory")))
        .collect();
    assert_eq!(shown.len(), 1, "{}", exit.transcript);
    assert!(shown[0]["message"].as_str().unwrap().contains(text(&probed.cwd)), "{shown:?}");
}

/// There may be nobody yet who could answer a dialog.
#[test]
fn an_extension_cannot_ask_where_sessions_are_kept() {
    let probed = Probed::new("ASK");
    let model = any_reply(&probed.env);
    let mut last = None;
    for args in [&[][..], &["--continue"]] {
        let mut wharf = probed.rpc(&[&["--model", model.as_str()], args].concat());
        wharf.run("hi");
        let file = file_of(&mut wharf);
        let exit = wharf.finish();
        assert_eq!(exit.code, Some(0));
        let said = |line: &&Value| line["message"].as_str() == Some("directory: NoUi");
        assert_eq!(exit.all.iter().filter(said).count(), 1, "{}", exit.transcript);
        assert!(exit.all.iter().all(|line| line["method"] != "confirm"), "{}", exit.transcript);
        assert_eq!(file.parent().unwrap(), folder_of(&probed.env, &probed.cwd));
        assert!(last.is_none() || last.as_ref() == Some(&file));
        last = Some(file);
    }
}

/// What needs to know the place waits for it, and nothing else.
#[test]
fn until_an_extension_has_said_the_place_nothing_is_written() {
    let probed = Probed::new("HANG");
    let model = any_reply(&probed.env);
    let mut wharf = probed.rpc(&["--model", &model]);
    for command in ["list_sessions", "list_all_sessions", "get_daily_cost"] {
        wharf.send(&json!({"id": command, "type": command}));
    }
    wharf.prompt("hi");
    for command in ["get_state", "get_messages", "get_commands", "get_tree", "get_session_stats"] {
        wharf.data(json!({"type": command}));
    }
    wharf.data(json!({"type": "bash", "command": "true"}));
    wharf.data(json!({"type": "get_state"}));
    let early: Vec<&Value> = wharf
        .passed()
        .filter(|line| line["type"] == "agent_start" || line["command"] == "list_sessions")
        .collect();
    assert!(early.is_empty(), "{early:?}");
    wharf.kill();
    assert!(files(&probed.env.agent_dir().join("sessions")).is_empty());
}

#[test]
fn the_end_of_the_input_does_not_wait_for_an_extension_that_says_no_place() {
    let probed = Probed::new("HANG");
    let exit = probed.rpc(&[]).finish();
    assert_eq!(exit.code, Some(0), "{}", exit.transcript);
    assert!(files(&probed.env.agent_dir().join("sessions")).is_empty());
}

/// A run cannot begin without knowing; nobody can answer before it has begun.
#[test]
fn continue_does_without_an_extension_that_does_not_answer() {
    let probed = Probed::new("HANG");
    let folder = folder_of(&probed.env, &probed.cwd);
    let file = stored(&folder, 1, &probed.cwd, 1, "kept");
    let mut wharf = probed.rpc(&["--continue"]);
    assert_eq!(file_of(&mut wharf), file);
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0));
    assert!(exit.stderr.contains("in time"), "{}", exit.stderr);
}

/// A new one and one that is reopened.
#[test]
fn a_place_that_an_extension_says_is_called_the_same_in_every_run() {
    let probed = Probed::new("DIRECTORY ..%.%kept");
    let (first, _) = probed.first_file(&[]);
    assert_eq!(first.parent().unwrap(), probed.env.home().join("kept"));
    let (second, _) = probed.first_file(&["--continue"]);
    assert_eq!(second, first);
}

/// The reference's order (flag, settings, extension, default) is that of all that looks for
/// sessions.
#[test]
fn lists_exports_and_imports_are_of_the_place_that_an_extension_says() {
    let probed = Probed::new("DIRECTORY ~%kept");
    let extensions = probed.env.agent_dir().join("extensions");
    fs::create_dir_all(&extensions).unwrap();
    fs::copy(guest("probe"), extensions.join("probe.wasm")).unwrap();
    fs::create_dir_all(&probed.cwd).unwrap();
    let kept = probed.env.home().join("kept");
    let source = stored(&probed.env.home(), 1, &probed.cwd, 1, "elsewhere");
    stored(&kept, 2, &probed.cwd, 2, "kept");
    let exported = run_in(&probed.env, &probed.cwd, &["--export", "00000002", "page.html"]);
    let listed = run_in(&probed.env, &probed.cwd, &["-r"]);
    let imported = run_in(&probed.env, &probed.cwd, &["import", text(&source)]);
    assert!(exported.status.success(), "{exported:?}");
    assert!(stdout(&listed).contains("00000002"), "{listed:?}");
    assert!(stdout(&imported).starts_with(text(&kept)), "{imported:?}");
    // What was copied is among the sessions that this directory has.
    let mut wharf = rpc_in(&probed.env, &probed.cwd, &["--session", "00000001"]);
    assert_eq!(file_of(&mut wharf).parent().unwrap(), kept);
}
