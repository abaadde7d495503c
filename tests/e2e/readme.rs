//! What README.md tells people to type and to write, done as it stands there.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use regex::Regex;
use serde_json::Value;
use wharf_tests::{Env, binary, guest, note};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn readme() -> String {
    std::fs::read_to_string(repository().join("README.md")).unwrap()
}

/// The text below a second-level heading.
fn section(title: &str) -> String {
    let text = readme();
    let heading = format!("\n## {title}\n");
    let (_, rest) = text.split_once(&heading).unwrap_or_else(|| panic!("README has no {title:?}"));
    rest.split("\n## ").next().unwrap().to_owned()
}

/// The code blocks of a section in this language.
fn blocks(section: &str, language: &str) -> Vec<String> {
    let block = Regex::new(&format!("(?s)\n```{language}\n(.*?)```")).unwrap();
    block.captures_iter(section).map(|found| found[1].to_owned()).collect()
}

/// A shell's command with the binary on its path, in an environment of the test's own.
fn shell(env: &Env, folder: &Path, script: &str) -> Command {
    let mut path = vec![binary().parent().unwrap().to_owned()];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let own = |name: &str, default: &str| {
        std::env::var_os(name).unwrap_or_else(|| home.join(default).into_os_string())
    };
    let mut command = Command::new("sh");
    command
        .args(["-e", "-c", script])
        .current_dir(folder)
        .env("PATH", std::env::join_paths(path).unwrap())
        .env("CARGO_HOME", own("CARGO_HOME", ".cargo"))
        .env("RUSTUP_HOME", own("RUSTUP_HOME", ".rustup"))
        .env("HOME", env.home())
        .env("WHARF_AGENT_DIR", env.agent_dir())
        // What the lock file names was fetched when the guests were built.
        .env("CARGO_NET_OFFLINE", "true")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_BUILD_TARGET_DIR")
        .env_remove("CARGO_BUILD_TARGET");
    command
}

fn run(mut command: Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that reads nothing may have ended already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[track_caller]
fn stdout(output: Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}: {error}\n{text}", output.status);
    text
}

/// Makes the extension as the README tells; gives its folder.
fn first_extension(env: &Env) -> PathBuf {
    let section = section("Your first extension in five minutes");
    let scripts = blocks(&section, "sh");
    stdout(run(shell(env, &env.project(), &scripts[0]), ""));
    let folder = env.project().join("ask-first");
    // The README's clone lies beside the extension; the test's does not.
    let manifest = blocks(&section, "toml")[0].replace(
        "\"../wharf/sdk/rust\"",
        &format!("{:?}", repository().join("sdk/rust").display().to_string()),
    );
    assert!(manifest.contains(&repository().display().to_string()), "{manifest}");
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(folder.join("src/lib.rs"), &blocks(&section, "rust")[0]).unwrap();
    // The versions that the examples are built with, and what was compiled for them.
    let lock = repository().join("example-extensions/Cargo.lock");
    std::fs::copy(lock, folder.join("Cargo.lock")).unwrap();
    let guests = guest("hello");
    let target = guests.ancestors().nth(3).unwrap();
    std::os::unix::fs::symlink(target, folder.join("target")).unwrap();

    let printed = stdout(run(shell(env, &folder, &scripts[1]), ""));
    assert_eq!(printed, blocks(&section, "json")[0]);
    folder
}

/// The result of the last tool call in the session that was written last.
fn last_tool_result(env: &Env) -> Value {
    let mut files = Vec::new();
    for folder in std::fs::read_dir(env.agent_dir().join("sessions")).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            files.push(file.unwrap().path());
        }
    }
    // The names begin with the time.
    files.sort_by_key(|path| path.file_name().map(std::ffi::OsStr::to_owned));
    let text = std::fs::read_to_string(files.last().unwrap()).unwrap();
    let mut entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let result = entries.rfind(|entry| entry["message"]["role"] == "toolResult");
    result.unwrap_or_else(|| panic!("no tool result in {text}"))["message"].clone()
}

#[test]
fn the_first_extension_and_the_python_client_work_as_printed() {
    let env = Env::new();
    let folder = first_extension(&env);
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        note("python3 is missing: the README's Python client was not run");
        return;
    }
    let section = section("Drive Wharf from Python");
    std::fs::write(folder.join("drive.py"), &blocks(&section, "python")[0]).unwrap();
    let command = &blocks(&section, "sh")[0];
    let question = "Let me look around.\nRun ls? {\"path\":\".\"} [y/N] ";
    for (typed, is_error) in [("n\n", true), ("y\n", false)] {
        let printed = stdout(run(shell(&env, &folder, command), typed));
        assert_eq!(printed, format!("{question}That is what is in this folder.\n"));
        let result = last_tool_result(&env);
        assert_eq!(result["isError"], is_error, "{result}");
    }
}

#[test]
fn the_script_is_played_as_printed() {
    let env = Env::new();
    let section = section("The scripted model");
    env.write("greet.jsonl", &blocks(&section, "jsonl")[0]);
    let printed = stdout(run(shell(&env, &env.project(), &blocks(&section, "sh")[0]), ""));
    assert_eq!(printed, blocks(&section, "text")[0]);
}

#[test]
fn the_rpc_commands_are_those_of_the_protocol() {
    let row = Regex::new(r"(?m)^\| `(\w+)` \|").unwrap();
    let section = section("RPC commands");
    let named: Vec<&str> =
        row.captures_iter(&section).map(|found| found.get(1).unwrap().as_str()).collect();
    assert_eq!(named, wharf_protocol::RpcCommand::NAMES);
}

#[test]
fn the_options_are_those_of_the_binary() {
    let options = |text: &str| -> BTreeSet<String> {
        let option = Regex::new(r"(?:^|[^-\w])(--?[a-z][a-z-]*)").unwrap();
        option.captures_iter(text).map(|found| found[1].to_owned()).collect()
    };
    let table: String =
        section("The command line").lines().filter(|line| line.starts_with("| `")).collect();
    let help = stdout(Env::new().command().arg("--help").output().unwrap());
    let described: String = help
        .lines()
        .filter(|line| line.trim_start().starts_with('-') && !line.trim_start().starts_with("- "))
        .collect();
    let short_only: BTreeSet<String> = ["-h", "-V"].map(str::to_owned).into();
    let described: BTreeSet<String> = &options(&described) - &short_only;
    assert_eq!(options(&table), described);
}

#[test]
fn the_map_names_files_that_exist() {
    let map = std::fs::read_to_string(repository().join("host/ARCHITECTURE.md")).unwrap();
    let path = Regex::new(r"`((?:host|sdk|tests|xtask|wit|example-extensions)/[^`]*)`").unwrap();
    let named: Vec<&str> =
        path.captures_iter(&map).map(|found| found.get(1).unwrap().as_str()).collect();
    assert!(named.len() > 30, "{named:?}");
    for name in named {
        assert!(repository().join(name).exists(), "host/ARCHITECTURE.md names {name}");
    }
}

#[test]
fn the_links_lead_somewhere() {
    let text = readme();
    let anchors: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|title| title.to_lowercase().replace(' ', "-"))
        .collect();
    let link = Regex::new(r"\]\(([^)]+)\)").unwrap();
    for found in link.captures_iter(&text) {
        let target = &found[1];
        match target.strip_prefix('#') {
            Some(anchor) => assert!(anchors.contains(anchor), "{target} of {anchors:?}"),
            None if target.starts_with("https://") => {}
            None => assert!(repository().join(target).exists(), "{target}"),
        }
    }
}
