//! `cargo xtask demo` without the building: what it shows, and that it fails when
//! something is not as it should be.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use wharf_tests::{Env, binary, guest};

/// Runs the demo with nobody at a terminal.
fn demo(wharf: &Path, guests: &Path) -> Output {
    let xtask = binary().with_file_name("xtask");
    assert!(xtask.is_file(), "{} is missing: run `cargo xtask test`", xtask.display());
    Command::new(xtask)
        .arg("demo")
        .arg("--wharf")
        .arg(wharf)
        .arg("--guests")
        .arg(guests)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The examples of the demo, in a folder of their own.
fn guests(env: &Env) -> std::path::PathBuf {
    let folder = env.project();
    for name in ["rpc_demo", "permission_gate", "confirm_switch"] {
        std::fs::copy(guest(name), folder.join(format!("{name}.wasm"))).unwrap();
    }
    folder
}

#[track_caller]
fn check_failure(output: &Output, expect: &str) {
    let (text, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success(), "the demo succeeded:\n{text}");
    assert!(error.contains(expect), "{error}\n{text}");
}

#[test]
fn every_step_is_shown_with_its_direction() {
    let env = Env::new();
    let output = demo(&binary(), &guests(&env));
    let text = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}\n{text}");
    let mut rest = text.as_str();
    for expect in [
        "so the demo answers the dialogs by itself",
        "== 1. ",
        "client → wharf  {\"id\":\"1\",\"type\":\"get_state\"}",
        "wharf → client  {\"id\":\"1\",\"type\":\"response\",\"command\":\"get_state\",\"success\":true,",
        " bytes)",
        "== 2. ",
        "client → wharf  {\"id\":\"2\",\"type\":\"prompt\",\"message\":\"/rpc-input\"}",
        "wharf → client  {\"id\":\"2\",\"type\":\"response\",\"command\":\"prompt\",\"success\":true}",
        "\"method\":\"input\"",
        "client → wharf  {\"type\":\"extension_ui_response\",",
        "\"value\":\"Ada Lovelace\"}",
        "wharf → client  {\"type\":\"extension_ui_response_handled\",",
        "\"message\":\"input: answered Ada Lovelace\"",
        "== 3. ",
        "\"message\":\"clean the build folder\"}",
        "wharf → client  {\"type\":\"agent_start\",",
        "wharf → client  {\"type\":\"message_update\",\"message\":{… ",
        "\"partial\":{… ",
        "wharf → client  {\"type\":\"tool_execution_start\",\"toolCallId\":\"call_1\",\"toolName\":\"bash\",\"args\":{\"command\":\"rm -rf ./build\"}}",
        "\"method\":\"select\"",
        "client → wharf  {\"type\":\"extension_ui_response\",",
        "\"value\":\"No\"}",
        "wharf → client  {\"type\":\"tool_execution_end\",",
        "\"isError\":true}",
        "wharf → client  {\"type\":\"agent_end\",",
        "Blocked: the folder build is still there.",
        "== 4. ",
        "\"type\":\"new_session\"}",
        "\"method\":\"confirm\"",
        "\"confirmed\":false}",
        "\"data\":{\"cancelled\":true}}",
        "Cancelled: the session and its messages are still there.",
        "== 5. ",
        "7 lines of JSON, 4 of them messages.",
    ] {
        let Some(at) = rest.find(expect) else {
            panic!("{expect:?} is missing, or out of order, in:\n{text}");
        };
        rest = &rest[at + expect.len()..];
    }
    // No colours where there is no terminal.
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_call_that_nobody_caught_fails_the_demo() {
    let env = Env::new();
    let guests = guests(&env);
    std::fs::copy(guest("hello"), guests.join("permission_gate.wasm")).unwrap();
    check_failure(
        &demo(&binary(), &guests),
        "nobody was asked: a select dialog should come before",
    );
}

#[test]
fn a_component_that_does_not_load_fails_the_demo() {
    let env = Env::new();
    let guests = guests(&env);
    std::fs::write(guests.join("confirm_switch.wasm"), "no component").unwrap();
    check_failure(&demo(&binary(), &guests), "an extension failed: ");
    std::fs::remove_file(guests.join("confirm_switch.wasm")).unwrap();
    check_failure(&demo(&binary(), &guests), "confirm_switch.wasm is missing");
}

#[test]
fn a_wharf_that_dies_fails_the_demo() {
    let env = Env::new();
    let wharf = env.write_agent("wharf", "#!/bin/sh\necho oops >&2\nread line\nexit 3\n");
    std::fs::set_permissions(&wharf, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = demo(&wharf, &guests(&env));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("wharf, stderr   oops"), "{text}");
    check_failure(&output, "wharf ended before the response to command 1 (exit status: 3)");
}
