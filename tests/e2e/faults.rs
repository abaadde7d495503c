//! Extensions that misbehave: what is told, and that everything else goes on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use wharf_tests::script::{bash, says};
use wharf_tests::{Env, Wharf, guest};

/// Budgets that end a guest soon.
fn quick() -> Env {
    with_limits(&json!({"eventBudgetMs": 300, "commandBudgetMs": 500, "memoryMb": 64}))
}

/// Budgets that no guest reaches within a test.
fn patient() -> Env {
    with_limits(&json!({"eventBudgetMs": 600_000, "commandBudgetMs": 600_000}))
}

fn with_limits(limits: &Value) -> Env {
    let env = Env::new();
    let settings = json!({"extensionSettings": {"*": {"limits": limits}}});
    env.write_agent("settings.json", settings.to_string());
    env
}

/// The tool results of a run, as (text, isError).
fn results(run: &[Value]) -> Vec<(String, bool)> {
    run.iter()
        .filter(|line| line["type"] == "message_end" && line["message"]["role"] == "toolResult")
        .map(|line| {
            let message = &line["message"];
            let text = message["content"][0]["text"].as_str().unwrap().to_owned();
            (text, message["isError"].as_bool().unwrap())
        })
        .collect()
}

fn errors(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| line["type"] == "extension_error").collect()
}

/// The one tool result of a run that failed closed.
fn assert_failed_closed(run: &[Value], extension: &str) -> String {
    let results = results(run);
    let [(text, is_error)] = &results[..] else { panic!("{results:?}") };
    assert!(is_error, "{text}");
    assert!(text.contains("failed") && text.contains(extension), "{text}");
    let lower = text.to_lowercase();
    assert!(!lower.contains("denied") && !lower.contains("blocked by user"), "{text}");
    let executed = run.iter().any(|line| line["type"] == "tool_execution_update");
    assert!(!executed, "the call ran: {run:?}");
    text.clone()
}

/// A heartbeat goes there and back.
fn assert_alive(wharf: &mut Wharf, beat: &str) {
    wharf.prompt(&format!("/beat {beat}"));
    let text = format!("beat {beat}");
    wharf.wait_for(&text, |line| line["method"] == "notify" && line["message"] == text.as_str());
}

#[test]
fn a_panic_in_a_command_is_told_with_its_message() {
    let env = quick();
    let model = env.script(&[bash("echo calm"), says("done")]);
    let mut wharf = env.rpc_with(&["panics", "heartbeat"], &model);
    wharf.prompt("/boom");
    let error = wharf.wait_extension_error("panics.wasm");
    assert_eq!(error["event"], "command");
    let text = error["error"].as_str().unwrap();
    assert!(text.contains("boom on purpose") && text.contains("/boom"), "{text}");
    assert_eq!(error["extensionPath"], guest("panics").canonicalize().unwrap().to_str().unwrap());
    assert_alive(&mut wharf, "1");
    // The same extension serves again, from a new instance.
    let run = wharf.run("go");
    assert_eq!(results(&run), [("calm\n".to_owned(), false)]);
    assert!(errors(&run).is_empty(), "{run:?}");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn a_panic_in_tool_call_fails_closed() {
    let env = quick();
    let model = env.script(&[bash("echo PANIC"), says("one"), bash("echo calm"), says("two")]);
    let mut wharf = env.rpc_with(&["panics", "heartbeat"], &model);
    let run = wharf.run("go");
    let text = assert_failed_closed(&run, "panics");
    assert!(text.contains("boom on purpose"), "{text}");
    let told = errors(&run);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["event"], "tool_call");
    assert!(told[0]["error"].as_str().unwrap().contains("boom on purpose"), "{}", told[0]);
    assert_eq!(wharf.data(json!({"type": "get_last_assistant_text"}))["text"], "one");
    let run = wharf.run("again");
    assert_eq!(results(&run), [("calm\n".to_owned(), false)]);
    assert_alive(&mut wharf, "1");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn a_loop_in_tool_call_fails_closed() {
    let env = quick();
    let model = env.script(&[bash("echo SPIN"), says("one"), bash("echo calm"), says("two")]);
    let mut wharf = env.rpc_with(&["spins", "heartbeat"], &model);
    let run = wharf.run("go");
    let text = assert_failed_closed(&run, "spins");
    assert!(text.contains("300 ms"), "the budget is named: {text}");
    let told = errors(&run);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["event"], "tool_call");
    assert!(told[0]["error"].as_str().unwrap().contains("300 ms"), "{}", told[0]);
    let run = wharf.run("again");
    assert_eq!(results(&run), [("calm\n".to_owned(), false)]);
    wharf.prompt("/still");
    assert_eq!(wharf.wait_notify(), "still here");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn a_loop_in_a_command_ends_with_its_budget() {
    let env = quick();
    let mut wharf = env.rpc_with(&["spins", "heartbeat"], "scripted/demo");
    wharf.prompt("/spin");
    let error = wharf.wait_extension_error("spins.wasm");
    assert_eq!(error["event"], "command");
    let text = error["error"].as_str().unwrap();
    assert!(text.contains("/spin") && text.contains("500 ms"), "{text}");
    wharf.prompt("/still");
    assert_eq!(wharf.wait_notify(), "still here");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn a_heartbeat_answers_while_a_command_loops() {
    let env = patient();
    let mut wharf = env.rpc_with(&["spins", "heartbeat"], "scripted/demo");
    wharf.prompt("/spin");
    for beat in ["1", "2", "3"] {
        assert_alive(&mut wharf, beat);
    }
    assert_eq!(wharf.data(json!({"type": "get_state"}))["isStreaming"], false);
    // The loop was still on when the beats came.
    assert!(wharf.passed().all(|line| line["type"] != "extension_error"));
    wharf.kill();
}

#[test]
fn a_heartbeat_answers_while_a_tool_call_handler_loops() {
    let env = patient();
    let model = env.script(&[bash("echo SPIN"), says("never")]);
    let mut wharf = env.rpc_with(&["spins", "heartbeat"], &model);
    wharf.prompt("go");
    wharf.wait_event("tool_execution_start");
    for beat in ["1", "2", "3"] {
        assert_alive(&mut wharf, beat);
    }
    assert_eq!(wharf.data(json!({"type": "get_state"}))["isStreaming"], true);
    assert!(
        wharf.passed().all(|line| {
            line["type"] != "extension_error" && line["type"] != "tool_execution_end"
        })
    );
    // The person can stop the run though its guard never comes back.
    assert_eq!(wharf.request(json!({"type": "abort"}))["success"], true);
    wharf.wait_event("agent_end");
    assert_alive(&mut wharf, "4");
    wharf.kill();
}

/// Both prompts were answered with success, so both have to come to something.
#[test]
fn a_command_behind_a_looping_one_is_not_lost() {
    let env = quick();
    let mut wharf = env.rpc_with(&["spins"], "scripted/demo");
    wharf.send_raw(
        b"{\"type\":\"prompt\",\"message\":\"/spin\"}\n{\"type\":\"prompt\",\"message\":\"/still\"}\n",
    );
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0));
    let is_served = exit.rest.iter().any(|line| line["message"] == "still here");
    let is_told =
        errors(&exit.rest).iter().any(|error| error["error"].as_str().unwrap().contains("/still"));
    assert!(is_served || is_told, "{}", exit.transcript);
}

/// A guard whose instance dies under it has judged nothing.
#[test]
fn a_tool_call_behind_a_looping_command_is_judged_or_fails_closed() {
    let env = quick();
    let model = env.script(&[bash("echo calm"), says("done")]);
    let mut wharf = env.rpc_with(&["spins"], &model);
    wharf.prompt("/still");
    wharf.wait_notify();
    wharf.send(&json!({"type": "prompt", "message": "/spin"}));
    let run = wharf.run("go");
    let results = results(&run);
    let [(text, is_error)] = &results[..] else { panic!("{results:?}") };
    let is_judged = !is_error && text == "calm\n";
    let is_closed = *is_error && text.contains("spins failed");
    assert!(is_judged || is_closed, "{text}");
    assert_eq!(wharf.data(json!({"type": "get_last_assistant_text"}))["text"], "done");
    assert_eq!(wharf.finish().code, Some(0));
}

/// Neither a loop nor its budget of ten minutes holds the exit.
#[test]
fn a_looping_guest_does_not_hold_the_exit() {
    let env = patient();
    let model = env.script(&[bash("echo SPIN"), says("never")]);
    let mut wharf = env.rpc_with(&["spins"], &model);
    wharf.prompt("go");
    wharf.wait_event("tool_execution_start");
    let pid = rustix::process::Pid::from_raw(i32::try_from(wharf.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let exit = wharf.wait_exit();
    assert!(exit.code.is_some(), "it ended by itself: {exit:?}");

    let mut wharf = env.rpc_with(&["spins"], "scripted/demo");
    wharf.prompt("/spin");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn three_faults_in_a_minute_disable_an_extension_and_its_guard_still_blocks() {
    let env = quick();
    let model = env.script(&[bash("echo calm"), says("done")]);
    let mut wharf = env.rpc_with(&["panics", "heartbeat"], &model);
    for _ in 0..2 {
        wharf.prompt("/boom");
        wharf.wait_extension_error("panics.wasm");
    }
    wharf.prompt("/boom");
    wharf.wait_extension_error("panics.wasm");
    let disabled = wharf.wait_extension_error("panics.wasm");
    let text = disabled["error"].as_str().unwrap();
    assert!(text.contains("disabled") && text.contains("three"), "{text}");
    // Its command says so instead of doing nothing.
    wharf.prompt("/boom");
    let error = wharf.wait_extension_error("panics.wasm");
    assert!(error["error"].as_str().unwrap().contains("disabled"), "{error}");
    let run = wharf.run("go");
    let text = assert_failed_closed(&run, "panics");
    assert!(text.contains("disabled"), "{text}");
    assert_alive(&mut wharf, "1");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn memory_without_end_ends_at_the_limit() {
    let env = quick();
    let model = env.script(&[bash("echo GROW"), says("one"), bash("echo calm"), says("two")]);
    let mut wharf = env.rpc_with(&["grows", "heartbeat"], &model);
    wharf.prompt("/grow");
    let error = wharf.wait_extension_error("grows.wasm");
    assert_eq!(error["event"], "command");
    assert!(error["error"].as_str().unwrap().contains("memory"), "{error}");
    let run = wharf.run("go");
    assert_failed_closed(&run, "grows");
    assert_eq!(errors(&run)[0]["event"], "tool_call");
    let run = wharf.run("again");
    assert_eq!(results(&run), [("calm\n".to_owned(), false)]);
    assert_alive(&mut wharf, "1");
    let peak = peak_kib(wharf.pid());
    assert!(peak < 300 * 1024, "{peak} KiB");
    assert_eq!(wharf.finish().code, Some(0));
}

#[test]
fn registrations_that_fail_are_told_and_leave_the_others_alone() {
    let env = quick();
    let guests = ["spins-register", "panics-register", "newer-api", "hello", "heartbeat"];
    let mut wharf = env.rpc_with(&guests, "scripted/demo");
    // Names of commands are known when every registration has settled.
    let commands = wharf.data(json!({"type": "get_commands"}));
    let names: Vec<&str> = commands["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["hello", "beat"]);
    let error = wharf.wait_extension_error("spins_register.wasm");
    assert_eq!(error["event"], "register");
    assert!(error["error"].as_str().unwrap().contains("300 ms"), "{error}");
    let error = wharf.wait_extension_error("panics_register.wasm");
    assert_eq!(error["event"], "register");
    assert!(error["error"].as_str().unwrap().contains("boom on purpose"), "{error}");
    let error = wharf.wait_extension_error("newer_api.wasm");
    assert_eq!(error["event"], "load");
    let text = error["error"].as_str().unwrap();
    assert!(
        text.contains(
            "extension newer_api is built for wharf:extension@0.9.0; this host supports 0.1.0 to 0.1.1"
        ),
        "{text}"
    );
    assert_alive(&mut wharf, "1");
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0));
    assert!(errors(&exit.rest).is_empty(), "told twice: {}", exit.transcript);
}

#[test]
fn files_that_are_no_extension_are_named_with_what_to_do() {
    let env = quick();
    let hello = std::fs::read(guest("hello")).unwrap();
    let files: [(&str, &[u8], &[&str]); 8] = [
        ("half.wasm", &hello[..hello.len() / 2], &["truncated"]),
        ("almost.wasm", &hello[..hello.len() - 1], &["truncated"]),
        ("start.wasm", &hello[..100], &["truncated"]),
        ("header.wasm", &hello[..8], &["wharf-sdk"]),
        ("torn-header.wasm", &hello[..5], &["WebAssembly"]),
        ("core.wasm", b"\0asm\x01\0\0\0", &["core", "not a component", "wasm32-wasip2"]),
        ("empty.wasm", b"", &["WebAssembly"]),
        ("text.wasm", b"#!/bin/sh\necho hello\n", &["WebAssembly"]),
    ];
    let mut args: Vec<String> = Vec::new();
    for (name, content, _) in &files {
        args.extend(["-e".to_owned(), env.write(name, content).display().to_string()]);
    }
    env.write("no-component/readme.md", "nothing");
    let extra = ["missing.wasm", "no-component"].map(|name| env.project().join(name));
    for path in extra.iter().chain(&[guest("heartbeat")]) {
        args.extend(["-e".to_owned(), path.display().to_string()]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut wharf = env.rpc(&args);
    for (name, _, words) in &files {
        let error = wharf.wait_extension_error(&format!("/{name}"));
        assert_eq!(error["event"], "load", "{error}");
        let text = error["error"].as_str().unwrap();
        assert!(text.contains(name), "the file is named: {text}");
        assert!(!text.contains('\n'), "{text}");
        for word in *words {
            assert!(text.contains(word), "{word:?} in {text}");
        }
    }
    let missing = wharf.wait_extension_error("missing.wasm");
    assert!(missing["error"].as_str().unwrap().contains("there is no extension at"), "{missing}");
    let folder = wharf.wait_extension_error("no-component");
    assert!(folder["error"].as_str().unwrap().contains("extension.wasm"), "{folder}");
    assert_alive(&mut wharf, "1");
    let exit = wharf.finish();
    assert_eq!(exit.code, Some(0));
    assert!(errors(&exit.rest).is_empty(), "told twice: {}", exit.transcript);
    // People read the same on standard error.
    for (name, ..) in &files {
        assert!(exit.stderr.contains(name), "{}", exit.stderr);
    }
}

#[test]
fn a_run_with_every_bad_extension_and_a_good_guard_goes_on() {
    let env = quick();
    let model = env.script(&[bash("sudo id"), bash("echo calm"), says("done")]);
    let guests = [
        "panics",
        "spins",
        "grows",
        "newer-api",
        "panics-register",
        "spins-register",
        "permission-gate",
    ];
    let mut wharf = env.rpc_with(&guests, &model);
    wharf.prompt("go");
    let dialog = wharf.wait_ui("select");
    wharf.answer(&dialog, json!({"value": "No"}));
    let run = wharf.until("agent_end", |line| line["type"] == "agent_end");
    assert_eq!(results(&run), [("Blocked by user".to_owned(), true), ("calm\n".to_owned(), false)]);
    assert_eq!(wharf.finish().code, Some(0));
}

/// The same extensions in a run without anybody to ask.
#[test]
fn json_mode_fails_closed_too_and_ends_with_agent_end() {
    let env = quick();
    let model = env.script(&[bash("echo PANIC"), bash("echo SPIN"), says("done")]);
    let mut command = env.command();
    command.args(["--mode", "json", "--model", &model, "go"]);
    for name in ["panics", "spins"] {
        command.arg("-e").arg(guest(name));
    }
    let exit = Wharf::start(command, env.names()).finish();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    let results = results(&exit.rest);
    assert_eq!(results.len(), 2, "{results:?}");
    for (text, is_error) in &results {
        assert!(is_error & text.contains("failed"), "{text}");
    }
    assert_eq!(errors(&exit.rest).len(), 2);
    assert_eq!(exit.rest.last().unwrap()["type"], "agent_end");
}

/// Nothing is dropped, nothing piles up, and others are served meanwhile.
#[test]
fn a_flood_of_notices_reaches_a_slow_reader_whole() {
    const FLOOD: usize = 200_000;
    let env = Env::new();
    let mut command = env.command();
    command.args(["--mode", "rpc", "--no-session"]);
    for name in ["floods", "heartbeat"] {
        command.arg("-e").arg(guest(name));
    }
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A small buffer, and nothing read ahead of what the test looks at.
    let mut stdout = BufReader::with_capacity(1024, child.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    writeln!(stdin, "{}", json!({"type": "prompt", "message": "/beat warm"})).unwrap();
    while next()["message"] != "beat warm" {}
    writeln!(stdin, "{}", json!({"type": "prompt", "message": format!("/flood {FLOOD}")})).unwrap();
    let mut seen = 0;
    let mut beat_after = None;
    while seen < FLOOD || beat_after.is_none() {
        let line = next();
        assert_ne!(line["type"], "extension_error", "{line}");
        let Some(text) = line["message"].as_str() else { continue };
        if text == "beat meanwhile" {
            beat_after = Some(seen);
            continue;
        }
        seen += 1;
        assert_eq!(text, format!("flood {seen}"));
        if seen == 1000 {
            // The reader rests: the pipe and every queue behind it fill up.
            std::thread::sleep(std::time::Duration::from_millis(300));
            writeln!(stdin, "{}", json!({"type": "prompt", "message": "/beat meanwhile"})).unwrap();
        }
    }
    let beat_after = beat_after.unwrap();
    assert!(beat_after < FLOOD, "the heartbeat had to wait for the whole flood");
    let peak = peak_kib(child.id());
    assert!(peak < 300 * 1024, "{peak} KiB");
    drop(stdin);
    while stdout.read_line(&mut String::new()).unwrap() > 0 {}
    assert!(child.wait().unwrap().success());
}

/// The most memory that a process has had in use.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/status"))).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
