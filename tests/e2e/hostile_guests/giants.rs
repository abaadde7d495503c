//! Arguments that are far too large, for every import that takes one.

use serde_json::{Value, json};
use wharf_tests::script::{call, says};
use wharf_tests::{Env, Wharf};

use super::{
    HOST_MIB, assert_ends, assert_memory, assert_served, memory_mib, outcome, start, with_limits,
};

/// Less than what one host call may take out of a guest (64 MiB).
const LARGE: usize = 60 << 20;
/// Far more.
const GIANT: usize = 1 << 30;
/// The guest has the giant, and room to make it.
const GIANT_MEMORY_MIB: u64 = 1_200;

/// Every import with an argument of any size, the kind of argument, and what one that is
/// large comes to: `ok` where it is cut, or where nothing is of that name.
const IMPORTS: [(&str, &str, &str); 52] = [
    ("ui.select", "text", "ok"),
    ("ui.select", "list", "ok"),
    ("ui.confirm", "text", "ok"),
    ("ui.input", "text", "ok"),
    ("ui.editor", "text", "ok"),
    ("ui.ask", "text", "ok"),
    ("ui.ask", "list", "ok"),
    ("ui.notify", "text", "ok"),
    ("ui.set-status", "text", "ok"),
    ("ui.set-status.key", "text", "ok"),
    ("ui.set-widget", "text", "ok"),
    ("ui.set-widget", "list", "ok"),
    ("ui.set-title", "text", "ok"),
    ("ui.set-editor-text", "text", "ok"),
    ("session.label", "text", "ok"),
    ("session.append-entry", "json", "invalid"),
    ("session.append-entry.type", "text", "invalid"),
    ("session.set-name", "text", "invalid"),
    ("session.set-label", "text", "invalid"),
    ("agent.send-user-message", "text", "invalid"),
    ("agent.send-message", "text", "invalid"),
    ("agent.compact", "text", "invalid"),
    ("agent.set-active-tools", "text", "invalid"),
    ("agent.set-active-tools", "list", "invalid"),
    ("agent.register-tool", "json", "invalid"),
    ("agent.register-tool.description", "text", "invalid"),
    ("agent.unregister-tool", "text", "ok"),
    ("agent.call-built-in", "json", "refused"),
    ("agent.find-models", "text", "ok"),
    ("agent.set-model", "text", "invalid"),
    ("agent.set-thinking-level", "text", "invalid"),
    ("agent.flag", "text", "ok"),
    ("agent.register-provider", "json", "invalid"),
    ("agent.unregister-provider", "text", "ok"),
    ("control.switch-session", "text", "refused"),
    ("control.new-session-with", "text", "refused"),
    ("control.fork", "text", "refused"),
    ("control.navigate-tree", "text", "refused"),
    ("log.write", "text", "ok"),
    ("progress.update", "text", "ok"),
    ("bus.emit", "json", "invalid"),
    ("bus.emit.topic", "text", "invalid"),
    ("replies.push", "text", "refused"),
    ("files.read", "text", "invalid"),
    ("files.list-directory", "text", "invalid"),
    ("files.remove", "text", "invalid"),
    ("files.write", "text", "invalid"),
    ("http.fetch", "text", "invalid"),
    ("http.fetch", "json", "invalid"),
    ("process.exec", "text", "invalid"),
    ("process.exec", "json", "invalid"),
    ("process.env", "text", "invalid"),
];

/// Lists, whose items are larger in the host than in the guest.
const LISTS: [&str; 6] = [
    "ui.select",
    "ui.set-widget",
    "ui.ask",
    "agent.set-active-tools",
    "http.fetch",
    "process.exec",
];

#[test]
fn every_import_refuses_or_cuts_what_is_too_large() {
    let env = with_limits(&json!({}));
    let mut wharf = start(&env, "giants");
    let mut faults = Vec::new();
    for (import, kind, expected) in IMPORTS.iter().filter(|(_, kind, _)| *kind != "list") {
        wharf.prompt(&format!("/giant {import} {kind} {LARGE}"));
        let told = wharf.wait_for(import, is_told);
        let outcome = told["message"].as_str().unwrap_or("null");
        let outcome: Value = serde_json::from_str(outcome).unwrap();
        let error = &outcome["error"]["kind"];
        let is_fine = match *expected {
            "ok" => outcome["ok"].is_string(),
            "refused" => error.is_string(),
            expected => error == expected,
        };
        // The text is not repeated.
        if !is_fine || told.to_string().len() > 8_000 {
            let told: String = told.to_string().chars().take(500).collect();
            faults.push(format!("{import} {kind}, not {expected}: {told}"));
        }
        assert_served(&mut wharf, "Ann");
        // The guest's own 256 MiB, and two copies of one argument.
        assert_memory(&wharf, HOST_MIB + 256 + 128);
        if told["type"] == "extension_error" {
            wharf = start(&env, "giants");
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let lines = assert_ends(wharf);
    assert!(lines.iter().all(|line| line.to_string().len() < 5 << 20), "a line of megabytes");
    assert!(!env.project().join("giant.txt").exists());
}

/// What came of a call, or that it trapped.
fn is_told(line: &Value) -> bool {
    line["type"] == "extension_error"
        || line["message"].as_str().is_some_and(|text| text.starts_with("{\"call\""))
}

/// One process for two of them: the third trap would end the extension.
fn gigabytes(imports: &[(&str, &str)]) {
    for pair in imports.chunks(2) {
        let env = with_limits(&json!({"memoryMb": GIANT_MEMORY_MIB}));
        let mut wharf = start(&env, "giants");
        for (import, kind) in pair {
            wharf.prompt(&format!("/giant {import} {kind} {GIANT}"));
            let error = wharf.wait_extension_error("giants.wasm");
            assert_eq!(error["event"], "command", "{import}: {error}");
            let text = error["error"].as_str().unwrap();
            assert!(text.len() <= 2_000, "{import}: {text}");
            assert!(!text.contains("memory limit"), "{import}: {text}");
            assert_served(&mut wharf, "Bea");
        }
        // Nothing of it was copied.
        assert_memory(&wharf, GIANT_MEMORY_MIB + HOST_MIB);
        assert_ends(wharf);
    }
}

fn texts(part: usize) -> Vec<(&'static str, &'static str)> {
    let all = IMPORTS.iter().map(|(import, kind, _)| (*import, *kind));
    let all: Vec<_> = all.filter(|(_, kind)| *kind != "list").collect();
    let length = all.len().div_ceil(4);
    all.chunks(length).nth(part).unwrap().to_vec()
}

#[test]
fn a_gigabyte_traps_in_the_first_quarter_of_imports() {
    gigabytes(&texts(0));
}

#[test]
fn a_gigabyte_traps_in_the_second_quarter_of_imports() {
    gigabytes(&texts(1));
}

#[test]
fn a_gigabyte_traps_in_the_third_quarter_of_imports() {
    gigabytes(&texts(2));
}

#[test]
fn a_gigabyte_traps_in_the_last_quarter_of_imports() {
    gigabytes(&texts(3));
}

/// An item of twelve bytes is one of twenty-four in the host, and of more with what is
/// around it.
#[test]
fn lists_without_end_are_refused_or_trap() {
    for pair in LISTS.chunks(2) {
        let env = with_limits(&json!({}));
        let mut wharf = start(&env, "giants");
        for import in pair {
            wharf.prompt(&format!("/giant {import} list {LARGE}"));
            let told = wharf.wait_for(import, is_told);
            assert!(told.to_string().len() < 8_000, "{import}: {told}");
            assert_served(&mut wharf, "Cleo");
        }
        assert_memory(&wharf, HOST_MIB + 256 + 128);
        assert_ends(wharf);
    }
}

/// JSON text that is many times larger once it is parsed. Fifteen MiB are within the limit
/// of a text.
fn assert_parses_within(import: &str) {
    let env = with_limits(&json!({}));
    let mut wharf = start(&env, "giants");
    let mut used = Vec::new();
    for _ in 0..6 {
        outcome(&mut wharf, &format!("/giant {import} numbers {}", 15 << 20));
        assert_served(&mut wharf, "Dana");
        used.push(memory_mib(wharf.pid(), "VmRSS"));
    }
    let peak = memory_mib(wharf.pid(), "VmHWM");
    // The guest's own 256 MiB, and as much for what is kept of it.
    assert!(peak < HOST_MIB + 256 + 256, "{import}: {peak} MiB, after each call {used:?}");
    assert_ends(wharf);
}

#[test]
fn entries_that_grow_by_parsing_are_bounded() {
    assert_parses_within("session.append-entry");
}

#[test]
fn messages_that_grow_by_parsing_are_bounded() {
    assert_parses_within("agent.send-message");
}

#[test]
fn other_json_that_grows_by_parsing_is_bounded() {
    for import in ["bus.emit", "agent.register-tool", "agent.register-provider"] {
        assert_parses_within(import);
    }
}

/// The same from a tool, which the model may call.
fn from_tool(env: &Env, import: &str, kind: &str) -> (Wharf, Value) {
    let args = json!({"import": import, "kind": kind, "size": LARGE});
    let model = env.script(&[call("giant", &args), says("done")]);
    let mut wharf = env.rpc_with(&["giants", "hello"], &model);
    let run = wharf.run("go");
    let end = run.iter().find(|line| line["type"] == "tool_execution_end").unwrap().clone();
    (wharf, end)
}

#[test]
fn a_tool_is_no_other_place() {
    let env = with_limits(&json!({}));
    for (import, kind, is_error) in
        [("progress.update", "text", false), ("agent.call-built-in", "json", true)]
    {
        let (mut wharf, end) = from_tool(&env, import, kind);
        assert_eq!(end["isError"], is_error, "{import}: {end}");
        assert_served(&mut wharf, "Fay");
        assert_memory(&wharf, HOST_MIB + 256 + 128);
        let lines = assert_ends(wharf);
        assert!(lines.iter().all(|line| line.to_string().len() < 40 << 20), "{import}");
    }
}
