//! `message_update`: what it carries, that its deltas add up, and that its bytes
//! are bounded.

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use wharf_tests::Env;

use crate::order::{assert_documented_order, text_of};

/// A text without repetition, so that a lost or doubled piece shows.
fn long_text(chars: usize) -> String {
    let mut text: String = (0..).map(|n| format!("{n} ")).take(chars / 2).collect();
    text.truncate(chars);
    text
}

/// A reply of one text in deltas of one character.
fn unpaced(text: &str) -> Value {
    json!({"chunkChars": 1, "content": [{"type": "text", "text": text}]})
}

fn updates(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| line["type"] == "message_update").collect()
}

/// The deltas of a kind for one block, put together.
fn deltas(lines: &[Value], kind: &str, index: usize) -> String {
    updates(lines)
        .into_iter()
        .map(|line| &line["assistantMessageEvent"])
        .filter(|event| event["type"] == kind && event["contentIndex"] == index)
        .map(|event| event["delta"].as_str().unwrap())
        .collect()
}

fn kinds(lines: &[Value]) -> Vec<(String, u64)> {
    let mut kinds: Vec<(String, u64)> = updates(lines)
        .into_iter()
        .map(|line| &line["assistantMessageEvent"])
        .map(|event| {
            let kind = event["type"].as_str().unwrap().to_owned();
            (kind, event["contentIndex"].as_u64().unwrap())
        })
        .collect();
    // How many deltas are merged into one is not fixed.
    kinds.dedup();
    kinds
}

#[test]
fn each_kind_of_block_streams_from_its_start_to_its_end() {
    let env = Env::new();
    let arguments = json!({"path": "a/b.txt", "limit": 3});
    let model = env.script(&[
        json!({"chunkChars": 3, "content": [
            {"type": "thinking", "thinking": "let me see é🦀"},
            {"type": "text", "text": "I will read."},
            {"type": "toolCall", "id": "c", "name": "read", "arguments": arguments},
            {"type": "text", "text": ""},
        ]}),
        json!({"content": [{"type": "text", "text": "done"}]}),
    ]);
    let mut wharf = env.rpc_with(&[], &model);
    let run = wharf.run("go");
    let end = run.iter().position(|line| line["type"] == "turn_end").unwrap();
    let turn = &run[..end];
    let kind = |kind: &str, index: u64| (kind.to_owned(), index);
    assert_eq!(
        kinds(turn),
        [
            kind("thinking_start", 0),
            kind("thinking_delta", 0),
            kind("thinking_end", 0),
            kind("text_start", 1),
            kind("text_delta", 1),
            kind("text_end", 1),
            kind("toolcall_start", 2),
            kind("toolcall_delta", 2),
            kind("toolcall_end", 2),
            kind("text_start", 3),
            kind("text_end", 3),
        ]
    );
    assert_eq!(deltas(turn, "thinking_delta", 0), "let me see é🦀");
    assert_eq!(deltas(turn, "text_delta", 1), "I will read.");
    let sent: Value = serde_json::from_str(&deltas(turn, "toolcall_delta", 2)).unwrap();
    assert_eq!(sent, arguments);
    let find = |kind: &str| {
        updates(turn)
            .into_iter()
            .map(|line| &line["assistantMessageEvent"])
            .find(|event| event["type"] == kind)
            .unwrap()
    };
    assert_eq!(find("thinking_end")["content"], "let me see é🦀");
    assert_eq!(find("text_end")["content"], "I will read.");
    let call = json!({"type": "toolCall", "id": "c", "name": "read", "arguments": arguments});
    assert_eq!(find("toolcall_end")["toolCall"], call);
    assert_eq!(assert_documented_order(&run), 1);
}

#[test]
fn every_update_carries_the_message_so_far() {
    let env = Env::new();
    let text = long_text(3_000);
    // Some deltas come one by one, so that there are updates to look at.
    let model = env.script(&[
        json!({"chunkChars": 100, "delayMs": 5, "content": [{"type": "text", "text": text}]}),
    ]);
    let mut wharf = env.rpc_with(&[], &model);
    let run = wharf.run("go");
    let mut so_far = String::new();
    for update in updates(&run) {
        let event = &update["assistantMessageEvent"];
        if event["type"] == "text_delta" {
            so_far.push_str(event["delta"].as_str().unwrap());
        }
        assert_eq!(update["message"], event["partial"]);
        assert_eq!(update["message"]["role"], "assistant");
        assert_eq!(text_of(&update["message"]), so_far);
    }
    assert_eq!(so_far, text);
    let end = run.iter().rfind(|line| line["type"] == "message_end").unwrap();
    assert_eq!(text_of(&end["message"]), text);
}

#[test]
fn updates_come_while_the_reply_streams() {
    let env = Env::new();
    // Longer than the test waits for anything.
    let model = env.script(&[
        json!({"chunkChars": 1, "delayMs": 50, "content": [{"type": "text", "text": "x".repeat(10_000)}]}),
    ]);
    let mut wharf = env.rpc_with(&[], &model);
    wharf.prompt("go");
    for _ in 0..5 {
        wharf.wait_for("a delta", |line| line["assistantMessageEvent"]["type"] == "text_delta");
    }
    wharf.data(json!({"type": "get_version"}));
    wharf.kill();
}

#[test]
fn dashboard_updates_leave_the_message_out() {
    let env = Env::new();
    let text = long_text(20_000);
    let model = env.script(&[
        json!({"chunkChars": 1, "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": text},
            {"type": "toolCall", "id": "c", "name": "ls", "arguments": {"path": "."}},
        ]}),
        json!({"content": []}),
    ]);
    let mut wharf = env.rpc(&["--model", &model, "--ui", "dashboard"]);
    let run = wharf.run("go");
    for update in updates(&run) {
        assert_eq!(update.as_object().unwrap().len(), 2, "{update}");
        let event = &update["assistantMessageEvent"];
        assert!(event.get("partial").is_none(), "{update}");
        assert!(event["contentIndex"].is_u64(), "{update}");
    }
    assert_eq!(deltas(&run, "thinking_delta", 0), "hm");
    assert_eq!(deltas(&run, "text_delta", 1), text);
    assert_eq!(deltas(&run, "toolcall_delta", 2), r#"{"path":"."}"#);
    let call = updates(&run)
        .into_iter()
        .find(|line| line["assistantMessageEvent"]["type"] == "toolcall_end")
        .unwrap();
    assert_eq!(call["assistantMessageEvent"]["toolCall"]["name"], "ls");
    let end = run
        .iter()
        .find(|line| line["type"] == "message_end" && line["message"]["role"] == "assistant");
    assert_eq!(end.unwrap()["message"]["content"][1]["text"], text);
    assert_eq!(assert_documented_order(&run), 1);
}

/// The bytes on stdout of one reply in so many deltas of one character.
fn bytes_of(deltas: usize) -> usize {
    let env = Env::new();
    let text = long_text(deltas);
    let model = env.script(&[unpaced(&text)]);
    let mut wharf = env.rpc_with(&[], &model);
    let run = wharf.run("go");
    assert_eq!(self::deltas(&run, "text_delta", 0), text);
    wharf.finish().stdout_bytes
}

#[test]
fn twice_the_deltas_are_less_than_two_and_a_half_times_the_bytes() {
    // The smallest of some runs: a machine that pauses a run lets more updates out.
    let least = |deltas: usize| (0..5).map(|_| bytes_of(deltas)).min().unwrap();
    let (once, twice) = (least(10_000), least(20_000));
    assert!(twice * 2 < once * 5, "{once} bytes for 10,000 deltas, {twice} for 20,000");
    assert!(twice < 6 * 1024 * 1024, "{twice} bytes for 20,000 deltas");
}

/// Starts a run and reads its output 4 kB at a time, with pauses.
fn read_slowly(mode: &[&str], text: &str) -> Vec<Value> {
    let env = Env::new();
    let model = env.script(&[unpaced(text)]);
    let mut child = env
        .command()
        .args(["--model", &model])
        .args(mode)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    if mode.contains(&"rpc") {
        stdin.write_all(b"{\"type\":\"prompt\",\"message\":\"go\"}\n").unwrap();
    }
    drop(stdin);
    let mut stdout = child.stdout.take().unwrap();
    let mut output = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        std::thread::sleep(Duration::from_millis(2));
        let read = stdout.read(&mut chunk).unwrap();
        if read == 0 {
            break;
        }
        output.extend_from_slice(&chunk[..read]);
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(output.last(), Some(&b'\n'));
    output
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

#[test]
fn a_slow_reader_gets_every_delta() {
    let text = long_text(20_000);
    for mode in
        [&["--mode", "rpc"][..], &["--mode", "rpc", "--ui", "dashboard"], &["--mode", "json", "go"]]
    {
        let lines = read_slowly(mode, &text);
        assert_eq!(deltas(&lines, "text_delta", 0), text, "{mode:?}");
        assert_eq!(assert_documented_order(&lines), 1, "{mode:?}");
        let end = lines.iter().rfind(|line| line["type"] == "agent_end").unwrap();
        assert_eq!(text_of(&end["messages"][1]), text, "{mode:?}");
    }
}

#[test]
fn a_long_tool_call_adds_up_too() {
    let env = Env::new();
    let content = long_text(20_000);
    let model = env.script(&[
        json!({"chunkChars": 1, "content": [{"type": "toolCall", "id": "c", "name": "write",
            "arguments": {"path": "long.txt", "content": content}}]}),
        json!({"content": [{"type": "text", "text": "done"}]}),
    ]);
    let mut wharf = env.rpc_with(&[], &model);
    let run = wharf.run("go");
    let arguments: Value = serde_json::from_str(&deltas(&run, "toolcall_delta", 0)).unwrap();
    assert_eq!(arguments["content"], content);
    assert_eq!(std::fs::read_to_string(env.project().join("long.txt")).unwrap(), content);
}
