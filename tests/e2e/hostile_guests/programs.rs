//! Programs and arguments that would mean something else to a shell.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::{Value, json};
use wharf_tests::{Env, Wharf, guest};

use super::{
    HOST_MIB, assert_ends, assert_memory, assert_refused, assert_served, not_granted, outcome,
    start, with_limits,
};

fn exec(wharf: &mut Wharf, program: &str, args: &[&str]) -> Value {
    outcome(wharf, &format!("/exec {}", json!({"program": program, "args": args})))
}

/// A program that says where it is.
fn program(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\necho {} \"$@\"\n", path.display())).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The guest with all that it asks for, and these folders first on the `PATH`.
fn start_with_path(env: &Env, folders: &[&str]) -> Wharf {
    env.grant_all(&["metachars"]);
    let rest = std::env::var("PATH").unwrap();
    let mut command = env.command();
    command.args(["--mode", "rpc", "--model", "scripted/demo"]);
    for name in ["metachars", "hello"] {
        command.arg("-e").arg(guest(name));
    }
    command
        .env("PATH", [folders, &[rest.as_str()]].concat().join(":"))
        .env("GRANTED", "may be seen")
        .env("ANTHROPIC_API_KEY", "secret key")
        .env("LD_PRELOAD_X", "secret too");
    Wharf::start(command, env.names())
}

#[test]
fn arguments_are_data() {
    let env = with_limits(&json!({}));
    env.write("victim.txt", "here");
    let mut wharf = start(&env, "metachars");
    let texts = [
        "; rm victim.txt",
        "&& touch pwned",
        "| tee pwned",
        "> pwned",
        "$(touch pwned)",
        "`touch pwned`",
        "${HOME}",
        "$HOME",
        "~",
        "*",
        "{a,b}",
        "a\nrm victim.txt\n",
        "a\r\nb",
        "' ; touch pwned ; '",
        "\" ; touch pwned ; \"",
        "\\",
        "!!",
        "#",
        "%s%n",
        "\u{202e}txt.exe",
        "--",
        "",
    ];
    for text in texts {
        let outcome = exec(&mut wharf, "echo", &["<", text, ">"]);
        assert_eq!(outcome["ok"]["stdout"], format!("< {text} >\n"), "{text:?}: {outcome}");
        assert_eq!(outcome["ok"]["code"], 0);
    }
    let outcome = exec(&mut wharf, "echo", &["a\0b"]);
    assert_refused(&outcome, "invalid", "arguments", "a NUL");
    let names: Vec<_> =
        fs::read_dir(env.project()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["victim.txt"]);
    assert_served(&mut wharf, "Ann");
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}

#[test]
fn no_spelling_of_a_program_is_another_program() {
    let env = with_limits(&json!({}));
    let mut wharf = start(&env, "metachars");
    program(&env.project().join("git"));
    program(&env.project().join("echo"));
    for name in [
        "./git",
        "./echo",
        "git/../sh",
        "../project/echo",
        "bin/echo",
        "/bin/../bin/sh",
        "/bin//sh",
        "/bin/./sh",
        "",
        "/",
        ".",
        "..",
        "echo\0",
        "e*",
        "ech?",
        "~/echo/",
    ] {
        let outcome = exec(&mut wharf, name, &[]);
        assert_refused(&outcome, "invalid", "program", &format!("{name:?}"));
    }
    for name in
        ["sh", "/bin/sh", "/bin/echo", "ECHO", "echo ", " echo", "echo;sh", "echo\nsh", "$SHELL"]
    {
        assert_refused(&exec(&mut wharf, name, &[]), "denied", "exec:", name);
    }
    let in_project = env.project().join("echo").display().to_string();
    assert_refused(&exec(&mut wharf, &in_project, &[]), "denied", "exec:", "the project's own");
    // `git status --*` is one word more, and that one a flag.
    for args in [
        &["status"][..],
        &["status", "--porcelain", "--x"],
        &["status", "-s"],
        &["-c", "core.pager=sh", "status"],
        &["status;", "--x"],
        &["status --porcelain"],
        &["--exec-path=.", "status", "--x"],
        &["push", "--force"],
        &[],
    ] {
        let outcome = exec(&mut wharf, "git", args);
        assert_refused(&outcome, "denied", "exec:git", &format!("{args:?}"));
    }
    let outcome = exec(&mut wharf, "git", &["push", "--force"]);
    assert_refused(&outcome, "denied", &not_granted("metachars", "exec:git push --force"), "push");
    // `env` was granted without arguments.
    assert_refused(&exec(&mut wharf, "env", &["sh"]), "denied", "exec:env sh", "env sh");
    assert_served(&mut wharf, "Bea");
    assert_ends(wharf);
}

/// What an agent writes into the project never runs under a name that was granted.
#[test]
fn a_path_that_leads_into_the_project_is_not_looked_at() {
    let env = with_limits(&json!({}));
    let elsewhere = env.project().parent().unwrap().join("elsewhere");
    let in_project = env.project().join("bin");
    program(&in_project.join("tool"));
    program(&env.project().join("tool"));
    program(&elsewhere.join("tool"));
    let linked = env.project().parent().unwrap().join("linked");
    symlink(&in_project, &linked).unwrap();
    let text = |path: &Path| path.display().to_string();
    let folders = [
        text(&in_project),
        ".".into(),
        String::new(),
        "bin".into(),
        text(&linked),
        text(&elsewhere),
    ];
    let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
    let mut wharf = start_with_path(&env, &folders);
    let outcome = exec(&mut wharf, "tool", &["x"]);
    assert_eq!(outcome["ok"]["stdout"], format!("{} x\n", elsewhere.join("tool").display()));
    // Now the one outside is a link to the one inside.
    fs::remove_file(elsewhere.join("tool")).unwrap();
    symlink(in_project.join("tool"), elsewhere.join("tool")).unwrap();
    let outcome = exec(&mut wharf, "tool", &["x"]);
    assert_refused(&outcome, "not-found", "tool", "a link into the project");
    assert_served(&mut wharf, "Cleo");
    assert_ends(wharf);
}

#[test]
fn programs_see_no_keys_and_stay_where_they_may() {
    let env = with_limits(&json!({}));
    let outside = env.project().parent().unwrap().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir_all(env.project().join("sub")).unwrap();
    symlink(&outside, env.project().join("out")).unwrap();
    let mut wharf = start_with_path(&env, &[]);
    let outcome = exec(&mut wharf, "env", &[]);
    let seen = outcome["ok"]["stdout"].as_str().unwrap();
    assert!(seen.contains("GRANTED=may be seen") && !seen.contains("secret"), "{seen}");
    for line in seen.lines() {
        let name = line.split('=').next().unwrap();
        let known = ["PATH", "HOME", "USER", "LANG", "TERM", "TMPDIR", "GRANTED"];
        assert!(known.contains(&name), "{line}");
    }
    let denied = super::outcome(&mut wharf, "/env ANTHROPIC_API_KEY");
    let text = not_granted("metachars", "env:ANTHROPIC_API_KEY");
    assert_refused(&denied, "denied", &text, "a key");
    for name in ["granted", "GRANTE", "GRANTED2", "PATH"] {
        let outcome = super::outcome(&mut wharf, &format!("/env {name}"));
        assert_refused(&outcome, "denied", "env:", name);
    }
    for name in ["GRANTED=x", "GRANTED\0"] {
        let outcome = super::outcome(&mut wharf, &format!("/env {name}"));
        assert!(outcome["error"].is_object(), "{name:?}: {outcome}");
    }
    assert_eq!(super::outcome(&mut wharf, "/env GRANTED")["ok"], "may be seen");

    let mut pwd = |cwd: &str| {
        super::outcome(&mut wharf, &format!("/exec {}", json!({"program": "pwd", "cwd": cwd})))
    };
    assert_eq!(pwd("sub")["ok"]["stdout"], format!("{}\n", env.project().join("sub").display()));
    for cwd in ["..", "../outside", "out", "sub/../..", "/", "~", "@agent", "@agent/extensions"] {
        assert_refused(&pwd(cwd), "denied", "", cwd);
    }
    for cwd in ["nothing", "sub/nothing"] {
        assert!(pwd(cwd)["error"].is_object(), "{cwd}");
    }
    assert_served(&mut wharf, "Dana");
    assert_ends(wharf);
}

/// At most sixteen at a time; each ends with its time.
#[test]
fn programs_without_end_are_few_and_end() {
    let env = with_limits(&json!({}));
    let mut wharf = start(&env, "metachars");
    let call = json!({"program": "sleep", "args": ["1000"], "timeoutMs": 1_500, "times": 40});
    wharf.prompt(&format!("/exec {call}"));
    assert_served(&mut wharf, "Eve");
    let outcome = super::next_outcome(&mut wharf);
    assert_eq!(outcome["ok"], json!({"failed": 24, "timed-out": 16}));
    assert_served(&mut wharf, "Fay");
    assert_memory(&wharf, HOST_MIB);
    assert_ends(wharf);
}
