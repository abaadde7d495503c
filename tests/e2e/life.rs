//! The end of the process: end of input, signals, a reader that does not read or is
//! gone; and that stdout holds nothing but JSON lines.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, Wharf, guest};

use crate::order::{assert_documented_order, count, texts};
use crate::processes::{is_running, read_pid, signal, wait_gone};

#[test]
fn the_end_of_the_input_ends_the_process() {
    let env = Env::new();
    let exit = env.rpc(&[]).finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert!(exit.all.is_empty(), "{}", exit.transcript);
    assert_eq!(exit.stderr, "");
}

#[test]
fn the_end_of_the_input_lets_the_accepted_turn_finish() {
    let env = Env::new();
    let slow = json!({"delayMs": 5, "chunkChars": 10, "content": [{"type": "text", "text": "a".repeat(500)}]});
    let model = env.script(&[bash("sleep 0.2; echo slept"), slow, says("followed")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.send_raw(
        b"{\"type\":\"prompt\",\"message\":\"go\"}\n{\"type\":\"follow_up\",\"message\":\"more\"}\n",
    );
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(texts(&exit.all, "toolResult"), ["slept\n"]);
    assert_eq!(texts(&exit.all, "assistant").last().unwrap(), "followed");
    assert_eq!(exit.all.last().unwrap()["type"], "agent_end");
    assert_documented_order(&exit.all);
}

#[test]
fn the_end_of_the_input_settles_the_dialog_of_a_gate() {
    let env = Env::new();
    let model = env.script(&[bash("touch ran; echo ASK"), says("understood")]);
    let mut wharf = env.rpc_with(&["waiter"], &model);
    wharf.prompt("go");
    wharf.wait_ui("select");
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(texts(&exit.all, "toolResult"), ["waiter asked: cancelled"], "{}", exit.transcript);
    assert_eq!(texts(&exit.all, "assistant").last().unwrap(), "understood");
    assert_eq!(count(&exit.all, "extension_ui_response_handled"), 1);
    assert!(!fs::exists(env.project().join("ran")).unwrap());
}

#[test]
fn after_the_end_of_the_input_nobody_can_be_asked() {
    let env = Env::new();
    let model = env.script(&[bash("sleep 0.2"), bash("echo ASK"), says("understood")]);
    let mut wharf = env.rpc_with(&["waiter"], &model);
    wharf.prompt("go");
    wharf.wait_event("tool_execution_start");
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    let result = texts(&exit.all, "toolResult").pop().unwrap();
    assert!(result.contains("no UI") || result.contains("cancelled"), "{result}");
    assert_eq!(exit.all.last().unwrap()["type"], "agent_end");
}

#[test]
fn the_end_of_the_input_waits_for_a_command() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["floods"], "scripted/demo");
    wharf.send_raw(b"{\"id\":1,\"type\":\"prompt\",\"message\":\"/flood 2000\"}\n");
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(count(&exit.all, "extension_ui_request"), 2000, "{}", exit.stderr);
}

#[test]
fn extensions_hear_of_the_end() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["probe"], "scripted/demo");
    wharf.prompt("/session-id");
    wharf.wait_notify();
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    let notices: Vec<&Value> = exit.rest.iter().map(|line| &line["message"]).collect();
    assert_eq!(notices, ["session_shutdown"], "{}", exit.transcript);
}

#[test]
fn extensions_hear_of_the_end_by_a_signal() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["probe"], "scripted/demo");
    wharf.prompt("/session-id");
    wharf.wait_notify();
    signal(wharf.pid(), Signal::TERM);
    let exit = wharf.wait_exit();
    assert_eq!(exit.code, Some(143), "{}", exit.stderr);
    let notices: Vec<&Value> = exit.rest.iter().map(|line| &line["message"]).collect();
    assert_eq!(notices, ["session_shutdown"], "{}", exit.transcript);
}

/// Sends SIGTERM and waits for the end; standard input stays open.
#[track_caller]
fn terminate(wharf: Wharf) -> Vec<Value> {
    signal(wharf.pid(), Signal::TERM);
    let exit = wharf.wait_exit();
    assert_eq!(exit.code, Some(143), "{}", exit.stderr);
    exit.all
}

#[test]
fn a_signal_ends_an_idle_process() {
    for (number, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let env = Env::new();
        let mut wharf = env.rpc(&[]);
        wharf.data(json!({"type": "get_version"}));
        signal(wharf.pid(), number);
        assert_eq!(wharf.wait_exit().code, Some(code));
    }
}

#[test]
fn a_signal_settles_an_open_dialog() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["rpc-demo"], "scripted/demo");
    wharf.prompt("/rpc-input");
    let dialog = wharf.wait_ui("input");
    let lines = terminate(wharf);
    let handled: Vec<&Value> = lines
        .iter()
        .filter(|line| line["type"] == "extension_ui_response_handled")
        .map(|line| &line["id"])
        .collect();
    assert_eq!(handled, [&dialog["id"]]);
}

#[test]
fn a_signal_ends_a_run_with_a_dialog() {
    let env = Env::new();
    let model = env.script(&[bash("touch ran; echo ASK"), says("never")]);
    let mut wharf = env.rpc_with(&["waiter"], &model);
    wharf.prompt("go");
    wharf.wait_ui("select");
    let lines = terminate(wharf);
    assert_eq!(count(&lines, "extension_ui_response_handled"), 1);
    assert_eq!(lines.last().unwrap()["type"], "agent_end", "{}", lines.last().unwrap());
    assert_eq!(assert_documented_order(&lines), 1);
    assert!(!fs::exists(env.project().join("ran")).unwrap());
}

#[test]
fn a_signal_ends_what_a_shell_command_has_started() {
    let env = Env::new();
    let command = "sleep 1000 & echo $! > child.tmp; mv child.tmp child; \
        echo $$ > shell.tmp; mv shell.tmp shell; sleep 1000";
    let model = env.script(&[bash(command), says("never")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("go");
    let pids = ["child", "shell"].map(|name| read_pid(&env.project().join(name)));
    let lines = terminate(wharf);
    pids.iter().for_each(wait_gone);
    assert_eq!(lines.last().unwrap()["type"], "agent_end", "{}", lines.last().unwrap());
    assert_eq!(assert_documented_order(&lines), 1);
}

#[test]
fn a_signal_ends_a_command_that_ignores_signals() {
    let env = Env::new();
    let command = "trap '' TERM INT HUP; echo $$ > shell.tmp; mv shell.tmp shell; \
        while true; do sleep 0.1; done";
    let model = env.script(&[bash(command), says("never")]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("go");
    let shell = read_pid(&env.project().join("shell"));
    terminate(wharf);
    wait_gone(&shell);
}

/// RPC mode whose standard output is left to the test.
fn start(env: &Env, model: &str) -> Child {
    env.command()
        .args(["--mode", "rpc", "--model", model])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end of a process that has been told to end. The bound is far above
/// the second that clients give it, and far below what the end of the input waits
/// for a slow reader.
fn wait_end(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(start.elapsed() < Duration::from_secs(15), "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_signal_ends_a_process_whose_reader_does_not_read() {
    let env = Env::new();
    let text = "x".repeat(5_000_000);
    let model = env.script(&[json!({"repeat": true, "chunkChars": 10_000,
        "content": [{"type": "text", "text": text}]})]);
    let mut child = start(&env, &model);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"type\":\"prompt\",\"message\":\"go\"}\n").unwrap();
    // The first lines show that it has begun; then nobody reads.
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("message_update") {
        line.clear();
        stdout.read_line(&mut line).unwrap();
    }
    signal(child.id(), Signal::TERM);
    assert_eq!(wait_end(&mut child), Some(143));
}

#[test]
fn a_reader_that_goes_away_ends_the_process() {
    let env = Env::new();
    let command = "echo $$ > shell.tmp; mv shell.tmp shell; \
        while true; do echo line; sleep 0.05; done";
    let model = env.script(&[bash(command), says("never")]);
    let mut child = start(&env, &model);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"type\":\"prompt\",\"message\":\"go\"}\n").unwrap();
    let shell = read_pid(&env.project().join("shell"));
    assert!(is_running(shell.0));
    drop(child.stdout.take());
    let code = wait_end(&mut child);
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    wait_gone(&shell);
}

/// A client that dies closes both pipes, and a silent run has nothing to write.
#[test]
fn a_client_that_dies_ends_a_silent_run() {
    let env = Env::new();
    let model =
        env.script(&[bash("echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 1000"), says("never")]);
    let mut child = start(&env, &model);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"type\":\"prompt\",\"message\":\"go\"}\n").unwrap();
    let sleep = read_pid(&env.project().join("pid"));
    assert!(is_running(sleep.0));
    drop(stdin);
    drop(child.stdout.take());
    assert_eq!(wait_end(&mut child), Some(1));
    wait_gone(&sleep);
}

#[test]
fn a_reader_that_dies_ends_a_silent_one_shot_run() {
    for mode in ["json", "text"] {
        let env = Env::new();
        let command = bash("echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 1000");
        let model = env.script(&[command, says("never")]);
        let mut child = env
            .command()
            .args(["--mode", mode, "--model", &model, "go", "and go on"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let sleep = read_pid(&env.project().join("pid"));
        drop(child.stdout.take());
        assert_eq!(wait_end(&mut child), Some(1), "{mode}");
        wait_gone(&sleep);
    }
}

/// The end of the input alone is no such death: a file has no reader to lose.
#[test]
fn a_silent_run_goes_on_while_its_output_is_kept() {
    let env = Env::new();
    let model = env.script(&[bash("sleep 2; echo slept"), says("done")]);
    let kept = env.project().join("kept.jsonl");
    let mut child = env
        .command()
        .args(["--mode", "rpc", "--model", &model])
        .stdin(Stdio::piped())
        .stdout(fs::File::create(&kept).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"type\":\"prompt\",\"message\":\"go\"}\n").unwrap();
    drop(stdin);
    assert_eq!(wait_end(&mut child), Some(0));
    let last = fs::read_to_string(&kept).unwrap();
    let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert_eq!(last["type"], "agent_end");
}

#[test]
fn a_reader_that_goes_away_is_noticed_by_the_next_answer() {
    let env = Env::new();
    let mut child = start(&env, "scripted/demo");
    let mut stdin = child.stdin.take().unwrap();
    drop(child.stdout.take());
    stdin.write_all(b"{\"type\":\"get_state\"}\n").unwrap();
    let code = wait_end(&mut child);
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
}

#[test]
fn a_reader_that_goes_away_ends_a_one_shot_run() {
    let env = Env::new();
    let model = env.script(&[json!({"delayMs": 20, "chunkChars": 1,
        "content": [{"type": "text", "text": "x".repeat(100_000)}]})]);
    let mut child = env
        .command()
        .args(["--mode", "json", "--model", &model, "go"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("message_update") {
        line.clear();
        stdout.read_line(&mut line).unwrap();
    }
    drop(stdout);
    let code = wait_end(&mut child);
    assert!(code != Some(0), "{code:?}");
}

#[test]
fn what_a_guest_prints_is_not_on_stdout() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["probe"], "scripted/demo");
    wharf.prompt("/print out of the guest");
    wharf.wait_notify();
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    // `all` holds parsed lines: another line would have failed already.
    let printed = exit.all.iter().any(|line| {
        line["type"] != "extension_ui_request" && line.to_string().contains("out of the guest")
    });
    assert!(!printed, "{}", exit.transcript);
    assert!(!exit.stderr.contains("out of the guest"), "{}", exit.stderr);
}

#[test]
fn a_guest_that_panics_leaves_stdout_to_json() {
    let env = Env::new();
    let mut wharf = env.rpc_with(&["panics"], "scripted/demo");
    wharf.prompt("/boom");
    wharf.wait_event("extension_error");
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(exit.all.len(), 2, "{}", exit.transcript);
}

#[test]
fn an_unknown_no_flag_is_a_warning() {
    let env = Env::new();
    let mut wharf = env.rpc(&["--no-themes", "--no-session", "--no-foo"]);
    wharf.data(json!({"type": "get_version"}));
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    for flag in ["--no-themes", "--no-foo"] {
        assert!(exit.stderr.contains(flag), "{}", exit.stderr);
    }
    assert!(!exit.stderr.contains("--no-session"), "{}", exit.stderr);
}

#[test]
fn another_unknown_flag_is_an_error_that_names_it() {
    let env = Env::new();
    let exit = env.rpc(&["--themes"]).finish();
    assert_eq!(exit.code, Some(2));
    assert!(exit.all.is_empty(), "{}", exit.transcript);
    assert!(exit.stderr.contains("--themes"), "{}", exit.stderr);
}

#[test]
fn a_start_that_fails_says_why_on_stderr() {
    let env = Env::new();
    let hello = guest("hello");
    for args in [
        &["--model", "nobody/nothing"][..],
        &["--session", "missing.jsonl"],
        &["--tools", "bash,flying"],
    ] {
        let exit = env.rpc(&[args, &["-e", hello.to_str().unwrap()]].concat()).finish();
        assert_eq!(exit.code, Some(1), "{args:?}");
        assert!(exit.all.is_empty(), "{}", exit.transcript);
        let named = args[1].rsplit(',').next().unwrap();
        assert!(exit.stderr.contains(named), "{args:?}: {}", exit.stderr);
    }
}

#[test]
fn the_version_and_the_help_go_to_stdout() {
    let env = Env::new();
    let output = env.command().arg("--version").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("wharf ") && text.lines().count() == 1, "{text}");
    assert!(output.stderr.is_empty());
    let output = env.command().arg("--help").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for flag in ["--mode", "--model", "--no-session", "--extension", "--continue"] {
        assert!(text.contains(flag), "{flag}: {text}");
    }
}
